/* text_key.c: see text_key.h. Names are those of RFC 7693. */
#include "daemon/store/text_key.h"

#include <stdbool.h>
#include <string.h>

enum { BLOCK = 64, KEY = 16, ROUNDS = 10 };

static const uint32_t iv[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint8_t sigma[ROUNDS][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint32_t right(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

static inline void g(uint32_t *v, int a, int b, int c, int d, uint32_t x, uint32_t y)
{
    v[a] += v[b] + x;
    v[d] = right(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = right(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = right(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = right(v[b] ^ v[c], 7);
}

static uint32_t word_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

/* `done`: bytes of the text up to the end of this block. */
static void compress(uint32_t h[8], const uint8_t block[BLOCK], uint64_t done, bool is_last)
{
    uint32_t v[16], m[16];
    for (int i = 0; i < 16; i++)
        m[i] = word_at(block + 4 * i);
    memcpy(v, h, 8 * sizeof(*v));
    memcpy(v + 8, iv, sizeof(iv));
    v[12] ^= (uint32_t)done;
    v[13] ^= (uint32_t)(done >> 32);
    v[14] ^= is_last ? UINT32_MAX : 0;
#pragma GCC unroll 10 /* so that the words of v are registers, and those of m known places */
    for (int i = 0; i < ROUNDS; i++) {
        const uint8_t *s = sigma[i];
        g(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        g(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        g(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        g(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        g(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        g(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        g(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        g(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++)
        h[i] ^= v[i] ^ v[i + 8];
}

void text_key(const void *data, size_t bytes, uint8_t ret[16])
{
    uint32_t h[8];
    uint8_t last[BLOCK] = {0};
    size_t at = 0;
    memcpy(h, iv, sizeof(h));
    h[0] ^= 0x01010000 ^ KEY;
    for (; bytes - at > BLOCK; at += BLOCK)
        compress(h, (const uint8_t *)data + at, at + BLOCK, false);
    if (bytes > at)
        memcpy(last, (const uint8_t *)data + at, bytes - at);
    compress(h, last, bytes, true);
    for (int i = 0; i < KEY; i++)
        ret[i] = (uint8_t)(h[i / 4] >> i % 4 * 8);
}
