/* The library in an event loop: whatever there is to hear makes its descriptor readable. */
#include "client/lib/handle.h"
#include "tests/run_suite.h"
#include "tests/rig/client_fixture.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int readable(int timeout_ms)
{
    struct pollfd p = {.fd = hearth_fd(h), .events = POLLIN};
    ck_assert_int_ge(p.fd, 0);
    return poll(&p, 1, timeout_ms);
}

START_TEST(an_idle_handle_wakes_for_its_first_request)
{
    connect_with(2, HEARTH_POLLABLE);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    ck_assert_int_eq(readable(0), 0);
    uint32_t g = submit_ids(1, prompt, 3).generation;
    fake_bytes(&fake, 1, g, 3, "x");
    ck_assert_int_eq(fake_wake(&fake), BELL_NOTIFY);
    ck_assert_int_eq(readable(60000), 1);
    ck_assert_str_eq(next(HEARTH_ANY_SLOT)->text, "x");
}
END_TEST

START_TEST(an_idle_handle_wakes_when_the_daemon_dies)
{
    const struct hearth_event *e;
    connect_with(1, HEARTH_POLLABLE);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    fake_hang_up(&fake);
    ck_assert_int_eq(readable(60000), 1);
    ck_assert_int_eq(hearth_next(h, HEARTH_ANY_SLOT, &e, 0), -ECONNRESET);
}
END_TEST

/* ---- a submit that has to wait ------------------------------------------------------------------
 */

/* A running request on slot 0, the submit ring full, and the caller about to poll. */
static uint32_t full_and_armed(void)
{
    connect_with(2, HEARTH_POLLABLE);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    struct hearth_request r = text_request("Once");
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(hearth_submit(h, 1, &r), 0);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    ck_assert_int_eq(readable(0), 0);
    return g;
}

static uint32_t generation_now;

/* While the submit waits: says something on slot 0 and, once that was taken, takes a cell. */
static void *say_then_take(void *arg)
{
    struct submit_cell c;
    (void)arg;
    usleep(20000);
    fake_bytes(&fake, 0, generation_now, 3, "kept");
    fake_wake(&fake);
    while (ring_space(&fake.events[0]) < 64)
        usleep(1000);
    fake_take(&fake, &c);
    fake_wake(&fake);
    return NULL;
}

START_TEST(what_came_while_a_submit_waited_is_announced)
{
    pthread_t thread;
    struct hearth_request r = text_request("Once");
    generation_now = full_and_armed();
    ck_assert_int_eq(pthread_create(&thread, NULL, say_then_take, NULL), 0);
    ck_assert_int_eq(hearth_submit(h, 1, &r), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(readable(60000), 1);
    ck_assert_str_eq(next(HEARTH_ANY_SLOT)->text, "kept");
}
END_TEST

static void *take_later(void *arg)
{
    struct submit_cell c;
    (void)arg;
    usleep(20000);
    fake_take(&fake, &c);
    fake_wake(&fake);
    return NULL;
}

START_TEST(what_comes_after_a_submit_that_waited_is_announced)
{
    pthread_t thread;
    struct hearth_request r = text_request("Once");
    uint32_t g = full_and_armed();
    ck_assert_int_eq(pthread_create(&thread, NULL, take_later, NULL), 0);
    ck_assert_int_eq(hearth_submit(h, 1, &r), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    fake_bytes(&fake, 0, g, 3, "x");
    fake_wake(&fake);
    ck_assert_int_eq(readable(60000), 1);
    ck_assert_str_eq(next(HEARTH_ANY_SLOT)->text, "x");
}
END_TEST

START_TEST(a_submit_that_waits_notices_a_dead_daemon)
{
    struct hearth_request r = text_request("Once");
    full_and_armed();
    fake_hang_up(&fake);
    ck_assert_int_eq(hearth_submit(h, 1, &r), -ECONNRESET);
    ck_assert_int_eq(readable(60000), 1);
    ck_assert_uint_eq(next(HEARTH_ANY_SLOT)->result->reason, HEARTH_ERROR);
}
END_TEST

START_TEST(garbage_found_by_a_submit_wakes_the_event_loop)
{
    struct hearth_request r = text_request("Once");
    full_and_armed();
    atomic_store(&fake.events[0].cells[0].seq, 0xdeadbeef);
    ck_assert_int_eq(hearth_submit(h, 1, &r), -ECONNRESET);
    ck_assert_int_eq(readable(60000), 1);
    ck_assert_uint_eq(next(HEARTH_ANY_SLOT)->result->reason, HEARTH_ERROR);
}
END_TEST

/* ---- a handle that never waits --------------------------------------------------------------- */

static void start_connecting(int32_t connect_timeout_ms)
{
    struct hearth_options o;
    hearth_options_init(&o, sizeof(o));
    o.slots = 2;
    o.flags = HEARTH_POLLABLE | HEARTH_NONBLOCK;
    o.resume_ms = 0;
    o.connect_timeout_ms = connect_timeout_ms;
    ck_assert_msg(hearth_connect(fake.path, &o, &h, err, sizeof(err)) == 0, "%s", err);
}

START_TEST(a_daemon_that_answers_later_is_not_waited_for)
{
    struct hearth_request r = text_request("Once");
    start_connecting(-1);
    ck_assert_int_eq(readable(0), 0);
    ck_assert_int_eq(hearth_ready(h), 0);
    ck_assert_int_eq(hearth_submit(h, 0, &r), -EAGAIN);
    ck_assert_ptr_nonnull(strstr(hearth_error(h), "not answered yet"));
    fake_start(&fake);
    ck_assert_int_eq(readable(60000), 1);
    fake_join(&fake);
    int fd = hearth_fd(h);
    ck_assert_int_eq(hearth_ready(h), 1);
    ck_assert_int_eq(hearth_fd(h), fd);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    ck_assert_int_eq(readable(0), 0);
    uint32_t g = submit_ids(1, prompt, 3).generation;
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    fake_bytes(&fake, 1, g, 3, "x");
    ck_assert_int_eq(fake_wake(&fake), BELL_NOTIFY);
    ck_assert_int_eq(readable(60000), 1);
    ck_assert_str_eq(next(HEARTH_ANY_SLOT)->text, "x");
}
END_TEST

START_TEST(a_daemon_that_never_answers_times_out)
{
    start_connecting(1);
    usleep(2000);
    ck_assert_int_eq(hearth_ready(h), -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(hearth_error(h), "did not answer in time"));
    ck_assert_int_eq(hearth_ready(h), -ETIMEDOUT);
    ck_assert_int_eq(hearth_cancel(h, 0), -ETIMEDOUT);
}
END_TEST

START_TEST(a_refusal_comes_with_ready)
{
    fake.refuse = -EBUSY;
    fake.refuse_line = "no slot is free";
    start_connecting(-1);
    fake_start(&fake);
    ck_assert_int_eq(readable(60000), 1);
    fake_join(&fake);
    ck_assert_int_eq(hearth_ready(h), -EBUSY);
    ck_assert_ptr_nonnull(strstr(hearth_error(h), "no slot is free"));
}
END_TEST

START_TEST(a_daemon_that_is_stopping_is_followed_by_the_next_one)
{
    fake.n_stopping = 1;
    start_connecting(-1);
    fake_start(&fake);
    int rc = 0, fd = hearth_fd(h);
    for (int i = 0; i < 3 && rc == 0; i++) {
        ck_assert_int_eq(readable(60000), 1);
        rc = hearth_ready(h);
    }
    fake_join(&fake);
    ck_assert_msg(rc == 1, "%s", hearth_error(h));
    ck_assert_int_eq(hearth_fd(h), fd);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
}
END_TEST

/* A forked child keeps the first daemon's socket open: it says nothing of the second one's. */
START_TEST(a_child_does_not_keep_a_stopping_daemon_in_the_loop)
{
    int lives[2], rc = 0;
    char byte;
    ck_assert_int_eq(pipe(lives), 0);
    fake.n_stopping = 1;
    start_connecting(-1);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        close(lives[1]);
        _exit(read(lives[0], &byte, 1) != 0);
    }
    fake_start(&fake);
    while (rc == 0) {
        ck_assert_int_eq(readable(60000), 1);
        rc = hearth_ready(h);
    }
    fake_join(&fake);
    ck_assert_msg(rc == 1, "%s", hearth_error(h));
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    ck_assert_int_eq(readable(0), 0);
    close(lives[0]);
    close(lives[1]);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

static struct submit_cell submit_on(uint32_t slot, const uint32_t *ids, uint32_t n)
{
    struct hearth_request r;
    hearth_request_init(&r, sizeof(r));
    r.tokens = ids;
    r.n_tokens = n;
    ck_assert_msg(hearth_submit(h, slot, &r) == 0, "%s", hearth_error(h));
    return h->slots[slot].cell;
}

/* The newest request of a slot is published when there is room, and says of the arena what holds
 * since the last one that was. */
START_TEST(a_full_submit_ring_is_not_waited_for)
{
    static const uint32_t a[] = {FAKE_BOS, FAKE_A, FAKE_A, FAKE_A};
    static const uint32_t b[] = {FAKE_BOS, FAKE_A, FAKE_B, FAKE_B, FAKE_B};
    static const uint32_t c[] = {FAKE_BOS, FAKE_A, FAKE_B, FAKE_B, FAKE_A};
    struct submit_cell cell = {0}, last;
    connect_with(2, HEARTH_POLLABLE | HEARTH_NONBLOCK);
    ck_assert_int_eq(hearth_ready(h), 1);
    submit_on(0, a, 4);
    for (int i = 0; i < 7; i++)
        submit_on(1, a, 4);
    submit_on(0, b, 5); /* these two find no room */
    last = submit_on(0, c, 5);
    ck_assert_uint_eq(last.keep, 2);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(fake_take(&fake, &cell), 1);
    ck_assert_int_eq(fake_take(&fake, &cell), 0);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    ck_assert_int_eq(fake_take(&fake, &cell), 1);
    ck_assert_uint_eq(cell.generation, last.generation);
    ck_assert_uint_eq(cell.keep, 2);
    ck_assert_int_eq(memcmp(segment_arena(&fake.segment, 0), c, sizeof(c)), 0);
}
END_TEST

START_TEST(a_cancelled_request_without_a_cell_leaves_no_trace)
{
    static const uint32_t a[] = {FAKE_BOS, FAKE_A, FAKE_A, FAKE_A};
    static const uint32_t b[] = {FAKE_BOS, FAKE_B, FAKE_B, FAKE_B};
    struct submit_cell cell = {0};
    connect_with(2, HEARTH_POLLABLE | HEARTH_NONBLOCK);
    for (int i = 0; i < 8; i++)
        submit_on(0, a, 4);
    submit_on(0, b, 4);
    ck_assert_int_eq(hearth_cancel(h, 0), 0);
    ck_assert_uint_eq(next(0)->result->reason, HEARTH_CANCELLED);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(fake_take(&fake, &cell), 1);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    ck_assert_int_eq(fake_take(&fake, &cell), 0);
    submit_on(0, b, 4);
    ck_assert_int_eq(fake_take(&fake, &cell), 1);
    ck_assert_uint_eq(cell.keep, 1); /* b's second token never was in a cell */
}
END_TEST

/* A client that spins where the daemon computes on all processors makes its own token late. */
START_TEST(a_wait_spins_only_where_a_processor_is_left)
{
    connect_with(1, 0);
    uint32_t processors = h->processors;
    ck_assert_uint_ge(processors, 1);
    h->processors = 1;
    ck_assert(!next_may_spin(h));
    h->processors = 4;
    fake.ctl->threads = 3;
    ck_assert(next_may_spin(h));
    fake.ctl->threads = 4;
    ck_assert(!next_may_spin(h));
    fake.ctl->threads = 0; /* a daemon that does not say */
    ck_assert(next_may_spin(h));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_poll");
    TCase *t = tcase_create("library");
    tcase_add_checked_fixture(t, fixture_setup, fixture_teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, an_idle_handle_wakes_for_its_first_request);
    tcase_add_test(t, an_idle_handle_wakes_when_the_daemon_dies);
    tcase_add_test(t, what_came_while_a_submit_waited_is_announced);
    tcase_add_test(t, what_comes_after_a_submit_that_waited_is_announced);
    tcase_add_test(t, a_submit_that_waits_notices_a_dead_daemon);
    tcase_add_test(t, garbage_found_by_a_submit_wakes_the_event_loop);
    tcase_add_test(t, a_daemon_that_answers_later_is_not_waited_for);
    tcase_add_test(t, a_daemon_that_never_answers_times_out);
    tcase_add_test(t, a_refusal_comes_with_ready);
    tcase_add_test(t, a_daemon_that_is_stopping_is_followed_by_the_next_one);
    tcase_add_test(t, a_child_does_not_keep_a_stopping_daemon_in_the_loop);
    tcase_add_test(t, a_full_submit_ring_is_not_waited_for);
    tcase_add_test(t, a_cancelled_request_without_a_cell_leaves_no_trace);
    tcase_add_test(t, a_wait_spins_only_where_a_processor_is_left);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
