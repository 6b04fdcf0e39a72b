#include "kernels/model/model_arch.h"

#define HAS(tensor) (UINT64_C(1) << (tensor))
#define ATTENTION_TENSORS                                                                          \
    (HAS(MODEL_ATTN_NORM) | HAS(MODEL_ATTN_Q) | HAS(MODEL_ATTN_K) | HAS(MODEL_ATTN_V) |            \
     HAS(MODEL_ATTN_OUTPUT) | HAS(MODEL_FFN_NORM))
#define FFN (HAS(MODEL_FFN_GATE) | HAS(MODEL_FFN_UP) | HAS(MODEL_FFN_DOWN))
#define LLAMA_TENSORS (ATTENTION_TENSORS | FFN)
#define EXPERTS                                                                                    \
    (HAS(MODEL_FFN_ROUTER) | HAS(MODEL_FFN_GATE_EXPS) | HAS(MODEL_FFN_UP_EXPS) |                   \
     HAS(MODEL_FFN_DOWN_EXPS))

#define SHARED (HAS(MODEL_FFN_GATE_SHARED) | HAS(MODEL_FFN_UP_SHARED) | HAS(MODEL_FFN_DOWN_SHARED))
#define DELTA                                                                                      \
    (HAS(MODEL_ATTN_NORM) | HAS(MODEL_DELTA_QKV) | HAS(MODEL_DELTA_Z) | HAS(MODEL_DELTA_CONV) |    \
     HAS(MODEL_DELTA_A) | HAS(MODEL_DELTA_DT) | HAS(MODEL_DELTA_NORM) | HAS(MODEL_DELTA_OUT) |     \
     HAS(MODEL_FFN_NORM))
#define BETA_ALPHA (HAS(MODEL_DELTA_BETA) | HAS(MODEL_DELTA_ALPHA))
#define SHORT                                                                                      \
    (HAS(MODEL_ATTN_NORM) | HAS(MODEL_SHORT_IN) | HAS(MODEL_SHORT_CONV) | HAS(MODEL_SHORT_OUT) |   \
     HAS(MODEL_FFN_NORM))
#define MAMBA                                                                                      \
    (HAS(MODEL_ATTN_NORM) | HAS(MODEL_DELTA_Z) | HAS(MODEL_DELTA_QKV) | HAS(MODEL_DELTA_ALPHA) |   \
     HAS(MODEL_DELTA_CONV) | HAS(MODEL_MAMBA_CONV_BIAS) | HAS(MODEL_DELTA_DT) |                    \
     HAS(MODEL_MAMBA_A) | HAS(MODEL_MAMBA_D) | HAS(MODEL_MAMBA_NORM) | HAS(MODEL_DELTA_OUT) |      \
     HAS(MODEL_FFN_NORM))
#define MTP                                                                                        \
    (HAS(MODEL_MTP_JOIN) | HAS(MODEL_MTP_TOKEN_NORM) | HAS(MODEL_MTP_HIDDEN_NORM) |                \
     HAS(MODEL_MTP_OUTPUT_NORM))
#define EXPERT_BIASES                                                                              \
    (HAS(MODEL_FFN_ROUTER_BIAS) | HAS(MODEL_FFN_GATE_EXPS_BIAS) | HAS(MODEL_FFN_UP_EXPS_BIAS) |    \
     HAS(MODEL_FFN_DOWN_EXPS_BIAS))

#define QKV_BIAS (HAS(MODEL_ATTN_Q_BIAS) | HAS(MODEL_ATTN_K_BIAS) | HAS(MODEL_ATTN_V_BIAS))
#define QK_NORM (HAS(MODEL_ATTN_Q_NORM) | HAS(MODEL_ATTN_K_NORM))
#define PRE_NORM (HAS(MODEL_ATTN_NORM) | HAS(MODEL_FFN_NORM))
#define POST_NORM (HAS(MODEL_ATTN_POST_NORM) | HAS(MODEL_FFN_POST_NORM))
#define BESIDE                                                                                     \
    (HAS(MODEL_FFN_ROUTER_NORM) | HAS(MODEL_FFN_EXPERT_NORM) | HAS(MODEL_FFN_EXPERT_SCALE) |       \
     HAS(MODEL_FFN_DENSE_POST_NORM) | HAS(MODEL_FFN_EXPERT_POST_NORM))
#define PER_LAYER                                                                                  \
    (HAS(MODEL_PER_LAYER_GATE) | HAS(MODEL_PER_LAYER_OUT) | HAS(MODEL_PER_LAYER_POST_NORM))

/* README.md, "An architecture", says what a row means and what all of them have in common. */
static const struct model_arch ARCHS[] = {
    {.name = "llama", .rope = MODEL_ROPE_ADJACENT, .tensors = LLAMA_TENSORS | EXPERTS},
    {.name = "qwen2", .rope = MODEL_ROPE_HALVES, .tensors = LLAMA_TENSORS | QKV_BIAS},
    {.name = "qwen3", .rope = MODEL_ROPE_HALVES, .tensors = LLAMA_TENSORS | QK_NORM},
    {.name = "qwen3moe",
     .rope = MODEL_ROPE_HALVES,
     .experts = true,
     .tensors = ATTENTION_TENSORS | QK_NORM | EXPERTS},
    {.name = "gemma3",
     .rope = MODEL_ROPE_HALVES,
     .gate = MODEL_GATE_GELU,
     .embedding_scaled = true,
     .local_period = 6,
     .local_rope = true,
     .local_base = 10000.0f,
     .tensors = LLAMA_TENSORS | QK_NORM | POST_NORM},
    {.name = "granite", .rope = MODEL_ROPE_ADJACENT, .scales = true, .tensors = LLAMA_TENSORS},
    {.name = "smollm3", .rope = MODEL_ROPE_ADJACENT, .no_rope_period = 4, .tensors = LLAMA_TENSORS},
    {.name = "phi3", .rope = MODEL_ROPE_HALVES, .fused = true, .tensors = LLAMA_TENSORS},
    {.name = "seed_oss",
     .rope = MODEL_ROPE_HALVES,
     .ffn_norm = "post_attention_norm.weight",
     .tensors = LLAMA_TENSORS | QKV_BIAS,
     .optional = QKV_BIAS},
    {.name = "ernie4_5", .rope = MODEL_ROPE_ADJACENT, .tensors = LLAMA_TENSORS},
    {.name = "glm4",
     .rope = MODEL_ROPE_ADJACENT,
     .fused = true,
     .tensors = LLAMA_TENSORS | QKV_BIAS | POST_NORM,
     .optional = QKV_BIAS},
    {.name = "exaone4",
     .rope = MODEL_ROPE_HALVES,
     .local_period = 4,
     .local_optional = true,
     .local_rope_alone = true,
     .tensors = (LLAMA_TENSORS & ~PRE_NORM) | QK_NORM | POST_NORM},
    {.name = "olmo2",
     .rope = MODEL_ROPE_HALVES,
     .local_period = 4,
     .local_optional = true,
     .local_rope = true,
     .whole_norms = true,
     .tensors = (LLAMA_TENSORS & ~PRE_NORM) | QK_NORM | POST_NORM},
    {.name = "mistral3", .rope = MODEL_ROPE_ADJACENT, .tensors = LLAMA_TENSORS},
    {.name = "qwen2moe",
     .rope = MODEL_ROPE_HALVES,
     .experts = true,
     .unnormed = true,
     .tensors = ATTENTION_TENSORS | QKV_BIAS | EXPERTS | SHARED | HAS(MODEL_FFN_SHARED_ROUTER)},
    {.name = "glm4moe",
     .rope = MODEL_ROPE_HALVES,
     .experts = true,
     .gating = MODEL_GATING_SIGMOID,
     .unnormed = true,
     .ffn_norm = "post_attention_norm.weight",
     .tensors = LLAMA_TENSORS | QKV_BIAS | QK_NORM | EXPERTS | SHARED | HAS(MODEL_FFN_CHOICE_BIAS),
     .optional = QKV_BIAS | QK_NORM},
    {.name = "dots1",
     .rope = MODEL_ROPE_HALVES,
     .experts = true,
     .gating = MODEL_GATING_SIGMOID,
     .unnormed = true,
     .tensors = LLAMA_TENSORS | QK_NORM | EXPERTS | SHARED | HAS(MODEL_FFN_CHOICE_BIAS),
     .optional = HAS(MODEL_FFN_CHOICE_BIAS)},
    {.name = "granitemoe",
     .rope = MODEL_ROPE_ADJACENT,
     .scales = true,
     .experts = true,
     .tensors = ATTENTION_TENSORS | EXPERTS | SHARED},
    {.name = "ernie4_5-moe",
     .rope = MODEL_ROPE_ADJACENT,
     .experts = true,
     .tensors = LLAMA_TENSORS | EXPERTS | SHARED | HAS(MODEL_FFN_CHOICE_BIAS),
     .optional = HAS(MODEL_FFN_CHOICE_BIAS)},
    {.name = "qwen35",
     .rope = MODEL_ROPE_HALVES,
     .head_gate = true,
     .ffn_norm = "post_attention_norm.weight",
     .recurrent_period = 4,
     .tensors = LLAMA_TENSORS | QK_NORM,
     .recurrent_tensors = DELTA | BETA_ALPHA | FFN,
     .mtp_tensors = MTP,
     .optional = HAS(MODEL_MTP_OUTPUT_NORM)},
    {.name = "qwen35moe",
     .rope = MODEL_ROPE_HALVES,
     .experts = true,
     .ffn_norm = "post_attention_norm.weight",
     .head_gate = true,
     .recurrent_period = 4,
     .tensors = ATTENTION_TENSORS | QK_NORM | EXPERTS | SHARED | HAS(MODEL_FFN_SHARED_ROUTER),
     .recurrent_tensors = DELTA | BETA_ALPHA | EXPERTS | SHARED | HAS(MODEL_FFN_SHARED_ROUTER),
     .mtp_tensors = MTP,
     .optional = HAS(MODEL_MTP_OUTPUT_NORM)},
    {.name = "qwen3next",
     .rope = MODEL_ROPE_HALVES,
     .experts = true,
     .ffn_norm = "post_attention_norm.weight",
     .head_gate = true,
     .recurrent_period = 4,
     .v_runs = true,
     .tensors = ATTENTION_TENSORS | QK_NORM | EXPERTS | SHARED | HAS(MODEL_FFN_SHARED_ROUTER),
     .recurrent_tensors =
         DELTA | HAS(MODEL_DELTA_BETA_ALPHA) | EXPERTS | SHARED | HAS(MODEL_FFN_SHARED_ROUTER),
     .mtp_tensors = MTP,
     .optional = HAS(MODEL_MTP_OUTPUT_NORM)},
    {.name = "lfm2",
     .rope = MODEL_ROPE_HALVES,
     .output_norm = "token_embd_norm.weight",
     .short_conv = true,
     .tensors = LLAMA_TENSORS | QK_NORM,
     .recurrent_tensors = SHORT | FFN},
    {.name = "lfm2moe",
     .rope = MODEL_ROPE_HALVES,
     .experts = true,
     .gating = MODEL_GATING_SIGMOID,
     .output_norm = "token_embd_norm.weight",
     .short_conv = true,
     .tensors = LLAMA_TENSORS | QK_NORM | EXPERTS | HAS(MODEL_FFN_CHOICE_BIAS),
     .recurrent_tensors = SHORT | FFN | EXPERTS | HAS(MODEL_FFN_CHOICE_BIAS)},
    {.name = "granitehybrid",
     .rope = MODEL_ROPE_ADJACENT,
     .scales = true,
     .mamba = true,
     .v_runs = true,
     .tensors = LLAMA_TENSORS | EXPERTS | SHARED,
     .recurrent_tensors = MAMBA | FFN | EXPERTS | SHARED,
     .optional = HAS(MODEL_MAMBA_CONV_BIAS)},
    {.name = "gpt-oss",
     .rope = MODEL_ROPE_HALVES,
     .gate = MODEL_GATE_SWIGLU,
     .local_period = 2,
     .yarn_untruncated = true,
     .experts = true,
     .untied = true,
     .ffn_norm = "post_attention_norm.weight",
     .tensors = ATTENTION_TENSORS | QKV_BIAS | HAS(MODEL_ATTN_SINKS) | HAS(MODEL_ATTN_OUT_BIAS) |
                EXPERTS | EXPERT_BIASES},
    {.name = "gemma4",
     .rope = MODEL_ROPE_HALVES,
     .gate = MODEL_GATE_GELU,
     .embedding_scaled = true,
     .local_period = 6,
     .local_rope = true,
     .local_base = 10000.0f,
     .local_given = true,
     .local_heads = true,
     .unit_scores = true,
     .value_norm = true,
     .shared_kv = true,
     .beside = true,
     .logit_cap = true,
     .per_layer = true,
     .tensors = LLAMA_TENSORS | QK_NORM | POST_NORM | EXPERTS | BESIDE | PER_LAYER |
                HAS(MODEL_LAYER_SCALE),
     .optional = HAS(MODEL_ATTN_V) | HAS(MODEL_FFN_EXPERT_SCALE) | HAS(MODEL_LAYER_SCALE)},
};
#define ARCH_NAMES                                                                                 \
    "llama, qwen2, qwen3, qwen3moe, gemma3, granite, smollm3, phi3, seed_oss, ernie4_5, glm4, "    \
    "exaone4, olmo2, mistral3, qwen2moe, "                                                         \
    "glm4moe, dots1, qwen35, qwen35moe, qwen3next, lfm2, lfm2moe, granitehybrid, granitemoe, "     \
    "ernie4_5-moe, gpt-oss, "                                                                      \
    "gemma4"

const struct model_arch *model_arch_find(struct gguf_string name)
{
    for (size_t i = 0; i < sizeof(ARCHS) / sizeof(ARCHS[0]); i++)
        if (gguf_string_equal(name, ARCHS[i].name))
            return &ARCHS[i];
    return NULL;
}

const char *model_arch_names(void)
{
    return ARCH_NAMES;
}
