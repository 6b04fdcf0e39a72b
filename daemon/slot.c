/* Slots and who gives way under page pressure. */
#include "daemon/slot.h"

#include "daemon/request.h"
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
    slot->request = calloc(1, sizeof(*slot->request));
    if (!slot->pages || !slot->request) {
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
    free(slot->request);
    *slot = (struct slot){0};
}

void slot_evict(struct slot *slot, struct pages *pool)
{
    while (slot->n_pages > 0)
        pages_return(pool, slot->pages[--slot->n_pages]);
    spec_evict(&slot->spec, 0);
}

void slot_clear(struct slot *slot, struct pages *pool, uint32_t context)
{
    assert(!slot->active);
    slot_evict(slot, pool);
    madvise(slot->tokens, token_bytes(context), MADV_DONTNEED); /* gone, not only unreachable */
    proposer_close(&slot->proposer); /* its index holds nothing but positions, but takes room */
    slot->client = NULL;
    slot->name[0] = 0;
    slot->same = 0;
    slot->paused = false;
    slot->spec = (struct spec){0};
}

bool slot_reserve(struct slot *slot, struct pages *pool, uint32_t n_positions)
{
    uint32_t wanted = kv_pages(n_positions);

    assert(wanted <= slot->n_pages_max);
    while (slot->n_pages < wanted) {
        uint32_t page = pages_take(pool);
        if (page == PAGE_NONE)
            return false;
        slot->pages[slot->n_pages++] = page;
    }
    return true;
}

void slot_trim(struct slot *slot, struct pages *pool)
{
    uint32_t wanted = kv_pages(slot->spec.canonical);

    while (slot->n_pages > wanted)
        pages_return(pool, slot->pages[--slot->n_pages]);
}

/* The order of giving way; the lowest class goes first. */
enum yield_class { YIELD_IDLE, YIELD_PAUSED, YIELD_BATCH, YIELD_INTERACTIVE, YIELD_NEVER };

static enum yield_class yields(const struct slot *slot, const struct slot *needy)
{
    if (slot == needy || slot->planned || slot->n_pages == 0)
        return YIELD_NEVER;
    if (!slot->active)
        return YIELD_IDLE;
    if (slot->paused)
        return YIELD_PAUSED;
    if (slot->request->batch && !needy->request->batch)
        return YIELD_BATCH;
    if (slot->request->batch == needy->request->batch &&
        slot->request->serial > needy->request->serial)
        return slot->request->batch ? YIELD_BATCH : YIELD_INTERACTIVE;
    return YIELD_NEVER;
}

struct slot *slot_victim(struct slot *slots, uint32_t n_slots, const struct slot *needy)
{
    struct slot *victim = NULL;
    enum yield_class lowest = YIELD_NEVER;

    for (uint32_t i = 0; i < n_slots; i++) {
        struct slot *slot = &slots[i];
        enum yield_class class = yields(slot, needy);
        bool newer = victim && slot->last_used > victim->last_used;
        if (class > lowest || class == YIELD_NEVER)
            continue;
        /* Idle: the longest unused. Active: the newest, which has the least to compute again. */
        if (class < lowest || (class == YIELD_IDLE ? !newer : newer)) {
            victim = slot;
            lowest = class;
        }
    }
    return victim;
}
