/* weights_device.h: decodes the bytes of layout.h on the device: integers as operands of mma_s8,
 * factors as the exact f32 of NUMERICS.md, "Weights". */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_WEIGHTS_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_WEIGHTS_DEVICE_H

#include "kernels/cuda/device/num_device.h"
#include "kernels/cuda/layout.h"

/* The types, each as a case of a switch: CASE(type) is `case type: ...`. */
#define FLOAT_CASES(CASE)                                                                          \
    CASE(QUANT_F32);                                                                               \
    CASE(QUANT_F16);                                                                               \
    CASE(QUANT_BF16);
#define QUANTIZED_CASES(CASE)                                                                      \
    CASE(QUANT_Q8_0);                                                                              \
    CASE(QUANT_Q4_0);                                                                              \
    CASE(QUANT_Q4_1);                                                                              \
    CASE(QUANT_Q5_0);                                                                              \
    CASE(QUANT_Q5_1);                                                                              \
    CASE(QUANT_Q2_K);                                                                              \
    CASE(QUANT_Q3_K);                                                                              \
    CASE(QUANT_Q4_K);                                                                              \
    CASE(QUANT_Q5_K);                                                                              \
    CASE(QUANT_MXFP4);                                                                             \
    CASE(QUANT_IQ4_NL);                                                                            \
    CASE(QUANT_IQ4_XS);                                                                            \
    CASE(QUANT_IQ3_XXS);                                                                           \
    CASE(QUANT_IQ3_S);                                                                             \
    default:                                                                                       \
        CASE(QUANT_Q6_K);

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
    uint4 first, second; /* second: used by Q4_1 and Q5_1 */
    float d, dmin;       /* used by types with two scales a block or with byte scales, by Q2_K */

    __device__ __forceinline__ void load(const uint8_t *segment, int row)
    {
        if (layout_factors(TYPE) == 0) {
            const uint2 eight = ((const uint2 *)segment)[row];
            first = make_uint4(eight.x, eight.y, 0, 0);
        } else {
            first = load_stream(segment + row * 16);
        }
        if (layout_factors(TYPE) == 2)
            second = load_stream(segment + CUDA_UNIT + row * 16);
        if (layout_halves(TYPE))
            d = f32_from_f16(((const unsigned short *)(segment + CUDA_UNIT))[row]);
        if (TYPE == QUANT_Q2_K)
            dmin = f32_from_f16(((const unsigned short *)(segment + CUDA_UNIT + CUDA_TAIL))[row]);
        if (layout_byte_scaled(TYPE))
            d = __fmul_rn(f32_from_f16(((const unsigned short *)(segment + 4 * CUDA_TAIL))[row]),
                          TYPE == QUANT_IQ3_XXS ? 0.25f : 1.0f);
    }

    /* w; m if the type has it; the two scales of a block with two, of Q2_K with minima in their high
     * nibbles. */
    __device__ __forceinline__ void block(int b, float *w, float *m, int scale[2]) const
    {
        if (layout_halves(TYPE)) {
            const int s0 = (int)byte_of(first, 2 * b), s1 = (int)byte_of(first, 2 * b + 1);
            *w = d;
            if (TYPE == QUANT_Q2_K)
                *m = dmin;
            scale[0] = TYPE == QUANT_Q2_K ? s0 : (signed char)s0;
            scale[1] = TYPE == QUANT_Q2_K ? s1 : (signed char)s1;
        } else if (TYPE == QUANT_MXFP4) {
            const unsigned e = byte_of(first, b);
            *w = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        } else if (layout_byte_scaled(TYPE)) {
            *w = __fmul_rn(d, (float)(int)(signed char)byte_of(first, b));
        } else if (TYPE == QUANT_Q4_K || TYPE == QUANT_Q5_K) {
            scale_min(first, b, w, m);
            *w = __fmul_rn(half_of(first, 0), *w);
            *m = __fmul_rn(half_of(first, 1), *m);
        } else {
            *w = half_of(first, b);
            if (layout_factors(TYPE) == 2)
                *m = -half_of(second, b);
        }
    }
};

/* Bytes a .. p of the tables of quant_grids.h, four a word. */
#define TABLE_WORD(a, b, c, d)                                                                     \
    (((unsigned)(a)&255u) | ((unsigned)(b)&255u) << 8 | ((unsigned)(c)&255u) << 16 |               \
     ((unsigned)(d)&255u) << 24)

template <uint32_t TYPE> static __device__ __forceinline__ unsigned table_word(int i)
{
    constexpr unsigned IQ4[4] = {TABLE_WORD(-127, -104, -83, -65), TABLE_WORD(-49, -35, -22, -10),
                                 TABLE_WORD(1, 13, 25, 38), TABLE_WORD(53, 69, 89, 113)};
    constexpr unsigned FP4[4] = {TABLE_WORD(0, 1, 2, 3), TABLE_WORD(4, 6, 8, 12),
                                 TABLE_WORD(0, -1, -2, -3), TABLE_WORD(-4, -6, -8, -12)};
    constexpr unsigned XXS[4] = {TABLE_WORD(4, 12, 20, 28), TABLE_WORD(36, 44, 52, 62),
                                 TABLE_WORD(-4, -12, -20, -28), TABLE_WORD(-36, -44, -52, -62)};
    constexpr unsigned S[4] = {TABLE_WORD(1, 3, 5, 7), TABLE_WORD(9, 11, 13, 15),
                               TABLE_WORD(-1, -3, -5, -7), TABLE_WORD(-9, -11, -13, -15)};
    return TYPE == QUANT_MXFP4     ? FP4[i]
           : TYPE == QUANT_IQ3_XXS ? XXS[i]
           : TYPE == QUANT_IQ3_S   ? S[i]
                                   : IQ4[i];
}

/* What the four low nibbles of n stand for: by their low three bits from both halves of the table,
 * then one of the two by the fourth. */
template <uint32_t TYPE> static __device__ __forceinline__ unsigned look_up(unsigned n)
{
    const unsigned in = n & 0x7777u, upper = (n & 0x8888u) >> 1;
    return __byte_perm(__byte_perm(table_word<TYPE>(0), table_word<TYPE>(1), in),
                       __byte_perm(table_word<TYPE>(2), table_word<TYPE>(3), in), 0x3210u | upper);
}

/* Subtracts `four` (one offset in each byte) from bytes below 128; no borrow crosses a byte. */
static __device__ __forceinline__ unsigned subtract_bytes(unsigned word, unsigned four)
{
    return ((word | 0x80808080u) - four) ^ 0x80808080u;
}

/* The word of a block's units that has sixteen inputs (integers) of row r. */
template <uint32_t TYPE>
static __device__ __forceinline__ unsigned low_word(const uint4 *low, int r, int h)
{
    return layout_low(TYPE) == 0 ? 0 : word_of(low[layout_low(TYPE) == 2 ? h : 0], r);
}

/* The first (h = 0) or second sixteen inputs of a block, for this lane and row r: a word of four
 * int8 as stored, of types with two scales with the offset subtracted, of types with a table looked
 * up. low: their low_word, bits: the block's word(s) of upper bits. */
template <uint32_t TYPE>
static __device__ __forceinline__ unsigned integers(unsigned low, const unsigned bits[3], int r,
                                                    int h)
{
    if (TYPE == QUANT_Q8_0)
        return low;
    if (layout_table(TYPE))
        return look_up<TYPE>(low >> 16 * h);
    if (TYPE == QUANT_Q2_K)
        return bits[h] >> 2 * r & 0x03030303u;
    if (TYPE == QUANT_Q3_K) {
        const unsigned third = bits[2] >> (2 * r + h) & 0x01010101u;
        return subtract_bytes((bits[h] >> 2 * r & 0x03030303u) | third << 2, 0x04040404u);
    }
    unsigned word = low >> 4 * h & 0x0f0f0f0fu;
    const int bit = 2 * r + h;
    if (TYPE == QUANT_Q5_0 || TYPE == QUANT_Q5_1 || TYPE == QUANT_Q5_K)
        word |= (bit < 4 ? bits[0] << (4 - bit) : bits[0] >> (bit - 4)) & 0x10101010u;
    if (TYPE == QUANT_Q6_K) {
        word |= (r < 2 ? bits[h] << (4 - 2 * r) : bits[h] >> (2 * r - 4)) & 0x30303030u;
        word = subtract_bytes(word, 0x20202020u);
    }
    return word;
}

/* The words of upper bits of block b, from a lane's units `bits` of a segment, which are `pitch`
 * apart. */
template <uint32_t TYPE>
static __device__ __forceinline__ void upper_bits(const uint4 *bits, int pitch, int b,
                                                  unsigned word[3])
{
    if (layout_halves(TYPE)) {
        word[0] = word_of(bits[b / 2 * pitch], b % 2 * 2);
        word[1] = word_of(bits[b / 2 * pitch], b % 2 * 2 + 1);
    } else if (layout_bits(TYPE) > 0) {
        word[0] = word_of(bits[b / 4 * pitch], b % 4);
    }
    if (TYPE == QUANT_Q3_K)
        word[2] = word_of(bits[(4 + b / 4) * pitch], b % 4);
}

/* Factors of the first or second sixteen inputs of a block, from those of the block. */
template <uint32_t TYPE>
static __device__ __forceinline__ void factors_of_half(const int scale[2], int h, float *w,
                                                       float *min)
{
    if (layout_halves(TYPE))
        *w = __fmul_rn(*w, (float)(TYPE == QUANT_Q2_K ? scale[h] & 15 : scale[h]));
    if (TYPE == QUANT_Q2_K)
        *min = __fmul_rn(*min, (float)(scale[h] >> 4));
}

/* Weight c of a word of integers: NUMERICS.md, "Weights". Its q is made in the mantissa of 2^23,
 * which is exact and takes less than a conversion. */
template <uint32_t TYPE>
static __device__ __forceinline__ float weight_of(unsigned word, int c, float w, float min)
{
    constexpr float OF_ZERO =
        8388608.0f + 128.0f + (float)(layout_halves(TYPE) ? 0 : layout_offset(TYPE));
    const float q = __fadd_rn(
        __uint_as_float(__byte_perm(word ^ 0x80808080u, 0x4b000000u, 0x7440u | (unsigned)c)),
        -OF_ZERO);
    return layout_has_min(TYPE) ? __fmaf_rn(w, q, -min) : __fmul_rn(w, q);
}

/* For embedding rows: one value at a time. */
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
    uint4 low[2] = {};
    unsigned bits[3] = {0, 0, 0};
    if (layout_low(TYPE) > 0)
        low[0] = *(const uint4 *)(low_at + lane * 16);
    if (layout_low(TYPE) == 2)
        low[1] = *(const uint4 *)(low_at + CUDA_UNIT + lane * 16);
    upper_bits<TYPE>((const uint4 *)(bits_at + lane * 16), CUDA_UNIT / 16, b, bits);
    const unsigned word = integers<TYPE>(low_word<TYPE>(low, in / 8, h), bits, in / 8, h);
    row_factors<TYPE> f;
    float w, min = 0.0f;
    int scale[2] = {1, 1};
    f.load(segment, in);
    f.block(b, &w, &min, scale);
    factors_of_half<TYPE>(scale, h, &w, &min);
    return weight_of<TYPE>(word, c, w, min);
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
