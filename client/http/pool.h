/* gate.h - the gateway's slots at the daemon, and the requests that wait for one.
 *
 * A slot is a connection of its own (a handle with one slot): so one whose reader is slow is left
 * unread alone, and the daemon pauses it alone. Slots are opened when there is something for them
 * to do, up to a number, and stay. A request takes the slot it names, when that is free, else the
 * free one whose last sequence begins like its prompt for longest; where none is free it waits in
 * a bounded queue, first come, first served.
 *
 * The daemon may go away: requests that run are resumed by the library; slots at rest are closed.
 * The next request connects again, and those that wait meanwhile are told when that fails.
 *
 * One thread, that of the loop. Handlers of a job may call anything in here, and free the job in
 * on_end; on_event must not look at its event after it stopped or cancelled the job.
 */
#ifndef HEARTH_CLIENT_HTTP_POOL_H
#define HEARTH_CLIENT_HTTP_POOL_H

#include "client/hearth.h"
#include "client/http/fail.h"
#include "client/http/reactor.h"

#include <stdbool.h>

enum { GATE_SLOTS_MAX = 64, JOB_NOWHERE = -2, JOB_QUEUED = -1 };

/* One request to the daemon. */
struct job {
    struct hearth_request request; /* its tokens, lists and texts live as long as the job */
    int id_slot;                   /* wanted; -1: any */
    void (*on_event)(struct job *job, const struct hearth_event *e); /* the last is HEARTH_DONE */
    void (*on_lost)(struct job *job, const struct fail *why);        /* in its place */

    /* The gate's own. */
    int slot;   /* where it runs, JOB_QUEUED or JOB_NOWHERE */
    int ran_at; /* the slot that it was given, also when it ended there */
    bool paused;
    uint64_t id;
    struct job *next;
};

struct slot {
    struct watch watch; /* of hearth_fd() */
    struct gate *gate;
    struct hearth *h; /* NULL: not connected */
    struct job *job;
    bool draining;
    uint64_t used_ns;
    uint32_t *tokens; /* [n_tokens] prompt and answer of the last request */
    uint32_t n_tokens, room;
    uint64_t n_requests;
};

/* What is known of the model, from the last daemon; "" and 0 before the first. */
struct gate_model {
    char name[256], numerics[64], fingerprint[40], version[64], socket[128];
    uint32_t context, n_vocab;
    int32_t bos, eos;
    uint64_t since; /* seconds since 1970 */
};

struct gate {
    /* Set by the caller before gate_open. */
    struct reactor *loop;
    const char *path; /* of the daemon's socket; NULL: the library's default */
    uint32_t n_slots, queue_max;
    int resume_ms;
    void (*on_connect)(void *owner, const struct fail *why); /* an attempt ended; why NULL: well */
    void *owner;

    struct watch joining_watch;
    struct hearth *joining; /* a connection that the daemon did not answer yet, or NULL */
    struct slot slots[GATE_SLOTS_MAX];
    struct gate_model model;
    struct job *first, **last; /* the queue */
    uint32_t n_queued, n_running, n_connected;
    uint64_t last_id, n_connects, n_lost;
    uint64_t full_ns; /* there was no further slot to be had then */
    bool kicking;
};

/* Starts connecting. */
void gate_open(struct gate *g);
void gate_close(struct gate *g);

/* Runs the job, or queues it. Returns 0, or -1 with *f: the request is not one that the daemon takes,
 * or the queue is full. Its handlers may be called before this returns. */
int gate_submit(struct gate *g, struct job *job, struct fail *f);

/* Nothing is heard of the job after this. The daemon stops within one pass. */
void gate_cancel(struct gate *g, struct job *job);

/* The daemon ends the answer here; HEARTH_DONE with HEARTH_CANCELLED comes. */
void gate_stop(struct gate *g, struct job *job);

/* Leaves its events where they are: the daemon pauses the slot when its ring is full. */
void gate_pause(struct gate *g, struct job *job);
void gate_unpause(struct gate *g, struct job *job);

/* A handle for the vocabulary and the status; NULL while there is no daemon. */
struct hearth *gate_handle(struct gate *g);

/* Is a daemon there, as far as is known? */
bool gate_is_up(struct gate *g);

/* Looks for a daemon, where none is there: on_connect tells. */
void gate_connect(struct gate *g);

#endif
