/* experts_device.h: NUMERICS.md, "Experts": which experts rows use, the order of the pairs, and the
 * weighted sum of what they give. The matmuls between are matmul_device.h's. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_EXPERTS_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_EXPERTS_DEVICE_H

#include "kernels/cuda/device/row_ops_device.h"

struct route_shared {
    float exps[CUDA_WARPS][CUDA_MAX_EXPERTS_USED]; /* of a warp's row, its experts ascending */
    float biased[CUDA_WARPS][CUDA_MAX_EXPERTS];    /* probabilities with the bias of the choice */
    uint32_t pairs[CUDA_MAX_EXPERTS];              /* of an expert; then its next one */
    uint32_t sums[2][CUDA_WARPS];
    uint32_t last; /* this block is the last one */
};

/* ---- the router ------------------------------------------------------------------------------ */

/* Rises with finite scores; +0 and -0 are equal. */
static __device__ __forceinline__ uint32_t score_order(float score)
{
    const uint32_t bits = __float_as_uint(__fadd_rn(score, 0.0f));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* Lane i of n_used has the i-th best expert of a row, of equal ones the lower id. By one warp. */
static __device__ __forceinline__ uint32_t choose_experts(const float *score,
                                                          const struct cuda_experts &x)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t mine = 0, order = UINT32_MAX, id = 0; /* of the last one that was chosen */
    for (uint32_t i = 0; i < x.n_used; i++) {
        uint32_t best = 0, best_id = 0;
        for (uint32_t e = lane; e < x.n_expert; e += 32) {
            const uint32_t of_e = score_order(score[e]);
            const bool after = i == 0 || of_e < order || (of_e == order && e > id);
            if (after && of_e > best) {
                best = of_e;
                best_id = e;
            }
        }
        order = warp_max(best);
        id = ~warp_max(best == order ? ~best_id : 0);
        mine = lane == i ? id : mine;
    }
    return mine;
}

/* Softmax over all experts of a row: exp(score - max) / sum. */
struct softmax {
    float max, sum;
};

static __device__ __forceinline__ struct softmax softmax_of(const float *score, uint32_t n)
{
    struct softmax s = {score[0], 0.0f};
    for (uint32_t e = threadIdx.x % 32; e < n; e += 32)
        s.max = score[e] > s.max ? score[e] : s.max;
    s.max = warp_max_float(s.max);
    for (uint32_t e = threadIdx.x % 32; e < n; e += 32)
        s.sum = __fadd_rn(s.sum, device_exp(__fadd_rn(score[e], -s.max)));
    s.sum = __shfl_sync(FULL_WARP, warp_tree(s.sum), 0);
    return s;
}

static __device__ __forceinline__ float probability_of(const struct route_job &job,
                                                       const struct softmax &s, float score)
{
    return job.sigmoid ? device_sigmoid(score)
                       : __fdiv_rn(device_exp(__fadd_rn(score, -s.max)), s.sum);
}

/* Chooses and weighs the experts of one row, by one warp. exps: n_used floats; biased: n_expert. */
static __device__ __forceinline__ void route_row(const struct route_job &job, uint32_t r,
                                                 float *exps, float *biased)
{
    const struct cuda_experts &x = job.experts;
    const uint32_t lane = threadIdx.x % 32;
    float *score = job.score + (uint64_t)r * job.stride;
    const bool of_chosen = job.normed && !job.sigmoid; /* their softmax alone is needed */
    struct softmax all = {0.0f, 1.0f};
    for (uint32_t e = lane; job.own_bias && e < x.n_expert; e += 32)
        score[e] = __fadd_rn(score[e], job.own_bias[e]);
    __syncwarp();
    if (!job.sigmoid && (job.bias || !of_chosen))
        all = softmax_of(score, x.n_expert);
    bool good = true;
    for (uint32_t e = lane; e < x.n_expert; e += 32) {
        good = good && device_finite(score[e]);
        if (!job.bias)
            continue;
        biased[e] = __fadd_rn(probability_of(job, all, score[e]), job.bias[e]);
        good = good && device_finite(biased[e]);
    }
    good = __all_sync(FULL_WARP, good);
    if (!good && lane == 0)
        mark_bad(job.pass, r, job.layer);
    const uint32_t mine = good ? choose_experts(job.bias ? biased : score, x) : lane;
    uint32_t rank = 0;
    for (uint32_t i = 0; i < x.n_used; i++)
        rank += __shfl_sync(FULL_WARP, mine, i) < mine;
    const uint32_t first = __shfl_sync(FULL_WARP, mine, 0);
    const float s = score[lane < x.n_used ? mine : first], max = warp_max_float(s);
    const float e = of_chosen ? device_exp(__fadd_rn(s, -max)) : probability_of(job, all, s);
    if (lane < x.n_used)
        exps[rank] = e;
    __syncwarp();
    float sum = 0.0f;
    for (uint32_t i = 0; i < x.n_used; i++)
        sum = __fadd_rn(sum, exps[i]);
    if (lane >= x.n_used)
        return;
    x.chosen[(uint64_t)r * x.n_used + rank] = mine;
    const float weight = job.normed ? __fdiv_rn(e, sum) : e,
                scaled = job.scale == 1.0f ? weight : __fmul_rn(weight, job.scale);
    x.weight[(uint64_t)r * x.n_used + rank] =
        job.factors ? __fmul_rn(scaled, job.factors[mine]) : scaled;
}

/* ---- the order of pairs ----------------------------------------------------------------------- */

/* The sum of n over the threads before this one. All threads; sums: one a warp. */
static __device__ __forceinline__ uint32_t sum_before(uint32_t n, uint32_t *sums)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = n;
    for (uint32_t step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(FULL_WARP, sum, step);
        sum += lane >= step ? other : 0;
    }
    if (lane == 31)
        sums[warp] = sum;
    __syncthreads();
    sum -= n;
    for (uint32_t w = 0; w < warp; w++)
        sum += sums[w];
    return sum;
}

/* Cuts the pairs of each expert into runs. shared.pairs: how many; then the first. */
static __device__ __forceinline__ void cut_runs(const struct route_job &job,
                                                struct route_shared &shared)
{
    constexpr uint32_t EACH = CUDA_MAX_EXPERTS / CUDA_THREADS;
    const struct cuda_experts &x = job.experts;
    const uint32_t begin = threadIdx.x * EACH;
    uint32_t pairs = 0, runs = 0;
    for (uint32_t e = begin; e < begin + EACH; e++) {
        pairs += shared.pairs[e];
        runs += (shared.pairs[e] + job.most - 1) / job.most;
    }
    uint32_t first = sum_before(pairs, shared.sums[0]), run = sum_before(runs, shared.sums[1]);
    for (uint32_t e = begin; e < begin + EACH; e++) {
        const uint32_t n = shared.pairs[e];
        for (uint32_t at = 0; at < n; at += job.most)
            x.runs[run++] = {e, first + at, n - at < job.most ? n - at : job.most};
        shared.pairs[e] = first;
        first += n;
    }
    if (threadIdx.x == CUDA_THREADS - 1)
        *x.n_runs = run;
}

/* Orders the pairs of all rows by expert, by one block. Within an expert they stand in the order in
 * which threads arrive. */
static __device__ void order_pairs(const struct route_job &job, struct route_shared &shared)
{
    const struct cuda_experts &x = job.experts;
    const uint32_t n = job.pass.counts[CUDA_COUNT_ROWS] * x.n_used;
    for (uint32_t e = threadIdx.x; e < CUDA_MAX_EXPERTS; e += CUDA_THREADS)
        shared.pairs[e] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += CUDA_THREADS)
        atomicAdd(&shared.pairs[x.chosen[i]], 1u);
    __syncthreads();
    cut_runs(job, shared);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += CUDA_THREADS) {
        const uint32_t pair = atomicAdd(&shared.pairs[x.chosen[i]], 1u);
        x.pair[i] = pair;
        x.pair_row[pair] = i / x.n_used;
    }
}

/* Item: eight rows, one a warp; the block that is done last orders the pairs of all. */
static __device__ void route_item(const struct route_job &job, uint32_t item,
                                  struct route_shared &shared)
{
    const uint32_t n = job.pass.counts[CUDA_COUNT_ROWS], warp = threadIdx.x / 32,
                   r = item * CUDA_WARPS + warp;
    if (item * CUDA_WARPS >= n)
        return;
    if (r < n)
        route_row(job, r, shared.exps[warp], shared.biased[warp]);
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t items = (n + CUDA_WARPS - 1) / CUDA_WARPS;
        shared.last = add_acquire_release(job.experts.routed, 1) + 1 == items;
        if (shared.last)
            *job.experts.routed = 0;
    }
    __syncthreads();
    if (shared.last)
        order_pairs(job, shared);
}

/* ---- the sum --------------------------------------------------------------------------------- */

/* Item: a row and 256 of its values. */
static __device__ void expert_sum_item(const struct expert_sum_job &job, uint32_t r, uint32_t part)
{
    const struct cuda_experts &x = job.experts;
    const uint32_t k = part * CUDA_THREADS + threadIdx.x;
    if (k >= job.stride)
        return;
    const uint64_t at = (uint64_t)r * job.stride + k;
    float out = x.n_used > 0 ? 0.0f : job.y[at];
    for (uint32_t i = r * x.n_used; i < (r + 1) * x.n_used; i++)
        out = __fmaf_rn(x.weight[i], job.y[(uint64_t)x.pair[i] * job.stride + k], out);
    if (job.shared)
        out = __fmaf_rn(
            job.shared_gate ? device_sigmoid(job.shared_gate[(uint64_t)r * job.gate_stride]) : 1.0f,
            job.shared[at], out);
    if (job.residual && k < job.n) /* what OP_ADD made is not padded */
        out = __fadd_rn(out, job.residual[at]);
    job.to[at] = out;
    if (job.check && k < job.n && !device_finite(out))
        mark_bad(job.pass, r, job.layer);
}

#endif
