/* progress.c: a thread that says how far a load is. */
#include "daemon/model/progress.h"

#include "daemon/log.h"
#include "ipc/service.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void say(struct progress *p)
{
    const double loaded = (double)p->loaded, total = (double)p->total;
    const int percent = total > 0 && loaded < total ? (int)(100 * loaded / total) : 100;
    char status[96];
    snprintf(status, sizeof(status), "STATUS=loading: %d %% of %.1f GB", percent, total * 1e-9);
    service_notify(status);
    if (isatty(STDERR_FILENO))
        log_info("loading %s: %.1f of %.1f GB, %d %%", p->name, loaded * 1e-9, total * 1e-9,
                 percent);
    else if (p->said == 0)
        log_info("loading %s: %.1f GB", p->name, total * 1e-9);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Waits until then, or until the load is done. */
static void wait_until(struct progress *p, uint64_t ns)
{
    const struct timespec end = {.tv_sec = (time_t)(ns / 1000000000),
                                 .tv_nsec = (long)(ns % 1000000000)};
    int rc = 0;
    while (!p->done && rc == 0)
        rc = pthread_cond_timedwait(&p->changed, &p->lock, &end);
}

static void *progress_thread(void *arg)
{
    struct progress *p = arg;
    uint64_t next = p->began_ns;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        next += p->every_ns;
        wait_until(p, next);
        if (p->done)
            break;
        say(p);
        p->said++;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void progress_start(struct progress *p, const char *name, uint64_t total, uint64_t every_ns)
{
    pthread_condattr_t monotonic;
    *p =
        (struct progress){.total = total, .name = name, .every_ns = every_ns, .began_ns = now_ns()};
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    p->running = pthread_create(&p->thread, NULL, progress_thread, p) == 0;
}

void progress_stop(struct progress *p)
{
    pthread_mutex_lock(&p->lock);
    p->done = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->running)
        pthread_join(p->thread, NULL);
    if (p->said > 0)
        log_info("loaded %.1f GB in %.1f s", (double)p->loaded * 1e-9,
                 (double)(now_ns() - p->began_ns) * 1e-9);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}
