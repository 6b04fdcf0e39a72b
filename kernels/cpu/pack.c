#include "kernels/cpu/pack.h"

#include <assert.h>
#include <string.h>

/* Bytes in four. */
enum { NIBBLES = 0x0f0f0f0f, ONES = 0x01010101, TWOS = 0x03030303 };

int32_t pack_offset(uint32_t type)
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
    default:
        return 0;
    }
}

static uint32_t load_word(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

static void pack_bytes(const uint8_t *quants, uint32_t *words)
{
    for (uint32_t j = 0; j < 8; j++)
        words[j] = load_word(quants + 4 * j) ^ 0x80808080u;
}

/* Blocks of 32 have the nibbles in this order already. */
static void copy_nibbles(const uint8_t *quants, uint32_t *words)
{
    for (uint32_t j = 0; j < 4; j++)
        words[j] = load_word(quants + 4 * j);
}

/* 32 bytes of which one nibble, `shift` up, is the sub-block's. */
static void gather_nibbles(const uint8_t *quants, int shift, uint32_t *words)
{
    for (uint32_t j = 0; j < 4; j++) {
        const uint32_t first = load_word(quants + 4 * j) >> shift & NIBBLES;
        const uint32_t second = load_word(quants + 16 + 4 * j) >> shift & NIBBLES;
        words[j] = first | second << 4;
    }
}

/* Bits c, 4 + c, 8 + c .. 28 + c of x as a byte. */
static uint32_t every_fourth(uint32_t x, int c)
{
    x = x >> c & 0x11111111u;
    x = (x | x >> 3) & 0x03030303u;
    x = (x | x >> 6) & 0x000f000fu;
    return (x | x >> 12) & 0xffu;
}

static uint32_t fifth_bits(uint32_t bits)
{
    uint32_t word = 0;
    for (int c = 0; c < 4; c++)
        word |= every_fourth(bits, c) << 8 * c;
    return word;
}

/* One bit of each of 32 bytes. */
static uint32_t gather_bits(const uint8_t *bytes, int sub)
{
    uint32_t word = 0;
    for (uint32_t k = 0; k < 8; k++)
        word |= (load_word(bytes + 4 * k) >> sub & ONES) << k;
    return word;
}

/* Two bits of each of 16 bytes. */
static uint32_t gather_twos(const uint8_t *bytes, int shift)
{
    uint32_t word = 0;
    for (uint32_t k = 0; k < 4; k++)
        word |= (load_word(bytes + 4 * k) >> shift & TWOS) << 2 * k;
    return word;
}

static void pack_q6_k(const uint8_t *block, uint32_t sub, uint32_t *words)
{
    const uint32_t half = sub / 4, in = sub % 4;
    const uint8_t *high = block + 128 + 32 * half;
    gather_nibbles(block + 64 * half + 32 * (in % 2), (int)(in / 2 * 4), words);
    words[4] = gather_twos(high, (int)(2 * in));
    words[5] = gather_twos(high + 16, (int)(2 * in));
}

/* Layouts of blocks: kernels/quant_block.c. */
void pack_sub(uint32_t type, const uint8_t *row, uint64_t index, uint32_t *words)
{
    const struct quant_info *info = quant_find(type);
    const uint32_t subs = info->block / 32, sub = (uint32_t)(index % subs);
    const uint8_t *block = row + index / subs * info->block_bytes;
    switch (type) {
    case QUANT_Q8_0:
        pack_bytes(block + 2, words);
        return;
    case QUANT_Q4_0:
        copy_nibbles(block + 2, words);
        return;
    case QUANT_Q5_0:
        copy_nibbles(block + 6, words);
        words[4] = fifth_bits(load_word(block + 2));
        return;
    case QUANT_Q5_1:
        copy_nibbles(block + 8, words);
        words[4] = fifth_bits(load_word(block + 4));
        return;
    case QUANT_Q4_K:
        gather_nibbles(block + 16 + sub / 2 * 32, sub % 2 * 4, words);
        return;
    case QUANT_Q5_K:
        gather_nibbles(block + 48 + sub / 2 * 32, sub % 2 * 4, words);
        words[4] = gather_bits(block + 16, (int)sub);
        return;
    case QUANT_Q6_K:
        pack_q6_k(block, sub, words);
        return;
    default:
        assert(false && "a quantized type without a layout");
    }
}

/* The packed integer of input i (0 .. 31). */
static uint32_t packed_integer(uint32_t n_words, const uint32_t *words, int i)
{
    const int j = i % 16 / 4, byte = 8 * (i % 4), second = i / 16;
    if (n_words == 8)
        return words[i / 4] >> byte & 255;
    uint32_t q = words[j] >> byte >> 4 * second & 15;
    if (n_words == 5)
        q |= (words[4] >> byte >> (4 * second + j) & 1) << 4;
    if (n_words == 6)
        q |= (words[4 + second] >> byte >> 2 * j & 3) << 4;
    return q;
}

void pack_read(uint32_t type, const uint32_t *words, int8_t *q)
{
    const uint32_t n_words = pack_words(type);
    const int32_t offset = pack_offset(type);
    for (int i = 0; i < 32; i++)
        q[i] = (int8_t)((int32_t)packed_integer(n_words, words, i) - offset);
}
