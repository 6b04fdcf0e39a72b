/* Greedy answers of real models through hearth run and hearthd: the reference's ids and text,
 * exactly. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reference {
    const char *model, *answer; /* names in the test data */
};

static const struct reference references[] = {
    {"models/stories260K-f32.gguf", "reference/stories260K.bos.json"},
    {"models/stories260K-f32.gguf", "reference/stories260K.once.json"},
    {"models/stories260K-f32.gguf", "reference/stories260K.utf8.json"},
    {"models/stories260K-ff192-f32.gguf", "reference/stories260K.bos.json"},
    {"models/babyllama105-f32.gguf", "reference/babyllama105.bos.json"},
    {"models/babyllama105-f32.gguf", "reference/babyllama105.lily.json"},
};

static json_t *load(const char *name)
{
    json_error_t why;
    json_t *j = json_load_file(harness_data(name), 0, &why);
    ck_assert_msg(j != NULL, "%s: %s", name, why.text);
    return j;
}

/* The last line of --json output, its ids. */
static json_t *answer_ids(const char *out)
{
    const char *done = strstr(out, "{\"event\":\"done\"");
    ck_assert_msg(done != NULL, "%s", out);
    json_t *j = json_loads(done, 0, NULL), *ids = json_object_get(j, "ids");
    json_incref(ids);
    json_decref(j);
    return ids;
}

static void compare_ids(const json_t *all, size_t n_prompt, const json_t *ids, const char *name)
{
    ck_assert_msg(json_array_size(ids) == json_array_size(all) - n_prompt, "%s: %zu ids, not %zu",
                  name, json_array_size(ids), json_array_size(all) - n_prompt);
    for (size_t i = 0; i < json_array_size(ids); i++)
        ck_assert_msg(json_equal(json_array_get(ids, i), json_array_get(all, n_prompt + i)),
                      "%s: id %zu is %lld, not %lld", name, i,
                      (long long)json_integer_value(json_array_get(ids, i)),
                      (long long)json_integer_value(json_array_get(all, n_prompt + i)));
}

START_TEST(the_answer_is_the_references)
{
    const struct reference *r = &references[_i];
    struct harness d = {0};
    static const char *const one_thread[] = {"--threads", "1", NULL};
    char model[512];
    snprintf(model, sizeof(model), "%s", harness_data(r->model));
    harness_start(&d, model, one_thread);

    json_t *j = load(r->answer);
    const char *text = json_string_value(json_object_get(j, "text"));
    const char *prompt = json_string_value(json_object_get(j, "prompt"));
    const json_t *all = json_object_get(j, "ids");
    size_t n_prompt = (size_t)json_integer_value(json_object_get(j, "n_prompt"));
    char max_tokens[16];
    snprintf(max_tokens, sizeof(max_tokens), "%zu", json_array_size(all) - n_prompt);

    /* The prompt as text, which the tokenizer must turn into the reference's ids; or as its BOS. */
    const char *option = *prompt ? "--" : "--tokens", *value = *prompt ? prompt : "1";
    struct harness_output o = HARNESS_RUN(&d, NULL, "run", "--temperature", "0", "--max-tokens",
                                          max_tokens, "--json", option, value);
    ck_assert_msg(o.code == 0, "%s", o.error);
    json_t *ids = answer_ids(o.out);
    compare_ids(all, n_prompt, ids, r->answer);
    json_decref(ids);
    harness_output_fini(&o);

    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", max_tokens, option, value);
    ck_assert_str_eq(o.out, text + strlen(prompt));
    harness_output_fini(&o);
    json_decref(j);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

int main(void)
{
    if (!harness_data("")) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set\n");
        return EXIT_SUCCESS;
    }
    Suite *suite = suite_create("client_reference_e2e");
    TCase *t = tcase_create("reference");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, the_answer_is_the_references, 0,
                        (int)(sizeof(references) / sizeof(references[0])));
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
