/* hash128_avx512.c: stripes as in hash128.c, the eight 64-bit lanes in one register: as fast as
 * memory. */
#include "kernels/base/hash128_impl.h"

#include <immintrin.h>

/* The low halves of x * by, by = low + high * 2^32, of 64 bits each: in 9 cycles, where the
 * instruction for it takes 15. Each stripe waits for it. */
static inline __m512i times(__m512i x, __m512i low, __m512i high)
{
    const __m512i across = _mm512_add_epi64(_mm512_mul_epu32(_mm512_srli_epi64(x, 32), low),
                                            _mm512_mul_epu32(x, high));
    return _mm512_add_epi64(_mm512_mul_epu32(x, low), _mm512_slli_epi64(across, 32));
}

void hash128_stripes_avx512(uint64_t lane[HASH128_LANES], const uint8_t *data, size_t n)
{
    const __m512i p1 = _mm512_set1_epi64((long long)HASH128_P1);
    const __m512i p1_high = _mm512_srli_epi64(p1, 32);
    const __m512i p2 = _mm512_set1_epi64((long long)HASH128_P2);
    __m512i lanes = _mm512_loadu_si512(lane);
    for (size_t i = 0; i < n; i++) {
        __m512i words = _mm512_loadu_si512(data + i * HASH128_STRIPE);
        lanes = _mm512_add_epi64(lanes, _mm512_mullo_epi64(words, p2));
        lanes = times(_mm512_rol_epi64(lanes, 31), p1, p1_high);
    }
    _mm512_storeu_si512(lane, lanes);
}
