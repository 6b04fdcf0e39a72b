/*
 * engine: the thread that owns slots, pages and mapped segments, and turns its step loop:
 *
 *     ingest -> plan one pass -> run it -> verify: accept or roll back -> publish -> wake
 *
 * engine_run is the thread; engine_step is one turn of it, bounded, with the clock injected, so
 * that tests step it by hand. The control thread talks to it only through the two mailboxes.
 * Nothing on the normal path logs, or allocates but for grammars and, once a slot, for the index of
 * its text (lookup.h).
 */
#ifndef HEARTH_DAEMON_ENGINE_ENGINE_H
#define HEARTH_DAEMON_ENGINE_ENGINE_H

#include "daemon/loop/loop.h"
#include "daemon/engine/mailbox.h"
#include "daemon/model/loaded_model.h"
#include "ipc/layout.h"

struct engine;

struct engine_options {
    const struct loaded_model *loaded; /* its backend is the engine's to call from now on */
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
};

/* Returns 0 or -ENOMEM with one line. The loop is opened by engine_run, on its own thread. */
int engine_open(struct engine **ret_engine, const struct engine_options *options, char *err,
                size_t err_bytes);
void engine_close(struct engine *engine);

/* Runs until MAIL_STOP. Returns 0, or -errno when the loop cannot be had or the backend broke; in
 * any case MAIL_STOPPED was posted. */
int engine_run(struct engine *engine);

/* One turn. Returns the work done: 0 when there was nothing to do. */
uint32_t engine_step(struct engine *engine);

/* Is there anything that a step would find? Looks at shared words only: the second look of S1. */
bool engine_look(const struct engine *engine);

#endif
