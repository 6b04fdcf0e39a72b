/*
 * pages: which KV pages are free. A page is an id below the pool's size; its memory is the
 * backend's.
 *
 * Engine thread only. A page that is not free has one owner (a slot), or is in the prefix cache,
 * which counts the slots that share it: slots get their pages there (prefix_take).
 */
#ifndef HEARTH_DAEMON_CACHE_PAGES_H
#define HEARTH_DAEMON_CACHE_PAGES_H

#include <stdint.h>

struct pages {
    uint32_t *free; /* [total] stack of free ids; the first n_free are valid */
    uint32_t n_free;
    uint32_t n_clean; /* of these, from the bottom: they hold no memory */
    uint32_t total;
};

enum { PAGE_NONE = 0xffffffff };

/* Returns 0, or -ENOMEM. All pages are free. */
int pages_init(struct pages *pages, uint32_t total);
void pages_fini(struct pages *pages);

/* A free page, or PAGE_NONE: the caller then evicts some. */
uint32_t pages_take(struct pages *pages);
void pages_return(struct pages *pages, uint32_t page);

/* A free page that may hold memory still, or PAGE_NONE. It counts as clean from now on: the caller
 * gives its memory back to the system. */
uint32_t pages_clean(struct pages *pages);

#endif
