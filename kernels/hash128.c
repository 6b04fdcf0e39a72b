/* See hash128.h for the definition. */
#include "kernels/hash128.h"

#include <endian.h>
#include <string.h>

enum { LANES = 8, STRIPE = 64 };

#define P1 UINT64_C(0x9E3779B185EBCA87)
#define P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P3 UINT64_C(0x165667B19E3779F9)

static inline uint64_t rotl(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= P2;
    x ^= x >> 29;
    x *= P3;
    return x ^ x >> 32;
}

static inline void stripe(uint64_t lane[LANES], const uint8_t *data)
{
    uint64_t word[LANES];
    memcpy(word, data, STRIPE);
    for (int i = 0; i < LANES; i++)
        lane[i] = rotl(lane[i] + le64toh(word[i]) * P2, 31) * P1;
}

void hash128(const void *data, size_t bytes, uint8_t ret[16])
{
    const uint8_t *at = data;
    uint64_t lane[LANES];
    for (int i = 0; i < LANES; i++)
        lane[i] = P1 * (uint64_t)(i + 1);

    size_t left = bytes;
    for (; left >= STRIPE; left -= STRIPE, at += STRIPE)
        stripe(lane, at);
    if (left > 0) {
        uint8_t last[STRIPE] = {0};
        memcpy(last, at, left);
        stripe(lane, last);
    }

    uint64_t lo = bytes * P1;
    uint64_t hi = bytes * P2 + P3;
    for (int i = 0; i < LANES; i++) {
        lo = rotl(lo ^ mix(lane[i]), 27) * P1 + P3;
        hi = rotl(hi ^ mix(lane[LANES - 1 - i] + P3), 29) * P2 + P1;
    }
    lo = htole64(mix(lo));
    hi = htole64(mix(hi));
    memcpy(ret, &lo, 8);
    memcpy(ret + 8, &hi, 8);
}
