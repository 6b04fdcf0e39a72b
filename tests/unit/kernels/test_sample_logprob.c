/* Log-probabilities of kernels/sample/sample.h: the log-softmax of the unmodified logits for any
 * sampler parameters, and the alternatives in order. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/sample_fixture.h"

static double log_softmax(uint32_t id)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < N; i++) {
        sum += exp((double)logits[i]);
    }
    return (double)logits[id] - log(sum);
}

START_TEST(logprobs_come_from_the_unmodified_logits)
{
    struct sampler_params p = sampling(0.0f);
    const struct sample_bias bias[] = {{17, 100.0f}};
    struct sample sample;
    p.logprobs = true;
    p.n_top = 3;
    ck_assert_int_eq(sample_at(&p, 0, &sample), 0);
    ck_assert_float_eq_tol(sample.logprob, (float)log_softmax(sample.token), 2e-6f);
    ck_assert(sample.n_top == 3 && sample.top[0].id == sample.token &&
              sample.top[0].logprob == sample.logprob);
    struct sample other; /* sampler parameters do not change log-probabilities */
    p.bias = bias;
    p.n_bias = 1;
    p.repeat_penalty = 1.5f;
    p.temperature = 0.3f;
    p.seed = 9;
    p.top_k = 1;
    ck_assert_int_eq(sample_at(&p, 40, &other), 0);
    ck_assert_uint_eq(other.token, 17);
    ck_assert_float_eq_tol(other.logprob, (float)log_softmax(17), 2e-6f);
    ck_assert(memcmp(sample.top, other.top, sizeof(sample.top)) == 0);
    p.logprobs = false;
    ck_assert_int_eq(sample_at(&p, 40, &other), 0);
    ck_assert(other.token == 17 && other.logprob == 0.0f && other.n_top == 0);
}
END_TEST

START_TEST(alternatives_are_sorted_with_ties_by_id)
{
    struct sampler_params p = sampling(0.0f);
    struct sample sample;
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = (float)(i % 10);
    } /* 100 tokens of each value */
    p.logprobs = true;
    for (uint8_t n = 0; n <= SAMPLE_TOP_MAX; n++) {
        p.n_top = n;
        ck_assert_int_eq(sample_at(&p, 0, &sample), 0);
        ck_assert_uint_eq(sample.n_top, n);
        for (uint32_t i = 0; i < n; i++) {
            ck_assert_uint_eq(sample.top[i].id, 9 + 10 * i);
        }
    }
    fill();
    ck_assert_int_eq(sample_at(&p, 0, &sample), 0);
    for (uint32_t i = 0; i < sample.n_top; i++) {
        uint32_t better = 0;
        for (uint32_t j = 0; j < N; j++) {
            better += logits[j] > logits[sample.top[i].id];
        }
        ck_assert_uint_eq(better, i);
        ck_assert_float_eq_tol(sample.top[i].logprob, (float)log_softmax(sample.top[i].id), 2e-6f);
    }
}
END_TEST

START_TEST(an_unlikely_token_has_a_logprob_too)
{
    struct sampler_params p = sampling(0.0f);
    const struct sample_bias bias[] = {{1, 200.0f}};
    struct sample sample;
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = i == 0 ? 0.0f : -90.0f;
    } /* weight 0 */
    p.bias = bias;
    p.n_bias = 1;
    p.logprobs = true;
    p.n_top = 2;
    ck_assert_int_eq(sample_at(&p, 0, &sample), 0);
    ck_assert(sample.token == 1 && sample.logprob == -90.0f);
    ck_assert(sample.top[0].id == 0 && sample.top[0].logprob == 0.0f && sample.top[1].id == 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sample_logprob");
    TCase *all = tcase_create("logprob");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, logprobs_come_from_the_unmodified_logits);
    tcase_add_test(all, alternatives_are_sorted_with_ties_by_id);
    tcase_add_test(all, an_unlikely_token_has_a_logprob_too);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
