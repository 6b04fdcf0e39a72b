/*
 * simd: the operations of an instruction set, one declaration for all: SIMD_MATMULS(avx2), avxvnni
 * and avx512, SIMD_OPERATIONS(avx2) and avx512; all but integer matmuls AVX-VNNI has from AVX2.
 * Bodies are in ops.c, matmul.c and attend.c, written once over vec.h; integer
 * matmuls differ by instruction set and are in blocks_*.c.
 */
#ifndef HEARTH_KERNELS_CPU_SIMD_SIMD_H
#define HEARTH_KERNELS_CPU_SIMD_SIMD_H

#include "kernels/cpu/cpu.h"

#define SIMD_OPERATIONS(isa)                                                                       \
    void simd_norm_##isa(const float *x, const float *w, uint32_t n, float eps, float *y);         \
    void simd_quantize_##isa(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum);       \
    void simd_add_##isa(float *x, const float *bias, uint32_t n);                                  \
    void simd_rope_interleaved_##isa(float *x, uint32_t heads, uint32_t head_dim, const float *cs, \
                                     const float *sn);                                             \
    void simd_rope_neox_##isa(float *x, uint32_t heads, uint32_t head_dim, const float *cs,        \
                              const float *sn);                                                    \
    bool simd_finite_##isa(const float *x, uint32_t n);                                            \
    bool simd_fits_f16_##isa(const float *x, uint32_t n);                                          \
    void simd_append_##isa(const struct kv_geometry *kv, uint8_t *page, uint32_t layer,            \
                           uint32_t slot, const float *k, const float *v);                         \
    void simd_attend_##isa(const struct cpu_attend *a);                                            \
    void simd_attend_split_##isa(const struct cpu_attend *a, uint32_t number, float *parts);       \
    void simd_attend_combine_##isa(const struct cpu_attend *a, const float *parts);                \
    void simd_silu_mul_##isa(const float *g, const float *u, uint32_t n, float *m);                \
    void simd_gelu_mul_##isa(const float *g, const float *u, uint32_t n, float *m);                \
    bool simd_canonical_logits_##isa(float *x, uint32_t n);                                        \
    extern const struct tile_set tiles_f32_##isa, tiles_f16_##isa, tiles_bf16_##isa

#define SIMD_MATMULS(isa)                                                                          \
    void simd_matmul_##isa(const struct cpu_matmul *p);                                            \
    extern const struct tile_set tiles_q8_0_##isa, tiles_q4_0_##isa, tiles_q5_0_##isa,             \
        tiles_q5_1_##isa, tiles_q4_k_##isa, tiles_q5_k_##isa, tiles_q6_k_##isa

/* A tile: some groups of 16 outputs by some rows of the input, over a run of its segments; and the
 * tiles of further rows, by the same weights. While it runs, pointers are those of the rows and of the
 * segment that it is at. */
struct tile {
    uint32_t tiles;      /* so many times the tile's rows; 1 where that is one row */
    const uint8_t *w;    /* the segment in the first group */
    size_t group_stride; /* bytes from a group of the tile to the next */
    const float *x;      /* float types: [rows][stride] from the segment's first input */
    size_t stride;
    const uint8_t *panel;     /* quantized types: the same as blocks (simd_panel.h) */
    size_t panel_stride;      /* bytes to the panel of the next rows */
    uint32_t inputs;          /* from the segment's first to the run's last */
    uint32_t n;               /* inputs of the segment, or blocks; the tile sets it */
    size_t fetch;             /* bytes from w to weights that tiles will read soon */
    size_t fetch_bytes;       /* of each group, to be asked for with each block of inputs */
    size_t fetch_end;         /* a tile from which on fetch is not below asks for none */
    float *sums;              /* [rows][groups * 16] of the segments before, where there are */
    bool first;               /* no segment is before */
    float *y;                 /* [rows][y_stride], from the first group's first output; NULL: the
                               * run ends before the input does, and leaves sums */
    const float *residual;    /* like y, or NULL */
    size_t y_stride, y_group; /* floats from a row, and from a group, to the next */
};

typedef void tile_run(const struct tile *tile);

enum { TILE_ROWS = 6 };

/* The tiles of a type: run[i][r - 1] does 1 << i groups by r rows; NULL where there is none. */
struct tile_set {
    uint32_t max_rows;          /* most rows of a tile */
    uint32_t groups[TILE_ROWS]; /* by rows - 1: log2 of the groups that fill the registers best */
    tile_run *run[3][TILE_ROWS];
};

SIMD_OPERATIONS(avx2);
SIMD_MATMULS(avx2);
SIMD_MATMULS(avxvnni);
SIMD_OPERATIONS(avx512);
SIMD_MATMULS(avx512);

#endif
