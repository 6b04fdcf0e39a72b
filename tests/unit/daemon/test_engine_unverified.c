/*
 * Requests that need not be deterministic, in the engine: their tokens are those of fast passes,
 * which are wrong now and then here, so that the two kinds of answer can be told apart. The device
 * aborts where a canonical row reads what a fast pass wrote, rig_check where such KV is shared.
 * A request for a verified answer gets the one that it always gets.
 */
#include "ipc/params.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_unverified.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* ---- the answer ------------------------------------------------------------------------------ */

START_TEST(the_answer_is_that_of_fast_passes)
{
    open_native(3);
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    check_answer(0);
    check_unlike_verified(0);
    ck_assert(says_fast(0));
    ck_assert_uint_eq(answer->n, 60);
    ck_assert_uint_eq(answer->done.passes, 60); /* a token a pass */
    ck_assert_uint_eq(answer->done.drafted, 0);
    ck_assert_uint_eq(rig.fake.n_passes, 1); /* the prompt, and the first token */
    ck_assert_uint_eq(rig.fake.n_fast_passes, 59);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_STREAMED_TOKENS), 59);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_OUTPUT_TOKENS), 60);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_OWN_PICKS), 60);
    close_all();
}
END_TEST

/* Answers are verified where fast passes are a shadow's, or the same as canonical ones. */
START_TEST(elsewhere_it_is_verified)
{
    static const enum backend_fast others[] = {BACKEND_FAST_NONE, BACKEND_FAST_SHADOW};

    open_with(&(struct rig_desc){.fast = others[_i], .wrong = 1});
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    check_answer(0);
    ck_assert_str_eq(last_of(0)->done.numerics, "fake-1");
    ck_assert_uint_eq(rig.fake.n_fast_passes, 0);
    requests[0].fast = false;
    ck_assert(rig_same(&rig, &requests[0], last_of(0)));
    close_all();
}
END_TEST

/* A single token, and a prompt alone, are canonical: their receipts are those of verified ones. */
START_TEST(a_receipt_without_a_fast_pass_does_not_name_one)
{
    open_native(1);
    requests[0].max_tokens = (uint32_t)_i;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert_str_eq(last_of(0)->done.numerics, "fake-1");
    ck_assert_uint_eq(last_of(0)->n, (uint32_t)_i);
    ck_assert_uint_eq(rig.fake.n_fast_passes, 0);
    close_all();
}
END_TEST

/* An end token from a fast pass is not part of the answer, but makes it an unverified one. */
START_TEST(every_end_is_found)
{
    static const uint32_t lengths[] = {1, 2};
    struct params params;
    uint32_t stop = FAKE_WRONG;

    open_native(4);
    params_default(&params);
    requests[0].params = &params;
    rig.fake.end_at = 11 + (uint32_t)_i;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    check_answer(0);
    ck_assert(says_fast(0));
    ck_assert(last_of(0)->reason == DONE_EOS || last_of(0)->reason == DONE_LENGTH);
    rig.fake.end_at = FAKE_NEVER;
    params.seed = (uint64_t)_i;
    params.stop_tokens = &stop;
    params.n_stop_tokens = 1;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    check_answer(0);
    ck_assert_int_eq(last_of(0)->reason, DONE_STOP);
    params.n_stop_tokens = 0;
    params.stop_texts = (const uint8_t *)"Zx!";
    params.stop_text_lengths = lengths;
    params.stop_text_bytes = 3;
    params.n_stop_texts = 2;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    check_answer(0);
    ck_assert_int_eq(last_of(0)->reason, DONE_STOP);
    requests[0].max_tokens = 10000; /* the context */
    requests[0].params = NULL;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    check_answer(0);
    ck_assert_int_eq(last_of(0)->reason, DONE_LENGTH);
    ck_assert_uint_eq(last_of(0)->n, rig.desc.context - requests[0].n);
    close_all();
}
END_TEST

START_TEST(each_token_has_its_log_probabilities)
{
    struct params params;

    open_native(3);
    params_default(&params);
    params.logprobs_on = true;
    params.logprobs = 5;
    requests[0].params = &params;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    check_answer(0);
    ck_assert_uint_eq(clients[0].slots[0].n_logprobs, 60);
    close_all();
}
END_TEST

/* Wrong samples come up against the mask, too: what they are then is another one than a verified
 * answer has, and follows the grammar all the same. */
START_TEST(an_answer_follows_its_grammar)
{
    static const char *const grammars[] = {"root ::= ([a-dZ] [e-hZ])*", "root ::= [a-h]{7} \"Z\"",
                                           "root ::= (\"ab\" | \"a\" | \"Zb\" | \"b\")* \"c\"?"};
    struct params params;

    open_native(2);
    params_default(&params);
    params.grammar = (const uint8_t *)grammars[_i % 3];
    params.grammar_bytes = (uint32_t)strlen(grammars[_i % 3]);
    if (_i >= 3)
        rig.engine->constrain.step = 1; /* many steps for a mask: a slot that has none sits out */
    for (uint32_t i = 0; i < CLIENTS; i++) {
        requests[i].params = &params;
        requests[i].fast = i % 4 != 3;
        rig_submit(&clients[i], 0, &requests[i]);
    }
    run_all(100000);
    uint32_t fast = 0;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        check_answer(i);
        fast += says_fast(i);
    }
    ck_assert_uint_gt(fast, 0);
    close_all();
}
END_TEST

/* ---- beside others --------------------------------------------------------------------------- */

/* Verified answers, drafted and not, between such that are not: each is the one it is alone. */
START_TEST(verified_answers_do_not_notice_them)
{
    static const enum submit_proposer proposers[] = {PROPOSER_FAST, PROPOSER_NONE, PROPOSER_LOOKUP,
                                                     PROPOSER_AUTO};

    open_native(1 + (uint32_t)_i % 5);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        requests[i].fast = i % 2;
        requests[i].n = 5 + 13 * i;
        clients[i].proposer = proposers[(i / 2 + (uint32_t)_i) % 4];
        rig_submit(&clients[i], 0, &requests[i]);
    }
    run_all(2000);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        check_answer(i);
        ck_assert(says_fast(i) == requests[i].fast);
    }
    close_all();
}
END_TEST

/* One fast pass a step for unverified slots and those that draft; an unverified one gets a token in every
 * step, and needs no canonical pass for it. */
START_TEST(they_share_their_passes_with_drafts)
{
    uint32_t shared = 0, without = 0;

    open_native(0);
    for (uint32_t i = 0; i < 6; i++) {
        requests[i].fast = i < 3;
        requests[i].max_tokens = i < 3 ? 100 : 400;
        clients[i].proposer = i < 3 ? PROPOSER_NONE : PROPOSER_FAST;
        rig_submit(&clients[i], 0, &requests[i]);
    }
    while (!slot_of(5)->request->first_sample_ns)
        step_all();
    while (slot_of(0)->state != SLOT_IDLE) {
        uint32_t before[3], fast = rig.fake.n_fast_passes, canonical = rig.fake.n_passes;
        for (uint32_t i = 0; i < 3; i++)
            before[i] = slot_of(i)->spec.accepted;
        step_all();
        ck_assert_uint_eq(rig.fake.n_fast_passes, fast + 1);
        for (uint32_t i = 0; i < 3 && slot_of(i)->state != SLOT_IDLE; i++)
            ck_assert_uint_eq(slot_of(i)->spec.accepted, before[i] + 1);
        shared += rig.fake.last_fast_rows == 6;
        without += rig.fake.n_passes == canonical;
    }
    ck_assert_uint_gt(shared, 10);
    ck_assert_uint_gt(without, 10);
    run_all(1000);
    for (uint32_t i = 0; i < 6; i++)
        check_answer(i);
    close_all();
}
END_TEST

/* Where a pass has no room for all, interactive ones go first, batch keeps its part, and none is
 * left out. */
START_TEST(they_take_turns)
{
    open_with(&(struct rig_desc){.fast = BACKEND_FAST_NATIVE, .samples = 4});
    for (uint32_t i = 0; i < CLIENTS; i++) {
        requests[i].max_tokens = 400;
        requests[i].batch = i >= 6;
        rig_submit(&clients[i], 0, &requests[i]);
    }
    while (rig.engine->slots.all[7].request->first_sample_ns == 0 ||
           slot_of(7)->spec.unverified == 0)
        step_all();
    uint32_t before[CLIENTS], interactive = 0, batch = 0;
    for (uint32_t i = 0; i < CLIENTS; i++)
        before[i] = slot_of(i)->spec.accepted;
    for (int step = 0; step < 60; step++)
        step_all();
    for (uint32_t i = 0; i < CLIENTS; i++) {
        uint32_t got = slot_of(i)->spec.accepted - before[i];
        ck_assert_msg(got >= (i < 6 ? 20 : 5), "client %u: %u", i, got);
        *(i < 6 ? &interactive : &batch) += got;
    }
    ck_assert_uint_eq(interactive, 3 * 60);
    ck_assert_uint_eq(batch, 60);
    close_all();
}
END_TEST

static uint64_t clock_ns;

static uint64_t clock_now(void)
{
    return clock_ns += 100;
}

enum { PASS_NS = 100000, ROW_NS = 5000 };

/* A pass takes its time. */
static void clock_pass(void *arg)
{
    static uint32_t fast;
    bool is_fast = rig.fake.n_fast_passes != fast;

    (void)arg;
    fast = rig.fake.n_fast_passes;
    clock_ns +=
        PASS_NS + ROW_NS * (uint64_t)(is_fast ? rig.fake.last_fast_rows : rig.fake.last_rows);
}

/* A long prompt beside a fast answer: it has what its credit buys, as beside any answer, and gets
 * on; the reader has a token in every step, and each takes twice as long as without at most. */
START_TEST(a_long_prompt_leaves_them_time)
{
    uint32_t steps = 0;

    open_with(&(struct rig_desc){
        .fast = BACKEND_FAST_NATIVE, .context = 1000, .rows = 256, .now_ns = clock_now});
    rig.fake.during = clock_pass;
    requests[0].n = 200; /* what rows cost is known from then on */
    requests[0].max_tokens = 700;
    rig_submit(&clients[0], 0, &requests[0]);
    answer_some(0, 20);
    requests[1].n = 700;
    rig_submit(&clients[1], 0, &requests[1]);
    uint64_t from_ns = clock_ns;
    while (!clients[1].slots[0].now.n) {
        uint32_t before = slot_of(0)->spec.accepted;
        step_all();
        ck_assert_uint_eq(slot_of(0)->spec.accepted, before + 1);
        ck_assert_uint_lt(++steps, 600);
    }
    ck_assert_uint_lt(clock_ns - from_ns, (uint64_t)steps * 2 * (PASS_NS + ROW_NS));
    ck_assert_uint_lt(rig.engine->cost.step_ns, 2 * (PASS_NS + ROW_NS)); /* what readers are told */
    run_all(2000);
    check_answer(0);
    check_answer(1);
    close_all();
}
END_TEST

/* A grammar whose every token is one of two others: each needs another mask. Returns its bytes. */
static uint32_t costly_grammar(uint32_t seed, char *ret_text)
{
    uint32_t n = (uint32_t)sprintf(ret_text, "root ::= ");

    for (uint32_t i = seed; i < seed + 20; i++)
        n += (uint32_t)sprintf(ret_text + n, "[%c%c] ", (int)('A' + i), (int)('d' + i % 20));
    return n;
}

/* A slot whose masks take long does not keep the others from theirs. */
START_TEST(they_take_turns_at_masks)
{
    static char grammars[CLIENTS][400];
    struct params params[CLIENTS];

    open_native(0);
    rig.engine->constrain.step = 10;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        params_default(&params[i]);
        params[i].grammar = (const uint8_t *)grammars[i];
        params[i].grammar_bytes = costly_grammar(i, grammars[i]);
        requests[i].params = &params[i];
        rig_submit(&clients[i], 0, &requests[i]);
    }
    while (!rig.engine->batch.fast_rows) /* all have their first token, and one its second */
        step_all();
    while (clients[0].slots[0].now.n < 6) {
        step_all();
        for (uint32_t i = 1; i < CLIENTS; i++)
            ck_assert_uint_le(slot_of(0)->spec.accepted, slot_of(i)->spec.accepted + 1);
    }
    run_all(1000000);
    for (uint32_t i = 0; i < CLIENTS; i++)
        check_answer(i);
    close_all();
}
END_TEST

/* The newer one finds no page, waits until the older one has ended, and loses nothing. */
START_TEST(a_slot_that_finds_no_page_waits)
{
    uint32_t waited = 0;

    open_with(&(struct rig_desc){.fast = BACKEND_FAST_NATIVE, .pages = 4, .wrong = 3});
    requests[0].max_tokens = 50; /* two pages */
    requests[1].n = 30;          /* four */
    requests[1].max_tokens = 90;
    rig_submit(&clients[0], 0, &requests[0]);
    rig_submit(&clients[1], 0, &requests[1]);
    while (!last_of(0)->reason) {
        step_all();
        waited += counters_get(rig.ctl, COUNTER_SLOTS_WAITING) == 1;
    }
    ck_assert_uint_gt(waited, 10);
    run_all(1000);
    check_answer(0);
    check_answer(1);
    close_all();
}
END_TEST

/* ---- what is kept ---------------------------------------------------------------------------- */

/* The next request of the slot, and one of another slot, find what canonical passes computed. */
START_TEST(only_the_prompt_is_kept_and_shared)
{
    uint32_t prompt[RIG_TOKENS], n = 33 + (uint32_t)_i * 7;

    open_native(3);
    requests[0].n = n;
    requests[0].max_tokens = 100;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert_uint_eq(slot_of(0)->spec.canonical, n);
    ck_assert_uint_eq(spec_computed(&slot_of(0)->spec), n);
    memcpy(prompt, tokens[0], n * sizeof(*prompt));
    memcpy(prompt + n, last_of(0)->tokens, 100 * sizeof(*prompt));
    for (uint32_t i = 0; i < 2; i++) {
        requests[i] =
            (struct rig_request){.tokens = prompt, .n = n + 100, .max_tokens = 20, .fast = _i % 2};
        rig_ask(&rig, &clients[i], 0, &requests[i]);
        check_answer(i);
    }
    ck_assert_uint_eq(last_of(0)->done.cached, n);
    ck_assert_uint_eq(last_of(1)->done.cached,
                      (n + 100) / 32 * 32); /* the first one's, meanwhile */
    close_all();
}
END_TEST

/* A parked slot, too. */
START_TEST(a_named_slot_keeps_what_is_canonical)
{
    open_native(3);
    rig_detach(&rig, &clients[0]);
    rig_attach(&rig, &clients[0], 1, 1000, "mine");
    rig_submit(&clients[0], 0, &requests[0]);
    answer_some(0, 30);
    rig_detach(&rig, &clients[0]); /* in the middle of its answer */
    rig_check(&rig);
    rig_attach(&rig, &clients[0], 1, 1000, "mine");
    ck_assert_uint_eq(spec_computed(&slot_of(0)->spec), requests[0].n);
    requests[0].fast = false;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    check_answer(0);
    ck_assert_uint_eq(last_of(0)->done.cached, requests[0].n - 1);
    close_all();
}
END_TEST

START_TEST(a_newer_request_starts_from_what_is_canonical)
{
    open_native(3);
    rig_submit(&clients[0], 0, &requests[0]);
    answer_some(0, 20);
    struct rig_request next = {.tokens = slot_of(0)->tokens, .n = 25, .max_tokens = 30};
    uint32_t prompt[25];
    memcpy(prompt, next.tokens, sizeof(prompt));
    next.tokens = prompt;
    ck_assert(rig_same(&rig, &next, rig_ask(&rig, &clients[0], 0, &next)));
    ck_assert_uint_eq(last_of(0)->done.cached, requests[0].n);
    ck_assert_str_eq(last_of(0)->done.numerics, "fake-1");
    close_all();
}
END_TEST

/* ---- what happens to them -------------------------------------------------------------------- */

/* Its reader stops: it is paused, alone, loses nothing, and goes on. */
START_TEST(a_reader_that_stops_pauses_it)
{
    open_native(3);
    requests[0].max_tokens = 400;
    requests[1].max_tokens = 400;
    rig_submit(&clients[0], 0, &requests[0]);
    rig_submit(&clients[1], 0, &requests[1]);
    for (int step = 0; step < 1000 && engine_step(rig.engine); step++) {
        rig_check(&rig);
        rig_read_all(&clients[1]);
    }
    ck_assert(slot_of(0)->state == SLOT_PAUSED);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_PAUSED), 1);
    check_answer(1);
    ck_assert(!engine_look(rig.engine));
    rig_read(&clients[0], 0, 1);
    ck_assert(engine_look(rig.engine));
    run_all(2000);
    check_answer(0);
    close_all();
}
END_TEST

/* Pages taken back in the middle: canonical passes compute what is lost, and fast ones go on. */
START_TEST(pages_taken_back_are_computed_by_canonical_passes)
{
    open_native(3);
    requests[0].n = 40;
    requests[0].max_tokens = 200;
    rig_submit(&clients[0], 0, &requests[0]);
    answer_some(0, 50 + (uint32_t)_i);
    uint32_t accepted = slot_of(0)->spec.accepted;
    slot_evict(slot_of(0), &rig.engine->slots.kv.prefix);
    ck_assert_uint_eq(spec_computed(&slot_of(0)->spec), 0);
    while (slot_of(0)->spec.unverified == 0)
        step_all();
    ck_assert_uint_ge(slot_of(0)->spec.canonical, accepted - 1);
    ck_assert_uint_le(slot_of(0)->spec.canonical, accepted);
    run_all(1000);
    ck_assert(rig_possible(&rig, &requests[0], last_of(0)));
    ck_assert(says_fast(0));
    close_all();
}
END_TEST

static uint32_t victim;

static void cancel_it(void *arg)
{
    (void)arg;
    rig.fake.during = NULL;
    rig_cancel(&clients[victim], 0);
}

/* While a fast pass runs: nothing is published after the store (the rig would abort), and it ends in
 * that step. The others go on. */
START_TEST(a_cancel_in_a_fast_pass_ends_it_in_that_step)
{
    open_native(0);
    victim = (uint32_t)_i;
    for (uint32_t i = 0; i < 4; i++) {
        requests[i].fast = i < 2;
        clients[i].proposer = i < 2 ? PROPOSER_NONE : PROPOSER_FAST;
        rig_submit(&clients[i], 0, &requests[i]);
    }
    answer_some(0, 5);
    uint32_t canonical;
    do { /* until a step has a fast pass: the cancel comes during its first one */
        canonical = rig.fake.n_fast_passes;
        rig.fake.during = cancel_it;
        step_all();
    } while (rig.fake.n_fast_passes == canonical);
    ck_assert_int_eq(last_of(victim)->reason, DONE_CANCELLED);
    ck_assert(slot_of(victim)->state == SLOT_IDLE);
    ck_assert_uint_eq(slot_of(victim)->spec.unverified, 0);
    run_all(1000);
    for (uint32_t i = 0; i < 4; i++)
        if (i != victim)
            check_answer(i);
    close_all();
}
END_TEST

/* Where a fast pass cannot go on, canonical passes do, from the last canonical position. */
START_TEST(a_poisoned_fast_row_is_left_to_canonical_passes)
{
    open_native(3);
    rig_submit(&clients[0], 0, &requests[0]);
    if (_i > 0)
        answer_some(0, 1 + 5 * (uint32_t)_i);
    rig.fake.poison_fast = true;
    run_all(1000);
    uint32_t passes = rig.fake.n_fast_passes;
    ck_assert(rig_possible(&rig, &requests[0], last_of(0)));
    ck_assert(says_fast(0) == (_i > 0));
    ck_assert_uint_eq(slot_of(0)->spec.canonical, slot_of(0)->spec.accepted - 1);
    rig.fake.poison_fast = false;
    rig_ask(&rig, &clients[0], 0,
            &requests[0]); /* the next request is answered by fast passes again */
    check_answer(0);
    ck_assert_uint_gt(rig.fake.n_fast_passes, passes);
    close_all();
}
END_TEST

START_TEST(a_token_that_no_pass_can_compute_is_an_error)
{
    open_native(1); /* the first fast sample is the one that poisons */
    for (uint32_t i = 0; i < requests[0].n; i++)
        tokens[0][i] = FAKE_BYTES + i;
    rig.fake.poison = FAKE_WRONG;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert_int_eq(last_of(0)->reason, DONE_ERROR);
    ck_assert_int_eq(last_of(0)->done.error, -EDOM);
    ck_assert_uint_eq(last_of(0)->n, 2);
    ck_assert(says_fast(0));
    close_all();
}
END_TEST

START_TEST(a_broken_device_ends_it)
{
    open_native(0);
    rig_submit(&clients[0], 0, &requests[0]);
    answer_some(0, 5);
    rig.fake.finish_error = -EIO;
    step_all();
    ck_assert_int_eq(last_of(0)->reason, DONE_ERROR);
    ck_assert_int_eq(last_of(0)->done.error, -EIO);
    ck_assert_int_eq(rig.engine->failed, -EIO);
    close_all();
}
END_TEST

/* libhearth resumes none of them; a client that brings a part of an answer itself is served. */
START_TEST(a_part_of_an_answer_goes_on)
{
    open_native(3);
    requests[0].n = 30;
    requests[0].prompt_length = 12;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    check_answer(0);
    ck_assert_uint_eq(last_of(0)->done.output, 60);
    ck_assert_uint_eq(last_of(0)->n, 42);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_unverified");
    TCase *t = tcase_create("unverified");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_answer_is_that_of_fast_passes);
    tcase_add_loop_test(t, elsewhere_it_is_verified, 0, 2);
    tcase_add_loop_test(t, a_receipt_without_a_fast_pass_does_not_name_one, 0, 2);
    tcase_add_loop_test(t, every_end_is_found, 0, 12);
    tcase_add_test(t, each_token_has_its_log_probabilities);
    tcase_add_loop_test(t, an_answer_follows_its_grammar, 0, 6);
    tcase_add_loop_test(t, verified_answers_do_not_notice_them, 0, 20);
    tcase_add_test(t, they_share_their_passes_with_drafts);
    tcase_add_test(t, they_take_turns);
    tcase_add_test(t, a_long_prompt_leaves_them_time);
    tcase_add_test(t, they_take_turns_at_masks);
    tcase_add_test(t, a_slot_that_finds_no_page_waits);
    tcase_add_loop_test(t, only_the_prompt_is_kept_and_shared, 0, 6);
    tcase_add_test(t, a_named_slot_keeps_what_is_canonical);
    tcase_add_test(t, a_newer_request_starts_from_what_is_canonical);
    tcase_add_test(t, a_reader_that_stops_pauses_it);
    tcase_add_loop_test(t, pages_taken_back_are_computed_by_canonical_passes, 0, 40);
    tcase_add_loop_test(t, a_cancel_in_a_fast_pass_ends_it_in_that_step, 0, 4);
    tcase_add_loop_test(t, a_poisoned_fast_row_is_left_to_canonical_passes, 0, 4);
    tcase_add_test(t, a_token_that_no_pass_can_compute_is_an_error);
    tcase_add_test(t, a_broken_device_ends_it);
    tcase_add_test(t, a_part_of_an_answer_goes_on);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
