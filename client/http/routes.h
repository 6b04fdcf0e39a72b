/* routes: paths, and what answers them. */
#ifndef HEARTH_CLIENT_HTTP_ROUTES_H
#define HEARTH_CLIENT_HTTP_ROUTES_H

#include "client/http/exchange.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    ROUTE_OPEN = 1,      /* no key is needed */
    ROUTE_REST = 2,      /* the path continues after it */
    ROUTE_DAEMON = 4,    /* there must be a daemon */
    ROUTE_POST = 8,      /* with a JSON object, in x->root; else GET */
    ROUTE_STARTS = 16,   /* its model may be an upstream's, or one whose daemon is to be started */
    ROUTE_IDLE = 32,     /* no daemon is needed where one can be started, or there are upstreams */
    ROUTE_LIST = 64,     /* no daemon is needed where models can be listed without one */
    ROUTE_RENDERS = 128, /* its reading renders the model's template */
    ROUTE_MODEL = ROUTE_POST | ROUTE_DAEMON | ROUTE_STARTS,
    ROUTE_CHAT = ROUTE_MODEL | ROUTE_RENDERS
};

struct route {
    const char *path;
    unsigned flags;
    void (*answer)(struct exchange *x);
    /* For a POST: reads x->root with the vocabulary of h, and may put the answer. It may run in a
     * worker, so it must not touch the server's state. Returns 0, or -1 with *f. */
    int (*read)(struct exchange *x, struct hearth *h, struct fail *f);
    const struct reply *reply; /* writes the model's answer; NULL: the route gives none */
};

/* NULL for an unknown path. What follows a route that takes more goes to rest. */
const struct route *route_find(const char *path, char *rest, size_t rest_bytes);

/* The dialect of its answers, or of a path's that no route takes; NULL where it has none. */
const struct reply *route_reply(const struct route *r, const char *path);

/* Is no key needed? NULL: it is. */
bool route_is_open(const struct route *r);

/* "GET" or "POST"; a GET may also be a HEAD. */
const char *route_method(const struct route *r);
bool route_takes(const struct route *r, const char *method);

#endif
