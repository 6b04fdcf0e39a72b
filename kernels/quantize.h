/*
 * quantize: floats to the blocks of a GGUF type. A row's bytes are a function of its values alone:
 * plain C, IEEE-754 + - * / and written order only (no libm, no contraction), so every machine
 * writes the same file and every load of a model the same shadow weights.
 *
 * f16(x) is the nearest f16, ties to even; rint(x) the nearest integer, ties to even;
 * clamp(v, a, b) the nearest of a .. b. D is always the value that stands in the block: f16(d).
 *
 *   F32, F16, BF16   the nearest value, ties to even.
 *
 *   Q8_0   d = amax / 127, amax the largest |x| of 32; q = clamp(rint(x * (1 / D)), -127, 127).
 *
 *   Q4_0   e = the value of the block whose |x| is largest, the positive one of two. d0 = e / -8, so that e becomes the
 *          end of -8 .. 7 that has no partner, q0 of it. d1 = the least-squares scale of q0:
 *          sum(x * q0) / sum(q0 * q0), q1 of it. Taken is the one with the smaller sum of squared
 *          errors (x - D * q)^2, (d0, q0) where they are equal.
 *          q of a scale: clamp(rint(x * (1 / D)), -8, 7). Sums of 32 terms have 8 partials (term
 *          i goes to i mod 8, ascending from +0), then stride 4, 2, 1: p[j] = p[j] + p[j + stride].
 *
 * D = 0 (all zeros, or so small that f16 has no scale for it) gives q = 0.
 *
 * So a row of values D * q comes back exactly where D is a normal f16 and each block holds the
 * integer that its scale is taken from: 127 or -127; -8. (Others come back as near as another scale
 * allows.) Errors: |x - D * q| is at most |D| / 2 for Q8_0, |D| for Q4_0 from d0 (where x lies
 * beyond 7 D), D a normal f16; squared errors of Q4_0 are never above those from d0.
 *
 * Any thread; allocates nothing, owns nothing.
 */
#ifndef HEARTH_KERNELS_QUANTIZE_H
#define HEARTH_KERNELS_QUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/quant_types.h"

/* True for the types that quantize_row writes: F32, F16, BF16, Q8_0, Q4_0. */
bool quantize_writes(uint32_t type);

/*
 * out [n / block * block_bytes] = x [n]; sizes from quant_find(type). Returns 0; -ENOTSUP for a
 * type that it does not write; -EINVAL where n is no multiple of the type's block; -EDOM where a
 * value is NaN or infinite; -ERANGE where a finite one is too large for the type (a scale, or a
 * value of F16, above 65504; a value of BF16 that would round to infinity). What stands in out is
 * unspecified then.
 */
int quantize_row(uint32_t type, const float *x, uint64_t n, uint8_t *out);

#endif
