/* The jobs of a pass, in the order of NUMERICS.md, "One pass", and their launches. What differs from pass to pass lies in
 * device memory; only the grids depend on it, so that the same launches, captured, serve every pass that they are large
 * enough for, and the same jobs, uploaded once, the kernel of step.c. */
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/launch.h"

_Static_assert((int)CUDA_GATE_SILU + (int)MODEL_GATE_GELU == (int)CUDA_GATE_GELU &&
                   MODEL_GATE_SILU == 0,
               "the gates of kernels/model/model.h");

/* ---- what they are --------------------------------------------------------------------------- */

/* How an input is needed by the matrices that read it. */
static uint32_t forms_of(const struct backend *b, const struct cuda_matrix *const *readers, int n)
{
    uint32_t forms = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t type = readers[i]->type;
        forms |= layout_quantized(type)             ? FORM_BLOCKS
                 : b->tensors && type == QUANT_F16  ? FORM_F16
                 : b->tensors && type == QUANT_BF16 ? FORM_BF16
                                                    : FORM_FLOATS;
    }
    return forms;
}

struct begin_job cuda_begin_job(const struct backend *b)
{
    return (struct begin_job){
        .pass = b->upload.to,
        .embedding = b->weights.embedding,
        .kv = b->kv,
        .x = b->buffers.x,
        .stride = b->buffers.embd,
        .scale = b->model->embd_scale,
    };
}

static struct norm_job norm(const struct backend *b, const float *x, const float *weight,
                            struct cuda_input out, uint32_t forms)
{
    return (struct norm_job){
        .pass = b->upload.to,
        .x = x,
        .weight = weight,
        .out = out,
        .stride = b->buffers.embd,
        .n = b->model->n_embd,
        .forms = forms,
        .eps = b->model->rms_eps,
    };
}

/* Before the norm of x, which a part of a layer ends with: where what it adds to the residual is normed, x is still to be
 * made of that. */
static void add_normed(const struct backend *b, struct norm_job *job, const float *weight,
                       const float *residual, float *x)
{
    if (!weight)
        return;
    job->added = (struct norm_added){.weight = weight, .residual = residual, .to = x};
    job->x = b->buffers.added;
}

/* Behind the feed-forward part of a layer, which a check ends, too. */
static void end_layer(const struct backend *b, uint32_t layer, struct norm_job *job)
{
    add_normed(b, job, b->weights.layers[layer].ffn_post_norm, b->buffers.h, b->buffers.x);
    job->added.check = 1;
    job->added.layer = layer;
}

static struct matmul_part part(const struct cuda_matrix *m, float *y, uint32_t stride)
{
    return (struct matmul_part){.matrix = *m, .y = y, .stride = stride};
}

/* A matrix whose output is added to the residual and gives y, unless that is normed first. */
static struct matmul_part last_part(const struct backend *b, const struct cuda_matrix *m,
                                    const float *post_norm, const float *residual, float *y)
{
    struct matmul_part p = part(m, post_norm ? b->buffers.added : y, b->buffers.embd);
    p.residual = post_norm ? NULL : residual;
    return p;
}

static void complete(const struct backend *b, struct matmul_job *job)
{
    job->pass = b->upload.to;
    job->native = b->tensors;
    job->groups = 0;
    for (int i = 0; i < 3; i++)
        job->groups += job->gate && i > 0 ? 0 : job->part[i].matrix.groups;
}

static void attention_jobs(const struct backend *b, uint32_t layer, struct layer_jobs *jobs)
{
    const struct cuda_layer *l = &b->weights.layers[layer];
    const struct cuda_buffers *u = &b->buffers;
    const struct model *m = b->model;
    const struct layer_geometry *g = &m->layers[layer].geometry;
    const struct cuda_matrix *const readers[] = {&l->o};
    jobs->heads = (struct heads_job){
        .pass = b->upload.to,
        .kv = b->kv,
        .values = {u->q, u->k, u->v},
        .bias = {l->q_bias, l->k_bias, l->v_bias},
        .norm = {l->q_norm, l->k_norm},
        .rope = b->weights.rope[g->rope],
        .stride = {u->heads, u->heads_kv, u->heads_kv},
        .n_head = m->n_head,
        .halves = m->rope == MODEL_ROPE_HALVES,
        .layer = layer,
        .native = b->tensors,
        .eps = m->rms_eps,
    };
    jobs->attend = (struct attend_job){
        .pass = b->upload.to,
        .kv = b->kv,
        .q = u->q,
        .part_ml = u->part_ml,
        .part_o = u->part_o,
        .window = g->sliding_window,
        .local = g->sliding_window != MODEL_NO_WINDOW,
        .stride = u->heads,
        .n_head = m->n_head,
        .layer = layer,
        .scale = m->score_scale,
        .native = b->tensors,
    };
    jobs->merge = (struct merge_job){
        .pass = b->upload.to,
        .part_ml = u->part_ml,
        .part_o = u->part_o,
        .out = u->attention,
        .window = jobs->attend.window,
        .n_head = m->n_head,
        .head_dim = m->head_dim,
        .forms = forms_of(b, readers, 1),
    };
}

struct layer_jobs cuda_layer_jobs(const struct backend *b, uint32_t layer)
{
    const struct cuda_layer *l = &b->weights.layers[layer];
    const struct cuda_buffers *u = &b->buffers;
    const struct cuda_matrix *const qkv[] = {&l->q, &l->k, &l->v}, *const in[] = {&l->gate, &l->up},
                                    *const out[] = {&l->down};
    struct layer_jobs jobs = {
        .attn_norm = norm(b, u->x, l->attn_norm, u->norm, forms_of(b, qkv, 3)),
        .qkv = {.part = {part(&l->q, u->q, u->heads), part(&l->k, u->k, u->heads_kv),
                         part(&l->v, u->v, u->heads_kv)},
                .x = u->norm},
        .o = {.part = {last_part(b, &l->o, l->attn_post_norm, u->x, u->h)}, .x = u->attention},
        .ffn_norm = norm(b, u->h, l->ffn_norm, u->norm, forms_of(b, in, 2)),
        .gate_up = {.part = {part(&l->gate, NULL, 0), part(&l->up, NULL, 0)},
                    .x = u->norm,
                    .out = u->ffn,
                    .gate = CUDA_GATE_SILU + b->model->gate,
                    .forms = forms_of(b, out, 1)},
        .down = {.part = {last_part(b, &l->down, l->ffn_post_norm, u->h, u->x)},
                 .x = u->ffn,
                 .layer = layer},
    };
    attention_jobs(b, layer, &jobs);
    add_normed(b, &jobs.ffn_norm, l->attn_post_norm, u->x, u->h);
    jobs.down.part[0].check = !l->ffn_post_norm;
    if (layer > 0)
        end_layer(b, layer - 1, &jobs.attn_norm);
    if (layer + 1 == b->model->n_layer && l->ffn_post_norm) {
        jobs.end = norm(b, u->x, b->weights.output_norm, u->norm, 0);
        end_layer(b, layer, &jobs.end);
    }
    complete(b, &jobs.qkv);
    complete(b, &jobs.o);
    complete(b, &jobs.gate_up);
    complete(b, &jobs.down);
    return jobs;
}

struct head_jobs cuda_head_jobs(const struct backend *b)
{
    const struct cuda_buffers *u = &b->buffers;
    const struct cuda_matrix *const readers[] = {&b->weights.head};
    struct head_jobs jobs = {
        .norm = norm(b, u->x, b->weights.output_norm, u->head, forms_of(b, readers, 1)),
        .logits = {.part = {part(&b->weights.head, u->logits, u->vocab)},
                   .x = u->head,
                   .wanted = 1},
        .sample = {.pass = b->upload.to,
                   .results = b->results_device,
                   .logits = u->logits,
                   .work = u->work,
                   .ids = u->ids,
                   .blocks = u->blocks,
                   .raw_blocks = u->raw_blocks,
                   .parts = u->parts,
                   .stride = u->vocab,
                   .n_vocab = b->model->n_vocab},
    };
    jobs.norm.wanted = 1;
    complete(b, &jobs.logits);
    return jobs;
}

/* ---- launched -------------------------------------------------------------------------------- */

static void run_begin(struct backend *b)
{
    const struct begin_job job = cuda_begin_job(b);
    cuda_ok(b, cuda_launch_begin(&b->queue, &job, b->grid.rows), "the embedding");
}

static void run_norm(struct backend *b, const struct norm_job *job)
{
    cuda_ok(b, cuda_launch_norm(&b->queue, job, b->grid.rows), "a norm");
}

static void run_matmul(struct backend *b, const struct matmul_job *job, const char *what)
{
    if (cuda_blas_takes(b, b->grid.rows))
        cuda_blas_matmul(b, job, b->grid.rows, what);
    else
        cuda_ok(b, cuda_launch_matmul(&b->queue, job, b->grid.rows), what);
}

static void run_layer(struct backend *b, uint32_t layer)
{
    const struct layer_jobs jobs = cuda_layer_jobs(b, layer);
    const struct cuda_grid *grid = &b->grid;
    run_norm(b, &jobs.attn_norm);
    run_matmul(b, &jobs.qkv, "query, key and value");
    cuda_ok(b, cuda_launch_heads(&b->queue, &jobs.heads, grid->rows), "rotation and append");
    cuda_ok(b, cuda_launch_attend(&b->queue, &jobs.attend, grid->items, grid->kinds), "attention");
    cuda_ok(b, cuda_launch_merge(&b->queue, &jobs.merge, grid->rows), "the merge of attention");
    run_matmul(b, &jobs.o, "the output of attention");
    run_norm(b, &jobs.ffn_norm);
    run_matmul(b, &jobs.gate_up, "gate and up");
    run_matmul(b, &jobs.down, "down");
    if (jobs.end.n > 0)
        run_norm(b, &jobs.end);
}

static void run_head(struct backend *b)
{
    const struct head_jobs jobs = cuda_head_jobs(b);
    cuda_ok(b, cuda_launch_norm(&b->queue, &jobs.norm, b->grid.wanted), "the last norm");
    cuda_ok(b, cuda_launch_matmul(&b->queue, &jobs.logits, b->grid.wanted), "logits");
    cuda_ok(b, cuda_launch_sample(&b->queue, &jobs.sample, b->grid.wanted), "samples");
}

/* Of a pass without a head. */
static void run_end(struct backend *b)
{
    const struct end_job job = {b->upload.to, b->results_device};
    cuda_ok(b, cuda_launch_end(&b->queue, &job), "the end of a pass");
}

void cuda_run_jobs(struct backend *b, struct cuda_grid grid)
{
    b->grid = grid;
    run_begin(b);
    for (uint32_t layer = 0; layer < b->model->n_layer && !b->broken; layer++)
        run_layer(b, layer);
    if (grid.wanted > 0)
        run_head(b);
    else
        run_end(b);
}
