/* Lines of the gateway: exactly one each, and a stderr that nobody reads holds nobody up. */
#include "client/http/say.h"
#include "tests/rig/stderr_pipe.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { LINES = 4000 };

START_TEST(a_line_is_one_whatever_it_says)
{
    char word[3000];

    memset(word, 'x', sizeof(word) - 1);
    word[sizeof(word) - 1] = 0;
    say(6, "a\x1b[8m\nb");
    ck_assert_str_eq(stderr_pipe_read(), "hearth-http: a?[8m?b\n");
    say(6, word);
    const char *line = stderr_pipe_read();
    ck_assert_uint_gt(strlen(line), 900);
    ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
}
END_TEST

START_TEST(a_pipe_that_is_not_read_stops_nothing)
{
    size_t lines = 0;
    char dropped[80];

    for (int i = 0; i < LINES; i++)
        say(6, "a line that a client causes");
    for (const char *c = stderr_pipe_read(); *c; c++)
        lines += *c == '\n';
    ck_assert_uint_gt(lines, 0);
    ck_assert_uint_lt(lines, LINES);
    say(6, "again");
    snprintf(dropped, sizeof(dropped), "hearth-http: %zu lines were dropped: nothing read stderr\n",
             LINES - lines);
    const char *text = stderr_pipe_read();
    ck_assert_ptr_eq(strstr(text, dropped), text);
    ck_assert_str_eq(text + strlen(dropped), "hearth-http: again\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_say");
    TCase *t = tcase_create("say");
    tcase_add_checked_fixture(t, stderr_pipe_open, stderr_pipe_close);
    tcase_add_test(t, a_line_is_one_whatever_it_says);
    tcase_add_test(t, a_pipe_that_is_not_read_stops_nothing);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
