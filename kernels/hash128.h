/*
 * hash128: a fast 128-bit hash for fingerprints. Not cryptographic: it tells files apart, it does
 * not stop a forger.
 *
 * Definition, all arithmetic modulo 2^64, words little-endian, rotl a rotation to the left:
 *   P1 = 0x9E3779B185EBCA87   P2 = 0xC2B2AE3D27D4EB4F   P3 = 0x165667B19E3779F9
 *   lane[i] = P1 * (i + 1), i = 0..7
 *   The input is cut in stripes of 64 bytes; the last one, when it is shorter, is filled up with
 * zeros. In each stripe, for word w[i]:   lane[i] = rotl(lane[i] + w[i] * P2, 31) * P1 mix(x): x ^=
 * x >> 33; x *= P2; x ^= x >> 29; x *= P3; x ^= x >> 32 lo = bytes * P1;  hi = bytes * P2 + P3 for
 * i = 0..7:  lo = rotl(lo ^ mix(lane[i]), 27) * P1 + P3;  hi = rotl(hi ^ mix(lane[7 - i] + P3), 29)
 * * P2 + P1 lo = mix(lo); hi = mix(hi) The result is lo, then hi, eight bytes each, little-endian.
 * Eight lanes are independent, so a core does several multiplications at once.
 *
 * Called from any thread; owns nothing; cannot fail.
 */
#ifndef HEARTH_KERNELS_HASH128_H
#define HEARTH_KERNELS_HASH128_H

#include <stddef.h>
#include <stdint.h>

void hash128(const void *data, size_t bytes, uint8_t ret[16]);

#endif
