/*
 * Loading goes in three steps: the file's kind (is there a model we know at all), the
 * hyperparameters (both in model_keys.c), the tensors. Shapes come from one table for all
 * architectures; an architecture says which of them it has.
 */
#include "kernels/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/model/model_load.h"
#include "kernels/quant/quant_block.h"

/* Sizes that a shape is made of. */
enum size {
    ONE,
    EMBD,
    Q_ROWS,
    K_ROWS,
    V_ROWS,
    ATTENDED,
    HEADS,
    Q_NORMED,
    K_NORMED,
    ROPE_PAIRS,
    PER_LAYER,
    ALL_LAYERS, /* PER_LAYER of each */
    FF,
    DENSE_FF, /* of a dense part, alone or beside experts */
    EXPERTS,
    GATE,
    SHARED_FF,
    EACH_EXPERT, /* a vector for each of them */
    VOCAB,
    CHANNELS,
    TAPS,
    DELTA_HEADS,
    DELTA_HEADS_TWICE,
    DELTA_DIM,
    DELTA_VALUES,
    GROUPS, /* of heads that are normed together: Mamba-2 */
    GROUP_VALUES,
    JOINED,
    SHORT_PARTS
};

struct shape {
    const char *name; /* in a layer without "blk.N." */
    enum size rows, cols;
    bool optional; /* the whole model may lack it; for layers the architecture says so */
    bool experts;  /* one such matrix for each expert */
    bool floats;   /* is F32, F16 or BF16 */
};

static const struct shape GLOBAL_SHAPES[MODEL_N_GLOBAL] = {
    [MODEL_TOKEN_EMBD] = {"token_embd.weight", VOCAB, EMBD, false},
    [MODEL_OUTPUT_NORM] = {"output_norm.weight", ONE, EMBD, false},
    [MODEL_OUTPUT] = {"output.weight", VOCAB, EMBD, true},
    [MODEL_ROPE_FREQS] = {"rope_freqs.weight", ONE, ROPE_PAIRS, true},
    [MODEL_ROPE_LONG] = {"rope_factors_long.weight", ONE, ROPE_PAIRS, true},
    [MODEL_ROPE_SHORT] = {"rope_factors_short.weight", ONE, ROPE_PAIRS, true},
    [MODEL_PER_LAYER_EMBD] = {"per_layer_token_embd.weight", VOCAB, ALL_LAYERS, false},
    [MODEL_PER_LAYER_PROJ] = {"per_layer_model_proj.weight", ALL_LAYERS, EMBD, .floats = true},
    [MODEL_PER_LAYER_NORM] = {"per_layer_proj_norm.weight", ONE, PER_LAYER, false},
};

static const struct shape LAYER_SHAPES[MODEL_N_LAYER_TENSORS] = {
    [MODEL_ATTN_NORM] = {"attn_norm.weight", ONE, EMBD, false},
    [MODEL_ATTN_Q] = {"attn_q.weight", Q_ROWS, EMBD, false},
    [MODEL_ATTN_K] = {"attn_k.weight", K_ROWS, EMBD, false},
    [MODEL_ATTN_V] = {"attn_v.weight", V_ROWS, EMBD, false},
    [MODEL_ATTN_OUTPUT] = {"attn_output.weight", EMBD, ATTENDED, false},
    [MODEL_ATTN_Q_BIAS] = {"attn_q.bias", ONE, Q_ROWS, false},
    [MODEL_ATTN_K_BIAS] = {"attn_k.bias", ONE, K_ROWS, false},
    [MODEL_ATTN_V_BIAS] = {"attn_v.bias", ONE, V_ROWS, false},
    [MODEL_ATTN_SINKS] = {"attn_sinks.weight", ONE, HEADS, false},
    [MODEL_ATTN_OUT_BIAS] = {"attn_output.bias", ONE, EMBD, false},
    [MODEL_ATTN_Q_NORM] = {"attn_q_norm.weight", ONE, Q_NORMED, false},
    [MODEL_ATTN_K_NORM] = {"attn_k_norm.weight", ONE, K_NORMED, false},
    [MODEL_ATTN_POST_NORM] = {"post_attention_norm.weight", ONE, EMBD, false},
    [MODEL_FFN_NORM] = {"ffn_norm.weight", ONE, EMBD, false},
    [MODEL_FFN_GATE] = {"ffn_gate.weight", DENSE_FF, EMBD, false},
    [MODEL_FFN_UP] = {"ffn_up.weight", DENSE_FF, EMBD, false},
    [MODEL_FFN_DOWN] = {"ffn_down.weight", EMBD, DENSE_FF, false},
    [MODEL_FFN_POST_NORM] = {"post_ffw_norm.weight", ONE, EMBD, false},
    [MODEL_FFN_ROUTER] = {"ffn_gate_inp.weight", EXPERTS, EMBD, false},
    [MODEL_FFN_CHOICE_BIAS] = {"exp_probs_b.bias", ONE, EXPERTS, false},
    [MODEL_FFN_SHARED_ROUTER] = {"ffn_gate_inp_shexp.weight", GATE, EMBD, false},
    [MODEL_FFN_GATE_SHARED] = {"ffn_gate_shexp.weight", SHARED_FF, EMBD, false},
    [MODEL_FFN_UP_SHARED] = {"ffn_up_shexp.weight", SHARED_FF, EMBD, false},
    [MODEL_FFN_DOWN_SHARED] = {"ffn_down_shexp.weight", EMBD, SHARED_FF, false},
    [MODEL_FFN_GATE_EXPS] = {"ffn_gate_exps.weight", FF, EMBD, .experts = true},
    [MODEL_FFN_UP_EXPS] = {"ffn_up_exps.weight", FF, EMBD, .experts = true},
    [MODEL_FFN_DOWN_EXPS] = {"ffn_down_exps.weight", EMBD, FF, .experts = true},
    [MODEL_DELTA_Z] = {"attn_gate.weight", DELTA_VALUES, EMBD, false},
    [MODEL_DELTA_QKV] = {"attn_qkv.weight", CHANNELS, EMBD, false},
    [MODEL_DELTA_ALPHA] = {"ssm_alpha.weight", DELTA_HEADS, EMBD, false},
    [MODEL_DELTA_BETA] = {"ssm_beta.weight", DELTA_HEADS, EMBD, false},
    [MODEL_DELTA_BETA_ALPHA] = {"ssm_ba.weight", DELTA_HEADS_TWICE, EMBD, false},
    [MODEL_DELTA_CONV] = {"ssm_conv1d.weight", CHANNELS, TAPS, false},
    [MODEL_DELTA_A] = {"ssm_a", ONE, DELTA_HEADS, false},
    [MODEL_DELTA_DT] = {"ssm_dt.bias", ONE, DELTA_HEADS, false},
    [MODEL_DELTA_NORM] = {"ssm_norm.weight", ONE, DELTA_DIM, false},
    [MODEL_DELTA_OUT] = {"ssm_out.weight", EMBD, DELTA_VALUES, false},
    [MODEL_MAMBA_CONV_BIAS] = {"ssm_conv1d.bias", ONE, CHANNELS, false},
    [MODEL_MAMBA_A] = {"ssm_a", DELTA_HEADS, ONE, false},
    [MODEL_MAMBA_D] = {"ssm_d", DELTA_HEADS, ONE, false},
    [MODEL_MAMBA_NORM] = {"ssm_norm.weight", GROUPS, GROUP_VALUES, false},
    [MODEL_SHORT_IN] = {"shortconv.in_proj.weight", SHORT_PARTS, EMBD, false},
    [MODEL_SHORT_CONV] = {"shortconv.conv.weight", CHANNELS, TAPS, false},
    [MODEL_SHORT_OUT] = {"shortconv.out_proj.weight", EMBD, CHANNELS, false},
    [MODEL_MTP_JOIN] = {"nextn.eh_proj.weight", EMBD, JOINED, false},
    [MODEL_MTP_TOKEN_NORM] = {"nextn.enorm.weight", ONE, EMBD, false},
    [MODEL_MTP_HIDDEN_NORM] = {"nextn.hnorm.weight", ONE, EMBD, false},
    [MODEL_MTP_OUTPUT_NORM] = {"nextn.shared_head_norm.weight", ONE, EMBD, false},
    [MODEL_FFN_ROUTER_BIAS] = {"ffn_gate_inp.bias", ONE, EXPERTS, false},
    [MODEL_FFN_GATE_EXPS_BIAS] = {"ffn_gate_exps.bias", EACH_EXPERT, FF, false},
    [MODEL_FFN_UP_EXPS_BIAS] = {"ffn_up_exps.bias", EACH_EXPERT, FF, false},
    [MODEL_FFN_DOWN_EXPS_BIAS] = {"ffn_down_exps.bias", EACH_EXPERT, EMBD, false},
    [MODEL_FFN_ROUTER_NORM] = {"ffn_gate_inp.scale", ONE, EMBD, false},
    [MODEL_FFN_EXPERT_NORM] = {"pre_ffw_norm_2.weight", ONE, EMBD, false},
    [MODEL_FFN_EXPERT_SCALE] = {"ffn_down_exps.scale", ONE, EXPERTS, false},
    [MODEL_FFN_DENSE_POST_NORM] = {"post_ffw_norm_1.weight", ONE, EMBD, false},
    [MODEL_FFN_EXPERT_POST_NORM] = {"post_ffw_norm_2.weight", ONE, EMBD, false},
    [MODEL_PER_LAYER_GATE] = {"inp_gate.weight", PER_LAYER, EMBD, false},
    [MODEL_PER_LAYER_OUT] = {"proj.weight", EMBD, PER_LAYER, false},
    [MODEL_PER_LAYER_POST_NORM] = {"post_norm.weight", ONE, EMBD, false},
    [MODEL_LAYER_SCALE] = {"layer_output_scale.weight", ONE, ONE, false},
};

/* ---- tensors --------------------------------------------------------------------------------- */

static uint32_t size_of(const struct model_loader *l, enum size size)
{
    const struct model *m = l->model;
    const struct layer_geometry *g = l->geometry;
    switch (size) {
    case ONE:
    case GATE: /* one output: a matrix nevertheless */
        return 1;
    case EMBD:
        return m->n_embd;
    case Q_ROWS:
        return g->n_head * g->q_dim;
    case K_ROWS:
        return g->n_head_kv * g->k_dim;
    case V_ROWS:
        return g->n_head_kv * g->v_dim;
    case ATTENDED:
        return g->n_head * g->v_dim;
    case HEADS:
        return g->n_head;
    case Q_NORMED:
        return g->whole_norms ? g->n_head * g->k_dim : g->k_dim;
    case K_NORMED:
        return g->whole_norms ? g->n_head_kv * g->k_dim : g->k_dim;
    case ROPE_PAIRS:
        return m->ropes[0].n / 2;
    case PER_LAYER:
        return m->n_per_layer;
    case ALL_LAYERS:
        return m->n_layer * m->n_per_layer;
    case FF:
        return g->n_ff;
    case DENSE_FF:
        return g->n_expert > 0 ? g->n_ff_beside : g->n_ff;
    case EXPERTS:
    case EACH_EXPERT:
        return g->n_expert;
    case SHARED_FF:
        return g->n_ff_shared;
    case VOCAB:
        return m->n_vocab;
    case CHANNELS:
        return m->delta.channels;
    case TAPS:
        return m->delta.taps;
    case DELTA_HEADS:
        return m->delta.n_head_v;
    case DELTA_HEADS_TWICE:
        return 2 * m->delta.n_head_v;
    case DELTA_DIM:
        return m->delta.v_dim;
    case DELTA_VALUES:
        return m->delta.n_head_v * m->delta.v_dim;
    case GROUPS:
        return m->delta.n_head_k;
    case GROUP_VALUES:
        return m->delta.n_head_v / m->delta.n_head_k * m->delta.v_dim;
    case JOINED:
        return 2 * m->n_embd;
    case SHORT_PARTS:
        return 3 * m->delta.channels;
    }
    return 0;
}

static bool is_router(const struct shape *shape)
{
    return shape->rows == EXPERTS || shape->rows == GATE;
}

/* Tensors that are F32 in every file, and that no matmul reads. */
static bool is_vector(const struct shape *shape)
{
    return shape->rows == ONE || shape->cols == ONE || shape->rows == EACH_EXPERT ||
           shape->rows == GROUPS || shape->cols == TAPS;
}

static bool matrix_type_valid(uint32_t type)
{
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16 || quant_readable(type);
}

/* Finds the tensor `name`, rows x cols, and makes a view of it. An absent optional one gives data
 * NULL. */
static int view_tensor(struct model_loader *l, const char *name, const struct shape *shape,
                       uint32_t rows, struct model_tensor *ret)
{
    const uint32_t cols = size_of(l, shape->cols),
                   n_matrices = shape->experts ? l->geometry->n_expert : 1;
    const struct gguf_tensor *t = gguf_find_tensor(l->gguf, name);
    if (!t && shape->optional)
        return 0;
    if (!t)
        return FAIL(l, -EBADMSG, "malformed: tensor %s is missing", name);
    if (t->ne[0] != cols || t->ne[1] != rows || t->ne[2] != n_matrices || t->ne[3] != 1)
        return FAIL(l, -EBADMSG,
                    "malformed: tensor %s is %llu x %llu x %llu x %llu, must be %u x %u x %u x 1",
                    name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                    (unsigned long long)t->ne[2], (unsigned long long)t->ne[3], cols, rows,
                    n_matrices);
    const struct quant_info *info = quant_find(t->type);
    if ((is_vector(shape) || is_router(shape)) && t->type != QUANT_F32)
        return FAIL(l, -ENOTSUP, "tensor %s is %s: not supported; %s must be F32", name, info->name,
                    is_vector(shape) ? "vectors" : "routers");
    if (!matrix_type_valid(t->type))
        return FAIL(l, -ENOTSUP,
                    "tensor %s is %s: not supported yet; supported: F32, F16, BF16, Q8_0, Q6_K, "
                    "Q5_K, Q5_1, Q5_0, Q4_K, Q4_1, Q4_0, Q3_K, Q2_K, IQ4_NL, IQ4_XS, IQ3_S, "
                    "IQ3_XXS, MXFP4",
                    name, info->name);
    if (shape->floats && info->quantized)
        return FAIL(l, -ENOTSUP, "tensor %s is %s: not supported; it must be F32, F16 or BF16",
                    name, info->name);
    if ((uintptr_t)t->data % (t->type == QUANT_F32 ? 4 : 2) != 0)
        return FAIL(l, -ENOTSUP,
                    "tensor %s is not aligned (general.alignment is %u): write the file again "
                    "with 32",
                    name, gguf_alignment(l->gguf));
    *ret = (struct model_tensor){.data = t->data,
                                 .type = t->type,
                                 .n_matrices = n_matrices,
                                 .rows = rows,
                                 .cols = cols,
                                 .row_bytes = t->bytes / n_matrices / rows,
                                 .matrix_bytes = t->bytes / n_matrices,
                                 .bytes = t->bytes,
                                 .index = (uint32_t)(t - l->gguf->tensors)};
    l->used[ret->index] = true;
    return 0;
}

/* The embedding gives the vocabulary its size; a tokenizer in the file must have the same. */
static int read_vocab_size(struct model_loader *l)
{
    const struct gguf_tensor *embd = gguf_find_tensor(l->gguf, "token_embd.weight");
    struct gguf_array tokens;
    if (!embd)
        return FAIL(l, -EBADMSG, "malformed: tensor token_embd.weight is missing");
    if (embd->ne[1] > MODEL_MAX_VOCAB)
        return FAIL(l, -ENOTSUP, "a vocabulary of %llu tokens: hearth takes up to %d",
                    (unsigned long long)embd->ne[1], MODEL_MAX_VOCAB);
    l->model->n_vocab = (uint32_t)embd->ne[1];
    if (!gguf_array(l->gguf, "tokenizer.ggml.tokens", &tokens) && tokens.count != l->model->n_vocab)
        return FAIL(l, -EBADMSG, "malformed: %llu tokens in the tokenizer, %u in token_embd.weight",
                    (unsigned long long)tokens.count, l->model->n_vocab);
    return 0;
}

/* Has it no KV of its own, but reads that of another layer? */
static bool shares_kv(const struct model_loader *l, uint32_t layer)
{
    return layer < l->model->n_layer && layer >= l->model->n_layer - l->model->n_shared_kv;
}

/* The layer whose KV a layer reads: itself, or the last one of its kind that has its own. n_layer: there is none. */
static uint32_t kv_layer_of(const struct model_loader *l, uint32_t layer)
{
    uint32_t i = layer + 1;
    if (!shares_kv(l, layer))
        return layer;
    while (i-- > 0)
        if (!shares_kv(l, i) && l->local[i] == l->local[layer])
            return i;
    return l->model->n_layer;
}

/* Layers that have the same kind of memory, of those before the one whose memory the layer has. */
static uint32_t memory_of(const struct model_loader *l, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < kv_layer_of(l, layer); i++)
        n += l->recurrent[i] == l->recurrent[layer] && !shares_kv(l, i);
    return n;
}

static bool has_rope(const struct model_loader *l, uint32_t layer)
{
    const uint32_t plain = l->arch->no_rope_period;
    const bool global = l->model->local_sliding_window > 0 && !l->local[layer];
    return !l->model->no_rope && !(plain > 0 && (layer + 1) % plain == 0) &&
           !(global && l->arch->local_rope_alone);
}

/* Layers of a model differ in which rope and which sliding window they have, in heads and KV, in
 * their widths, in experts, and in whether they are recurrent. */
static struct layer_geometry geometry_of(const struct model_loader *l, uint32_t layer)
{
    const struct model *m = l->model;
    const bool local = l->local[layer], own = local && m->local_head_dim > 0,
               dense = m->n_expert == 0 || layer < l->n_dense;
    const uint32_t k_dim = own ? m->local_head_dim : m->head_dim,
                   v_dim = own ? m->local_v_dim : m->v_dim;
    return (struct layer_geometry){
        .recurrent = l->recurrent[layer],
        .delta = l->recurrent[layer] ? m->delta : (struct delta_geometry){0},
        .memory = memory_of(l, layer),
        .shares_kv = shares_kv(l, layer),
        .value_norm = l->arch->value_norm,
        .whole_norms = l->arch->whole_norms,
        .q_dim = k_dim + (l->arch->head_gate ? v_dim : 0),
        .n_head = m->n_head,
        .n_head_kv = l->n_head_kv[layer],
        .k_dim = k_dim,
        .v_dim = v_dim,
        .n_ff = dense ? l->n_ff[layer] : m->n_ff,
        .n_ff_beside = dense || !l->arch->beside ? 0 : l->n_ff[layer],
        .n_expert = dense ? 0 : m->n_expert,
        .n_expert_used = dense ? 0 : m->n_expert_used,
        .n_ff_shared = dense ? 0 : l->n_ff_shared,
        .rope = has_rope(l, layer) ? local && m->n_ropes > 1 : MODEL_NO_ROPE,
        .sliding_window = local ? m->local_sliding_window : MODEL_NO_WINDOW,
    };
}

/* Tensors [first, first + n) of a layer that are one in a file, its rows one after the other, of
 * experts in each matrix: wherever it is there, or in files of some architectures always. */
static const struct fused {
    const char *name;
    enum model_layer_tensor first;
    uint32_t n;
    enum { ANYWHERE, WHERE_FUSED, WHERE_MAMBA } where;
} FUSED[] = {{"attn_qkv.weight", MODEL_ATTN_Q, 3, ANYWHERE},
             {"ffn_up.weight", MODEL_FFN_GATE, 2, WHERE_FUSED},
             {"ffn_gate_up_exps.weight", MODEL_FFN_GATE_EXPS, 2, ANYWHERE},
             {"ssm_in.weight", MODEL_DELTA_Z, 3, WHERE_MAMBA}};

static void name_tensor(char name[GGUF_MAX_NAME + 1], uint32_t layer, const char *part)
{
    snprintf(name, GGUF_MAX_NAME + 1, "blk.%u.%s", layer, part);
}

static const struct fused *find_fused(const struct model_loader *l, uint32_t layer, uint32_t tensor)
{
    char name[GGUF_MAX_NAME + 1];
    for (size_t i = 0; i < sizeof(FUSED) / sizeof(FUSED[0]); i++) {
        const struct fused *f = &FUSED[i];
        name_tensor(name, layer, f->name);
        if (tensor >= f->first && tensor < f->first + f->n &&
            (f->where == ANYWHERE      ? gguf_find_tensor(l->gguf, name) != NULL
             : f->where == WHERE_FUSED ? l->arch->fused
                                       : l->arch->mamba))
            return f;
    }
    return NULL;
}

/* Views of the rows of a fused tensor; tensor: those of the layer. */
static int view_fused(struct model_loader *l, const struct fused *f, uint32_t layer,
                      struct model_tensor *tensor)
{
    char name[GGUF_MAX_NAME + 1];
    struct model_tensor whole;
    uint32_t rows = 0;
    for (uint32_t i = f->first; i < f->first + f->n; i++)
        rows += size_of(l, LAYER_SHAPES[i].rows);
    name_tensor(name, layer, f->name);
    int rc = view_tensor(l, name, &LAYER_SHAPES[f->first], rows, &whole);
    for (uint32_t i = f->first; !rc && i < f->first + f->n; i++) {
        tensor[i] = whole;
        tensor[i].rows = size_of(l, LAYER_SHAPES[i].rows);
        tensor[i].bytes = whole.n_matrices * tensor[i].rows * whole.row_bytes;
        whole.data += tensor[i].rows * whole.row_bytes;
    }
    return rc;
}

/* What a layer of this geometry may hold. */
static uint64_t tensors_of(const struct model_loader *l)
{
    const struct model_mtp *mtp = l->model->mtp;
    if (mtp && l->geometry == &mtp->layer.geometry)
        return l->arch->tensors | l->arch->mtp_tensors;
    return l->geometry->recurrent ? l->arch->recurrent_tensors : l->arch->tensors;
}

/* Does it hold the tensor? */
static bool layer_has(const struct model_loader *l, enum model_layer_tensor tensor)
{
    const struct layer_geometry *g = l->geometry;
    if (!(tensors_of(l) >> tensor & 1))
        return false;
    switch (tensor) {
    case MODEL_FFN_GATE:
    case MODEL_FFN_UP:
    case MODEL_FFN_DOWN:
        return g->n_expert == 0 || g->n_ff_beside > 0;
    case MODEL_ATTN_K:
    case MODEL_ATTN_V:
    case MODEL_ATTN_K_NORM:
        return !g->shares_kv;
    case MODEL_FFN_ROUTER_NORM:
    case MODEL_FFN_EXPERT_NORM:
    case MODEL_FFN_EXPERT_SCALE:
    case MODEL_FFN_DENSE_POST_NORM:
    case MODEL_FFN_EXPERT_POST_NORM:
    case MODEL_FFN_ROUTER:
    case MODEL_FFN_CHOICE_BIAS:
    case MODEL_FFN_GATE_EXPS:
    case MODEL_FFN_UP_EXPS:
    case MODEL_FFN_DOWN_EXPS:
        return g->n_expert > 0;
    case MODEL_FFN_SHARED_ROUTER:
    case MODEL_FFN_GATE_SHARED:
    case MODEL_FFN_UP_SHARED:
    case MODEL_FFN_DOWN_SHARED:
        return g->n_ff_shared > 0;
    case MODEL_PER_LAYER_GATE:
    case MODEL_PER_LAYER_OUT:
    case MODEL_PER_LAYER_POST_NORM:
        return l->model->n_per_layer > 0;
    default:
        return true;
    }
}

static int view_layer(struct model_loader *l, uint32_t layer, struct model_tensor *tensor)
{
    char name[GGUF_MAX_NAME + 1];
    int rc = 0;
    for (uint32_t i = 0; i < MODEL_N_LAYER_TENSORS && !rc; i++) {
        const struct shape *shape = &LAYER_SHAPES[i];
        const struct fused *fused = find_fused(l, layer, i);
        if (!layer_has(l, i) || (fused && i != fused->first))
            continue;
        name_tensor(name, layer,
                    i == MODEL_FFN_NORM && l->arch->ffn_norm ? l->arch->ffn_norm : shape->name);
        if ((l->arch->optional >> i & 1) && !gguf_find_tensor(l->gguf, name))
            continue;
        rc = fused ? view_fused(l, fused, layer, tensor)
                   : view_tensor(l, name, shape, size_of(l, shape->rows), &tensor[i]);
    }
    if (!rc && tensor[MODEL_ATTN_K].data && !tensor[MODEL_ATTN_V].data &&
        l->geometry->k_dim != l->geometry->v_dim)
        return FAIL(l, -EBADMSG, "malformed: layer %u has no attn_v.weight, and heads of %u and %u",
                    layer, l->geometry->k_dim, l->geometry->v_dim);
    return rc;
}

/* A layer that shares KV needs one of its kind before it, with as many KV heads: it reads that
 * one's part of the pages. */
static int check_kv_layer(struct model_loader *l, uint32_t layer)
{
    const uint32_t from = kv_layer_of(l, layer);
    if (from == l->model->n_layer)
        return FAIL(l, -EBADMSG,
                    "malformed: layer %u shares KV (%s.attention.shared_kv_layers), and no "
                    "layer before these is %s",
                    layer, l->arch->name, l->local[layer] ? "local" : "global");
    if (l->n_head_kv[layer] != l->n_head_kv[from])
        return FAIL(l, -EBADMSG,
                    "malformed: layer %u with %u key/value heads shares those of layer %u, which "
                    "has %u",
                    layer, l->n_head_kv[layer], from, l->n_head_kv[from]);
    return 0;
}

static int view_layers(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = 0;
    m->layers = calloc(m->n_layer, sizeof(*m->layers));
    if (!m->layers)
        return FAIL(l, -ENOMEM, "not enough memory for the list of layers");
    for (uint32_t layer = 0; layer < m->n_layer && !rc; layer++) {
        rc = check_kv_layer(l, layer);
        if (rc)
            return rc;
        m->layers[layer].geometry = geometry_of(l, layer);
        l->geometry = &m->layers[layer].geometry;
        rc = view_layer(l, layer, m->layers[layer].tensor);
    }
    l->geometry = NULL;
    return rc;
}

/* Can hearth draft by the file's next-token layer: one that takes embedding and head from the model,
 * whose sequences have a state to keep a hidden row in? */
static bool drafts_by_mtp(const struct model_loader *l)
{
    static const char *const own[] = {"nextn.embed_tokens.weight", "nextn.shared_head_head.weight"};
    const uint32_t layer = l->model->n_layer;
    char name[GGUF_MAX_NAME + 1];
    if (l->arch->mtp_tensors == 0 || l->n_block != layer + 1 || l->model->n_recurrent == 0)
        return false;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        name_tensor(name, layer, own[i]);
        if (gguf_find_tensor(l->gguf, name))
            return false;
    }
    name_tensor(name, layer, LAYER_SHAPES[MODEL_MTP_JOIN].name);
    return gguf_find_tensor(l->gguf, name) != NULL;
}

static int view_mtp(struct model_loader *l)
{
    struct model *m = l->model;
    if (!drafts_by_mtp(l))
        return 0;
    m->mtp = calloc(1, sizeof(*m->mtp));
    if (!m->mtp)
        return FAIL(l, -ENOMEM, "not enough memory for the next-token layer");
    struct model_layer *layer = &m->mtp->layer;
    layer->geometry = geometry_of(l, m->n_layer);
    l->geometry = &layer->geometry;
    int rc = view_layer(l, m->n_layer, layer->tensor);
    l->geometry = NULL;
    for (uint32_t i = 0; i < MODEL_N_LAYER_TENSORS; i++)
        m->mtp->bytes += layer->tensor[i].bytes;
    return rc;
}

/* Is it of a layer that only drafts, or K and V of one that shares those of another? What is not
 * read there does no harm. */
static bool is_unread(const struct model_loader *l, struct gguf_string name)
{
    static const enum model_layer_tensor SHARED[] = {MODEL_ATTN_K, MODEL_ATTN_V, MODEL_ATTN_K_NORM};
    char text[GGUF_MAX_NAME + 1];
    uint32_t layer = 0;
    int end = 0;
    bool shared = false;
    snprintf(text, sizeof(text), "%.*s", GGUF_SHOW(name));
    if (sscanf(text, "blk.%u.%n", &layer, &end) != 1 || layer >= l->n_block)
        return false;
    for (size_t i = 0; i < sizeof(SHARED) / sizeof(SHARED[0]); i++)
        shared |= strcmp(text + end, LAYER_SHAPES[SHARED[i]].name) == 0;
    return layer >= l->model->n_layer || (shared && shares_kv(l, layer));
}

/* A tensor that no row of the table names means a model that computes something else. */
static int refuse_unused(struct model_loader *l)
{
    for (uint64_t i = 0; i < gguf_n_tensors(l->gguf); i++)
        if (!l->used[i] && !is_unread(l, gguf_tensor_at(l->gguf, i)->name))
            return FAIL(
                l, -ENOTSUP, "tensor %.*s is not part of %s with %u layers, as hearth knows it",
                GGUF_SHOW(gguf_tensor_at(l->gguf, i)->name), l->arch->name, l->model->n_layer);
    return 0;
}

/* Long divisors are for a context beyond the one that the model was first trained for. Which are
 * taken depends on the model alone: other engines change over while a text grows, and the same
 * position then has other keys than the ones in the cache. */
static int take_rope_divisors(struct model_loader *l)
{
    const struct model_tensor *global = l->model->global;
    enum model_global which = global[MODEL_ROPE_FREQS].data               ? MODEL_ROPE_FREQS
                              : l->model->n_context > l->original_context ? MODEL_ROPE_LONG
                                                                          : MODEL_ROPE_SHORT;
    const struct model_tensor *t = &global[which];
    const float *divisor = (const float *)(const void *)t->data;
    if (!global[MODEL_ROPE_LONG].data != !global[MODEL_ROPE_SHORT].data)
        return FAIL(l, -EBADMSG,
                    "malformed: rope_factors_long.weight and rope_factors_short.weight "
                    "belong together, one is missing");
    l->model->ropes[0].divisors = divisor;
    for (uint32_t i = 0; t->data && i < t->cols; i++)
        if (!(divisor[i] >= (float)MODEL_MIN_ROPE_DIVISOR &&
              divisor[i] <= (float)MODEL_MAX_ROPE_DIVISOR))
            return FAIL(l, -EBADMSG, "malformed: %s holds %g, must be %g to %g",
                        GLOBAL_SHAPES[which].name, (double)divisor[i], MODEL_MIN_ROPE_DIVISOR,
                        MODEL_MAX_ROPE_DIVISOR);
    return 0;
}

/* Those that the model has only with inputs of layers. */
static bool global_has(const struct model_loader *l, enum model_global tensor)
{
    return tensor < MODEL_PER_LAYER_EMBD || l->model->n_per_layer > 0;
}

static const char *global_name(const struct model_loader *l, enum model_global tensor)
{
    return tensor == MODEL_OUTPUT_NORM && l->arch->output_norm ? l->arch->output_norm
                                                               : GLOBAL_SHAPES[tensor].name;
}

/* What files of some architectures must have. */
static int check_globals(struct model_loader *l)
{
    const struct model *m = l->model;
    bool global = false;
    for (uint32_t i = 0; i < m->n_layer; i++)
        global |= !l->local[i];
    const bool head = l->arch->untied && !m->global[MODEL_OUTPUT].data,
               divisors = l->arch->local_heads && global && !m->global[MODEL_ROPE_FREQS].data;
    if (head || divisors)
        return FAIL(l, -EBADMSG, "malformed: tensor %s is missing",
                    GLOBAL_SHAPES[head ? MODEL_OUTPUT : MODEL_ROPE_FREQS].name);
    return 0;
}

static int view_tensors(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = read_vocab_size(l);
    for (uint32_t i = 0; i < MODEL_N_GLOBAL && !rc; i++)
        rc = global_has(l, i) ? view_tensor(l, global_name(l, i), &GLOBAL_SHAPES[i],
                                            size_of(l, GLOBAL_SHAPES[i].rows), &m->global[i])
                              : 0;
    if (!rc)
        rc = check_globals(l);
    if (!rc)
        rc = take_rope_divisors(l);
    if (!rc)
        rc = view_layers(l);
    if (!rc)
        rc = refuse_unused(l);
    if (rc)
        return rc;
    m->tied = !m->global[MODEL_OUTPUT].data;
    if (m->tied)
        m->global[MODEL_OUTPUT] = m->global[MODEL_TOKEN_EMBD];
    for (uint64_t i = 0; i < gguf_n_tensors(l->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(l->gguf, i);
        m->hashes[i].unused = !l->used[i];
        m->n_params += l->used[i] ? t->ne[0] * t->ne[1] * t->ne[2] : 0;
        m->tensor_bytes += l->used[i] ? t->bytes : 0;
    }
    return view_mtp(l);
}

/* ---- the model ------------------------------------------------------------------------------- */

int model_open(const struct gguf *gguf, struct model **ret_model, char *err, size_t err_bytes)
{
    return model_open_scaled(gguf, NULL, ret_model, err, err_bytes);
}

int model_open_scaled(const struct gguf *gguf, const char *rope_scaling, struct model **ret_model,
                      char *err, size_t err_bytes)
{
    struct model *model = calloc(1, sizeof(*model));
    if (!model)
        return fail(err, err_bytes, -ENOMEM, "not enough memory for the model");
    model->gguf = gguf;
    model->name.data = "";
    struct model_loader l = {.gguf = gguf,
                             .model = model,
                             .rope_scaling = rope_scaling,
                             .err = err,
                             .err_bytes = err_bytes};
    int rc = model_check_kind(&l);
    if (!rc)
        rc = model_read_keys(&l);
    if (!rc && !(l.used = calloc(gguf_n_tensors(gguf), sizeof(*l.used))))
        rc = fail(err, err_bytes, -ENOMEM, "not enough memory for the list of tensors");
    if (!rc && !(model->hashes = calloc(gguf_n_tensors(gguf), sizeof(*model->hashes))))
        rc = fail(err, err_bytes, -ENOMEM, "not enough memory for the tensors' hashes");
    if (!rc)
        rc = view_tensors(&l);
    if (!rc && layer_ops_make(model, &model->ops))
        rc = fail(err, err_bytes, -ENOMEM, "not enough memory for the list of operations");
    free(l.used);
    if (rc) {
        model_close(model);
        return rc;
    }
    *ret_model = model;
    return 0;
}

void model_close(struct model *model)
{
    if (!model)
        return;
    layer_ops_free(&model->ops);
    free(model->mtp);
    free(model->layers);
    free(model->hashes);
    free(model);
}

bool model_layer_vector(enum model_layer_tensor tensor)
{
    return is_vector(&LAYER_SHAPES[tensor]);
}

bool model_global_vector(enum model_global tensor)
{
    return GLOBAL_SHAPES[tensor].rows == ONE;
}

bool model_layer_small(enum model_layer_tensor tensor)
{
    return is_router(&LAYER_SHAPES[tensor]) || tensor == MODEL_DELTA_BETA ||
           tensor == MODEL_DELTA_ALPHA || tensor == MODEL_DELTA_BETA_ALPHA;
}

bool model_portable(const struct model *model)
{
    for (uint32_t layer = 0; layer < model->n_layer; layer++)
        for (uint32_t i = 0; i < MODEL_N_LAYER_TENSORS; i++) {
            const struct model_tensor *t = &model->layers[layer].tensor[i];
            if (t->data && !model_layer_vector(i) &&
                !(model_layer_small(i) && t->type == QUANT_F32) && !quant_find(t->type)->quantized)
                return false;
        }
    return true;
}

bool model_kv_f32(const struct model *model)
{
    for (uint32_t layer = 0; layer < model->n_layer; layer++)
        for (uint32_t i = 0; i < MODEL_N_LAYER_TENSORS; i++) {
            const struct model_tensor *t = &model->layers[layer].tensor[i];
            if (t->data && t->type != QUANT_F32)
                return false;
        }
    return true;
}

const char *model_numerics_id(const struct model *model, bool kv_q8_0)
{
    if (model_portable(model))
        return kv_q8_0 ? "portable-1-kvq8" : "portable-1";
    if (kv_q8_0)
        return "cpu-float-1-kvq8";
    return model_kv_f32(model) ? "cpu-float-1-kvf32" : "cpu-float-1";
}

const char *model_type_name(const struct model *model)
{
    uint64_t bytes[QUANT_TYPES] = {0};
    uint32_t most = QUANT_F32;
    for (uint32_t layer = 0; layer < model->n_layer; layer++)
        for (uint32_t i = 0; i < MODEL_N_LAYER_TENSORS; i++)
            if (!model_layer_vector(i))
                bytes[model->layers[layer].tensor[i].type] += model->layers[layer].tensor[i].bytes;
    for (uint32_t type = 0; type < QUANT_TYPES; type++)
        if (bytes[type] > bytes[most])
            most = type;
    return quant_name(most);
}

void model_describe(const struct model *m, char *text, size_t text_bytes)
{
    char experts[64] = "";
    if (m->n_expert)
        snprintf(experts, sizeof(experts), "%u of %u experts%s, ", m->n_expert_used, m->n_expert,
                 m->layers[m->n_layer - 1].geometry.n_ff_shared > 0 ? " and a shared one" : "");
    snprintf(text, text_bytes,
             "%s, %s, %.2f M parameters, %.1f MiB, %u layers%s, width %u, %u heads (%u kv) of %u, "
             "%svocabulary %u, context %u%s",
             m->arch, model_type_name(m), (double)m->n_params / 1e6,
             (double)m->tensor_bytes / (1 << 20), m->n_layer, m->mtp ? " and one that drafts" : "",
             m->n_embd, m->n_head, m->n_head_kv, m->head_dim, experts, m->n_vocab, m->n_context,
             m->sliding_window == m->n_context ? " (its sliding window)" : "");
}
