/*
 * pass: one step of the engine, its stages in order:
 *
 *   reap        closes the clients that were marked in the step before
 *   ingest      takes mail and submit cells; ends requests that were voided
 *   fetch       takes what was read from the store; new requests whose text it has wait for it
 *   plan        which slots go on, and whether a canonical pass or a fast one has their next token
 *   unverified  which of the latter have a row of the fast pass
 *   draft       drafts from text and by models: the fast passes run
 *   canonical   gathers the rows of one canonical pass, and runs it
 *   settle      notes what the pass did to each slot's memory
 *   verify      accepts or rolls back, finds answers that are over
 *   publish     tokens, then ends
 *   wake        the clients that sleep
 *
 * A stage marks a client that broke the protocol (attached_fail), or an answer that is over
 * (request_end); it never closes or publishes by itself.
 */
#ifndef HEARTH_DAEMON_ENGINE_PASS_H
#define HEARTH_DAEMON_ENGINE_PASS_H

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct slot;

/* Returns the work done: 0 when there was nothing to do. */
uint32_t pass_step(struct engine *engine);

/* Could the slot's request go on: was it voided, or is there room for its next window? */
bool pass_runnable(struct slot *slot);

#endif
