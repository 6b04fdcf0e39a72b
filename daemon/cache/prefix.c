/* Pages in a hash table, in a tree, and, while no slot needs them, in lists: intrusive structures
 * over one array, so that nothing is allocated and every change is a few words. */
#include "daemon/cache/prefix.h"

#include "daemon/overflow_uid.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B185EBCA87u;
    return hash ^ hash >> 29;
}

static const struct prefix_lists no_pages = {
    .of = {[0 ... PREFIX_USERS - 1] = {.oldest = PAGE_NONE, .newest = PAGE_NONE}}};

int prefix_init(struct prefix *prefix, struct pages *pool, const void *seed, size_t seed_bytes)
{
    *prefix = (struct prefix){.pool = pool,
                              .idle = no_pages,
                              .passed = no_pages,
                              .resting = no_pages,
                              .points = no_pages,
                              .hash_mask = UINT64_MAX};
    prefix->n_buckets = 1;
    while (prefix->n_buckets < pool->total && prefix->n_buckets < 1u << 31)
        prefix->n_buckets *= 2;
    prefix->pages = calloc(pool->total, sizeof(*prefix->pages));
    prefix->buckets = malloc(prefix->n_buckets * sizeof(*prefix->buckets));
    if (!prefix->pages || !prefix->buckets)
        return -ENOMEM;
    memset(prefix->buckets, 0xff, prefix->n_buckets * sizeof(*prefix->buckets)); /* PAGE_NONE */
    /* Clients choose tokens: which pages fall together, they must not be able to work out. */
    if (getrandom(&prefix->seed, sizeof(prefix->seed), 0) != sizeof(prefix->seed))
        return -EIO;
    for (size_t i = 0; i < seed_bytes; i++)
        prefix->seed = mix(prefix->seed, ((const uint8_t *)seed)[i]);
    return 0;
}

void prefix_fini(struct prefix *prefix)
{
    free(prefix->pages);
    free(prefix->buckets);
    *prefix = (struct prefix){0};
}

/* ---- the hash table -------------------------------------------------------------------------- */

static uint64_t chain_hash(const struct prefix *prefix, uid_t uid, uint32_t parent,
                           const uint32_t *tokens)
{
    uint64_t hash = parent == PAGE_NONE ? mix(prefix->seed, uid) : prefix->pages[parent].hash;
    for (uint32_t i = 0; i < PREFIX_TOKENS; i++)
        hash = mix(hash, tokens[i]);
    return hash & prefix->hash_mask;
}

static uint32_t *bucket_of(const struct prefix *prefix, uint64_t hash)
{
    return &prefix->buckets[(hash ^ hash >> 32) & (prefix->n_buckets - 1)];
}

static uint32_t find_hash(const struct prefix *prefix, uint64_t hash, uid_t uid, uint32_t parent,
                          const uint32_t *tokens)
{
    uint32_t id = *bucket_of(prefix, hash);
    for (; id != PAGE_NONE; id = prefix->pages[id].next_in_bucket) {
        const struct prefix_page *page = &prefix->pages[id];
        if (page->hash == hash && page->parent == parent && page->uid == uid &&
            !memcmp(page->tokens, tokens, sizeof(page->tokens)))
            return id;
    }
    return PAGE_NONE;
}

uint32_t prefix_find(const struct prefix *prefix, uid_t uid, uint32_t parent,
                     const uint32_t *tokens)
{
    if (!overflow_uid_shares(uid))
        return PAGE_NONE;
    return find_hash(prefix, chain_hash(prefix, uid, parent, tokens), uid, parent, tokens);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static void tree_add(struct prefix *prefix, uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    page->child = page->left = page->right = PAGE_NONE;
    if (page->parent == PAGE_NONE)
        return;
    struct prefix_page *parent = &prefix->pages[page->parent];
    page->right = parent->child;
    if (parent->child != PAGE_NONE)
        prefix->pages[parent->child].left = id;
    parent->child = id;
}

static void tree_remove(struct prefix *prefix, uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    assert(page->child == PAGE_NONE);
    if (page->right != PAGE_NONE)
        prefix->pages[page->right].left = page->left;
    if (page->left != PAGE_NONE)
        prefix->pages[page->left].right = page->right;
    else if (page->parent != PAGE_NONE)
        prefix->pages[page->parent].child = page->right;
}

/* ---- lists of what no slot needs ------------------------------------------------------------- */

uint32_t prefix_user(struct prefix *prefix, uid_t uid)
{
    for (uint32_t i = 0; i < PREFIX_USERS; i++) {
        const uint32_t user = (uid + i) % PREFIX_USERS;
        if (!prefix->is_user[user])
            prefix->users[user] = uid;
        prefix->is_user[user] = true;
        if (prefix->users[user] == uid)
            return user;
    }
    return uid % PREFIX_USERS;
}

static struct prefix_list *list_of(const struct prefix *prefix, struct prefix_lists *lists,
                                   uint32_t id)
{
    return &lists->of[prefix->pages[id].user];
}

static struct prefix_link *link_in(struct prefix *prefix, const struct prefix_lists *lists,
                                   uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    return lists == &prefix->idle     ? &page->link
           : lists == &prefix->points ? &page->point_link
                                      : &page->window_link;
}

/* Puts it after `older`; PAGE_NONE: before all others. */
static void list_insert(struct prefix *prefix, struct prefix_lists *lists, uint32_t id,
                        uint32_t older)
{
    struct prefix_list *list = list_of(prefix, lists, id);
    const uint32_t newer = older == PAGE_NONE ? list->oldest : link_in(prefix, lists, older)->newer;
    *link_in(prefix, lists, id) = (struct prefix_link){.older = older, .newer = newer};
    if (older == PAGE_NONE)
        list->oldest = id;
    else
        link_in(prefix, lists, older)->newer = id;
    if (newer == PAGE_NONE)
        list->newest = id;
    else
        link_in(prefix, lists, newer)->older = id;
    list->n++;
    lists->n++;
}

static void list_add(struct prefix *prefix, struct prefix_lists *lists, uint32_t id)
{
    list_insert(prefix, lists, id, list_of(prefix, lists, id)->newest);
}

static void list_remove(struct prefix *prefix, struct prefix_lists *lists, uint32_t id)
{
    struct prefix_list *list = list_of(prefix, lists, id);
    const struct prefix_link link = *link_in(prefix, lists, id);
    if (link.older == PAGE_NONE)
        list->oldest = link.newer;
    else
        link_in(prefix, lists, link.older)->newer = link.newer;
    if (link.newer == PAGE_NONE)
        list->newest = link.older;
    else
        link_in(prefix, lists, link.newer)->older = link.older;
    list->n--;
    lists->n--;
}

uint32_t prefix_most(const struct prefix_lists *lists)
{
    uint32_t most = 0;
    for (uint32_t i = 1; i < PREFIX_USERS; i++)
        most = lists->of[i].n > lists->of[most].n ? i : most;
    return most;
}

/* What gives way: the oldest of the user with the most, or PAGE_NONE. */
static uint32_t list_victim(const struct prefix_lists *lists)
{
    return lists->of[prefix_most(lists)].oldest;
}

/* Shows what a page is about to lose to others. */
static void leave(const struct prefix *prefix, uint32_t id, enum prefix_part part)
{
    if (prefix->leaves)
        prefix->leaves(prefix->context, part, id);
}

/* ---- window pages ---------------------------------------------------------------------------- */

static struct prefix_lists *windows_of(struct prefix *prefix, const struct prefix_page *page)
{
    return page->passed ? &prefix->passed : &prefix->resting;
}

bool prefix_is_passed(const struct prefix_page *page)
{
    return page->window != PAGE_NONE && page->readers == 0 && page->passed && !page->begun_near;
}

/* The page loses its window page, which no slot reads. */
static uint32_t lose_window(struct prefix *prefix, uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    uint32_t window = page->window;
    assert(page->readers == 0);
    list_remove(prefix, windows_of(prefix, page), id);
    page->window = PAGE_NONE;
    return window;
}

uint32_t prefix_take_window(struct prefix *prefix)
{
    uint32_t window = pages_take(prefix->windows);
    if (window != PAGE_NONE || prefix->passed.n + prefix->resting.n == 0)
        return window;
    uint32_t id = list_victim(prefix->passed.n > 0 ? &prefix->passed : &prefix->resting);
    leave(prefix, id, PREFIX_WINDOW);
    return lose_window(prefix, id);
}

uint32_t prefix_spare_windows(const struct prefix *prefix)
{
    return prefix->window ? prefix->windows->n_free + prefix->passed.n + prefix->resting.n : 0;
}

void prefix_read(struct prefix *prefix, uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    assert(page->cached && page->held > page->readers && page->window != PAGE_NONE);
    if (page->readers++ == 0)
        list_remove(prefix, windows_of(prefix, page), id);
}

void prefix_unread(struct prefix *prefix, uint32_t id, bool passed)
{
    struct prefix_page *page = &prefix->pages[id];
    assert(page->cached && page->readers > 0);
    if (--page->readers > 0)
        return;
    page->passed = passed;
    list_add(prefix, windows_of(prefix, page), id);
}

void prefix_give_window(struct prefix *prefix, uint32_t id, uint32_t window)
{
    struct prefix_page *page = &prefix->pages[id];
    assert(page->cached && page->held > 0);
    if (page->window != PAGE_NONE) {
        pages_return(prefix->windows, window);
        return;
    }
    page->window = window;
    page->passed = false;
    list_add(prefix, &prefix->resting, id);
}

/* ---- restart points -------------------------------------------------------------------------- */

/* The page loses its restart point, which no slot begins from. */
static uint32_t lose_point(struct prefix *prefix, uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    uint32_t state = page->point;
    assert(page->beginners == 0);
    list_remove(prefix, &prefix->points, id);
    page->point = PAGE_NONE;
    return state;
}

void prefix_keep(struct prefix *prefix, uint32_t id, uint32_t state)
{
    struct prefix_page *page = &prefix->pages[id];
    assert(page->cached && page->held > 0);
    if (page->point != PAGE_NONE) {
        pages_return(prefix->states, state);
        return;
    }
    page->point = state;
    list_add(prefix, &prefix->points, id);
}

void prefix_use_point(struct prefix *prefix, uint32_t id)
{
    const struct prefix_page *page = &prefix->pages[id];
    if (page->point == PAGE_NONE || page->beginners > 0)
        return;
    list_remove(prefix, &prefix->points, id);
    list_add(prefix, &prefix->points, id);
}

void prefix_drop_point(struct prefix *prefix, uint32_t id)
{
    pages_return(prefix->states, lose_point(prefix, id));
}

uint32_t prefix_take_point(struct prefix *prefix)
{
    const uint32_t id = list_victim(&prefix->points);
    if (id == PAGE_NONE)
        return PAGE_NONE;
    leave(prefix, id, PREFIX_POINT);
    return lose_point(prefix, id);
}

void prefix_begin(struct prefix *prefix, uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    assert(page->cached && page->held > page->beginners && page->point != PAGE_NONE);
    if (page->beginners++ == 0)
        list_remove(prefix, &prefix->points, id);
}

void prefix_begun(struct prefix *prefix, uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    assert(page->cached && page->beginners > 0);
    if (--page->beginners == 0)
        list_add(prefix, &prefix->points, id);
}

/* ---- in and out ------------------------------------------------------------------------------ */

/* A page without children that is not idle leaves the cache, and its restart point goes back to the
 * pool; the caller says where it and its window page go. */
static void forget(struct prefix *prefix, uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    uint32_t *link = bucket_of(prefix, page->hash);
    if (page->point != PAGE_NONE)
        prefix_drop_point(prefix, id);
    tree_remove(prefix, id);
    while (*link != id)
        link = &prefix->pages[*link].next_in_bucket;
    *link = page->next_in_bucket;
    *page = (struct prefix_page){0}; /* the tokens too: they are a user's text */
    prefix->n_cached--;
}

/* A page that no slot holds leaves the cache; its window page goes back to the pool. */
static void evict(struct prefix *prefix, uint32_t id)
{
    if (prefix->pages[id].window != PAGE_NONE)
        pages_return(prefix->windows, lose_window(prefix, id));
    list_remove(prefix, &prefix->idle, id);
    forget(prefix, id);
}

/* An idle page is about to leave with all that it has. */
static void leave_all(const struct prefix *prefix, uint32_t id)
{
    const struct prefix_page *page = &prefix->pages[id];
    if (page->point != PAGE_NONE)
        leave(prefix, id, PREFIX_POINT);
    if (page->window != PAGE_NONE)
        leave(prefix, id, PREFIX_WINDOW);
    leave(prefix, id, PREFIX_PAGE);
}

uint32_t prefix_take(struct prefix *prefix)
{
    uint32_t id = pages_take(prefix->pool);
    if (id == PAGE_NONE && prefix->idle.n > 0) {
        id = list_victim(&prefix->idle);
        leave_all(prefix, id);
        evict(prefix, id);
    }
    return id;
}

uint32_t prefix_spare(const struct prefix *prefix)
{
    return prefix->pool->n_free + prefix->idle.n;
}

/* The window page of a page that has lost its own, or one more of the same contents. */
static void take_back(struct prefix *prefix, uint32_t id, uint32_t window)
{
    struct prefix_page *page = &prefix->pages[id];
    if (window == PAGE_NONE)
        return;
    if (page->window != PAGE_NONE) {
        pages_return(prefix->windows, window);
        prefix_read(prefix, id);
        return;
    }
    page->window = window;
    page->readers = 1;
}

uint32_t prefix_publish(struct prefix *prefix, uid_t uid, uint32_t parent, uint32_t id,
                        uint32_t window, const uint32_t *tokens)
{
    struct prefix_page *page = &prefix->pages[id];
    uint64_t hash = chain_hash(prefix, uid, parent, tokens);
    uint32_t *bucket = bucket_of(prefix, hash);
    uint32_t equal = find_hash(prefix, hash, uid, parent, tokens);
    assert(overflow_uid_shares(uid) && !page->cached);
    assert(parent == PAGE_NONE || prefix->pages[parent].held > 0);
    if (equal != PAGE_NONE) {
        prefix_hold(prefix, equal);
        pages_return(prefix->pool, id);
        take_back(prefix, equal, window);
        return equal;
    }
    *page = (struct prefix_page){.hash = hash,
                                 .parent = parent,
                                 .next_in_bucket = *bucket,
                                 .held = 1,
                                 .window = window,
                                 .readers = window != PAGE_NONE,
                                 .point = PAGE_NONE,
                                 .uid = uid,
                                 .user = (uint8_t)prefix_user(prefix, uid),
                                 .cached = true};
    memcpy(page->tokens, tokens, sizeof(page->tokens));
    *bucket = id;
    tree_add(prefix, id);
    prefix->n_cached++;
    if (prefix->enters)
        prefix->enters(prefix->context, id);
    return id;
}

void prefix_hold(struct prefix *prefix, uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    assert(page->cached);
    assert(page->parent == PAGE_NONE || prefix->pages[page->parent].held > page->held);
    if (page->held++ == 0)
        list_remove(prefix, &prefix->idle, id);
}

void prefix_release(struct prefix *prefix, uint32_t id)
{
    struct prefix_page *page = &prefix->pages[id];
    assert(page->cached && page->held > page->readers);
    if (--page->held == 0)
        list_add(prefix, &prefix->idle, id);
}

void prefix_give_first(struct prefix *prefix, const uint32_t *chain, uint32_t n)
{
    uint32_t from = n, child = PAGE_NONE;
    for (; from > 0; child = chain[--from]) {
        const struct prefix_page *page = &prefix->pages[chain[from - 1]];
        if (page->held > 0 || page->child != child ||
            (child != PAGE_NONE && prefix->pages[child].right != PAGE_NONE))
            break; /* others follow it, which have to go before it */
    }
    for (; from < n; from++) { /* the last one is the oldest then: it is nobody's parent */
        list_remove(prefix, &prefix->idle, chain[from]);
        list_insert(prefix, &prefix->idle, chain[from], PAGE_NONE);
    }
}

bool prefix_is_followed(const struct prefix *prefix, uint32_t id, uint32_t most)
{
    const struct prefix_page *pages = prefix->pages;
    uint32_t at = id;
    for (uint32_t n = 0; n <= most; n++) { /* the next one, children first */
        uint32_t next = pages[at].child;
        while (next == PAGE_NONE && at != id) {
            next = pages[at].right;
            at = pages[at].parent;
        }
        if (next == PAGE_NONE)
            return false;
        at = next;
    }
    return true;
}

bool prefix_withdraw(struct prefix *prefix, uint32_t id)
{
    uint32_t at = id;
    assert(prefix->pages[id].cached && prefix->pages[id].held > 0);
    if (prefix->pages[id].held > 1)
        return false;
    while (at != id || prefix->pages[id].child != PAGE_NONE) { /* leaves first, back to `id` */
        struct prefix_page *page = &prefix->pages[at];
        if (page->child != PAGE_NONE) {
            at = page->child;
            continue;
        }
        uint32_t parent = page->parent;
        assert(page->held == 0); /* its holder would hold `id` as well */
        evict(prefix, at);
        pages_return(prefix->pool, at);
        at = parent;
    }
    assert(prefix->pages[id].window == PAGE_NONE || prefix->pages[id].readers == 1);
    forget(prefix, id);
    return true;
}
