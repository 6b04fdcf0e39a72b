/*
 * model_load: what the parts of model_open share: the table of architectures (model_arch.c), the
 * keys (model_keys.c) and the tensors (model.c). Private to those three files.
 */
#ifndef HEARTH_KERNELS_MODEL_LOAD_H
#define HEARTH_KERNELS_MODEL_LOAD_H

#include <errno.h>

#include "kernels/fail.h"
#include "kernels/model.h"

/* All that tells one architecture from another; the backends read it from struct model. */
struct model_arch {
    const char *name; /* general.architecture, and what its keys begin with */
    enum model_rope rope;
    uint32_t tensors; /* bits 1 << model_layer_tensor: what every layer holds, and nothing else */
};

/* The architecture of that name, or NULL. */
const struct model_arch *model_arch_find(struct gguf_string name);

/* "llama, qwen2", for an error line. Static text. */
const char *model_arch_names(void);

/* One model_open in progress. */
struct model_loader {
    const struct gguf *gguf;
    const struct model_arch *arch;
    struct model *model;
    bool *used; /* [tensors of the file] a view was made of it */
    char *err;
    size_t err_bytes;
};

#define FAIL(l, code, ...) fail((l)->err, (l)->err_bytes, code, __VA_ARGS__)

/* Is the file a model that hearth knows? Sets l->arch. Returns 0 or -errno with the line. */
int model_check_kind(struct model_loader *l);

/* The hyperparameters, all checked. Returns 0 or -errno with the line. */
int model_read_keys(struct model_loader *l);

#endif
