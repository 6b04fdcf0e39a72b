/* answer: what a client gets to see: accepted tokens, progress, and one end for every request,
 * with its receipt (answer_fill in answer.c; `hearth replay` compares it, client/cli/replay.c). */
#ifndef HEARTH_DAEMON_ENGINE_ANSWER_H
#define HEARTH_DAEMON_ENGINE_ANSWER_H

#include "ipc/event.h"
#include "ipc/layout.h"

struct client;
struct engine;
struct request;
struct slot;

/* Publishes what came out of a pass (batch_slot), then the end of each answer that is over
 * (request_end). The batch is empty then. */
void answer_publish(struct engine *engine);

/* Ends the slot's request at once: counts, publishes EVENT_DONE, lets the slot rest with what is
 * canonical. `error` and `text` go with DONE_ERROR, else 0 and "". */
void answer_end(struct engine *engine, struct slot *slot, enum done_reason reason, int error,
                const char *text);

/* Tells a client that a request never became one. Returns 0, or -EAGAIN when there is no room: the
 * cell stays unread. */
int answer_refuse(struct engine *engine, struct client *client, const struct submit_cell *cell,
                  enum done_reason reason, int error, const char *text);

/* Event cells that `window` tokens may need, the answer's end not counted. */
uint32_t answer_room(const struct request *request, uint32_t window);

/* The same for the slot's next window. */
uint32_t answer_room_needed(const struct slot *slot);

/* Publishes how far a prefill has come, for people. */
void answer_progress(struct slot *slot, enum down_state state);

#endif
