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
#include "kernels/cuda/device/delta_device.h"
#include "kernels/cuda/device/experts_device.h"
#include "kernels/cuda/device/grid_device.h"
#include "kernels/cuda/device/step_jobs_device.h"
#include "kernels/cuda/device/step_sample_device.h"

/* Offset of a block's own queries: after the memory that attention of a row needs. */
enum { STEP_QUERIES = (sizeof(struct attend_shared) + 15) / 16 * 16 };

enum { STEP_TILE_GROUPS = CUDA_TILE_QUERIES / TILE_EACH };

/* ---- phases
 * ----------------------------------------------------------------------------------- */

/* The pass as the kernel is given it: with its first words, where they came as a parameter. */
static __device__ __forceinline__ struct cuda_pass step_given(const struct step_job &job)
{
    struct cuda_pass pass = job.embed.pass;
    if (job.n_words > 0) {
        pass.words = pass.counts = (uint32_t *)job.words; /* which are only read */
        pass.rows = (struct cuda_row *)(job.words + CUDA_AT_ROWS);
    }
    return pass;
}

/* Embeds the rows. The first block puts the pass where later phases read it, and makes the next pass's barrier. */
static __device__ __forceinline__ void step_begin(const struct step_job &job,
                                                  const struct cuda_pass &given)
{
    const uint32_t parts = embed_parts(job.embed), n = given.counts[CUDA_COUNT_ROWS] * parts;
    for (uint32_t i = threadIdx.x; blockIdx.x == 0 && i < job.n_words; i += CUDA_THREADS)
        job.embed.pass.words[i] = job.words[i];
    if (blockIdx.x == 0 && threadIdx.x == 0)
        job.arrived[(job.turn ^ 1) * (CUDA_LINE / 4)] = 0;
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x)
        embed_item(job.embed, given, i / parts, i % parts);
}

static __device__ __forceinline__ void step_norms(uint32_t at, uint32_t n)
{
    SHARED_BYTES(memory);
    const struct norm_job &job = *(const struct norm_job *)(memory + at);
    const uint32_t parts = norm_parts(job, n);
    for (uint32_t i = blockIdx.x; i < n * parts; i += gridDim.x)
        norm_item(job, i / parts, i % parts, parts, (float *)(memory + STEP_SCRATCH));
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

/* ---- recurrent layers, and experts
 * -------------------------------------------------------------------- */

/* Calls compute(row, part) for this block's items of the rows of a pass. */
template <class COMPUTE>
static __device__ __forceinline__ void step_each(uint32_t rows, uint32_t parts, COMPUTE compute)
{
    for (uint32_t i = blockIdx.x; i < rows * parts; i += gridDim.x)
        compute(i / parts, i % parts);
}

/* Not inlined, as matmuls need the registers. */
static __device__ __noinline__ void step_recurrent(uint32_t kind, uint32_t at)
{
    SHARED_BYTES(memory);
    unsigned char *scratch = memory + STEP_SCRATCH;
    if (kind == CUDA_JOB_CONVOLVE) {
        const struct convolve_job &job = *(const struct convolve_job *)(memory + at);
        step_each(
            job.pass.counts[CUDA_COUNT_ROWS], convolve_parts(job.states),
            [&](uint32_t r, uint32_t part) { convolve_item(job, r, part, (float *)scratch); });
    } else if (kind == CUDA_JOB_HEAD_GATE) {
        const struct head_gate_job &job = *(const struct head_gate_job *)(memory + at);
        step_each(
            job.pass.counts[CUDA_COUNT_ROWS], head_gate_parts(job),
            [&](uint32_t r, uint32_t part) { head_gate_item(job, r, part, (float *)scratch); });
    } else if (kind == CUDA_JOB_DELTA) {
        const struct delta_job &job = *(const struct delta_job *)(memory + at);
        step_each(job.pass.counts[CUDA_COUNT_STATES], delta_parts(job.states),
                  [&](uint32_t state, uint32_t part) {
                      delta_item(job, state, part, *(struct delta_shared *)scratch);
                  });
    } else {
        const struct delta_job &job = *(const struct delta_job *)(memory + at);
        step_each(job.pass.counts[CUDA_COUNT_STATES], settle_parts(job.states),
                  [&](uint32_t state, uint32_t part) { settle_item(job, state, part); });
    }
}

/* The same. Runs have up to eight pairs. */
static __device__ __noinline__ void step_experts(uint32_t kind, uint32_t at)
{
    SHARED_BYTES(memory);
    unsigned char *scratch = memory + STEP_SCRATCH;
    if (kind == CUDA_JOB_ROUTE) {
        const struct route_job &job = *(const struct route_job *)(memory + at);
        const uint32_t n = job.pass.counts[CUDA_COUNT_ROWS];
        for (uint32_t i = blockIdx.x; i * CUDA_WARPS < n; i += gridDim.x) {
            route_item(job, i, *(struct route_shared *)scratch);
            __syncthreads();
        }
    } else if (kind == CUDA_JOB_EXPERT) {
        const struct expert_job &job = *(const struct expert_job *)(memory + at);
        const uint32_t runs = *job.experts.n_runs;
        for (uint32_t i = blockIdx.x; i < runs * job.matmul.groups; i += gridDim.x)
            expert_item<1>(job, i % runs, i / runs, (float *)scratch);
    } else {
        const struct expert_sum_job &job = *(const struct expert_sum_job *)(memory + at);
        step_each(job.pass.counts[CUDA_COUNT_ROWS], (job.stride + CUDA_THREADS - 1) / CUDA_THREADS,
                  [&](uint32_t r, uint32_t part) { expert_sum_item(job, r, part); });
    }
}

/* ---- prefetched
 * -------------------------------------------------------------------------------- */

/* What this block's first item of job i reads that no job before it writes comes closer: keys and values, or the first weights;
 * those of the next matmul where job i has neither. */
static __device__ __forceinline__ void step_prefetch(const struct step_job &step, uint32_t i)
{
    SHARED_BYTES(memory);
    const struct layer_jobs &layer = step_layer(step);
    if (layer.job[i].kind == CUDA_JOB_ATTEND) {
        const struct attend_job &job =
            ((const struct attention_job *)(memory + step_job_at(step, i)))->attend;
        prefetch_item(job, blockIdx.x / job.kv.n_head_kv, blockIdx.x % job.kv.n_head_kv);
    }
    const uint32_t at = layer.job[i].at_matmul;
    if (at == layer.n)
        return;
    const struct matmul_job &job = *(const struct matmul_job *)(memory + step_job_at(step, at));
    if (blockIdx.x < job.groups)
        prefetch_weights<false>(job, blockIdx.x);
}

/* ---- a pass
 * ----------------------------------------------------------------------------------- */

/* Job i of the layer, of n rows. */
template <int TILES>
static __device__ __forceinline__ void step_run(const struct step_job &job, uint32_t i, uint32_t n)
{
    const struct layer_jobs &layer = step_layer(job);
    const uint32_t at = step_job_at(job, i), before = at - (uint32_t)sizeof(struct cuda_job),
                   kind = layer.job[i].kind;
    switch (kind) {
    case CUDA_JOB_NORM:
        return step_norms(at, n);
    case CUDA_JOB_MATMUL:
        return step_matmuls<TILES>(at);
    case CUDA_JOB_QKV_FINISH:
        return step_qkv_finish(at);
    case CUDA_JOB_ATTEND:
        return step_attention(job, at, before);
    case CUDA_JOB_ROUTE:
    case CUDA_JOB_EXPERT:
    case CUDA_JOB_EXPERT_SUM:
        return step_experts(kind, at);
    default:
        return step_recurrent(kind, at);
    }
}

/* Jobs from i on up to the next barrier. Returns the one after it, or layer.n. */
template <int TILES>
static __device__ __forceinline__ uint32_t step_phase(const struct step_job &job, uint32_t i,
                                                      uint32_t n)
{
    const struct layer_jobs &layer = step_layer(job);
    while (true) {
        step_run<TILES>(job, i, n);
        i = step_next(job, i + 1);
        if (i >= layer.n || !layer.job[i].beside)
            return i;
        __syncthreads(); /* shared memory is the next job's */
    }
}

/* Runs every job of a layer, or of the head, each after a barrier. While a block waits there it loads the next jobs, if they
 * are new, and prefetches weights. */
template <int TILES> static __device__ __forceinline__ void step_pass(const struct step_job &job)
{
    const struct cuda_pass given = step_given(job);
    const bool wants = given.counts[CUDA_COUNT_WANTED] > 0;
    const uint32_t end = job.n_layer + (wants ? 1 : 0);
    unsigned *arrived = job.arrived + job.turn * (CUDA_LINE / 4);
    uint32_t goal = 0;
    step_begin(job, given);
#pragma unroll 1
    for (uint32_t l = 0; l < end; l++) {
        const uint32_t n = given.counts[l == job.n_layer ? CUDA_COUNT_WANTED : CUDA_COUNT_ROWS];
        grid_arrive(arrived);
        step_load(job, l);
        uint32_t i = step_next(job, 0);
#pragma unroll 1
        while (true) {
            step_prefetch(job, i);
            grid_wait(arrived, goal += gridDim.x);
            i = step_phase<TILES>(job, i, n);
            if (i >= step_layer(job).n)
                break;
            grid_arrive(arrived);
        }
    }
    if (wants)
        step_samples(arrived, goal);
    else
        step_end(job, arrived, goal);
}

#endif
