/* simd_panel.h: quantized activations in the order in which a tile reads them: for each block of 32
 * inputs the rows' integers [rows][32], then their scales [rows], then their starts [rows], so that
 * in a tile every address is at a constant distance from one pointer.
 *
 * A start is derived from the block's sum of integers: the int32 with which an integer sum starts,
 * because weights are stored with an offset; or, for types with minima, the sum as a float.
 * Included by simd_tile.h.
 */
#ifndef HEARTH_KERNELS_CPU_SIMD_SIMD_PANEL_H
#define HEARTH_KERNELS_CPU_SIMD_SIMD_PANEL_H
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec.h"
#include "kernels/quant/quant_grids.h"

#include <string.h>

enum { PANEL_BYTES = CPU_BLOCK + 4 + 4 }; /* per row and block */

ALWAYS_INLINE const int8_t *panel_inputs(const uint8_t *panel, size_t b, int rows, int r)
{
    return (const int8_t *)(panel + b * (size_t)(rows * PANEL_BYTES) + (size_t)(r * CPU_BLOCK));
}

ALWAYS_INLINE const uint8_t *panel_scale(const uint8_t *panel, size_t b, int rows, int r)
{
    return panel + b * (size_t)(rows * PANEL_BYTES) + (size_t)(rows * CPU_BLOCK + r * 4);
}

ALWAYS_INLINE const uint8_t *panel_start(const uint8_t *panel, size_t b, int rows, int r)
{
    return panel_scale(panel, b, rows, rows + r);
}

/* Broadcasts to all lanes. */
ALWAYS_INLINE vi panel_word(const void *at)
{
    int32_t word;
    memcpy(&word, at, sizeof(word));
    return vi_set1(word);
}

ALWAYS_INLINE vf panel_float(const void *at)
{
    float value;
    memcpy(&value, at, sizeof(value));
    return v_set1(value);
}

/* The offset with which the weights of a type are multiplied: as stored, or as looked up. Both
 * vpdpbusd and vpmaddubsw take unsigned integers; for the latter those of IQ4 would be too large with
 * one. Types with sums of half blocks have none here. */
static inline int32_t panel_offset(uint32_t type)
{
    switch (type) {
    case QUANT_Q8_0:
        return 128;
    case QUANT_Q4_0:
        return 8;
    case QUANT_Q5_0:
        return 16;
#if !defined(VEC_HAS_DOT)
    case QUANT_IQ3_XXS:
        return 62;
    case QUANT_IQ3_S:
        return 15;
    case QUANT_MXFP4:
        return 12;
    default:
        return 0;
#else
    default:
        return quant_table(type) ? 128 : 0;
#endif
    }
}

/* Fills the panel for rows [row, row + rows), all inputs of a matmul. */
static inline void panel_fill(const struct cpu_matmul *p, uint32_t row, uint32_t rows,
                              uint8_t *panel)
{
    const struct cpu_input *x = p->x;
    const uint32_t cols = p->matrix->file.cols;
    const int32_t offset = panel_offset(p->matrix->file.type);
    for (uint32_t r = 0; r < rows; r++) {
        const size_t from = (size_t)(p->gather ? p->gather[row + r] : row + r) * x->stride;
        const int8_t *q = x->q + from;
        uint8_t *to = panel + r * CPU_BLOCK, *words = panel + rows * CPU_BLOCK + r * 4;
        for (uint32_t b = 0; b < cols / CPU_BLOCK; b++) {
            const int32_t sum = x->sum[from / CPU_BLOCK + b], start = -offset * sum;
            const float value = (float)sum;
            memcpy(to, q + b * CPU_BLOCK, CPU_BLOCK);
            memcpy(words, &x->d[from / CPU_BLOCK + b], 4);
            memcpy(words + rows * 4, offset ? (const void *)&start : (const void *)&value, 4);
            to += rows * PANEL_BYTES;
            words += rows * PANEL_BYTES;
        }
    }
}

#endif
