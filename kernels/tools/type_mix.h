/*
 * type_mix.h: which tensor of a quantized file has which type. A --type such as Q4_K_M names a mix:
 * most matrices have one type, the ones that matter more a better one. The rules are llama.cpp's
 * (without an importance matrix), so that a file has the size and quality that users expect of its
 * name.
 *
 *   vectors                 F32, whatever the mix
 *   F32, F16, BF16, Q8_0    every matrix
 *   the other mixes         the matrix that makes the logits (output.weight, or token_embd.weight of
 *                           a tied model): Q6_K
 *   Q4_K_M, Q5_K_M          attn_v and ffn_down of the first and last eighth of the layers and of
 *                           every third layer between: Q6_K; attn_qkv: Q5_K, Q6_K
 *   Q4_K_S                  attn_v of the first four layers, ffn_down of the first eighth: Q5_K
 *   Q3_K_M                  attn_v of the first two layers, ffn_down of the first sixteenth: Q5_K; of the
 *                           others, attn_output, attn_qkv: Q4_K
 *   Q3_K_L                  attn_v, ffn_down, attn_output: Q5_K; attn_qkv: Q4_K
 *   Q2_K                    ffn_down, attn_output: Q3_K; attn_v: Q3_K, or Q4_K where four heads or more
 *                           share a KV head
 *   IQ4_NL, IQ4_XS          ffn_down of the first eighth: Q5_K; attn_v: Q5_K where four heads share one
 *   MXFP4                   the logits' matrix: Q8_0
 *   MXFP4_MOE               experts: MXFP4; every other matrix: Q8_0
 *   a row that is not a multiple of 256: Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K, Q4_0 for Q2_K and
 *   Q3_K, IQ4_NL for IQ4_XS; none of 32: F16
 *
 * Pure; any thread. */
#ifndef HEARTH_KERNELS_TOOLS_TYPE_MIX_H
#define HEARTH_KERNELS_TOOLS_TYPE_MIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct type_mix {
    const char *name;
    uint32_t file_type; /* general.file_type */
    uint32_t base;      /* quant_type of most matrices */
};

const struct type_mix *type_mix_find(const char *name); /* in any case; NULL: none */

/* Writes "F32, F16, ..." of all names. */
void type_mix_names(char *text, size_t text_bytes);

/* What the rules ask of a model. */
struct type_mix_model {
    uint32_t n_layer, n_gqa; /* n_gqa: heads of a KV head */
    bool tied;               /* the logits are made by token_embd.weight */
};

/* The type of the matrix `tensor`, with rows of `cols`. */
uint32_t type_mix_of(const struct type_mix *mix, const char *tensor, uint64_t cols,
                     const struct type_mix_model *model);

#endif
