/* Where a rig's pages are: every one in one place, which holds what it says. */
#include "tests/rig/engine_rig.h"

#include "daemon/overflow_uid.h"
#include "kernels/kv.h"

#include <stdio.h>
#include <stdlib.h>

/* A page of the cache as its slot sees it. */
static void check_shared_page(const struct engine *engine, const struct slot *slot, uint32_t i)
{
    uint32_t id = slot->pages[i];
    const struct prefix_page *page = &engine->slots.kv.prefix.pages[id];

    RIG_CHECK(page->cached && page->uid == slot->uid, "page %u is not for this slot", id);
    RIG_CHECK(page->parent == (i ? slot->pages[i - 1] : PAGE_NONE), "page %u's parent", id);
    RIG_CHECK(!memcmp(page->tokens, slot->tokens + (size_t)i * PREFIX_TOKENS, sizeof(page->tokens)),
              "page %u holds other tokens", id);
}

/* A slot's pages: first those in the cache, which hold its tokens, user's and position's, then its
 * own. Counts the holders of the former. */
/* NOLINTNEXTLINE(readability-function-size): checks are macros, and count as nesting */
static void check_slot_pages(const struct engine *engine, const struct slot *slot, uint8_t *seen,
                             uint32_t *held)
{
    uint32_t full = slot->spec.canonical / KV_PAGE_POSITIONS;

    RIG_CHECK(slot->n_shared == (overflow_uid_shares(slot->uid) ? full : 0),
              "%u pages are shared, %u are canonical", slot->n_shared, full);
    for (uint32_t i = 0; i < slot->n_ahead; i++) {
        RIG_CHECK(!memcmp(engine->slots.kv.prefix.pages[slot->ahead[i]].tokens,
                          slot->tokens + (size_t)i * PREFIX_TOKENS,
                          PREFIX_TOKENS * sizeof(*slot->tokens)),
                  "page %u is held ahead, with other tokens", slot->ahead[i]);
        held[slot->ahead[i]]++;
    }
    for (uint32_t i = 0; i < slot->n_pages; i++) {
        uint32_t id = slot->pages[i];
        if (i < slot->n_shared) {
            held[id]++;
            check_shared_page(engine, slot, i);
        } else {
            RIG_CHECK(seen[id]++ == 0, "page %u has two owners", id);
        }
    }
}

/* A page of the cache as the device sees it. */
static void check_cached_page(const struct rig *rig, uint32_t id)
{
    const struct prefix *prefix = &rig->engine->slots.kv.prefix;
    const struct prefix_page *page = &prefix->pages[id];

    RIG_CHECK(prefix_find(prefix, page->uid, page->parent, page->tokens) == id,
              "page %u is not found", id);
    for (uint32_t k = 0; k < PREFIX_TOKENS; k++)
        RIG_CHECK(rig->fake.kv[PAGES_FULL][id * PREFIX_TOKENS + k] == page->tokens[k] + 1,
                  "page %u was written to", id);
    RIG_CHECK(page->parent == PAGE_NONE || prefix->pages[page->parent].cached,
              "page %u lost its parent", id);
}

/* The cache: what it says of its pages is what slots hold, and what the device's memory has. */
static void check_cache(const struct rig *rig, uint8_t *seen, const uint32_t *held)
{
    const struct prefix *prefix = &rig->engine->slots.kv.prefix;
    uint32_t cached = 0, idle = 0, listed = 0;

    for (uint32_t i = 0; i < rig->engine->slots.kv.pool.total; i++) {
        const struct prefix_page *page = &prefix->pages[i];
        RIG_CHECK(held[i] == (page->cached ? page->held : 0), "page %u is held by %u", i, held[i]);
        if (!page->cached)
            continue;
        cached++;
        idle += page->held == 0;
        seen[i]++;
        check_cached_page(rig, i);
    }
    for (uint32_t user = 0; user < PREFIX_USERS; user++)
        for (uint32_t i = prefix->idle.of[user].oldest; i != PAGE_NONE;
             i = prefix->pages[i].link.newer)
            RIG_CHECK(prefix->pages[i].held == 0 && prefix->pages[i].user == user &&
                          ++listed <= cached,
                      "the lists of idle pages");
    RIG_CHECK(cached == prefix->n_cached && idle == prefix->idle.n && listed == idle,
              "%u cached of %u, %u idle of %u, %u in the lists", cached, prefix->n_cached, idle,
              prefix->idle.n, listed);
}

/* Window pages of a slot: its own, or those of the pages that it shares. Counts the
 * readers of the latter. */
static void check_slot_windows(const struct engine *engine, const struct slot *slot, uint8_t *seen,
                               uint32_t *readers)
{
    const struct prefix *prefix = &engine->slots.kv.prefix;
    uint32_t i = slot->window_from;

    for (; i < slot->n_shared; i++) {
        RIG_CHECK(prefix->pages[slot->pages[i]].window == slot->windows[i],
                  "window page %u is another one", slot->windows[i]);
        readers[slot->pages[i]]++;
    }
    for (; i < slot->n_pages; i++)
        RIG_CHECK(seen[slot->windows[i]]++ == 0, "window page %u has two owners", slot->windows[i]);
}

static uint32_t check_lists(const struct prefix *prefix, const struct prefix_lists *lists,
                            bool passed)
{
    uint32_t n = 0;

    for (uint32_t user = 0; user < PREFIX_USERS; user++)
        for (uint32_t i = lists->of[user].oldest; i != PAGE_NONE;
             i = prefix->pages[i].window_link.newer, n++)
            RIG_CHECK(prefix->pages[i].readers == 0 && prefix->pages[i].passed == passed &&
                          prefix->pages[i].window != PAGE_NONE && n < lists->n,
                      "window page of page %u in a list", i);
    RIG_CHECK(n == lists->n, "%u in lists of %u", n, lists->n);
    return n;
}

/* A window page of the cache holds what its page does. */
static void check_cached_window(const struct rig *rig, const struct prefix_page *page)
{
    for (uint32_t k = 0; k < PREFIX_TOKENS; k++)
        RIG_CHECK(rig->fake.kv[PAGES_WINDOW][page->window * PREFIX_TOKENS + k] ==
                      page->tokens[k] + 1,
                  "window page %u was written to", page->window);
}

/* What a read from the store goes into has no other owner. */
static void check_reads(const struct engine *engine, enum store_class class, uint8_t *seen)
{
    const struct fetches *fetches = &engine->fetches;

    for (uint32_t i = 0; fetches->all && i < FETCH_READS; i++)
        if (fetches->read[i].memory != PAGE_NONE && fetches->read[i].class == class)
            RIG_CHECK(seen[fetches->read[i].memory]++ == 0, "what is read goes into %u of class %d",
                      fetches->read[i].memory, class);
}

/* Every window page is free, a slot's own, being read, or some page's in the cache. */
static void check_windows(const struct rig *rig)
{
    const struct engine *engine = rig->engine;
    const struct prefix *prefix = &engine->slots.kv.prefix;
    const struct pages *pool = &engine->slots.kv.windows;
    uint8_t seen[4096] = {0};
    uint32_t readers[4096] = {0}, idle = 0;

    for (uint32_t i = 0; i < pool->n_free; i++)
        RIG_CHECK(seen[pool->free[i]]++ == 0, "window page %u is free twice", pool->free[i]);
    for (uint32_t i = 0; i < engine->options.n_slots; i++)
        check_slot_windows(engine, &engine->slots.all[i], seen, readers);
    for (uint32_t i = 0; i < engine->slots.kv.pool.total; i++) {
        const struct prefix_page *page = &prefix->pages[i];
        if (!page->cached || page->window == PAGE_NONE)
            continue;
        RIG_CHECK(seen[page->window]++ == 0, "window page %u has two owners", page->window);
        RIG_CHECK(page->readers == readers[i], "page %u is read by %u", i, readers[i]);
        idle += page->readers == 0;
        check_cached_window(rig, page);
    }
    RIG_CHECK(check_lists(prefix, &prefix->passed, true) +
                      check_lists(prefix, &prefix->resting, false) ==
                  idle,
              "%u window pages that no slot reads", idle);
    check_reads(engine, STORE_WINDOW, seen);
    for (uint32_t i = 0; i < pool->total; i++)
        RIG_CHECK(seen[i] == 1, "window page %u is nowhere", i);
}

/* A slot's state, and the restart point that it begins from. Counts the slots that begin from one. */
static void check_slot_state(const struct rig *rig, const struct slot *slot, uint8_t *seen,
                             uint32_t *beginners)
{
    const struct spec *spec = &slot->spec;

    if (slot->own != PAGE_NONE) {
        RIG_CHECK(seen[slot->own]++ == 0, "state %u has two owners", slot->own);
        RIG_CHECK(slot->n_pages > 0, "a slot without pages has state %u", slot->own);
    }
    if (slot->begins != PAGE_NONE) {
        uint32_t i = spec->base / KV_PAGE_POSITIONS - 1;
        RIG_CHECK(i < slot->n_shared && slot->pages[i] == slot->begins &&
                      spec->base == spec->canonical,
                  "begins from page %u", slot->begins);
        beginners[slot->begins]++;
    } else if (spec->canonical > 0 && spec_has_state(spec)) {
        const struct fake_state *own = &rig->fake.states[slot->own];
        RIG_CHECK(own->valid && own->base == spec->base &&
                      own->folded == fake_fold(slot->tokens, spec->base),
                  "state %u is another text's", slot->own);
    }
}

/* Of the pages from `id` back to the first: is `state` what follows from their text? */
static void check_point(const struct rig *rig, uint32_t id)
{
    const struct prefix_page *pages = rig->engine->slots.kv.prefix.pages;
    const struct fake_state *state = &rig->fake.states[pages[id].point];
    uint32_t tokens[4096], n = 0;

    for (uint32_t i = id; i != PAGE_NONE; i = pages[i].parent)
        n += PREFIX_TOKENS;
    RIG_CHECK(state->valid && state->base == n && n <= 4096, "the restart point of page %u", id);
    for (uint32_t i = id; i != PAGE_NONE; i = pages[i].parent)
        memcpy(tokens + (n -= PREFIX_TOKENS), pages[i].tokens, sizeof(pages[i].tokens));
    RIG_CHECK(state->folded == fake_fold(tokens, state->base), "the restart point of page %u", id);
}

/* Every state is free, a slot's own, being read, or some page's restart point. */
static void check_states(const struct rig *rig)
{
    const struct engine *engine = rig->engine;
    const struct prefix *prefix = &engine->slots.kv.prefix;
    const struct pages *pool = &engine->slots.kv.states;
    uint8_t seen[4096] = {0};
    uint32_t beginners[4096] = {0}, idle = 0, listed = 0;

    for (uint32_t i = 0; i < pool->n_free; i++)
        RIG_CHECK(seen[pool->free[i]]++ == 0, "state %u is free twice", pool->free[i]);
    for (uint32_t i = 0; i < engine->options.n_slots; i++)
        check_slot_state(rig, &engine->slots.all[i], seen, beginners);
    for (uint32_t i = 0; i < engine->slots.kv.pool.total; i++) {
        const struct prefix_page *page = &prefix->pages[i];
        if (!page->cached || page->point == PAGE_NONE)
            continue;
        RIG_CHECK(seen[page->point]++ == 0, "state %u has two owners", page->point);
        RIG_CHECK(page->beginners == beginners[i], "%u begin from page %u", page->beginners, i);
        idle += page->beginners == 0;
        check_point(rig, i);
    }
    for (uint32_t user = 0; user < PREFIX_USERS; user++)
        for (uint32_t i = prefix->points.of[user].oldest; i != PAGE_NONE;
             i = prefix->pages[i].point_link.newer, listed++)
            RIG_CHECK(prefix->pages[i].beginners == 0 && prefix->pages[i].point != PAGE_NONE &&
                          listed < idle,
                      "page %u in the lists of restart points", i);
    RIG_CHECK(listed == idle && listed == prefix->points.n, "%u restart points in the lists",
              listed);
    check_reads(engine, STORE_STATE, seen);
    for (uint32_t i = 0; i < pool->total; i++)
        RIG_CHECK(seen[i] == 1, "state %u is nowhere", i);
}

/* The draft model's pages: free, or in one slot's table, which holds what it says. */
static void check_draft_pages(const struct rig *rig)
{
    const struct engine *engine = rig->engine;
    const struct pages *pool = &engine->drafters.all[DRAFTER_MODEL].pool;
    uint8_t seen[4096] = {0};

    for (uint32_t i = 0; i < pool->n_free; i++)
        seen[pool->free[i]]++;
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        const struct slot *slot = &engine->slots.all[i];
        const struct draft_kv *kv = &slot->draft_kv;
        for (uint32_t k = 0; k < kv->n_pages; k++)
            seen[kv->pages[k]]++;
        RIG_CHECK(kv->computed <= slot->spec.accepted + slot->spec.drafted, "slot %u", i);
        for (uint32_t k = 0; k < kv->computed; k++)
            RIG_CHECK(
                (rig->draft.kv[PAGES_FULL][kv->pages[k / KV_PAGE_POSITIONS] * KV_PAGE_POSITIONS +
                                           k % KV_PAGE_POSITIONS] &
                 ~FAKE_MARK) == slot->tokens[k] + 1,
                "slot %u: the draft model has another token at %u", i, k);
    }
    for (uint32_t i = 0; i < pool->total; i++)
        RIG_CHECK(seen[i] == 1, "page %u of the draft model is %u times there", i, seen[i]);
}

uint32_t rig_reads(const struct rig *rig, enum store_class class)
{
    const struct fetches *fetches = &rig->engine->fetches;
    uint32_t n = 0;

    for (uint32_t i = 0; fetches->all && i < FETCH_READS; i++)
        n += fetches->read[i].memory != PAGE_NONE && fetches->read[i].class == class;
    return n;
}

void rig_check(const struct rig *rig)
{
    const struct engine *engine = rig->engine;
    uint8_t seen[4096] = {0};
    uint32_t held[4096] = {0};
    uint32_t active = 0, paused = 0;

    RIG_CHECK(engine->slots.kv.pool.total <= sizeof(seen), "a rig has at most 4096 pages");
    for (uint32_t i = 0; i < engine->slots.kv.pool.n_free; i++)
        RIG_CHECK(seen[engine->slots.kv.pool.free[i]]++ == 0, "page %u is free twice",
                  engine->slots.kv.pool.free[i]);
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        const struct slot *slot = &engine->slots.all[i];
        check_slot_pages(engine, slot, seen, held);
        RIG_CHECK(spec_valid(&slot->spec), "slot %u", i);
        RIG_CHECK(kv_pages(slot->spec.canonical) <= slot->n_pages, "slot %u lost pages", i);
        RIG_CHECK(slot->state == SLOT_IDLE || slot->client, "slot %u runs without a client", i);
        RIG_CHECK(slot->client || slot->name[0] || slot->n_pages == 0,
                  "slot %u is free, with pages", i);
        active += slot->state != SLOT_IDLE;
        paused += slot->state == SLOT_PAUSED;
    }
    check_cache(rig, seen, held);
    check_draft_pages(rig);
    if (engine->slots.kv.windows.total > 0)
        check_windows(rig);
    if (engine->slots.kv.states.total > 0)
        check_states(rig);
    check_reads(engine, STORE_PAGE, seen);
    for (uint32_t i = 0; i < engine->slots.kv.pool.total; i++)
        RIG_CHECK(seen[i] == 1, "page %u is nowhere", i);
    RIG_CHECK(active == engine->slots.n_active && paused == engine->slots.n_paused,
              "%u active of %u, %u paused of %u", active, engine->slots.n_active, paused,
              engine->slots.n_paused);
}
