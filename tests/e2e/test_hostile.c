/* Clients that write garbage, punch holes or ring for nothing only harm themselves; idle ones cost
 * nothing. */
#include "tests/e2e/harness.h"
#include "tests/e2e/raw_client.h"
#include "tests/random.h"

#include "ipc/bell.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WELL_BEHAVED = 4, ANSWERS = 30, IDLE_CLIENTS = 64, IDLE_SECONDS = 4, OTHER_USER = 12345 };

static struct harness daemon_;

static void sleep_us(long us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    nanosleep(&t, NULL);
}

/* Random bytes over all of `up`; then cells that look right, with random fields. */
static void raw_garbage(struct raw_client *raw, uint32_t *state)
{
    uint64_t bytes = raw->segment.plan.up_bytes;
    struct ring_writer writer;

    segment_submit_writer(&raw->segment, &writer);
    for (int i = 0; i < 24; i++) {
        struct submit_cell cell = {.opcode = SUBMIT_REQUEST};
        cell.slot = (uint16_t)(next_random(state) % 3);
        cell.generation = next_random(state) % 2;
        cell.length = next_random(state) % 600;
        cell.keep = next_random(state) % 600;
        cell.prompt_length = next_random(state) % 600;
        cell.max_tokens = next_random(state) % 100;
        cell.params_bytes = next_random(state) % 512 * 4;
        cell.priority = (uint8_t)(next_random(state) % 3);
        ring_push(&writer, &cell);
    }
    raw_ring(raw);
    sleep_us(300);
    for (uint64_t at = 0; at + 4 <= bytes; at += 4)
        if (next_random(state) % 3 == 0)
            memcpy(raw->segment.up + at, state, 4);
    raw_ring(raw);
    sleep_us(300);
}

/* Garbage, holes and sudden death, one connection after another. */
static void hostile_process(uint32_t seed)
{
    uint32_t state = seed;

    for (int round = 0; round < 40; round++) {
        struct raw_client raw;
        if (raw_open(&raw, daemon_.socket, 2) < 0) {
            sleep_us(2000);
            continue;
        }
        raw_garbage(&raw, &state);
        if (round % 3 == 0)
            fallocate(raw.fds[HELLO_FD_UP], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      (off_t)raw.segment.plan.up_bytes);
        if (round % 3 == 1 && ftruncate(raw.fds[HELLO_FD_UP], 0) == 0)
            _exit(3); /* sealed: this must fail */
        raw_ring(&raw);
        raw_close(&raw);
    }
    _exit(0);
}

static void good_request(struct hearth_request *request, const uint32_t *tokens, uint32_t i)
{
    hearth_request_init(request, sizeof(*request));
    request->tokens = tokens;
    request->n_tokens = 1 + i % 7;
    request->max_tokens = 40;
    request->temperature = i % 2 ? 0.8f : 0.0f;
    request->seed = i;
}

static uint64_t good_answer(struct hearth *h, uint32_t i)
{
    static const uint32_t tokens[] = {1, 20, 33, 7, 19, 60, 5};
    const struct hearth_event *event;
    struct hearth_request request;
    uint64_t hash = 1469598103934665603u;

    good_request(&request, tokens, i);
    if (hearth_submit(h, 0, &request) < 0)
        return 0;
    while (hearth_next(h, 0, &event, 60000) > 0) {
        for (uint32_t k = 0; k < event->n_tokens; k++)
            hash = (hash ^ event->tokens[k]) * 1099511628211u;
        if (event->kind == HEARTH_DONE)
            return event->result->reason == HEARTH_ERROR ? 0 : hash ^ event->result->reason;
    }
    return 0;
}

START_TEST(garbage_in_one_segment_disturbs_no_other_client)
{
    uint64_t alone[ANSWERS];
    struct hearth *good[WELL_BEHAVED];
    int64_t fds;
    pid_t pid;
    int status;

    harness_start(&daemon_, harness_tiny_model(), NULL);
    fds = harness_counter(&daemon_, "fds_open");
    for (int c = 0; c < WELL_BEHAVED; c++)
        good[c] = harness_connect(&daemon_, 1, NULL);
    for (uint32_t i = 0; i < ANSWERS; i++) {
        alone[i] = good_answer(good[0], i);
        ck_assert_uint_ne(alone[i], 0);
    }
    pid = fork();
    if (pid == 0)
        hostile_process(99);
    do {
        for (uint32_t i = 0; i < ANSWERS; i++)
            ck_assert_uint_eq(good_answer(good[i % WELL_BEHAVED], i), alone[i]);
    } while (waitpid(pid, &status, WNOHANG) == 0);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "hostile: status %x", status);
    ck_assert_int_gt(harness_counter(&daemon_, "protocol_errors"), 0);
    for (int c = 0; c < WELL_BEHAVED; c++)
        hearth_close(good[c]);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    harness_check_pages(&daemon_);
    ck_assert_int_le(harness_wait_counter(&daemon_, "fds_open", fds), fds);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

/* Random bytes instead of a handshake. */
START_TEST(garbage_handshakes_are_refused_and_leak_nothing)
{
    uint32_t state = 5;
    uint8_t message[300];
    int64_t fds;

    harness_start(&daemon_, harness_tiny_model(), NULL);
    fds = harness_counter(&daemon_, "fds_open");
    for (int i = 0; i < 300; i++) {
        char err[256];
        int fd = hello_connect(daemon_.socket, -1, err, sizeof(err));
        ck_assert_int_ge(fd, 0);
        size_t n = 1 + next_random(&state) % (sizeof(message) - 1);
        for (size_t k = 0; k < n; k++)
            message[k] = (uint8_t)next_random(&state);
        struct hello hello;
        ck_assert_int_eq(hello_prep_hello(&hello, 1, 0, NULL), 0);
        if (i % 3 == 0) { /* a valid one with one wrong byte */
            n = sizeof(hello);
            memcpy(message, &hello, n);
            message[next_random(&state) % n] ^= (uint8_t)(1 + next_random(&state) % 255);
        }
        send(fd, message, n, MSG_NOSIGNAL);
        close(fd);
    }
    ck_assert_int_le(harness_wait_counter(&daemon_, "fds_open", fds), fds);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    struct hearth *h = harness_connect(&daemon_, 1, NULL);
    ck_assert_uint_ne(good_answer(h, 1), 0);
    hearth_close(h);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

/* Another user: takes every place for connections without a HELLO, sends nothing, and stays. */
static void silent_process(uint32_t room, int ready)
{
    char err[256], byte;
    int fd = -1;

    if (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0)
        _exit(2);
    for (uint32_t i = 0; i < room + 1; i++)
        fd = hello_connect(daemon_.socket, -1, err, sizeof(err));
    if (recv(fd, &byte, 1, 0) == 1 &&
        write(ready, &byte, 1) == 1) /* the last one was refused: all places are taken */
        pause();
    _exit(1);
}

START_TEST(silent_connections_of_one_user_do_not_lock_out_others)
{
    const char *const arguments[] = {"--clients", "4", NULL};
    int ready[2];
    char byte;

    if (getuid() != 0) {
        printf("skip: only root can run as a second user\n");
        return;
    }
    harness_start(&daemon_, harness_tiny_model(), arguments);
    ck_assert_int_eq(chmod(daemon_.directory, 0755), 0);
    ck_assert_int_eq(chmod(daemon_.socket, 0666), 0);
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0)
        silent_process(4 + 64, ready[1]);
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    struct hearth *h = harness_connect(&daemon_, 1, NULL);
    ck_assert_uint_ne(good_answer(h, 1), 0);
    hearth_close(h);
    close(ready[0]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

/* Another user: takes its share of the slots, is refused one more, and stays without reading. */
static void greedy_process(uint32_t share, int ready)
{
    struct raw_client raw, more;
    char byte = 1;

    if (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0)
        _exit(2);
    if (raw_open(&raw, daemon_.socket, share) == 0 && raw_open(&more, daemon_.socket, 1) < 0 &&
        write(ready, &byte, 1) == 1)
        pause();
    _exit(1);
}

START_TEST(slots_of_one_user_do_not_lock_out_others)
{
    const char *const arguments[] = {"--slots", "4", "--user-slots", "2", NULL};
    int ready[2];
    char byte;

    if (getuid() != 0) {
        printf("skip: only root can run as a second user\n");
        return;
    }
    harness_start(&daemon_, harness_tiny_model(), arguments);
    ck_assert_int_eq(chmod(daemon_.directory, 0755), 0);
    ck_assert_int_eq(chmod(daemon_.socket, 0666), 0);
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0)
        greedy_process(2, ready[1]);
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    struct hearth *h = harness_connect(&daemon_, 2, NULL);
    ck_assert_uint_ne(good_answer(h, 1), 0);
    hearth_close(h);
    close(ready[0]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

/* A HELLO and status requests after it, all sent before the daemon reads: all are answered, even
 * more than it answers in one turn. */
START_TEST(messages_sent_right_after_a_hello_are_answered)
{
    const int asks = _i ? 9 : 1; /* 9: nearly all that the kernel queues after a HELLO */
    struct hello_welcome welcome;
    struct hello hello;
    char text[HELLO_STATUS_MAX], err[256];
    int fds[HELLO_FDS];

    harness_start(&daemon_, harness_tiny_model(), NULL);
    ck_assert_int_eq(kill(daemon_.pid, SIGSTOP), 0);
    int fd = hello_connect(daemon_.socket, -1, err, sizeof(err));
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(hello_prep_hello(&hello, 1, 0, NULL), 0);
    ck_assert_int_eq(hello_send(fd, &hello, sizeof(hello), NULL, 0), 0);
    struct hello_head ask = hello.head;
    ask.kind = HELLO_STATUS_ASK;
    ask.bytes = sizeof(ask);
    for (int i = 0; i < asks; i++)
        ck_assert_int_eq(hello_send(fd, &ask, sizeof(ask), NULL, 0), 0);
    ck_assert_int_eq(kill(daemon_.pid, SIGCONT), 0);
    ck_assert_int_eq(hello_recv_answer(fd, &welcome, fds, 60000, err, sizeof(err)), 0);
    for (int i = 0; i < asks; i++) {
        struct pollfd answer = {.fd = fd, .events = POLLIN};
        ck_assert_int_eq(poll(&answer, 1, 60000), 1);
        ck_assert_int_gt(recv(fd, text, sizeof(text), 0), (ssize_t)sizeof(ask));
    }
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 1), 1);
    for (uint32_t i = 0; i < welcome.n_fds; i++)
        close(fds[i]);
    close(fd);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

/* A client that stops reading: its slot pauses, others run, and later it reads every token. */
START_TEST(a_reader_that_stops_reading_loses_nothing)
{
    struct hearth_request request;
    uint32_t token = 1;
    uint64_t alone;

    harness_start(&daemon_, harness_tiny_model(), NULL);
    struct hearth *slow = harness_connect(&daemon_, 1, NULL),
                  *quick = harness_connect(&daemon_, 1, NULL);
    alone = good_answer(quick, 3);
    hearth_request_init(&request, sizeof(request));
    request.tokens = &token;
    request.n_tokens = 1;
    request.max_tokens = 450;
    request.logprobs = 20; /* four cells a token: more than the ring holds */
    ck_assert_int_eq(hearth_submit(slow, 0, &request), 0);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_paused", 1), 1);
    for (int i = 0; i < 20; i++)
        ck_assert_uint_eq(good_answer(quick, 3), alone);

    const struct hearth_event *event;
    uint32_t n = 0, reason = 0;
    while (!reason && hearth_next(slow, 0, &event, 60000) > 0) {
        n += event->n_tokens;
        reason = event->kind == HEARTH_DONE ? event->result->reason : 0;
    }
    ck_assert_uint_eq(reason, HEARTH_LENGTH);
    ck_assert_uint_eq(n, 450);
    hearth_close(slow);
    hearth_close(quick);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

static int64_t seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* Wake-ups are counted, not timed: at most two per second while all clients are idle. */
START_TEST(an_idle_daemon_with_64_idle_clients_sleeps)
{
    struct hearth *clients[IDLE_CLIENTS];

    harness_start(&daemon_, harness_tiny_model(), NULL);
    for (int i = 0; i < IDLE_CLIENTS; i++) {
        clients[i] = harness_connect(&daemon_, 1, NULL);
        if (i % 8 == 0)
            ck_assert_uint_ne(good_answer(clients[i], 1), 0);
    }
    sleep_us(300000);
    int64_t before =
        harness_counter(&daemon_, "engine_wakeups") + harness_counter(&daemon_, "control_wakeups");
    int64_t since = seconds();
    sleep_us(IDLE_SECONDS * 1000000L);
    int64_t after =
        harness_counter(&daemon_, "engine_wakeups") + harness_counter(&daemon_, "control_wakeups");
    /* Each reading of the counters is a connection, which itself wakes the control thread. */
    int64_t looks = 4 * 3;
    ck_assert_int_le(after - before, 2 * (seconds() - since + 1) + looks);
    for (int i = 0; i < IDLE_CLIENTS; i++)
        hearth_close(clients[i]);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

/* SIGTERM during answers: every reader gets a terminal event. */
START_TEST(a_stopping_daemon_ends_every_answer)
{
    const struct hearth_event *event;
    struct hearth_request request;
    uint32_t token = 1;

    harness_start(&daemon_, harness_tiny_model(), NULL);
    struct hearth *h = harness_connect(&daemon_, 1, NULL);
    hearth_request_init(&request, sizeof(request));
    request.tokens = &token;
    request.n_tokens = 1;
    request.max_tokens = 450;
    request.logprobs = 20; /* cannot finish before it is read */
    ck_assert_int_eq(hearth_submit(h, 0, &request), 0);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_paused", 1), 1);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
    uint32_t reason = 0;
    while (!reason && hearth_next(h, 0, &event, 60000) > 0)
        reason = event->kind == HEARTH_DONE ? event->result->reason : 0;
    ck_assert_uint_eq(reason, HEARTH_ERROR);
    hearth_close(h);
}
END_TEST

/* The child of a process that connected and is gone: says what becomes of the connection. */
static void inherit(int fd, int told)
{
    struct hello_welcome welcome;
    struct pollfd end = {.fd = fd, .events = POLLRDHUP};
    int fds[HELLO_FDS];
    char err[256];

    int rc = hello_recv_answer(fd, &welcome, fds, 60000, err, sizeof(err));
    char said = rc < 0 ? 'r' : poll(&end, 1, 60000) == 1 ? 'h' : 'k';
    _exit(write(told, &said, 1) != 1);
}

static void connect_and_leave(int told)
{
    struct hello hello;
    char err[256];
    int fd = hello_connect(daemon_.socket, -1, err, sizeof(err));

    if (fd < 0 || hello_prep_hello(&hello, 1, 0, NULL) < 0 ||
        hello_send(fd, &hello, sizeof(hello), NULL, 0) < 0)
        _exit(1);
    if (fork() == 0)
        inherit(fd, told);
    _exit(0);
}

/* Its number may be another process's by the time the daemon reads the HELLO. */
START_TEST(a_client_that_exits_before_it_is_let_in_has_hung_up)
{
    int told[2], status;
    char said = 0;

    harness_start(&daemon_, harness_tiny_model(), NULL);
    ck_assert_int_eq(pipe2(told, O_CLOEXEC), 0);
    ck_assert_int_eq(kill(daemon_.pid, SIGSTOP), 0);
    pid_t pid = fork();
    if (pid == 0)
        connect_and_leave(told[1]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(kill(daemon_.pid, SIGCONT), 0);
    ck_assert_int_eq((int)read(told[0], &said, 1), 1);
    ck_assert_int_eq(said, 'h');
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

enum { SEGMENTS_MOST = 20000 }; /* far more than one user gets in a row */

/* Connects with a slot and hangs up. Returns 0 or the refusal. */
static int connect_once(void)
{
    struct hello_welcome welcome;
    struct hello hello;
    int fds[HELLO_FDS];
    char err[256];
    int fd = hello_connect(daemon_.socket, -1, err, sizeof(err));

    if (fd < 0)
        return fd;
    int rc = hello_prep_hello(&hello, 1, 0, NULL);
    if (rc == 0)
        rc = hello_send(fd, &hello, sizeof(hello), NULL, 0);
    if (rc == 0)
        rc = hello_recv_answer(fd, &welcome, fds, 60000, err, sizeof(err));
    for (int i = 0; rc == 0 && i < HELLO_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    close(fd);
    return rc;
}

START_TEST(a_user_that_makes_segment_after_segment_is_refused_others_are_not)
{
    int rc = 0, status;

    harness_start(&daemon_, harness_tiny_model(), NULL);
    for (int i = 0; i < SEGMENTS_MOST && rc == 0; i++)
        rc = connect_once();
    ck_assert_int_eq(rc, -EBUSY);
    if (getuid() == 0) {
        ck_assert_int_eq(chmod(daemon_.directory, 0755), 0);
        ck_assert_int_eq(chmod(daemon_.socket, 0666), 0);
        pid_t pid = fork();
        if (pid == 0)
            _exit(setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0 || connect_once() != 0);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
    } else {
        printf("skip: only root can run as a second user\n");
    }
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

static int connect_looking(void)
{
    struct hello_welcome welcome;
    struct hello hello;
    char err[256];
    int fds[HELLO_FDS];
    int fd = hello_connect(daemon_.socket, -1, err, sizeof(err));

    hello_prep_hello(&hello, 0, 0, NULL);
    ck_assert_int_eq(hello_send(fd, &hello, sizeof(hello), NULL, 0), 0);
    ck_assert_int_eq(hello_recv_answer(fd, &welcome, fds, 60000, err, sizeof(err)), 0);
    for (uint32_t i = 0; i < welcome.n_fds; i++)
        close(fds[i]);
    return fd;
}

/* Sends a question when the socket has room for one. */
static bool ask_status(int fd)
{
    struct hello hello;

    hello_prep_hello(&hello, 0, 0, NULL);
    hello.head.kind = HELLO_STATUS_ASK;
    hello.head.bytes = sizeof(hello.head);
    return send(fd, &hello.head, sizeof(hello.head), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

static bool status_comes(int fd)
{
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    static char text[HELLO_STATUS_MAX];

    return poll(&answer, 1, 60000) == 1 &&
           recv(fd, text, sizeof(text), 0) > (ssize_t)sizeof(struct hello_head);
}

/* A hundred in a row, then a hundred a second: none is lost, and another connection of the same user
 * has its turn beside one that asks without end. */
START_TEST(questions_for_the_status_are_answered_at_a_rate)
{
    enum { ASKS = 250, BURST = 100, EVERY_MS = 10 };
    harness_start(&daemon_, harness_tiny_model(), NULL);
    uint64_t start_ns = bell_now_ns();
    int other = connect_looking(), fd = connect_looking();
    for (int i = 0; i < ASKS; i++) {
        ck_assert(ask_status(fd));
        ck_assert(status_comes(fd));
    }
    ck_assert_uint_le(ASKS - BURST, (bell_now_ns() - start_ns) / (EVERY_MS * 1000000));
    pid_t pid = fork();
    while (pid == 0 && (ask_status(fd) || status_comes(fd)))
        ;
    for (int i = 0; i < 5; i++) {
        ck_assert(ask_status(other));
        ck_assert(status_comes(other));
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    while (ask_status(fd))
        ;
    close(fd); /* with questions that are not read yet */
    close(other);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "clients", 0), 0);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hostile");
    TCase *tcase = tcase_create("hostile");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, garbage_in_one_segment_disturbs_no_other_client);
    tcase_add_test(tcase, garbage_handshakes_are_refused_and_leak_nothing);
    tcase_add_test(tcase, silent_connections_of_one_user_do_not_lock_out_others);
    tcase_add_test(tcase, slots_of_one_user_do_not_lock_out_others);
    tcase_add_loop_test(tcase, messages_sent_right_after_a_hello_are_answered, 0, 2);
    tcase_add_test(tcase, a_reader_that_stops_reading_loses_nothing);
    tcase_add_test(tcase, an_idle_daemon_with_64_idle_clients_sleeps);
    tcase_add_test(tcase, a_stopping_daemon_ends_every_answer);
    tcase_add_test(tcase, a_user_that_makes_segment_after_segment_is_refused_others_are_not);
    tcase_add_test(tcase, questions_for_the_status_are_answered_at_a_rate);
    tcase_add_test(tcase, a_client_that_exits_before_it_is_let_in_has_hung_up);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
