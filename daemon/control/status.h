/* status.h: the answer to `hearth status`: what the daemon is, and every counter, as one JSON
 * object; and the slots, in "slots", one row each, active ones first:
 *
 *   {"client":3,"slot":0,"uid":1000,"pid":4711,"name":"editor","state":"decode",
 *    "priority":"interactive","prompt":812,"prefix_break":800,"prefix_lost":4,
 *    "kv":811,"output":14,"outputs":230}
 *
 * client: its number since the start; client and slot are the key of a row. state: idle, queued,
 * prefill, decode, paused. prompt, output: tokens of the running or last request; prefix_break: where
 * its prompt first differed from the text that the slot held before, prefix_lost: the tokens of that
 * text from there on; kv: positions that are computed; outputs: tokens of all answers since its client connected. pid and name (of
 * slot 0, if it has one) are shown to the same user and to root only. Rows that do not fit the
 * message are counted in "slots_left_out".
 *
 * Control thread. The engine is not asked: a row is what it last wrote to the client's status line.
 * No side effects but for two gauges that it refreshes first: open descriptors and resident memory.
 */
#ifndef HEARTH_DAEMON_CONTROL_STATUS_H
#define HEARTH_DAEMON_CONTROL_STATUS_H

#include "daemon/engine/client.h"
#include "daemon/model/loaded_model.h"
#include "ipc/layout.h"

#include <dirent.h>

/* The kernel's files about this process: opened once, since hearthd opens none after its start.
 * What cannot be opened counts as 0. */
struct status_process {
    DIR *fds;
    int statm_fd;
};

void status_open(struct status_process *process);
void status_close(struct status_process *process);

struct status_facts {
    struct client *clients; /* list; clients without slots or about to leave have no row */
    const struct status_process *process;
    uid_t asker;
    const struct loaded_model *loaded;
    const char *socket;
    const char *loop; /* "io_uring" or "epoll" */
    uint64_t uptime_ns;
};

/* Writes the object, zero-terminated. Returns its length, or -ENOSPC. */
int status_json(struct ctl *ctl, const struct status_facts *facts, char *text, size_t text_bytes);

#endif
