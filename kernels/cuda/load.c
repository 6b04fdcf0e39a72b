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
    m->data = cuda_take(&b->weight_memory, m->groups * m->group_bytes);
}

static const float *place_vector(struct backend *b, const struct model_tensor *t)
{
    return t->data ? cuda_take(&b->weight_memory, t->bytes) : NULL;
}

static void place_layer(struct backend *b, const struct model_tensor *t, struct cuda_layer *l)
{
    place_matrix(b, &t[MODEL_ATTN_Q], &l->q);
    place_matrix(b, &t[MODEL_ATTN_K], &l->k);
    place_matrix(b, &t[MODEL_ATTN_V], &l->v);
    place_matrix(b, &t[MODEL_ATTN_OUTPUT], &l->o);
    place_matrix(b, &t[MODEL_FFN_GATE], &l->gate);
    place_matrix(b, &t[MODEL_FFN_UP], &l->up);
    place_matrix(b, &t[MODEL_FFN_DOWN], &l->down);
    l->attn_norm = place_vector(b, &t[MODEL_ATTN_NORM]);
    l->ffn_norm = place_vector(b, &t[MODEL_FFN_NORM]);
    l->q_bias = place_vector(b, &t[MODEL_ATTN_Q_BIAS]);
    l->k_bias = place_vector(b, &t[MODEL_ATTN_K_BIAS]);
    l->v_bias = place_vector(b, &t[MODEL_ATTN_V_BIAS]);
    l->q_norm = place_vector(b, &t[MODEL_ATTN_Q_NORM]);
    l->k_norm = place_vector(b, &t[MODEL_ATTN_K_NORM]);
    l->attn_post_norm = place_vector(b, &t[MODEL_ATTN_POST_NORM]);
    l->ffn_post_norm = place_vector(b, &t[MODEL_FFN_POST_NORM]);
}

static size_t rope_floats(const struct backend *b)
{
    return rope_table_floats(b->model->rope_dim, b->limits.context);
}

void cuda_place_weights(struct backend *b)
{
    const struct model *m = b->model;
    struct cuda_weights *w = &b->weights;
    for (uint32_t i = 0; i < m->n_layer; i++)
        place_layer(b, m->layers[i].tensor, &w->layers[i]);
    w->output_norm = place_vector(b, &m->global[MODEL_OUTPUT_NORM]);
    place_matrix(b, &m->global[MODEL_OUTPUT], &w->head);
    if (m->tied)
        w->embedding = w->head;
    else
        place_matrix(b, &m->global[MODEL_TOKEN_EMBD], &w->embedding);
    for (uint32_t i = 0; i < m->n_ropes; i++)
        w->rope[i] = cuda_take(&b->weight_memory, rope_floats(b) * sizeof(float));
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
    const uint32_t most = (uint32_t)(l->stage_bytes / m->group_bytes);
    for (uint32_t first = 0; first < m->groups && l->code == cudaSuccess; first += most) {
        const uint32_t n = m->groups - first < most ? m->groups - first : most;
        struct repack_run run = {t, m->group_bytes, first, m->by_rows, next_stage(l)};
        pool_run(l->b->pool, repack_chunk, &run, n);
        copy_stage(l, (uint8_t *)(uintptr_t)m->data + first * m->group_bytes, n * m->group_bytes);
    }
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

static void load_layer(struct loader *l, const struct model_tensor *t, const struct cuda_layer *to)
{
    load_matrix(l, &t[MODEL_ATTN_Q], &to->q);
    load_matrix(l, &t[MODEL_ATTN_K], &to->k);
    load_matrix(l, &t[MODEL_ATTN_V], &to->v);
    load_matrix(l, &t[MODEL_ATTN_OUTPUT], &to->o);
    load_matrix(l, &t[MODEL_FFN_GATE], &to->gate);
    load_matrix(l, &t[MODEL_FFN_UP], &to->up);
    load_matrix(l, &t[MODEL_FFN_DOWN], &to->down);
    load_vector(l, &t[MODEL_ATTN_NORM], to->attn_norm);
    load_vector(l, &t[MODEL_FFN_NORM], to->ffn_norm);
    load_vector(l, &t[MODEL_ATTN_Q_BIAS], to->q_bias);
    load_vector(l, &t[MODEL_ATTN_K_BIAS], to->k_bias);
    load_vector(l, &t[MODEL_ATTN_V_BIAS], to->v_bias);
    load_vector(l, &t[MODEL_ATTN_Q_NORM], to->q_norm);
    load_vector(l, &t[MODEL_ATTN_K_NORM], to->k_norm);
    load_vector(l, &t[MODEL_ATTN_POST_NORM], to->attn_post_norm);
    load_vector(l, &t[MODEL_FFN_POST_NORM], to->ffn_post_norm);
}

/* Returns 0 or -ENOMEM (of the host). */
static int load_rope(struct loader *l)
{
    const struct backend *b = l->b;
    const struct model *m = b->model;
    const size_t floats = rope_floats(b);
    float *table = calloc(floats, sizeof(*table));
    if (!table)
        return -ENOMEM;
    for (uint32_t i = 0; i < m->n_ropes; i++) {
        rope_build(table, m->rope_dim, b->limits.context, &m->ropes[i]);
        load_bytes(l, table, b->weights.rope[i], floats * sizeof(*table));
    }
    free(table);
    return 0;
}

static int load_all(struct loader *l)
{
    const struct model *m = l->b->model;
    const struct cuda_weights *w = &l->b->weights;
    for (uint32_t i = 0; i < m->n_layer; i++)
        load_layer(l, m->layers[i].tensor, &w->layers[i]);
    load_vector(l, &m->global[MODEL_OUTPUT_NORM], w->output_norm);
    load_matrix(l, &m->global[MODEL_OUTPUT], &w->head);
    if (!m->tied)
        load_matrix(l, &m->global[MODEL_TOKEN_EMBD], &w->embedding);
    return load_rope(l);
}

static size_t largest_group(const struct cuda_weights *w, uint32_t n_layer)
{
    uint64_t most = w->embedding.group_bytes > w->head.group_bytes ? w->embedding.group_bytes
                                                                   : w->head.group_bytes;
    for (uint32_t i = 0; i < n_layer; i++) {
        const struct cuda_layer *l = &w->layers[i];
        const struct cuda_matrix *const all[] = {&l->q,    &l->k,  &l->v,   &l->o,
                                                 &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
            most = all[k]->group_bytes > most ? all[k]->group_bytes : most;
    }
    return most;
}

int cuda_upload_weights(struct backend *b, char *err, size_t err_bytes)
{
    struct loader l = {.b = b};
    l.stage_bytes = largest_group(&b->weights, b->model->n_layer);
    l.stage_bytes = l.stage_bytes < STAGE_BYTES ? STAGE_BYTES : l.stage_bytes;
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
