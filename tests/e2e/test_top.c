/* `hearth top` against a real daemon: on a pseudo-terminal, which it must restore however it ends,
 * and into a pipe. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <utmp.h>
#include <unistd.h>

enum { SCREEN_BYTES = 4 << 20, WAIT_MS = 60000 };

static const char enter[] = "\033[?1049h\033[?25l", leave[] = "\033[m\033[?25h\033[?1049l";
static const char *const arguments[] = {"--slots",   "4",      "--threads", "1",
                                        "--context", "200000", NULL};

static struct harness d;

/* A process on its own terminal, and everything it wrote there. */
struct shown {
    pid_t pid;
    int master, slave; /* the slave is kept open: its settings are looked at after the process */
    struct termios before;
    char text[SCREEN_BYTES];
    size_t bytes;
};
static struct shown t;

static void start_daemon(void)
{
    harness_start(&d, harness_tiny_model(), arguments);
}

static void stop_daemon(void)
{
    harness_stop(&d);
}

static void open_top(const char *const *words)
{
    struct winsize size = {.ws_row = 30, .ws_col = 110};
    const char *argv[16] = {"hearth", "top"};

    for (int i = 0; words && words[i]; i++)
        argv[2 + i] = words[i];
    t.bytes = 0;
    ck_assert_int_eq(openpty(&t.master, &t.slave, NULL, NULL, &size), 0);
    ck_assert_int_eq(tcgetattr(t.slave, &t.before), 0);
    t.pid = fork();
    ck_assert_int_ge(t.pid, 0);
    if (t.pid == 0) {
        setenv("HEARTH_SOCKET", d.socket, 1);
        setenv("TERM", "xterm", 1);
        close(t.master);
        if (login_tty(t.slave) == 0)
            execv(harness_program("hearth"), (char *const *)argv);
        _exit(127);
    }
}

/* Reads until `text` appears after byte `from`. Returns where it ends. */
static size_t await(size_t from, const char *text)
{
    struct pollfd more = {.fd = t.master, .events = POLLIN};

    for (;;) {
        t.text[t.bytes] = 0;
        const char *at = t.bytes > from ? strstr(t.text + from, text) : NULL;
        if (at)
            return (size_t)(at - t.text) + strlen(text);
        ck_assert_msg(poll(&more, 1, WAIT_MS) > 0, "no \"%s\" in\n%s", text, t.text + from);
        ssize_t n = read(t.master, t.text + t.bytes, sizeof(t.text) - 1 - t.bytes);
        ck_assert_msg(n > 0, "the terminal ended without \"%s\":\n%s", text, t.text + from);
        t.bytes += (size_t)n;
    }
}

static void type(const char *keys)
{
    ck_assert_int_eq(write(t.master, keys, strlen(keys)), (ssize_t)strlen(keys));
}

/* The last output restores the terminal, and its settings are those from before. */
static void expect_end(int code)
{
    size_t end = await(0, leave);
    struct termios after;

    ck_assert_int_eq(harness_wait(t.pid), code);
    ck_assert_int_eq(tcgetattr(t.slave, &after), 0);
    ck_assert_uint_eq(after.c_lflag, t.before.c_lflag);
    ck_assert_mem_eq(after.c_cc, t.before.c_cc, sizeof(after.c_cc));
    close(t.slave);
    struct pollfd more = {.fd = t.master, .events = POLLIN};
    ck_assert_uint_eq(t.bytes, end);
    ck_assert(poll(&more, 1, 0) == 0 || !(more.revents & POLLIN));
    close(t.master);
}

/* An answer that takes minutes: it must run for as long as the test watches. */
static pid_t stream(void)
{
    const char *const words[] = {"run",    "--slot",   "watched", "--max-tokens",
                                 "190000", "--tokens", "1,70,80", NULL};
    return harness_spawn(&d, NULL, words);
}

static void end_stream(pid_t pid)
{
    kill(pid, SIGKILL);
    harness_wait(pid);
    ck_assert_int_eq((int)harness_wait_counter(&d, "slots_used", 0), 0);
}

START_TEST(slots_are_shown_and_q_restores_the_terminal)
{
    pid_t pid = stream();

    open_top((const char *const[]){"--interval", "0.1", NULL});
    await(0, enter);
    size_t at = await(0, "watched");
    at = await(at, "decode");
    await(at, "hearth"); /* the program that uses the slot */
    struct termios now;
    ck_assert_int_eq(tcgetattr(t.slave, &now), 0);
    ck_assert_uint_eq(now.c_lflag & (ICANON | ECHO), 0);
    type("xyz"); /* other keys are ignored and not echoed */
    at = await(at, "tokens/s");
    type("q");
    expect_end(0);
    ck_assert_ptr_null(strstr(t.text, "xyz"));
    end_stream(pid);
}
END_TEST

START_TEST(signals_restore_the_terminal)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

    open_top(NULL);
    await(0, "tokens/s");
    kill(t.pid, signals[_i]);
    expect_end(130);
}
END_TEST

START_TEST(ctrl_c_quits)
{
    open_top(NULL);
    await(0, "tokens/s");
    type("\003");
    expect_end(130);
}
END_TEST

START_TEST(a_crash_restores_the_terminal)
{
    open_top(NULL);
    await(0, "tokens/s");
    kill(t.pid, SIGABRT);
    expect_end(128 + SIGABRT);
}
END_TEST

START_TEST(suspending_restores_the_terminal_until_it_continues)
{
    int status;

    open_top(NULL);
    size_t at = await(0, "tokens/s");
    kill(t.pid, SIGTSTP);
    at = await(at, leave);
    ck_assert_int_eq(waitpid(t.pid, &status, WUNTRACED), t.pid);
    ck_assert(WIFSTOPPED(status));
    struct termios now;
    ck_assert_int_eq(tcgetattr(t.slave, &now), 0);
    ck_assert_uint_eq(now.c_lflag, t.before.c_lflag);
    kill(t.pid, SIGCONT);
    at = await(at, enter);
    at = await(at, "tokens/s");
    type("q");
    at = await(at, leave);
    ck_assert_int_eq(harness_wait(t.pid), 0);
    close(t.master);
    close(t.slave);
}
END_TEST

START_TEST(a_resize_redraws_at_once)
{
    struct winsize size = {.ws_row = 6, .ws_col = 40};

    open_top((const char *const[]){"--interval", "3600", NULL});
    size_t at = await(await(0, "passes/s"), "\033[J"); /* the end of a frame */
    await(at, "\033[J"); /* the second frame is complete: the next one has the new size */
    ck_assert_int_eq(ioctl(t.master, TIOCSWINSZ, &size), 0);
    at = await(t.bytes, "slots active"); /* what is still shown in so small a window */
    type("q");
    expect_end(0);
    ck_assert_ptr_null(strstr(t.text + at, "passes/s"));
}
END_TEST

START_TEST(a_stopped_daemon_is_waited_for)
{
    open_top((const char *const[]){"--interval", "0.1", NULL});
    size_t at = await(0, "tokens/s");
    harness_kill(&d);
    at = await(at, "no daemon"); /* the first message is a different one */
    harness_restart(&d, harness_tiny_model(), arguments);
    at = await(at, "requests ");
    type("q");
    expect_end(0);
}
END_TEST

START_TEST(no_color_removes_all_colors)
{
    open_top(NULL);
    await(0, "\033[2mdevice");
    type("q");
    expect_end(0);
    setenv("NO_COLOR", "1", 1);
    open_top(NULL);
    await(0, "tokens/s");
    type("q");
    expect_end(0);
    ck_assert_ptr_null(strstr(t.text, "\033[2m"));
    ck_assert_ptr_null(strstr(t.text, "\033[1m"));
}
END_TEST

/* The rate in the row of the slot; 0 when its reader or the daemon was not scheduled. */
static double rate_of(const char *text)
{
    const char *row = strstr(text, "watched");
    char state[16] = "";
    double rate = 0;

    ck_assert_msg(
        row && sscanf(row, "watched 0 %15s interactive 3 - %*u %lf hearth", state, &rate) == 2,
        "%s", text);
    return strcmp(state, "decode") == 0 ? rate : 0;
}

START_TEST(a_pipe_gets_one_frame_of_text)
{
    static const char row[] =
        " name watched state decode priority interactive prompt 3 prefix_break 0 prefix_lost 0 kv ";
    struct harness_output o;
    pid_t pid = stream();
    bool listed = false;

    ck_assert_int_eq((int)harness_wait_counter(&d, "slots_active", 1), 1);
    for (double rate = 0; rate <= 0; harness_output_fini(&o)) {
        o = HARNESS_RUN(&d, NULL, "top", "--interval", "0.2");
        ck_assert_msg(o.code == 0, "%s", o.error);
        ck_assert_ptr_null(strchr(o.out, '\033'));
        rate = rate_of(o.out);
    }
    for (; !listed; harness_output_fini(&o)) {
        o = HARNESS_RUN(&d, NULL, "status");
        listed = strstr(o.out, row) != NULL;
        ck_assert_msg(listed || strstr(o.out, " name watched state paused "), "%s", o.out);
    }
    end_stream(pid);
}
END_TEST

START_TEST(without_a_daemon_it_fails_and_draws_nothing)
{
    struct harness_output o = HARNESS_RUN(NULL, NULL, "top");

    ck_assert_int_eq(o.code, 69);
    ck_assert_str_eq(o.out, "");
    ck_assert_ptr_nonnull(strstr(o.error, "no daemon"));
    harness_output_fini(&o);
    struct harness away = d;
    snprintf(d.socket, sizeof(d.socket), "/nonexistent/socket");
    open_top(NULL);
    await(0, "no daemon");
    ck_assert_int_eq(harness_wait(t.pid), 69);
    ck_assert_ptr_null(strstr(t.text, "\033"));
    close(t.master);
    close(t.slave);
    d = away;
    o = HARNESS_RUN(&d, NULL, "top", "--interval", "0.01");
    ck_assert_int_eq(o.code, 64);
    harness_output_fini(&o);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("top");
    TCase *c = tcase_create("top");
    unsetenv("NO_COLOR");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, start_daemon, stop_daemon);
    tcase_add_test(c, slots_are_shown_and_q_restores_the_terminal);
    tcase_add_loop_test(c, signals_restore_the_terminal, 0, 4);
    tcase_add_test(c, ctrl_c_quits);
    tcase_add_test(c, a_crash_restores_the_terminal);
    tcase_add_test(c, suspending_restores_the_terminal_until_it_continues);
    tcase_add_test(c, a_resize_redraws_at_once);
    tcase_add_test(c, a_stopped_daemon_is_waited_for);
    tcase_add_test(c, no_color_removes_all_colors);
    tcase_add_test(c, a_pipe_gets_one_frame_of_text);
    tcase_add_test(c, without_a_daemon_it_fails_and_draws_nothing);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
