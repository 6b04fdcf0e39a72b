#include "kernels/model/layer_ops.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/model/model.h"

enum { MOST_OF_LAYER = 24, BEFORE_AND_HEAD = 7 };

/* ---- one operation each ---------------------------------------------------------------------- */

/* A list that is being made. */
struct maker {
    const struct model *m;
    struct layer_ops *ops;
    uint32_t layer;
    const struct model_layer *l; /* NULL: no layer */
};

static struct layer_op *add(struct maker *k, enum layer_op_kind kind, enum op_domain domain,
                            uint32_t n)
{
    struct layer_op *op = &k->ops->op[k->ops->n++];
    *op = (struct layer_op){.kind = kind,
                            .domain = domain,
                            .layer = k->layer,
                            .geometry = k->l ? &k->l->geometry : NULL,
                            .n = n,
                            .gate = k->m->gate,
                            .groups = 1,
                            .factor = 1.0f};
    return op;
}

/* An operation of a row that reads one buffer and writes one. */
static struct layer_op *add_row(struct maker *k, enum layer_op_kind kind, enum op_buffer from,
                                uint32_t tensor, enum op_buffer to, uint32_t n)
{
    struct layer_op *op = add(k, kind, OP_EACH_ROW, n);
    op->from[0] = from;
    op->to[0] = to;
    op->tensor[0] = tensor;
    return op;
}

static struct layer_op *norm(struct maker *k, enum op_buffer from, uint32_t tensor)
{
    return add_row(k, OP_NORM, from, tensor, BUFFER_NORM, k->m->n_embd);
}

/* The first matrix of a matmul; and another one that reads the same input. */
static struct layer_op *matmul(struct maker *k, enum op_buffer from, uint32_t tensor,
                               enum op_buffer to, uint32_t n)
{
    struct layer_op *op = add(k, OP_MATMUL, OP_OUTPUT_GROUPS, n);
    op->from[0] = from;
    op->tensor[0] = tensor;
    op->to[0] = to;
    op->n_parts = 1;
    return op;
}

static void and_part(struct layer_op *op, uint32_t tensor, enum op_buffer to)
{
    op->tensor[op->n_parts] = tensor;
    op->to[op->n_parts++] = to;
}

/* How a part of a layer ends, `op` its last matmul: to = W from + residual. Where what it adds has a
 * bias, is normed first, or scaled, as may be the sum, W from is kept and OP_ADD adds it. */
static struct layer_op *add_to_residual(struct maker *k, struct layer_op *op, uint32_t bias,
                                        uint32_t post_norm, enum op_buffer residual,
                                        enum op_buffer to)
{
    const bool plain =
        !k->l->tensor[bias].data && !k->l->tensor[post_norm].data && k->m->residual_scale == 1.0f;
    op->to[0] = plain ? to : BUFFER_ADDED;
    if (!plain) {
        op = add_row(k, OP_ADD, BUFFER_ADDED, post_norm, to, k->m->n_embd);
        op->tensor[1] = bias;
        op->factor = k->m->residual_scale;
    }
    op->residual = residual;
    return op;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void embedding(struct maker *k)
{
    add_row(k, OP_EMBED, BUFFER_NONE, MODEL_TOKEN_EMBD, BUFFER_X, k->m->n_embd)->factor =
        k->m->embd_scale;
}

/* INPUTS: what each layer is given of the token, from a table and from X. */
static void inputs_of_layers(struct maker *k)
{
    const uint32_t n = k->m->n_layer * k->m->n_per_layer;
    if (n == 0)
        return;
    add_row(k, OP_LOOKUP, BUFFER_NONE, MODEL_PER_LAYER_EMBD, BUFFER_LOOKED_UP, n)->factor =
        sqrtf((float)k->m->n_per_layer);
    matmul(k, BUFFER_X, MODEL_PER_LAYER_PROJ, BUFFER_INPUTS, n);
    struct layer_op *op =
        add_row(k, OP_INPUTS, BUFFER_INPUTS, MODEL_PER_LAYER_NORM, BUFFER_INPUTS, n);
    op->from[1] = BUFFER_LOOKED_UP;
    op->factor = 1.0f / sqrtf((float)k->m->n_embd);
}

/* ATTENTION, gated head by head. */
static void head_gate(struct maker *k, enum op_buffer gate, uint32_t norm_of_head, uint32_t n)
{
    add_row(k, OP_HEAD_GATE, BUFFER_ATTENTION, norm_of_head, BUFFER_ATTENTION, n)->from[1] = gate;
}

/* The layer's part of states and records after the pass. */
static struct layer_op *settle(struct maker *k)
{
    const struct layer_geometry *g = &k->l->geometry;
    struct layer_op *op = add(k, OP_SETTLE, OP_SEQUENCES, g->delta.channels);
    op->from[0] = BUFFER_CONVOLVED;
    op->append = op->read = (struct op_memory){MEMORY_STATE, g->memory};
    return op;
}

/* to = from * value at of SHORT's parts on */
static void gate_by(struct maker *k, enum op_buffer from, uint32_t at, enum op_buffer to)
{
    struct layer_op *op = add_row(k, OP_GATE, from, MODEL_NO_TENSOR, to, k->m->n_embd);
    op->from[1] = BUFFER_SHORT;
    op->from_at = at;
    op->gate = MODEL_GATE_PRODUCT;
}

/* H = X + out(C * convolution(B * x)), with B, C, x of X */
static void short_part(struct maker *k)
{
    const uint32_t n = k->m->n_embd;
    norm(k, BUFFER_X, MODEL_ATTN_NORM);
    matmul(k, BUFFER_NORM, MODEL_SHORT_IN, BUFFER_SHORT, 3 * n);
    gate_by(k, BUFFER_SHORT, 2 * n, BUFFER_MIXED);
    struct layer_op *op =
        add_row(k, OP_CONVOLVE, BUFFER_MIXED, MODEL_SHORT_CONV, BUFFER_CONVOLVED, n);
    op->read = (struct op_memory){MEMORY_STATE, k->l->geometry.memory};
    gate_by(k, BUFFER_CONVOLVED, n, BUFFER_ATTENTION);
    settle(k);
    op = matmul(k, BUFFER_ATTENTION, MODEL_SHORT_OUT, BUFFER_H, n);
    add_to_residual(k, op, MODEL_NO_TENSOR, MODEL_ATTN_POST_NORM, BUFFER_X, BUFFER_H);
}

/* MIXED convolved, and beta and decay of what matmuls made; a: the tensor that decays are made of. */
static struct layer_op *convolve(struct maker *k, uint32_t a, enum op_buffer beta,
                                 enum op_buffer decay)
{
    struct layer_op *op = add(k, OP_CONVOLVE, OP_EACH_ROW, k->l->geometry.delta.channels);
    op->from[0] = BUFFER_MIXED;
    op->from[1] = beta;
    op->from[2] = decay;
    op->to[0] = BUFFER_CONVOLVED;
    op->to[1] = BUFFER_BETA;
    op->to[2] = BUFFER_DECAY;
    op->tensor[0] = MODEL_DELTA_CONV;
    op->tensor[1] = a;
    op->tensor[2] = MODEL_DELTA_DT;
    op->read = (struct op_memory){MEMORY_STATE, k->l->geometry.memory};
    return op;
}

/* ATTENTION = what CONVOLVED reads from the state that it has moved. */
static void recur(struct maker *k, uint32_t added)
{
    const struct layer_geometry *g = &k->l->geometry;
    struct layer_op *op = add(k, OP_DELTA, OP_STATES, g->delta.n_head_v * g->delta.v_dim);
    op->from[0] = BUFFER_CONVOLVED;
    op->from[1] = BUFFER_BETA;
    op->from[2] = BUFFER_DECAY;
    op->to[0] = BUFFER_ATTENTION;
    op->tensor[0] = added;
    op->append = op->read = (struct op_memory){MEMORY_STATE, g->memory};
}

/* H = X + gated delta rule(X) */
static void delta_part(struct maker *k)
{
    const struct delta_geometry *g = &k->l->geometry.delta;
    const bool joined = k->l->tensor[MODEL_DELTA_BETA_ALPHA].data;

    norm(k, BUFFER_X, MODEL_ATTN_NORM);
    if (joined)
        matmul(k, BUFFER_NORM, MODEL_DELTA_BETA_ALPHA, BUFFER_BETA_ALPHA, 2 * g->n_head_v);
    else
        and_part(matmul(k, BUFFER_NORM, MODEL_DELTA_BETA, BUFFER_BETA, g->n_head_v),
                 MODEL_DELTA_ALPHA, BUFFER_DECAY);
    and_part(matmul(k, BUFFER_NORM, MODEL_DELTA_QKV, BUFFER_MIXED, g->channels), MODEL_DELTA_Z,
             BUFFER_Z);

    convolve(k, MODEL_DELTA_A, joined ? BUFFER_BETA_ALPHA : BUFFER_BETA,
             joined ? BUFFER_BETA_ALPHA : BUFFER_DECAY);
    recur(k, MODEL_NO_TENSOR);
    head_gate(k, BUFFER_Z, MODEL_DELTA_NORM, g->n_head_v * g->v_dim);
    settle(k)->from[2] = BUFFER_DECAY;
    struct layer_op *op = matmul(k, BUFFER_ATTENTION, MODEL_DELTA_OUT, BUFFER_H, k->m->n_embd);
    add_to_residual(k, op, MODEL_NO_TENSOR, MODEL_ATTN_POST_NORM, BUFFER_X, BUFFER_H);
}

/* H = X + out(rmsnorm(silu(z) * Mamba-2(X))) */
static void mamba_part(struct maker *k)
{
    const struct delta_geometry *g = &k->l->geometry.delta;
    const uint32_t values = g->n_head_v * g->v_dim;

    norm(k, BUFFER_X, MODEL_ATTN_NORM);
    struct layer_op *op = matmul(k, BUFFER_NORM, MODEL_DELTA_QKV, BUFFER_MIXED, g->channels);
    and_part(op, MODEL_DELTA_Z, BUFFER_Z);
    and_part(op, MODEL_DELTA_ALPHA, BUFFER_DECAY);
    op = convolve(k, MODEL_MAMBA_A, BUFFER_DECAY, BUFFER_DECAY);
    op->bias[0] = MODEL_MAMBA_CONV_BIAS;
    recur(k, MODEL_MAMBA_D);

    op = add_row(k, OP_GATE, BUFFER_Z, MODEL_NO_TENSOR, BUFFER_Z, values);
    op->from[1] = BUFFER_ATTENTION;
    op->gate = MODEL_GATE_SILU;
    op = add_row(k, OP_NORM, BUFFER_Z, MODEL_MAMBA_NORM, BUFFER_ATTENTION, values);
    op->groups = g->n_head_k;
    settle(k)->from[2] = BUFFER_DECAY;
    op = matmul(k, BUFFER_ATTENTION, MODEL_DELTA_OUT, BUFFER_H, k->m->n_embd);
    add_to_residual(k, op, MODEL_NO_TENSOR, MODEL_ATTN_POST_NORM, BUFFER_X, BUFFER_H);
}

/* Q, and K and V where the layer has its own, are finished, K and V appended. */
static struct layer_op *qkv_finish(struct maker *k)
{
    const struct layer_geometry *g = &k->l->geometry;
    const bool no_v = !k->l->tensor[MODEL_ATTN_V].data;
    struct layer_op *op = add(k, OP_QKV_FINISH, OP_EACH_ROW, g->n_head * g->q_dim);
    for (uint32_t i = 0; i < (g->shares_kv ? 1 : 3); i++) {
        op->from[i] = i == 2 && no_v ? BUFFER_K : BUFFER_Q + i;
        op->to[i] = BUFFER_Q + i;
        op->tensor[i] = MODEL_ATTN_Q_BIAS + i;
    }
    op->head_norm[0] = g->whole_norms ? MODEL_NO_TENSOR : MODEL_ATTN_Q_NORM;
    op->head_norm[1] = g->whole_norms ? MODEL_NO_TENSOR : MODEL_ATTN_K_NORM;
    if (!g->shares_kv)
        op->append = (struct op_memory){MEMORY_PAGES, g->memory};
    return op;
}

/* The heads of a row, from NORM. */
static void heads(struct maker *k)
{
    const struct layer_geometry *g = &k->l->geometry;
    const bool whole = g->whole_norms;
    const uint32_t q = g->n_head * g->q_dim;
    struct layer_op *op = matmul(k, BUFFER_NORM, MODEL_ATTN_Q, whole ? BUFFER_RAW_Q : BUFFER_Q, q);
    if (!g->shares_kv)
        and_part(op, MODEL_ATTN_K, whole ? BUFFER_RAW_K : BUFFER_K);
    if (!g->shares_kv && k->l->tensor[MODEL_ATTN_V].data)
        and_part(op, MODEL_ATTN_V, BUFFER_V);
    if (whole) {
        add_row(k, OP_NORM, BUFFER_RAW_Q, MODEL_ATTN_Q_NORM, BUFFER_Q, q);
        add_row(k, OP_NORM, BUFFER_RAW_K, MODEL_ATTN_K_NORM, BUFFER_K, g->n_head_kv * g->k_dim);
    }
    qkv_finish(k)->check = true;
}

/* H = X + attention(X) */
static void attention_part(struct maker *k)
{
    const struct layer_geometry *g = &k->l->geometry;

    norm(k, BUFFER_X, MODEL_ATTN_NORM);
    heads(k);

    struct layer_op *op = add(k, OP_ATTEND, OP_QUERIES, g->n_head * g->v_dim);
    op->from[0] = BUFFER_Q;
    op->to[0] = BUFFER_ATTENTION;
    op->tensor[0] = MODEL_ATTN_SINKS;
    op->read = (struct op_memory){MEMORY_PAGES, g->memory};
    if (g->q_dim > g->k_dim)
        head_gate(k, BUFFER_Q, MODEL_NO_TENSOR, g->n_head * g->v_dim);

    op = matmul(k, BUFFER_ATTENTION, MODEL_ATTN_OUTPUT, BUFFER_H, k->m->n_embd);
    add_to_residual(k, op, MODEL_ATTN_OUT_BIAS, MODEL_ATTN_POST_NORM, BUFFER_X, BUFFER_H);
}

/* to = down(f(gate(NORM)) * up(NORM)); tensor: gate, up and down from there on */
static struct layer_op *dense(struct maker *k, uint32_t tensor, uint32_t n_ff, enum op_buffer to)
{
    and_part(matmul(k, BUFFER_NORM, tensor, BUFFER_FFN, n_ff), tensor + 1, BUFFER_UP);
    add_row(k, OP_GATE, BUFFER_FFN, MODEL_NO_TENSOR, BUFFER_FFN, n_ff)->from[1] = BUFFER_UP;
    return matmul(k, BUFFER_FFN, tensor + 2, to, k->m->n_embd);
}

/* A row's experts and their weights, by NORM. */
static void route(struct maker *k, bool gated)
{
    const uint32_t n = k->l->geometry.n_expert;
    struct layer_op *op = matmul(k, BUFFER_NORM, MODEL_FFN_ROUTER, BUFFER_ROUTER, n);
    if (gated)
        and_part(op, MODEL_FFN_SHARED_ROUTER, BUFFER_SHARED_GATE);
    op = add_row(k, OP_ROUTE, BUFFER_ROUTER, MODEL_FFN_CHOICE_BIAS, BUFFER_NONE, n);
    op->tensor[1] = MODEL_FFN_EXPERT_SCALE;
    op->bias[0] = MODEL_FFN_ROUTER_BIAS;
    op->check = true;
}

/* The sum over a row's experts of the same, and of the shared one. */
static struct layer_op *expert_sum(struct maker *k, bool shared, bool gated)
{
    const struct layer_geometry *g = &k->l->geometry;
    struct layer_op *op = add(k, OP_EXPERT_GATE, OP_EXPERTS, g->n_ff);
    op->from[0] = BUFFER_NORM;
    op->to[0] = BUFFER_EXPERTS;
    op->tensor[0] = MODEL_FFN_GATE_EXPS;
    op->tensor[1] = MODEL_FFN_UP_EXPS;
    op->bias[0] = MODEL_FFN_GATE_EXPS_BIAS;
    op->bias[1] = MODEL_FFN_UP_EXPS_BIAS;
    op->n_parts = 2;

    op = add(k, OP_EXPERT_SUM, OP_EXPERTS, k->m->n_embd);
    op->from[0] = BUFFER_EXPERTS;
    op->from[1] = shared ? BUFFER_SHARED : BUFFER_NONE;
    op->from[2] = gated ? BUFFER_SHARED_GATE : BUFFER_NONE;
    op->tensor[0] = MODEL_FFN_DOWN_EXPS;
    op->bias[0] = MODEL_FFN_DOWN_EXPS_BIAS;
    op->n_parts = 1;
    return op;
}

/* The sum of those experts that a router chooses, and of the shared one. */
static struct layer_op *experts(struct maker *k)
{
    const uint32_t n_ff = k->l->geometry.n_ff_shared;
    const bool gated = k->l->tensor[MODEL_FFN_SHARED_ROUTER].data;
    route(k, gated);
    if (n_ff > 0)
        dense(k, MODEL_FFN_GATE_SHARED, n_ff, BUFFER_SHARED);
    return expert_sum(k, n_ff > 0, gated);
}

/* The sum of a dense part and of experts, which read H by norms of their own, as does the router; each is normed before
 * they are added. */
static struct layer_op *dense_and_experts(struct maker *k)
{
    const uint32_t n = k->m->n_embd;
    dense(k, MODEL_FFN_GATE, k->l->geometry.n_ff_beside, BUFFER_ADDED);
    add_row(k, OP_ADD, BUFFER_ADDED, MODEL_FFN_DENSE_POST_NORM, BUFFER_SHARED, n);
    norm(k, BUFFER_H, MODEL_FFN_ROUTER_NORM)->factor = 1.0f / sqrtf((float)n);
    route(k, false);
    norm(k, BUFFER_H, MODEL_FFN_EXPERT_NORM);
    expert_sum(k, false, false)->to[0] = BUFFER_EXPERT_SUM;
    struct layer_op *op =
        add_row(k, OP_ADD, BUFFER_EXPERT_SUM, MODEL_FFN_EXPERT_POST_NORM, BUFFER_ADDED, n);
    op->residual = BUFFER_SHARED;
    return op;
}

/* to = H + feed-forward(H) */
static struct layer_op *feed_forward_part(struct maker *k, enum op_buffer to)
{
    norm(k, BUFFER_H, MODEL_FFN_NORM);
    const struct layer_geometry *g = &k->l->geometry;
    struct layer_op *op = g->n_expert == 0     ? dense(k, MODEL_FFN_GATE, g->n_ff, to)
                          : g->n_ff_beside > 0 ? dense_and_experts(k)
                                               : experts(k);
    return add_to_residual(k, op, MODEL_NO_TENSOR, MODEL_FFN_POST_NORM, BUFFER_H, to);
}

/* X = FED + out(f(gate(FED)) * the layer's own input) */
static struct layer_op *input_part(struct maker *k)
{
    const uint32_t n = k->m->n_per_layer;
    matmul(k, BUFFER_FED, MODEL_PER_LAYER_GATE, BUFFER_INPUT_GATE, n);
    struct layer_op *op =
        add_row(k, OP_GATE, BUFFER_INPUT_GATE, MODEL_NO_TENSOR, BUFFER_INPUT_GATE, n);
    op->from[1] = BUFFER_INPUTS;
    op->from_at = k->layer * n;
    op = matmul(k, BUFFER_INPUT_GATE, MODEL_PER_LAYER_OUT, BUFFER_X, k->m->n_embd);
    return add_to_residual(k, op, MODEL_NO_TENSOR, MODEL_PER_LAYER_POST_NORM, BUFFER_FED, BUFFER_X);
}

static void layer(struct maker *k)
{
    if (k->l->geometry.recurrent && k->l->geometry.delta.n_head_v == 0)
        short_part(k);
    else if (k->l->geometry.delta.mamba)
        mamba_part(k);
    else if (k->l->geometry.recurrent)
        delta_part(k);
    else
        attention_part(k);
    const bool input = k->m->n_per_layer > 0;
    struct layer_op *op = feed_forward_part(k, input ? BUFFER_FED : BUFFER_X);
    if (input)
        op = input_part(k);
    if (op->kind == OP_ADD)
        op->tensor[2] = MODEL_LAYER_SCALE;
    op->check = true;
}

static void of_no_layer(struct maker *k)
{
    k->layer = k->m->n_layer;
    k->l = NULL;
}

static void head(struct maker *k, uint32_t output_norm)
{
    struct layer_op *op = norm(k, BUFFER_X, output_norm);
    op->factor = 1.0f / k->m->logit_scale;
    op->wanted = true;
    of_no_layer(k);
    matmul(k, BUFFER_NORM, MODEL_OUTPUT, BUFFER_LOGITS, k->m->n_vocab)->wanted = true;
    if (k->m->logit_cap == 0)
        return;
    op = add_row(k, OP_CAP, BUFFER_LOGITS, MODEL_NO_TENSOR, BUFFER_LOGITS, k->m->n_vocab);
    op->factor = k->m->logit_cap;
    op->wanted = true;
}

/* HIDDEN = rmsnorm(X, its tensor), as the head of the rows sees it. */
static void hidden_row(struct maker *k, uint32_t tensor)
{
    struct layer_op *op = norm(k, BUFFER_X, tensor);
    op->to[0] = BUFFER_HIDDEN;
    op->factor = 1.0f / k->m->logit_scale;
}

/* The hidden rows are kept for those that follow. */
static void remember(struct maker *k)
{
    struct layer_op *op = add(k, OP_REMEMBER, OP_SEQUENCES, k->m->n_embd);
    op->from[0] = BUFFER_HIDDEN;
    op->append.class = MEMORY_STATE;
}

/* X = the next-token layer's input. */
static void join(struct maker *k)
{
    struct layer_op *op = add(k, OP_JOIN, OP_EACH_ROW, 2 * k->m->n_embd);
    op->from[0] = BUFFER_HIDDEN;
    op->to[0] = BUFFER_JOINED;
    op->tensor[0] = MODEL_MTP_TOKEN_NORM;
    op->tensor[1] = MODEL_MTP_HIDDEN_NORM;
    op->read.class = MEMORY_STATE;
}

static void of_mtp(struct maker *k)
{
    k->layer = k->m->n_layer + 1;
    k->l = &k->m->mtp->layer;
}

/* After the rows of a pass: their hidden rows, and K and V of the next-token layer; nothing
 * reads its Q. */
static void follow_rows(struct maker *k)
{
    const struct layer_geometry *g = &k->m->mtp->layer.geometry;
    of_no_layer(k);
    hidden_row(k, MODEL_OUTPUT_NORM);
    of_mtp(k);
    join(k);
    remember(k);
    matmul(k, BUFFER_JOINED, MODEL_MTP_JOIN, BUFFER_X, k->m->n_embd);
    norm(k, BUFFER_X, MODEL_ATTN_NORM);
    struct layer_op *op = matmul(k, BUFFER_NORM, MODEL_ATTN_K, BUFFER_K, g->n_head_kv * g->k_dim);
    and_part(op, MODEL_ATTN_V, BUFFER_V);
    qkv_finish(k)->to[0] = BUFFER_NONE;
}

/* A pass of the next-token layer alone: its hidden row takes the place of the model's. */
static void draft_rows(struct maker *k)
{
    const bool own_norm = k->m->mtp->layer.tensor[MODEL_MTP_OUTPUT_NORM].data != NULL;
    of_mtp(k);
    join(k);
    matmul(k, BUFFER_JOINED, MODEL_MTP_JOIN, BUFFER_X, k->m->n_embd);
    layer(k);
    if (!own_norm)
        of_no_layer(k);
    hidden_row(k, own_norm ? MODEL_MTP_OUTPUT_NORM : MODEL_OUTPUT_NORM);
    remember(k);
    k->ops->draft_head = k->ops->n;
    head(k, own_norm ? MODEL_MTP_OUTPUT_NORM : MODEL_OUTPUT_NORM);
}

/* The lists of the next-token layer, after the others. */
static void mtp_lists(struct maker *k)
{
    struct layer_ops *ops = k->ops;
    const uint32_t n = ops->n;
    ops->draft = ops->draft_head = n;
    if (k->m->mtp) {
        follow_rows(k);
        ops->draft = ops->n;
        draft_rows(k);
    }
    ops->end = ops->n;
    ops->n = n;
}

/* ---- what follows from them ------------------------------------------------------------------ */

static uint32_t width_of(const struct layer_op *op, enum op_buffer buffer)
{
    const struct layer_geometry *g = op->geometry;
    switch (buffer) {
    case BUFFER_K:
    case BUFFER_RAW_K:
        return g->n_head_kv * g->k_dim;
    case BUFFER_V:
        return g->n_head_kv * g->v_dim;
    case BUFFER_Z:
        return g->delta.n_head_v * g->delta.v_dim;
    case BUFFER_BETA:
    case BUFFER_DECAY:
        return g->delta.n_head_v;
    case BUFFER_SHARED_GATE:
        return 1;
    default:
        return op->n;
    }
}

static bool reads_matrix(const struct layer_op *op)
{
    return op->n_parts > 0;
}

static void find_widths(struct layer_ops *ops)
{
    for (uint32_t i = 0; i < ops->end; i++) {
        const struct layer_op *op = &ops->op[i];
        for (uint32_t j = 0; j < 3; j++) {
            const uint32_t width = op->to[j] ? width_of(op, op->to[j]) : 0;
            if (width > ops->width[op->to[j]])
                ops->width[op->to[j]] = width;
        }
        if (reads_matrix(op))
            ops->input[op->from[0]] = true;
    }
}

/* Which operations read what each writes, until another one writes it. */
static void find_readers(struct layer_ops *ops)
{
    for (uint32_t i = 0; i < ops->end; i++) {
        struct layer_op *op = &ops->op[i];
        uint32_t n = 0;
        for (uint32_t j = i + 1; j < ops->end && ops->op[j].to[0] != op->to[0]; j++)
            if (reads_matrix(&ops->op[j]) && ops->op[j].from[0] == op->to[0]) {
                assert(n < OP_READERS - 1);
                op->readers[n++] = &ops->op[j];
            }
    }
}

static void find_experts(const struct model *m, struct layer_ops *ops)
{
    for (uint32_t i = 0; i < m->n_layer; i++) {
        const struct layer_geometry *g = &m->layers[i].geometry;
        ops->n_expert = g->n_expert > ops->n_expert ? g->n_expert : ops->n_expert;
        if (g->n_expert_used > ops->n_expert_used)
            ops->n_expert_used = g->n_expert_used;
    }
}

int layer_ops_make(const struct model *m, struct layer_ops *ret)
{
    struct maker k = {.m = m, .ops = ret, .layer = m->n_layer};
    *ret = (struct layer_ops){
        .op = calloc(((size_t)m->n_layer + 2) * MOST_OF_LAYER + 2 * BEFORE_AND_HEAD,
                     sizeof(*ret->op))};
    if (!ret->op)
        return -ENOMEM;
    embedding(&k);
    inputs_of_layers(&k);
    for (uint32_t i = 0; i < m->n_layer; i++) {
        k.layer = i;
        k.l = &m->layers[i];
        layer(&k);
    }
    of_no_layer(&k);
    ret->head = ret->n;
    head(&k, MODEL_OUTPUT_NORM);
    mtp_lists(&k);
    find_widths(ret);
    find_readers(ret);
    find_experts(m, ret);
    return 0;
}

void layer_ops_free(struct layer_ops *ops)
{
    free(ops->op);
}
