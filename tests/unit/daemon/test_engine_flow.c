/*
 * Clients that change their minds or do not read: newer requests, cancels, full event rings,
 * detaching, names. Whatever happens: one end for every request, nothing of an old one after its
 * successor's store (the rig checks both while it reads), and every other answer is the one
 * they get alone.
 */
#include "ipc/params.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static struct rig rig;
static struct rig_client a, b;
static uint32_t prompt[RIG_TOKENS], other[RIG_TOKENS];
static const struct rig_request neighbour = {.tokens = other, .n = 90, .max_tokens = 150};

static void setup(void)
{
    rig_open(&rig, NULL);
    rig_attach(&rig, &a, 2, 1000, "");
    rig_attach(&rig, &b, 1, 1000, "");
    rig_tokens(prompt, RIG_TOKENS, 1);
    rig_tokens(other, RIG_TOKENS, 2);
    rig_submit(&b, 0, &neighbour);
    engine_step(rig.engine);
    engine_step(rig.engine); /* decodes from now on: one row a pass */
}

static void finish(struct rig_client *c)
{
    do {
        rig_read_all(&b);
        rig_read_all(c);
    } while (engine_step(rig.engine));
    rig_check(&rig);
    rig_read_all(&b);
    rig_read_all(c);
    for (uint32_t i = 0; i < c->n_slots; i++)
        ck_assert_uint_eq(c->slots[i].n_ends, c->slots[i].n_requests);
}

static void teardown(void)
{
    finish(&b);
    ck_assert(rig_same(&rig, &neighbour, &b.slots[0].last));
    if (a.client)
        rig_detach(&rig, &a);
    rig_detach(&rig, &b);
    for (uint32_t i = 0; i < rig.engine->options.n_slots; i++)
        if (rig.engine->slots.all[i].name[0])
            slot_evict(&rig.engine->slots.all[i],
                       &rig.engine->slots.kv.prefix); /* parked, and still warm */
    ck_assert_uint_eq(prefix_spare(&rig.engine->slots.kv.prefix), rig.engine->slots.kv.pool.total);
    ck_assert_uint_eq(rig.n_closed, 0);
    rig_close(&rig);
}

/* ---- newer requests and cancels -------------------------------------------------------------- */

/* _i steps after its submit a request is made void: not consumed yet, in its prefill (0-4),
 * decoding. */
START_TEST(a_cancel_ends_within_one_step)
{
    struct rig_request request = {.tokens = prompt, .n = 200, .max_tokens = 100};
    uint32_t generation = rig_submit(&a, 0, &request);

    for (int i = 0; i < _i; i++)
        engine_step(rig.engine);
    uint64_t rows = rig.fake.n_rows;
    rig_cancel(&a, 0);
    engine_step(rig.engine);
    ck_assert_uint_eq(rig.fake.n_rows - rows, 1); /* the neighbour's */
    ck_assert(a.client->slots[0]->state == SLOT_IDLE);
    rig_read_all(&a);
    ck_assert_uint_eq(a.slots[0].n_ends, 1);
    ck_assert_uint_eq(a.slots[0].last.generation, generation);
    ck_assert_int_eq(a.slots[0].last.reason, _i == 0 ? DONE_SUPERSEDED : DONE_CANCELLED);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_ACTIVE), 1);
    /* What was computed is kept. */
    uint32_t canonical = a.client->slots[0]->spec.canonical;
    finish(&a);
    rig_ask(&rig, &a, 0, &request);
    ck_assert(rig_same(&rig, &request, &a.slots[0].last));
    ck_assert_uint_eq(a.slots[0].last.done.cached, canonical < 199 ? canonical : 199);
}
END_TEST

START_TEST(a_newer_request_wins_within_one_step)
{
    struct rig_request request = {.tokens = prompt, .n = 200, .max_tokens = 100};
    struct rig_request newer = {.tokens = prompt, .n = 205, .max_tokens = 8};
    uint32_t old = rig_submit(&a, 0, &request);

    for (int i = 0; i < _i; i++)
        engine_step(rig.engine);
    uint32_t new = rig_submit(&a, 0, &newer);
    engine_step(rig.engine);
    ck_assert_uint_eq(a.client->slots[0]->request->generation, new);
    finish(&a);
    ck_assert_uint_eq(a.slots[0].n_ends, 2);
    ck_assert_uint_eq(a.slots[0].ended[0], old);
    ck_assert_int_eq(a.slots[0].reasons[0], DONE_SUPERSEDED);
    ck_assert_uint_eq(a.slots[0].ended[1], new);
    ck_assert(rig_same(&rig, &newer, &a.slots[0].last));
}
END_TEST

/* A keystroke a step; only the last is answered, and every cell has its end. */
START_TEST(typing_faster_than_the_model)
{
    struct rig_request request = {.tokens = prompt, .n = 300, .max_tokens = 30};

    rig_ask(&rig, &a, 0, &request);
    uint64_t rows = rig.fake.n_rows;
    for (int i = 0; i < 40; i++) {
        request.n++;
        rig_submit(&a, 0, &request);
        if (i % 3 == 0)
            rig_submit(&a, 0, &request);
        engine_step(rig.engine);
        rig_read_all(&a);
        rig_read_all(&b);
    }
    ck_assert_uint_lt(rig.fake.n_rows - rows,
                      40 * 4); /* new tokens and the neighbour, no prefill */
    finish(&a);
    ck_assert(rig_same(&rig, &request, &a.slots[0].last));
}
END_TEST

static int void_in_pass; /* 1: cancel; 2: a newer request; the next pass only */

static void change_mind(void *arg)
{
    struct rig_request newer = {.tokens = prompt, .n = 20, .max_tokens = 5};

    (void)arg;
    if (void_in_pass == 1)
        rig_cancel(&a, 0);
    else if (void_in_pass == 2)
        rig_submit(&a, 0, &newer);
    void_in_pass = 0;
}

/* The store comes while the pass runs: what that pass sampled is not published. */
START_TEST(nothing_is_published_after_a_store_inside_the_pass)
{
    struct rig_request request = {.tokens = prompt, .n = 20, .max_tokens = 100};
    struct rig_request newer = {.tokens = prompt, .n = 20, .max_tokens = 5};

    rig_submit(&a, 0, &request);
    engine_step(rig.engine);
    engine_step(rig.engine);
    rig.fake.during = change_mind;
    void_in_pass = _i;
    engine_step(rig.engine);
    ck_assert(a.client->slots[0]->state == SLOT_IDLE);
    rig_read_all(&a);
    ck_assert_int_eq(a.slots[0].last.reason, DONE_CANCELLED);
    ck_assert_uint_eq(a.slots[0].last.n, 2);
    finish(&a);
    if (_i == 2)
        ck_assert(rig_same(&rig, &newer, &a.slots[0].last));
}
END_TEST

/* Random requests, cancels, reads and steps on both slots, with one seed a run. */
START_TEST(any_order_of_requests_and_cancels)
{
    uint64_t state = (uint64_t)_i * 77 + 5;
    struct rig_request request[2] = {0};
    bool alive[2] = {false};

    for (int i = 0; i < 1500; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t r = (uint32_t)(state >> 33), slot = r >> 8 & 1;
        if (r % 8 == 0 && ring_space(&a.submit) > 0) {
            request[slot] = (struct rig_request){.tokens = prompt + (r >> 10) % 3,
                                                 .n = 1 + (r >> 12) % 250,
                                                 .max_tokens = 1 + (r >> 20) % 40,
                                                 .batch = r >> 9 & 1};
            rig_submit(&a, slot, &request[slot]);
            alive[slot] = true;
        } else if (r % 16 == 1) {
            rig_cancel(&a, slot);
            alive[slot] = false;
        } else if (r % 8 == 2) {
            rig_read_all(&a);
            rig_read_all(&b);
        } else {
            engine_step(rig.engine);
            rig_check(&rig);
        }
        if (a.slots[slot].n_ends > RIG_ENDS / 2)
            break;
    }
    finish(&a);
    for (uint32_t slot = 0; slot < 2; slot++)
        if (alive[slot])
            ck_assert_msg(rig_same(&rig, &request[slot], &a.slots[slot].last), "seed %d", _i);
}
END_TEST

/* ---- readers that do not read ---------------------------------------------------------------- */

START_TEST(a_full_event_ring_pauses_its_slot_alone)
{
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 200};

    rig_submit(&a, 0, &request);
    for (int i = 0; i < 200; i++) {
        engine_step(rig.engine);
        rig_read_all(&b);
    }
    rig_check(&rig);
    ck_assert(a.client->slots[0]->state == SLOT_PAUSED);
    ck_assert_uint_eq(segment_down_slot(&a.segment, 0)->state, DOWN_PAUSED);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_PAUSED), 1);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_STALLS), 1);
    ck_assert_uint_eq(b.slots[0].n_ends, 1);       /* the neighbour went on to its end */
    ck_assert_uint_eq(engine_step(rig.engine), 0); /* and the engine does not spin for a reader */
    ck_assert(!engine_look(rig.engine));
    rig_read(&a, 0, 1);
    ck_assert(engine_look(rig.engine));
    engine_step(rig.engine);
    ck_assert_uint_eq(rig.fake.last_rows, 1);
    finish(&a);
    ck_assert(rig_same(&rig, &request, &a.slots[0].last));
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_PAUSED), 0);
}
END_TEST

START_TEST(a_pause_shows_in_the_gauges_at_once)
{
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 200};

    finish(&b);
    rig_submit(&a, 0, &request);
    rig_run(&rig, 200);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_PAUSED), 1);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_ACTIVE), 1);
}
END_TEST

/* A cell at a time with many steps between: always at the limit, nothing lost, logprobs included.
 */
START_TEST(a_slow_reader_loses_nothing)
{
    struct params p;
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 120, .params = &p};

    params_default(&p);
    p.logprobs_on = _i > 0;
    p.logprobs = _i > 0 ? (uint32_t)_i : 0;
    rig_submit(&a, 0, &request);
    for (int i = 0; i < 100; i++)
        engine_step(rig.engine);
    for (int i = 0; i < 2000 && !a.slots[0].n_ends; i++) {
        rig_read(&a, 0, 1);
        engine_step(rig.engine);
        rig_read_all(&b);
    }
    ck_assert(rig_same(&rig, &request, &a.slots[0].last));
}
END_TEST

START_TEST(a_paused_request_is_cancelled_in_one_step)
{
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 200};

    rig_submit(&a, 0, &request);
    for (int i = 0; i < 200; i++) {
        engine_step(rig.engine);
        rig_read_all(&b);
    }
    ck_assert(a.client->slots[0]->state == SLOT_PAUSED);
    rig_cancel(&a, 0);
    ck_assert(engine_look(rig.engine));
    engine_step(rig.engine);
    ck_assert(a.client->slots[0]->state == SLOT_IDLE);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_ACTIVE), 0);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_PAUSED), 0);
    rig_read_all(&a);
    ck_assert_int_eq(a.slots[0].last.reason, DONE_CANCELLED);
}
END_TEST

/* A cell whose end would not fit stays unread, and is taken when there is room. */
START_TEST(a_cell_without_room_for_its_end_stays_unread)
{
    struct submit_cell nop = {.opcode = SUBMIT_NOP, .slot = 0};
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 3};

    for (int i = 0; i < 60; i++) {
        rig_push(&a, &nop);
        engine_step(rig.engine);
    }
    ck_assert_uint_eq(atomic_load(&segment_down_head(&a.segment)->submitted),
                      56); /* 64 less the reserve */
    rig_submit(&a, 0, &request);
    finish(&b);
    ck_assert_uint_eq(a.slots[0].n_ends, 0);
    ck_assert(!engine_look(rig.engine)); /* the engine does not spin for it */
    rig_read(&a, 0, 1);
    ck_assert(engine_look(rig.engine));
    finish(&a);
    ck_assert_uint_eq(a.slots[0].n_nops, 60);
    ck_assert(rig_same(&rig, &request, &a.slots[0].last));
}
END_TEST

/* ---- going ----------------------------------------------------------------------------------- */

START_TEST(a_detach_frees_everything_in_its_step)
{
    struct rig_request request = {.tokens = prompt, .n = 300, .max_tokens = 100};
    uint32_t before = prefix_spare(&rig.engine->slots.kv.prefix) + b.client->slots[0]->n_pages;

    rig_submit(&a, 0, &request);
    rig_submit(&a, 1, &request);
    for (int i = 0; i < _i; i++)
        engine_step(rig.engine);
    rig_detach(&rig, &a);
    rig_check(&rig);
    ck_assert_uint_eq(prefix_spare(&rig.engine->slots.kv.prefix) + b.client->slots[0]->n_pages,
                      before);
    ck_assert_uint_eq(rig.engine->slots.n_active, 1);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_USED), 1);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_ACTIVE), 1);
}
END_TEST

/* Nothing but whole pages, and those for the same user: two take turns from the second on. */
START_TEST(slots_are_used_again_without_a_trace)
{
    struct rig_request request = {.tokens = prompt, .n = 100, .max_tokens = 10};

    for (uint32_t i = 0; i < 30; i++) {
        ck_assert(rig_same(&rig, &request, rig_ask(&rig, &a, 1, &request)));
        ck_assert_uint_eq(a.slots[1].last.done.cached, i == 0 || i == 2 ? 0 : 96);
        ck_assert_uint_eq(a.slots[1].last.done.prefix_break, 0);
        rig_detach(&rig, &a);
        rig_read_all(&b);
        rig_attach(&rig, &a, 2, 1000 + i % 2, "");
    }
}
END_TEST

/* ---- names ----------------------------------------------------------------------------------- */

static uint32_t cached_as(uid_t uid, const char *name, uint32_t n)
{
    struct rig_client c;
    struct rig_request request = {.tokens = prompt, .n = n, .max_tokens = 4};

    rig_attach(&rig, &c, 1, uid, name);
    const struct rig_answer *answer = rig_ask(&rig, &c, 0, &request);
    ck_assert(rig_same(&rig, &request, answer));
    uint32_t cached = answer->done.cached;
    rig_detach(&rig, &c);
    rig_read_all(&b);
    return cached;
}

START_TEST(a_named_slot_is_warm_for_its_user_alone)
{
    ck_assert_uint_eq(cached_as(7, "editor", 100), 0);
    ck_assert_uint_eq(cached_as(7, "editor", 120), 100); /* known again */
    ck_assert_uint_eq(cached_as(8, "editor", 120), 0);   /* another user */
    ck_assert_uint_eq(cached_as(7, "shell", 120), 96);   /* another name: whole pages */
    ck_assert_uint_eq(cached_as(7, "", 120), 96);
    ck_assert_uint_eq(cached_as(8, "", 120), 96);
    ck_assert_uint_eq(cached_as(7, "editor", 140), 120);
    ck_assert_uint_eq(cached_as(8, "editor", 140), 120);
}
END_TEST

/* A new client's arena is a new one: what it says it kept there was never read. */
START_TEST(a_named_slot_believes_no_keep_of_a_new_client)
{
    struct rig_request request = {.tokens = prompt, .n = 100, .max_tokens = 4};
    struct rig_client c;

    cached_as(7, "editor", 100);
    prompt[30] = prompt[30] == FAKE_BYTES + '?' ? FAKE_BYTES + '!' : FAKE_BYTES + '?';
    rig_attach(&rig, &c, 1, 7, "editor");
    struct submit_cell cell = rig_prepare(&c, 0, &request);
    cell.keep = 100;
    rig_push(&c, &cell);
    finish(&c);
    ck_assert(rig_same(&rig, &request, &c.slots[0].last));
    ck_assert_uint_eq(c.slots[0].last.done.cached, 30);
    rig_detach(&rig, &c);
}
END_TEST

/* More names than slots: the one unused the longest makes place, and everything goes on. */
START_TEST(parked_slots_give_way_the_longest_unused_first)
{
    char name[16];

    for (uint32_t i = 0; i < 5; i++) { /* 8 slots, 3 of them held */
        snprintf(name, sizeof(name), "n%u", i);
        cached_as(7, name, 50);
    }
    ck_assert_uint_eq(cached_as(7, "n0", 60), 50);
    cached_as(7, "new", 50); /* takes n1's */
    ck_assert_uint_eq(cached_as(7, "n0", 70), 60);
    ck_assert_uint_eq(cached_as(7, "n2", 60), 50);
    ck_assert_uint_eq(cached_as(7, "n1", 60), 32); /* what all of them share */
    rig_detach(&rig, &a);
    rig_detach(&rig, &b);
    rig_check(&rig);
    rig_attach(&rig, &a, 2, 1, "");
    rig_attach(&rig, &b, 1, 1, "");
    struct rig_client more[2];
    rig_attach(&rig, &more[0], 4, 1, ""); /* takes all that is parked */
    rig_attach(&rig, &more[1], 1, 1, "");
    for (uint32_t i = 0; i < rig.engine->options.n_slots; i++)
        ck_assert_str_eq(rig.engine->slots.all[i].name, "");
    rig_detach(&rig, &more[0]);
    rig_detach(&rig, &more[1]);
    ck_assert(rig_same(&rig, &neighbour, rig_ask(&rig, &b, 0, &neighbour)));
}
END_TEST

/* The user with the fewest parked slots keeps them, however long they were not used. */
START_TEST(many_names_of_one_user_push_out_no_other_user)
{
    char name[16];

    cached_as(8, "editor", 50);
    for (uint32_t i = 0; i < 10; i++) { /* 8 slots, 3 of them held */
        snprintf(name, sizeof(name), "n%u", i);
        cached_as(7, name, 50);
    }
    ck_assert_uint_eq(cached_as(8, "editor", 60), 50);
    ck_assert_uint_eq(cached_as(7, "n9", 60), 50);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_flow");
    TCase *t = tcase_create("flow");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_cancel_ends_within_one_step, 0, 9);
    tcase_add_loop_test(t, a_newer_request_wins_within_one_step, 0, 9);
    tcase_add_test(t, typing_faster_than_the_model);
    tcase_add_loop_test(t, nothing_is_published_after_a_store_inside_the_pass, 1, 3);
    tcase_add_loop_test(t, any_order_of_requests_and_cancels, 0, 10);
    tcase_add_test(t, a_full_event_ring_pauses_its_slot_alone);
    tcase_add_test(t, a_pause_shows_in_the_gauges_at_once);
    tcase_add_loop_test(t, a_slow_reader_loses_nothing, 0, 21);
    tcase_add_test(t, a_paused_request_is_cancelled_in_one_step);
    tcase_add_test(t, a_cell_without_room_for_its_end_stays_unread);
    tcase_add_loop_test(t, a_detach_frees_everything_in_its_step, 0, 12);
    tcase_add_test(t, slots_are_used_again_without_a_trace);
    tcase_add_test(t, a_named_slot_is_warm_for_its_user_alone);
    tcase_add_test(t, a_named_slot_believes_no_keep_of_a_new_client);
    tcase_add_test(t, parked_slots_give_way_the_longest_unused_first);
    tcase_add_test(t, many_names_of_one_user_push_out_no_other_user);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
