/*
 * prefix: the cache of canonical KV pages that slots of one user share.
 *
 * Engine thread only. It owns no KV: a page is an id of the pool, and its contents are immutable
 * while it is here. It knows nothing of slots, speculation or clocks, and allocates at init alone.
 *
 *   user 1000   [ 0..31 | 32..63 | 64..95 ]      each page knows its parent, the page before it
 *                          '---- [ 64..95 ]      another text goes on here
 *
 * A page is found by a chained hash (of its parent's hash and its 32 tokens; the first one's is
 * seeded by chance, the model, its numerics and the user), and confirmed: same user, same tokens,
 * and the same parent. So the whole prefix is confirmed by induction, whatever the hash. Chance,
 * since tokens are a client's to choose: with a seed that it knows all of its pages could share a
 * bucket.
 *
 *   held   counted: that many slots have it in their tables; a slot that holds a page holds its parent
 *   idle   held by no slot; in its user's list by the time it was let go: the oldest of the user
 *          with the most is evicted first, else one user's prompts would cost all others theirs
 *
 * A slot lets go of its last page first, so a page is always older in that list than its parent:
 * the oldest one has no children, and no page is ever here without the ones before it. Window pages
 * and restart points give way by user as well.
 *
 * Window pages (backend.h) are half of a page: what layers with a window of W positions keep of its 32
 * positions. A page has one beside it, or has lost it:
 *
 *   page          [ 0 ][ 1 ][ 2 ][ 3 ][ 4 ][ 5 ]
 *   window page     -    -   [2]  [3]  [4]  [5]    the text is warm at the end of 5, and of 4 if W
 *                                                  is two pages or less
 *   read     counted: in the windows of that many slots, which hold the page as well
 *   passed   in no slot's window any more, since those went on; reclaimed first, oldest first: of a text the
 *            leftmost
 *   resting  in the last window of a slot that has let go of the page; reclaimed after the passed ones
 *
 * A page that lost its window page stays: its text may be warm further on, or further back. A slot
 * that needs the lost one computes again from the last warm place before it, and gives it back by
 * publishing.
 *
 * A restart point is a recurrent state (backend.h) that follows from the text up to the end of a
 * page, and hangs on that page. Only there can a text begin that has no state of its own:
 *
 *   page     [ 0 ][ 1 ][ 2 ][ 3 ][ 4 ][ 5 ]
 *   state                   *         *        begins after 3 or 5, or from nothing
 *
 *   begun    counted: that many slots, which hold the page, begin from it and ran no pass since
 *   else     in a list by the time it was used, the oldest is given up first
 *
 * What has to give way to others is shown to `leaves` before it goes, so that it can be kept
 * elsewhere; so is the end of an idle slot's text, which is not in the cache, to `end_leaves`:
 * what of it is in no whole page, and the slot's own state. What a text goes past for good is
 * not: a page whose holder writes over it, what followed that page.
 */
#ifndef HEARTH_DAEMON_CACHE_PREFIX_H
#define HEARTH_DAEMON_CACHE_PREFIX_H

#include "daemon/cache/pages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    PREFIX_TOKENS = 32, /* of one page */
    PREFIX_USERS = 64,  /* the first ones have lists of their own; further ones share these */
};

/* What a page of the cache consists of. */
enum prefix_part { PREFIX_PAGE, PREFIX_WINDOW, PREFIX_POINT, PREFIX_PARTS };

struct prefix_link {
    uint32_t older, newer; /* neighbours in a list */
};

struct prefix_list {
    uint32_t oldest, newest, n;
};

/* What gives way to others, by user. */
struct prefix_lists {
    struct prefix_list of[PREFIX_USERS];
    uint32_t n; /* in all of them */
};

struct prefix_page {
    uint64_t hash;
    uint32_t tokens[PREFIX_TOKENS];
    uint32_t parent;         /* PAGE_NONE: positions 0..31 */
    uint32_t child;          /* one of its children, or PAGE_NONE */
    uint32_t left, right;    /* other children of its parent */
    uint32_t next_in_bucket; /* hashes that fall together */
    uint32_t held;           /* by how many slots */
    uint32_t window;         /* its window page, or PAGE_NONE */
    uint32_t readers;        /* slots whose window it is in */
    uint32_t point;          /* the state of its restart point, or PAGE_NONE */
    uint32_t beginners;      /* slots that begin from it */
    /* in lists while no slot holds it, reads its window page, begins from its point */
    struct prefix_link link, window_link, point_link;
    bool passed;     /* its window page is in `passed`, else in `resting` */
    bool wanted;     /* more than one request had it */
    bool begun_near; /* a text began in whose window it is */
    uint64_t key[2]; /* of whoever keeps pages elsewhere: the name of the text up to its end, ... */
    uint32_t end;    /* ... and its length */
    uid_t uid;
    uint8_t user; /* prefix_user of that */
    bool cached;  /* false: the rest means nothing */
};

/* The end of a text: its last tokens [n], less than a page, and a page and a window page that
 * begin with their KV, and the state that follows from the text, each PAGE_NONE where there is
 * none. These need not be in the cache; `before` is, the page before them. */
struct prefix_end {
    uint32_t before, n;
    const uint32_t *tokens;
    uint32_t part[PREFIX_PARTS];
};

struct prefix {
    struct pages *pool;
    struct prefix_page *pages; /* [pool->total] by page id */
    uint32_t *buckets;         /* [n_buckets] first page of each, or PAGE_NONE */
    uint32_t n_buckets;        /* a power of two */
    uint32_t n_cached;
    struct prefix_lists idle;            /* of these, held by no slot */
    struct prefix_lists passed, resting; /* window pages read by no slot */
    struct prefix_lists points;          /* restart points that no slot begins from */
    uid_t users[PREFIX_USERS];           /* whose lists those of this number are ... */
    bool is_user[PREFIX_USERS];          /* ... if they are anybody's yet */
    struct pages *windows;               /* pool of window pages; set after init if window > 0 */
    uint32_t window;                     /* positions of a window; 0: no layer has one */
    struct pages *states;                /* set after init if the model is recurrent, else NULL */
    /* Shown a page that is new here, and one before it loses that part; NULL: they are not. They
     * change nothing here, but for a page's name. */
    void (*enters)(void *context, uint32_t page);
    void (*leaves)(void *context, enum prefix_part part, uint32_t page);
    void (*end_leaves)(void *context, const struct prefix_end *end); /* before a slot gives it up */
    void *context;                                                   /* of all three */
    uint64_t seed;
    uint64_t hash_mask; /* all ones; tests take bits away to make hashes collide */
};

/* For the pages of `pool`, which it goes on to use. `seed` names what a page's contents depend on
 * besides its tokens. Returns 0, -ENOMEM or -EIO; call prefix_fini in either case. */
int prefix_init(struct prefix *prefix, struct pages *pool, const void *seed, size_t seed_bytes);
void prefix_fini(struct prefix *prefix);

/* A page to write into: a free one, else the oldest idle one of the user with the most, which is
 * forgotten. PAGE_NONE: all are held. */
uint32_t prefix_take(struct prefix *prefix);

/* A window page: a free one, else a passed one, else a resting one, the oldest of the user with the
 * most, which its page loses. PAGE_NONE: all are read. */
uint32_t prefix_take_window(struct prefix *prefix);

/* The number of the user's lists: its own, unless the first PREFIX_USERS users came before. */
uint32_t prefix_user(struct prefix *prefix, uid_t uid);

/* The user with the most in these lists, by that number: whose oldest gives way. */
uint32_t prefix_most(const struct prefix_lists *lists);

/* Pages, and window pages, that these could hand out. */
uint32_t prefix_spare(const struct prefix *prefix);
uint32_t prefix_spare_windows(const struct prefix *prefix);

/* The user's page that follows `parent` (PAGE_NONE: the first of a sequence) and holds `tokens`
 * [32], or PAGE_NONE. */
uint32_t prefix_find(const struct prefix *prefix, uid_t uid, uint32_t parent,
                     const uint32_t *tokens);

/* Publishes `page`, whose 32 positions are canonical for `tokens` [32] after `parent`, a page that
 * the caller holds, and its window page (PAGE_NONE where there are none). Returns the page that the
 * caller holds from now on, whose window page it reads: an equal one that was here before takes its
 * place, and `page` goes back to the pool; so does the window page, if the equal one has its own. */
uint32_t prefix_publish(struct prefix *prefix, uid_t uid, uint32_t parent, uint32_t page,
                        uint32_t window, const uint32_t *tokens);

/* One more slot has the page in its table; one less. The last page of a table goes first. */
void prefix_hold(struct prefix *prefix, uint32_t page);
void prefix_release(struct prefix *prefix, uint32_t page);

/* The page's window page is in one more slot's window; in one less, because that slot went on
 * (`passed`) or let go of the page. */
void prefix_read(struct prefix *prefix, uint32_t page);
void prefix_unread(struct prefix *prefix, uint32_t page, bool passed);

/* Has it a window page of the middle of a text, where none began? Only a text that parts from it
 * there would read it. */
bool prefix_is_passed(const struct prefix_page *page);

/* The page, which the caller holds, has lost its window page, or never had one: `window` is one of
 * the same contents, which no slot reads yet. Where it has one again, `window` goes back to the pool. */
void prefix_give_window(struct prefix *prefix, uint32_t page, uint32_t window);

/* `state` follows from the text up to the end of the page, which the caller holds: its restart
 * point from now on. Where it has one, `state` goes back to the pool. */
void prefix_keep(struct prefix *prefix, uint32_t page, uint32_t state);

/* The page's restart point, if it has one, is the newest now; or is given up: no slot begins from
 * it. */
void prefix_use_point(struct prefix *prefix, uint32_t page);
void prefix_drop_point(struct prefix *prefix, uint32_t page);

/* The state of a restart point that no slot begins from, which its page loses, or PAGE_NONE. */
uint32_t prefix_take_point(struct prefix *prefix);

/* One more slot begins from the page's restart point; one less. */
void prefix_begin(struct prefix *prefix, uint32_t page);
void prefix_begun(struct prefix *prefix, uint32_t page);

/* These cached pages, of which each follows the one before, and which no slot holds, give way before all
 * others of their user, as far as nothing else follows them. */
void prefix_give_first(struct prefix *prefix, const uint32_t *chain, uint32_t n);

/* Do more than `most` pages follow this one in the cache? */
bool prefix_is_followed(const struct prefix *prefix, uint32_t page, uint32_t most);

/* Takes a page out of the cache, so that its holder may write into it: true, unless others hold it
 * too. Its window page, which the holder reads, is the holder's as well. What followed it in the cache goes back to the pool. */
bool prefix_withdraw(struct prefix *prefix, uint32_t page);

#endif
