/* What becomes tokens of the daemon's vocabulary: a request's `prediction`, which is the guess, and
 * the text of /tokenize. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/http/gen_params.h"
#include "client/http/routes_model.h"
#include "ipc/params.h"
#include "tests/rig/client_fixture.h"
#include "tests/run_suite.h"

static struct gen_params params;
static struct fail fail;

static int read_prediction(json_t *prediction)
{
    connect_with(1, 0);
    json_t *root = json_pack("{s:o}", "prediction", prediction);
    ck_assert_int_eq(gen_params_read(&params, GEN_CHAT, root, &fail), 0);
    return gen_params_read_prediction(&params, h, &fail);
}

START_TEST(a_text_or_its_parts_are_the_guess)
{
    static const char *const forms[] = {
        "{\"type\":\"content\",\"content\":\"Once upon</s>\"}",
        "{\"type\":\"content\",\"content\":[{\"type\":\"text\",\"text\":\"Once upon</s>\"}]}"};
    uint32_t want[32];
    ck_assert_int_eq(read_prediction(json_loads(forms[_i], 0, NULL)), 0);
    int64_t n = hearth_tokenize(h, "Once upon</s>", 13, 0, want, 32);
    ck_assert_int_gt(n, 2);
    ck_assert_int_eq(params.base.n_guess, n);
    ck_assert_int_eq(memcmp(params.base.guess, want, (size_t)n * sizeof(*want)), 0);
    gen_params_fini(&params);
}
END_TEST

START_TEST(a_long_text_is_cut_to_what_a_request_holds)
{
    char *text = malloc(100001);
    memset(text, 'z', 100000);
    text[100000] = 0;
    ck_assert_int_eq(read_prediction(json_pack("{s:s}", "content", text)), 0);
    ck_assert_uint_eq(params.base.n_guess, PARAMS_GUESS_MAX);
    free(text);
    gen_params_fini(&params);
}
END_TEST

START_TEST(another_form_is_refused)
{
    static const char *const forms[] = {"{}", "{\"content\":7}", "{\"content\":[7]}",
                                        "{\"content\":[{\"type\":\"image\"}]}"};
    ck_assert_int_eq(read_prediction(json_loads(forms[_i], 0, NULL)), -1);
    ck_assert_uint_eq(fail.status, 400);
    ck_assert_msg(strstr(fail.message, "'prediction' must be") != NULL, "%s", fail.message);
    gen_params_fini(&params);
}
END_TEST

/* How much of jansson's memory there is, and was at most. */
static size_t n_live, n_most;

static void *counted(size_t bytes)
{
    n_live++;
    n_most = n_live > n_most ? n_live : n_most;
    return malloc(bytes);
}

static void uncounted(void *p)
{
    n_live -= p != NULL;
    free(p);
}

/* A value of jansson's takes half a kilobyte. */
START_TEST(pieces_are_written_as_text)
{
    enum { TIMES = 1000 };
    static const char word[] = "upon</s>";
    char *text = calloc(TIMES, sizeof(word));
    uint32_t want[16 * TIMES];
    struct exchange x = {0};
    connect_with(1, 0);
    for (int i = 0; i < TIMES; i++)
        strcat(text, word);
    const int64_t n = hearth_tokenize(h, text, strlen(text), HEARTH_SPECIAL, want, 16 * TIMES);
    json_set_alloc_funcs(counted, uncounted);
    x.root = json_pack("{s:s, s:b}", "content", text, "with_pieces", 1);
    ck_assert_int_eq(routes_read_tokenize(&x, h, &fail), 0);
    json_decref(x.root);
    json_set_alloc_funcs(malloc, free);
    ck_assert_uint_le(n_most, 64);
    json_t *o = json_loadb(x.out.data, x.out.bytes, 0, NULL), *list = json_object_get(o, "tokens");
    ck_assert_int_eq((int64_t)json_array_size(list), n);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *piece = json_object_get(json_array_get(list, i), "piece");
        ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(list, i), "id")),
                         want[i]);
        ck_assert(json_is_array(piece) || json_string_length(piece) > 0);
    }
    ck_assert_str_eq(
        json_string_value(json_object_get(json_array_get(list, (size_t)n - 1), "piece")), "</s>");
    json_decref(o);
    buffer_fini(&x.out);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_prediction");
    TCase *tcase = tcase_create("http_prediction");
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_loop_test(tcase, a_text_or_its_parts_are_the_guess, 0, 2);
    tcase_add_test(tcase, a_long_text_is_cut_to_what_a_request_holds);
    tcase_add_loop_test(tcase, another_form_is_refused, 0, 4);
    tcase_add_test(tcase, pieces_are_written_as_text);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
