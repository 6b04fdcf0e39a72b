/*
 * gather: what goes into a canonical pass: which slots could compute, which of them computes a page
 * that several need, how many rows each has, and pages for them.
 */
#ifndef HEARTH_DAEMON_ENGINE_GATHER_H
#define HEARTH_DAEMON_ENGINE_GATHER_H

#include "daemon/policy/cost.h"

struct engine;
struct slot;

/* Lets the slot into a pass if its reader has left room for its next window. Otherwise pauses it,
 * and only it; a client that broke its ring is marked. Returns whether it may go on. */
bool gather_admit(struct engine *engine, struct slot *slot);

/* Pages for rows [from, to), from others where the pool is empty; the slot is planned
 * then (SLOT_PLANNED). False: no slot could be evicted, it waits (SLOT_WAITING). */
bool gather_pages(struct engine *engine, struct slot *slot, uint32_t from, uint32_t to);

/* What this step computes. `decode_rows`: of slots that decode in its canonical pass. */
struct cost_step gather_cost(const struct engine *engine, uint32_t decode_rows);

/* The pass is over, of which short prompts took `short_ns`: their users owe it where an interactive
 * answer of another user was delayed by it. In the long run a user's keystrokes have a quarter of
 * the time beside others' answers; what is more counts as long prompts. */
void gather_charge(struct engine *engine, uint64_t short_ns);

/* Fills the batch for the next canonical pass, each slot's rows in one piece, and takes pages for
 * them. Returns the number of rows; 0: no slot can go on. */
uint32_t gather_plan(struct engine *engine);

#endif
