/*
 * stored: the engine's KV in the store: what is kept there, and under which text.
 *
 * Engine thread. The cache (daemon/cache/prefix.h) shows what has to give way to others, and at a stop
 * all that is warm is gone through: what the store takes is copied into one of its buffers. So each
 * costs a copy of a page, and nothing waits; where there is no buffer, it is dropped.
 */
#ifndef HEARTH_DAEMON_ENGINE_STORED_H
#define HEARTH_DAEMON_ENGINE_STORED_H

#include "daemon/cache/slot.h"
#include "daemon/model/loaded_model.h"
#include "daemon/policy/cost.h"
#include "daemon/store/store.h"

struct ctl;

struct stored {
    struct store *store; /* NULL: there is none, and the rest means nothing */
    const struct loaded_model *loaded;
    struct slots *slots;
    const struct cost *cost;
    struct ctl *ctl;
    bool failed; /* the device does not give pages any more */
    /* Named slots of an earlier start that had no place at this one: [n_waiting]. Tokens are owned. */
    struct store_slot *waiting;
    uint32_t n_waiting, n_lost; /* those that did not fit in: forgotten at the next stop */
};

/* The caches of `slots` show their pages from now on, if there is a store. */
void stored_open(struct stored *stored, struct slots *slots);

/* The text up to the end of a page of the cache. */
void stored_text(const struct stored *stored, uint32_t page, struct store_text *ret);

/* What it is thought to take to compute so many rows of a prompt. */
uint64_t stored_compute_ns(const struct stored *stored, uint32_t rows);

/* Once a step: wakes the store's thread if there is something to do. Counters. */
void stored_submit(const struct stored *stored);
void stored_count(const struct stored *stored);

/* No step follows: offers all that is warm, the most recently used texts first, until it is done or
 * `limit_ns` have passed by the clock. Waits for the disk. */
void stored_stop(struct stored *stored, uint64_t (*now_ns)(void), uint64_t limit_ns);

/* Main thread, without an engine thread. Named slots to the store; and from there, parked, before
 * clients come. What has no place, where --slots or --context are smaller than before, waits for a
 * later start. Returns 0 or -errno. */
int stored_save_slots(const struct stored *stored);
int stored_load_slots(struct stored *stored);

void stored_fini(struct stored *stored);

#endif
