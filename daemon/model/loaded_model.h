/*
 * resident: what the daemon keeps warm: the mapped model, its backend with weights and KV, the
 * vocabulary; and a second, smaller one that drafts, if one was given.
 *
 * Opened once by the main thread, before any client; afterwards constant, except for the backend,
 * which the engine thread alone calls. Owns everything it points to.
 */
#ifndef HEARTH_DAEMON_MODEL_LOADED_MODEL_H
#define HEARTH_DAEMON_MODEL_LOADED_MODEL_H

#include "daemon/config.h"
#include "ipc/vocab.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "kernels/gguf/gguf.h"
#include "daemon/grammar/grammar.h"
#include "kernels/model/model.h"

struct vocab_job;

struct loaded_model {
    const char *path; /* the caller's */
    struct gguf *gguf;
    struct model *model;
    uint8_t fingerprint[MODEL_FINGERPRINT_BYTES]; /* none of a draft model */
    char name[64]; /* general.name, else the file's name; printable */

    struct vocab_job *vocab_job; /* it is being built; NULL: no longer */
    const void *vocab_shared;    /* the mapping that clients have, too; NULL: there is none */
    int vocab_fd;                /* then: the sealed memfd of it */
    size_t vocab_bytes;
    struct vocab vocab;                  /* a view of it */
    struct grammar_vocab *grammar_vocab; /* its tokens' bytes, sorted; none of a draft model */

    struct device device;
    const struct backend_ops *ops; /* the device's */
    struct backend *backend;
    struct backend_info info;
    struct backend_limits limits;

    struct loaded_model *draft; /* the draft model, its vocabulary the same; NULL: none */
};

/* Maps and parses the GGUF file `path`. Returns 0, or with one line -ENOENT/-EACCES/... (the file),
 * -EBADMSG (its contents), -ENOMEM. */
int loaded_model_open_file(struct loaded_model *loaded, const char *path, char *err,
                           size_t err_bytes);

/* Then: the model in it; no backend yet. A thread begins with its vocabulary. -EBADMSG, -ENOTSUP: not a
 * model or not a vocabulary that hearth can run, the line says why. `path`, which must stay, is for that
 * line. */
int loaded_model_open_model(struct loaded_model *loaded, const char *path, char *err,
                            size_t err_bytes);

/* Then, where config names a draft model: that one, too. -ENOTSUP when its vocabulary is another
 * one. */
int loaded_model_open_draft(struct loaded_model *loaded, const struct config *config, char *err,
                            size_t err_bytes);

/* Is the draft's vocabulary the same: as many tokens, with the same texts? Else -ENOTSUP, and the
 * line names the first difference. */
int loaded_model_compare_vocab(const struct vocab *model, const struct vocab *draft, char *err,
                               size_t err_bytes);

/* Opens the backend on the model, and on the draft model: weights repacked, KV reserved. Then vocabulary
 * and fingerprint are there, too. -ENODEV for a device that is not there. */
int loaded_model_open_backend(struct loaded_model *loaded, const struct config *config, char *err,
                              size_t err_bytes);

/* Also after a failed open. */
void loaded_model_close(struct loaded_model *loaded);

/* A vocabulary as grammars need it: end tokens end a sentence, other tokens are their bytes;
 * control tokens, those without bytes and ids that it does not have never follow. Returns 0 or
 * -errno. */
int loaded_vocab_of_grammars(const struct vocab *vocab, uint32_t n_vocab,
                             struct grammar_vocab **ret);

#endif
