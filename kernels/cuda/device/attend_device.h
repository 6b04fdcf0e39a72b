/* attend_device.h: NUMERICS.md, "Attention", for one row. A block of 256 threads computes a row's
 * queries of one KV head, four at a time, over a run of splits: a thread is a position while scores
 * are computed, a dimension in the weighted sum. The splits of a run are combined as they are
 * computed, the runs by combine_item, both in ascending order, as NUMERICS.md specifies. Several rows
 * of one sequence: attend_tile_device.h. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_ATTEND_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_ATTEND_DEVICE_H

#include "kernels/cuda/device/row_ops_device.h"

enum { ATTEND_QUERIES = 4 };

struct attend_shared {
    float4 q[CUDA_MAX_HEAD]; /* [dimension] of four queries */
    float4 e[CUDA_SPLIT];    /* [position] scores, then softmax weights */
    float4 o[CUDA_MAX_HEAD]; /* the running weighted sum */
    const uint8_t *page[CUDA_SPLIT / CUDA_PAGE];
    float top[CUDA_WARPS][ATTEND_QUERIES];
    float m[ATTEND_QUERIES], l[ATTEND_QUERIES], a[ATTEND_QUERIES], b[ATTEND_QUERIES];
};

/* What a page holds for a value, as loaded; and what it stands for. */
template <uint32_t KV> struct kv_raw {
    typedef unsigned short type;
};
template <> struct kv_raw<CUDA_KV_F32> {
    typedef float type;
};
template <> struct kv_raw<CUDA_KV_Q8_0> {
    typedef signed char type;
};
static __device__ __forceinline__ float kv_meant(unsigned short raw, float)
{
    return f32_from_f16(raw);
}
static __device__ __forceinline__ float kv_meant(float raw, float)
{
    return raw;
}
static __device__ __forceinline__ float kv_meant(signed char raw, float scale)
{
    return __fmul_rn((float)raw, scale);
}

/* N values that are `step` apart, loaded together. */
template <int N, typename RAW>
static __device__ __forceinline__ void kv_load(RAW raw[N], const RAW *from, uint32_t step)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        raw[i] = load_now(from + (uint32_t)i * step);
}

/* Value i of K or V of a page and head; scale is used for q8_0 only. */
template <uint32_t KV>
static __device__ __forceinline__ float kv_value(const uint8_t *values, uint32_t i, float scale)
{
    if (KV == CUDA_KV_F32)
        return ((const float *)values)[i];
    if (KV == CUDA_KV_F16)
        return f32_from_f16(((const unsigned short *)values)[i]);
    return __fmul_rn((float)((const signed char *)values)[i], scale);
}

/* The positions [begin, end) of a split that are read: pages left of all sliding windows are
 * skipped. */
struct attend_span {
    uint32_t begin, end;
};

/* The span of a split from position `from` on. */
static __device__ __forceinline__ attend_span span_of(uint32_t split, uint32_t from)
{
    const uint32_t begin = split * CUDA_SPLIT, page = from / CUDA_PAGE * CUDA_PAGE;
    return {page > begin ? page : begin, begin + CUDA_SPLIT};
}

/* How many of the positions [0, end) are in the span. */
static __device__ __forceinline__ uint32_t positions_of(uint32_t end, const attend_span &span)
{
    const uint32_t last = end < span.end ? end : span.end;
    return last <= span.begin ? 0 : last - span.begin;
}

/* Where page i of a row's sequence has K of the layer and head. */
static __device__ __forceinline__ const uint8_t *
page_of(const struct attend_job &job, const struct cuda_row &row, uint32_t i, uint32_t head_kv)
{
    return job.kv.memory + job.pass.words[row.pages[job.kv.pages] + i] * job.kv.page_bytes +
           job.kv.offset + head_kv * job.kv.k_bytes;
}

/* Prefetches K and V of n positions from `begin` on into L2. */
static __device__ void prefetch_pages(const struct attend_job &job, const struct cuda_row &row,
                                      uint32_t begin, uint32_t n, uint32_t head_kv)
{
    const uint32_t pages = (n + CUDA_PAGE - 1) / CUDA_PAGE,
                   of_k = (uint32_t)(job.kv.k_bytes / CUDA_LINE),
                   lines = of_k + (uint32_t)(job.kv.v_bytes / CUDA_LINE);
    const uint64_t v_at = v_after_k(job.kv, head_kv);
    for (uint32_t i = threadIdx.x; i < pages * lines; i += CUDA_THREADS) {
        const uint32_t line = i % lines;
        prefetch_l2(page_of(job, row, begin / CUDA_PAGE + i / lines, head_kv) +
                    (line < of_k ? line * CUDA_LINE : v_at + (line - of_k) * CUDA_LINE));
    }
}

/* The same for the first split of item i, if there is one: before the job may start, as nothing in it but the page of the last
 * position changes. */
static __device__ void prefetch_item(const struct attend_job &job, uint32_t i, uint32_t head_kv)
{
    if (i >= attend_count(job))
        return;
    const struct cuda_item item = attend_items(job)[i];
    const struct cuda_row &row = job.pass.rows[item.row];
    const attend_span span = span_of(item.split0, seen_from(row.position + 1, job.sliding_window));
    prefetch_pages(job, row, span.begin, positions_of(row.position + 1, span), head_kv);
}

/* Stores in shared memory where each page of a span has K of the layer and head. Prefetches it and
 * its V into L2. */
static __device__ void find_pages(const struct attend_job &job, const struct cuda_row &row,
                                  uint32_t begin, uint32_t n, uint32_t head_kv,
                                  const uint8_t **ret_page)
{
    if (threadIdx.x < (n + CUDA_PAGE - 1) / CUDA_PAGE)
        ret_page[threadIdx.x] = page_of(job, row, begin / CUDA_PAGE + threadIdx.x, head_kv);
    __syncthreads();
    prefetch_pages(job, row, begin, n, head_kv);
}

static __device__ __forceinline__ float &lane4(float4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Computes the score of the thread's position into shared.e, and the maximum of each query over the
 * split. Positions [low, n) of the span are visible; low is in its first page. */
template <uint32_t KV>
static __device__ void attend_scores(const struct attend_job &job, uint32_t low, uint32_t n,
                                     attend_shared &shared)
{
    const uint32_t t = threadIdx.x, k_dim = job.kv.k_dim;
    const bool seen = t >= low && t < n;
    float acc[ATTEND_QUERIES] = {};
    if (seen) {
        const uint8_t *k = shared.page[t / CUDA_PAGE];
        const float *scales = (const float *)(k + k_dim * CUDA_PAGE) + t % CUDA_PAGE;
        const auto add = [&](uint32_t d, float key) {
            const float4 q = shared.q[d];
            acc[0] = __fmaf_rn(q.x, key, acc[0]);
            acc[1] = __fmaf_rn(q.y, key, acc[1]);
            acc[2] = __fmaf_rn(q.z, key, acc[2]);
            acc[3] = __fmaf_rn(q.w, key, acc[3]);
        };
        typedef typename kv_raw<KV>::type raw_type;
        const raw_type *mine = (const raw_type *)k + t % CUDA_PAGE;
#pragma unroll 1
        for (uint32_t begin = 0; begin < k_dim; begin += CUDA_BLOCK) {
            const float scale = KV == CUDA_KV_Q8_0 ? scales[begin] : 0.0f;
            if (k_dim - begin < CUDA_BLOCK) {
                for (uint32_t d = begin; d < k_dim; d++)
                    add(d, kv_meant(load_now(mine + d * CUDA_PAGE), scale));
                break;
            }
            raw_type raw[CUDA_BLOCK];
            kv_load<CUDA_BLOCK>(raw, mine + begin * CUDA_PAGE, CUDA_PAGE);
#pragma unroll
            for (uint32_t i = 0; i < CUDA_BLOCK; i++)
                add(begin + i, kv_meant(raw[i], scale));
        }
    }
    for (int i = 0; i < ATTEND_QUERIES; i++) {
        acc[i] = seen ? __fmul_rn(acc[i], job.scale) : __uint_as_float(0xff800000u);
        const float top = warp_max_float(acc[i]);
        if (t % 32 == 0)
            shared.top[t / 32][i] = top;
    }
    shared.e[t] = make_float4(acc[0], acc[1], acc[2], acc[3]);
    __syncthreads();
}

/* Turns scores into softmax weights; computes the split's l and the factors with which it is
 * combined with the splits before. first: it is the first split of the run. */
static __device__ void attend_weights(uint32_t low, uint32_t n, bool first, attend_shared &shared)
{
    const uint32_t t = threadIdx.x, lane = t % 32, i = t / 32;
    float m[ATTEND_QUERIES];
    for (int k = 0; k < ATTEND_QUERIES; k++) {
        m[k] = shared.top[0][k];
        for (int w = 1; w < CUDA_WARPS; w++)
            m[k] = shared.top[w][k] > m[k] ? shared.top[w][k] : m[k];
    }
    if (t >= low && t < n) {
        float4 e = shared.e[t];
        for (int k = 0; k < ATTEND_QUERIES; k++)
            lane4(e, k) = device_exp(__fadd_rn(lane4(e, k), -m[k]));
        shared.e[t] = e;
    }
    __syncthreads();
    if (i >= ATTEND_QUERIES)
        return;
    float l = 0.0f;
    for (uint32_t k = lane < low ? lane + 32 : lane; k < n; k += 32)
        l = __fadd_rn(l, lane4(shared.e[k], (int)i));
    l = warp_tree(l);
    if (lane != 0)
        return;
    float top = m[0];
    for (uint32_t k = 1; k < ATTEND_QUERIES; k++)
        top = i == k ? m[k] : top;
    if (first) {
        shared.m[i] = top;
        shared.l[i] = l;
        return;
    }
    const float big = shared.m[i] > top ? shared.m[i] : top;
    const float a = device_exp(__fadd_rn(shared.m[i], -big)), b = device_exp(__fadd_rn(top, -big));
    shared.a[i] = a;
    shared.b[i] = b;
    shared.l[i] = __fmaf_rn(shared.l[i], a, __fmul_rn(l, b));
    shared.m[i] = big;
}

/* Adds positions [low, n) of a page to the weighted sum of V. */
template <uint32_t KV>
static __device__ __forceinline__ void page_values(const struct cuda_kv &kv, const uint8_t *v,
                                                   const float4 *e, uint32_t low, uint32_t n,
                                                   uint32_t d, int pair, float o[2])
{
    typedef typename kv_raw<KV>::type raw_type;
    const float *scales = (const float *)(v + kv.v_dim * CUDA_PAGE) + d / CUDA_BLOCK;
    const raw_type *mine = (const raw_type *)v + d;
    const auto add = [&](uint32_t t, raw_type raw) {
        const float value = kv_meant(raw, KV == CUDA_KV_Q8_0 ? scales[t * kv.v_blocks] : 0.0f);
        const float2 w = *(const float2 *)(&e[t].x + pair);
        o[0] = __fmaf_rn(w.x, value, o[0]);
        o[1] = __fmaf_rn(w.y, value, o[1]);
    };
    if (n - low == CUDA_PAGE) {
        raw_type raw[CUDA_PAGE];
        kv_load<CUDA_PAGE>(raw, mine, kv.v_dim);
#pragma unroll
        for (uint32_t t = 0; t < CUDA_PAGE; t++)
            add(t, raw[t]);
        return;
    }
#pragma unroll 1
    for (uint32_t t = low; t < n; t++)
        add(t, load_now(mine + t * kv.v_dim));
}

/* The weighted sum of V, two queries per thread, combined with the splits before. */
template <uint32_t KV>
static __device__ void attend_values(const struct attend_job &job, uint32_t head_kv, uint32_t low,
                                     uint32_t n, bool first, attend_shared &shared)
{
    const uint32_t v_dim = job.kv.v_dim;
    const uint64_t v_at = v_after_k(job.kv, head_kv);
    for (uint32_t work = threadIdx.x; work < 2 * v_dim; work += CUDA_THREADS) {
        const uint32_t d = work % v_dim;
        const int pair = (int)(work / v_dim) * 2;
        float sum[2] = {0.0f, 0.0f};
        for (uint32_t at = 0; at < n; at += CUDA_PAGE) {
            const uint8_t *v = shared.page[at / CUDA_PAGE] + v_at;
            const uint32_t left = at == 0 ? low : 0,
                           end = n - at < CUDA_PAGE ? n - at : (uint32_t)CUDA_PAGE;
            page_values<KV>(job.kv, v, shared.e + at, left, end, d, pair, sum);
        }
        float *o = &shared.o[d].x + pair;
        o[0] = first ? sum[0] : __fmaf_rn(o[0], shared.a[pair], __fmul_rn(sum[0], shared.b[pair]));
        o[1] = first ? sum[1]
                     : __fmaf_rn(o[1], shared.a[pair + 1], __fmul_rn(sum[1], shared.b[pair + 1]));
    }
}

/* Up to four queries, heads [head, head + n_queries); q: theirs, [n_queries][q_dim]. */
template <uint32_t KV>
static __device__ void attend_queries(const struct attend_job &job, const struct cuda_item &item,
                                      const float *q, uint32_t head_kv, uint32_t head,
                                      uint32_t n_queries, attend_shared &shared)
{
    const struct cuda_row &row = job.pass.rows[item.row];
    const uint32_t k_dim = job.kv.k_dim, v_dim = job.kv.v_dim, tid = threadIdx.x,
                   from = seen_from(row.position + 1, job.sliding_window);
    for (uint32_t i = tid; i < ATTEND_QUERIES * k_dim; i += CUDA_THREADS)
        (&shared.q[i % k_dim].x)[i / k_dim] =
            i / k_dim < n_queries ? q[i / k_dim * job.q_dim + i % k_dim] : 0.0f;
    __syncthreads();
    for (uint32_t split = item.split0; split < item.split1; split++) {
        const attend_span span = span_of(split, from);
        const uint32_t low = positions_of(from, span), n = positions_of(row.position + 1, span);
        const bool first = split == item.split0;
        find_pages(job, row, span.begin, n, head_kv, shared.page);
        attend_scores<KV>(job, low, n, shared);
        attend_weights(low, n, first, shared);
        __syncthreads();
        attend_values<KV>(job, head_kv, low, n, first, shared);
        __syncthreads();
    }
    const uint64_t at = (uint64_t)(row.part + item.part) * job.n_head + head;
    if (tid < n_queries) {
        job.part_ml[(at + tid) * 2] = shared.m[tid];
        job.part_ml[(at + tid) * 2 + 1] = shared.l[tid];
    }
    for (uint32_t i = tid; i < n_queries * v_dim; i += CUDA_THREADS)
        job.part_o[at * v_dim + i] = (&shared.o[i % v_dim].x)[i / v_dim];
    __syncthreads();
}

/* Item: a row's queries of one KV head; q: the first of these queries. */
template <uint32_t KV>
static __device__ void attend_item(const struct attend_job &job, const struct cuda_item &item,
                                   const float *q, uint32_t head_kv, attend_shared &shared)
{
    const uint32_t share = job.n_head / job.kv.n_head_kv;
    for (uint32_t head = 0; head < share; head += ATTEND_QUERIES) {
        const uint32_t n = share - head < ATTEND_QUERIES ? share - head : ATTEND_QUERIES;
        attend_queries<KV>(job, item, q + (uint64_t)head * job.q_dim, head_kv,
                           head_kv * share + head, n, shared);
    }
}

/* Where the queries of a row and KV head are in the job's array. */
static __device__ __forceinline__ const float *queries_of(const struct attend_job &job, uint32_t r,
                                                          uint32_t head_kv)
{
    return job.q + (uint64_t)r * job.stride +
           (uint64_t)(head_kv * (job.n_head / job.kv.n_head_kv)) * job.q_dim;
}

/* ---- the parts of a row merged ----------------------------------------------------------------- */

/* Factors of the merge of some heads and the next COMBINE_PARTS parts: every value of a head has the same, so that they are
 * computed once, by all threads, and the values' chains are fma alone. */
enum { COMBINE_HEADS = 4, COMBINE_PARTS = 256, COMBINE_EACH = 4 };
static_assert(COMBINE_HEADS * COMBINE_PARTS == COMBINE_EACH * CUDA_THREADS &&
                  COMBINE_PARTS / COMBINE_EACH == 2 * 32,
              "a head is two warps, of which a thread has some parts one after the other");

struct combine_shared {
    float a[COMBINE_HEADS][COMBINE_PARTS], b[COMBINE_HEADS][COMBINE_PARTS];
    float l[COMBINE_HEADS][COMBINE_PARTS]; /* of the part, times b */
    float top[CUDA_WARPS];                 /* the maximum of a warp's parts */
    float m[COMBINE_HEADS];                /* of all parts until now */
};

/* The maximum of x over the lanes before this one. */
static __device__ __forceinline__ float max_before(float x)
{
    for (int step = 1; step < 32; step *= 2) {
        const float other = __shfl_up_sync(FULL_WARP, x, step);
        x = (int)(threadIdx.x % 32) >= step && other > x ? other : x;
    }
    const float before = __shfl_up_sync(FULL_WARP, x, 1);
    return threadIdx.x % 32 == 0 ? __uint_as_float(0xff800000u) : before;
}

/* The factors of n parts from `part` on, of heads [head, end), which follow those in shared.m. All threads. */
static __device__ void combine_factors(const struct combine_job &job, uint32_t part, uint32_t n,
                                       uint32_t head, uint32_t end, struct combine_shared &shared)
{
    const uint32_t mine = threadIdx.x / 64, at = threadIdx.x % 64 * COMBINE_EACH,
                   warp = threadIdx.x / 32;
    const float none = __uint_as_float(0xff800000u);
    float2 ml[COMBINE_EACH];
    float top = none;
#pragma unroll
    for (uint32_t i = 0; i < COMBINE_EACH; i++) {
        const bool there = head + mine < end && at + i < n;
        ml[i] = there ? ((const float2 *)
                             job.part_ml)[(uint64_t)(part + at + i) * job.n_head + head + mine]
                      : make_float2(none, 0.0f);
        top = ml[i].x > top ? ml[i].x : top;
    }
    float m = max_before(top);
    const float all = warp_max_float(top);
    if (threadIdx.x % 32 == 0)
        shared.top[warp] = all;
    const float until = head + mine < end ? shared.m[mine] : none;
    __syncthreads();
    m = until > m ? until : m;
    m = warp % 2 == 1 && shared.top[warp - 1] > m ? shared.top[warp - 1] : m;
#pragma unroll
    for (uint32_t i = 0; i < COMBINE_EACH; i++) {
        const float big = m > ml[i].x ? m : ml[i].x;
        const float a = device_exp(__fadd_rn(m, -big)), b = device_exp(__fadd_rn(ml[i].x, -big));
        shared.a[mine][at + i] = a;
        shared.b[mine][at + i] = b;
        shared.l[mine][at + i] = __fmul_rn(ml[i].y, b);
        m = big;
    }
    if (threadIdx.x % 64 == 63 && head + mine < end)
        shared.m[mine] = m;
    __syncthreads();
}

/* A head's sums on their way: NUMERICS.md's M, L, O. */
struct combined {
    float m, l, o;
};

/* The rest of a row's parts, of values [begin, end), in which thread's is value i of `head`. All threads. */
static __device__ void combine_parts(const struct combine_job &job, uint32_t first, uint32_t n,
                                     uint32_t begin, uint32_t end, struct combined &sum,
                                     struct combine_shared &shared)
{
    const uint32_t i = begin + threadIdx.x, last = (end - 1) / job.v_dim, tid = threadIdx.x;
    const uint64_t width = (uint64_t)job.n_head * job.v_dim;
    for (uint32_t head = begin / job.v_dim; head <= last; head += COMBINE_HEADS) {
        const bool mine = i < end && i / job.v_dim - head < COMBINE_HEADS;
        if (tid < COMBINE_HEADS && head + tid <= last)
            shared.m[tid] = job.part_ml[2 * ((uint64_t)first * job.n_head + head + tid)];
        __syncthreads();
        for (uint32_t at = 1; at < n; at += COMBINE_PARTS) {
            const uint32_t k = n - at < COMBINE_PARTS ? n - at : (uint32_t)COMBINE_PARTS,
                           own = mine ? i / job.v_dim - head : 0;
            combine_factors(job, first + at, k, head, last + 1, shared);
            const float *o = job.part_o + (first + at) * width + i;
#pragma unroll 8
            for (uint32_t part = 0; mine && part < k; part++) {
                sum.l = __fmaf_rn(sum.l, shared.a[own][part], shared.l[own][part]);
                sum.o = __fmaf_rn(sum.o, shared.a[own][part],
                                  __fmul_rn(o[part * width], shared.b[own][part]));
            }
            sum.m = mine ? shared.m[own] : sum.m;
            __syncthreads(); /* what was read is overwritten */
        }
    }
}

/* Parts [first, last) of a row. */
struct combine_span {
    uint32_t first, last;
};

static __device__ __forceinline__ combine_span combine_span_of(const struct combine_job &job,
                                                               uint32_t r)
{
    const uint32_t first = job.pass.rows[r].part, last = job.pass.rows[r + 1].part,
                   end = job.pass.rows[r].position + 1;
    const bool each = last - first > 1; /* one for each split */
    return {each ? first + seen_from(end, job.sliding_window) / CUDA_SPLIT : first, last};
}

/* Values [begin, end) of a row's attention output, at most one a thread, whole blocks of activations: the parts of their heads
 * merged, with the sink, and gated. All threads. */
static __device__ void combine_item(const struct combine_job &job, uint32_t r,
                                    const combine_span &span, uint32_t begin, uint32_t end,
                                    struct combine_shared &shared)
{
    const uint32_t i = begin + threadIdx.x, head = i / job.v_dim, first = span.first,
                   last = span.last;
    const uint64_t at = (uint64_t)first * job.n_head + head;
    struct combined sum = {0.0f, 1.0f, 0.0f};
    if (i < end)
        sum = {job.part_ml[2 * at], job.part_ml[2 * at + 1],
               job.part_o[(uint64_t)first * job.n_head * job.v_dim + i]};
    if (last - first > 1)
        combine_parts(job, first, last - first, begin, end, sum, shared);
    if (job.sinks && i < end) {
        const float sink = job.sinks[head], big = sum.m > sink ? sum.m : sink,
                    a = device_exp(__fadd_rn(sum.m, -big));
        sum.l = __fmaf_rn(sum.l, a, device_exp(__fadd_rn(sink, -big)));
        sum.o = __fmul_rn(sum.o, a);
    }
    float y = __fmul_rn(sum.o, __fdiv_rn(1.0f, sum.l));
    if (job.gate && i < end)
        y = __fmul_rn(device_sigmoid(job.gate[(uint64_t)r * job.gate_stride +
                                              (uint64_t)head * job.q_dim + i % job.v_dim]),
                      y);
    put_value(job.out, job.forms, r, i, end, i < end ? y : 0.0f);
}

#endif
