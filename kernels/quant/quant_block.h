/* quant_block.h: decodes the bytes of a tensor's row into numbers.
 *
 * A row of a quantized type is read 32 weights at a time (a sub-block; activations are quantized in
 * blocks of the same size, whatever the type of the weights):
 *
 *   weight i = (d * scale[i / 16]) * q[i] - min * min_scale[i / 16]
 *
 * scale is 1 except for Q2_K, Q3_K and Q6_K, min_scale except for Q2_K; min only if the type has one.
 *
 * Formulas of kernels/NUMERICS.md, "Embedding" and "Matmuls". The CPU reference computes from
 * these numbers; packed layouts are tested against them. Pure functions, any thread, any alignment;
 * plain C, the same bits everywhere. */
#ifndef HEARTH_KERNELS_QUANT_QUANT_BLOCK_H
#define HEARTH_KERNELS_QUANT_QUANT_BLOCK_H
#include "kernels/quant/quant_types.h"

#include <stdbool.h>
#include <stdint.h>

enum { QUANT_SUB = 32 }; /* weights of a sub-block */

struct quant_sub {
    int8_t q[QUANT_SUB];
    int8_t scale[2], min_scale[2]; /* of each 16 weights */
    bool has_min;
    float d, min; /* exact f32 */
};

/* True for the quantized types that the functions here read. */
bool quant_readable(uint32_t type);

/* Loads weights [32 * index, 32 * index + 32) of a row of a readable type. */
void quant_sub_load(uint32_t type, const uint8_t *row, uint64_t index, struct quant_sub *ret);

/* The values of a sub-block: x [32]. */
void quant_sub_values(const struct quant_sub *s, float *x);

/* The nibbles of sub-block `sub` of a block of a type with a table (quant_grids.h): q[i] is
 * quant_table(type)[n[i]]. */
void quant_sub_nibbles(uint32_t type, const uint8_t *block, int sub, uint8_t n[QUANT_SUB]);

/* The scale of sub-block `sub` (0 .. 7) of a block of IQ4_XS, IQ3_XXS or IQ3_S: w is D * scale, of
 * IQ3_XXS a quarter of it. */
int8_t quant_byte_scale(uint32_t type, const uint8_t *block, int sub);

/* The scales, -32 .. 31, of sub-block `sub` of a Q3_K block. */
void quant_q3_k_scales(const uint8_t *block, int sub, int8_t ret_scale[2]);

/* w of MXFP4 from its byte e: 2^(e - 128), a denormal for 0 and 1. */
float quant_e8m0(uint8_t e);

/* Unpacks scale and minimum (0 .. 63) of sub-block `sub` (0 .. 7) from the twelve bytes of a Q4_K
 * or Q5_K block. */
void quant_scale_min(const uint8_t *packed, int sub, uint8_t *ret_scale, uint8_t *ret_min);

/* Returns value i of a row of F32, F16 or BF16. */
float quant_float(uint32_t type, const uint8_t *row, uint64_t i);

/* x [n] = the row's values; a readable type or F32, F16, BF16; n a multiple of the type's block. */
void quant_row_values(uint32_t type, const uint8_t *row, uint64_t n, float *x);

#endif
