/* kernels/sample/sample.h: greedy, bias, penalties, edges, refusals, the draw, and that a sample is
 * a pure function. The stages' sets are in test_sample_stages.c, vectors of another engine in
 * test_sample_vectors.c, log-probabilities in test_sample_logprob.c. */
#include <check.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sample/philox.h"
#include "tests/run_suite.h"
#include "tests/rig/sample_fixture.h"

static uint32_t largest(void)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < N; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static uint32_t token_at(const struct sampler_params *p, uint32_t position)
{
    struct sample sample;
    ck_assert_int_eq(sample_at(p, position, &sample), 0);
    return sample.token;
}

/* ---- philox ----------------------------------------------------------------------------- */

START_TEST(philox_gives_its_published_values)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint32_t out[4];
        philox4x32_10(known[i].counter, known[i].key, out);
        for (int j = 0; j < 4; j++) {
            ck_assert_uint_eq(out[j], known[i].out[j]);
        }
    }
    ck_assert(philox_sample(0, 0) == 0xe169c58d6627e8d5u); /* low word first */
    const uint32_t counter[4] = {5, 0, 0, 0}, key[2] = {0x89abcdefu, 0x01234567u};
    uint32_t out[4];
    philox4x32_10(counter, key, out);
    ck_assert(philox_sample(0x0123456789abcdefu, 5) == ((uint64_t)out[1] << 32 | out[0]));
}
END_TEST

/* ---- greedy ----------------------------------------------------------------------------- */

START_TEST(greedy_takes_the_largest_at_any_index)
{
    struct sampler_params p = sampling(0.0f);
    ck_assert_uint_eq(token_at(&p, 0), largest());
    for (uint32_t i = 0; i < N; i++) {
        const float old = logits[i];
        logits[i] = 50.0f;
        const uint32_t token = token_at(&p, i);
        logits[i] = old;
        if (token != i) {
            ck_abort_msg("token %u instead of %u", token, i);
        }
    }
    p.temperature = -1.0f;
    p.seed = 99;
    p.top_k = 5;
    p.typical_p = 0.01f; /* would drop the most likely one; greedy ignores it */
    ck_assert_uint_eq(token_at(&p, 3), largest());
}
END_TEST

START_TEST(greedy_ties_go_to_the_lower_id)
{
    const struct sampler_params p = sampling(0.0f);
    static const uint32_t places[][2] = {{0, 999}, {7, 8},     {511, 512}, {512, 513},
                                         {3, 998}, {992, 999}, {998, 999}};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        fill();
        logits[places[i][0]] = logits[places[i][1]] = 50.0f;
        ck_assert_uint_eq(token_at(&p, 0), places[i][0]);
    }
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = i % 2 == 0 ? -0.0f : 0.0f;
    }
    ck_assert_uint_eq(token_at(&p, 0), 0); /* -0 and +0 are equal */
    logits[0] = -1.0f;
    ck_assert_uint_eq(token_at(&p, 0), 1);
    logits[1] = -1.0f;
    ck_assert_uint_eq(token_at(&p, 0), 2);
}
END_TEST

/* ---- bias and penalties ----------------------------------------------------------------- */

START_TEST(bias_moves_and_forbids_tokens)
{
    struct sampler_params p = sampling(0.0f);
    const uint32_t best = largest();
    const struct sample_bias force[] = {
        {17, 60.0f}, {17, 40.0f}, {18, 90.0f}}; /* two entries add up */
    p.bias = force;
    p.n_bias = 3;
    ck_assert_uint_eq(token_at(&p, 0), 17);
    const struct sample_bias forbid[] = {{best, -INFINITY}};
    p.bias = forbid;
    p.n_bias = 1;
    ck_assert_uint_ne(token_at(&p, 0), best);
    p.temperature = 5.0f;
    for (uint32_t position = 0; position < 200; position++) {
        ck_assert_uint_ne(token_at(&p, position), best);
    }
    p.n_bias = 0;
    p.temperature = 0.0f;
    ck_assert_uint_eq(token_at(&p, 0), best);
}
END_TEST

/* Probability of a token after the penalties, of the model's odds 1 : rest. */
static double kept_share(const struct sampler_params *p, uint32_t position, uint32_t prompt_length,
                         uint32_t id)
{
    struct sample_kept kept;
    ck_assert_int_eq(
        sample_distribution(p, logits, N, history, position, prompt_length, scratch, &kept), 0);
    for (uint32_t i = 0; i < kept.n; i++) {
        if (kept.ids[i] == id) {
            return (double)kept.weights[i] / (double)kept.weights[N - 1];
        }
    }
    return -1.0;
}

START_TEST(penalties_follow_their_formula)
{
    struct sampler_params p = sampling(1.0f);
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = 0.5f;
    } /* token 999 is never seen: odds against it */
    logits[1] = -0.5f;
    p.penalty_last_n = -1;
    p.repeat_penalty = 2.0f;
    /* Token 0 is positive, so divided; 1 is negative, so multiplied; 8 has not occurred. */
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 0), exp(0.25 - 0.5), 1e-6);
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 1), exp(-1.0 - 0.5), 1e-6);
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 8), 1.0, 1e-6);
    p.repeat_penalty = 1.0f;
    p.frequency_penalty = 0.25f;
    p.presence_penalty = 0.125f;
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 0), exp(-2 * 0.25 - 0.125), 1e-6);
    ck_assert_double_eq_tol(kept_share(&p, 15, 0, 0), exp(-3 * 0.25 - 0.125), 1e-6);
    p.frequency_penalty = -0.25f; /* rewards repetition */
    ck_assert_double_eq_tol(kept_share(&p, 15, 0, 0), exp(3 * 0.25 - 0.125), 1e-6);
}
END_TEST

START_TEST(penalties_use_the_last_n_tokens)
{
    struct sampler_params p = sampling(1.0f);
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = 0.5f;
    }
    p.presence_penalty = 1.0f;
    p.penalty_last_n = 3; /* before position 14: tokens 4, 5, 6 */
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 3), 1.0, 1e-6);
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 4), exp(-1.0), 1e-6);
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 6), exp(-1.0), 1e-6);
    p.penalty_last_n = 14; /* all that there are, and one more */
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 0), exp(-1.0), 1e-6);
    p.penalty_last_n = 15;
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 0), exp(-1.0), 1e-6);
    p.penalty_last_n = INT32_MAX;
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 0), exp(-1.0), 1e-6);
    p.penalty_last_n = 0;
    ck_assert_double_eq_tol(kept_share(&p, 14, 0, 4), 1.0, 1e-6);
    p.penalty_last_n = -1;
    p.penalty_answer_only = true; /* answer before 14, prompt of 12: tokens 5, 6 */
    ck_assert_double_eq_tol(kept_share(&p, 14, 12, 4), 1.0, 1e-6);
    ck_assert_double_eq_tol(kept_share(&p, 14, 12, 5), exp(-1.0), 1e-6);
    ck_assert_double_eq_tol(kept_share(&p, 14, 14, 5), 1.0, 1e-6);
    ck_assert_double_eq_tol(kept_share(&p, 14, 20, 5), 1.0, 1e-6); /* a row inside the prompt */
    p.order[0] = SAMPLE_TEMPERATURE;                               /* the stage is not asked for */
    p.n_order = 1;
    ck_assert_double_eq_tol(kept_share(&p, 14, 12, 5), 1.0, 1e-6);
    ck_assert_double_eq_tol(kept_share(&p, 0, 0, 5), 1.0, 1e-6);
}
END_TEST

START_TEST(penalties_can_follow_a_cut)
{
    struct sampler_params p = sampling(1.0f);
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = i < 10 ? 2.0f : 0.0f;
    }
    p.order[0] = SAMPLE_TOP_K;
    p.order[1] = SAMPLE_PENALTIES;
    p.n_order = 2;
    p.top_k = 10;
    p.presence_penalty = 5.0f; /* tokens 0-6, below all others if it came first */
    struct sample_kept kept;
    ck_assert_int_eq(sample_distribution(&p, logits, N, history, 7, 0, scratch, &kept), 0);
    ck_assert_uint_eq(kept.n, 10);
    ck_assert_uint_eq(kept.ids[0], 0);
    ck_assert(kept.weights[7] == (uint64_t)1 << 40 && kept.weights[9] == kept.weights[7]);
    ck_assert_double_eq_tol((double)kept.weights[0] / (double)kept.weights[7], exp(-5.0), 1e-6);
    p.order[0] = SAMPLE_PENALTIES;
    p.order[1] = SAMPLE_TOP_K;
    ck_assert_int_eq(sample_distribution(&p, logits, N, history, 7, 0, scratch, &kept), 0);
    ck_assert(kept.n == 10 && kept.ids[0] == 7);
}
END_TEST

/* ---- edges ------------------------------------------------------------------------------ */

START_TEST(every_edge_of_a_parameter_is_defined)
{
    struct sample_kept kept;
    struct sampler_params p = sampling(1.0f);
    p.top_k = N + 1;
    ck_assert_int_eq(sample_distribution(&p, logits, N, history, 0, 0, scratch, &kept), 0);
    ck_assert_uint_eq(kept.n, N);
    p = sampling(1.0f);
    p.top_p = 0.0f;
    ck_assert_int_eq(sample_distribution(&p, logits, N, history, 0, 0, scratch, &kept), 0);
    ck_assert(kept.n == 1 && kept.ids[0] == largest());
    p = sampling(1.0f);
    p.min_p = 1.0f;
    ck_assert_int_eq(sample_distribution(&p, logits, N, history, 0, 0, scratch, &kept), 0);
    ck_assert(kept.n == 1 && kept.ids[0] == largest());
    logits[3] = logits[largest()];
    ck_assert_int_eq(sample_distribution(&p, logits, N, history, 0, 0, scratch, &kept), 0);
    ck_assert_uint_eq(kept.n, 2); /* ties with the largest stay */
    p = sampling(FLT_MAX);
    ck_assert_int_eq(sample_distribution(&p, logits, N, history, 0, 0, scratch, &kept), 0);
    ck_assert(kept.n == N && kept.total == (uint64_t)N << 40); /* all equal */
    p = sampling(0x1p-149f);                                   /* nearly greedy; ties share */
    ck_assert_int_eq(sample_distribution(&p, logits, N, history, 0, 0, scratch, &kept), 0);
    ck_assert(kept.n == N && kept.total == (uint64_t)2 << 40);
}
END_TEST

START_TEST(extreme_logits_are_defined)
{
    struct sampler_params p = sampling(1.0f);
    struct sample sample;
    p.top_p = 0.9f;
    p.typical_p = 0.9f;
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = -FLT_MAX;
    }
    ck_assert_uint_lt(token_at(&p, 0), N);
    logits[500] = FLT_MAX;
    ck_assert_uint_eq(token_at(&p, 0), 500);
    p.temperature = 0.0f;
    ck_assert_uint_eq(token_at(&p, 0), 500);
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = -INFINITY;
    }
    logits[999] = -FLT_MAX; /* all others impossible */
    p.temperature = 100.0f;
    for (uint32_t position = 0; position < 50; position++) {
        ck_assert_uint_eq(token_at(&p, position), 999);
    }
    p.logprobs = true;
    p.n_top = 5;
    ck_assert_int_eq(sample_at(&p, 0, &sample), 0);
    ck_assert(sample.logprob == 0.0f && sample.n_top == 1 && sample.top[0].id == 999);
}
END_TEST

START_TEST(a_vocabulary_of_one_token_samples_it)
{
    struct sampler_scratch *one;
    ck_assert_int_eq(sampler_scratch_open(1, &one), 0);
    float l = -3.0f;
    struct sampler_params p = sampling(0.9f);
    struct sample sample;
    p.top_k = 1;
    p.top_p = 0.5f;
    p.typical_p = 0.5f;
    p.min_p = 0.5f;
    p.logprobs = true;
    p.n_top = SAMPLE_TOP_MAX;
    ck_assert_int_eq(sample_token(&p, &l, 1, NULL, 0, 0, one, &sample), 0);
    ck_assert(sample.token == 0 && sample.n_top == 1 && sample.logprob == 0.0f);
    p.temperature = 0.0f;
    ck_assert_int_eq(sample_token(&p, &l, 1, NULL, 0, 0, one, &sample), 0);
    sampler_scratch_close(one);
    ck_assert_int_eq(sampler_scratch_open(0, &one), -EINVAL);
    ck_assert_int_eq(sampler_scratch_open(SAMPLE_VOCAB_MAX + 1, &one), -EINVAL);
    sampler_scratch_close(NULL);
}
END_TEST

START_TEST(logits_without_a_distribution_are_refused_and_restored)
{
    static const float bad[] = {NAN, -NAN, INFINITY};
    struct sample sample;
    struct sampler_params p = sampling(0.0f);
    p.presence_penalty = 1.0f;
    const struct sample_bias bias[] = {{5, 1.0f}, {11, -2.0f}};
    p.bias = bias;
    p.n_bias = 2;
    float before[N];
    for (int i = 0; i < 6; i++) {
        fill();
        p.temperature = i % 2 == 0 ? 0.0f : 1.0f;
        p.logprobs = i > 2;
        logits[i * 199] = bad[i % 3];
        memcpy(before, logits, sizeof(before));
        ck_assert_int_eq(sample_at(&p, 20, &sample), -EDOM);
        ck_assert(memcmp(before, logits, sizeof(before)) == 0);
    }
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = -INFINITY;
    }
    ck_assert_int_eq(sample_at(&p, 20, &sample), -EDOM);
    fill();
    memcpy(before, logits, sizeof(before));
    ck_assert_int_eq(sample_at(&p, 20, &sample), 0); /* and the same scratch still works */
    ck_assert(memcmp(before, logits, sizeof(before)) == 0);
    p.repeat_penalty =
        0x1p-149f; /* a positive logit overflows: a parameter's fault, refused like a NaN */
    ck_assert_int_eq(sample_at(&p, 20, &sample), -EDOM);
    p.order[0] = SAMPLE_TOP_P; /* the same, after a stage */
    p.order[1] = SAMPLE_PENALTIES;
    p.n_order = 2;
    p.top_p = 0.9999f;
    p.temperature = 1.0f;
    ck_assert_int_eq(sample_at(&p, N, &sample), -EDOM);
    ck_assert(memcmp(before, logits, sizeof(before)) == 0);
}
END_TEST

START_TEST(invalid_parameters_and_tokens_are_refused)
{
    struct sample sample;
    struct sampler_params p = sampling(1.0f);
    const struct sample_bias bias[] = {{1, 5.0f}, {N, 1.0f}};
    float before[N];
    memcpy(before, logits, sizeof(before));
    p.bias = bias;
    p.n_bias = 2;
    ck_assert_int_eq(sample_at(&p, 0, &sample), -EINVAL);
    ck_assert(memcmp(before, logits, sizeof(before)) == 0);
    p.n_bias = 0;
    p.presence_penalty = 1.0f;
    history[3] = N;
    ck_assert_int_eq(sample_at(&p, 9, &sample), -EINVAL);
    ck_assert(memcmp(before, logits, sizeof(before)) == 0);
    history[3] = 3;
    p.order[1] = SAMPLE_PENALTIES;
    ck_assert_int_eq(sample_at(&p, 9, &sample), -EINVAL);
    p.order[1] = 7;
    ck_assert_int_eq(sample_at(&p, 9, &sample), -EINVAL);
    p.order[1] = 0;
    ck_assert_int_eq(sample_at(&p, 9, &sample), -EINVAL);
    p.n_order = SAMPLE_STAGES + 1;
    ck_assert_int_eq(sample_at(&p, 9, &sample), -EINVAL);
    p.n_order = 0; /* no stage at all: the model's own distribution */
    ck_assert_int_eq(sample_at(&p, 9, &sample), 0);
}
END_TEST

/* ---- the draw --------------------------------------------------------------------------- */

START_TEST(the_draw_walks_the_weights_in_id_order)
{
    struct sampler_params p = sampling(1.3f);
    p.top_k = 60;
    p.seed = 0xfeedfacecafebeefu;
    for (uint32_t position = 0; position < 300; position++) {
        struct sample_kept kept;
        ck_assert_int_eq(sample_distribution(&p, logits, N, history, position, 0, scratch, &kept),
                         0);
        const uint64_t at =
            (uint64_t)((unsigned __int128)philox_sample(p.seed, position) * kept.total >> 64);
        uint64_t sum = 0;
        uint32_t i = 0;
        while (sum + kept.weights[i] <= at) {
            sum += kept.weights[i++];
        }
        const uint32_t want = kept.ids[i];
        ck_assert_uint_eq(token_at(&p, position), want);
    }
}
END_TEST

/* Pearson's statistic of 40,000 draws over ten tokens: 9 degrees of freedom, 27.9 at 1 in 1,000. */
START_TEST(draws_have_the_frequencies_of_the_weights)
{
    enum { DRAWS = 40000, KEPT = 10 };
    struct sampler_params p = sampling(0.5f);
    p.top_k = KEPT;
    p.seed = 12345;
    struct sample_kept kept;
    uint32_t ids[KEPT], count[KEPT] = {0};
    double share[KEPT], statistic = 0.0;
    ck_assert_int_eq(sample_distribution(&p, logits, N, history, 0, 0, scratch, &kept), 0);
    ck_assert_uint_eq(kept.n, KEPT);
    for (uint32_t i = 0; i < KEPT; i++) {
        ids[i] = kept.ids[i];
        share[i] = (double)kept.weights[i] / (double)kept.total;
    }
    struct sample sample;
    p.n_order = 6;
    p.penalty_last_n = 0;
    for (uint32_t position = 0; position < DRAWS; position++) {
        ck_assert(sample_token(&p, logits, N, history, position, 0, scratch, &sample) == 0);
        for (uint32_t i = 0; i < KEPT; i++) {
            count[i] += sample.token == ids[i];
        }
    }
    uint32_t drawn = 0;
    for (uint32_t i = 0; i < KEPT; i++) {
        const double want = share[i] * DRAWS;
        statistic += (count[i] - want) * (count[i] - want) / want;
        drawn += count[i];
    }
    ck_assert_uint_eq(drawn, DRAWS);
    ck_assert_msg(statistic < 27.9, "seed 12345: %g", statistic);
}
END_TEST

START_TEST(position_and_both_halves_of_the_seed_matter)
{
    struct sampler_params p = sampling(3.0f);
    uint32_t other_position = 0, other_low = 0, other_high = 0;
    for (uint32_t position = 0; position < 200; position++) {
        p.seed = 1;
        const uint32_t token = token_at(&p, position);
        ck_assert_uint_eq(token_at(&p, position), token);
        other_position += token_at(&p, position + 1) != token;
        p.seed = 2;
        other_low += token_at(&p, position) != token;
        p.seed = 1 + ((uint64_t)1 << 32);
        other_high += token_at(&p, position) != token;
    }
    ck_assert(other_position > 180 && other_low > 180 && other_high > 180);
}
END_TEST

/* ---- purity ----------------------------------------------------------------------------- */

static struct sampler_params varied(uint32_t i, const struct sample_bias *bias)
{
    struct sampler_params p = sampling((float)(i % 5) * 0.4f);
    p.seed = i;
    p.top_k = i % 3 == 0 ? 0 : i % 97;
    p.top_p = i % 4 == 0 ? 1.0f : 0.9f;
    p.typical_p = i % 7 == 0 ? 0.6f : 1.0f;
    p.min_p = i % 6 == 0 ? 0.02f : 0.0f;
    p.repeat_penalty = i % 2 == 0 ? 1.2f : 1.0f;
    p.frequency_penalty = 0.1f;
    p.penalty_last_n = (int32_t)(i % 50) - 1;
    p.logprobs = i % 2 == 1;
    p.n_top = (uint8_t)(i % 21);
    p.bias = bias;
    p.n_bias = i % 2;
    return p;
}

START_TEST(a_sample_does_not_depend_on_earlier_samples)
{
    static struct sample first[200];
    const struct sample_bias bias[] = {{77, 3.0f}};
    for (uint32_t i = 0; i < 200; i++) {
        const struct sampler_params p = varied(i, bias);
        ck_assert_int_eq(sample_at(&p, i, &first[i]), 0);
    }
    /* Backwards, each in a fresh scratch, then in the used one. */
    for (uint32_t i = 200; i-- > 0;) {
        const struct sampler_params p = varied(i, bias);
        struct sampler_scratch *fresh;
        struct sample again;
        ck_assert_int_eq(sampler_scratch_open(N, &fresh), 0);
        ck_assert_int_eq(sample_token(&p, logits, N, history, i, 0, fresh, &again), 0);
        ck_assert(memcmp(&again, &first[i], sizeof(again)) == 0);
        ck_assert_int_eq(sample_at(&p, i, &again), 0);
        ck_assert(memcmp(&again, &first[i], sizeof(again)) == 0);
        sampler_scratch_close(fresh);
    }
}
END_TEST

START_TEST(tokens_from_the_position_on_are_not_read)
{
    struct sampler_params p = varied(2, NULL);
    p.n_bias = 0;
    p.penalty_last_n = -1;
    struct sample a, b;
    uint32_t *exact = malloc(20 * sizeof(*exact)); /* a sanitizer sees a read past it */
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, history, 20 * sizeof(*exact));
    ck_assert_int_eq(sample_at(&p, 20, &a), 0);
    ck_assert_int_eq(sample_token(&p, logits, N, exact, 20, 3, scratch, &b), 0);
    ck_assert(memcmp(&a, &b, sizeof(a)) == 0);
    free(exact);
}
END_TEST

/* A mask sets logits to -inf for any other parameters, but log-probabilities ignore it. */
START_TEST(a_masked_token_is_never_sampled)
{
    const struct sample_bias bias[] = {{77, 3.0f}};
    static uint64_t allowed[(N + 63) / 64];
    static float saved[N];
    memcpy(saved, logits, sizeof(saved));
    for (uint32_t i = 0; i < 200; i++) {
        struct sampler_params p = varied(i, bias);
        struct sample masked, changed, plain;
        for (uint32_t id = 0; id < N; id++) {
            const uint64_t bit = (uint64_t)1 << (id & 63);
            const bool keep = (id * 2654435761u + i * 40503u) >> 16 & 1 || id == i % N;
            allowed[id >> 6] = keep ? allowed[id >> 6] | bit : allowed[id >> 6] & ~bit;
        }
        ck_assert_int_eq(sample_at(&p, i, &plain), 0);
        p.allowed = allowed;
        ck_assert_int_eq(sample_at(&p, i, &masked), 0);
        ck_assert((allowed[masked.token >> 6] >> (masked.token & 63) & 1) != 0);
        ck_assert(memcmp(saved, logits, sizeof(saved)) == 0);
        ck_assert(masked.n_top == plain.n_top &&
                  memcmp(masked.top, plain.top, plain.n_top * sizeof(plain.top[0])) == 0);
        p.allowed = NULL;
        for (uint32_t id = 0; id < N; id++) {
            if ((allowed[id >> 6] >> (id & 63) & 1) == 0) {
                logits[id] = -INFINITY;
            }
        }
        ck_assert_int_eq(sample_at(&p, i, &changed), 0);
        ck_assert_uint_eq(changed.token, masked.token);
        memcpy(logits, saved, sizeof(saved));
    }
}
END_TEST

START_TEST(an_empty_mask_samples_nothing)
{
    static const uint64_t none[(N + 63) / 64];
    struct sampler_params p = sampling(0.8f);
    struct sample sample;
    p.allowed = none;
    ck_assert_int_eq(sample_at(&p, 3, &sample), -EDOM);
    p.temperature = 0;
    ck_assert_int_eq(sample_at(&p, 3, &sample), -EDOM);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        philox_gives_its_published_values,
        a_masked_token_is_never_sampled,
        an_empty_mask_samples_nothing,
        greedy_takes_the_largest_at_any_index,
        greedy_ties_go_to_the_lower_id,
        bias_moves_and_forbids_tokens,
        penalties_follow_their_formula,
        penalties_use_the_last_n_tokens,
        penalties_can_follow_a_cut,
        every_edge_of_a_parameter_is_defined,
        extreme_logits_are_defined,
        a_vocabulary_of_one_token_samples_it,
        logits_without_a_distribution_are_refused_and_restored,
        invalid_parameters_and_tokens_are_refused,
        the_draw_walks_the_weights_in_id_order,
        draws_have_the_frequencies_of_the_weights,
        position_and_both_halves_of_the_seed_matter,
        a_sample_does_not_depend_on_earlier_samples,
        tokens_from_the_position_on_are_not_read,
    };
    Suite *suite = suite_create("sample");
    TCase *all = tcase_create("sample");
    tcase_add_checked_fixture(all, setup, teardown);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        tcase_add_test(all, tests[i]);
    }
    tcase_set_timeout(all, 60);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
