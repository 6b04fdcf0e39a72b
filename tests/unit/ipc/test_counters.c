/* The table and the words of counters.h. */
#include "ipc/counters.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct ctl ctl;

START_TEST(every_counter_has_a_name_and_a_help_text)
{
    for (unsigned c = 0; c < COUNTERS_N; c++) {
        ck_assert_ptr_nonnull(counters_table[c].name);
        ck_assert_uint_gt(strlen(counters_table[c].name), 0);
        ck_assert_uint_gt(strlen(counters_table[c].help), 0);
        for (unsigned d = 0; d < c; d++)
            ck_assert_str_ne(counters_table[c].name, counters_table[d].name);
    }
    ck_assert_str_eq(counters_table[COUNTER_RESCANS_FOUND].name, "rescans_found");
    ck_assert_str_eq(counters_table[COUNTER_CLIENTS].name, "clients");
    ck_assert_int_eq(counters_table[COUNTER_CLIENTS].kind, COUNTER_KIND_GAUGE);
    ck_assert_int_eq(counters_table[COUNTER_PASSES].kind, COUNTER_KIND_COUNTER);
}
END_TEST

START_TEST(every_counter_has_its_own_word)
{
    for (unsigned c = 0; c < COUNTERS_N; c++)
        counters_set(&ctl, (enum counter)c, 1000 + c);
    for (unsigned c = 0; c < COUNTERS_N; c++)
        ck_assert_uint_eq(counters_get(&ctl, (enum counter)c), 1000 + c);
    counters_add(&ctl, COUNTER_PASSES, 5);
    ck_assert_uint_eq(counters_get(&ctl, COUNTER_PASSES), 1005 + COUNTER_PASSES);
}
END_TEST

START_TEST(threads_do_not_share_a_cache_line)
{
    uintptr_t engine_end = (uintptr_t)counters_word(&ctl, COUNTERS_ENGINE_N - 1);
    uintptr_t control = (uintptr_t)counters_word(&ctl, COUNTERS_ENGINE_N);

    ck_assert_uint_ge(control - engine_end, 2 * sizeof(uint64_t));
    ck_assert_uint_ne(engine_end / IPC_STRIDE, control / IPC_STRIDE);
    ck_assert_ptr_eq(counters_word(&ctl, COUNTER_CLIENTS), &ctl.control[0]);
}
END_TEST

START_TEST(json_holds_every_counter)
{
    char text[8192];
    char object[8200];
    json_t *root;

    for (unsigned c = 0; c < COUNTERS_N; c++)
        counters_set(&ctl, (enum counter)c, 7 * c);
    ck_assert_int_gt(counters_json(&ctl, text, sizeof(text)), 0);
    snprintf(object, sizeof(object), "{%s}", text);
    root = json_loads(object, 0, NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_uint_eq(json_object_size(root), COUNTERS_N);
    for (unsigned c = 0; c < COUNTERS_N; c++)
        ck_assert_int_eq(json_integer_value(json_object_get(root, counters_table[c].name)),
                         7 * (int)c);
    json_decref(root);
}
END_TEST

START_TEST(json_that_does_not_fit_is_refused)
{
    char text[8192];
    int n = counters_json(&ctl, text, sizeof(text));

    ck_assert_int_eq(counters_json(&ctl, text, (size_t)n + 1), n);
    for (size_t bytes = 1; bytes <= (size_t)n; bytes += 13)
        ck_assert_int_eq(counters_json(&ctl, text, bytes), -ENOSPC);
    ck_assert_int_eq(counters_json(&ctl, text, (size_t)n), -ENOSPC);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("counters");
    TCase *t = tcase_create("counters");

    tcase_add_test(t, every_counter_has_a_name_and_a_help_text);
    tcase_add_test(t, every_counter_has_its_own_word);
    tcase_add_test(t, threads_do_not_share_a_cache_line);
    tcase_add_test(t, json_holds_every_counter);
    tcase_add_test(t, json_that_does_not_fit_is_refused);
    suite_add_tcase(s, t);
    return run_suite(s);
}
