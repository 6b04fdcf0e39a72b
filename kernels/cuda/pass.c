/* A pass from its upload to its results. */
#include <errno.h>
#include <string.h>

#include "kernels/cpu/pool.h"
#include "kernels/cuda/backend_cuda.h"

/* ---- results --------------------------------------------------------------------------------- */

/* Is the row's pick the one of the device, or does the host need its logits? */
static bool picked_there(const struct backend *b, const struct row *row)
{
    return row->allowed == NULL && pick_is_largest(b->pass->sequences[row->sequence].pick);
}

static bool needs_logits(const struct backend *b, const struct row *row)
{
    return (row->wants & ROW_LOGITS) || ((row->wants & ROW_PICK) && !picked_there(b, row));
}

static void fetch_results(struct backend *b)
{
    const size_t n = b->model->n_vocab;
    for (uint32_t i = 0; i < b->n_wanted; i++) {
        if (!needs_logits(b, &b->pass->rows[b->upload.from.wanted[i]]))
            continue;
        cuda_ok(b,
                (int)cudaMemcpyAsync(b->logits + i * n,
                                     b->buffers.logits + (size_t)i * b->buffers.vocab,
                                     n * sizeof(float), cudaMemcpyDeviceToHost, b->queue.stream),
                "the copy of logits");
    }
    cuda_ok(b,
            (int)cudaMemcpyAsync(b->bad, b->upload.to.bad, b->pass->n_rows * sizeof *b->bad,
                                 cudaMemcpyDeviceToHost, b->queue.stream),
            "the copy of results");
}

/* A row is poisoned at the first layer at which it or an earlier row of its sequence was bad. */
static void report_poison(struct backend *b)
{
    for (uint32_t s = 0; s < b->pass->n_sequences; s++)
        b->first_bad[s] = 0;
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        uint32_t *bad = &b->first_bad[b->pass->rows[r].sequence]; /* CUDA_SOUND - layer, or 0 */
        struct row_result *result = &b->pass->results[r];
        *bad = b->bad[r] > *bad ? b->bad[r] : *bad;
        result->status = *bad ? -EDOM : 0;
        result->layer = *bad ? CUDA_SOUND - *bad : 0;
    }
}

/* Chunk i is row i with wants; rows share nothing, so that who finishes one does not matter. */
static void finish_wanted(void *arg, uint32_t i, uint32_t worker)
{
    struct backend *b = arg;
    const uint32_t r = b->upload.from.wanted[i], n = b->model->n_vocab;
    const struct row *row = &b->pass->rows[r];
    const struct pass_sequence *s = &b->pass->sequences[row->sequence];
    struct row_result *result = &b->pass->results[r];
    float *logits = b->logits + (size_t)i * n;
    if (result->status)
        return;
    result->layer = b->model->n_layer;
    if (b->best[i].bad) {
        result->status = -EDOM;
        return;
    }
    if (row->wants & ROW_LOGITS)
        memcpy(result->logits, logits, n * sizeof(float));
    if (!(row->wants & ROW_PICK))
        return;
    if (picked_there(b, row)) {
        result->pick = (struct pick){.token = b->best[i].id};
        return;
    }
    struct pick_params p = *s->pick;
    p.allowed = row->allowed;
    result->status = pick_token(&p, logits, n, s->tokens, row->position + 1, s->prompt_length,
                                b->pick[worker], &result->pick);
}

/* By several threads where two rows or more need the host to pick. */
static void finish_all_wanted(struct backend *b)
{
    uint32_t here = 0;
    for (uint32_t i = 0; i < b->n_wanted; i++)
        here += needs_logits(b, &b->pass->rows[b->upload.from.wanted[i]]);
    if (here > 1) {
        pool_run(b->pool, finish_wanted, b, b->n_wanted);
        return;
    }
    for (uint32_t i = 0; i < b->n_wanted; i++)
        finish_wanted(b, i, 0);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

void cuda_pass_start(struct backend *b)
{
    cuda_plan_pass(b);
    if (!cuda_graph_run(b))
        cuda_run_jobs(b,
                      (struct cuda_grid){b->pass->n_rows, b->n_wanted, b->n_items, b->item_kinds});
    fetch_results(b);
}

int cuda_pass_finish(struct backend *b)
{
    if (!cuda_ok(b, (int)cudaStreamSynchronize(b->queue.stream), "a pass"))
        return -EIO;
    report_poison(b);
    finish_all_wanted(b);
    b->pass = NULL;
    return 0;
}
