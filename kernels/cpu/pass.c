/* One pass: walks the model's operations (kernels/model/layer_ops.h), and keeps account of which
 * rows are poisoned. NUMERICS.md, "One pass". */
#include <errno.h>
#include <string.h>

#include "kernels/base/pool.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/delta.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/mtp.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/repack.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/share.h"

/* Rows that an operation runs on. */
static uint32_t rows_of(const struct backend *b, const struct layer_op *op)
{
    return op->wanted ? b->n_wanted : b->pass->n_rows;
}

/* Row r of a buffer: [op->n]. */
static float *row_at(const struct backend *b, enum op_buffer buffer, uint32_t r)
{
    const struct cpu_input *x = &b->buffers.of[buffer];
    return x->f + (size_t)r * x->stride;
}

/* ---- poisoned rows --------------------------------------------------------------------------- */

/* Rows marked bad, and later rows of their sequences, are poisoned at this layer; their residual
 * becomes 0, so that what is still computed for them stays finite. */
static void poison_bad(struct backend *b, uint32_t layer)
{
    struct cpu_buffers *u = &b->buffers;
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        uint32_t *first = &u->first_poisoned[b->pass->rows[r].sequence];
        if (u->poisoned[r] != CPU_OK || (!u->bad[r] && r < *first))
            continue;
        if (r < *first)
            *first = r;
        u->poisoned[r] = layer;
        memset(row_at(b, BUFFER_X, r), 0, b->model->n_embd * sizeof(float));
    }
}

static void check_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    (void)worker;
    b->buffers.bad[r] = !b->isa->finite(row_at(b, op->to[0], r), op->n);
}

/* ---- operations on a row --------------------------------------------------------------------- */

/* Makes blocks of what the operation wrote, if a matmul that reads it has a quantized matrix. */
static bool quantized_reader(const struct backend *b, const struct layer_op *op)
{
    for (const struct layer_op *const *reader = op->readers; *reader; reader++)
        for (uint32_t i = 0; i < (*reader)->n_parts; i++)
            if (quant_find(cpu_matrix_of(b, *reader, i)->file.type)->quantized)
                return true;
    return false;
}

/* Makes blocks of values [begin, begin + n) of row r of a buffer. */
static void quantize(struct backend *b, enum op_buffer buffer, uint32_t r, uint32_t begin,
                     uint32_t n)
{
    const struct cpu_input *x = &b->buffers.of[buffer];
    size_t at = (size_t)r * x->stride + begin;
    b->isa->quantize(x->f + at, n, x->q + at, x->d + at / CPU_BLOCK, x->sum + at / CPU_BLOCK);
}

void cpu_quantize_row(struct backend *b, enum op_buffer buffer, uint32_t n, uint32_t r)
{
    quantize(b, buffer, r, 0, n);
}

static void quantize_row_of(struct backend *b, const struct layer_op *op, uint32_t r,
                            uint32_t worker)
{
    (void)worker;
    cpu_quantize_row(b, op->to[0], op->n, r);
}

/* x = x * factor, [n] */
static void scale(float *x, uint32_t n, float factor)
{
    for (uint32_t i = 0; factor != 1.0f && i < n; i++)
        x[i] = x[i] * factor;
}

/* x = row of row r's token in a table of no layer. */
static void look_up(const struct backend *b, enum model_global which, uint32_t r, float *x)
{
    const struct cpu_matrix *table = &b->use->layers[b->model->n_layer].matrix[which];
    if (table->packed)
        repack_row(table, b->pass->rows[r].token, x);
    else
        ref_matrix_row(&table->file, b->pass->rows[r].token, x);
}

/* The row's rotation by each table of rope. */
static void turn_row(struct backend *b, uint32_t r)
{
    struct cpu_buffers *u = &b->buffers;
    for (uint32_t i = 0; i < b->model->n_ropes; i++) {
        const uint32_t n = b->model->ropes[i].n;
        rope_row(b->rope[i], n, b->pass->rows[r].position, b->model->rope, u->cs[i] + (size_t)r * n,
                 u->sn[i] + (size_t)r * n);
    }
}

/* to = factor * the token's row of a table */
static void lookup_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    float *x = row_at(b, op->to[0], r);
    look_up(b, (enum model_global)op->tensor[0], r, x);
    scale(x, op->n, op->factor);
    if (quantized_reader(b, op))
        quantize_row_of(b, op, r, worker);
}

/* The same of the embedding; and the row's rotation. */
static void embed_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    lookup_row(b, op, r, worker);
    turn_row(b, r);
}

/* to = rmsnorm(embedding row of the token), rmsnorm(hidden row before it) */
static void join_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    look_up(b, MODEL_TOKEN_EMBD, r, row_at(b, op->to[0], r));
    mtp_join_row(b, op, r);
    turn_row(b, r);
    if (quantized_reader(b, op))
        quantize_row_of(b, op, r, worker);
}

/* Of each layer: to = (rmsnorm(factor * from[0], weight) + from[1]) / sqrt(2) */
static void inputs_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    (void)worker;
    const uint32_t n = b->model->n_per_layer;
    const float *weight = cpu_vector_of(b, op, op->tensor[0]);
    float *x = row_at(b, op->to[0], r);
    scale(x, op->n, op->factor);
    for (uint32_t i = 0; i < op->n; i += n)
        b->isa->norm(x + i, weight, n, b->model->rms_eps, x + i);
    b->isa->add(x, row_at(b, op->from[1], r), op->n);
    scale(x, op->n, 0x1.6a09e6p-1f);
}

/* to = factor * rmsnorm(from, weight), group by group, or from where the layer has no such norm */
static void norm_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    const float *x = row_at(b, op->from[0], op->wanted ? b->buffers.wanted[r] : r);
    float *y = row_at(b, op->to[0], r);
    const float *weight = cpu_vector_of(b, op, op->tensor[0]);
    const uint32_t n = op->n / op->groups;
    for (uint32_t i = 0; weight && i < op->n; i += n)
        b->isa->norm(x + i, weight + i, n, b->model->rms_eps, y + i);
    if (!weight)
        memcpy(y, x, op->n * sizeof(float));
    scale(y, op->n, op->factor);
    if (quantized_reader(b, op))
        quantize_row_of(b, op, r, worker);
}

/* to = (factor * rmsnorm(from + bias, weight) + residual) * a number, less what the layer has not. */
static void add_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    const float *weight = cpu_vector_of(b, op, op->tensor[0]),
                *bias = cpu_vector_of(b, op, op->tensor[1]),
                *factor = cpu_vector_of(b, op, op->tensor[2]);
    float *y = row_at(b, op->to[0], r);
    memcpy(y, row_at(b, op->from[0], r), op->n * sizeof(float));
    if (bias)
        b->isa->add(y, bias, op->n);
    if (weight)
        b->isa->norm(y, weight, op->n, b->model->rms_eps, y);
    scale(y, op->n, op->factor);
    if (op->residual)
        b->isa->add(y, row_at(b, op->residual, r), op->n);
    if (factor)
        scale(y, op->n, factor[0]);
    if (op->check)
        check_row(b, op, r, worker);
    if (quantized_reader(b, op))
        quantize_row_of(b, op, r, worker);
}

/* to = f(from[0]) * from[1]: values [begin, begin + n) of rows [row0, row1). */
static void gate_rows(struct backend *b, const struct layer_op *op, uint32_t row0, uint32_t row1,
                      uint32_t begin, uint32_t n)
{
    const bool quantized = quantized_reader(b, op);
    for (uint32_t r = row0; r < row1; r++) {
        b->isa->gate_mul[op->gate](row_at(b, op->from[0], r) + begin,
                                   row_at(b, op->from[1], r) + op->from_at + begin, n,
                                   row_at(b, op->to[0], r) + begin);
        if (quantized)
            quantize(b, op->to[0], r, begin, n);
    }
}

static void gate_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    (void)worker;
    gate_rows(b, op, r, r + 1, 0, op->n);
}

/* to = from[0] * sigmoid(gate of its head in from[1]), or rmsnorm(from[0], weight) *
 * silu(from[1]). */
static void head_gate_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    const struct layer_geometry *g = op->geometry;
    const float *norm = cpu_vector_of(b, op, op->tensor[0]), *gate = row_at(b, op->from[1], r);
    const uint32_t dim = norm ? g->delta.v_dim : g->v_dim;
    float *x = row_at(b, op->to[0], r);
    for (uint32_t h = 0; norm && h < op->n / dim; h++)
        b->isa->norm(x + h * dim, norm, dim, b->model->rms_eps, x + h * dim);
    if (norm)
        b->isa->gate_mul[MODEL_GATE_SILU](gate, x, op->n, x);
    for (uint32_t h = 0; !norm && h < op->n / dim; h++)
        b->isa->gate_mul[MODEL_GATE_SIGMOID](gate + h * g->q_dim + g->k_dim, x + h * dim, dim,
                                             x + h * dim);
    if (quantized_reader(b, op))
        quantize_row_of(b, op, r, worker);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* The row's page of a class. */
static uint8_t *page_of(const struct backend *b, const struct row *row, enum page_class class)
{
    const uint32_t *pages = backend_pages(&b->pass->sequences[row->sequence], class);
    return b->kv_memory[class] + pages[row->position / KV_PAGE_POSITIONS] * b->kv.page_bytes[class];
}

/* What stands between the matmul and the finished heads of Q (part 0), K (1) or V (2): bias and
 * norm per head; and for Q and K rope, for Q its factor. x [heads][step], a head's values and, of Q,
 * its gate. Returns heads * step. */
static uint32_t finish_heads(const struct backend *b, const struct layer_op *op, uint32_t part,
                             uint32_t r, float *x)
{
    const struct layer_geometry *g = op->geometry;
    const uint32_t heads = part == 0 ? g->n_head : g->n_head_kv,
                   dim = part == 2 ? g->v_dim : g->k_dim, step = part == 0 ? g->q_dim : dim;
    const float *bias = cpu_vector_of(b, op, op->tensor[part]);
    if (bias)
        b->isa->add(x, bias, heads * step);
    const float *norm = part < 2        ? cpu_vector_of(b, op, op->head_norm[part])
                        : g->value_norm ? b->ones
                                        : NULL;
    for (uint32_t h = 0; norm && h < heads; h++)
        b->isa->norm(x + h * step, norm, dim, b->model->rms_eps, x + h * step);
    if (part < 2 && g->rope != MODEL_NO_ROPE) {
        const uint32_t n_rot = b->model->ropes[g->rope].n;
        const size_t at = (size_t)r * n_rot;
        b->isa->rope[b->model->rope](x, heads, step, n_rot, b->buffers.cs[g->rope] + at,
                                     b->buffers.sn[g->rope] + at);
    }
    if (part == 0 && b->query_factors)
        scale(x, heads * step,
              b->query_factors[b->pass->rows[r].position / b->model->temperature_period]);
    return heads * step;
}

/* q, k, v in place; k and v, where the layer has them, go to the row's page, if all three may. */
static void qkv_finish_row(struct backend *b, const struct layer_op *op, uint32_t r,
                           uint32_t worker)
{
    (void)worker;
    struct cpu_buffers *u = &b->buffers;
    const bool append = op->append.class == MEMORY_PAGES;
    bool (*fits)(const float *, uint32_t) =
        b->kv.type == KV_F32 ? b->isa->finite : b->isa->fits_f16;
    float *x[3] = {op->to[0] ? row_at(b, op->to[0], r) : NULL};
    u->bad[r] = x[0] && !b->isa->finite(x[0], finish_heads(b, op, 0, r, x[0]));
    for (uint32_t part = 2; part > 0 && append; part--) { /* V may come from K before its norm */
        x[part] = row_at(b, op->to[part], r);
        if (op->from[part] != op->to[part])
            memcpy(x[part], row_at(b, op->from[part], r),
                   (size_t)op->geometry->n_head_kv * op->geometry->v_dim * sizeof(float));
        u->bad[r] |= !fits(x[part], finish_heads(b, op, part, r, x[part]));
    }
    if (!append)
        return;
    const struct row *row = &b->pass->rows[r];
    const struct kv_layer *kv = &b->kv.layer[op->append.index];
    if (!u->bad[r] && u->poisoned[r] == CPU_OK)
        b->isa->append(kv, page_of(b, row, kv->class), row->position % KV_PAGE_POSITIONS, x[1],
                       x[2]);
}

static void cap_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    (void)worker;
    b->isa->cap(row_at(b, op->to[0], r), op->factor, op->n);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* Marks rows whose outputs are not finite, if the operation is one after which rows are checked. */
static void check_rows(struct backend *b, const struct layer_op *op)
{
    if (op->check)
        share_items(b, check_row, op, rows_of(b, op), op->n / 4 + 1);
}

/* Does the operation after this matmul take its two outputs value by value? Then a chunk of both does
 * that as well, while they are in its cache. */
static bool gated(const struct layer_op *op)
{
    return op->domain == OP_OUTPUT_GROUPS && op->n_parts == 2 && op[1].kind == OP_GATE &&
           op[1].from[0] == op->to[0] && op[1].from[1] == op->to[1] && op[1].from_at == 0;
}

/* to[i] = matrix[i] from, + residual: all parts shared out together. */
static void run_matmul(struct backend *b, const struct layer_op *op)
{
    const struct cpu_buffers *u = &b->buffers;
    struct cpu_matmul part[SHARE_MATMULS];
    for (uint32_t i = 0; i < op->n_parts; i++) {
        const struct cpu_matrix *matrix = cpu_matrix_of(b, op, i);
        part[i] = (struct cpu_matmul){
            .matrix = matrix,
            .x = &u->of[op->from[0]],
            .y = u->of[op->to[i]].f,
            .residual = op->residual ? u->of[op->residual].f : NULL,
            .stride = u->of[op->to[i]].stride,
            .row1 = rows_of(b, op),
            .group1 = matrix->groups,
        };
    }
    if (gated(op))
        share_pair(b, part, gate_rows, op + 1);
    else
        share_matmuls(b, part, op->n_parts);
    check_rows(b, op);
}

/* Operations of rows. */
static share_item *const row_operation[N_OP_KINDS] = {
    [OP_EMBED] = embed_row,
    [OP_LOOKUP] = lookup_row,
    [OP_INPUTS] = inputs_row,
    [OP_CAP] = cap_row,
    [OP_NORM] = norm_row,
    [OP_QKV_FINISH] = qkv_finish_row,
    [OP_GATE] = gate_row,
    [OP_ADD] = add_row,
    [OP_ROUTE] = experts_route_row,
    [OP_HEAD_GATE] = head_gate_row,
    [OP_CONVOLVE] = delta_convolve_row,
    [OP_JOIN] = join_row,
};

static void run(struct backend *b, const struct layer_op *op)
{
    switch (op->domain) {
    case OP_EACH_ROW:
        share_items(b, row_operation[op->kind], op, rows_of(b, op),
                    op->kind == OP_GATE ? 2 * (uint64_t)op->n : op->n);
        break;
    case OP_OUTPUT_GROUPS:
        run_matmul(b, op);
        break;
    case OP_QUERIES:
        attention(b, op);
        if (quantized_reader(b, op))
            share_items(b, quantize_row_of, op, rows_of(b, op), op->n);
        break;
    case OP_STATES:
        delta_run(b, op);
        break;
    case OP_SEQUENCES:
        share_items(b, op->kind == OP_SETTLE ? delta_settle : mtp_remember, op,
                    b->pass->n_sequences,
                    op->n * (uint64_t)(b->pass->n_rows / b->pass->n_sequences + 1));
        break;
    case OP_EXPERTS:
        if (op->kind == OP_EXPERT_GATE) {
            experts_gate(b, op);
        } else {
            experts_sum(b, op);
            check_rows(b, op);
        }
        break;
    }
    if (op->check)
        poison_bad(b, op->layer);
}

/* Logits of the i-th row with wants: made canonical, checked, handed out, sampled from. */
static void sample_row(struct backend *b, const struct layer_op *op, uint32_t i, uint32_t worker)
{
    struct cpu_buffers *u = &b->buffers;
    uint32_t r = u->wanted[i], n_vocab = b->model->n_vocab;
    const struct row *row = &b->pass->rows[r];
    const struct pass_sequence *s = &b->pass->sequences[row->sequence];
    struct row_result *result = &b->pass->results[r];
    float *logits = row_at(b, op->to[0], i);
    if (result->status)
        return;
    result->layer = op->layer;
    if (!b->isa->canonical_logits(logits, n_vocab)) {
        result->status = -EDOM;
        return;
    }
    if (row->wants & ROW_LOGITS)
        memcpy(result->logits, logits, n_vocab * sizeof(float));
    if (!(row->wants & ROW_SAMPLE))
        return;
    struct sampler_params p = *s->sampler;
    p.allowed = row->allowed;
    result->status = sample_token(&p, logits, n_vocab, s->tokens, row->position + 1,
                                  s->prompt_length, u->sample[worker], &result->sample);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

static void begin_pass(struct backend *b)
{
    const struct pass *pass = b->pass;
    struct cpu_buffers *u = &b->buffers;
    delta_begin_pass(b);
    b->n_wanted = 0;
    for (uint32_t s = 0; s < pass->n_sequences; s++)
        u->first_poisoned[s] = CPU_OK;
    for (uint32_t r = 0; r < pass->n_rows; r++) {
        u->poisoned[r] = CPU_OK;
        if (pass->rows[r].wants)
            u->wanted[b->n_wanted++] = r;
        for (int c = 0; c < PAGE_CLASSES && pass->rows[r].position % KV_PAGE_POSITIONS == 0; c++)
            if (b->kv_memory[c])
                memset(page_of(b, &pass->rows[r], c), 0, b->kv.page_bytes[c]);
    }
}

static void report_poison(struct backend *b)
{
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        struct row_result *result = &b->pass->results[r];
        uint32_t layer = b->buffers.poisoned[r];
        result->status = layer == CPU_OK ? 0 : -EDOM;
        result->layer = layer == CPU_OK ? 0 : layer;
    }
}

/* Operations [from, to). */
static void run_list(struct backend *b, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        const struct layer_op *op = &b->model->ops.op[i];
        run(b, op);
        i += gated(op);
    }
}

/* Operations [from, head) on all rows, [head, to) on those with wants, whose samples follow. */
static void run_rows(struct backend *b, uint32_t from, uint32_t head, uint32_t to)
{
    run_list(b, from, head);
    report_poison(b);
    if (b->n_wanted == 0)
        return;
    run_list(b, head, to);
    share_items(b, sample_row, &b->model->ops.op[to - 1], b->n_wanted, b->model->n_vocab);
}

void cpu_pass_run(struct backend *b, const struct pass *pass)
{
    const struct layer_ops *ops = &b->model->ops;
    uint32_t mode = pool_float_mode();
    b->pass = pass;
    b->use = &b->weights[pass->kind == PASS_FAST];
    begin_pass(b);
    if (pass->kind == PASS_MTP) {
        run_rows(b, ops->draft, ops->draft_head, ops->end);
    } else {
        run_rows(b, 0, ops->head, ops->n);
        run_list(b, ops->n, ops->draft);
    }
    b->pass = NULL;
    pool_float_restore(mode);
}
