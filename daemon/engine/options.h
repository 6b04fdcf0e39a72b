/* options: what the engine is given when it is opened. */
#ifndef HEARTH_DAEMON_ENGINE_OPTIONS_H
#define HEARTH_DAEMON_ENGINE_OPTIONS_H

#include "daemon/engine/mailbox.h"
#include "daemon/loop/loop.h"
#include "daemon/model/loaded_model.h"
#include "ipc/layout.h"

struct store;

struct engine_options {
    const struct loaded_model *loaded; /* its backend is the engine's to call from now on */
    struct store *store;               /* NULL: KV does not outlive the process */
    struct ctl *ctl;
    struct mailbox *inbox;  /* from control */
    struct mailbox *outbox; /* to control */
    uint32_t n_slots;
    uint32_t n_clients;    /* most clients attached at once */
    uint32_t params_bytes; /* of every parameter block */
    uint64_t pass_ns;      /* time budget of one pass */
    uint64_t linger_ns;    /* looks around this long before it sleeps */
    bool rescan;           /* look at everything once a second while asleep */
    enum loop_backend loop;
    uint64_t (*now_ns)(void); /* monotonic clock */
    uint64_t (*cpu_ns)(void); /* CPU time of the calling thread */
};

#endif
