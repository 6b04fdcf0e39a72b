/* The parameter block: valid blocks round trip; every invalid one is refused in one line. */
#include "ipc/params.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_VOCAB 512u

static _Alignas(8) uint8_t block[8192];
static char err[256];
static struct params p, got;

static const struct params_bias bias[] = {{3, 1.5f}, {511, -10000.0f}};
static const uint32_t stop_tokens[] = {2, 500, 7}, guess[] = {1, 2, 3, 4, 5};
static const uint32_t text_lengths[] = {2, 5};
static const uint8_t texts[] = "\n\nclass", grammar[] = "root ::= x";

static const uint32_t closing[] = {9, 511};
static const struct params_mark marks[] = {
    {.kind = PARAMS_MARK_THOUGHT, .bytes = 7, .tokens = 100, .open = 1, .text = "<think>"},
    {.kind = PARAMS_MARK_THOUGHT_END, .bytes = 8, .text = "</think>"},
    {.kind = PARAMS_MARK_CALL, .bytes = 11, .text = "<tool_call>"},
};

static void setup(void)
{
    params_default(&p);
    err[0] = 0;
}

static void full(void)
{
    params_default(&p);
    p.temperature = 0.75f;
    p.top_k = 40;
    p.top_p = 0.9f;
    p.min_p = 0.05f;
    p.typical_p = 0.95f;
    p.repeat_penalty = 1.1f;
    p.frequency_penalty = -0.5f;
    p.presence_penalty = 0.25f;
    p.penalty_last_n = PARAMS_LAST_ALL;
    p.logprobs_on = 1;
    p.logprobs = 20;
    p.seed = 0xfedcba9876543210u;
    memset(p.order, 0, sizeof(p.order));
    p.order[0] = PARAMS_STAGE_MIN_P;
    p.order[1] = PARAMS_STAGE_TEMPERATURE;
    p.n_bias = 2;
    p.bias = bias;
    p.n_stop_tokens = 3;
    p.stop_tokens = stop_tokens;
    p.n_guess = 5;
    p.guess = guess;
    p.n_marks = 3;
    p.marks = marks;
    p.n_closing = 2;
    p.closing = closing;
    p.n_stop_texts = 2;
    p.stop_text_lengths = text_lengths;
    p.stop_text_bytes = 7;
    p.stop_texts = texts;
    p.grammar_bytes = 10;
    p.grammar = grammar;
}

static uint32_t encode(void)
{
    int n = params_encode(&p, block, sizeof(block), err, sizeof(err));

    ck_assert_msg(n > 0, "%s", err);
    ck_assert_uint_eq((uint32_t)n, params_bytes(&p));
    ck_assert_int_eq(n % 4, 0);
    return (uint32_t)n;
}

START_TEST(defaults_are_in_range_and_greedy)
{
    uint32_t n = encode();

    ck_assert_uint_eq(n, sizeof(struct params_head));
    ck_assert_int_eq(params_decode(block, n, N_VOCAB, &got, err, sizeof(err)), 0);
    ck_assert(got.temperature == 0.0f && got.top_p == 1.0f && got.repeat_penalty == 1.0f);
    ck_assert_uint_eq(got.order[0], PARAMS_STAGE_PENALTIES);
    ck_assert_uint_eq(got.order[5], PARAMS_STAGE_TEMPERATURE);
    ck_assert_uint_eq(got.order[6], PARAMS_STAGE_END);
}
END_TEST

START_TEST(every_field_round_trips)
{
    full();
    ck_assert_int_eq(params_decode(block, encode(), N_VOCAB, &got, err, sizeof(err)), 0);
    ck_assert(got.temperature == p.temperature && got.top_p == p.top_p && got.min_p == p.min_p);
    ck_assert(got.typical_p == p.typical_p && got.repeat_penalty == p.repeat_penalty);
    ck_assert(got.frequency_penalty == p.frequency_penalty);
    ck_assert(got.presence_penalty == p.presence_penalty);
    ck_assert_uint_eq(got.top_k, 40);
    ck_assert_uint_eq(got.penalty_last_n, PARAMS_LAST_ALL);
    ck_assert_uint_eq(got.logprobs_on, 1);
    ck_assert_uint_eq(got.logprobs, 20);
    ck_assert(got.seed == p.seed);
    ck_assert_mem_eq(got.order, p.order, sizeof(p.order));
    ck_assert_uint_eq(got.n_bias, 2);
    ck_assert_mem_eq(got.bias, bias, sizeof(bias));
    ck_assert_uint_eq(got.n_stop_tokens, 3);
    ck_assert_mem_eq(got.stop_tokens, stop_tokens, sizeof(stop_tokens));
    ck_assert_uint_eq(got.n_guess, 5);
    ck_assert_mem_eq(got.guess, guess, sizeof(guess));
    ck_assert_uint_eq(got.n_marks, 3);
    ck_assert_mem_eq(got.marks, marks, sizeof(marks));
    ck_assert_uint_eq(got.n_closing, 2);
    ck_assert_mem_eq(got.closing, closing, sizeof(closing));
    ck_assert_uint_eq(got.n_stop_texts, 2);
    ck_assert_mem_eq(got.stop_text_lengths, text_lengths, sizeof(text_lengths));
    ck_assert_uint_eq(got.stop_text_bytes, 7);
    ck_assert_mem_eq(got.stop_texts, texts, 7);
    ck_assert_uint_eq(got.grammar_bytes, 10);
    ck_assert_mem_eq(got.grammar, grammar, 10);
}
END_TEST

START_TEST(decoded_encodes_to_the_same_bytes)
{
    static _Alignas(8) uint8_t again[sizeof(block)];
    uint32_t n;

    full();
    n = encode();
    ck_assert_int_eq(params_decode(block, n, N_VOCAB, &got, err, sizeof(err)), 0);
    ck_assert_int_eq(params_encode(&got, again, sizeof(again), err, sizeof(err)), (int)n);
    ck_assert_mem_eq(again, block, n);
}
END_TEST

START_TEST(parameters_that_do_not_fit_are_refused)
{
    uint32_t n;

    full();
    n = encode();
    ck_assert_int_eq(params_encode(&p, block, n, err, sizeof(err)), (int)n);
    ck_assert_int_eq(params_encode(&p, block, n - 1, err, sizeof(err)), -E2BIG);
    ck_assert_int_eq(params_encode(&p, block, 0, err, sizeof(err)), -E2BIG);
}
END_TEST

/* ---- ranges: refused on both sides ----------------------------------------------------------- */

/* Encodes sane parameters, puts `bytes` at `offset` of the block, and expects a refusal that says
 * `word`. */
static void poked(size_t offset, const void *bytes, size_t size, const char *word)
{
    uint32_t n;

    full();
    n = encode();
    memcpy(block + offset, bytes, size);
    err[0] = 0;
    ck_assert_int_eq(params_decode(block, n, N_VOCAB, &got, err, sizeof(err)), -EINVAL);
    ck_assert_msg(strstr(err, word) != NULL, "\"%s\" does not say \"%s\"", err, word);
    ck_assert_ptr_null(strchr(err, '\n'));
}

START_TEST(floats_out_of_range_are_refused)
{
    static const struct {
        size_t offset;
        const char *name;
        float least, most;
    } fields[] = {
        {offsetof(struct params_head, temperature), "temperature", 0, 100},
        {offsetof(struct params_head, top_p), "top_p", 0, 1},
        {offsetof(struct params_head, min_p), "min_p", 0, 1},
        {offsetof(struct params_head, typical_p), "typical_p", 0, 1},
        {offsetof(struct params_head, repeat_penalty), "repeat_penalty", 0.01f, 100},
        {offsetof(struct params_head, frequency_penalty), "frequency_penalty", -100, 100},
        {offsetof(struct params_head, presence_penalty), "presence_penalty", -100, 100},
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        float bad[] = {NAN,
                       -NAN,
                       INFINITY,
                       -INFINITY,
                       nextafterf(fields[i].least, -INFINITY),
                       nextafterf(fields[i].most, INFINITY),
                       -1e30f,
                       1e30f};

        for (size_t b = 0; b < sizeof(bad) / sizeof(bad[0]); b++)
            poked(fields[i].offset, &bad[b], sizeof(float), fields[i].name);
        full();
        encode();
        memcpy(block + fields[i].offset, &fields[i].least, sizeof(float));
        ck_assert_int_eq(
            params_decode(block, (uint32_t)params_bytes(&p), N_VOCAB, &got, err, sizeof(err)), 0);
        memcpy(block + fields[i].offset, &fields[i].most, sizeof(float));
        ck_assert_int_eq(
            params_decode(block, (uint32_t)params_bytes(&p), N_VOCAB, &got, err, sizeof(err)), 0);
    }
}
END_TEST

START_TEST(floats_out_of_range_are_refused_by_the_client_too)
{
    p.temperature = -1;
    ck_assert_int_eq(params_encode(&p, block, sizeof(block), err, sizeof(err)), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err, "temperature -1"));
    params_default(&p);
    p.logprobs = 21;
    ck_assert_int_eq(params_encode(&p, block, sizeof(block), err, sizeof(err)), -EINVAL);
    params_default(&p);
    p.n_stop_texts = 1;
    p.stop_text_lengths = text_lengths;
    p.stop_text_bytes = 3;
    ck_assert_int_eq(params_encode(&p, block, sizeof(block), err, sizeof(err)), -EINVAL);
}
END_TEST

START_TEST(counts_out_of_range_are_refused)
{
    static const uint32_t huge[] = {UINT32_MAX, 0x80000000u, 0x40000000u, 100000};
    static const size_t offsets[] = {
        offsetof(struct params_head, bytes),         offsetof(struct params_head, n_bias),
        offsetof(struct params_head, n_stop_tokens), offsetof(struct params_head, n_guess),
        offsetof(struct params_head, n_stop_texts),  offsetof(struct params_head, stop_text_bytes),
        offsetof(struct params_head, grammar_bytes), offsetof(struct params_head, n_marks),
        offsetof(struct params_head, n_closing),     offsetof(struct params_head, magic),
    };
    uint16_t n = 21;

    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
        for (size_t b = 0; b < sizeof(huge) / sizeof(huge[0]); b++)
            poked(offsets[i], &huge[b], 4, "");
    poked(offsetof(struct params_head, logprobs), &n, sizeof(n), "21");
    n = 2;
    poked(offsetof(struct params_head, logprobs_on), &n, sizeof(n), "2");
}
END_TEST

START_TEST(counts_that_keep_the_total_size_are_still_checked)
{
    uint32_t one_less = 4, one_more = 4; /* guess 5 -> 4, stop tokens 3 -> 4: the same size */

    full();
    uint32_t n = encode();
    memcpy(block + offsetof(struct params_head, n_guess), &one_less, 4);
    memcpy(block + offsetof(struct params_head, n_stop_tokens), &one_more, 4);
    ck_assert_int_eq(params_decode(block, n, N_VOCAB, &got, err, sizeof(err)), 0);
    ck_assert_uint_eq(got.stop_tokens[3], 1); /* read as something else, but inside the block */
    one_more = 8; /* stop text bytes: no longer the sum of the lengths */
    poked(offsetof(struct params_head, stop_text_bytes), &one_more, 4, "add up");
}
END_TEST

START_TEST(orders_with_unknown_or_repeated_stages_are_refused)
{
    static const uint8_t bad[][PARAMS_ORDER_BYTES] = {
        {7}, {255}, {1, 2, 1}, {1, 0, 2}, {1, 2, 3, 4, 5, 6, 0, 1}, {1, 2, 3, 4, 5, 6, 6},
    };
    static const uint8_t none[PARAMS_ORDER_BYTES] = {0};
    uint32_t n;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        poked(offsetof(struct params_head, order), bad[i], PARAMS_ORDER_BYTES, "stage");
    full();
    n = encode();
    memcpy(block + offsetof(struct params_head, order), none, sizeof(none));
    ck_assert_int_eq(params_decode(block, n, N_VOCAB, &got, err, sizeof(err)), 0);
}
END_TEST

START_TEST(token_ids_outside_the_vocabulary_are_refused)
{
    uint32_t n, wrong = N_VOCAB;
    size_t at = sizeof(struct params_head);

    poked(at, &wrong, 4, "bias");
    poked(at + 16, &wrong, 4, "stop");
    poked(at + 16 + 12, &wrong, 4, "guess");
    full();
    n = encode();
    ck_assert_int_eq(params_decode(block, n, 511, &got, err, sizeof(err)), -EINVAL);
    ck_assert_int_eq(params_decode(block, n, 0, &got, err, sizeof(err)), 0);
}
END_TEST

START_TEST(bias_values_out_of_range_are_refused)
{
    float bad[] = {NAN, INFINITY, -INFINITY, 10001.0f, -10001.0f};

    for (size_t i = 0; i < 5; i++)
        poked(sizeof(struct params_head) + 4, &bad[i], 4, "bias");
}
END_TEST

START_TEST(stop_texts_of_bad_lengths_are_refused)
{
    uint32_t zero = 0, longer = PARAMS_STOP_TEXT_BYTES_MAX + 1, wild = UINT32_MAX;
    size_t at = sizeof(struct params_head) + 16 + 12 + 20 + sizeof(marks) + sizeof(closing);

    poked(at, &zero, 4, "stop text");
    poked(at, &longer, 4, "stop text");
    poked(at, &wild, 4, "stop text");
}
END_TEST

START_TEST(marks_that_make_no_sense_are_refused)
{
    const size_t thought = sizeof(struct params_head) + 16 + 12 + 20,
                 end = thought + sizeof(marks[0]), call = end + sizeof(marks[0]);
    const uint16_t none = 0, unknown = 4, long_text = PARAMS_MARK_BYTES + 1,
                   is_call = PARAMS_MARK_CALL, is_thought = PARAMS_MARK_THOUGHT;
    const uint32_t no_limit = PARAMS_NO_LIMIT, two = 2, one = 1, zero = 0;
    const uint32_t wrong = N_VOCAB;

    poked(thought + offsetof(struct params_mark, kind), &none, 2, "unknown kind of mark 0");
    poked(thought + offsetof(struct params_mark, kind), &unknown, 2, "unknown kind of mark 4");
    poked(call + offsetof(struct params_mark, bytes), &none, 2, "a mark of 0 bytes");
    poked(call + offsetof(struct params_mark, bytes), &long_text, 2, "a mark of 53 bytes");
    poked(call + offsetof(struct params_mark, text) + 11, "x", 1, "zero bytes");
    poked(thought + offsetof(struct params_mark, open), &two, 4, "a flag or a number");
    poked(end + offsetof(struct params_mark, open), &one, 4, "a flag or a number");
    poked(call + offsetof(struct params_mark, tokens), &one, 4, "a flag or a number");
    poked(end + offsetof(struct params_mark, kind), &is_call, 2, "marks of thoughts");
    poked(end + offsetof(struct params_mark, kind), &is_thought, 2, "marks of thoughts");
    poked(thought + offsetof(struct params_mark, tokens), &no_limit, 4, "go together");
    poked(thought + 3 * sizeof(marks[0]), &wrong, 4, "closing token 512");

    full();
    p.n_closing = 0;
    ck_assert_int_eq(params_encode(&p, block, sizeof(block), err, sizeof(err)), -EINVAL);
    full();
    p.grammar_bytes = 0;
    ck_assert_int_eq(params_encode(&p, block, sizeof(block), err, sizeof(err)), -EINVAL);
    p.n_marks = 2; /* without the call */
    ck_assert_int_gt(params_encode(&p, block, sizeof(block), err, sizeof(err)), 0);
    memcpy(block + thought + offsetof(struct params_mark, tokens), &zero, 4); /* closed at once */
    ck_assert_int_eq(
        params_decode(block, (uint32_t)params_bytes(&p), N_VOCAB, &got, err, sizeof(err)), 0);
}
END_TEST

START_TEST(bytes_after_the_end_must_be_zero)
{
    uint32_t n;

    full(); /* 7 bytes of stop texts and 10 of grammar: 3 bytes to fill */
    n = encode();
    for (uint32_t i = 1; i <= 3; i++) {
        block[n - i] = 1;
        ck_assert_int_eq(params_decode(block, n, N_VOCAB, &got, err, sizeof(err)), -EINVAL);
        block[n - i] = 0;
        ck_assert_int_eq(params_decode(block, n, N_VOCAB, &got, err, sizeof(err)), 0);
    }
}
END_TEST

START_TEST(every_truncation_is_refused)
{
    uint32_t n;

    full();
    n = encode();
    for (uint32_t i = 0; i < n; i++)
        ck_assert_int_eq(params_decode(block, i, N_VOCAB, &got, err, sizeof(err)), -EINVAL);
    ck_assert_int_eq(params_decode(block, n + 4, N_VOCAB, &got, err, sizeof(err)), -EINVAL);
}
END_TEST

START_TEST(flipped_bytes_never_cause_a_read_outside)
{
    uint8_t *tight;
    uint32_t n;

    full();
    n = encode();
    tight = aligned_alloc(8, (n + 7) / 8 * 8); /* ASan sees a read past the end */
    for (uint32_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(tight, block, n);
            tight[i] ^= (uint8_t)(1 << bit);
            if (params_decode(tight, n, N_VOCAB, &got, err, sizeof(err)) == 0) {
                ck_assert(got.grammar + got.grammar_bytes <= tight + n);
                ck_assert_uint_eq(params_bytes(&got), n);
            }
        }
    free(tight);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("params");
    TCase *t = tcase_create("params");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, defaults_are_in_range_and_greedy);
    tcase_add_test(t, every_field_round_trips);
    tcase_add_test(t, decoded_encodes_to_the_same_bytes);
    tcase_add_test(t, parameters_that_do_not_fit_are_refused);
    tcase_add_test(t, floats_out_of_range_are_refused);
    tcase_add_test(t, floats_out_of_range_are_refused_by_the_client_too);
    tcase_add_test(t, counts_out_of_range_are_refused);
    tcase_add_test(t, counts_that_keep_the_total_size_are_still_checked);
    tcase_add_test(t, orders_with_unknown_or_repeated_stages_are_refused);
    tcase_add_test(t, token_ids_outside_the_vocabulary_are_refused);
    tcase_add_test(t, bias_values_out_of_range_are_refused);
    tcase_add_test(t, stop_texts_of_bad_lengths_are_refused);
    tcase_add_test(t, marks_that_make_no_sense_are_refused);
    tcase_add_test(t, bytes_after_the_end_must_be_zero);
    tcase_add_test(t, every_truncation_is_refused);
    tcase_add_test(t, flipped_bytes_never_cause_a_read_outside);
    suite_add_tcase(s, t);
    return run_suite(s);
}
