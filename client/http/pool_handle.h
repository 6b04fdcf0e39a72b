/* gate_slot.h - of gate.c alone: a slot of the gateway, from its connection to its end, and the events
 * that come by it. */
#ifndef HEARTH_CLIENT_HTTP_POOL_HANDLE_H
#define HEARTH_CLIENT_HTTP_POOL_HANDLE_H

#include "client/http/pool.h"

/* A connected handle becomes the first slot that has none. */
void gate_slot_open(struct gate *g, struct hearth *h);

/* Its job, if it has one, is lost. */
void gate_slot_close(struct slot *s);

/* Is its daemon gone, as far as is known? */
bool gate_slot_is_away(struct slot *s);

/* Takes what is there, until hearth_fd() says when there is more. May close the slot. */
void gate_slot_drain(struct slot *s);

/* Remembers a request's tokens, which its answer's will follow. */
void gate_slot_set_tokens(struct slot *s, const struct hearth_request *r);

/* How many tokens a request and what is remembered have in common from the beginning. */
uint32_t gate_slot_common(const struct slot *s, const struct hearth_request *r);

/* Of gate.c: gives free slots to who waits, and has one more made where none is free. */
void gate_kick(struct gate *g);

#endif
