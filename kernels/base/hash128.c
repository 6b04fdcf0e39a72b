/* hash128.c: see hash128.h. Written once and compiled for the baseline, and by hash128_avx2.c and
 * hash128_avx512.c for those: xxhash.h is made of what the compiler may use. */
#define XXH_INLINE_ALL
#include "kernels/base/hash128.h"

#include "kernels/base/hash128_impl.h"

#include <string.h>

void hash128_init(struct hash128 *h)
{
    XXH3_128bits_reset(&h->state);
}

void hash128_update(struct hash128 *h, const void *data, size_t bytes)
{
#if defined(__x86_64__)
    /* The CPU is probed once, before main: this only reads a word. */
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        hash128_update_avx512(h, data, bytes);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        hash128_update_avx2(h, data, bytes);
        return;
    }
#endif
    hash128_update_any(h, data, bytes);
}

void hash128_update_any(struct hash128 *h, const void *data, size_t bytes)
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
    struct hash128 h;
    hash128_init(&h);
    hash128_update(&h, data, bytes);
    hash128_final(&h, ret);
}
