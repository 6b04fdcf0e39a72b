/* experts.c: chooses experts and computes them. See experts.h. */
#include "kernels/cpu/experts.h"

#include <math.h>
#include <string.h>

#include "kernels/base/num.h"
#include "kernels/base/pool.h"
#include "kernels/cpu/repack.h"

_Static_assert((int)EXPERTS_SCRATCH >= 2 * (int)MODEL_MAX_EXPERTS, "what a router needs");

enum {
    MOST_GROUPS = EXPERTS_COLS / CPU_LANES, /* of a chunk */
    LEAST_GROUPS = 4,
    CHUNKS_PER_THREAD = 4,
};

/* ---- the router ------------------------------------------------------------------------------ */

/* chosen [n_used] = the experts with the largest scores, of equal ones the lower id; ascending. */
static void choose(const float *score, uint32_t n_expert, uint32_t n_used, uint32_t *chosen)
{
    uint32_t n = 0, at;
    for (uint32_t e = 0; e < n_expert; e++) { /* chosen: the best so far, the best first */
        if (n == n_used && !(score[e] > score[chosen[n - 1]]))
            continue;
        n += n < n_used;
        for (at = n - 1; at > 0 && score[e] > score[chosen[at - 1]]; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = e;
    }
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t e = chosen[i];
        for (at = i; at > 0 && chosen[at - 1] > e; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = e;
    }
}

/* p [n] = probabilities. */
static void find_probabilities(enum model_gating gating, const float *score, uint32_t n, float *p)
{
    float max = score[0], sum[32] = {0};
    for (uint32_t e = 0; e < n; e++)
        max = score[e] > max ? score[e] : max;
    for (uint32_t e = 0; e < n; e++) {
        p[e] = gating == MODEL_GATING_SIGMOID ? num_sigmoid(score[e]) : num_exp(score[e] - max);
        sum[e % 32] = sum[e % 32] + p[e];
    }
    if (gating == MODEL_GATING_SIGMOID)
        return;
    for (uint32_t stride = 16; stride > 0; stride /= 2)
        for (uint32_t i = 0; i < stride; i++)
            sum[i] = sum[i] + sum[i + stride];
    for (uint32_t e = 0; e < n; e++)
        p[e] = p[e] / sum[0];
}

/* Are weights the softmax of the chosen? Then no probability of one among all is needed. */
static bool softmax_of_chosen(const struct model_router *router)
{
    return router->normed && router->gating == MODEL_GATING_SOFTMAX;
}

/* weight [n_used] of the chosen; p: probabilities; factors [n_expert], or NULL. */
static void weigh(const struct model_router *router, const float *score, const float *p,
                  const float *factors, const uint32_t *chosen, uint32_t n_used, float *weight)
{
    const bool softmax = softmax_of_chosen(router);
    float max = score[chosen[0]], sum = 0.0f;
    for (uint32_t i = 1; i < n_used; i++)
        max = score[chosen[i]] > max ? score[chosen[i]] : max;
    for (uint32_t i = 0; i < n_used; i++) {
        weight[i] = softmax ? num_exp(score[chosen[i]] - max) : p[chosen[i]];
        sum = sum + weight[i];
    }
    for (uint32_t i = 0; i < n_used; i++) {
        if (router->normed)
            weight[i] = weight[i] / sum;
        if (router->scale != 1.0f)
            weight[i] = weight[i] * router->scale;
        if (factors)
            weight[i] = weight[i] * factors[chosen[i]];
    }
}

void experts_route_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    const uint32_t n = op->geometry->n_expert_used;
    const struct model_router *router = &b->model->router;
    struct cpu_experts *x = &b->buffers.experts;
    const struct cpu_input *from = &b->buffers.of[op->from[0]];
    float *score = from->f + (size_t)r * from->stride;
    const float *by = score, *bias = cpu_vector_of(b, op, op->tensor[0]),
                *own = cpu_vector_of(b, op, op->bias[0]);
    float *p = x->scratch + (size_t)worker * EXPERTS_SCRATCH, *biased = p + op->n;
    uint32_t *chosen = x->chosen + (size_t)r * n;
    if (own)
        b->isa->add(score, own, op->n);
    if (bias || !softmax_of_chosen(router))
        find_probabilities(router->gating, score, op->n, p);
    if (bias) {
        memcpy(biased, p, op->n * sizeof(float));
        b->isa->add(biased, bias, op->n);
        by = biased;
    }
    b->buffers.bad[r] = !b->isa->finite(score, op->n) || !b->isa->finite(by, op->n);
    for (uint32_t i = 0; i < n; i++)
        chosen[i] = i;
    if (!b->buffers.bad[r])
        choose(by, op->n, n, chosen);
    weigh(router, score, p, cpu_vector_of(b, op, op->tensor[1]), chosen, n,
          x->weight + (size_t)r * n);
}

/* Orders the pairs of all rows by expert, those of an expert by row. */
static void order_pairs(struct backend *b, uint32_t n_expert, uint32_t n_used)
{
    struct cpu_experts *x = &b->buffers.experts;
    const uint32_t pairs = b->pass->n_rows * n_used;
    memset(x->first, 0, (n_expert + 1) * sizeof(x->first[0]));
    for (uint32_t i = 0; i < pairs; i++)
        x->first[x->chosen[i] + 1]++;
    x->n_active = 0;
    for (uint32_t e = 0; e < n_expert; e++) {
        if (x->first[e + 1] > 0)
            x->active[x->n_active++] = e;
        x->first[e + 1] += x->first[e];
    }
    for (uint32_t i = 0; i < pairs; i++) { /* first[e] runs to the end of e, the start of e + 1 */
        const uint32_t p = x->first[x->chosen[i]]++;
        x->pair_row[p] = i / n_used;
        x->pair_weight[p] = x->weight[i];
    }
    memmove(x->first + 1, x->first, n_expert * sizeof(x->first[0]));
    x->first[0] = 0;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

struct experts_job {
    struct backend *b;
    const struct layer_op *op;
    const struct cpu_matrix *matrix[2];
    const float *bias[2]; /* [n_expert][rows of a matrix], or NULL */
    uint32_t groups;      /* of a matrix */
    uint32_t per;    /* groups of a chunk: an even number, so that its outputs are whole blocks */
    uint32_t pieces; /* chunks of a matrix */
};

/* Divides `matrices` that have as many groups each. */
static void cut(struct experts_job *job, uint32_t matrices)
{
    const uint32_t chunks = pool_threads(job->b->pool) * CHUNKS_PER_THREAD;
    const uint32_t pieces = (chunks + matrices - 1) / matrices;
    uint32_t per = (job->groups + pieces - 1) / pieces;
    per = per > MOST_GROUPS ? MOST_GROUPS : per < LEAST_GROUPS ? LEAST_GROUPS : per;
    job->pieces = (job->groups + per - 1) / per;
    job->per = ((job->groups + job->pieces - 1) / job->pieces + 1) / 2 * 2;
    job->pieces = (job->groups + job->per - 1) / job->per;
}

static struct experts_job job_of(struct backend *b, const struct layer_op *op)
{
    struct experts_job job = {.b = b, .op = op};
    for (uint32_t i = 0; i < op->n_parts; i++) {
        job.bias[i] = cpu_vector_of(b, op, op->bias[i]);
        job.matrix[i] = cpu_matrix_of(b, op, i);
        const struct model_tensor *file = &job.matrix[i]->file;
        b->buffers.experts.read_bytes +=
            file->bytes / file->n_matrices * b->buffers.experts.n_active;
    }
    job.groups = job.matrix[0]->groups;
    return job;
}

/* The columns of a chunk. */
struct columns {
    uint32_t group, groups, begin, n;
};

static struct columns columns_of(const struct experts_job *job, uint32_t piece)
{
    struct columns c = {.group = piece * job->per};
    c.groups = job->groups - c.group < job->per ? job->groups - c.group : job->per;
    c.begin = c.group * CPU_LANES;
    c.n = job->op->n - c.begin < c.groups * CPU_LANES ? job->op->n - c.begin : c.groups * CPU_LANES;
    return c;
}

/* y [n][EXPERTS_COLS] = columns of matrix `part` of expert e, times n rows of x, with its bias. */
static void multiply(const struct experts_job *job, uint32_t part, uint32_t e,
                     const struct columns *c, const struct cpu_input *x, const uint32_t *gather,
                     uint32_t n, float *y)
{
    const struct cpu_matrix m = repack_part(job->matrix[part], e, c->group);
    const float *bias = job->bias[part];
    job->b->isa->matmul(&(struct cpu_matmul){
        .matrix = &m,
        .x = x,
        .gather = gather,
        .y = y,
        .stride = EXPERTS_COLS,
        .row1 = n,
        .group1 = c->groups,
    });
    for (uint32_t i = 0; bias && i < n; i++)
        job->b->isa->add(y + (size_t)i * EXPERTS_COLS, bias + (size_t)e * job->op->n + c->begin,
                         c->n);
}

static uint32_t block_of(uint32_t p, uint32_t end)
{
    return end - p < EXPERTS_ROWS ? end - p : EXPERTS_ROWS;
}

/* ---- f(gate) * up ---------------------------------------------------------------------------- */

/* Pair p of EXPERTS: f(gate) * up, [columns], and the same as blocks where the sum reads these. */
static void gate_pair(const struct experts_job *job, const struct columns *c, uint32_t p,
                      const float *gate, const float *up)
{
    const struct backend *b = job->b;
    const struct cpu_input *to = &b->buffers.of[job->op->to[0]];
    const size_t at = (size_t)p * to->stride + c->begin, block = at / CPU_BLOCK;
    b->isa->gate_mul[job->op->gate](gate, up, c->n, to->f + at);
    if (quant_find(cpu_matrix_of(b, job->op->readers[0], 0)->file.type)->quantized)
        b->isa->quantize(to->f + at, c->n, to->q + at, to->d + block, to->sum + block);
}

static void gate_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    const struct experts_job *job = arg;
    const struct cpu_experts *x = &job->b->buffers.experts;
    const struct cpu_input *from = &job->b->buffers.of[job->op->from[0]];
    const struct columns c = columns_of(job, chunk % job->pieces);
    const uint32_t e = x->active[chunk / job->pieces];
    float *gate = x->scratch + (size_t)worker * EXPERTS_SCRATCH,
          *up = gate + EXPERTS_ROWS * EXPERTS_COLS;
    for (uint32_t p = x->first[e], n; p < x->first[e + 1]; p += n) {
        n = block_of(p, x->first[e + 1]);
        multiply(job, 0, e, &c, from, x->pair_row + p, n, gate);
        multiply(job, 1, e, &c, from, x->pair_row + p, n, up);
        for (uint32_t i = 0; i < n; i++)
            gate_pair(job, &c, p + i, gate + (size_t)i * EXPERTS_COLS,
                      up + (size_t)i * EXPERTS_COLS);
    }
}

void experts_gate(struct backend *b, const struct layer_op *op)
{
    order_pairs(b, op->geometry->n_expert, op->geometry->n_expert_used);
    struct experts_job job = job_of(b, op);
    cut(&job, b->buffers.experts.n_active);
    pool_run(b->pool, gate_chunk, &job, b->buffers.experts.n_active * job.pieces);
}

/* ---- the sum --------------------------------------------------------------------------------- */

/* The input from row p on. */
static struct cpu_input rows_from(const struct cpu_input *x, uint32_t p)
{
    struct cpu_input from = *x;
    const size_t at = (size_t)p * x->stride;
    from.f += at;
    from.q += at;
    from.d += at / CPU_BLOCK;
    from.sum += at / CPU_BLOCK;
    return from;
}

/* Adds the shared expert's columns. out: row 0 of the output, at column c->begin. */
static void add_shared(const struct experts_job *job, const struct columns *c, float *out)
{
    const struct backend *b = job->b;
    const enum op_buffer gate = job->op->from[2];
    const struct cpu_input *to = &b->buffers.of[job->op->to[0]],
                           *y = &b->buffers.of[job->op->from[1]], *score = &b->buffers.of[gate];
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        const float weight = gate ? num_sigmoid(score->f[(size_t)r * score->stride]) : 1.0f;
        b->isa->add_scaled(out + (size_t)r * to->stride, weight,
                           y->f + (size_t)r * y->stride + c->begin, c->n);
    }
}

static void sum_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    const struct experts_job *job = arg;
    const struct backend *b = job->b;
    const struct cpu_experts *x = &b->buffers.experts;
    const struct cpu_input *from = &b->buffers.of[job->op->from[0]],
                           *to = &b->buffers.of[job->op->to[0]];
    const struct columns c = columns_of(job, chunk);
    float *y = x->scratch + (size_t)worker * EXPERTS_SCRATCH, *out = to->f + c.begin;
    for (uint32_t r = 0; r < b->pass->n_rows; r++)
        memset(out + (size_t)r * to->stride, 0, c.n * sizeof(float));
    for (uint32_t i = 0; i < x->n_active; i++) {
        const uint32_t e = x->active[i];
        for (uint32_t p = x->first[e], n; p < x->first[e + 1]; p += n) {
            const struct cpu_input rows = rows_from(from, p);
            n = block_of(p, x->first[e + 1]);
            multiply(job, 0, e, &c, &rows, NULL, n, y);
            for (uint32_t k = 0; k < n; k++)
                b->isa->add_scaled(out + (size_t)x->pair_row[p + k] * to->stride,
                                   x->pair_weight[p + k], y + (size_t)k * EXPERTS_COLS, c.n);
        }
    }
    if (job->op->from[1])
        add_shared(job, &c, out);
    if (!job->op->residual)
        return;
    const struct cpu_input *residual = &b->buffers.of[job->op->residual];
    for (uint32_t r = 0; r < b->pass->n_rows; r++)
        b->isa->add(out + (size_t)r * to->stride,
                    residual->f + (size_t)r * residual->stride + c.begin, c.n);
}

void experts_sum(struct backend *b, const struct layer_op *op)
{
    struct experts_job job = job_of(b, op);
    cut(&job, 1);
    pool_run(b->pool, sum_chunk, &job, job.pieces);
}
