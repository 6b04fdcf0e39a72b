/* control_impl.h: shared by the control thread's files. control.c: a client's life, events, time;
 * handshake.c: which clients are let in, and with what. */
#ifndef HEARTH_DAEMON_CONTROL_CONTROL_IMPL_H
#define HEARTH_DAEMON_CONTROL_CONTROL_IMPL_H

#include "daemon/engine/client.h"
#include "daemon/control/control.h"

#include <stdbool.h>

struct control {
    struct control_options options;
    struct loop *loop;
    struct client *clients; /* list */
    uint32_t n_clients;     /* clients in the list, in any state */
    uint32_t n_greeting;
    uint64_t n_accepted; /* clients accepted since the start */
    uint32_t slots_free;
    uint64_t start_ns;
    uint64_t watchdog_ns; /* 0: there is no watchdog */
    uint64_t watchdog_due_ns;
    uint64_t heartbeat;     /* the engine's heartbeat when the watchdog last looked */
    uint64_t accept_at_ns;  /* > 0: accepting failed and is retried at this time */
    bool accept_failing;    /* the failure was logged */
    bool unread;            /* some client's turn ended before everything it sent was read */
    uint64_t idle_stop_ns;  /* 0: never stop by itself */
    uint64_t idle_since_ns; /* when the last client left; 0: a client is connected */
    bool ending; /* accepting is being ended, to stop unless another client comes meanwhile */
    bool stopping;
    bool stopped;
    int error;
};

/* ---- control.c ---- */

void control_post(struct control *control, enum mail_kind kind, struct client *client);

/* Sets the gauges that follow from the list of clients. */
void control_gauges(struct control *control);

/* Closes and frees. PRECOND: the engine does not know the client (any more). */
void control_free(struct control *control, struct client *client);

/* The client hung up or is being closed. Its memory comes back from the engine with
 * MAIL_DETACHED. */
void control_drop(struct control *control, struct client *client);

/* ---- handshake.c ---- */

/* Makes room for one more connection of this user that has not greeted yet. When full, evicts the
 * longest-silent ungreeted connection of the user with the most of them if the new user has fewer,
 * so that silent connections cannot keep others out. False: no room. */
bool handshake_room(struct control *control, uid_t uid);

/* Handles a HELLO: lets the client in, refuses and frees it, or lets it wait. */
void handshake_hello(struct control *control, struct client *client, const void *message,
                     size_t bytes);

/* Call after a client has left: clients that wait for its slots or its name are looked at again. */
void handshake_retry(struct control *control);

/* Sends the client one line that says why it is refused, and frees it. */
void handshake_refuse(struct control *control, struct client *client, int code, const char *line);

#endif
