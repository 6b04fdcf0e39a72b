/*
 * engine: the thread that owns slots, pages and mapped segments. It runs pass_step (pass.h) in a
 * loop, and sleeps when there is nothing to do.
 *
 * engine_run is the thread; engine_step is one turn of it, bounded, with the clock injected, so
 * that tests step it by hand. The control thread talks to it only through the two mailboxes.
 * Nothing on the normal path logs, or allocates but for grammars and, once a slot, for the index of
 * its text (lookup.h).
 */
#ifndef HEARTH_DAEMON_ENGINE_ENGINE_H
#define HEARTH_DAEMON_ENGINE_ENGINE_H

#include "daemon/engine/options.h"

struct engine;

/* Returns 0 or -ENOMEM with one line. The loop is opened by engine_run, on its own thread. */
int engine_open(struct engine **ret_engine, const struct engine_options *options, char *err,
                size_t err_bytes);
void engine_close(struct engine *engine);

/* Runs until MAIL_STOP. Returns 0, or -errno when the loop cannot be opened or the backend broke;
 * MAIL_STOPPED was posted either way. */
int engine_run(struct engine *engine);

/* Named slots, with their tokens, to the store, if there is one: after the thread has ended. Returns 0
 * or -errno. */
int engine_save_slots(struct engine *engine);

/* One turn. Returns the work done: 0 when there was nothing to do. */
uint32_t engine_step(struct engine *engine);

/* Is there anything that a step would find? Looks at shared words only: the second look of S1. */
bool engine_look(const struct engine *engine);

/* Nothing happened for a while: memory of KV pages that are free goes back to the system, until
 * there is work again. */
void engine_tidy(struct engine *engine);

#endif
