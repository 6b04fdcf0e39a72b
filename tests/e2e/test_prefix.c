/* Short-lived processes, one daemon, real kernels: a user's process reuses the prefix that an
 * earlier one computed, and gets the same answer. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 8, PROMPT = 410, SHARED = 384, OUTPUT = 24 };

static struct harness daemon_;

/* What a process reports of its answer. */
struct report {
    uint32_t cached;
    uint32_t passes;
    char receipt[512];
};

static void setup(void)
{
    harness_start(&daemon_, harness_tiny_model(),
                  (const char *const[]){"--context", "512", "--slots", "16", NULL});
}

static void teardown(void)
{
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    harness_check_pages(&daemon_);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}

/* Sends a request on its own connection. Returns 0, or prints a line on stderr and returns an exit
 * code. */
static int ask(uint32_t n_tokens, uint32_t seed, struct report *ret)
{
    uint32_t tokens[PROMPT];
    struct hearth_request request;
    const struct hearth_event *event;
    struct hearth *h = NULL;
    char err[256];
    int rc = hearth_connect(daemon_.socket, NULL, &h, err, sizeof(err));

    if (rc < 0) {
        fprintf(stderr, "connect: %s\n", err);
        return 1;
    }
    for (uint32_t i = 0; i < n_tokens; i++)
        tokens[i] = 3 + i * 7 % 200;
    hearth_request_init(&request, sizeof(request));
    request.tokens = tokens;
    request.n_tokens = n_tokens;
    request.max_tokens = OUTPUT;
    request.temperature = 0.8f;
    request.seed = seed;
    rc = hearth_submit(h, 0, &request);
    while (rc >= 0 && (rc = hearth_next(h, 0, &event, 60000)) > 0)
        if (event->kind == HEARTH_DONE)
            break;
    if (rc > 0) {
        ret->cached = event->result->cached_tokens;
        ret->passes = event->result->passes;
        snprintf(ret->receipt, sizeof(ret->receipt), "%s", event->result->receipt);
    } else {
        fprintf(stderr, "no answer: %s\n", hearth_error(h));
    }
    hearth_close(h);
    return rc > 0 ? 0 : 1;
}

START_TEST(a_second_process_computes_only_the_tail)
{
    struct report first, next;

    ck_assert_int_eq(ask(PROMPT, 1, &first), 0);
    ck_assert_uint_eq(first.cached, 0);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(ask(PROMPT, 1, &next), 0);
        ck_assert_uint_eq(next.cached, SHARED);
        ck_assert_str_eq(next.receipt, first.receipt);
    }
    ck_assert_int_eq(ask(100, 1, &next), 0);
    ck_assert_uint_eq(next.cached, 96);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    ck_assert_int_ge(harness_counter(&daemon_, "pages_cached"), SHARED / 32);
}
END_TEST

/* Whether they run concurrently or in turn, the common part is computed once. */
START_TEST(concurrent_processes_compute_the_trunk_once)
{
    struct report reports[PROCESSES] = {{0}};
    pid_t pids[PROCESSES];
    int pipes[PROCESSES][2], status;
    uint32_t cached = 0;

    for (uint32_t i = 0; i < PROCESSES; i++) {
        ck_assert_int_eq(pipe(pipes[i]), 0);
        pids[i] = fork();
        if (pids[i] == 0) {
            struct report report = {0};
            int rc = ask(PROMPT, 1 + i / 4, &report);
            _exit(write(pipes[i][1], &report, sizeof(report)) == sizeof(report) ? rc : 1);
        }
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        ck_assert_int_eq(read(pipes[i][0], &reports[i], sizeof(reports[i])), sizeof(reports[i]));
        close(pipes[i][0]);
        close(pipes[i][1]);
        cached += reports[i].cached;
        if (i % 4 > 0)
            ck_assert_str_eq(reports[i].receipt, reports[i - 1].receipt);
    }
    ck_assert_str_ne(reports[0].receipt, reports[4].receipt); /* another seed */
    ck_assert_uint_eq(cached, (PROCESSES - 1) * SHARED);
    ck_assert_int_eq(harness_counter(&daemon_, "cached_tokens"), cached);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix");
    TCase *tcase = tcase_create("prefix");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_second_process_computes_only_the_tail);
    tcase_add_test(tcase, concurrent_processes_compute_the_trunk_once);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
