/* type_mix.c: the table of mixes and the rules of llama.cpp. See type_mix.h. */
#include "kernels/tools/type_mix.h"

#include "kernels/quant/quant_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum file_type {
    FILE_F32 = 0,
    FILE_F16 = 1,
    FILE_Q4_0 = 2,
    FILE_Q8_0 = 7,
    FILE_Q5_0 = 8,
    FILE_Q5_1 = 9,
    FILE_Q4_K_S = 14,
    FILE_Q4_K_M = 15,
    FILE_Q5_K_S = 16,
    FILE_Q5_K_M = 17,
    FILE_Q6_K = 18,
    FILE_BF16 = 32,
};

static const struct type_mix mixes[] = {
    {"F32", FILE_F32, QUANT_F32},        {"F16", FILE_F16, QUANT_F16},
    {"BF16", FILE_BF16, QUANT_BF16},     {"Q8_0", FILE_Q8_0, QUANT_Q8_0},
    {"Q4_0", FILE_Q4_0, QUANT_Q4_0},     {"Q5_0", FILE_Q5_0, QUANT_Q5_0},
    {"Q5_1", FILE_Q5_1, QUANT_Q5_1},     {"Q4_K_S", FILE_Q4_K_S, QUANT_Q4_K},
    {"Q4_K_M", FILE_Q4_K_M, QUANT_Q4_K}, {"Q5_K_S", FILE_Q5_K_S, QUANT_Q5_K},
    {"Q5_K_M", FILE_Q5_K_M, QUANT_Q5_K}, {"Q6_K", FILE_Q6_K, QUANT_Q6_K},
};
enum { N_MIXES = sizeof(mixes) / sizeof(mixes[0]) };

const struct type_mix *type_mix_find(const char *name)
{
    for (size_t i = 0; i < N_MIXES; i++)
        if (strcmp(mixes[i].name, name) == 0)
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

static uint32_t wanted(const struct type_mix *mix, const char *tensor, uint32_t n_layer, bool tied)
{
    bool plain = !quant_find(mix->base)->quantized || mix->base == QUANT_Q8_0;
    bool logits = strcmp(tensor, tied ? "token_embd.weight" : "output.weight") == 0;
    if (plain)
        return mix->base;
    if (logits)
        return QUANT_Q6_K;
    bool value = ends_with(tensor, ".attn_v.weight"), down = ends_with(tensor, ".ffn_down.weight");
    if (strncmp(tensor, "blk.", 4) != 0 || (!value && !down))
        return mix->base;
    uint32_t layer = (uint32_t)strtoul(tensor + 4, NULL, 10);
    bool medium = mix->file_type == FILE_Q4_K_M || mix->file_type == FILE_Q5_K_M;
    if (medium && more_bits(layer, n_layer))
        return QUANT_Q6_K;
    if (mix->file_type == FILE_Q4_K_S && layer < (value ? 4 : n_layer / 8))
        return QUANT_Q5_K;
    return mix->base;
}

uint32_t type_mix_of(const struct type_mix *mix, const char *tensor, uint64_t cols,
                     uint32_t n_layer, bool tied)
{
    uint32_t type = wanted(mix, tensor, n_layer, tied);
    if (cols % quant_find(type)->block != 0)
        type = type == QUANT_Q4_K   ? QUANT_Q5_0
               : type == QUANT_Q5_K ? QUANT_Q5_1
               : type == QUANT_Q6_K ? QUANT_Q8_0
                                    : QUANT_F16;
    return cols % quant_find(type)->block == 0 ? type : QUANT_F16;
}
