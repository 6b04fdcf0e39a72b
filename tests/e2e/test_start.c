/* What hearthd makes of what it is started with: signals, closed descriptors, limits. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static struct harness daemon_;

static void kill_and_expect(int signal_number, int code)
{
    ck_assert_int_eq(kill(daemon_.pid, signal_number), 0);
    ck_assert_int_eq(harness_wait(daemon_.pid), code);
    daemon_.pid = 0;
}

static const int ends[] = {SIGTERM, SIGINT, SIGHUP};

START_TEST(a_signal_that_ends_it_leaves_no_socket)
{
    harness_start(&daemon_, harness_tiny_model(), NULL);
    kill_and_expect(ends[_i], 0);
    ck_assert_int_lt(access(daemon_.socket, F_OK), 0);
    unlink(daemon_.log);
    rmdir(daemon_.directory);
}
END_TEST

/* nohup, and what a shell starts with & in a script. */
START_TEST(signals_that_were_ignored_stay_so)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    harness_start(&daemon_, harness_tiny_model(), NULL);
    ck_assert_int_eq(kill(daemon_.pid, SIGINT), 0);
    ck_assert_int_eq(kill(daemon_.pid, SIGHUP), 0);
    for (int i = 0; i < 3; i++) /* it turns, and goes on */
        hearth_close(harness_connect(&daemon_, 1, NULL));
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

/* Starts it traced, stops it where the load starts its first thread, and lets it go on behind the signal. Returns
 * false where nobody may be traced. */
static bool signal_while_loading(int signal_number)
{
    unsigned long thread;
    int status;

    harness_restart(&daemon_, harness_tiny_model(), NULL);
    if (ptrace(PTRACE_SEIZE, daemon_.pid, NULL, (void *)(uintptr_t)PTRACE_O_TRACECLONE) < 0)
        return false;
    ck_assert_int_eq(waitpid(daemon_.pid, &status, __WALL), daemon_.pid);
    ck_assert_msg(status >> 8 == (SIGTRAP | PTRACE_EVENT_CLONE << 8), "status %x", status);
    ck_assert_int_eq(ptrace(PTRACE_GETEVENTMSG, daemon_.pid, NULL, &thread), 0);
    ck_assert_int_eq(waitpid((pid_t)thread, &status, __WALL), (pid_t)thread);
    ck_assert_int_eq(kill(daemon_.pid, signal_number), 0);
    ptrace(PTRACE_DETACH, (pid_t)thread, NULL, NULL);
    ptrace(PTRACE_DETACH, daemon_.pid, NULL, NULL);
    return true;
}

START_TEST(a_signal_while_it_loads_ends_it_at_once)
{
    strcpy(daemon_.directory, "/tmp/hearth-start-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(daemon_.directory));
    snprintf(daemon_.socket, sizeof(daemon_.socket), "%s/hearth.sock", daemon_.directory);
    snprintf(daemon_.log, sizeof(daemon_.log), "%s/log", daemon_.directory);
    if (signal_while_loading(ends[_i])) {
        ck_assert_int_eq(harness_wait(daemon_.pid), 128 + ends[_i]);
        ck_assert_int_lt(access(daemon_.socket, F_OK), 0);
    } else {
        printf("skip: no process may be traced here\n");
        harness_kill(&daemon_);
    }
    unlink(daemon_.socket);
    unlink(daemon_.log);
    rmdir(daemon_.directory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("start");
    TCase *tcase = tcase_create("start");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, a_signal_that_ends_it_leaves_no_socket, 0, 3);
    tcase_add_test(tcase, signals_that_were_ignored_stay_so);
    tcase_add_loop_test(tcase, a_signal_while_it_loads_ends_it_at_once, 0, 3);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
