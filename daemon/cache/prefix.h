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
 * seeded by the model, its numerics and the user), and confirmed: same user, same tokens, and the
 * same parent. So the whole prefix is confirmed by induction, whatever the hash.
 *
 *   held   counted: that many slots have it in their tables; a slot that holds a page holds its parent
 *   idle   held by no slot; in a list by the time it was let go, the oldest is evicted first
 *
 * A slot lets go of its last page first, so a page is always older in that list than its parent:
 * the oldest one has no children, and no page is ever here without the ones before it.
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
};

struct prefix_page {
    uint64_t hash;
    uint32_t tokens[PREFIX_TOKENS];
    uint32_t parent;         /* PAGE_NONE: positions 0..31 */
    uint32_t child;          /* one of its children, or PAGE_NONE */
    uint32_t left, right;    /* other children of its parent */
    uint32_t next_in_bucket; /* hashes that fall together */
    uint32_t older, newer;   /* idle: neighbours in the list */
    uint32_t held;           /* by how many slots */
    uid_t uid;
    bool cached; /* false: the rest means nothing */
};

struct prefix {
    struct pages *pool;
    struct prefix_page *pages; /* [pool->total] by page id */
    uint32_t *buckets;         /* [n_buckets] first page of each, or PAGE_NONE */
    uint32_t n_buckets;        /* a power of two */
    uint32_t oldest, newest;   /* idle pages */
    uint32_t n_cached;
    uint32_t n_idle; /* of these, held by no slot */
    uint64_t seed;
    uint64_t hash_mask; /* all ones; tests take bits away to make hashes collide */
};

/* For the pages of `pool`, which it goes on to use. `seed` names what a page's contents depend on
 * besides its tokens. Returns 0 or -ENOMEM; fini in any case. */
int prefix_init(struct prefix *prefix, struct pages *pool, const void *seed, size_t seed_bytes);
void prefix_fini(struct prefix *prefix);

/* May pages of this user be published at all? */
bool prefix_shares(uid_t uid);

/* A page to write into: a free one, else the oldest idle one, which is forgotten. PAGE_NONE: all
 * are held. */
uint32_t prefix_take(struct prefix *prefix);

/* Pages that prefix_take could hand out. */
uint32_t prefix_spare(const struct prefix *prefix);

/* The user's page that follows `parent` (PAGE_NONE: the first of a sequence) and holds `tokens`
 * [32], or PAGE_NONE. */
uint32_t prefix_find(const struct prefix *prefix, uid_t uid, uint32_t parent,
                     const uint32_t *tokens);

/* Publishes `page`, whose 32 positions are canonical for `tokens` [32] after `parent`, a page that
 * the caller holds. Returns the page that the caller holds from now on: an equal one that was here
 * before takes its place, and `page` goes back to the pool. */
uint32_t prefix_publish(struct prefix *prefix, uid_t uid, uint32_t parent, uint32_t page,
                        const uint32_t *tokens);

/* One more slot has the page in its table; one less. The last page of a table goes first. */
void prefix_hold(struct prefix *prefix, uint32_t page);
void prefix_release(struct prefix *prefix, uint32_t page);

/* Takes a page out of the cache, so that its holder may write into it: true, unless others hold it
 * too. What followed it in the cache goes back to the pool. */
bool prefix_withdraw(struct prefix *prefix, uint32_t page);

#endif
