/* shadow.c: the shadow's matrices: row by row to floats, to Q4_0, then packed like any others. */
#include "kernels/cpu/shadow.h"

#include "kernels/base/arena.h"
#include "kernels/base/pool.h"
#include "kernels/cpu/weights.h"
#include "kernels/base/fail.h"
#include "kernels/quant/quant_block.h"
#include "kernels/quant/quantize.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A shadow with more than this share of the model's bytes saves too little time to be worth its
 * memory. */
static const double SHADOW_SHARE = 0.8;

enum { ROWS_PER_CHUNK = 64 };

static uint64_t q4_row_bytes(uint32_t cols)
{
    const struct quant_info *q4 = quant_find(QUANT_Q4_0);
    return (uint64_t)cols / q4->block * q4->block_bytes;
}

static bool worth_it(const struct model_tensor *t)
{
    return t->cols % quant_find(QUANT_Q4_0)->block == 0 && q4_row_bytes(t->cols) < t->row_bytes;
}

/* A router stays as it is: it is small, and drafts by other experts than the model's fail. So do
 * the gates of a recurrent layer, whose errors its state would keep, and the next-token layer, which
 * fast passes read little of. */
static bool stays(const struct backend *b, const struct cpu_weights *w, const struct cpu_matrix *m)
{
    if (m >= w->layers[b->model->n_layer + 1].matrix)
        return true;
    for (uint32_t i = 0; i < b->model->n_layer; i++)
        for (uint32_t t = 0; t < MODEL_N_LAYER_TENSORS; t++)
            if (m == &w->layers[i].matrix[t])
                return model_layer_small(t);
    return false;
}

/* ---- one matrix ------------------------------------------------------------------------------ */

struct quantize_job {
    const struct model_tensor *from;
    uint8_t *to; /* [rows][q4 row bytes] */
    float *rows; /* [workers][cols] */
    _Atomic int error;
};

static void quantize_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    struct quantize_job *job = arg;
    const struct model_tensor *t = job->from;
    float *x = job->rows + (size_t)worker * t->cols;
    uint64_t bytes = q4_row_bytes(t->cols);
    uint64_t begin = (uint64_t)chunk * ROWS_PER_CHUNK;
    for (uint64_t r = begin; r < begin + ROWS_PER_CHUNK && r < model_tensor_rows(t); r++) {
        quant_row_values(t->type, model_tensor_row(t, r), t->cols, x);
        int rc = quantize_row(QUANT_Q4_0, x, t->cols, job->to + r * bytes);
        if (rc < 0)
            job->error = rc;
    }
}

/* `to` [rows][q4 row bytes] = the tensor in Q4_0. */
static int quantize_tensor(struct backend *b, const struct model_tensor *from, uint8_t *to)
{
    struct quantize_job job = {.from = from, .to = to};
    job.rows = malloc((size_t)pool_threads(b->pool) * from->cols * sizeof(float));
    if (!job.rows)
        return -ENOMEM;
    uint32_t mode = pool_float_mode();
    pool_run(b->pool, quantize_chunk, &job,
             (uint32_t)((model_tensor_rows(from) + ROWS_PER_CHUNK - 1) / ROWS_PER_CHUNK));
    pool_float_restore(mode);
    free(job.rows);
    return job.error;
}

/* "ref" reads matrices in the file's layout, so it keeps that; the others need it only for
 * packing. */
static int load_shadow_matrix(struct backend *b, const struct model_tensor *from,
                              struct cpu_matrix *to)
{
    struct model_tensor q4 = *from;
    size_t weight_bytes = b->weight_bytes;
    uint64_t bytes = q4_row_bytes(from->cols) * model_tensor_rows(from);
    uint8_t *data = b->isa->packed ? malloc(bytes) : arena_alloc(b->arena, bytes);
    if (!data)
        return -ENOMEM;
    q4.type = QUANT_Q4_0;
    q4.row_bytes = q4_row_bytes(from->cols);
    q4.matrix_bytes = q4.rows * q4.row_bytes;
    q4.bytes = bytes;
    q4.data = data;
    int rc = quantize_tensor(b, from, data);
    gguf_drop_range(b->model->gguf, from->data, from->bytes);
    if (rc == 0)
        rc = weights_load_matrix(b, &q4, to);
    b->shadow_bytes += b->weight_bytes - weight_bytes;
    b->weight_bytes = weight_bytes;
    if (b->isa->packed) {
        free(data);
        to->file.data = NULL;
    } else {
        b->shadow_bytes += bytes;
    }
    return rc;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Fails if the shadow would hardly be smaller than what a canonical pass reads. */
static int check_size(struct backend *b, char *err, size_t err_bytes)
{
    struct cpu_weights *own = &b->weights[PASS_CANONICAL];
    const struct cpu_matrix *m;
    uint64_t all = 0, small = 0;
    for (uint32_t i = 0; (m = weights_matrix(own, b->model, i)) != NULL; i++) {
        const struct model_tensor *t = &m->file;
        all += t->bytes;
        small += worth_it(t) && !stays(b, own, m) ? q4_row_bytes(t->cols) * model_tensor_rows(t)
                                                  : t->bytes;
    }
    if (all == 0 || (double)small <= SHADOW_SHARE * (double)all)
        return 0;
    return fail(
        err, err_bytes, -ENOTSUP,
        "a shadow of this %s model would have %u %% of its size and save no time: use --shadow no",
        model_type_name(b->model), (unsigned)(100 * small / all));
}

int shadow_load(struct backend *b, char *err, size_t err_bytes)
{
    struct cpu_weights *shadow = &b->weights[PASS_FAST];
    struct cpu_matrix *m;
    int rc = check_size(b, err, err_bytes);
    if (rc)
        return rc;
    const size_t bytes =
        (b->model->n_layer + 1 + (b->model->mtp != NULL)) * sizeof(shadow->layers[0]);
    shadow->layers = arena_alloc(b->arena, bytes);
    if (!shadow->layers)
        return fail(err, err_bytes, -ENOMEM, "no memory for the shadow");
    memcpy(shadow->layers, b->weights[PASS_CANONICAL].layers, bytes);
    for (uint32_t i = 0; rc == 0 && (m = weights_matrix(shadow, b->model, i)) != NULL; i++) {
        struct model_tensor from = m->file;
        if (worth_it(&from) && !stays(b, shadow, m))
            rc = load_shadow_matrix(b, &from, m);
    }
    if (rc == -ENOMEM)
        return fail(err, err_bytes, rc, "not enough memory for the shadow");
    if (rc)
        return fail(
            err, err_bytes, -ENOTSUP,
            "cannot make a shadow of this model: a weight is not finite or too large for Q4_0");
    return 0;
}
