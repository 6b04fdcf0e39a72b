/* vec.h: one vector of floats, 16 lanes with AVX-512, 8 with AVX2, so that a kernel is written
 * once.
 *
 * Included only by files compiled for one of the two (VARIANTS_* in the Makefile, *_avx2.c,
 * *_avx512.c). Every operation here is the IEEE-754 operation of its name in each lane; so a
 * kernel's result depends on its own order of operations only (NUMERICS.md), never on the width.
 * Pure, any thread.
 */
#ifndef HEARTH_KERNELS_CPU_SIMD_VEC_H
#define HEARTH_KERNELS_CPU_SIMD_VEC_H
#include "kernels/base/num.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_TWICE _Pragma("clang loop unroll_count(2)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#define UNROLL_TWICE _Pragma("GCC unroll 2")
#endif

#if defined(__AVX512F__)

#define SIMD(name) name##_avx512
enum { VEC = 16 };
typedef __m512 vf;
typedef __m512i vi;

ALWAYS_INLINE vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}

ALWAYS_INLINE vf vi_float(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

ALWAYS_INLINE vf v_zero(void)
{
    return _mm512_setzero_ps();
}
ALWAYS_INLINE vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
ALWAYS_INLINE vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
ALWAYS_INLINE void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
ALWAYS_INLINE vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
ALWAYS_INLINE vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
ALWAYS_INLINE vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
ALWAYS_INLINE vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
ALWAYS_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
ALWAYS_INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
ALWAYS_INLINE vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
ALWAYS_INLINE vf v_neg(vf a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}

/* VEC halfs as floats. */
ALWAYS_INLINE vf v_load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
/* VEC int8 as floats. */
ALWAYS_INLINE vf v_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
/* VEC unsigned bytes as integers. */
ALWAYS_INLINE vi vi_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
ALWAYS_INLINE vf v_load_bf16(const uint8_t *p)
{
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Loads the first n (< VEC) lanes; the others are 0 and their memory is not touched. */
ALWAYS_INLINE vf v_load_part(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
ALWAYS_INLINE void v_store_part(float *p, vf x, uint32_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}

/* Sets lanes n and above to -inf. */
ALWAYS_INLINE vf v_keep(vf x, uint32_t n)
{
    return _mm512_mask_blend_ps((__mmask16)((1u << n) - 1), _mm512_set1_ps(-__builtin_inff()), x);
}

/* 2^n of exp: t's low bits hold n. */
ALWAYS_INLINE vf v_power(vf t)
{
    vi biased = _mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
}
ALWAYS_INLINE vf v_zero_below(vf y, vf x, float least)
{
    __mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(least), _CMP_NLT_UQ);
    return _mm512_maskz_mov_ps(keep, y);
}

ALWAYS_INLINE float v_reduce_max(vf x)
{
    return _mm512_reduce_max_ps(x);
}

/* Bits without the sign, for tests of magnitude; max as integers. */
ALWAYS_INLINE vi v_magnitude(vf x)
{
    return _mm512_and_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}
ALWAYS_INLINE vi vi_zero(void)
{
    return _mm512_setzero_si512();
}
ALWAYS_INLINE vi vi_max(vi a, vi b)
{
    return _mm512_max_epu32(a, b);
}
ALWAYS_INLINE uint32_t vi_reduce_max(vi x)
{
    return _mm512_reduce_max_epu32(x);
}

/* Adds to each lane of sum the products of its four unsigned bytes of a and signed bytes of b. */
#define VEC_HAS_DOT
ALWAYS_INLINE vi vi_dot(vi sum, vi a, vi b)
{
    return _mm512_dpbusd_epi32(sum, a, b);
}

/* Adds the two halves: lane j + lane j + 8. */
ALWAYS_INLINE __m256 v_fold16(vf x)
{
    return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
}

#else

#if defined(__AVXVNNI__)
#define SIMD(name) name##_avxvnni
#else
#define SIMD(name) name##_avx2
#endif
enum { VEC = 8 };
typedef __m256 vf;
typedef __m256i vi;

ALWAYS_INLINE vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}

ALWAYS_INLINE vf vi_float(vi a)
{
    return _mm256_cvtepi32_ps(a);
}

ALWAYS_INLINE vf v_zero(void)
{
    return _mm256_setzero_ps();
}
ALWAYS_INLINE vf v_set1(float x)
{
    return _mm256_set1_ps(x);
}
ALWAYS_INLINE vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
ALWAYS_INLINE void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
ALWAYS_INLINE vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
ALWAYS_INLINE vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
ALWAYS_INLINE vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
ALWAYS_INLINE vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
ALWAYS_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
ALWAYS_INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
ALWAYS_INLINE vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
ALWAYS_INLINE vf v_neg(vf a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}

ALWAYS_INLINE vf v_load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
ALWAYS_INLINE vf v_load_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
ALWAYS_INLINE vi vi_load_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
ALWAYS_INLINE vf v_load_bf16(const uint8_t *p)
{
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* All bits set in the first n lanes. */
ALWAYS_INLINE vi vi_first(uint32_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
ALWAYS_INLINE vf v_load_part(const float *p, uint32_t n)
{
    return _mm256_maskload_ps(p, vi_first(n));
}
ALWAYS_INLINE void v_store_part(float *p, vf x, uint32_t n)
{
    _mm256_maskstore_ps(p, vi_first(n), x);
}
ALWAYS_INLINE vf v_keep(vf x, uint32_t n)
{
    return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x, _mm256_castsi256_ps(vi_first(n)));
}
ALWAYS_INLINE vf v_power(vf t)
{
    vi biased = _mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
ALWAYS_INLINE vf v_zero_below(vf y, vf x, float least)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(least), _CMP_LT_OQ), y);
}
ALWAYS_INLINE float v_reduce_max(vf x)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
ALWAYS_INLINE vi v_magnitude(vf x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}
ALWAYS_INLINE vi vi_zero(void)
{
    return _mm256_setzero_si256();
}
ALWAYS_INLINE vi vi_max(vi a, vi b)
{
    return _mm256_max_epu32(a, b);
}
ALWAYS_INLINE uint32_t vi_reduce_max(vi x)
{
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}
#if defined(__AVXVNNI__)
#define VEC_HAS_DOT
ALWAYS_INLINE vi vi_dot(vi sum, vi a, vi b)
{
    return _mm256_dpbusd_avx_epi32(sum, a, b);
}
#endif

#endif

/* num_exp in every lane (NUMERICS.md, "Scalar functions"). */
ALWAYS_INLINE vf v_exp(vf x)
{
    /* if one of two is a NaN, the result is the second operand */
    vf a = v_min(v_set1(NUM_EXP_MAX), x);
    vf t = v_fma(a, v_set1(NUM_LOG2E), v_set1(NUM_ROUND));
    vf n = v_sub(t, v_set1(NUM_ROUND));
    vf r = v_fma(n, v_set1(-NUM_LN2_HI), a);
    r = v_fma(n, v_set1(-NUM_LN2_LO), r);
    vf p = v_fma(v_set1(NUM_EXP_C6), r, v_set1(NUM_EXP_C5));
    p = v_fma(p, r, v_set1(NUM_EXP_C4));
    p = v_fma(p, r, v_set1(NUM_EXP_C3));
    p = v_fma(p, r, v_set1(NUM_EXP_C2));
    p = v_fma(p, r, v_set1(1.0f));
    p = v_fma(p, r, v_set1(1.0f));
    return v_zero_below(v_mul(p, v_power(t)), x, NUM_EXP_MIN);
}

/* Tree over 8 lanes, stride 4, 2, 1. */
ALWAYS_INLINE float v_fold8(__m256 x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Tree over 32 values held in 32 / VEC vectors, stride 16, 8, 4, 2, 1. */
ALWAYS_INLINE float v_tree32(const vf s[32 / VEC])
{
#if defined(__AVX512F__)
    return v_fold8(v_fold16(v_add(s[0], s[1])));
#else
    return v_fold8(v_add(v_add(s[0], s[2]), v_add(s[1], s[3])));
#endif
}

#endif
