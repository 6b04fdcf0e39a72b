/*
 * fake_backend: a device whose answers are a pure function of the tokens, and a judge of its
 * caller.
 *
 * Its KV is one word a position: the token that was written there. A pick folds the KV of positions
 * [0, p] as it finds it in the pages it was given, so a page that was lost, wrongly shared or
 * reused too early gives another token than fake_next() of the same sequence. A pass that breaks
 * the contract of kernels/backend.h aborts the process with one line. For tests only; one thread.
 */
#ifndef HEARTH_TESTS_UNIT_FAKE_BACKEND_H
#define HEARTH_TESTS_UNIT_FAKE_BACKEND_H

#include "kernels/backend.h"

#include <stdbool.h>

enum {
    FAKE_ROWS_MAX = 4096,
    FAKE_END = 2,   /* the end-of-sequence token */
    FAKE_BYTES = 3, /* the token of byte b is FAKE_BYTES + b */
    FAKE_VOCAB = 259,
    FAKE_LAYERS = 2,
    FAKE_NEVER = 0xffffffff,
    FAKE_READERS = 0x7fffffff /* no sequence: the page is only read, by any of them */
};

struct fake {
    struct backend_limits limits;

    /* set by a test, at any time between passes */
    uint32_t end_at;  /* the pick of this position is FAKE_END; FAKE_NEVER */
    uint32_t poison;  /* a row with this token is poisoned, and those behind it; FAKE_NEVER */
    int start_error;  /* start returns it; 0 */
    int finish_error; /* finish returns it; 0 */
    void (*during)(void *arg); /* called while a pass runs, or NULL */
    void *arg;

    /* what the engine asked for */
    uint32_t n_passes;
    uint32_t n_released;                /* pages given back */
    uint64_t n_rows, n_picks;           /* of all passes */
    uint32_t last_rows, last_sequences; /* of the last */
    uint32_t last_picks;
    struct row last[FAKE_ROWS_MAX]; /* [last_rows] */

    uint32_t *kv;    /* [pages * 32] token + 1; 0: zeroed, nothing there */
    uint64_t *owner; /* [pages] n_passes << 32 | sequence: who used the page last */
    uint32_t first;  /* position of the first row of the sequence being checked */
    const struct pass *pass;
    const char *error;
};

extern const struct backend_ops fake_ops;

/* Returns 0 or -ENOMEM; fini in any case. */
int fake_init(struct fake *fake, const struct backend_limits *limits);
void fake_fini(struct fake *fake);

/* fake_ops works on this. */
struct backend *fake_backend(struct fake *fake);

/* What the device picks after tokens [0, n), n >= 1: one of the bytes 'a' .. 'h', or FAKE_END. */
uint32_t fake_next(const struct fake *fake, const uint32_t *tokens, uint32_t n, uint64_t seed);

#endif
