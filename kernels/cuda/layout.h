/*
 * layout: weights as the kernels read them. Output rows come in groups of 32, padded with zeros; in a group the inputs
 * follow one another, a segment of 256 at a time, in units of 512 bytes: 16 bytes for each lane of a warp, so that
 * one load of a warp is one unit.
 *
 * Quantized types, a segment of n blocks (8, fewer in the last):
 *
 *     factors  CUDA_FACTOR_UNITS, [32 rows][16 bytes] each: what the file has for a row's eight blocks (below)
 *     tail     Q3_K, Q6_K: [32 rows] f16 D; Q2_K: the same, then Dmin; MXFP4: [32 rows][8] bytes e; IQ4_XS, IQ3_XXS,
 *              IQ3_S: [32 rows][8] int8 scales, then [32 rows] f16 D
 *     bits     upper bits of the integers, units of [32 lanes][16 bytes]
 *     low      [n blocks] one unit (two for Q8_0): the lower four bits of the integers (all eight)
 *
 *     Q8_0, Q4_0, Q5_0, IQ4_NL
 *                        [8] f16 D
 *     Q4_1, Q5_1         two units: [8] f16 D; [8] f16 M
 *     Q4_K, Q5_K         f16 D, f16 Dmin, the file's twelve bytes of scales and minima
 *     Q3_K, Q6_K         [16] int8 scales
 *     Q2_K               [16] bytes: a scale in the low nibble, a minimum in the high one
 *     MXFP4, IQ4_XS, IQ3_XXS, IQ3_S
 *                        none
 *
 * Integers are stored as they are in the file, unsigned (Q8_0: signed), in the order in which mma_s8 (device.h) takes
 * them. Lane 4g + t, with rows g, g + 8, g + 16, g + 24 as r = 0 .. 3:
 *
 *     low    word r: byte c has input 4t + c in its low nibble and 16 + 4t + c in its high one
 *     of types with a table: word r: nibble c is input 4t + c, nibble 4 + c input 16 + 4t + c
 *     Q8_0   unit 0: word r is inputs 4t .. 4t + 3; unit 1: 16 + 4t .. 16 + 4t + 3
 *     bits   5-bit types: word of a block: in byte c bit 2r + h is the fifth bit of row r's input 16h + 4t + c; four
 *            blocks a unit. Q6_K: two words of a block, one for each h: in byte c bits 2r, 2r + 1; two blocks a unit.
 *            Q2_K has such pairs alone, Q3_K pairs and then, as a fifth bit, the third
 *
 * F32, F16, BF16: units of [32 rows][16 bytes]: the next 4 or 8 inputs of a row. Nothing is read past cols.
 *
 * By rows, F16 and BF16 where cuBLAS reads them too: [32 rows][group_bytes / 32]: all inputs of a row, zeros after them
 * to a multiple of 8. As many bytes; a warp's load of 16 bytes a lane takes 64 bytes of each of eight rows.
 *
 * The bytes are those of the file, but for a last segment that is short, and for types whose scales or points are
 * unpacked: IQ4_XS takes 1.01 times as many, Q3_K 1.04, IQ3_S 1.25, IQ3_XXS 1.41. Pure arithmetic.
 */
#ifndef HEARTH_KERNELS_CUDA_LAYOUT_H
#define HEARTH_KERNELS_CUDA_LAYOUT_H

#include <stdint.h>

#include "kernels/cuda/cuda.h"
#include "kernels/quant/quant_types.h"

#ifdef __cplusplus
#include <cuda_runtime.h>
#define LAYOUT_INLINE static __host__ __device__ __forceinline__ constexpr
#else
#define LAYOUT_INLINE static inline
#endif

enum { CUDA_UNIT = 512, CUDA_TAIL = 64 };

LAYOUT_INLINE int layout_quantized(uint32_t type)
{
    return type != QUANT_F32 && type != QUANT_F16 && type != QUANT_BF16;
}

/* Whether a type's integers are nibbles of a table (quant_grids.h). */
LAYOUT_INLINE int layout_table(uint32_t type)
{
    return type == QUANT_MXFP4 || type == QUANT_IQ4_NL || type == QUANT_IQ4_XS ||
           type == QUANT_IQ3_XXS || type == QUANT_IQ3_S;
}

/* Whether a block's scale is a byte beside D. */
LAYOUT_INLINE int layout_byte_scaled(uint32_t type)
{
    return type == QUANT_IQ4_XS || type == QUANT_IQ3_XXS || type == QUANT_IQ3_S;
}

/* Whether a block has two scales, each for 16 inputs. */
LAYOUT_INLINE int layout_halves(uint32_t type)
{
    return type == QUANT_Q2_K || type == QUANT_Q3_K || type == QUANT_Q6_K;
}

/* Units of factors of a segment. */
LAYOUT_INLINE uint32_t layout_factors(uint32_t type)
{
    return type == QUANT_Q4_1 || type == QUANT_Q5_1          ? 2
           : type == QUANT_MXFP4 || layout_byte_scaled(type) ? 0
                                                             : 1;
}

LAYOUT_INLINE uint32_t layout_tail(uint32_t type)
{
    return type == QUANT_Q6_K || type == QUANT_Q3_K ? CUDA_TAIL
           : type == QUANT_Q2_K                     ? 2 * CUDA_TAIL
           : type == QUANT_MXFP4                    ? 4 * CUDA_TAIL
           : layout_byte_scaled(type)               ? 5 * CUDA_TAIL
                                                    : 0;
}

/* Units of upper bits of a segment. */
LAYOUT_INLINE uint32_t layout_bits(uint32_t type)
{
    return type == QUANT_Q3_K                                               ? 6
           : type == QUANT_Q6_K || type == QUANT_Q2_K                       ? 4
           : type == QUANT_Q5_0 || type == QUANT_Q5_1 || type == QUANT_Q5_K ? 2
                                                                            : 0;
}

/* Units of a block. */
LAYOUT_INLINE uint32_t layout_low(uint32_t type)
{
    return type == QUANT_Q8_0 ? 2 : type == QUANT_Q2_K || type == QUANT_Q3_K ? 0 : 1;
}

/* What the stored integers have more than the q of NUMERICS.md. */
LAYOUT_INLINE int32_t layout_offset(uint32_t type)
{
    return type == QUANT_Q6_K   ? 32
           : type == QUANT_Q5_0 ? 16
           : type == QUANT_Q4_0 ? 8
           : type == QUANT_Q3_K ? 4
                                : 0;
}

/* Whether the type has minima. */
LAYOUT_INLINE int layout_has_min(uint32_t type)
{
    return type == QUANT_Q4_1 || type == QUANT_Q5_1 || type == QUANT_Q2_K || type == QUANT_Q4_K ||
           type == QUANT_Q5_K;
}

/* Bytes of a segment before its blocks, and of a whole one. */
LAYOUT_INLINE uint32_t layout_head_bytes(uint32_t type)
{
    return (layout_factors(type) + layout_bits(type)) * CUDA_UNIT + layout_tail(type);
}

LAYOUT_INLINE uint32_t layout_segment_bytes(uint32_t type)
{
    return layout_head_bytes(type) + CUDA_SEGMENT_BLOCKS * layout_low(type) * CUDA_UNIT;
}

/* Inputs of a unit of a float type. */
LAYOUT_INLINE uint32_t layout_unit_inputs(uint32_t type)
{
    return type == QUANT_F32 ? 4 : 8;
}

LAYOUT_INLINE uint64_t layout_group_bytes(uint32_t type, uint32_t cols)
{
    return layout_quantized(type)
               ? (uint64_t)((cols + CUDA_SEGMENT - 1) / CUDA_SEGMENT) * layout_head_bytes(type) +
                     (uint64_t)(cols / CUDA_BLOCK) * layout_low(type) * CUDA_UNIT
               : (uint64_t)((cols + layout_unit_inputs(type) - 1) / layout_unit_inputs(type)) *
                     CUDA_UNIT;
}

#endif
