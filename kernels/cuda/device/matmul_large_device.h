/* matmul_large_device.h: NUMERICS.md, "Matmuls", of quantized types for many rows: a block computes
 * 256 outputs, one group of 32 per warp, for 8 * TILES rows. A warp goes over the segments of its
 * group one after the other; activations, which all eight warps read, are staged in shared memory,
 * one segment ahead. K is split and summed as in matmul_device.h. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_MATMUL_LARGE_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_MATMUL_LARGE_DEVICE_H

#include "kernels/cuda/device/matmul_device.h"

/* A segment's blocks of activations, in the layout of cuda_input. */
template <int TILES> struct matmul_stage {
    uint2 q[TILES][CUDA_SEGMENT_BLOCKS][32];
    uint4 scale[TILES][CUDA_SEGMENT_BLOCKS][CUDA_TILE / 2]; /* of two rows: d, sum, d, sum */
};

/* Results, two tiles at a time and warp by warp, reuse the memory of the stages. */
enum { LARGE_ROWS = 2 * CUDA_TILE, LARGE_FLOATS = LARGE_ROWS * SEGMENT_PITCH };

template <int TILES> union matmul_large_shared {
    matmul_stage<TILES> stage[2];
    float out[CUDA_WARPS][LARGE_FLOATS];
};

/* Starts copying a segment's activations; zeros for rows that do not exist. */
template <int TILES>
static __device__ __forceinline__ void stage_segment(const struct cuda_input &x,
                                                     const matmul_rows &rows, uint32_t s,
                                                     uint32_t of, matmul_stage<TILES> &stage)
{
    const uint32_t first = s * CUDA_SEGMENT_BLOCKS, n = blocks_of(of, s);
    constexpr uint32_t OF_BLOCK = 16, OF_SCALE = CUDA_TILE / 2; /* copies of 16 bytes */
    const uint32_t blocks = x.stride / CUDA_BLOCK, tile0 = rows.first / CUDA_TILE;
    for (uint32_t i = threadIdx.x; i < TILES * CUDA_SEGMENT_BLOCKS * OF_BLOCK; i += CUDA_THREADS) {
        const uint32_t tile = i / OF_BLOCK / CUDA_SEGMENT_BLOCKS,
                       b = i / OF_BLOCK % CUDA_SEGMENT_BLOCKS, part = i % OF_BLOCK;
        const uint64_t at = (uint64_t)(tile0 + tile) * blocks + first + b;
        if (b < n) /* two lanes of one row */
            copy_async(&stage.q[tile][b][2 * part], (const uint2 *)x.q + at * 32 + 2 * part,
                       tile * CUDA_TILE + part / 2 < rows.n ? 16 : 0);
    }
    for (uint32_t i = threadIdx.x; i < TILES * CUDA_SEGMENT_BLOCKS * OF_SCALE; i += CUDA_THREADS) {
        const uint32_t tile = i / OF_SCALE / CUDA_SEGMENT_BLOCKS,
                       b = i / OF_SCALE % CUDA_SEGMENT_BLOCKS, pair = i % OF_SCALE;
        const uint64_t at = (uint64_t)(tile0 + tile) * blocks + first + b;
        const uint32_t row = tile * CUDA_TILE + 2 * pair,
                       left = rows.n > row ? rows.n - row : 0; /* of two rows */
        if (b < n)
            copy_async(&stage.scale[tile][b][pair], x.scale + at * CUDA_TILE + 2 * pair,
                       left > 1 ? 16 : left * 8);
    }
}

/* One segment of n blocks, added to y of a warp's group: [m][tile] in the mma's result layout. */
template <uint32_t TYPE, int TILES>
static __device__ __forceinline__ void large_segment(const uint8_t *segment, uint32_t n, bool first,
                                                     const matmul_stage<TILES> &x,
                                                     float y[2][TILES][4])
{
    const int lane = (int)(threadIdx.x % 32), g = lane / 4, t = lane % 4;
    const uint8_t *bits_at =
        segment + layout_factors(TYPE) * CUDA_UNIT + layout_tail(TYPE) + lane * 16;
    const uint8_t *low_at = segment + layout_head_bytes(TYPE) + lane * 16;
    constexpr int LOW = (int)layout_low(TYPE), BITS = (int)layout_bits(TYPE);
    float acc[2][TILES][4] = {};
    row_factors<TYPE> factors[4];
    uint4 bits[BITS > 0 ? BITS : 1], next[LOW > 0 ? LOW : 1], low[LOW > 0 ? LOW : 1];
#pragma unroll
    for (int u = 0; u < LOW; u++)
        next[u] = load_stream(low_at + u * CUDA_UNIT);
    for (int r = 0; r < 4; r++)
        factors[r].load(segment, g + 8 * r);
    for (int u = 0; u < BITS; u++)
        bits[u] = load_stream(bits_at + u * CUDA_UNIT);
#pragma unroll
    for (int b = 0; b < CUDA_SEGMENT_BLOCKS; b++) {
        if (b >= (int)n)
            break;
#pragma unroll
        for (int u = 0; u < LOW; u++) {
            low[u] = next[u];
            if (b + 1 < (int)n)
                next[u] = load_stream(low_at + ((b + 1) * LOW + u) * CUDA_UNIT);
        }
        block_weights<TYPE> weights;
        weights.unpack(b, low, bits, factors);
        /* A tile's sums are on their way while those of the one before are added. */
        columns c[2];
        block_sums<TYPE> sums[2][2];
#pragma unroll
        for (int j = 0; j <= TILES; j++) {
            if (j < TILES) {
                c[j % 2].set(x.q[j][b][lane], x.scale[j][b][t]);
                for (int m = 0; m < 2; m++)
                    sum_block<TYPE>(m, weights, c[j % 2], sums[j % 2][m]);
            }
            for (int m = 0; m < 2 && j > 0; m++)
                add_block<TYPE>(m, weights, c[(j - 1) % 2], sums[(j - 1) % 2][m], acc[m][j - 1]);
        }
    }
#pragma unroll
    for (int j = 0; j < TILES; j++)
        for (int m = 0; m < 2; m++)
            for (int e = 0; e < 4; e++)
                y[m][j][e] = first ? acc[m][j][e] : __fadd_rn(y[m][j][e], acc[m][j][e]);
}

template <int TILES>
static __device__ __forceinline__ void
any_large_segment(const struct cuda_matrix &m, uint32_t group, uint32_t s, uint32_t blocks,
                  const matmul_stage<TILES> &x, float y[2][TILES][4])
{
    const uint8_t *at = m.data + group * m.group_bytes;
    const bool first = s == 0;
    const uint32_t n = blocks_of(blocks, s);
#define LARGE_CASE(type)                                                                           \
    case type:                                                                                     \
        prefetch_segment<type, false>(m, group, s + 1);                                            \
        return large_segment<type, TILES>(at + (uint64_t)s * layout_segment_bytes(type), n, first, \
                                          x, y)
    switch (m.type) {
        QUANTIZED_CASES(LARGE_CASE)
    }
#undef LARGE_CASE
}

/* Writes a warp's group, row by row; lanes are outputs. The gate is stored as floats in the place
 * of f(gate) * up until up is known: each lane reads back only what it wrote. */
template <int TILES>
static __device__ __forceinline__ void put_large(const struct matmul_job &job, uint32_t p,
                                                 uint32_t group, const matmul_rows &rows,
                                                 float *out, const float y[2][TILES][4])
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < TILES; j += 2) {
        for (int k = 0; k < 2; k++)
            for (int m = 0; m < 2; m++)
                for (int e = 0; e < 4; e++)
                    out[(CUDA_TILE * k + 2 * t + e % 2) * SEGMENT_PITCH + 16 * m + 8 * (e / 2) +
                        g] = y[m][j + k][e];
        __syncwarp();
        for (uint32_t i = 0; i < LARGE_ROWS && CUDA_TILE * j + i < rows.n; i++) {
            const uint32_t r = rows.first + CUDA_TILE * j + i;
            const float value = out[i * SEGMENT_PITCH + lane];
            float *gate = job.out.f + (uint64_t)r * job.out.stride + group * CUDA_GROUP + lane;
            if (!job.gate)
                put_output(job, job.part[p], group, r, value);
            else if (p == 0)
                *gate = value;
            else
                put_gated(job, group, r, *gate, value);
        }
        __syncwarp();
    }
}

/* Item: groups [8 item, 8 item + 8) over all parts, rows from 8 * TILES * run on. */
template <int TILES>
static __device__ void matmul_large_item(const struct matmul_job &job, uint32_t item, uint32_t run,
                                         matmul_large_shared<TILES> &shared)
{
    const uint32_t n = job.pass.counts[job.wanted ? CUDA_COUNT_WANTED : CUDA_COUNT_ROWS];
    matmul_rows rows = {run * CUDA_TILE * TILES, 0};
    if (rows.first >= n)
        return;
    rows.n = n - rows.first < CUDA_TILE * TILES ? n - rows.first : CUDA_TILE * TILES;
    const uint32_t warp = threadIdx.x / 32, blocks = job.part[0].matrix.cols / CUDA_BLOCK,
                   segments = (blocks + CUDA_SEGMENT_BLOCKS - 1) / CUDA_SEGMENT_BLOCKS;
    uint32_t group = item * CUDA_WARPS + warp, p = 0;
    const bool active = group < job.groups;
    while (active && group >= job.part[p].matrix.groups)
        group -= job.part[p++].matrix.groups;
    const uint32_t last = p + (job.gate ? 1 : 0);
#pragma unroll 1
    for (;; p++) {
        float y[2][TILES][4] = {};
        stage_segment(job.x, rows, 0, blocks, shared.stage[0]);
        copy_commit();
#pragma unroll 1
        for (uint32_t s = 0; s < segments; s++) {
            if (s + 1 < segments)
                stage_segment(job.x, rows, s + 1, blocks, shared.stage[(s + 1) % 2]);
            copy_commit();
            copy_wait<1>();
            __syncthreads();
            if (active)
                any_large_segment<TILES>(job.part[p].matrix, group, s, blocks, shared.stage[s % 2],
                                         y);
            __syncthreads();
        }
        if (active)
            put_large<TILES>(job, p, group, rows, shared.out[warp], y);
        if (p == last)
            break;
        __syncthreads();
    }
}

#endif
