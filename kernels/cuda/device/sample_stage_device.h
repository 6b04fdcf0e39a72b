/* sample_stage_device.h: NUMERICS.md, "Samples", from a row's adjusted logits to the token drawn,
 * by one block: kernels/sample/sample_stage.c on the device. Candidates are ids, ascending; their
 * logits are in `work`.
 *
 * A token that the first truncating stage removes anyway need not become a candidate. For top-k the
 * maxima of blocks of 32 logits give a bound that enough tokens reach; for typical-p and top-p the
 * binned weights, which many blocks have summed, show how far the selection reaches. So after a
 * typical first stage a few hundred candidates are left, and each further step is short.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_SAMPLE_STAGE_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_SAMPLE_STAGE_DEVICE_H

#include "kernels/cuda/device/sample_list_device.h"

struct sample_run {
    const struct sample_job *job;
    const struct cuda_sampling *sampling;
    struct sample_shared *shared;
    const struct cuda_sample_part *parts; /* of this row, as are the arrays below */
    const float *blocks;
    float *work;
    uint32_t *ids;
    uint32_t n;        /* number of candidates */
    float max;         /* of all tokens at first, then of the candidates */
    sample_word total; /* with `weighed`: of the weights */
    float expected;    /* E of typical-p */
    /* max, and with `weighed` total and expected, are still those of all tokens */
    bool first;
    bool weighed, failed;
};

static __device__ __forceinline__ float logit_at(const struct sample_run &run, uint32_t i)
{
    return run.work[run.ids[i]];
}

static __device__ __forceinline__ float penalized(const struct cuda_sampling &s, float l,
                                                  uint32_t count)
{
    l = l <= 0.0f ? __fmul_rn(l, s.repeat) : __fdiv_rn(l, s.repeat);
    return __fadd_rn(l, -__fmaf_rn((float)(int)count, s.frequency, s.presence));
}

static __device__ __forceinline__ float tempered(const struct cuda_sampling &s, float l, float max)
{
    return __fdiv_rn(__fadd_rn(l, -max), s.temperature);
}

/* floor(total * share / 2^40), or rounded up */
static __device__ sample_word share_of(sample_word total, sample_word share, bool round_up)
{
    const sample_word more = round_up ? ((sample_word)1 << 40) - 1 : 0;
    return (sample_word)(((unsigned __int128)total * share + more) >> 40);
}

/* ---- the first candidates
 * ---------------------------------------------------------------------- */

/* A value that at least k of all tokens reach, from `blocks`; -inf if k is too large to find one
 * cheaply. */
static __device__ float bound_of(const float *blocks, uint32_t n_vocab, uint32_t k,
                                 struct sample_shared *shared)
{
    const uint32_t n = sample_blocks(n_vocab);
    if (k > n / 4)
        return SAMPLE_NONE;
    const auto rank = [&](uint32_t i) { return rank_of(blocks[i]); };
    const auto one = [](uint32_t) { return (sample_word)1; };
    return blocks[select_border(n, rank, one, k, shared).index];
}

static __device__ void take(struct sample_run *run, float bound)
{
    run->n = admit_from(run->work, run->blocks, run->job->n_vocab, bound, run->ids, run->shared);
}

static __device__ sample_word weight_of_all(const struct sample_run &run)
{
    sample_word sum = 0;
    for (uint32_t i = threadIdx.x; i < sample_parts(run.job->n_vocab); i += CUDA_THREADS)
        sum += run.parts[i].sum;
    return block_sum(sum, run.shared);
}

static __device__ sample_word weight_of_candidates(const struct sample_run &run)
{
    sample_word sum = 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < run.n; i += CUDA_THREADS)
        sum += weight_of(logit_at(run, i), run.max);
    return block_sum(sum, run.shared);
}

static __device__ sample_word top_p_target(const struct sample_run &run)
{
    const sample_word reach = share_of(run.total, run.sampling->top_p, true);
    return reach > 0 ? reach : 1;
}

/* E of NUMERICS.md: sums of w * D, below 2^62 each, in two halves. */
static __device__ __forceinline__ void add_moment(sample_word w, float l, float max,
                                                  sample_word *low, sample_word *high)
{
    if (w == 0)
        return;
    const sample_word x = w * __float2ull_rz(__fmul_rn(__fadd_rn(max, -l), 0x1p23f));
    *low += x & UINT32_MAX;
    *high += x >> 32;
}

/* Combines the threads' halves. */
static __device__ float expected_from(const struct sample_run &run, sample_word low,
                                      sample_word high)
{
    low = block_sum(low, run.shared);
    high = block_sum(high, run.shared);
    const unsigned __int128 sum = ((unsigned __int128)high << 32) + low;
    return __fmul_rn(__ull2float_rn((sample_word)(sum / run.total)), 0x1p-23f);
}

static __device__ float expected_of_all(const struct sample_run &run)
{
    sample_word low = 0, high = 0;
    for (uint32_t i = threadIdx.x; i < sample_parts(run.job->n_vocab); i += CUDA_THREADS) {
        low += run.parts[i].low;
        high += run.parts[i].high;
    }
    return expected_from(run, low, high);
}

/* Bin b: tokens whose logits are at least b and less than b + 1 below the maximum; the last bin has
 * no upper end. */
static __device__ __forceinline__ uint32_t bin_of(float below)
{
    return below < (float)SAMPLE_BINS ? (uint32_t)below : SAMPLE_BINS - 1;
}

/* Weights of all tokens by bin, into shared->bin. */
static __device__ void weigh_bins(const struct sample_run &run)
{
    const auto of = [&](uint32_t b, uint32_t i) { return run.parts[i].bins[b]; };
    sum_bins(sample_parts(run.job->n_vocab), of, run.shared);
}

static __device__ sample_word typical_p_target(const struct sample_run &run)
{
    return share_of(run.total, run.sampling->typical_p, false) + 1;
}

/* The distance from E of a logit's distance to the maximum: typical-p keeps the nearest; so does
 * top-p, with E = 0. */
static __device__ __forceinline__ float distance_of(const struct sample_run &run, float l)
{
    return __fadd_rn(__fadd_rn(run.max, -l), -run.expected);
}

/* A distance within which there are tokens with at least the target's weight: whole bins on both
 * sides of E, the nearer one first. Rounding of the difference is monotonic, so all tokens of these
 * bins are within it. */
static __device__ float reach_of(const struct sample_run &run, sample_word target)
{
    uint32_t begin = bin_of(run.expected), end = begin; /* bins [begin, end) are */
    float reach = __fadd_rn(run.expected, -(float)begin);
    weigh_bins(run);
    for (sample_word sum = 0; sum < target;) {
        const float left =
            begin > 0 ? __fadd_rn(run.expected, -(float)(begin - 1)) : -(SAMPLE_NONE);
        const float right = end < SAMPLE_BINS - 1 ? __fadd_rn((float)(end + 1), -run.expected)
                                                  : -(SAMPLE_NONE); /* the last bin has no end */
        const float next = left < right ? left : right;
        if (next == -(SAMPLE_NONE))
            return next;
        sum += run.shared->bin[left < right ? --begin : end++];
        reach = next > reach ? next : reach;
    }
    return reach;
}

/* For typical-p or top-p: keeps the first tokens in order that together have the weight to keep. */
static __device__ void take_weighed(struct sample_run *run, bool typical)
{
    run->total = weight_of_all(*run);
    run->weighed = true;
    run->expected = typical ? expected_of_all(*run) : 0.0f;
    const float reach = reach_of(*run, typical ? typical_p_target(*run) : top_p_target(*run));
    const auto keep = [&](float l) { return fabsf(distance_of(*run, l)) <= reach; };
    const auto may_keep = [&](float most) { return distance_of(*run, most) <= reach; };
    run->n =
        admit(run->work, run->blocks, run->job->n_vocab, may_keep, keep, run->ids, run->shared);
}

static __device__ void take_first(struct sample_run *run)
{
    const struct cuda_sampling &s = *run->sampling;
    const uint32_t first = s.stages[0];
    if (first == SAMPLE_TYPICAL_P || first == SAMPLE_TOP_P)
        return take_weighed(run, first == SAMPLE_TYPICAL_P);
    take(run, first == SAMPLE_TOP_K ? bound_of(run->blocks, run->job->n_vocab, s.top_k, run->shared)
              : first == SAMPLE_MIN_P ? __fadd_rn(run->max, s.min_p)
                                      : SAMPLE_NONE);
}

/* ---- stages
 * ------------------------------------------------------------------------------------ */

/* Finds the maximum logit of the candidates; the row fails if it is not finite. Every stage except
 * the first and top-k starts with this. */
static __device__ void look(struct sample_run *run)
{
    uint32_t least, most;
    const auto rank = [&](uint32_t i) { return rank_of(logit_at(*run, i)); };
    rank_range(run->n, rank, &least, &most, run->shared);
    run->max = logit_of(least);
    run->failed = run->failed || !device_finite(run->max);
}

static __device__ void weigh(struct sample_run *run)
{
    if (!run->weighed)
        run->total = weight_of_candidates(*run);
    run->weighed = true;
}

/* Keeps the candidates before the border and on it, by logit. */
static __device__ void keep_to(struct sample_run *run, struct sample_border border)
{
    const auto keep = [&](uint32_t i) {
        const uint32_t rank = rank_of(logit_at(*run, i));
        return rank < border.rank || (rank == border.rank && i <= border.index);
    };
    run->n = keep_ids(run->ids, run->n, keep, run->shared);
    run->weighed = false;
}

static __device__ void stage_top_k(struct sample_run *run)
{
    const auto rank = [&](uint32_t i) { return rank_of(logit_at(*run, i)); };
    const auto one = [](uint32_t) { return (sample_word)1; };
    if (run->sampling->top_k < run->n)
        keep_to(run, select_border(run->n, rank, one, run->sampling->top_k, run->shared));
}

static __device__ void stage_top_p(struct sample_run *run)
{
    weigh(run);
    const auto rank = [&](uint32_t i) { return rank_of(logit_at(*run, i)); };
    const auto weight = [&](uint32_t i) { return weight_of(logit_at(*run, i), run->max); };
    keep_to(run, select_border(run->n, rank, weight, top_p_target(*run), run->shared));
}

static __device__ void stage_min_p(struct sample_run *run)
{
    keep_to(run, {rank_of(__fadd_rn(run->max, run->sampling->min_p)), UINT32_MAX});
}

static __device__ float expected_of(const struct sample_run &run)
{
    sample_word low = 0, high = 0;
    for (uint32_t i = threadIdx.x; i < run.n; i += CUDA_THREADS)
        add_moment(weight_of(logit_at(run, i), run.max), logit_at(run, i), run.max, &low, &high);
    return expected_from(run, low, high);
}

static __device__ void stage_typical_p(struct sample_run *run)
{
    weigh(run);
    if (!run->first)
        run->expected = expected_of(*run);
    const auto rank = [&](uint32_t i) {
        return __float_as_uint(distance_of(*run, logit_at(*run, i))) & 0x7fffffffu;
    };
    const auto weight = [&](uint32_t i) { return weight_of(logit_at(*run, i), run->max); };
    const struct sample_border border =
        select_border(run->n, rank, weight, typical_p_target(*run), run->shared);
    const auto keep = [&](uint32_t i) {
        return rank(i) < border.rank || (rank(i) == border.rank && i <= border.index);
    };
    run->n = keep_ids(run->ids, run->n, keep, run->shared);
    run->weighed = false;
}

static __device__ void stage_temperature(struct sample_run *run)
{
    for (uint32_t i = threadIdx.x; i < run->n; i += CUDA_THREADS)
        run->work[run->ids[i]] = tempered(*run->sampling, logit_at(*run, i), run->max);
    run->weighed = false;
    __syncthreads();
}

/* How many candidate ids are below `end`. */
static __device__ uint32_t ids_below(const struct sample_run &run, uint32_t end)
{
    uint32_t low = 0, high = run.n;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (run.ids[mid] < end)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Penalties after another stage: over the parts of the vocabulary one after the other, because the
 * counts of one part fit in shared memory. */
static __device__ void stage_penalties(struct sample_run *run)
{
    const struct cuda_sampling &s = *run->sampling;
    uint32_t *counts = run->shared->tile.counts, first = 0;
    for (uint32_t begin = 0; begin < run->job->n_vocab; begin += CUDA_SAMPLE_PART) {
        const uint32_t end = ids_below(*run, begin + CUDA_SAMPLE_PART);
        if (first == end)
            continue;
        for (uint32_t i = threadIdx.x; i < CUDA_SAMPLE_PART; i += CUDA_THREADS)
            counts[i] = 0;
        __syncthreads();
        for (uint32_t t = threadIdx.x; t < s.n_tokens; t += CUDA_THREADS) {
            const uint32_t behind = run->job->pass.words[s.tokens + t] - begin;
            if (behind < CUDA_SAMPLE_PART)
                atomicAdd(&counts[behind], 1u);
        }
        __syncthreads();
        for (uint32_t i = first + threadIdx.x; i < end; i += CUDA_THREADS) {
            const uint32_t count = counts[run->ids[i] - begin];
            if (count > 0)
                run->work[run->ids[i]] = penalized(s, logit_at(*run, i), count);
        }
        first = end;
        __syncthreads();
    }
    run->weighed = false;
}

static __device__ void run_stage(struct sample_run *run, uint32_t stage)
{
    if (!run->first && stage != SAMPLE_TOP_K && stage != SAMPLE_PENALTIES)
        look(run);
    if (run->failed)
        return;
    switch (stage) {
    case SAMPLE_PENALTIES:
        return stage_penalties(run);
    case SAMPLE_TOP_K:
        return stage_top_k(run);
    case SAMPLE_TYPICAL_P:
        return stage_typical_p(run);
    case SAMPLE_TOP_P:
        return stage_top_p(run);
    case SAMPLE_MIN_P:
        return stage_min_p(run);
    default:
        return stage_temperature(run);
    }
}

/* ---- the draw
 * ---------------------------------------------------------------------------------- */

/* Draws from all tokens: first the part, then the token in it. */
static __device__ uint32_t draw_of_all(const struct sample_run &run)
{
    const uint32_t n = run.job->n_vocab;
    sample_word left = __umul64hi(run.sampling->random, weight_of_all(run));
    const auto sum = [&](uint32_t i) { return run.parts[i].sum; };
    const uint32_t begin =
        find_in_order(sample_parts(n), sum, left, &left, run.shared) * CUDA_SAMPLE_PART;
    const uint32_t here = n - begin < CUDA_SAMPLE_PART ? n - begin : CUDA_SAMPLE_PART;
    const auto weight = [&](uint32_t i) { return weight_of(run.work[begin + i], run.max); };
    return begin + find_in_order(here, weight, left, &left, run.shared);
}

/* Draws the token, unless run->failed gets set. max: of all logits as the stages receive them, and
 * finite. */
static __device__ uint32_t draw_token(struct sample_run *run)
{
    const struct cuda_sampling &s = *run->sampling;
    if (s.n_stages == 0)
        return draw_of_all(*run);
    take_first(run);
    for (uint32_t i = 0; i < s.n_stages && !run->failed; i++) {
        run->first = i == 0;
        run_stage(run, s.stages[i]);
    }
    if (!run->failed)
        look(run);
    if (run->failed)
        return 0;
    weigh(run);
    const auto weight = [&](uint32_t i) { return weight_of(logit_at(*run, i), run->max); };
    sample_word left = __umul64hi(s.random, run->total);
    return run->ids[find_in_order(run->n, weight, left, &left, run->shared)];
}

#endif
