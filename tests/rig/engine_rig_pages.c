/* Where a rig's pages are: every one in one place, which holds what it says. */
#include "tests/rig/engine_rig.h"

#include "kernels/kv.h"

#include <stdio.h>
#include <stdlib.h>

/* A page of the cache as its slot sees it. */
static void check_shared_page(const struct engine *engine, const struct slot *slot, uint32_t i)
{
    uint32_t id = slot->pages[i];
    const struct prefix_page *page = &engine->kv.prefix.pages[id];

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

    RIG_CHECK(slot->n_shared == (prefix_shares(slot->uid) ? full : 0),
              "%u pages are shared, %u are canonical", slot->n_shared, full);
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
    const struct prefix *prefix = &rig->engine->kv.prefix;
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
    const struct prefix *prefix = &rig->engine->kv.prefix;
    uint32_t cached = 0, idle = 0, listed = 0;

    for (uint32_t i = 0; i < rig->engine->kv.pool.total; i++) {
        const struct prefix_page *page = &prefix->pages[i];
        RIG_CHECK(held[i] == (page->cached ? page->held : 0), "page %u is held by %u", i, held[i]);
        if (!page->cached)
            continue;
        cached++;
        idle += page->held == 0;
        seen[i]++;
        check_cached_page(rig, i);
    }
    for (uint32_t i = prefix->oldest; i != PAGE_NONE; i = prefix->pages[i].newer)
        RIG_CHECK(prefix->pages[i].held == 0 && ++listed <= cached, "the list of idle pages");
    RIG_CHECK(cached == prefix->n_cached && idle == prefix->n_idle && listed == idle,
              "%u cached of %u, %u idle of %u, %u in the list", cached, prefix->n_cached, idle,
              prefix->n_idle, listed);
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

void rig_check(const struct rig *rig)
{
    const struct engine *engine = rig->engine;
    uint8_t seen[4096] = {0};
    uint32_t held[4096] = {0};
    uint32_t active = 0, paused = 0;

    RIG_CHECK(engine->kv.pool.total <= sizeof(seen), "a rig has at most 4096 pages");
    for (uint32_t i = 0; i < engine->kv.pool.n_free; i++)
        RIG_CHECK(seen[engine->kv.pool.free[i]]++ == 0, "page %u is free twice",
                  engine->kv.pool.free[i]);
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
    for (uint32_t i = 0; i < engine->kv.pool.total; i++)
        RIG_CHECK(seen[i] == 1, "page %u is nowhere", i);
    RIG_CHECK(active == engine->slots.n_active && paused == engine->slots.n_paused,
              "%u active of %u, %u paused of %u", active, engine->slots.n_active, paused,
              engine->slots.n_paused);
}
