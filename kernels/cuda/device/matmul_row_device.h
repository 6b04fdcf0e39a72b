/*
 * matmul_row_device: matmuls of passes of one or two rows, of float types up to four: the usual
 * step of a client, of a few, and of short drafts. A block of sixteen warps computes 32 outputs, of
 * gate and up those of both. A warp takes every sixteenth segment. It asks for its first weights
 * before it waits for the kernel before this one, since these never change. The segments' sums rest
 * in shared memory until the block's only barrier, then a warp a row adds them in ascending order.
 *
 * Quantized types: a segment's eight blocks are the eight columns of an mma's sums, which one
 * mma a block and 16 outputs adds to: its activations are the block's in the block's own column,
 * and zeros in the others. So a row's every column is of use, where matmul_device.h has one for
 * each of eight rows. Integer sums are exact in any order; the float operations after them are
 * those of NUMERICS.md, "Matmuls", for output g + 8t in lane 4g + t.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_MATMUL_ROW_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_MATMUL_ROW_DEVICE_H

#include "kernels/cuda/device/matmul_device.h"

enum {
    ROW_WARPS = 16,
    ROW_THREADS = 32 * ROW_WARPS,
    ROW_UNITS = 8,    /* of floats, loaded together */
    ROW_QUANTIZED = 2 /* most rows of quantized types */
};

/* What a warp keeps of the segment that it computes. */
template <int ROWS> struct row_segment {
    union {
        /* A row's sums: of blocks, or of the first and the second halves of blocks. */
        int sums[2][CUDA_GROUP][CUDA_SEGMENT_BLOCKS];
        float x[ROWS][ROW_UNITS * 8];
    };
    struct cuda_scale scale[ROWS][CUDA_SEGMENT_BLOCKS];
    int half_sum[ROWS][CUDA_SEGMENT_BLOCKS][2]; /* of a block's activations: Q2_K */
};

/* What a value of the input is normed by. */
struct row_normed {
    const struct row_norm &norm;
    float by;

    __device__ __forceinline__ float value(float x, float weight) const
    {
        return __fmul_rn(__fmul_rn(__fmul_rn(x, by), weight), norm.factor);
    }
};

/* The sum of a word's four int8 over four lanes. */
static __device__ __forceinline__ int sum_of_four(unsigned word)
{
    int sum = __dp4a((int)word, 0x01010101, 0);
    sum += __shfl_xor_sync(FULL_WARP, sum, 1);
    return sum + __shfl_xor_sync(FULL_WARP, sum, 2);
}

/* The activations of lane 4b + t: of each row the words t and 4 + t of block b of a segment of n
 * blocks. Their scales go to shared memory. Blocks and rows that do not exist are zeros. */
template <int ROWS>
static __device__ __forceinline__ void row_inputs(const struct cuda_input &x,
                                                  const matmul_rows &rows, uint32_t first_block,
                                                  uint32_t n, row_segment<ROWS> *to, uint2 q[ROWS])
{
    const uint32_t lane = threadIdx.x % 32, of = lane / CUDA_SEGMENT_BLOCKS,
                   b = lane % CUDA_SEGMENT_BLOCKS;
    const auto at = [&](uint32_t row) {
        return ((uint64_t)(row / CUDA_TILE) * (x.stride / CUDA_BLOCK) + first_block) * CUDA_TILE +
               row % CUDA_TILE;
    };
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        q[i] = make_uint2(0, 0);
        if (lane / 4 < n && i < rows.n)
            q[i] = ((const uint2 *)x.q)[(at(rows.first + i) + lane / 4 * CUDA_TILE) * 4 + lane % 4];
    }
    if (of < ROWS)
        to->scale[of][b] =
            b < n && of < rows.n ? x.scale[at(rows.first + of) + b * CUDA_TILE] : cuda_scale{};
}

/* The same of a row that is normed here, as quantize_block makes blocks: a lane has eight
 * values, four lanes a block. */
static __device__ __forceinline__ void normed_inputs(const struct row_normed &normed,
                                                     uint32_t first_block, uint32_t n,
                                                     row_segment<1> *to, uint2 q[1])
{
    const uint32_t lane = threadIdx.x % 32, b = lane / 4;
    struct cuda_scale scale = {0.0f, 0};
    float v[8] = {};
    if (b < n) {
        const uint32_t at = (first_block + b) * CUDA_BLOCK + lane % 4 * 4;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const float4 x = *(const float4 *)(normed.norm.x + at + 16 * h),
                         w = *(const float4 *)(normed.norm.weight + at + 16 * h);
            v[4 * h] = normed.value(x.x, w.x);
            v[4 * h + 1] = normed.value(x.y, w.y);
            v[4 * h + 2] = normed.value(x.z, w.z);
            v[4 * h + 3] = normed.value(x.w, w.w);
        }
    }
    unsigned most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        most = max(most, __float_as_uint(v[i]) & 0x7fffffffu);
    most = max(most, __shfl_xor_sync(FULL_WARP, most, 1));
    most = max(most, __shfl_xor_sync(FULL_WARP, most, 2));
    const float amax = __uint_as_float(most);
    q[0] = make_uint2(0, 0);
    if (!(amax < 0x1p-100f)) {
        const float inverse = __fdiv_rn(127.0f, amax);
        scale.d = __fdiv_rn(amax, 127.0f);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int value = round_clamped(__fmul_rn(v[i], inverse));
            (i < 4 ? q[0].x : q[0].y) |= ((unsigned)value & 255u) << 8 * (i % 4);
            scale.sum += value;
        }
    }
    scale.sum += __shfl_xor_sync(FULL_WARP, scale.sum, 1);
    scale.sum += __shfl_xor_sync(FULL_WARP, scale.sum, 2);
    if (lane % 4 == 0)
        to->scale[0][b] = scale;
}

/* Q2_K: the sums of halves of blocks. */
template <int ROWS>
static __device__ __forceinline__ void half_sums(const uint2 q[ROWS], row_segment<ROWS> *to)
{
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = 0; i < ROWS; i++) {
        const int low = sum_of_four(q[i].x), high = sum_of_four(q[i].y);
        if (lane % 4 == 0) {
            to->half_sum[i][lane / 4][0] = low;
            to->half_sum[i][lane / 4][1] = high;
        }
    }
}

/* Adds block b, whose units are `low` and whose upper bits are among `bits`, to its column of
 * the sums of each of `rows` rows: [halves][tile of 16 outputs]. */
template <uint32_t TYPE, int ROWS, int HALVES>
static __device__ __forceinline__ void row_block(int b, const uint4 *low, const uint4 *bits,
                                                 const uint2 q[ROWS], int c[ROWS][HALVES][2][4])
{
    const bool own = threadIdx.x % 32 / 4 == (unsigned)b;
    unsigned word[3] = {0, 0, 0}, a[2][4];
    upper_bits<TYPE>(bits, 1, b, word);
#pragma unroll
    for (int r = 0; r < 4; r++)
        for (int h = 0; h < 2; h++)
            a[r / 2][2 * h + r % 2] = integers<TYPE>(low_word<TYPE>(low, r, h), word, r, h);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const unsigned x[2] = {own ? q[i].x : 0, own ? q[i].y : 0}, low_half[2] = {x[0], 0},
                       high_half[2] = {0, x[1]};
#pragma unroll
        for (int m = 0; m < 2; m++) {
            mma_s8(c[i][0][m], a[m], HALVES == 2 ? low_half : x, c[i][0][m]);
            if (HALVES == 2)
                mma_s8(c[i][HALVES - 1][m], a[m], high_half, c[i][HALVES - 1][m]);
        }
    }
}

/* The chain of a lane's output over a segment of n blocks of row i. */
template <uint32_t TYPE, int ROWS>
static __device__ __forceinline__ float row_chain(const row_segment<ROWS> &s, int i, uint32_t n,
                                                  const row_factors<TYPE> &factors)
{
    const uint32_t own = threadIdx.x % 32 / 4 + 8 * (threadIdx.x % 4);
    float acc = 0.0f;
#pragma unroll
    for (int b = 0; b < CUDA_SEGMENT_BLOCKS; b++) {
        const struct cuda_scale x = s.scale[i][b];
        const int sum = s.sums[0][own][b];
        float w, min = 0.0f, dot;
        int scale[2] = {0, 0}, asum = x.sum;
        factors.block(b, &w, &min, scale);
        if (TYPE == QUANT_Q2_K) {
            dot = (float)((scale[0] & 15) * sum + (scale[1] & 15) * s.sums[1][own][b]);
            asum = (scale[0] >> 4) * s.half_sum[i][b][0] + (scale[1] >> 4) * s.half_sum[i][b][1];
        } else if (layout_halves(TYPE)) {
            dot = (float)(scale[0] * sum + scale[1] * s.sums[1][own][b]);
        } else {
            dot = __fadd_rn(__int_as_float(sum), -0x1.8p+23f);
        }
        float next = __fmaf_rn(dot, __fmul_rn(w, x.d), acc);
        if (layout_has_min(TYPE))
            next = __fmaf_rn((float)asum, -__fmul_rn(min, x.d), next);
        acc = b < (int)n ? next : acc;
    }
    return acc;
}

/* One segment of n blocks, quantized: results to out [ROWS][32]. first: the warp's first of this
 * kernel. */
template <uint32_t TYPE, int ROWS>
static __device__ __forceinline__ void
row_blocks(const uint8_t *segment, uint32_t n, uint32_t first_block, const struct cuda_input &x,
           const matmul_rows &rows, const struct row_normed &normed, bool first,
           row_segment<ROWS> *keep, float *out)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, own = g + 8 * t;
    constexpr int LOW = (int)layout_low(TYPE), BITS = (int)layout_bits(TYPE),
                  UNITS = LOW > 0 ? LOW : 1, AT_ONCE = (BITS > 0 ? 4 : 8) / UNITS,
                  HALVES = layout_halves(TYPE) ? 2 : 1;
    const uint8_t *bits_at =
        segment + layout_factors(TYPE) * CUDA_UNIT + layout_tail(TYPE) + lane * 16;
    const uint8_t *low_at = segment + layout_head_bytes(TYPE) + lane * 16;
    row_factors<TYPE> factors;
    uint4 bits[BITS > 0 ? BITS : 1];
    uint2 q[ROWS];
    int c[ROWS][HALVES][2][4] = {};
    const bool here = ROWS == 1 && normed.norm.x;
    if (here)
        normed_inputs(normed, first_block, n, (row_segment<1> *)keep, q);
    factors.load(segment, (int)own);
    for (int u = 0; u < BITS; u++)
        bits[u] = load_stream(bits_at + u * CUDA_UNIT);
#pragma unroll
    for (int b0 = 0; b0 < CUDA_SEGMENT_BLOCKS; b0 += AT_ONCE) {
        uint4 low[AT_ONCE * UNITS];
        if (n == CUDA_SEGMENT_BLOCKS) {
#pragma unroll
            for (int i = 0; i < AT_ONCE * LOW; i++)
                low[i] = load_stream(low_at + (b0 * LOW + i) * CUDA_UNIT);
        } else {
#pragma unroll
            for (int i = 0; i < AT_ONCE * LOW; i++)
                low[i] = b0 + i / UNITS < (int)n ? load_stream(low_at + (b0 * LOW + i) * CUDA_UNIT)
                                                 : make_uint4(0, 0, 0, 0);
        }
        if (b0 == 0) {
            /* A branch, so that the compiler leaves the loads before it. */
            if (first)
                wait_for_previous();
            if (!here)
                row_inputs(x, rows, first_block, n, keep, q);
            if (TYPE == QUANT_Q2_K)
                half_sums(q, keep);
            __syncwarp();
            for (int i = 0; i < ROWS && HALVES == 1; i++)
                for (int e = 0; e < 4; e++) /* in a float's mantissa, as in block_sums */
                    c[i][0][0][e] = c[i][0][1][e] =
                        FLOAT_OF_INT - layout_offset(TYPE) * keep->scale[i][2 * t + e % 2].sum;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            row_block<TYPE, ROWS, HALVES>(b0 + i, low + i * LOW, bits, q, c);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        for (int h = 0; h < HALVES; h++)
            for (uint32_t r = 0; r < 4; r++)
                *(int2 *)&keep->sums[h][g + 8 * r][2 * t] =
                    make_int2(c[i][h][r / 2][r % 2 * 2], c[i][h][r / 2][r % 2 * 2 + 1]);
        __syncwarp();
        out[i * CUDA_GROUP + own] = row_chain<TYPE>(*keep, i, n, factors);
        __syncwarp();
    }
}

/* One segment of n inputs from `begin` on, F32, F16 or BF16: results to out [ROWS][32]. */
template <uint32_t TYPE, int ROWS>
static __device__ __forceinline__ void
row_floats(const uint8_t *segment, uint32_t begin, uint32_t n, const struct cuda_input &x,
           const matmul_rows &rows, const struct row_normed &normed, bool first,
           row_segment<ROWS> *keep, float *out)
{
    constexpr uint32_t INPUTS = layout_unit_inputs(TYPE), CHUNK = ROW_UNITS * INPUTS;
    const uint32_t lane = threadIdx.x % 32;
    const uint8_t *at = segment + lane * 16;
    float acc[ROWS] = {};
#pragma unroll 1
    for (uint32_t k0 = 0; k0 < n; k0 += CHUNK, at += ROW_UNITS * CUDA_UNIT) {
        uint4 unit[ROW_UNITS];
        if (k0 + CHUNK <= n) {
#pragma unroll
            for (uint32_t u = 0; u < ROW_UNITS; u++)
                unit[u] = load_stream(at + u * CUDA_UNIT);
        } else {
#pragma unroll
            for (uint32_t u = 0; u < ROW_UNITS; u++)
                unit[u] =
                    k0 + u * INPUTS < n ? load_stream(at + u * CUDA_UNIT) : make_uint4(0, 0, 0, 0);
        }
        if (first && k0 == 0)
            wait_for_previous();
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++)
            for (uint32_t k = lane; k < CHUNK; k += 32)
                keep->x[i][k] = i >= rows.n || k0 + k >= n ? 0.0f
                                : ROWS == 1 && normed.norm.x
                                    ? normed.value(normed.norm.x[begin + k0 + k],
                                                   normed.norm.weight[begin + k0 + k])
                                    : x.f[(uint64_t)(rows.first + i) * x.stride + begin + k0 + k];
        __syncwarp();
        if (k0 + CHUNK <= n) {
#pragma unroll
            for (uint32_t u = 0; u < ROW_UNITS; u++)
                unit_step<TYPE, ROWS>(unit[u], keep->x[0] + u * INPUTS, ROW_UNITS * 8, acc);
        } else {
#pragma unroll
            for (uint32_t k = 0; k < CHUNK; k++)
                for (uint32_t i = 0; i < ROWS && k0 + k < n; i++)
                    acc[i] = __fmaf_rn(float_of<TYPE>(unit[k / INPUTS], (int)(k % INPUTS)),
                                       keep->x[i][k], acc[i]);
        }
        __syncwarp();
    }
    for (int i = 0; i < ROWS; i++)
        out[i * CUDA_GROUP + lane] = acc[i];
}

/* Of shared memory, which every device has. */
enum { MOST_SHARED = 96 << 10 };

/* Shared memory of a block: what its warps keep, and the sums of every segment of its parts,
 * [part][segment][ROWS][32]. */
template <int ROWS> static inline size_t row_shared_bytes(const struct matmul_job &job)
{
    const size_t segments = (job.part[0].matrix.cols + CUDA_SEGMENT - 1) / CUDA_SEGMENT;
    return ROW_WARPS * sizeof(row_segment<ROWS>) + /* more than a norm takes */
           (job.gate ? 2 : 1) * segments * ROWS * CUDA_GROUP * sizeof(float);
}

/* Segment s of a matrix, whose weights are at `segment`: results to out [ROWS][32]. */
template <uint32_t TYPE, int ROWS>
static __device__ __forceinline__ void
one_segment(const struct matmul_job &job, const struct cuda_matrix &m, const uint8_t *segment,
            uint32_t s, const matmul_rows &rows, const struct row_normed &normed, bool first,
            row_segment<ROWS> *keep, float *out)
{
    const uint32_t begin = s * CUDA_SEGMENT,
                   n = m.cols - begin < CUDA_SEGMENT ? m.cols - begin : CUDA_SEGMENT;
    if constexpr (layout_quantized(TYPE)) {
        row_blocks<TYPE>(segment, n / CUDA_BLOCK, begin / CUDA_BLOCK, job.x, rows, normed, first,
                         keep, out);
    } else {
        if constexpr (TYPE != QUANT_F32) {
            if (job.native) /* never of experts */
                return half_segment<TYPE == QUANT_BF16, 1, CUDA_GROUP, false>(
                    m, segment - (uint64_t)(begin / HALF_OF_UNIT) * CUDA_UNIT, begin, begin + n,
                    job.x, rows.first, rows.n, out);
        }
        row_floats<TYPE>(segment, begin, n, job.x, rows, normed, first, keep, out);
    }
}

/* Which sums a block makes: of group `group` of part `part`, and with a gate of the next part,
 * which is of the same type. expert: the matrices to pass over. */
struct row_place {
    uint32_t part, expert, group;
};

/* To y: output tid % 32 of row tid / 32. What a warp computes next is brought to L2 meanwhile. */
template <uint32_t TYPE, int ROWS>
static __device__ __forceinline__ void
row_group(const struct matmul_job &job, const struct row_place &place, const matmul_rows &rows,
          const struct row_normed &normed, unsigned char *shared, float y[2])
{
    constexpr uint32_t BYTES = layout_quantized(TYPE)
                                   ? layout_segment_bytes(TYPE)
                                   : CUDA_SEGMENT / layout_unit_inputs(TYPE) * CUDA_UNIT;
    const uint32_t warp = threadIdx.x / 32, parts = job.gate ? 2 : 1,
                   segments = (job.part[place.part].matrix.cols + CUDA_SEGMENT - 1) / CUDA_SEGMENT;
    row_segment<ROWS> *keep = (row_segment<ROWS> *)shared + warp;
    float *sums = (float *)((row_segment<ROWS> *)shared + ROW_WARPS);
    const auto weights = [&](uint32_t k) {
        const struct cuda_matrix &m = job.part[place.part + k].matrix;
        return m.data + ((uint64_t)place.expert * m.groups + place.group) * m.group_bytes;
    };
    const auto prefetch = [&](const uint8_t *segment) {
#pragma unroll
        for (uint32_t at = 0; at < BYTES; at += 32 * CUDA_LINE)
            if (BYTES - at >= 32 * CUDA_LINE || threadIdx.x % 32 * CUDA_LINE < BYTES - at)
                prefetch_l2(segment + at + threadIdx.x % 32 * CUDA_LINE);
    };
    const uint32_t full = job.part[place.part].matrix.cols / CUDA_SEGMENT;
    bool first = !(ROWS == 1 && normed.norm.x);
#pragma unroll 1
    for (uint32_t k = 0; k < parts; k++) {
        /* Where one part's segments end, another warp begins with the next part's. */
        const uint32_t from = (warp - k * segments) % ROW_WARPS,
                       next = (warp - segments) % ROW_WARPS;
        const uint8_t *at = weights(k) + (uint64_t)from * BYTES;
        if (k + 1 < parts && next < full)
            prefetch(weights(k + 1) + (uint64_t)next * BYTES);
#pragma unroll 1
        for (uint32_t s = from; s < segments; s += ROW_WARPS, at += ROW_WARPS * BYTES) {
            if (s + ROW_WARPS < full)
                prefetch(at + ROW_WARPS * BYTES);
            one_segment<TYPE>(job, job.part[place.part + k].matrix, at, s, rows, normed, first,
                              keep, sums + (k * segments + s) * (ROWS * CUDA_GROUP));
            first = false;
        }
    }
    __syncthreads();
    if (warp >= rows.n)
        return;
    for (uint32_t k = 0; k < parts; k++) {
        const float *of = sums + k * segments * (ROWS * CUDA_GROUP) + threadIdx.x;
        y[k] = of[0];
#pragma unroll 8
        for (uint32_t s = 1; s < segments; s++)
            y[k] = __fadd_rn(y[k], of[s * (ROWS * CUDA_GROUP)]);
    }
}

template <int ROWS>
static __device__ __forceinline__ void
any_row_group(const struct matmul_job &job, const struct row_place &place, const matmul_rows &rows,
              const struct row_normed &normed, unsigned char *shared, float y[2])
{
#define GROUP_CASE(type)                                                                           \
    case type:                                                                                     \
        return row_group<type, ROWS>(job, place, rows, normed, shared, y)
    const uint32_t type = job.part[place.part].matrix.type;
    switch (type) {
        FLOAT_CASES(GROUP_CASE)
    }
    if constexpr (ROWS <= ROW_QUANTIZED) {
        switch (type) {
            QUANTIZED_CASES(GROUP_CASE)
        }
    }
#undef GROUP_CASE
}

/* Waits for the kernel before this one, then makes the norm's factor; the block's first weights
 * are brought to L2 meanwhile. */
static __device__ __forceinline__ float row_factor(const struct matmul_job &job,
                                                   const struct row_place &place, float *shared)
{
    const struct cuda_matrix &m = job.part[place.part].matrix;
    const uint32_t at = threadIdx.x * CUDA_LINE;
    if (at < m.group_bytes)
        prefetch_l2(m.data + place.group * m.group_bytes + at);
    wait_for_previous();
    const float by = norm_factor<16>(
        job.norm.n, job.norm.eps, shared, [&](uint32_t i) { return load_now(job.norm.x + i); },
        [](float loaded) { return loaded; });
    __syncthreads(); /* what was shared is overwritten */
    return by;
}

/* Item: group `group` over all parts, of a pass of n rows. shared: row_shared_bytes. */
template <int ROWS>
static __device__ __forceinline__ void matmul_row_item(const struct matmul_job &job, uint32_t group,
                                                       uint32_t n, unsigned char *shared)
{
    const uint32_t row = threadIdx.x / 32;
    float y[2];
    struct row_place place = {0, 0, group};
    while (place.group >= job.part[place.part].matrix.groups)
        place.group -= job.part[place.part++].matrix.groups;
    const struct row_normed normed = {
        job.norm, ROWS == 1 && job.norm.x ? row_factor(job, place, (float *)shared) : 0.0f};
    any_row_group<ROWS>(job, place, {0, n}, normed, shared, y);
    if (row >= n)
        return;
    if (job.gate)
        put_gated(job, place.group, row, y[0], y[1]);
    else
        put_output(job, job.part[place.part], place.group, row, y[0]);
}

/* Item: group `group` of the expert of a run, which is of one pair. */
static __device__ __forceinline__ void expert_row_item(const struct expert_job &job, uint32_t run,
                                                       uint32_t group, unsigned char *shared)
{
    const struct matmul_job &matmul = job.matmul;
    const struct cuda_run pair = job.experts.runs[run];
    const uint32_t row = job.gathered ? job.experts.pair_row[pair.first] : pair.first;
    constexpr struct row_norm NONE = {};
    float y[2];
    any_row_group<1>(matmul, {0, pair.expert, group}, {row, 1}, {NONE, 0.0f}, shared, y);
    if (threadIdx.x >= 32)
        return;
    add_bias<1>(job, 0, pair.expert, group, &y[0]);
    if (matmul.gate) {
        add_bias<1>(job, 1, pair.expert, group, &y[1]);
        put_gated(matmul, group, pair.first, y[0], y[1]);
    } else {
        put_output(matmul, matmul.part[0], group, pair.first, y[0]);
    }
}

#endif
