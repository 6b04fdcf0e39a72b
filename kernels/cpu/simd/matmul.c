/* matmul.c: matmuls over repacked weights, over vec.h; compiled for AVX2, AVX-VNNI and AVX-512
 * (VARIANTS_matmul.c in the Makefile): tiles of the float types (AVX-VNNI uses AVX2's), and the
 * loops over tiles, shared by all types.
 *
 * A lane is an output, so each output is accumulated in the order of NUMERICS.md whatever the tile.
 * A segment's sum stays in registers; between segments the output is in y.
 */
#include "kernels/cpu/repack.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/simd_tile.h"

#include <string.h>

#if defined(__AVXVNNI__)
#define FLOAT_TILES(type) tiles_##type##_avx2
#else
#define FLOAT_TILES(type) SIMD(tiles_##type)

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

ALWAYS_INLINE void add_values(const struct tile *t, uint32_t type, struct factors *unused,
                              bool shared, vf *acc, int groups, int rows)
{
    (void)unused, (void)shared;
    const int vectors = groups * PARTS;
    const float *x = t->x;
    for (uint32_t k = 0; k < t->n; k++) {
        vf w[4 * PARTS];
        if (k % CPU_BLOCK == 0)
            fetch_ahead(t, type, k / CPU_BLOCK, groups, rows);
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
}

#define FLOAT_TILE(type, groups, rows) TILE(add_values, type, groups, rows)
TILE_SHAPES(FLOAT_TILE, F32)
TILE_SHAPES(FLOAT_TILE, F16)
TILE_SHAPES(FLOAT_TILE, BF16)

const struct tile_set SIMD(tiles_f32) = TILE_SET(F32);
const struct tile_set SIMD(tiles_f16) = TILE_SET(F16);
const struct tile_set SIMD(tiles_bf16) = TILE_SET(BF16);
#endif

static const struct tile_set *tiles_of(uint32_t type)
{
    switch (type) {
    case QUANT_F32:
        return &FLOAT_TILES(f32);
    case QUANT_F16:
        return &FLOAT_TILES(f16);
    case QUANT_BF16:
        return &FLOAT_TILES(bf16);
    case QUANT_Q8_0:
        return &SIMD(tiles_q8_0);
    case QUANT_Q4_1:
        return &SIMD(tiles_q4_1);
    case QUANT_Q5_0:
        return &SIMD(tiles_q5_0);
    case QUANT_Q5_1:
        return &SIMD(tiles_q5_1);
    case QUANT_Q2_K:
        return &SIMD(tiles_q2_k);
    case QUANT_Q3_K:
        return &SIMD(tiles_q3_k);
    case QUANT_Q4_K:
        return &SIMD(tiles_q4_k);
    case QUANT_Q5_K:
        return &SIMD(tiles_q5_k);
    case QUANT_Q6_K:
        return &SIMD(tiles_q6_k);
    case QUANT_MXFP4:
        return &SIMD(tiles_mxfp4);
    case QUANT_IQ4_NL:
        return &SIMD(tiles_iq4_nl);
    case QUANT_IQ4_XS:
        return &SIMD(tiles_iq4_xs);
    case QUANT_IQ3_XXS:
        return &SIMD(tiles_iq3_xxs);
    case QUANT_IQ3_S:
        return &SIMD(tiles_iq3_s);
    default:
        return &SIMD(tiles_q4_0);
    }
}

/* Rows whose sums are kept in scratch between segments. */
enum { BLOCK_ROWS = 96, BLOCK_BYTES = 1 << 19 };
_Static_assert((int)BLOCK_BYTES >= (int)MODEL_MAX_FF &&
                   (int)BLOCK_BYTES >= MODEL_MAX_HEADS * MODEL_MAX_HEAD_DIM,
               "a row's activations fit a block");

/* A block: some groups of outputs by some rows. */
struct matmul_block {
    const struct cpu_matmul *p;
    const struct tile_set *set;
    uint32_t row0, row1, tile_rows; /* split into tiles of at most tile_rows */
    /* 1 << log groups starting at `group`, at a distance of `apart` */
    uint32_t group, apart, log;
    /* quantized types: for each tile, PANEL_BYTES per row and quant block */
    const uint8_t *panels;
    const float *x; /* float types: [row1 - row0][stride] */
    size_t stride;
};

/* The inputs that a run of tiles covers: one segment, or all. */
struct inputs {
    uint32_t begin, n;
    bool last;
};

/* Bytes of weights to prefetch per block of inputs, so that the tiles of a segment together
 * prefetch as much as they read. */
static size_t fetch_share(uint32_t tiles, size_t segment_bytes)
{
    return (segment_bytes / (tiles * (CPU_SEGMENT / CPU_BLOCK)) + 63) / 64 * 64;
}

/* All rows by some inputs: the whole tiles in one call, then the remaining rows. The tiles prefetch
 * the weights two segments ahead. */
static void run_tiles(const struct matmul_block *b, struct tile tile, const struct inputs *in,
                      float *sums)
{
    const struct cpu_matmul *p = b->p;
    size_t blocks = p->matrix->file.cols / CPU_BLOCK, begin = in->begin / CPU_BLOCK;
    tile.inputs = in->n;
    tile.first = in->begin == 0;
    tile.fetch_end = tile.fetch + segment_size(p->matrix->file.type) * in->n / CPU_SEGMENT;
    for (uint32_t r = b->row0, rows; r < b->row1; r += rows * tile.tiles) {
        rows = b->row1 - r < b->tile_rows ? b->row1 - r : b->tile_rows;
        size_t out = (size_t)r * p->stride + (size_t)b->group * CPU_LANES;
        tile.tiles = rows > 1 ? (b->row1 - r) / rows : 1;
        tile.x = b->x + (size_t)(r - b->row0) * b->stride + in->begin;
        tile.panel = b->panels + ((r - b->row0) * blocks + begin * rows) * PANEL_BYTES;
        tile.panel_stride = rows * blocks * PANEL_BYTES;
        tile.sums = sums + ((size_t)(r - b->row0) * CPU_LANES << b->log);
        tile.y = in->last ? p->y + out : NULL;
        tile.residual = in->last && p->residual ? p->residual + out : NULL;
        b->set->run[b->log][rows - 1](&tile);
        tile.fetch += tile.tiles * ((in->n + CPU_BLOCK - 1) / CPU_BLOCK) * tile.fetch_bytes;
    }
}

/* With many tiles, a segment's weights are used for all rows while they are in L1. With one tile
 * they are read once in any case, so its segments run without interruption. */
static void run_block(const struct matmul_block *b)
{
    const struct cpu_matrix *m = b->p->matrix;
    uint32_t cols = m->file.cols, tiles = (b->row1 - b->row0 + b->tile_rows - 1) / b->tile_rows;
    size_t segment_bytes = segment_size(m->file.type);
    float sums[BLOCK_ROWS * 2 * CPU_LANES] __attribute__((aligned(64)));
    struct tile tile = {
        .w = m->packed + b->group * m->group_bytes,
        .group_stride = b->apart * m->group_bytes,
        .stride = b->stride,
        .fetch = 2 * segment_bytes,
        .fetch_bytes = fetch_share(tiles, segment_bytes),
        .y_stride = b->p->stride,
        .y_group = (size_t)b->apart * CPU_LANES,
    };
    uint32_t step = tiles == 1 ? cols : CPU_SEGMENT;
    for (uint32_t begin = 0; begin < cols; begin += step) {
        struct inputs in = {.begin = begin, .last = cols - begin <= step};
        in.n = in.last ? cols - begin : step;
        run_tiles(b, tile, &in, sums);
        tile.w += segment_bytes;
    }
}

/* The groups of a tile are spread evenly over the matmul: each then reads one long sequential
 * stream, which hardware prefetchers handle best. */
static void run_rows(const struct cpu_matmul *p, struct matmul_block b)
{
    uint32_t g = p->group0;
    for (b.log = b.set->groups[b.tile_rows - 1];; b.log--) {
        b.apart = (p->group1 - g) >> b.log;
        for (uint32_t i = 0; i < b.apart; i++) {
            b.group = g + i;
            run_block(&b);
        }
        g += b.apart << b.log;
        if (b.log == 0)
            return;
    }
}

/* Rows of a block: their activations stay in L2 while the weights stream through. */
static uint32_t block_rows(const struct cpu_matmul *p, uint32_t tile_rows)
{
    bool quantized = quant_find(p->matrix->file.type)->quantized;
    uint32_t row_bytes = p->matrix->file.cols * (quantized ? 1 : 4);
    uint32_t rows = BLOCK_BYTES / row_bytes < BLOCK_ROWS ? BLOCK_BYTES / row_bytes : BLOCK_ROWS;
    return rows < tile_rows ? tile_rows : rows / tile_rows * tile_rows;
}

static void fill_panels(const struct matmul_block *b, uint8_t *panels)
{
    size_t row_bytes = (size_t)b->p->matrix->file.cols / CPU_BLOCK * PANEL_BYTES;
    for (uint32_t r = b->row0; r < b->row1; r += b->tile_rows) {
        uint32_t rows = b->row1 - r < b->tile_rows ? b->row1 - r : b->tile_rows;
        panel_fill(b->p, r, rows, panels + (r - b->row0) * row_bytes);
    }
}

/* The rows of a block of floats, copied to x if they are not one after the other. */
static void find_rows(struct matmul_block *b, float *x)
{
    const struct cpu_matmul *p = b->p;
    const uint32_t cols = p->matrix->file.cols;
    b->x = p->gather ? x : p->x->f + (size_t)b->row0 * p->x->stride;
    b->stride = p->gather ? cols : p->x->stride;
    for (uint32_t r = b->row0; p->gather && r < b->row1; r++)
        memcpy(x + (size_t)(r - b->row0) * cols, p->x->f + (size_t)p->gather[r] * p->x->stride,
               cols * sizeof(float));
}

void SIMD(simd_matmul)(const struct cpu_matmul *p)
{
    const struct tile_set *set = tiles_of(p->matrix->file.type);
    uint8_t panels[BLOCK_BYTES / CPU_BLOCK * PANEL_BYTES] __attribute__((aligned(64)));
    bool quantized = !float_type(p->matrix->file.type);
    uint32_t n = p->row1 - p->row0, fit = BLOCK_BYTES / p->matrix->file.cols / (quantized ? 1 : 4);
    uint32_t most = (quantized || p->gather) && fit < set->max_rows ? fit : set->max_rows;
    uint32_t tiles = (n + most - 1) / most;
    struct matmul_block b = {
        .p = p, .set = set, .tile_rows = (n + tiles - 1) / tiles, .panels = panels};
    uint32_t rows = block_rows(p, b.tile_rows);
    for (b.row0 = p->row0; b.row0 < p->row1; b.row0 = b.row1) {
        b.row1 = p->row1 - b.row0 < rows ? p->row1 : b.row0 + rows;
        if (b.row1 - b.row0 < b.tile_rows) /* the groups of a tile depend on its rows */
            b.tile_rows = b.row1 - b.row0;
        if (quantized)
            fill_panels(&b, panels);
        else
            find_rows(&b, (float *)(void *)panels);
        run_rows(p, b);
    }
}
