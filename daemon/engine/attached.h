/* attached: the clients that the engine serves: attached, let go, closed, woken. */
#ifndef HEARTH_DAEMON_ENGINE_ATTACHED_H
#define HEARTH_DAEMON_ENGINE_ATTACHED_H

#include "daemon/engine/client.h"
#include "daemon/engine/drafters.h"
#include "daemon/engine/mailbox.h"

/* Tells the control thread, and wakes it. */
void attached_post(struct attached *clients, enum mail_kind kind, struct client *client, int error);

/* Closes the clients that earlier stages marked (attached_fail): ends their answers, and tells the
 * control thread. Returns how many. */
uint32_t attached_reap(struct attached *clients, struct slots *slots,
                       const struct loaded_model *loaded, uint64_t now_ns);

/* Does what the control thread says: attaches a client, or cancels and frees all that a dead one
 * had. Returns the number of its messages. */
uint32_t attached_mail(struct attached *clients, struct slots *slots, struct drafters *drafters,
                       const struct loaded_model *loaded, uint64_t now_ns);

/* Ends every answer; no step runs after this one. */
void attached_stop(struct attached *clients, struct slots *slots, const struct loaded_model *loaded,
                   uint64_t now_ns);

/* S2, once a step: wakes the clients that sleep and have news; several of them through the control
 * thread while passes follow each other. */
void attached_wake(struct attached *clients, bool passes_follow, uint64_t now_ns);

/* The client's bell announced work: it is polled (again). */
void attached_listen(struct attached *clients, struct client *client);

#endif
