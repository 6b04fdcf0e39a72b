/*
 * batch: one pass: which slots have how many rows in it, and what came out. And the lists that a
 * step begins with.
 *
 * Engine thread; one, used by every pass of a step in turn. Its memory is taken once, from the
 * limits. It knows no pages and no clock.
 */
#ifndef HEARTH_DAEMON_ENGINE_BATCH_H
#define HEARTH_DAEMON_ENGINE_BATCH_H

#include "daemon/cache/slot.h"
#include "daemon/policy/plan.h"
#include "ipc/layout.h"
#include "kernels/backend.h"

/* What one slot has in a pass. */
struct batch_slot {
    struct slot *slot;
    uint32_t take; /* rows; 0: it was evicted while the pass was planned */
    uint32_t row;  /* the first of them */
    bool brief;    /* they are of a short prompt (gather) */

    /* what came out of a canonical pass (settle) */
    uint32_t window;   /* of its rows, the last ones that sample; 0: its prompt goes on */
    uint32_t poisoned; /* the first row with a value that is not finite; take: none */

    /* what is to be published */
    uint32_t from;                    /* its tokens from here on are new */
    const struct row_result *samples; /* [accepted - from] */
    enum down_state progress;         /* DOWN_IDLE: nothing to tell */
};

struct batch {
    /* of a step, in the order of slots: which kind of pass has the next token of each */
    struct slot **verified;   /* [n_verified] a canonical one */
    struct slot **unverified; /* [n_unverified] a fast one, whose tokens are the answer */
    uint32_t n_verified, n_unverified;
    uint32_t n_decoding;    /* of the verified, those that go on */
    uint32_t fast_rows;     /* rows that the unverified had */
    bool fast_interactive;  /* some of these rows are of an interactive request */
    bool prefills;          /* some slot that goes on has no first token yet */
    struct plan_turn turns; /* of canonical passes */
    struct plan_turn fast_turns;

    /* of a pass that is planned: slots that could have rows */
    struct plan_slot *plan;   /* [n slots] */
    struct slot **candidates; /* [n slots] in the order of `plan` */
    uint32_t long_rows;       /* of long prompts (plan_is_long) */
    uint32_t short_rows;      /* of short ones */
    bool answering;           /* an answer is being read meanwhile (plan_budget) */
    int64_t look;             /* for slots that adopt pages (slot_adopt_within) */
    uint32_t looked;          /* number of the last slot that had some of it */

    /* of a pass that is built and run */
    struct batch_slot *slots;        /* [n_slots] */
    struct pass_sequence *sequences; /* [n_slots] */
    struct row *rows;                /* [n_rows] */
    struct row_result *results;      /* [n_rows] */
    uint32_t n_slots, n_rows;
    uint64_t start_ns, end_ns; /* of a canonical one */

    uint32_t most_rows, most_samples; /* of a canonical one */
};

/* Passes of at most `limits` for `n_slots`. Returns 0 or -ENOMEM; call batch_fini either way. */
int batch_init(struct batch *batch, uint32_t n_slots, const struct backend_limits *limits);
void batch_fini(struct batch *batch);

/* An empty pass. */
static inline void batch_clear(struct batch *batch)
{
    batch->n_slots = batch->n_rows = 0;
}

/* Adds a slot to the pass, with `take` rows. */
void batch_add(struct batch *batch, struct slot *slot, uint32_t take);

/* Interactive before batch, older before newer: the order in which slots may take pages. */
void batch_sort(struct batch *batch);

/* The slot lost its pages: what was planned for it began at a position that is lost. */
void batch_drop(struct batch *batch, const struct slot *slot);

/* The rows of the pass's slot number `i`: from position `from` on, written to `pages`; those from
 * position `sampled` on sample, with the slot's masks where its answer follows a grammar. */
void batch_rows(struct batch *batch, uint32_t i, uint32_t from, uint32_t sampled,
                const uint32_t *pages, const struct sampler_params *sampler);

/* Runs it. Returns 0 or -errno: the backend broke. */
int batch_run(struct batch *batch, const struct backend_ops *ops, struct backend *backend,
              enum pass_kind kind);

#endif
