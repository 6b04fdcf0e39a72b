/*
 * pick_device: NUMERICS.md, "Picks", greedy: the first token in the order of tokens. -0 does not occur: logits are
 * canonical (+ 0.0f) before they are compared.
 */
#ifndef HEARTH_KERNELS_CUDA_PICK_DEVICE_H
#define HEARTH_KERNELS_CUDA_PICK_DEVICE_H

#include "kernels/cuda/num_device.h"
#include "kernels/cuda/ops.h"

/* Ascending with the logit; a lower id is better among equals. */
static __device__ __forceinline__ bool better(const struct cuda_best &a, const struct cuda_best &b)
{
    return a.max > b.max || (a.max == b.max && a.id < b.id);
}

/* The best of the block's threads, in thread 0. shared: CUDA_WARPS entries. */
static __device__ struct cuda_best block_best(struct cuda_best x, struct cuda_best *shared)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int step = 16; step > 0; step /= 2) {
        struct cuda_best other;
        other.id = __shfl_xor_sync(FULL_WARP, x.id, step);
        other.max = __shfl_xor_sync(FULL_WARP, x.max, step);
        other.bad = __shfl_xor_sync(FULL_WARP, x.bad, step);
        const uint32_t bad = x.bad | other.bad;
        if (better(other, x))
            x = other;
        x.bad = bad;
    }
    if (lane == 0)
        shared[warp] = x;
    __syncthreads();
    for (uint32_t w = 1; w < CUDA_WARPS && threadIdx.x == 0; w++) {
        const uint32_t bad = x.bad | shared[w].bad;
        if (better(shared[w], x))
            x = shared[w];
        x.bad = bad;
    }
    __syncthreads();
    return x;
}

static __device__ __forceinline__ struct cuda_best no_best(void)
{
    return {CUDA_SOUND, 0, __uint_as_float(0xff800000u)};
}

static __device__ void pick_part_item(const struct pick_job &job, uint32_t w, uint32_t part,
                                      struct cuda_best *shared)
{
    float *logits = job.logits + (uint64_t)w * job.stride;
    const uint32_t begin = part * CUDA_PICK_PART, left = job.n_vocab - begin;
    const uint32_t end = left < CUDA_PICK_PART ? job.n_vocab : begin + CUDA_PICK_PART;
    struct cuda_best best = no_best();
    for (uint32_t i = begin + threadIdx.x; i < end; i += CUDA_THREADS) {
        const struct cuda_best x = {i, best.bad, __fadd_rn(logits[i], 0.0f)};
        logits[i] = x.max;
        if (better(x, best))
            best = x;
        best.bad |= !device_finite(x.max);
    }
    best = block_best(best, shared);
    if (threadIdx.x == 0)
        job.parts[w * pick_parts(job.n_vocab) + part] = best;
}

static __device__ void pick_best_item(const struct pick_job &job, uint32_t w,
                                      struct cuda_best *shared)
{
    const uint32_t parts = pick_parts(job.n_vocab);
    struct cuda_best best = no_best();
    for (uint32_t i = threadIdx.x; i < parts; i += CUDA_THREADS) {
        const struct cuda_best x = job.parts[w * parts + i];
        const uint32_t bad = best.bad | x.bad;
        if (better(x, best))
            best = x;
        best.bad = bad;
    }
    best = block_best(best, shared);
    if (threadIdx.x == 0)
        job.best[w] = best;
}

#endif
