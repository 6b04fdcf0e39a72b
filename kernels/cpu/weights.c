/* weights.c: places all weights in the order of a pass. See weights.h. */
#include "kernels/cpu/weights.h"

#include "kernels/base/arena.h"
#include "kernels/cpu/load.h"
#include "kernels/cpu/repack.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert((int)MODEL_N_GLOBAL <= (int)MODEL_N_LAYER_TENSORS, "a cpu_layer for them");

/* Whether tensor t of layer i is a matrix that the instance has a place for; of no layer: the head's. */
static bool is_matrix(uint32_t n_layer, uint32_t i, uint32_t t, const struct model_tensor *file)
{
    return file->rows > 0 && (i < n_layer ? !model_layer_vector(t) : t == MODEL_OUTPUT);
}

struct cpu_matrix *weights_matrix(struct cpu_weights *w, uint32_t n_layer, uint32_t index)
{
    for (uint32_t i = 0; i <= n_layer; i++)
        for (uint32_t t = 0; t < MODEL_N_LAYER_TENSORS; t++) {
            struct cpu_matrix *m = &w->layers[i].matrix[t];
            if (is_matrix(n_layer, i, t, &m->file) && index-- == 0)
                return m;
        }
    return NULL;
}

/* ---- memory
 * ----------------------------------------------------------------------------------- */

/* Initializes the matrix of a tensor, with memory to pack it into if the isa uses packed
 * weights. */
static int place_matrix(struct backend *b, const struct model_tensor *file, struct cpu_matrix *m)
{
    repack_init(m, file);
    if (!b->isa->packed)
        return 0;
    m->packed = arena_alloc(b->arena, repack_bytes(m));
    if (!m->packed)
        return -ENOMEM;
    b->weight_bytes += repack_bytes(m);
    return 0;
}

/* Copies a vector: in the file it may be unaligned. A vector that the model lacks stays NULL. */
static int load_vector(struct backend *b, const struct model_tensor *file, const float **ret)
{
    if (!file->data)
        return 0;
    float *copy = arena_alloc(b->arena, file->bytes);
    if (!copy)
        return -ENOMEM;
    b->weight_bytes += file->bytes;
    *ret = copy;
    return load_vector_data(b->model, file, copy);
}

/* Bytes that place_matrix and load_vector allocate. A matrix may have only one row, too. */
static size_t matrix_bytes(const struct backend *b, const struct model_tensor *file)
{
    struct cpu_matrix m;
    if (!b->isa->packed)
        return 0;
    repack_init(&m, file);
    return repack_bytes(&m);
}

static size_t vector_bytes(const struct model_tensor *file)
{
    return file->data ? (file->bytes + 63) / 64 * 64 : 0;
}

/* The tensors of layer i; n_layer: those of none. Returns how many there are. */
static uint32_t tensors_of(const struct model *m, uint32_t i, const struct model_tensor **ret)
{
    *ret = i < m->n_layer ? m->layers[i].tensor : m->global;
    return i < m->n_layer ? MODEL_N_LAYER_TENSORS : MODEL_N_GLOBAL;
}

static bool is_vector(const struct model *m, uint32_t i, uint32_t t)
{
    return i < m->n_layer ? model_layer_vector(t) : t == MODEL_OUTPUT_NORM;
}

/* Reserves one mapping for all weights, which are in the order of a pass. */
static int reserve(struct backend *b)
{
    const struct model *m = b->model;
    const struct model_tensor *file;
    size_t bytes = (m->n_layer + 1) * sizeof(struct cpu_layer) + 64;
    for (uint32_t i = 0; i <= m->n_layer; i++)
        for (uint32_t t = 0, n = tensors_of(m, i, &file); t < n; t++)
            bytes += is_vector(m, i, t)                      ? vector_bytes(&file[t])
                     : is_matrix(m->n_layer, i, t, &file[t]) ? matrix_bytes(b, &file[t])
                                                             : 0;
    return arena_reserve(b->arena, bytes);
}

static int place_layer(struct backend *b, uint32_t i, struct cpu_layer *l)
{
    const struct model_tensor *file;
    int rc = 0;
    for (uint32_t t = 0, n = tensors_of(b->model, i, &file); t < n && !rc; t++)
        if (is_vector(b->model, i, t))
            rc = load_vector(b, &file[t], &l->vector[t]);
        else if (is_matrix(b->model->n_layer, i, t, &file[t]))
            rc = place_matrix(b, &file[t], &l->matrix[t]);
    return rc;
}

static int place_all(struct backend *b, struct cpu_weights *w)
{
    const struct model *m = b->model;
    if (reserve(b))
        return -ENOMEM;
    w->layers = arena_alloc(b->arena, (m->n_layer + 1) * sizeof(w->layers[0]));
    int rc = w->layers ? 0 : -ENOMEM;
    for (uint32_t i = 0; i <= m->n_layer && !rc; i++)
        rc = place_layer(b, i, &w->layers[i]);
    if (rc)
        return rc;
    /* A tied embedding is read from the head's repacked copy; an untied one stays in the file. */
    struct cpu_matrix *of_none = w->layers[m->n_layer].matrix;
    repack_init(&of_none[MODEL_TOKEN_EMBD], &m->global[MODEL_TOKEN_EMBD]);
    if (m->tied)
        of_none[MODEL_TOKEN_EMBD].packed = of_none[MODEL_OUTPUT].packed;
    return 0;
}

/* Reads the file into all matrices that have a place. An embedding that stays in the file is hashed
 * beside them: after them one thread would do it, and the disk and the other threads wait. */
static int fill_matrices(struct backend *b, struct cpu_weights *w)
{
    const uint32_t n_layer = b->model->n_layer;
    const struct cpu_matrix **matrix;
    uint32_t n = 0;
    while (weights_matrix(w, n_layer, n))
        n++;
    matrix = malloc((n + 1) * sizeof(matrix[0]));
    if (!matrix)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        matrix[i] = weights_matrix(w, n_layer, i);
    if (!b->model->tied)
        matrix[n++] = &w->layers[n_layer].matrix[MODEL_TOKEN_EMBD];
    int rc = load_from_file(b->pool, b->model, matrix, n, b->limits.loaded);
    free(matrix);
    return rc;
}

/* ---- what others call
 * ------------------------------------------------------------------------- */

int weights_load_matrix(struct backend *b, const struct model_tensor *tensor, struct cpu_matrix *m)
{
    int rc = place_matrix(b, tensor, m);
    if (!rc && m->packed)
        load_from_memory(b->pool, m);
    return rc;
}

int weights_load(struct backend *b)
{
    struct cpu_weights *w = &b->weights[PASS_CANONICAL];
    int rc = place_all(b, w);
    if (!rc && b->isa->packed)
        rc = fill_matrices(b, w);
    b->weights[PASS_FAST] = *w;
    return rc;
}
