/* clients.h: the control thread's state: its list of clients and what ends them.
 *
 * Control thread only. control.c and handshake.c share this; a client's life is in client.h. */
#ifndef HEARTH_DAEMON_CONTROL_CLIENTS_H
#define HEARTH_DAEMON_CONTROL_CLIENTS_H

#include "daemon/engine/client.h"
#include "daemon/control/control.h"
#include "daemon/control/status.h"
#include "daemon/log.h"
#include "daemon/steady.h"

#include <stdbool.h>

/* One for each of up to 1,088 connections, and some whose buckets are not full again. */
enum { USERS_MOST = 1152 };

/* A user's connections, and its token buckets (rate.h). */
struct control_user {
    uid_t uid;
    uint32_t n_clients;   /* in the list, in any state */
    uint32_t n_greeting;  /* of them: not let in yet, silent or waiting for a slot */
    uint32_t n_looking;   /* of them: let in without a slot */
    uint32_t n_slots;     /* of all of them */
    struct client *named; /* list of those with a named slot */
    uint64_t segments_due_ns, asks_due_ns;
};

struct control {
    struct control_options options;
    struct loop *loop;
    struct client *clients; /* list */
    uint32_t n_clients;     /* clients in the list, in any state */
    uint32_t n_greeting;
    uint32_t n_detaching;
    uint64_t n_accepted; /* clients accepted since the start */
    uint32_t slots_free;
    struct control_user users[USERS_MOST];
    struct status_process process;
    struct steady clock;
    uint64_t start_ns;
    uint64_t watchdog_ns; /* 0: there is no watchdog */
    uint64_t watchdog_due_ns;
    uint64_t heartbeat;    /* the engine's heartbeat when the watchdog last looked */
    uint64_t unread_ns;    /* > 0: the first unread_ns of a client */
    uint64_t turn;         /* number of the client that was answered last */
    uint64_t accept_at_ns; /* > 0: accepting failed and is retried at this time */
    struct log_limit closed_lines, accept_lines;
    bool accept_failing;    /* the failure was logged */
    uint64_t idle_stop_ns;  /* 0: never stop by itself */
    uint64_t idle_since_ns; /* when the last client left; 0: a client is connected */
    bool accept_ending;     /* accepting ends, to stop unless a client connects meanwhile */
    bool stopping;
    bool stopped;
    int error;
};

/* Looks at the clock. */
static inline uint64_t clients_clock(struct control *control)
{
    return steady_look(&control->clock);
}

/* Sends mail to the engine thread. */
void clients_post(struct control *control, enum mail_kind kind, struct client *client);

/* Sets the gauges that follow from the list of clients. */
void clients_gauges(struct control *control);

/* Closes and frees. PRECOND: the engine does not know the client (any more). */
void clients_free(struct control *control, struct client *client);

/* The client hung up or is being closed. Its memory comes back from the engine with
 * MAIL_DETACHED. */
void clients_drop(struct control *control, struct client *client);

/* The user's place. Of more users than there is room for, those without connections whose buckets
 * are fullest are forgotten. */
struct control_user *clients_user(struct control *control, uid_t uid);

/* True if the client is in the list: it may have been freed meanwhile. */
bool clients_have(const struct control *control, const struct client *wanted);

#endif
