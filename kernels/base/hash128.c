/* hash128.c: see hash128.h. */
#include "kernels/base/hash128.h"

#include <string.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h> /* the same functions, with AVX2 or AVX-512 where the processor has them */
#endif

void hash128_init(struct hash128 *h)
{
    XXH3_128bits_reset(&h->state);
}

void hash128_update(struct hash128 *h, const void *data, size_t bytes)
{
    XXH3_128bits_update(&h->state, data, bytes);
}

void hash128_final(struct hash128 *h, uint8_t ret[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&h->state));
    memcpy(ret, canonical.digest, sizeof(canonical.digest));
}

void hash128(const void *data, size_t bytes, uint8_t ret[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
    memcpy(ret, canonical.digest, sizeof(canonical.digest));
}
