/*
 * status: the text that answers `hearth status`: what the daemon is, and every counter, as one JSON
 * object; and what each slot does, in "slots", a row each, those at work first:
 *
 *   {"client":3,"slot":0,"uid":1000,"pid":4711,"name":"editor","state":"decode",
 *    "priority":"interactive","prompt":812,"kv":811,"output":14,"outputs":230}
 *
 * client: its number since the start, with slot the key of a row; state: idle, queued, prefill, decode, paused. prompt, output: tokens of the request that runs or
 * ran last; kv: positions that are computed; outputs: tokens of all answers since its client came.
 * pid and name (of slot 0, where it has one) are there only for whom they concern: the same user,
 * and root. Rows that the message has no room for are counted in "slots_left_out".
 *
 * Control thread; the engine is not asked, a row is what it last wrote to the client's status line.
 * Pure but for the two gauges it refreshes first: open descriptors and resident memory.
 */
#ifndef HEARTH_DAEMON_CONTROL_STATUS_H
#define HEARTH_DAEMON_CONTROL_STATUS_H

#include "daemon/engine/client.h"
#include "daemon/model/loaded_model.h"
#include "ipc/layout.h"

struct status_facts {
    struct client *clients; /* list; those without slots or on their way out have no row */
    uid_t asker;
    const struct loaded_model *loaded;
    const char *socket;
    const char *loop; /* "io_uring" or "epoll" */
    uint64_t uptime_ns;
};

/* Writes the object, zero-ended. Returns its length, or -ENOSPC. */
int status_json(struct ctl *ctl, const struct status_facts *facts, char *text, size_t text_bytes);

#endif
