/*
 * The engine stepped by hand: one answer end to end, passes of several slots, chunked prefill, what
 * stays warm. test_engine_ends.c has every way an answer ends, test_engine_flow.c clients that change
 * their minds, test_engine_pages.c those that compete for pages, test_engine_hostile.c those that lie.
 */
#include "daemon/overflow_uid.h"
#include "ipc/params.h"
#include "kernels/base/hash128.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static struct rig rig;
static struct rig_client a, b;
static uint32_t prompt[RIG_TOKENS], other[RIG_TOKENS];

static void setup(void)
{
    rig_open(&rig, NULL);
    rig_attach(&rig, &a, 2, 1000, "");
    rig_attach(&rig, &b, 1, 1000, "");
    rig_tokens(prompt, RIG_TOKENS, 1);
    rig_tokens(other, RIG_TOKENS, 2);
}

static void teardown(void)
{
    rig_detach(&rig, &a);
    rig_detach(&rig, &b);
    ck_assert_uint_eq(prefix_spare(&rig.engine->slots.kv.prefix), rig.engine->slots.kv.pool.total);
    ck_assert_uint_eq(rig.n_closed, 0);
    rig_close(&rig);
}

/* ---- one answer ------------------------------------------------------------------------------ */

START_TEST(a_request_is_answered_end_to_end)
{
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 20};
    uint8_t hash[16];
    const struct rig_answer *answer = rig_ask(&rig, &a, 0, &request);

    ck_assert(rig_same(&rig, &request, answer));
    ck_assert_uint_eq(answer->n, 20);
    ck_assert_uint_eq(answer->first, 10);
    ck_assert_uint_eq(answer->done.prompt, 10);
    ck_assert_uint_eq(answer->done.cached, 0);
    ck_assert_uint_eq(answer->done.passes, 20); /* the prompt's pass samples the first */
    ck_assert_uint_eq(answer->done.drafted, 0);
    ck_assert_uint_gt(answer->done.decode_ns, 0);
    ck_assert_str_eq(answer->done.numerics, "fake-1");
    ck_assert_int_eq(answer->done.error, 0);
    ck_assert_str_eq(answer->done.text, "");
    hash128(answer->tokens, answer->n * sizeof(uint32_t), hash);
    ck_assert_mem_eq(hash, answer->done.output_hash, sizeof(hash));
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_REQUESTS_FINISHED), 1);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_OUTPUT_TOKENS), 20);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SLOTS_ACTIVE), 0);
}
END_TEST

START_TEST(equal_requests_have_equal_receipts_and_others_have_not)
{
    struct params p;
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 5, .params = &p};
    struct event_done first, again;

    params_default(&p);
    first = rig_ask(&rig, &a, 0, &request)->done;
    again = rig_ask(&rig, &b, 0, &request)->done;
    ck_assert_mem_eq(first.request_hash, again.request_hash, 16);
    ck_assert_mem_eq(first.output_hash, again.output_hash, 16);
    p.seed = 1;
    again = rig_ask(&rig, &b, 0, &request)->done;
    ck_assert_mem_ne(first.request_hash, again.request_hash, 16);
    p.seed = 0;
    request.n = 9;
    again = rig_ask(&rig, &b, 0, &request)->done;
    ck_assert_mem_ne(first.request_hash, again.request_hash, 16);
    ck_assert_mem_ne(first.output_hash, again.output_hash, 16);
}
END_TEST

/* What a record of an older daemon holds: the hash of the parameters as they would be sent without the
 * guess, then of lengths and prompt. */
START_TEST(a_receipt_is_that_of_the_parameters_without_the_guess)
{
    static const uint32_t stops[] = {7}, lengths[] = {2};
    static uint8_t block[RIG_PARAMS_BYTES];
    struct params p;
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 5, .params = &p};
    struct {
        uint8_t block[16], prompt[16];
        uint32_t prompt_length, limit;
    } whole = {.prompt_length = 10, .limit = 15};
    uint8_t hash[16];
    char err[200];

    params_default(&p);
    p.stop_tokens = stops;
    p.n_stop_tokens = 1;
    p.stop_text_lengths = lengths;
    p.n_stop_texts = 1;
    p.stop_texts = (const uint8_t *)"zz";
    p.stop_text_bytes = 2;
    int bytes = params_encode(&p, block, sizeof(block), err, sizeof(err));
    hash128(block, (size_t)bytes, whole.block);
    hash128(prompt, 10 * sizeof(*prompt), whole.prompt);
    hash128(&whole, sizeof(whole), hash);
    for (p.n_guess = 0; p.n_guess < 40; p.n_guess += 13) {
        p.guess = prompt + 20;
        ck_assert_mem_eq(rig_ask(&rig, &a, 0, &request)->done.request_hash, hash, 16);
    }
}
END_TEST

START_TEST(the_sampler_gets_what_was_asked_for)
{
    const struct params_bias bias[] = {{3, 1.5f}, {4, -2}};
    struct params p;
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 5, .params = &p};

    params_default(&p);
    p.temperature = 0.7f;
    p.top_k = 11;
    p.top_p = 0.9f;
    p.min_p = 0.1f;
    p.typical_p = 0.8f;
    p.repeat_penalty = 1.1f;
    p.frequency_penalty = 0.2f;
    p.presence_penalty = 0.3f;
    p.penalty_last_n = 9;
    p.seed = 77;
    p.bias = bias;
    p.n_bias = 2;
    memset(p.order, 0, sizeof(p.order));
    p.order[0] = PARAMS_STAGE_TEMPERATURE;
    p.order[1] = PARAMS_STAGE_TOP_K;
    rig_submit(&a, 0, &request);
    engine_step(rig.engine);
    const struct sampler_params *s = &a.client->slots[0]->request->sampler;
    ck_assert(s->temperature == 0.7f && s->top_k == 11 && s->top_p == 0.9f && s->min_p == 0.1f);
    ck_assert(s->typical_p == 0.8f && s->repeat_penalty == 1.1f && s->frequency_penalty == 0.2f);
    ck_assert(s->presence_penalty == 0.3f && s->penalty_last_n == 9 && s->seed == 77);
    ck_assert_uint_eq(s->n_order, 2);
    ck_assert(s->order[0] == SAMPLE_TEMPERATURE && s->order[1] == SAMPLE_TOP_K);
    ck_assert_uint_eq(s->n_bias, 2);
    ck_assert(s->bias[0].id == 3 && s->bias[0].value == 1.5f && s->bias[1].id == 4);
    rig_cancel(&a, 0);
    rig_run(&rig, 100);
}
END_TEST

START_TEST(one_token_prompt_and_one_token_answer)
{
    struct rig_request request = {.tokens = prompt, .n = 1, .max_tokens = 1};

    ck_assert(rig_same(&rig, &request, rig_ask(&rig, &a, 0, &request)));
    ck_assert_uint_eq(rig.fake.n_passes, 1);
    ck_assert_uint_eq(rig.fake.n_rows, 1);
}
END_TEST

/* What `hearth top` shows of a slot: of the request that runs or ran last, and of all together. */
START_TEST(the_status_line_follows_the_answers)
{
    struct rig_request first = {.tokens = prompt, .n = 10, .max_tokens = 5};
    struct rig_request second = {.tokens = other, .n = 12, .max_tokens = 7, .batch = true};
    const struct down_slot *line = segment_down_slot(&a.segment, 0);

    rig_submit(&a, 0, &first);
    engine_step(rig.engine);
    ck_assert_uint_eq(line->state, DOWN_DECODE);
    ck_assert_uint_eq(line->prompt, 10);
    ck_assert_uint_eq(line->output, 1);
    ck_assert_uint_eq(line->outputs, 1);
    rig_run(&rig, 20);
    ck_assert_uint_eq(line->state, DOWN_IDLE);
    ck_assert_uint_eq(line->output, 5);
    ck_assert_uint_eq(line->batch, 0);
    rig_ask(&rig, &a, 0, &second);
    ck_assert_uint_eq(line->prompt, 12);
    ck_assert_uint_eq(line->output, 7);
    ck_assert_uint_eq(line->outputs, 12);
    ck_assert_uint_eq(line->batch, 1);
}
END_TEST

START_TEST(an_echo_comes_back_with_its_cookie_and_touches_nothing)
{
    struct submit_cell cell = {.opcode = SUBMIT_NOP, .slot = 1, .cookie = 0x123456789abcdef0};

    rig_push(&a, &cell);
    ck_assert_uint_ge(engine_step(rig.engine), 1);
    rig_read_all(&a);
    ck_assert_uint_eq(a.slots[1].n_nops, 1);
    ck_assert_uint_eq(a.slots[1].cookie, 0x123456789abcdef0);
    ck_assert_uint_eq(rig.fake.n_passes, 0);
    ck_assert_uint_eq(engine_step(rig.engine), 0);
}
END_TEST

START_TEST(logprobs_come_with_every_token)
{
    struct params p;
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 7, .params = &p};

    params_default(&p);
    p.logprobs_on = 1;
    for (p.logprobs = 0; p.logprobs <= PARAMS_LOGPROBS_MAX; p.logprobs += 10) {
        ck_assert(rig_same(&rig, &request, rig_ask(&rig, &a, 0, &request)));
        ck_assert_uint_eq(a.slots[0].n_logprobs, 7);
        a.slots[0].n_logprobs = 0;
    }
}
END_TEST

/* ---- passes ---------------------------------------------------------------------------------- */

START_TEST(two_slots_decode_in_one_pass)
{
    struct rig_request one = {.tokens = prompt, .n = 8, .max_tokens = 10};
    struct rig_request two = {.tokens = other, .n = 12, .max_tokens = 10};

    rig_submit(&a, 0, &one);
    rig_submit(&b, 0, &two);
    engine_step(rig.engine);
    ck_assert_uint_eq(rig.fake.last_sequences, 2);
    ck_assert_uint_eq(rig.fake.last_rows, 20);
    engine_step(rig.engine);
    ck_assert_uint_eq(rig.fake.last_sequences, 2);
    ck_assert_uint_eq(rig.fake.last_rows, 2);
    rig_run(&rig, 20);
    rig_read_all(&a);
    rig_read_all(&b);
    ck_assert(rig_same(&rig, &one, &a.slots[0].last));
    ck_assert(rig_same(&rig, &two, &b.slots[0].last));
    ck_assert_uint_eq(rig.fake.n_passes, 10);
}
END_TEST

/* A long prompt is computed in chunks, and another slot's decoding goes on in the same passes. */
START_TEST(prefill_in_chunks_does_not_stop_decoding)
{
    struct rig_request decode = {.tokens = other, .n = 4, .max_tokens = 40};
    struct rig_request prefill = {.tokens = prompt, .n = 300, .max_tokens = 3};

    rig_submit(&b, 0, &decode);
    engine_step(rig.engine);
    rig_submit(&a, 0, &prefill);
    for (uint32_t pass = 0; pass < 4; pass++) {
        engine_step(rig.engine);
        ck_assert_uint_eq(rig.fake.last_rows, rig.desc.rows); /* full passes */
        ck_assert_uint_eq(rig.fake.last_sequences, 2);
        ck_assert_uint_eq(rig.fake.last_samples, 1); /* of the one that decodes */
        rig_read_all(&b);
        ck_assert_uint_eq(b.slots[0].now.n, 2 + pass);
        ck_assert_uint_eq(segment_down_slot(&a.segment, 0)->state, DOWN_PREFILL);
        ck_assert_uint_eq(segment_down_slot(&a.segment, 0)->prefill_done, 63 * (pass + 1));
        ck_assert_uint_eq(segment_down_slot(&a.segment, 0)->prefill_total, 300);
    }
    rig_run(&rig, 60);
    rig_read_all(&a);
    rig_read_all(&b);
    ck_assert(rig_same(&rig, &prefill, &a.slots[0].last));
    ck_assert(rig_same(&rig, &decode, &b.slots[0].last));
}
END_TEST

START_TEST(chunking_never_changes_an_answer)
{
    static const uint32_t rows[] = {8, 16, 17, 40, 64, 256};
    struct rig_request request = {.tokens = prompt, .n = 237, .max_tokens = 30};

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct rig_desc desc = {.rows = rows[i]};
        struct rig one;
        struct rig_client c;

        rig_open(&one, &desc);
        rig_attach(&one, &c, 1, 1, "");
        ck_assert(rig_same(&one, &request, rig_ask(&one, &c, 0, &request)));
        ck_assert_uint_eq(one.fake.n_rows, 237 + 29);
        rig_detach(&one, &c);
        rig_close(&one);
    }
}
END_TEST

START_TEST(batch_goes_on_beside_interactive)
{
    struct rig_request batch = {.tokens = other, .n = 200, .max_tokens = 5, .batch = true};
    struct rig_request fast = {.tokens = prompt, .n = 400, .max_tokens = 5};

    rig_submit(&a, 0, &batch);
    rig_submit(&b, 0, &fast);
    engine_step(rig.engine);
    ck_assert_uint_eq(rig.fake.last_rows, 64);
    const struct slot *slot = a.client->slots[0];
    ck_assert_uint_eq(slot->spec.canonical, 8); /* its eighth */
    ck_assert_uint_eq(b.client->slots[0]->spec.canonical, 56);
    rig_run(&rig, 100);
    rig_read_all(&a);
    rig_read_all(&b);
    ck_assert(rig_same(&rig, &batch, &a.slots[0].last));
    ck_assert(rig_same(&rig, &fast, &b.slots[0].last));
}
END_TEST

/* ---- what stays warm ------------------------------------------------------------------------- */

START_TEST(appending_computes_only_the_new_tokens)
{
    struct rig_request request = {.tokens = prompt, .n = 200, .max_tokens = 1};

    rig_ask(&rig, &a, 0, &request);
    for (request.n = 201; request.n < 240; request.n += 3) {
        uint64_t before = rig.fake.n_rows;
        const struct rig_answer *answer = rig_ask(&rig, &a, 0, &request);
        ck_assert(rig_same(&rig, &request, answer));
        uint32_t fresh = request.n == 201 ? 1 : 3;
        ck_assert_uint_eq(rig.fake.n_rows - before, fresh);
        ck_assert_uint_eq(answer->done.cached, request.n - fresh);
    }
}
END_TEST

START_TEST(the_same_prompt_again_computes_one_row)
{
    struct rig_request request = {.tokens = prompt, .n = 100, .max_tokens = 1};

    rig_ask(&rig, &a, 0, &request);
    ck_assert(rig_same(&rig, &request, rig_ask(&rig, &a, 0, &request)));
    ck_assert_uint_eq(rig.fake.n_rows, 101);
}
END_TEST

/* Pre-warming: the prompt is computed, nothing is said, and the next request finds it warm. */
START_TEST(a_request_for_no_tokens_warms_the_slot)
{
    struct rig_request warm = {.tokens = prompt, .n = 150, .max_tokens = 0};
    struct rig_request request = {.tokens = prompt, .n = 150, .max_tokens = 7};
    const struct rig_answer *answer = rig_ask(&rig, &a, 0, &warm);

    ck_assert_uint_eq(answer->n, 0);
    ck_assert_uint_eq(answer->reason, DONE_LENGTH);
    ck_assert_uint_eq(answer->done.output, 0);
    ck_assert_uint_ge(answer->done.passes, 3);
    ck_assert_uint_eq(rig.fake.n_samples, 0); /* nor computed for no use */
    answer = rig_ask(&rig, &a, 0, &request);
    ck_assert(rig_same(&rig, &request, answer));
    ck_assert_uint_eq(answer->done.cached, 149);
}
END_TEST

START_TEST(a_changed_token_is_where_the_prefix_breaks)
{
    struct rig_request request = {.tokens = prompt, .n = 200, .max_tokens = 1};

    rig_ask(&rig, &a, 0, &request);
    prompt[77] = FAKE_BYTES + 'z';
    uint64_t before = rig.fake.n_rows;
    const struct rig_answer *answer = rig_ask(&rig, &a, 0, &request);
    ck_assert(rig_same(&rig, &request, answer));
    ck_assert_uint_eq(answer->done.prefix_break, 77);
    ck_assert_uint_eq(answer->done.cached, 77);
    ck_assert_uint_eq(segment_down_slot(&a.segment, 0)->prefix_break, 77);
    ck_assert_uint_eq(segment_down_slot(&a.segment, 0)->prefix_lost, 200 + 1 - 77);
    ck_assert_uint_eq(rig.fake.n_rows - before, 200 - 77);
}
END_TEST

/* The next turn of a chat: prompt, answer, more. All but the answer's last token is warm. */
START_TEST(an_answer_taken_into_the_prompt_is_warm)
{
    struct rig_request request = {.tokens = prompt, .n = 50, .max_tokens = 20};
    const struct rig_answer *answer = rig_ask(&rig, &a, 0, &request);

    memcpy(prompt + 50, answer->tokens, 20 * sizeof(*prompt));
    request.n = 80;
    uint64_t before = rig.fake.n_rows;
    answer = rig_ask(&rig, &a, 0, &request);
    ck_assert(rig_same(&rig, &request, answer));
    ck_assert_uint_eq(answer->done.cached, 69);
    ck_assert_uint_eq(rig.fake.n_rows - before, 11 + 19);
}
END_TEST

/* keep says what the client did not write again; a smaller keep costs copying, never rows. */
START_TEST(a_small_keep_costs_no_rows)
{
    struct rig_request request = {.tokens = prompt, .n = 100, .max_tokens = 1};

    rig_ask(&rig, &a, 0, &request);
    uint64_t before = rig.fake.n_rows;
    struct submit_cell cell = rig_prepare(&a, 0, &request);
    cell.keep = 0;
    rig_push(&a, &cell);
    rig_run(&rig, 5);
    rig_read_all(&a);
    ck_assert(rig_same(&rig, &request, &a.slots[0].last));
    ck_assert_uint_eq(rig.fake.n_rows - before, 1);
}
END_TEST

/* What a client says it kept is the daemon's copy, whatever the arena holds by now. */
START_TEST(what_is_kept_is_not_read_again)
{
    struct rig_request request = {.tokens = prompt, .n = 100, .max_tokens = 3};

    rig_ask(&rig, &a, 0, &request);
    struct submit_cell cell = rig_prepare(&a, 0, &request);
    ck_assert_uint_eq(cell.keep, 100);
    memset(segment_arena(&a.segment, 0), 0xff, 100 * sizeof(uint32_t));
    rig_push(&a, &cell);
    rig_run(&rig, 10);
    rig_read_all(&a);
    ck_assert(rig_same(&rig, &request, &a.slots[0].last));
    memcpy(segment_arena(&a.segment, 0), prompt, 100 * sizeof(uint32_t));
}
END_TEST

START_TEST(a_shorter_prompt_gives_pages_back)
{
    struct rig_request request = {.tokens = prompt, .n = 320, .max_tokens = 1};

    rig_ask(&rig, &a, 0, &request);
    ck_assert_uint_eq(a.client->slots[0]->n_pages, 10);
    request.n = 33;
    ck_assert(rig_same(&rig, &request, rig_ask(&rig, &a, 0, &request)));
    ck_assert_uint_eq(a.client->slots[0]->n_pages, 2);
    request.n = 320;
    ck_assert(rig_same(&rig, &request, rig_ask(&rig, &a, 0, &request)));
}
END_TEST

START_TEST(memory_of_free_pages_goes_back_once)
{
    struct rig_request request = {.tokens = prompt, .n = 320, .max_tokens = 1};
    struct rig_client overflow; /* whose pages are not cached */

    rig_attach(&rig, &overflow, 1, OVERFLOW_UID_USUAL, "");
    rig_ask(&rig, &overflow, 0, &request);
    engine_tidy(rig.engine);
    ck_assert_uint_eq(rig.fake.n_released, 0); /* held, or never touched */
    request.n = 33;
    rig_ask(&rig, &overflow, 0, &request);
    engine_tidy(rig.engine);
    ck_assert_uint_eq(rig.fake.n_released, 8);
    engine_tidy(rig.engine);
    ck_assert_uint_eq(rig.fake.n_released, 8);
    request.n = 320;
    ck_assert(rig_same(&rig, &request, rig_ask(&rig, &overflow, 0, &request)));
    rig_detach(&rig, &overflow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine");
    TCase *t = tcase_create("engine");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_request_is_answered_end_to_end);
    tcase_add_test(t, equal_requests_have_equal_receipts_and_others_have_not);
    tcase_add_test(t, a_receipt_is_that_of_the_parameters_without_the_guess);
    tcase_add_test(t, the_sampler_gets_what_was_asked_for);
    tcase_add_test(t, one_token_prompt_and_one_token_answer);
    tcase_add_test(t, the_status_line_follows_the_answers);
    tcase_add_test(t, an_echo_comes_back_with_its_cookie_and_touches_nothing);
    tcase_add_test(t, logprobs_come_with_every_token);
    tcase_add_test(t, two_slots_decode_in_one_pass);
    tcase_add_test(t, prefill_in_chunks_does_not_stop_decoding);
    tcase_add_test(t, chunking_never_changes_an_answer);
    tcase_add_test(t, batch_goes_on_beside_interactive);
    tcase_add_test(t, appending_computes_only_the_new_tokens);
    tcase_add_test(t, the_same_prompt_again_computes_one_row);
    tcase_add_test(t, a_request_for_no_tokens_warms_the_slot);
    tcase_add_test(t, a_changed_token_is_where_the_prefix_breaks);
    tcase_add_test(t, an_answer_taken_into_the_prompt_is_warm);
    tcase_add_test(t, a_small_keep_costs_no_rows);
    tcase_add_test(t, what_is_kept_is_not_read_again);
    tcase_add_test(t, a_shorter_prompt_gives_pages_back);
    tcase_add_test(t, memory_of_free_pages_goes_back_once);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
