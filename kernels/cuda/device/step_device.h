/* step_device.h: the phases of step.h. Items of a phase are distributed with a fixed stride; no
 * result depends on which block computes an item.
 *
 * Every operation is inlined once, in one loop, so that no registers are saved and restored for
 * calls. Exceptions are attention, which has fewer items and would make the matmuls spill, and
 * sampling, which comes after the loop.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_STEP_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_STEP_DEVICE_H

#include "kernels/cuda/device/attend_tile_device.h"
#include "kernels/cuda/device/grid_device.h"
#include "kernels/cuda/device/step_jobs_device.h"
#include "kernels/cuda/device/step_sample_device.h"

/* Offset of a block's own queries: after the memory that attention of a row needs. */
enum { STEP_QUERIES = (sizeof(struct attend_shared) + 15) / 16 * 16 };

enum { STEP_TILE_GROUPS = CUDA_TILE_QUERIES / TILE_EACH };

/* ---- phases
 * ----------------------------------------------------------------------------------- */

static __device__ void step_embed(const struct embed_job &job)
{
    const uint32_t parts = embed_parts(job), n = job.pass.counts[CUDA_COUNT_ROWS] * parts;
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x)
        embed_item(job, i / parts, i % parts);
}

/* Rows [begin, n), `step` apart. */
static __device__ __forceinline__ void step_norms(uint32_t at, uint32_t begin, uint32_t n,
                                                  uint32_t step, bool keep)
{
    SHARED_BYTES(memory);
    const struct norm_job &job = *(const struct norm_job *)(memory + at);
    for (uint32_t r = begin; r < n; r += step)
        norm_item(job, r, keep, (float *)(memory + STEP_SCRATCH));
}

/* The block computes a row's norm for itself, if it has an item of the matmul, as the first block
 * always has. There is only one row, which saves reading scales for a second. */
static __device__ __forceinline__ void step_own_norm(uint32_t at, uint32_t matmul)
{
    SHARED_BYTES(memory);
    if (blockIdx.x >= ((const struct matmul_job *)(memory + matmul))->groups)
        return;
    const struct norm_job &job = *(const struct norm_job *)(memory + at);
    for (uint32_t i = threadIdx.x; (job.forms & FORM_BLOCKS) && i < job.out.stride / CUDA_BLOCK;
         i += CUDA_THREADS)
        job.out.scale[i * CUDA_ROW_SCALES + 1] = {0.0f, 0};
    step_norms(at, 0, 1, 1, blockIdx.x == 0);
}

template <int TILES> static __device__ __forceinline__ void step_matmuls(uint32_t at)
{
    SHARED_BYTES(memory);
    const struct matmul_job &job = *(const struct matmul_job *)(memory + at);
    for (uint32_t group = blockIdx.x; group < job.groups; group += gridDim.x)
        matmul_item<TILES, false>(job, group, 0, (float *)(memory + STEP_SCRATCH));
}

/* ---- attention
 * -------------------------------------------------------------------------------- */

static __device__ __forceinline__ void step_qkv_finish(uint32_t at)
{
    SHARED_BYTES(memory);
    const struct qkv_finish_job &job = *(const struct qkv_finish_job *)(memory + at);
    const uint32_t parts = (job.n_head + 2 * job.kv.n_head_kv + CUDA_WARPS - 1) / CUDA_WARPS,
                   n = job.pass.counts[CUDA_COUNT_ROWS] * parts;
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        qkv_finish_item(job, i / parts, i % parts, (float *)(memory + STEP_SCRATCH));
        __syncthreads();
    }
}

/* Splits up to the one of row r. */
static __device__ __forceinline__ uint32_t step_splits(const struct cuda_pass &pass, uint32_t r)
{
    return pass.rows[r].position / CUDA_SPLIT + 1;
}

/* A row's queries of a KV head, rotated, for this block alone; the block with the row's last
 * positions also computes their key and value. */
static __device__ __forceinline__ void step_own_heads(uint32_t at, uint32_t r, uint32_t head_kv,
                                                      uint32_t share, bool last)
{
    SHARED_BYTES(memory);
    const struct qkv_finish_job &job = *(const struct qkv_finish_job *)(memory + at);
    const uint32_t warp = threadIdx.x / 32, n = share + (last ? 2 : 0);
    float *x = (float *)(memory + STEP_SCRATCH) + warp * CUDA_MAX_HEAD,
          *q = (float *)(memory + STEP_SCRATCH + STEP_QUERIES);
    for (uint32_t i = warp; i < n; i += CUDA_WARPS) {
        const uint32_t head =
            i < share ? head_kv * share + i : job.n_head + (i - share) * job.kv.n_head_kv + head_kv;
        row_head(job, r, head, x, q + i * job.q_dim);
        __syncwarp(); /* x is overwritten for the next head */
    }
    __syncthreads();
}

template <uint32_t KV>
static __device__ __noinline__ void step_attend(uint32_t at, const struct cuda_item item,
                                                uint32_t head_kv, uint32_t own)
{
    SHARED_BYTES(memory);
    const struct attend_job &job = ((const struct attention_job *)(memory + at))->attend;
    unsigned char *scratch = memory + STEP_SCRATCH;
    if (item.kind == CUDA_ITEM_ROW)
        attend_item<KV>(job, item,
                        own ? (const float *)(scratch + STEP_QUERIES)
                            : queries_of(job, item.row, head_kv),
                        head_kv, *(struct attend_shared *)scratch);
    else if (job.kv.v_dim > 128)
        attend_tile_item<KV, STEP_TILE_GROUPS, 2>(job, item, head_kv,
                                                  *(attend_tile<STEP_TILE_GROUPS> *)scratch);
    else
        attend_tile_item<KV, STEP_TILE_GROUPS, 1>(job, item, head_kv,
                                                  *(attend_tile<STEP_TILE_GROUPS> *)scratch);
}

/* The block that finishes the last split of the item's rows, for the values of `heads` KV heads,
 * combines the splits. The word counts finished splits and is zero again for the next layer;
 * item.row represents the rows of a tile, which all its items have. */
static __device__ __forceinline__ void step_combine(const struct step_job &step, uint32_t at,
                                                    const struct cuda_item &item, uint32_t head_kv)
{
    SHARED_BYTES(memory);
    struct step_shared &shared = *(struct step_shared *)memory;
    const struct attention_job &attention = *(const struct attention_job *)(memory + at);
    const struct combine_job &job = attention.combine;
    const uint32_t n_kv = attention.attend.kv.n_head_kv, heads = job.unit, unit = head_kv / heads;
    if (threadIdx.x == 0) {
        const uint32_t n = item.split1 - item.split0,
                       from = seen_from(job.pass.rows[item.row].position + 1, job.sliding_window),
                       splits = step_splits(job.pass, item.row + item.n_rows - 1);
        uint32_t *word = step.splits_done + item.row * n_kv + unit;
        shared.last = add_acquire_release(word, n) + n == heads * (splits - from / CUDA_SPLIT);
        if (shared.last)
            *word = 0;
    }
    __syncthreads();
    if (!shared.last)
        return;
    const uint32_t size = job.n_head / n_kv * heads * job.v_dim, begin = unit * size;
    for (uint32_t r = item.row; r < item.row + item.n_rows; r++)
        for (uint32_t i = begin; i < begin + size; i += CUDA_THREADS)
            combine_item(job, r, i,
                         begin + size - i < CUDA_THREADS ? begin + size : i + CUDA_THREADS,
                         *(struct combine_shared *)(memory + STEP_SCRATCH));
}

/* Attention of the job at `at`, of heads that the job at `heads_at` is for. */
static __device__ void step_attention(const struct step_job &job, uint32_t at, uint32_t heads_at)
{
    SHARED_BYTES(memory);
    const struct attend_job &attend = ((const struct attention_job *)(memory + at))->attend;
    const struct cuda_pass &pass = job.embed.pass;
    const uint32_t n_kv = attend.kv.n_head_kv, n = attend_count(attend) * n_kv;
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        const struct cuda_item item = attend_items(attend)[i / n_kv];
        const uint32_t head_kv = i % n_kv;
        if (job.own_heads)
            step_own_heads(heads_at, item.row, head_kv, attend.n_head / n_kv,
                           item.split1 == step_splits(pass, item.row));
        if (attend.kv.type == CUDA_KV_F16)
            step_attend<CUDA_KV_F16>(at, item, head_kv, job.own_heads);
        else if (attend.kv.type == CUDA_KV_F32)
            step_attend<CUDA_KV_F32>(at, item, head_kv, job.own_heads);
        else
            step_attend<CUDA_KV_Q8_0>(at, item, head_kv, job.own_heads);
        step_combine(job, at, item, head_kv);
    }
}

/* ---- a pass
 * ----------------------------------------------------------------------------------- */

/* Job i of the layer, of n rows. */
template <int TILES>
static __device__ __forceinline__ void step_run(const struct step_job &job, uint32_t i, uint32_t n)
{
    SHARED_BYTES(memory);
    const struct layer_jobs &layer = ((const struct step_shared *)memory)->layer;
    const uint32_t at = step_job_at(i), before = at - (uint32_t)sizeof(struct cuda_job);
    switch (layer.job[i].kind) {
    case CUDA_JOB_NORM:
        return step_norms(at, blockIdx.x, n, gridDim.x, true);
    case CUDA_JOB_QKV_FINISH:
        return step_qkv_finish(at);
    case CUDA_JOB_ATTEND:
        return step_attention(job, at, before);
    default:
        if (job.own_norm && i > 0 && step_read_norm(layer, i - 1))
            step_own_norm(before, at);
        return step_matmuls<TILES>(at);
    }
}

/* Runs every job of a layer, or of the head, each after a barrier. While a block waits there it loads the next jobs, if they
 * are new, and prefetches weights. */
template <int TILES> static __device__ __forceinline__ void step_pass(const struct step_job &job)
{
    SHARED_BYTES(memory);
    const struct layer_jobs &layer = ((const struct step_shared *)memory)->layer;
    const struct cuda_pass &pass = job.embed.pass;
    const bool wants = pass.counts[CUDA_COUNT_WANTED] > 0;
    const uint32_t end = job.n_layer + (wants ? 1 : 0);
    uint32_t goal = 0;
    step_embed(job.embed);
#pragma unroll 1
    for (uint32_t l = 0; l < end; l++) {
        const uint32_t n = pass.counts[l == job.n_layer ? CUDA_COUNT_WANTED : CUDA_COUNT_ROWS];
        grid_arrive(pass.arrived);
        step_load(job, l);
        uint32_t i = step_next(job, 0);
#pragma unroll 1
        while (true) {
            step_prefetch(i);
            grid_wait(pass.arrived, goal += gridDim.x);
            step_run<TILES>(job, i, n);
            i = step_next(job, i + 1);
            if (i >= layer.n)
                break;
            grid_arrive(pass.arrived);
        }
    }
    if (wants)
        step_samples(goal);
    else
        step_end(job, goal);
}

#endif
