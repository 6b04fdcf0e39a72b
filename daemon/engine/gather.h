/*
 * gather: what goes into a canonical pass: which slots could compute, which of them computes a page
 * that several need, how many rows each has, and pages for them.
 */
#ifndef HEARTH_DAEMON_ENGINE_GATHER_H
#define HEARTH_DAEMON_ENGINE_GATHER_H

#include "daemon/engine/batch.h"
#include "daemon/engine/client.h"
#include "daemon/policy/cost.h"

/* Lets the slot into a pass if its reader has left room for its next window. Otherwise pauses it,
 * and only it; a client that broke its ring is marked. Returns whether it may go on. */
bool gather_admit(struct slots *slots, struct attached *clients, struct slot *slot);

/* Adopts pages that the cache has meanwhile. Returns how many positions the request is further along
 * than it ever was: these count as cached. */
uint32_t gather_adopt(struct slot *slot, struct prefix *prefix, struct ctl *ctl);
uint32_t gather_gained(struct slot *slot, struct ctl *ctl); /* after it adopted */

/* Pages for rows [from, to) that no request has to give: free ones, then of what no request needs
 * that of the user with the most. False: too few; what was taken so far is kept. */
bool gather_reserve(struct slots *slots, struct ctl *ctl, struct slot *slot, uint32_t from,
                    uint32_t to);

/* Pages for rows [from, to), from others where the pool is empty, which have no rows then; the slot
 * is planned (SLOT_PLANNED). False: no slot could be evicted, it waits (SLOT_WAITING). */
bool gather_pages(struct batch *batch, struct slots *slots, struct ctl *ctl, struct slot *slot,
                  uint32_t from, uint32_t to);

/* The pass is over, of which short prompts took `short_ns`: their users owe it where an interactive
 * answer of another user was delayed by it. In the long run a user's keystrokes have a quarter of
 * the time beside others' answers; what is more counts as long prompts. */
void gather_charge(const struct batch *batch, uint64_t short_ns);

/* Fills the batch for the next canonical pass, each slot's rows in one piece, and takes pages for
 * them. `step` says what the step computes besides, and is told what decodes. Returns the number of
 * rows; 0: no slot can go on. */
uint32_t gather_plan(struct batch *batch, struct slots *slots, struct attached *clients,
                     const struct cost *cost, struct cost_step *step);

#endif
