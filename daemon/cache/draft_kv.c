/* Pages of a draft model, slot by slot. */
#include "daemon/cache/draft_kv.h"

#include "kernels/kv.h"

bool draft_kv_reserve(struct draft_kv *kv, struct pages *pool, uint32_t n_positions)
{
    uint32_t wanted = kv_pages(n_positions);
    while (kv->n_pages < wanted) {
        uint32_t page = pages_take(pool);
        if (page == PAGE_NONE)
            return false;
        kv->pages[kv->n_pages++] = page;
    }
    return true;
}

void draft_kv_keep(struct draft_kv *kv, uint32_t n_positions)
{
    if (kv->computed > n_positions)
        kv->computed = n_positions;
}

void draft_kv_clear(struct draft_kv *kv, struct pages *pool)
{
    while (kv->n_pages > 0)
        pages_return(pool, kv->pages[--kv->n_pages]);
    kv->computed = 0;
}
