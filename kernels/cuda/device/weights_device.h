/* weights_device.h: decodes the bytes of layout.h on the device: integers as operands of mma_s8,
 * factors as the exact f32 of NUMERICS.md, "Weights". */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_WEIGHTS_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_WEIGHTS_DEVICE_H

#include "kernels/cuda/device/num_device.h"
#include "kernels/cuda/layout.h"

static __device__ __forceinline__ unsigned word_of(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Byte i of sixteen. */
static __device__ __forceinline__ unsigned byte_of(const uint4 &v, int i)
{
    return word_of(v, i / 4) >> 8 * (i % 4) & 255u;
}

/* f16 number i of eight. */
static __device__ __forceinline__ float half_of(const uint4 &v, int i)
{
    return f32_from_f16((unsigned short)(word_of(v, i / 2) >> 16 * (i % 2)));
}

/* Scale and minimum, 0 .. 63, of sub-block `sub` of a Q4_K or Q5_K block; f: D, Dmin and its twelve
 * bytes. See quant_scale_min in kernels/quant/quant_block.c for the format. */
static __device__ __forceinline__ void scale_min(const uint4 &f, int sub, float *scale, float *min)
{
    unsigned s, m;
    if (sub < 4) {
        s = byte_of(f, 4 + sub) & 63u;
        m = byte_of(f, 8 + sub) & 63u;
    } else {
        s = (byte_of(f, 8 + sub) & 15u) | byte_of(f, sub) >> 6 << 4;
        m = byte_of(f, 8 + sub) >> 4 | byte_of(f, 4 + sub) >> 6 << 4;
    }
    *scale = (float)(int)s;
    *min = (float)(int)m;
}

/* A row's factors of a whole segment, as loaded; block() returns those of one block. */
template <uint32_t TYPE> struct row_factors {
    uint4 first, second; /* second: used by Q5_1 */
    float d;             /* used by Q6_K */

    __device__ __forceinline__ void load(const uint8_t *segment, int row)
    {
        first = load_stream(segment + row * 16);
        if (TYPE == QUANT_Q5_1)
            second = load_stream(segment + CUDA_UNIT + row * 16);
        if (TYPE == QUANT_Q6_K)
            d = f32_from_f16(((const unsigned short *)(segment + CUDA_UNIT))[row]);
    }

    /* w; m if the type has it; the two scales of Q6_K. */
    __device__ __forceinline__ void block(int b, float *w, float *m, int scale[2]) const
    {
        if (TYPE == QUANT_Q6_K) {
            *w = d;
            scale[0] = (int)(signed char)byte_of(first, 2 * b);
            scale[1] = (int)(signed char)byte_of(first, 2 * b + 1);
        } else if (TYPE == QUANT_Q4_K || TYPE == QUANT_Q5_K) {
            scale_min(first, b, w, m);
            *w = __fmul_rn(half_of(first, 0), *w);
            *m = __fmul_rn(half_of(first, 1), *m);
        } else {
            *w = half_of(first, b);
            if (TYPE == QUANT_Q5_1)
                *m = -half_of(second, b);
        }
    }
};

/* The first (h = 0) or second sixteen inputs of a block, for this lane and row r: a word of four
 * int8 as stored, for Q6_K with the offset subtracted. low: the block's unit(s), bits: its word(s)
 * of upper bits. */
template <uint32_t TYPE>
static __device__ __forceinline__ unsigned integers(const uint4 low[2], const unsigned bits[2],
                                                    int r, int h)
{
    if (TYPE == QUANT_Q8_0)
        return word_of(low[h], r);
    unsigned word = word_of(low[0], r) >> 4 * h & 0x0f0f0f0fu;
    const int bit = 2 * r + h;
    if (TYPE == QUANT_Q5_0 || TYPE == QUANT_Q5_1 || TYPE == QUANT_Q5_K)
        word |= (bit < 4 ? bits[0] << (4 - bit) : bits[0] >> (bit - 4)) & 0x10101010u;
    if (TYPE == QUANT_Q6_K) {
        word |= (r < 2 ? bits[h] << (4 - 2 * r) : bits[h] >> (2 * r - 4)) & 0x30303030u;
        word = ((word | 0x80808080u) - 0x20202020u) ^ 0x80808080u; /* no borrow crosses a byte */
    }
    return word;
}

/* One weight of a quantized matrix: NUMERICS.md, "Weights". For embedding rows: one value at a
 * time. */
template <uint32_t TYPE>
static __device__ float block_value(const struct cuda_matrix &m, uint32_t row, uint32_t i)
{
    const uint8_t *segment = m.data + row / CUDA_GROUP * m.group_bytes +
                             (uint64_t)(i / CUDA_SEGMENT) * layout_segment_bytes(TYPE);
    const uint8_t *bits_at = segment + layout_factors(TYPE) * CUDA_UNIT + layout_tail(TYPE);
    const int b = (int)(i % CUDA_SEGMENT / CUDA_BLOCK), k = (int)(i % CUDA_BLOCK),
              in = (int)(row % CUDA_GROUP);
    const int lane = 4 * (in % 8) + k % 16 / 4, h = k / 16, c = k % 4;
    const uint8_t *low_at = segment + layout_head_bytes(TYPE) + b * layout_low(TYPE) * CUDA_UNIT;
    uint4 low[2];
    unsigned bits[2] = {0, 0};
    low[0] = *(const uint4 *)(low_at + lane * 16);
    low[1] = layout_low(TYPE) == 2 ? *(const uint4 *)(low_at + CUDA_UNIT + lane * 16) : low[0];
    if (TYPE == QUANT_Q6_K) {
        bits[0] = ((const unsigned *)(bits_at + b / 2 * CUDA_UNIT + lane * 16))[b % 2 * 2];
        bits[1] = ((const unsigned *)(bits_at + b / 2 * CUDA_UNIT + lane * 16))[b % 2 * 2 + 1];
    } else if (layout_bits(TYPE)) {
        bits[0] = ((const unsigned *)(bits_at + b / 4 * CUDA_UNIT + lane * 16))[b % 4];
    }
    const unsigned word = integers<TYPE>(low, bits, in / 8, h);
    const float q = (float)((int)(signed char)(word >> 8 * c & 255u) -
                            (TYPE == QUANT_Q6_K ? 0 : layout_offset(TYPE)));
    row_factors<TYPE> f;
    float w, min = 0.0f;
    int scale[2] = {1, 1};
    f.load(segment, in);
    f.block(b, &w, &min, scale);
    if (TYPE == QUANT_Q6_K)
        w = __fmul_rn(w, (float)scale[h]);
    return layout_has_min(TYPE) ? __fmaf_rn(w, q, -min) : __fmul_rn(w, q);
}

/* Value j of a unit's 16 bytes of a float type. */
template <uint32_t TYPE> static __device__ __forceinline__ float float_of(const uint4 &v, int j)
{
    if (TYPE == QUANT_F32)
        return __uint_as_float(word_of(v, j));
    const unsigned half = word_of(v, j / 2) >> 16 * (j % 2) & 0xffffu;
    return TYPE == QUANT_F16 ? f32_from_f16((unsigned short)half) : __uint_as_float(half << 16);
}

template <uint32_t TYPE>
static __device__ float float_value(const struct cuda_matrix &m, uint32_t row, uint32_t i)
{
    const uint32_t inputs = layout_unit_inputs(TYPE), in = row % CUDA_GROUP, unit = i / inputs;
    const uint8_t *group = m.data + row / CUDA_GROUP * m.group_bytes;
    const uint64_t at = m.by_rows ? in * (m.group_bytes / CUDA_GROUP) + unit * 16
                                  : (uint64_t)unit * CUDA_UNIT + in * 16;
    return float_of<TYPE>(*(const uint4 *)(group + at), (int)(i % inputs));
}

#endif
