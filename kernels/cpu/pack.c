/* pack.c: the integers of a packed sub-block. See pack.h. */
#include "kernels/cpu/pack.h"

#include "kernels/quant/quant_grids.h"

/* The offset of packed integers from the q of NUMERICS.md: 0 to 128. */
static int32_t pack_offset(uint32_t type)
{
    switch (type) {
    case QUANT_Q8_0:
        return 128;
    case QUANT_Q6_K:
        return 32;
    case QUANT_Q5_0:
        return 16;
    case QUANT_Q4_0:
        return 8;
    case QUANT_Q3_K:
        return 4;
    default:
        return 0;
    }
}

/* The packed integer of input i (0 .. 31). */
static uint32_t packed_integer(uint32_t n_words, const uint32_t *words, int i)
{
    const int j = i % 16 / 4, byte = 8 * (i % 4), second = i / 16;
    if (n_words == 8)
        return words[i / 4] >> byte & 255;
    if (n_words < 4) {
        const uint32_t low = words[n_words - 2 + (uint32_t)second] >> byte >> 2 * j & 3;
        return low | (n_words == 3 ? (words[0] >> byte >> (4 * second + j) & 1) << 2 : 0);
    }
    uint32_t q = words[j + (n_words > 4)] >> byte >> 4 * second & 15;
    if (n_words == 5)
        q |= (words[0] >> byte >> (4 * second + j) & 1) << 4;
    if (n_words == 6)
        q |= (words[5 * second] >> byte >> 2 * j & 3) << 4;
    return q;
}

void pack_read(uint32_t type, const uint32_t *words, int8_t *q)
{
    const uint32_t n_words = pack_words(type);
    const int32_t offset = pack_offset(type);
    const int8_t *table = quant_table(type);
    for (int i = 0; i < 32; i++) {
        const uint32_t packed = packed_integer(n_words, words, i);
        q[i] = table ? table[packed] : (int8_t)((int32_t)packed - offset);
    }
}
