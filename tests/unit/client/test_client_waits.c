/* How the library waits: for events, for room in the submit ring, and what is woken. */
#include "tests/run_suite.h"
#include "tests/rig/client_fixture.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- waiting --------------------------------------------------------------------------------- */

/* Takes a cell and answers it after a moment, as an idle daemon does. */
static void *answer_later(void *arg)
{
    static const uint32_t hi[] = {FAKE_BYTE + 'h', FAKE_BYTE + 'i'};
    struct submit_cell c;
    (void)arg;
    while (!fake_take(&fake, &c))
        usleep(1000);
    usleep(20000);
    fake_tokens(&fake, c.slot, c.generation, c.length, hi, 2); /* at once: the waiter may look */
    fake_wake(&fake);
    usleep(20000);
    fake_done(&fake, c.slot, c.generation, DONE_EOS, 2);
    fake_wake(&fake);
    return NULL;
}

START_TEST(a_blocking_wait_returns_the_event)
{
    connect_with(2, _i ? HEARTH_POLLABLE : 0);
    pthread_t thread;
    struct hearth_request r = text_request("Once");
    const struct hearth_event *e;
    ck_assert_int_eq(hearth_submit(h, 1, &r), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, answer_later, NULL), 0);
    ck_assert_int_eq(hearth_next(h, 1, &e, -1), 1);
    ck_assert_str_eq(e->text, "hi");
    ck_assert_int_eq(hearth_next(h, HEARTH_ANY_SLOT, &e, 60000), 1);
    ck_assert_uint_eq(e->kind, HEARTH_DONE);
    ck_assert_int_eq(hearth_next(h, 1, &e, -1), 0); /* nothing runs: no reason to wait */
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(a_wait_ends_when_its_time_is_up)
{
    connect_with(1, 0);
    submit_ids(0, prompt, 3);
    const struct hearth_event *e;
    uint64_t start = bell_now_ns();
    ck_assert_int_eq(hearth_next(h, 0, &e, 30), 0);
    ck_assert_uint_ge(bell_now_ns() - start, 29000000);
    ck_assert_ptr_null(e);
}
END_TEST

static void on_alarm(int number)
{
    (void)number;
}

START_TEST(a_signal_ends_a_wait)
{
    connect_with(1, 0);
    submit_ids(0, prompt, 3);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    /* Again and again, should the first one come before the wait begins. */
    struct itimerspec often = {.it_value = {.tv_nsec = 20000000},
                               .it_interval = {.tv_nsec = 20000000}};
    timer_t timer;
    ck_assert_int_eq(timer_create(CLOCK_MONOTONIC, NULL, &timer), 0);
    timer_settime(timer, 0, &often, NULL);
    const struct hearth_event *e;
    ck_assert_int_eq(hearth_next(h, 0, &e, -1), -EINTR);
    timer_delete(timer);
}
END_TEST

START_TEST(an_event_loop_is_woken_by_the_descriptor)
{
    connect_with(1, HEARTH_POLLABLE);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    struct pollfd p = {.fd = hearth_fd(h), .events = POLLIN};
    ck_assert_int_ge(p.fd, 0);
    for (int round = 0; round < 3; round++) {
        ck_assert_ptr_null(next(HEARTH_ANY_SLOT)); /* armed now */
        ck_assert_int_eq(poll(&p, 1, 0), 0);
        fake_bytes(&fake, 0, g, 3, "x");
        ck_assert_int_eq(fake_wake(&fake), BELL_NOTIFY);
        fake_bytes(&fake, 0, g, 4, "y");
        ck_assert_int_eq(fake_wake(&fake), BELL_NONE); /* one wake a wait */
        ck_assert_int_eq(poll(&p, 1, 60000), 1);
        ck_assert_str_eq(next(HEARTH_ANY_SLOT)->text, "xy");
    }
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    fake_hang_up(&fake);
    ck_assert_int_eq(poll(&p, 1, 60000), 1); /* death is readable as well */
    ck_assert_uint_eq(next(HEARTH_ANY_SLOT)->result->reason, HEARTH_ERROR);
}
END_TEST

START_TEST(a_handle_that_is_not_pollable_says_so)
{
    connect_with(1, 0);
    ck_assert_int_eq(hearth_fd(h), -EINVAL);
    ck_assert_ptr_nonnull(strstr(hearth_error(h), "HEARTH_POLLABLE"));
}
END_TEST

START_TEST(only_a_sleeping_daemon_is_woken)
{
    connect_with(1, 0);
    struct pollfd p = {.fd = fake.bell_fd, .events = POLLIN};
    submit_ids(0, prompt, 3);
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    bell_daemon_sleep(fake.ctl);
    submit_ids(0, prompt, 3);
    ck_assert_int_eq(poll(&p, 1, 0), 1);
}
END_TEST

START_TEST(room_in_a_ring_wakes_the_daemon)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    struct pollfd p = {.fd = fake.bell_fd, .events = POLLIN};
    fake_bytes(&fake, 0, g, 3, "x");
    bell_daemon_sleep(fake.ctl);
    ck_assert_ptr_nonnull(next(0));
    ck_assert_int_eq(poll(&p, 1, 0), 1);
}
END_TEST

START_TEST(a_long_prefill_reports_progress)
{
    connect_with(1, 0);
    struct submit_cell c = submit_ids(0, prompt, 3);
    struct down_slot *line = segment_down_slot(&fake.segment, 0);
    atomic_store(&line->generation, c.generation);
    atomic_store(&line->prefill_total, 1000);
    atomic_store(&line->prefill_done, 400);
    const struct hearth_event *e;
    ck_assert_int_eq(hearth_next(h, 0, &e, 60000), 1);
    ck_assert_uint_eq(e->kind, HEARTH_PROGRESS);
    ck_assert_uint_eq(e->done, 400);
    ck_assert_uint_eq(e->total, 1000);
    /* Unchanged progress is not reported, nor is another request's. */
    ck_assert_int_eq(hearth_next(h, 0, &e, 300), 0);
    atomic_store(&line->prefill_done, 500);
    atomic_store(&line->generation, c.generation - 1);
    ck_assert_int_eq(hearth_next(h, 0, &e, 300), 0);
}
END_TEST

/* ---- a full submit ring ---------------------------------------------------------------------- */

/* Consumes one cell once the client has emptied the ring of slot 0, as a daemon that had no room
 * there. */
static void *consume_when_drained(void *arg)
{
    struct submit_cell c;
    (void)arg;
    while (ring_space(&fake.events[0]) < 64)
        usleep(1000);
    ck_assert_int_eq(fake_take(&fake, &c), 1);
    fake_wake(&fake);
    return NULL;
}

START_TEST(a_full_submit_ring_is_waited_for_while_events_are_taken)
{
    connect_with(2, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "kept");
    struct hearth_request r = text_request("Once");
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(hearth_submit(h, 1, &r), 0);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, consume_when_drained, NULL), 0);
    ck_assert_int_eq(hearth_submit(h, 1, &r), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    /* What was taken meanwhile is not lost, and comes before what follows. */
    fake_bytes(&fake, 0, g, 7, "!");
    ck_assert_str_eq(next(0)->text, "kept!");
}
END_TEST

/* Stopped by a debugger, or by SIGSTOP. */
START_TEST(a_submit_does_not_wait_for_a_daemon_that_stands_still)
{
    struct submit_cell c;
    struct hearth_request r = text_request("Once");
    connect_with(2, 0);
    alarm(30); /* instead of waiting for ever */
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
    r.cookie = 77;
    ck_assert_int_eq(hearth_submit(h, 1, &r), 0);
    alarm(0);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(fake_take(&fake, &c), 1);
    ck_assert_int_eq(fake_take(&fake, &c), 0);
    const struct hearth_event *e;
    ck_assert_int_eq(hearth_next(h, 1, &e, 10), 0);
    ck_assert_int_eq(fake_take(&fake, &c), 1);
    ck_assert_uint_eq(c.slot, 1);
    ck_assert_uint_eq(c.cookie, 77);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_waits");
    TCase *t = tcase_create("waits");
    tcase_add_checked_fixture(t, fixture_setup, fixture_teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_blocking_wait_returns_the_event, 0, 2);
    tcase_add_test(t, a_wait_ends_when_its_time_is_up);
    tcase_add_test(t, a_signal_ends_a_wait);
    tcase_add_test(t, an_event_loop_is_woken_by_the_descriptor);
    tcase_add_test(t, a_handle_that_is_not_pollable_says_so);
    tcase_add_test(t, only_a_sleeping_daemon_is_woken);
    tcase_add_test(t, room_in_a_ring_wakes_the_daemon);
    tcase_add_test(t, a_long_prefill_reports_progress);
    tcase_add_test(t, a_full_submit_ring_is_waited_for_while_events_are_taken);
    tcase_add_test(t, a_submit_does_not_wait_for_a_daemon_that_stands_still);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
