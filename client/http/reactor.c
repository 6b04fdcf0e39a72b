/* reactor: see reactor.h. */
#include "client/http/reactor.h"

#include <errno.h>
#include <unistd.h>

int reactor_open(struct reactor *l)
{
    l->n = l->at = 0;
    l->fd = epoll_create1(EPOLL_CLOEXEC);
    return l->fd < 0 ? -errno : 0;
}

void reactor_close(struct reactor *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

int reactor_watch(struct reactor *l, struct watch *w, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};
    return epoll_ctl(l->fd, EPOLL_CTL_ADD, w->fd, &e) < 0 ? -errno : 0;
}

void reactor_change(struct reactor *l, struct watch *w, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};
    (void)epoll_ctl(l->fd, EPOLL_CTL_MOD, w->fd, &e);
}

void reactor_unwatch(struct reactor *l, struct watch *w)
{
    (void)epoll_ctl(l->fd, EPOLL_CTL_DEL, w->fd, NULL);
    for (int i = l->at; i < l->n; i++) /* it may be among the events of this batch */
        if (l->batch[i].data.ptr == w)
            l->batch[i].data.ptr = NULL;
}

void reactor_turn(struct reactor *l, int timeout_ms)
{
    int n = epoll_wait(l->fd, l->batch, REACTOR_EVENTS_AT_ONCE, timeout_ms);
    l->n = n > 0 ? n : 0;
    for (l->at = 0; l->at < l->n;) {
        const struct epoll_event *e = &l->batch[l->at++];
        struct watch *w = e->data.ptr;
        if (w)
            w->on(w, e->events);
    }
    l->n = l->at = 0;
}
