#include "tests/rig/tiny_model.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "kernels/base/num.h"
#include "kernels/model/model.h"
#include "kernels/quant/quantize.h"
#include "tests/rig/gguf_writer.h"

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Roughly normal, variance 1: the sum of four uniform numbers. */
static float normal(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(next(state) >> 40) * 0x1p-24f - 0.5f;
    return sum * 1.7320508f;
}

/* ---- types ------------------------------------------------------------------------------------
 */

/* A type that is only read: random blocks, a function of x, of weights up to the largest of x. */
static void random_blocks(const struct quant_info *info, const float *x, size_t n, uint8_t *out)
{
    for (size_t b = 0; b < n / info->block; b++, out += info->block_bytes) {
        uint64_t state = num_bits(x[b * info->block]) ^ b << 32;
        float most = 0;
        for (uint32_t i = 0; i < info->block; i++)
            most = fmaxf(most, fabsf(x[b * info->block + i]));
        for (uint32_t i = 0; i < info->block_bytes; i++)
            out[i] = (uint8_t)next(&state);
        const uint16_t d = num_f16_from_f32(most / 480); /* 31 * 15, 31 * 62 / 4 */
        memcpy(out, &d, sizeof(d));
    }
}

size_t tiny_encode(uint32_t type, const float *x, size_t n, uint8_t *out)
{
    const struct quant_info *info = quant_find(type);
    for (size_t i = 0; i < n && (type == QUANT_F16 || type == QUANT_BF16); i++) {
        /* f16 may overflow to infinity here: some tests need that. */
        uint16_t half = type == QUANT_F16 ? num_f16_from_f32(x[i]) : num_bf16_from_f32(x[i]);
        memcpy(out + 2 * i, &half, 2);
    }
    if (!quantize_writes(type))
        random_blocks(info, x, n, out);
    else if (type != QUANT_F16 && type != QUANT_BF16 && quantize_row(type, x, n, out))
        abort();
    return n / info->block * info->block_bytes;
}

/* ---- tensors ----------------------------------------------------------------------------------
 */

struct builder {
    struct gw w;
    const struct tiny_model *shape;
    uint64_t random;
    uint32_t n_matrices;
};

static float *values(size_t n)
{
    float *x = malloc(n * sizeof(*x));
    assert(n > 0);
    if (!x)
        abort();
    return x;
}

/* ne: 0 for a dimension that the tensor has not. */
static void put_tensor(struct builder *b, const char *name, uint32_t type, const uint64_t ne[3],
                       const float *x)
{
    const size_t n = ne[0] * (ne[1] > 0 ? ne[1] : 1) * (ne[2] > 0 ? ne[2] : 1);
    uint8_t *bytes = malloc(n * 4 + 64);
    if (!bytes)
        abort();
    gw_tensor_info(&b->w, name, type, ne[2] > 0 ? 3 : ne[1] > 0 ? 2 : 1, ne, b->w.data.bytes);
    gw_put(&b->w.data, bytes, tiny_encode(type, x, n, bytes));
    gw_pad(&b->w.data, b->w.alignment);
    free(bytes);
}

/* n_matrices 0: a tensor of one or, with rows, two dimensions. */
static void tensor_of(struct builder *b, const char *name, uint32_t type, uint32_t cols,
                      uint32_t rows, uint32_t n_matrices, float center, float spread)
{
    size_t n = (size_t)cols * (rows > 0 ? rows : 1) * (n_matrices > 0 ? n_matrices : 1);
    float *x = values(n);
    for (size_t i = 0; i < n; i++)
        x[i] = center + spread * normal(&b->random);
    put_tensor(b, name, type, (uint64_t[]){cols, rows, n_matrices}, x);
    free(x);
}

static void tensor(struct builder *b, const char *name, uint32_t type, uint32_t cols, uint32_t rows,
                   float center, float spread)
{
    tensor_of(b, name, type, cols, rows, 0, center, spread);
}

/* The type of the next matrix. */
static uint32_t next_type(struct builder *b, uint32_t cols)
{
    static const uint32_t mix[] = {QUANT_Q8_0, QUANT_F32,  QUANT_Q4_0, QUANT_BF16,
                                   QUANT_F16,  QUANT_Q5_0, QUANT_Q5_1};
    static const uint32_t mix_k[] = {QUANT_Q4_K, QUANT_Q6_K, QUANT_Q5_K, QUANT_Q8_0};
    static const uint32_t small[] = {QUANT_MXFP4, QUANT_IQ4_NL, QUANT_Q4_1};
    static const uint32_t small_k[] = {QUANT_IQ3_S, QUANT_IQ4_XS, QUANT_Q3_K, QUANT_IQ3_XXS,
                                       QUANT_Q2_K};
    uint32_t type = b->shape->type, n = b->n_matrices++;
    if (type == TINY_MIXED)
        type = mix[n % 7];
    else if (type == TINY_MIXED_K)
        type = cols % 256 == 0 ? mix_k[n % 4] : QUANT_Q5_0;
    else if (type == TINY_MIXED_SMALL)
        type = cols % 256 == 0 && n % 3 > 0 ? small_k[n % 5] : small[n % 3];
    return type;
}

static void matrices(struct builder *b, const char *name, uint32_t cols, uint32_t rows,
                     uint32_t n_matrices, float spread)
{
    tensor_of(b, name, next_type(b, cols), cols, rows, n_matrices, 0, spread * b->shape->scale);
}

static void matrix(struct builder *b, const char *name, uint32_t cols, uint32_t rows, float spread)
{
    matrices(b, name, cols, rows, 0, spread);
}

static void vector(struct builder *b, const char *name, uint32_t n)
{
    tensor(b, name, QUANT_F32, n, 0, 1, 0.1f);
}

static bool is_arch(const struct tiny_model *s, const char *arch)
{
    return strcmp(s->arch ? s->arch : "llama", arch) == 0;
}

static uint32_t k_dim(const struct tiny_model *s)
{
    return s->head_dim ? s->head_dim : s->n_embd / s->n_head;
}

static uint32_t v_dim(const struct tiny_model *s)
{
    return s->v_dim ? s->v_dim : k_dim(s);
}

/* Heads with gates, and recurrent layers between those with attention. */
static bool is_hybrid(const struct tiny_model *s)
{
    return is_arch(s, "qwen35") || is_arch(s, "qwen35moe") || is_arch(s, "qwen3next");
}

/* Short convolutions between layers with attention. */
static bool has_short_conv(const struct tiny_model *s)
{
    return is_arch(s, "lfm2") || is_arch(s, "lfm2moe");
}

/* Mamba-2 between layers with attention. */
static bool has_mamba(const struct tiny_model *s)
{
    return is_arch(s, "granitehybrid");
}

/* What a part adds is normed, not what it reads. */
static bool has_no_norm_before(const struct tiny_model *s)
{
    return is_arch(s, "exaone4") || is_arch(s, "olmo2");
}

/* A shared expert has a gate of its own. */
static bool has_shared_gate(const struct tiny_model *s)
{
    return is_arch(s, "qwen2moe") || is_arch(s, "qwen35moe") || is_arch(s, "qwen3next");
}

static bool has_late_norm(const struct tiny_model *s) /* its name says after which part */
{
    return is_arch(s, "glm4moe") || is_hybrid(s);
}

static bool has_fused_gate(const struct tiny_model *s)
{
    return is_arch(s, "phi3") || is_arch(s, "glm4");
}

/* Values of a head that rope turns: in phi3 all but two, in some half of them. */
static uint32_t rope_dim(const struct tiny_model *s)
{
    const uint32_t dim = k_dim(s);
    return is_arch(s, "phi3")                       ? dim - 2
           : has_late_norm(s) || is_arch(s, "glm4") ? dim / 4 * 2
                                                    : dim;
}

static bool is_gemma4(const struct tiny_model *s)
{
    return is_arch(s, "gemma4");
}

/* Of a layer of gemma4, whose local layers have smaller heads. */
static uint32_t halved(const struct tiny_model *s, uint32_t layer, uint32_t dim)
{
    return is_gemma4(s) && layer % 2 == 0 ? dim / 4 * 2 : dim;
}

/* Has it no KV of its own? */
static bool shares_kv(const struct tiny_model *s, uint32_t layer)
{
    return s->n_shared_kv > 0 && layer >= s->n_layer - s->n_shared_kv;
}

/* Of a dense layer: those that share KV are wider. */
static uint32_t n_ff_of(const struct tiny_model *s, uint32_t layer)
{
    return shares_kv(s, layer) ? 2 * s->n_ff : s->n_ff;
}

static uint32_t heads_kv(const struct tiny_model *s, uint32_t layer)
{
    return layer % 2 && s->odd_head_kv ? s->odd_head_kv : s->n_head_kv;
}

static bool has_head_norms(const struct tiny_model *s)
{
    return is_arch(s, "qwen3") || is_arch(s, "qwen3moe") || is_arch(s, "gemma3") ||
           is_arch(s, "glm4moe") || is_arch(s, "dots1") || is_gemma4(s) || is_hybrid(s) ||
           has_short_conv(s) || has_no_norm_before(s);
}

static bool has_qkv_bias(const struct tiny_model *s)
{
    return is_arch(s, "qwen2") || is_arch(s, "qwen2moe") || is_arch(s, "glm4moe") ||
           is_arch(s, "gpt-oss") || is_arch(s, "seed_oss") || is_arch(s, "glm4");
}

/* The first layer has no experts, and the others choose with a bias. */
static bool has_dense_layer(const struct tiny_model *s)
{
    return is_arch(s, "glm4moe") || is_arch(s, "ernie4_5-moe") || is_arch(s, "lfm2moe") ||
           is_arch(s, "dots1");
}

static bool has_shared_expert(const struct tiny_model *s)
{
    return has_shared_gate(s) || is_arch(s, "granitemoe") || (has_mamba(s) && s->n_expert) ||
           (has_dense_layer(s) && !is_arch(s, "lfm2moe"));
}

static uint32_t n_ff_shared(const struct tiny_model *s)
{
    return s->n_ff * 2;
}

/* ---- recurrent layers ------------------------------------------------------------------------ */

enum { DELTA_K_HEADS = 2, DELTA_V_HEADS = 4, TAPS = 4, SHORT_TAPS = 3 };

static bool is_recurrent(const struct tiny_model *s, uint32_t layer)
{
    return (is_hybrid(s) || has_short_conv(s) || has_mamba(s)) && layer % 2 == 0 &&
           layer < s->n_layer;
}

static uint32_t delta_k(const struct tiny_model *s)
{
    return s->delta_k ? s->delta_k : 12;
}

/* Of Mamba-2 groups: one where there are experts, too. */
static uint32_t delta_k_heads(const struct tiny_model *s)
{
    return has_mamba(s) && s->n_expert ? 1 : DELTA_K_HEADS;
}

static uint32_t delta_values(const struct tiny_model *s)
{
    return DELTA_V_HEADS * (s->delta_v ? s->delta_v : 40);
}

static void delta(struct builder *b, uint32_t index)
{
    const struct tiny_model *s = b->shape;
    const uint32_t values = delta_values(s), channels = 2 * DELTA_K_HEADS * delta_k(s) + values;
    const float in = 1.0f / sqrtf((float)s->n_embd);
    char name[64];
#define NAME(part) (snprintf(name, sizeof(name), "blk.%u." part, index), name)
    matrix(b, NAME("attn_qkv.weight"), s->n_embd, channels, in);
    matrix(b, NAME("attn_gate.weight"), s->n_embd, values, in);
    if (is_arch(s, "qwen3next"))
        matrix(b, NAME("ssm_ba.weight"), s->n_embd, 2 * DELTA_V_HEADS, in);
    for (int i = 0; i < 2 && !is_arch(s, "qwen3next"); i++)
        matrix(b, i == 0 ? NAME("ssm_beta.weight") : NAME("ssm_alpha.weight"), s->n_embd,
               DELTA_V_HEADS, in);
    tensor(b, NAME("ssm_conv1d.weight"), QUANT_F32, TAPS, channels, 0, 1);
    tensor(b, NAME("ssm_a"), QUANT_F32, DELTA_V_HEADS, 0, -0.5f, 0.1f);
    tensor(b, NAME("ssm_dt.bias"), QUANT_F32, DELTA_V_HEADS, 0, 0, 1);
    tensor(b, NAME("ssm_norm.weight"), QUANT_F32, values / DELTA_V_HEADS, 0, 1, 0.3f);
    matrix(b, NAME("ssm_out.weight"), values, s->n_embd, 1.0f / sqrtf((float)values));
#undef NAME
}

static void mamba(struct builder *b, uint32_t index)
{
    const struct tiny_model *s = b->shape;
    const uint32_t values = delta_values(s), groups = delta_k_heads(s),
                   channels = values + 2 * groups * delta_k(s);
    char name[64];
#define NAME(part) (snprintf(name, sizeof(name), "blk.%u.ssm_" part, index), name)
    matrix(b, NAME("in.weight"), s->n_embd, values + channels + DELTA_V_HEADS,
           1.0f / sqrtf((float)s->n_embd));
    tensor(b, NAME("conv1d.weight"), QUANT_F32, TAPS, channels, 0, 1);
    if (index == 0) /* a layer may lack it */
        tensor(b, NAME("conv1d.bias"), QUANT_F32, channels, 0, 0, 1);
    tensor(b, NAME("dt.bias"), QUANT_F32, DELTA_V_HEADS, 0, 0, 1);
    tensor(b, NAME("a"), QUANT_F32, 1, DELTA_V_HEADS, -0.5f, 0.1f);
    tensor(b, NAME("d"), QUANT_F32, 1, DELTA_V_HEADS, 0, 1);
    tensor(b, NAME("norm.weight"), QUANT_F32, values / groups, groups, 1, 0.3f);
    matrix(b, NAME("out.weight"), values, s->n_embd, 1.0f / sqrtf((float)values));
#undef NAME
}

static void short_conv(struct builder *b, uint32_t index)
{
    const uint32_t n = b->shape->n_embd;
    const float in = 1.0f / sqrtf((float)n);
    char name[64];
#define NAME(part) (snprintf(name, sizeof(name), "blk.%u.shortconv." part ".weight", index), name)
    matrix(b, NAME("in_proj"), n, 3 * n, in);
    tensor(b, NAME("conv"), QUANT_F32, SHORT_TAPS, n, 0, 1);
    matrix(b, NAME("out_proj"), n, n, in);
#undef NAME
}

/* A matrix whose rows may be too short for the blocks of the model's type. */
static void short_matrix(struct builder *b, const char *name, uint32_t cols, uint32_t rows,
                         float spread)
{
    const uint32_t type = next_type(b, cols);
    tensor(b, name,
           cols % quant_find(type)->block == 0 ? type
           : cols % 32 == 0                    ? (uint32_t)QUANT_Q8_0
                                               : (uint32_t)QUANT_F16,
           cols, rows, 0, spread * b->shape->scale);
}

/* A layer's own input, the norms and factors around experts, and the factor of the residual, which the first layer lacks. */
static void gemma4_extras(struct builder *b, uint32_t index)
{
    const struct tiny_model *s = b->shape;
    static const char *const norms[] = {"ffn_gate_inp.scale", "pre_ffw_norm_2.weight",
                                        "post_ffw_norm_1.weight", "post_ffw_norm_2.weight"};
    char name[64];
#define NAME(part) (snprintf(name, sizeof(name), "blk.%u." part, index), name)
    for (int i = 0; i < 4 && s->n_expert; i++) {
        snprintf(name, sizeof(name), "blk.%u.%s", index, norms[i]);
        tensor(b, name, QUANT_F32, s->n_embd, 0, 1, 0.3f);
    }
    if (s->n_expert)
        tensor(b, NAME("ffn_down_exps.scale"), QUANT_F32, s->n_expert, 0, 1, 0.3f);
    if (s->n_per_layer) {
        short_matrix(b, NAME("inp_gate.weight"), s->n_embd, s->n_per_layer,
                     1.0f / sqrtf((float)s->n_embd));
        short_matrix(b, NAME("proj.weight"), s->n_per_layer, s->n_embd,
                     1.0f / sqrtf((float)s->n_per_layer));
        tensor(b, NAME("post_norm.weight"), QUANT_F32, s->n_embd, 0, 1, 0.3f);
    }
    if (index > 0)
        tensor(b, NAME("layer_output_scale.weight"), QUANT_F32, 1, 0, 0.8f, 0.1f);
#undef NAME
}

/* What all layers' inputs are made of, and the divisors of rope, the second half of which leaves pairs where they are. */
static void gemma4_globals(struct builder *b)
{
    const struct tiny_model *s = b->shape;
    const uint32_t n = s->n_layer * s->n_per_layer, pairs = k_dim(s) / 2;
    float *divisors = values(pairs);
    for (uint32_t i = 0; i < pairs; i++)
        divisors[i] = i < (pairs + 1) / 2 ? 1 : 1e30f;
    put_tensor(b, "rope_freqs.weight", QUANT_F32, (uint64_t[]){pairs, 0, 0}, divisors);
    free(divisors);
    if (n == 0)
        return;
    short_matrix(b, "per_layer_token_embd.weight", n, s->n_vocab, 1);
    tensor(b, "per_layer_model_proj.weight", s->type == QUANT_F32 ? QUANT_F32 : QUANT_BF16,
           s->n_embd, n, 0, s->scale);
    tensor(b, "per_layer_proj_norm.weight", QUANT_F32, s->n_per_layer, 0, 1, 0.3f);
}

/* The tensors that an architecture has beyond llama's. */
static void extras(struct builder *b, uint32_t index)
{
    const struct tiny_model *s = b->shape;
    const uint32_t n_kv = heads_kv(s, index),
                   n[] = {k_dim(s) * s->n_head, k_dim(s) * n_kv, v_dim(s) * n_kv};
    char name[64];
    const char *const parts[] = {"attn_q", "attn_k", "attn_v"};
    for (int i = 0; i < 3 && has_qkv_bias(s); i++) {
        snprintf(name, sizeof(name), "blk.%u.%s.bias", index, parts[i]);
        tensor(b, name, QUANT_F32, n[i], 0, 0, 1);
    }
    if (is_arch(s, "gpt-oss")) {
        snprintf(name, sizeof(name), "blk.%u.attn_sinks.weight", index);
        tensor(b, name, QUANT_F32, s->n_head, 0, 1, 1);
        snprintf(name, sizeof(name), "blk.%u.attn_output.bias", index);
        tensor(b, name, QUANT_F32, s->n_embd, 0, 0, 0.5f);
    }
    for (int i = 0; i < 2 && has_head_norms(s) && !is_recurrent(s, index); i++) {
        snprintf(name, sizeof(name), "blk.%u.%s_norm.weight", index, parts[i]);
        const uint32_t heads = !is_arch(s, "olmo2") ? 1 : i == 0 ? s->n_head : n_kv;
        if (i == 0 || !shares_kv(s, index))
            tensor(b, name, QUANT_F32, heads * halved(s, index, k_dim(s)), 0, 1, 0.3f);
    }
    const char *const added[] = {"post_attention", "post_ffw"};
    const bool post_norms =
        is_arch(s, "gemma3") || is_arch(s, "glm4") || is_gemma4(s) || has_no_norm_before(s);
    for (int i = 0; i < 2 && post_norms; i++) {
        snprintf(name, sizeof(name), "blk.%u.%s_norm.weight", index, added[i]);
        tensor(b, name, QUANT_F32, s->n_embd, 0, 2, 0.3f);
    }
    if (is_gemma4(s))
        gemma4_extras(b, index);
}

static uint32_t n_expert(const struct tiny_model *s)
{
    const bool any = is_arch(s, "qwen3moe") || is_arch(s, "gpt-oss") || has_shared_expert(s) ||
                     has_dense_layer(s) || ((is_arch(s, "llama") || is_gemma4(s)) && s->n_expert);
    return !any ? 0 : s->n_expert ? s->n_expert : 7;
}

/* The numbers of all gates and then all ups, as if these were apart. */
static void merged_experts(struct builder *b, uint32_t index, uint32_t n_ff, uint32_t n)
{
    const uint32_t n_embd = b->shape->n_embd;
    const size_t one = (size_t)n_ff * n_embd;
    const float spread = b->shape->scale / sqrtf((float)n_embd);
    const uint32_t type = next_type(b, n_embd);
    float *x = values(2 * n * one);
    char name[64];
    for (uint32_t part = 0; part < 2; part++)
        for (size_t i = 0; i < n * one; i++)
            x[(i / one * 2 + part) * one + i % one] = spread * normal(&b->random);
    snprintf(name, sizeof(name), "blk.%u.ffn_gate_up_exps.weight", index);
    put_tensor(b, name, type, (uint64_t[]){n_embd, 2 * n_ff, n}, x);
    free(x);
}

/* Of a router's scores and of all that its experts compute: wide enough to move choices, and gates to
 * their limits. */
static void expert_biases(struct builder *b, uint32_t index)
{
    const struct tiny_model *s = b->shape;
    static const char *const parts[] = {"gate", "up", "down"};
    char name[64];
    snprintf(name, sizeof(name), "blk.%u.ffn_gate_inp.bias", index);
    tensor(b, name, QUANT_F32, n_expert(s), 0, 0, 0.5f);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "blk.%u.ffn_%s_exps.bias", index, parts[i]);
        tensor(b, name, QUANT_F32, i < 2 ? s->n_ff : s->n_embd, n_expert(s), 0, i < 2 ? 4 : 0.5f);
    }
}

/* Gate, up and down of a width, 0 or more of each. */
static void ffn(struct builder *b, uint32_t index, const char *suffix, uint32_t n_ff, uint32_t n)
{
    const struct tiny_model *s = b->shape;
    const float in = 1.0f / sqrtf((float)s->n_embd), down = 1.0f / sqrtf((float)n_ff);
    const char *const parts[] = {"gate", "up", "down"};
    char name[64];
    if (n > 0 && s->merged)
        merged_experts(b, index, n_ff, n);
    for (int i = n > 0 && s->merged ? 2 : has_fused_gate(s); i < 3; i++) {
        snprintf(name, sizeof(name), "blk.%u.ffn_%s%s.weight", index, parts[i], suffix);
        if (i == 2)
            matrices(b, name, n_ff, s->n_embd, n, down);
        else
            matrices(b, name, s->n_embd, has_fused_gate(s) ? 2 * n_ff : n_ff, n, in);
    }
}

/* One feed-forward part, or a router and its experts, and what is beside them. */
static void feed_forward(struct builder *b, uint32_t index)
{
    const struct tiny_model *s = b->shape;
    const uint32_t experts = has_dense_layer(s) && index == 0 ? 0 : n_expert(s);
    const float in = 1.0f / sqrtf((float)s->n_embd);
    char name[64];
    if (experts) {
        snprintf(name, sizeof(name), "blk.%u.ffn_gate_inp.weight", index);
        tensor(b, name, QUANT_F32, s->n_embd, experts, 0, 2 * in * s->scale);
    }
    ffn(b, index, experts ? "_exps" : "", experts ? s->n_ff : n_ff_of(s, index), experts);
    if (experts && is_gemma4(s))
        ffn(b, index, "", n_ff_of(s, index), 0);
    if (experts && has_shared_expert(s))
        ffn(b, index, "_shexp", n_ff_shared(s), 0);
    if (has_shared_gate(s)) {
        snprintf(name, sizeof(name), "blk.%u.ffn_gate_inp_shexp.weight", index);
        tensor(b, name, QUANT_F32, s->n_embd, 0, 0, in * s->scale);
    }
    if (experts && has_dense_layer(s)) {
        snprintf(name, sizeof(name), "blk.%u.exp_probs_b.bias", index);
        tensor(b, name, QUANT_F32, experts, 0, 0, 0.3f);
    }
    if (is_arch(s, "gpt-oss"))
        expert_biases(b, index);
}

static void layer(struct builder *b, uint32_t index)
{
    const struct tiny_model *s = b->shape;
    const uint32_t dim = halved(s, index, k_dim(s)), dim_v = halved(s, index, v_dim(s));
    uint32_t q = dim * s->n_head, out = dim_v * s->n_head;
    uint32_t k = dim * heads_kv(s, index), v = dim_v * heads_kv(s, index);
    float in = 1.0f / sqrtf((float)s->n_embd);
    char name[64];
#define NAME(part) (snprintf(name, sizeof(name), "blk.%u." part ".weight", index), name)
    if (!has_no_norm_before(s))
        vector(b, NAME("attn_norm"), s->n_embd);
    if (is_recurrent(s, index) && has_short_conv(s)) {
        short_conv(b, index);
    } else if (is_recurrent(s, index) && has_mamba(s)) {
        mamba(b, index);
    } else if (is_recurrent(s, index)) {
        delta(b, index);
    } else if (is_arch(s, "phi3")) {
        matrix(b, NAME("attn_qkv"), s->n_embd, q + k + v, in * 2);
    } else {
        matrix(b, NAME("attn_q"), s->n_embd, is_hybrid(s) ? q + out : q, in * 2);
        if (!shares_kv(s, index))
            matrix(b, NAME("attn_k"), s->n_embd, k, in * 2);
        if (!shares_kv(s, index) && !(is_gemma4(s) && index % 2 == 1 && k == v))
            matrix(b, NAME("attn_v"), s->n_embd, v, in);
    }
    if (!is_recurrent(s, index))
        matrix(b, NAME("attn_output"), out, s->n_embd, 1.0f / sqrtf((float)out));
    const bool late = has_late_norm(s) || is_arch(s, "gpt-oss") || is_arch(s, "seed_oss");
    if (!has_no_norm_before(s))
        vector(b, late ? NAME("post_attention_norm") : NAME("ffn_norm"), s->n_embd);
#undef NAME
    feed_forward(b, index);
    extras(b, index);
}

/* What joins the next token and the hidden row before it: mostly the token, after which a tied model
 * often says it again. */
static void join_matrix(struct builder *b, const char *name)
{
    const uint32_t n = b->shape->n_embd, cols = 2 * n;
    const float spread = 0.3f / sqrtf((float)cols);
    float *x = values((size_t)n * cols);
    for (size_t i = 0; i < (size_t)n * cols; i++)
        x[i] = spread * normal(&b->random) + (i % cols == i / cols ? 1.0f : 0.0f);
    put_tensor(b, name, next_type(b, cols), (uint64_t[]){cols, n, 0}, x);
    free(x);
}

/* A layer, and what is before and after it. */
static void draft_layer(struct builder *b, uint32_t index)
{
    static const char *const norms[] = {"enorm", "hnorm", "shared_head_norm"};
    const uint32_t n = b->shape->n_embd;
    char name[64];
    layer(b, index);
    snprintf(name, sizeof(name), "blk.%u.nextn.eh_proj.weight", index);
    join_matrix(b, name);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "blk.%u.nextn.%s.weight", index, norms[i]);
        vector(b, name, n);
    }
}

/* ---- keys -------------------------------------------------------------------------------------
 */

/* U+2581, a space in SPM's pieces. */
#define SPACE "\xe2\x96\x81"

static void token_text(uint32_t id, char *text, size_t bytes)
{
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    static const char *const pieces[] = {SPACE,     SPACE "the", SPACE "a", "th",  "he", "in",
                                         SPACE "t", "er",        SPACE "s", "the", "an", "re"};
    const uint32_t n_pieces = sizeof(pieces) / sizeof(pieces[0]);
    if (id < 3)
        snprintf(text, bytes, "%s", special[id]);
    else if (id < TINY_MIN_VOCAB)
        snprintf(text, bytes, "<0x%02X>", id - 3);
    else if (id - TINY_MIN_VOCAB < n_pieces)
        snprintf(text, bytes, "%s", pieces[id - TINY_MIN_VOCAB]);
    else if (id - TINY_MIN_VOCAB - n_pieces < 26)
        snprintf(text, bytes, "%c", (char)('a' + id - TINY_MIN_VOCAB - n_pieces));
    else
        snprintf(text, bytes, SPACE "w%u", id);
}

static void vocabulary(struct gw *w, uint32_t n)
{
    float *scores = calloc(n, sizeof(*scores));
    int32_t *types = calloc(n, sizeof(*types));
    char text[32];
    if (!scores || !types)
        abort();
    gw_key_string(w, "tokenizer.ggml.model", "llama");
    gw_key_array(w, "tokenizer.ggml.tokens", GGUF_STRING, n, NULL, 0);
    for (uint32_t i = 0; i < n; i++) {
        token_text(i, text, sizeof(text));
        gw_put_string(&w->keys, text, strlen(text));
        scores[i] = i < TINY_MIN_VOCAB ? 0.0f : -(float)(i - TINY_MIN_VOCAB);
        types[i] = i == 0 ? 2 : i < 3 ? 3 : i < TINY_MIN_VOCAB ? 6 : 1;
    }
    gw_key_array(w, "tokenizer.ggml.scores", GGUF_F32, n, scores, 4 * (size_t)n);
    gw_key_array(w, "tokenizer.ggml.token_type", GGUF_I32, n, types, 4 * (size_t)n);
    gw_key_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gw_key_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gw_key_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    free(scores);
    free(types);
}

static void arch_key(struct gw *w, const struct tiny_model *s, const char *name, uint32_t value)
{
    char key[96];
    snprintf(key, sizeof(key), "%s.%s", s->arch ? s->arch : "llama", name);
    gw_key_u32(w, key, value);
}

static void arch_key_f32(struct gw *w, const struct tiny_model *s, const char *name, float value)
{
    char key[96];
    snprintf(key, sizeof(key), "%s.%s", s->arch ? s->arch : "llama", name);
    gw_key_f32(w, key, value);
}

static void kv_heads_key(struct gw *w, const struct tiny_model *s)
{
    char key[96];
    uint32_t heads[64];
    const bool says_recurrent = has_short_conv(s) || has_mamba(s);
    if (!s->odd_head_kv && !says_recurrent) {
        arch_key(w, s, "attention.head_count_kv", s->n_head_kv);
        return;
    }
    const uint32_t n = s->n_layer + s->n_draft;
    for (uint32_t i = 0; i < n && i < 64; i++)
        heads[i] = says_recurrent && is_recurrent(s, i) ? 0 : heads_kv(s, i);
    snprintf(key, sizeof(key), "%s.attention.head_count_kv", s->arch ? s->arch : "llama");
    gw_key_array(w, key, GGUF_U32, n, heads, n * sizeof(*heads));
}

static void expert_keys(struct gw *w, const struct tiny_model *s)
{
    if (n_expert(s)) {
        arch_key(w, s, "expert_count", n_expert(s));
        arch_key(w, s, "expert_used_count", s->n_expert_used ? s->n_expert_used : 3);
        if (!is_arch(s, "llama") && !is_arch(s, "granitemoe") && !has_mamba(s))
            arch_key(w, s, "expert_feed_forward_length", s->n_ff);
    }
    if (has_shared_expert(s) && !is_arch(s, "glm4moe"))
        arch_key(w, s, "expert_shared_feed_forward_length", n_ff_shared(s));
    if (has_dense_layer(s))
        arch_key(w, s, "leading_dense_block_count", 1);
    if (is_arch(s, "glm4moe")) {
        arch_key(w, s, "expert_shared_count", n_ff_shared(s) / s->n_ff);
        arch_key(w, s, "expert_gating_func", 2);
        gw_key_bool(w, "glm4moe.expert_weights_norm", 1);
        gw_key_f32(w, "glm4moe.expert_weights_scale", 1.5f);
    }
}

static void gemma4_keys(struct gw *w, const struct tiny_model *s)
{
    uint8_t local[64];
    uint32_t n_ff[64];
    for (uint32_t i = 0; i < s->n_layer && i < 64; i++) {
        local[i] = i % 2 == 0;
        n_ff[i] = n_ff_of(s, i);
    }
    gw_key_array(w, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, s->n_layer, local,
                 s->n_layer);
    gw_key_array(w, "gemma4.feed_forward_length", GGUF_U32, s->n_layer, n_ff,
                 s->n_layer * sizeof(*n_ff));
    arch_key(w, s, "attention.sliding_window", s->window ? s->window : 20);
    arch_key(w, s, "attention.key_length_swa", halved(s, 0, k_dim(s)));
    arch_key(w, s, "attention.value_length_swa", halved(s, 0, v_dim(s)));
    arch_key(w, s, "attention.shared_kv_layers", s->n_shared_kv);
    arch_key(w, s, "embedding_length_per_layer_input", s->n_per_layer);
    arch_key_f32(w, s, "rope.freq_base", 1e6f);
    arch_key_f32(w, s, "final_logit_softcapping", 8);
}

static void recurrent_keys(struct gw *w, const struct tiny_model *s)
{
    if (has_mamba(s))
        gw_key_bool(w, "granitehybrid.rope.scaling.finetuned", 0);
    if (is_hybrid(s))
        arch_key(w, s, "full_attention_interval", 2);
    if (is_hybrid(s) || has_mamba(s)) {
        arch_key(w, s, "ssm.conv_kernel", TAPS);
        arch_key(w, s, "ssm.state_size", delta_k(s));
        arch_key(w, s, "ssm.group_count", delta_k_heads(s));
        arch_key(w, s, "ssm.time_step_rank", DELTA_V_HEADS);
        arch_key(w, s, "ssm.inner_size", delta_values(s));
    }
    if (has_short_conv(s))
        arch_key(w, s, "shortconv.l_cache", SHORT_TAPS);
}

static void keys(struct gw *w, const struct tiny_model *s)
{
    const char *arch = s->arch ? s->arch : "llama";
    char eps[96];
    snprintf(eps, sizeof(eps), "%s.attention.layer_norm_rms_epsilon", arch);
    gw_key_string(w, "general.architecture", arch);
    gw_key_string(w, "general.name", "tiny");
    arch_key(w, s, "context_length", s->n_context);
    arch_key(w, s, "embedding_length", s->n_embd);
    arch_key(w, s, "block_count", s->n_layer + s->n_draft);
    if (s->n_draft)
        arch_key(w, s, "nextn_predict_layers", s->n_draft);
    if (is_gemma4(s))
        gemma4_keys(w, s);
    else
        arch_key(w, s, "feed_forward_length", s->n_ff);
    arch_key(w, s, "attention.head_count", s->n_head);
    kv_heads_key(w, s);
    gw_key_f32(w, eps, 1e-5f);
    if (is_arch(s, "gemma3")) {
        arch_key(w, s, "attention.sliding_window", s->window ? s->window : 20);
        arch_key(w, s, "attention.sliding_window_pattern", 2);
        gw_key_f32(w, "gemma3.rope.freq_base", 1e6f);
    }
    if (has_no_norm_before(s)) {
        arch_key(w, s, "attention.sliding_window", s->window ? s->window : 20);
        arch_key(w, s, "attention.sliding_window_pattern", 2);
    }
    if (is_arch(s, "olmo2")) { /* of layers that see all */
        gw_key_string(w, "olmo2.rope.scaling.type", "yarn");
        gw_key_f32(w, "olmo2.rope.scaling.factor", 4);
        gw_key_u32(w, "olmo2.rope.scaling.original_context_length", 64);
    }
    if (is_arch(s, "gpt-oss")) {
        arch_key(w, s, "attention.sliding_window", s->window ? s->window : 20);
        gw_key_f32(w, "gpt-oss.rope.freq_base", 150000);
        gw_key_string(w, "gpt-oss.rope.scaling.type", "yarn");
        gw_key_f32(w, "gpt-oss.rope.scaling.factor", 32);
        gw_key_u32(w, "gpt-oss.rope.scaling.original_context_length", 64);
    }
    expert_keys(w, s);
    if (is_arch(s, "granite") || is_arch(s, "granitemoe") || has_mamba(s)) {
        arch_key_f32(w, s, "embedding_scale", 3);
        arch_key_f32(w, s, "attention.scale", 0.3f);
        arch_key_f32(w, s, "residual_scale", 0.6f);
        arch_key_f32(w, s, "logit_scale", 1.7f);
    }
    if (is_arch(s, "mistral3")) { /* q grows at every twelfth position */
        gw_key_string(w, "mistral3.rope.scaling.type", "yarn");
        gw_key_f32(w, "mistral3.rope.scaling.factor", 4);
        gw_key_f32(w, "mistral3.rope.scaling.yarn_log_multiplier", 1);
        gw_key_u32(w, "mistral3.rope.scaling.original_context_length", 12);
        gw_key_f32(w, "mistral3.attention.temperature_scale", 0.25f);
    }
    if (s->head_dim || rope_dim(s) != k_dim(s))
        arch_key(w, s, "rope.dimension_count", rope_dim(s));
    recurrent_keys(w, s);
    if (s->v_dim)
        arch_key(w, s, "attention.value_length", s->v_dim);
    if (s->head_dim) {
        arch_key(w, s, "attention.key_length", s->head_dim);
        if (!s->v_dim)
            arch_key(w, s, "attention.value_length", s->head_dim);
    }
}

/* Random divisors between 1 and 8, the first exactly 1. */
static void freqs(struct builder *b, uint32_t n)
{
    uint64_t ne[1] = {n};
    gw_tensor_info(&b->w, "rope_freqs.weight", QUANT_F32, 1, ne, b->w.data.bytes);
    for (uint32_t i = 0; i < n; i++) {
        float divisor = i == 0 ? 1.0f : 1.0f + 7.0f * ((float)(next(&b->random) >> 40) * 0x1p-24f);
        gw_put(&b->w.data, &divisor, sizeof(divisor));
    }
    gw_pad(&b->w.data, b->w.alignment);
}

struct tiny_model tiny_model_default(uint32_t type)
{
    struct tiny_model shape = {.n_layer = 2,
                               .n_embd = 64,
                               .n_ff = 96,
                               .n_head = 4,
                               .n_head_kv = 2,
                               .n_vocab = 320,
                               .n_context = 512,
                               .type = type,
                               .seed = 1,
                               .scale = 1};
    const bool mixed = type == TINY_MIXED_K || type == TINY_MIXED_SMALL;
    if (mixed || (type != TINY_MIXED && quant_find(type)->block == 256)) {
        shape.n_embd = 256;
        shape.n_ff = type == TINY_MIXED_K ? 288 : type == TINY_MIXED_SMALL ? 544 : 512;
    }
    return shape;
}

void tiny_model_as(struct tiny_model *shape, const char *name)
{
    const bool all = strcmp(name, "gemma4-all") == 0, experts = strcmp(name, "gemma4-experts") == 0,
               inputs = strcmp(name, "gemma4-inputs") == 0;
    const bool granite = strcmp(name, "granite-h-moe") == 0;
    shape->arch = all || experts || inputs ? "gemma4" : granite ? "granitehybrid" : name;
    if (all || experts || granite)
        shape->n_expert = 7;
    if (all || inputs) {
        shape->n_layer = 5;
        shape->n_per_layer = all ? 18 : 32;
        shape->n_shared_kv = all ? 2 : 3;
    }
}

uint8_t *tiny_model_file(const struct tiny_model *shape, size_t *ret_bytes)
{
    struct builder b = {.shape = shape, .random = shape->seed};
    gw_init(&b.w);
    keys(&b.w, shape);
    vocabulary(&b.w, shape->n_vocab);
    matrix(&b, "token_embd.weight", shape->n_embd, shape->n_vocab, 1);
    vector(&b, has_short_conv(shape) ? "token_embd_norm.weight" : "output_norm.weight",
           shape->n_embd);
    if (shape->untied || is_arch(shape, "gpt-oss"))
        matrix(&b, "output.weight", shape->n_embd, shape->n_vocab, 0.5f);
    for (uint32_t i = 0; i < shape->n_layer; i++)
        layer(&b, i);
    for (uint32_t i = 0; i < shape->n_draft; i++)
        draft_layer(&b, shape->n_layer + i);
    if (is_gemma4(shape))
        gemma4_globals(&b);
    else if (shape->freqs)
        freqs(&b, rope_dim(shape) / 2);
    return gw_finish(&b.w, ret_bytes, NULL);
}

/* A vector of n numbers at `x`, as if it were in the file: it gets no place of its own there. */
static float *attach(struct model_tensor *t, float *x, uint32_t n)
{
    *t = (struct model_tensor){.data = (const uint8_t *)x,
                               .type = QUANT_F32,
                               .n_matrices = 1,
                               .rows = 1,
                               .cols = n,
                               .row_bytes = n * sizeof(*x),
                               .bytes = n * sizeof(*x)};
    return x + n;
}

float *tiny_model_sinks(struct model *m, uint64_t seed)
{
    const size_t n = (size_t)m->n_layer * (m->n_head + m->n_embd);
    float *x = malloc(n * sizeof(*x)), *at = x;
    if (!x)
        abort();
    for (size_t i = 0; i < n; i++)
        x[i] = normal(&seed);
    for (uint32_t l = 0; l < m->n_layer; l++) {
        at[0] = -INFINITY;
        at[m->n_head - 1] = 20;
        at = attach(&m->layers[l].tensor[MODEL_ATTN_SINKS], at, m->n_head);
        at = attach(&m->layers[l].tensor[MODEL_ATTN_OUT_BIAS], at, m->n_embd);
    }
    layer_ops_free(&m->ops);
    if (layer_ops_make(m, &m->ops))
        abort();
    return x;
}

int tiny_model_write(const struct tiny_model *shape, const char *path)
{
    size_t bytes;
    uint8_t *file = tiny_model_file(shape, &bytes);
    FILE *out = fopen(path, "wb");
    int rc = out ? 0 : -errno;
    if (out && fwrite(file, 1, bytes, out) != bytes)
        rc = -EIO;
    if (out && fclose(out) && !rc)
        rc = -errno;
    free(file);
    return rc;
}
