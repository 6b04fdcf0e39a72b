/* matmul_bf16_device.h: NUMERICS.md, "Native": matmuls of quantized matrices by tensor cores, their
 * weights rounded to bf16 in registers. A block of 32 inputs of 16 outputs and 8 rows is two mma. A
 * lane's four integers of half a block are its operands, of two rows of the matrix. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_MATMUL_BF16_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_MATMUL_BF16_DEVICE_H

#include "kernels/cuda/device/weights_device.h"

/* Two of a lane's rows of a group, g + 16 m and g + 16 m + 8: their factors of a block. */
template <uint32_t TYPE> struct bf16_factors {
    float w[2][2], min[2][2]; /* [row][half of the block] */

    __device__ __forceinline__ void set(int b, const row_factors<TYPE> factors[2])
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float of_block, min_of_block = 0.0f;
            int scale[2] = {1, 1};
            factors[r].block(b, &of_block, &min_of_block, scale);
            for (int h = 0; h < 2; h++) {
                w[r][h] = of_block;
                min[r][h] = min_of_block;
                factors_of_half<TYPE>(scale, h, &w[r][h], &min[r][h]);
            }
        }
    }
};

/* The operand of mma_half of sixteen inputs, h of a block. low: the low_word of each row. */
template <uint32_t TYPE>
static __device__ __forceinline__ void bf16_operand(const unsigned low[2], const unsigned bits[3],
                                                    int m, int h, const bf16_factors<TYPE> &f,
                                                    unsigned a[4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const unsigned word = integers<TYPE>(low[r], bits, 2 * m + r, h);
        float of[4];
        for (int c = 0; c < 4; c++)
            of[c] = weight_of<TYPE>(word, c, f.w[r][h], f.min[r][h]);
        a[r] = bf16_pair(of[0], of[1]);
        a[2 + r] = bf16_pair(of[2], of[3]);
    }
}

/* One segment of n blocks, of inputs from `begin` on, of the 32 outputs of a group, and of `rows`
 * rows from `first_row` on, at most 8 * TILES: results to out [8 * TILES][PITCH]. */
template <uint32_t TYPE, int TILES, int PITCH>
static __device__ __forceinline__ void bf16_segment(const uint8_t *segment, uint32_t n,
                                                    uint32_t begin, const struct cuda_input &x,
                                                    uint32_t first_row, uint32_t rows, float *out)
{
    const int lane = (int)(threadIdx.x % 32), g = lane / 4, t = lane % 4;
    const uint8_t *bits_at =
        segment + layout_factors(TYPE) * CUDA_UNIT + layout_tail(TYPE) + lane * 16;
    const uint8_t *low_at = segment + layout_head_bytes(TYPE) + lane * 16;
    constexpr int LOW = (int)layout_low(TYPE), BITS = (int)layout_bits(TYPE),
                  UNITS = LOW > 0 ? LOW : 1, AT_ONCE = TILES > 2 ? 2 : 4,
                  AT_ONCE_HALVES = TILES > 4 ? 1 : 2;
    const uint16_t *half = x.half[1] + (uint64_t)(first_row + g) * x.stride + begin + 4 * t;
    float acc[2][TILES][4] = {};
    row_factors<TYPE> factors[4];
    uint4 bits[BITS > 0 ? BITS : 1];
    for (int r = 0; r < 4; r++)
        factors[r].load(segment, g + 8 * r);
    for (int u = 0; u < BITS; u++)
        bits[u] = load_stream(bits_at + u * CUDA_UNIT);
#pragma unroll
    for (int b0 = 0; b0 < CUDA_SEGMENT_BLOCKS; b0 += AT_ONCE) {
        uint4 low[AT_ONCE * UNITS];
#pragma unroll
        for (int i = 0; i < AT_ONCE * LOW; i++)
            low[i] = b0 + i / UNITS < (int)n ? load_stream(low_at + (b0 * LOW + i) * CUDA_UNIT)
                                             : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int b = b0 + i;
            if (b >= (int)n)
                break;
            unsigned word[3] = {0, 0, 0};
            upper_bits<TYPE>(bits, 1, b, word);
            bf16_factors<TYPE> f[2];
            f[0].set(b, factors);
            f[1].set(b, factors + 2);
            uint2 inputs[AT_ONCE_HALVES][TILES];
#pragma unroll
            for (int h = 0; h < 2; h++) {
#pragma unroll
                for (int k = 0; h % AT_ONCE_HALVES == 0 && k < AT_ONCE_HALVES; k++)
                    for (int j = 0; j < TILES; j++)
                        inputs[k][j] =
                            (uint32_t)(CUDA_TILE * j + g) < rows
                                ? load_now((const uint2 *)(half +
                                                           (uint64_t)CUDA_TILE * j * x.stride +
                                                           b * CUDA_BLOCK + 16 * (h + k)))
                                : make_uint2(0, 0);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    const unsigned of[2] = {low_word<TYPE>(low + i * LOW, 2 * m, h),
                                            low_word<TYPE>(low + i * LOW, 2 * m + 1, h)};
                    unsigned a[4];
                    bf16_operand<TYPE>(of, word, m, h, f[m], a);
#pragma unroll
                    for (int j = 0; j < TILES; j++) {
                        const uint2 &x_of = inputs[h % AT_ONCE_HALVES][j];
                        const unsigned two[2] = {x_of.x, x_of.y};
                        mma_half<true>(acc[m][j], a, two, acc[m][j]);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < TILES; j++)
        for (int m = 0; m < 2; m++)
            for (int e = 0; e < 4; e++)
                out[(CUDA_TILE * j + 2 * t + e % 2) * PITCH + 16 * m + 8 * (e / 2) + g] =
                    acc[m][j][e];
}

#endif
