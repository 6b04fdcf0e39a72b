/* dispatch: a request that has come whole goes to its model: to an upstream, or to a daemon, once there
 * is one; a worker reads it where that takes long. On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_DISPATCH_H
#define HEARTH_CLIENT_HTTP_DISPATCH_H

#include "client/http/exchange.h"

#include <stdbool.h>

/* Answers a whole request, or starts to. */
void dispatch(struct exchange *x);

/* For a worker's task of an exchange: whose it is; and when it is done, is that one still wanted? Else it
 * is freed, or its connection is about to end it. */
struct exchange *dispatch_exchange(struct task *t);
bool dispatch_is_back(struct exchange *x);

/* For an exchange with a launch: its model is served (why NULL), or cannot be; it still waits: says
 * so in the stream that was asked for. */
void dispatch_launched(struct exchange *x, const struct fail *why);
void dispatch_tell_launching(struct exchange *x);

/* For an exchange with waits_for_connect: there is a daemon (why NULL), or none. */
void dispatch_connected(struct exchange *x, const struct fail *why);

#endif
