/* routes: paths, and what answers them. */
#ifndef HEARTH_CLIENT_HTTP_ROUTES_H
#define HEARTH_CLIENT_HTTP_ROUTES_H

#include "client/http/exchange.h"

#include <stdbool.h>
#include <stddef.h>

/* NULL for an unknown path. What follows a route that takes more goes to rest. */
const struct route *route_find(const char *path, char *rest, size_t rest_bytes);

/* The dialect of its answers; NULL where it has none. */
const struct reply *route_reply(const struct route *r);

/* Is no key needed? NULL: it is. */
bool route_is_open(const struct route *r);

/* "GET" or "POST"; a GET may also be a HEAD. */
const char *route_method(const struct route *r);
bool route_takes(const struct route *r, const char *method);

/* Answers a whole request, or starts to. */
void route_answer(struct exchange *x);

/* For a worker's task of an exchange: whose it is; and when it is done, is that one still wanted? Else it
 * is freed, or its connection is about to end it. */
struct exchange *route_exchange(struct task *t);
bool route_is_back(struct exchange *x);

/* For an exchange with a launch: its model is served (why NULL), or cannot be; it still waits: says
 * so in the stream that was asked for. */
void route_launched(struct exchange *x, const struct fail *why);
void route_tell_launching(struct exchange *x);

/* For an exchange with waits_for_connect: there is a daemon (why NULL), or none. */
void route_connected(struct exchange *x, const struct fail *why);

#endif
