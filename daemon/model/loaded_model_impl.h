/* loaded_model_impl: what the parts of resident share: the model and its backend (loaded.c), its vocabulary
 * (resident_vocab.c). */
#ifndef HEARTH_DAEMON_MODEL_LOADED_MODEL_IMPL_H
#define HEARTH_DAEMON_MODEL_LOADED_MODEL_IMPL_H

#include "daemon/model/loaded_model.h"

/* Refuses what the keys alone show, -EBADMSG or -ENOTSUP with one line, then begins with the vocabulary in a thread;
 * the model is open. */
int loaded_model_start_vocab(struct loaded_model *loaded, char *err, size_t err_bytes);

/* Waits for it, if it is still being built. Returns 0 or -errno with one line. */
int loaded_model_finish_vocab(struct loaded_model *loaded, char *err, size_t err_bytes);

/* Gives back what it made; no thread is at it any more. */
void loaded_model_close_vocab(struct loaded_model *loaded);

#endif
