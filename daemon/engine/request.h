/*
 * request: what a client asked of a slot, and the account of its answer.
 *
 * Engine thread only. The raw parameter block is kept as copied: its lists are used in place, and
 * its hash goes into the receipt. Filled by ingest.c, counted by draft.c, unverified.c and verify.c,
 * reported by answer.c.
 */
#ifndef HEARTH_DAEMON_ENGINE_REQUEST_H
#define HEARTH_DAEMON_ENGINE_REQUEST_H

#include "daemon/engine/client.h"
#include "daemon/grammar/grammar.h"
#include "daemon/policy/marks.h"
#include "daemon/policy/stop.h"
#include "daemon/policy/window.h"
#include "ipc/event.h"
#include "ipc/params.h"
#include "kernels/sample/sample.h"

#include <stdbool.h>
#include <stdint.h>

struct grammars_entry;

struct request {
    uint32_t generation;
    uint32_t prompt_length; /* tokens from here on are answer */
    uint32_t length;        /* tokens that came with the request, >= prompt_length when resumed */
    uint32_t limit;         /* the sequence ends at this length: max_tokens and the context */
    bool prewarm;           /* max_tokens is 0: compute the prompt, and that is all */
    bool fast;       /* need not be deterministic, and there are fast passes that may answer it */
    bool unverified; /* one did: no canonical pass has verified the answer */
    bool no_drafts;  /* the model that drafts cannot go on with it */
    bool looked;     /* for its text in the store, as far as it is worthwhile */

    uint8_t *block;       /* [block_bytes] the private copy of the parameter block */
    uint32_t block_bytes; /* reserved for the largest; request_spare gives most of it back */
    struct params params; /* decoded; points into block */
    struct sampler_params sampler;
    struct sample_bias *bias;   /* [PARAMS_BIAS_MAX + n_suppressed] */
    const uint32_t *suppressed; /* [n_suppressed] tokens of the model that are never sampled */
    uint32_t n_suppressed;
    struct stop stop;
    struct stop_text stop_texts[STOP_TEXTS_MAX];
    struct grammars_entry *grammar; /* NULL: none */
    struct marks marks;             /* where the grammar binds, where thoughts end */
    struct marks ahead;             /* the same after the drafts so far */
    struct grammar_run run;         /* where the answer stands in the grammar, once it binds */
    bool constrained;               /* it has a grammar, or a limit of thoughts */
    bool compiled;                  /* the grammar was seen compiled */
    uint32_t mark_token;            /* completed the mark after which the run begins ... */
    uint32_t rest;                  /* ... and how many of its bytes the run has yet to follow */
    uint32_t followed;              /* [length at most] tokens that marks and run have followed */
    int64_t work;                   /* for the run to follow a token (struct constrain) */
    int64_t drafting;               /* what is left of that for the drafts of a window */
    uint64_t masked;                /* the last turn that the slot had at masks (constrain.c) */
    uint64_t caught_up; /* the last turn that the draft model caught up with the slot (draft.c) */
    bool behind;        /* the run has yet to follow all of the last accepted token ... */
    bool stopped;       /* ... which completed a stop */
    uint32_t whole;     /* the most rows that it has needed for its next token (plan_slot) */
    uint64_t *one;      /* a mask of one token, once a thought reached its limit; or NULL */
    uint32_t one_token; /* that one */
    const uint64_t *masks[WINDOW_MAX + 1]; /* of this step, after each draft; NULL: any token */

    /* The account: EVENT_DONE reports it (ipc/layout.h). */
    uint32_t cached, prefix_break, prefix_lost, passes;
    uint32_t stored;  /* of cached: only because the store had it */
    uint32_t reached; /* the furthest that KV came: what lies below counted once */
    uint32_t drafted, accepted_drafts, rollbacks;
    uint32_t rejected; /* drafts that a mismatch took along */
    uint32_t unused;   /* drafts that the end of the answer cut off */
    uint32_t own;      /* tokens of the answer that were not drafted */
    uint64_t submitted_ns, first_row_ns, first_sample_ns;

    /* Why the answer is over, from request_end on. */
    enum done_reason reason;
    int error;        /* of DONE_ERROR, else 0 */
    const char *text; /* the same: one line */
    char line[160];   /* room for it */
};

/* With room for a parameter block of `params_bytes`, or NULL. */
struct request *request_open(uint32_t params_bytes, const uint32_t *suppressed,
                             uint32_t n_suppressed);
void request_close(struct request *request);

/* Gives the memory of a large parameter block, of `used` bytes, back to the system. */
void request_spare(struct request *request, uint32_t used);

/* Did its client void it: cancel it, or write a newer one over it? */
bool request_void(const struct slot *slot);

/* KV has come to position `at`. Returns how much further than ever before that is. */
static inline uint32_t request_reached(struct request *request, uint32_t at)
{
    uint32_t further = at > request->reached ? at - request->reached : 0;
    request->reached += further;
    return further;
}

/* The slot's answer is over: marks it, and answer_ends does the rest in the same step. `error` and
 * `text` go with DONE_ERROR, else 0 and "". */
void request_end(struct slots *slots, struct slot *slot, enum done_reason reason, int error,
                 const char *text);

/* All answers are over, by an error. */
void request_end_all(struct slots *slots, int error, const char *text);

#endif
