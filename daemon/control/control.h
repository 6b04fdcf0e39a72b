/* control.h: the thread that lets clients in and out: listen, handshake, client death, signals, the
 * watchdog, status, and the wake-ups that the engine thread hands over.
 *
 * It is the main thread. It owns the listening socket, every client's descriptors and mappings (the
 * engine thread borrows them between MAIL_ATTACH and MAIL_DETACHED), and the count of free slots.
 * It never touches a slot, a page or a ring. */
#ifndef HEARTH_DAEMON_CONTROL_CONTROL_H
#define HEARTH_DAEMON_CONTROL_CONTROL_H

#include "daemon/config.h"
#include "daemon/loop/loop.h"
#include "daemon/engine/mailbox.h"
#include "daemon/model/loaded_model.h"
#include "ipc/layout.h"

#include <stdbool.h>

struct control_options {
    const struct config *config;
    const struct loaded_model *loaded;
    struct loaded_model *keep; /* the same: its weights are kept after the first answer */
    struct ctl *ctl;
    int ctl_fd;
    int vocab_fd;  /* the sealed vocabulary, passed to every client */
    int listen_fd; /* non-blocking */
    bool passed;   /* it belongs to the service manager: connections not accepted wait there */
    int signal_fd; /* signals.h */
    struct mailbox *inbox;  /* from the engine */
    struct mailbox *outbox; /* to the engine */
    enum loop_backend loop;
    uint32_t params_bytes;
    uint64_t (*now_ns)(void);
};

/* Serves until a signal asks to stop, until no client was connected for --idle-stop seconds, or
 * until the engine stops by itself; then lets the engine end every answer and closes every client.
 * Returns 0, or -errno when the loop cannot be opened or the engine failed. */
int control_run(const struct control_options *options);

#endif
