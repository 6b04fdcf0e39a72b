/* worker: a thread that reads large requests, or asks the daemon, so that the loop does not stand
 * still meanwhile.
 *
 * A text of a megabyte takes longer to become tokens than many answers do. A task is worked on in
 * the order given, with a handle of the worker's own that has no slots (the vocabulary); then its
 * `done` is called from the loop. Between worker_give and done it belongs to the worker. */
#ifndef HEARTH_CLIENT_HTTP_WORKER_H
#define HEARTH_CLIENT_HTTP_WORKER_H

#include "client/hearth.h"
#include "client/http/reactor.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct task {
    void (*work)(struct task *t, struct hearth *h, int rc, const char *err); /* h NULL: rc, err */
    void (*done)(struct task *t);
    uint64_t epoch; /* differs from the last task's: the daemon may be another one, connect again */
    int connect_ms; /* how long that may take; 0: as long as the library waits */
    bool alone;     /* needs no handle: work gets NULL */
    bool drop;      /* set by work: the handle is of no use any more */
    struct task *next;
};

struct worker {
    struct watch watch; /* readable when something is done */
    struct reactor *loop;
    const char *path; /* of the daemon's socket; NULL: the library's default */
    pthread_t thread;
    bool is_open;

    struct hearth *h; /* the thread's own, as is its epoch */
    uint64_t epoch;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    bool stop;
    struct task *todo, **todo_end, *done, **done_end;
};

/* Starts it; loop and path outlive it. Returns 0 or -errno. */
int worker_open(struct worker *w, struct reactor *loop, const char *path);

/* Ends after the task at hand; calls done for it, and for those that were not begun. */
void worker_close(struct worker *w);

void worker_give(struct worker *w, struct task *t);

/* Takes a task back that it did not begin: true, and nothing will be called. */
bool worker_take_back(struct worker *w, const struct task *t);

#endif
