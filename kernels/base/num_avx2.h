/* num_avx2.h: num_exp, num_silu and num_gelu in eight AVX2 lanes: the bits of num.c, lane by lane,
 * including NaN and infinities.
 *
 * Only for files compiled with -mavx2 -mfma. Pure, any thread. An AVX-512 version is the same
 * sequence with wider types. */
#ifndef HEARTH_KERNELS_BASE_NUM_AVX2_H
#define HEARTH_KERNELS_BASE_NUM_AVX2_H
#include "kernels/base/num.h"

#include <immintrin.h>

static inline __m256 num_exp_avx2(__m256 x)
{
    const __m256 round = _mm256_set1_ps(NUM_ROUND);
    const __m256 one = _mm256_set1_ps(1.0f);
    /* If one of two is a NaN, the result is the second operand. */
    const __m256 a = _mm256_min_ps(_mm256_set1_ps(NUM_EXP_MAX), x);
    const __m256 t = _mm256_fmadd_ps(a, _mm256_set1_ps(NUM_LOG2E), round);
    const __m256 n = _mm256_sub_ps(t, round);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-NUM_LN2_HI), a);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-NUM_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(NUM_EXP_C6), r, _mm256_set1_ps(NUM_EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(NUM_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(NUM_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(NUM_EXP_C2));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    const __m256i biased = _mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127));
    const __m256 y = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23)));
    const __m256 tiny = _mm256_cmp_ps(x, _mm256_set1_ps(NUM_EXP_MIN), _CMP_LT_OQ);
    return _mm256_andnot_ps(tiny, y);
}

#endif
