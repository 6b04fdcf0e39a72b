/* type_mix.c: the table of mixes and the rules of llama.cpp. See type_mix.h. */
#include "kernels/tools/type_mix.h"

#include "kernels/quant/quant_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum file_type {
    FILE_F32 = 0,
    FILE_F16 = 1,
    FILE_Q4_0 = 2,
    FILE_Q4_1 = 3,
    FILE_Q8_0 = 7,
    FILE_Q5_0 = 8,
    FILE_Q5_1 = 9,
    FILE_Q2_K = 10,
    FILE_Q3_K_S = 11,
    FILE_Q3_K_M = 12,
    FILE_Q3_K_L = 13,
    FILE_Q4_K_S = 14,
    FILE_Q4_K_M = 15,
    FILE_Q5_K_S = 16,
    FILE_Q5_K_M = 17,
    FILE_Q6_K = 18,
    FILE_IQ4_NL = 25,
    FILE_IQ4_XS = 30,
    FILE_BF16 = 32,
    FILE_MXFP4 = 38,
};

static const struct type_mix mixes[] = {
    {"F32", FILE_F32, QUANT_F32},          {"F16", FILE_F16, QUANT_F16},
    {"BF16", FILE_BF16, QUANT_BF16},       {"Q8_0", FILE_Q8_0, QUANT_Q8_0},
    {"Q4_0", FILE_Q4_0, QUANT_Q4_0},       {"Q4_1", FILE_Q4_1, QUANT_Q4_1},
    {"Q5_0", FILE_Q5_0, QUANT_Q5_0},       {"Q5_1", FILE_Q5_1, QUANT_Q5_1},
    {"Q2_K", FILE_Q2_K, QUANT_Q2_K},       {"Q3_K_S", FILE_Q3_K_S, QUANT_Q3_K},
    {"Q3_K_M", FILE_Q3_K_M, QUANT_Q3_K},   {"Q3_K_L", FILE_Q3_K_L, QUANT_Q3_K},
    {"Q4_K_S", FILE_Q4_K_S, QUANT_Q4_K},   {"Q4_K_M", FILE_Q4_K_M, QUANT_Q4_K},
    {"Q5_K_S", FILE_Q5_K_S, QUANT_Q5_K},   {"Q5_K_M", FILE_Q5_K_M, QUANT_Q5_K},
    {"Q6_K", FILE_Q6_K, QUANT_Q6_K},       {"IQ4_NL", FILE_IQ4_NL, QUANT_IQ4_NL},
    {"IQ4_XS", FILE_IQ4_XS, QUANT_IQ4_XS}, {"MXFP4", FILE_MXFP4, QUANT_MXFP4},
    {"MXFP4_MOE", FILE_MXFP4, QUANT_Q8_0},
};
enum { N_MIXES = sizeof(mixes) / sizeof(mixes[0]) };

const struct type_mix *type_mix_find(const char *name)
{
    for (size_t i = 0; i < N_MIXES; i++)
        if (strcasecmp(mixes[i].name, name) == 0)
            return &mixes[i];
    return NULL;
}

void type_mix_names(char *text, size_t text_bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < N_MIXES && at < text_bytes; i++)
        at += (size_t)snprintf(text + at, text_bytes - at, i ? ", %s" : "%s", mixes[i].name);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The layers that get more bits in the M mixes. */
static bool more_bits(uint32_t layer, uint32_t n_layer)
{
    uint32_t eighth = n_layer / 8;
    return layer < eighth || layer >= 7 * n_layer / 8 || (layer - eighth) % 3 == 2;
}

static uint32_t value_type(const struct type_mix *mix, const struct type_mix_model *m,
                           uint32_t layer)
{
    const bool grouped = m->n_gqa >= 4;
    switch (mix->file_type) {
    case FILE_Q2_K:
        return grouped ? QUANT_Q4_K : QUANT_Q3_K;
    case FILE_Q3_K_M:
        return layer < 2 ? QUANT_Q5_K : QUANT_Q4_K;
    case FILE_Q3_K_L:
        return QUANT_Q5_K;
    case FILE_Q4_K_S:
        return layer < 4 ? QUANT_Q5_K : mix->base;
    case FILE_Q4_K_M:
    case FILE_Q5_K_M:
        return more_bits(layer, m->n_layer) ? QUANT_Q6_K : mix->base;
    case FILE_IQ4_NL:
    case FILE_IQ4_XS:
        return grouped ? QUANT_Q5_K : mix->base;
    default:
        return mix->base;
    }
}

static uint32_t down_type(const struct type_mix *mix, const struct type_mix_model *m,
                          uint32_t layer)
{
    switch (mix->file_type) {
    case FILE_Q2_K:
        return QUANT_Q3_K;
    case FILE_Q3_K_M:
        return layer < m->n_layer / 16 ? QUANT_Q5_K : QUANT_Q4_K;
    case FILE_Q3_K_L:
        return QUANT_Q5_K;
    case FILE_Q4_K_M:
    case FILE_Q5_K_M:
        return more_bits(layer, m->n_layer) ? QUANT_Q6_K : mix->base;
    case FILE_Q4_K_S:
    case FILE_IQ4_NL:
    case FILE_IQ4_XS:
        return layer < m->n_layer / 8 ? QUANT_Q5_K : mix->base;
    default:
        return mix->base;
    }
}

/* attn_output, or of the merged attn_qkv. */
static uint32_t attention_type(const struct type_mix *mix, bool merged)
{
    switch (mix->file_type) {
    case FILE_Q2_K:
        return merged ? mix->base : QUANT_Q3_K;
    case FILE_Q3_K_M:
        return QUANT_Q4_K;
    case FILE_Q3_K_L:
        return merged ? QUANT_Q4_K : QUANT_Q5_K;
    case FILE_Q4_K_M:
        return merged ? QUANT_Q5_K : mix->base;
    case FILE_Q5_K_M:
        return merged ? QUANT_Q6_K : mix->base;
    default:
        return mix->base;
    }
}

static uint32_t wanted(const struct type_mix *mix, const char *tensor,
                       const struct type_mix_model *m)
{
    const bool plain = !quant_find(mix->base)->quantized || mix->base == QUANT_Q8_0;
    const uint32_t layer = (uint32_t)strtoul(tensor + strcspn(tensor, "0123456789"), NULL, 10);
    if (mix->file_type == FILE_MXFP4 && strstr(tensor, "_exps."))
        return QUANT_MXFP4;
    if (strcmp(tensor, "per_layer_model_proj.weight") == 0) /* never quantized */
        return plain && mix->base != QUANT_Q8_0 ? mix->base : QUANT_BF16;
    if (plain)
        return mix->base;
    if (strcmp(tensor, m->tied ? "token_embd.weight" : "output.weight") == 0 ||
        (m->tied && strcmp(tensor, "per_layer_token_embd.weight") == 0))
        return mix->base == QUANT_MXFP4 ? QUANT_Q8_0 : QUANT_Q6_K;
    if (strncmp(tensor, "blk.", 4) != 0)
        return mix->base;
    if (ends_with(tensor, ".attn_v.weight"))
        return value_type(mix, m, layer);
    if (strstr(tensor, ".ffn_down"))
        return down_type(mix, m, layer);
    if (ends_with(tensor, ".attn_output.weight") || ends_with(tensor, ".attn_qkv.weight"))
        return attention_type(mix, ends_with(tensor, ".attn_qkv.weight"));
    return mix->base;
}

uint32_t type_mix_of(const struct type_mix *mix, const char *tensor, uint64_t cols,
                     const struct type_mix_model *m)
{
    uint32_t type = wanted(mix, tensor, m);
    if (strstr(tensor, ".ffn_gate_inp") || ends_with(tensor, ".ssm_conv1d.weight") ||
        ends_with(tensor, ".shortconv.conv.weight") || ends_with(tensor, ".bias") ||
        ends_with(tensor, ".ssm_a") || ends_with(tensor, ".ssm_d") ||
        ends_with(tensor, ".ssm_norm.weight"))
        /* a router, a convolution, biases of experts, numbers of heads, norms of groups */
        return QUANT_F32;
    if (cols % quant_find(type)->block != 0)
        type = type == QUANT_Q4_K                         ? QUANT_Q5_0
               : type == QUANT_Q5_K                       ? QUANT_Q5_1
               : type == QUANT_Q6_K                       ? QUANT_Q8_0
               : type == QUANT_Q2_K || type == QUANT_Q3_K ? QUANT_Q4_0
               : type == QUANT_IQ4_XS                     ? QUANT_IQ4_NL
                                                          : QUANT_F16;
    return cols % quant_find(type)->block == 0 ? type : QUANT_F16;
}
