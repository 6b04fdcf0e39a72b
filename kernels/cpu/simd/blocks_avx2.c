/* blocks_avx2.c: tiles of the quantized types with AVX2. vpmaddubsw multiplies unsigned by signed
 * bytes and adds pairs in int16: |w| <= 128 by |a| <= 127 (the sign of w moved to a) gives pairs of
 * at most 32,512, and eight pairs of raw nibbles at most 30,480, so nothing saturates and the
 * integer sum is exact. */
#include "kernels/cpu/simd/simd_tile.h"

ALWAYS_INLINE __m256i load_32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* isum [rows][vectors] of one block. */
ALWAYS_INLINE void block_q8_0(const struct tile *t, size_t block, __m256i *isum, int vectors,
                              int rows)
{
    const __m256i ones = _mm256_set1_epi16(1), flip = _mm256_set1_epi8(-128);
    UNROLL
    for (int i = 0; i < vectors * rows; i++)
        isum[i] = _mm256_setzero_si256();
    for (int j = 0; j < 8; j++) {
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const uint8_t *at = words_at(t, QUANT_Q8_0, block, i);
            __m256i w = _mm256_xor_si256(load_32(at + j * 64), flip), size = _mm256_abs_epi8(w);
            UNROLL
            for (int r = 0; r < rows; r++) {
                const int8_t *x = panel_inputs(t->panel, block, rows, r) + 4 * j;
                __m256i a = _mm256_sign_epi8(panel_word(x), w);
                __m256i pairs = _mm256_madd_epi16(_mm256_maddubs_epi16(size, a), ones);
                isum[r * vectors + i] = _mm256_add_epi32(isum[r * vectors + i], pairs);
            }
        }
    }
}

ALWAYS_INLINE void block_q4_0(const struct tile *t, size_t block, __m256i *isum, int vectors,
                              int rows)
{
    const __m256i ones = _mm256_set1_epi16(1), nibble = _mm256_set1_epi8(15);
    UNROLL
    for (int i = 0; i < vectors * rows; i++)
        isum[i] = _mm256_setzero_si256(); /* int16 sums, widened at the end */
    for (int j = 0; j < 4; j++) {
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const uint8_t *at = words_at(t, QUANT_Q4_0, block, i);
            __m256i raw = load_32(at + j * 64), low = _mm256_and_si256(raw, nibble);
            __m256i high = _mm256_and_si256(_mm256_srli_epi16(raw, 4), nibble);
            UNROLL
            for (int r = 0; r < rows; r++) {
                const int8_t *a = panel_inputs(t->panel, block, rows, r) + 4 * j;
                __m256i s = _mm256_add_epi16(_mm256_maddubs_epi16(low, panel_word(a)),
                                             _mm256_maddubs_epi16(high, panel_word(a + 16)));
                isum[r * vectors + i] = _mm256_add_epi16(isum[r * vectors + i], s);
            }
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int i = 0; i < vectors; i++)
            isum[r * vectors + i] =
                _mm256_add_epi32(_mm256_madd_epi16(isum[r * vectors + i], ones),
                                 panel_word(panel_start(t->panel, block, rows, r)));
    }
}

ALWAYS_INLINE void add_blocks(const struct tile *t, uint32_t type, vf *acc, int groups, int rows)
{
    const int vectors = groups * PARTS;
    for (size_t b = 0; b < t->n; b++) {
        __m256i isum[MAX_ACC];
        fetch_ahead(t, b, groups, rows);
        if (type == QUANT_Q8_0)
            block_q8_0(t, b, isum, vectors, rows);
        else
            block_q4_0(t, b, isum, vectors, rows);
        block_end(t, b, isum, acc, vectors, rows);
    }
}

#define BLOCK_TILE(type, groups, rows) TILE(add_blocks, type, groups, rows)
TILE_SHAPES(BLOCK_TILE, Q8_0)
TILE_SHAPES(BLOCK_TILE, Q4_0)

const struct tile_set tiles_q8_0_avx2 = TILE_SET(Q8_0);
const struct tile_set tiles_q4_0_avx2 = TILE_SET(Q4_0);

#include "kernels/cpu/simd/simd_blocks.h"
