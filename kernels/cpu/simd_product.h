/*
 * simd_product: products over repacked weights, over vec.h. The body of product_avx2.c and
 * product_avx512.c: tiles of the float types, and the walk over tiles that all types share.
 *
 * A lane is an output, so each output is accumulated in the order of NUMERICS.md whatever the tile.
 * A segment's sum is kept in registers; between segments an output rests in y.
 */
#include "kernels/cpu/repack.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_tile.h"

ALWAYS_INLINE vf load_weights(uint32_t type, const uint8_t *w, size_t i)
{
    switch (type) {
    case QUANT_F32:
        return v_load((const float *)(const void *)w + i);
    case QUANT_F16:
        return v_load_f16(w + 2 * i);
    default:
        return v_load_bf16(w + 2 * i);
    }
}

ALWAYS_INLINE void float_tile(const struct tile *t, uint32_t type, int groups, int rows)
{
    vf acc[MAX_ACC];
    const int vectors = groups * PARTS;
    UNROLL
    for (int i = 0; i < vectors * rows; i++)
        acc[i] = v_zero();
    const float *x = t->x;
    for (uint32_t k = 0; k < t->n; k++) {
        vf w[4 * PARTS];
        UNROLL
        for (int i = 0; i < vectors; i++)
            w[i] = load_weights(type, t->w + (size_t)(i / PARTS) * t->group_stride,
                                (size_t)k * CPU_LANES + (size_t)(i % PARTS) * VEC);
        UNROLL
        for (int r = 0; r < rows; r++) {
            vf a = v_set1(x[(size_t)r * t->stride + k]);
            UNROLL
            for (int i = 0; i < vectors; i++)
                acc[r * vectors + i] = v_fma(w[i], a, acc[r * vectors + i]);
        }
    }
    finish_tile(t, acc, groups, rows);
}

#define FLOAT_TILE(type, groups, rows)                                                             \
    static void type##_##groups##x##rows(const struct tile *t)                                     \
    {                                                                                              \
        float_tile(t, QUANT_##type, groups, rows);                                                 \
    }
#define FLOAT_TILES(type)                                                                          \
    TILE_SHAPES(FLOAT_TILE, type)                                                                  \
    static const struct tile_set tiles_##type = TILE_SET(type)

FLOAT_TILES(F32);
FLOAT_TILES(F16);
FLOAT_TILES(BF16);

static const struct tile_set *tiles_of(uint32_t type)
{
    switch (type) {
    case QUANT_F32:
        return &tiles_F32;
    case QUANT_F16:
        return &tiles_F16;
    case QUANT_BF16:
        return &tiles_BF16;
    case QUANT_Q8_0:
        return &SIMD(tiles_q8_0);
    case QUANT_Q5_0:
        return &SIMD(tiles_q5_0);
    case QUANT_Q5_1:
        return &SIMD(tiles_q5_1);
    case QUANT_Q4_K:
        return &SIMD(tiles_q4_k);
    case QUANT_Q5_K:
        return &SIMD(tiles_q5_k);
    case QUANT_Q6_K:
        return &SIMD(tiles_q6_k);
    default:
        return &SIMD(tiles_q4_0);
    }
}

/* Rows [row0, row1) of one segment, in tiles of at most max_rows. */
static void run_rows(const struct cpu_product *p, const struct tile_set *set, struct tile tile,
                     size_t input, uint32_t groups_log, uint32_t max_rows)
{
    const struct cpu_input *x = p->x;
    const float *residual = tile.residual;
    float *y = tile.y;
    for (uint32_t r = p->row0; r < p->row1; r += max_rows) {
        uint32_t rows = p->row1 - r < max_rows ? p->row1 - r : max_rows;
        size_t at = (size_t)r * x->stride + input;
        tile.x = x->f + at;
        tile.q = x->q + at;
        tile.d = x->d + at / CPU_BLOCK;
        tile.sum = x->sum + at / CPU_BLOCK;
        tile.y = y + (size_t)r * p->stride;
        tile.residual = residual ? residual + (size_t)r * p->stride : NULL;
        set->run[groups_log][rows - 1](&tile);
    }
}

/* The tile of 1 << groups_log groups from `group` on, `apart` from each other; all segments. */
static void run_groups(const struct cpu_product *p, const struct tile_set *set, uint32_t group,
                       uint32_t apart, uint32_t groups_log, uint32_t max_rows)
{
    const struct cpu_matrix *m = p->matrix;
    uint32_t cols = m->file.cols;
    bool blocks = quant_find(m->file.type)->quantized;
    size_t segment_bytes = segment_size(m->file.type);
    struct tile tile = {
        .w = m->packed + group * m->group_bytes,
        .group_stride = apart * m->group_bytes,
        .stride = p->x->stride,
        .y = p->y + (size_t)group * CPU_LANES,
        .y_stride = p->stride,
        .y_group = (size_t)apart * CPU_LANES,
    };
    for (uint32_t begin = 0; begin < cols; begin += CPU_SEGMENT) {
        uint32_t n = cols - begin < CPU_SEGMENT ? cols - begin : CPU_SEGMENT;
        bool last = cols - begin <= CPU_SEGMENT;
        tile.n = blocks ? n / CPU_BLOCK : n;
        tile.first = begin == 0;
        tile.residual = last && p->residual ? p->residual + (size_t)group * CPU_LANES : NULL;
        run_rows(p, set, tile, begin, groups_log, max_rows);
        tile.w += segment_bytes;
    }
}

/* The groups of a tile lie as far apart as the product is long: every one of them is a long run of
 * memory, which is what prefetchers of processors are made for. */
void SIMD(simd_product)(const struct cpu_product *p)
{
    const struct tile_set *set = tiles_of(p->matrix->file.type);
    uint32_t n = p->row1 - p->row0;
    uint32_t tiles = (n + set->max_rows - 1) / set->max_rows;
    uint32_t rows = (n + tiles - 1) / tiles;
    uint32_t g = p->group0;
    for (uint32_t log = set->groups[rows - 1];; log--) {
        uint32_t apart = (p->group1 - g) >> log;
        for (uint32_t i = 0; i < apart; i++)
            run_groups(p, set, g + i, apart, log, rows);
        g += apart << log;
        if (log == 0)
            return;
    }
}
