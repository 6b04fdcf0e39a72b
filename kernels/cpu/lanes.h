/*
 * lanes: four rows side by side, a 32-bit word of each. What packs weights is written over this: every
 * compiler has such vectors on every machine, and memory is slower than they are.
 */
#ifndef HEARTH_KERNELS_CPU_LANES_H
#define HEARTH_KERNELS_CPU_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LANES_ROWS = 4 };

typedef uint32_t lanes __attribute__((vector_size(4 * LANES_ROWS)));

/* The word at `at` of each row; rows lie `stride` bytes apart. */
static inline lanes lanes_load(const uint8_t *rows, size_t stride, size_t at)
{
    uint32_t a, b, c, d;
    memcpy(&a, rows + at, sizeof a);
    memcpy(&b, rows + stride + at, sizeof b);
    memcpy(&c, rows + 2 * stride + at, sizeof c);
    memcpy(&d, rows + 3 * stride + at, sizeof d);
    return (lanes){a, b, c, d};
}

/* w[j] = lanes_load(rows, stride, at + 4 * j), j = 0 .. 3: four loads and a transposition. */
static inline void lanes_load4(const uint8_t *rows, size_t stride, size_t at, lanes w[4])
{
    lanes a, b, c, d;
    memcpy(&a, rows + at, sizeof a);
    memcpy(&b, rows + stride + at, sizeof b);
    memcpy(&c, rows + 2 * stride + at, sizeof c);
    memcpy(&d, rows + 3 * stride + at, sizeof d);
    const lanes ab01 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const lanes ab23 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const lanes cd01 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const lanes cd23 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    w[0] = __builtin_shufflevector(ab01, cd01, 0, 1, 4, 5);
    w[1] = __builtin_shufflevector(ab01, cd01, 2, 3, 6, 7);
    w[2] = __builtin_shufflevector(ab23, cd23, 0, 1, 4, 5);
    w[3] = __builtin_shufflevector(ab23, cd23, 2, 3, 6, 7);
}

static inline void lanes_store(uint8_t *to, lanes w)
{
    memcpy(to, &w, sizeof w);
}

#endif
