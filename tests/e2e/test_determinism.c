/* One request, one answer: whoever else is connected, whatever is warm, whoever drafts, on any
 * kernels and threads, after any restart. Answers are compared with log-probabilities, bit by bit.
 *
 * The first daemon answers every request alone; every later answer of every client of every daemon
 * must be the same. HEARTH_DETERMINISM=N runs each request about N times a configuration (`make
 * determinism`); the short form is part of `make check`. On a build with fault injection drafts are
 * spoilt, pages taken back and passes delayed, and a control shows that an answer which drafts did
 * change would be noticed. */
#include "tests/e2e/harness.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KINDS = 64, CLIENTS = 8, PROMPT_MAX = 400, CONTEXT = 512, GUESSES = 40 };

/* What an answer is, as numbers; shared by all client processes. */
struct outcome {
    uint64_t hash; /* ids, log-probabilities' bits, reason */
    uint32_t n;
    uint32_t guess[GUESSES]; /* its first tokens: a guess that is right */
};

struct shared {
    struct outcome want[KINDS];
    _Atomic uint32_t answers, differences, drafted, accepted, rollbacks;
};

static struct shared *shared;
static struct harness daemon_;
static uint32_t n_vocab;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static uint64_t mix(uint64_t hash, uint32_t value)
{
    return (hash ^ value) * 1099511628211u;
}

/* Prompts that repeat themselves, so that lookup has something to find; lengths from 1 on. */
static uint32_t make_prompt(uint32_t kind, uint32_t *tokens)
{
    static const uint32_t lengths[] = {1, 2, 31, 32, 33, 64, 100, 257, 330, PROMPT_MAX};
    uint32_t state = kind * 7919 + 3, n = lengths[kind % 10], period = 3 + kind % 23;

    for (uint32_t i = 0; i < n; i++)
        tokens[i] =
            i >= period && kind % 4 ? tokens[i - period] : 3 + next_random(&state) % (n_vocab - 3);
    return n;
}

static void make_request(uint32_t kind, uint32_t *state, uint32_t *tokens, struct hearth_request *r)
{
    static const char *const proposers[] = {"auto", "none", "lookup", "client"};

    hearth_request_init(r, sizeof(*r));
    r->tokens = tokens;
    r->n_tokens = make_prompt(kind, tokens);
    r->max_tokens = 1 + kind * 31 % 100;
    r->temperature = kind % 2 ? 0.8f : 0.0f;
    r->top_p = kind % 3 ? 1.0f : 0.9f;
    r->repeat_penalty = kind % 5 ? 1.0f : 1.1f;
    r->seed = kind;
    r->logprobs = kind % 3 == 0 ? 2 : -1;
    /* What may not matter. */
    r->proposer = proposers[next_random(state) % 4];
    r->priority = next_random(state) % 4 ? HEARTH_INTERACTIVE : HEARTH_BATCH;
    if (shared->want[kind].n > 0 && next_random(state) % 2) {
        static uint32_t guess[GUESSES];
        r->n_guess = shared->want[kind].n < GUESSES ? shared->want[kind].n : GUESSES;
        memcpy(guess, shared->want[kind].guess, sizeof(guess));
        if (next_random(state) % 2) /* wrong in one place */
            guess[next_random(state) % r->n_guess] = next_random(state) % n_vocab;
        r->guess = guess;
    }
}

static void take_tokens(const struct hearth_event *event, struct outcome *got)
{
    for (uint32_t i = 0; i < event->n_tokens; i++) {
        if (got->n < GUESSES)
            got->guess[got->n] = event->tokens[i];
        got->n++;
        got->hash = mix(got->hash, event->tokens[i]);
        if (!event->logprobs)
            continue;
        uint32_t bits;
        memcpy(&bits, &event->logprobs[i].picked.logprob, sizeof(bits));
        got->hash = mix(got->hash, bits);
        for (uint32_t k = 0; k < event->logprobs[i].n_top; k++) {
            memcpy(&bits, &event->logprobs[i].top[k].logprob, sizeof(bits));
            got->hash = mix(mix(got->hash, event->logprobs[i].top[k].token), bits);
        }
    }
}

/* Returns false when the connection failed. */
static bool ask(struct hearth *h, uint32_t kind, uint32_t *state, struct outcome *got)
{
    uint32_t tokens[PROMPT_MAX];
    const struct hearth_event *event;
    struct hearth_request request;

    make_request(kind, state, tokens, &request);
    *got = (struct outcome){.hash = 1469598103934665603u};
    if (hearth_submit(h, 0, &request) < 0)
        return false;
    while (hearth_next(h, 0, &event, 60000) > 0) {
        take_tokens(event, got);
        if (event->kind != HEARTH_DONE)
            continue;
        const struct hearth_result *result = event->result;
        got->hash = mix(got->hash, result->reason);
        atomic_fetch_add(&shared->drafted, result->drafted);
        atomic_fetch_add(&shared->accepted, result->accepted_drafts);
        atomic_fetch_add(&shared->rollbacks, result->rollbacks);
        return result->reason != HEARTH_ERROR && result->accepted_drafts <= result->output_tokens &&
               result->accepted_drafts <= result->drafted && result->output_tokens == got->n;
    }
    return false;
}

/* A client: random requests on a cold, a warm or a named slot; now and then one is given up. */
static void client_process(uint32_t seed, uint32_t requests)
{
    uint32_t state = (seed ^ seed >> 7) * 2654435761u; /* neighbouring seeds are no neighbours */
    struct hearth *h = NULL;
    char err[256], name[16];

    for (uint32_t i = 0; i < requests; i++) {
        if (!h || next_random(&state) % 6 == 0) {
            struct hearth_options options;
            hearth_close(h);
            hearth_options_init(&options, sizeof(options));
            snprintf(name, sizeof(name), "slot-%u", seed % CLIENTS);
            options.slot_name = next_random(&state) % 2 ? name : NULL;
            if (hearth_connect(daemon_.socket, &options, &h, err, sizeof(err)) < 0) {
                fprintf(stderr, "connect: %s\n", err);
                _exit(2);
            }
        }
        uint32_t kind = next_random(&state) % KINDS;
        struct outcome got;
        if (next_random(&state) % 10 == 0) { /* superseded by the next one */
            uint32_t tokens[PROMPT_MAX];
            struct hearth_request request;
            make_request(kind, &state, tokens, &request);
            hearth_submit(h, 0, &request);
            continue;
        }
        if (!ask(h, kind, &state, &got)) {
            fprintf(stderr, "kind %u: %s\n", kind, hearth_error(h));
            _exit(2);
        }
        atomic_fetch_add(&shared->answers, 1);
        if (got.hash != shared->want[kind].hash || got.n != shared->want[kind].n)
            atomic_fetch_add(&shared->differences, 1);
    }
    hearth_close(h);
    _exit(0);
}

/* Every request once, by itself: what all later answers are compared with. */
static void get_alone(void)
{
    struct hearth *h = harness_connect(&daemon_, 1, NULL);
    struct hearth_info info = {.size = sizeof(info)};
    uint32_t state = 1;

    ck_assert_int_eq(hearth_info(h, &info), 0);
    n_vocab = info.n_vocab;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        struct outcome got;
        ck_assert_msg(ask(h, kind, &state, &got), "kind %u: %s", kind, hearth_error(h));
        shared->want[kind] = got;
    }
    hearth_close(h);
}

/* Some clients at once on a daemon of this configuration. Returns the differences seen. */
static uint32_t run_clients(const char *const *arguments, uint32_t requests, bool alone_first)
{
    pid_t pids[CLIENTS];
    uint32_t before = atomic_load(&shared->differences);

    harness_start(&daemon_, harness_tiny_model(), arguments);
    if (alone_first)
        get_alone();
    for (uint32_t i = 0; i < CLIENTS; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            client_process((uint32_t)time(NULL) * 100 + i, requests);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        int status;
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "client: status %x", status);
    }
    ck_assert_int_eq(harness_stop(&daemon_), 0);
    return atomic_load(&shared->differences) - before;
}

static uint32_t requests_per_client(void)
{
    const char *rounds = getenv("HEARTH_DETERMINISM");

    return rounds ? (uint32_t)strtoul(rounds, NULL, 10) * KINDS / CLIENTS : 12;
}

/* Does this build take --fault? */
static bool has_faults(void)
{
    char command[4300];

    snprintf(command, sizeof(command), "%s --help | grep -q -- --fault",
             harness_program("hearthd"));
    return system(command) == 0;
}

static void share_memory(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(a_request_has_one_answer)
{
    uint32_t n = requests_per_client(), differences = 0;

    share_memory();
    differences += run_clients(ARGUMENTS("--threads", "1"), n, true);
    differences += run_clients(ARGUMENTS("--threads", "2", "--rows", "40"), n, false);
    differences += run_clients(ARGUMENTS("--isa", "avx2", "--kv-bytes", "1M"), n, false);
    differences += run_clients(ARGUMENTS("--isa", "ref", "--event-loop", "epoll"), n / 3, false);
    printf("ok: %u answers, %u differences, %u drafted, %u accepted, %u rollbacks\n",
           shared->answers, differences, shared->drafted, shared->accepted, shared->rollbacks);
    ck_assert_uint_eq(differences, 0);
    ck_assert_uint_gt(shared->accepted, 0);
    ck_assert_uint_gt(shared->rollbacks, 0);
}
END_TEST

/* Drafts spoilt, pages taken back, passes delayed: rollbacks and evictions in numbers. */
START_TEST(faults_change_no_answer)
{
    uint32_t n = requests_per_client(), differences = 0;

    share_memory();
    differences += run_clients(ARGUMENTS("--threads", "1"), 1, true);
    differences += run_clients(ARGUMENTS("--fault", "draft-mismatch=0.5"), n, false);
    differences += run_clients(
        ARGUMENTS("--fault", "draft-mismatch=0.2,refuse-pages=0.05,delay-pass=0.02"), n, false);
    printf("ok: with faults %u answers, %u differences, %u drafted, %u accepted, %u rollbacks\n",
           shared->answers, differences, shared->drafted, shared->accepted, shared->rollbacks);
    ck_assert_uint_eq(differences, 0);
    ck_assert_uint_gt(shared->rollbacks, 100);
}
END_TEST

/* The control: unverified drafts must be noticed, or this suite sees nothing. */
START_TEST(unverified_drafts_are_noticed)
{
    share_memory();
    run_clients(ARGUMENTS("--threads", "1"), 1, true);
    uint32_t differences =
        run_clients(ARGUMENTS("--fault", "draft-mismatch=0.2,accept-drafts=0.5"), 40, false);
    printf("ok: the control saw %u differences\n", differences);
    ck_assert_uint_gt(differences, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("determinism");
    TCase *tcase = tcase_create("determinism");
    tcase_set_timeout(tcase, 3600);
    tcase_add_test(tcase, a_request_has_one_answer);
    if (has_faults()) {
        tcase_add_test(tcase, faults_change_no_answer);
        tcase_add_test(tcase, unverified_drafts_are_noticed);
    } else {
        puts("skip: this build injects no faults: make determinism has one that does");
    }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
