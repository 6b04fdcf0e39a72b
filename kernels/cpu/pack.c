#include "kernels/cpu/pack.h"

#include <assert.h>
#include <stdbool.h>

#include "kernels/cpu/lanes.h"

/* Bytes in four. */
#define NIBBLES 0x0f0f0f0fu
#define ONES 0x01010101u
#define TWOS 0x03030303u

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

/* Words of four rows go to `to` and then WORD bytes further each: sixteen rows lie side by side. */
enum { WORD = 4 * PACK_ROWS };

static inline void store4(uint8_t *to, lanes a, lanes b, lanes c, lanes d)
{
    lanes_store(to, a);
    lanes_store(to + WORD, b);
    lanes_store(to + 2 * WORD, c);
    lanes_store(to + 3 * WORD, d);
}

/* 16 bytes. */
static inline void pack_bytes(const uint8_t *blocks, size_t stride, size_t at, uint8_t *to)
{
    const uint32_t sign = 0x80808080u;
    lanes w[4];
    lanes_load4(blocks, stride, at, w);
    store4(to, w[0] ^ sign, w[1] ^ sign, w[2] ^ sign, w[3] ^ sign);
}

/* Blocks of 32 have the nibbles in this order already. */
static inline void copy_nibbles(const uint8_t *blocks, size_t stride, size_t at, uint8_t *to)
{
    lanes w[4];
    lanes_load4(blocks, stride, at, w);
    store4(to, w[0], w[1], w[2], w[3]);
}

static inline lanes two_nibbles(lanes first, lanes second, uint32_t shift)
{
    return (first >> shift & NIBBLES) | (second >> shift & NIBBLES) << 4;
}

/* 32 bytes of which one nibble, `shift` up, is the sub-block's. */
static inline void gather_nibbles(const uint8_t *blocks, size_t stride, size_t at, uint32_t shift,
                                  uint8_t *to)
{
    lanes a[4], b[4];
    lanes_load4(blocks, stride, at, a);
    lanes_load4(blocks, stride, at + 16, b);
    store4(to, two_nibbles(a[0], b[0], shift), two_nibbles(a[1], b[1], shift),
           two_nibbles(a[2], b[2], shift), two_nibbles(a[3], b[3], shift));
}

/* Bits c, 4 + c, 8 + c .. 28 + c of x as a byte. */
static inline lanes every_fourth(lanes x, uint32_t c)
{
    x = x >> c & 0x11111111u;
    x = (x | x >> 3) & 0x03030303u;
    x = (x | x >> 6) & 0x000f000fu;
    return (x | x >> 12) & 0xffu;
}

static inline void pack_fifths(const uint8_t *blocks, size_t stride, size_t at, uint8_t *to)
{
    const lanes bits = lanes_load(blocks, stride, at);
    lanes word = {0};
    for (uint32_t c = 0; c < 4; c++)
        word |= every_fourth(bits, c) << 8 * c;
    lanes_store(to, word);
}

/* Bit `sub` of each of 32 bytes. */
static inline void gather_bits(const uint8_t *blocks, size_t stride, size_t at, uint32_t sub,
                               uint8_t *to)
{
    lanes a[4], b[4];
    lanes_load4(blocks, stride, at, a);
    lanes_load4(blocks, stride, at + 16, b);
    lanes low = (a[0] >> sub & ONES) | (a[1] >> sub & ONES) << 1 | (a[2] >> sub & ONES) << 2 |
                (a[3] >> sub & ONES) << 3;
    lanes high = (b[0] >> sub & ONES) | (b[1] >> sub & ONES) << 1 | (b[2] >> sub & ONES) << 2 |
                 (b[3] >> sub & ONES) << 3;
    lanes_store(to, low | high << 4);
}

/* Two bits of each of 16 bytes. */
static inline void gather_twos(const uint8_t *blocks, size_t stride, size_t at, uint32_t shift,
                               uint8_t *to)
{
    lanes w[4];
    lanes_load4(blocks, stride, at, w);
    lanes_store(to, (w[0] >> shift & TWOS) | (w[1] >> shift & TWOS) << 2 |
                        (w[2] >> shift & TWOS) << 4 | (w[3] >> shift & TWOS) << 6);
}

/* Layouts of blocks: kernels/quant_block.c. */
static inline void pack_four(uint32_t type, const uint8_t *blocks, size_t stride, uint32_t sub,
                             uint8_t *to)
{
    const size_t nibbles = (size_t)sub / 2 * 32, half = sub / 4, in = sub % 4;
    switch (type) {
    case QUANT_Q8_0:
        pack_bytes(blocks, stride, 2, to);
        pack_bytes(blocks, stride, 18, to + 4 * WORD);
        return;
    case QUANT_Q4_0:
        copy_nibbles(blocks, stride, 2, to);
        return;
    case QUANT_Q5_0:
        copy_nibbles(blocks, stride, 6, to);
        pack_fifths(blocks, stride, 2, to + 4 * WORD);
        return;
    case QUANT_Q5_1:
        copy_nibbles(blocks, stride, 8, to);
        pack_fifths(blocks, stride, 4, to + 4 * WORD);
        return;
    case QUANT_Q4_K:
        gather_nibbles(blocks, stride, 16 + nibbles, sub % 2 * 4, to);
        return;
    case QUANT_Q5_K:
        gather_nibbles(blocks, stride, 48 + nibbles, sub % 2 * 4, to);
        gather_bits(blocks, stride, 16, sub, to + 4 * WORD);
        return;
    case QUANT_Q6_K:
        gather_nibbles(blocks, stride, 64 * half + 32 * (in % 2), (uint32_t)in / 2 * 4, to);
        gather_twos(blocks, stride, 128 + 32 * half, 2 * (uint32_t)in, to + 4 * WORD);
        gather_twos(blocks, stride, 144 + 32 * half, 2 * (uint32_t)in, to + 5 * WORD);
        return;
    default:
        assert(false && "a quantized type without a layout");
    }
}

void pack_sub(uint32_t type, const uint8_t *blocks, size_t stride, uint32_t sub, uint8_t *to)
{
    for (size_t i = 0; i < PACK_ROWS; i += LANES_ROWS)
        pack_four(type, blocks + i * stride, stride, sub, to + 4 * i);
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
