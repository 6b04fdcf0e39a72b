/* simd.h: the operations of each instruction set, declared once: SIMD_MATMULS(avx2), avxvnni and
 * avx512, SIMD_OPERATIONS(avx2) and avx512; AVX-VNNI has its own integer matmuls and uses AVX2's
 * other operations. Bodies are in ops.c, matmul.c, attend.c and delta.c, written once over vec.h; integer
 * matmuls differ by instruction set and are in blocks_*.c. */
#ifndef HEARTH_KERNELS_CPU_SIMD_SIMD_H
#define HEARTH_KERNELS_CPU_SIMD_SIMD_H

#include "kernels/cpu/cpu.h"

#define SIMD_OPERATIONS(isa)                                                                       \
    void simd_norm_##isa(const float *x, const float *w, uint32_t n, float eps, float *y);         \
    void simd_quantize_##isa(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum);       \
    void simd_add_##isa(float *x, const float *bias, uint32_t n);                                  \
    void simd_add_scaled_##isa(float *x, float factor, const float *y, uint32_t n);                \
    void simd_rope_interleaved_##isa(float *x, uint32_t heads, uint32_t head_dim, uint32_t n_rot,  \
                                     const float *cs, const float *sn);                            \
    void simd_rope_neox_##isa(float *x, uint32_t heads, uint32_t head_dim, uint32_t n_rot,         \
                              const float *cs, const float *sn);                                   \
    bool simd_finite_##isa(const float *x, uint32_t n);                                            \
    bool simd_fits_f16_##isa(const float *x, uint32_t n);                                          \
    void simd_append_##isa(const struct kv_layer *kv, uint8_t *page, uint32_t in_page,             \
                           const float *k, const float *v);                                        \
    void simd_attend_##isa(const struct cpu_attend *a);                                            \
    void simd_attend_split_##isa(const struct cpu_attend *a, uint32_t number, float *partials);    \
    void simd_attend_combine_##isa(const struct cpu_attend *a, const float *partials);             \
    void simd_silu_mul_##isa(const float *g, const float *u, uint32_t n, float *m);                \
    void simd_gelu_mul_##isa(const float *g, const float *u, uint32_t n, float *m);                \
    void simd_swiglu_##isa(const float *g, const float *u, uint32_t n, float *m);                  \
    void simd_sigmoid_mul_##isa(const float *g, const float *u, uint32_t n, float *m);             \
    void simd_product_##isa(const float *g, const float *u, uint32_t n, float *m);                 \
    void simd_convolve_##isa(const struct cpu_convolution *convolution);                           \
    void simd_unit_##isa(float *x, uint32_t n, float factor);                                      \
    void simd_delta_read_##isa(const float *state, const float *k, uint32_t n, float *p);          \
    void simd_delta_step_##isa(const struct cpu_delta *a);                                         \
    void simd_cap_##isa(float *x, float cap, uint32_t n);                                          \
    bool simd_canonical_logits_##isa(float *x, uint32_t n);                                        \
    extern const struct tile_set tiles_f32_##isa, tiles_f16_##isa, tiles_bf16_##isa

#define SIMD_MATMULS(isa)                                                                          \
    void simd_matmul_##isa(const struct cpu_matmul *p);                                            \
    extern const struct tile_set tiles_q8_0_##isa, tiles_q4_0_##isa, tiles_q4_1_##isa,             \
        tiles_q5_0_##isa, tiles_q5_1_##isa, tiles_q2_k_##isa, tiles_q3_k_##isa, tiles_q4_k_##isa,  \
        tiles_q5_k_##isa, tiles_q6_k_##isa, tiles_mxfp4_##isa, tiles_iq4_nl_##isa,                 \
        tiles_iq4_xs_##isa, tiles_iq3_xxs_##isa, tiles_iq3_s_##isa

/* A tile: some groups of 16 outputs by some rows of the input, over a run of segments; then the
 * same for further rows with the same weights. While it runs, the pointers advance to the current
 * rows and segment. */
struct tile {
    uint32_t tiles;      /* number of consecutive tiles of as many rows; 1 for a single row */
    const uint8_t *w;    /* the current segment in the first group */
    size_t group_stride; /* bytes from a group of the tile to the next */
    const float *x;      /* float types: [rows][stride] from the current segment's first input */
    size_t stride;
    const uint8_t *panel; /* quantized types: the same as blocks (simd_panel.h) */
    size_t panel_stride;  /* bytes to the panel of the next rows */
    uint32_t inputs;      /* inputs from the current segment to the end of the run */
    uint32_t n;           /* inputs of the segment, or blocks; set by the tile */
    size_t fetch;         /* bytes from w to what several rows prefetch */
    size_t fetch_bytes;   /* bytes per group to prefetch with each block of inputs */
    size_t fetch_end;     /* prefetching stops when `fetch` reaches this */
    float *sums;          /* [rows][groups * 16] sums of the previous segments, if any */
    bool first;           /* there is no previous segment */
    /* [rows][y_stride], from the first group's first output; NULL: the run ends before the inputs
     * do, and its result stays in sums */
    float *y;
    const float *residual;    /* like y, or NULL */
    size_t y_stride, y_group; /* floats to the next row, and to the next group */
};

typedef void tile_run(const struct tile *tile);

enum { TILE_ROWS = 6 };

/* The tiles of a type: run[i][r - 1] computes 1 << i groups by r rows; NULL where there is none. */
struct tile_set {
    uint32_t max_rows; /* max rows per tile */
    /* by rows - 1: log2 of the number of groups that uses the registers best */
    uint32_t groups[TILE_ROWS];
    tile_run *run[3][TILE_ROWS];
};

SIMD_OPERATIONS(avx2);
SIMD_MATMULS(avx2);
SIMD_MATMULS(avxvnni);
SIMD_OPERATIONS(avx512);
SIMD_MATMULS(avx512);

#endif
