/* matmul_half_large_device.h: the matmuls of matmul_half_device.h for passes of many rows. A block
 * computes 128 outputs (four groups; gated: two of the gate and the same two of up) for 128 rows; a
 * warp 64 of those outputs for 32 rows, with 64 by 32 accumulators of a segment and as many sums
 * over segments. Weights and activations are staged in shared memory, 64 inputs per stage, two
 * stages ahead. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_MATMUL_HALF_LARGE_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_MATMUL_HALF_LARGE_DEVICE_H

#include "kernels/cuda/device/matmul_device.h"

enum {
    HALF_STAGES = 3,
    HALF_STAGE_INPUTS = 64,
    HALF_STAGE_UNITS = HALF_STAGE_INPUTS / HALF_OF_UNIT,
    HALF_WARP_ROWS = 32,
    HALF_OUT_PITCH = HALF_SLOTS * CUDA_GROUP + 4
};

/* Sixteen bytes at a time, placed without bank conflicts: half_weight_at, half_input_at. */
struct half_stage {
    uint4 weights[HALF_STAGE_UNITS * HALF_SLOTS * CUDA_GROUP];
    uint4 inputs[HALF_ROWS * HALF_STAGE_UNITS];
};

union half_large_shared {
    half_stage stage[HALF_STAGES];
    float out[HALF_ROWS][HALF_OUT_PITCH];
};

static __device__ __forceinline__ uint32_t half_weight_at(uint32_t unit, uint32_t slot,
                                                          uint32_t row)
{
    return (unit * HALF_SLOTS + slot) * CUDA_GROUP + (row ^ unit % HALF_CHUNK_UNITS * 2);
}

static __device__ __forceinline__ uint32_t half_input_at(uint32_t row, uint32_t unit)
{
    return row * HALF_STAGE_UNITS + (unit ^ row % 2 * HALF_CHUNK_UNITS);
}

/* The group at index `slot` of tile `tile`, and its part; part 3: none. A tile is of one part (ops.h,
 * half_tiles), or of a gate and its up. */
struct half_slot {
    uint32_t part, group;
};

static __device__ __forceinline__ half_slot slot_of(const struct matmul_job &job, uint32_t tile,
                                                    uint32_t slot)
{
    half_slot s = {0, 0};
    if (job.gate) {
        s = {slot % 2, tile * (HALF_SLOTS / 2) + slot / 2};
    } else {
        for (uint32_t of; tile >= (of = half_tiles(job.part[s.part].matrix.groups)); s.part++)
            tile -= of;
        s.group = tile * HALF_SLOTS + slot;
    }
    return s.group < job.part[s.part].matrix.groups ? s : half_slot{3, 0};
}

/* What one thread loads for a stage: one row of a unit per group, and one unit of the activations
 * of four rows. */
template <bool BF16>
static __device__ __forceinline__ void
load_stage(const uint8_t *const data[HALF_SLOTS], const struct cuda_input &x,
           const matmul_rows &rows, uint32_t units, uint32_t s, half_stage &stage)
{
    const uint32_t lane = threadIdx.x % 32, unit = threadIdx.x / 32,
                   at = s * HALF_STAGE_UNITS + unit;
#pragma unroll
    for (uint32_t slot = 0; slot < HALF_SLOTS; slot++) {
        const bool there = data[slot] && at < units;
        copy_async(&stage.weights[half_weight_at(unit, slot, lane)],
                   there ? data[slot] + (uint64_t)at * CUDA_UNIT + lane * 16
                         : (const uint8_t *)x.half[BF16],
                   there ? 16 : 0);
    }
    const uint32_t part = threadIdx.x % HALF_STAGE_UNITS, row = threadIdx.x / HALF_STAGE_UNITS,
                   input = s * HALF_STAGE_UNITS + part;
#pragma unroll
    for (uint32_t k = 0; k < HALF_ROWS; k += CUDA_THREADS / HALF_STAGE_UNITS) {
        const bool there = row + k < rows.n && input < units;
        copy_async(
            &stage.inputs[half_input_at(row + k, part)],
            x.half[BF16] +
                (there ? (uint64_t)(rows.first + row + k) * x.stride + input * HALF_OF_UNIT : 0),
            there ? 16 : 0);
    }
}

/* A warp's 64 outputs and 32 rows, as accumulators of mma: [tile of 16 outputs][tile of 8 rows]. */
struct half_sums {
    float of[4][4][4];
};

/* Chunk c of a stage. slot: the warp's first group; row: its first row. */
template <bool BF16>
static __device__ __forceinline__ void add_chunk(const half_stage &stage, uint32_t c, uint32_t slot,
                                                 uint32_t row, half_sums &acc)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4,
                   unit = c * HALF_CHUNK_UNITS + t;
    uint4 x[4];
#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
        x[j] = stage.inputs[half_input_at(row + CUDA_TILE * j + g, unit)];
#pragma unroll
    for (uint32_t m = 0; m < 4; m++) {
        const uint32_t first = m % 2 * 16 + g;
        const uint4 low = stage.weights[half_weight_at(unit, slot + m / 2, first)],
                    high = stage.weights[half_weight_at(unit, slot + m / 2, first + 8)];
#pragma unroll
        for (int j = 0; j < 4; j++)
            half_step<BF16>(low, high, x[j], acc.of[m][j]);
    }
}

/* y = the first segment, then y = y + segment; then resets the segment's sums. */
static __device__ __forceinline__ void end_segment(bool first, half_sums &acc, half_sums &y)
{
#pragma unroll
    for (int m = 0; m < 4; m++)
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < 4; e++) {
                y.of[m][j][e] = first ? acc.of[m][j][e] : __fadd_rn(y.of[m][j][e], acc.of[m][j][e]);
                acc.of[m][j][e] = 0.0f;
            }
}

static __device__ __forceinline__ void put_sums(const half_sums &y, uint32_t slot, uint32_t row,
                                                float (*out)[HALF_OUT_PITCH])
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < 4; m++)
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < 4; e++)
                out[row + CUDA_TILE * j + 2 * t + e % 2]
                   [slot * CUDA_GROUP + 16 * m + 8 * (e / 2) + g] = y.of[m][j][e];
}

/* Writes the rows of a block from shared memory, one per warp; lanes are outputs. */
static __device__ void put_rows(const struct matmul_job &job, uint32_t tile,
                                const matmul_rows &rows, const float (*out)[HALF_OUT_PITCH])
{
    const uint32_t lane = threadIdx.x % 32, step = job.gate ? 2 : 1;
    for (uint32_t i = threadIdx.x / 32; i < rows.n; i += CUDA_WARPS) {
        for (uint32_t slot = 0; slot < HALF_SLOTS; slot += step) {
            const half_slot s = slot_of(job, tile, slot);
            const float *y = out[i] + slot * CUDA_GROUP + lane;
            if (s.part == 3)
                break;
            if (job.gate)
                put_gated(job, s.group, rows.first + i, y[0], y[CUDA_GROUP]);
            else
                put_output(job, job.part[s.part], s.group, rows.first + i, y[0]);
        }
    }
}

/* Item: four groups from 4 * tile on (gated: two of gate and up each), rows from 128 * run on. All
 * parts have the same type. */
template <bool BF16>
static __device__ void matmul_half_item(const struct matmul_job &job, uint32_t tile, uint32_t run,
                                        half_large_shared &shared)
{
    const uint32_t n = job.pass.counts[job.wanted ? CUDA_COUNT_WANTED : CUDA_COUNT_ROWS];
    matmul_rows rows = {run * HALF_ROWS, 0};
    if (rows.first >= n)
        return;
    rows.n = n - rows.first < HALF_ROWS ? n - rows.first : (uint32_t)HALF_ROWS;
    const uint32_t cols = job.part[0].matrix.cols, units = (cols + HALF_OF_UNIT - 1) / HALF_OF_UNIT,
                   stages = (cols + HALF_STAGE_INPUTS - 1) / HALF_STAGE_INPUTS,
                   of_segment = CUDA_SEGMENT / HALF_STAGE_INPUTS;
    const uint32_t warp = threadIdx.x / 32, slot = warp % 2 * 2, row = warp / 2 * HALF_WARP_ROWS;
    const uint8_t *data[HALF_SLOTS];
#pragma unroll
    for (uint32_t i = 0; i < HALF_SLOTS; i++) {
        const half_slot s = slot_of(job, tile, i);
        const struct cuda_matrix &m = job.part[s.part % 3].matrix;
        data[i] = s.part == 3 ? NULL : m.data + s.group * m.group_bytes;
    }
    half_sums acc = {}, y;
    for (uint32_t s = 0; s + 1 < HALF_STAGES; s++) {
        if (s < stages)
            load_stage<BF16>(data, job.x, rows, units, s, shared.stage[s]);
        copy_commit();
    }
#pragma unroll 1
    for (uint32_t s = 0; s < stages; s++) {
        const uint32_t ahead = s + HALF_STAGES - 1;
        copy_wait<HALF_STAGES - 2>();
        __syncthreads();
        if (ahead < stages)
            load_stage<BF16>(data, job.x, rows, units, ahead, shared.stage[ahead % HALF_STAGES]);
        copy_commit();
        if (row >= rows.n)
            continue;
        for (uint32_t c = 0; c * HALF_CHUNK < HALF_STAGE_INPUTS; c++) {
            if (s * HALF_STAGE_INPUTS + c * HALF_CHUNK < cols)
                add_chunk<BF16>(shared.stage[s % HALF_STAGES], c, slot, row, acc);
        }
        if (s % of_segment == of_segment - 1 || s + 1 == stages)
            end_segment(s < of_segment, acc, y);
    }
    copy_wait<0>();
    __syncthreads();
    if (row < rows.n)
        put_sums(y, slot, row, shared.out);
    __syncthreads();
    put_rows(job, tile, rows, shared.out);
}

#endif
