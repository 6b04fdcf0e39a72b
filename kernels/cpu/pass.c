/* One pass over all layers: which operation runs on which rows, and which rows are poisoned. The order
 * of operations is that of NUMERICS.md, "One pass". */
#include <errno.h>
#include <string.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/base/pool.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/repack.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/share.h"

static void each_row(struct backend *b, uint32_t layer, uint64_t values, share_item *run)
{
    share_items(b, run, layer, b->pass->n_rows, values);
}

static struct cpu_matmul matmul(const struct cpu_matrix *matrix, const struct cpu_input *x,
                                uint32_t n_rows, float *y, uint32_t stride)
{
    return (struct cpu_matmul){.matrix = matrix,
                               .x = x,
                               .y = y,
                               .stride = stride,
                               .row1 = n_rows,
                               .group1 = matrix->groups};
}

/* ---- poisoned rows ----------------------------------------------------------------------------
 */

/* Rows marked bad, and later rows of their sequences, are poisoned at this layer; their residual
 * becomes 0, so that what is still computed for them stays tame. */
static void poison_bad(struct backend *b, uint32_t layer)
{
    struct cpu_buffers *u = &b->buffers;
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        uint32_t *first = &u->first_poisoned[b->pass->rows[r].sequence];
        if (u->poisoned[r] != CPU_SOUND || (!u->bad[r] && r < *first))
            continue;
        if (r < *first)
            *first = r;
        u->poisoned[r] = layer;
        memset(u->x + (size_t)r * u->embd, 0, u->embd * sizeof(float));
    }
}

/* ---- operations on a row ----------------------------------------------------------------------
 */

static void quantize(const struct backend *b, const struct cpu_input *x, uint32_t row, uint32_t n)
{
    size_t at = (size_t)row * x->stride;
    b->isa->quantize(x->f + at, n, x->q + at, x->d + at / CPU_BLOCK, x->sum + at / CPU_BLOCK);
}

static bool quantized(const struct cpu_matrix *m)
{
    return quant_find(m->file.type)->quantized;
}

static void begin_row(struct backend *b, uint32_t layer, uint32_t r, uint32_t worker)
{
    (void)layer, (void)worker;
    struct cpu_buffers *u = &b->buffers;
    const struct row *row = &b->pass->rows[r];
    float *x = u->x + (size_t)r * u->embd;
    if (b->embedding.packed)
        repack_row(&b->embedding, row->token, x);
    else
        ref_matrix_row(&b->embedding.file, row->token, x);
    float scale = b->model->embd_scale;
    for (uint32_t i = 0; scale != 1.0f && i < b->model->n_embd; i++)
        x[i] = x[i] * scale;
    uint32_t n = b->model->rope_dim;
    for (int local = 0; local < 2 && b->rope[local]; local++)
        rope_row(b->rope[local], n, row->position, b->model->rope, u->cs[local] + (size_t)r * n,
                 u->sn[local] + (size_t)r * n);
}

static void attn_norm_row(struct backend *b, uint32_t layer, uint32_t r, uint32_t worker)
{
    (void)worker;
    struct cpu_buffers *u = &b->buffers;
    const struct cpu_layer *l = &b->use->layers[layer];
    uint32_t n = b->model->n_embd;
    size_t at = (size_t)r * u->embd;
    b->isa->norm(u->x + at, l->attn_norm, n, b->model->rms_eps, u->norm.f + at);
    if (quantized(&l->q) || quantized(&l->k) || quantized(&l->v))
        quantize(b, &u->norm, r, n);
}

static uint8_t *page_of(const struct backend *b, const struct row *row)
{
    const uint32_t *pages = b->pass->sequences[row->sequence].pages;
    return b->kv_memory + pages[row->position / KV_PAGE_POSITIONS] * b->kv.page_bytes;
}

/* What stands between the matmul and the rotated heads of q or k: bias, norm per head, rope. */
static void finish_heads(const struct backend *b, uint32_t layer, float *x, uint32_t heads,
                         const float *bias, const float *norm, uint32_t r)
{
    const struct model *m = b->model;
    bool local = m->layers[layer].local;
    size_t at = (size_t)r * m->rope_dim;
    if (bias)
        b->isa->add(x, bias, heads * m->head_dim);
    for (uint32_t h = 0; norm && h < heads; h++) {
        float *head = x + (size_t)h * m->head_dim;
        b->isa->norm(head, norm, m->head_dim, m->rms_eps, head);
    }
    b->isa->rotate[m->rope](x, heads, m->head_dim, b->buffers.cs[local] + at,
                            b->buffers.sn[local] + at);
}

static void append_row(struct backend *b, uint32_t layer, uint32_t r, uint32_t worker)
{
    (void)worker;
    struct cpu_buffers *u = &b->buffers;
    const struct model *m = b->model;
    const struct cpu_layer *l = &b->use->layers[layer];
    float *q = u->q + (size_t)r * u->heads;
    float *k = u->k + (size_t)r * u->heads_kv, *v = u->v + (size_t)r * u->heads_kv;
    uint32_t n_kv = m->n_head_kv * m->head_dim;
    finish_heads(b, layer, q, m->n_head, l->q_bias, l->q_norm, r);
    finish_heads(b, layer, k, m->n_head_kv, l->k_bias, l->k_norm, r);
    if (l->v_bias)
        b->isa->add(v, l->v_bias, n_kv);
    bool (*fits)(const float *, uint32_t) =
        b->kv.type == KV_F32 ? b->isa->finite : b->isa->fits_f16;
    u->bad[r] = !(b->isa->finite(q, m->n_head * m->head_dim) && fits(k, n_kv) && fits(v, n_kv));
    const struct row *row = &b->pass->rows[r];
    if (!u->bad[r] && u->poisoned[r] == CPU_SOUND)
        b->isa->append(&b->kv, page_of(b, row), layer, row->position % KV_PAGE_POSITIONS, k, v);
}

static void attention_out_row(struct backend *b, uint32_t layer, uint32_t r, uint32_t worker)
{
    (void)layer, (void)worker;
    quantize(b, &b->buffers.attention, r, b->model->n_head * b->model->head_dim);
}

/* What a part of a layer adds to the residual, where it is normed first: x = norm(x) + residual. */
static void add_normed(const struct backend *b, float *x, const float *norm, const float *residual)
{
    uint32_t n = b->model->n_embd;
    b->isa->norm(x, norm, n, b->model->rms_eps, x);
    b->isa->add(x, residual, n);
}

static void ffn_norm_row(struct backend *b, uint32_t layer, uint32_t r, uint32_t worker)
{
    (void)worker;
    struct cpu_buffers *u = &b->buffers;
    const struct cpu_layer *l = &b->use->layers[layer];
    uint32_t n = b->model->n_embd;
    size_t at = (size_t)r * u->embd;
    if (l->attn_post_norm)
        add_normed(b, u->h + at, l->attn_post_norm, u->x + at);
    b->isa->norm(u->h + at, l->ffn_norm, n, b->model->rms_eps, u->norm.f + at);
    if (quantized(&l->gate) || quantized(&l->up))
        quantize(b, &u->norm, r, n);
}

static void gate_row(struct backend *b, uint32_t layer, uint32_t r, uint32_t worker)
{
    (void)worker;
    struct cpu_buffers *u = &b->buffers;
    uint32_t n = b->model->n_ff;
    size_t at = (size_t)r * u->ff;
    b->isa->gate_mul[b->model->gate](u->gate + at, u->up + at, n, u->ffn.f + at);
    if (quantized(&b->use->layers[layer].down))
        quantize(b, &u->ffn, r, n);
}

static void end_row(struct backend *b, uint32_t layer, uint32_t r, uint32_t worker)
{
    (void)worker;
    struct cpu_buffers *u = &b->buffers;
    const struct cpu_layer *l = &b->use->layers[layer];
    size_t at = (size_t)r * u->embd;
    if (l->ffn_post_norm)
        add_normed(b, u->x + at, l->ffn_post_norm, u->h + at);
    u->bad[r] = !b->isa->finite(u->x + at, b->model->n_embd);
}

/* ---- layers and head --------------------------------------------------------------------------
 */

static void run_layer(struct backend *b, uint32_t layer)
{
    const struct cpu_layer *l = &b->use->layers[layer];
    struct cpu_buffers *u = &b->buffers;
    const struct model *m = b->model;
    uint32_t n = b->pass->n_rows;
    struct cpu_matmul part[3];

    each_row(b, layer, m->n_embd, attn_norm_row);
    part[0] = matmul(&l->q, &u->norm, n, u->q, u->heads);
    part[1] = matmul(&l->k, &u->norm, n, u->k, u->heads_kv);
    part[2] = matmul(&l->v, &u->norm, n, u->v, u->heads_kv);
    share_matmuls(b, part, 3);
    each_row(b, layer, u->heads, append_row);
    poison_bad(b, layer);
    attention(b, layer);
    if (quantized(&l->o))
        each_row(b, layer, u->heads, attention_out_row);
    part[0] = matmul(&l->o, &u->attention, n, u->h, u->embd);
    part[0].residual = l->attn_post_norm ? NULL : u->x;
    share_matmuls(b, part, 1);

    each_row(b, layer, m->n_embd, ffn_norm_row);
    part[0] = matmul(&l->gate, &u->norm, n, u->gate, u->ff);
    part[1] = matmul(&l->up, &u->norm, n, u->up, u->ff);
    share_matmuls(b, part, 2);
    each_row(b, layer, (uint64_t)m->n_ff * 2, gate_row);
    part[0] = matmul(&l->down, &u->ffn, n, u->x, u->embd);
    part[0].residual = l->ffn_post_norm ? NULL : u->h;
    share_matmuls(b, part, 1);
    each_row(b, layer, l->ffn_post_norm ? m->n_embd : m->n_embd / 4 + 1, end_row);
    poison_bad(b, layer);
}

static void head_norm_row(struct backend *b, uint32_t layer, uint32_t i, uint32_t worker)
{
    (void)layer, (void)worker;
    struct cpu_buffers *u = &b->buffers;
    uint32_t n = b->model->n_embd;
    const float *x = u->x + (size_t)u->wanted[i] * u->embd;
    b->isa->norm(x, b->output_norm, n, b->model->rms_eps, u->head.f + (size_t)i * u->embd);
    if (quantized(&b->use->head))
        quantize(b, &u->head, i, n);
}

static void sample_row(struct backend *b, uint32_t layer, uint32_t i, uint32_t worker)
{
    struct cpu_buffers *u = &b->buffers;
    uint32_t r = u->wanted[i], n_vocab = b->model->n_vocab;
    const struct row *row = &b->pass->rows[r];
    const struct pass_sequence *s = &b->pass->sequences[row->sequence];
    struct row_result *result = &b->pass->results[r];
    float *logits = u->logits + (size_t)i * u->vocab;
    if (result->status)
        return;
    result->layer = layer;
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

static void run_head(struct backend *b)
{
    struct cpu_buffers *u = &b->buffers;
    const struct model *m = b->model;
    uint32_t n = b->n_wanted;
    if (n == 0)
        return;
    share_items(b, head_norm_row, 0, n, m->n_embd);
    struct cpu_matmul part = matmul(&b->use->head, &u->head, n, u->logits, u->vocab);
    share_matmuls(b, &part, 1);
    share_items(b, sample_row, m->n_layer, n, m->n_vocab);
}

/* ---- a pass -----------------------------------------------------------------------------------
 */

static void begin_pass(struct backend *b)
{
    const struct pass *pass = b->pass;
    struct cpu_buffers *u = &b->buffers;
    b->n_wanted = 0;
    for (uint32_t s = 0; s < pass->n_sequences; s++)
        u->first_poisoned[s] = CPU_SOUND;
    for (uint32_t r = 0; r < pass->n_rows; r++) {
        u->poisoned[r] = CPU_SOUND;
        if (pass->rows[r].wants)
            u->wanted[b->n_wanted++] = r;
        if (pass->rows[r].position % KV_PAGE_POSITIONS == 0)
            memset(page_of(b, &pass->rows[r]), 0, b->kv.page_bytes);
    }
    attention_begin(b);
}

static void report_poison(struct backend *b)
{
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        struct row_result *result = &b->pass->results[r];
        uint32_t layer = b->buffers.poisoned[r];
        result->status = layer == CPU_SOUND ? 0 : -EDOM;
        result->layer = layer == CPU_SOUND ? 0 : layer;
    }
}

void cpu_pass_run(struct backend *b, const struct pass *pass)
{
    uint32_t mode = pool_float_mode();
    b->pass = pass;
    b->use = &b->weights[pass->kind];
    begin_pass(b);
    each_row(b, 0, b->model->n_embd, begin_row);
    for (uint32_t layer = 0; layer < b->model->n_layer; layer++)
        run_layer(b, layer);
    report_poison(b);
    run_head(b);
    b->pass = NULL;
    pool_float_restore(mode);
}
