/* attend_native_device.h: NUMERICS.md, "Native": attention by tensor cores. A block takes 16 *
 * MTILES queries of one KV head (rows of one sequence times the query heads that share it) over a
 * run of splits. A tile of 16 queries belongs to 8 / MTILES warps, which divide the pages of the
 * split among them for the scores, and the dimensions, 16 at a time, for the weighted sum. Keys,
 * then values, are staged in shared memory as f16, one stage ahead; softmax weights pass through
 * shared memory from the first part to the second.
 *
 * A query is a row of an mma, and no other row affects it. In a step of 16 positions those that the
 * query's row does not see get weight and value +0: if rows of a tile end within a step, or their
 * windows begin in it, the step is computed once for each distinct range.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_ATTEND_NATIVE_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_ATTEND_NATIVE_DEVICE_H

#include "kernels/cuda/device/attend_native_stage_device.h"

#define HALF_ONES 0x3c003c00u

template <int MTILES> struct attend_native {
    enum {
        QUERIES = NATIVE_TILE * MTILES,
        WARPS = CUDA_WARPS / MTILES, /* per tile of 16 */
        PAGES = CUDA_SPLIT / CUDA_PAGE / WARPS
    };
    uint4 stage[2][NATIVE_STAGE / 8]; /* keys [page][32 dimensions][40], values [position][pitch] */
    unsigned e[QUERIES][NATIVE_WEIGHT_PITCH / 2]; /* softmax weights of a split, two f16 per word */
    float top[QUERIES][WARPS];
    uint4
        /* [query][pitch]; the launch allocates as many as needed */
        q[QUERIES * (CUDA_LARGE_HEAD + 8) / 8];
};

/* ---- scores and weights
 * ------------------------------------------------------------------------ */

/* The address for load_matrices in lane i: row i % 16, and 8 columns further from lane 16 on. */
static __device__ __forceinline__ uint32_t matrices_at(uint32_t pitch)
{
    return threadIdx.x % 16 * pitch + threadIdx.x % 32 / 16 * 8;
}

/* Adds a stage's dimensions to the scores of the warp's pages. q: the queries of its tile, from the
 * stage's first dimension on. */
template <int PAGES, int WARPS>
static __device__ __forceinline__ void
native_scores(const unsigned short *stage, const unsigned short *q, uint32_t pitch, uint32_t n_dims,
              uint32_t part, uint32_t pages, float s[PAGES][4][4])
{
#pragma unroll
    for (uint32_t step = 0; step < NATIVE_KEYS / NATIVE_TILE; step++) {
        unsigned a[4];
        if (step * NATIVE_TILE >= n_dims)
            break;
        load_matrices<false>(a, q + step * NATIVE_TILE + matrices_at(pitch));
#pragma unroll
        for (uint32_t i = 0; i < PAGES; i++) {
            if (part + WARPS * i >= pages)
                break;
            const unsigned short *k =
                stage + ((part + WARPS * i) * NATIVE_KEYS + step * NATIVE_TILE) * NATIVE_KEY_PITCH +
                matrices_at(NATIVE_KEY_PITCH);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                unsigned b[4];
                load_matrices<true>(b, k + half * 16);
                mma_half<false>(s[i][2 * half], a, b, s[i][2 * half]);
                mma_half<false>(s[i][2 * half + 1], a, b + 2, s[i][2 * half + 1]);
            }
        }
    }
}

static __device__ __forceinline__ float quad_max(float x)
{
    for (int step = 1; step < 4; step *= 2) {
        const float other = __shfl_xor_sync(FULL_WARP, x, step);
        x = other > x ? other : x;
    }
    return x;
}

/* The positions [low, high) of a span, or of a step, that a query sees. */
struct native_seen {
    uint32_t low, high;

    __device__ __forceinline__ bool has(uint32_t at) const
    {
        return at >= low && at < high;
    }

    __device__ __forceinline__ bool operator==(const native_seen &other) const
    {
        return low == other.low && high == other.high;
    }
};

/* Turns scores into softmax weights, as f16, in shared.e; m: the maximum score of the lane's two
 * queries, seen: their visible positions. All threads of the block call it. first: the first query
 * of the warp's tile. */
template <int MTILES>
static __device__ __forceinline__ void
native_weights(float scale, uint32_t first, uint32_t part, uint32_t pages, bool active,
               const native_seen seen[2], attend_native<MTILES> &shared,
               float s[attend_native<MTILES>::PAGES][4][4], float m[2])
{
    constexpr uint32_t PAGES = attend_native<MTILES>::PAGES, WARPS = attend_native<MTILES>::WARPS;
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float top[2] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u)};
#pragma unroll
    for (uint32_t i = 0; i < PAGES; i++)
#pragma unroll
        for (uint32_t k = 0; k < 16; k++) {
            const uint32_t at = (part + WARPS * i) * CUDA_PAGE + k / 4 * 8 + 2 * t + k % 2,
                           r = k % 4 / 2;
            float &x = s[i][k / 4][k % 4];
            x = __fmul_rn(x, scale);
            top[r] = seen[r].has(at) && x > top[r] ? x : top[r];
        }
    for (uint32_t r = 0; r < 2 && active; r++) {
        top[r] = quad_max(top[r]);
        if (t == 0)
            shared.top[first + g + 8 * r][part] = top[r];
    }
    __syncthreads();
    for (uint32_t r = 0; r < 2 && active; r++) {
        m[r] = shared.top[first + g + 8 * r][0];
        for (uint32_t w = 1; w < WARPS; w++) {
            const float other = shared.top[first + g + 8 * r][w];
            m[r] = other > m[r] ? other : m[r];
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < PAGES; i++) {
        if (!active || part + WARPS * i >= pages)
            break;
#pragma unroll
        for (uint32_t k = 0; k < 16; k += 2) {
            const uint32_t at = (part + WARPS * i) * CUDA_PAGE + k / 4 * 8 + 2 * t, r = k % 4 / 2;
            unsigned word = 0;
            for (uint32_t c = 0; c < 2; c++) {
                const float e = device_exp(__fadd_rn(s[i][k / 4][k % 4 + c], -m[r]));
                word |= (seen[r].has(at + c) ? (unsigned)f16_from_f32(e) : 0u) << 16 * c;
            }
            shared.e[first + g + 8 * r][at / 2] = word;
        }
    }
}

/* ---- the weighted sum
 * -------------------------------------------------------------------------- */

/* A word of b with positions k and k + 1 of a step, with +0 for those that are not visible. */
static __device__ __forceinline__ unsigned keep_seen(unsigned word, uint32_t k,
                                                     const native_seen &seen)
{
    return word & ((seen.has(k) ? 0xffffu : 0u) | (seen.has(k + 1) ? 0xffff0000u : 0u));
}

/* A lane's sums: of 2 * PAIRS tiles of 8 dimensions, and of the weights (as a dimension whose value
 * is 1). */
template <int PAIRS> struct native_sums {
    float o[2 * PAIRS][4], l[4];

    /* One step of 16 positions, restricted to `seen`; the result is kept for those of the lane's
     * two queries that see exactly these (own), or, with ALL, for both. */
    template <bool ALL>
    __device__ __forceinline__ void add(const unsigned a[4], const unsigned short *v, uint32_t step,
                                        uint32_t n, const native_seen &seen,
                                        const native_seen own[2])
    {
        const uint32_t t = threadIdx.x % 4;
        const unsigned ones[2] = {ALL ? HALF_ONES : keep_seen(HALF_ONES, 2 * t, seen),
                                  ALL ? HALF_ONES : keep_seen(HALF_ONES, 2 * t + 8, seen)};
        const bool mine[2] = {ALL || own[0] == seen, ALL || own[1] == seen};
        take(l, a, ones, mine);
#pragma unroll
        for (uint32_t j = 0; j < PAIRS; j++) {
            unsigned b[4];
            if (j >= n)
                break;
            load_matrices<true>(b, v + j * step);
            if (!ALL) {
                for (int i = 0; i < 4; i++)
                    b[i] = keep_seen(b[i], 2 * t + i % 2 * 8, seen);
            }
            take(o[2 * j], a, b, mine);
            take(o[2 * j + 1], a, b + 2, mine);
        }
    }

    static __device__ __forceinline__ void take(float sum[4], const unsigned a[4],
                                                const unsigned b[2], const bool mine[2])
    {
        float next[4];
        mma_half<false>(next, a, b, sum);
        for (int i = 0; i < 4; i++)
            sum[i] = mine[i / 2] ? next[i] : sum[i];
    }
};

/* How many of the positions [0, n) are in the step that starts at `begin`. */
static __device__ __forceinline__ uint32_t step_part(uint32_t n, uint32_t begin)
{
    return n <= begin ? 0 : n - begin < NATIVE_TILE ? n - begin : (uint32_t)NATIVE_TILE;
}

static __device__ __forceinline__ native_seen step_part(const native_seen &seen, uint32_t begin)
{
    return {step_part(seen.low, begin), step_part(seen.high, begin)};
}

/* Adds the steps of a stage of values, positions [begin, begin + count) of the span. top, last:
 * what the first and the last row of the tile see, own: what the lane's queries see. e: the tile's
 * weights; v: the stage from the warp's first dimensions on. */
template <int PAIRS>
static __device__ __forceinline__ void
native_stage_values(const unsigned short *e, const unsigned short *v, uint32_t pitch, uint32_t step,
                    uint32_t n_pairs, uint32_t window, uint32_t begin, uint32_t count,
                    const native_seen &top, const native_seen &last, const native_seen own[2],
                    native_sums<PAIRS> &sums)
{
#pragma unroll 1
    for (uint32_t k = 0; k < count && begin + k < last.high; k += NATIVE_TILE) {
        const uint32_t at = begin + k;
        const native_seen mine[2] = {step_part(own[0], at), step_part(own[1], at)};
        const unsigned short *here = v + k * pitch + matrices_at(pitch);
        unsigned a[4];
        load_matrices<false>(a, e + at + matrices_at(NATIVE_WEIGHT_PITCH));
        if (last.low <= at && top.high >= at + NATIVE_TILE) {
            sums.template add<true>(a, here, step, n_pairs, mine[0], mine);
            continue;
        }
        /* once per row, but rows that see the same are done together */
        const native_seen most = step_part(last, at);
        native_seen seen = step_part(top, at);
#pragma unroll 1
        for (;;) {
            if (seen.low < seen.high)
                sums.template add<false>(a, here, step, n_pairs, seen, mine);
            if (seen == most)
                break;
            seen = seen.high < most.high
                       ? native_seen{seen_from(seen.high + 1, window), seen.high + 1}
                       : native_seen{seen.low + 1, seen.high};
        }
    }
}

/* ---- an item
 * ----------------------------------------------------------------------------------- */

/* The combined result of a lane's two queries over the splits so far. */
template <int PAIRS> struct native_fold {
    float o[2 * PAIRS][4], m[2], l[2];

    /* first: there is no split before this one. */
    __device__ __forceinline__ void join(const native_sums<PAIRS> &split, const float top[2],
                                         const native_seen seen[2], const bool first[2])
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if (seen[r].low >= seen[r].high)
                continue;
            float a = 0.0f, b = 1.0f, big = top[r];
            if (!first[r]) {
                big = m[r] > top[r] ? m[r] : top[r];
                a = device_exp(__fadd_rn(m[r], -big));
                b = device_exp(__fadd_rn(top[r], -big));
            }
            m[r] = big;
            l[r] = first[r] ? split.l[2 * r] : __fmaf_rn(l[r], a, __fmul_rn(split.l[2 * r], b));
#pragma unroll
            for (int j = 0; j < 2 * PAIRS; j++)
                for (int c = 2 * r; c < 2 * r + 2; c++)
                    o[j][c] = first[r] ? split.o[j][c]
                                       : __fmaf_rn(o[j][c], a, __fmul_rn(split.o[j][c], b));
        }
    }
};

template <int MTILES>
static __device__ void native_begin(const struct attend_job &job, const native_item &x,
                                    attend_native<MTILES> &shared)
{
    const uint32_t k_dim = job.kv.k_dim, pitch = native_pitch(k_dim), dims = native_dims(k_dim);
    unsigned short *to = (unsigned short *)shared.q;
    for (uint32_t q = threadIdx.x / 32; q < attend_native<MTILES>::QUERIES; q += CUDA_WARPS) {
        const float *from = job.q + (uint64_t)(x.row + q / x.n_heads) * job.stride +
                            (uint64_t)(x.head + q % x.n_heads) * job.q_dim;
        for (uint32_t d = threadIdx.x % 32; d < dims; d += 32)
            to[q * pitch + d] =
                q < x.count && d < k_dim ? f16_from_f32(from[d]) : (unsigned short)0;
    }
    __syncthreads();
}

/* Writes partial `part` of the lane's two queries; nothing for a row that ends before this part or
 * begins after it. */
template <int PAIRS>
static __device__ void native_end(const struct attend_job &job, const struct cuda_item &item,
                                  const native_item &x, uint32_t first, uint32_t part,
                                  uint32_t warps, const native_fold<PAIRS> &fold)
{
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, v_dim = job.kv.v_dim;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t q = first + g + 8 * r, row = q / x.n_heads;
        if (q >= x.count || x.position + row < item.split0 * CUDA_SPLIT ||
            seen_from(x.position + row + 1, job.sliding_window) >= item.split1 * CUDA_SPLIT)
            continue;
        const uint64_t at = (uint64_t)(job.pass.rows[x.row + row].part + item.part) * job.n_head +
                            x.head + q % x.n_heads;
#pragma unroll
        for (uint32_t j = 0; j < 2 * PAIRS; j++) {
            const uint32_t d = (part + warps * (j / 2)) * NATIVE_TILE + j % 2 * 8 + 2 * t;
            if (d < v_dim) /* which is even */
                *(float2 *)(job.part_o + at * v_dim + d) =
                    make_float2(fold.o[j][2 * r], fold.o[j][2 * r + 1]);
        }
        if (part == 0 && t == 0) {
            job.part_ml[at * 2] = fold.m[r];
            job.part_ml[at * 2 + 1] = fold.l[r];
        }
    }
}

/* What row `row` of x sees of a span. */
static __device__ __forceinline__ native_seen seen_of(const struct attend_job &job,
                                                      const native_item &x, uint32_t row,
                                                      const attend_span &span)
{
    const uint32_t end = x.position + row + 1;
    return {positions_of(seen_from(end, job.sliding_window), span), positions_of(end, span)};
}

/* Computes the queries of x over the item's splits. */
template <uint32_t KV, int MTILES, int PAIRS>
static __device__ void native_queries(const struct attend_job &job, const struct cuda_item &item,
                                      const native_item &x, attend_native<MTILES> &shared)
{
    constexpr uint32_t WARPS = attend_native<MTILES>::WARPS, PAGES = attend_native<MTILES>::PAGES;
    const uint32_t k_dims = native_dims(job.kv.k_dim), v_dims = native_dims(job.kv.v_dim),
                   q_pitch = native_pitch(job.kv.k_dim), v_pitch = native_pitch(job.kv.v_dim),
                   warp = threadIdx.x / 32, part = warp % WARPS, first = warp / WARPS * NATIVE_TILE,
                   g = threadIdx.x % 32 / 4;
    const uint32_t of_keys = (job.kv.k_dim + NATIVE_KEYS - 1) / NATIVE_KEYS,
                   of_values = native_values(job.kv.v_dim),
                   pairs = v_dims / NATIVE_TILE > part
                               ? (v_dims / NATIVE_TILE - part + WARPS - 1) / WARPS
                               : 0;
    const uint32_t last_query =
        x.count < first + NATIVE_TILE ? x.count - 1 : first + NATIVE_TILE - 1;
    const bool active = first < x.count;
    const unsigned short *q = (const unsigned short *)shared.q + first * q_pitch;
    native_fold<PAIRS> fold = {};
    native_begin<MTILES>(job, x, shared);
    for (uint32_t split = item.split0; split < item.split1; split++) {
        const attend_span span = span_of(split, seen_from(x.position + 1, job.sliding_window));
        const uint32_t all = positions_of(x.last + 1, span),
                       pages = (all + CUDA_PAGE - 1) / CUDA_PAGE,
                       stages = of_keys + (pages * CUDA_PAGE + of_values - 1) / of_values;
        const native_seen top = seen_of(job, x, first / x.n_heads, span),
                          last = seen_of(job, x, last_query / x.n_heads, span);
        native_seen seen[2];
        bool begins[2];
        for (uint32_t r = 0; r < 2; r++) {
            const uint32_t q = first + g + 8 * r, row = (q < x.count ? q : last_query) / x.n_heads;
            seen[r] = seen_of(job, x, row, span);
            begins[r] = split == item.split0 ||
                        seen_from(x.position + row + 1, job.sliding_window) >= split * CUDA_SPLIT;
        }
        float s[PAGES][4][4] = {}, m[2] = {};
        native_sums<PAIRS> sums = {};
        stage_split<KV>(job, x, span.begin / CUDA_PAGE, all, 0, shared.stage[0]);
        copy_commit();
#pragma unroll 1
        for (uint32_t i = 0; i < stages; i++) {
            const unsigned short *stage = (const unsigned short *)shared.stage[i % 2];
            copy_wait<0>();
            __syncthreads();
            if (i + 1 < stages)
                stage_split<KV>(job, x, span.begin / CUDA_PAGE, all, i + 1,
                                shared.stage[(i + 1) % 2]);
            copy_commit();
            if (active && i < of_keys)
                native_scores<PAGES, WARPS>(stage, q + i * NATIVE_KEYS, q_pitch,
                                            k_dims - i * NATIVE_KEYS, part, pages, s);
            if (i + 1 == of_keys)
                native_weights<MTILES>(job.scale, first, part, pages, active, seen, shared, s, m);
            if (active && i >= of_keys)
                native_stage_values<PAIRS>((const unsigned short *)shared.e[first],
                                           stage + part * NATIVE_TILE, v_pitch, WARPS * NATIVE_TILE,
                                           pairs, job.sliding_window, (i - of_keys) * of_values,
                                           of_values, top, last, seen, sums);
        }
        fold.join(sums, m, seen, begins);
        __syncthreads();
    }
    if (active)
        native_end<PAIRS>(job, item, x, first, part, WARPS, fold);
}

/* Item: rows [row, row + n_rows), with at most 16 * MTILES queries of one KV head; or a single row
 * of any number. */
template <uint32_t KV, int MTILES, int PAIRS>
static __device__ void attend_native_item(const struct attend_job &job,
                                          const struct cuda_item &item, uint32_t head_kv,
                                          attend_native<MTILES> &shared)
{
    const uint32_t most = attend_native<MTILES>::QUERIES, share = job.n_head / job.kv.n_head_kv;
    const struct cuda_row &row = job.pass.rows[item.row];
    const uint64_t k_at = job.kv.offset + head_kv * job.kv.k_bytes;
    for (uint32_t head = 0; head < share; head += most) {
        const uint32_t n = share - head < most ? share - head : most;
        const native_item x = {item.row,
                               head_kv * share + head,
                               n,
                               item.n_rows * n,
                               row.pages[job.kv.pages],
                               row.position,
                               row.position + item.n_rows - 1,
                               k_at,
                               k_at + v_after_k(job.kv, head_kv)};
        native_queries<KV, MTILES, PAIRS>(job, item, x, shared);
        __syncthreads();
    }
}

#endif
