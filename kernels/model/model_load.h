/*
 * model_load: what the parts of model_open share: the keys (model_keys.c) and the tensors (model.c).
 * Private to those two files.
 */
#ifndef HEARTH_KERNELS_MODEL_MODEL_LOAD_H
#define HEARTH_KERNELS_MODEL_MODEL_LOAD_H

#include <errno.h>

#include "kernels/base/fail.h"
#include "kernels/model/model.h"
#include "kernels/model/model_arch.h"

/* One model_open in progress. */
struct model_loader {
    const struct gguf *gguf;
    const struct model_arch *arch;
    struct model *model;
    const char *rope_scaling;              /* in place of the file's, or NULL */
    uint32_t original_context;             /* what it was trained for without scaling of rope */
    uint32_t n_block;                      /* layers of the file; the last ones may only draft */
    uint32_t n_head_kv[MODEL_MAX_LAYERS];  /* of each layer */
    uint32_t n_dense;                      /* the first layers, which have no experts */
    uint32_t n_ff[MODEL_MAX_LAYERS];       /* of each layer's dense part */
    bool local[MODEL_MAX_LAYERS];          /* each layer */
    uint32_t n_ff_shared;                  /* of the shared expert; 0: none */
    bool recurrent[MODEL_MAX_LAYERS];      /* each layer */
    const struct layer_geometry *geometry; /* of the layer that is viewed; NULL: of none */
    bool *used;                            /* [tensors of the file] a view was made of it */
    char *err;
    size_t err_bytes;
};

#define FAIL(l, code, ...) fail((l)->err, (l)->err_bytes, code, __VA_ARGS__)

/* Is the file a model that hearth knows? Sets l->arch. Returns 0 or -errno with the line. */
int model_check_kind(struct model_loader *l);

/* The hyperparameters, all checked. Returns 0 or -errno with the line. */
int model_read_keys(struct model_loader *l);

#endif
