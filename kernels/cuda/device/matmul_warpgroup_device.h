/* matmul_warpgroup_device.h: matmuls of many rows in native numerics by wgmma, with the bits of
 * matmul_half_device.h and matmul_bf16_device.h. A block computes 128 outputs (four groups, as
 * matmul_half_large_device.h has them) for 128 rows. Each of its two warpgroups takes sixteen outputs
 * m of every group for all rows, a warp those of one group: weights go from memory to registers, where
 * they become operands; activations are staged in shared memory, 64 inputs at a time, one stage
 * ahead. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_MATMUL_WARPGROUP_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_MATMUL_WARPGROUP_DEVICE_H

#include "kernels/cuda/device/matmul_half_large_device.h"

enum {
    WARPGROUP_BLOCKS = 2, /* of 32 inputs in a stage */
    WARPGROUP_INPUTS = WARPGROUP_BLOCKS * CUDA_BLOCK,
    WARPGROUP_STAGES = CUDA_SEGMENT / WARPGROUP_INPUTS, /* of a segment */
    WARPGROUP_PITCH = HALF_ROWS * 16                    /* bytes of eight inputs of all rows */
};

/* Operands of wgmma_half: eight inputs (terms) of a row together. */
struct warpgroup_stage {
    uint4 of[WARPGROUP_INPUTS / 8][HALF_ROWS];
};

union warpgroup_shared {
    warpgroup_stage stage[2];
    float out[HALF_ROWS][HALF_OUT_PITCH];
};

/* 32 activations of a row, which a thread brings to a stage. */
struct warpgroup_row {
    uint4 of[4];

    __device__ __forceinline__ void load(const uint16_t *half, bool there)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            of[i] = there ? load_now((const uint4 *)half + i) : make_uint4(0, 0, 0, 0);
    }

    /* Pairs of inputs in the order of the terms: each mma takes four times two pairs that lie
     * together, one of each two among its first eight terms. FLOATS: the two of an mma are half of
     * eight inputs, and not half of four. */
    template <bool FLOATS>
    __device__ __forceinline__ void store(warpgroup_stage &stage, uint32_t part, uint32_t row) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint4 &to = stage.of[4 * part + (uint32_t)k][row];
            if (FLOATS)
                to = make_uint4(word_of(of[0], k), word_of(of[1], k), word_of(of[2], k),
                                word_of(of[3], k));
            else
                to = make_uint4(word_of(of[k / 2 * 2], k % 2), word_of(of[k / 2 * 2], 2 + k % 2),
                                word_of(of[k / 2 * 2 + 1], k % 2),
                                word_of(of[k / 2 * 2 + 1], 2 + k % 2));
        }
    }
};

/* A lane's weights of a stage, of rows g + 16 m and g + 16 m + 8 of a group, as loaded. */
template <uint32_t TYPE> struct warpgroup_weights {
    uint2 low[WARPGROUP_BLOCKS][2]; /* of units; 1: Q8_0's alone */
    unsigned bits[WARPGROUP_BLOCKS][3];

    /* From block b of a segment on; n: the blocks that it has. */
    __device__ __forceinline__ void load(const uint8_t *segment, int b, int n, int m)
    {
        constexpr int LOW = (int)layout_low(TYPE);
        const uint32_t lane = threadIdx.x % 32;
        const uint8_t *low_at = segment + layout_head_bytes(TYPE) + lane * 16 + 8 * m,
                      *bits_at = segment + layout_factors(TYPE) * CUDA_UNIT + layout_tail(TYPE) +
                                 lane * 16;
#pragma unroll
        for (int i = 0; i < WARPGROUP_BLOCKS; i++) {
            if (b + i >= n)
                break;
            for (int u = 0; u < LOW; u++)
                low[i][u] =
                    load_now((const uint2 *)(low_at + ((b + i) * LOW + u) * (int)CUDA_UNIT));
            upper_bits<TYPE>((const uint4 *)bits_at, CUDA_UNIT / 16, b + i, bits[i]);
        }
    }
};

template <> struct warpgroup_weights<QUANT_F16> {
    uint4 row[WARPGROUP_BLOCKS][2];
    bool there[WARPGROUP_BLOCKS]; /* else they are zeros, and another unit was loaded */

    /* From unit `unit` of a group on, of which there are `units`. A choice between what is loaded and
     * zeros made here would wait for memory here. */
    __device__ __forceinline__ void load(const uint8_t *group, uint32_t unit, uint32_t units, int m)
    {
        const uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t i = 0; i < WARPGROUP_BLOCKS; i++) {
            const uint32_t wanted = unit + i * HALF_CHUNK_UNITS + lane % 4;
            there[i] = wanted < units;
            const uint32_t at = there[i] ? wanted : 0;
            for (uint32_t r = 0; r < 2; r++)
                row[i][r] = load_now((const uint4 *)(group + (uint64_t)at * CUDA_UNIT +
                                                     (16 * m + 8 * r + lane / 4) * 16));
        }
    }
};

template <> struct warpgroup_weights<QUANT_BF16> : warpgroup_weights<QUANT_F16> {
};

/* Of a stage that begins with block b of its segment: weights of the stage, and at a segment's first
 * the factors of its rows. */
template <uint32_t TYPE> struct warpgroup_operands {
    static constexpr bool FLOATS = !layout_quantized(TYPE);
    warpgroup_weights<TYPE> now, next;
    row_factors<FLOATS ? (uint32_t)QUANT_Q8_0 : TYPE> factors[2];
    const uint8_t *group;
    uint32_t cols;
    int m;

    __device__ __forceinline__ const uint8_t *segment(uint32_t s) const
    {
        return group + (uint64_t)(s / WARPGROUP_STAGES) * layout_segment_bytes(TYPE);
    }

    __device__ __forceinline__ void load_factors(uint32_t s)
    {
        if constexpr (!FLOATS)
            for (int r = 0; r < 2; r++)
                factors[r].load(segment(s), (int)(threadIdx.x % 32 / 4) + 16 * m + 8 * r);
    }

    /* Stage s, whose place in its segment is `in`. */
    __device__ __forceinline__ void load(uint32_t s, int in)
    {
        if constexpr (FLOATS)
            next.load(group, s * (WARPGROUP_INPUTS / HALF_OF_UNIT),
                      (cols + HALF_OF_UNIT - 1) / HALF_OF_UNIT, m);
        else
            next.load(segment(s), in * WARPGROUP_BLOCKS,
                      (int)blocks_of(cols / CUDA_BLOCK, s / WARPGROUP_STAGES), m);
    }

    /* Of block i of the stage `now`, b of its segment. */
    __device__ __forceinline__ void set(int i, int b, unsigned a[2][4]) const
    {
        if constexpr (FLOATS) {
#pragma unroll
            for (int h = 0; h < 2; h++)
                for (int r = 0; r < 4; r++)
                    a[h][r] = now.there[i] ? word_of(now.row[i][r % 2], 2 * h + r / 2) : 0;
        } else {
            bf16_factors<TYPE> f;
            f.set(b, factors);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint2 &low = now.low[i][layout_low(TYPE) == 2 ? h : 0];
                const unsigned of[2] = {low.x, low.y};
                bf16_operand<TYPE>(of, now.bits[i], m, h, f, a[h]);
            }
        }
    }
};

/* The warp's outputs of all rows to shared.out, from `out` on. */
template <uint32_t TYPE>
static __device__ __forceinline__ void
warpgroup_sums(const struct cuda_matrix &matrix, uint32_t group, const struct cuda_input &x,
               const matmul_rows &rows, uint32_t out, warpgroup_shared &shared)
{
    const uint32_t cols = matrix.cols, stages = (cols + WARPGROUP_INPUTS - 1) / WARPGROUP_INPUTS;
    const uint32_t row = threadIdx.x % HALF_ROWS, part = threadIdx.x / HALF_ROWS;
    const uint16_t *half = x.half[TYPE != QUANT_F16] +
                           (uint64_t)(rows.first + (row < rows.n ? row : 0)) * x.stride +
                           part * CUDA_BLOCK;
    constexpr bool FLOATS = !layout_quantized(TYPE);
    warpgroup_operands<TYPE> weights;
    warpgroup_row inputs;
    warpgroup_stage *stage = shared.stage;
    float y[64];
    weights.group = matrix.data + group * matrix.group_bytes;
    weights.cols = cols;
    weights.m = (int)(threadIdx.x / (CUDA_THREADS / 2));
    weights.load_factors(0);
    weights.load(0, 0);
    inputs.load(half, row < rows.n && part * CUDA_BLOCK < cols);
    inputs.store<FLOATS>(stage[0], part, row);
    shared_written();
    __syncthreads();
#pragma unroll 1
    for (uint32_t first = 0; first < stages; first += WARPGROUP_STAGES) {
        float acc[64] = {};
#pragma unroll
        for (int in = 0; in < WARPGROUP_STAGES; in++) {
            const uint32_t s = first + (uint32_t)in, begin = s * WARPGROUP_INPUTS;
            if (s >= stages)
                break;
            const bool more = s + 1 < stages;
            weights.now = weights.next;
            if (more) {
                weights.load(s + 1, (in + 1) % WARPGROUP_STAGES);
                inputs.load(half + begin + WARPGROUP_INPUTS,
                            row < rows.n && begin + WARPGROUP_INPUTS + part * CUDA_BLOCK < cols);
            }
#pragma unroll
            for (int i = 0; i < WARPGROUP_BLOCKS; i++) {
                if (begin + (uint32_t)i * CUDA_BLOCK >= cols)
                    break;
                unsigned a[2][4];
                weights.set(i, in * WARPGROUP_BLOCKS + i, a);
                wgmma_begin();
                for (int h = 0; h < 2; h++)
                    wgmma_half<TYPE != QUANT_F16>(acc, a[h], stage[s % 2].of[4 * i + 2 * h],
                                                  WARPGROUP_PITCH);
            }
            if (more && in + 1 == WARPGROUP_STAGES)
                weights.load_factors(s + 1);
            if (more) {
                inputs.store<FLOATS>(stage[(s + 1) % 2], part, row);
                shared_written();
            }
            wgmma_end(acc);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 64; i++)
            y[i] = first == 0 ? acc[i] : __fadd_rn(y[i], acc[i]);
    }
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < 64; i++)
        shared.out[i / 4 * CUDA_TILE + lane % 4 * 2 + i % 2][out + i % 4 / 2 * 8 + lane / 4] = y[i];
}

static __device__ __forceinline__ void
any_warpgroup_sums(const struct cuda_matrix &matrix, uint32_t group, const struct cuda_input &x,
                   const matmul_rows &rows, uint32_t out, warpgroup_shared &shared)
{
#define WARPGROUP_CASE(type)                                                                       \
    case type:                                                                                     \
        return warpgroup_sums<type>(matrix, group, x, rows, out, shared)
    switch (matrix.type) {
        WARPGROUP_CASE(QUANT_F16);
        WARPGROUP_CASE(QUANT_BF16);
        QUANTIZED_CASES(WARPGROUP_CASE)
    }
#undef WARPGROUP_CASE
}

/* Item: as matmul_half_item; all groups of a tile have the same type. */
static __device__ __forceinline__ void matmul_warpgroup_item(const struct matmul_job &job,
                                                             uint32_t tile, uint32_t run,
                                                             warpgroup_shared &shared)
{
    const uint32_t n = job.pass.counts[job.wanted ? CUDA_COUNT_WANTED : CUDA_COUNT_ROWS];
    matmul_rows rows = {run * HALF_ROWS, 0};
    if (rows.first >= n)
        return;
    rows.n = n - rows.first < HALF_ROWS ? n - rows.first : (uint32_t)HALF_ROWS;
    const uint32_t slot = threadIdx.x / 32 % HALF_SLOTS, m = threadIdx.x / (CUDA_THREADS / 2);
    half_slot own = slot_of(job, tile, slot);
    if (own.part == 3) /* what another warp makes, and nobody writes */
        own = slot_of(job, tile, 0);
    any_warpgroup_sums(job.part[own.part].matrix, own.group, job.x, rows,
                       slot * CUDA_GROUP + 16 * m, shared);
    __syncthreads();
    put_rows(job, tile, rows, shared.out);
}

#endif
