#include "kernels/cpu/weights.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/arena.h"
#include "kernels/cpu/load.h"
#include "kernels/cpu/repack.h"

/* A layer's matrices, in the order of a pass. */
static const struct {
    enum model_layer_tensor tensor;
    size_t at; /* of the cpu_matrix in struct cpu_layer */
} MATRICES[] = {
    {MODEL_ATTN_Q, offsetof(struct cpu_layer, q)},
    {MODEL_ATTN_K, offsetof(struct cpu_layer, k)},
    {MODEL_ATTN_V, offsetof(struct cpu_layer, v)},
    {MODEL_ATTN_OUTPUT, offsetof(struct cpu_layer, o)},
    {MODEL_FFN_GATE, offsetof(struct cpu_layer, gate)},
    {MODEL_FFN_UP, offsetof(struct cpu_layer, up)},
    {MODEL_FFN_DOWN, offsetof(struct cpu_layer, down)},
};
enum { LAYER_MATRICES = sizeof MATRICES / sizeof MATRICES[0] };

/* Its vectors. */
static const struct {
    enum model_layer_tensor tensor;
    size_t at; /* of the pointer */
} VECTORS[] = {
    {MODEL_ATTN_NORM, offsetof(struct cpu_layer, attn_norm)},
    {MODEL_FFN_NORM, offsetof(struct cpu_layer, ffn_norm)},
    {MODEL_ATTN_Q_BIAS, offsetof(struct cpu_layer, q_bias)},
    {MODEL_ATTN_K_BIAS, offsetof(struct cpu_layer, k_bias)},
    {MODEL_ATTN_V_BIAS, offsetof(struct cpu_layer, v_bias)},
    {MODEL_ATTN_Q_NORM, offsetof(struct cpu_layer, q_norm)},
    {MODEL_ATTN_K_NORM, offsetof(struct cpu_layer, k_norm)},
    {MODEL_ATTN_POST_NORM, offsetof(struct cpu_layer, attn_post_norm)},
    {MODEL_FFN_POST_NORM, offsetof(struct cpu_layer, ffn_post_norm)},
};
enum { LAYER_VECTORS = sizeof VECTORS / sizeof VECTORS[0] };

struct cpu_matrix *weights_matrix(struct cpu_weights *w, uint32_t n_layer, uint32_t index)
{
    if (index >= n_layer * LAYER_MATRICES)
        return index == n_layer * LAYER_MATRICES ? &w->head : NULL;
    uint8_t *layer = (uint8_t *)&w->layers[index / LAYER_MATRICES];
    return (struct cpu_matrix *)(void *)(layer + MATRICES[index % LAYER_MATRICES].at);
}

/* ---- memory ----------------------------------------------------------------------------------- */

/* The matrix of a tensor, with memory to be packed into if the isa wants that. */
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

/* Copies a vector: the file's may lie on any address. One that the model lacks stays NULL. */
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

/* Bytes that place_matrix and load_vector take. A matrix may have one row, too. */
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

/* All weights lie in one mapping, each where a pass comes to it. */
static int reserve(struct backend *b)
{
    const struct model *m = b->model;
    size_t bytes = m->n_layer * sizeof(struct cpu_layer) + 64;
    for (uint32_t i = 0; i < m->n_layer; i++) {
        const struct model_tensor *tensor = m->layers[i].tensor;
        for (size_t t = 0; t < LAYER_MATRICES; t++)
            bytes += matrix_bytes(b, &tensor[MATRICES[t].tensor]);
        for (size_t t = 0; t < LAYER_VECTORS; t++)
            bytes += vector_bytes(&tensor[VECTORS[t].tensor]);
    }
    bytes += vector_bytes(&m->global[MODEL_OUTPUT_NORM]);
    bytes += matrix_bytes(b, &m->global[MODEL_OUTPUT]);
    return arena_reserve(b->arena, bytes);
}

static int place_layer(struct backend *b, struct cpu_layer *l, const struct model_tensor *tensor)
{
    uint8_t *layer = (uint8_t *)l;
    int rc = 0;
    for (size_t i = 0; i < LAYER_MATRICES && !rc; i++)
        rc = place_matrix(b, &tensor[MATRICES[i].tensor],
                          (struct cpu_matrix *)(void *)(layer + MATRICES[i].at));
    for (size_t i = 0; i < LAYER_VECTORS && !rc; i++)
        rc = load_vector(b, &tensor[VECTORS[i].tensor],
                         (const float **)(void *)(layer + VECTORS[i].at));
    return rc;
}

static int place_all(struct backend *b, struct cpu_weights *w)
{
    const struct model *m = b->model;
    if (reserve(b))
        return -ENOMEM;
    w->layers = arena_alloc(b->arena, m->n_layer * sizeof w->layers[0]);
    if (!w->layers)
        return -ENOMEM;
    int rc = 0;
    for (uint32_t i = 0; i < m->n_layer && !rc; i++)
        rc = place_layer(b, &w->layers[i], m->layers[i].tensor);
    if (!rc)
        rc = load_vector(b, &m->global[MODEL_OUTPUT_NORM], &b->output_norm);
    if (!rc)
        rc = place_matrix(b, &m->global[MODEL_OUTPUT], &w->head);
    return rc;
}

/* ---- what others call ------------------------------------------------------------------------- */

int weights_load_matrix(struct backend *b, const struct model_tensor *tensor, struct cpu_matrix *m)
{
    int rc = place_matrix(b, tensor, m);
    if (!rc && m->packed)
        load_from_memory(b->pool, m);
    return rc;
}

int weights_load(struct backend *b)
{
    const struct model *m = b->model;
    struct cpu_weights *w = &b->weights[PASS_CANONICAL];
    int rc = place_all(b, w);
    if (rc)
        return rc;
    if (b->isa->packed) {
        uint32_t n = m->n_layer * LAYER_MATRICES + 1;
        const struct cpu_matrix **matrix = malloc(n * sizeof matrix[0]);
        if (!matrix)
            return -ENOMEM;
        for (uint32_t i = 0; i < n; i++)
            matrix[i] = weights_matrix(w, m->n_layer, i);
        rc = load_from_file(b->pool, m, matrix, n);
        free(matrix);
        if (rc)
            return rc;
    }
    /* A tied embedding is read from the head's repacked copy; one of its own stays in the file. */
    repack_init(&b->embedding, &m->global[MODEL_TOKEN_EMBD]);
    if (m->tied)
        b->embedding.packed = w->head.packed;
    b->weights[PASS_FAST] = *w;
    return 0;
}
