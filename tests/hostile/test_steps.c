/* A client stopped or killed after any instruction of hearth_submit() and hearth_next(): others get
 * their answers meanwhile, and a client that is let go on gets its own. The point is drawn by a
 * seed, and reached by single steps. Where it lies between a cell and its bell for a second, the
 * daemon finds the cell by itself (counter rescans_found). HEARTH_STEPS=N: N points instead of 100; HEARTH_SEED=N: others. */
#include "tests/hostile/balance.h"
#include "tests/hostile/honest.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    POINTS = 8, /* many more instructions each */
#else
    POINTS = 100,
#endif
    PART = 100, /* points of a test: libcheck fails where one takes longer than 35 minutes */
    KIND = 2,
    STEPS_MAX = 3000000, /* an answer that takes more is stopped at an earlier point */
};

static struct harness d;
static struct honest *honest;

/* Stops, asks, stops again: what lies between is stepped through. */
static _Noreturn void stepped_process(void)
{
    struct hearth *handle = honest_connect(honest);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!handle || ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        _exit(2);
    raise(SIGSTOP);
    uint64_t hash = honest_ask(honest, handle, KIND, NULL);
    raise(SIGSTOP);
    hearth_close(handle);
    _exit(hash == honest->alone[KIND] ? 0 : 3);
}

static pid_t start_stepped(void)
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        stepped_process();
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSTOPPED(status), "the stepped client: status %x", status);
    return pid;
}

/* Single steps, at most n. Returns how many it was until the answer was there. */
static uint32_t step(pid_t pid, uint32_t n)
{
    int status;

    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(WIFSTOPPED(status), "after step %u: status %x", i, status);
        if (WSTOPSIG(status) != SIGTRAP)
            return i;
    }
    return n;
}

/* Lets it run to its end, and expects the right answer. */
static void go_on(pid_t pid)
{
    int status;

    for (;;) {
        ck_assert_int_eq(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        if (!WIFSTOPPED(status))
            break;
    }
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

static void kill_stepped(pid_t pid)
{
    int status;

    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
}

static bool may_step(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(1);
        raise(SIGSTOP);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        return false;
    bool may = ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0;
    kill_stepped(pid);
    return may;
}

static uint32_t points_in_all(void)
{
    const char *env = getenv("HEARTH_STEPS");

    return env ? (uint32_t)atoi(env) : POINTS;
}

START_TEST(a_client_stopped_or_killed_at_any_instruction_holds_up_no_other)
{
    static const char *const arguments[] = {"--threads", "1",          "--slots", "4", "--context",
                                            "512",       "--kv-bytes", "1M",      NULL};
    const char *seed = getenv("HEARTH_SEED");
    uint32_t left = points_in_all() - (uint32_t)_i * PART, points = left < PART ? left : PART;
    uint32_t state = (seed ? (uint32_t)atoi(seed) : 17) + (uint32_t)_i;
    struct balance before = {0};

    if (!may_step()) {
        printf("skip: this system refuses ptrace\n");
        return;
    }
    harness_start(&d, harness_tiny_model(), arguments);
    honest = honest_share(sizeof(*honest));
    honest->socket = d.socket;
    honest_alone(honest);
    pid_t pid = start_stepped();
    uint32_t all = step(pid, STEPS_MAX);
    go_on(pid);
    ck_assert_uint_gt(all, 1000);
    for (uint32_t i = 0; i < points; i++) {
        if (i == points / 4)
            before = balance_take(&d);
        uint32_t at = (random_below(&state, 1 << 12) << 12 | random_below(&state, 1 << 12)) % all;
        struct hearth *other = honest_connect(honest);
        pid = start_stepped();
        step(pid, at);
        ck_assert_msg(honest_ask(honest, other, i % HONEST_KINDS, NULL) ==
                          honest->alone[i % HONEST_KINDS],
                      "another answer beside a client that stopped after step %u", at);
        i % 2 ? go_on(pid) : kill_stepped(pid);
        hearth_close(other);
    }
    balance_check(&d, &before);
    printf("%u points among %u instructions\n", points, all);
    fflush(stdout);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("steps");
    TCase *tcase = tcase_create("steps");
    tcase_set_timeout(tcase, getenv("HEARTH_STEPS") ? 36000 : 600);
    tcase_add_loop_test(tcase, a_client_stopped_or_killed_at_any_instruction_holds_up_no_other, 0,
                        (int)((points_in_all() + PART - 1) / PART));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
