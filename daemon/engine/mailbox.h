/*
 * mailbox: messages between the control thread and the engine thread, one direction each.
 *
 * A ring of ipc/ring.h in private memory and an eventfd that the reader's loop polls. One thread
 * posts, one takes. It cannot overflow: a client has at most one message of each kind on its way
 * (the capacity is checked at start), and wakes, which have no such bound, are posted only while
 * mailbox_room leaves place for those; else the engine thread wakes by itself.
 */
#ifndef HEARTH_DAEMON_ENGINE_MAILBOX_H
#define HEARTH_DAEMON_ENGINE_MAILBOX_H

#include "ipc/ring.h"

#include <stdbool.h>
#include <stdint.h>

struct client;

enum mail_kind {
    MAIL_ATTACH = 1, /* control -> engine: the client is set up, serve it */
    MAIL_DETACH,     /* control -> engine: let go of it, then answer MAIL_DETACHED */
    MAIL_STOP,       /* control -> engine: end every answer, then answer MAIL_STOPPED */
    MAIL_DETACHED,   /* engine -> control: nothing of it is used any more: unmap, close, free */
    MAIL_CLOSE,      /* engine -> control: it broke the protocol (error says how): detach it */
    MAIL_WAKE,       /* engine -> control: wake these sleepers */
    MAIL_ANSWERED,   /* engine -> control: the first answer was given */
    MAIL_STOPPED,    /* engine -> control: the last message */
};

enum { MAIL_WAKES = 6 };

struct mail {
    uint32_t seq; /* the ring's */
    uint16_t kind;
    uint16_t n_wakes;
    int32_t error;                      /* MAIL_CLOSE: -errno */
    uint32_t ways;                      /* MAIL_WAKE: bit i is the enum bell_way of clients[i] */
    struct client *clients[MAIL_WAKES]; /* MAIL_WAKE: [n_wakes]; others: the one at 0 */
};
_Static_assert(sizeof(struct mail) <= IPC_LINE, "a message is one cell");

struct mailbox {
    struct ring_cell *cells;
    struct ring_writer writer;                      /* the posting thread's */
    _Alignas(IPC_STRIDE) struct ring_reader reader; /* the taking thread's */
    _Alignas(IPC_STRIDE) _Atomic uint32_t progress;
    int event_fd; /* poll it, never read it */
};

/* `capacity` is a power of two. Returns 0 or -errno. */
int mailbox_init(struct mailbox *box, uint32_t capacity);
void mailbox_fini(struct mailbox *box);

/* Returns false when the box is full. The reader sleeps through it until mailbox_ring, which any
 * thread may call. */
bool mailbox_post(struct mailbox *box, struct mail *mail);
void mailbox_ring(struct mailbox *box);

/* How many messages the posting thread can post now. */
uint32_t mailbox_room(struct mailbox *box);

/* True with the next message in *ret, false when there is none. */
bool mailbox_take(struct mailbox *box, struct mail *ret);
bool mailbox_ready(const struct mailbox *box);

#endif
