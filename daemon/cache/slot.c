/* Slots, and which of them gives its pages to another one. */
#include "daemon/cache/slot.h"

#include "kernels/kv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* One more than the context: the token that ends a full sequence has a place, but no row. */
static size_t token_bytes(uint32_t context)
{
    return ((size_t)context + 1) * sizeof(uint32_t);
}

int slot_init(struct slot *slot, uint32_t context)
{
    *slot = (struct slot){.n_pages_max = kv_pages(context)};
    slot->tokens = mmap(NULL, token_bytes(context), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slot->tokens == MAP_FAILED) {
        slot->tokens = NULL;
        return -ENOMEM;
    }
    slot->pages = calloc(slot->n_pages_max, sizeof(*slot->pages));
    slot->draft_kv.pages = calloc(slot->n_pages_max, sizeof(*slot->draft_kv.pages));
    if (!slot->pages || !slot->draft_kv.pages) {
        slot_fini(slot, context);
        return -ENOMEM;
    }
    return 0;
}

void slot_fini(struct slot *slot, uint32_t context)
{
    if (slot->tokens)
        munmap(slot->tokens, token_bytes(context));
    proposer_close(&slot->proposer);
    free(slot->pages);
    free(slot->draft_kv.pages);
    *slot = (struct slot){0};
}

int slots_init(struct slots *slots, uint32_t n, uint32_t context)
{
    int rc = 0;

    slots->all = calloc(n, sizeof(*slots->all));
    slots->ending = calloc(n, sizeof(struct slot *));
    if (!slots->all || !slots->ending)
        return -ENOMEM;
    for (; slots->n < n && rc == 0; slots->n++)
        rc = slot_init(&slots->all[slots->n], context);
    return rc;
}

void slots_fini(struct slots *slots, uint32_t context)
{
    for (uint32_t i = 0; i < slots->n; i++)
        slot_fini(&slots->all[i], context);
    free(slots->all);
    free(slots->ending);
    *slots = (struct slots){0};
}

void slots_set(struct slots *slots, struct slot *slot, enum slot_state state)
{
    slots->n_active += (uint32_t)(state != SLOT_IDLE) - (uint32_t)(slot->state != SLOT_IDLE);
    slots->n_paused += (uint32_t)(state == SLOT_PAUSED) - (uint32_t)(slot->state == SLOT_PAUSED);
    if (state == SLOT_ENDING)
        slots->ending[slots->n_ending++] = slot;
    slot->state = state;
}

/* Keeps the first `n_pages` pages. The last one goes first, as the cache wants it. */
static void slot_shrink(struct slot *slot, struct prefix *prefix, uint32_t n_pages)
{
    while (slot->n_pages > n_pages) {
        uint32_t page = slot->pages[--slot->n_pages];
        if (slot->n_pages >= slot->n_shared) {
            pages_return(prefix->pool, page);
        } else {
            prefix_release(prefix, page);
            slot->n_shared--;
        }
    }
}

void slot_evict(struct slot *slot, struct prefix *prefix)
{
    slot_shrink(slot, prefix, 0);
    spec_evict(&slot->spec, 0);
    slot->goal = slot->spec.drafted; /* a fast pass could read nothing here any more */
}

void slot_clear(struct slot *slot, struct prefix *prefix, uint32_t context)
{
    assert(slot->state == SLOT_IDLE && slot->draft_kv.n_pages == 0);
    slot_evict(slot, prefix);
    madvise(slot->tokens, token_bytes(context), MADV_DONTNEED); /* gone, not only unreachable */
    proposer_close(&slot->proposer); /* its index holds nothing but positions, but takes room */
    slot->client = NULL;
    slot->name[0] = 0;
    slot->same = 0;
    slot->goal = 0;
    slot->spec = (struct spec){0};
}

bool slot_reserve(struct slot *slot, struct prefix *prefix, uint32_t n_positions)
{
    uint32_t wanted = kv_pages(n_positions);

    assert(wanted <= slot->n_pages_max);
    while (slot->n_pages < wanted) {
        uint32_t page = prefix_take(prefix);
        if (page == PAGE_NONE)
            return false;
        slot->pages[slot->n_pages++] = page;
    }
    return true;
}

void slot_trim(struct slot *slot, struct prefix *prefix)
{
    slot_shrink(slot, prefix, kv_pages(slot->spec.canonical));
    if (slot->n_shared * KV_PAGE_POSITIONS <= slot->spec.canonical)
        return;
    if (prefix_withdraw(prefix, slot->pages[slot->n_shared - 1])) {
        slot->n_shared--;
    } else {
        slot_shrink(slot, prefix, slot->n_pages - 1);
        spec_evict(&slot->spec, slot->n_pages * KV_PAGE_POSITIONS);
    }
}

/* ---- sharing --------------------------------------------------------------------------------- */

/* The page before page `i`. */
static uint32_t slot_parent(const struct slot *slot, uint32_t i)
{
    return i > 0 ? slot->pages[i - 1] : PAGE_NONE;
}

/* Has the slot a row to compute after page `i`? The last accepted token's row gives the sample, so
 * it is computed in any case. */
static bool slot_goes_beyond(const struct slot *slot, uint32_t i)
{
    return (uint64_t)(i + 1) * KV_PAGE_POSITIONS < slot->spec.accepted;
}

uint32_t slot_adopt(struct slot *slot, struct prefix *prefix)
{
    uint32_t before = slot->spec.canonical;

    for (uint32_t i = before / KV_PAGE_POSITIONS; i <= slot->n_shared; i++) {
        uint32_t page = PAGE_NONE;
        if (slot_goes_beyond(slot, i))
            page = prefix_find(prefix, slot->uid, slot_parent(slot, i),
                               slot->tokens + (size_t)i * KV_PAGE_POSITIONS);
        if (page == PAGE_NONE)
            break;
        slot_shrink(slot, prefix, i); /* a part of this page, computed by itself */
        prefix_hold(prefix, page);
        slot->pages[slot->n_pages++] = page;
        slot->n_shared++;
        spec_prefilled(&slot->spec, (i + 1) * KV_PAGE_POSITIONS - slot->spec.canonical);
    }
    return slot->spec.canonical - before;
}

void slot_share(struct slot *slot, struct prefix *prefix)
{
    if (!prefix_shares(slot->uid))
        return;
    for (uint32_t i = slot->n_shared; i < slot->spec.canonical / KV_PAGE_POSITIONS; i++) {
        slot->pages[i] = prefix_publish(prefix, slot->uid, slot_parent(slot, i), slot->pages[i],
                                        slot->tokens + (size_t)i * KV_PAGE_POSITIONS);
        slot->n_shared++;
    }
}

bool slot_fills_page(const struct slot *slot)
{
    return prefix_shares(slot->uid) &&
           slot_goes_beyond(slot, slot->spec.canonical / KV_PAGE_POSITIONS);
}

bool slot_same_page(const struct slot *slot, const struct slot *other)
{
    uint32_t i = slot->n_shared;

    /* The same parent is the same prefix: equal pages are one page in the cache. */
    return slot->uid == other->uid && other->n_shared == i &&
           slot_parent(slot, i) == slot_parent(other, i) &&
           !memcmp(slot->tokens + (size_t)i * KV_PAGE_POSITIONS,
                   other->tokens + (size_t)i * KV_PAGE_POSITIONS,
                   KV_PAGE_POSITIONS * sizeof(*slot->tokens));
}

/* ---- eviction ------------------------------------------------------------------------------ */

/* The order of giving way; the lowest class goes first. */
enum yield_class { YIELD_IDLE, YIELD_PAUSED, YIELD_BATCH, YIELD_INTERACTIVE, YIELD_NEVER };

static enum yield_class yields(const struct slot *slot, const struct slot *needy)
{
    if (slot == needy || slot->state == SLOT_PLANNED || slot->n_pages == 0)
        return YIELD_NEVER;
    if (slot->state == SLOT_IDLE || slot->state == SLOT_ENDING)
        return YIELD_IDLE;
    if (slot->state == SLOT_PAUSED)
        return YIELD_PAUSED;
    if (slot->batch && !needy->batch)
        return YIELD_BATCH;
    if (slot->batch == needy->batch && slot->serial > needy->serial)
        return slot->batch ? YIELD_BATCH : YIELD_INTERACTIVE;
    return YIELD_NEVER;
}

struct slot *slot_victim(struct slot *slots, uint32_t n_slots, const struct slot *needy)
{
    struct slot *victim = NULL;
    enum yield_class lowest = YIELD_NEVER;

    for (uint32_t i = 0; i < n_slots; i++) {
        struct slot *slot = &slots[i];
        enum yield_class class = yields(slot, needy);
        bool newer = victim && slot->serial > victim->serial;
        if (class > lowest || class == YIELD_NEVER)
            continue;
        /* Idle: the least recently used. Active: the newest, which has the least to compute again. */
        if (class < lowest || (class == YIELD_IDLE ? !newer : newer)) {
            victim = slot;
            lowest = class;
        }
    }
    return victim;
}
