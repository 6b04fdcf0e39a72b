/* A model of any quantized type gives the same answer on every kernel, with any threads and passes,
 * with and without drafts: every token and every bit of its log-probabilities. */
#include "tests/e2e/harness.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/quant/quant_types.h"
#include "tests/run_suite.h"
#include "tests/rig/tiny_model.h"

static struct harness d;

/* Token events of an answer as text; free() it. The times in `done` may differ. */
static char *ask(const char *prompt, const char *proposer, const char **ret_numerics)
{
    static char numerics[64];
    struct harness_output o = HARNESS_RUN(
        &d, NULL, "run", "--tokens", prompt, "--max-tokens", "60", "--temperature", "0.9", "--seed",
        "7", "--logprobs", "2", "--json", "--logit-bias", "2=-inf", "--proposer", proposer);
    ck_assert_msg(o.code == 0, "%s", o.error);
    json_t *tokens = json_array(), *event;
    json_error_t error;
    for (char *line = strtok(o.out, "\n"); line; line = strtok(NULL, "\n")) {
        event = json_loads(line, JSON_ALLOW_NUL, &error);
        ck_assert_msg(event != NULL, "%s", error.text);
        if (json_object_get(event, "logprobs"))
            json_array_extend(tokens, json_object_get(event, "logprobs"));
        else
            snprintf(numerics, sizeof(numerics), "%s",
                     json_string_value(json_object_get(event, "numerics")));
        json_decref(event);
    }
    ck_assert_uint_eq(json_array_size(tokens), 60);
    char *text = json_dumps(tokens, JSON_COMPACT);
    json_decref(tokens);
    harness_output_fini(&o);
    *ret_numerics = numerics;
    return text;
}

static const uint32_t types[] = {TINY_MIXED_K, QUANT_Q5_1, QUANT_Q4_0, TINY_MIXED_SMALL};

START_TEST(answers_are_equal_on_every_kernel)
{
    static const char *const proposers[] = {"none", "draft", "auto"};
    struct tiny_model shape = tiny_model_default(types[_i]);
    const char *build = getenv("BUILD"), *numerics;
    char path[512], prompt[1024] = "5", *want = NULL;

    shape.untied = true; /* a tied random model repeats its token */
    snprintf(path, sizeof(path), "%s/tests/types-%d.gguf.%ld", build ? build : "build", _i,
             (long)getpid());
    ck_assert_int_eq(tiny_model_write(&shape, path), 0);
    const char *const machines[][9] = {
        {"--isa", "ref", "--threads", "1", NULL},
        {"--isa", "avx2", "--threads", "2", "--rows", "8", "--draft", path, NULL},
        {"--threads", "3", "--rows", "64", NULL},
    };
    for (int i = 1; i < 100; i++)
        snprintf(prompt + strlen(prompt), sizeof(prompt) - strlen(prompt), ",%d", 3 + i * i % 290);
    for (int m = 0; m < 3; m++) {
        harness_start(&d, path, machines[m]);
        char *got = ask(prompt, proposers[m], &numerics);
        ck_assert_str_eq(numerics, "portable-1");
        if (want)
            ck_assert_msg(strcmp(got, want) == 0, "%s: %s\nnot %s", machines[m][1], got, want);
        free(want);
        want = got;
        if (m == 1) /* the model as its own draft model */
            ck_assert_int_gt(harness_counter(&d, "accepted_drafts"), 0);
        ck_assert_int_eq(harness_stop(&d), 0);
    }
    free(want);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("types");
    TCase *tcase = tcase_create("types");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, answers_are_equal_on_every_kernel, 0, 4);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
