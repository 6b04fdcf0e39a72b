/* Bells: rung only for sleepers, once per ticket; waits end for the right reason. */
#include "ipc/bell.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ctl ctl;
static _Atomic uint32_t wake, waiting, flag;
static struct bell_sleeper sleeper;
static struct bell_waker waker;
static int notify[2];

static int flag_set(const void *arg)
{
    return atomic_load((const _Atomic uint32_t *)arg) != 0;
}

static void setup(void)
{
    ck_assert_int_eq(bell_notify_open(notify), 0);
    bell_sleeper_init(&sleeper, &wake, &waiting, -1, notify[1]);
    bell_waker_init(&waker, &waiting, &wake, notify[0]);
}

static int readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

/* ---- the daemon's bell ----------------------------------------------------------------------- */

START_TEST(bell_rings_only_for_a_sleeping_daemon)
{
    int fd = bell_open();

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bell_ring(&ctl, fd), 0);
    ck_assert(!readable(fd));
    bell_daemon_sleep(&ctl);
    ck_assert_int_eq(bell_ring(&ctl, fd), 1);
    ck_assert(readable(fd));
    bell_daemon_awake(&ctl);
    ck_assert_int_eq(bell_ring(&ctl, fd), 0);
    close(fd);
}
END_TEST

START_TEST(a_full_bell_neither_blocks_nor_fails)
{
    int fd = bell_open();
    uint64_t most = UINT64_MAX - 1;

    ck_assert_int_eq((int)write(fd, &most, sizeof(most)), sizeof(most));
    bell_daemon_sleep(&ctl);
    ck_assert_int_eq(bell_ring(&ctl, fd), 1);
    close(fd);
    ck_assert_int_eq(bell_ring(&ctl, fd), -EBADF);
}
END_TEST

START_TEST(pulse_counts_and_publishes_the_step_time)
{
    bell_daemon_pulse(&ctl, 1000, 5);
    bell_daemon_pulse(&ctl, 2000, 6);
    ck_assert_uint_eq(atomic_load(&ctl.heartbeat), 2);
    ck_assert_uint_eq(atomic_load(&ctl.step_at_ns), 2000);
    ck_assert_uint_eq(atomic_load(&ctl.step_ns), 6);
}
END_TEST

/* ---- tickets --------------------------------------------------------------------------------- */

START_TEST(without_a_waiter_no_wake_is_sent)
{
    ck_assert_int_eq(bell_due(&waker), BELL_NONE);
    ck_assert_uint_eq(atomic_load(&wake), 0);
}
END_TEST

START_TEST(each_ticket_is_rung_once)
{
    atomic_store(&waiting, 2);
    ck_assert_int_eq(bell_due(&waker), BELL_FUTEX);
    ck_assert_uint_eq(atomic_load(&wake), 1);
    ck_assert_int_eq(bell_due(&waker), BELL_NONE);
    ck_assert_uint_eq(atomic_load(&wake), 1);
    atomic_store(&waiting, 4);
    ck_assert_int_eq(bell_due(&waker), BELL_FUTEX);
    ck_assert_uint_eq(atomic_load(&wake), 2);
}
END_TEST

START_TEST(notify_ticket_goes_to_the_socketpair)
{
    atomic_store(&waiting, 3);
    ck_assert_int_eq(bell_due(&waker), BELL_NOTIFY);
    ck_assert_uint_eq(atomic_load(&wake), 0);
    waker.notify_fd = -1; /* client claims a fd but has none: a futex wake is harmless */
    atomic_store(&waiting, 5);
    ck_assert_int_eq(bell_due(&waker), BELL_FUTEX);
}
END_TEST

START_TEST(an_unread_socketpair_never_blocks)
{
    for (int i = 0; i < 5000; i++)
        ck_assert_int_eq(bell_notify(notify[0]), 0);
    bell_drain(&sleeper);
    ck_assert(!readable(notify[1]));
    close(notify[1]);
    ck_assert_int_eq(bell_notify(notify[0]), -EPIPE); /* and no SIGPIPE */
}
END_TEST

START_TEST(waking_unmapped_memory_is_not_an_error)
{
    ck_assert_int_eq(bell_wake((_Atomic uint32_t *)4096), 0);
}
END_TEST

/* ---- waits ----------------------------------------------------------------------------------- */

static uint64_t in_ms(uint64_t ms)
{
    return bell_now_ns() + ms * 1000000u;
}

START_TEST(a_wait_that_is_ready_at_once_announces_nothing)
{
    struct bell_patience p = {0};

    atomic_store(&flag, 1);
    ck_assert_int_eq(bell_wait(&sleeper, flag_set, &flag, &p), 0);
    ck_assert_uint_eq(sleeper.number, 0);
    ck_assert_int_eq(bell_arm(&sleeper, flag_set, &flag), 0);
    ck_assert_uint_eq(atomic_load(&waiting), 0);
}
END_TEST

START_TEST(deadline_ends_every_kind_of_wait)
{
    struct bell_patience kinds[] = {{0},
                                    {.spin_ns = 1000000000},
                                    {.expect_ns = in_ms(5), .guard_ns = 200000},
                                    {.expect_ns = in_ms(5000), .guard_ns = 200000},
                                    {.expect_ns = 1, .guard_ns = 200000}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t end = in_ms(20);

        kinds[i].deadline_ns = end;
        ck_assert_int_eq(bell_wait(&sleeper, flag_set, &flag, &kinds[i]), -ETIMEDOUT);
        ck_assert(bell_now_ns() >= end);
        ck_assert_uint_eq(atomic_load(&waiting), 0);
    }
}
END_TEST

START_TEST(a_hang_up_ends_the_wait)
{
    struct bell_patience p = {0};
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    sleeper.socket_fd = fds[0];
    close(fds[1]);
    ck_assert_int_eq(bell_wait(&sleeper, flag_set, &flag, &p), -EPIPE);
}
END_TEST

START_TEST(a_hang_up_ends_a_wait_long_before_its_deadline)
{
    struct bell_patience p = {.deadline_ns = in_ms(24 * 3600000)};
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    sleeper.socket_fd = fds[0];
    close(fds[1]);
    ck_assert_int_eq(bell_wait(&sleeper, flag_set, &flag, &p), -EPIPE);
}
END_TEST

static void on_alarm(int sig)
{
    (void)sig;
}

START_TEST(a_signal_ends_the_wait)
{
    struct sigaction a = {.sa_handler = on_alarm};
    struct bell_patience p = {0};

    sigaction(SIGALRM, &a, NULL);
    ualarm(20000, 20000); /* repeats, in case the first one comes before the wait */
    ck_assert_int_eq(bell_wait(&sleeper, flag_set, &flag, &p), -EINTR);
    ualarm(0, 0);
}
END_TEST

/* The other side: sets the flag as soon as a client waits, then rings as a step does. */
static void *ring_when_waiting(void *arg)
{
    (void)arg;
    while (atomic_load(&waiting) == 0)
        usleep(100);
    usleep(2000);
    atomic_store(&flag, 1);
    bell_fence();
    switch (bell_due(&waker)) {
    case BELL_FUTEX:
        bell_wake(&wake);
        break;
    case BELL_NOTIFY:
        bell_notify(notify[0]);
        break;
    default:
        break;
    }
    return NULL;
}

START_TEST(a_sleeper_is_woken)
{
    struct bell_patience p = {0};
    pthread_t thread;

    sleeper.look_ns = 3600000000000; /* without a wake it sleeps until the test times out */
    pthread_create(&thread, NULL, ring_when_waiting, NULL);
    ck_assert_int_eq(bell_wait(&sleeper, flag_set, &flag, &p), 0);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(waker.last, 2);
    ck_assert_uint_eq(atomic_load(&wake), 1);
}
END_TEST

START_TEST(an_event_before_its_expected_time_wakes_the_sleeper)
{
    struct bell_patience p = {
        .expect_ns = in_ms(3600000), .guard_ns = 1000, .deadline_ns = in_ms(3601000)};
    pthread_t thread;

    pthread_create(&thread, NULL, ring_when_waiting, NULL);
    ck_assert_int_eq(bell_wait(&sleeper, flag_set, &flag, &p), 0);
    pthread_join(thread, NULL);
    ck_assert(bell_now_ns() < p.expect_ns);
}
END_TEST

START_TEST(an_armed_descriptor_becomes_readable)
{
    struct pollfd p = {.fd = notify[1], .events = POLLIN};
    pthread_t thread;

    pthread_create(&thread, NULL, ring_when_waiting, NULL);
    ck_assert_int_eq(bell_arm(&sleeper, flag_set, &flag), 1);
    ck_assert_uint_eq(atomic_load(&waiting), 3);
    ck_assert_int_eq(poll(&p, 1, 60000), 1);
    bell_drain(&sleeper);
    ck_assert(!readable(notify[1]));
    ck_assert_uint_eq(atomic_load(&waiting), 0);
    ck_assert(flag_set(&flag));
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(ticket_numbers_skip_zero_when_they_wrap)
{
    sleeper.number = UINT32_MAX;
    ck_assert_int_eq(bell_arm(&sleeper, flag_set, &flag), 1);
    ck_assert_uint_eq(atomic_load(&waiting), 3);
    sleeper.number = 0x7fffffff;
    ck_assert_int_eq(bell_arm(&sleeper, flag_set, &flag), 1);
    ck_assert_uint_eq(atomic_load(&waiting), 3);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bell");
    TCase *t = tcase_create("bell");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, bell_rings_only_for_a_sleeping_daemon);
    tcase_add_test(t, a_full_bell_neither_blocks_nor_fails);
    tcase_add_test(t, pulse_counts_and_publishes_the_step_time);
    tcase_add_test(t, without_a_waiter_no_wake_is_sent);
    tcase_add_test(t, each_ticket_is_rung_once);
    tcase_add_test(t, notify_ticket_goes_to_the_socketpair);
    tcase_add_test(t, an_unread_socketpair_never_blocks);
    tcase_add_test(t, waking_unmapped_memory_is_not_an_error);
    tcase_add_test(t, a_wait_that_is_ready_at_once_announces_nothing);
    tcase_add_test(t, deadline_ends_every_kind_of_wait);
    tcase_add_test(t, a_hang_up_ends_the_wait);
    tcase_add_test(t, a_hang_up_ends_a_wait_long_before_its_deadline);
    tcase_add_test(t, a_signal_ends_the_wait);
    tcase_add_test(t, a_sleeper_is_woken);
    tcase_add_test(t, an_event_before_its_expected_time_wakes_the_sleeper);
    tcase_add_test(t, an_armed_descriptor_becomes_readable);
    tcase_add_test(t, ticket_numbers_skip_zero_when_they_wrap);
    suite_add_tcase(s, t);
    return run_suite(s);
}
