/*
 * slot: one sequence of a client: its tokens, its speculation record, its KV pages, its running
 * request.
 *
 * Engine thread only. A slot owns its token array (reserved for the whole context, committed as
 * used) and the pages in its table. Tokens stay when pages are taken back: they are computed again
 * when needed.
 *
 *   pages   [ shared: in the prefix cache, read only | its own ]
 *                                                    ^ n_shared
 *
 * A page is shared as soon as it lies wholly below `canonical`: drafts never get there. Rows are
 * written from `canonical` on, so only into pages of its own; those of a fast pass as well, which
 * the canonical pass writes over before it reads there.
 *
 *   free     no client                          tokens nothing
 *   parked   no client, has a name: it waits for the next client of the same user that asks for it, until
 *            slots run out; then the user who has parked the most gives the one unused the longest
 *   held     a client, no request               pages kept: the next request starts warm
 *   active   a request runs
 */
#ifndef HEARTH_DAEMON_CACHE_SLOT_H
#define HEARTH_DAEMON_CACHE_SLOT_H

#include "daemon/cache/draft_kv.h"
#include "daemon/cache/prefix.h"
#include "daemon/policy/proposer.h"
#include "daemon/policy/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SLOT_NAME_BYTES = 64 };

struct client;
struct request;

struct slot {
    struct client *client; /* NULL: free or parked */
    uint32_t ring;         /* which of the client's event rings and arenas */
    uid_t uid;             /* whose tokens these are */
    char name[SLOT_NAME_BYTES];

    uint32_t *tokens; /* [context + 1]: accepted, then drafted */
    uint32_t same;    /* tokens [0, same) equal the client's arena as of its last cell */
    struct spec spec;
    struct proposer proposer;
    uint32_t goal;  /* drafts that a model is to make before they are verified; 0: none */
    bool lags;      /* the draft model is to compute what it has not seen */
    bool no_drafts; /* the drafting model cannot go on with this request */
    struct draft_kv draft_kv;

    uint32_t *pages; /* [n_pages_max] ids, page i holds positions 32i .. 32i + 31 */
    uint32_t n_pages;
    uint32_t n_shared; /* pages [0, n_shared) are held in the prefix cache */
    uint32_t n_pages_max;
    uint64_t last_used; /* serial of its last request: the smallest goes first under pressure */

    struct request *request; /* never NULL: one per slot, reused */
    bool active;
    bool paused;   /* its reader leaves no room for an answer */
    bool waiting;  /* found no pages in the last pass, and nobody to take them from */
    bool starved;  /* ... and in the one before: nobody relies on it to compute a page */
    bool follows;  /* another slot computes the page that it needs next */
    bool streams;  /* in this step its next token comes from a fast pass (stream.c), or none does */
    bool masking;  /* its grammar's next mask is not made yet */
    bool planned;  /* has rows in the pass being built: its pages are in use */
    uint32_t take; /* rows in that pass; 0 when it gave way meanwhile */
};

/* Takes memory for a context of `context` tokens. Returns 0 or -ENOMEM. */
int slot_init(struct slot *slot, uint32_t context);
void slot_fini(struct slot *slot, uint32_t context);

/* Lets go of all pages. Tokens stay. */
void slot_evict(struct slot *slot, struct prefix *prefix);

/* Forgets everything: tokens, name, pages. What was shared stays in the cache. */
void slot_clear(struct slot *slot, struct prefix *prefix, uint32_t context);

/* Makes pages for positions [0, n_positions). Returns false when there are none; what was taken so
 * far is kept. */
bool slot_reserve(struct slot *slot, struct prefix *prefix, uint32_t n_positions);

/* Lets go of pages behind the last position that can still be read, after a shorter request began,
 * and makes the page that the next row goes to its own: where others share it, what the slot kept
 * of it is computed again. */
void slot_trim(struct slot *slot, struct prefix *prefix);

/* Extends what is canonical by cached pages, as far as they match the slot's accepted tokens but
 * the last. Returns the number of positions gained. */
uint32_t slot_adopt(struct slot *slot, struct prefix *prefix);

/* Shares the slot's pages that have come to lie wholly below `canonical`. */
void slot_publish(struct slot *slot, struct prefix *prefix);

/* Are the slot's next rows in a page that it will compute as a whole, and could share or adopt? */
bool slot_fills_page(const struct slot *slot);

/* Do both compute the same page next: the same user, the same tokens up to its end? */
bool slot_same_page(const struct slot *slot, const struct slot *other);

/* Who must give its pages so that `needy` can go on: idle slots, the longest unused first; then
 * paused ones (old ones too, or a reader that stops would decide over everybody's pages); then
 * batch, then interactive requests that began after it, the newest first. Never a slot of this
 * pass. So nobody takes from the oldest interactive request that can go on, and it gets all that it
 * needs: the pool progresses. NULL: nobody, `needy` waits. */
struct slot *slot_victim(struct slot *slots, uint32_t n_slots, const struct slot *needy);

#endif
