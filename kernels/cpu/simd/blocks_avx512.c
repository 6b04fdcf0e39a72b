/* blocks_avx512.c: tiles of the quantized types with AVX-512 VNNI: one vpdpbusd takes 4 inputs of
 * 16 outputs. The weights are unsigned (q + 128, or the nibble q + 8); the accumulator starts at
 * minus the offset times the block's sum of activations, so the integer sum is exact. */
#include "kernels/cpu/simd/simd_tile.h"

ALWAYS_INLINE __m512i load_64(const uint8_t *p)
{
    return _mm512_loadu_si512((const void *)p);
}

/* isum [rows][groups] of one block of Q8_0. */
ALWAYS_INLINE void block_q8_0(const struct tile *t, size_t block, __m512i *isum, int groups,
                              int rows)
{
    UNROLL
    for (int j = 0; j < 8; j++) {
        UNROLL
        for (int g = 0; g < groups; g++) {
            __m512i w = load_64(words_at(t, QUANT_Q8_0, block, g) + j * 64);
            UNROLL
            for (int r = 0; r < rows; r++)
                isum[r * groups + g] =
                    _mm512_dpbusd_epi32(isum[r * groups + g], w,
                                        panel_word(panel_inputs(t->panel, block, rows, r) + 4 * j));
        }
    }
}

ALWAYS_INLINE void block_q4_0(const struct tile *t, size_t block, __m512i *isum, int groups,
                              int rows)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    UNROLL
    for (int j = 0; j < 4; j++) {
        /* loaded first, so that only two inputs compete with the sums for registers */
        __m512i low[4], high[4];
        UNROLL
        for (int g = 0; g < groups; g++) {
            __m512i raw = load_64(words_at(t, QUANT_Q4_0, block, g) + j * 64);
            low[g] = _mm512_and_si512(raw, nibble);
            high[g] = _mm512_and_si512(_mm512_srli_epi16(raw, 4), nibble);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            const int8_t *a = panel_inputs(t->panel, block, rows, r) + 4 * j;
            const __m512i first = panel_word(a), second = panel_word(a + 16);
            UNROLL
            for (int g = 0; g < groups; g++) {
                __m512i s = _mm512_dpbusd_epi32(isum[r * groups + g], low[g], first);
                isum[r * groups + g] = _mm512_dpbusd_epi32(s, high[g], second);
            }
        }
    }
}

ALWAYS_INLINE void add_blocks(const struct tile *t, uint32_t type, struct factors *unused,
                              bool shared, vf *acc, int groups, int rows)
{
    (void)unused, (void)shared;
    for (size_t b = 0; b < t->n; b++) {
        __m512i isum[MAX_ACC];
        fetch_ahead(t, type, b, groups, rows);
        block_begin(t, b, isum, groups, rows);
        if (type == QUANT_Q8_0)
            block_q8_0(t, b, isum, groups, rows);
        else
            block_q4_0(t, b, isum, groups, rows);
        block_end(t, b, isum, acc, groups, rows);
    }
}

#define BLOCK_TILE(type, groups, rows) TILE(add_blocks, type, groups, rows)
TILE_SHAPES(BLOCK_TILE, Q8_0)
TILE_SHAPES(BLOCK_TILE, Q4_0)

const struct tile_set tiles_q8_0_avx512 = TILE_SET(Q8_0);
const struct tile_set tiles_q4_0_avx512 = TILE_SET(Q4_0);

#include "kernels/cpu/simd/simd_blocks.h"
