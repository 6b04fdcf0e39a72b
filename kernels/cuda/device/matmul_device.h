/* matmul_device.h: NUMERICS.md, "Matmuls". A block of eight warps computes 32 outputs for 8 * TILES
 * rows: a warp takes every eighth segment, lanes are outputs, and segments are added in ascending
 * order through shared memory. So K is split exactly as NUMERICS.md splits it, whatever the number
 * of rows.
 *
 * Quantized types: a block of 32 inputs is one mma_s8 for 16 outputs and 8 rows; its integer sums
 * are exact, and the float operations that follow are those of NUMERICS.md. Float types: the chain
 * of NUMERICS.md, one output per lane. In native numerics all but F32 use tensor cores, in kernels of
 * their own.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_MATMUL_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_MATMUL_DEVICE_H

#include "kernels/cuda/device/matmul_bf16_device.h"
#include "kernels/cuda/device/matmul_half_device.h"
#include "kernels/cuda/device/row_ops_device.h"
#include "kernels/cuda/matmul_launch.h"

/* Results of a segment in shared memory, [8 * TILES rows][32 outputs], padded to avoid bank
 * conflicts. */
enum { SEGMENT_PITCH = CUDA_GROUP + 4 };
#define SEGMENT_FLOATS(tiles) (SEGMENT_PITCH * CUDA_TILE * (tiles))

/* Blocks in segment s. */
static __device__ __forceinline__ uint32_t blocks_of(uint32_t blocks, uint32_t s)
{
    const uint32_t left = blocks - s * CUDA_SEGMENT_BLOCKS;
    return left < CUDA_SEGMENT_BLOCKS ? left : (uint32_t)CUDA_SEGMENT_BLOCKS;
}

/* Rows of activations that an item computes: [first, first + 8 * TILES), of which `n` exist. */
struct matmul_rows {
    static constexpr bool GATHERED = false;
    uint32_t first, n;
};

/* Rows of activations of an expert's n pairs, in any order: pair i has row[i], or first + i where row
 * is NULL. own, column: the rows of a lane's blocks and of the scales of its two columns. */
template <int TILES> struct expert_rows {
    static constexpr bool GATHERED = true;
    const uint32_t *row; /* [n], or NULL */
    uint32_t first, n;
    uint32_t own[TILES], column[TILES][2];

    __device__ __forceinline__ uint32_t at(uint32_t i) const /* i >= n: the last one */
    {
        i = i < n ? i : n - 1;
        return row ? row[i] : first + i;
    }

    __device__ __forceinline__ void set(const uint32_t *of, uint32_t begin, uint32_t count)
    {
        const uint32_t lane = threadIdx.x % 32;
        row = of;
        first = begin;
        n = count;
#pragma unroll
        for (uint32_t j = 0; j < TILES; j++) {
            own[j] = at(CUDA_TILE * j + lane / 4);
            for (uint32_t k = 0; k < 2; k++)
                column[j][k] = at(CUDA_TILE * j + 2 * (lane % 4) + k);
        }
    }
};

/* A lane's blocks of activations, and the scales of its two columns. */
struct columns {
    unsigned b[2];
    float d[2];
    int sum[2];

    template <bool NOW>
    __device__ __forceinline__ void load(const struct cuda_input &x, const matmul_rows &rows,
                                         uint32_t j, uint32_t block)
    {
        const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, done = CUDA_TILE * j,
                       n = rows.n > done ? rows.n - done : 0;
        const uint64_t at =
            (uint64_t)(rows.first / CUDA_TILE + j) * (x.stride / CUDA_BLOCK) + block;
        uint2 q = make_uint2(0, 0);
        if (g < n)
            q = NOW ? load_now((const uint2 *)x.q + at * 32 + lane)
                    : ((const uint2 *)x.q)[at * 32 + lane];
        uint4 scales =
            make_uint4(0, 0, 0, 0); /* of columns 2t and 2t + 1, even if only the first exists */
        if (2 * t < n)
            scales = NOW ? load_now((const uint4 *)x.scale + at * (CUDA_TILE / 2) + t)
                         : ((const uint4 *)x.scale)[at * (CUDA_TILE / 2) + t];
        set(q, scales);
    }

    template <bool NOW, int TILES>
    __device__ __forceinline__ void load(const struct cuda_input &x, const expert_rows<TILES> &rows,
                                         uint32_t j, uint32_t block)
    {
        const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, done = CUDA_TILE * j,
                       n = rows.n > done ? rows.n - done : 0;
        const auto at = [&](uint32_t row) {
            return ((uint64_t)(row / CUDA_TILE) * (x.stride / CUDA_BLOCK) + block) * CUDA_TILE +
                   row % CUDA_TILE;
        };
        uint2 q = make_uint2(0, 0);
        uint2 scale[2] = {q, q};
        if (g < n)
            q = ((const uint2 *)x.q)[at(rows.own[j]) * 4 + t];
        for (uint32_t k = 0; k < 2; k++)
            if (2 * t + k < n)
                scale[k] = ((const uint2 *)x.scale)[at(rows.column[j][k])];
        set(q, make_uint4(scale[0].x, scale[0].y, scale[1].x, scale[1].y));
    }

    /* scales: two struct cuda_scale. */
    __device__ __forceinline__ void set(const uint2 &q, const uint4 &scales)
    {
        b[0] = q.x;
        b[1] = q.y;
        d[0] = __uint_as_float(scales.x);
        sum[0] = (int)scales.y;
        d[1] = __uint_as_float(scales.z);
        sum[1] = (int)scales.w;
    }
};

enum { FLOAT_OF_INT = 0x4b400000 }; /* the bits of 0x1.8p+23 */

/* One block of 32 inputs of a group's 32 outputs, as distributed over lanes: operands of the mma
 * for outputs g, g + 8 (m = 0) and g + 16, g + 24 (m = 1), and the factors of these four. */
template <uint32_t TYPE> struct block_weights {
    unsigned a[2][4];
    float w[4], min[4];
    int scale[4][2];

    /* Block b of a segment; low: its units, bits: those of the whole segment. */
    __device__ __forceinline__ void unpack(int b, const uint4 *low, const uint4 *bits,
                                           const row_factors<TYPE> factors[4])
    {
        unsigned word[3] = {0, 0, 0};
        upper_bits<TYPE>(bits, 1, b, word);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            min[r] = 0.0f;
            scale[r][0] = scale[r][1] = 0;
            factors[r].block(b, &w[r], &min[r], scale[r]);
            for (int h = 0; h < 2; h++)
                a[r / 2][2 * h + r % 2] = integers<TYPE>(low_word<TYPE>(low, r, h), word, r, h);
        }
    }
};

/* Q2_K: the halves' sums of activations times their minima, an mma of rows that repeat these. */
template <uint32_t TYPE>
static __device__ __forceinline__ void sums_with_minima(int m, const block_weights<TYPE> &weights,
                                                        const columns &x, int asum[4])
{
    unsigned a[4];
    const int zero[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; i++)
        a[i] = (unsigned)(weights.scale[2 * m + i % 2][i / 2] >> 4) * 0x01010101u;
    mma_s8(asum, a, x.b, zero);
}

/* The integer sums of one block, 16 outputs and one tile, each in the mantissa of a float:
 * 0x1.8p+23 + the sum, which is below 2^22. Of types with two scales a block: the plain sums of
 * its halves. */
template <uint32_t TYPE> struct block_sums {
    int of[layout_halves(TYPE) ? 2 : 1][4];
};

template <uint32_t TYPE>
static __device__ __forceinline__ void sum_block(int m, const block_weights<TYPE> &weights,
                                                 const columns &x, block_sums<TYPE> &sums)
{
    const unsigned *a = weights.a[m];
    if constexpr (layout_halves(TYPE)) {
        const unsigned first[4] = {a[0], a[1], 0, 0}, second[4] = {0, 0, a[2], a[3]};
        const int zero[4] = {0, 0, 0, 0};
        mma_s8(sums.of[0], first, x.b, zero);
        mma_s8(sums.of[1], second, x.b, zero);
    } else {
        const int start[4] = {FLOAT_OF_INT, FLOAT_OF_INT, FLOAT_OF_INT, FLOAT_OF_INT};
        mma_s8(sums.of[0], a, x.b, start);
    }
}

/* Adds one block, 16 outputs and one tile, to acc. */
template <uint32_t TYPE>
static __device__ __forceinline__ void add_block(int m, const block_weights<TYPE> &weights,
                                                 const columns &x, const block_sums<TYPE> &sums,
                                                 float acc[4])
{
    int asum[4] = {x.sum[0], x.sum[1], x.sum[0], x.sum[1]};
    if (TYPE == QUANT_Q2_K)
        sums_with_minima(m, weights, x, asum);
    for (int e = 0; e < 4; e++) {
        const int r = 2 * m + e / 2, *scale = weights.scale[r];
        float dot;
        if constexpr (TYPE == QUANT_Q2_K)
            dot = (float)((scale[0] & 15) * sums.of[0][e] + (scale[1] & 15) * sums.of[1][e]);
        else if constexpr (layout_halves(TYPE))
            dot = (float)(scale[0] * sums.of[0][e] + scale[1] * sums.of[1][e]);
        else /* -(0x1.8p+23 + the offset's share), made in the mantissa as well: the sum is exact */
            dot = __fadd_rn(__int_as_float(sums.of[0][e]),
                            __int_as_float((int)0x80000000 + FLOAT_OF_INT +
                                           layout_offset(TYPE) * x.sum[e % 2]));
        acc[e] = __fmaf_rn(dot, __fmul_rn(weights.w[r], x.d[e % 2]), acc[e]);
        if (layout_has_min(TYPE))
            acc[e] = __fmaf_rn((float)asum[e], -__fmul_rn(weights.min[r], x.d[e % 2]), acc[e]);
    }
}

/* One segment of n blocks, quantized: results to out [8 * TILES][SEGMENT_PITCH]. */
template <uint32_t TYPE, int TILES, typename ROWS>
static __device__ __forceinline__ void
block_segment(const uint8_t *segment, uint32_t n, uint32_t first_block, const struct cuda_input &x,
              const ROWS &rows, float *out)
{
    const int lane = (int)(threadIdx.x % 32), g = lane / 4, t = lane % 4;
    const uint8_t *bits_at =
        segment + layout_factors(TYPE) * CUDA_UNIT + layout_tail(TYPE) + lane * 16;
    const uint8_t *low_at = segment + layout_head_bytes(TYPE) + lane * 16;
    constexpr int LOW = (int)layout_low(TYPE), BITS = (int)layout_bits(TYPE),
                  UNITS = LOW > 0 ? LOW : 1, AT_ONCE = 8 / UNITS;
    /* Blocks whose activations are loaded together, of few rows: as many as there are registers for. */
    constexpr bool FEW = TILES <= 2 && !ROWS::GATHERED;
    constexpr int TOGETHER = FEW ? 4 / TILES : 1, COLUMNS = FEW ? TILES : 1;
    float acc[2][TILES][4] = {};
    row_factors<TYPE> factors[4];
    uint4 bits[BITS > 0 ? BITS : 1];
    for (int r = 0; r < 4; r++)
        factors[r].load(segment, g + 8 * r);
    for (int u = 0; u < BITS; u++)
        bits[u] = load_stream(bits_at + u * CUDA_UNIT);
#pragma unroll
    for (int half = 0; half < CUDA_SEGMENT_BLOCKS; half += AT_ONCE) {
        uint4 low[AT_ONCE * UNITS];
#pragma unroll
        for (int i = 0; i < AT_ONCE * LOW; i++)
            low[i] = half + i / UNITS < (int)n ? load_stream(low_at + (half * LOW + i) * CUDA_UNIT)
                                               : make_uint4(0, 0, 0, 0);
        columns c[TOGETHER][COLUMNS];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int b = half + i, last = (int)n - 1; /* which a short segment repeats */
            if (b > last)
                break;
#pragma unroll
            for (int k = 0; FEW && i % TOGETHER == 0 && k < TOGETHER * TILES; k++)
                c[k / TILES][k % TILES].template load<true>(
                    x, rows, k % TILES,
                    first_block + (b + k / TILES < last ? b + k / TILES : last));
            block_weights<TYPE> weights;
            weights.unpack(b, low + i * LOW, bits, factors);
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                if (!FEW)
                    c[0][0].template load<false>(x, rows, j, first_block + b);
                const columns &x_of = c[i % TOGETHER][FEW ? j : 0];
                for (int m = 0; m < 2; m++) {
                    block_sums<TYPE> sums;
                    sum_block<TYPE>(m, weights, x_of, sums);
                    add_block<TYPE>(m, weights, x_of, sums, acc[m][j]);
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < TILES; j++)
        for (int m = 0; m < 2; m++)
            for (int e = 0; e < 4; e++)
                out[(CUDA_TILE * j + 2 * t + e % 2) * SEGMENT_PITCH + 16 * m + 8 * (e / 2) + g] =
                    acc[m][j][e];
}

/* One unit of inputs for ROWS rows; x: their values from the unit's first input on. */
template <uint32_t TYPE, int ROWS>
static __device__ __forceinline__ void unit_step(const uint4 &unit, const float *x, uint32_t stride,
                                                 float acc[ROWS])
{
    constexpr int INPUTS = (int)layout_unit_inputs(TYPE);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int k = 0; k < INPUTS; k += 4) {
            const float4 v = *(const float4 *)(x + (uint64_t)r * stride + k);
            acc[r] = __fmaf_rn(float_of<TYPE>(unit, k), v.x, acc[r]);
            acc[r] = __fmaf_rn(float_of<TYPE>(unit, k + 1), v.y, acc[r]);
            acc[r] = __fmaf_rn(float_of<TYPE>(unit, k + 2), v.z, acc[r]);
            acc[r] = __fmaf_rn(float_of<TYPE>(unit, k + 3), v.w, acc[r]);
        }
    }
}

/* One segment of inputs [begin, end), F32, F16 or BF16, for ROWS rows, whether or not they exist
 * (their memory does): a lane is an output. */
template <uint32_t TYPE, int ROWS>
static __device__ __forceinline__ void float_segment(const uint8_t *group, uint32_t begin,
                                                     uint32_t end, const struct cuda_input &x,
                                                     uint32_t first_row, float *out)
{
    constexpr uint32_t INPUTS = layout_unit_inputs(TYPE);
    const uint32_t lane = threadIdx.x % 32;
    const float *f = x.f + (uint64_t)first_row * x.stride;
    const uint8_t *units = group + lane * 16;
    float acc[ROWS] = {};
    uint32_t i = begin;
#pragma unroll(ROWS > 16 ? 1 : ROWS > 8 ? 2 : 8)
    for (; i + INPUTS <= end; i += INPUTS)
        unit_step<TYPE, ROWS>(load_stream(units + (uint64_t)(i / INPUTS) * CUDA_UNIT), f + i,
                              x.stride, acc);
    if (i < end) { /* an incomplete last unit */
        const uint4 unit = load_stream(units + (uint64_t)(i / INPUTS) * CUDA_UNIT);
#pragma unroll
        for (uint32_t k = 0; k + 1 < INPUTS; k++)
            for (int r = 0; r < ROWS && i + k < end; r++)
                acc[r] = __fmaf_rn(float_of<TYPE>(unit, (int)k), f[(uint64_t)r * x.stride + i + k],
                                   acc[r]);
    }
    for (int r = 0; r < ROWS; r++)
        out[r * SEGMENT_PITCH + lane] = acc[r];
}

/* The same for pairs of an expert from `from` on. */
template <uint32_t TYPE, int ROWS, int TILES>
static __device__ __forceinline__ void
gathered_segment(const uint8_t *group, uint32_t begin, uint32_t end, const struct cuda_input &x,
                 const expert_rows<TILES> &rows, uint32_t from, float *out)
{
    constexpr uint32_t INPUTS = layout_unit_inputs(TYPE);
    const uint32_t lane = threadIdx.x % 32;
    const float *f[ROWS];
    float acc[ROWS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        f[r] = x.f + (uint64_t)rows.at(from + r) * x.stride;
#pragma unroll(ROWS > 1 ? 2 : 8)
    for (uint32_t i = begin; i < end; i += INPUTS) {
        const uint4 unit = load_stream(group + lane * 16 + (uint64_t)(i / INPUTS) * CUDA_UNIT);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (i + INPUTS <= end)
                unit_step<TYPE, 1>(unit, f[r] + i, 0, &acc[r]);
            else
                for (uint32_t k = 0; i + k < end; k++)
                    acc[r] = __fmaf_rn(float_of<TYPE>(unit, (int)k), f[r][i + k], acc[r]);
    }
    for (int r = 0; r < ROWS; r++)
        out[(from + r) * SEGMENT_PITCH + lane] = acc[r];
}

template <uint32_t TYPE, int TILES, enum matmul_kind KIND, typename ROWS>
static __device__ __forceinline__ void any_segment(const struct cuda_matrix &m, uint32_t group,
                                                   uint32_t segment, const struct cuda_input &x,
                                                   const ROWS &rows, float *out)
{
    const uint8_t *at = m.data + group * m.group_bytes;
    const uint32_t begin = segment * CUDA_SEGMENT;
    const uint32_t end = m.cols - begin < CUDA_SEGMENT ? m.cols : begin + CUDA_SEGMENT;
    if constexpr (KIND != MATMUL_PORTABLE && (TYPE == QUANT_F16 || TYPE == QUANT_BF16)) {
        half_segment<TYPE == QUANT_BF16, TILES, SEGMENT_PITCH, KIND == MATMUL_BY_ROWS>(
            m, at, begin, end, x, rows.first, rows.n, out);
    } else if constexpr (KIND == MATMUL_NATIVE && layout_quantized(TYPE)) {
        bf16_segment<TYPE, TILES, SEGMENT_PITCH>(
            at + (uint64_t)segment * layout_segment_bytes(TYPE), (end - begin) / CUDA_BLOCK, begin,
            x, rows.first, rows.n, out);
    } else if constexpr (layout_quantized(TYPE)) {
        block_segment<TYPE, TILES>(at + (uint64_t)segment * layout_segment_bytes(TYPE),
                                   (end - begin) / CUDA_BLOCK, begin / CUDA_BLOCK, x, rows, out);
    } else if constexpr (ROWS::GATHERED) {
        if (rows.n == 1)
            return gathered_segment<TYPE, 1>(at, begin, end, x, rows, 0, out);
#pragma unroll 1
        for (uint32_t from = 0; from < rows.n; from += CUDA_TILE)
            gathered_segment<TYPE, CUDA_TILE>(at, begin, end, x, rows, from, out);
    } else {
        if (TILES > 1 || rows.n > 4)
            float_segment<TYPE, CUDA_TILE * TILES>(at, begin, end, x, rows.first, out);
        else if (rows.n > 1)
            float_segment<TYPE, 4>(at, begin, end, x, rows.first, out);
        else
            float_segment<TYPE, 1>(at, begin, end, x, rows.first, out);
    }
}

/* As prefetch_segment, for a matrix by rows: a lane's row. */
static __device__ __forceinline__ void prefetch_by_rows(const struct cuda_matrix &m, uint32_t group,
                                                        uint32_t segment)
{
    constexpr uint32_t BYTES = CUDA_SEGMENT * sizeof(uint16_t);
    const uint64_t pitch = m.group_bytes / CUDA_GROUP, begin = (uint64_t)segment * BYTES;
    const uint8_t *row = m.data + group * m.group_bytes + threadIdx.x % 32 * pitch;
    for (uint64_t at = begin; at < begin + BYTES && at < pitch; at += CUDA_LINE)
        prefetch_l2(row + at);
}

/* Prefetches a segment into L2 while the warp computes the one before; nothing after the last. */
template <uint32_t TYPE, bool BY_ROWS>
static __device__ __forceinline__ void prefetch_segment(const struct cuda_matrix &m, uint32_t group,
                                                        uint32_t segment)
{
    if constexpr (BY_ROWS)
        return prefetch_by_rows(m, group, segment);
    constexpr uint32_t BYTES = layout_quantized(TYPE)
                                   ? layout_segment_bytes(TYPE)
                                   : CUDA_SEGMENT / layout_unit_inputs(TYPE) * CUDA_UNIT;
    const uint64_t begin = (uint64_t)segment * BYTES;
    for (uint64_t at = begin + threadIdx.x % 32 * CUDA_LINE;
         at < begin + BYTES && at < m.group_bytes; at += 32 * CUDA_LINE)
        prefetch_l2(m.data + group * m.group_bytes + at);
}

/* Weights never change, so they may be prefetched before the item may start. The amount is limited,
 * because other blocks use L2, too. */
enum { PREFETCH_BYTES = 32 << 10 };

template <bool BY_ROWS>
static __device__ __forceinline__ void prefetch_weights(const struct matmul_job &job,
                                                        uint32_t group)
{
    int p = 0; /* gated: the gate's; those of up are prefetched segment by segment */
    while (group >= job.part[p].matrix.groups)
        group -= job.part[p++].matrix.groups;
    const struct cuda_matrix &m = job.part[p].matrix;
    if constexpr (BY_ROWS) { /* all segments of a group have the same size */
        if (threadIdx.x / 32 < PREFETCH_BYTES / (CUDA_GROUP * CUDA_SEGMENT * sizeof(uint16_t)))
            prefetch_by_rows(m, group, threadIdx.x / 32);
        return;
    }
    const uint64_t bytes = m.group_bytes < PREFETCH_BYTES ? m.group_bytes : PREFETCH_BYTES;
    for (uint64_t at = (uint64_t)threadIdx.x * CUDA_LINE; at < bytes;
         at += CUDA_THREADS * CUDA_LINE)
        prefetch_l2(m.data + group * m.group_bytes + at);
}

/* Writes finished outputs of row r in one group: output tid % 32, one warp per row. */
static __device__ __forceinline__ void put_output(const struct matmul_job &job,
                                                  const struct matmul_part &part, uint32_t group,
                                                  uint32_t r, float y)
{
    const uint32_t o = group * CUDA_GROUP + threadIdx.x % 32;
    const uint64_t at = (uint64_t)r * part.stride + o;
    if (part.residual)
        y = __fadd_rn(y, part.residual[at]);
    part.y[at] = y;
    const bool good = device_finite(y) || o >= part.matrix.rows;
    if (part.check && !__all_sync(FULL_WARP, good) && threadIdx.x % 32 == 0)
        mark_bad(job.pass, r, job.layer);
}

/* Writes f(gate) * up of row r, a block of activations: output tid % 32 of a group, one warp per
 * row. */
static __device__ __forceinline__ void put_gated(const struct matmul_job &job, uint32_t group,
                                                 uint32_t r, float gate, float up)
{
    put_value(job.out, job.forms, r, group * CUDA_GROUP + threadIdx.x % 32, job.part[0].matrix.rows,
              device_gated(job.gate, gate, up));
}

/* The sums of one group, y [TILES]: output tid % 32 of rows tid / 32 + 8 i. */
template <uint32_t TYPE, int TILES, enum matmul_kind KIND, typename ROWS>
static __device__ __forceinline__ void
matmul_group(const struct matmul_job &job, const struct cuda_matrix &matrix, uint32_t group,
             const ROWS &rows, float *shared, float y[TILES])
{
    const uint32_t warp = threadIdx.x / 32,
                   segments = (matrix.cols + CUDA_SEGMENT - 1) / CUDA_SEGMENT;
    for (uint32_t s0 = 0; s0 < segments; s0 += CUDA_WARPS) {
        prefetch_segment<TYPE, KIND == MATMUL_BY_ROWS>(matrix, group, s0 + CUDA_WARPS + warp);
        if (s0 + warp < segments)
            any_segment<TYPE, TILES, KIND>(matrix, group, s0 + warp, job.x, rows,
                                           shared + warp * SEGMENT_FLOATS(TILES));
        __syncthreads();
        for (uint32_t w = 0; w < CUDA_WARPS && s0 + w < segments; w++) {
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const uint32_t in = warp + CUDA_TILE * i;
                if (in >= rows.n) /* these rows do not exist, and their sums were not written */
                    break;
                const float seg =
                    shared[w * SEGMENT_FLOATS(TILES) + in * SEGMENT_PITCH + threadIdx.x % 32];
                y[i] = s0 + w == 0 ? seg : __fadd_rn(y[i], seg);
            }
        }
        __syncthreads();
    }
}

template <int TILES, enum matmul_kind KIND, typename ROWS>
static __device__ __forceinline__ void any_group(const struct matmul_job &job,
                                                 const struct cuda_matrix &matrix, uint32_t group,
                                                 const ROWS &rows, float *shared, float y[TILES])
{
    if constexpr (KIND == MATMUL_BY_ROWS) {
        if (matrix.type == QUANT_F16)
            matmul_group<QUANT_F16, TILES, KIND>(job, matrix, group, rows, shared, y);
        else
            matmul_group<QUANT_BF16, TILES, KIND>(job, matrix, group, rows, shared, y);
        return;
    }
#define GROUP_CASE(type)                                                                           \
    case type:                                                                                     \
        return matmul_group<type, TILES, KIND>(job, matrix, group, rows, shared, y)
    switch (matrix.type) {
        FLOAT_CASES(GROUP_CASE)
        QUANTIZED_CASES(GROUP_CASE)
    }
#undef GROUP_CASE
}

/* Item: group `group` over all parts, rows from 8 * TILES * run on. shared: CUDA_WARPS *
 * SEGMENT_FLOATS(TILES) floats. */
template <int TILES, enum matmul_kind KIND>
static __device__ void matmul_item(const struct matmul_job &job, uint32_t group, uint32_t run,
                                   float *shared)
{
    const uint32_t n = job.pass.counts[job.wanted ? CUDA_COUNT_WANTED : CUDA_COUNT_ROWS];
    matmul_rows rows = {run * CUDA_TILE * TILES, 0};
    if (rows.first >= n)
        return;
    rows.n = n - rows.first < CUDA_TILE * TILES ? n - rows.first : CUDA_TILE * TILES;
    int p = 0;
    while (group >= job.part[p].matrix.groups)
        group -= job.part[p++].matrix.groups;
    float y[TILES] = {}, gate[TILES] = {};
    const int last = p + (job.gate ? 1 : 0);
#pragma unroll 1
    for (;; p++) {
        any_group<TILES, KIND>(job, job.part[p].matrix, group, rows, shared, y);
        if (p == last)
            break;
        for (int i = 0; i < TILES; i++)
            gate[i] = y[i];
    }
    for (uint32_t i = 0; i < TILES; i++) {
        const uint32_t in = threadIdx.x / 32 + CUDA_TILE * i;
        if (in >= rows.n)
            break;
        if (job.gate)
            put_gated(job, group, rows.first + in, gate[i], y[i]);
        else
            put_output(job, job.part[p], group, rows.first + in, y[i]);
    }
}

/* y [TILES] = y + the bias of output `lane` of a group of an expert's part, if it has biases. */
template <int TILES>
static __device__ __forceinline__ void add_bias(const struct expert_job &job, int part,
                                                uint32_t expert, uint32_t group, float y[TILES])
{
    const uint32_t rows = job.matmul.part[part].matrix.rows,
                   o = group * CUDA_GROUP + threadIdx.x % 32;
    if (!job.bias[part] || o >= rows)
        return;
    const float bias = job.bias[part][(uint64_t)expert * rows + o];
    for (int i = 0; i < TILES; i++)
        y[i] = __fadd_rn(y[i], bias);
}

/* Item: group `group` of a run's expert, for the run's pairs. */
template <int TILES>
static __device__ void expert_item(const struct expert_job &job, uint32_t run, uint32_t group,
                                   float *shared)
{
    const struct matmul_job &matmul = job.matmul;
    if (run >= *job.experts.n_runs)
        return;
    const struct cuda_run pairs = job.experts.runs[run];
    expert_rows<TILES> rows;
    rows.set(job.gathered ? job.experts.pair_row + pairs.first : nullptr, pairs.first, pairs.n);
    float y[TILES] = {}, gate[TILES] = {};
    const int last = matmul.gate ? 1 : 0;
#pragma unroll 1
    for (int p = 0;; p++) {
        struct cuda_matrix matrix = matmul.part[p].matrix;
        matrix.data += (uint64_t)pairs.expert * matrix.groups * matrix.group_bytes;
        any_group<TILES, MATMUL_PORTABLE>(matmul, matrix, group, rows, shared, y);
        add_bias<TILES>(job, p, pairs.expert, group, y);
        if (p == last)
            break;
        for (int i = 0; i < TILES; i++)
            gate[i] = y[i];
    }
    for (uint32_t i = 0, in = threadIdx.x / 32; i < TILES && in < pairs.n; i++, in += CUDA_TILE)
        if (matmul.gate)
            put_gated(matmul, group, pairs.first + in, gate[i], y[i]);
        else
            put_output(matmul, matmul.part[0], group, pairs.first + in, y[i]);
}

#endif
