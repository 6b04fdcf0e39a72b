/* loaded_model.h: what the daemon keeps in memory: the mapped model, its backend with weights and
 * KV, the vocabulary; and a second, smaller draft model, if one was given.
 *
 * Opened once by the main thread, before any client; afterwards constant, except for the backend,
 * which only the engine thread calls. Owns everything it points to. */
#ifndef HEARTH_DAEMON_MODEL_LOADED_MODEL_H
#define HEARTH_DAEMON_MODEL_LOADED_MODEL_H

#include "daemon/config.h"
#include "daemon/model/weights_cache.h"
#include "daemon/policy/budget.h"
#include "ipc/vocab.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "kernels/gguf/gguf.h"
#include "daemon/grammar/grammar.h"
#include "kernels/model/model.h"

struct vocab_job;

struct loaded_model {
    const char *path; /* owned by the caller */
    struct gguf *gguf;
    struct model *model;
    uint8_t fingerprint[MODEL_FINGERPRINT_BYTES]; /* not set for a draft model */
    char name[64];                      /* general.name, else the file's name; printable */
    uint32_t *suppressed, n_suppressed; /* tokens that the model never says */

    struct vocab_job *vocab_job; /* while it is being built; else NULL */
    const void *vocab_shared;    /* the mapping that clients have, too; NULL: none yet */
    int vocab_fd;                /* the sealed memfd of that mapping */
    size_t vocab_bytes;
    struct vocab vocab;                  /* a view of it */
    struct grammar_vocab *grammar_vocab; /* its tokens' bytes, sorted; or NULL */
    bool without_grammars; /* set before open_model: leave grammar_vocab NULL, which may take twenty
                              times the bytes of the texts in the file */

    struct device device;
    const struct backend_ops *ops; /* of the device */
    struct backend *backend;
    struct backend_info info;
    struct backend_limits limits;
    const char *weights_dir;      /* --weights-cache, or NULL */
    struct weights_cache weights; /* if so */
    struct budget_facts facts;    /* what context and KV pages were chosen by */

    struct loaded_model *draft; /* the draft model, with the same vocabulary; NULL: none */
};

/* Maps and parses the GGUF file `path`. Returns 0, or with one line -ENOENT/-EACCES/... (the file),
 * -EBADMSG (its contents), -ENOMEM. */
int loaded_model_open_file(struct loaded_model *loaded, const char *path, char *err,
                           size_t err_bytes);

/* Next step: parses the model in the file, without a backend, and starts a thread that builds the
 * vocabulary. -EBADMSG, -ENOTSUP: hearth cannot run the model or its vocabulary; the line says why.
 * rope_scaling: as model_open_scaled has it. `path` must stay valid; it is used in the line. */
int loaded_model_open_model(struct loaded_model *loaded, const char *path, const char *rope_scaling,
                            char *err, size_t err_bytes);

/* Next step, if the configuration names a draft model: opens that, too. -ENOTSUP when its
 * vocabulary differs. */
int loaded_model_open_draft(struct loaded_model *loaded, const struct config *config, char *err,
                            size_t err_bytes);

/* Compares the draft's vocabulary with the model's: the same number of tokens with the same texts.
 * Else -ENOTSUP, and the line names the first difference. */
int loaded_model_compare_vocab(const struct vocab *model, const struct vocab *draft, char *err,
                               size_t err_bytes);

/* Chooses the device, the context and the KV memory, as open_backend will, without loading: `limits`
 * and `facts`. -ENODEV if the device does not exist; -EINVAL if --kv-bytes holds no context. */
int loaded_model_plan(struct loaded_model *loaded, const struct config *config, char *err,
                      size_t err_bytes);

/* Waits for the vocabulary that open_model began to build; open_backend does that, too. */
int loaded_model_finish_vocab(struct loaded_model *loaded, char *err, size_t err_bytes);

/* Opens the backend for the model, and for the draft model: weights repacked, KV reserved.
 * Afterwards vocabulary and fingerprint are complete, too. -ENODEV if the device does not exist. */
int loaded_model_open_backend(struct loaded_model *loaded, const struct config *config, char *err,
                              size_t err_bytes);

/* For --weights-cache, the draft model included. Reads what was mapped: at once, or on a thread that calls
 * on_damage; -EBADMSG with a line when it is damaged. */
int loaded_model_check_weights(struct loaded_model *loaded, char *err, size_t err_bytes);
void loaded_model_watch_weights(struct loaded_model *loaded, void (*on_damage)(void));

/* The first answer was given: keeps the weights, on a thread, if they are not kept. */
void loaded_model_keep_weights(struct loaded_model *loaded);

/* Ends the threads. Returns 0, or what loaded_model_watch_weights has found. */
int loaded_model_stop_weights(struct loaded_model *loaded, char *err, size_t err_bytes);

/* Also after a failed open. */
void loaded_model_close(struct loaded_model *loaded);

/* A vocabulary as grammars need it: end tokens end a sentence, other tokens are their bytes;
 * control tokens, those without bytes and ids that it does not have never follow. Returns 0 or
 * -errno. */
int loaded_vocab_of_grammars(const struct vocab *vocab, uint32_t n_vocab,
                             struct grammar_vocab **ret);

#endif
