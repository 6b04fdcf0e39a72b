/* The option table of the tools: every way to write an option, every usage error. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/tools/tool.h"
#include "tests/run_suite.h"

static struct fields {
    struct tool_common common;
    const char *text;
    uint64_t number;
    int flag;
} value;

#define O(...) OPTION(struct fields, __VA_ARGS__)
static const struct option_row table[] = {
    O(text, "text", 't', OPTION_TEXT, "TEXT", NULL, 0, 0, "a text"),
    O(number, "number", 'n', OPTION_U64, "N", "5", 2, 9, "a number"),
    O(number, "wide", 0, OPTION_U64, "N", NULL, 0, OPTION_U64_MAX, "any number"),
    O(flag, "flag", 'f', OPTION_FLAG, NULL, NULL, 0, 0, "a flag"), TOOL_COMMON_ROWS(struct fields)};
static const struct tool tool = {"tool", "usage: tool", table, sizeof(table) / sizeof(table[0]),
                                 &value};

static const char *operand;

/* Parses the words of `line`; stderr is the test's. */
static int parse(const char *line)
{
    static char words[256];
    char *argv[16] = {"tool"};
    int argc = 1;
    snprintf(words, sizeof(words), "%s", line);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
        argv[argc++] = w;
    value = (struct fields){0};
    return tool_parse(&tool, argc, argv, &operand);
}

START_TEST(every_form_of_an_option_is_parsed)
{
    static const struct {
        const char *line, *text, *operand;
        uint64_t number;
        bool flag;
    } cases[] = {
        {"", NULL, NULL, 5, false},
        {"file", NULL, "file", 5, false},
        {"--text x --number 2 --flag", "x", NULL, 2, true},
        {"--text=x --number=9", "x", NULL, 9, false},
        {"-t x -n 3 -f", "x", NULL, 3, true},
        {"-tx -n3", "x", NULL, 3, false},
        {"file -n 3", NULL, "file", 3, false},
        {"--number 3 --number 4", NULL, NULL, 4, false},
        {"--wide 18446744073709551615", NULL, NULL, UINT64_MAX, false},
        {"--text --flag", "--flag", NULL, 5, false},
        {"--text=a=b -", "a=b", "-", 5, false},
        {"--flag -- -x", NULL, "-x", 5, true},
    };
    ck_assert_int_eq(parse(cases[_i].line), 0);
    ck_assert_pstr_eq(value.text, cases[_i].text);
    ck_assert_pstr_eq(operand, cases[_i].operand);
    ck_assert_uint_eq(value.number, cases[_i].number);
    ck_assert(value.flag == cases[_i].flag);
}
END_TEST

START_TEST(every_usage_error_is_refused)
{
    static const char *const lines[] = {
        "--none",
        "-x",
        "--text",
        "-n",
        "--text=",
        "--number 1",
        "--number 10",
        "--number x",
        "--number -3",
        "--number +3",
        "--number 3x",
        "--number=",
        "--wide 18446744073709551616",
        "--flag=yes",
        "one two",
        "--numbe 3",
        "-fx",
    };
    ck_assert_msg(parse(lines[_i]) == EX_USAGE, "%s", lines[_i]);
}
END_TEST

START_TEST(help_names_every_option)
{
    char text[1024] = "", path[] = "/tmp/hearth-test-XXXXXX";
    int fd = mkstemp(path);
    ck_assert(fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0);
    pid_t child = fork();
    if (child == 0)
        parse("--help"); /* exits with 0 */
    int status;
    ck_assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    ck_assert_int_gt(pread(fd, text, sizeof(text) - 1, 0), 0);
    for (uint32_t i = 0; i < tool.n_rows; i++)
        ck_assert_msg(strstr(text, table[i].name) && strstr(text, table[i].help), "%s", text);
    unlink(path);
}
END_TEST

START_TEST(errors_have_exit_codes)
{
    ck_assert_int_eq(tool_exit(0), 0);
    ck_assert_int_eq(tool_exit(-EINVAL), EX_USAGE);
    ck_assert_int_eq(tool_exit(-EBADMSG), EX_DATAERR);
    ck_assert_int_eq(tool_exit(-ENOENT), EX_NOINPUT);
    ck_assert_int_eq(tool_exit(-ENOMEM), EX_OSERR);
    ck_assert_int_eq(tool_fail(&tool, 7, "%s", "a\nb"), 7);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tool");
    TCase *t = tcase_create("tool");
    tcase_add_loop_test(t, every_form_of_an_option_is_parsed, 0, 12);
    tcase_add_loop_test(t, every_usage_error_is_refused, 0, 17);
    tcase_add_test(t, help_names_every_option);
    tcase_add_test(t, errors_have_exit_codes);
    suite_add_tcase(s, t);
    return run_suite(s);
}
