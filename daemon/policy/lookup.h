/* lookup: prompt lookup: what followed the last time these tokens were seen? An index of n-grams
 * over one sequence.
 *
 * Engine thread; one per slot. Two tables hold, for each n-gram of LOOKUP_LONG and LOOKUP_SHORT
 * tokens, the position after its latest occurrence. Entries are hints: a found one is confirmed by
 * comparing tokens, so a collision, or an entry of a sequence that has changed since, costs a
 * missed draft and nothing else. Fed with accepted tokens only, so nothing is rolled back here.
 * Memory is bounded by LOOKUP_ENTRIES, whatever the context. Source: prompt lookup decoding. */
#ifndef HEARTH_DAEMON_POLICY_LOOKUP_H
#define HEARTH_DAEMON_POLICY_LOOKUP_H

#include <stdint.h>

enum {
    LOOKUP_LONG = 5,
    LOOKUP_SHORT = 3,
    LOOKUP_ENTRIES = 1 << 14,
    LOOKUP_FEED = 2048 /* tokens that a call indexes at most: some 25 us */
};

struct lookup {
    uint32_t *after_long;  /* [LOOKUP_ENTRIES] position after the n-gram; 0: none */
    uint32_t *after_short; /* [LOOKUP_ENTRIES] */
    uint32_t indexed;      /* n-grams that end at or before this length are in the tables */
};

/* Returns 0 or -ENOMEM. */
int lookup_open(struct lookup *lookup);
void lookup_close(struct lookup *lookup);

/* The first `common` tokens are those of the last call, what follows is new. */
void lookup_begin(struct lookup *lookup, uint32_t common);

/* Indexes tokens [0, n_tokens) as far as they are not yet; of a long text the next LOOKUP_FEED, for
 * others wait meanwhile. */
void lookup_feed(struct lookup *lookup, const uint32_t *tokens, uint32_t n_tokens);

/* The position whose tokens may follow tokens [0, n_tokens), by the longest n-gram known; 0: none.
 */
uint32_t lookup_find(const struct lookup *lookup, const uint32_t *tokens, uint32_t n_tokens);

#endif
