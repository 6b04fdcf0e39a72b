/* `hearth chat --tools`: what a program is given of a call's arguments, what people are shown, and
 * what becomes of a program that goes on. */
#include <time.h>

static int clock_of_test(clockid_t id, struct timespec *t);

#include "client/cli/chat_tools.c"
#define clock_gettime clock_of_test
#include "client/cli/chat_tools_run.c"
#undef clock_gettime
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

/* What show_call writes. */
static const char *shown(char *const *argv)
{
    static char text[8192];
    int pipes[2], old = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe(pipes), 0);
    dup2(pipes[1], STDERR_FILENO);
    show_call(argv);
    dup2(old, STDERR_FILENO);
    ssize_t n = read(pipes[0], text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = 0;
    close(old);
    close(pipes[0]);
    close(pipes[1]);
    return text;
}

/* What is asked about is what would run: an argument with quotes in it does not look like two. */
START_TEST(an_argument_is_shown_as_one)
{
    static char *const argv[] = {"/p", "a' 'b", "", "'\033[2J", NULL};
    ck_assert_str_eq(shown(argv), "run /p 'a'\\'' '\\''b' '' ''\\''\\x1b[2J' ? [y/N] ");
}
END_TEST

/* Nor does one with more blanks than a screen has places look like a call of its own. */
START_TEST(a_long_argument_hides_no_program)
{
    char word[4096];
    char *const argv[] = {"/p", word, NULL};
    snprintf(word, sizeof(word), "x %4000s%s", "", "run /bin/ls");
    ck_assert_str_eq(strrchr(shown(argv), '\n'), "\nrun /p with all these arguments ? [y/N] ");
}
END_TEST

START_TEST(a_tool_that_is_none_is_not_run)
{
    char err[300];
    ck_assert_ptr_null(chat_tools_argv(&tools, "g", "{}", err, sizeof(err)));
    ck_assert_str_eq(err, "not run: there is no tool g");
}
END_TEST

static int never(void)
{
    return 0;
}

/* What the model is told is a text, wherever its own words are cut: else the conversation ends. */
START_TEST(a_refusal_that_is_cut_is_a_text)
{
    char name[102];
    memset(name, 'n', 99);
    snprintf(name + 99, 3, "%s", "\xc3\xa9");
    char *said = chat_tools_call(&tools, name, "{}", never);
    json_t *message = json_string(said);
    ck_assert_msg(message != NULL, "%s", said);
    ck_assert_ptr_nonnull(strstr(said, "no tool nnn"));
    json_decref(message);
    free(said);
}
END_TEST

static int terminal;

/* Asks on a terminal on which this was typed before; `typing` types when it is asked. *ret_left: is
 * there something left to be read? */
static int ask(const char *before, int (*typing)(void), int *ret_left)
{
    static char *const argv[] = {"/p", NULL};
    int old_in = dup(STDIN_FILENO), old_error = dup(STDERR_FILENO);
    terminal = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert_int_ge(terminal, 0);
    ck_assert_int_eq(grantpt(terminal) | unlockpt(terminal), 0);
    int name = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    ck_assert_int_eq((int)write(terminal, before, strlen(before)), (int)strlen(before));
    dup2(name, STDIN_FILENO);
    dup2(name, STDERR_FILENO);
    int allowed = is_allowed(argv, typing);
    *ret_left = poll(&(struct pollfd){.fd = name, .events = POLLIN}, 1, 0);
    dup2(old_in, STDIN_FILENO);
    dup2(old_error, STDERR_FILENO);
    close(old_in);
    close(old_error);
    close(name);
    close(terminal);
    return allowed;
}

/* Types once the question is there. */
static void type(const char *text)
{
    char shown[100];
    ck_assert_int_gt((int)read(terminal, shown, sizeof(shown)), 0);
    ck_assert_int_eq((int)write(terminal, text, strlen(text)), (int)strlen(text));
}

static int type_return(void)
{
    type("\n");
    return 0;
}

/* A `y` typed before the question does not answer it, even if its Return comes after it. */
START_TEST(what_was_typed_before_is_no_answer)
{
    int left;
    ck_assert_int_eq(ask(_i ? "y" : "y\n", type_return, &left), 0);
}
END_TEST

static int type_much(void)
{
    type("no, look at the other folder\n");
    return 0;
}

/* Nothing of it is left to be the next message. */
START_TEST(an_answer_is_taken_whole)
{
    int left;
    ck_assert_int_eq(ask("", type_much, &left), 0);
    ck_assert_int_eq(left, 0);
}
END_TEST

/* ---- programs -------------------------------------------------------------------------------- */

/* Goes on by so many seconds each time that it is looked at. */
static int clock_step;

static int clock_of_test(clockid_t id, struct timespec *t)
{
    static time_t now = 1000;
    (void)id;
    now += clock_step;
    *t = (struct timespec){.tv_sec = now};
    return 0;
}

static char *runs(const char *script)
{
    char *const argv[] = {"/bin/sh", "-c", (char *)(uintptr_t)script, NULL};
    return run(argv, never);
}

START_TEST(a_program_that_writes_without_end_is_cut_and_killed)
{
    static const char why[] = "\n[its output was cut, and it was killed: more than 64 KiB]";
    clock_step = 0;
    char *text = runs("while :; do echo 0123456789abcde; done");
    ck_assert_uint_eq(strlen(text), (64u << 10) + strlen(why));
    ck_assert_str_eq(text + (64u << 10), why);
    free(text);
}
END_TEST

START_TEST(a_program_that_runs_for_long_is_killed_with_what_it_began)
{
    clock_step = 5;
    char *text = runs("echo $$; sleep 1000 & sleep 1000");
    char path[64];
    int group = atoi(text);
    ck_assert_msg(group > 1 && strstr(text, "\n[it was killed: it ran for more than 30 seconds]"),
                  "%s", text);
    while (kill(-group, 0) == 0) /* until init has buried them */
        usleep(1000);
    snprintf(path, sizeof(path), "/proc/%d", group);
    ck_assert_int_ne(access(path, F_OK), 0);
    free(text);
}
END_TEST

/* Nobody would be left to kill it at its limit; nor, where the terminal is closed, what it started. */
START_TEST(a_program_does_not_outlive_hearth)
{
    static const char *const scripts[] = {"echo $$ >/proc/%d/fd/%d; exec sleep 1000",
                                          "sleep 1000 & echo $! >/proc/%d/fd/%d; wait"};
    char text[16] = "";
    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* its program becomes ours */
    clock_step = 0;
    pid_t pid = fork();
    if (pid == 0) {
        char script[64];
        snprintf(script, sizeof(script), scripts[_i], (int)getpid(), pipes[1]);
        cli_catch_signals();
        free(runs(script));
        _exit(1);
    }
    ck_assert_int_gt((int)read(pipes[0], text, sizeof(text) - 1), 0);
    kill(pid, _i ? SIGHUP : SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    pid_t ended = 0;
    for (int i = 0; i < 1000 && !(ended = waitpid(atoi(text), NULL, WNOHANG)); i++)
        usleep(1000);
    if (!ended)
        kill(atoi(text), SIGKILL);
    close(pipes[0]);
    close(pipes[1]);
    ck_assert_int_eq(ended, atoi(text));
}
END_TEST

START_TEST(a_program_says_how_it_ended)
{
    clock_step = 0;
    char *failed = runs("printf 'a\\0b'; exit 3"), *silent = runs("true");
    ck_assert_str_eq(failed, "a?b\n[exit code 3]");
    ck_assert_str_eq(silent, "[no output]");
    free(failed);
    free(silent);
}
END_TEST

/* Else the model takes half of an output, or of the work, for all of it. */
START_TEST(a_program_that_was_killed_or_writes_no_more_says_so)
{
    clock_step = 0;
    char *killed = runs("echo a; kill -SEGV $$"),
         *quiet = runs("echo a; exec >&- 2>&-; sleep 0.2; exit 3");
    ck_assert_str_eq(killed, "a\n\n[ended by signal 11]");
    ck_assert_str_eq(quiet, "a\n\n[exit code 3]");
    free(killed);
    free(quiet);
}
END_TEST

/* A byte that is no text, as in a file's name in Latin-1, and a character that the limit cuts. */
START_TEST(one_byte_that_is_no_text_spoils_no_other)
{
    clock_step = 0;
    char *text = runs("printf '\\303\\251 \\351 \\303\\251'");
    ck_assert_str_eq(text, "\xc3\xa9 ? \xc3\xa9");
    free(text);
}
END_TEST

/* Who may write to any folder above the file may put another one in its place. */
START_TEST(folders_above_the_file_are_the_users_alone)
{
    char root[] = "/tmp/hearth-tools-XXXXXX", folder[64], file[80];
    struct chat_tools read = {0};
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(folder, sizeof(folder), "%s/a", root);
    snprintf(file, sizeof(file), "%s/tools.json", folder);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_gt(dprintf(fd, "[{\"name\":\"f\",\"argv\":[\"/p\"]}]"), 0);
    close(fd);
    for (mode_t mode = 0700; mode <= 0777; mode += 077) {
        ck_assert_int_eq(chmod(root, mode), 0);
        ck_assert_int_eq(chat_tools_open(&read, file), mode == 0700 ? CLI_OK : CLI_BAD_INPUT);
        chat_tools_close(&read);
        read = (struct chat_tools){0};
    }
    unlink(file);
    rmdir(folder);
    rmdir(root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_cli_tools");
    TCase *tcase = tcase_create("client_cli_tools");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_value_fills_one_element, 0,
                        (int)(sizeof(calls) / sizeof(calls[0])));
    tcase_add_test(tcase, an_argument_is_shown_as_one);
    tcase_add_test(tcase, a_long_argument_hides_no_program);
    tcase_add_loop_test(tcase, what_was_typed_before_is_no_answer, 0, 2);
    tcase_add_test(tcase, an_answer_is_taken_whole);
    tcase_add_test(tcase, a_tool_that_is_none_is_not_run);
    tcase_add_test(tcase, a_refusal_that_is_cut_is_a_text);
    tcase_add_test(tcase, a_program_that_writes_without_end_is_cut_and_killed);
    tcase_add_test(tcase, a_program_that_runs_for_long_is_killed_with_what_it_began);
    tcase_add_loop_test(tcase, a_program_does_not_outlive_hearth, 0, 2);
    tcase_add_test(tcase, a_program_says_how_it_ended);
    tcase_add_test(tcase, a_program_that_was_killed_or_writes_no_more_says_so);
    tcase_add_test(tcase, one_byte_that_is_no_text_spoils_no_other);
    tcase_add_test(tcase, folders_above_the_file_are_the_users_alone);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
