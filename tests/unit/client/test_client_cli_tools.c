/* `hearth chat --tools`: what a program is given of a call's arguments, and what people are shown. */
#include "client/cli/chat_tools.c"
#include "client/cli/options.c"
#include "client/cli/util.c"
#include "tests/run_suite.h"

#include <check.h>

static struct chat_tools tools;

static void setup(void)
{
    tools.list = json_loads(
        "[{\"name\":\"f\",\"argv\":[\"/p\",\"-x\",\"{a}\",\"--\",\"{b}\",\"{c}x\"]}]", 0, NULL);
    ck_assert_ptr_nonnull(tools.list);
}

static void teardown(void)
{
    chat_tools_close(&tools);
    memset(&tools, 0, sizeof(tools));
}

static const struct {
    const char *arguments, *argv; /* with | between them */
    const char *refused;
} calls[] = {
    {"{\"a\":\"x y\",\"b\":\"-v\"}", "/p|-x|x y|--|-v|{c}x", NULL},
    {"{\"a\":\"$(id);'\\n\",\"b\":\"\"}", "/p|-x|$(id);'\n|--||{c}x", NULL},
    {"{\"a\":12,\"b\":[1,{\"k\":null}]}", "/p|-x|12|--|[1,{\"k\":null}]|{c}x", NULL},
    {"{\"a\":true,\"b\":\"{a}\",\"c\":\"no\"}", "/p|-x|true|--|{a}|{c}x", NULL},
    {"{\"a\":\"-rf\",\"b\":\"\"}", NULL, "argument a begins with -"},
    {"{\"a\":-5,\"b\":\"\"}", NULL, "argument a begins with -"},
    {"{\"a\":\"x\"}", NULL, "argument b is missing"},
    {"{\"a\":null,\"b\":\"\"}", NULL, "argument a is missing"},
    {"{\"a\":\"x\\u0000y\",\"b\":\"\"}", NULL, "argument a holds a byte 0"},
    {"[]", NULL, "not a JSON object"},
    {"{", NULL, "not a JSON object"},
};

START_TEST(a_value_fills_one_element)
{
    char err[300] = "", got[300] = "";
    char **argv = chat_tools_argv(&tools, "f", calls[_i].arguments, err, sizeof(err));
    ck_assert_msg(!argv == !calls[_i].argv, "%s: %s", calls[_i].arguments, err);
    for (size_t i = 0; argv && argv[i]; i++) {
        strcat(got, i ? "|" : "");
        strcat(got, argv[i]);
    }
    if (calls[_i].argv)
        ck_assert_str_eq(got, calls[_i].argv);
    else
        ck_assert_msg(strstr(err, calls[_i].refused) != NULL, "%s", err);
    chat_tools_free(argv);
}
END_TEST

START_TEST(a_tool_that_is_none_is_not_run)
{
    char err[300];
    ck_assert_ptr_null(chat_tools_argv(&tools, "g", "{}", err, sizeof(err)));
    ck_assert_str_eq(err, "not run: there is no tool g");
}
END_TEST

START_TEST(what_controls_a_terminal_is_shown_escaped)
{
    struct buffer out = {0};
    chat_tools_escape(&out,
                      "a\x1b[2J\n\x7f \xc3\xa9 \xc2\x9b \xe2\x80\xae \xe2\x81\xa6 \xe2\x80\xa6");
    ck_assert_str_eq(out.data, "a\\x1b[2J\\x0a\\x7f \xc3\xa9 \\u009b \\u202e \\u2066 \xe2\x80\xa6");
    buffer_fini(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_cli_tools");
    TCase *tcase = tcase_create("client_cli_tools");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_value_fills_one_element, 0,
                        (int)(sizeof(calls) / sizeof(calls[0])));
    tcase_add_test(tcase, a_tool_that_is_none_is_not_run);
    tcase_add_test(tcase, what_controls_a_terminal_is_shown_escaped);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
