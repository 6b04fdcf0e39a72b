/* The environment hearthd is started in: signals, closed descriptors, limits. */
#include "ipc/bell.h"
#include "tests/rig/gguf_parts.h"
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

START_TEST(uptime_counts_from_the_start)
{
    uint64_t before = bell_now_ns();

    harness_start(&daemon_, harness_tiny_model(), NULL);
    int64_t uptime_s = harness_counter(&daemon_, "uptime_s");
    ck_assert_int_ge(uptime_s, 0);
    ck_assert_int_le(uptime_s, (int64_t)((bell_now_ns() - before) / 1000000000u));
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

START_TEST(a_terminating_signal_removes_the_socket)
{
    harness_start(&daemon_, harness_tiny_model(), NULL);
    kill_and_expect(ends[_i], 0);
    ck_assert_int_lt(access(daemon_.socket, F_OK), 0);
    unlink(daemon_.log);
    rmdir(daemon_.directory);
}
END_TEST

/* As under nohup, or started with & in a script. */
START_TEST(ignored_signals_stay_ignored)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    harness_start(&daemon_, harness_tiny_model(), NULL);
    ck_assert_int_eq(kill(daemon_.pid, SIGINT), 0);
    ck_assert_int_eq(kill(daemon_.pid, SIGHUP), 0);
    for (int i = 0; i < 3; i++) /* it keeps running */
        hearth_close(harness_connect(&daemon_, 1, NULL));
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

/* Starts it traced, stops it when the load starts its first thread, and continues it with the
 * signal. Returns false where tracing is not allowed. */
static bool signal_while_loading(int signal_number)
{
    unsigned long thread;
    int status;

    daemon_.traced = true;
    harness_restart(&daemon_, harness_tiny_model(), NULL);
    daemon_.traced = false;
    ck_assert_int_eq(waitpid(daemon_.pid, &status, __WALL), daemon_.pid);
    if (!WIFSTOPPED(status))
        return false;
    ck_assert_int_eq(ptrace(PTRACE_SETOPTIONS, daemon_.pid, NULL,
                            (void *)(uintptr_t)(PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)),
                     0);
    ck_assert_int_eq(ptrace(PTRACE_CONT, daemon_.pid, NULL, NULL), 0);
    ck_assert_int_eq(waitpid(daemon_.pid, &status, __WALL), daemon_.pid);
    ck_assert_msg(status >> 8 == (SIGTRAP | PTRACE_EVENT_CLONE << 8), "status %x", status);
    ck_assert_int_eq(ptrace(PTRACE_GETEVENTMSG, daemon_.pid, NULL, &thread), 0);
    ck_assert_int_eq(waitpid((pid_t)thread, &status, __WALL), (pid_t)thread);
    ck_assert_int_eq(kill(daemon_.pid, signal_number), 0);
    ptrace(PTRACE_DETACH, (pid_t)thread, NULL, NULL);
    ptrace(PTRACE_DETACH, daemon_.pid, NULL, NULL);
    return true;
}

START_TEST(a_signal_during_the_load_ends_it_at_once)
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
    }
    unlink(daemon_.socket);
    unlink(daemon_.log);
    rmdir(daemon_.directory);
}
END_TEST

/* Starts hearthd with these arguments and stdout `out` (a path; NULL: stdin, stdout and stderr are
 * closed). */
static pid_t spawn(const char *out, const char *const *arguments)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid > 0)
        return pid;
    const char *argv[16] = {harness_program("hearthd")};
    for (int n = 1; *arguments && n < 15; n++)
        argv[n] = *arguments++;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    if (out)
        dup2(open(out, O_WRONLY), STDOUT_FILENO);
    for (int fd = 0; !out && fd <= STDERR_FILENO; fd++)
        close(fd);
    execv(argv[0], (char **)(uintptr_t)argv);
    _exit(127);
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Otherwise log lines would go to the client whose socket got the number of stderr. */
START_TEST(closed_standard_descriptors_are_not_reused)
{
    char link[64], target[64];

    harness_start(&daemon_, harness_tiny_model(), NULL); /* creates its folder */
    harness_kill(&daemon_);
    daemon_.pid =
        spawn(NULL, ARGUMENTS("--model", harness_tiny_model(), "--socket", daemon_.socket));
    struct hearth *h = NULL;
    for (int i = 0; i < 12000 && !h; i++, usleep(10000))
        if (hearth_connect(daemon_.socket, NULL, &h, target, sizeof(target)) < 0)
            h = NULL;
    ck_assert_ptr_nonnull(h);
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        snprintf(link, sizeof(link), "/proc/%ld/fd/%d", (long)daemon_.pid, fd);
        ssize_t n = readlink(link, target, sizeof(target) - 1);
        ck_assert_int_gt(n, 0);
        target[n] = 0;
        ck_assert_str_eq(target, "/dev/null");
    }
    hearth_close(h);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

START_TEST(a_failed_write_to_stdout_is_an_error)
{
    ck_assert_int_eq(harness_wait(spawn("/dev/full", ARGUMENTS("--help"))), 74);
    ck_assert_int_eq(harness_wait(spawn("/dev/full", ARGUMENTS("--version"))), 74);
    ck_assert_int_eq(
        harness_wait(spawn("/dev/full", ARGUMENTS("--check", "--model", harness_tiny_model()))),
        74);
}
END_TEST

/* Shared memory takes a descriptor. */
START_TEST(too_low_a_file_limit_is_one_line)
{
    char command[1400], line[300], more[300];

    snprintf(command, sizeof(command),
             "ulimit -f 0; XDG_CONFIG_HOME=/nonexistent exec %s --model %s --device cpu 2>&1",
             harness_program("hearthd"), harness_tiny_model());
    FILE *said = popen(command, "r");
    ck_assert_ptr_nonnull(said);
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), said));
    ck_assert_msg(strstr(line, "File too large") != NULL, "%s", line);
    ck_assert_ptr_null(fgets(more, sizeof(more), said));
    int status = pclose(said);
    ck_assert_int_eq(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 71);
}
END_TEST

/* Memory for the slots is allocated at the start. */
START_TEST(check_refuses_options_that_cannot_start)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skip: a sanitizer's memory is larger than any limit\n");
#else
    char command[1400], line[300];

    snprintf(
        command, sizeof(command),
        "ulimit -v 8000000; XDG_CONFIG_HOME=/nonexistent exec %s --check --model %s --device cpu "
        "--context 4M --slots 1024 --kv-bytes 6G 2>&1",
        harness_program("hearthd"), harness_tiny_model());
    FILE *said = popen(command, "r");
    ck_assert_ptr_nonnull(said);
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), said));
    ck_assert_msg(strstr(line, "not enough memory for 1024 slots") != NULL, "%s", line);
    int status = pclose(said);
    ck_assert_int_eq(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 71);
#endif
}
END_TEST

/* Served from its first part, and its text tokenized with that part alone. */
START_TEST(a_model_in_parts_is_served)
{
    struct gguf *whole;
    char path[512], stem[400], err[256];
    struct harness_output o[2];
    snprintf(stem, sizeof(stem), "%s-parts", harness_tiny_model());
    ck_assert_int_eq(gguf_open(harness_tiny_model(), &whole, err, sizeof(err)), 0);
    gguf_write_parts(whole, stem, 2);
    gguf_close(whole);
    gguf_part_path(path, sizeof(path), stem, 1, 2);
    for (int i = 0; i < 2; i++) {
        o[i] = harness_run_hearthd(ARGUMENTS("--check", "--device", "cpu", "--model",
                                             i == 0 ? path : harness_tiny_model()));
        ck_assert_msg(o[i].code == 0, "%s", o[i].error);
    }
    ck_assert_str_eq(o[0].out, o[1].out);
    for (int i = 0; i < 2; i++)
        harness_output_fini(&o[i]);
    char second[512];
    gguf_part_path(second, sizeof(second), stem, 2, 2);
    unlink(second);
    o[0] = harness_run_hearthd(ARGUMENTS("--check", "--device", "cpu", "--model", path));
    o[1] = HARNESS_RUN(NULL, "the text", "tokenize", "--model", path);
    ck_assert_int_eq(o[0].code, 66);
    ck_assert_msg(strstr(o[0].error, "part 2 of 2: cannot open: No such file") != NULL, "%s",
                  o[0].error);
    ck_assert_msg(o[1].code == 0, "%s", o[1].error);
    for (int i = 0; i < 2; i++)
        harness_output_fini(&o[i]);
    unlink(path);
}
END_TEST

START_TEST(rope_scaling_is_part_of_the_model)
{
    struct harness_output o[3];
    for (int i = 0; i < 3; i++) {
        o[i] = harness_run_hearthd(
            i == 0 ? ARGUMENTS("--check", "--device", "cpu", "--model", harness_tiny_model())
                   : ARGUMENTS("--check", "--device", "cpu", "--model", harness_tiny_model(),
                               "--rope-scaling", i == 1 ? "yarn:2:256" : "yarn:two"));
        ck_assert_int_eq(o[i].code, i < 2 ? 0 : 64);
    }
    ck_assert_msg(strstr(o[1].out, "context 512,") != NULL, "%s", o[1].out);
    const char *first = strstr(o[0].out, "fingerprint "),
               *second = strstr(o[1].out, "fingerprint ");
    ck_assert(first && second && strncmp(first, second, 40) != 0);
    ck_assert_msg(strstr(o[2].error, "rope-scaling yarn:two: give none") != NULL, "%s", o[2].error);
    for (int i = 0; i < 3; i++)
        harness_output_fini(&o[i]);
}
END_TEST

START_TEST(a_model_path_through_a_file_is_a_missing_file)
{
    struct harness_output o = harness_run_hearthd(ARGUMENTS("--model", "/dev/null/model.gguf"));

    ck_assert_int_eq(o.code, 66);
    harness_output_fini(&o);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("start");
    TCase *tcase = tcase_create("start");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, uptime_counts_from_the_start);
    tcase_add_loop_test(tcase, a_terminating_signal_removes_the_socket, 0, 3);
    tcase_add_test(tcase, ignored_signals_stay_ignored);
    tcase_add_loop_test(tcase, a_signal_during_the_load_ends_it_at_once, 0, 3);
    tcase_add_test(tcase, closed_standard_descriptors_are_not_reused);
    tcase_add_test(tcase, a_failed_write_to_stdout_is_an_error);
    tcase_add_test(tcase, too_low_a_file_limit_is_one_line);
    tcase_add_test(tcase, check_refuses_options_that_cannot_start);
    tcase_add_test(tcase, a_model_in_parts_is_served);
    tcase_add_test(tcase, rope_scaling_is_part_of_the_model);
    tcase_add_test(tcase, a_model_path_through_a_file_is_a_missing_file);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
