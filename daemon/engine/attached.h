/* attached: the clients that the engine serves: attached, let go, closed, woken. */
#ifndef HEARTH_DAEMON_ENGINE_ATTACHED_H
#define HEARTH_DAEMON_ENGINE_ATTACHED_H

#include "daemon/engine/mailbox.h"

struct client;
struct engine;

/* Tells the control thread, and wakes it. */
void attached_post(struct engine *engine, enum mail_kind kind, struct client *client, int error);

/* Closes the clients that earlier stages marked (attached_fail): ends their answers, and tells the
 * control thread. Returns how many. */
uint32_t attached_reap(struct engine *engine);

/* Does what the control thread says: attaches a client, or cancels and frees all that a dead one
 * had. Returns the number of its messages. */
uint32_t attached_mail(struct engine *engine);

/* Ends every answer; no step is turned after this one. */
void attached_stop(struct engine *engine);

/* S2, once a step: wakes the clients that sleep. */
void attached_wake(struct engine *engine);

/* The client had something to say: its bell counts (again). */
void attached_listen(struct engine *engine, struct client *client);

#endif
