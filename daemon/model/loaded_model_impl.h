/* loaded_model_impl.h: shared by the parts of loaded_model: the model and its backend
 * (loaded_model.c), its vocabulary (loaded_vocab.c). */
#ifndef HEARTH_DAEMON_MODEL_LOADED_MODEL_IMPL_H
#define HEARTH_DAEMON_MODEL_LOADED_MODEL_IMPL_H

#include "daemon/model/loaded_model.h"

/* Refuses what the keys alone rule out, -EBADMSG or -ENOTSUP with one line; then starts a thread
 * that builds the vocabulary. PRECOND: the model is open. */
int loaded_model_start_vocab(struct loaded_model *loaded, char *err, size_t err_bytes);

/* Releases the vocabulary. PRECOND: no thread is building it. */
void loaded_model_close_vocab(struct loaded_model *loaded);

#endif
