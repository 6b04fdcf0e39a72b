/* blocks_avxvnni.c: tiles of the quantized types with AVX-VNNI: the integer sums of AVX-512
 * (blocks_avx512.c) in registers of half the size, and half as many of them. vpdpbusd adds four
 * products of unsigned by signed bytes to int32 and does not saturate; the weights are q + 128 or
 * the nibble q + 8, the accumulator starts at minus the offset times the block's sum of
 * activations, so the integer sum is exact. */
#include "kernels/cpu/simd/simd_tile.h"

ALWAYS_INLINE __m256i load_32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* The bytes of Q8_0; for Q4_0 the low or the high nibbles. */
ALWAYS_INLINE __m256i weights(const uint8_t *words, uint32_t type, int high)
{
    const __m256i raw = load_32(words);
    if (type == QUANT_Q8_0)
        return raw;
    return _mm256_and_si256(high ? _mm256_srli_epi16(raw, 4) : raw, _mm256_set1_epi8(15));
}

/* Adds to isum [rows][vectors], for its first n vectors, the products of w [n] and four inputs of
 * each row, starting at input i of the block. */
ALWAYS_INLINE void dot_rows(const struct tile *t, size_t block, int i, const __m256i *w, int n,
                            __m256i *isum, int vectors, int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const __m256i a = panel_word(panel_inputs(t->panel, block, rows, r) + i);
        UNROLL
        for (int v = 0; v < n; v++)
            isum[r * vectors + v] = _mm256_dpbusd_avx_epi32(isum[r * vectors + v], w[v], a);
    }
}

/* isum [rows][vectors] of one block. The sums leave few registers free: all vectors are multiplied
 * by one row after another, or, if there are fewer rows than vectors, one vector by all rows. */
ALWAYS_INLINE void block_sums(const struct tile *t, uint32_t type, size_t block, __m256i *isum,
                              int vectors, int rows)
{
    const int halves = type == QUANT_Q4_0 ? 2 : 1, words = 8 / halves;
    const int step = vectors > rows ? 1 : vectors, steps = vectors / step * halves;
    UNROLL
    for (int j = 0; j < words; j++) {
        UNROLL
        for (int n = 0; n < steps; n++) {
            const int first = n / halves * step, half = n % halves;
            __m256i w[MAX_ACC];
            UNROLL
            for (int i = 0; i < step; i++)
                w[i] = weights(words_at(t, type, block, first + i) + j * 64, type, half);
            dot_rows(t, block, 4 * j + 16 * half, w, step, isum + first, vectors, rows);
        }
    }
}

ALWAYS_INLINE void add_blocks(const struct tile *t, uint32_t type, struct factors *unused,
                              bool shared, vf *acc, int groups, int rows)
{
    (void)unused, (void)shared;
    const int vectors = groups * PARTS;
    for (size_t b = 0; b < t->n; b++) {
        __m256i isum[MAX_ACC];
        fetch_ahead(t, type, b, groups, rows);
        block_begin(t, b, isum, vectors, rows);
        block_sums(t, type, b, isum, vectors, rows);
        block_end(t, b, isum, acc, vectors, rows);
    }
}

/* AVX2's shapes, and some with more rows: only the sums, the weights and one input must fit in
 * registers. */
#define WIDE_SHAPES(shape, type)                                                                   \
    TILE_SHAPES(shape, type) shape(type, 1, 5) shape(type, 1, 6) shape(type, 2, 3)
#define WIDE_SET(type)                                                                             \
    {                                                                                              \
        .max_rows = 6, .groups = {1, 1, 1, 0, 0, 0},                                               \
        .run = {{type##_1x1, type##_1x2, type##_1x3, type##_1x4, type##_1x5, type##_1x6},          \
                {type##_2x1, type##_2x2, type##_2x3}},                                             \
    }
#define BLOCK_TILE(type, groups, rows) TILE(add_blocks, type, groups, rows)
WIDE_SHAPES(BLOCK_TILE, Q8_0)
WIDE_SHAPES(BLOCK_TILE, Q4_0)

const struct tile_set tiles_q8_0_avxvnni = WIDE_SET(Q8_0);
const struct tile_set tiles_q4_0_avxvnni = WIDE_SET(Q4_0);

#include "kernels/cpu/simd/simd_blocks.h"
