/* answer: what a client gets to see: accepted tokens, progress, and one end for every request,
 * with its receipt (answer_fill in answer.c; `hearth replay` compares it, client/cli/replay.c). */
#ifndef HEARTH_DAEMON_ENGINE_ANSWER_H
#define HEARTH_DAEMON_ENGINE_ANSWER_H

#include "daemon/engine/batch.h"
#include "daemon/engine/client.h"
#include "daemon/model/loaded_model.h"

/* Publishes what came out of a pass (batch_slot). The batch is empty then. */
void answer_publish(struct batch *batch, struct attached *clients);

/* Ends each answer that is over (request_end): counts, publishes EVENT_DONE, lets the slot rest with
 * what is canonical. */
void answer_ends(struct slots *slots, struct attached *clients, const struct loaded_model *loaded,
                 uint64_t now_ns);

/* Tells a client that its request did not begin: why not, or, with no error, that a newer one
 * superseded it. Returns 0, or -EAGAIN when there is no room: the cell stays unread. */
int answer_refuse(struct attached *clients, const struct loaded_model *loaded,
                  struct client *client, const struct submit_cell *cell, int error,
                  const char *text);

/* Event cells that `window` tokens may need, the answer's end not counted. */
uint32_t answer_room(const struct request *request, uint32_t window);

/* The same for the slot's next window. */
uint32_t answer_room_needed(const struct slot *slot);

/* Publishes how far a prefill has come, for people. */
void answer_progress(struct slot *slot, enum down_state state);

#endif
