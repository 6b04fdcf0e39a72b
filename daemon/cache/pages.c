/* A stack of free pages: the last one returned is handed out first, while it is still in the cache.
 */
#include "daemon/cache/pages.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int pages_init(struct pages *pages, uint32_t total)
{
    pages->free = calloc(total, sizeof(*pages->free));
    if (!pages->free)
        return -ENOMEM;
    pages->total = total;
    pages->n_free = pages->n_clean = total;
    for (uint32_t i = 0; i < total; i++)
        pages->free[i] = total - 1 - i; /* low ids first */
    return 0;
}

void pages_fini(struct pages *pages)
{
    free(pages->free);
    *pages = (struct pages){0};
}

uint32_t pages_take(struct pages *pages)
{
    if (pages->n_free == 0)
        return PAGE_NONE;
    if (pages->n_clean == pages->n_free)
        pages->n_clean--;
    return pages->free[--pages->n_free];
}

void pages_return(struct pages *pages, uint32_t page)
{
    assert(page < pages->total && pages->n_free < pages->total);
    pages->free[pages->n_free++] = page;
}

uint32_t pages_clean(struct pages *pages)
{
    return pages->n_clean < pages->n_free ? pages->free[pages->n_clean++] : PAGE_NONE;
}
