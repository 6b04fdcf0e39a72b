/* attend_tile_device.h: NUMERICS.md, "Attention", for several rows of one sequence at once, so that
 * their keys and values are read once. A block takes 8 * GROUPS queries of one KV head (rows times
 * the query heads that share it) over a run of splits. A group of 8 queries belongs to 8 / GROUPS
 * warps, which divide the pages of the split among them for the scores (a lane is a position) and
 * the dimensions, 32 at a time, for the weighted sum (a lane is a dimension). Keys and values are
 * staged in shared memory as f32, 4096 at a time.
 *
 * Each query's sums are those of a single row, in the same order: chains over dimensions, over
 * positions, and the combination of splits. If a row ends before others of its tile, or its window
 * begins after theirs, its weights outside are MASKED and skipped.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_ATTEND_TILE_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_ATTEND_TILE_DEVICE_H

#include "kernels/cuda/device/attend_device.h"

enum {
    TILE_EACH = 8,       /* queries of a group */
    TILE_STAGE = 4096,   /* values staged at once: 16 per thread */
    TILE_DIMENSIONS = 16 /* of keys, for the 256 positions of a split */
};

/* marks a weight to skip: weights are never negative */
#define MASKED -1.0f

template <int GROUPS> struct attend_tile {
    enum {
        QUERIES = TILE_EACH * GROUPS,
        WARPS = CUDA_WARPS / GROUPS, /* per group */
        /* padded, so that lanes that store four queries each have no bank conflicts */
        PITCH = QUERIES + 4,
        PAGES = CUDA_SPLIT / CUDA_PAGE / WARPS
    };
    float stage[TILE_STAGE];
    float e[CUDA_SPLIT][PITCH]; /* weights of a position */
    const uint8_t *page[CUDA_SPLIT / CUDA_PAGE];
    float top[QUERIES][WARPS];
    float m[QUERIES], l[QUERIES];
    float a[QUERIES], b[QUERIES]; /* factors of the splits before, or MASKED, and of this split */
    uint32_t end[QUERIES];        /* end (exclusive) of its positions; 0: no such query */
    /* the query sees the positions of the span from the low-th to the n-th */
    uint32_t low[QUERIES], n[QUERIES];
    float
        /* [dimension][PITCH]; the launch allocates as many as k_dim needs */
        q[(GROUPS > 2 ? CUDA_LARGE_HEAD : CUDA_MAX_HEAD) * PITCH];
};

/* The queries of a tile: rows [row, row + n_rows), heads [head, head + n_heads) of each. */
struct tile_queries {
    uint32_t row, head, n_heads, count;
};

/* ---- keys and values, four at a time
 * ----------------------------------------------------------- */

/* Four consecutive values of a page, as loaded. */
template <uint32_t KV> struct kv_quad {
    uint4 bits;
    float4 scale; /* used for q8_0 */

    /* From value `at`, a multiple of 4. */
    __device__ __forceinline__ void load(const uint8_t *values, uint32_t at)
    {
        if (KV == CUDA_KV_F32) {
            bits = *(const uint4 *)(values + at * 4);
        } else if (KV == CUDA_KV_F16) {
            const uint2 half = *(const uint2 *)(values + at * 2);
            bits.x = half.x;
            bits.y = half.y;
        } else {
            bits.x = *(const unsigned *)(values + at);
        }
    }

    __device__ __forceinline__ float4 values() const
    {
        if (KV == CUDA_KV_F32)
            return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y),
                               __uint_as_float(bits.z), __uint_as_float(bits.w));
        if (KV == CUDA_KV_F16)
            return make_float4(
                f32_from_f16((unsigned short)bits.x), f32_from_f16((unsigned short)(bits.x >> 16)),
                f32_from_f16((unsigned short)bits.y), f32_from_f16((unsigned short)(bits.y >> 16)));
        return make_float4(__fmul_rn((float)(signed char)(bits.x & 255u), scale.x),
                           __fmul_rn((float)(signed char)(bits.x >> 8 & 255u), scale.y),
                           __fmul_rn((float)(signed char)(bits.x >> 16 & 255u), scale.z),
                           __fmul_rn((float)(signed char)(bits.x >> 24), scale.w));
    }
};

/* The values that one thread loads for a stage. */
template <uint32_t KV> struct kv_share {
    enum { QUADS = TILE_STAGE / 4 / CUDA_THREADS };
    kv_quad<KV> quad[QUADS];

    /* Keys: stage [page][16 dimensions][32 positions], dimensions from `first` on, pages [0,
     * pages). */
    __device__ __forceinline__ void load_keys(const struct cuda_kv &kv, const uint8_t *const *page,
                                              uint32_t pages, uint32_t first)
    {
        constexpr uint32_t OF_PAGE = TILE_DIMENSIONS * CUDA_PAGE / 4;
#pragma unroll
        for (uint32_t i = 0; i < QUADS; i++) {
            const uint32_t at = threadIdx.x + CUDA_THREADS * i, in = at % OF_PAGE,
                           d = first + in / (CUDA_PAGE / 4);
            if (at / OF_PAGE >= pages || d >= kv.k_dim)
                continue;
            const uint8_t *k = page[at / OF_PAGE];
            const uint32_t t = in % (CUDA_PAGE / 4) * 4;
            quad[i].load(k, d * CUDA_PAGE + t);
            if constexpr (KV == CUDA_KV_Q8_0)
                quad[i].scale = *(const float4 *)(k + kv.k_dim * CUDA_PAGE +
                                                  (d / CUDA_BLOCK * CUDA_PAGE + t) * 4);
        }
    }

    __device__ __forceinline__ void store_keys(const struct cuda_kv &kv, uint32_t pages,
                                               uint32_t first, float *stage) const
    {
        constexpr uint32_t OF_PAGE = TILE_DIMENSIONS * CUDA_PAGE / 4;
#pragma unroll
        for (uint32_t i = 0; i < QUADS; i++) {
            const uint32_t at = threadIdx.x + CUDA_THREADS * i,
                           d = first + at % OF_PAGE / (CUDA_PAGE / 4);
            if (at / OF_PAGE < pages && d < kv.k_dim)
                ((float4 *)stage)[at] = quad[i].values();
        }
    }

    /* Values: stage [position][v_dim], `count` of them from value `first` of a page on. */
    __device__ __forceinline__ void load_values(const struct cuda_kv &kv, const uint8_t *v,
                                                uint32_t first, uint32_t count)
    {
#pragma unroll
        for (uint32_t i = 0; i < QUADS; i++) {
            const uint32_t at = (threadIdx.x + CUDA_THREADS * i) * 4;
            if (at >= count)
                continue;
            quad[i].load(v, first + at);
            if constexpr (KV == CUDA_KV_Q8_0)
                quad[i].scale =
                    scales_of(kv, (const float *)(v + kv.v_dim * CUDA_PAGE), first + at);
        }
    }

    /* The scales of four values of V, which may belong to two positions. */
    static __device__ __forceinline__ float4 scales_of(const struct cuda_kv &kv,
                                                       const float *scales, uint32_t at)
    {
        float4 scale;
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t t = (at + k) / kv.v_dim, d = (at + k) % kv.v_dim;
            lane4(scale, (int)k) = scales[t * kv.v_blocks + d / CUDA_BLOCK];
        }
        return scale;
    }

    __device__ __forceinline__ void store_values(uint32_t count, float *stage) const
    {
#pragma unroll
        for (uint32_t i = 0; i < QUADS; i++) {
            const uint32_t at = threadIdx.x + CUDA_THREADS * i;
            if (at * 4 < count)
                ((float4 *)stage)[at] = quad[i].values();
        }
    }
};

/* ---- scores
 * ------------------------------------------------------------------------------------ */

/* Adds n staged dimensions to the scores of a lane's position in PAGES pages, `step` apart. q:
 * [dimension][pitch], of the group. */
template <int PAGES, int PITCH, int OF>
static __device__ __forceinline__ void score_dimensions(const float *keys, uint32_t step,
                                                        const float *q, uint32_t n,
                                                        float acc[TILE_EACH][OF])
{
#pragma unroll 4
    for (uint32_t d = 0; d < n; d++) {
        const float4 low = *(const float4 *)(q + d * PITCH),
                     high = *(const float4 *)(q + d * PITCH + 4);
        const float query[TILE_EACH] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < PAGES; i++) {
            const float key = keys[i * step + d * CUDA_PAGE];
#pragma unroll
            for (int k = 0; k < TILE_EACH; k++)
                acc[k][i] = __fmaf_rn(query[k], key, acc[k][i]);
        }
    }
}

/* The scores of a lane's positions before scaling; only pages [0, pages) of the split exist. */
template <uint32_t KV, int GROUPS>
static __device__ __forceinline__ void tile_scores(const struct cuda_kv &kv, uint32_t pages,
                                                   bool active, attend_tile<GROUPS> &shared,
                                                   float acc[TILE_EACH][attend_tile<GROUPS>::PAGES])
{
    constexpr uint32_t WARPS = attend_tile<GROUPS>::WARPS, PAGES = attend_tile<GROUPS>::PAGES;
    constexpr int PITCH = attend_tile<GROUPS>::PITCH;
    constexpr uint32_t OF_PAGE = TILE_DIMENSIONS * CUDA_PAGE;
    const uint32_t warp = threadIdx.x / 32, part = warp % WARPS;
    const uint32_t mine = active && pages > part ? (pages - part + WARPS - 1) / WARPS : 0;
    const float *keys = shared.stage + part * OF_PAGE + threadIdx.x % 32;
    kv_share<KV> share;
    for (int k = 0; k < TILE_EACH; k++)
        for (uint32_t i = 0; i < PAGES; i++)
            acc[k][i] = 0.0f;
    share.load_keys(kv, shared.page, pages, 0);
    for (uint32_t first = 0; first < kv.k_dim; first += TILE_DIMENSIONS) {
        const uint32_t left = kv.k_dim - first,
                       n = left < TILE_DIMENSIONS ? left : (uint32_t)TILE_DIMENSIONS;
        const float *q = shared.q + first * PITCH + warp / WARPS * TILE_EACH;
        share.store_keys(kv, pages, first, shared.stage);
        __syncthreads();
        if (left > TILE_DIMENSIONS)
            share.load_keys(kv, shared.page, pages, first + TILE_DIMENSIONS);
        if (mine == PAGES)
            score_dimensions<PAGES, PITCH, PAGES>(keys, WARPS * OF_PAGE, q, n, acc);
        else if (mine == 1)
            score_dimensions<1, PITCH, PAGES>(keys, WARPS * OF_PAGE, q, n, acc);
        else if (mine == 2)
            score_dimensions<2 < PAGES ? 2 : 1, PITCH, PAGES>(keys, WARPS * OF_PAGE, q, n, acc);
        else if (mine == 3)
            score_dimensions<3 < PAGES ? 3 : 1, PITCH, PAGES>(keys, WARPS * OF_PAGE, q, n, acc);
        __syncthreads();
    }
}

/* ---- weights
 * ----------------------------------------------------------------------------------- */

/* Turns scores into softmax weights in shared.e. */
template <int GROUPS>
static __device__ __forceinline__ void
tile_weights(float scale, uint32_t pages, attend_tile<GROUPS> &shared,
             float acc[TILE_EACH][attend_tile<GROUPS>::PAGES])
{
    constexpr uint32_t WARPS = attend_tile<GROUPS>::WARPS, PAGES = attend_tile<GROUPS>::PAGES;
    const uint32_t warp = threadIdx.x / 32, part = warp % WARPS, lane = threadIdx.x % 32,
                   first = warp / WARPS * TILE_EACH;
#pragma unroll
    for (int k = 0; k < TILE_EACH; k++) {
        const uint32_t low = shared.low[first + k], n = shared.n[first + k];
        float top = __uint_as_float(0xff800000u);
#pragma unroll
        for (uint32_t i = 0; i < PAGES; i++) {
            acc[k][i] = __fmul_rn(acc[k][i], scale);
            if ((part + WARPS * i) * CUDA_PAGE + lane - low < n)
                top = acc[k][i] > top ? acc[k][i] : top;
        }
        top = warp_max_float(top);
        if (lane == 0)
            shared.top[first + k][part] = top;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE_EACH; k++) {
        const uint32_t low = shared.low[first + k], n = shared.n[first + k];
        float m = shared.top[first + k][0];
        for (uint32_t w = 1; w < WARPS; w++)
            m = shared.top[first + k][w] > m ? shared.top[first + k][w] : m;
#pragma unroll
        for (uint32_t i = 0; i < PAGES; i++)
            acc[k][i] = (part + WARPS * i) * CUDA_PAGE + lane - low < n
                            ? device_exp(__fadd_rn(acc[k][i], -m))
                            : MASKED;
    }
#pragma unroll
    for (uint32_t i = 0; i < PAGES; i++) {
        if (part + WARPS * i >= pages)
            break;
        float *e = shared.e[(part + WARPS * i) * CUDA_PAGE + lane] + first;
        *(float4 *)e = make_float4(acc[0][i], acc[1][i], acc[2][i], acc[3][i]);
        *(float4 *)(e + 4) = make_float4(acc[4][i], acc[5][i], acc[6][i], acc[7][i]);
    }
    __syncthreads();
}

/* Each query's l, and the factors with which the split is combined with those before. In the item's
 * first split, or in the split in which the query's own positions begin, there are none before. */
template <int GROUPS>
static __device__ __forceinline__ void tile_fold(uint32_t window, uint32_t pages, uint32_t split,
                                                 bool first_split, attend_tile<GROUPS> &shared)
{
    constexpr int EACH = TILE_EACH / attend_tile<GROUPS>::WARPS;
    const uint32_t lane = threadIdx.x % 32, first = threadIdx.x / 32 * EACH;
    float sum[EACH] = {};
    for (uint32_t page = 0; page < pages; page++) {
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const float e = shared.e[page * CUDA_PAGE + lane][first + k];
            sum[k] = e < 0.0f ? sum[k] : __fadd_rn(sum[k], e);
        }
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const uint32_t q = first + k;
        const float l = warp_tree(sum[k]);
        if (lane != 0 || shared.n[q] == 0)
            continue;
        float top = shared.top[q][0];
        for (uint32_t w = 1; w < attend_tile<GROUPS>::WARPS; w++)
            top = shared.top[q][w] > top ? shared.top[q][w] : top;
        if (first_split || seen_from(shared.end[q], window) >= split * CUDA_SPLIT) {
            shared.m[q] = top;
            shared.l[q] = l;
            shared.a[q] = MASKED;
            continue;
        }
        const float big = shared.m[q] > top ? shared.m[q] : top;
        const float a = device_exp(__fadd_rn(shared.m[q], -big)),
                    b = device_exp(__fadd_rn(top, -big));
        shared.a[q] = a;
        shared.b[q] = b;
        shared.l[q] = __fmaf_rn(shared.l[q], a, __fmul_rn(l, b));
        shared.m[q] = big;
    }
}

/* ---- the weighted sum
 * -------------------------------------------------------------------------- */

/* Adds positions [0, n) of a stage. e: [position][pitch], of the group; v: the lane's first
 * dimension; the lane has `mine` dimensions, `step` apart. masked: some weights may be MASKED. */
template <int DIMS, int PITCH, bool masked>
static __device__ __forceinline__ void add_positions(const float *v, uint32_t v_dim, uint32_t step,
                                                     uint32_t mine, const float *e, uint32_t n,
                                                     float sum[TILE_EACH][DIMS])
{
#pragma unroll 4
    for (uint32_t t = 0; t < n; t++) {
        const float4 low = *(const float4 *)(e + t * PITCH),
                     high = *(const float4 *)(e + t * PITCH + 4);
        const float weight[TILE_EACH] = {low.x,  low.y,  low.z,  low.w,
                                         high.x, high.y, high.z, high.w};
#pragma unroll
        for (uint32_t j = 0; j < DIMS; j++) {
            const float value = j < mine ? v[t * v_dim + j * step] : 0.0f;
#pragma unroll
            for (int k = 0; k < TILE_EACH; k++) {
                const float next = __fmaf_rn(weight[k], value, sum[k][j]);
                sum[k][j] = masked && weight[k] < 0.0f ? sum[k][j] : next;
            }
        }
    }
}

/* The split's weighted sum of V, `v_at` after K of a page, over n positions, of which every query sees at least [low, all). */
template <uint32_t KV, int GROUPS, int DIMS>
static __device__ __forceinline__ void
tile_values(const struct cuda_kv &kv, uint64_t v_at, uint32_t n, uint32_t low, uint32_t all,
            attend_tile<GROUPS> &shared, bool active, float sum[TILE_EACH][DIMS])
{
    constexpr uint32_t WARPS = attend_tile<GROUPS>::WARPS;
    constexpr int PITCH = attend_tile<GROUPS>::PITCH;
    const uint32_t v_dim = kv.v_dim, warp = threadIdx.x / 32, group = warp / WARPS,
                   d = warp % WARPS * 32 + threadIdx.x % 32, step = 32 * WARPS;
    const uint32_t mine = d < v_dim ? (v_dim - d + step - 1) / step : 0;
    const uint32_t most = v_dim * CUDA_PAGE <= TILE_STAGE       ? CUDA_PAGE
                          : v_dim * CUDA_PAGE / 2 <= TILE_STAGE ? CUDA_PAGE / 2
                                                                : CUDA_PAGE / 4;
    const bool work = active && warp % WARPS * 32 < v_dim;
    kv_share<KV> share;
    for (int k = 0; k < TILE_EACH; k++)
        for (int j = 0; j < DIMS; j++)
            sum[k][j] = 0.0f;
    share.load_values(kv, shared.page[0] + v_at, 0, (n < most ? n : most) * v_dim);
    for (uint32_t at = 0; at < n; at += most) {
        const uint32_t here = n - at < most ? n - at : most,
                       sure = all <= at || at < low ? 0
                              : all - at < here     ? all - at
                                                    : here,
                       next = at + most;
        share.store_values(here * v_dim, shared.stage);
        __syncthreads();
        if (next < n)
            share.load_values(kv, shared.page[next / CUDA_PAGE] + v_at, next % CUDA_PAGE * v_dim,
                              (n - next < most ? n - next : most) * v_dim);
        if (work) {
            const float *e = shared.e[at] + group * TILE_EACH;
            add_positions<DIMS, PITCH, false>(shared.stage + d, v_dim, step, mine, e, sure, sum);
            add_positions<DIMS, PITCH, true>(shared.stage + sure * v_dim + d, v_dim, step, mine,
                                             e + sure * PITCH, here - sure, sum);
        }
        __syncthreads();
    }
}

/* ---- a tile
 * ------------------------------------------------------------------------------------ */

template <int GROUPS>
static __device__ void tile_begin(const struct attend_job &job, const tile_queries &x,
                                  attend_tile<GROUPS> &shared)
{
    constexpr uint32_t QUERIES = attend_tile<GROUPS>::QUERIES;
    const uint32_t k_dim = job.kv.k_dim, tid = threadIdx.x;
    if (tid < QUERIES)
        shared.end[tid] = tid < x.count ? job.pass.rows[x.row + tid / x.n_heads].position + 1 : 0;
    for (uint32_t q = tid / 32; q < QUERIES; q += CUDA_WARPS) {
        const float *from = job.q + (uint64_t)(x.row + q / x.n_heads) * job.stride +
                            (uint64_t)(x.head + q % x.n_heads) * job.q_dim;
        for (uint32_t d = tid % 32; d < k_dim; d += 32)
            shared.q[d * attend_tile<GROUPS>::PITCH + q] = q < x.count ? from[d] : 0.0f;
    }
    __syncthreads();
}

/* Writes partial `part` of the tile's queries; nothing for a row that ends before this part or
 * begins after it. */
template <int GROUPS, int DIMS>
static __device__ void tile_end(const struct attend_job &job, const tile_queries &x,
                                const struct cuda_item &item, const attend_tile<GROUPS> &shared,
                                const float o[TILE_EACH][DIMS])
{
    constexpr uint32_t WARPS = attend_tile<GROUPS>::WARPS;
    const uint32_t v_dim = job.kv.v_dim, warp = threadIdx.x / 32, group = warp / WARPS,
                   d = warp % WARPS * 32 + threadIdx.x % 32;
#pragma unroll
    for (uint32_t k = 0; k < TILE_EACH; k++) {
        const uint32_t q = group * TILE_EACH + k;
        if (shared.end[q] <= item.split0 * CUDA_SPLIT ||
            seen_from(shared.end[q], job.sliding_window) >= item.split1 * CUDA_SPLIT)
            continue;
        const uint64_t slot = job.pass.rows[x.row + q / x.n_heads].part + item.part,
                       at = slot * job.n_head + x.head + q % x.n_heads;
#pragma unroll
        for (uint32_t j = 0; j < DIMS; j++) {
            if (d + j * 32 * WARPS < v_dim)
                job.part_o[at * v_dim + d + j * 32 * WARPS] = o[k][j];
        }
        if (d == 0) {
            job.part_ml[at * 2] = shared.m[q];
            job.part_ml[at * 2 + 1] = shared.l[q];
        }
    }
    __syncthreads();
}

template <uint32_t KV, int GROUPS, int DIMS>
static __device__ void attend_queries_of(const struct attend_job &job, const struct cuda_item &item,
                                         uint32_t head_kv, const tile_queries &x,
                                         attend_tile<GROUPS> &shared)
{
    const struct cuda_row &top = job.pass.rows[item.row];
    const uint32_t top_end = top.position + 1,
                   last_end = job.pass.rows[item.row + item.n_rows - 1].position + 1;
    const uint32_t group = threadIdx.x / 32 / attend_tile<GROUPS>::WARPS;
    const bool active = group * TILE_EACH < x.count;
    float o[TILE_EACH][DIMS] = {};
    tile_begin<GROUPS>(job, x, shared);
    for (uint32_t split = item.split0; split < item.split1; split++) {
        const attend_span span = span_of(split, seen_from(top_end, job.sliding_window));
        const uint32_t n = positions_of(last_end, span), pages = (n + CUDA_PAGE - 1) / CUDA_PAGE;
        float acc[TILE_EACH][attend_tile<GROUPS>::PAGES], sum[TILE_EACH][DIMS];
        if (threadIdx.x < attend_tile<GROUPS>::QUERIES) {
            const uint32_t end = shared.end[threadIdx.x],
                           low = positions_of(seen_from(end, job.sliding_window), span);
            shared.low[threadIdx.x] = low;
            shared.n[threadIdx.x] = positions_of(end, span) - low;
        }
        find_pages(job, top, span.begin, n, head_kv, shared.page);
        tile_scores<KV, GROUPS>(job.kv, pages, active, shared, acc);
        tile_weights<GROUPS>(job.scale, pages, shared, acc);
        tile_fold<GROUPS>(job.sliding_window, pages, split, split == item.split0, shared);
        tile_values<KV, GROUPS, DIMS>(job.kv, v_after_k(job.kv, head_kv), n,
                                      positions_of(seen_from(last_end, job.sliding_window), span),
                                      positions_of(top_end, span), shared, active, sum);
#pragma unroll
        for (int k = 0; k < TILE_EACH; k++) {
            const uint32_t q = group * TILE_EACH + k;
            if (shared.n[q] == 0)
                continue;
#pragma unroll
            for (int j = 0; j < DIMS; j++)
                o[k][j] = shared.a[q] < 0.0f
                              ? sum[k][j]
                              : __fmaf_rn(o[k][j], shared.a[q], __fmul_rn(sum[k][j], shared.b[q]));
        }
        __syncthreads();
    }
    tile_end<GROUPS, DIMS>(job, x, item, shared, o);
}

/* Item: rows [row, row + n_rows), whose queries of one KV head fit a tile; or a single row of any
 * number. */
template <uint32_t KV, int GROUPS, int DIMS>
static __device__ void attend_tile_item(const struct attend_job &job, const struct cuda_item &item,
                                        uint32_t head_kv, attend_tile<GROUPS> &shared)
{
    const uint32_t most = attend_tile<GROUPS>::QUERIES, share = job.n_head / job.kv.n_head_kv;
    for (uint32_t head = 0; head < share; head += most) {
        const uint32_t n = share - head < most ? share - head : most;
        const tile_queries x = {item.row, head_kv * share + head, n, item.n_rows * n};
        attend_queries_of<KV, GROUPS, DIMS>(job, item, head_kv, x, shared);
    }
}

#endif
