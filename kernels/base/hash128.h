/* hash128.h: a fast 128-bit hash for fingerprints: XXH3 in its 128-bit form with no seed
 * (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md), big-endian, as `xxhsum -H2` prints it.
 * Not cryptographic: it tells files apart but does not resist forgery.
 *
 * Input may come in pieces: init, then update for each, in order, then final. hash128 does all
 * three.
 *
 * Called from any thread; owns nothing; cannot fail. */
#ifndef HEARTH_KERNELS_BASE_HASH128_H
#define HEARTH_KERNELS_BASE_HASH128_H

#include <stddef.h>
#include <stdint.h>
#define XXH_STATIC_LINKING_ONLY /* the size of a state; only the header is used, no library */
#include <xxhash.h>

struct hash128 {
    XXH3_state_t state;
};

void hash128_init(struct hash128 *h);
void hash128_update(struct hash128 *h, const void *data, size_t bytes);
void hash128_final(struct hash128 *h, uint8_t ret[16]);

void hash128(const void *data, size_t bytes, uint8_t ret[16]);

#endif
