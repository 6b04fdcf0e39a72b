/* traffic: the requests of the determinism suite's clients: the same TRAFFIC_KINDS requests over
 * and over, in any order, at a real service's times, with other requests in between.
 *
 * Rounds are drawn by one process and taken, job by job, by clients that it forks; `shared` and
 * `ledger` lie in memory of them all.
 */
#ifndef HEARTH_TESTS_E2E_TRAFFIC_H
#define HEARTH_TESTS_E2E_TRAFFIC_H

#include "client/hearth.h"
#include "tests/e2e/arrivals.h"
#include "tests/e2e/ledger.h"

#include <stdatomic.h>
#include <stdint.h>

enum {
    TRAFFIC_KINDS = LEDGER_REQUESTS,
    TRAFFIC_JOBS = TRAFFIC_KINDS + TRAFFIC_KINDS / 2, /* of a round; a third is not compared */
    TRAFFIC_CONTEXT = 512,
    TRAFFIC_GUESSES = 40,
};

/* The proposers: a name here adds one to every configuration. Of the last two, a shadow needs a type
 * of which it is smaller, and mtp a model with a next-token layer. */
enum { TRAFFIC_NO_PROPOSER = 0, TRAFFIC_SHADOW = 5, TRAFFIC_MTP = 6, TRAFFIC_PROPOSERS };
extern const char *const traffic_proposers[TRAFFIC_PROPOSERS];

struct traffic_job {
    uint32_t kind; /* TRAFFIC_KINDS: company */
    uint32_t proposer;
    struct arrival arrival;
};

/* What all processes share besides the ledger. */
struct traffic_shared {
    uint32_t guess[TRAFFIC_KINDS][TRAFFIC_GUESSES]; /* the first tokens of the right answers */
    uint32_t n_guess[TRAFFIC_KINDS];
    uint64_t alone_ns;                     /* what answering each request alone took */
    struct traffic_job jobs[TRAFFIC_JOBS]; /* [n_jobs] */
    uint32_t n_jobs;
    uint64_t start_ns;
    _Atomic uint32_t next_job;
    _Atomic uint64_t drafted[TRAFFIC_PROPOSERS], accepted[TRAFFIC_PROPOSERS];
    _Atomic uint64_t rollbacks, resumed, company;
};

struct traffic {
    struct traffic_shared *shared;
    struct ledger *ledger;
    const char *socket;
    uint32_t n_vocab;
    uint32_t proposers[TRAFFIC_PROPOSERS], n_proposers; /* that this model has, by their numbers */
    uint32_t every; /* every N-th request is sent, the same ones in all rounds */
    uint32_t turn;  /* rounds so far */
    struct {        /* rows of the ledger */
        uint32_t all, proposer[TRAFFIC_PROPOSERS], cache[3], kernel, threads, state, clients;
        uint32_t sampling[2];
    } row;
};

struct traffic_answer {
    struct ledger_answer answer;
    uint32_t n; /* tokens; the first of them: */
    uint32_t guess[TRAFFIC_GUESSES];
};

/* The fields that determine the answer of a kind; tokens [TRAFFIC_CONTEXT] get its prompt. */
void traffic_request(const struct traffic *t, uint32_t kind, uint32_t *tokens,
                     struct hearth_request *r);

/* Sends a request on slot 0 and checks the counters of the answer. Returns its cache row: 0 cold, 1
 * a part of the prompt was cached, 2 all but a page; -1 without an answer or with wrong
 * counters. */
int traffic_ask(struct traffic *t, struct hearth *h, const struct hearth_request *request,
                uint32_t proposer, struct traffic_answer *got);

/* Draws a round's jobs; its clients may begin. */
void traffic_round(struct traffic *t, uint32_t round, uint32_t seed);

/* A client process: takes jobs until none is left, and exits, with 2 after an error. */
_Noreturn void traffic_client(struct traffic *t, uint32_t number, uint32_t seed);

#endif
