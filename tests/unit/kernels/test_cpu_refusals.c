/* What the CPU backend refuses: passes outside its limits, invalid limits, a context beyond a
 * model's window. A refused pass has no effect. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/expected.h"

START_TEST(a_pass_outside_the_limits_is_refused_and_does_nothing)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct help_model m;
    help_model_tiny(&m, &shape);
    struct backend *b = help_backend(&m, NULL, 1, 4, 8);
    uint32_t pages[EXPECTED_PAGES], tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    expected_page_ids(0, pages);
    const struct row good[2] = {{0, 0, 1, 0, NULL}, {0, 1, 2, 0, NULL}};
    const struct row bad[] = {{1, 1, 2, 0, NULL},         {0, 512, 2, 0, NULL},
                              {0, 1, 320, 0, NULL},       {0, 2, 2, 0, NULL},
                              {0, 0, 2, 0, NULL},         {0, 1, 2, ROW_SAMPLE, NULL},
                              {0, 1, 2, ROW_LOGITS, NULL}};
    struct row rows[8];
    struct row_result results[8] = {{0}};
    struct pass_sequence sequence = {.pages = pages, .tokens = tokens};
    struct pass pass = {PASS_CANONICAL, 2, rows, &sequence, results, 1};
    memcpy(rows, good, sizeof(good));
    help_pass(b, &pass);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        rows[1] = bad[i];
        results[0].status = 99;
        ck_assert_int_eq(backend_cpu.start(b, &pass), -EINVAL);
        ck_assert_msg(strncmp(backend_cpu.error(b), "pass refused: ", 14) == 0, "%zu", i);
        ck_assert_int_eq(results[0].status, 99);
    }
    memcpy(rows, good, sizeof(good));
    pages[0] = 8;
    ck_assert_int_eq(backend_cpu.start(b, &pass), -EINVAL);
    pages[0] = 0;
    pass.n_rows = 5;
    ck_assert_int_eq(backend_cpu.start(b, &pass), -EINVAL);
    pass.n_rows = 0;
    ck_assert_int_eq(backend_cpu.start(b, &pass), -EINVAL);
    pass.n_rows = 2;
    help_pass(b, &pass);
    backend_cpu.close(b);
    help_model_close(&m);
}
END_TEST

START_TEST(open_refuses_with_one_line)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct help_model m;
    help_model_tiny(&m, &shape);
    const struct backend_limits good = {
        .rows = 4, .samples = 2, .pages = 4, .context = 64, .threads = 1};
    struct backend *b;
    char err[256];
    struct backend_limits l[8];
    for (int i = 0; i < 8; i++)
        l[i] = good;
    l[0].rows = 0;
    l[1].samples = 5;
    l[2].pages = 0;
    l[3].context = 0;
    l[4].threads = 0;
    l[5].threads = 100000;
    l[6].isa = "sse9";
    l[7].native = true;
    for (int i = 0; i < 8; i++) {
        err[0] = 0;
        ck_assert_int_lt(backend_cpu.open(m.model, &l[i], &b, err, sizeof(err)), 0);
        ck_assert(strlen(err) > 10 && !strchr(err, '\n'));
    }
    ck_assert_int_eq(backend_cpu.open(m.model, &good, &b, err, sizeof(err)), 0);
    struct backend_info info;
    backend_cpu.describe(b, &info);
    ck_assert_str_eq(info.name, "cpu");
    ck_assert_int_eq(strncmp(info.numerics, "cpu-float-1-kvf32", 18), 0);
    ck_assert_uint_eq(info.threads, 1);
    ck_assert_uint_eq(info.page_bytes, (size_t)2 * 2 * 2 * 16 * 32 * 4);
    ck_assert_uint_eq(info.kv_bytes, 4 * info.page_bytes);
    ck_assert(info.weight_bytes > 0 && info.scratch_bytes > 0);
    backend_cpu.close(b);
    backend_cpu.close(NULL);
    ck_assert_int_eq(backend_cpu.probe(err, sizeof(err)), 0);
    help_model_close(&m);
}
END_TEST

/* Within the window a model attends to all positions; a longer context is refused. */
START_TEST(a_context_beyond_the_sliding_window_is_refused)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct help_model m;
    help_model_tiny(&m, &shape);
    m.model->sliding_window = 64;
    struct backend_limits l = {.rows = 4, .samples = 2, .pages = 4, .context = 65, .threads = 1};
    struct backend *b;
    char err[256] = "";
    ck_assert_int_eq(backend_cpu.open(m.model, &l, &b, err, sizeof(err)), -ENOTSUP);
    ck_assert_msg(strstr(err, "sliding attention window of 64 positions") != NULL, "%s", err);
    l.context = 64;
    ck_assert_int_eq(backend_cpu.open(m.model, &l, &b, err, sizeof(err)), 0);
    backend_cpu.close(b);
    help_model_close(&m);
}
END_TEST

/* A draft model's instance only runs fast passes. */
START_TEST(an_instance_that_drafts_refuses_canonical_passes)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct help_model m;
    help_model_tiny(&m, &shape);
    struct backend_limits l = {
        .rows = 4, .samples = 2, .pages = 4, .context = 64, .threads = 1, .drafts = true};
    struct backend *b;
    char err[256] = "";
    ck_assert_int_eq(backend_cpu.open(m.model, &l, &b, err, sizeof(err)), 0);
    const uint32_t page = 0, token = 1;
    const struct row row = {0, 0, 1, 0, NULL};
    const struct pass_sequence sequence = {.pages = &page, .tokens = &token};
    struct row_result result = {0};
    struct pass pass = {PASS_CANONICAL, 1, &row, &sequence, &result, 1};
    ck_assert_int_eq(backend_cpu.start(b, &pass), -EINVAL);
    ck_assert_str_eq(backend_cpu.error(b), "pass refused: a draft model has no canonical passes");
    pass.kind = PASS_FAST;
    help_pass(b, &pass);
    backend_cpu.close(b);
    help_model_close(&m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_refusals");
    TCase *tcase = tcase_create("refusals");
    tcase_add_test(tcase, a_pass_outside_the_limits_is_refused_and_does_nothing);
    tcase_add_test(tcase, a_context_beyond_the_sliding_window_is_refused);
    tcase_add_test(tcase, an_instance_that_drafts_refuses_canonical_passes);
    tcase_add_test(tcase, open_refuses_with_one_line);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
