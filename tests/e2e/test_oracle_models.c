/* A model of every architecture through the daemon: the greedy ids that follow the prompt are those
 * of another implementation (tests/fixtures/oracle, made by tests/tools/make_oracle_models.py). No
 * sample there is closer than 0.15 to its runner-up, five times the effect of f16 KV on a logit. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    "llama",        "llama3",    "llama-linear",  "mistral",        "qwen2",         "qwen3",
    "gemma3",       "granite",   "smollm3",       "phi3",           "mistral3",      "llama-yarn",
    "phi3-long",    "qwen3moe",  "qwen2moe",      "glm4moe",        "mixtral",       "granitemoe",
    "ernie4_5-moe", "gpt-oss",   "gemma4",        "gemma4-experts", "gemma4-inputs", "qwen35",
    "qwen35moe",    "qwen3next", "lfm2",          "lfm2moe",        "seed_oss",      "ernie4_5",
    "glm4",         "dots1",     "granitehybrid", "granite-h-moe",  "exaone4",       "olmo2",
    "olmo3"};
enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static struct harness d;

static json_t *load(const char *name)
{
    json_error_t error;
    char path[256];

    snprintf(path, sizeof(path), "tests/fixtures/oracle/%s.json", name);
    json_t *root = json_load_file(path, 0, &error);
    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    return root;
}

START_TEST(greedy_ids_equal_the_oracles)
{
    char model[256], prompt[1024], many[16];
    json_t *oracle = load(names[_i]), *want = json_object_get(oracle, "ids");
    json_error_t error;

    snprintf(model, sizeof(model), "tests/fixtures/oracle/%s.gguf", names[_i]);
    snprintf(many, sizeof(many), "%zu", json_array_size(want));
    harness_join_ids(json_object_get(oracle, "prompt"), prompt, sizeof(prompt));
    harness_start(&d, model, NULL);
    struct harness_output o =
        HARNESS_RUN(&d, NULL, "run", "--tokens", prompt, "--max-tokens", many, "--json");
    ck_assert_msg(o.code == 0, "%s", o.error);
    char *last = strstr(o.out, "{\"event\":\"done\"");
    ck_assert_ptr_nonnull(last);
    json_t *done = json_loads(last, 0, &error);
    ck_assert_msg(done != NULL, "%s", error.text);
    ck_assert_uint_ge(json_array_size(want), 20);
    ck_assert_msg(json_equal(want, json_object_get(done, "ids")), "%s: %s", names[_i], last);
    json_decref(done);
    json_decref(oracle);
    harness_output_fini(&o);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

/* Tokenized with the daemon's shared vocabulary: llama-bpe and qwen2 split the texts
 * differently. */
START_TEST(texts_tokenize_to_the_oracles_ids)
{
    char model[256];
    json_t *oracle = load(names[_i]), *text;
    size_t i, n_texts = json_array_size(json_object_get(oracle, "texts"));

    snprintf(model, sizeof(model), "tests/fixtures/oracle/%s.gguf", names[_i]);
    ck_assert(n_texts >= 4 || strncmp(names[_i], "qwen", 4) != 0);
    if (n_texts > 0)
        harness_start(&d, model, NULL);
    json_array_foreach(json_object_get(oracle, "texts"), i, text) {
        struct harness_output o =
            HARNESS_RUN(&d, json_string_value(json_object_get(text, "text")), "tokenize");
        ck_assert_msg(o.code == 0, "%s", o.error);
        json_t *got = json_loads(o.out, 0, NULL);
        ck_assert_msg(json_equal(got, json_object_get(text, "ids")), "%s, text %zu: %s", names[_i],
                      i, o.out);
        json_decref(got);
        harness_output_fini(&o);
    }
    if (n_texts > 0)
        ck_assert_int_eq(harness_stop(&d), 0);
    json_decref(oracle);
}
END_TEST

/* This model's window is 64 positions: its default and largest context. --check refuses more as
 * well. */
START_TEST(a_context_beyond_the_window_is_refused_in_one_line)
{
    struct harness_output o =
        harness_run_hearthd((const char *const[]){"--model", "tests/fixtures/oracle/mistral.gguf",
                                                  "--context", "65", _i ? "--check" : NULL, NULL});

    ck_assert_msg(o.code == 65, "%d: %s", o.code, o.error);
    ck_assert_msg(strstr(o.error, "sliding attention window of 64 positions") != NULL, "%s",
                  o.error);
    ck_assert_ptr_eq(strchr(o.error, '\n'), o.error + o.error_bytes - 1);
    harness_output_fini(&o);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oracle_models");
    TCase *tcase = tcase_create("oracle_models");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, greedy_ids_equal_the_oracles, 0, N_NAMES);
    tcase_add_loop_test(tcase, texts_tokenize_to_the_oracles_ids, 0, N_NAMES);
    tcase_add_loop_test(tcase, a_context_beyond_the_window_is_refused_in_one_line, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
