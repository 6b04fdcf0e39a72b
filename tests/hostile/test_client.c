/* A hostile client on a user id of its own harms only itself: two honest users beside it get the
 * answers that they get alone, and afterwards the daemon holds nothing that it did not hold before.
 * See README.md for the long forms: HEARTH_HOSTILE=N, HEARTH_HOSTILE_P99=SECONDS. */
#include "tests/hostile/attack.h"
#include "tests/hostile/balance.h"
#include "tests/hostile/honest.h"
#include "tests/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ANSWERS = 12, PAIRS = 5, BURNERS_MAX = 8 };
enum { BURN_US = 4000 }; /* a tick of a kernel that has 250 in a second */

static struct harness d;
static struct honest *honest;
static struct attack_state *state;

static uint32_t number_of(const char *name, uint32_t otherwise)
{
    const char *value = getenv(name);

    return value ? (uint32_t)strtoul(value, NULL, 10) : otherwise;
}

/* Few slots and little memory for KV: all of it is soon in use. A user has half of the slots, where
 * there are several. */
static void setup(void)
{
    const char *const arguments[] = {"--threads",
                                     "1",
                                     "--slots",
                                     "8",
                                     "--context",
                                     "512",
                                     "--kv-bytes",
                                     "1M",
                                     "--user-slots",
                                     getuid() == 0 ? "4" : "0",
                                     "--log-level",
                                     "error",
                                     NULL};

    if (getuid() != 0)
        printf("skip: only root can run as other users: attacker and honest users are one\n");
    harness_start(&d, harness_tiny_model(), arguments);
    ck_assert_int_eq(chmod(d.directory, 0755), 0);
    ck_assert_int_eq(chmod(d.socket, 0666), 0);
    honest = honest_share(sizeof(*honest));
    honest->socket = d.socket;
    honest_alone(honest);
    state = honest_share(sizeof(*state));
    state->socket = d.socket;
}

static void teardown(void)
{
    ck_assert_int_eq(harness_stop(&d), 0);
}

static void finish(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the attacker: status %x", status);
}

/* `times` attacks beside honest users, of whom each gets some answers at least. */
static void run(const struct attack *attack, uint64_t times)
{
    atomic_store(&state->stop, 0);
    honest_start(honest);
    finish(attack_start(attack, state, times));
    honest_await(honest, ANSWERS);
    honest_stop(honest);
}

START_TEST(an_attacker_harms_only_itself)
{
    const struct attack *attack = &attacks[_i];
    const char *build = getenv("BUILD");
    uint64_t times = attack->times / (build && strstr(build, "san") ? 10 : 1) + 1;

    times *= number_of("HEARTH_HOSTILE", 1);
    state->random = (uint32_t)_i + 1;
    run(attack, attack->times / 4 + 1); /* what is allocated once is allocated now */
    struct balance before = balance_take(&d);
    atomic_fetch_add(&state->over, 1);
    atomic_store(&state->done, 0);
    run(attack, times);
    balance_check(&d, &before);
    ck_assert_int_eq(harness_counter(&d, "rescans_found"), 0);
    ck_assert(atomic_load(&state->done) > 0 ||
              attack->prepare); /* what it needs may not be there */
    atomic_fetch_add(&state->over, 1);
    printf("%s: %llu %s; %u and %u answers; p99 to the first token %u us, between tokens %u us\n",
           attack->name, (unsigned long long)atomic_load(&state->done), attack->unit,
           atomic_load(&honest->users[0].answers), atomic_load(&honest->users[1].answers),
           honest_p99(honest, HONEST_FIRST), honest_p99(honest, HONEST_BETWEEN));
    fflush(stdout);
}
END_TEST

/* ---- how long the honest users wait: the long form -------------------------------------------- */

static double cpu_of_children(void)
{
    struct rusage u;

    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static uint64_t clock_us(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Without a system call, as most of a process's work is: in one the kernel might notice that the
 * process's slice is over, which it else does at a tick. */
static void compute_until(uint64_t us)
{
    volatile uint32_t x = 1;

    while (clock_us(CLOCK_MONOTONIC) < us)
        for (int i = 0; i < 5000; i++)
            x = x * 1664525u + 1013904223u;
}

/* A process that burns this share of a core and knows nothing of hearth: it sleeps while it is ahead
 * of its share, so that what it waits for the processor costs it nothing. */
static pid_t start_burner(const void *arg)
{
    double share = *(const double *)arg;
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    attack_become(ATTACK_USER);
    uint64_t start = clock_us(CLOCK_MONOTONIC), before = clock_us(CLOCK_PROCESS_CPUTIME_ID);
    while (!atomic_load(&state->stop)) {
        compute_until(clock_us(CLOCK_MONOTONIC) + BURN_US);
        double burnt = (double)(clock_us(CLOCK_PROCESS_CPUTIME_ID) - before);
        double ahead = burnt / share - (double)(clock_us(CLOCK_MONOTONIC) - start);
        if (ahead > 0)
            attack_sleep_us((long)ahead);
    }
    _exit(0);
}

static pid_t start_endless(const void *arg)
{
    return attack_start(arg, state, UINT64_MAX);
}

/* Starts the honest users and then `n` processes by `start`, and ends them after so many seconds: the
 * honest users' p99s. Returns the cores that the processes burnt. */
static double wait_beside(pid_t (*start)(const void *arg), const void *arg, int n, uint32_t seconds,
                          uint32_t *ret_p99)
{
    pid_t pids[BURNERS_MAX];

    atomic_store(&state->stop, 0);
    honest_start(honest);
    honest_await(honest, 1);
    uint64_t start_us = clock_us(CLOCK_MONOTONIC);
    double before = cpu_of_children();
    for (int i = 0; i < n; i++)
        pids[i] = start(arg);
    sleep(seconds);
    atomic_store(&state->stop, 1);
    for (int i = 0; i < n; i++)
        finish(pids[i]);
    double s = (double)(clock_us(CLOCK_MONOTONIC) - start_us) / 1e6;
    double cores = (cpu_of_children() - before) / s;
    honest_stop(honest);
    for (int i = 0; i < 2; i++)
        ret_p99[i] = honest_p99(honest, (enum honest_time)i);
    return cores;
}

static double wait_beside_attack(const struct attack *attack, uint32_t seconds, uint32_t *ret_p99)
{
    return wait_beside(start_endless, attack, 1, seconds, ret_p99);
}

static double wait_beside_burners(double cores, uint32_t seconds, uint32_t *ret_p99)
{
    int n = cores < BURNERS_MAX ? (int)cores + 1 : BURNERS_MAX;
    double share = cores / n < 0.01 ? 0.01 : cores / n;

    return wait_beside(start_burner, &share, n, seconds, ret_p99);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

START_TEST(honest_users_wait_as_beside_any_busy_process)
{
    const struct attack *attack = &attacks[_i];
    uint32_t seconds = number_of("HEARTH_HOSTILE_P99", 0);
    double ratios[2][PAIRS], cores = 0, burnt = 0;

    for (int i = 0; i < PAIRS; i++) {
        uint32_t attacked[2], burdened[2];
        cores = wait_beside_attack(attack, seconds, attacked);
        burnt = wait_beside_burners(cores, seconds, burdened);
        for (int k = 0; k < 2; k++)
            ratios[k][i] = (double)attacked[k] / (double)(burdened[k] ? burdened[k] : 1);
    }
    for (int k = 0; k < 2; k++)
        qsort(ratios[k], PAIRS, sizeof(double), compare);
    printf("%-12s %.2f cores, a burner %.2f; p99 against it: first token %.2f (%.2f to %.2f), "
           "between tokens %.2f (%.2f to %.2f)\n",
           attack->name, cores, burnt, ratios[0][PAIRS / 2], ratios[0][0], ratios[0][PAIRS - 1],
           ratios[1][PAIRS / 2], ratios[1][0], ratios[1][PAIRS - 1]);
    fflush(stdout);
}
END_TEST

int main(void)
{
    bool is_long = getenv("HEARTH_HOSTILE") || getenv("HEARTH_HOSTILE_P99");
    Suite *suite = suite_create("client");
    TCase *tcase = tcase_create("client");

    tcase_set_timeout(tcase, is_long ? 36000 : 600);
    tcase_add_checked_fixture(tcase, setup, teardown);
    for (int i = 0; i < ATTACKS; i++)
        if (attack_chosen(&attacks[i]))
            tcase_add_loop_test(tcase,
                                getenv("HEARTH_HOSTILE_P99")
                                    ? honest_users_wait_as_beside_any_busy_process
                                    : an_attacker_harms_only_itself,
                                i, i + 1);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
