/*
 * slot: one sequence of a client: its tokens, its speculation record, its KV pages, and what its
 * request is doing. Its client and its request are the engine's: here they are opaque.
 *
 * Engine thread only. A slot owns its token array (reserved for the whole context, committed as
 * used) and the pages in its table. Tokens stay when pages are evicted: their KV is computed again
 * when needed.
 *
 *   pages   [ shared: in the prefix cache, read only | its own ]
 *                                                    ^ n_shared
 *
 * A page is shared as soon as it lies wholly below `canonical`: drafts never get there. Rows are
 * written from `canonical` on, so only into pages of its own; those of a fast pass as well, which
 * the canonical pass writes over before it reads there.
 *
 * Where there are window pages, the slot has one beside each page from `window_from` on:
 *
 *   pages   [ 0 | 1 | 2 | 3 | 4 | 5 ]      `window_from` is at most the first page that the window of its
 *   windows           [ 2 | 3 | 4 | 5 ]     next row reaches (kv_window_begin): a context takes its pages,
 *                     ^ window_from         and window pages for W positions and the rows of one pass
 *
 * What it goes past belongs to the cache (prefix.h: passed), or is free if it was not shared. To
 * begin further back, slot_adopt takes what is still there, or goes back until it has all it needs:
 * a text is warm at p when [p - W, p) is held in window pages and [0, p) in pages.
 *
 * A slot without a request is
 *
 *   free     no client                          tokens nothing
 *   parked   no client, has a name: it waits for the next client of the same user that asks for it, until
 *            slots run out; then the user with the most parked slots gives the least recently used one
 *   held     a client                           pages kept: the next request starts warm
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

enum slot_state {
    SLOT_IDLE,    /* no request: free, parked or held */
    SLOT_READY,   /* its request could have rows in the next pass */
    SLOT_PLANNED, /* it has rows in the pass that is being built or run: its pages are in use */
    SLOT_PAUSED,  /* its reader leaves no room for an answer */
    SLOT_MASKING, /* its grammar's next mask is not made yet */
    SLOT_WAITING, /* it could not get pages in this step, and no victim could be evicted */
    SLOT_STARVED, /* ... in the step before: others do not rely on it to compute a page */
    SLOT_ENDING,  /* its answer is over: its end is published after the step's tokens */
};

struct slot {
    struct client *client; /* NULL: free or parked */
    uint32_t ring;         /* which of the client's event rings and arenas */
    uid_t uid;             /* whose tokens these are */
    char name[SLOT_NAME_BYTES];

    uint32_t *tokens; /* [context + 1]: accepted, then drafted */
    uint32_t same;    /* tokens [0, same) equal the client's arena as of its last cell */
    struct spec spec;
    struct proposer proposer;
    uint32_t goal; /* drafts that a model is to make before they are verified; 0: none */
    struct draft_kv draft_kv;

    uint32_t *pages; /* [n_pages_max] ids, page i holds positions 32i .. 32i + 31 */
    uint32_t n_pages;
    uint32_t n_shared; /* pages [0, n_shared) are held in the prefix cache */
    uint32_t n_pages_max;
    uint32_t *windows; /* [n_pages_max] window pages, [window_from, n_pages) are valid */
    uint32_t window_from;

    enum slot_state state;   /* changed by slots_set */
    uint64_t serial;         /* of its last request, in order of arrival over all slots */
    bool batch;              /* the class of that request */
    struct request *request; /* the engine's, one per slot, reused */
};

/* All slots, and how many of them are in which state. */
struct slots {
    struct slot *all;     /* [n] */
    struct slot **ending; /* [n_ending] those in SLOT_ENDING */
    uint32_t n, n_ending;
    uint32_t n_active; /* with a request */
    uint32_t n_paused;
    uint64_t serial; /* of the last request */
};

/* The KV pages that they share out. */
struct kv {
    struct pages pool, windows;
    struct prefix prefix; /* over both */
};

/* For `n` slots of a context. Returns 0 or -ENOMEM; fini in any case. */
int slots_init(struct slots *slots, uint32_t n, uint32_t context);
void slots_fini(struct slots *slots, uint32_t context);

/* The only place where a slot's state changes. */
void slots_set(struct slots *slots, struct slot *slot, enum slot_state state);

/* Could its request have rows in a pass that is planned now, if its reader has left room? */
static inline bool slot_runs(const struct slot *slot)
{
    return slot->state == SLOT_READY || slot->state == SLOT_STARVED || slot->state == SLOT_PAUSED;
}

/* Takes memory for a context of `context` tokens. Returns 0 or -ENOMEM. */
int slot_init(struct slot *slot, uint32_t context);
void slot_fini(struct slot *slot, uint32_t context);

/* Lets go of all pages. Tokens stay. */
void slot_evict(struct slot *slot, struct prefix *prefix);

/* Forgets everything: tokens, name, pages. What was shared stays in the cache. */
void slot_clear(struct slot *slot, struct prefix *prefix, uint32_t context);

/* Gets pages for rows [from, to), and lets go of window pages that they do not see. Returns false
 * when there are too few; what was taken so far is kept. */
bool slot_reserve(struct slot *slot, struct prefix *prefix, uint32_t from, uint32_t to);

/* Lets go of pages after the last position that can still be read, when a shorter request began,
 * and makes the page that the next row goes to its own: where others share it, what the slot kept
 * of it is computed again. */
void slot_trim(struct slot *slot, struct prefix *prefix);

/* Extends what is canonical by cached pages, as far as they match the slot's accepted tokens but
 * the last and the text is warm; where it is not warm at `canonical` either, goes back to where it
 * is. Returns the number of positions gained. */
uint32_t slot_adopt(struct slot *slot, struct prefix *prefix);

/* Shares the slot's pages that have come to lie wholly below `canonical`. */
void slot_share(struct slot *slot, struct prefix *prefix);

/* Are the slot's next rows in a page that it will compute as a whole, and could share or adopt? */
bool slot_fills_page(const struct slot *slot);

/* Do both compute the same page next: the same user, the same tokens up to its end? */
bool slot_same_page(const struct slot *slot, const struct slot *other);

/* The slot to evict so that `needy` can go on: idle ones, the least recently used first; then
 * paused ones (old ones too, or a reader that stops would keep pages from all others); then batch,
 * then interactive requests that began after it, the newest first. Never one with rows in this
 * pass. So nothing evicts the oldest interactive request that can go on, and it gets all that it
 * needs: the pool progresses. NULL: none, `needy` waits. */
struct slot *slot_victim(struct slot *slots, uint32_t n_slots, const struct slot *needy);

#endif
