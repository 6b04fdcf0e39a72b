/* sample_avx2.c: the sampler's loops over the whole vocabulary in AVX2, equal to sample_lanes.c bit
 * for bit; the last n mod 8 elements go there. */
#include "kernels/base/num_avx2.h"
#include "kernels/sample/sample_impl.h"

#include <errno.h>
#include <float.h>
#include <math.h>

static float max_of(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

/* In chunks of 512: only a chunk whose maximum exceeds all earlier ones can contain the result, at
 * the first place that has that maximum. */
static int scan(const float *l, uint32_t n, float *ret_max, uint32_t *ret_index)
{
    const __m256 finite = _mm256_set1_ps(FLT_MAX);
    const uint32_t body = n & ~7u;
    __m256 bad = _mm256_setzero_ps();
    float max = -INFINITY;
    uint32_t best = 0;
    for (uint32_t begin = 0; begin < body; begin += 512) {
        const uint32_t end = begin + 512 < body ? begin + 512 : body;
        __m256 m = _mm256_set1_ps(-INFINITY);
        for (uint32_t i = begin; i < end; i += 8) {
            const __m256 x = _mm256_loadu_ps(l + i);
            bad = _mm256_or_ps(bad, _mm256_cmp_ps(x, finite, _CMP_NLE_UQ));
            m = _mm256_max_ps(m, x);
        }
        const float chunk = max_of(m);
        if (chunk > max) {
            max = chunk;
            best = begin;
        }
    }
    if (_mm256_movemask_ps(bad) != 0) {
        return -EDOM;
    }
    float tail_max = -INFINITY;
    uint32_t tail = 0;
    for (uint32_t i = body; i < n; i++) {
        if (!(l[i] <= FLT_MAX)) {
            return -EDOM;
        }
        if (l[i] > tail_max) {
            tail_max = l[i];
            tail = i;
        }
    }
    if (tail_max > max) {
        max = tail_max;
        best = tail;
    }
    if (max < -FLT_MAX) {
        return -EDOM;
    }
    while (l[best] != max) {
        best++;
    }
    *ret_max = l[best];
    *ret_index = best;
    return 0;
}

/* floor(e * 2^40) of four e in [0, 1], given as the bits of a float each: mantissa * 2^(exponent -
 * 110), shifted left first so that only right shifts remain. e = 0 has exponent 0 and shifts
 * everything out. */
static __m256i weights_of(__m128i bits)
{
    const __m256i u = _mm256_cvtepu32_epi64(bits);
    const __m256i fraction = _mm256_and_si256(u, _mm256_set1_epi64x(0x7fffff));
    const __m256i mantissa = _mm256_or_si256(fraction, _mm256_set1_epi64x(0x800000));
    const __m256i shift = _mm256_sub_epi64(_mm256_set1_epi64x(127), _mm256_srli_epi64(u, 23));
    return _mm256_srlv_epi64(_mm256_slli_epi64(mantissa, 17), shift);
}

static uint64_t weigh(const float *l, uint32_t n, float max, uint64_t *w)
{
    const __m256 m = _mm256_set1_ps(max);
    const uint32_t body = n & ~7u;
    __m256i sum = _mm256_setzero_si256();
    for (uint32_t i = 0; i < body; i += 8) {
        const __m256 e = num_exp_avx2(_mm256_sub_ps(_mm256_loadu_ps(l + i), m));
        const __m256i bits = _mm256_castps_si256(e);
        const __m256i low = weights_of(_mm256_castsi256_si128(bits));
        const __m256i high = weights_of(_mm256_extracti128_si256(bits, 1));
        if (w != NULL) {
            _mm256_storeu_si256((__m256i *)(w + i), low);
            _mm256_storeu_si256((__m256i *)(w + i + 4), high);
        }
        sum = _mm256_add_epi64(sum, _mm256_add_epi64(low, high));
    }
    uint64_t part[4];
    _mm256_storeu_si256((__m256i *)part, sum);
    return part[0] + part[1] + part[2] + part[3] +
           sample_lanes_portable.weigh(l + body, n - body, max, w != NULL ? w + body : NULL);
}

static uint32_t rank_all(const float *l, uint32_t n, uint32_t *rank)
{
    const uint32_t first = sample_rank(l[0]);
    const __m256i firsts = _mm256_set1_epi32((int)first);
    const uint32_t body = n & ~7u;
    __m256i differ = _mm256_setzero_si256();
    for (uint32_t i = 0; i < body; i += 8) {
        const __m256 x = _mm256_add_ps(_mm256_loadu_ps(l + i), _mm256_setzero_ps());
        const __m256i u = _mm256_castps_si256(x);
        const __m256i flip =
            _mm256_andnot_si256(_mm256_srai_epi32(u, 31), _mm256_set1_epi32(0x7fffffff));
        const __m256i r = _mm256_xor_si256(u, flip);
        _mm256_storeu_si256((__m256i *)(rank + i), r);
        differ = _mm256_or_si256(differ, _mm256_xor_si256(r, firsts));
    }
    uint32_t part[8];
    _mm256_storeu_si256((__m256i *)part, differ);
    uint32_t all = part[0] | part[1] | part[2] | part[3] | part[4] | part[5] | part[6] | part[7];
    for (uint32_t i = body; i < n; i++) {
        rank[i] = sample_rank(l[i]);
        all |= rank[i] ^ first;
    }
    return all;
}

static void temper(float *l, uint32_t n, float max, float t)
{
    const __m256 m = _mm256_set1_ps(max);
    const __m256 ts = _mm256_set1_ps(t);
    const uint32_t body = n & ~7u;
    for (uint32_t i = 0; i < body; i += 8) {
        _mm256_storeu_ps(l + i, _mm256_div_ps(_mm256_sub_ps(_mm256_loadu_ps(l + i), m), ts));
    }
    sample_lanes_portable.temper(l + body, n - body, max, t);
}

static void block_max(const float *l, uint32_t n, float *block)
{
    for (uint32_t b = 0; b < n / SAMPLE_BLOCK; b++) {
        const float *x = l + (size_t)b * SAMPLE_BLOCK;
        __m256 m = _mm256_loadu_ps(x);
        for (uint32_t i = 8; i < SAMPLE_BLOCK; i += 8) {
            m = _mm256_max_ps(m, _mm256_loadu_ps(x + i));
        }
        block[b] = max_of(m);
    }
}

/* Optimized for a bound that few elements reach: skips eight at a time. */
static uint32_t above(const float *l, uint32_t n, float bound, float *ret_l, uint32_t *ret_id)
{
    const __m256 bounds = _mm256_set1_ps(bound);
    const uint32_t body = n & ~7u;
    uint32_t k = 0;
    for (uint32_t i = 0; i < body; i += 8) {
        const __m256 reach = _mm256_cmp_ps(_mm256_loadu_ps(l + i), bounds, _CMP_GE_OQ);
        for (uint32_t lanes = (uint32_t)_mm256_movemask_ps(reach); lanes != 0; lanes &= lanes - 1) {
            const uint32_t at = i + (uint32_t)__builtin_ctz(lanes);
            ret_l[k] = l[at];
            ret_id[k++] = at;
        }
    }
    for (uint32_t i = body; i < n; i++) {
        if (l[i] < bound) {
            continue;
        }
        ret_l[k] = l[i];
        ret_id[k++] = i;
    }
    return k;
}

/* Eight bits select eight floats; most words of a mask are all ones or all zeros. */
static void allow(const float *l, uint32_t n, const uint64_t *bits, float *ret)
{
    const __m256 never = _mm256_set1_ps(-INFINITY);
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const uint32_t body = n & ~63u;
    for (uint32_t i = 0; i < body; i += 64) {
        uint64_t word = bits[i >> 6];
        for (uint32_t k = i; k < i + 64; k += 8, word >>= 8) {
            const __m256i eight = _mm256_and_si256(_mm256_set1_epi32((int)(word & 255)), lane);
            const __m256 set = _mm256_castsi256_ps(_mm256_cmpeq_epi32(eight, lane));
            _mm256_storeu_ps(ret + k, _mm256_blendv_ps(never, _mm256_loadu_ps(l + k), set));
        }
    }
    for (uint32_t i = body; i < n; i++) {
        ret[i] = (bits[i >> 6] >> (i & 63) & 1) != 0 ? l[i] : -INFINITY;
    }
}

const struct sample_lanes sample_lanes_avx2 = {scan,      weigh, rank_all, temper,
                                               block_max, above, allow};
