/* JSON that programs write, and jansson does not read. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/json_mend.h"
#include "tests/run_suite.h"

static const struct {
    const char *text, *want; /* NULL: refused all the same */
} cases[] = {
    {"{\"a\":1}", "{\"a\":1}"},
    /* halves of surrogate pairs */
    {"[\"\\ud83d\"]", "[\"\\uFFFD\"]"},
    {"[\"\\uD83D\\uDE00 \\ude00x\"]", "[\"\\uD83D\\uDE00 \\uFFFDx\"]"},
    {"[\"\\ud83d\\ud83d\\ude00\"]", "[\"\\uFFFD\\uD83D\\uDE00\"]"},
    {"[\"\\\\ud83d\", \"\\ud83d\"]", "[\"\\\\ud83d\",\"\\uFFFD\"]"},
    {"{\"\\udfff\":\"\\ud83\"}", NULL},
    {"{\"\\udfff\":[]}", "{\"\\uFFFD\":[]}"},
    /* numbers */
    {"[9223372036854775807,-9223372036854775808]", "[9223372036854775807,-9223372036854775808]"},
    {"[12345678901234567890,1.5,-1,1e3]", "[\"12345678901234567890\",1.5,-1,1000.0]"},
    {"[1e400,\"1e400\",-9223372036854775809]", "[\"1e400\",\"1e400\",\"-9223372036854775809\"]"},
    /* what is broken otherwise */
    {"", NULL},
    {"{", NULL},
    {"[\"\\ud83d\"", NULL},
    {"[1e400", NULL},
    {"[\"\\", NULL},
    {"[\"\\ud83d\"]x", NULL},
    {"-", NULL},
    {"[\"\\ud8\" ]\"]", NULL},
    {"[\"\\udcg0\"]", NULL},
    {"[1e999-5]", NULL},
    {"[099999999999999999999]", NULL},
    {"[99999999999999999999.]", NULL},
    {"[99999999999999999999e]", NULL},
};

START_TEST(what_does_not_fit_is_mended)
{
    json_error_t e;
    const size_t n = strlen(cases[_i].text);
    char *copy = malloc(n + !n); /* without a byte after it */
    memcpy(copy, cases[_i].text, n);
    json_t *read = json_mend(copy, n, 0, &e);
    char *got = read ? json_dumps(read, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    ck_assert_msg(!got == !cases[_i].want && (!got || strcmp(got, cases[_i].want) == 0), "%s: %s",
                  cases[_i].text, got ? got : e.text);
    free(got);
    free(copy);
    json_decref(read);
}
END_TEST

START_TEST(a_long_number_is_a_text_of_its_digits)
{
    char text[1000];
    memset(text, '7', sizeof(text));
    json_t *read = json_mend(text, sizeof(text), JSON_DECODE_ANY, NULL);
    ck_assert_uint_eq(json_string_length(read), sizeof(text));
    json_decref(read);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json_mend");
    TCase *tcase = tcase_create("json_mend");
    tcase_add_loop_test(tcase, what_does_not_fit_is_mended, 0,
                        (int)(sizeof(cases) / sizeof(cases[0])));
    tcase_add_test(tcase, a_long_number_is_a_text_of_its_digits);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
