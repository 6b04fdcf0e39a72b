/*
 * pack.h: the integers of a sub-block (32 weights of one row) as the 32-bit words of a lane; of types
 * with a table (quant_grids.h) the nibbles, which stand for integers.
 *
 * A vector kernel takes four inputs of every lane at a time, from two vectors: pair j (0 .. 3) is
 * the inputs 4j .. 4j + 3 and the inputs 16 + 4j .. 16 + 4j + 3. Byte c of a word belongs to input
 * c of the four. Integers are unsigned: q + pack_offset.
 *
 *   2 bits   word 0 the first fours, word 1 the second ones: bits 2j and 2j + 1 of byte c belong to pair j
 *   3 bits   one word of third bits: bit j of byte c of the first four of pair j, bit 4 + j of the
 *            second; then as 2 bits
 *   8 bits   words 0 .. 3 the first fours of the pairs, words 4 .. 7 the second ones
 *   4 bits   words 0 .. 3: pair j, first four in the low nibbles, second in the high ones
 *   5 bits   one word of fifth bits, as the third bits of 3; then as 4 bits
 *   6 bits   one word of upper bits of the first fours: bits 2j and 2j + 1 of byte c belong to pair j;
 *            then as 4 bits; then one of upper bits of the second fours
 *
 * So a kernel that takes the pairs in order, or all first fours and then all second ones, touches the
 * words of a lane in ascending order.
 *
 * repack.h defines where the words are in memory. Pure functions, any thread. */
#ifndef HEARTH_KERNELS_CPU_PACK_H
#define HEARTH_KERNELS_CPU_PACK_H
#include "kernels/quant/quant_types.h"

#include <stdint.h>

enum { PACK_MOST = 8 }; /* words of a sub-block */

/* Words of a sub-block of a quantized type: as many as its integers have bits. */
static inline uint32_t pack_words(uint32_t type)
{
    switch (type) {
    case QUANT_Q8_0:
        return 8;
    case QUANT_Q6_K:
        return 6;
    case QUANT_Q5_0:
    case QUANT_Q5_1:
    case QUANT_Q5_K:
        return 5;
    case QUANT_Q3_K:
        return 3;
    case QUANT_Q2_K:
        return 2;
    default:
        return 4;
    }
}

/* Unpacks q [32] from a row's words. */
void pack_read(uint32_t type, const uint32_t *words, int8_t *q);

#endif
