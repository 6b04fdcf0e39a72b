/* reactor: one epoll, and the function of each descriptor.
 *
 * Everything in hearth-http runs on the one thread that turns it. A
 * watch is the caller's memory; it may be removed, and freed, in any handler. */
#ifndef HEARTH_CLIENT_HTTP_REACTOR_H
#define HEARTH_CLIENT_HTTP_REACTOR_H

#include <stdint.h>
#include <sys/epoll.h>

enum { REACTOR_EVENTS_AT_ONCE = 64 };

struct watch {
    int fd;
    void (*on)(struct watch *w, uint32_t events); /* EPOLLIN and the like */
};

struct reactor {
    int fd;
    int n, at; /* of the batch that is being handled */
    struct epoll_event batch[REACTOR_EVENTS_AT_ONCE];
};

int reactor_open(struct reactor *l); /* 0 or -errno */
void reactor_close(struct reactor *l);

/* Calls w->on when one of `events` is there. Returns 0 or -errno. */
int reactor_watch(struct reactor *l, struct watch *w, uint32_t events);
/* Other events from now on; 0: only errors. */
void reactor_change(struct reactor *l, struct watch *w, uint32_t events);
void reactor_unwatch(struct reactor *l, struct watch *w);

/* Waits at most timeout_ms (-1: without limit) and calls handlers. */
void reactor_turn(struct reactor *l, int timeout_ms);

#endif
