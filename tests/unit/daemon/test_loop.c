/*
 * Waiting for descriptors: every test runs on io_uring and on epoll, which must behave the same.
 * Where the system refuses io_uring, its half is skipped with a line.
 */
#include "daemon/loop/loop.h"
#include "tests/run_suite.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { EVENTS = 64 };

static const enum loop_backend backends[] = {LOOP_EPOLL, LOOP_URING};
static struct loop *loop;
static struct loop_event events[EVENTS];

static void open_loop(int i)
{
    ck_assert_int_eq(loop_open(&loop, backends[i]), 0);
}

/* The result that the next io_uring wait returns instead of waiting; 0: it waits. This definition
 * replaces liburing's. */
static int next_wait;

int io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
                                     unsigned wait_nr, struct __kernel_timespec *timeout,
                                     sigset_t *mask)
{
    static int (*really)(struct io_uring *, struct io_uring_cqe **, unsigned,
                         struct __kernel_timespec *, sigset_t *);
    int rc = next_wait;

    if (!really)
        *(void **)&really = dlsym(RTLD_NEXT, "io_uring_submit_and_wait_timeout");
    next_wait = 0;
    if (rc == -EBADR) { /* as if the kernel had dropped completions */
        really(ring, cqe, wait_nr, timeout, mask);
        io_uring_cq_advance(ring, io_uring_cq_ready(ring));
    }
    return rc ? rc : really(ring, cqe, wait_nr, timeout, mask);
}

static int make_eventfd(void)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static void ring(int fd)
{
    uint64_t one = 1;

    ck_assert_int_eq(write(fd, &one, sizeof(one)), sizeof(one));
}

/* Collects events until `n` came; gives up after 20 waits of 100 ms that found nothing (one may end
 * early, see loop.h). */
static int collect(struct loop_event *ret, int n)
{
    int have = 0;

    for (int idle = 0; have < n && idle < 20;) {
        int got = loop_wait(loop, 100000000, ret + have, (size_t)(EVENTS - have));
        ck_assert_int_ge(got, 0);
        idle += got == 0;
        have += got;
    }
    return have;
}

static int make_listener(struct sockaddr_un *address, socklen_t *bytes)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof(*address);

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    ck_assert_int_eq(bind(fd, (struct sockaddr *)address, sizeof(sa_family_t)),
                     0); /* the kernel picks a name */
    ck_assert_int_eq(listen(fd, 64), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)address, &size), 0);
    *bytes = size;
    return fd;
}

static int dial(const struct sockaddr_un *address, socklen_t bytes)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(connect(fd, (const struct sockaddr *)address, bytes), 0);
    return fd;
}

/* ---- opening --------------------------------------------------------------------------------- */

START_TEST(the_name_says_which_backend_opened)
{
    open_loop(_i);
    ck_assert_str_eq(loop_name(loop), backends[_i] == LOOP_URING ? "io_uring" : "epoll");
    loop_close(loop);
    ck_assert_int_eq(loop_open(&loop, LOOP_AUTO), 0);
    loop_close(loop);
    loop_close(NULL);
}
END_TEST

START_TEST(a_wait_without_events_times_out)
{
    open_loop(_i);
    ck_assert_int_eq(loop_wait(loop, 0, events, EVENTS), 0);
    ck_assert_int_eq(loop_wait(loop, 2000000, events, EVENTS), 0);
    loop_close(loop);
}
END_TEST

/* A transient error does not end the loop: pending events come with that wait or the next. */
START_TEST(a_transient_wait_error_returns_early)
{
    static const int passing[] = {-EINTR, -EAGAIN, -ETIME, -EBUSY};
    int fd = make_eventfd();

    open_loop(_i);
    ck_assert_int_eq(loop_add_poll(loop, fd, POLLIN, 42), 0);
    ck_assert_int_eq(loop_wait(loop, 0, events, EVENTS), 0);
    for (size_t i = 0; i < sizeof(passing) / sizeof(*passing); i++) {
        ring(fd);
        next_wait = backends[_i] == LOOP_URING ? passing[i] : 0;
        ck_assert_int_eq(collect(events, 1), 1);
        ck_assert_uint_eq(events[0].cookie, 42);
    }
    next_wait = backends[_i] == LOOP_URING ? -EBADF : 0;
    ck_assert_int_eq(loop_wait(loop, 0, events, EVENTS), backends[_i] == LOOP_URING ? -EBADF : 0);
    loop_close(loop);
    close(fd);
}
END_TEST

/* ---- polls ----------------------------------------------------------------------------------- */

/* The kernel reports that it dropped completions, not which: ready descriptors are reported again,
 * and every poll still works. */
START_TEST(dropped_completions_are_recovered)
{
    struct sockaddr_un address;
    socklen_t bytes;
    int listener = make_listener(&address, &bytes), early = make_eventfd(), late = make_eventfd();

    open_loop(_i);
    ck_assert_int_eq(loop_add_poll(loop, early, POLLIN, 1), 0);
    ck_assert_int_eq(loop_add_poll(loop, late, POLLIN, 2), 0);
    ck_assert_int_eq(loop_add_accept(loop, listener, 3), 0);
    ck_assert_int_eq(loop_wait(loop, 0, events, EVENTS), 0);
    ring(early);
    next_wait = -EBADR;
    int n = loop_wait(loop, 100000000, events, EVENTS);
    ck_assert_int_ge(n, 0);
    next_wait = 0; /* epoll */
    ck_assert_int_eq(n + collect(events + n, 1 - n), 1);
    ck_assert_uint_eq(events[0].cookie, 1);
    ring(late);
    ck_assert_int_eq(collect(events, 1), 1);
    ck_assert_uint_eq(events[0].cookie, 2);
    int client = dial(&address, bytes);
    ck_assert_int_eq(collect(events, 1), 1);
    ck_assert_uint_eq(events[0].cookie, 3);
    close(events[0].result);
    loop_remove(loop, late, 2);
    ring(late);
    ck_assert_int_eq(loop_wait(loop, 1000000, events, EVENTS), 0);
    loop_close(loop);
    close(client);
    close(listener);
    close(early);
    close(late);
}
END_TEST

START_TEST(every_ring_of_an_unread_eventfd_is_an_event)
{
    int fd = make_eventfd();

    open_loop(_i);
    ck_assert_int_eq(loop_add_poll(loop, fd, POLLIN, 42), 0);
    ck_assert_int_eq(loop_wait(loop, 1000000, events, EVENTS), 0);
    for (int i = 0; i < 20; i++) { /* the count is never read: edge-triggered */
        ring(fd);
        ck_assert_int_eq(collect(events, 1), 1);
        ck_assert_uint_eq(events[0].cookie, 42);
        ck_assert_int_eq(events[0].result & POLLIN, POLLIN);
        ck_assert_int_eq(loop_wait(loop, 0, events, EVENTS), 0);
    }
    loop_close(loop);
    close(fd);
}
END_TEST

START_TEST(an_already_readable_descriptor_is_an_event)
{
    int fd = make_eventfd();

    ring(fd);
    open_loop(_i);
    ck_assert_int_eq(loop_add_poll(loop, fd, POLLIN, 7), 0);
    ck_assert_int_eq(collect(events, 1), 1);
    ck_assert_uint_eq(events[0].cookie, 7);
    loop_close(loop);
    close(fd);
}
END_TEST

START_TEST(events_carry_the_cookie_of_their_descriptor)
{
    int fds[200];
    bool seen[200] = {false};

    open_loop(_i);
    for (uint32_t i = 0; i < 200; i++) {
        fds[i] = make_eventfd();
        ck_assert_int_eq(loop_add_poll(loop, fds[i], POLLIN, 1000 + i), 0);
    }
    for (uint32_t i = 0; i < 200; i += 3)
        ring(fds[i]);
    for (int found = 0; found < 67;) {
        int n = loop_wait(loop, 1000000000, events, 16);
        ck_assert_int_gt(n, 0);
        found += n;
        for (int k = 0; k < n; k++) {
            ck_assert_uint_eq((events[k].cookie - 1000) % 3, 0);
            seen[events[k].cookie - 1000] = true;
        }
    }
    for (uint32_t i = 0; i < 200; i++) {
        ck_assert_int_eq(seen[i], i % 3 == 0);
        close(fds[i]);
    }
    loop_close(loop);
}
END_TEST

START_TEST(a_hang_up_is_an_event)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    open_loop(_i);
    ck_assert_int_eq(loop_add_poll(loop, pair[0], POLLIN | POLLRDHUP, 5), 0);
    ck_assert_int_eq(loop_wait(loop, 1000000, events, EVENTS), 0);
    close(pair[1]);
    ck_assert_int_ge(collect(events, 1), 1);
    ck_assert_uint_eq(events[0].cookie, 5);
    ck_assert(events[0].result & (POLLRDHUP | POLLHUP));
    loop_close(loop);
    close(pair[0]);
}
END_TEST

START_TEST(each_message_on_a_socket_is_an_event)
{
    int pair[2];
    char byte = 'x';

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
                     0);
    open_loop(_i);
    ck_assert_int_eq(loop_add_poll(loop, pair[0], POLLIN, 5), 0);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(send(pair[1], &byte, 1, 0), 1);
        ck_assert_int_ge(collect(events, 1), 1);
        while (recv(pair[0], &byte, 1, MSG_DONTWAIT) > 0)
            ;
    }
    loop_close(loop);
    close(pair[0]);
    close(pair[1]);
}
END_TEST

/* ---- removing -------------------------------------------------------------------------------- */

START_TEST(a_removed_descriptor_gives_no_event)
{
    int fd = make_eventfd();

    open_loop(_i);
    ck_assert_int_eq(loop_add_poll(loop, fd, POLLIN, 1), 0);
    ring(fd);
    loop_remove(loop, fd, 1); /* its event may be pending */
    ck_assert_int_eq(loop_wait(loop, 5000000, events, EVENTS), 0);
    ring(fd);
    ck_assert_int_eq(loop_wait(loop, 5000000, events, EVENTS), 0);
    loop_remove(loop, fd, 1); /* removing twice is harmless */
    loop_remove(loop, fd, 2);
    loop_close(loop);
    close(fd);
}
END_TEST

/* The entry of a removed registration is reused at once: a late event of the old one is dropped. */
START_TEST(a_reused_entry_gets_no_event_of_the_old_one)
{
    open_loop(_i);
    for (uint64_t i = 0; i < 200; i++) {
        int fd = make_eventfd();
        ck_assert_int_eq(loop_add_poll(loop, fd, POLLIN, i), 0);
        ring(fd);
        if (i % 2) {
            ck_assert_int_eq(collect(events, 1), 1);
            ck_assert_uint_eq(events[0].cookie, i);
        }
        loop_remove(loop, fd, i);
        close(fd);
    }
    ck_assert_int_eq(loop_wait(loop, 1000000, events, EVENTS), 0);
    loop_close(loop);
}
END_TEST

/* The loop keeps no reference to a removed file: a peer sees the hang-up within a turn or two. */
START_TEST(a_removed_and_closed_descriptor_is_released)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    open_loop(_i);
    ck_assert_int_eq(loop_add_poll(loop, pair[0], POLLIN | POLLRDHUP, 5), 0);
    loop_wait(loop, 0, events, EVENTS);
    loop_remove(loop, pair[0], 5);
    close(pair[0]);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(loop_wait(loop, 1000000, events, EVENTS), 0);
    struct pollfd peer = {.fd = pair[1], .events = POLLRDHUP};
    ck_assert_int_eq(poll(&peer, 1, 60000), 1);
    loop_close(loop);
    close(pair[1]);
}
END_TEST

/* The same with an event that has not been reported yet. */
START_TEST(a_descriptor_with_a_pending_event_is_released)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    open_loop(_i);
    ck_assert_int_eq(loop_add_poll(loop, pair[0], POLLIN | POLLRDHUP, 5), 0);
    loop_wait(loop, 0, events, EVENTS);
    ck_assert_int_eq(send(pair[1], "x", 1, 0), 1);
    loop_remove(loop, pair[0], 5);
    close(pair[0]);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(loop_wait(loop, 1000000, events, EVENTS), 0);
    struct pollfd peer = {.fd = pair[1], .events = POLLRDHUP};
    ck_assert_int_eq(poll(&peer, 1, 10000), 1);
    loop_close(loop);
    close(pair[1]);
}
END_TEST

START_TEST(a_full_table_refuses_and_recovers)
{
    int fd = make_eventfd(), copies[8];
    uint32_t n = 0;

    open_loop(_i);
    if (backends[_i] == LOOP_EPOLL) {
        /* One registration per descriptor, and few descriptors: few rounds. */
        ck_assert_int_eq(loop_add_poll(loop, fd, POLLIN, 1), 0);
        ck_assert_int_eq(loop_add_poll(loop, fd, POLLIN, 2), -EEXIST);
        for (uint32_t i = 0; i < 8; i++) {
            copies[i] = dup(fd);
            ck_assert_int_eq(loop_add_poll(loop, copies[i], POLLIN, 10 + i), 0);
        }
        for (uint32_t i = 0; i < 8; i++) {
            loop_remove(loop, copies[i], 10 + i);
            close(copies[i]);
        }
    } else {
        while (n < LOOP_ENTRIES + 1 && loop_add_poll(loop, fd, POLLIN, n) == 0)
            n++;
        ck_assert_uint_eq(n, LOOP_ENTRIES);
        ck_assert_int_eq(loop_add_poll(loop, fd, POLLIN, n), -ENOSPC);
        loop_remove(loop, fd, 17);
        ck_assert_int_eq(loop_add_poll(loop, fd, POLLIN, n), 0);
    }
    loop_close(loop);
    close(fd);
}
END_TEST

/* Each removal leaves two completions, far more than fit in the ring when the loop does not wait in
 * between: descriptors registered then still get their events. */
START_TEST(completion_overflow_loses_no_event)
{
    enum { POLLS = 200, ROUNDS = 30 };
    int fds[POLLS];
    bool seen[POLLS] = {false};

    open_loop(_i);
    for (uint64_t i = 0; i < POLLS; i++) {
        fds[i] = make_eventfd();
        ck_assert_int_eq(loop_add_poll(loop, fds[i], POLLIN, i), 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < POLLS; i++) {
            loop_remove(loop, fds[i], i);
            ck_assert_int_eq(loop_add_poll(loop, fds[i], POLLIN, i), 0);
        }
    }
    for (int i = 0; i < POLLS; i++)
        ring(fds[i]);
    for (int found = 0, idle = 0; found < POLLS && idle < 200;) {
        int n = loop_wait(loop, 100000000, events, EVENTS);
        ck_assert_int_ge(n, 0);
        idle += n == 0;
        for (int k = 0; k < n; k++) {
            found += !seen[events[k].cookie];
            seen[events[k].cookie] = true;
        }
    }
    for (int i = 0; i < POLLS; i++) {
        ck_assert(seen[i]);
        close(fds[i]);
    }
    loop_close(loop);
}
END_TEST

/* ---- accepting ------------------------------------------------------------------------------- */

START_TEST(every_connection_is_an_event)
{
    struct sockaddr_un address;
    socklen_t bytes;
    int listener = make_listener(&address, &bytes), clients[20], served[20];

    open_loop(_i);
    ck_assert_int_eq(loop_add_accept(loop, listener, 9), 0);
    for (int i = 0; i < 20; i++)
        clients[i] = dial(&address, bytes);
    int n = collect(events, 20);
    ck_assert_int_eq(n, 20);
    for (int i = 0; i < 20; i++) {
        ck_assert_uint_eq(events[i].cookie, 9);
        served[i] = events[i].result;
        ck_assert_int_ge(served[i], 0);
        ck_assert_int_ne(fcntl(served[i], F_GETFD) & FD_CLOEXEC, 0);
        ck_assert_int_ne(fcntl(served[i], F_GETFL) & O_NONBLOCK, 0);
        ck_assert_int_eq(send(served[i], "hi", 2, MSG_DONTWAIT), 2);
    }
    ck_assert_int_eq(loop_wait(loop, 1000000, events, EVENTS), 0);
    for (int i = 0; i < 20; i++) {
        char text[2];
        ck_assert_int_eq(recv(clients[i], text, 2, 0), 2);
        close(clients[i]);
        close(served[i]);
    }
    loop_close(loop);
    close(listener);
}
END_TEST

/* A connection made around the end of accepting comes as an event, or stays in the backlog for the
 * next accept. */
START_TEST(ending_accept_loses_no_connection)
{
    enum { DIALS = 12 };
    struct sockaddr_un address;
    socklen_t bytes;
    int listener = make_listener(&address, &bytes), dialed[DIALS], n = 0, fd;

    open_loop(_i);
    ck_assert_int_eq(loop_end_accept(loop, listener, 9), 0); /* accepting has already ended */
    for (int round = 0; round < 20; round++, n = 0) {
        ck_assert_int_eq(loop_add_accept(loop, listener, 9), 0);
        ck_assert_int_ge(loop_wait(loop, 0, events, EVENTS), 0);
        for (int i = 0; i < round % 5; i++)
            dialed[n++] = dial(&address, bytes);
        int ends = loop_end_accept(loop, listener, 9), accepted = 0;
        while (n < round % 5 + 4)
            dialed[n++] = dial(&address, bytes);
        while (ends) {
            int came = collect(events, 1);
            ck_assert_int_ge(came, 1);
            for (int i = 0; i < came; i++) {
                ck_assert_uint_eq(events[i].cookie, 9);
                ck_assert(events[i].result >= 0 ? ends : events[i].result == -ECANCELED);
                ends = events[i].result >= 0;
                accepted += ends;
                if (ends)
                    close(events[i].result);
            }
        }
        ck_assert_int_eq(loop_wait(loop, 1000000, events, EVENTS), 0); /* that was the last */
        for (; (fd = accept(listener, NULL, NULL)) >= 0; accepted++)
            close(fd);
        ck_assert_int_eq(accepted, n);
        while (n > 0)
            close(dialed[--n]);
    }
    loop_close(loop);
    close(listener);
}
END_TEST

START_TEST(polls_and_accepts_mix)
{
    struct sockaddr_un address;
    socklen_t bytes;
    int listener = make_listener(&address, &bytes), bell = make_eventfd();
    int connections = 0, rings = 0;

    open_loop(_i);
    ck_assert_int_eq(loop_add_accept(loop, listener, 1), 0);
    ck_assert_int_eq(loop_add_poll(loop, bell, POLLIN, 2), 0);
    for (int i = 0; i < 10; i++) {
        int client = dial(&address, bytes);
        ring(bell);
        int n = collect(events, 2);
        ck_assert_int_eq(n, 2);
        for (int k = 0; k < n; k++) {
            if (events[k].cookie == 1) {
                connections++;
                ck_assert_int_eq(loop_add_poll(loop, events[k].result, POLLIN | POLLRDHUP, 3), 0);
            } else {
                rings += events[k].cookie == 2;
            }
            if (events[k].cookie == 1) {
                loop_remove(loop, events[k].result, 3);
                close(events[k].result);
            }
        }
        close(client);
    }
    ck_assert_int_eq(connections, 10);
    ck_assert_int_eq(rings, 10);
    loop_close(loop);
    close(listener);
    close(bell);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop");
    TCase *t = tcase_create("loop");
    int n = 2;

    if (loop_open(&loop, LOOP_URING) < 0) {
        fprintf(stderr, "skip: this system refuses io_uring\n");
        n = 1;
    } else {
        loop_close(loop);
    }
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, the_name_says_which_backend_opened, 0, n);
    tcase_add_loop_test(t, a_wait_without_events_times_out, 0, n);
    tcase_add_loop_test(t, a_transient_wait_error_returns_early, 0, n);
    tcase_add_loop_test(t, dropped_completions_are_recovered, 0, n);
    tcase_add_loop_test(t, every_ring_of_an_unread_eventfd_is_an_event, 0, n);
    tcase_add_loop_test(t, an_already_readable_descriptor_is_an_event, 0, n);
    tcase_add_loop_test(t, events_carry_the_cookie_of_their_descriptor, 0, n);
    tcase_add_loop_test(t, a_hang_up_is_an_event, 0, n);
    tcase_add_loop_test(t, each_message_on_a_socket_is_an_event, 0, n);
    tcase_add_loop_test(t, a_removed_descriptor_gives_no_event, 0, n);
    tcase_add_loop_test(t, a_reused_entry_gets_no_event_of_the_old_one, 0, n);
    tcase_add_loop_test(t, a_removed_and_closed_descriptor_is_released, 0, n);
    tcase_add_loop_test(t, a_descriptor_with_a_pending_event_is_released, 0, n);
    tcase_add_loop_test(t, a_full_table_refuses_and_recovers, 0, n);
    tcase_add_loop_test(t, completion_overflow_loses_no_event, 0, n);
    tcase_add_loop_test(t, every_connection_is_an_event, 0, n);
    tcase_add_loop_test(t, ending_accept_loses_no_connection, 0, n);
    tcase_add_loop_test(t, polls_and_accepts_mix, 0, n);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
