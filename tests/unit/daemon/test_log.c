/* Log lines: levels, the journal's priorities, always exactly one line. */
#include "daemon/log.h"
#include "tests/rig/stderr_pipe.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sets JOURNAL_STREAM to stderr's inode, or to one `away` from it. */
static void say_journal(ino_t away)
{
    struct stat st;
    char stream[64];

    ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)(st.st_ino + away));
    setenv("JOURNAL_STREAM", stream, 1);
}

static void log_all(enum log_level most)
{
    log_init(most);
    log_error("e %d", 1);
    log_warning("w");
    log_info("i");
    log_debug("d");
}

START_TEST(a_level_drops_less_severe_lines)
{
    static const char *const expected[] = {"hearthd: e 1\n", "hearthd: e 1\nhearthd: w\n",
                                           "hearthd: e 1\nhearthd: w\nhearthd: i\n",
                                           "hearthd: e 1\nhearthd: w\nhearthd: i\nhearthd: d\n"};

    for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++) {
        log_all((enum log_level)level);
        ck_assert_str_eq(stderr_pipe_read(), expected[level]);
    }
}
END_TEST

START_TEST(the_journal_gets_priorities)
{
    say_journal(0);
    log_all(LOG_LEVEL_DEBUG);
    ck_assert_str_eq(stderr_pipe_read(), "<3>e 1\n<4>w\n<6>i\n<7>d\n");
}
END_TEST

START_TEST(a_redirected_stderr_is_not_the_journal)
{
    static const char *const streams[] = {"", "1", "x:y", ":"};

    say_journal(1);
    log_all(LOG_LEVEL_ERROR);
    ck_assert_str_eq(stderr_pipe_read(), "hearthd: e 1\n");
    for (size_t i = 0; i < sizeof(streams) / sizeof(*streams); i++) {
        setenv("JOURNAL_STREAM", streams[i], 1);
        log_all(LOG_LEVEL_ERROR);
        ck_assert_str_eq(stderr_pipe_read(), "hearthd: e 1\n");
    }
}
END_TEST

/* A file may be called so: C1 (CSI), a change of direction, another line. */
START_TEST(what_a_line_repeats_drives_no_terminal)
{
    log_init(LOG_LEVEL_INFO);
    log_info("%s", "a\xc2\x9b"
                   "8m\xe2\x80\xae\x9b\x1b[8m\x7f\nb");
    ck_assert_str_eq(stderr_pipe_read(), "hearthd: a??8m?????[8m??b\n");
}
END_TEST

START_TEST(an_overlong_line_is_truncated_to_one_line)
{
    char word[3000];

    memset(word, 'x', sizeof(word) - 1);
    word[sizeof(word) - 1] = 0;
    log_init(LOG_LEVEL_INFO);
    log_info("%s", word);
    const char *line = stderr_pipe_read();
    ck_assert_uint_le(strlen(line), 1024);
    ck_assert_uint_gt(strlen(line), 1000);
    ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
}
END_TEST

enum { LINES = 4000 };

/* Without a reader. */
START_TEST(a_pipe_that_is_not_read_stops_nothing)
{
    size_t lines = 0;
    char said[64];

    log_init(LOG_LEVEL_INFO);
    for (int i = 0; i < LINES; i++)
        log_info("line %d", i);
    for (const char *c = stderr_pipe_read(); *c; c++)
        lines += *c == '\n';
    ck_assert_uint_gt(lines, 0);
    ck_assert_uint_lt(lines, LINES);
    log_info("again");
    snprintf(said, sizeof(said), "hearthd: %zu lines were dropped: nothing read stderr\n",
             LINES - lines);
    const char *text = stderr_pipe_read();
    ck_assert_ptr_eq(strstr(text, said), text);
    ck_assert_str_eq(text + strlen(said), "hearthd: again\n");
    log_info("once");
    ck_assert_str_eq(stderr_pipe_read(), "hearthd: once\n");
}
END_TEST

START_TEST(lines_that_a_client_causes_are_limited_and_counted)
{
    struct log_limit limit = {0};
    uint64_t now_ns = 1000;
    int allowed = 0;

    log_init(LOG_LEVEL_INFO);
    for (int i = 0; i < 1000; i++)
        allowed += log_allowed(&limit, now_ns);
    ck_assert_int_eq(allowed, LOG_BURST);
    ck_assert_str_eq(stderr_pipe_read(), "");
    ck_assert(log_allowed(&limit, now_ns + 10000000000u));
    ck_assert_str_eq(stderr_pipe_read(), "hearthd: 984 lines like the next one were left out\n");
    ck_assert(log_allowed(&limit, now_ns + 20000000000u));
    ck_assert_str_eq(stderr_pipe_read(), "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *t = tcase_create("log");
    tcase_add_checked_fixture(t, stderr_pipe_open, stderr_pipe_close);
    tcase_add_test(t, a_level_drops_less_severe_lines);
    tcase_add_test(t, the_journal_gets_priorities);
    tcase_add_test(t, a_redirected_stderr_is_not_the_journal);
    tcase_add_test(t, what_a_line_repeats_drives_no_terminal);
    tcase_add_test(t, an_overlong_line_is_truncated_to_one_line);
    tcase_add_test(t, a_pipe_that_is_not_read_stops_nothing);
    tcase_add_test(t, lines_that_a_client_causes_are_limited_and_counted);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
