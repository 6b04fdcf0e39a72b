/*
 * Windows in the engine: the test is the proposer and drafts after every active slot's accepted
 * tokens before a step, right or wrong as a seed says. No draft may change an answer, whatever else
 * goes on: page pressure, full rings, cancels, ends inside a window; and right ones save passes.
 */
#include "ipc/params.h"
#include "tests/random.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLIENTS = 4, TEST_WINDOW_MAX = 8 };

static struct rig rig;
static struct rig_client clients[CLIENTS];
static struct rig_request requests[CLIENTS];
static uint32_t tokens[CLIENTS][RIG_TOKENS];
static uint32_t state;

static void open_with(uint32_t pages, uint32_t seed)
{
    struct rig_desc desc = {.slots = CLIENTS, .context = 256, .pages = pages, .rows = 48};

    state = seed + 1;
    rig_open(&rig, &desc);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_attach(&rig, &clients[i], 1, 1000, "");
        rig_tokens(tokens[i], RIG_TOKENS, i);
        requests[i] = (struct rig_request){.tokens = tokens[i],
                                           .n = 1 + random_below(&state, 120),
                                           .max_tokens = 1 + random_below(&state, 100)};
    }
}

static void close_all(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_detach(&rig, &clients[i]);
    ck_assert_uint_eq(prefix_spare(&rig.engine->slots.kv.prefix), rig.engine->slots.kv.pool.total);
    rig_close(&rig);
}

/* Up to `most` drafts after the slot's accepted tokens, the wrong ones with odds of 1 to `odds`.
 * They end where the request does: a row beyond the context has no place. */
static void draft(struct slot *slot, uint32_t most, uint32_t odds)
{
    struct spec *spec = &slot->spec;

    if (slot->state == SLOT_IDLE || spec->drafted)
        return;
    for (uint32_t n = random_below(&state, most + 1);
         n > 0 && spec->accepted + spec->drafted < slot->request->limit; n--) {
        uint32_t at = spec->accepted + spec->drafted;
        uint32_t token = fake_next(&rig.fake, slot->tokens, at, slot->request->sampler.seed);
        spec_draft(spec, slot->tokens, random_below(&state, odds) ? token : FAKE_BYTES + 'Z');
        slot->request->drafted++;
    }
}

static void draft_all(uint32_t most, uint32_t odds)
{
    for (uint32_t i = 0; i < rig.engine->options.n_slots; i++)
        draft(&rig.engine->slots.all[i], most, odds);
}

static uint32_t run_drafting(uint32_t most, uint32_t odds, bool slow)
{
    uint32_t steps = 0;

    while (rig.engine->slots.n_active > 0 || engine_look(rig.engine)) {
        draft_all(most, odds);
        engine_step(rig.engine);
        rig_check(&rig);
        for (uint32_t i = 0; i < CLIENTS; i++)
            if (!slow || random_below(&state, 20) == 0)
                rig_read(&clients[i], 0, slow ? 3 : UINT32_MAX);
        ck_assert_uint_lt(++steps, 20000);
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_read_all(&clients[i]);
    return steps;
}

static void check_counts(const struct event_done *done)
{
    ck_assert_uint_le(done->accepted_drafts, done->drafted);
    ck_assert_uint_le(done->rollbacks, done->passes);
    ck_assert_uint_le(done->accepted_drafts, done->output);
}

static void all_right(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        ck_assert_msg(rig_same(&rig, &requests[i], &clients[i].slots[0].last), "client %u", i);
        check_counts(&clients[i].slots[0].last.done);
    }
}

START_TEST(no_draft_changes_an_answer)
{
    open_with(32, (uint32_t)_i);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < CLIENTS; i++)
            rig_submit(&clients[i], 0, &requests[i]);
        run_drafting(TEST_WINDOW_MAX, 2 + (uint32_t)_i % 5, false);
        all_right();
    }
    close_all();
}
END_TEST

START_TEST(nor_under_page_pressure)
{
    open_with(8 + (uint32_t)_i % 4, (uint32_t)_i);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        requests[i].batch = random_below(&state, 2);
        rig_submit(&clients[i], 0, &requests[i]);
    }
    run_drafting(TEST_WINDOW_MAX, 4, false);
    all_right();
    close_all();
}
END_TEST

START_TEST(nor_with_slow_readers_and_logprobs)
{
    struct params p;

    params_default(&p);
    open_with(12, (uint32_t)_i);
    p.logprobs_on = 1;
    p.logprobs = 3;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (i % 2)
            requests[i].params = &p;
        rig_submit(&clients[i], 0, &requests[i]);
    }
    run_drafting(3, 4, true);
    all_right();
    close_all();
}
END_TEST

/* An end inside a window: eos, a stop token and a stop text at every distance from the prompt. */
START_TEST(nor_when_the_answer_ends_inside_a_window)
{
    struct params p;
    uint32_t stop = FAKE_BYTES + 'c', length = 2;

    params_default(&p);
    open_with(32, (uint32_t)_i);
    if (_i % 3 == 0)
        rig.fake.end_at = 100;
    if (_i % 3 == 1) {
        p.n_stop_tokens = 1;
        p.stop_tokens = &stop;
    } else {
        p.n_stop_texts = 1;
        p.stop_text_bytes = 2;
        p.stop_text_lengths = &length;
        p.stop_texts = (const uint8_t *)"ab";
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        requests[i].n = 100 - (uint32_t)_i - i;
        requests[i].max_tokens = 150;
        requests[i].params = _i % 3 ? &p : NULL;
        rig_submit(&clients[i], 0, &requests[i]);
    }
    run_drafting(TEST_WINDOW_MAX, 9, false);
    all_right();
    close_all();
}
END_TEST

/* Exact bookkeeping, one slot: `window` right drafts a pass, then the bonus token. */
START_TEST(right_drafts_save_passes)
{
    struct rig_client *c = &clients[0];
    uint32_t window = (uint32_t)_i;

    open_with(32, 1);
    requests[0].n = 10;
    requests[0].max_tokens = 1 + 10 * (window + 1);
    rig_submit(c, 0, &requests[0]);
    engine_step(rig.engine); /* the prompt, and the first token */
    struct slot *slot = c->client->slots[0];
    uint32_t passes = 0;
    for (; slot->state != SLOT_IDLE; passes++) {
        for (uint32_t k = 0; k < window; k++) {
            uint32_t at = slot->spec.accepted + slot->spec.drafted;
            spec_draft(&slot->spec, slot->tokens, fake_next(&rig.fake, slot->tokens, at, 0));
        }
        slot->request->drafted += window;
        engine_step(rig.engine);
        ck_assert_uint_eq(rig.fake.last_rows, window + 1);
        ck_assert_uint_eq(rig.fake.last_samples, window + 1);
    }
    ck_assert_uint_eq(passes, 10);
    rig_read_all(c);
    ck_assert(rig_same(&rig, &requests[0], &c->slots[0].last));
    const struct event_done *done = &c->slots[0].last.done;
    ck_assert_uint_eq(done->passes, 11);
    ck_assert_uint_eq(done->drafted, 10 * window);
    ck_assert_uint_eq(done->accepted_drafts, 10 * window);
    ck_assert_uint_eq(done->rollbacks, 0);
    ck_assert_uint_eq(done->output, done->accepted_drafts + 11); /* own samples */
    close_all();
}
END_TEST

START_TEST(wrong_drafts_cost_nothing_but_rows)
{
    struct rig_client *c = &clients[0];

    open_with(32, 1);
    requests[0].n = 10;
    requests[0].max_tokens = 21;
    rig_submit(c, 0, &requests[0]);
    engine_step(rig.engine);
    struct slot *slot = c->client->slots[0];
    while (slot->state != SLOT_IDLE) {
        spec_draft(&slot->spec, slot->tokens, FAKE_BYTES + 'Z');
        slot->request->drafted++;
        engine_step(rig.engine);
    }
    rig_read_all(c);
    ck_assert(rig_same(&rig, &requests[0], &c->slots[0].last));
    ck_assert_uint_eq(c->slots[0].last.done.passes, 21);
    ck_assert_uint_eq(c->slots[0].last.done.rollbacks, 20);
    ck_assert_uint_eq(c->slots[0].last.done.accepted_drafts, 0);
    ck_assert_uint_eq(counters_get(rig.engine->options.ctl, COUNTER_REJECTED_DRAFTS), 20);
    ck_assert_uint_eq(counters_get(rig.engine->options.ctl, COUNTER_UNUSED_DRAFTS), 0);
    ck_assert_uint_eq(counters_get(rig.engine->options.ctl, COUNTER_OWN_PICKS), 21);
    close_all();
}
END_TEST

START_TEST(a_cancel_drops_the_window)
{
    open_with(32, (uint32_t)_i);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    for (int step = 0; step < 60; step++) {
        draft_all(TEST_WINDOW_MAX, 4);
        if (random_below(&state, 5) == 0) {
            uint32_t i = random_below(&state, CLIENTS);
            rig_submit(&clients[i], 0, &requests[i]);
        }
        engine_step(rig.engine);
        rig_check(&rig);
        for (uint32_t i = 0; i < CLIENTS; i++)
            rig_read_all(&clients[i]);
    }
    run_drafting(TEST_WINDOW_MAX, 4, false);
    all_right();
    close_all();
}
END_TEST

/* A short answer's window is planned; then an interactive request takes its page for the same pass,
 * and a long one's, so that some are left: it has no rows in that pass, for they began elsewhere.
 */
START_TEST(a_planned_window_may_lose_its_pages)
{
    struct rig_desc desc = {.slots = CLIENTS, .context = 256, .pages = 6, .rows = 200};

    rig_open(&rig, &desc);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_attach(&rig, &clients[i], 1, 1000, "");
    rig_tokens(tokens[0], RIG_TOKENS, 0);
    rig_tokens(tokens[1], RIG_TOKENS, 1);
    requests[0] = (struct rig_request){
        .tokens = tokens[0], .n = 1 + (uint32_t)_i, .max_tokens = 60, .batch = true};
    requests[1] = (struct rig_request){.tokens = tokens[1], .n = 80, .max_tokens = 4};
    rig_tokens(tokens[2], RIG_TOKENS, 2);
    requests[2] =
        (struct rig_request){.tokens = tokens[2], .n = 100, .max_tokens = 20, .batch = true};
    struct slot *slot = clients[0].client->slots[0];
    rig_submit(&clients[2], 0, &requests[2]);
    engine_step(rig.engine);
    rig_submit(&clients[0], 0, &requests[0]);
    while (slot->spec.accepted < 4 + (uint32_t)_i)
        engine_step(rig.engine);
    ck_assert_uint_eq(rig.engine->slots.kv.pool.n_free, 1);
    for (uint32_t i = 0; i < 5; i++)
        spec_draft(&slot->spec, slot->tokens, FAKE_BYTES + 'Z');
    slot->request->drafted += 5;
    rig_submit(&clients[1], 0, &requests[1]);
    engine_step(rig.engine);
    rig_check(&rig);
    ck_assert_uint_eq(slot->spec.canonical, 0);
    ck_assert_uint_eq(rig.fake.last_rows, 80);
    for (uint32_t i = 0; i < 200 && rig.engine->slots.n_active > 0; i++) {
        engine_step(rig.engine);
        rig_check(&rig);
        rig_read_all(&clients[0]);
        rig_read_all(&clients[1]);
        rig_read_all(&clients[2]);
    }
    for (uint32_t i = 0; i < 3; i++)
        ck_assert(rig_same(&rig, &requests[i], &clients[i].slots[0].last));
    close_all();
}
END_TEST

/* A pass of few rows, of which the other class's prompts could use all: a model's windows go on. */
START_TEST(a_window_never_waits_for_the_other_classs_prompts)
{
    const bool batch = _i % 2;
    struct rig_desc desc = {
        .slots = 2, .context = 512, .rows = 1 + (uint32_t)_i / 2, .proposer = PROPOSER_DRAFT};

    rig_open(&rig, &desc);
    for (uint32_t i = 0; i < 2; i++) {
        rig_attach(&rig, &clients[i], 1, 1000 + i, "");
        rig_tokens(tokens[i], RIG_TOKENS, i);
    }
    requests[0] =
        (struct rig_request){.tokens = tokens[0], .n = 1, .max_tokens = 60, .batch = batch};
    requests[1] =
        (struct rig_request){.tokens = tokens[1], .n = 500, .max_tokens = 1, .batch = !batch};
    rig_submit(&clients[0], 0, &requests[0]);
    rig_step(&rig);
    rig_submit(&clients[1], 0, &requests[1]);
    for (uint32_t steps = 0; clients[0].slots[0].n_ends == 0; steps++) {
        rig_step(&rig);
        rig_check(&rig);
        rig_read_all(&clients[0]);
        rig_read_all(&clients[1]);
        if (clients[1].slots[0].n_ends == clients[1].slots[0].n_requests) { /* without a pause */
            requests[1].tokens++;
            rig_submit(&clients[1], 0, &requests[1]);
        }
        ck_assert_msg(steps < 1200, "%u tokens after %u steps", clients[0].slots[0].now.n, steps);
    }
    ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    rig_end(&rig, clients, 2);
}
END_TEST

/* Interactive answers that begin together in the middle of a batch request's window, as many as a pass
 * has samples: the batch request goes on with those that its class keeps. */
START_TEST(a_window_never_waits_for_the_other_classs_samples)
{
    static struct rig_request others[2 * RIG_SLOTS];
    struct rig_desc desc = {.slots = 9,
                            .context = 512,
                            .rows = 256,
                            .samples = (uint32_t)_i,
                            .proposer = PROPOSER_DRAFT};

    rig_open(&rig, &desc);
    rig_attach(&rig, &clients[0], 1, 1000, "");
    rig_tokens(tokens[0], RIG_TOKENS, 0);
    rig_tokens(tokens[1], RIG_TOKENS, 1);
    for (uint32_t i = 1; i < 3; i++) {
        rig_attach(&rig, &clients[i], RIG_SLOTS, 2000, "");
        clients[i].proposer = PROPOSER_NONE;
    }
    requests[0] =
        (struct rig_request){.tokens = tokens[0], .n = 1, .max_tokens = 60, .batch = true};
    rig_submit(&clients[0], 0, &requests[0]);
    for (uint32_t i = 0; clients[0].client->slots[0]->spec.drafted < 3 && i < 20; i++)
        rig_step(&rig);
    for (uint32_t i = 0; i < 2 * RIG_SLOTS; i++) {
        others[i] = (struct rig_request){.tokens = tokens[1] + i, .n = 1, .max_tokens = 500};
        rig_submit(&clients[1 + i / RIG_SLOTS], i % RIG_SLOTS, &others[i]);
    }
    for (uint32_t steps = 0; clients[0].slots[0].n_ends == 0; steps++) {
        rig_step(&rig);
        rig_check(&rig);
        for (uint32_t i = 0; i < 3; i++)
            rig_read_all(&clients[i]);
        ck_assert_msg(steps < 100, "%u tokens after %u steps", clients[0].slots[0].now.n, steps);
    }
    ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    rig_end(&rig, clients, 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_drafts");
    TCase *t = tcase_create("drafts");

    tcase_add_loop_test(t, no_draft_changes_an_answer, 0, 20);
    tcase_add_loop_test(t, nor_under_page_pressure, 0, 30);
    tcase_add_loop_test(t, nor_with_slow_readers_and_logprobs, 0, 10);
    tcase_add_loop_test(t, nor_when_the_answer_ends_inside_a_window, 0, 18);
    tcase_add_loop_test(t, right_drafts_save_passes, 0, 9);
    tcase_add_test(t, wrong_drafts_cost_nothing_but_rows);
    tcase_add_loop_test(t, a_cancel_drops_the_window, 0, 10);
    tcase_add_loop_test(t, a_planned_window_may_lose_its_pages, 0, 6);
    tcase_add_loop_test(t, a_window_never_waits_for_the_other_classs_prompts, 2,
                        40); /* of a single row interactive requests are first */
    tcase_add_loop_test(t, a_window_never_waits_for_the_other_classs_samples, 2, 10);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
