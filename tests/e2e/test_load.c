/* Many clients at once: every answer equals the one got alone, and nothing leaks. */
#include "tests/e2e/harness.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 32, KINDS = 12, ROUNDS = 12, OUTPUT_MAX = 96, PROMPT_MAX = 180 };

/* A request of one of KINDS kinds, identical every time. */
struct kind {
    uint32_t prompt[PROMPT_MAX];
    struct hearth_request request;
};

struct answer {
    uint32_t n;
    uint32_t ids[OUTPUT_MAX];
    uint32_t reason;
};

static struct harness daemon_;
static uint32_t n_vocab;

static void make_kind(uint32_t number, struct kind *kind)
{
    static const uint32_t lengths[] = {1, 3, 17, 32, 33, 90, 130, PROMPT_MAX};
    uint32_t state = 77 + number;

    hearth_request_init(&kind->request, sizeof(kind->request));
    kind->request.n_tokens = lengths[number % 8];
    for (uint32_t i = 0; i < kind->request.n_tokens; i++)
        kind->prompt[i] = 3 + next_random(&state) % (n_vocab - 3);
    kind->request.tokens = kind->prompt;
    kind->request.max_tokens = 1 + next_random(&state) % (OUTPUT_MAX - 1);
    kind->request.seed = number;
    kind->request.temperature = number % 3 ? 0.9f : 0.0f;
    kind->request.top_p = number % 2 ? 0.95f : 1.0f;
    kind->request.repeat_penalty = number % 4 ? 1.0f : 1.2f;
    kind->request.priority = number % 5 ? HEARTH_INTERACTIVE : HEARTH_BATCH;
}

/* Reads the answer to its end; with `cancel_after` >= 0 it cancels after that many tokens. */
static int read_answer(struct hearth *h, int cancel_after, struct answer *answer)
{
    const struct hearth_event *event;
    int rc;

    answer->n = 0;
    if (cancel_after == 0)
        hearth_cancel(h, 0);
    while ((rc = hearth_next(h, 0, &event, 60000)) > 0) {
        for (uint32_t i = 0; i < event->n_tokens && answer->n < OUTPUT_MAX; i++)
            answer->ids[answer->n++] = event->tokens[i];
        if (event->kind == HEARTH_DONE) {
            answer->reason = event->result->reason;
            return 0;
        }
        if (cancel_after > 0 && answer->n >= (uint32_t)cancel_after)
            hearth_cancel(h, 0);
    }
    return rc < 0 ? rc : -ETIMEDOUT;
}

static void ask(struct hearth *h, uint32_t number, int cancel_after, struct answer *answer)
{
    struct kind kind;

    make_kind(number, &kind);
    if (hearth_submit(h, 0, &kind.request) < 0 || read_answer(h, cancel_after, answer) < 0) {
        fprintf(stderr, "kind %u: %s\n", number, hearth_error(h));
        _exit(2);
    }
}

static int same(const struct answer *a, const struct answer *b)
{
    return a->n == b->n && a->reason == b->reason &&
           !memcmp(a->ids, b->ids, a->n * sizeof(*a->ids));
}

/* A client process: random requests on one connection, some cancelled, some superseded by the next.
 */
static void client_process(uint32_t seed, int rounds, const struct answer *alone)
{
    struct hearth *h = NULL;
    char err[256];
    uint32_t state = seed;

    if (hearth_connect(daemon_.socket, NULL, &h, err, sizeof(err)) < 0) {
        fprintf(stderr, "connect: %s\n", err);
        _exit(2);
    }
    for (int round = 0; round < rounds; round++) {
        uint32_t number = next_random(&state) % KINDS, dice = next_random(&state) % 10;
        struct answer answer;
        if (dice == 0) { /* superseded at once by the next round's request */
            struct kind kind;
            make_kind(number, &kind);
            if (hearth_submit(h, 0, &kind.request) < 0)
                _exit(2);
            continue;
        }
        ask(h, number, dice == 1 ? 0 : dice == 2 ? 2 : -1, &answer);
        if (answer.reason != HEARTH_CANCELLED && !same(&answer, &alone[number])) {
            const struct answer *want = &alone[number];
            uint32_t at = 0;
            while (at < answer.n && at < want->n && answer.ids[at] == want->ids[at])
                at++;
            fprintf(stderr,
                    "seed %u round %d kind %u: another answer than alone: %u tokens for %u, "
                    "reason %d for %d, the first %u are equal\n",
                    seed, round, number, answer.n, want->n, answer.reason, want->reason, at);
            _exit(1);
        }
    }
    hearth_close(h);
    _exit(0);
}

static void get_alone(struct answer *alone)
{
    struct hearth *h = harness_connect(&daemon_, 1, NULL);
    struct hearth_info info = {.size = sizeof(info)};

    ck_assert_int_eq(hearth_info(h, &info), 0);
    n_vocab = info.n_vocab;
    for (uint32_t i = 0; i < KINDS; i++)
        ask(h, i, -1, &alone[i]);
    hearth_close(h);
}

static void sleep_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};

    nanosleep(&t, NULL);
}

/* Descriptors of an idle daemon: the least of several counts, as the last connection may still be
 * closing. */
static int64_t count_fds(void)
{
    int64_t least = harness_counter(&daemon_, "fds_open");

    for (int i = 0; i < 5; i++) {
        sleep_ms(20);
        int64_t now = harness_counter(&daemon_, "fds_open");
        least = now < least ? now : least;
    }
    return least;
}

static void check_nothing_left(int64_t fds)
{
    ck_assert_int_eq(harness_wait_counter(&daemon_, "clients", 0), 0);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    harness_check_drafts(&daemon_);
    harness_check_pages(&daemon_);
    for (int i = 0; i < 50 && count_fds() != fds; i++)
        sleep_ms(20);
    ck_assert_int_eq(count_fds(), fds);
    ck_assert_int_eq(harness_counter(&daemon_, "protocol_errors"), 0);
    ck_assert_int_eq(harness_counter(&daemon_, "rescans_found"), 0);
}

/* 32 processes; every fourth is killed at some point. */
static void run_load(int rounds, const char *const *arguments)
{
    struct answer alone[KINDS];
    pid_t pids[CLIENTS];
    int64_t fds;
    uint32_t state = 4711;

    harness_start(&daemon_, harness_tiny_model(), arguments);
    fds = count_fds();
    get_alone(alone);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            client_process(1000 + i, rounds, alone);
    }
    for (uint32_t i = 0; i < CLIENTS; i += 4) {
        sleep_ms((long)(next_random(&state) % 20));
        kill(pids[i], SIGKILL);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        int status;
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        if (i % 4 == 0)
            continue; /* killed, or finished before the signal came */
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "client %u: status %x", i,
                      status);
    }
    check_nothing_left(fds);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}

START_TEST(answers_under_load_equal_those_got_alone)
{
    run_load(ROUNDS, NULL);
}
END_TEST

/* Few pages: slots are evicted all the time. */
START_TEST(page_pressure_keeps_every_answer)
{
    run_load(ROUNDS,
             (const char *const[]){"--context", "288", "--kv-bytes", "2M", "--rows", "48", NULL});
}
END_TEST

START_TEST(epoll_and_plain_kernels_give_the_same_answers)
{
    run_load(ROUNDS / 3, (const char *const[]){"--event-loop", "epoll", "--isa", "ref", "--threads",
                                               "1", NULL});
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("load");
    TCase *tcase = tcase_create("load");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, answers_under_load_equal_those_got_alone);
    tcase_add_test(tcase, page_pressure_keeps_every_answer);
    tcase_add_test(tcase, epoll_and_plain_kernels_give_the_same_answers);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
