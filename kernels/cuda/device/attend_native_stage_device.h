/* attend_native_stage_device.h: stages keys and values of a split for attend_native_device.h: f16
 * in shared memory, a stage at a time: 32 dimensions of all keys of the split, or two pages of
 * values (one for heads above 128). KV in f16 is copied asynchronously; q8_0 is converted on the
 * way. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_ATTEND_NATIVE_STAGE_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_ATTEND_NATIVE_STAGE_DEVICE_H

#include "kernels/cuda/device/attend_device.h"

enum {
    NATIVE_TILE = 16, /* queries of an mma, and dimensions or positions of its sum */
    NATIVE_KEYS = 32, /* dimensions in a stage of keys */
    NATIVE_KEY_PITCH = CUDA_PAGE + 8,
    NATIVE_STAGE = CUDA_SPLIT * NATIVE_KEYS / CUDA_PAGE * NATIVE_KEY_PITCH, /* values */
    NATIVE_WEIGHT_PITCH = CUDA_SPLIT + 8
};

/* Constant while an item's queries are computed. */
struct native_item {
    uint32_t row, head, n_heads,
        count;           /* queries: rows from `row` on, heads [head, head + n_heads) of each */
    uint32_t pages;      /* index of the sequence's first page */
    uint32_t position;   /* position of the first row */
    uint32_t last;       /* position of the last row */
    uint64_t k_at, v_at; /* bytes from a page's start to K and V of the layer and head */
};

/* Dimensions rounded up to whole steps; and the pitch from one query or position to the next. */
static __device__ __forceinline__ uint32_t native_dims(uint32_t head_dim)
{
    return (head_dim + NATIVE_TILE - 1) / NATIVE_TILE * NATIVE_TILE;
}

static __device__ __forceinline__ uint32_t native_pitch(uint32_t head_dim)
{
    return native_dims(head_dim) + 8;
}

/* Positions in a stage of values. */
static __device__ __forceinline__ uint32_t native_values(uint32_t head_dim)
{
    return head_dim > 128 ? CUDA_PAGE : 2 * CUDA_PAGE;
}

static __device__ __forceinline__ unsigned short half_of_kv(float x)
{
    const float low = x < -65504.0f ? -65504.0f : x;
    return f16_from_f32(low > 65504.0f ? 65504.0f : low);
}

/* Converts eight q8_0 values to f16; scale(i) is the scale of value i. */
template <typename SCALE>
static __device__ __forceinline__ uint4 halves_of(const uint2 &q, SCALE scale)
{
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const unsigned byte = (i < 4 ? q.x : q.y) >> 8 * (i % 4) & 255u;
        const unsigned half = half_of_kv(__fmul_rn((float)(signed char)byte, scale(i)));
        word[i / 2] = i % 2 ? word[i / 2] | half << 16 : half;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

static __device__ __forceinline__ const uint8_t *native_page(const struct attend_job &job,
                                                             const native_item &x, uint32_t page)
{
    return job.kv.memory + job.pass.words[x.pages + page] * job.kv.page_bytes;
}

/* Stages dimensions [first, first + 32) of the keys of pages [page, page + pages). */
template <uint32_t KV>
static __device__ __forceinline__ void stage_keys(const struct attend_job &job,
                                                  const native_item &x, uint32_t page,
                                                  uint32_t pages, uint32_t first, uint4 *stage)
{
    constexpr uint32_t PIECES = CUDA_PAGE / 8, OF_PAGE = NATIVE_KEYS * PIECES;
    const uint32_t k_dim = job.kv.k_dim;
    for (uint32_t i = threadIdx.x; i < pages * OF_PAGE; i += CUDA_THREADS) {
        const uint32_t d = i % OF_PAGE / PIECES, at = first + d, piece = i % PIECES;
        const uint8_t *k = native_page(job, x, page + i / OF_PAGE) + x.k_at;
        uint4 *to = stage + ((i / OF_PAGE * NATIVE_KEYS + d) * NATIVE_KEY_PITCH + piece * 8) / 8;
        const bool there = at < k_dim;
        if constexpr (KV == CUDA_KV_F16) {
            copy_async(to, k + (there ? (at * CUDA_PAGE + piece * 8) * 2 : 0), there ? 16 : 0);
        } else {
            const uint8_t *q = k + at * CUDA_PAGE + piece * 8;
            const float *scales =
                (const float *)(k + k_dim * CUDA_PAGE) + at / CUDA_BLOCK * CUDA_PAGE + piece * 8;
            *to = there ? halves_of(*(const uint2 *)q, [&](int e) { return scales[e]; })
                        : make_uint4(0, 0, 0, 0);
        }
    }
}

/* Stages the values of n positions, in whole pages, from `page` on. */
template <uint32_t KV>
static __device__ __forceinline__ void stage_values(const struct attend_job &job,
                                                    const native_item &x, uint32_t page, uint32_t n,
                                                    uint4 *stage)
{
    const uint32_t v_dim = job.kv.v_dim, pieces = native_dims(v_dim) / 8,
                   pitch = native_pitch(v_dim) / 8;
    for (uint32_t i = threadIdx.x; i < n * pieces; i += CUDA_THREADS) {
        const uint32_t t = i / pieces, d = i % pieces * 8, in = t % CUDA_PAGE * v_dim + d;
        const uint8_t *v = native_page(job, x, page + t / CUDA_PAGE) + x.v_at;
        const float *scales = (const float *)(v + v_dim * CUDA_PAGE) +
                              t % CUDA_PAGE * job.kv.v_blocks + d / CUDA_BLOCK;
        uint4 *to = stage + t * pitch + d / 8;
        if (v_dim % 8 == 0) {
            const bool there = d < v_dim;
            if constexpr (KV == CUDA_KV_F16)
                copy_async(to, v + (there ? in * 2 : 0), there ? 16 : 0);
            else
                *to = there ? halves_of(*(const uint2 *)(v + in), [&](int) { return *scales; })
                            : make_uint4(0, 0, 0, 0);
            continue;
        }
        for (uint32_t k = 0; k < 8; k++)
            ((unsigned short *)to)[k] =
                d + k < v_dim
                    ? half_of_kv(kv_value<KV>(v, in + k, KV == CUDA_KV_Q8_0 ? *scales : 0.0f))
                    : (unsigned short)0;
    }
}

/* Stage s of n positions of a split, from `page` on: keys come first, 32 dimensions per stage, then
 * values. */
template <uint32_t KV>
static __device__ __forceinline__ void stage_split(const struct attend_job &job,
                                                   const native_item &x, uint32_t page, uint32_t n,
                                                   uint32_t s, uint4 *stage)
{
    const uint32_t pages = (n + CUDA_PAGE - 1) / CUDA_PAGE,
                   of_keys = (job.kv.k_dim + NATIVE_KEYS - 1) / NATIVE_KEYS,
                   of_values = native_values(job.kv.v_dim) / CUDA_PAGE;
    if (s < of_keys) {
        stage_keys<KV>(job, x, page, pages, s * NATIVE_KEYS, stage);
    } else {
        const uint32_t first = (s - of_keys) * of_values, left = pages - first;
        stage_values<KV>(job, x, page + first, (left < of_values ? left : of_values) * CUDA_PAGE,
                         stage);
    }
}

#endif
