/* random_model.c: lists the tensors of an architecture and computes their rows. See
 * random_model.h. */
#include "kernels/tools/random_model.h"

#include "kernels/model/model_arch.h"
#include "kernels/sample/philox.h"
#include "kernels/quant/quant_types.h"
#include "kernels/tools/vocabulary.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The numbers are part of what a seed means: append new kinds at the end. */
enum kind {
    EMBD,
    OUTPUT_NORM,
    OUTPUT,
    ATTN_NORM,
    ATTN_Q,
    ATTN_K,
    ATTN_V,
    ATTN_OUTPUT,
    ATTN_Q_BIAS,
    ATTN_K_BIAS,
    ATTN_V_BIAS,
    ATTN_Q_NORM,
    ATTN_K_NORM,
    FFN_NORM,
    FFN_GATE,
    FFN_UP,
    FFN_DOWN,
    CODE, /* not a tensor: the codes of a peaked model's tokens, one row each */
    ATTN_POST_NORM,
    FFN_POST_NORM,
    ATTN_QKV, /* fused: rows of Q, K, V */
    FFN_GATE_UP,
    FFN_ROUTER,
    FFN_GATE_EXPS,
    FFN_UP_EXPS,
    FFN_DOWN_EXPS,
    FFN_CHOICE_BIAS,
    FFN_SHARED_ROUTER,
    FFN_GATE_SHARED,
    FFN_UP_SHARED,
    FFN_DOWN_SHARED,
    DELTA_QKV,
    DELTA_Z,
    DELTA_BETA,
    DELTA_ALPHA,
    DELTA_CONV,
    DELTA_A,
    DELTA_DT,
    DELTA_NORM,
    DELTA_OUT,
    ATTN_SINKS,
    ATTN_OUT_BIAS,
    FFN_ROUTER_BIAS,
    FFN_GATE_EXPS_BIAS,
    FFN_UP_EXPS_BIAS,
    FFN_DOWN_EXPS_BIAS,
    MTP_JOIN,
    MTP_TOKEN_NORM,
    MTP_HIDDEN_NORM,
    MTP_OUTPUT_NORM,
    MARK, /* not a tensor: which words of a peaked model carry a mark */
    FFN_ROUTER_NORM,
    FFN_EXPERT_NORM,
    FFN_EXPERT_SCALE,
    FFN_DENSE_POST_NORM,
    FFN_EXPERT_POST_NORM,
    INPUT_GATE,
    INPUT_OUT,
    INPUT_POST_NORM,
    LAYER_SCALE,
    INPUT_EMBD, /* of no layer, as those below */
    INPUT_PROJ,
    INPUT_NORM,
    ROPE_FREQS,
    DELTA_BETA_ALPHA, /* of a layer again */
    SHORT_IN,
    SHORT_CONV,
    SHORT_OUT,
    MAMBA_IN, /* fused: rows of z, of x, B and C, of steps */
    MAMBA_CONV_BIAS,
    MAMBA_A,
    MAMBA_D,
    MAMBA_NORM,
    FFN_GATE_UP_EXPS, /* fused: of each expert rows of gate, then of up */
    N_KINDS,
};

enum { SHORT_TAPS = 3 }; /* of a short convolution */

/* In file order; a layer has those of its architecture (kernels/model/model_arch.h). */
static const struct {
    const char *name;
    enum kind kind;
    enum model_layer_tensor tensor;
} layer_tensors[] = {
    {"attn_norm.weight", ATTN_NORM, MODEL_ATTN_NORM},
    {"attn_q.weight", ATTN_Q, MODEL_ATTN_Q},
    {"attn_k.weight", ATTN_K, MODEL_ATTN_K},
    {"attn_v.weight", ATTN_V, MODEL_ATTN_V},
    {"attn_output.weight", ATTN_OUTPUT, MODEL_ATTN_OUTPUT},
    {"attn_q.bias", ATTN_Q_BIAS, MODEL_ATTN_Q_BIAS},
    {"attn_k.bias", ATTN_K_BIAS, MODEL_ATTN_K_BIAS},
    {"attn_v.bias", ATTN_V_BIAS, MODEL_ATTN_V_BIAS},
    {"attn_q_norm.weight", ATTN_Q_NORM, MODEL_ATTN_Q_NORM},
    {"attn_k_norm.weight", ATTN_K_NORM, MODEL_ATTN_K_NORM},
    {"post_attention_norm.weight", ATTN_POST_NORM, MODEL_ATTN_POST_NORM},
    {"ffn_norm.weight", FFN_NORM, MODEL_FFN_NORM},
    {"ffn_gate.weight", FFN_GATE, MODEL_FFN_GATE},
    {"ffn_up.weight", FFN_UP, MODEL_FFN_UP},
    {"ffn_down.weight", FFN_DOWN, MODEL_FFN_DOWN},
    {"post_ffw_norm.weight", FFN_POST_NORM, MODEL_FFN_POST_NORM},
    {"attn_qkv.weight", ATTN_QKV, MODEL_ATTN_Q},
    {"ffn_up.weight", FFN_GATE_UP, MODEL_FFN_UP},
    {"ffn_gate_inp.weight", FFN_ROUTER, MODEL_FFN_ROUTER},
    {"ffn_gate_exps.weight", FFN_GATE_EXPS, MODEL_FFN_GATE_EXPS},
    {"ffn_up_exps.weight", FFN_UP_EXPS, MODEL_FFN_UP_EXPS},
    {"ffn_gate_up_exps.weight", FFN_GATE_UP_EXPS, MODEL_FFN_GATE_EXPS},
    {"ffn_down_exps.weight", FFN_DOWN_EXPS, MODEL_FFN_DOWN_EXPS},
    {"exp_probs_b.bias", FFN_CHOICE_BIAS, MODEL_FFN_CHOICE_BIAS},
    {"attn_sinks.weight", ATTN_SINKS, MODEL_ATTN_SINKS},
    {"attn_output.bias", ATTN_OUT_BIAS, MODEL_ATTN_OUT_BIAS},
    {"ffn_gate_inp.bias", FFN_ROUTER_BIAS, MODEL_FFN_ROUTER_BIAS},
    {"ffn_gate_exps.bias", FFN_GATE_EXPS_BIAS, MODEL_FFN_GATE_EXPS_BIAS},
    {"ffn_up_exps.bias", FFN_UP_EXPS_BIAS, MODEL_FFN_UP_EXPS_BIAS},
    {"ffn_down_exps.bias", FFN_DOWN_EXPS_BIAS, MODEL_FFN_DOWN_EXPS_BIAS},
    {"ffn_gate_inp_shexp.weight", FFN_SHARED_ROUTER, MODEL_FFN_SHARED_ROUTER},
    {"ffn_gate_shexp.weight", FFN_GATE_SHARED, MODEL_FFN_GATE_SHARED},
    {"ffn_up_shexp.weight", FFN_UP_SHARED, MODEL_FFN_UP_SHARED},
    {"ffn_down_shexp.weight", FFN_DOWN_SHARED, MODEL_FFN_DOWN_SHARED},
    {"attn_qkv.weight", DELTA_QKV, MODEL_DELTA_QKV},
    {"attn_gate.weight", DELTA_Z, MODEL_DELTA_Z},
    {"ssm_beta.weight", DELTA_BETA, MODEL_DELTA_BETA},
    {"ssm_alpha.weight", DELTA_ALPHA, MODEL_DELTA_ALPHA},
    {"ssm_ba.weight", DELTA_BETA_ALPHA, MODEL_DELTA_BETA_ALPHA},
    {"ssm_conv1d.weight", DELTA_CONV, MODEL_DELTA_CONV},
    {"ssm_a", DELTA_A, MODEL_DELTA_A},
    {"ssm_dt.bias", DELTA_DT, MODEL_DELTA_DT},
    {"ssm_norm.weight", DELTA_NORM, MODEL_DELTA_NORM},
    {"ssm_out.weight", DELTA_OUT, MODEL_DELTA_OUT},
    {"ssm_in.weight", MAMBA_IN, MODEL_DELTA_Z},
    {"ssm_conv1d.bias", MAMBA_CONV_BIAS, MODEL_MAMBA_CONV_BIAS},
    {"ssm_a", MAMBA_A, MODEL_MAMBA_A},
    {"ssm_d", MAMBA_D, MODEL_MAMBA_D},
    {"ssm_norm.weight", MAMBA_NORM, MODEL_MAMBA_NORM},
    {"shortconv.in_proj.weight", SHORT_IN, MODEL_SHORT_IN},
    {"shortconv.conv.weight", SHORT_CONV, MODEL_SHORT_CONV},
    {"shortconv.out_proj.weight", SHORT_OUT, MODEL_SHORT_OUT},
    {"nextn.eh_proj.weight", MTP_JOIN, MODEL_MTP_JOIN},
    {"nextn.enorm.weight", MTP_TOKEN_NORM, MODEL_MTP_TOKEN_NORM},
    {"nextn.hnorm.weight", MTP_HIDDEN_NORM, MODEL_MTP_HIDDEN_NORM},
    {"nextn.shared_head_norm.weight", MTP_OUTPUT_NORM, MODEL_MTP_OUTPUT_NORM},
    {"ffn_gate_inp.scale", FFN_ROUTER_NORM, MODEL_FFN_ROUTER_NORM},
    {"pre_ffw_norm_2.weight", FFN_EXPERT_NORM, MODEL_FFN_EXPERT_NORM},
    {"ffn_down_exps.scale", FFN_EXPERT_SCALE, MODEL_FFN_EXPERT_SCALE},
    {"post_ffw_norm_1.weight", FFN_DENSE_POST_NORM, MODEL_FFN_DENSE_POST_NORM},
    {"post_ffw_norm_2.weight", FFN_EXPERT_POST_NORM, MODEL_FFN_EXPERT_POST_NORM},
    {"inp_gate.weight", INPUT_GATE, MODEL_PER_LAYER_GATE},
    {"proj.weight", INPUT_OUT, MODEL_PER_LAYER_OUT},
    {"post_norm.weight", INPUT_POST_NORM, MODEL_PER_LAYER_POST_NORM},
    {"layer_output_scale.weight", LAYER_SCALE, MODEL_LAYER_SCALE},
};
enum { N_LAYER_TENSORS = sizeof(layer_tensors) / sizeof(layer_tensors[0]) };

static const struct model_arch *find_arch(const char *name)
{
    return model_arch_find((struct gguf_string){name, strlen(name)});
}

bool random_model_arch_valid(const char *arch)
{
    return find_arch(arch) != NULL;
}

bool random_model_arch_mtp(const char *arch)
{
    return find_arch(arch)->mtp_tensors != 0;
}

static bool is_tied(const struct random_model *m)
{
    return m->shape->tied && !find_arch(m->arch)->untied;
}

/* ---- the list -------------------------------------------------------------------------------- */

struct place {
    enum kind kind;
    uint32_t layer;
    const char *name; /* without "blk.N." */
};

/* The layers that have attention are every n-th: as is assumed if no key says otherwise, of short
 * convolutions every third, of Mamba-2 every tenth; in a model with fewer layers every second. 0: all
 * have. */
static uint32_t attention_period(const struct random_model *m)
{
    const struct model_arch *arch = find_arch(m->arch);
    const uint32_t period = arch->short_conv ? 3 : arch->mamba ? 10 : arch->recurrent_period;
    return m->shape->n_layer < period ? 2 : period;
}

static bool is_recurrent(const struct random_model *m, uint32_t layer)
{
    const uint32_t period = attention_period(m);
    return period > 0 && (layer + 1) % period != 0 && layer < m->shape->n_layer;
}

/* ---- layers of two kinds: gemma4 ------------------------------------------------------------- */

static bool of_two_kinds(const struct random_model *m)
{
    return find_arch(m->arch)->local_heads;
}

static bool is_global(const struct random_model *m, uint32_t layer)
{
    return !of_two_kinds(m) || (layer + 1) % shape_kinds(m->shape).period == 0;
}

static bool shares_kv(const struct random_model *m, uint32_t layer)
{
    return of_two_kinds(m) && layer >= m->shape->n_layer - shape_kinds(m->shape).n_shared_kv;
}

static uint32_t head_dim_of(const struct random_model *m, uint32_t layer)
{
    return is_global(m, layer) ? m->shape->head_dim : shape_kinds(m->shape).local_head_dim;
}

static uint32_t n_head_kv_of(const struct random_model *m, uint32_t layer)
{
    return is_global(m, layer) ? m->shape->n_head_kv : shape_kinds(m->shape).local_kv;
}

static uint32_t n_ff_of(const struct random_model *m, uint32_t layer)
{
    return shares_kv(m, layer) && shape_kinds(m->shape).double_ff ? 2 * m->shape->n_ff
                                                                  : m->shape->n_ff;
}

static uint32_t n_per_layer(const struct random_model *m)
{
    return of_two_kinds(m) ? shape_kinds(m->shape).n_per_layer : 0;
}

/* What a layer lacks, that others of the architecture hold: K and V of another's, experts and inputs
 * that the real model has not. */
static bool is_lacking(const struct random_model *m, uint32_t layer, enum kind kind)
{
    const bool kv = kind == ATTN_K || kind == ATTN_V || kind == ATTN_K_NORM,
               experts = (kind >= FFN_ROUTER && kind <= FFN_DOWN_SHARED) ||
                         kind == FFN_GATE_UP_EXPS ||
                         (kind >= FFN_ROUTER_NORM && kind <= FFN_EXPERT_POST_NORM),
               inputs = kind >= INPUT_GATE && kind <= INPUT_POST_NORM;
    return (kv && shares_kv(m, layer)) || (experts && m->shape->n_expert == 0) ||
           (inputs && n_per_layer(m) == 0) ||
           (kind == ATTN_V && is_global(m, layer) && shape_kinds(m->shape).no_v);
}

/* Whether a layer holds such a tensor: what is fused in place of its parts. All layers have experts,
 * if all files of the architecture have them. */
static bool is_listed(const struct random_model *m, uint32_t layer, uint32_t i)
{
    const struct model_arch *arch = find_arch(m->arch);
    const uint64_t of_mtp = layer == m->shape->n_layer ? arch->mtp_tensors : 0,
                   tensors =
                       is_recurrent(m, layer) ? arch->recurrent_tensors : arch->tensors | of_mtp;
    const enum kind kind = layer_tensors[i].kind;
    const bool dense = kind == FFN_GATE || kind == FFN_UP || kind == FFN_DOWN,
               of_experts = kind >= FFN_ROUTER && kind <= FFN_DOWN_SHARED;
    if (arch->beside ? is_lacking(m, layer, kind) : arch->experts ? dense : of_experts)
        return false;
    const bool fused = kind == ATTN_QKV || kind == FFN_GATE_UP,
               part = kind == ATTN_Q || kind == ATTN_K || kind == ATTN_V || kind == FFN_GATE ||
                      kind == FFN_UP,
               of_delta = kind >= DELTA_QKV && kind <= DELTA_ALPHA,
               of_merged = kind == FFN_GATE_EXPS || kind == FFN_UP_EXPS;
    return (tensors >> layer_tensors[i].tensor & 1) && (arch->fused ? !part : !fused) &&
           (arch->mamba ? !of_delta : kind != MAMBA_IN) &&
           (arch->beside ? !of_merged : kind != FFN_GATE_UP_EXPS);
}

/* Of the file, that of the next token included. */
static uint32_t n_layers(const struct random_model *m)
{
    return m->shape->n_layer + (m->mtp && random_model_arch_mtp(m->arch));
}

/* The list of tensors: embedding, layers, output norm, output. Returns false after the last one. */
static bool place_of(const struct random_model *m, uint32_t tensor, struct place *ret)
{
    const struct model_arch *arch = find_arch(m->arch);
    *ret = (struct place){EMBD, 0, "token_embd.weight"};
    if (tensor-- == 0)
        return true;
    for (uint32_t layer = 0; layer < n_layers(m); layer++)
        for (uint32_t i = 0; i < N_LAYER_TENSORS; i++)
            if (is_listed(m, layer, i) && tensor-- == 0) {
                const bool norm = layer_tensors[i].kind == FFN_NORM && arch->ffn_norm;
                *ret = (struct place){layer_tensors[i].kind, layer,
                                      norm ? arch->ffn_norm : layer_tensors[i].name};
                return true;
            }
    const struct place last[] = {
        {OUTPUT_NORM, 0, arch->output_norm ? arch->output_norm : "output_norm.weight"},
        {OUTPUT, 0, "output.weight"},
        {ROPE_FREQS, 0, "rope_freqs.weight"},
        {INPUT_EMBD, 0, "per_layer_token_embd.weight"},
        {INPUT_PROJ, 0, "per_layer_model_proj.weight"},
        {INPUT_NORM, 0, "per_layer_proj_norm.weight"}};
    if (tensor > 0 && is_tied(m))
        tensor++;
    const uint32_t n = n_per_layer(m) > 0 ? 6 : of_two_kinds(m) ? 3 : 2;
    if (tensor >= n)
        return false;
    *ret = last[tensor];
    return true;
}

/* Where experts were asked for and the shape has none: eight, half as wide, two of them used. */
static uint32_t n_expert(const struct model_shape *s)
{
    return s->n_expert ? s->n_expert : 8;
}

static uint32_t n_expert_used(const struct model_shape *s)
{
    return s->n_expert ? s->n_expert_used : 2;
}

static uint32_t n_ff_expert(const struct model_shape *s)
{
    return s->n_expert ? s->n_ff_expert : s->n_ff / 2;
}

static uint32_t matrices_of(const struct model_shape *s, enum kind kind) /* 0: not of experts */
{
    const bool of_experts = kind == FFN_GATE_EXPS || kind == FFN_UP_EXPS ||
                            kind == FFN_GATE_UP_EXPS || kind == FFN_DOWN_EXPS;
    return of_experts ? n_expert(s) : 0;
}

/* Of a recurrent layer. Mamba-2 has sizes of its own: twice as many values as the residual. */
static struct shape_delta delta_of(const struct random_model *m)
{
    return find_arch(m->arch)->mamba ? (struct shape_delta){1, m->shape->n_embd / 32, 128, 64}
                                     : shape_delta(m->shape);
}

static uint32_t delta_values(const struct random_model *m)
{
    return delta_of(m).v_heads * delta_of(m).v_dim;
}

static uint32_t delta_channels(const struct random_model *m)
{
    return 2 * delta_of(m).k_heads * delta_of(m).k_dim + delta_values(m);
}

static uint32_t cols_of(const struct random_model *m, struct place p)
{
    const struct model_shape *s = m->shape;
    const bool whole = find_arch(m->arch)->whole_norms;
    switch (p.kind) {
    case ATTN_OUTPUT:
    case ATTN_Q_BIAS:
        return s->n_head * head_dim_of(m, p.layer);
    case ATTN_K_BIAS:
    case ATTN_V_BIAS:
        return n_head_kv_of(m, p.layer) * head_dim_of(m, p.layer);
    case ATTN_Q_NORM:
        return head_dim_of(m, p.layer) * (whole ? s->n_head : 1);
    case ATTN_K_NORM:
        return head_dim_of(m, p.layer) * (whole ? s->n_head_kv : 1);
    case FFN_DOWN:
        return n_ff_of(m, p.layer);
    case FFN_DOWN_EXPS:
    case FFN_DOWN_SHARED: /* the shared expert is as wide as the others */
    case FFN_GATE_EXPS_BIAS:
    case FFN_UP_EXPS_BIAS:
        return n_ff_expert(s);
    case FFN_CHOICE_BIAS:
    case FFN_ROUTER_BIAS:
    case FFN_EXPERT_SCALE:
        return n_expert(s);
    case INPUT_OUT:
    case INPUT_NORM:
        return n_per_layer(m);
    case INPUT_EMBD:
        return n_per_layer(m) * s->n_layer;
    case LAYER_SCALE:
        return 1;
    case ROPE_FREQS:
        return s->head_dim / 2;
    case DELTA_CONV:
        return MODEL_TAPS;
    case SHORT_CONV:
        return SHORT_TAPS;
    case MAMBA_A:
    case MAMBA_D:
        return 1;
    case MAMBA_CONV_BIAS:
        return delta_channels(m);
    case DELTA_A:
    case DELTA_DT:
        return delta_of(m).v_heads;
    case DELTA_NORM:
        return delta_of(m).v_dim;
    case DELTA_OUT:
    case MAMBA_NORM:
        return delta_values(m);
    case ATTN_SINKS:
        return s->n_head;
    case MTP_JOIN:
        return 2 * s->n_embd;
    default:
        return s->n_embd;
    }
}

static uint32_t rows_of(const struct random_model *m, struct place p) /* 0: a vector */
{
    const struct model_shape *s = m->shape;
    switch (p.kind) {
    case EMBD:
    case INPUT_EMBD:
    case OUTPUT:
        return s->n_vocab;
    case ATTN_Q:
        return s->n_head * head_dim_of(m, p.layer) * (find_arch(m->arch)->head_gate ? 2 : 1);
    case ATTN_K:
    case ATTN_V:
        return n_head_kv_of(m, p.layer) * head_dim_of(m, p.layer);
    case INPUT_GATE:
        return n_per_layer(m);
    case INPUT_PROJ:
        return n_per_layer(m) * s->n_layer;
    case INPUT_OUT:
    case ATTN_OUTPUT:
    case FFN_DOWN:
    case FFN_DOWN_EXPS:
    case FFN_DOWN_SHARED:
    case DELTA_OUT:
    case MTP_JOIN:
    case SHORT_CONV:
    case SHORT_OUT:
        return s->n_embd;
    case SHORT_IN:
        return 3 * s->n_embd;
    case DELTA_QKV:
    case DELTA_CONV:
        return delta_channels(m);
    case DELTA_Z:
        return delta_values(m);
    case MAMBA_IN:
        return delta_values(m) + delta_channels(m) + delta_of(m).v_heads;
    case MAMBA_A:
    case MAMBA_D:
    case DELTA_BETA:
    case DELTA_ALPHA:
        return delta_of(m).v_heads;
    case DELTA_BETA_ALPHA:
        return 2 * delta_of(m).v_heads;
    case FFN_SHARED_ROUTER:
        return 1;
    case FFN_ROUTER:
    case FFN_GATE_EXPS_BIAS:
    case FFN_UP_EXPS_BIAS:
    case FFN_DOWN_EXPS_BIAS:
        return n_expert(s);
    case FFN_GATE_EXPS:
    case FFN_UP_EXPS:
    case FFN_GATE_SHARED:
    case FFN_UP_SHARED:
        return n_ff_expert(s);
    case FFN_GATE_UP_EXPS:
        return 2 * n_ff_expert(s);
    case ATTN_QKV:
        return (s->n_head + 2 * s->n_head_kv) * s->head_dim;
    case FFN_GATE:
    case FFN_UP:
        return n_ff_of(m, p.layer);
    case FFN_GATE_UP:
        return 2 * n_ff_of(m, p.layer);
    default:
        return 0;
    }
}

/* Values of a head that rope turns. */
static uint32_t rope_dims(const struct random_model *m)
{
    return m->shape->head_dim / (find_arch(m->arch)->recurrent_period > 0 ? 4 : 1);
}

static void u32(struct gguf_out *out, const char *arch, const char *key, uint32_t value)
{
    char name[96];
    snprintf(name, sizeof(name), "%s.%s", arch, key);
    gguf_out_u32(out, name, value);
}

static void f32(struct gguf_out *out, const char *arch, const char *key, float value)
{
    char name[96];
    snprintf(name, sizeof(name), "%s.%s", arch, key);
    gguf_out_f32(out, name, value);
}

/* Which layers have full attention: every sixth, as is assumed if no key says otherwise; in a model
 * with fewer than six layers every second. */
static void list_local_layers(const struct random_model *m, struct gguf_out *out)
{
    uint32_t period = find_arch(m->arch)->local_period, window = m->shape->window;
    if (period == 0)
        return;
    u32(out, m->arch, "attention.sliding_window", window ? window : m->shape->n_context / 16);
    if (m->shape->n_layer < period && !of_two_kinds(m))
        u32(out, m->arch, "attention.sliding_window_pattern", 2);
}

/* Granite's factors, as its models have them; a peaked model is made for 1. */
static void list_scales(const struct random_model *m, struct gguf_out *out)
{
    if (!find_arch(m->arch)->scales)
        return;
    f32(out, m->arch, "embedding_scale", m->peaked ? 1 : 12);
    f32(out, m->arch, "attention.scale", 1.0f / sqrtf((float)m->shape->head_dim));
    f32(out, m->arch, "residual_scale", m->peaked ? 1 : 0.22f);
    f32(out, m->arch, "logit_scale", m->peaked ? 1 : 8);
}

/* YaRN, in an architecture that has its own. */
static void list_yarn(const struct random_model *m, struct gguf_out *out)
{
    enum { FACTOR = 32 };
    char name[96];
    if (!find_arch(m->arch)->yarn_untruncated)
        return;
    snprintf(name, sizeof(name), "%s.rope.scaling.type", m->arch);
    gguf_out_string(out, name, "yarn");
    f32(out, m->arch, "rope.scaling.factor", FACTOR);
    u32(out, m->arch, "rope.scaling.original_context_length", m->shape->n_context / FACTOR);
}

static void list_experts(const struct random_model *m, struct gguf_out *out)
{
    const struct model_arch *arch = find_arch(m->arch);
    if (!arch->experts && !(arch->beside && m->shape->n_expert > 0))
        return;
    u32(out, m->arch, "expert_count", n_expert(m->shape));
    u32(out, m->arch, "expert_used_count", n_expert_used(m->shape));
    u32(out, m->arch, "expert_feed_forward_length", n_ff_expert(m->shape));
    if (arch->tensors >> MODEL_FFN_UP_SHARED & 1)
        u32(out, m->arch, "expert_shared_count", 1);
    if (arch->tensors >> MODEL_FFN_SHARED_ROUTER &
        1) /* llama.cpp takes another width for granted */
        u32(out, m->arch, "expert_shared_feed_forward_length", n_ff_expert(m->shape));
}

/* Sections of rope, which llama.cpp requires: in text each pair belongs to one of three, in turn. */
static void list_sections(const struct random_model *m, struct gguf_out *out)
{
    const int32_t pairs = (int32_t)rope_dims(m) / 2,
                  sections[] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
    char name[96];
    snprintf(name, sizeof(name), "%s.rope.dimension_sections", m->arch);
    gguf_out_array(out, name, GGUF_I32, 4, sections, sizeof(sections));
}

static void list_recurrence(const struct random_model *m, struct gguf_out *out)
{
    const struct model_shape *s = m->shape;
    if (find_arch(m->arch)->recurrent_period == 0 && !find_arch(m->arch)->mamba)
        return;
    u32(out, m->arch, "ssm.conv_kernel", MODEL_TAPS);
    u32(out, m->arch, "ssm.state_size", delta_of(m).k_dim);
    u32(out, m->arch, "ssm.group_count", delta_of(m).k_heads);
    u32(out, m->arch, "ssm.time_step_rank", delta_of(m).v_heads);
    u32(out, m->arch, "ssm.inner_size", delta_values(m));
    if (find_arch(m->arch)->mamba)
        return;
    u32(out, m->arch, "full_attention_interval", attention_period(m));
    if (!find_arch(m->arch)->v_runs) /* rope of qwen3next has none */
        list_sections(m, out);
    if (n_layers(m) > s->n_layer)
        u32(out, m->arch, "nextn_predict_layers", 1);
}

static void each_layer(const struct random_model *m, struct gguf_out *out, const char *key,
                       uint32_t type, const void *values, size_t bytes)
{
    char name[96];
    snprintf(name, sizeof(name), "%s.%s", m->arch, key);
    gguf_out_array(out, name, type, m->shape->n_layer, values, m->shape->n_layer * bytes);
}

/* Which layers have attention instead of a short convolution, or of Mamba-2. */
static void list_attention(const struct random_model *m, struct gguf_out *out)
{
    uint32_t kv[MODEL_MAX_LAYERS];
    assert(m->shape->n_layer <= MODEL_MAX_LAYERS);
    for (uint32_t i = 0; i < m->shape->n_layer; i++)
        kv[i] = is_recurrent(m, i) ? 0 : m->shape->n_head_kv;
    each_layer(m, out, "attention.head_count_kv", GGUF_U32, kv, sizeof(kv[0]));
    if (find_arch(m->arch)->short_conv)
        u32(out, m->arch, "shortconv.l_cache", SHORT_TAPS);
    else
        gguf_out_bool(out, "granitehybrid.rope.scaling.finetuned", false);
}

/* Which layers are local, and what these have of their own. */
static void list_kinds(const struct random_model *m, struct gguf_out *out)
{
    const struct shape_kinds kinds = shape_kinds(m->shape);
    const uint32_t n = m->shape->n_layer;
    uint32_t n_ff[MODEL_MAX_LAYERS], kv[MODEL_MAX_LAYERS];
    uint8_t local[MODEL_MAX_LAYERS];
    assert(n <= MODEL_MAX_LAYERS);
    for (uint32_t i = 0; i < n; i++) {
        n_ff[i] = n_ff_of(m, i);
        kv[i] = n_head_kv_of(m, i);
        local[i] = !is_global(m, i);
    }
    each_layer(m, out, "feed_forward_length", GGUF_U32, n_ff, sizeof(n_ff[0]));
    each_layer(m, out, "attention.head_count_kv", GGUF_U32, kv, sizeof(kv[0]));
    each_layer(m, out, "attention.sliding_window_pattern", GGUF_BOOL, local, sizeof(local[0]));
    u32(out, m->arch, "attention.key_length_swa", kinds.local_head_dim);
    u32(out, m->arch, "attention.value_length_swa", kinds.local_head_dim);
    u32(out, m->arch, "rope.dimension_count_swa", kinds.local_head_dim);
    u32(out, m->arch, "attention.shared_kv_layers", kinds.n_shared_kv);
    u32(out, m->arch, "embedding_length_per_layer_input", kinds.n_per_layer);
    f32(out, m->arch, "final_logit_softcapping", 30);
}

static int list_keys(const struct random_model *m, struct gguf_out *out)
{
    const struct model_shape *s = m->shape;
    char text[96];
    snprintf(text, sizeof(text), "%s random %llu%s", s->name, (unsigned long long)m->seed,
             m->peaked ? " peaked" : "");
    gguf_out_string(out, "general.architecture", m->arch);
    gguf_out_string(out, "general.type", "model");
    gguf_out_string(out, "general.name", text);
    gguf_out_u32(out, "general.file_type", m->mix->file_type);
    gguf_out_u32(out, "general.quantization_version", 2);
    u32(out, m->arch, "block_count", n_layers(m));
    u32(out, m->arch, "context_length", s->n_context);
    u32(out, m->arch, "embedding_length", s->n_embd);
    if (of_two_kinds(m))
        list_kinds(m, out);
    else
        u32(out, m->arch, "feed_forward_length", s->n_ff);
    u32(out, m->arch, "attention.head_count", s->n_head);
    if (find_arch(m->arch)->short_conv || find_arch(m->arch)->mamba)
        list_attention(m, out);
    else if (!of_two_kinds(m))
        u32(out, m->arch, "attention.head_count_kv", s->n_head_kv);
    u32(out, m->arch, "attention.key_length", s->head_dim);
    u32(out, m->arch, "attention.value_length", s->head_dim);
    u32(out, m->arch, "rope.dimension_count", rope_dims(m));
    f32(out, m->arch, "rope.freq_base", s->rope_base);
    f32(out, m->arch, "attention.layer_norm_rms_epsilon", s->rms_eps);
    u32(out, m->arch, "vocab_size", s->n_vocab);
    list_local_layers(m, out);
    list_yarn(m, out);
    list_scales(m, out);
    list_experts(m, out);
    list_recurrence(m, out);
    return vocabulary_keys(s, out);
}

static bool of_no_layer(enum kind kind)
{
    return kind == EMBD || kind == OUTPUT || kind == OUTPUT_NORM ||
           (kind >= INPUT_EMBD && kind <= ROPE_FREQS);
}

int random_model_list(const struct random_model *m, struct gguf_out *out)
{
    struct place p;
    const struct model_shape *s = m->shape;
    const struct type_mix_model facts = {
        .n_layer = s->n_layer, .n_gqa = s->n_head / s->n_head_kv, .tied = is_tied(m)};
    int rc = list_keys(m, out);
    for (uint32_t i = 0; !rc && place_of(m, i, &p); i++) {
        uint32_t rows = rows_of(m, p), cols = cols_of(m, p);
        uint32_t matrices = matrices_of(m->shape, p.kind);
        struct gguf_out_tensor t = {.n_dims = matrices ? 3
                                              : rows   ? 2
                                                       : 1,
                                    .cols = cols,
                                    .rows = rows ? rows : 1,
                                    .n_matrices = matrices};
        if (of_no_layer(p.kind))
            snprintf(t.name, sizeof(t.name), "%s", p.name);
        else
            snprintf(t.name, sizeof(t.name), "blk.%u.%s", p.layer, p.name);
        t.type = rows ? type_mix_of(m->mix, t.name, cols, &facts) : QUANT_F32;
        gguf_out_tensor(out, &t);
    }
    return rc;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* x[i] = center + spread * z, z nearly normal with variance 1: the sum of four random bytes minus
 * its mean. */
static void noise(const struct random_model *m, struct place p, uint64_t row, float center,
                  float spread, float *x, uint32_t n)
{
    const uint32_t key[2] = {(uint32_t)m->seed, (uint32_t)(m->seed >> 32)};
    const float scale = spread / 147.80054f; /* sqrt(4 * (256 * 256 - 1) / 12) */
    uint32_t counter[4] = {0, (uint32_t)row, p.layer * 32 + (uint32_t)p.kind % 32,
                           (uint32_t)p.kind / 32},
             word[4];
    for (uint32_t i = 0; i < n; i++) {
        if (i % 4 == 0) {
            counter[0] = i / 4;
            philox4x32_10(counter, key, word);
        }
        uint32_t w = word[i % 4];
        int sum = (int)((w & 0xff) + (w >> 8 & 0xff) + (w >> 16 & 0xff) + (w >> 24));
        x[i] = center + scale * (float)(sum - 510);
    }
}

/* gemma scales the embedding by sqrt(n_embd): so its rows are made smaller, the final norm makes up
 * for it, and branches get a noticeable size; else a tied model would repeat its last token. */
static bool embedding_scaled(const struct random_model *m)
{
    return find_arch(m->arch)->embedding_scaled;
}

/* What no seed changes: rope's divisors, of a quarter of the pairs 1, of the others so large that they
 * stay where they are; and factors of the residual. False: another tensor. */
static bool fixed_row(struct place p, float *x, uint32_t n)
{
    if (p.kind != ROPE_FREQS && p.kind != LAYER_SCALE)
        return false;
    for (uint32_t i = 0; i < n; i++)
        x[i] = p.kind == LAYER_SCALE || i < n / 4 ? 1 : 1e30f;
    return true;
}

static void plain_row(const struct random_model *m, struct place p, uint64_t row, float *x)
{
    uint32_t cols = cols_of(m, p);
    float in = 1.0f / sqrtf((float)cols), spread = embedding_scaled(m) ? 1 : 3;
    switch (p.kind) {
    case EMBD:
    case OUTPUT:
        noise(m, p, row, 0, spread * in, x, cols); /* logits spread by 3 */
        break;
    case OUTPUT_NORM:
    case MTP_OUTPUT_NORM:
        noise(m, p, row, 3 / spread, 0.1f, x, cols);
        break;
    case ATTN_POST_NORM:
    case FFN_POST_NORM:
        noise(m, p, row, 4, 0.1f, x, cols);
        break;
    case INPUT_EMBD:
    case INPUT_PROJ:
    case DELTA_CONV:
    case DELTA_DT:
    case SHORT_CONV:
    case MAMBA_D:
        noise(m, p, row, 0, 1, x, cols);
        break;
    case DELTA_A:
    case MAMBA_A:
        noise(m, p, row, -0.5f, 0.1f, x, cols);
        break;
    case ATTN_Q:
    case ATTN_K:
        noise(m, p, row, 0, 2 * in, x, cols);
        break;
    case ATTN_Q_BIAS:
    case ATTN_K_BIAS:
    case ATTN_V_BIAS:
    case ATTN_OUT_BIAS:
    case MAMBA_CONV_BIAS:
    case FFN_CHOICE_BIAS:
    case FFN_ROUTER_BIAS:
    case FFN_GATE_EXPS_BIAS:
    case FFN_UP_EXPS_BIAS:
    case FFN_DOWN_EXPS_BIAS:
        noise(m, p, row, 0, 0.1f, x, cols);
        break;
    case ATTN_SINKS:
        noise(m, p, row, 0, 1, x, cols);
        break;
    default:
        if (rows_of(m, p))
            noise(m, p, row, 0, in, x, cols);
        else
            noise(m, p, row, 1, 0.1f, x, cols); /* a norm */
    }
}

/* ---- peaked ---------------------------------------------------------------------------------- */

/* Weights of a peaked model; all its constants. */
#define REST 0.5f       /* embedding outside A and B, where codes have 1 */
#define BRANCH 0.03f    /* what a branch adds to a residual of about 1 */
#define COPY 2.0f       /* A onto B: the successor must outweigh the token itself */
#define OWN_SCORE 24.0f /* attention score of a position with itself */
#define TOP_LOGIT 20.0f
#define MARK_VALUE 2.0f /* in A, of a word after which drafts shall fail ... */
#define MARK_TURNS 2.0f /* ... and by how much more than A the layer turns it onto another code */

static uint32_t step_of(const struct model_shape *s)
{
    uint32_t step = (uint32_t)((uint64_t)s->n_words * 618 / 1000);
    for (;; step++) { /* the next number coprime to the count: then the walk visits every word */
        uint32_t a = s->n_words, b = step;
        while (b) {
            uint32_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

uint32_t random_model_next(const struct model_shape *s, uint32_t token)
{
    return (token % s->n_words + step_of(s)) % s->n_words;
}

/* Dimensions of A, and of B after it: as many as a layer's values can carry. */
static uint32_t code_dims(const struct model_shape *s)
{
    uint32_t values = s->n_head_kv * s->head_dim;
    return values < s->n_embd / 2 ? values : s->n_embd / 2;
}

static void code(const struct random_model *m, uint32_t row, float *x)
{
    noise(m, (struct place){CODE, 0, NULL}, row, 0, 1, x, code_dims(m->shape));
}

/* Is the next-token layer's draft after this word to be wrong? */
static bool has_mark(const struct random_model *m, uint32_t word)
{
    const uint32_t key[2] = {(uint32_t)m->seed, (uint32_t)(m->seed >> 32)};
    uint32_t counter[4] = {0, word, MARK % 32, MARK / 32}, value[4];
    philox4x32_10(counter, key, value);
    return (float)(value[0] >> 8) * 0x1p-24f >= m->acceptance;
}

static bool has_marks(const struct random_model *m)
{
    return m->mtp && m->acceptance < 1.0f;
}

/* A special token behaves like a word (its number modulo n_words), and is never a successor. */
static void peaked_embedding(const struct random_model *m, struct place p, uint32_t token, float *x)
{
    const struct model_shape *s = m->shape;
    uint32_t a = code_dims(s), word = token % s->n_words;
    uint32_t before = (word + s->n_words - step_of(s)) % s->n_words;
    float scale = p.kind == EMBD && embedding_scaled(m) ? 1.0f / sqrtf((float)s->n_embd) : 1.0f;
    p.kind = EMBD; /* an untied head equals the embedding */
    noise(m, p, token, 0, REST, x, s->n_embd);
    code(m, word, x);
    code(m, token < s->n_words ? before : token, x + a);
    if (has_marks(m)) {
        x[a - 1] = has_mark(m, word) ? MARK_VALUE : 0;
        x[2 * a - 1] = 0; /* no logit depends on it */
    }
    for (uint32_t i = 0; i < s->n_embd; i++)
        x[i] = x[i] * scale;
}

/* The magnitude that the first layer's attention adds to B, for a residual of the embedding
 * alone. */
static float copied_code(const struct model_shape *s)
{
    float a = (float)code_dims(s), n = (float)s->n_embd;
    return COPY / sqrtf((2 * a + (n - 2 * a) * REST * REST) / n);
}

/* The post-norm of a branch: the copy keeps its size, other branches are damped. */
static void peaked_post_norm(const struct random_model *m, struct place p, float *x)
{
    const struct model_shape *s = m->shape;
    float share = (float)code_dims(s) / (float)s->n_embd, weight = BRANCH;
    if (p.layer == 0 && p.kind == ATTN_POST_NORM)
        weight = copied_code(s) * sqrtf(share);
    noise(m, p, 0, weight, weight / 50, x, s->n_embd);
}

/* Weights of the final norm: B, scaled for the top logit; the rest is damped. */
static void peaked_output_norm(const struct random_model *m, struct place p, float *x)
{
    const struct model_shape *s = m->shape;
    float a = (float)code_dims(s), n = (float)s->n_embd, copied = copied_code(s);
    float after = sqrtf((2 * a + a * copied * copied + (n - 2 * a) * REST * REST) / n);
    float weight = TOP_LOGIT * after / (copied * a);
    if (is_tied(m) && embedding_scaled(m))
        weight = weight * sqrtf(n); /* makes up for the smaller rows of the tied head */
    noise(m, p, 0, weight / 20, weight / 100, x, s->n_embd);
    noise(m, p, 1, weight, weight / 20, x + code_dims(s), code_dims(s));
}

/* A row of the next-token layer's input: of B, the token's A, and for a mark the code of word 0. */
static void peaked_join(const struct random_model *m, struct place p, uint64_t row, float *x)
{
    const struct model_shape *s = m->shape;
    const uint32_t a = code_dims(s), cols = cols_of(m, p);
    const bool of_b = row >= a && row < 2 * a;
    code(m, 0, x);
    const float other = of_b ? x[row - a] : 0;
    noise(m, p, row, 0, BRANCH / sqrtf((float)cols), x, cols);
    if (of_b)
        x[row - a] = 1;
    if (of_b && has_marks(m))
        x[a - 1] = MARK_TURNS * other;
}

/* Of what the layer of the next token adds up, B is its token's code; scaled for the top logit. */
static void peaked_mtp_norm(const struct random_model *m, struct place p, float *x)
{
    const struct model_shape *s = m->shape;
    const float a = (float)code_dims(s), weight = TOP_LOGIT / sqrtf(a * (float)s->n_embd);
    noise(m, p, 0, weight / 20, weight / 100, x, s->n_embd);
    noise(m, p, 1, weight, weight / 20, x + code_dims(s), code_dims(s));
}

static uint32_t first_attention(const struct random_model *m)
{
    const uint32_t period = attention_period(m);
    return period > 0 ? period - 1 : 0;
}

/* Query head h matches the keys of KV head h / share; a gate of 0 halves. */
static void peaked_query(const struct random_model *m, struct place p, uint64_t row, float weight,
                         float *x)
{
    const struct model_shape *s = m->shape;
    uint64_t head = row / s->head_dim, share = s->n_head / s->n_head_kv;
    const bool gated = find_arch(m->arch)->head_gate;
    if (gated && head % 2 == 1) {
        noise(m, p, row, 0, 0, x, cols_of(m, p));
        return;
    }
    p.kind = ATTN_K;
    row = (gated ? head / 2 : head) / share * s->head_dim + row % s->head_dim;
    noise(m, p, row, 0, weight, x, s->n_embd);
}

/* If it is a norm; own: the square of what queries and keys of one position are scaled by. */
static bool peaked_norm(const struct random_model *m, struct place p, float own, float *x)
{
    const uint32_t cols = cols_of(m, p);
    switch (p.kind) {
    case OUTPUT_NORM:
        peaked_output_norm(m, p, x);
        break;
    case MTP_OUTPUT_NORM:
        peaked_mtp_norm(m, p, x);
        break;
    case ATTN_Q_NORM:
    case ATTN_K_NORM: /* the same for q and k, as their rows are */
        p.kind = ATTN_K_NORM;
        noise(m, p, 0, sqrtf(own), 0.05f, x, cols);
        break;
    case ATTN_POST_NORM:
    case FFN_POST_NORM:
    case INPUT_POST_NORM:
        peaked_post_norm(m, p, x);
        break;
    case ATTN_NORM:
    case FFN_NORM:
    case MTP_TOKEN_NORM:
    case MTP_HIDDEN_NORM:
    case DELTA_NORM:
    case MAMBA_NORM:
        noise(m, p, 0, 1, 0.02f, x, cols);
        break;
    default:
        return false;
    }
    return true;
}

static void peaked_row(const struct random_model *m, struct place p, uint64_t row, float *x)
{
    const struct model_shape *s = m->shape;
    uint32_t cols = cols_of(m, p), a = code_dims(s), share = s->n_head / s->n_head_kv;
    const float dim = (float)s->head_dim;
    float in = 1.0f / sqrtf((float)cols),
          own = OWN_SCORE / (find_arch(m->arch)->unit_scores ? dim : sqrtf(dim));
    const bool gated = find_arch(m->arch)->head_gate, first = p.layer == first_attention(m);
    switch (p.kind) {
    case EMBD:
    case OUTPUT:
        peaked_embedding(m, p, (uint32_t)row, x);
        break;
    case MTP_JOIN:
        peaked_join(m, p, row, x);
        break;
    case ATTN_Q:
        peaked_query(m, p, row, sqrtf(own) * in, x);
        break;
    case ATTN_K:
        noise(m, p, row, 0, sqrtf(own) * in, x, cols);
        break;
    case ATTN_V:
        noise(m, p, row, 0, first ? BRANCH * in : in, x, cols);
        if (first && row < a)
            x[row] = 1;
        break;
    case ATTN_OUTPUT: /* value i is delivered to the first query head of its group */
        noise(m, p, row, 0, BRANCH * in, x, cols);
        if (first && row >= a && row < 2 * a)
            x[(row - a) / s->head_dim * share * s->head_dim + (row - a) % s->head_dim] =
                gated ? 2 * COPY : COPY;
        break;
    case FFN_DOWN:
    case FFN_DOWN_EXPS:
    case FFN_DOWN_SHARED:
    case DELTA_OUT:
    case SHORT_OUT:
        noise(m, p, row, 0, BRANCH * in, x, cols);
        break;
    case DELTA_A:
    case MAMBA_A:
        noise(m, p, row, -0.5f, 0.1f, x, cols);
        break;
    case ATTN_Q_BIAS:
    case ATTN_K_BIAS:
    case ATTN_V_BIAS:
    case ATTN_OUT_BIAS:
    case FFN_DOWN_EXPS_BIAS:
        noise(m, p, row, 0, 0.01f, x, cols);
        break;
    default:
        if (!peaked_norm(m, p, own, x))
            noise(m, p, row, 0, in, x, cols);
    }
}

/* A row of experts' gates and ups is one of the gates' or of the ups'. */
static void find_expert_part(const struct random_model *m, struct place *p, uint64_t *row)
{
    const uint32_t n = n_ff_expert(m->shape);
    const uint64_t expert = *row / (2 * n), at = *row % (2 * n);
    p->kind = at < n ? FFN_GATE_EXPS : FFN_UP_EXPS;
    *row = expert * n + at % n;
}

/* A row of a fused tensor is one of its parts'. */
static void find_part(const struct random_model *m, struct place *p, uint64_t *row)
{
    if (p->kind == FFN_GATE_UP_EXPS)
        find_expert_part(m, p, row);
    const enum kind qkv[] = {ATTN_Q, ATTN_K, ATTN_V}, gate_up[] = {FFN_GATE, FFN_UP};
    const enum kind *part = p->kind == ATTN_QKV ? qkv : gate_up;
    if (p->kind != ATTN_QKV && p->kind != FFN_GATE_UP)
        return;
    for (p->kind = *part; *row >= rows_of(m, *p); p->kind = *++part)
        *row -= rows_of(m, *p);
}

int random_model_row(void *arg, uint32_t tensor, uint64_t row, float *x)
{
    const struct random_model *m = arg;
    struct place p;
    bool found = place_of(m, tensor, &p);
    assert(found);
    (void)found;
    find_part(m, &p, &row);
    if (fixed_row(p, x, cols_of(m, p)))
        return 0;
    if (m->peaked)
        peaked_row(m, p, row, x);
    else
        plain_row(m, p, row, x);
    return 0;
}
