/* weights.c: places all weights in the order of a pass. See weights.h. */
#include "kernels/cpu/weights.h"

#include "kernels/base/arena.h"
#include "kernels/cpu/load.h"
#include "kernels/cpu/repack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)MODEL_N_GLOBAL <= (int)MODEL_N_LAYER_TENSORS, "a cpu_layer for them");

/* Layers, one more for the tensors of none, and the next-token layer. */
static uint32_t n_layers(const struct model *m)
{
    return m->n_layer + 1 + (m->mtp != NULL);
}

/* Whether tensor t of layer i is a matrix that the instance has a place for; of no layer: those that
 * a matmul reads. */
static bool is_matrix(const struct model *m, uint32_t i, uint32_t t,
                      const struct model_tensor *file)
{
    return file->rows > 0 && (i != m->n_layer ? !model_layer_vector(t)
                                              : t == MODEL_OUTPUT || t == MODEL_PER_LAYER_PROJ);
}

struct cpu_matrix *weights_matrix(struct cpu_weights *w, const struct model *model, uint32_t index)
{
    for (uint32_t i = 0; i < n_layers(model); i++)
        for (uint32_t t = 0; t < MODEL_N_LAYER_TENSORS; t++) {
            struct cpu_matrix *m = &w->layers[i].matrix[t];
            if (is_matrix(model, i, t, &m->file) && index-- == 0)
                return m;
        }
    return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes of tensor `file` in the image: 0 for what the model lacks, or what the isa reads in the
 * file. A matrix may have only one row, too. */
static size_t vector_bytes(const struct model_tensor *file)
{
    return file->data ? (file->bytes + 63) / 64 * 64 : 0;
}

static size_t matrix_bytes(bool packed, const struct model_tensor *file)
{
    struct cpu_matrix m;
    if (!packed)
        return 0;
    repack_init(&m, file);
    return repack_bytes(&m);
}

/* The tensors of layer i; n_layer: those of none; then the next-token layer's. Returns how many
 * there are. */
static uint32_t tensors_of(const struct model *m, uint32_t i, const struct model_tensor **ret)
{
    *ret = i < m->n_layer    ? m->layers[i].tensor
           : i == m->n_layer ? m->global
                             : m->mtp->layer.tensor;
    return i != m->n_layer ? MODEL_N_LAYER_TENSORS : MODEL_N_GLOBAL;
}

static bool is_vector(const struct model *m, uint32_t i, uint32_t t)
{
    return i != m->n_layer ? model_layer_vector(t)
                           : t == MODEL_OUTPUT_NORM || t == MODEL_PER_LAYER_NORM;
}

/* The image's bytes; *ret_added: those beyond the bytes of its tensors in the file. */
static size_t image_bytes(const struct model *m, bool packed, size_t *ret_added)
{
    const struct model_tensor *file;
    size_t bytes = 0;
    *ret_added = 0;
    for (uint32_t i = 0; i < n_layers(m); i++)
        for (uint32_t t = 0, n = tensors_of(m, i, &file); t < n; t++) {
            const size_t own = is_vector(m, i, t)             ? vector_bytes(&file[t])
                               : is_matrix(m, i, t, &file[t]) ? matrix_bytes(packed, &file[t])
                                                              : 0;
            bytes += own;
            *ret_added += own > file[t].bytes ? own - file[t].bytes : 0;
        }
    return bytes;
}

size_t weights_added_bytes(const struct model *model, bool packed)
{
    size_t added;
    image_bytes(model, packed, &added);
    return added;
}

/* Gives the weights of layer i their places from `at` on. Returns where they end. */
static uint8_t *place_layer(const struct backend *b, uint32_t i, struct cpu_layer *l, uint8_t *at)
{
    const struct model_tensor *file;
    for (uint32_t t = 0, n = tensors_of(b->model, i, &file); t < n; t++) {
        if (is_vector(b->model, i, t) && file[t].data) {
            l->vector[t] = (const float *)at;
            at += vector_bytes(&file[t]);
        } else if (is_matrix(b->model, i, t, &file[t])) {
            repack_init(&l->matrix[t], &file[t]);
            l->matrix[t].packed = b->isa->packed ? at : NULL;
            at += matrix_bytes(b->isa->packed, &file[t]);
        }
    }
    return at;
}

static int place_all(struct backend *b, struct cpu_weights *w)
{
    const struct model *m = b->model;
    size_t added;
    b->image_bytes = image_bytes(m, b->isa->packed, &added);
    b->image_given = b->limits.image && b->isa->packed;
    if (b->image_given && b->limits.image_bytes != b->image_bytes)
        return -EINVAL;
    b->image = b->image_given ? (uint8_t *)(uintptr_t)b->limits.image
                              : arena_alloc(b->arena, b->image_bytes);
    w->layers = arena_alloc(b->arena, n_layers(m) * sizeof(w->layers[0]));
    if (!b->image || !w->layers)
        return -ENOMEM;
    b->weight_bytes += b->image_bytes;
    uint8_t *at = b->image;
    for (uint32_t i = 0; i < n_layers(m); i++)
        at = place_layer(b, i, &w->layers[i], at);
    /* A tied embedding is read from the head's repacked copy; an untied one stays in the file, as
     * does the table of layers' inputs. */
    struct cpu_matrix *of_none = w->layers[m->n_layer].matrix;
    if (m->n_per_layer > 0)
        repack_init(&of_none[MODEL_PER_LAYER_EMBD], &m->global[MODEL_PER_LAYER_EMBD]);
    repack_init(&of_none[MODEL_TOKEN_EMBD], &m->global[MODEL_TOKEN_EMBD]);
    if (m->tied)
        of_none[MODEL_TOKEN_EMBD].packed = of_none[MODEL_OUTPUT].packed;
    return 0;
}

/* ---- contents
 * --------------------------------------------------------------------------------- */

/* x [rows][cols] becomes [cols][rows]. */
static int transpose(float *x, uint32_t rows, uint32_t cols)
{
    const size_t n = (size_t)rows * cols;
    float *copy = malloc(n * sizeof(*copy));
    if (!copy)
        return -ENOMEM;
    memcpy(copy, x, n * sizeof(*copy));
    for (size_t i = 0; i < n; i++)
        x[i % cols * rows + i / cols] = copy[i];
    free(copy);
    return 0;
}

/* Copies a vector: in the file it may be unaligned. Of a convolution the taps of all channels
 * together. */
static int load_vector(struct backend *b, const struct model_tensor *file, bool convolution,
                       const float *place)
{
    float *to = (float *)(void *)(b->image + ((const uint8_t *)place - b->image));
    int rc = load_vector_data(b->model, file, to);
    return rc || !convolution ? rc : transpose(to, file->rows, file->cols);
}

/* One that the model lacks is NULL. */
static int fill_vectors(struct backend *b, struct cpu_weights *w)
{
    const struct model_tensor *file;
    int rc = 0;
    for (uint32_t i = 0; i < n_layers(b->model); i++)
        for (uint32_t t = 0, n = tensors_of(b->model, i, &file); t < n && !rc; t++)
            if (w->layers[i].vector[t])
                rc = load_vector(b, &file[t],
                                 i != b->model->n_layer &&
                                     (t == MODEL_DELTA_CONV || t == MODEL_SHORT_CONV),
                                 w->layers[i].vector[t]);
    return rc;
}

/* Reads the file into all matrices that have a place. Tables that stay in the file are hashed beside
 * them: after them one thread would do it, and the disk and the other threads wait. */
static int fill_matrices(struct backend *b, struct cpu_weights *w)
{
    const struct cpu_matrix **matrix;
    uint32_t n = 0;
    while (weights_matrix(w, b->model, n))
        n++;
    matrix = malloc((n + 2) * sizeof(matrix[0]));
    if (!matrix)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        matrix[i] = weights_matrix(w, b->model, i);
    if (!b->model->tied)
        matrix[n++] = &w->layers[b->model->n_layer].matrix[MODEL_TOKEN_EMBD];
    if (b->model->n_per_layer > 0)
        matrix[n++] = &w->layers[b->model->n_layer].matrix[MODEL_PER_LAYER_EMBD];
    int rc = load_from_file(b->pool, b->model, matrix, n, b->limits.loaded);
    free(matrix);
    return rc;
}

/* ---- what others call
 * ------------------------------------------------------------------------- */

int weights_load_matrix(struct backend *b, const struct model_tensor *tensor, struct cpu_matrix *m)
{
    repack_init(m, tensor);
    if (!b->isa->packed)
        return 0;
    m->packed = arena_alloc(b->arena, repack_bytes(m));
    if (!m->packed)
        return -ENOMEM;
    b->weight_bytes += repack_bytes(m);
    load_from_memory(b->pool, m);
    return 0;
}

int weights_load(struct backend *b)
{
    struct cpu_weights *w = &b->weights[PASS_CANONICAL];
    int rc = place_all(b, w);
    if (!rc && !b->image_given)
        rc = fill_vectors(b, w);
    if (!rc && !b->image_given && b->isa->packed)
        rc = fill_matrices(b, w);
    b->weights[PASS_FAST] = *w;
    return rc;
}
