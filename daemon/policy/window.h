/*
 * window: how many tokens to draft, from how many were accepted lately and what rows cost.
 *
 * Pure but for the numbers it keeps: no clock, no tokens. `window` belongs to a slot, `window_cost`
 * to the engine. Nothing here changes an answer: only how soon it is there.
 *
 * With acceptance p a window of w drafts gives E(w) = 1 + p + p^2 + .. + p^w tokens on the average,
 * the verifier's own included. A pass with w more rows takes T + w * S. Beside it, others - 1 slots
 * get one token each from the same pass. So the best w has the most (others - 1 + E(w)) / (T + w *
 * S), and w = 0 is taken unless another one promises WINDOW_GAIN.
 *
 * A model that drafts (drafter) takes a pass of its own for each draft, which all slots that draft
 * share: D. Slots that draft fill their windows side by side; a canonical pass that is due for
 * any slot takes all drafts along. So n slots that all draft w tokens take T + w * D + n * w
 * * S for n * E(w) tokens, and beside one slot that does not draft there is a pass in every step,
 * which leaves room for one draft. */
#ifndef HEARTH_DAEMON_POLICY_WINDOW_H
#define HEARTH_DAEMON_POLICY_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WINDOW_MAX = 12,   /* most drafts at once */
    WINDOW_PROBE = 96, /* passes without a draft after which one is tried again */
};

struct window {
    float acceptance; /* p, smoothed over verified drafts */
    uint32_t unused;  /* passes since the last draft */
};

struct window_cost {
    float pass_ns; /* T: a pass that only decodes, one row a slot, smoothed; 0: not known yet */
    float row_ns;  /* S: what one more row of a window adds to it; 0: not known yet */
};

void window_init(struct window *window);

/* A window of `drafted` was verified, the first `accepted` were accepted. */
void window_verified(struct window *window, uint32_t drafted, uint32_t accepted);

/* A pass without prefill had `slots` slots and `rows` rows and took `took_ns`. */
void window_measured(struct window_cost *cost, uint32_t slots, uint32_t rows, uint64_t took_ns);

/* Drafts worth making now for one of `slots` decoding slots, at most `most`. With `always` the cost
 * is not looked at, only how many drafts are accepted: for a proposer that was asked for by
 * name. */
uint32_t window_choose(struct window *window, const struct window_cost *cost, uint32_t slots,
                       uint32_t most, bool always);

/* A model that drafts, as all slots see it. Belongs to the engine. */
struct window_drafter {
    struct window_cost cost; /* of its passes; pass_ns is D */
    uint32_t unused;         /* rounds without a draft */
    uint32_t used;           /* rounds with drafts since one without: T must be seen now and then */
};

/* How drafts of a model held lately in one user's requests, where its next one begins: what another
 * user's texts are like says nothing about them. Zeros: none was verified yet. */
struct window_past {
    float acceptance; /* smoothed over all of them */
    bool known;
};

/* A slot that could begin a window of such drafts. */
struct window_share {
    float acceptance; /* in: its own p */
    uint32_t most;    /* in: drafts that it has room for, at least 1 */
    bool always;      /* in: the drafter was asked for by name */
    uint32_t drafts;  /* out: how many it is to have */
};

/* The p of the user's next request. */
float window_past_acceptance(const struct window_past *past);

/* A window of the user's was verified, the first `accepted` were accepted. */
void window_past_verified(struct window_past *past, uint32_t drafted, uint32_t accepted);

/* Fills `drafts` of the `n` slots that begin a window together, beside `others` that get one token
 * in every step. A window makes no slot slower than without one, unless its request asked for the
 * drafter; and together they gain. */
void window_share(struct window_share *slots, uint32_t n, uint32_t others,
                  const struct window_cost *cost, struct window_drafter *drafter);

/* Is it worth `lag` rows of the drafter to be able to draft for up to `left` more tokens? */
bool window_lag_pays(const struct window_cost *cost, const struct window_drafter *drafter,
                     float acceptance, uint32_t lag, uint32_t left);

#endif
