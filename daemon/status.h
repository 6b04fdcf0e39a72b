/*
 * status: the text that answers `hearth status`: what the daemon is, and every counter, as one JSON
 * object.
 *
 * Control thread. Pure but for the two gauges it refreshes first: open descriptors and resident
 * memory.
 */
#ifndef HEARTH_DAEMON_STATUS_H
#define HEARTH_DAEMON_STATUS_H

#include "daemon/resident.h"
#include "ipc/layout.h"

struct status_facts {
    const struct resident *resident;
    const char *socket;
    const char *loop; /* "io_uring" or "epoll" */
    uint64_t uptime_ns;
};

/* Writes the object, zero-ended. Returns its length, or -ENOSPC. */
int status_json(struct ctl *ctl, const struct status_facts *facts, char *text, size_t text_bytes);

#endif
