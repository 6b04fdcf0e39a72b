/* Tokens that a model's file says are never sampled (tokenizer.ggml.suppress_tokens). */
#include "tests/e2e/harness.h"
#include "tests/rig/model_changed.h"
#include "tests/run_suite.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct harness d;
static char path[256];

/* A tiny model with that list. */
static void write_model(const int32_t *ids, uint32_t n)
{
    const struct tiny_model shape = tiny_model_default(QUANT_F32);
    const struct change change = {
        .key = "tokenizer.ggml.suppress_tokens", .type = GGUF_I32, .count = n, .values = ids};
    struct gw w;
    size_t bytes;
    changed_write(&w, &shape, &change, n > 0);
    uint8_t *file = gw_finish(&w, &bytes, NULL);
    snprintf(path, sizeof(path), "/tmp/hearth-suppressed.%ld.gguf", (long)getpid());
    FILE *out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(file, 1, bytes, out), bytes);
    ck_assert_int_eq(fclose(out), 0);
    free(file);
}

/* The ids of an answer. */
static json_t *answer(const char *temperature, const char *bias)
{
    struct harness_output o =
        HARNESS_RUN(&d, NULL, "run", "--tokens", "5 6 7", "--max-tokens", "24", "--seed", "3",
                    "--temperature", temperature, "--logit-bias", bias, "--json");
    ck_assert_msg(o.code == 0, "%s", o.error);
    char *last = strstr(o.out, "{\"event\":\"done\"");
    ck_assert_ptr_nonnull(last);
    json_t *done = json_loads(last, 0, NULL), *ids = json_incref(json_object_get(done, "ids"));
    ck_assert_uint_ge(json_array_size(ids), 1);
    json_decref(done);
    harness_output_fini(&o);
    return ids;
}

/* What greedy and random answers begin with, and a token that a bias prefers to all others. */
START_TEST(suppressed_tokens_are_never_sampled)
{
    static const char *const temperature[] = {"0", "2", "0"};
    static const char *const bias[] = {"300=0", "300=0", "300=90"};
    int32_t ids[3];
    for (int round = 0; round < 2; round++) {
        write_model(ids, round ? 3 : 0);
        harness_start(&d, path, NULL);
        for (int i = 0; i < 3; i++) {
            json_t *said = answer(temperature[i], bias[i]), *id;
            size_t at;
            if (round == 0)
                ids[i] = (int32_t)json_integer_value(json_array_get(said, 0));
            json_array_foreach(said, at, id)
                for (int k = 0; k < 3 && round == 1; k++)
                    ck_assert_int_ne(json_integer_value(id), ids[k]);
            json_decref(said);
        }
        ck_assert_int_eq(harness_stop(&d), 0);
        unlink(path);
    }
    ck_assert_int_eq(ids[2], 300);
}
END_TEST

START_TEST(a_token_outside_the_vocabulary_is_refused)
{
    const int32_t ids[] = {7, _i ? -1 : 320};
    write_model(ids, 2);
    struct harness_output o =
        harness_run_hearthd((const char *const[]){"--model", path, "--check", NULL});
    ck_assert_msg(o.code == 65, "%d: %s", o.code, o.error);
    ck_assert_msg(strstr(o.error, _i ? "suppress_tokens holds -1, must be 0 to 319"
                                     : "suppress_tokens holds 320, must be 0 to 319") != NULL,
                  "%s", o.error);
    harness_output_fini(&o);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("suppressed");
    TCase *tcase = tcase_create("suppressed");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, suppressed_tokens_are_never_sampled);
    tcase_add_loop_test(tcase, a_token_outside_the_vocabulary_is_refused, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
