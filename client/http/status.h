/* status: what a daemon says of itself. Any thread. */
#ifndef HEARTH_CLIENT_HTTP_STATUS_H
#define HEARTH_CLIENT_HTTP_STATUS_H

#include "client/hearth.h"

#include <jansson.h>

enum { STATUS_CONNECT_MS = 1000 }; /* how long to wait for a daemon that is asked */

/* The object of hearth_status, or NULL where the daemon does not answer. It may take some seconds.
 * The caller owns it. */
json_t *status_ask(struct hearth *h);

/* Memory that the daemon declared: weights, KV pages and states, used or not. */
uint64_t status_bytes(const json_t *status);

#endif
