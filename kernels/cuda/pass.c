/* A pass from its upload to its results. */
#include <errno.h>
#include <string.h>

#include "kernels/base/pool.h"
#include "kernels/cuda/backend_cuda.h"

/* ---- results --------------------------------------------------------------------------------- */

/* Does the host sample, or hand out, from the logits of row w of those with wants? */
static bool needs_logits(const struct backend *b, uint32_t w)
{
    const uint32_t wants = b->pass->rows[b->upload.sampling[w].row].wants;
    return (wants & ROW_LOGITS) ||
           ((wants & ROW_SAMPLE) && b->upload.sampling[w].kind == CUDA_SAMPLE_BARE);
}

static void fetch_logits(struct backend *b)
{
    const size_t n = b->model->n_vocab;
    b->n_copies = 0;
    for (uint32_t w = 0; w < b->n_wanted; w++) {
        if (!needs_logits(b, w))
            continue;
        b->n_copies++;
        cuda_ok(b,
                (int)cudaMemcpyAsync(b->logits + w * n,
                                     b->buffers.of[BUFFER_LOGITS].f +
                                         (size_t)w * b->buffers.of[BUFFER_LOGITS].stride,
                                     n * sizeof(float), cudaMemcpyDeviceToHost, b->queue.stream),
                "the copy of logits");
    }
}

/* A row is poisoned at the first layer at which it or an earlier row of its sequence was bad. */
static void report_poison(struct backend *b)
{
    for (uint32_t s = 0; s < b->pass->n_sequences; s++)
        b->first_bad[s] = 0;
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        uint32_t *bad = &b->first_bad[b->pass->rows[r].sequence]; /* CUDA_ROW_OK - layer, or 0 */
        struct row_result *result = &b->pass->results[r];
        *bad = b->results.bad[r] > *bad ? b->results.bad[r] : *bad;
        result->status = *bad ? -EDOM : 0;
        result->layer = *bad ? CUDA_ROW_OK - *bad : 0;
    }
}

static void copy_sample(const struct cuda_sample *from, struct row_result *result)
{
    result->status = from->failed ? -EDOM : 0;
    if (from->failed)
        return;
    result->sample =
        (struct sample){.token = from->token, .logprob = from->logprob, .n_top = from->n_top};
    memcpy(result->sample.top, from->top, from->n_top * sizeof(*from->top));
}

/* Chunk w is row w with wants; rows share nothing, so any worker may finish one. */
static void finish_wanted(void *arg, uint32_t w, uint32_t worker)
{
    struct backend *b = arg;
    const uint32_t r = b->upload.sampling[w].row, n = b->model->n_vocab;
    const struct row *row = &b->pass->rows[r];
    const struct pass_sequence *s = &b->pass->sequences[row->sequence];
    struct row_result *result = &b->pass->results[r];
    float *logits = b->logits + (size_t)w * n;
    if (result->status)
        return;
    result->layer = b->model->n_layer;
    if (b->results.samples[w].bad) {
        result->status = -EDOM;
        return;
    }
    if (row->wants & ROW_LOGITS)
        memcpy(result->logits, logits, n * sizeof(float));
    if (!(row->wants & ROW_SAMPLE))
        return;
    if (b->upload.sampling[w].kind != CUDA_SAMPLE_BARE) {
        copy_sample(&b->results.samples[w], result);
        return;
    }
    struct sampler_params p = *s->sampler;
    p.allowed = row->allowed;
    result->status = sample_token(&p, logits, n, s->tokens, row->position + 1, s->prompt_length,
                                  b->sample[worker], &result->sample);
}

/* By several threads where the logits of two rows or more are here. */
static void finish_all_wanted(struct backend *b)
{
    if (b->n_copies > 1) {
        pool_run(b->pool, finish_wanted, b, b->n_wanted);
        return;
    }
    for (uint32_t w = 0; w < b->n_wanted; w++)
        finish_wanted(b, w, 0);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

/* A piece of the pass, by a graph or launched one by one; the last one's logits follow it. */
static void run_piece(struct backend *b, uint32_t piece)
{
    if (!b->broken &&
        !cuda_graph_run(b, piece)) /* broken: what is on the device is not a whole pass */
        cuda_run_jobs(b,
                      (struct cuda_grid){b->pass->kind, b->pass->n_rows, b->n_wanted, b->n_items,
                                         b->item_kinds, b->n_states},
                      piece);
    if (!b->broken && piece == cuda_last_piece(b, b->pass->kind))
        fetch_logits(b);
}

void cuda_pass_start(struct backend *b)
{
    b->tensors = cuda_tensors(b, b->pass->kind);
    cuda_wait_begin(b);
    cuda_plan_pass(b);
    if (b->broken)
        return;
    cuda_upload_pass(b);
    run_piece(b, 0);
}

int cuda_pass_finish(struct backend *b)
{
    for (uint32_t i = 1; i <= cuda_last_piece(b, b->pass->kind) && cuda_cut_cross(b, i); i++)
        run_piece(b, i);
    if (b->broken || !cuda_wait(b, b->n_copies > 0))
        return -EIO;
    report_poison(b);
    finish_all_wanted(b);
    b->pass = NULL;
    return 0;
}
