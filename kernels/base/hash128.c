/* hash128.c: see hash128.h for the definition. */
#include "kernels/base/hash128.h"

#include "kernels/base/hash128_impl.h"

#include <endian.h>
#include <string.h>

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

static inline uint64_t word_at(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    return le64toh(word);
}

/* The lanes stay in registers: a loop over them would be one of loads and stores. */
void hash128_stripes_any(uint64_t lane[LANES], const uint8_t *data, size_t n)
{
    uint64_t l[LANES];
    memcpy(l, lane, sizeof(l));
    for (; n > 0; n--, data += STRIPE) {
#define TAKE(i) l[i] = rotl(l[i] + word_at(data + 8 * (i)) * P2, 31) * P1
        TAKE(0);
        TAKE(1);
        TAKE(2);
        TAKE(3);
        TAKE(4);
        TAKE(5);
        TAKE(6);
        TAKE(7);
#undef TAKE
    }
    memcpy(lane, l, sizeof(l));
}

static void stripes(uint64_t lane[LANES], const uint8_t *data, size_t n)
{
#if defined(__x86_64__)
    /* The CPU is probed once, before main: this only reads a word. */
    if (n > 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
        hash128_stripes_avx512(lane, data, n);
        return;
    }
#endif
    hash128_stripes_any(lane, data, n);
}

void hash128_init(struct hash128 *h)
{
    h->bytes = 0;
    for (int i = 0; i < LANES; i++)
        h->lane[i] = P1 * (uint64_t)(i + 1);
}

/* Completes a partial stripe with at most `bytes` of data. Returns how many it took. */
static size_t fill_part(struct hash128 *h, const uint8_t *data, size_t bytes)
{
    size_t there = h->bytes % STRIPE, n = STRIPE - there;
    if (there == 0)
        return 0;
    n = n < bytes ? n : bytes;
    memcpy(h->part + there, data, n);
    if (there + n == STRIPE)
        stripes(h->lane, h->part, 1);
    return n;
}

void hash128_update(struct hash128 *h, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    if (bytes == 0)
        return;
    size_t taken = fill_part(h, at, bytes), whole = (bytes - taken) / STRIPE;
    stripes(h->lane, at + taken, whole);
    taken += whole * STRIPE;
    if (taken < bytes)
        memcpy(h->part, at + taken, bytes - taken);
    h->bytes += bytes;
}

void hash128_final(struct hash128 *h, uint8_t ret[16])
{
    size_t there = h->bytes % STRIPE;
    if (there > 0) {
        memset(h->part + there, 0, STRIPE - there);
        stripes(h->lane, h->part, 1);
    }
    uint64_t lo = h->bytes * P1;
    uint64_t hi = h->bytes * P2 + P3;
    for (int i = 0; i < LANES; i++) {
        lo = rotl(lo ^ mix(h->lane[i]), 27) * P1 + P3;
        hi = rotl(hi ^ mix(h->lane[LANES - 1 - i] + P3), 29) * P2 + P1;
    }
    lo = htole64(mix(lo));
    hi = htole64(mix(hi));
    memcpy(ret, &lo, 8);
    memcpy(ret + 8, &hi, 8);
}

void hash128(const void *data, size_t bytes, uint8_t ret[16])
{
    struct hash128 h;
    hash128_init(&h);
    hash128_update(&h, data, bytes);
    hash128_final(&h, ret);
}
