/* quantize.h: floats to the blocks of a GGUF type. A row's bytes are a function of its values
 * alone: plain C, IEEE-754 + - * / in source order only (no libm, no contraction), so every machine
 * writes the same file and every load of a model makes the same shadow weights.
 *
 * f16(x) is the nearest f16, ties to even; rint(x) the nearest integer, ties to even;
 * clamp(v, a, b) the nearest of a .. b. D is always the value that the block holds: f16(d).
 *
 *   F32, F16, BF16   the nearest value, ties to even.
 *
 *   Q8_0   d = amax / 127, amax the largest |x| of 32; q = clamp(rint(x * (1 / D)), -127, 127).
 *
 *   Q4_0, Q5_0   low = -8, -16; e = the value of the block whose |x| is largest, the positive one of
 *          two. d0 = e / low, so that e becomes the end of low .. -low - 1 that has no partner, q0
 *          the integers of D0. d1 = the least-squares scale of q0: sum(x * q0) / sum(q0 * q0), q1 of
 *          D1. Taken is the one with the smaller sum of squared errors (x - D * q)^2, (D0, q0) where
 *          they are equal. q of a scale: clamp(rint(x * (1 / D)), low, -low - 1).
 *
 *   Q4_1, Q5_1   several trials of d and m, as quantize_fit.h's fit_unsigned says, rounded to f16 before
 *          they are compared.
 *
 *   Q4_K, Q5_K   the same per 32 values, in f32 and with m <= 0. D = f16(largest d / 63), Dmin of the
 *          m alike. Q2_K: per 16 values, 15 in place of 63. Then per 32 or 16 values sc = rint(d / D) and mn, or a neighbour of each, whichever
 *          leaves the smallest squared error.
 *
 *   Q6_K   as Q4_0 per 16 values, low = -32, in f32. D = f16(d / -128) of the largest |d|; sc =
 *          rint(d / D) or a neighbour, as above.
 *
 *   IQ4_NL several trials of d, as quantize_grid.h's fit_scale says; q the nearest number of the table.
 *          The table's lower one of two, as everywhere below.
 *
 *   IQ4_XS, Q3_K   the same in f32 per 32, per 16 values. D = f16(d / -32) of the largest |d|; sc =
 *          rint(d / D) or a neighbour, as above.
 *
 *   MXFP4  w = 2^(e - 128) with which the largest |x| is 8 w to 16 w, or twice that, whichever leaves
 *          the smaller squared error; q the nearest number of the table.
 *
 * D = 0 (all zeros, or so small that f16 has no scale for it) gives q = 0, or the table's nearest
 * number. Sums have eight partials
 * (value i goes to i mod 8, ascending from +0), then stride 4, 2, 1: p[j] = p[j] + p[j + stride].
 *
 * So values D * q are reproduced exactly where D is a normal f16 and each block contains the
 * integer that determines its scale: 127 or -127; low, or the table's first; with minima 0 and the
 * largest q; and for types with two levels a scale of 63 (Q2_K: 15, Q6_K: -128, others: -32) and, if
 * any, the largest minimum. Other values are approximated
 * with another scale. Errors: |x - D * q| is at most |D| / 2 for Q8_0, D a normal f16; squared
 * errors of Q4_0 and Q5_0 are never above those from d0.
 *
 * Any thread; allocates nothing, owns nothing. */
#ifndef HEARTH_KERNELS_QUANT_QUANTIZE_H
#define HEARTH_KERNELS_QUANT_QUANTIZE_H
#include "kernels/quant/quant_types.h"

#include <stdbool.h>
#include <stdint.h>

/* True for the types that quantize_row writes: those above. Q4_0 and Q8_0 take about 3 ns per
 * value, types with minima ten times as long. */
bool quantize_writes(uint32_t type);

/* out [n / block * block_bytes] = x [n]; sizes from quant_find(type). Returns 0; -ENOTSUP for a
 * type that it does not write; -EINVAL if n is not a multiple of the type's block; -EDOM if a value
 * is NaN or infinite; -ERANGE if a finite one is too large for the type (a scale, or a value of
 * F16, above 65504; a value of BF16 that would round to infinity). On failure the contents of out
 * are unspecified. */
int quantize_row(uint32_t type, const float *x, uint64_t n, uint8_t *out);

#endif
