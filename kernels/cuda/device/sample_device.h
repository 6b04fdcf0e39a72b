/* sample_device.h: NUMERICS.md, "Samples": the three sampling jobs (ops.h), each as a function of
 * one item that a block of 256 threads computes, and the end of a pass. Shared memory: struct
 * sample_shared. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_SAMPLE_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_SAMPLE_DEVICE_H

#include "kernels/cuda/device/sample_stage_device.h"

/* ---- parts: the logits that the sample begins with, and the largest
 * ------------------------------ */

/* The model's logit of what the head's matmul gave. */
static __device__ __forceinline__ float model_logit(const struct sample_job &job, float x)
{
    return __fadd_rn(job.cap == 0.0f ? x : device_cap(x, job.cap), 0.0f);
}

static __device__ __forceinline__ bool allowed(const struct sample_job &job, uint32_t mask,
                                               uint32_t id)
{
    return mask == CUDA_NOWHERE || (job.pass.words[mask + id / 32] >> id % 32 & 1) != 0;
}

/* Adds the biases of an id in the order of the list: the thread that has the first one adds all. */
static __device__ void add_biases(const struct sample_job &job, const struct cuda_sampling &s,
                                  uint32_t begin, uint32_t end, float *logits)
{
    const uint32_t *bias = job.pass.words + s.bias;
    for (uint32_t b = threadIdx.x; b < s.n_bias; b += CUDA_THREADS) {
        const uint32_t id = bias[2 * b];
        bool first = id >= begin && id < end;
        for (uint32_t i = 0; i < b && first; i++)
            first = bias[2 * i] != id;
        for (uint32_t i = b; i < s.n_bias && first; i++) {
            if (bias[2 * i] == id)
                logits[id - begin] =
                    __fadd_rn(logits[id - begin], __uint_as_float(bias[2 * i + 1]));
        }
    }
}

/* Applies mask, bias and the first penalties to logits [begin, end), into the tile. */
static __device__ void adjust(const struct sample_job &job, const struct cuda_sampling &s,
                              const float *raw, uint32_t begin, uint32_t end,
                              struct sample_shared *shared)
{
    float *logits = shared->tile.logits;
    uint32_t *counts = shared->tile.counts;
    for (uint32_t i = threadIdx.x; i < end - begin; i += CUDA_THREADS) {
        logits[i] =
            allowed(job, s.mask, begin + i) ? model_logit(job, raw[begin + i]) : SAMPLE_NONE;
        counts[i] = 0;
    }
    __syncthreads();
    add_biases(job, s, begin, end, logits);
    for (uint32_t t = threadIdx.x; t < s.n_tokens && s.penalized; t += CUDA_THREADS) {
        const uint32_t behind = job.pass.words[s.tokens + t] - begin;
        if (behind < end - begin)
            atomicAdd(&counts[behind], 1u);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < end - begin; i += CUDA_THREADS) {
        if (counts[i] > 0)
            logits[i] = penalized(s, logits[i], counts[i]);
    }
    __syncthreads();
}

/* Stores the maximum of the warp's values, a block of 32, in blocks. */
static __device__ __forceinline__ void put_block(float *blocks, uint32_t id, float x)
{
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(FULL_WARP, x, step);
        x = other > x ? other : x;
    }
    if (threadIdx.x % 32 == 0)
        blocks[id / CUDA_SAMPLE_BLOCK] = x;
}

static __device__ void sample_part_item(const struct sample_job &job, uint32_t w, uint32_t part,
                                        struct sample_shared *shared)
{
    const struct cuda_sampling &s = sampling_of(job.pass, w);
    float *raw = job.logits + (uint64_t)w * job.stride, *work = job.work + (uint64_t)w * job.stride;
    const uint64_t block0 = (uint64_t)w * sample_blocks(job.n_vocab);
    const uint32_t begin = part * CUDA_SAMPLE_PART, left = job.n_vocab - begin;
    const uint32_t end = left < CUDA_SAMPLE_PART ? job.n_vocab : begin + CUDA_SAMPLE_PART;
    if (s.adjusted)
        adjust(job, s, raw, begin, end, shared);
    struct cuda_best best = no_best();
    float raw_max = SAMPLE_NONE;
    for (uint32_t at = begin + threadIdx.x; at - threadIdx.x < end; at += 4 * CUDA_THREADS) {
        float x[4]; /* four loads in flight */
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t i = at + j * CUDA_THREADS;
            x[j] = i < end ? model_logit(job, raw[i]) : SAMPLE_NONE;
        }
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t i = at + j * CUDA_THREADS;
            const bool here = i - threadIdx.x % 32 < end; /* the warp, for put_block */
            float mine = x[j];
            if (i < end) {
                raw[i] = x[j];
                mine = s.adjusted ? shared->tile.logits[i - begin] : x[j];
                best.bad |= device_finite(x[j]) ? 0 : CUDA_BAD_LOGIT;
                best.bad |= mine < -(SAMPLE_NONE) ? 0 : CUDA_BAD_ADJUSTED;
                raw_max = x[j] > raw_max ? x[j] : raw_max;
                const struct cuda_best candidate = {i, best.bad, mine};
                if (better(candidate, best))
                    best = candidate;
                if (s.kind == CUDA_SAMPLE_DRAW)
                    work[i] = mine;
            }
            if (s.kind == CUDA_SAMPLE_DRAW && here)
                put_block(job.blocks + block0, i, mine);
            if (s.logprobs && here)
                put_block(job.raw_blocks + block0, i, x[j]);
        }
    }
    best = block_best(best, shared);
    raw_max = logit_of(~block_max(~rank_of(raw_max), shared));
    if (threadIdx.x == 0) {
        struct cuda_sample_part *to = &job.parts[w * sample_parts(job.n_vocab) + part];
        to->best = best;
        to->raw_max = raw_max;
    }
}

/* ---- weights of all tokens
 * --------------------------------------------------------------------- */

/* The best of a row's parts, returned to all threads. */
static __device__ struct cuda_best best_of_parts(const struct sample_job &job, uint32_t w,
                                                 struct sample_shared *shared)
{
    const uint32_t parts = sample_parts(job.n_vocab);
    struct cuda_best best = no_best();
    for (uint32_t i = threadIdx.x; i < parts; i += CUDA_THREADS) {
        const struct cuda_best x = job.parts[w * parts + i].best;
        const uint32_t bad = best.bad | x.bad;
        if (better(x, best))
            best = x;
        best.bad = bad;
    }
    return block_best(best, shared);
}

static __device__ float raw_max_of_parts(const struct sample_job &job, uint32_t w,
                                         struct sample_shared *shared)
{
    const uint32_t parts = sample_parts(job.n_vocab);
    uint32_t rank = rank_of(SAMPLE_NONE);
    for (uint32_t i = threadIdx.x; i < parts; i += CUDA_THREADS) {
        const uint32_t r = rank_of(job.parts[w * parts + i].raw_max);
        rank = r < rank ? r : rank;
    }
    return logit_of(~block_max(~rank, shared));
}

/* If temperature is the first stage, it is applied here to the part and to its blocks' maxima. */
static __device__ void temper_part(const struct sample_job &job, const struct cuda_sampling &s,
                                   uint32_t w, uint32_t begin, uint32_t end, float max)
{
    float *work = job.work + (uint64_t)w * job.stride;
    float *blocks = job.blocks + (uint64_t)w * sample_blocks(job.n_vocab);
#pragma unroll 8
    for (uint32_t i = begin + threadIdx.x; i < end; i += CUDA_THREADS)
        work[i] = tempered(s, work[i], max);
    const uint32_t last = sample_blocks(end);
    for (uint32_t i = begin / CUDA_SAMPLE_BLOCK + threadIdx.x; i < last; i += CUDA_THREADS)
        blocks[i] = tempered(s, blocks[i], max);
    __syncthreads();
}

static __device__ sample_word sum_of_part(const float *logits, uint32_t begin, uint32_t end,
                                          float max, struct sample_shared *shared)
{
    sample_word sum = 0;
#pragma unroll 8
    for (uint32_t i = begin + threadIdx.x; i < end; i += CUDA_THREADS)
        sum += weight_of(logits[i], max);
    return block_sum(sum, shared);
}

/* Sums over all tokens that typical-p or top-p needs before it selects. */
static __device__ void weigh_part(const struct cuda_sampling &s, const float *logits,
                                  uint32_t begin, uint32_t end, float max,
                                  struct cuda_sample_part *to, struct sample_shared *shared)
{
    const bool typical = s.stages[0] == SAMPLE_TYPICAL_P;
    sample_word low = 0, high = 0;
    for (uint32_t b = 0; b < SAMPLE_BINS; b++)
        shared->bins[b * CUDA_THREADS + threadIdx.x] = 0;
#pragma unroll 4
    for (uint32_t i = begin + threadIdx.x; i < end; i += CUDA_THREADS) {
        const sample_word w = weight_of(logits[i], max);
        shared->bins[bin_of(__fadd_rn(max, -logits[i])) * CUDA_THREADS + threadIdx.x] += w;
        if (typical)
            add_moment(w, logits[i], max, &low, &high);
    }
    sum_own_bins(shared);
    if (threadIdx.x < SAMPLE_BINS)
        to->bins[threadIdx.x] = shared->bin[threadIdx.x];
    low = block_sum(low, shared);
    high = block_sum(high, shared);
    if (threadIdx.x == 0) {
        to->low = low;
        to->high = high;
        to->sum = 0;
        for (uint32_t b = 0; b < SAMPLE_BINS; b++)
            to->sum += shared->bin[b];
    }
}

static __device__ void sample_sum_item(const struct sample_job &job, uint32_t w, uint32_t part,
                                       struct sample_shared *shared)
{
    const struct cuda_sampling &s = sampling_of(job.pass, w);
    if (!sample_summed(&s))
        return;
    struct cuda_sample_part *to = &job.parts[w * sample_parts(job.n_vocab) + part];
    const uint32_t begin = part * CUDA_SAMPLE_PART, left = job.n_vocab - begin;
    const uint32_t end = left < CUDA_SAMPLE_PART ? job.n_vocab : begin + CUDA_SAMPLE_PART;
    const struct cuda_best best = best_of_parts(job, w, shared);
    if (best.bad || !device_finite(best.max))
        return;
    if (s.tempered)
        temper_part(job, s, w, begin, end, best.max);
    const float max = s.tempered ? 0.0f : best.max; /* (max - max) / t */
    const float *work = job.work + (uint64_t)w * job.stride;
    if (s.weighed && s.n_stages > 0) {
        weigh_part(s, work, begin, end, max, to, shared);
    } else if (s.weighed) {
        const sample_word sum = sum_of_part(work, begin, end, max, shared);
        if (threadIdx.x == 0)
            to->sum = sum;
    }
    if (s.logprobs) {
        const float *raw = job.logits + (uint64_t)w * job.stride;
        const float raw_max = raw_max_of_parts(job, w, shared);
        const sample_word sum = sum_of_part(raw, begin, end, raw_max, shared);
        if (threadIdx.x == 0)
            to->raw_sum = sum;
    }
}

/* ---- a row's sample
 * ------------------------------------------------------------------------------ */

struct sample_normalizer {
    float max, log_sum;
};

static __device__ __forceinline__ float logprob_of(const struct sample_normalizer &z, float l)
{
    return __fadd_rn(__fadd_rn(l, -z.max), -z.log_sum);
}

/* The most likely tokens by the model's own logits, one after the other. */
static __device__ void put_top(const struct sample_job &job, uint32_t w,
                               const struct sample_normalizer &z, struct cuda_sample *to,
                               struct sample_shared *shared)
{
    const float *raw = job.logits + (uint64_t)w * job.stride;
    const float *blocks = job.raw_blocks + (uint64_t)w * sample_blocks(job.n_vocab);
    uint32_t *ids = job.ids + (uint64_t)w * job.stride, found = 0;
    const uint32_t wanted = sampling_of(job.pass, w).n_top;
    const float bound = wanted > 0 ? bound_of(blocks, job.n_vocab, wanted, shared) : SAMPLE_NONE;
    const uint32_t n = wanted > 0 ? admit_from(raw, blocks, job.n_vocab, bound, ids, shared) : 0;
    struct cuda_best last = {0, 0, -(SAMPLE_NONE)};
    for (; found < wanted; found++) {
        struct cuda_best best = no_best();
        for (uint32_t i = threadIdx.x; i < n; i += CUDA_THREADS) {
            const struct cuda_best x = {ids[i], 0, raw[ids[i]]};
            if (better(last, x) && better(x, best))
                best = x;
        }
        last = block_best(best, shared);
        if (last.id == CUDA_ROW_OK)
            break;
        if (threadIdx.x == 0)
            to->top[found] = {last.id, logprob_of(z, last.max)};
    }
    if (threadIdx.x == 0)
        to->n_top = found;
}

static __device__ void put_logprobs(const struct sample_job &job, uint32_t w, uint32_t token,
                                    struct cuda_sample *to, struct sample_shared *shared)
{
    const uint32_t parts = sample_parts(job.n_vocab);
    sample_word sum = 0;
    for (uint32_t i = threadIdx.x; i < parts; i += CUDA_THREADS)
        sum += job.parts[w * parts + i].raw_sum;
    sum = block_sum(sum, shared);
    const struct sample_normalizer z = {raw_max_of_parts(job, w, shared),
                                        device_log(__fmul_rn(__ull2float_rn(sum), 0x1p-40f))};
    if (threadIdx.x == 0)
        to->logprob = logprob_of(z, job.logits[(uint64_t)w * job.stride + token]);
    put_top(job, w, z, to, shared);
}

/* Returns the token; *failed if there is none. */
static __device__ uint32_t token_of(const struct sample_job &job, uint32_t w,
                                    const struct cuda_best &best, bool *failed,
                                    struct sample_shared *shared)
{
    const struct cuda_sampling &s = sampling_of(job.pass, w);
    *failed = best.bad != 0 || !device_finite(best.max);
    if (*failed || s.kind != CUDA_SAMPLE_DRAW)
        return best.id;
    struct sample_run run = {};
    run.job = &job;
    run.sampling = &s;
    run.shared = shared;
    run.parts = job.parts + w * sample_parts(job.n_vocab);
    run.blocks = job.blocks + (uint64_t)w * sample_blocks(job.n_vocab);
    run.work = job.work + (uint64_t)w * job.stride;
    run.ids = job.ids + (uint64_t)w * job.stride;
    run.max = s.tempered ? 0.0f : best.max;
    const uint32_t token = draw_token(&run);
    *failed = run.failed;
    return token;
}

/* ---- results
 * ----------------------------------------------------------------------------------- */

/* Writes which rows were bad and clears that, then the pass's number: done by one block when
 * everything else of the pass is written. D1: the fence and the store pair with is_done (wait.c).
 * The fence comes after the barrier, because only a fence of the storing thread orders what the
 * block's other threads wrote. */
static __device__ void end_item(const struct cuda_pass &pass, const struct cuda_results &to)
{
    for (uint32_t r = threadIdx.x; r < pass.counts[CUDA_COUNT_ROWS]; r += CUDA_THREADS) {
        to.bad[r] = pass.bad[r];
        pass.bad[r] = pass.mark[r] = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        *(volatile uint32_t *)to.done = pass.counts[CUDA_COUNT_PASS];
    }
}

/* The block that finishes the last row of a pass ends it. */
static __device__ void row_done(const struct sample_job &job, struct sample_shared *shared)
{
    if (threadIdx.x == 0) {
        __threadfence_system(); /* the row's results before the count */
        shared->found[0] = atomicAdd(&job.pass.counts[CUDA_COUNT_SAMPLED], 1u) + 1;
        __threadfence_system();
    }
    __syncthreads();
    const bool last = shared->found[0] == job.pass.counts[CUDA_COUNT_WANTED];
    __syncthreads();
    if (last)
        end_item(job.pass, job.results);
}

static __device__ void sample_best_item(const struct sample_job &job, uint32_t w,
                                        struct sample_shared *shared)
{
    struct cuda_sample *to = &job.results.samples[w];
    const struct cuda_best best = best_of_parts(job, w, shared);
    const struct cuda_sampling &s = sampling_of(job.pass, w);
    bool failed = false;
    uint32_t token = 0;
    if (s.kind != CUDA_SAMPLE_BARE)
        token = token_of(job, w, best, &failed, shared);
    if (threadIdx.x == 0) {
        to->bad = best.bad & CUDA_BAD_LOGIT;
        to->failed = failed;
        to->token = token;
        to->logprob = 0.0f;
        to->n_top = 0;
    }
    if (s.logprobs && !failed)
        put_logprobs(job, w, token, to, shared);
    row_done(job, shared);
}

#endif
