/* progress.h: says how far a load is, if it takes longer than a second: a line a second on a
 * terminal, one at the beginning and one at the end elsewhere, STATUS= to the service manager.
 *
 * Started and stopped by the main thread; a thread of its own reads the counter, which the
 * backend's threads add to. */
#ifndef HEARTH_DAEMON_MODEL_PROGRESS_H
#define HEARTH_DAEMON_MODEL_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
    _Atomic uint64_t loaded; /* bytes so far */
    uint64_t total;
    const char *name; /* of the model */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool running, done;
    uint64_t every_ns, began_ns;
    uint32_t said; /* how often */
};

/* every_ns: the interval, a second; tests have no time. Where no thread can be had it says nothing.
 * `name` must stay valid until the stop. */
void progress_start(struct progress *p, const char *name, uint64_t total, uint64_t every_ns);
void progress_stop(struct progress *p);

#endif
