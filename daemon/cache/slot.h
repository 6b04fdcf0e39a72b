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
 * A recurrent model has a state beside the pages. What a slot can go on from is the base of its
 * record (spec.h), and that is one of three:
 *
 *   canonical is 0     nothing, the state of the empty text
 *   `begins` a page    that page's restart point, which passes only read (prefix.h)
 *   else               its own: after its first pass
 *
 * Where it has none, it begins at its last restart point, and what follows that is computed again:
 * so a text is warm at p when [0, p) is in pages and there is a state of it.
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
#include "kernels/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SLOT_NAME_BYTES = 64,
    SLOT_POINTS = 2,
    TEXT_POINTS = 4,     /* restart points that a text has at most */
    POINTS_EVERY = 2048, /* positions of a prefill that keep one */
    MASKED_LONG = 64,    /* steps without a mask after which a slot gives way as a paused one */
    TURN_ROWS = 512, /* rows of new work after which it is another user's turn at the pages ... */
    TURN_PASS = 8,   /* ... where a pass by itself takes as long as so many */
};

struct client;
struct request;

enum slot_state {
    SLOT_IDLE,    /* no request: free, parked or held */
    SLOT_READY,   /* its request could have rows in the next pass */
    SLOT_PLANNED, /* it has rows in the pass that is being built or run: its pages are in use */
    SLOT_PAUSED,  /* its reader leaves no room for an answer */
    SLOT_MASKING, /* its grammar's next mask is not made yet */
    SLOT_READING, /* pages of its text are being read from the store */
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
    uint32_t goal; /* drafts that a model makes before they are verified; 0: none */
    struct draft_kv draft_kv;

    uint32_t *pages; /* [n_pages_max] ids, page i holds positions 32i .. 32i + 31 */
    uint32_t n_pages;
    uint32_t n_shared; /* pages [0, n_shared) are held in the prefix cache */
    uint32_t n_pages_max;
    uint32_t *windows; /* [n_pages_max] window pages, [window_from, n_pages) are valid */
    uint32_t window_from;
    /* [n_pages_max] pages of its text in the cache that it holds in addition, [0, n_ahead), while
     * what it will adopt is read from the store; 0: none */
    uint32_t *ahead;
    uint32_t n_ahead;
    uint32_t own;    /* its state, or PAGE_NONE; it has pages then */
    uint32_t begins; /* a page that it shares, or PAGE_NONE */
    uint32_t points
        [SLOT_POINTS]; /* where its last text that began anew keeps restart points; 0: nowhere */
    uint32_t meets;    /* where one that follows it will begin, in the next pass; 0: nowhere */
    uint32_t *agreed;  /* of all slots (struct slots) ... */
    uint32_t number, n_slots; /* ... of which this is that one */

    enum slot_state state;   /* changed by slots_set */
    uint32_t masked;         /* steps in a row that it waits for a mask, MASKED_LONG at most */
    uint64_t serial;         /* its last request's number in order of arrival, over all slots */
    uint64_t turn;           /* of that request: slot_precedes */
    uint64_t fresh, again;   /* what that request did in this turn (slots_worked) */
    bool batch;              /* the class of that request */
    struct request *request; /* the engine's, one per slot, reused */
};

/* The KV pages and states that all slots take theirs from. */
struct kv {
    struct pages pool, windows, states;
    struct prefix prefix; /* over all of them */
};

/* All slots, how many of them are in which state, and their KV. */
struct slots {
    struct slot *all;     /* [n] */
    struct slot **ending; /* [n_ending] those in SLOT_ENDING */
    /* [n][n] of a recurrent model, where the first number is the lesser one: first tokens of both
     * texts that are known to be the same (slot_meets); else NULL */
    uint32_t *agreed;
    uint32_t n, n_ending;
    uint32_t n_active; /* with a request */
    uint32_t n_paused, n_reading;
    uint32_t n_following; /* another slot computes the page that these need next */
    uint64_t serial;      /* of the last request */
    uint32_t context;     /* of each */
    struct kv kv;
};

/* For `n` slots of a context; their KV is the caller's to open. Returns 0 or -ENOMEM; call
 * slots_fini in either case. */
int slots_init(struct slots *slots, uint32_t n, uint32_t context, bool recurrent);
void slots_fini(struct slots *slots);

/* How many requests wait for nothing but passes. */
static inline uint32_t slots_running(const struct slots *slots)
{
    return slots->n_active - slots->n_paused - slots->n_reading;
}

/* The only place where a slot's state changes. */
void slots_set(struct slots *slots, struct slot *slot, enum slot_state state);

/* Could its request have rows in a pass that is planned now, if its reader has left room? */
static inline bool slot_runs(const struct slot *slot)
{
    return slot->state == SLOT_READY || slot->state == SLOT_STARVED || slot->state == SLOT_PAUSED;
}

/* A canonical pass had `rows` rows of the slot's request, or a fast one gave it a token; it came
 * `further` positions further than ever before. After TURN_ROWS of that its turn at the pages is
 * over: it and its user's other requests of the class come a turn later (slot_precedes). What it
 * computes again because others had its pages makes a turn longer, up to its text once: so at least
 * half of what it computes in its turn is new, however many others wait. */
void slots_worked(struct slots *slots, struct slot *slot, uint32_t rows, uint32_t further);

/* A step went by in which the slot's request waited for its grammar and kept its pages: that counts
 * as a pass, or it could keep them for as many steps as all its masks take. */
void slots_waited(struct slots *slots, struct slot *slot);

/* The slot lets go of all pages for one that needs them. Returns how many it had. A request that is
 * paused then, or waits long for a grammar, has had its turn, and comes after the first one that
 * goes on: else it could compute the same again without end, and keep its turn. */
uint32_t slots_evict(struct slots *slots, struct slot *victim);

/* Has the request of `a` more right to pages than that of `b`, of the same class? Users take turns:
 * a request comes after its user's other ones that run, and together with the first ones of the
 * others, whichever came first. So one user's many requests do not all come before another one's,
 * and one that needs all pages does not keep them until it ends. The order of two requests that go
 * on changes at the end of a turn alone, never of two of the same user, and none comes before the
 * first one of all that goes on: neither one that begins, nor one that sat out (its reader left no
 * room, it had no mask) while others had more turns than it. */
static inline bool slot_precedes(const struct slot *a, const struct slot *b)
{
    return a->turn != b->turn ? a->turn < b->turn : a->serial < b->serial;
}

/* Takes memory for a context of `context` tokens. Returns 0 or -ENOMEM. */
int slot_init(struct slot *slot, uint32_t context);
void slot_fini(struct slot *slot, uint32_t context);

/* Lets go of all pages, and of its state. Tokens stay. */
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

/* The same while *look lasts, which goes down by each cached page of its text after which it is not
 * warm: there may be thousands, in each step. One look is not cut short. */
uint32_t slot_adopt_within(struct slot *slot, struct prefix *prefix, int64_t *look);

/* Is window page `i` of the slot's text at hand: its own, or in the cache? */
bool slot_finds_window(const struct slot *slot, const struct prefix *prefix, uint32_t i);

/* Holds the cached pages of its text once more: those that it shares, and those that follow them in the
 * cache, as far as it could adopt them if all else were there. Until slot_drop_ahead, slot_trim or
 * slot_evict. */
void slot_hold_ahead(struct slot *slot, struct prefix *prefix);

/* `page`, a page of the pool, and what the cache has from now on holds the 32 tokens after those
 * that are held: canonical KV that comes from the store. */
void slot_publish_ahead(struct slot *slot, struct prefix *prefix, uint32_t page);
void slot_drop_ahead(struct slot *slot, struct prefix *prefix);

/* The end of its text: up to `canonical`, or of a recurrent model up to its own state, of which
 * a text that is longer can make use. False: there is none, or the slot shares no page. */
bool slot_end(const struct slot *slot, const struct prefix *prefix, struct prefix_end *ret);

/* The first `n_pages` pages of its text are in the cache, warm up to there but for a state, and
 * `canonical` is not beyond them. The parts, which nothing else uses, become its own, and hold
 * what is canonical for the next `positions` positions, less than a page and fewer than its
 * accepted tokens after these pages. */
void slot_take_end(struct slot *slot, struct prefix *prefix, uint32_t n_pages, uint32_t positions,
                   const uint32_t part[PREFIX_PARTS]);

/* Call before the cache evicts pages for `needy`, which takes them from the user with the most
 * cached. Users who have more than that one, the pages of their idle slots included, first lose the
 * pages of these slots: nobody loses pages while others hold more. Returns how many were lost. */
uint32_t slots_level(struct slots *slots, struct prefix *prefix, const struct slot *needy);

/* A free state; else of the user that has the most which no request needs, the one of its idle slot
 * that was used least recently, or if it has none that of a restart point (prefix_take_point).
 * PAGE_NONE: there is none. */
uint32_t slots_take_state(struct slots *slots, struct prefix *prefix);

/* The slot, which has pages, gets a state of its own if it has none and the model is recurrent.
 * False: there is none. */
bool slots_own_state(struct slots *slots, struct prefix *prefix, struct slot *slot);

/* A request of `n_tokens` begins, of which `common` are as the slot's text of `before` tokens has
 * them. If it does not just go on, it will keep restart points shortly before its end and before
 * the place where it leaves the old text: what comes next, a keystroke or a turn, leaves it near
 * one of these. */
void slot_branch(struct slot *slot, struct prefix *prefix, uint32_t n_tokens, uint32_t common,
                 uint32_t before);

/* The positions in (from, to] after which the slot would keep a restart point, at most two, the
 * most wanted first. Returns how many. */
uint32_t slot_points(const struct slot *slot, uint32_t from, uint32_t to,
                     uint32_t ret[BACKEND_STATE_KEEPS]);

/* `state` follows from tokens [0, at), which the slot shares: a restart point of its text. Where
 * that has too many, the one that costs the least to go without is given up. */
void slot_keep(struct slot *slot, struct prefix *prefix, uint32_t at, uint32_t state);

/* Could `slot` begin where `other`, another one of the same slots, which is as far or further
 * along, has yet to come to? Returns that position, a multiple of a page after which their texts
 * part, or one of them ends; 0: no. What was compared is not compared again until slot_branch or
 * slot_clear says that it is another text: a client's many slots of one long text cost no more than
 * that. */
uint32_t slot_meets(const struct slot *slot, const struct slot *other);

/* Where the base of its state is (pass_state.from). */
int32_t slot_from(const struct slot *slot, const struct prefix *prefix);

/* A canonical pass ran with `n_rows` rows of the slot (spec_settle): its state is its own now. */
void slot_settle(struct slot *slot, struct prefix *prefix, uint32_t n_rows, uint32_t n_clean);

/* Shares the slot's pages that have come to lie wholly below `canonical`. */
void slot_share(struct slot *slot, struct prefix *prefix);

/* Are the slot's next rows in a page that it will compute as a whole, and could share or adopt? */
bool slot_fills_page(const struct slot *slot);

/* Do both compute the same page next: the same user, the same tokens up to its end? */
bool slot_same_page(const struct slot *slot, const struct slot *other);

/* The slot to evict so that `needy` can go on: idle ones, of the user whose idle slots have the most
 * pages the least recently used first, so that one user's texts do not drive out all others'; then
 * paused ones, and those that wait long for a grammar (old ones too, or a reader that stops, or
 * whose grammar takes minutes, would keep pages from all others); then batch, then interactive
 * requests that it precedes (slot_precedes), the last first. Never one with rows in this pass, nor
 * a request that has nothing but what `needy` has as well. So nothing evicts the
 * first interactive request that can go on, and it gets all that it needs until its turn is over:
 * the pool progresses. NULL: none, `needy` waits. */
struct slot *slot_victim(struct slot *slots, uint32_t n_slots, struct prefix *prefix,
                         const struct slot *needy);

/* How many pages `needy` could get: those that nothing holds, and those of slots that would be
 * evicted for it; more than there are, where these share some. */
uint32_t slots_room(const struct slots *slots, const struct slot *needy);

/* The slot that gives way where the draft model has no page for `needy`: an idle one, of the user
 * whose idle slots have the most of its pages the least recently used; else in the same way one that
 * is paused, or waits long for a grammar, and has no rows in the draft model's pass. NULL: none has
 * any. */
struct slot *slot_draft_victim(struct slot *slots, uint32_t n_slots, struct prefix *prefix,
                               const struct slot *needy);

/* A page to write into, for a slot that reads from the store, from a slot that has to give way to it
 * if need be. PAGE_NONE: none has to. *ret_evicted: pages that such slots had. */
uint32_t slots_take_page(struct slots *slots, const struct slot *needy, uint32_t *ret_evicted);

/* A window page likewise, of what idle slots and the cache hold of the user that has the most.
 * PAGE_NONE: they hold none. */
uint32_t slots_take_window(struct slots *slots, const struct slot *needy, uint32_t *ret_evicted);

#endif
