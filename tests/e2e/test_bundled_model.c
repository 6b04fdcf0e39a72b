/* The bundled model gives the ids of a double-precision run of its file
 * (daemon/models/training/reference.json, made by reference.py beside it), plain and
 * fill-in-the-middle. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char model[] = "daemon/models/hearth-code-5m-f16.gguf";
static const double CLOSE =
    0.02; /* more than f16 KV moves a logit: within it both tokens are right */

static struct harness d;

/* Compares up to the first place where the reference itself is undecided. Returns how many ids. */
static size_t compare(const json_t *run, const json_t *got)
{
    const json_t *want = json_object_get(run, "ids"), *gaps = json_object_get(run, "gaps");
    size_t i = 0;

    while (i < json_array_size(want) && json_number_value(json_array_get(gaps, i)) > CLOSE) {
        ck_assert_msg(json_equal(json_array_get(want, i), json_array_get(got, i)),
                      "%s: another token at %zu", json_string_value(json_object_get(run, "name")),
                      i);
        i++;
    }
    return i;
}

START_TEST(answers_equal_a_double_precision_run)
{
    json_error_t error;
    json_t *reference = json_load_file("daemon/models/training/reference.json", 0, &error), *run;
    char prompt[8192];
    size_t i;

    ck_assert_msg(reference != NULL, "%s", error.text);
    harness_start(&d, model, NULL);
    json_array_foreach(json_object_get(reference, "runs"), i, run) {
        harness_join_ids(json_object_get(run, "prompt"), prompt, sizeof(prompt));
        struct harness_output o =
            HARNESS_RUN(&d, NULL, "run", "--tokens", prompt, "--max-tokens", "64", "--json");
        ck_assert_msg(o.code == 0, "%s", o.error);
        char *last = strstr(o.out, "{\"event\":\"done\"");
        ck_assert_ptr_nonnull(last);
        json_t *done = json_loads(last, 0, &error);
        ck_assert_msg(done != NULL, "%s", error.text);
        size_t n = compare(run, json_object_get(done, "ids"));
        printf("%s: %zu ids compared\n", json_string_value(json_object_get(run, "name")), n);
        ck_assert_uint_gt(n, 2);
        json_decref(done);
        harness_output_fini(&o);
    }
    ck_assert_uint_ge(i, 2);
    json_decref(reference);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

START_TEST(a_serving_daemon_has_closed_the_model_file)
{
    char path[64], target[4096];
    const struct dirent *entry;
    uint32_t n = 0;

    harness_start(&d, model, (const char *const[]){"--draft", model, NULL});
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)d.pid);
    DIR *descriptors = opendir(path);
    ck_assert_ptr_nonnull(descriptors);
    while ((entry = readdir(descriptors)) != NULL) {
        ssize_t bytes = readlinkat(dirfd(descriptors), entry->d_name, target, sizeof(target) - 1);
        if (bytes < 0)
            continue; /* . and .., or closed meanwhile */
        target[bytes] = 0;
        n++;
        ck_assert_msg(strstr(target, ".gguf") == NULL, "%s is open", target);
    }
    closedir(descriptors);
    ck_assert_uint_gt(n, 0);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bundled_model");
    TCase *tcase = tcase_create("bundled_model");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, answers_equal_a_double_precision_run);
    tcase_add_test(tcase, a_serving_daemon_has_closed_the_model_file);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
