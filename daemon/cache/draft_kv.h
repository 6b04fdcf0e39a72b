/*
 * draft_kv: the KV that a draft model keeps of one slot's tokens, in pages of its own, which hold all
 * of its layers.
 *
 * Engine thread. Not shared between slots, and worth little: whatever is lost is computed again, or
 * there are no drafts for a while. Rolling back is arithmetic: positions after the common part are
 * written anew before they are read.
 */
#ifndef HEARTH_DAEMON_CACHE_DRAFT_KV_H
#define HEARTH_DAEMON_CACHE_DRAFT_KV_H

#include "daemon/cache/pages.h"

#include <stdbool.h>
#include <stdint.h>

struct draft_kv {
    uint32_t *pages; /* [of a whole context] page i holds positions 32i .. 32i + 31 */
    uint32_t n_pages;
    /* positions [0, computed) hold KV of the slot's tokens; of the last one none, since its row
     * gives the next draft */
    uint32_t computed;
    bool in_pass; /* the pass that is planned has rows of it */
};

/* Pages for positions [0, n_positions). False: the pool is empty; what was taken so far is kept. */
bool draft_kv_reserve(struct draft_kv *kv, struct pages *pool, uint32_t n_positions);

/* Only tokens [0, n_positions) are unchanged: KV after them is dropped. */
void draft_kv_keep(struct draft_kv *kv, uint32_t n_positions);

/* Lets go of all pages. */
void draft_kv_clear(struct draft_kv *kv, struct pages *pool);

#endif
