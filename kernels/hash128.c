/* See hash128.h for the definition. */
#include "kernels/hash128.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/hash128_impl.h"

enum { LANES = HASH128_LANES, STRIPE = HASH128_STRIPE };

#define P1 HASH128_P1
#define P2 HASH128_P2
#define P3 HASH128_P3

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

void hash128_stripes_any(uint64_t lane[LANES], const uint8_t *data, size_t n)
{
    for (; n > 0; n--, data += STRIPE) {
        uint64_t word[LANES];
        memcpy(word, data, STRIPE);
        for (int i = 0; i < LANES; i++)
            lane[i] = rotl(lane[i] + le64toh(word[i]) * P2, 31) * P1;
    }
}

static void stripes(uint64_t lane[LANES], const uint8_t *data, size_t n)
{
#if defined(__x86_64__)
    /* Asked once, before main: this reads a word. */
    if (n > 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
        hash128_stripes_avx512(lane, data, n);
        return;
    }
#endif
    hash128_stripes_any(lane, data, n);
}

void hash128(const void *data, size_t bytes, uint8_t ret[16])
{
    const uint8_t *at = data;
    uint64_t lane[LANES];
    for (int i = 0; i < LANES; i++)
        lane[i] = P1 * (uint64_t)(i + 1);

    size_t whole = bytes / STRIPE, left = bytes % STRIPE;
    stripes(lane, at, whole);
    if (left > 0) {
        uint8_t last[STRIPE] = {0};
        memcpy(last, at + whole * STRIPE, left);
        stripes(lane, last, 1);
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
