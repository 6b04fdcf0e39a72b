/* stored: a daemon with a KV store, and what its answers have to be: those of one without. Failures fail
 * the test. */
#ifndef HEARTH_TESTS_E2E_STORED_H
#define HEARTH_TESTS_E2E_STORED_H

#include "client/hearth.h"
#include "tests/e2e/harness.h"

#include <stdbool.h>

enum { STORED_CONTEXT = 1024 };

/* With log-probabilities: an answer of few tokens may be the same where a page is not. */
struct stored_answer {
    uint32_t ids[STORED_CONTEXT], n;
    float logprobs[STORED_CONTEXT];
};

struct stored_rig {
    char root[64], folder[96]; /* the store is at root/store; both are gone with stored_fini */
    const char *arguments[16]; /* of the daemon, NULL-ended */
    struct harness daemon, plain;
    struct hearth *reference; /* of `plain`, which has no store; NULL until it is asked */
};

/* Starts both: texts of 64 tokens are stored. `more`: further arguments of the daemon with a store, up to 9 and NULL, or
 * NULL. */
void stored_init(struct stored_rig *rig, const char *const *more);
void stored_fini(struct stored_rig *rig);

/* SIGTERM, which must end well. */
void stored_stop(struct stored_rig *rig);
/* Stops it; then starts it and waits. No handle may be open. */
void stored_restart(struct stored_rig *rig);

/* A handle whose requests go on at the next daemon. */
struct hearth *stored_connect(const char *socket);

void stored_submit(struct hearth *h, const uint32_t *tokens, uint32_t n, uint32_t output);

/* Takes an event of the answer; an end is a success. Returns whether it is the end. */
bool stored_take(struct stored_answer *answer, const struct hearth_event *event);

/* Reads to the end, after what was read before: no token may be lost, or come twice. Returns the tokens of the prompt that
 * were read from the store. */
uint32_t stored_finish(struct hearth *h, struct stored_answer *answer);

/* The answer must be that of the daemon without a store. */
void stored_check(struct stored_rig *rig, const uint32_t *tokens, uint32_t n_tokens,
                  uint32_t output, const struct stored_answer *answer);

/* Asks, and checks. Returns the tokens that were read from the store. */
uint32_t stored_ask(struct stored_rig *rig, struct hearth *h, const uint32_t *tokens, uint32_t n);

/* Whether a text is read depends on time: on a busy machine computing it may be faster. Restarts and asks until some of it was read. No
 * handle may be open. */
void stored_expect(struct stored_rig *rig, const uint32_t *tokens, uint32_t n);

/* Tokens of the tiny model. */
void stored_tokens(uint32_t *tokens, uint32_t n, uint32_t seed);

#endif
