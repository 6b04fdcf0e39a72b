/* bench_run times passes of a real backend: any number of slots, rows and windows runs, and bytes
 * are counted as in the file. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quant/quant_types.h"
#include "kernels/tools/bench_run.h"
#include "tests/run_suite.h"
#include "tests/rig/cpu_help.h"

static char err[512];

static struct bench_run *open_run(const struct help_model *m, uint32_t slots, uint32_t rows)
{
    struct bench_run *r;
    struct bench_sizes sizes = {20, 5, slots, rows, 2, NULL, &backend_cpu, false, false, false, 0};
    ck_assert_msg(bench_run_open(m->model, &sizes, &r, err, sizeof(err)) == 0, "%s", err);
    return r;
}

static void count(void *context)
{
    ++*(uint32_t *)context;
}

START_TEST(times_are_positive)
{
    uint32_t pauses = 0;
    static const uint32_t slots[] = {1, 3, BENCH_MAX_SLOTS}, rows[] = {512, 7, 1};
    struct help_model m;
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    const uint32_t n_slots = slots[_i % 3];
    shape.arch = _i < 3 ? "llama" : "qwen35"; /* whose states begin again where the prompt ends */
    help_model_tiny(&m, &shape);
    struct bench_run *r = open_run(&m, n_slots, rows[_i % 3]);
    for (uint32_t s = 0; s < n_slots; s++)
        ck_assert(bench_run_prefill(r, s) > 0);
    ck_assert(bench_run_decode(r, n_slots, count, &pauses) > 0);
    ck_assert_uint_eq(pauses, 5); /* a step each */
    for (uint32_t n = 1; n <= BENCH_MAX_WINDOW; n++)
        ck_assert(bench_run_window(r, n) > 0);
    ck_assert(bench_run_decode(r, 1, NULL, NULL) > 0); /* only the first of several slots */
    ck_assert(bench_run_prefill(r, 0) > 0);
    ck_assert_str_eq(bench_run_error(r), "");
    bench_run_close(r);
    help_model_close(&m);
}
END_TEST

START_TEST(byte_counts_equal_the_file)
{
    struct help_model m;
    struct backend_info info;
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.untied = _i;
    help_model_tiny(&m, &shape);
    struct bench_run *r = open_run(&m, 1, 8);
    uint64_t embedding = 320 * (64 / 32 * 34); /* untied: read by the row, so not counted */
    ck_assert_uint_eq(bench_run_weight_bytes(r), m.model->tensor_bytes - (_i ? embedding : 0));
    /* K and V, 2 layers, 2 heads of 16, f16, at the middle of positions 20..25. */
    ck_assert_uint_eq(bench_run_kv_bytes(r), 2 * 2 * 2 * 16 * 2 * 23);
    bench_run_describe(r, &info);
    ck_assert_uint_eq(info.threads, 2);
    bench_run_close(r);
    help_model_close(&m);
}
END_TEST

START_TEST(a_bad_isa_is_an_error)
{
    struct help_model m;
    struct bench_run *r = NULL;
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    help_model_tiny(&m, &shape);
    struct bench_sizes sizes = {4, 4, 1, 4, 1, "mmx", &backend_cpu, false, false, false, 0};
    ck_assert_int_eq(bench_run_open(m.model, &sizes, &r, err, sizeof(err)), -ENOTSUP);
    ck_assert_ptr_nonnull(strstr(err, "mmx"));
    ck_assert_ptr_null(r);
    bench_run_close(NULL);
    help_model_close(&m);
}
END_TEST

/* Weights that are not finite. */
START_TEST(a_poisoned_pass_is_an_error)
{
    struct help_model m;
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    help_model_tiny(&m, &shape);
    const struct model_tensor *v = &m.model->layers[0].tensor[MODEL_ATTN_V];
    memset(m.file + (v->data - m.file), 0x7f, v->bytes);
    struct bench_run *r = open_run(&m, 1, 8);
    ck_assert(bench_run_prefill(r, 0) < 0);
    ck_assert_ptr_nonnull(strstr(bench_run_error(r), "not finite at position 0"));
    bench_run_close(r);
    help_model_close(&m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bench_run");
    TCase *t = tcase_create("bench_run");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, times_are_positive, 0, 6);
    tcase_add_loop_test(t, byte_counts_equal_the_file, 0, 2);
    tcase_add_test(t, a_bad_isa_is_an_error);
    tcase_add_test(t, a_poisoned_pass_is_an_error);
    suite_add_tcase(s, t);
    return run_suite(s);
}
