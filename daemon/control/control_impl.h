/*
 * control_impl: what the control thread's files share. control.c: a client's life, events, time;
 * handshake.c: who gets in, and with what.
 */
#ifndef HEARTH_DAEMON_CONTROL_CONTROL_IMPL_H
#define HEARTH_DAEMON_CONTROL_CONTROL_IMPL_H

#include "daemon/engine/client.h"
#include "daemon/control/control.h"

#include <stdbool.h>

struct control {
    struct control_options options;
    struct loop *loop;
    struct client *clients; /* list */
    uint32_t n_clients;     /* in the list, in any state */
    uint32_t n_greeting;
    uint64_t n_accepted; /* since the start */
    uint32_t slots_free;
    uint64_t start_ns;
    uint64_t watchdog_ns; /* 0: nobody watches */
    uint64_t watchdog_due_ns;
    uint64_t heartbeat;     /* the engine's, as of the last watchdog */
    uint64_t accept_at_ns;  /* > 0: accepting failed, and is tried again then */
    bool accept_failing;    /* said so already */
    bool unread;            /* some client's turn ended before all that it says was read */
    uint64_t idle_stop_ns;  /* 0: it serves whoever may come */
    uint64_t idle_since_ns; /* nobody is connected since then; 0: somebody is */
    bool ending; /* accepting comes to its end, to stop unless somebody was accepted meanwhile */
    bool stopping;
    bool stopped;
    int error;
};

/* ---- control.c ---- */

void control_post(struct control *control, enum mail_kind kind, struct client *client);

/* The gauges that follow from the list of clients. */
void control_gauges(struct control *control);

/* Closes and frees; the engine must not know the client (any more). */
void control_free(struct control *control, struct client *client);

/* The client is gone, or has to go. What the engine borrows comes back with MAIL_DETACHED. */
void control_drop(struct control *control, struct client *client);

/* ---- handshake.c ---- */

/* Is there room for one more connection of this user, until it greets? Where all room is taken, the user with the most
 * connections that say nothing gives its longest silent one, to who has fewer: nobody keeps others out by silence. */
bool handshake_room(struct control *control, uid_t uid);

/* A HELLO came: lets the client in, or refuses and frees it, or lets it wait. */
void handshake_hello(struct control *control, struct client *client, const void *message,
                     size_t bytes);

/* A client has left: those who waited for its slots or its name are looked at again. */
void handshake_retry(struct control *control);

/* Tells the client in one line why not, and frees it. */
void handshake_refuse(struct control *control, struct client *client, int code, const char *line);

#endif
