/* hash128_avx512.c: stripes as in hash128.c, the eight 64-bit lanes in one register: as fast as
 * memory. */
#include "kernels/base/hash128_impl.h"

#include <immintrin.h>

void hash128_stripes_avx512(uint64_t lane[HASH128_LANES], const uint8_t *data, size_t n)
{
    const __m512i p1 = _mm512_set1_epi64((long long)HASH128_P1);
    const __m512i p2 = _mm512_set1_epi64((long long)HASH128_P2);
    __m512i lanes = _mm512_loadu_si512(lane);
    for (size_t i = 0; i < n; i++) {
        __m512i words = _mm512_loadu_si512(data + i * HASH128_STRIPE);
        lanes = _mm512_add_epi64(lanes, _mm512_mullo_epi64(words, p2));
        lanes = _mm512_mullo_epi64(_mm512_rol_epi64(lanes, 31), p1);
    }
    _mm512_storeu_si512(lane, lanes);
}
