/* hash128_avx2.c: hash128_update with other instructions. See hash128.c. */
#define XXH_INLINE_ALL
#include "kernels/base/hash128_impl.h"

void hash128_update_avx2(struct hash128 *h, const void *data, size_t bytes)
{
    XXH3_128bits_update(&h->state, data, bytes);
}
