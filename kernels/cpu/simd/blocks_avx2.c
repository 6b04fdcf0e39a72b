/* blocks_avx2.c: tiles of the quantized types with AVX2. vpmaddubsw multiplies unsigned by signed
 * bytes and adds pairs in int16: |w| <= 128 by |a| <= 127 (the sign of w moved to a) gives pairs of
 * at most 32,512, and eight pairs of raw nibbles at most 30,480, so nothing saturates and the
 * integer sum is exact. */
#include "kernels/cpu/simd/simd_tile.h"

ALWAYS_INLINE __m256i load_32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* isum [rows][vectors] of one block. Weights of all vectors, then row by row: eight sums, two words
 * of weights and one of inputs are in the 16 registers. */
ALWAYS_INLINE void block_q8_0(const struct tile *t, size_t block, __m256i *isum, int vectors,
                              int rows)
{
    const __m256i ones = _mm256_set1_epi16(1), flip = _mm256_set1_epi8(-128);
    UNROLL
    for (int i = 0; i < vectors * rows; i++)
        isum[i] = _mm256_setzero_si256();
    UNROLL
    for (int j = 0; j < 8; j++) {
        __m256i w[MAX_ACC];
        UNROLL
        for (int i = 0; i < vectors; i++)
            w[i] = _mm256_xor_si256(load_32(words_at(t, QUANT_Q8_0, block, i) + j * 64), flip);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const __m256i x = panel_word(panel_inputs(t->panel, block, rows, r) + 4 * j);
            UNROLL
            for (int i = 0; i < vectors; i++) {
                __m256i *sum = &isum[r * vectors + i];
                __m256i pairs =
                    _mm256_maddubs_epi16(_mm256_abs_epi8(w[i]), _mm256_sign_epi8(x, w[i]));
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                vi_hold(sum);
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
    UNROLL
    for (int j = 0; j < 8; j++) { /* low nibbles, then high ones, of 8 words */
        __m256i w[MAX_ACC];
        UNROLL
        for (int i = 0; i < vectors; i++) {
            w[i] = load_32(words_at(t, QUANT_Q4_0, block, i) + j / 2 * 64);
            w[i] = _mm256_and_si256(j % 2 ? _mm256_srli_epi16(w[i], 4) : w[i], nibble);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            const int8_t *a = panel_inputs(t->panel, block, rows, r) + j / 2 * 4 + j % 2 * 16;
            const __m256i x = panel_word(a);
            UNROLL
            for (int i = 0; i < vectors; i++) {
                __m256i *sum = &isum[r * vectors + i];
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(w[i], x));
                vi_hold(sum);
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

ALWAYS_INLINE void add_blocks(const struct tile *t, uint32_t type, struct factors *unused,
                              bool shared, vf *acc, int groups, int rows)
{
    (void)unused, (void)shared;
    const int vectors = groups * PARTS;
    for (size_t b = 0; b < t->n; b++) {
        __m256i isum[MAX_ACC];
        fetch_ahead(t, type, b, groups, rows);
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
