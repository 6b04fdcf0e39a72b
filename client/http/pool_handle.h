/* pool_handle: one handle of the gateway's pool: a connection with one slot at the daemon, the
 * request that runs on it, and the tokens of its last sequence.
 *
 * On the loop's thread. A handle calls its job's functions, and nothing of the pool. */
#ifndef HEARTH_CLIENT_HTTP_POOL_HANDLE_H
#define HEARTH_CLIENT_HTTP_POOL_HANDLE_H

#include "client/hearth.h"
#include "client/http/fail.h"
#include "client/http/reactor.h"
#include "client/tokenizer/token_list.h"

#include <stdbool.h>

enum { JOB_NOWHERE = -2, JOB_QUEUED = -1 };

/* One request to the daemon. */
struct job {
    struct hearth_request request;       /* its tokens, lists and texts live as long as the job */
    int id_slot;                         /* the handle that it wants; -1: any */
    bool tells_break;                    /* see prefix_break.h */
    bool is_alone;                       /* the only job of its exchange */
    uint32_t nth;                        /* of its exchange, from 0 */
    void (*on_running)(struct job *job); /* the daemon has it; its first event has not come */
    void (*on_event)(struct job *job, const struct hearth_event *e); /* the last is HEARTH_DONE */
    void (*on_lost)(struct job *job, const struct fail *why);        /* in its place */

    /* The pool's own. */
    int at;     /* the handle where it runs, JOB_QUEUED or JOB_NOWHERE */
    int ran_at; /* the handle that it was given, also after its end */
    bool paused;
    uint64_t id, turn;
    struct job *next;
};

struct pool_handle {
    struct watch watch; /* of hearth_fd() */
    struct reactor *loop;
    struct pool *pool; /* for the pool's own callback */
    struct hearth *h;  /* NULL: not connected */
    struct job *job;
    bool draining;
    uint64_t used_ns;
    struct token_list tokens;    /* prompt and answer of the last request */
    uint64_t n_requests, n_lost; /* n_lost: connections that ended */
};

/* Takes a connection, and watches it. Returns 0, or -1 and closes it. */
int pool_handle_open(struct pool_handle *s, struct hearth *h,
                     void (*on)(struct watch *w, uint32_t events));

/* Its job, if it has one, is lost. */
void pool_handle_close(struct pool_handle *s);

/* Is its daemon gone, as far as is known? */
bool pool_handle_is_away(struct pool_handle *s);

/* Takes what is there, until hearth_fd() says when there is more. May close the handle. */
void pool_handle_drain(struct pool_handle *s);

/* The same for a job that was just submitted, but waits for its events for a millisecond first: a
 * small model's answer may be whole by then, and a wake through the loop would take longer. */
void pool_handle_await(struct pool_handle *s);

/* Remembers a request's tokens; those of its answer will follow. */
void pool_handle_set_tokens(struct pool_handle *s, const struct hearth_request *r);

/* The length of the common prefix of a request and what is remembered. */
uint32_t pool_handle_common(const struct pool_handle *s, const struct hearth_request *r);

#endif
