/* The jobs of a pass in the order of NUMERICS.md, "One pass", and what comes back. */
#include <errno.h>
#include <string.h>

#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/launch.h"

/* ---- jobs ------------------------------------------------------------------------------------ */

/* How an input is needed by the matrices that read it. */
static uint32_t forms_of(const struct cuda_matrix *const *readers, int n)
{
    uint32_t forms = 0;
    for (int i = 0; i < n; i++)
        forms |= layout_quantized(readers[i]->type) ? FORM_BLOCKS : FORM_FLOATS;
    return forms;
}

static void begin(struct backend *b)
{
    const struct begin_job job = {b->upload.to, b->weights.embedding, b->kv, b->buffers.x,
                                  b->buffers.embd};
    cuda_ok(b, cuda_launch_begin(b->stream, &job, b->pass->n_rows), "the embedding");
}

static void norm(struct backend *b, const float *x, const float *weight, uint32_t forms)
{
    const struct cuda_buffers *u = &b->buffers;
    const struct norm_job job = {
        .pass = b->upload.to,
        .x = x,
        .weight = weight,
        .out = u->norm,
        .stride = u->embd,
        .n = b->model->n_embd,
        .forms = forms,
        .eps = b->model->rms_eps,
    };
    cuda_ok(b, cuda_launch_norm(b->stream, &job, b->pass->n_rows), "a norm");
}

static struct product_part part(const struct cuda_matrix *m, float *y, uint32_t stride)
{
    return (struct product_part){.matrix = *m, .y = y, .stride = stride};
}

static void product(struct backend *b, struct product_job *job, uint32_t rows, const char *what)
{
    job->pass = b->upload.to;
    job->groups = 0;
    for (int i = 0; i < 3; i++)
        job->groups += job->part[i].matrix.groups;
    cuda_ok(b, cuda_launch_product(b->stream, job, rows), what);
}

static void attention(struct backend *b, uint32_t layer)
{
    const struct cuda_layer *l = &b->weights.layers[layer];
    const struct cuda_buffers *u = &b->buffers;
    const struct model *m = b->model;
    const struct heads_job heads = {
        .pass = b->upload.to,
        .kv = b->kv,
        .values = {u->q, u->k, u->v},
        .bias = {l->q_bias, l->k_bias, l->v_bias},
        .norm = {l->q_norm, l->k_norm},
        .rope = b->weights.rope,
        .stride = {u->heads, u->heads_kv, u->heads_kv},
        .n_head = m->n_head,
        .halves = m->rope == MODEL_ROPE_HALVES,
        .layer = layer,
        .eps = m->rms_eps,
    };
    const struct attend_job attend = {b->upload.to, b->kv,     u->q,  u->part_ml, u->part_o,
                                      u->heads,     m->n_head, layer, b->scale};
    const struct cuda_matrix *const readers[] = {&l->o};
    const struct merge_job merge = {b->upload.to, u->part_ml,  u->part_o,           u->attention,
                                    m->n_head,    m->head_dim, forms_of(readers, 1)};
    cuda_ok(b, cuda_launch_heads(b->stream, &heads, b->pass->n_rows), "rotation and append");
    cuda_ok(b, cuda_launch_attend(b->stream, &attend, b->n_items), "attention");
    cuda_ok(b, cuda_launch_merge(b->stream, &merge, b->pass->n_rows), "the merge of attention");
}

static void feed_forward(struct backend *b, uint32_t layer)
{
    const struct cuda_layer *l = &b->weights.layers[layer];
    const struct cuda_buffers *u = &b->buffers;
    const uint32_t n = b->pass->n_rows;
    const struct cuda_matrix *const in[] = {&l->gate, &l->up}, *const out[] = {&l->down};
    struct product_job job = {.part = {part(&l->gate, u->gate, u->ff), part(&l->up, u->up, u->ff)},
                              .x = u->norm};
    const struct silu_job silu = {b->upload.to, u->gate,        u->up,           u->ffn,
                                  u->ff,        b->model->n_ff, forms_of(out, 1)};
    norm(b, u->h, l->ffn_norm, forms_of(in, 2));
    product(b, &job, n, "gate and up");
    cuda_ok(b, cuda_launch_silu(b->stream, &silu, n), "silu");
    job =
        (struct product_job){.part = {part(&l->down, u->x, u->embd)}, .x = u->ffn, .layer = layer};
    job.part[0].residual = u->h;
    job.part[0].check = 1;
    product(b, &job, n, "down");
}

static void run_layer(struct backend *b, uint32_t layer)
{
    const struct cuda_layer *l = &b->weights.layers[layer];
    const struct cuda_buffers *u = &b->buffers;
    const struct cuda_matrix *const in[] = {&l->q, &l->k, &l->v};
    struct product_job job = {
        .part = {part(&l->q, u->q, u->heads), part(&l->k, u->k, u->heads_kv),
                 part(&l->v, u->v, u->heads_kv)},
        .x = u->norm,
    };
    norm(b, u->x, l->attn_norm, forms_of(in, 3));
    product(b, &job, b->pass->n_rows, "query, key and value");
    attention(b, layer);
    job = (struct product_job){.part = {part(&l->o, u->h, u->embd)}, .x = u->attention};
    job.part[0].residual = u->x;
    product(b, &job, b->pass->n_rows, "the output of attention");
    feed_forward(b, layer);
}

static void run_head(struct backend *b)
{
    const struct cuda_buffers *u = &b->buffers;
    const struct cuda_matrix *const readers[] = {&b->weights.head};
    const struct norm_job job = {
        .pass = b->upload.to,
        .x = u->x,
        .weight = b->weights.output_norm,
        .out = u->head,
        .stride = u->embd,
        .n = b->model->n_embd,
        .forms = forms_of(readers, 1),
        .wanted = 1,
        .eps = b->model->rms_eps,
    };
    struct product_job logits = {
        .part = {part(&b->weights.head, u->logits, u->vocab)}, .x = u->head, .wanted = 1};
    const struct pick_job pick = {b->upload.to,   u->logits, u->parts,
                                  b->best_device, u->vocab,  b->model->n_vocab};
    cuda_ok(b, cuda_launch_norm(b->stream, &job, b->n_wanted), "the last norm");
    product(b, &logits, b->n_wanted, "logits");
    cuda_ok(b, cuda_launch_pick(b->stream, &pick, b->n_wanted), "picks");
}

/* ---- results --------------------------------------------------------------------------------- */

/* Is the row's pick the one of the device, or does the host need its logits? */
static bool picked_there(const struct backend *b, const struct row *row)
{
    return pick_is_largest(b->pass->sequences[row->sequence].pick);
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
                                     n * sizeof(float), cudaMemcpyDeviceToHost, b->stream),
                "the copy of logits");
    }
    cuda_ok(b,
            (int)cudaMemcpyAsync(b->bad, b->upload.to.bad, b->pass->n_rows * sizeof *b->bad,
                                 cudaMemcpyDeviceToHost, b->stream),
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

static void finish_wanted(struct backend *b, uint32_t i)
{
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
    if (picked_there(b, row))
        result->pick = (struct pick){.token = b->best[i].id};
    else
        result->status = pick_token(s->pick, logits, n, s->tokens, row->position + 1,
                                    s->prompt_length, b->pick, &result->pick);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

void cuda_pass_start(struct backend *b)
{
    cuda_plan_pass(b);
    begin(b);
    for (uint32_t layer = 0; layer < b->model->n_layer && !b->broken; layer++)
        run_layer(b, layer);
    if (b->n_wanted > 0)
        run_head(b);
    fetch_results(b);
}

int cuda_pass_finish(struct backend *b)
{
    if (!cuda_ok(b, (int)cudaStreamSynchronize(b->stream), "a pass"))
        return -EIO;
    report_poison(b);
    for (uint32_t i = 0; i < b->n_wanted; i++)
        finish_wanted(b, i);
    b->pass = NULL;
    return 0;
}
