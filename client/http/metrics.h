/* metrics: counters of the gateway and the daemon, for Prometheus. */
#ifndef HEARTH_CLIENT_HTTP_METRICS_H
#define HEARTH_CLIENT_HTTP_METRICS_H

#include "client/base/buffer.h"

#include <jansson.h>

struct server;

/* Appends the gateway's own counters, under hearth_http_ and under llama-server's names. */
void metrics_own(const struct server *s, struct buffer *out);

/* Appends the daemon's counters as hearth_NAME (those that only grow: hearth_NAME_total), and its
 * words as labels of hearth_info. status NULL: no daemon. */
void metrics_daemon(const json_t *status, struct buffer *out);

#endif
