/* sample_list_device.h: building blocks of the sampling stages, each executed by all threads of a
 * block: sums, a position in a running sum, the border of a truncation, selecting and keeping
 * candidates.
 *
 * Sums are of integers, so their order is free; where there is an order, keys are unique (rank,
 * then index). So these choices cannot affect a result, and the numbers of threads, parts and bins
 * are chosen for speed.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_SAMPLE_LIST_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_SAMPLE_LIST_DEVICE_H

#include "kernels/cuda/device/num_device.h"
#include "kernels/cuda/ops.h"

typedef unsigned long long sample_word;

enum { SAMPLE_BINS = CUDA_SAMPLE_BINS, SAMPLE_PASSING = 4 * CUDA_THREADS };

#define SAMPLE_NONE __uint_as_float(0xff800000u) /* -inf */

/* Shared memory of a block. `bins` also holds a part's logits while they are adjusted. */
struct sample_shared {
    union {
        sample_word bins[SAMPLE_BINS * CUDA_THREADS]; /* [bin][thread] */
        struct {
            float logits[CUDA_SAMPLE_PART];
            uint32_t counts[CUDA_SAMPLE_PART];
        } tile;
    };
    sample_word warp[CUDA_WARPS], bin[SAMPLE_BINS], found[2];
    struct cuda_best best[CUDA_WARPS];
    uint32_t passing[SAMPLE_PASSING];
};

/* ---- sums
 * ------------------------------------------------------------------------------------- */

/* Exclusive prefix sum over the threads; *total: the sum of all. */
static __device__ sample_word block_scan(sample_word x, sample_word *total,
                                         struct sample_shared *shared)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    sample_word sum = x, before = 0;
    for (uint32_t step = 1; step < 32; step *= 2) {
        const sample_word other = __shfl_up_sync(FULL_WARP, sum, step);
        sum += lane >= step ? other : 0;
    }
    if (lane == 31)
        shared->warp[warp] = sum;
    __syncthreads();
    *total = 0;
    for (uint32_t w = 0; w < CUDA_WARPS; w++) {
        before += w < warp ? shared->warp[w] : 0;
        *total += shared->warp[w];
    }
    __syncthreads();
    return before + sum - x;
}

static __device__ sample_word block_sum(sample_word x, struct sample_shared *shared)
{
    sample_word total;
    block_scan(x, &total, shared);
    return total;
}

static __device__ uint32_t block_max(uint32_t x, struct sample_shared *shared)
{
    x = warp_max(x);
    if (threadIdx.x % 32 == 0)
        shared->warp[threadIdx.x / 32] = x;
    __syncthreads();
    for (uint32_t w = 0; w < CUDA_WARPS; w++)
        x = shared->warp[w] > x ? (uint32_t)shared->warp[w] : x;
    __syncthreads();
    return x;
}

/* ---- the order of tokens
 * ---------------------------------------------------------------------- */

/* Ascending with the logit; a lower id is better among equals. */
static __device__ __forceinline__ bool better(const struct cuda_best &a, const struct cuda_best &b)
{
    return a.max > b.max || (a.max == b.max && a.id < b.id);
}

static __device__ __forceinline__ struct cuda_best no_best(void)
{
    return {CUDA_ROW_OK, 0, SAMPLE_NONE};
}

/* The best over the block's threads, returned to all of them. */
static __device__ struct cuda_best block_best(struct cuda_best x, struct sample_shared *shared)
{
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
    if (threadIdx.x % 32 == 0)
        shared->best[threadIdx.x / 32] = x;
    __syncthreads();
    for (uint32_t w = 0; w < CUDA_WARPS; w++) {
        const uint32_t bad = x.bad | shared->best[w].bad;
        if (better(shared->best[w], x))
            x = shared->best[w];
        x.bad = bad;
    }
    __syncthreads();
    return x;
}

/* As sample_rank of kernels/sample/sample_impl.h: ascending rank = descending logit, -0 and +0
 * alike; and its inverse. */
static __device__ __forceinline__ uint32_t rank_of(float l)
{
    const uint32_t u = __float_as_uint(__fadd_rn(l, 0.0f));
    return (u & 0x80000000u) != 0 ? u : u ^ 0x7fffffffu;
}

static __device__ __forceinline__ float logit_of(uint32_t rank)
{
    return __uint_as_float((rank & 0x80000000u) != 0 ? rank : rank ^ 0x7fffffffu);
}

static __device__ __forceinline__ sample_word weight_of(float l, float max)
{
    return __float2ull_rz(__fmul_rn(device_exp(__fadd_rn(l, -max)), 0x1p40f));
}

/* The minimum and maximum of rank(i), i < n, n > 0. */
template <typename RANK>
static __device__ void rank_range(uint32_t n, const RANK &rank, uint32_t *least, uint32_t *most,
                                  struct sample_shared *shared)
{
    uint32_t low = UINT32_MAX, high = 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < n; i += CUDA_THREADS) {
        const uint32_t r = rank(i);
        low = r < low ? r : low;
        high = r > high ? r : high;
    }
    *most = block_max(high, shared);
    *least = ~block_max(~low, shared);
}

/* ---- places
 * ----------------------------------------------------------------------------------- */

/* The first i of n, ascending, at which the running sum of weight(i) exceeds target; the total sum
 * must exceed it. *left: target minus the sum before i. */
template <typename WEIGHT>
static __device__ uint32_t find_in_order(uint32_t n, const WEIGHT &weight, sample_word target,
                                         sample_word *left, struct sample_shared *shared)
{
    const uint32_t share = (n + CUDA_THREADS - 1) / CUDA_THREADS, first = threadIdx.x * share;
    const uint32_t end = first + share < n ? first + share : n;
    sample_word sum = 0, total;
    for (uint32_t i = first; i < end; i++)
        sum += weight(i);
    const sample_word before = block_scan(sum, &total, shared);
    if (before <= target && target - before < sum) {
        sample_word rest = target - before;
        uint32_t i = first;
        for (sample_word x = weight(i); x <= rest; x = weight(++i))
            rest -= x;
        shared->found[0] = i;
        shared->found[1] = rest;
    }
    __syncthreads();
    const uint32_t at = (uint32_t)shared->found[0];
    *left = shared->found[1];
    __syncthreads();
    return at;
}

struct sample_border {
    uint32_t rank, index; /* of the last one to keep */
};

/* shared->bin[b] = the sum of of(b, i), i < n. */
template <typename OF>
static __device__ void sum_bins(uint32_t n, const OF &of, struct sample_shared *shared)
{
    const uint32_t b = threadIdx.x / 16, lane = threadIdx.x % 16;
    sample_word sum = 0;
    for (uint32_t i = lane; i < n; i += 16)
        sum += of(b, i);
    for (int step = 8; step > 0; step /= 2)
        sum += __shfl_xor_sync(FULL_WARP, sum, step);
    if (lane == 0)
        shared->bin[b] = sum;
    __syncthreads();
}

/* The same for the threads' own bins. */
static __device__ void sum_own_bins(struct sample_shared *shared)
{
    const auto own = [&](uint32_t b, uint32_t i) { return shared->bins[b * CUDA_THREADS + i]; };
    __syncthreads();
    sum_bins(CUDA_THREADS, own, shared);
}

/* The bin in which the running sum reaches *target, which is reduced by the sum before it. For the
 * threads' own bins. */
static __device__ uint32_t border_bin(sample_word *target, struct sample_shared *shared)
{
    sum_own_bins(shared);
    uint32_t at = 0;
    for (; at < SAMPLE_BINS - 1 && shared->bin[at] < *target; at++)
        *target -= shared->bin[at];
    __syncthreads();
    return at;
}

/* Finds the border: with n items ordered by (rank, index), the last one of the shortest prefix
 * whose weights sum to at least target, 1 .. their sum. Divides the range of ranks that contains it
 * by 16 until it is a single rank. */
template <typename RANK, typename WEIGHT>
static __device__ struct sample_border select_border(uint32_t n, const RANK &rank,
                                                     const WEIGHT &weight, sample_word target,
                                                     struct sample_shared *shared)
{
    uint32_t least, most;
    rank_range(n, rank, &least, &most, shared);
    for (uint32_t shift = 1; shift > 0;) {
        const uint32_t span = most - least;
        shift = span < SAMPLE_BINS ? 0 : 28 - (uint32_t)__clz((int)span);
        for (uint32_t b = 0; b < SAMPLE_BINS; b++)
            shared->bins[b * CUDA_THREADS + threadIdx.x] = 0;
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < n; i += CUDA_THREADS) {
            const uint32_t behind = rank(i) - least;
            if (behind <= span)
                shared->bins[(behind >> shift) * CUDA_THREADS + threadIdx.x] += weight(i);
        }
        const uint32_t width = (1u << shift) - 1, begin = border_bin(&target, shared) << shift;
        least += begin;
        most = most - least < width ? most : least + width;
    }
    const auto among_equals = [&](uint32_t i) { return rank(i) == least ? weight(i) : 0; };
    sample_word left;
    return {least, find_in_order(n, among_equals, target - 1, &left, shared)};
}

/* ---- candidates
 * -------------------------------------------------------------------------------- */

/* Collects the ids, ascending, of the n_vocab values for which keep(value) is true. blocks: the
 * maximum of every 32 values; a block is skipped unless may_keep(maximum). Returns how many. */
template <typename MAY_KEEP, typename KEEP>
static __device__ uint32_t admit(const float *values, const float *blocks, uint32_t n_vocab,
                                 const MAY_KEEP &may_keep, const KEEP &keep, uint32_t *ids,
                                 struct sample_shared *shared)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n = sample_blocks(n_vocab);
    uint32_t kept = 0;
    for (uint32_t base = 0; base < n; base += SAMPLE_PASSING) {
        const uint32_t first = base + threadIdx.x * 4;
        sample_word total;
        uint32_t flags = 0;
        for (uint32_t j = 0; j < 4; j++)
            flags |= (first + j < n && may_keep(blocks[first + j]) ? 1u : 0u) << j;
        uint32_t at = (uint32_t)block_scan((sample_word)__popc(flags), &total, shared);
        for (uint32_t j = 0; j < 4; j++) {
            if (flags >> j & 1)
                shared->passing[at++] = first + j;
        }
        __syncthreads();
        for (uint32_t p = 0; p < total; p += 4 * CUDA_WARPS) { /* four blocks per warp */
            uint32_t found[4], mine = 0;
            for (uint32_t j = 0; j < 4; j++) {
                const uint32_t i = p + warp * 4 + j;
                const uint32_t id = i < total ? shared->passing[i] * 32 + lane : n_vocab;
                found[j] = __ballot_sync(FULL_WARP, id < n_vocab && keep(values[id]));
                mine += (uint32_t)__popc(found[j]);
            }
            sample_word all;
            at = kept + (uint32_t)block_scan(lane == 0 ? mine : 0, &all, shared);
            at = __shfl_sync(FULL_WARP, at, 0);
            for (uint32_t j = 0; j < 4; j++) {
                const uint32_t before = (1u << lane) - 1;
                if (found[j] >> lane & 1)
                    ids[at + (uint32_t)__popc(found[j] & before)] =
                        shared->passing[p + warp * 4 + j] * 32 + lane;
                at += (uint32_t)__popc(found[j]);
            }
            kept += (uint32_t)all;
        }
        __syncthreads();
    }
    return kept;
}

/* The same for values not below bound. */
static __device__ uint32_t admit_from(const float *values, const float *blocks, uint32_t n_vocab,
                                      float bound, uint32_t *ids, struct sample_shared *shared)
{
    const auto keep = [&](float x) { return !(x < bound); };
    return admit(values, blocks, n_vocab, keep, keep, ids, shared);
}

/* Keeps those of the n ids for which keep(i) is true, in order. Returns how many. */
template <typename KEEP>
static __device__ uint32_t keep_ids(uint32_t *ids, uint32_t n, const KEEP &keep,
                                    struct sample_shared *shared)
{
    uint32_t kept = 0;
    for (uint32_t base = 0; base < n; base += 4 * CUDA_THREADS) {
        const uint32_t first = base + threadIdx.x * 4;
        uint32_t id[4], flags = 0;
        for (uint32_t j = 0; j < 4; j++) {
            id[j] = first + j < n ? ids[first + j] : 0;
            flags |= (first + j < n && keep(first + j) ? 1u : 0u) << j;
        }
        sample_word all;
        uint32_t at = kept + (uint32_t)block_scan((sample_word)__popc(flags), &all, shared);
        for (uint32_t j = 0; j < 4; j++) {
            if (flags >> j & 1)
                ids[at++] = id[j];
        }
        kept += (uint32_t)all;
    }
    __syncthreads();
    return kept;
}

#endif
