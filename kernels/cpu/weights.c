#include "kernels/cpu/weights.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/repack.h"

/* Two threads that fault in the same huge page would both clear it. */
enum { UNIT_BYTES = 2 << 20 };

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

/* ---- packing ---------------------------------------------------------------------------------- */

struct pack_job {
    const struct gguf *gguf;
    const struct cpu_matrix **matrix; /* [n] ascending by packed */
    uint32_t n;
    uint8_t *begin; /* of the first unit */
};

/* The first group of m that begins at `to` or behind. */
static uint32_t group_at(const struct cpu_matrix *m, const uint8_t *to)
{
    if (to <= m->packed)
        return 0;
    size_t before = ((size_t)(to - m->packed) + m->group_bytes - 1) / m->group_bytes;
    return before < m->groups ? (uint32_t)before : m->groups;
}

/* Packs the groups that begin in a unit of memory. */
static void pack_unit(void *arg, uint32_t unit, uint32_t worker)
{
    (void)worker;
    const struct pack_job *job = arg;
    const uint8_t *begin = job->begin + (size_t)unit * UNIT_BYTES, *end = begin + UNIT_BYTES;
    for (uint32_t i = 0; i < job->n && job->matrix[i]->packed < end; i++) {
        const struct cpu_matrix *m = job->matrix[i];
        uint32_t first = group_at(m, begin), last = group_at(m, end);
        for (uint32_t g = first; g < last; g++)
            repack_group(m, g);
        uint32_t row0 = first * CPU_LANES, row1 = last * CPU_LANES;
        row1 = row1 < m->file.rows ? row1 : m->file.rows;
        if (row0 < row1)
            gguf_drop_range(job->gguf, m->file.data + (size_t)row0 * m->file.row_bytes,
                            (size_t)(row1 - row0) * m->file.row_bytes);
    }
}

/* Packs n matrices that have their memory, ascending. */
static void pack_all(struct backend *b, const struct cpu_matrix **matrix, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        assert(matrix[i - 1]->packed + repack_bytes(matrix[i - 1]) <= matrix[i]->packed);
    struct pack_job job = {.gguf = b->model->gguf, .matrix = matrix, .n = n};
    const uint8_t *end = matrix[n - 1]->packed + repack_bytes(matrix[n - 1]);
    job.begin = matrix[0]->packed - (uintptr_t)matrix[0]->packed % UNIT_BYTES;
    pool_run(b->pool, pack_unit, &job,
             (uint32_t)(((size_t)(end - job.begin) + UNIT_BYTES - 1) / UNIT_BYTES));
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
    memcpy(copy, file->data, file->bytes);
    b->weight_bytes += file->bytes;
    *ret = copy;
    return 0;
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

int weights_load_matrix(struct backend *b, const struct model_tensor *file, struct cpu_matrix *m)
{
    const struct cpu_matrix *one = m;
    int rc = place_matrix(b, file, m);
    if (!rc && m->packed)
        pack_all(b, &one, 1);
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
        pack_all(b, matrix, n);
        free(matrix);
    }
    /* A tied embedding is read from the head's repacked copy; one of its own stays in the file. */
    repack_init(&b->embedding, &m->global[MODEL_TOKEN_EMBD]);
    if (m->tied)
        b->embedding.packed = w->head.packed;
    b->weights[PASS_FAST] = *w;
    return 0;
}
