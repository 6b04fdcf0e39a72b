/* The jobs of a pass, in the order of NUMERICS.md, "One pass". What differs from pass to pass lies in device memory;
 * only the grids depend on it, so that the same launches, captured, serve every pass that they are large enough for. */
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/launch.h"

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
    cuda_ok(b, cuda_launch_begin(&b->queue, &job, b->grid.rows), "the embedding");
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
    cuda_ok(b, cuda_launch_norm(&b->queue, &job, b->grid.rows), "a norm");
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
        job->groups += job->gated && i > 0 ? 0 : job->part[i].matrix.groups;
    cuda_ok(b, cuda_launch_product(&b->queue, job, rows), what);
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
    cuda_ok(b, cuda_launch_heads(&b->queue, &heads, b->grid.rows), "rotation and append");
    cuda_ok(b, cuda_launch_attend(&b->queue, &attend, b->grid.items, b->grid.kinds), "attention");
    cuda_ok(b, cuda_launch_merge(&b->queue, &merge, b->grid.rows), "the merge of attention");
}

static void feed_forward(struct backend *b, uint32_t layer)
{
    const struct cuda_layer *l = &b->weights.layers[layer];
    const struct cuda_buffers *u = &b->buffers;
    const uint32_t n = b->grid.rows;
    const struct cuda_matrix *const in[] = {&l->gate, &l->up}, *const out[] = {&l->down};
    struct product_job job = {.part = {part(&l->gate, NULL, 0), part(&l->up, NULL, 0)},
                              .x = u->norm,
                              .out = u->ffn,
                              .gated = 1,
                              .forms = forms_of(out, 1)};
    norm(b, u->h, l->ffn_norm, forms_of(in, 2));
    product(b, &job, n, "gate and up");
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
    product(b, &job, b->grid.rows, "query, key and value");
    attention(b, layer);
    job = (struct product_job){.part = {part(&l->o, u->h, u->embd)}, .x = u->attention};
    job.part[0].residual = u->x;
    product(b, &job, b->grid.rows, "the output of attention");
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
    const struct pick_job pick = {
        .pass = b->upload.to,
        .results = b->results_device,
        .logits = u->logits,
        .work = u->work,
        .ids = u->ids,
        .blocks = u->blocks,
        .raw_blocks = u->raw_blocks,
        .parts = u->parts,
        .stride = u->vocab,
        .n_vocab = b->model->n_vocab,
    };
    cuda_ok(b, cuda_launch_norm(&b->queue, &job, b->grid.wanted), "the last norm");
    product(b, &logits, b->grid.wanted, "logits");
    cuda_ok(b, cuda_launch_pick(&b->queue, &pick, b->grid.wanted), "picks");
}

/* Where no pick ends the pass. */
static void end(struct backend *b)
{
    const struct end_job job = {b->upload.to, b->results_device};
    cuda_ok(b, cuda_launch_end(&b->queue, &job), "the end of a pass");
}

void cuda_run_jobs(struct backend *b, struct cuda_grid grid)
{
    b->grid = grid;
    begin(b);
    for (uint32_t layer = 0; layer < b->model->n_layer && !b->broken; layer++)
        run_layer(b, layer);
    if (grid.wanted > 0)
        run_head(b);
    else
        end(b);
}
