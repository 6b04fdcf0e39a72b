/* simd_blocks.h: tiles of the quantized types other than Q8_0 and Q4_0, over vec.h: integers of 4,
 * 5 and 6 bits (pack.h), minima, and two-level scales. Included by blocks_*.c.
 *
 * Integer sums are exact in any order, so they use the order that suits the instruction set; float
 * operations are those of NUMERICS.md, one by one, one lane per output.
 */
#include "kernels/cpu/simd/simd_tile.h"

enum { MAX_VECTORS = 4 * PARTS, SUBS = CPU_SEGMENT / CPU_BLOCK };

/* ---- integers -------------------------------------------------------------------------------- */

#if defined(__AVX512F__)
ALWAYS_INLINE vi vi_load(const uint8_t *p)
{
    return _mm512_loadu_si512((const void *)p);
}
ALWAYS_INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
ALWAYS_INLINE vi vi_or_and(vi a, vi b, vi mask) /* a | (b & mask) */
{
    return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}
ALWAYS_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
#else
ALWAYS_INLINE vi vi_load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
ALWAYS_INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}
ALWAYS_INLINE vi vi_or_and(vi a, vi b, vi mask)
{
    return _mm256_or_si256(a, _mm256_and_si256(b, mask));
}
ALWAYS_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
#endif

/* Shifts words left by `left` bits, right if negative. Bits cross byte borders: mask the result. */
typedef uint32_t vu __attribute__((vector_size(VEC * 4)));
ALWAYS_INLINE vi vi_shift(vi a, int left)
{
    return left >= 0 ? (vi)((vu)a << left) : (vi)((vu)a >> -left);
}

/* Four integers of pair j of a sub-block's words (pack.h): half 0 the first four, 1 the second. */
ALWAYS_INLINE vi load_four(uint32_t bits, const uint8_t *words, int j, int half)
{
    const uint8_t *nibbles = words + (bits > 4 ? 64 : 0) + j * 64;
    const vi four = vi_and(vi_shift(vi_load(nibbles), -4 * half), vi_set1(0x0f0f0f0f));
    if (bits == 5)
        return vi_or_and(four, vi_shift(vi_load(words), 4 - j - 4 * half), vi_set1(0x10101010));
    if (bits == 6)
        return vi_or_and(four, vi_shift(vi_load(words + half * 5 * 64), 4 - 2 * j),
                         vi_set1(0x30303030));
    return four;
}

/* Accumulates products of integers and activations in int32: vpdpbusd does so directly. Without it
 * vpmaddubsw adds pairs in int16: for six bits a pair is at most 127 * 2 * 63, so two of them stay
 * below 2^15; for five bits four do. */
struct dot {
#if defined(VEC_HAS_DOT)
    vi sum;
#else
    vi sum, narrow;
#endif
};

ALWAYS_INLINE void dot_begin(struct dot *dot, vi start)
{
    dot->sum = start;
#if !defined(VEC_HAS_DOT)
    dot->narrow = vi_zero();
#endif
}

ALWAYS_INLINE void dot_add(struct dot *dot, vi w, vi a)
{
#if defined(VEC_HAS_DOT)
    dot->sum = vi_dot(dot->sum, w, a);
#else
    dot->narrow = _mm256_add_epi16(dot->narrow, _mm256_maddubs_epi16(w, a));
#endif
}

/* Call after at most two products of six bits, four of five, eight of four, and at the end. */
ALWAYS_INLINE void dot_widen(struct dot *dot)
{
#if !defined(VEC_HAS_DOT)
    const vi ones = _mm256_set1_epi16(1);
    dot->sum = _mm256_add_epi32(dot->sum, _mm256_madd_epi16(dot->narrow, ones));
    dot->narrow = vi_zero();
#else
    (void)dot;
#endif
}

/* ---- factors -------------------------------------------------------------------------------- */

/* w = D * sc and m = Dmin * mn of a segment of Q4_K or Q5_K, for one vector: each lane has the
 * format's twelve bytes (quant_block.c, quant_scale_min) as three words. */
ALWAYS_INLINE void k_factors(const struct tile *t, int i, vf *w, vf *m)
{
    const vi u0 = vi_load(factors_at(t, 0, 4, i));
    const vi u1 = vi_load(factors_at(t, 64, 4, i));
    const vi u2 = vi_load(factors_at(t, 128, 4, i));
    const vf d = v_load_f16(factors_at(t, 192, 2, i));
    const vf dmin = v_load_f16(factors_at(t, 224, 2, i));
    const vi six = vi_set1(63), low = vi_set1(15), high = vi_set1(0x30);
    UNROLL
    for (int s = 0; s < 4; s++) {
        const vi sc = vi_and(vi_shift(u0, -8 * s), six), mn = vi_and(vi_shift(u1, -8 * s), six);
        w[s] = v_mul(d, vi_float(sc));
        m[s] = v_mul(dmin, vi_float(mn));
        const vi sc4 = vi_or_and(vi_and(vi_shift(u2, -8 * s), low), vi_shift(u0, -8 * s - 2), high);
        const vi mn4 =
            vi_or_and(vi_and(vi_shift(u2, -8 * s - 4), low), vi_shift(u1, -8 * s - 2), high);
        w[s + 4] = v_mul(d, vi_float(sc4));
        m[s + 4] = v_mul(dmin, vi_float(mn4));
    }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* isum [rows][vectors] of sub-block b, for types with one scale per sub-block. */
ALWAYS_INLINE void sums(const struct tile *t, uint32_t type, size_t b, struct dot *dot, int vectors,
                        int rows)
{
    const uint32_t bits = type == QUANT_Q4_K ? 4 : 5;
    UNROLL
    for (int r = 0; r < rows; r++) {
        const vi start =
            type == QUANT_Q5_0 ? panel_word(panel_start(t->panel, b, rows, r)) : vi_zero();
        UNROLL
        for (int i = 0; i < vectors; i++)
            dot_begin(&dot[r * vectors + i], start);
    }
    /* Loads the weights of all vectors first: then an input needs a register only briefly, and the
     * sums stay in theirs. */
    UNROLL
    for (int j = 0; j < 4; j++) {
        vi first[MAX_VECTORS], second[MAX_VECTORS];
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const uint8_t *words = words_at(t, type, b, i);
            first[i] = load_four(bits, words, j, 0);
            second[i] = load_four(bits, words, j, 1);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            const int8_t *a = panel_inputs(t->panel, b, rows, r) + 4 * j;
            const vi x = panel_word(a), y = panel_word(a + 16);
            UNROLL
            for (int i = 0; i < vectors; i++) {
                dot_add(&dot[r * vectors + i], first[i], x);
                dot_add(&dot[r * vectors + i], second[i], y);
                if (j == 3 || (bits == 5 && j == 1))
                    dot_widen(&dot[r * vectors + i]);
            }
        }
    }
}

ALWAYS_INLINE void add_scaled(const struct tile *t, uint32_t type, vf *acc, int groups, int rows)
{
    const int vectors = groups * PARTS;
    const bool k = type == QUANT_Q4_K || type == QUANT_Q5_K, minima = type != QUANT_Q5_0;
    vf kw[MAX_VECTORS][SUBS], km[MAX_VECTORS][SUBS];
    for (int i = 0; k && i < vectors; i++)
        k_factors(t, i, kw[i], km[i]);
    for (size_t b = 0; b < t->n; b++) {
        struct dot dot[MAX_ACC];
        fetch_ahead(t, b, groups, rows);
        sums(t, type, b, dot, vectors, rows);
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const size_t at = b * (minima ? 64 : 32);
            const vf w = k ? kw[i][b] : v_load_f16(factors_at(t, at, 2, i));
            const vf m = k        ? km[i][b]
                         : minima ? v_load_f16(factors_at(t, at + 32, 2, i))
                                  : v_zero();
            UNROLL
            for (int r = 0; r < rows; r++) {
                const vf d = panel_float(panel_scale(t->panel, b, rows, r));
                vf *a = &acc[r * vectors + i];
                *a = v_fma(vi_float(dot[r * vectors + i].sum), v_mul(w, d), *a);
                if (minima)
                    *a = v_fnma(panel_float(panel_start(t->panel, b, rows, r)), v_mul(m, d), *a);
            }
        }
    }
}

/* start [2][8]: minus 32 times the sums of a row's half sub-blocks, for a whole segment; Q6_K has
 * no other offset. Computed once per tile, so that a sub-block only loads them. */
ALWAYS_INLINE void half_starts(const struct tile *t, int rows, int r, int32_t (*start)[SUBS])
{
    const __m256i one = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
    UNROLL
    for (int b = 0; b < SUBS; b += 4) {
        __m256i s[4]; /* for each sub-block sums of four inputs, the two halves in the two halves */
        UNROLL
        for (int i = 0; i < 4; i++) {
            const void *q = panel_inputs(t->panel, (size_t)(b + i), rows, r);
            const __m256i x = _mm256_loadu_si256((const __m256i *)q);
            s[i] = _mm256_madd_epi16(_mm256_maddubs_epi16(one, x), ones);
        }
        const __m256i sums =
            _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
        const __m256i starts = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_setzero_si256(), sums), 5);
        _mm_storeu_si128((__m128i *)(void *)(start[0] + b), _mm256_castsi256_si128(starts));
        _mm_storeu_si128((__m128i *)(void *)(start[1] + b), _mm256_extracti128_si256(starts, 1));
    }
}

/* isum [rows][vectors] of half a sub-block. */
ALWAYS_INLINE void half_sums(const struct tile *t, size_t b, int half, struct dot *dot, int vectors,
                             int rows)
{
    UNROLL
    for (int j = 0; j < 4; j++) {
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const vi w = load_four(6, words_at(t, QUANT_Q6_K, b, i), j, half);
            UNROLL
            for (int r = 0; r < rows; r++) {
                const int8_t *a = panel_inputs(t->panel, b, rows, r) + 16 * half + 4 * j;
                dot_add(&dot[r * vectors + i], w, panel_word(a));
                if (j % 2 == 1)
                    dot_widen(&dot[r * vectors + i]);
            }
        }
    }
}

/* sc[0] * isum0 + sc[1] * isum1 is below 2^24 and so exact in float, too. Doing one half after the
 * other keeps the sums in registers. */
ALWAYS_INLINE void add_q6_k(const struct tile *t, uint32_t type, vf *acc, int groups, int rows)
{
    (void)type;
    const int vectors = groups * PARTS;
    vf scale[MAX_VECTORS];
    int32_t start[TILE_ROWS][2][SUBS];
    UNROLL
    for (int r = 0; r < rows; r++)
        half_starts(t, rows, r, start[r]);
    UNROLL
    for (int i = 0; i < vectors; i++)
        scale[i] = v_load_f16(factors_at(t, 256, 2, i));
    for (size_t b = 0; b < t->n; b++) {
        struct dot dot[2][MAX_ACC];
        vf isum[MAX_ACC];
        fetch_ahead(t, b, groups, rows);
        UNROLL
        for (int r = 0; r < rows; r++) {
            UNROLL
            for (int i = 0; i < vectors; i++)
                dot_begin(&dot[0][r * vectors + i], vi_set1(start[r][0][b]));
        }
        half_sums(t, b, 0, dot[0], vectors, rows);
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const vf sc = v_load_i8(factors_at(t, b * 32, 1, i));
            UNROLL
            for (int r = 0; r < rows; r++)
                isum[r * vectors + i] = v_mul(vi_float(dot[0][r * vectors + i].sum), sc);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            UNROLL
            for (int i = 0; i < vectors; i++)
                dot_begin(&dot[1][r * vectors + i], vi_set1(start[r][1][b]));
        }
        half_sums(t, b, 1, dot[1], vectors, rows);
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const vf sc = v_load_i8(factors_at(t, b * 32 + 16, 1, i));
            UNROLL
            for (int r = 0; r < rows; r++) {
                const int at = r * vectors + i;
                const vf d = v_mul(scale[i], panel_float(panel_scale(t->panel, b, rows, r)));
                acc[at] = v_fma(v_fma(vi_float(dot[1][at].sum), sc, isum[at]), d, acc[at]);
            }
        }
    }
}

#define SCALED_TILE(type, groups, rows) TILE(add_scaled, type, groups, rows)
#define Q6_K_TILE(type, groups, rows) TILE(add_q6_k, type, groups, rows)
TILE_SHAPES(SCALED_TILE, Q5_0)
TILE_SHAPES(SCALED_TILE, Q5_1)
TILE_SHAPES(SCALED_TILE, Q4_K)
TILE_SHAPES(SCALED_TILE, Q5_K)
TILE_SHAPES(Q6_K_TILE, Q6_K)

const struct tile_set SIMD(tiles_q5_0) = TILE_SET(Q5_0);
const struct tile_set SIMD(tiles_q5_1) = TILE_SET(Q5_1);
const struct tile_set SIMD(tiles_q4_k) = TILE_SET(Q4_K);
const struct tile_set SIMD(tiles_q5_k) = TILE_SET(Q5_K);
const struct tile_set SIMD(tiles_q6_k) = TILE_SET(Q6_K);
