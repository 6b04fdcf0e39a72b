/* Slots of one handle share the submit ring: one that is not read must not hold up the others. */
#include "client/lib/handle.h"
#include "tests/run_suite.h"
#include "tests/rig/client_fixture.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

/* Fills the slot's ring as far as a daemon does: the reserve for the end stays free. */
static void fill_ring(uint32_t slot, uint32_t generation)
{
    for (uint32_t i = 0; event_room(&fake.events[slot]) > 0; i++)
        fake_tokens(&fake, slot, generation, 3 + i, &(const uint32_t){FAKE_A}, 1);
}

START_TEST(a_superseded_request_leaves_its_ring_empty)
{
    connect_with(2, 0);
    struct pollfd p = {.fd = fake.bell_fd, .events = POLLIN};
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fill_ring(0, g);
    ck_assert_int_eq(ring_space(&fake.events[0]), EVENT_RUN_CELLS);
    bell_daemon_sleep(fake.ctl);
    struct hearth_request r = text_request("Once");
    ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
    ck_assert_int_eq(ring_space(&fake.events[0]), 64);
    ck_assert_int_eq(poll(&p, 1, 0), 1);
    /* The new request's own events are not touched by a submit elsewhere. */
    struct submit_cell c;
    ck_assert_int_eq(fake_take(&fake, &c), 1);
    fake_bytes(&fake, 0, c.generation, 2, "new");
    ck_assert_int_eq(hearth_submit(h, 1, &r), 0);
    ck_assert_str_eq(next(0)->text, "new");
}
END_TEST

START_TEST(a_cancelled_request_leaves_nothing_but_its_end)
{
    connect_with(2, 0);
    struct pollfd p = {.fd = fake.bell_fd, .events = POLLIN};
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fill_ring(0, g);
    bell_daemon_sleep(fake.ctl);
    ck_assert_int_eq(hearth_cancel(h, 0), 0);
    ck_assert_int_eq(ring_space(&fake.events[0]), 64);
    ck_assert_int_eq(poll(&p, 1, 0), 1);
    fake_done(&fake, 0, g, DONE_CANCELLED, 9);
    ck_assert_uint_eq(next(0)->result->reason, HEARTH_CANCELLED);

    /* An end that is there already when the caller cancels is told, as what the caller made of it. */
    g = submit_ids(0, prompt, 3).generation;
    fill_ring(0, g);
    fake_done(&fake, 0, g, DONE_LENGTH, 9);
    ck_assert_int_eq(hearth_cancel(h, 0), 0);
    ck_assert_uint_eq(next(0)->result->reason, HEARTH_CANCELLED);
}
END_TEST

/* Takes the cells in their order, each as soon as its slot has room for two ends; slot 0's are
 * superseded, the first of slot 1 is answered. Sleeps when it cannot go on, and comes back only by
 * the bell. */
static void *serve_in_order(void *arg)
{
    struct submit_cell c;
    struct pollfd p = {.fd = fake.bell_fd, .events = POLLIN};
    uint64_t count;
    (void)arg;
    for (;;) {
        if (!ring_peek(&fake.submit, &c)) {
            usleep(1000);
            continue;
        }
        if (ring_space(&fake.events[c.slot]) < (int)(2 * EVENT_RUN_CELLS)) {
            fake_wake(&fake);
            bell_daemon_sleep(fake.ctl);
            if (ring_space(&fake.events[c.slot]) < (int)(2 * EVENT_RUN_CELLS) &&
                (poll(&p, 1, 60000) != 1 || read(p.fd, &count, sizeof(count)) < 0))
                return (void *)(uintptr_t) "no cell became free";
            bell_daemon_awake(fake.ctl);
            continue;
        }
        ring_release(&fake.submit, 1);
        fake_done(&fake, c.slot, c.generation, c.slot ? DONE_EOS : DONE_ERROR, 0);
        fake_wake(&fake);
        if (c.slot)
            return NULL;
    }
}

START_TEST(a_slot_that_is_not_read_does_not_hold_up_another)
{
    fake.limits.submit_cells = 64;
    connect_with(2, 0);
    struct hearth_request r = text_request("Once");
    const struct hearth_event *e;
    /* More ends than the ring of slot 0 holds, none of them read. */
    for (int i = 0; i < 40; i++)
        ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
    ck_assert_int_eq(hearth_submit(h, 1, &r), 0);
    pthread_t thread;
    void *trouble;
    ck_assert_int_eq(pthread_create(&thread, NULL, serve_in_order, NULL), 0);
    ck_assert_int_eq(hearth_next(h, 1, &e, 60000), 1);
    ck_assert_int_eq(pthread_join(thread, &trouble), 0);
    ck_assert_msg(!trouble, "%s", (const char *)trouble);
    ck_assert_uint_eq(e->slot, 1);
    ck_assert_uint_eq(e->result->reason, HEARTH_EOS);
    /* The last request of slot 0 was not superseded: its end is kept. */
    ck_assert_uint_eq(next(0)->result->reason, HEARTH_ERROR);
    ck_assert_ptr_null(next(0));
}
END_TEST

/* What comes while a submit waits is kept for its slot: no more than an answer can be. */
START_TEST(a_submit_that_waits_keeps_no_more_than_an_answer)
{
    fake.limits.context = 16;
    connect_with(2, 0);
    struct hearth_request r = text_request("Once");
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fill_ring(0, g);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(hearth_submit(h, 1, &r), 0);
    ck_assert_int_eq(hearth_submit(h, 1, &r), -ECONNRESET);
    ck_assert_uint_le(h->slots[0].backlog_n, 16);
    ck_assert_uint_eq(next(0)->result->reason, HEARTH_ERROR);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_slots");
    TCase *t = tcase_create("library");
    tcase_add_checked_fixture(t, fixture_setup, fixture_teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_superseded_request_leaves_its_ring_empty);
    tcase_add_test(t, a_cancelled_request_leaves_nothing_but_its_end);
    tcase_add_test(t, a_slot_that_is_not_read_does_not_hold_up_another);
    tcase_add_test(t, a_submit_that_waits_keeps_no_more_than_an_answer);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
