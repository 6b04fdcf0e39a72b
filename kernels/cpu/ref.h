/* ref.h: the reference operations, in ref_ops.c, ref_matmul.c and ref_attend.c. Plain C in the
 * order of kernels/NUMERICS.md, one statement per line of the page; deliberately slow. Any thread,
 * owns nothing. Other files use them through cpu_isa_ref; SIMD files also call single ones that
 * need not be fast. */
#ifndef HEARTH_KERNELS_CPU_REF_H
#define HEARTH_KERNELS_CPU_REF_H

#include "kernels/cpu/cpu.h"

void ref_norm(const float *x, const float *w, uint32_t n, float eps, float *y);
void ref_quantize(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum);
void ref_matmul(const struct cpu_matmul *p);
void ref_add(float *x, const float *bias, uint32_t n);
void ref_add_scaled(float *x, float factor, const float *y, uint32_t n);
void ref_rope_interleaved(float *x, uint32_t heads, uint32_t head_dim, uint32_t n_rot,
                          const float *cs, const float *sn);
void ref_rope_neox(float *x, uint32_t heads, uint32_t head_dim, uint32_t n_rot, const float *cs,
                   const float *sn);
bool ref_finite(const float *x, uint32_t n);
bool ref_fits_f16(const float *x, uint32_t n);
void ref_append(const struct kv_layer *kv, uint8_t *page, uint32_t in_page, const float *k,
                const float *v);
void ref_attend(const struct cpu_attend *a);
void ref_attend_split(const struct cpu_attend *a, uint32_t number, float *partials);
void ref_attend_combine(const struct cpu_attend *a, const float *partials);
void ref_silu_mul(const float *g, const float *u, uint32_t n, float *m);
void ref_gelu_mul(const float *g, const float *u, uint32_t n, float *m);
void ref_swiglu(const float *g, const float *u, uint32_t n, float *m);
void ref_sigmoid_mul(const float *g, const float *u, uint32_t n, float *m);
void ref_product(const float *g, const float *u, uint32_t n, float *m);
void ref_convolve(const struct cpu_convolution *convolution);
void ref_unit(float *x, uint32_t n, float factor);
void ref_delta_read(const float *state, const float *k, uint32_t n, float *p);
void ref_delta_step(const struct cpu_delta *delta);
void ref_cap(float *x, float cap, uint32_t n);
bool ref_canonical_logits(float *x, uint32_t n);

/* x [cols] = row `row` of a matrix as stored in the file (NUMERICS.md, "Embedding"). */
void ref_matrix_row(const struct model_tensor *t, uint32_t row, float *x);

#endif
