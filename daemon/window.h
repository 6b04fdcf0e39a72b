/*
 * window: how many tokens to draft, from how well drafts held lately and what rows cost.
 *
 * Pure but for the numbers it keeps: no clock, no tokens. `window` belongs to a slot, `window_cost`
 * to the engine. Nothing here changes an answer: only how soon it is there.
 *
 * With acceptance p a window of w drafts gives E(w) = 1 + p + p^2 + .. + p^w tokens on the average,
 * the verifier's own included. A pass with w more rows takes T + w * S. Beside it, others - 1 slots
 * get one token each from the same pass. So the best w has the most (others - 1 + E(w)) / (T + w *
 * S), and w = 0 is taken unless another one promises WINDOW_GAIN.
 */
#ifndef HEARTH_DAEMON_WINDOW_H
#define HEARTH_DAEMON_WINDOW_H

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

/* A window of `drafted` was verified, the first `accepted` held. */
void window_verified(struct window *window, uint32_t drafted, uint32_t accepted);

/* A pass without prefill had `slots` slots and `rows` rows and took `took_ns`. */
void window_measured(struct window_cost *cost, uint32_t slots, uint32_t rows, uint64_t took_ns);

/* Drafts worth making now for one of `slots` decoding slots, at most `most`. With `always` the cost
 * is not looked at, only how well drafts hold: for a proposer that was asked for by name. */
uint32_t window_choose(struct window *window, const struct window_cost *cost, uint32_t slots,
                       uint32_t most, bool always);

#endif
