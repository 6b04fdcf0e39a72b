/* kernels/pick.h, pick_params_init and pick_params_valid: the defaults leave the distribution
 * alone, and whatever is wrong gets one line that names it. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/pick.h"

enum { N = 1000 };

START_TEST(defaults_leave_the_distribution_alone)
{
    struct pick_params p;
    struct pick_scratch *s;
    struct pick_kept kept;
    float logits[N];
    const uint32_t tokens[3] = {0, 1, 2};
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = (float)(i % 100) * 0.05f;
    }
    ck_assert_int_eq(pick_scratch_open(N, &s), 0);
    pick_params_init(&p);
    ck_assert(p.temperature == 0.0f && p.seed == 0 && !p.logprobs && p.n_order == PICK_STAGES);
    p.temperature = 1.0f; /* the only default that does something */
    ck_assert_int_eq(pick_distribution(&p, logits, N, tokens, 3, 3, s, &kept), 0);
    ck_assert_uint_eq(kept.n, N);
    for (uint32_t i = 0; i < N; i++) {
        ck_assert(fabs((double)kept.weights[i] * 0x1p-40 -
                       exp((double)logits[i] - (double)logits[99])) < 1e-6);
    }
    pick_scratch_close(s);
}
END_TEST

/* One parameter wrong at a time; the line must name it. */
START_TEST(parameters_are_judged_with_one_line)
{
    char err[160] = "";
    struct pick_params p;
    const struct pick_bias outside = {N, 0.0f}, not_a_number = {1, NAN}, too_large = {1, INFINITY},
                           forbidden = {1, -INFINITY};
    pick_params_init(&p);
    ck_assert(pick_params_valid(&p, N, err, sizeof err));
    ck_assert_str_eq(err, "");
#define REFUSED(change, name)                                                                      \
    do {                                                                                           \
        pick_params_init(&p);                                                                      \
        change;                                                                                    \
        ck_assert(!pick_params_valid(&p, N, err, sizeof err));                                     \
        ck_assert_msg(strstr(err, name) != NULL, "%s", err);                                       \
        ck_assert_ptr_null(strchr(err, '\n'));                                                     \
    } while (0)
    REFUSED(p.temperature = NAN, "temperature");
    REFUSED(p.temperature = INFINITY, "temperature");
    REFUSED(p.top_p = -0.1f, "top_p");
    REFUSED(p.top_p = 1.5f, "top_p");
    REFUSED(p.min_p = 2.0f, "min_p");
    REFUSED(p.typical_p = NAN, "typical_p");
    REFUSED(p.repeat_penalty = 0.0f, "repeat_penalty");
    REFUSED(p.frequency_penalty = -INFINITY, "frequency_penalty");
    REFUSED(p.presence_penalty = NAN, "presence_penalty");
    REFUSED(p.penalty_last_n = -2, "penalty_last_n");
    REFUSED(p.n_top = PICK_TOP_MAX + 1, "logprobs");
    REFUSED(p.n_order = PICK_STAGES + 1, "order");
    REFUSED(p.order[2] = 9, "order");
    REFUSED(p.order[2] = PICK_TOP_K, "twice");
    REFUSED((p.bias = &outside, p.n_bias = 1), "token 1000");
    REFUSED((p.bias = &not_a_number, p.n_bias = 1), "token 1");
    REFUSED((p.bias = &too_large, p.n_bias = 1), "token 1");
#undef REFUSED
    pick_params_init(&p);
    p.bias = &forbidden;
    p.n_bias = 1;
    ck_assert(pick_params_valid(&p, N, err, sizeof err));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pick_params");
    TCase *all = tcase_create("params");
    tcase_add_test(all, defaults_leave_the_distribution_alone);
    tcase_add_test(all, parameters_are_judged_with_one_line);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
