/* proposer: what drafts tokens for a slot. Whatever does, and however well, the answer is the same:
 * drafts are verified (spec.h), and only accepted tokens are published.
 *
 * Engine thread; one per slot. Owns its index; borrows the guess from the request. Never sees
 * anything but accepted tokens, so a rollback needs no undoing here.
 *
 *   none     no drafts: the baseline of every comparison
 *   lookup   what followed the same n-gram earlier in this sequence (lookup.h)
 *   client   the guess that came with the request: yesterday's completion, the file's next lines
 *   draft, mtp, shadow, fast   computed, several passes a window: not here, but in draft.c
 *   auto     client where a guess fits, else lookup, else one of those, as far as it pays (window.h) */
#ifndef HEARTH_DAEMON_POLICY_PROPOSER_H
#define HEARTH_DAEMON_POLICY_PROPOSER_H

#include "daemon/policy/lookup.h"
#include "daemon/policy/window.h"
#include "ipc/layout.h"

#include <stdbool.h>
#include <stdint.h>

struct proposer {
    enum submit_proposer kind;
    bool indexed; /* `lookup` is open */
    struct lookup lookup;
    struct window window;
    struct window by_model; /* of drafts that a model makes (draft.c) */
    const uint32_t *guess;  /* [n_guess] tokens that may follow the prompt */
    uint32_t n_guess;
    uint32_t answer_from; /* length of the sequence at which the guess begins */
    int64_t guess_shift;  /* guess[i] stands for position answer_from + i + guess_shift */
};

/* A request begins: `n_tokens` tokens, the first `common` as before. Returns 0, or -ENOMEM: then
 * there are no drafts. */
int proposer_begin(struct proposer *proposer, enum submit_proposer kind, uint32_t common,
                   uint32_t n_tokens, const uint32_t *guess, uint32_t n_guess);
void proposer_close(struct proposer *proposer);

/* Is there any point in asking for drafts here? */
bool proposer_active(const struct proposer *proposer);

/* Writes up to `most` drafts for what follows tokens [0, n_tokens). Returns how many. */
uint32_t proposer_draft(struct proposer *proposer, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t most, uint32_t *drafts);

#endif
