/* traffic: see traffic.h. */
#include "tests/e2e/traffic.h"

#include "ipc/bell.h"
#include "tests/random.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WAIT_MS = 120000, /* sanitizers are slow */
#ifdef __SANITIZE_THREAD__
    SHARE = 4, /* ... this one by far the most: a configuration asks every fourth request */
#else
    SHARE = 1,
#endif
};

const char *const traffic_proposers[TRAFFIC_PROPOSERS] = {"none",  "auto",   "lookup", "client",
                                                          "draft", "shadow", "mtp"};

static uint64_t mix(uint64_t hash, uint32_t value)
{
    return (hash ^ value) * 1099511628211u;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Prompts that repeat themselves, so that prompt lookup finds n-grams; lengths from 1 to the last
 * but one position of the context. */
static uint32_t make_prompt(const struct traffic *t, uint32_t kind, uint32_t *tokens)
{
    static const uint32_t lengths[] = {
        1, 2, 31, 32, 33, 64, 100, 257, 330, 400, 480, 505, TRAFFIC_CONTEXT - 1};
    uint32_t state = kind * 7919 + 3, period = 3 + kind % 23;
    uint32_t n = lengths[kind % (sizeof(lengths) / sizeof(*lengths))];

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i >= period && kind % 4 ? tokens[i - period]
                                            : 3 + next_random(&state) % (t->n_vocab - 3);
    return n;
}

/* The fields that determine the answer. Every seventh one runs to the end of the context. */
void traffic_request(const struct traffic *t, uint32_t kind, uint32_t *tokens,
                     struct hearth_request *r)
{
    hearth_request_init(r, sizeof(*r));
    r->tokens = tokens;
    r->n_tokens = make_prompt(t, kind, tokens);
    r->max_tokens = kind % 7 == 6 ? TRAFFIC_CONTEXT : 1 + kind * 31 % 100;
    r->temperature = kind % 2 ? 0.8f : 0.0f;
    r->top_p = kind % 3 ? 1.0f : 0.9f;
    r->repeat_penalty = kind % 5 ? 1.0f : 1.1f;
    r->seed = kind;
    r->proposer = "none";
    r->logprobs = (int32_t)(kind % 4);
}

/* The fields that must not change it: the proposer, the guess, the class, and whether
 * log-probabilities are requested. */
static void make_circumstances(const struct traffic *t, const struct traffic_job *job,
                               uint32_t *state, struct hearth_request *r)
{
    static uint32_t guess[TRAFFIC_GUESSES];
    uint32_t n = t->shared->n_guess[job->kind];
    bool client = !strcmp(traffic_proposers[job->proposer], "client");

    r->proposer = traffic_proposers[job->proposer];
    r->priority = next_random(state) % 4 ? HEARTH_INTERACTIVE : HEARTH_BATCH;
    if (next_random(state) % 2)
        r->logprobs = -1;
    if (n == 0 || (!client && next_random(state) % 2))
        return;
    memcpy(guess, t->shared->guess[job->kind], sizeof(guess));
    if (next_random(state) % 2) /* wrong in one place */
        guess[next_random(state) % n] = next_random(state) % t->n_vocab;
    r->guess = guess;
    r->n_guess = n;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void take_tokens(const struct hearth_event *event, struct traffic_answer *got)
{
    for (uint32_t i = 0; i < event->n_tokens; i++) {
        if (got->n < TRAFFIC_GUESSES)
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

/* Checks the counters of one answer as far as a client sees them. After a resume they are the last
 * daemon's only. */
static bool is_balanced(const struct hearth_result *r, bool resumed)
{
    uint32_t own = r->output_tokens - r->accepted_drafts;
    bool eos = r->reason == HEARTH_EOS; /* the verifier's sample, but not a token */

    return r->accepted_drafts <= r->output_tokens && r->drafted >= r->accepted_drafts &&
           r->rollbacks <= r->drafted - r->accepted_drafts && r->rollbacks <= own + eos &&
           r->rollbacks <= r->passes && (resumed || own <= r->passes);
}

static uint32_t resumes_of(struct hearth *h)
{
    struct hearth_info info = {.size = sizeof(info)};

    return hearth_info(h, &info) == 0 ? info.resumes : 0;
}

int traffic_ask(struct traffic *t, struct hearth *h, const struct hearth_request *request,
                uint32_t proposer, struct traffic_answer *got)
{
    const struct hearth_event *event;
    uint32_t resumes = resumes_of(h);

    *got = (struct traffic_answer){.answer.output = 1469598103934665603u};
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
        atomic_fetch_add(&t->shared->drafted[proposer], result->drafted);
        atomic_fetch_add(&t->shared->accepted[proposer], result->accepted_drafts);
        atomic_fetch_add(&t->shared->rollbacks, result->rollbacks);
        atomic_fetch_add(&t->shared->resumed, resumed);
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

/* Reconnects now and then: to its own named slot, still warm from its last request, or to any slot.
 * Waits for a daemon that is being restarted. */
static struct hearth *reconnect(const struct traffic *t, struct hearth *h, uint32_t number,
                                uint32_t *state)
{
    struct hearth_options options;
    char err[256], name[16];
    int rc = -1;

    hearth_close(h);
    hearth_options_init(&options, sizeof(options));
    options.resume_ms = WAIT_MS;
    snprintf(name, sizeof(name), "slot-%u", number);
    options.slot_name = next_random(state) % 2 ? name : NULL;
    for (uint64_t start = bell_now_ns(); bell_now_ns() - start < WAIT_MS * 1000000ull;
         usleep(2000)) {
        rc = hearth_connect(t->socket, &options, &h, err, sizeof(err));
        if (rc != -ENOENT && rc != -ECONNREFUSED && rc != -ECONNRESET && rc != -EPIPE)
            break;
    }
    if (rc < 0) {
        fprintf(stderr, "connect: %d %s\n", rc, err);
        _exit(2);
    }
    return h;
}

/* A request whose answer is not compared: its length is from the trace, its beginning often that of
 * a compared one; it is read to its end, cancelled, or superseded. */
static void be_company(struct traffic *t, struct hearth *h, const struct arrival *arrival,
                       uint32_t *state)
{
    uint32_t tokens[TRAFFIC_CONTEXT];
    struct hearth_request r;
    const struct hearth_event *event;

    traffic_request(t, next_random(state) % TRAFFIC_KINDS, tokens, &r);
    uint32_t common = next_random(state) % (r.n_tokens + 1);
    r.n_tokens = arrival->prompt;
    for (uint32_t i = common; i < r.n_tokens; i++)
        tokens[i] = 3 + next_random(state) % (t->n_vocab - 3);
    r.max_tokens = arrival->output;
    r.proposer = traffic_proposers[t->proposers[next_random(state) % t->n_proposers]];
    atomic_fetch_add(&t->shared->company, 1);
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
    for (uint64_t now; (now = bell_now_ns()) < at_ns;)
        usleep((useconds_t)((at_ns - now) / 1000 + 1));
}

_Noreturn void traffic_client(struct traffic *t, uint32_t number, uint32_t seed)
{
    uint32_t state = (seed * 131 + number) * 2654435761u, tokens[TRAFFIC_CONTEXT], i;
    struct hearth *h = NULL;

    while ((i = atomic_fetch_add(&t->shared->next_job, 1)) < t->shared->n_jobs) {
        const struct traffic_job *job = &t->shared->jobs[i];
        struct hearth_request request;
        struct traffic_answer got;
        wait_until(t->shared->start_ns + job->arrival.at_ns);
        if (!h || next_random(&state) % 6 == 0)
            h = reconnect(t, h, number, &state);
        if (job->kind == TRAFFIC_KINDS) {
            be_company(t, h, &job->arrival, &state);
            continue;
        }
        traffic_request(t, job->kind, tokens, &request);
        make_circumstances(t, job, &state, &request);
        int cache = traffic_ask(t, h, &request, job->proposer, &got);
        if (cache < 0) {
            fprintf(stderr, "kind %u: no answer, or a wrong account of it: %s\n", job->kind,
                    hearth_error(h));
            _exit(2);
        }
        const uint32_t rows[] = {t->row.all,          t->row.proposer[job->proposer],
                                 t->row.kernel,       t->row.threads,
                                 t->row.state,        t->row.clients,
                                 t->row.cache[cache], t->row.sampling[job->kind % 2]};
        ledger_add(t->ledger, rows, sizeof(rows) / sizeof(*rows), job->kind, &got.answer);
    }
    hearth_close(h);
    _exit(0);
}

/* ---- when ------------------------------------------------------------------------------------ */

/* Every request once in random order with others in between, at times from the trace: fast enough
 * that requests queue up, slow enough that now and then the daemon is idle. */
void traffic_round(struct traffic *t, uint32_t round, uint32_t seed)
{
    struct arrival arrivals[TRAFFIC_JOBS];
    uint32_t state = seed * 2654435761u;
    uint64_t span_ns = t->shared->alone_ns * (next_random(&state) % 100) / 100;
    uint32_t n = 0, first = t->every * (t->turn++ % SHARE);
    for (uint32_t i = first; i < TRAFFIC_JOBS; i += t->every * SHARE) {
        uint32_t k = next_random(&state) % (n + 1); /* Fisher-Yates, inside out */
        uint32_t chosen = i / t->every;             /* of those that are asked */
        t->shared->jobs[n++] = t->shared->jobs[k];
        t->shared->jobs[k].kind = i < TRAFFIC_KINDS ? i : TRAFFIC_KINDS;
        t->shared->jobs[k].proposer =
            t->proposers[(chosen + chosen / t->n_proposers + round) % t->n_proposers];
    }
    arrivals_fill(arrivals, n, span_ns / (t->every * SHARE), TRAFFIC_CONTEXT - 80,
                  next_random(&state));
    for (uint32_t i = 0; i < n; i++)
        t->shared->jobs[i].arrival = arrivals[i];
    t->shared->n_jobs = n;
    atomic_store(&t->shared->next_job, 0);
    t->shared->start_ns = bell_now_ns();
}
