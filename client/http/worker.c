/* worker: see worker.h. */
#include "client/http/worker.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void push(struct task ***end, struct task *t)
{
    t->next = NULL;
    **end = t;
    *end = &t->next;
}

/* A handle of the daemon that the task is for, or NULL with *ret_rc. */
static struct hearth *handle_for(struct worker *w, const struct task *t, int *ret_rc, char *err,
                                 size_t err_bytes)
{
    struct hearth_options o;
    if (w->h && w->epoch == t->epoch)
        return w->h;
    hearth_close(w->h);
    hearth_options_init(&o, sizeof(o));
    o.slots = 0;
    if (t->connect_ms)
        o.connect_timeout_ms = t->connect_ms;
    w->epoch = t->epoch;
    *ret_rc = hearth_connect(w->path, &o, &w->h, err, err_bytes);
    return w->h;
}

static void *run(void *arg)
{
    struct worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->todo && !w->stop)
            pthread_cond_wait(&w->wake, &w->lock);
        if (w->stop)
            break;
        struct task *t = w->todo;
        w->todo = t->next;
        if (!w->todo)
            w->todo_end = &w->todo;
        pthread_mutex_unlock(&w->lock);
        char err[256] = "";
        int rc = 0;
        struct hearth *h = t->alone ? NULL : handle_for(w, t, &rc, err, sizeof(err));
        t->work(t, h, rc, err);
        if (t->drop) {
            hearth_close(w->h);
            w->h = NULL;
        }
        pthread_mutex_lock(&w->lock);
        push(&w->done_end, t);
        (void)eventfd_write(w->watch.fd, 1);
    }
    pthread_mutex_unlock(&w->lock);
    hearth_close(w->h);
    return NULL;
}

static void on_done(struct watch *watch, uint32_t events)
{
    struct worker *w = (struct worker *)watch; /* its first member */
    eventfd_t n;
    (void)events;
    (void)eventfd_read(watch->fd, &n);
    pthread_mutex_lock(&w->lock);
    struct task *t = w->done;
    w->done = NULL;
    w->done_end = &w->done;
    pthread_mutex_unlock(&w->lock);
    for (struct task *next; t; t = next) {
        next = t->next;
        t->done(t);
    }
}

int worker_open(struct worker *w, struct reactor *loop, const char *path)
{
    *w = (struct worker){.loop = loop, .path = path};
    w->todo_end = &w->todo;
    w->done_end = &w->done;
    w->watch.on = on_done;
    w->watch.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->watch.fd < 0)
        return -errno;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    int rc = reactor_watch(loop, &w->watch, EPOLLIN);
    if (!rc)
        rc = -pthread_create(&w->thread, NULL, run, w);
    w->is_open = !rc;
    if (rc)
        close(w->watch.fd);
    return rc;
}

void worker_close(struct worker *w)
{
    if (!w->is_open)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    *w->done_end = w->todo; /* tasks that were not begun count as done */
    on_done(&w->watch, 0);
    reactor_unwatch(w->loop, &w->watch);
    close(w->watch.fd);
    w->is_open = false;
}

void worker_give(struct worker *w, struct task *t)
{
    pthread_mutex_lock(&w->lock);
    push(&w->todo_end, t);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

bool worker_take_back(struct worker *w, const struct task *t)
{
    pthread_mutex_lock(&w->lock);
    struct task **at = &w->todo;
    while (*at && *at != t)
        at = &(*at)->next;
    bool found = *at != NULL;
    if (found) {
        *at = t->next;
        if (!*at)
            w->todo_end = at;
    }
    pthread_mutex_unlock(&w->lock);
    return found;
}
