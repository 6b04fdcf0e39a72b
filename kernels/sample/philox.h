/* philox.h: Philox 4x32-10, the counter-based generator of Salmon et al. (SC 2011): 128 random bits
 * as a pure function of a 128-bit counter and a 64-bit key. Pure, any thread; integers only, so
 * every machine agrees. */
#ifndef HEARTH_KERNELS_SAMPLE_PHILOX_H
#define HEARTH_KERNELS_SAMPLE_PHILOX_H

#include <stdint.h>

static inline void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)x0 * 0xD2511F53u;
        const uint64_t b = (uint64_t)x2 * 0xCD9E8D57u;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)a;
        k0 += 0x9E3779B9u; /* Weyl sequences: the golden ratio and sqrt(3) - 1 */
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

/* The 64 bits of a sample: key = seed (low word first), counter = (position, 0, 0, 0), the first
 * two words of the result, low word first. */
static inline uint64_t philox_sample(uint64_t seed, uint32_t position)
{
    const uint32_t counter[4] = {position, 0, 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    philox4x32_10(counter, key, out);
    return (uint64_t)out[1] << 32 | out[0];
}

#endif
