/* simd_tile.h: shared by the tiles of every type: shapes, the write of outputs, the size of a
 * segment. Included by matmul.c and blocks_*.c. */
#ifndef HEARTH_KERNELS_CPU_SIMD_SIMD_TILE_H
#define HEARTH_KERNELS_CPU_SIMD_SIMD_TILE_H

#include "kernels/cpu/repack.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/simd_panel.h"
#include "kernels/cpu/simd/vec.h"

enum {
    PARTS = CPU_LANES / VEC, /* vectors per group */
    MAX_ACC = 12,            /* accumulators of the largest tile */
    MAX_VECTORS = 4 * PARTS, /* of its weights */
    SUBS = CPU_SEGMENT / CPU_BLOCK,
    ONE_ROW_AHEAD = 2048, /* bytes in each group's stream */
};

/* What the tiles of a run by one segment share: the factors of its sub-blocks, of types that compute
 * them from two levels; and, for several tiles, its integers, one a byte, in the order in which a tile
 * reads them. */
struct factors {
    const uint8_t *of; /* the segment; NULL: none yet */
    vf w[MAX_VECTORS][SUBS], m[MAX_VECTORS][SUBS];
    vi fours[SUBS * 8 * MAX_VECTORS]; /* [sub-block][pair][half][vector] */
};

#if !defined(VEC_HAS_DOT)
/* Has a sum in its register at this place. gcc reassociates integer sums and moves the products of many
 * steps to one place, until most of them lie on the stack. */
ALWAYS_INLINE void vi_hold(vi *sum)
{
    __asm__("" : "+x"(*sum));
}
#endif

/* Bytes of 32 inputs in a group, and of a whole segment. */
ALWAYS_INLINE size_t block_size(uint32_t type)
{
    switch (type) {
    case QUANT_F32:
        return (size_t)CPU_BLOCK * CPU_LANES * 4;
    case QUANT_F16:
    case QUANT_BF16:
        return (size_t)CPU_BLOCK * CPU_LANES * 2;
    default:
        return repack_integers(type) + repack_factors(type);
    }
}
ALWAYS_INLINE size_t segment_size(uint32_t type)
{
    return (size_t)CPU_SEGMENT / CPU_BLOCK * block_size(type);
}

/* Sub-block b of vector i, and the factors stored before a segment's integers (repack.h). */
ALWAYS_INLINE const uint8_t *words_at(const struct tile *t, uint32_t type, size_t b, int i)
{
    return t->w + (size_t)(i / PARTS) * t->group_stride + t->n * repack_factors(type) +
           b * repack_integers(type) + (size_t)(i % PARTS) * VEC * 4;
}

/* Factors of `width` bytes, from byte `at` on. */
ALWAYS_INLINE const uint8_t *factors_at(const struct tile *t, size_t at, int width, int i)
{
    return t->w + (size_t)(i / PARTS) * t->group_stride + at +
           (size_t)(i % PARTS) * VEC * (size_t)width;
}

/* Prefetches the weights of a later segment, a share with each block of 32 inputs: so the
 * arithmetic hides the latency, and the line-fill buffers are not exhausted. With many tiles most
 * have no share. A single row is bound by memory bandwidth, of which the hardware prefetcher, which
 * stops at the end of a page, leaves up to a fifth: it prefetches all that it reads, and beyond the
 * end of its groups, since what follows is often read next. */
ALWAYS_INLINE void fetch_ahead(const struct tile *t, uint32_t type, size_t block, int groups,
                               int rows)
{
    const size_t bytes = rows == 1 ? block_size(type) : t->fetch_bytes;
    const size_t ahead = rows == 1 ? ONE_ROW_AHEAD : t->fetch;
    if (__builtin_expect(bytes == 0, 1))
        return;
    const uint8_t *line = t->w + ahead + block * bytes;
    for (size_t at = 0; at < bytes; at += 64) {
        UNROLL
        for (int g = 0; g < groups; g++)
            _mm_prefetch((const char *)line + at + (size_t)g * t->group_stride, _MM_HINT_T0);
    }
}

/* Starts the sums of block b: weights are stored with an offset. isum is [rows][vectors]. */
ALWAYS_INLINE void block_begin(const struct tile *t, size_t b, vi *isum, int vectors, int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const vi start = panel_word(panel_start(t->panel, b, rows, r));
        UNROLL
        for (int i = 0; i < vectors; i++)
            isum[r * vectors + i] = start;
    }
}

/* One fma per block: the exact integer sum times the product of both scales. acc is
 * [rows][vectors]. */
ALWAYS_INLINE void block_end(const struct tile *t, size_t b, const vi *isum, vf *acc, int vectors,
                             int rows)
{
    UNROLL
    for (int i = 0; i < vectors; i++) {
        const vf scale = v_load_f16(factors_at(t, b * 32, 2, i));
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vf d = v_mul(scale, panel_float(panel_scale(t->panel, b, rows, r)));
            acc[r * vectors + i] = v_fma(vi_float(isum[r * vectors + i]), d, acc[r * vectors + i]);
        }
    }
}

ALWAYS_INLINE bool float_type(uint32_t type)
{
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16;
}

ALWAYS_INLINE void begin_segment(struct tile *t, uint32_t type, vf *acc, int groups, int rows)
{
    const uint32_t inputs = t->inputs < CPU_SEGMENT ? t->inputs : CPU_SEGMENT;
    t->n = float_type(type) ? inputs : inputs / CPU_BLOCK;
    UNROLL
    for (int i = 0; i < rows * groups * PARTS; i++)
        acc[i] = v_zero();
}

/* y = sum + residual. acc is [rows][groups * PARTS]. */
ALWAYS_INLINE void write_outputs(const struct tile *t, const vf *acc, int groups, int rows)
{
    const int vectors = groups * PARTS;
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const size_t at = (size_t)r * t->y_stride + (size_t)(i / PARTS) * t->y_group +
                              (size_t)(i % PARTS) * VEC;
            vf y = acc[r * vectors + i];
            if (t->residual)
                y = v_add(y, v_load(t->residual + at));
            v_store(t->y + at, y);
        }
    }
}

/* sum = seg, or sum = sum + seg. True if another segment of the run follows. */
ALWAYS_INLINE bool end_segment(struct tile *t, uint32_t type, vf *acc, int groups, int rows)
{
    const int vectors = groups * PARTS;
    if (!t->first) {
        UNROLL
        for (int i = 0; i < rows * vectors; i++)
            acc[i] = v_add(v_load(t->sums + i * VEC), acc[i]);
    }
    const bool more = t->inputs > CPU_SEGMENT;
    if (!more && t->y) {
        write_outputs(t, acc, groups, rows);
        return false;
    }
    UNROLL
    for (int i = 0; i < rows * vectors; i++)
        v_store(t->sums + i * VEC, acc[i]);
    t->first = false;
    t->inputs -= more ? CPU_SEGMENT : t->inputs;
    t->w += segment_size(type);
    if (float_type(type))
        t->x += CPU_SEGMENT;
    else
        t->panel += CPU_SEGMENT / CPU_BLOCK * rows * PANEL_BYTES;
    return more;
}

/* Tile i of a run, at its first segment. Prefetches the lines that it will write: each is in
 * another page. */
ALWAYS_INLINE struct tile begin_tile(const struct tile *run, uint32_t i, int groups, int rows)
{
    struct tile t = *run;
    const size_t row = (size_t)i * (size_t)rows;
    t.x += row * t.stride;
    t.panel += i * t.panel_stride;
    t.sums += row * (size_t)(groups * CPU_LANES);
    t.fetch += i * ((t.inputs + CPU_BLOCK - 1) / CPU_BLOCK) * t.fetch_bytes;
    if (t.fetch >= t.fetch_end)
        t.fetch_bytes = 0;
    if (!t.y)
        return t;
    t.y += row * t.y_stride;
    if (t.residual)
        t.residual += row * t.y_stride;
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int g = 0; g < groups; g++)
            __builtin_prefetch(t.y + (size_t)r * t.y_stride + (size_t)g * t.y_group, 1);
    }
    return t;
}

/* Whether the tiles of a run, then of one segment, unpack its integers once for all of them. For two
 * it would not pay, nor where integers lie as they are multiplied, or almost. */
ALWAYS_INLINE bool shares_fours(const struct tile *run, uint32_t type, int rows)
{
    return rows > 1 && !float_type(type) && type != QUANT_Q8_0 && type != QUANT_Q4_0 &&
           run->tiles > 2;
}

/* Defines the tile of a shape. `add_segment` adds a segment to acc, which is zero. All segments and
 * all tiles of a run are one loop: with a call per segment the processor would stop prefetching at
 * each call, or run out of work. A single row is a single tile: gcc made a version with the outer
 * loop that decoded Q4_K_M a fifth slower. Shared integers have a loop of their own: with a test in
 * each segment gcc kept the sums of larger tiles in memory. */
#define TILE(add_segment, type, groups, rows)                                                      \
    static void type##_##groups##x##rows(const struct tile *run)                                   \
    {                                                                                              \
        struct factors factors;                                                                    \
        factors.of = NULL;                                                                         \
        if (shares_fours(run, QUANT_##type, rows))                                                 \
            TILE_LOOP(add_segment, type, true, groups, rows)                                       \
        else                                                                                       \
            TILE_LOOP(add_segment, type, false, groups, rows)                                      \
    }
#define TILE_LOOP(add_segment, type, shared, groups, rows)                                         \
    for (uint32_t i = 0; i < (rows > 1 ? run->tiles : 1); i++) {                                   \
        struct tile t = begin_tile(run, i, groups, rows);                                          \
        vf acc[MAX_ACC];                                                                           \
        do {                                                                                       \
            begin_segment(&t, QUANT_##type, acc, groups, rows);                                    \
            add_segment(&t, QUANT_##type, &factors, shared, acc, groups, rows);                    \
        } while (end_segment(&t, QUANT_##type, acc, groups, rows));                                \
    }

/* Shapes, and the table of them: AVX-512 has 32 registers and one vector per group, AVX2 16 and
 * two. A single row takes two groups at a time: with more streams the hardware prefetcher was less
 * effective. */
#if defined(__AVX512F__)
#define TILE_SHAPES(shape, type)                                                                   \
    shape(type, 1, 1) shape(type, 1, 2) shape(type, 1, 3) shape(type, 1, 4) shape(type, 1, 5)      \
        shape(type, 1, 6) shape(type, 2, 1) shape(type, 2, 2) shape(type, 2, 3) shape(type, 2, 4)  \
            shape(type, 2, 5) shape(type, 2, 6) shape(type, 4, 2) shape(type, 4, 3)
#define TILE_SET(type)                                                                             \
    {                                                                                              \
        .max_rows = 6, .groups = {1, 2, 2, 1, 1, 1},                                               \
        .run = {{type##_1x1, type##_1x2, type##_1x3, type##_1x4, type##_1x5, type##_1x6},          \
                {type##_2x1, type##_2x2, type##_2x3, type##_2x4, type##_2x5, type##_2x6},          \
                {NULL, type##_4x2, type##_4x3}},                                                   \
    }
#else
#define TILE_SHAPES(shape, type)                                                                   \
    shape(type, 1, 1) shape(type, 1, 2) shape(type, 1, 3) shape(type, 1, 4) shape(type, 2, 1)      \
        shape(type, 2, 2)
#define TILE_SET(type)                                                                             \
    {                                                                                              \
        .max_rows = 4, .groups = {1, 1, 0, 0},                                                     \
        .run = {{type##_1x1, type##_1x2, type##_1x3, type##_1x4}, {type##_2x1, type##_2x2}},       \
    }
#endif

#endif
