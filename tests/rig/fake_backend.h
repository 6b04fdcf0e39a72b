/*
 * fake_backend: a device whose answers are a pure function of the tokens, and a judge of its
 * caller.
 *
 * With `fast` it has a fast pass, too: its samples are wrong now and then, and the KV that it
 * writes is marked. A canonical row that reads marked KV aborts the process: a draft's KV was taken
 * for that of an accepted token.
 *
 * Where it has window pages they hold the same words, and a row looks at those of its window: they
 * must be as in the pages.
 *
 * With states it is recurrent: a state is the fold of the tokens before it, and must be what the KV
 * says it is. A state that was not rolled back with the KV, or went back too far, aborts.
 *
 * With `mtp` it has a next-token layer: one more word a position, which canonical passes write, and a
 * pass of that layer reads. A row of it must be told of records that lead to its position.
 *
 * Its KV is one word a position: the token that was written there. A sample folds the KV of
 * positions [0, p] as it finds it in the pages it was given, so a page that was lost, wrongly
 * shared or reused too early gives another token than fake_next() of the same sequence. A pass that
 * breaks the contract of kernels/backend.h aborts the process with one line. Where a row has a
 * mask, the sample is the next allowed id from there on. For tests only; one thread.
 */
#ifndef HEARTH_TESTS_RIG_FAKE_BACKEND_H
#define HEARTH_TESTS_RIG_FAKE_BACKEND_H

#include "kernels/backend.h"

#include <stdbool.h>

enum {
    FAKE_ROWS_MAX = 4096,
    FAKE_CONTROL = 1, /* a token that is not text */
    FAKE_END = 2,     /* the end-of-sequence token */
    FAKE_BYTES = 3,   /* the token of byte b is FAKE_BYTES + b */
    FAKE_VOCAB = 259,
    FAKE_LAYERS = 2,
    FAKE_NEVER = 0xffffffff,
    FAKE_WRONG = FAKE_BYTES + 'Z', /* a wrong sample of a fast pass */
    FAKE_READERS = 0x7fffffff      /* no sequence: the page is only read, by any of them */
};

/* Set in the words of KV that a fast pass wrote. */
#define FAKE_MARK 0x80000000u

/* One state memory: what backend.h says it holds, in place of the caller. */
struct fake_state {
    bool valid;
    uint32_t base, n_records;
    uint64_t folded;                         /* tokens [0, base) */
    uint32_t records[BACKEND_STATE_RECORDS]; /* tokens from there on, marked or not */
    uint64_t written; /* stamp << 32 | sequence of the last pass that wrote it */
    uint64_t read;    /* the same of the last one that read it */
};

struct fake {
    struct backend_limits limits;
    enum backend_fast fast; /* what describe reports; NONE: a fast pass aborts */
    bool mtp;               /* has a next-token layer; needs states */
    uint32_t window;        /* positions, where limits has window pages */

    /* set by a test, at any time between passes */
    uint32_t end_at;           /* the sample of this position is FAKE_END; FAKE_NEVER */
    uint32_t poison;           /* rows from this token on are poisoned; FAKE_NEVER */
    uint32_t wrong;            /* one in `wrong` fast samples is FAKE_WRONG; 0: none */
    bool poison_fast;          /* every row of a fast pass is poisoned */
    int start_error;           /* start returns it; 0 */
    int finish_error;          /* finish returns it; 0 */
    void (*during)(void *arg); /* called while a pass runs, or NULL */
    void *arg;

    /* what the engine asked for in canonical passes ... */
    uint32_t n_passes;
    uint32_t n_released;                /* pages given back */
    uint64_t n_rows, n_samples;         /* of all passes */
    uint32_t last_rows, last_sequences; /* of the last */
    uint32_t last_samples;
    struct row last[FAKE_ROWS_MAX]; /* [last_rows] */
    /* ... and in others */
    uint32_t n_fast_passes, last_fast_rows;
    uint64_t n_fast_rows;

    /* by class: [pages * 32] token + 1, marked or not; 0: zeroed, nothing there */
    uint32_t *kv[PAGE_CLASSES];
    uint32_t *next; /* the same of the next-token layer, in the pages of PAGES_FULL */
    uint64_t *owner[PAGE_CLASSES]; /* [pages] stamp << 32 | sequence of the last use */
    struct fake_state *states;     /* [limits.states] */
    uint32_t n_kept;               /* states that passes kept on their way */
    uint32_t stamp;                /* passes of both kinds */
    uint32_t samples;              /* of the pass being checked */
    uint32_t first;                /* position of the first row of the sequence being checked */
    const struct pass *pass;
    const char *error;
};

extern const struct backend_ops fake_ops;

/* Returns 0 or -ENOMEM; fini in any case. */
int fake_init(struct fake *fake, const struct backend_limits *limits);
void fake_fini(struct fake *fake);

/* fake_ops works on this. */
struct backend *fake_backend(struct fake *fake);

/* The state of tokens [0, n). */
uint64_t fake_fold(const uint32_t *tokens, uint32_t n);

/* What the device samples after tokens [0, n), n >= 1: one of the bytes 'a' .. 'h', or FAKE_END. */
uint32_t fake_next(const struct fake *fake, const uint32_t *tokens, uint32_t n, uint64_t seed);

/* The same of a fast pass: FAKE_WRONG now and then. */
uint32_t fake_fast_next(const struct fake *fake, const uint32_t *tokens, uint32_t n, uint64_t seed);

/* The first of token, token + 1, ... that is allowed; NULL: any is. Aborts where none is. */
uint32_t fake_allowed(uint32_t token, const uint64_t *allowed);

#endif
