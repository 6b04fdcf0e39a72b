/* pool: the gateway's handles at the daemon, and the requests that wait for one.
 *
 * A handle is a connection of its own with one slot: so one whose reader is slow is left unread
 * alone, and the daemon pauses it alone. Handles are opened on demand, up to a number, and stay. A
 * request takes the handle it names, when that is free, else the free one with the longest common
 * prefix of its last sequence and the request's prompt; where none is free it waits in a bounded
 * queue. Exchanges take turns there: of those that come later, each other one has at most n jobs
 * before the n-th job of one.
 *
 * The daemon may go away: requests that run are resumed by the library; idle handles are closed.
 * The next request connects again, and queued requests fail when that fails.
 *
 * One thread, that of the loop. Functions of a job may call anything in here, and free the job in
 * on_lost and with the last event; on_event must not look at its event after it stopped or
 * cancelled the job. */
#ifndef HEARTH_CLIENT_HTTP_POOL_H
#define HEARTH_CLIENT_HTTP_POOL_H

#include "client/http/pool_handle.h"

enum { POOL_HANDLES_MAX = 64 };

/* What is known of the model, from the last daemon; "" and 0 before the first. */
struct pool_model {
    char name[256], numerics[64], fingerprint[40], version[64], socket[128];
    uint32_t context, n_vocab;
    int32_t bos, eos;
    uint64_t since; /* seconds since 1970 */
};

struct pool {
    /* Set by the caller before pool_init. */
    struct reactor *loop;
    const char *path; /* of the daemon's socket; NULL: the library's default */
    uint32_t n_handles, queue_max;
    int resume_ms;
    void (*on_connect)(void *owner,
                       const struct fail *why); /* an attempt ended; why NULL: with success */
    void *owner;

    struct watch joining_watch;
    struct hearth *joining; /* a connection that the daemon has not answered yet, or NULL */
    struct pool_handle handles[POOL_HANDLES_MAX];
    struct pool_model model;
    struct job *first; /* the queue */
    uint32_t n_queued;
    uint64_t turn; /* of the job that left the queue last */
    uint64_t last_id;
    uint64_t full_ns; /* when the daemon last refused a further slot */
    bool kicking;
};

void pool_init(struct pool *p);
void pool_fini(struct pool *p);

/* Runs the job, or queues it. Returns 0, or -1 with *f: the request is invalid, or the queue is
 * full. Its functions may be called before this returns. */
int pool_submit(struct pool *p, struct job *job, struct fail *f);

/* None of the job's functions is called after this. The daemon stops within one pass. */
void pool_cancel(struct pool *p, struct job *job);

/* The daemon ends the answer here; HEARTH_DONE with HEARTH_CANCELLED follows. */
void pool_stop(struct pool *p, struct job *job);

/* Leaves its events where they are: the daemon pauses the slot when its ring is full. */
void pool_pause(struct pool *p, struct job *job);
void pool_unpause(struct pool *p, struct job *job);

/* A connection for the vocabulary and the status; NULL without a daemon. */
struct hearth *pool_any(struct pool *p);

/* How many jobs run, how many handles are connected, how many connections ended so far. */
uint32_t pool_running(const struct pool *p);
uint32_t pool_connected(const struct pool *p);
uint64_t pool_lost(const struct pool *p);

/* Is a daemon there, as far as is known? */
bool pool_is_up(struct pool *p);

/* Connects, unless a daemon is there: calls on_connect. */
void pool_connect(struct pool *p);

#endif
