/*
 * client: one connected process, as both daemon threads know it.
 *
 * The control thread makes it, and frees it when the engine thread has answered MAIL_DETACHED.
 * Between MAIL_ATTACH and MAIL_DETACHED the fields under "engine" are the engine thread's alone;
 * those under "waker" are under its lock, the others do not change. Only the control thread closes
 * descriptors and unmaps.
 */
#ifndef HEARTH_DAEMON_ENGINE_CLIENT_H
#define HEARTH_DAEMON_ENGINE_CLIENT_H

#include "daemon/cache/slot.h"
#include "daemon/engine/debt.h"
#include "ipc/bell.h"
#include "ipc/event.h"
#include "ipc/hello.h"
#include "ipc/segment.h"

#include <stdbool.h>
#include <sys/types.h>

enum {
    CLIENT_SLOTS_MAX = 64,
    CLIENT_DRAFTERS = 3,  /* kinds of models that draft (drafters.h) */
    IDLE_RINGS_MAX = 1000 /* rings in a row without work; then that client's bell is not polled */
};

enum client_state {
    CLIENT_GREETING, /* connected, no HELLO yet (or only asking for status) */
    CLIENT_LOOKING,  /* has no slots: the vocabulary and the counters are all it wants */
    CLIENT_ATTACHED,
    CLIENT_DETACHING, /* waiting for the engine thread to let go */
};

/* A user: submit cells are taken from those with clients in turn. Engine thread. */
struct client_user {
    uid_t uid;
    uint32_t n_clients;     /* 0: another user may get the place */
    uint64_t served;        /* number of the last cell that was taken from it */
    uint32_t cells;         /* in this step */
    uint64_t tokens;        /* that these cells announced */
    uint64_t masked;        /* the last turn that it had at masks (constrain.c) */
    uint64_t caught_up;     /* the last turn that the draft model caught up with it (draft.c) */
    uint64_t fetched;       /* the last turn that it had at the store (fetch.c) ... */
    uint32_t fetches;       /* ... and its fetches that read */
    struct debt wakes;      /* attached.c */
    struct debt keystrokes; /* short prompts beside other users' answers (gather.c) */

    struct window_past drafts[CLIENT_DRAFTERS]; /* of each kind (drafters.c) */
};

struct control_user;

struct client {
    /* control */
    enum client_state state;
    struct control_user *owner; /* its user, with what all connections of that one have */
    int socket_fd;
    int pid_fd;           /* of the process that did the handshake, or -1 */
    uint64_t deadline_ns; /* GREETING: closed when no HELLO came by then */
    struct hello
        hello; /* GREETING: what it asked for, while it waits for a client that is leaving */
    bool waiting;
    uint64_t unread_ns;        /* > 0: its turn ended early; when its socket is read on */
    struct client *next;       /* in the control thread's list */
    struct client *next_named; /* in its user's list of those with a named slot */
    uint64_t number;           /* its place among all that connected since the start */
    uint64_t told;             /* slots that have their row in the status that is being written */
    _Atomic uint64_t wakes_ns; /* that its wakes took beyond the usual: the engine charges them */

    /* constant after the handshake */
    pid_t pid;
    uid_t uid;
    uint32_t n_slots;
    char name[SLOT_NAME_BYTES]; /* of slot 0, or "" */
    int bell_fd;
    int notify_fd; /* our end, or -1 */
    struct segment segment;

    /* engine */
    struct ring_reader submit;
    struct bell_waker waker;
    struct slot *slots[CLIENT_SLOTS_MAX];
    struct ring_writer events[CLIENT_SLOTS_MAX];
    uint64_t taken[CLIENT_SLOTS_MAX]; /* generation + 1 of each slot's last live cell; 0: none */
    struct client_user *user;
    uint64_t served;       /* number of the last cell that was taken from it */
    uint32_t idle_rings;   /* bells in a row that announced nothing */
    uint32_t blocked_need; /* > 0: the next submit cell waits for this many free event cells ... */
    uint32_t blocked_slot; /* ... of this slot */
    bool bell_polled;
    bool is_touched;     /* its down segment was found to be its own memory, all of it */
    bool has_news;       /* something was published or freed for it since it was last looked at */
    uint64_t charged_ns; /* of wakes_ns */
    int error; /* it broke the protocol (attached_fail): its rings are not looked at any more */

    /* waker */
    struct client *next_wake;
    _Atomic bool wake_handed; /* from hand-over until the waker takes it */
    _Atomic int wake_way;     /* set before wake_handed is looked at, read after it was cleared */
};

/* A sleeping client that must be woken, and by which bell (enum bell_way). */
struct client_due {
    struct client *client;
    int way;
};

/* The engine thread's clients, and what it tells them and the control thread. */
struct attached {
    struct ctl *ctl;                /* the counters, which all of them see */
    struct mailbox *inbox, *outbox; /* from and to the control thread */
    struct loop *loop;              /* polls their bells; NULL: nothing does */
    uint64_t (*cpu_ns)(void);
    uint32_t n_most; /* attached at once */
    bool fence_due;  /* something was published or freed in this step */
    bool answered;   /* MAIL_ANSWERED was posted */
    bool stopping;   /* MAIL_STOP was taken */

    struct client **all;       /* [n] unordered */
    struct client **failed;    /* [n_failed] to be closed when the next step begins */
    struct client_due *due;    /* [n] of this step */
    struct client **ready;     /* [n_ready] with submit cells, in this step */
    struct client_user *users; /* [as many as clients] */
    uint32_t n, n_failed, n_ready;
    uint32_t *scratch;  /* [context] a private copy of what one sent, before it is believed */
    uint64_t served;    /* submit cells so far */
    uint64_t served_ns; /* when the last step was done with them */
    int64_t credit_ns;  /* that they may take from answers */
};

/* Something was published or freed for this client: it is woken in this step, if it sleeps. */
static inline void attached_news(struct attached *clients, struct client *client)
{
    client->has_news = true;
    clients->fence_due = true;
}

/* Marks a client that broke the protocol. Any stage may; attached_reap closes it, once. */
static inline void attached_fail(struct attached *clients, struct client *client, int error)
{
    if (client->error)
        return;
    client->error = error;
    clients->failed[clients->n_failed++] = client;
}

/* Where the slot's client reads. */
static inline struct ring_writer *client_events(struct slot *slot)
{
    return &slot->client->events[slot->ring];
}

/* Wakes a sleeper by the bell that bell_due() named (enum bell_way). Any thread. */
static inline void client_wake(struct client *client, int way)
{
    if (way == BELL_FUTEX)
        bell_wake(&segment_down_head(&client->segment)->wake);
    else
        bell_notify(client->notify_fd);
}

#endif
