/* One request, one answer: whoever else is connected, whatever is warm, whoever drafts, on any
 * kernels and threads, after any restart. Answers are compared with log-probabilities, bit by bit.
 *
 * A daemon answers every request alone, without drafts; every later answer of every client of every
 * daemon must be the same. In a round each request is asked once more, in an order, by a number of
 * clients (1 to 32) and at times that the round draws; other requests of a real service's lengths
 * go in between, some of them given up. HEARTH_DETERMINISM=N runs N rounds a configuration (`make
 * determinism`), HEARTH_DETERMINISM_EVERY=N asks every N-th request only, HEARTH_DETERMINISM_TYPE=NAME takes a model of another type than Q8_0, _KV=q8_0 other
 * KV, and _DEVICE=cuda runs the configurations without kernels of their own on a GPU, whose answers
 * are the CPU's; the short form is part of `make check`. On a build with fault injection drafts are
 * spoilt, pages taken back and passes delayed, and a control shows that an answer which drafts did
 * change would be noticed. */
#include "kernels/kv.h"
#include "kernels/quant_types.h"
#include "tests/e2e/arrivals.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/ledger.h"
#include "tests/random.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    KINDS = LEDGER_REQUESTS,
    OTHERS = KINDS / 2, /* requests of a round that are only company */
    JOBS = KINDS + OTHERS,
    CLIENTS_MAX = 32,
    CONTEXT = 512,
    GUESSES = 40,
    WAIT_MS = 120000, /* sanitizers are slow */
#ifdef __SANITIZE_THREAD__
    SHARE = 4, /* ... this one by far the most: a configuration asks every fourth request */
#else
    SHARE = 1,
#endif
};

/* Who drafts: one word a proposer, and it takes part everywhere. The last one only where the type
 * leaves a shadow room to be smaller. */
static const char *const proposers[] = {"none", "auto", "lookup", "client", "draft", "shadow"};
enum { PROPOSER_NONE = 0, PROPOSERS = sizeof(proposers) / sizeof(*proposers) };

/* How a daemon is run. */
struct configuration {
    const char *isa; /* NULL: the fastest there is */
    const char *threads;
    const char *state;   /* what else is special, for the table */
    const char *more[4]; /* further arguments */
    const char *fault;   /* needs a build that injects faults */
    bool restarts;       /* the daemon is killed in every round */
};

static char few_pages[16]; /* bytes of two whole contexts, the model's and the draft model's */

static const struct configuration configurations[] = {
    {"ref", "1", "none", {0}, NULL, false},
    {"ref", "2", "none", {0}, NULL, false},
    {"avx2", "1", "none", {0}, NULL, false},
    {"avx2", "2", "none", {0}, NULL, false},
    {"avxvnni", "1", "none", {0}, NULL, false},
    {"avxvnni", "2", "none", {0}, NULL, false},
    {"avx512", "1", "none", {0}, NULL, false},
    {"avx512", "2", "none", {0}, NULL, false},
    {NULL, "2", "few pages and rows", {"--kv-bytes", few_pages, "--rows", "40"}, NULL, false},
    {NULL, "1", "epoll, no linger", {"--event-loop", "epoll", "--linger-us", "0"}, NULL, false},
    {NULL, "2", "daemon killed", {0}, NULL, true},
};

static const struct configuration faulty[] = {
    {NULL, "2", "mismatch 0.5", {0}, "draft-mismatch=0.5", false},
    {"ref", "1", "mismatch 0.5", {0}, "draft-mismatch=0.5", false},
    {NULL,
     "1",
     "mismatch, pages, delays",
     {0},
     "draft-mismatch=0.2,refuse-pages=0.05,delay-pass=0.02",
     false},
    {NULL, "2", "mismatch, killed", {0}, "draft-mismatch=0.5", true},
};

static const struct configuration control = {
    NULL, "2", "control", {0}, "draft-mismatch=0.2,accept-drafts=0.5", false};

struct job {
    uint32_t kind; /* KINDS: company */
    uint32_t proposer;
    struct arrival arrival;
};

/* What all processes share besides the ledger. */
struct shared {
    uint32_t guess[KINDS][GUESSES]; /* the first tokens of the right answers */
    uint32_t n_guess[KINDS];
    uint64_t alone_ns;     /* what answering each request alone took */
    struct job jobs[JOBS]; /* [n_jobs] */
    uint32_t n_jobs;
    uint64_t start_ns;
    _Atomic uint32_t next_job;
    _Atomic uint64_t drafted[PROPOSERS], accepted[PROPOSERS], rollbacks, resumed, company;
};

static struct ledger *ledger;
static struct shared *shared;
static struct harness daemon_;
static uint32_t n_vocab;
static uint64_t evictions; /* pages taken back, over all daemons that ended by themselves */
static char best_isa[16];
static const char *model;
static uint32_t n_proposers; /* that this model has */
static uint32_t every = 1;   /* which requests are asked: every N-th, the same in all rounds */

static struct { /* rows of the ledger */
    uint32_t all, proposer[PROPOSERS], cache[3], kernel, threads, state, clients, sampling[2];
} row;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t mix(uint64_t hash, uint32_t value)
{
    return (hash ^ value) * 1099511628211u;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Prompts that repeat themselves, so that lookup has something to find; lengths from 1 to the
 * context's last but one position. */
static uint32_t make_prompt(uint32_t kind, uint32_t *tokens)
{
    static const uint32_t lengths[] = {1,   2,   31,  32,  33,  64,         100,
                                       257, 330, 400, 480, 505, CONTEXT - 1};
    uint32_t state = kind * 7919 + 3, period = 3 + kind % 23;
    uint32_t n = lengths[kind % (sizeof(lengths) / sizeof(*lengths))];

    for (uint32_t i = 0; i < n; i++)
        tokens[i] =
            i >= period && kind % 4 ? tokens[i - period] : 3 + next_random(&state) % (n_vocab - 3);
    return n;
}

/* What makes the answer. Every seventh one runs to the end of the context. */
static void make_request(uint32_t kind, uint32_t *tokens, struct hearth_request *r)
{
    hearth_request_init(r, sizeof(*r));
    r->tokens = tokens;
    r->n_tokens = make_prompt(kind, tokens);
    r->max_tokens = kind % 7 == 6 ? CONTEXT : 1 + kind * 31 % 100;
    r->temperature = kind % 2 ? 0.8f : 0.0f;
    r->top_p = kind % 3 ? 1.0f : 0.9f;
    r->repeat_penalty = kind % 5 ? 1.0f : 1.1f;
    r->seed = kind;
    r->proposer = "none";
    r->logprobs = (int32_t)(kind % 4);
}

/* What may not matter to it: who drafts, from which guess, in which class, and whether
 * log-probabilities come along. */
static void make_circumstances(const struct job *job, uint32_t *state, struct hearth_request *r)
{
    static uint32_t guess[GUESSES];
    uint32_t n = shared->n_guess[job->kind];
    bool client = !strcmp(proposers[job->proposer], "client");

    r->proposer = proposers[job->proposer];
    r->priority = next_random(state) % 4 ? HEARTH_INTERACTIVE : HEARTH_BATCH;
    if (next_random(state) % 2)
        r->logprobs = -1;
    if (n == 0 || (!client && next_random(state) % 2))
        return;
    memcpy(guess, shared->guess[job->kind], sizeof(guess));
    if (next_random(state) % 2) /* wrong in one place */
        guess[next_random(state) % n] = next_random(state) % n_vocab;
    r->guess = guess;
    r->n_guess = n;
}

/* ---- answers --------------------------------------------------------------------------------- */

struct got {
    struct ledger_answer answer;
    uint32_t n;
    uint32_t guess[GUESSES];
};

static void take_tokens(const struct hearth_event *event, struct got *got)
{
    for (uint32_t i = 0; i < event->n_tokens; i++) {
        if (got->n < GUESSES)
            got->guess[got->n] = event->tokens[i];
        got->n++;
        got->answer.output = mix(got->answer.output, event->tokens[i]);
        if (!event->logprobs)
            continue;
        const struct hearth_token_logprobs *l = &event->logprobs[i];
        uint32_t bits;
        memcpy(&bits, &l->picked.logprob, sizeof(bits));
        got->answer.logprobs = mix(got->answer.logprobs, bits);
        for (uint32_t k = 0; k < l->n_top; k++) {
            memcpy(&bits, &l->top[k].logprob, sizeof(bits));
            got->answer.logprobs = mix(mix(got->answer.logprobs, l->top[k].token), bits);
        }
    }
}

/* The account of one answer, as far as a client can see it. After a resume it is the last daemon's
 * alone. */
static bool is_balanced(const struct hearth_result *r, bool resumed)
{
    uint32_t own = r->output_tokens - r->accepted_drafts;
    bool eos = r->reason == HEARTH_EOS; /* the verifier's pick, and no token */

    return r->accepted_drafts <= r->output_tokens && r->drafted >= r->accepted_drafts &&
           r->rollbacks <= r->drafted - r->accepted_drafts && r->rollbacks <= own + eos &&
           r->rollbacks <= r->passes && (resumed || own <= r->passes);
}

static uint32_t resumes_of(struct hearth *h)
{
    struct hearth_info info = {.size = sizeof(info)};

    return hearth_info(h, &info) == 0 ? info.resumes : 0;
}

/* Returns the cache row of the answer, -1 when there was none. */
static int ask(struct hearth *h, const struct hearth_request *request, uint32_t proposer,
               struct got *got)
{
    const struct hearth_event *event;
    uint32_t resumes = resumes_of(h);

    *got = (struct got){.answer.output = 1469598103934665603u};
    got->answer.logprobs = request->logprobs >= 0 ? 1469598103934665603u : 0;
    if (hearth_submit(h, 0, request) < 0)
        return -1;
    while (hearth_next(h, 0, &event, WAIT_MS) > 0) {
        if (event->kind != HEARTH_PROGRESS && event->position != request->n_tokens + got->n)
            break;
        take_tokens(event, got);
        if (event->kind != HEARTH_DONE)
            continue;
        const struct hearth_result *result = event->result;
        bool resumed = resumes_of(h) != resumes;
        got->answer.output = mix(got->answer.output, result->reason);
        atomic_fetch_add(&shared->drafted[proposer], result->drafted);
        atomic_fetch_add(&shared->accepted[proposer], result->accepted_drafts);
        atomic_fetch_add(&shared->rollbacks, result->rollbacks);
        atomic_fetch_add(&shared->resumed, resumed);
        if (result->reason == HEARTH_ERROR || result->output_tokens != got->n ||
            !is_balanced(result, resumed))
            break;
        return result->cached_tokens == 0                           ? 0
               : result->cached_tokens + 32 < result->prompt_tokens ? 1
                                                                    : 2;
    }
    return -1;
}

/* ---- clients --------------------------------------------------------------------------------- */

/* Connects anew now and then: to a slot of its own name, which its last request left warm, or to
 * any. A daemon that is being restarted is waited for. */
static struct hearth *reconnect(struct hearth *h, uint32_t number, uint32_t *state)
{
    struct hearth_options options;
    char err[256], name[16];
    int rc = -1;

    hearth_close(h);
    hearth_options_init(&options, sizeof(options));
    options.resume_ms = WAIT_MS;
    snprintf(name, sizeof(name), "slot-%u", number);
    options.slot_name = next_random(state) % 2 ? name : NULL;
    for (uint64_t start = now_ns(); now_ns() - start < WAIT_MS * 1000000ull; usleep(2000)) {
        rc = hearth_connect(daemon_.socket, &options, &h, err, sizeof(err));
        if (rc != -ENOENT && rc != -ECONNREFUSED && rc != -ECONNRESET && rc != -EPIPE)
            break;
    }
    if (rc < 0) {
        fprintf(stderr, "connect: %d %s\n", rc, err);
        _exit(2);
    }
    return h;
}

/* A request whose answer nobody compares: of a length that the service saw, often with the
 * beginning of one that is compared; read to its end, cancelled, or given up for the next one. */
static void be_company(struct hearth *h, const struct arrival *arrival, uint32_t *state)
{
    uint32_t tokens[CONTEXT];
    struct hearth_request r;
    const struct hearth_event *event;

    make_request(next_random(state) % KINDS, tokens, &r);
    uint32_t common = next_random(state) % (r.n_tokens + 1);
    r.n_tokens = arrival->prompt;
    for (uint32_t i = common; i < r.n_tokens; i++)
        tokens[i] = 3 + next_random(state) % (n_vocab - 3);
    r.max_tokens = arrival->output;
    r.proposer = proposers[next_random(state) % n_proposers];
    atomic_fetch_add(&shared->company, 1);
    if (hearth_submit(h, 0, &r) < 0) {
        fprintf(stderr, "company: %s\n", hearth_error(h));
        _exit(2);
    }
    uint32_t dice = next_random(state) % 4;
    for (uint32_t n = 0; dice != 0 && hearth_next(h, 0, &event, WAIT_MS) > 0; n++) {
        if (event->kind == HEARTH_DONE)
            return;
        if (dice == 1 && n == 1)
            hearth_cancel(h, 0);
    }
}

static void wait_until(uint64_t at_ns)
{
    for (uint64_t now; (now = now_ns()) < at_ns;)
        usleep((useconds_t)((at_ns - now) / 1000 + 1));
}

/* Takes jobs in the order of their arrival until there is none. */
static void client_process(uint32_t number, uint32_t seed)
{
    uint32_t state = (seed * 131 + number) * 2654435761u, tokens[CONTEXT], i;
    struct hearth *h = NULL;

    while ((i = atomic_fetch_add(&shared->next_job, 1)) < shared->n_jobs) {
        const struct job *job = &shared->jobs[i];
        struct hearth_request request;
        struct got got;
        wait_until(shared->start_ns + job->arrival.at_ns);
        if (!h || next_random(&state) % 6 == 0)
            h = reconnect(h, number, &state);
        if (job->kind == KINDS) {
            be_company(h, &job->arrival, &state);
            continue;
        }
        make_request(job->kind, tokens, &request);
        make_circumstances(job, &state, &request);
        int cache = ask(h, &request, job->proposer, &got);
        if (cache < 0) {
            fprintf(stderr, "kind %u: no answer, or a wrong account of it: %s\n", job->kind,
                    hearth_error(h));
            _exit(2);
        }
        const uint32_t rows[] = {row.all,          row.proposer[job->proposer],
                                 row.kernel,       row.threads,
                                 row.state,        row.clients,
                                 row.cache[cache], row.sampling[job->kind % 2]};
        ledger_add(ledger, rows, sizeof(rows) / sizeof(*rows), job->kind, &got.answer);
    }
    hearth_close(h);
    _exit(0);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Every request once in random order, company in between, times as a service saw them: fast enough
 * that requests pile up, slow enough that now and then none is there. */
static void make_jobs(uint32_t round, uint32_t seed)
{
    struct arrival arrivals[JOBS];
    uint32_t state = seed * 2654435761u;
    uint64_t span_ns = shared->alone_ns * (next_random(&state) % 100) / 100;
    static uint32_t turn;

    uint32_t n = 0, first = every * (turn++ % SHARE);
    for (uint32_t i = first; i < JOBS; i += every * SHARE) {
        uint32_t k = next_random(&state) % (n + 1); /* Fisher-Yates, inside out */
        shared->jobs[n++] = shared->jobs[k];
        shared->jobs[k].kind = i < KINDS ? i : KINDS;
        shared->jobs[k].proposer = (i + i / n_proposers + round) % n_proposers;
    }
    arrivals_fill(arrivals, n, span_ns / (every * SHARE), CONTEXT - 80, next_random(&state));
    for (uint32_t i = 0; i < n; i++)
        shared->jobs[i].arrival = arrivals[i];
    shared->n_jobs = n;
    atomic_store(&shared->next_job, 0);
    shared->start_ns = now_ns();
}

static void run_round(uint32_t round, uint32_t seed, const char *const *restart)
{
    pid_t pids[CLIENTS_MAX];
    uint32_t state = seed, dice = next_random(&state) % 3;
    uint32_t n = dice == 0 ? 1 : 2 + next_random(&state) % (dice == 1 ? 7 : CLIENTS_MAX - 1);

    row.clients = ledger_row(ledger, "clients", n == 1 ? "1" : n < 9 ? "2 to 8" : "9 to 32");
    make_jobs(round, seed);
    for (uint32_t i = 0; i < n; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i] == 0)
            client_process(i, seed);
    }
    if (restart) {
        uint32_t when = 1 + next_random(&state) % (shared->n_jobs / 2);
        while (atomic_load(&shared->next_job) < when)
            usleep(200);
        harness_kill(&daemon_);
        harness_restart(&daemon_, model, restart);
    }
    for (uint32_t i = 0; i < n; i++) {
        int status;
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                      "round %u, seed %u, client %u: status %x", round, seed, i, status);
    }
}

/* What a daemon must look like when its clients are gone. */
static void check_rest(void)
{
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    ck_assert_int_eq(harness_counter(&daemon_, "rescans_found"), 0);
    ck_assert_int_eq(harness_counter(&daemon_, "protocol_errors"), 0);
    harness_check_drafts(&daemon_);
    evictions += (uint64_t)harness_counter(&daemon_, "evictions");
}

static uint32_t wanted_rounds(void)
{
    const char *rounds = getenv("HEARTH_DETERMINISM");

    return rounds ? (uint32_t)strtoul(rounds, NULL, 10) : 1;
}

/* 0 and nonsense are all of them. */
static uint32_t wanted_every(void)
{
    const char *of = getenv("HEARTH_DETERMINISM_EVERY");
    unsigned long n = of ? strtoul(of, NULL, 10) : 1;

    return n >= 1 && n <= KINDS ? (uint32_t)n : 1;
}

static const char *kv_type(void)
{
    const char *type = getenv("HEARTH_DETERMINISM_KV");

    return type ? type : "f16";
}

static const char *device(void)
{
    const char *name = getenv("HEARTH_DETERMINISM_DEVICE");

    return name ? name : "cpu";
}

/* Kernels that a configuration does not name are those of the GPU, where one was asked for. */
static bool on_device(const struct configuration *c)
{
    return !c->isa && !strcmp(device(), "cuda");
}

static void run_configuration(const struct configuration *c, uint32_t rounds)
{
    const char *isa = c->isa ? c->isa : on_device(c) ? "cuda" : best_isa, *arguments[22];
    uint32_t n = 0, seed = (uint32_t)now_ns();

    arguments[n++] = on_device(c) ? "--device" : "--isa";
    arguments[n++] = isa;
    arguments[n++] = "--threads";
    arguments[n++] = c->threads;
    arguments[n++] = "--kv-type";
    arguments[n++] = kv_type();
    arguments[n++] = "--draft";
    arguments[n++] = model;
    arguments[n++] = "--shadow";
    arguments[n++] = n_proposers == PROPOSERS ? "yes" : "no";
    for (uint32_t i = 0; i < 4 && c->more[i]; i++)
        arguments[n++] = c->more[i];
    if (c->fault) {
        arguments[n++] = "--fault";
        arguments[n++] = c->fault;
    }
    arguments[n] = NULL;
    row.kernel = ledger_row(ledger, "kernels", isa);
    row.threads = ledger_row(ledger, "threads", c->threads);
    row.state = ledger_row(ledger, "faults", c->state);
    harness_start(&daemon_, model, arguments);
    for (uint32_t round = 0; round < rounds; round++)
        run_round(round, seed + round * 7919, c->restarts ? arguments : NULL);
    check_rest();
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}

/* Would a daemon start with this option? */
static bool accepts(const char *option, const char *value)
{
    struct harness_output o = harness_run_hearthd(
        (const char *const[]){"--check", "--model", model, option, value, NULL});
    bool does = o.code == 0;

    ck_assert_msg(does || o.code == 65, "--check %s %s: %d %s", option, value, o.code, o.error);
    harness_output_fini(&o);
    return does;
}

static void run_configurations(const struct configuration *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!c[i].isa || accepts("--isa", c[i].isa))
            run_configuration(&c[i], wanted_rounds());
        else
            printf("skip: the kernels %s do not run on this machine\n", c[i].isa);
    }
}

/* Every request once, by itself and without drafts: what all later answers are compared with. */
static void get_alone(void)
{
    struct hearth_info info = {.size = sizeof(info)};
    uint32_t tokens[CONTEXT];

    harness_start(&daemon_, model,
                  (const char *const[]){"--threads", "1", "--kv-type", kv_type(), NULL});
    struct hearth *h = harness_connect(&daemon_, 1, NULL);
    ck_assert_int_eq(hearth_info(h, &info), 0);
    ck_assert_uint_eq(info.context, CONTEXT);
    n_vocab = info.n_vocab;
    shared->alone_ns = now_ns();
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        struct hearth_request request;
        struct got got;
        make_request(kind, tokens, &request);
        ck_assert_msg(ask(h, &request, PROPOSER_NONE, &got) >= 0, "kind %u: %s", kind,
                      hearth_error(h));
        ledger->alone[kind] = got.answer;
        shared->n_guess[kind] = got.n < GUESSES ? got.n : GUESSES;
        memcpy(shared->guess[kind], got.guess, sizeof(got.guess));
    }
    shared->alone_ns = now_ns() - shared->alone_ns;
    hearth_close(h);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}

/* The type that was asked for, Q8_0 else. */
static uint32_t wanted_type(void)
{
    static const uint32_t types[] = {QUANT_F32,  QUANT_F16,  QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0,
                                     QUANT_Q5_0, QUANT_Q5_1, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K};
    const char *name = getenv("HEARTH_DETERMINISM_TYPE");

    for (size_t i = 0; name && i < sizeof(types) / sizeof(*types); i++)
        if (!strcmp(quant_name(types[i]), name))
            return types[i];
    ck_assert_msg(!name, "HEARTH_DETERMINISM_TYPE=%s: no such type", name);
    return QUANT_Q8_0;
}

static void prepare(void)
{
    static const char *const isas[] = {"ref", "avx2", "avxvnni", "avx512"};
    static const char *const caches[] = {"cold", "part of the prompt", "all but a page"};
    static const char *const samplings[] = {"greedy", "temperature 0.8"};

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    every = wanted_every();
    model = harness_tiny_model_of(wanted_type());
    struct tiny_model shape = tiny_model_default(wanted_type());
    struct kv_geometry kv;
    kv_geometry_set(&kv, shape.n_layer, shape.n_head_kv, shape.n_embd / shape.n_head,
                    !strcmp(kv_type(), "q8_0") ? KV_Q8_0
                    : shape.type == QUANT_F32  ? KV_F32
                                               : KV_F16);
    snprintf(few_pages, sizeof(few_pages), "%zu", 2 * 2 * kv_pages(CONTEXT) * kv.page_bytes);
    n_proposers =
        strcmp(device(), "cuda") && accepts("--shadow", "yes") ? PROPOSERS : PROPOSERS - 1;
    for (uint32_t i = 0; i < sizeof(isas) / sizeof(*isas); i++)
        if (accepts("--isa", isas[i]))
            snprintf(best_isa, sizeof(best_isa), "%s", isas[i]);
    row.all = ledger_row(ledger, "all", "");
    for (uint32_t i = 0; i < PROPOSERS; i++)
        row.proposer[i] = ledger_row(ledger, "proposer", proposers[i]);
    for (uint32_t i = 0; i < 3; i++)
        row.cache[i] = ledger_row(ledger, "cache", caches[i]);
    for (uint32_t i = 0; i < 2; i++)
        row.sampling[i] = ledger_row(ledger, "sampling", samplings[i]);
    get_alone();
}

static uint64_t sum(const _Atomic uint64_t *of_proposer)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < PROPOSERS; i++)
        all += of_proposer[i];
    return all;
}

static void say(const char *what)
{
    const struct ledger_row *all = &ledger->rows[row.all];

    printf("ok: %s%s: %llu answers to %u requests, each %u at least, at most %u different; company "
           "%llu, resumed %llu; "
           "drafts %llu, accepted %llu, rollbacks %llu; pages taken back %llu; arrivals: %s\n",
           what, quant_name(wanted_type()), (unsigned long long)ledger_answers(all),
           ledger_asked(all), ledger_least(all), ledger_distinct(all),
           (unsigned long long)shared->company, (unsigned long long)shared->resumed,
           (unsigned long long)sum(shared->drafted), (unsigned long long)sum(shared->accepted),
           (unsigned long long)shared->rollbacks, (unsigned long long)evictions, arrivals_source());
    for (uint32_t i = 0; i < PROPOSERS; i++)
        printf("    %-8s drafts %9llu, accepted %9llu\n", proposers[i],
               (unsigned long long)shared->drafted[i], (unsigned long long)shared->accepted[i]);
}

/* What the suite means to try did happen: else one answer each would say little. */
static void check_tried(void)
{
    for (uint32_t i = 0; i < n_proposers; i++) {
        bool drafts = i != PROPOSER_NONE;
        ck_assert_msg((shared->drafted[i] > 0) == drafts && (shared->accepted[i] > 0) == drafts,
                      "proposer %s: drafts %llu, accepted %llu", proposers[i],
                      (unsigned long long)shared->drafted[i],
                      (unsigned long long)shared->accepted[i]);
    }
    ck_assert_uint_gt(shared->rollbacks, 0);
    if (wanted_rounds() < 8)
        return; /* a round may be that of one client, whose kill hits no answer */
    ck_assert_uint_gt(evictions, 0);
    ck_assert_uint_gt(shared->resumed, 0);
}

static void check_one_answer(void)
{
    for (uint32_t i = 0; i < ledger->n_rows; i++)
        ck_assert_msg(ledger_answers(&ledger->rows[i]) == 0 ||
                          ledger_distinct(&ledger->rows[i]) == 1,
                      "%s %s: %u different answers to one request", ledger->rows[i].group,
                      ledger->rows[i].name, ledger_distinct(&ledger->rows[i]));
}

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

START_TEST(a_request_has_one_answer)
{
    prepare();
    run_configurations(configurations, COUNT(configurations));
    say("");
    check_one_answer();
    ck_assert_uint_eq(ledger_asked(&ledger->rows[row.all]), (KINDS + every - 1) / every);
    ck_assert_uint_ge(ledger_least(&ledger->rows[row.all]), wanted_rounds());
    ck_assert_uint_gt(ledger_answers(&ledger->rows[row.cache[0]]), 0);
    ck_assert_uint_gt(ledger_answers(&ledger->rows[row.cache[1]]) +
                          ledger_answers(&ledger->rows[row.cache[2]]),
                      0);
    check_tried();
}
END_TEST

/* Drafts spoilt, pages taken back, passes delayed: rollbacks and evictions in numbers. */
START_TEST(faults_change_no_answer)
{
    prepare();
    run_configurations(faulty, COUNT(faulty));
    say("with faults ");
    check_one_answer();
    check_tried();
    ck_assert_uint_gt(shared->rollbacks, 100);
}
END_TEST

/* The control: unverified drafts must be noticed, or this suite sees nothing. */
START_TEST(unverified_drafts_are_noticed)
{
    ledger = ledger_open(); /* what it finds is not for the table */
    prepare();
    every = 1;
    run_configuration(&control, 1);
    uint32_t differing = ledger_differing(&ledger->rows[row.all]);
    printf("ok: the control saw %u of %d requests with another output\n", differing, KINDS);
    ck_assert_uint_gt(differing, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("determinism");
    TCase *tcase = tcase_create("determinism");
    tcase_set_timeout(tcase, 36000);
    tcase_add_test(tcase, a_request_has_one_answer);
    if (harness_has_faults()) {
        tcase_add_test(tcase, faults_change_no_answer);
        tcase_add_test(tcase, unverified_drafts_are_noticed);
    } else {
        puts("skip: this build injects no faults: make determinism has one that does");
    }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    ledger = ledger_open();
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    ledger_print(ledger);
    return failed != 0;
}
