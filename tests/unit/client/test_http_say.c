/* Lines of the gateway: exactly one each, and a stderr that nobody reads holds nobody up. */
#include "client/http/say.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINES = 4000, PIPE_BYTES = 16384 };

static int out[2], before;
static char text[2 * PIPE_BYTES];

/* stderr becomes a pipe, whose writers wait. */
static void setup(void)
{
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(out[1], F_SETPIPE_SZ, PIPE_BYTES), PIPE_BYTES);
    ck_assert_int_eq(fcntl(out[0], F_SETFL, O_NONBLOCK), 0);
    before = dup(STDERR_FILENO);
    dup2(out[1], STDERR_FILENO);
    unsetenv("JOURNAL_STREAM");
}

static void teardown(void)
{
    dup2(before, STDERR_FILENO);
    close(before);
    close(out[0]);
    close(out[1]);
}

static const char *said(void)
{
    ssize_t n = read(out[0], text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = 0;
    return text;
}

START_TEST(a_line_is_one_whatever_it_says)
{
    char word[3000];

    memset(word, 'x', sizeof(word) - 1);
    word[sizeof(word) - 1] = 0;
    say(6, "a\x1b[8m\nb");
    ck_assert_str_eq(said(), "hearth-http: a?[8m?b\n");
    say(6, word);
    ck_assert_uint_gt(strlen(said()), 900);
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}
END_TEST

START_TEST(a_pipe_that_is_not_read_stops_nothing)
{
    size_t lines = 0;
    char dropped[80];

    for (int i = 0; i < LINES; i++)
        say(6, "a line that a client causes");
    for (const char *c = said(); *c; c++)
        lines += *c == '\n';
    ck_assert_uint_gt(lines, 0);
    ck_assert_uint_lt(lines, LINES);
    say(6, "again");
    snprintf(dropped, sizeof(dropped), "hearth-http: %zu lines were dropped: nothing read stderr\n",
             LINES - lines);
    ck_assert_ptr_eq(strstr(said(), dropped), text);
    ck_assert_str_eq(text + strlen(dropped), "hearth-http: again\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_say");
    TCase *t = tcase_create("say");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_line_is_one_whatever_it_says);
    tcase_add_test(t, a_pipe_that_is_not_read_stops_nothing);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
