/*
 * verify: what came out of a canonical pass, taken through the speculation record: drafts that
 * agree are accepted, the rest is rolled back, and an answer that is over is marked.
 */
#ifndef HEARTH_DAEMON_ENGINE_VERIFY_H
#define HEARTH_DAEMON_ENGINE_VERIFY_H

#include "daemon/engine/batch.h"
#include "daemon/engine/drafters.h"
#include "ipc/event.h"

struct request;

/* Notes what the pass did to the memory of each of its slots, whether or not its request still
 * lives: prompt rows are canonical now, and nothing is in use any more. */
void verify_settle(struct batch *batch, struct slots *slots);

/* Takes the samples of each slot's window, for requests that still live, and shares the pages that
 * are complete. */
void verify_step(struct batch *batch, struct slots *slots, struct drafters *drafters,
                 const struct loaded_model *loaded);

/* Feeds one accepted token of the answer, in order. Does the answer stop with it: is it a stop
 * token, or does a stop text end in its bytes? */
bool verify_feed_stops(const struct vocab *vocab, struct request *request, uint32_t token);

/* Feeds one accepted token, which the slot's record has, to the grammar and the stops; `drafted`:
 * it was. Returns why the answer ends with it, or 0: it goes on, or constrain_step will say
 * (`behind`). An end token is taken out of the record. */
enum done_reason verify_token(const struct vocab *vocab, struct slot *slot, uint32_t token,
                              bool drafted);

/* Marks an answer that is over for this reason; 0: it goes on. */
void verify_end(struct slots *slots, struct slot *slot, enum done_reason reason);

#endif
