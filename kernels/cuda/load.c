/* Weights: where each lies in device memory, and how they get there: repacked by all threads into one of two pinned
 * buffers while the other one is copied. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/pool.h"
#include "kernels/cpu/rope.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/repack.h"
#include "kernels/base/fail.h"

enum { STAGE_BYTES = 16 << 20 };

/* ---- places ---------------------------------------------------------------------------------- */

static void place_matrix(struct backend *b, const struct model_tensor *t, struct cuda_matrix *m)
{
    m->type = t->type;
    m->rows = t->rows;
    m->cols = t->cols;
    m->groups = (t->rows + CUDA_GROUP - 1) / CUDA_GROUP;
    m->group_bytes = layout_group_bytes(t->type, t->cols);
    m->by_rows = b->blas != NULL;
    m->data = cuda_take(&b->weight_memory, t->n_matrices * m->groups * m->group_bytes);
}

static const float *place_vector(struct backend *b, const struct model_tensor *t)
{
    return t->data ? cuda_take(&b->weight_memory, t->bytes) : NULL;
}

/* The tensors of layer i; n_layer: those of none; after it the next-token layer's. Returns how many there are. */
static uint32_t tensors_of(const struct model *m, uint32_t i, const struct model_tensor **ret)
{
    *ret = i < m->n_layer    ? m->layers[i].tensor
           : i == m->n_layer ? m->global
                             : m->mtp->layer.tensor;
    return i == m->n_layer ? MODEL_N_GLOBAL : MODEL_N_LAYER_TENSORS;
}

static bool is_vector(const struct model *m, uint32_t i, uint32_t t)
{
    return i == m->n_layer ? model_global_vector(t) : model_layer_vector(t);
}

/* Whether a matrix is one that is placed: a tied embedding is the head's. */
static bool is_placed(const struct model *m, uint32_t i, uint32_t t,
                      const struct model_tensor *file)
{
    return file->data && !(i == m->n_layer && t == MODEL_TOKEN_EMBD && m->tied);
}

/* Whether tensor t of layer i is the CPU's alone. */
static bool is_elsewhere(const struct backend *b, uint32_t i, uint32_t t)
{
    return cuda_on_host(b, i) && t >= MODEL_FFN_GATE_EXPS && t <= MODEL_FFN_DOWN_EXPS_BIAS &&
           t != MODEL_FFN_ROUTER_BIAS;
}

static void place_layer(struct backend *b, uint32_t i, struct cuda_layer *l)
{
    const struct model_tensor *file;
    for (uint32_t t = 0, n = tensors_of(b->model, i, &file); t < n; t++)
        if (is_elsewhere(b, i, t))
            continue;
        else if (is_vector(b->model, i, t))
            l->vector[t] = place_vector(b, &file[t]);
        else if (is_placed(b->model, i, t, &file[t]))
            place_matrix(b, &file[t], &l->matrix[t]);
}

static size_t rope_floats(const struct backend *b, uint32_t i)
{
    return rope_table_floats(&b->model->ropes[i], b->limits.context);
}

void cuda_place_weights(struct backend *b)
{
    const struct model *m = b->model;
    struct cuda_weights *w = &b->weights;
    for (uint32_t i = 0; i < cuda_layers(m); i++)
        place_layer(b, i, &w->layers[i]);
    struct cuda_matrix *of_none = w->layers[m->n_layer].matrix;
    if (m->tied)
        of_none[MODEL_TOKEN_EMBD] = of_none[MODEL_OUTPUT];
    for (uint32_t i = 0; i < m->n_ropes; i++)
        w->rope[i] = cuda_take(&b->weight_memory, rope_floats(b, i) * sizeof(float));
    const uint32_t n = rope_query_factors_n(m, b->limits.context);
    if (n > 0)
        w->query_factors = cuda_take(&b->weight_memory, n * sizeof(float));
}

/* ---- copies ---------------------------------------------------------------------------------- */

struct loader {
    struct backend *b;
    uint8_t *stage[2];     /* pinned */
    cudaEvent_t copied[2]; /* the buffer may be filled again */
    size_t stage_bytes;
    uint32_t turn;
    cudaError_t code; /* the first error; nothing happens after it */
};

struct repack_run {
    const struct model_tensor *t;
    uint64_t group_bytes;
    uint32_t first, by_rows;
    uint8_t *to;
};

static void repack_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    (void)worker;
    const struct repack_run *run = arg;
    uint8_t *to = run->to + chunk * run->group_bytes;
    if (run->by_rows)
        cuda_copy_group(run->t, run->first + chunk, to);
    else
        cuda_repack_group(run->t, run->first + chunk, to);
}

/* The next buffer, free to be filled. */
static uint8_t *next_stage(struct loader *l)
{
    l->turn ^= 1;
    if (l->code == cudaSuccess)
        l->code = cudaEventSynchronize(l->copied[l->turn]);
    return l->stage[l->turn];
}

static void copy_stage(struct loader *l, void *to, size_t bytes)
{
    if (l->code == cudaSuccess)
        l->code = cudaMemcpyAsync(to, l->stage[l->turn], bytes, cudaMemcpyHostToDevice,
                                  l->b->queue.stream);
    if (l->code == cudaSuccess)
        l->code = cudaEventRecord(l->copied[l->turn], l->b->queue.stream);
}

static void load_matrix(struct loader *l, const struct model_tensor *t, const struct cuda_matrix *m)
{
    const uint32_t most = (uint32_t)(l->stage_bytes / m->group_bytes),
                   groups = t->n_matrices * m->groups;
    for (uint32_t first = 0; first < groups && l->code == cudaSuccess; first += most) {
        const uint32_t n = groups - first < most ? groups - first : most;
        struct repack_run run = {t, m->group_bytes, first, m->by_rows, next_stage(l)};
        pool_run(l->b->pool, repack_chunk, &run, n);
        copy_stage(l, (uint8_t *)(uintptr_t)m->data + first * m->group_bytes, n * m->group_bytes);
    }
    if (l->b->limits.loaded)
        *l->b->limits.loaded += t->bytes;
}

static void load_bytes(struct loader *l, const void *from, const float *to, size_t bytes)
{
    for (size_t at = 0; from && at < bytes && l->code == cudaSuccess; at += l->stage_bytes) {
        const size_t n = bytes - at < l->stage_bytes ? bytes - at : l->stage_bytes;
        memcpy(next_stage(l), (const uint8_t *)from + at, n);
        copy_stage(l, (uint8_t *)(uintptr_t)to + at, n);
    }
}

static void load_vector(struct loader *l, const struct model_tensor *t, const float *to)
{
    load_bytes(l, t->data, to, t->bytes);
}

static void load_layer(struct loader *l, uint32_t i, const struct cuda_layer *to)
{
    const struct model *m = l->b->model;
    const struct model_tensor *file;
    for (uint32_t t = 0, n = tensors_of(m, i, &file); t < n; t++)
        if (is_elsewhere(l->b, i, t))
            continue;
        else if (is_vector(m, i, t))
            load_vector(l, &file[t], to->vector[t]);
        else if (is_placed(m, i, t, &file[t]))
            load_matrix(l, &file[t], &to->matrix[t]);
}

/* Returns 0 or -ENOMEM (of the host). */
static int load_rope(struct loader *l)
{
    const struct backend *b = l->b;
    const struct model *m = b->model;
    const uint32_t n = rope_query_factors_n(m, b->limits.context);
    size_t floats = n;
    for (uint32_t i = 0; i < m->n_ropes; i++)
        floats = rope_floats(b, i) > floats ? rope_floats(b, i) : floats;
    float *table = calloc(floats, sizeof(*table));
    if (!table)
        return -ENOMEM;
    for (uint32_t i = 0; i < m->n_ropes; i++) {
        rope_build(table, &m->ropes[i], b->limits.context);
        load_bytes(l, table, b->weights.rope[i], rope_floats(b, i) * sizeof(*table));
    }
    rope_query_factors(table, m, b->limits.context);
    if (n > 0)
        load_bytes(l, table, b->weights.query_factors, n * sizeof(*table));
    free(table);
    return 0;
}

static int load_all(struct loader *l)
{
    for (uint32_t i = 0; i < cuda_layers(l->b->model); i++)
        load_layer(l, i, &l->b->weights.layers[i]);
    return load_rope(l);
}

static size_t largest_group(const struct cuda_weights *w, uint32_t n)
{
    uint64_t most = STAGE_BYTES;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t t = 0; t < MODEL_N_LAYER_TENSORS; t++)
            if (w->layers[i].matrix[t].group_bytes > most)
                most = w->layers[i].matrix[t].group_bytes;
    return most;
}

int cuda_upload_weights(struct backend *b, char *err, size_t err_bytes)
{
    struct loader l = {.b = b};
    l.stage_bytes = largest_group(&b->weights, cuda_layers(b->model));
    int rc = 0;
    for (int i = 0; i < 2 && l.code == cudaSuccess; i++) {
        l.code = cudaMallocHost((void **)&l.stage[i], l.stage_bytes);
        if (l.code == cudaSuccess)
            l.code = cudaEventCreateWithFlags(&l.copied[i], cudaEventDisableTiming);
    }
    if (l.code == cudaSuccess)
        rc = load_all(&l);
    const cudaError_t last = cudaStreamSynchronize(b->queue.stream);
    l.code = l.code == cudaSuccess ? last : l.code;
    for (int i = 0; i < 2; i++) {
        if (l.copied[i])
            cudaEventDestroy(l.copied[i]);
        if (l.stage[i])
            cudaFreeHost(l.stage[i]);
    }
    if (rc)
        return fail(err, err_bytes, rc, "no memory for the tables of rope");
    if (l.code != cudaSuccess)
        return fail(err, err_bytes, -EIO, "copying the weights to the GPU failed: %s",
                    cudaGetErrorString(l.code));
    return 0;
}
