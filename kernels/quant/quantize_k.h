/* quantize_k.h: blocks of 256 with two levels of scales, for quantize_row (quantize.h has the
 * formulas). Any thread; owns nothing. */
#ifndef HEARTH_KERNELS_QUANT_QUANTIZE_K_H
#define HEARTH_KERNELS_QUANT_QUANTIZE_K_H

#include <stdint.h>

/* One block of finite values x [256] -> out. Return 0 or -ERANGE. */
int quantize_iq4_xs(const float *x, uint8_t *out);
int quantize_q2_k(const float *x, uint8_t *out);
int quantize_q3_k(const float *x, uint8_t *out);
int quantize_q4_k(const float *x, uint8_t *out);
int quantize_q5_k(const float *x, uint8_t *out);
int quantize_q6_k(const float *x, uint8_t *out);

#endif
