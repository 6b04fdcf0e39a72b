/* The library in an event loop: whatever there is to hear makes its descriptor readable. */
#include "client/handle.h"
#include "tests/run_suite.h"
#include "tests/unit/client_fixture.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int readable(int timeout_ms)
{
    struct pollfd p = {.fd = hearth_fd(h), .events = POLLIN};
    ck_assert_int_ge(p.fd, 0);
    return poll(&p, 1, timeout_ms);
}

START_TEST(a_handle_without_requests_is_told_of_the_first_one)
{
    connect_with(2, HEARTH_POLLABLE);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    ck_assert_int_eq(readable(0), 0);
    uint32_t g = submit_ids(1, prompt, 3).generation;
    fake_bytes(&fake, 1, g, 3, "x");
    ck_assert_int_eq(fake_wake(&fake), BELL_NOTIFY);
    ck_assert_int_eq(readable(1000), 1);
    ck_assert_str_eq(next(HEARTH_ANY_SLOT)->text, "x");
}
END_TEST

START_TEST(a_handle_without_requests_hears_that_the_daemon_died)
{
    const struct hearth_event *e;
    connect_with(1, HEARTH_POLLABLE);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    fake_hang_up(&fake);
    ck_assert_int_eq(readable(1000), 1);
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
    ck_assert_int_eq(readable(1000), 1);
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
    ck_assert_int_eq(readable(1000), 1);
    ck_assert_str_eq(next(HEARTH_ANY_SLOT)->text, "x");
}
END_TEST

START_TEST(a_submit_that_waits_notices_a_dead_daemon)
{
    struct hearth_request r = text_request("Once");
    full_and_armed();
    fake_hang_up(&fake);
    ck_assert_int_eq(hearth_submit(h, 1, &r), -ECONNRESET);
    ck_assert_int_eq(readable(1000), 1);
    ck_assert_uint_eq(next(HEARTH_ANY_SLOT)->result->reason, HEARTH_ERROR);
}
END_TEST

START_TEST(nonsense_found_by_a_submit_makes_the_loop_come_back)
{
    struct hearth_request r = text_request("Once");
    full_and_armed();
    atomic_store(&fake.events[0].cells[0].seq, 0xdeadbeef);
    ck_assert_int_eq(hearth_submit(h, 1, &r), -ECONNRESET);
    ck_assert_int_eq(readable(1000), 1);
    ck_assert_uint_eq(next(HEARTH_ANY_SLOT)->result->reason, HEARTH_ERROR);
}
END_TEST

/* Whoever spins where the daemon computes on all processors makes its own token late. */
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
    tcase_set_timeout(t, 20);
    tcase_add_test(t, a_handle_without_requests_is_told_of_the_first_one);
    tcase_add_test(t, a_handle_without_requests_hears_that_the_daemon_died);
    tcase_add_test(t, what_came_while_a_submit_waited_is_announced);
    tcase_add_test(t, what_comes_after_a_submit_that_waited_is_announced);
    tcase_add_test(t, a_submit_that_waits_notices_a_dead_daemon);
    tcase_add_test(t, nonsense_found_by_a_submit_makes_the_loop_come_back);
    tcase_add_test(t, a_wait_spins_only_where_a_processor_is_left);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
