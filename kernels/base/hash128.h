/* hash128.h: a fast 128-bit hash for fingerprints. Not cryptographic: it tells files apart but does
 * not resist forgery.
 *
 * Definition. All arithmetic is modulo 2^64, words are little-endian, rotl rotates to the left.
 *
 *   P1 = 0x9E3779B185EBCA87   P2 = 0xC2B2AE3D27D4EB4F   P3 = 0x165667B19E3779F9
 *   mix(x): x ^= x >> 33; x *= P2; x ^= x >> 29; x *= P3; x ^= x >> 32
 *
 *   lane[i] = P1 * (i + 1), i = 0..7
 *   The input is cut into stripes of 64 bytes; a shorter last one is padded with zeros. For each
 *   stripe and its words w[0..7]:
 *     lane[i] = rotl(lane[i] + w[i] * P2, 31) * P1
 *
 *   lo = length * P1;  hi = length * P2 + P3        (length of the input in bytes)
 *   for i = 0..7:
 *     lo = rotl(lo ^ mix(lane[i]), 27) * P1 + P3
 *     hi = rotl(hi ^ mix(lane[7 - i] + P3), 29) * P2 + P1
 *   The result is mix(lo), then mix(hi), eight bytes each.
 *
 * The lanes are independent, so a core has eight multiplications in flight.
 *
 * Input may come in pieces: init, then update for each, in order, then final. hash128 does all
 * three.
 *
 * Called from any thread; owns nothing; cannot fail. */
#ifndef HEARTH_KERNELS_BASE_HASH128_H
#define HEARTH_KERNELS_BASE_HASH128_H

#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t lane[8];
    uint64_t bytes;   /* of input so far */
    uint8_t part[64]; /* the last bytes % 64 bytes of input, an incomplete stripe */
};

void hash128_init(struct hash128 *h);
void hash128_update(struct hash128 *h, const void *data, size_t bytes);
void hash128_final(struct hash128 *h, uint8_t ret[16]);

void hash128(const void *data, size_t bytes, uint8_t ret[16]);

#endif
