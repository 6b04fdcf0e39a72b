/* simd_blocks.h: tiles of the quantized types other than Q8_0 and Q4_0, over vec.h: integers of 2 to
 * 6 bits (pack.h) or looked up (quant_grids.h), minima, and two-level scales. Included by blocks_*.c.
 *
 * Integer sums are exact in any order, so they use the order that suits the instruction set; float
 * operations are those of NUMERICS.md, one by one, one lane per output.
 */
#include "kernels/cpu/simd/simd_tile.h"

/* Of how many halves of a pair of integers the weights are in registers at once: AVX2 has 16, and a
 * product takes one. */
#if defined(VEC_HAS_DOT)
enum { HALVES = 2 };
#else
enum { HALVES = 1 };
#endif

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
ALWAYS_INLINE vi vi_min(vi a, vi b)
{
    return _mm512_min_epi32(a, b);
}
ALWAYS_INLINE vf v_cast(vi bits)
{
    return _mm512_castsi512_ps(bits);
}
ALWAYS_INLINE vi vi_repeat(__m128i x)
{
    return _mm512_broadcast_i32x4(x);
}
ALWAYS_INLINE vi vi_look_up(vi table, vi nibbles) /* in every 16 bytes */
{
    return _mm512_shuffle_epi8(table, nibbles);
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
ALWAYS_INLINE vi vi_min(vi a, vi b)
{
    return _mm256_min_epi32(a, b);
}
ALWAYS_INLINE vf v_cast(vi bits)
{
    return _mm256_castsi256_ps(bits);
}
ALWAYS_INLINE vi vi_repeat(__m128i x)
{
    return _mm256_broadcastsi128_si256(x);
}
ALWAYS_INLINE vi vi_look_up(vi table, vi nibbles)
{
    return _mm256_shuffle_epi8(table, nibbles);
}
#endif

/* Shifts words left by `left` bits, right if negative. Bits cross byte borders: mask the result. */
typedef uint32_t vu __attribute__((vector_size(VEC * 4)));
ALWAYS_INLINE vi vi_shift(vi a, int left)
{
    return left >= 0 ? (vi)((vu)a << left) : (vi)((vu)a >> -left);
}

/* Four integers of pair j of a sub-block's words (pack.h): half 0 the first four, 1 the second. */
ALWAYS_INLINE vi load_four(uint32_t type, const uint8_t *words, int j, int half)
{
    const uint32_t bits = pack_words(type);
    if (bits < 4) {
        const uint8_t *twos = words + (bits == 3 ? 64 : 0) + half * 64;
        const vi four = vi_and(vi_shift(vi_load(twos), -2 * j), vi_set1(0x03030303));
        return bits == 2 ? four
                         : vi_or_and(four, vi_shift(vi_load(words), 2 - j - 4 * half),
                                     vi_set1(0x04040404));
    }
    const uint8_t *nibbles = words + (bits > 4 ? 64 : 0) + j * 64;
    const vi four = vi_and(vi_shift(vi_load(nibbles), -4 * half), vi_set1(0x0f0f0f0f));
    if (bits == 5)
        return vi_or_and(four, vi_shift(vi_load(words), 4 - j - 4 * half), vi_set1(0x10101010));
    if (bits == 6)
        return vi_or_and(four, vi_shift(vi_load(words + half * 5 * 64), 4 - 2 * j),
                         vi_set1(0x30303030));
    return four;
}

/* The table of a type that has one, as it is multiplied. */
ALWAYS_INLINE vi load_table(uint32_t type)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)(const void *)quant_table(type));
    return vi_repeat(_mm_add_epi8(table, _mm_set1_epi8((char)panel_offset(type))));
}

/* Accumulates products of integers and activations in int32: vpdpbusd does so directly. Without it
 * vpmaddubsw adds pairs in int16, and dot_most of them stay below 2^15. Of integers
 * of either sign it takes the magnitude, the activation gets the sign. */
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

ALWAYS_INLINE void dot_add(uint32_t type, struct dot *dot, vi w, vi a)
{
#if defined(VEC_HAS_DOT)
    (void)type;
    dot->sum = vi_dot(dot->sum, w, a);
#else
    const bool negative = quant_table(type) && !panel_offset(type);
    dot->narrow =
        _mm256_add_epi16(dot->narrow, _mm256_maddubs_epi16(negative ? _mm256_abs_epi8(w) : w,
                                                           negative ? _mm256_sign_epi8(a, w) : a));
    vi_hold(&dot->narrow);
#endif
}

/* The most products between calls of dot_widen, by the largest integer: a pair is at most 2 * 127
 * times that, and eight products make a sub-block. */
ALWAYS_INLINE int dot_most(uint32_t type)
{
    switch (type) {
    case QUANT_IQ4_NL: /* 127 */
    case QUANT_IQ4_XS:
    case QUANT_IQ3_XXS: /* 62 + 62 */
        return 1;
    case QUANT_Q6_K: /* 63 */
        return 2;
    case QUANT_Q5_0: /* 31 */
    case QUANT_Q5_1:
    case QUANT_Q5_K:
    case QUANT_IQ3_S: /* 15 + 15 */
    case QUANT_MXFP4: /* 12 + 12 */
        return 4;
    default: /* 15 */
        return 8;
    }
}

/* Call after dot_most products, and at the end. */
ALWAYS_INLINE void dot_widen(struct dot *dot)
{
#if !defined(VEC_HAS_DOT)
    const vi ones = _mm256_set1_epi16(1);
    dot->sum = _mm256_add_epi32(dot->sum, _mm256_madd_epi16(dot->narrow, ones));
    dot->narrow = vi_zero();
    vi_hold(&dot->sum);
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

/* w and m of a segment's n sub-blocks of Q4_1 or Q5_1, read before its integers: read beside them,
 * they would be a second stream among the lines of the first. */
ALWAYS_INLINE void half_factors(const struct tile *t, int i, vf *w, vf *m)
{
    for (size_t s = 0; s < t->n; s++) {
        w[s] = v_load_f16(factors_at(t, s * 64, 2, i));
        m[s] = v_load_f16(factors_at(t, s * 64 + 32, 2, i));
    }
}

/* w = D * sc of a segment of the types with byte scales. */
ALWAYS_INLINE void byte_factors(const struct tile *t, uint32_t type, int i, vf *w)
{
    const vf d =
        v_mul(v_load_f16(factors_at(t, 128, 2, i)), v_set1(type == QUANT_IQ3_XXS ? 0.25f : 1.0f));
    UNROLL
    for (size_t s = 0; s < SUBS; s++)
        w[s] = v_mul(d, v_load_i8(factors_at(t, s * 16, 1, i)));
}

/* w of MXFP4: 2^(e - 128), e a byte: for 0 and 1 a denormal. */
ALWAYS_INLINE vf load_e8m0(const uint8_t *p)
{
    const vi e = vi_load_u8(p);
    const vu small = (vu)vi_set1(0x00200000) << (vu)vi_min(e, vi_set1(2));
    const vu normal = ((vu)vi_max(e, vi_set1(1)) - 1u) << 23;
    return v_cast(vi_max((vi)normal, (vi)small));
}

/* Whether a sub-block's scale is a byte beside D (repack.h). */
ALWAYS_INLINE bool byte_scaled(uint32_t type)
{
    return type == QUANT_IQ4_XS || type == QUANT_IQ3_XXS || type == QUANT_IQ3_S;
}

ALWAYS_INLINE bool has_minima(uint32_t type)
{
    return type == QUANT_Q4_1 || type == QUANT_Q5_1 || type == QUANT_Q4_K || type == QUANT_Q5_K;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Four integers of vector i, looked up where the type has a table. */
ALWAYS_INLINE vi find_four(const struct tile *t, uint32_t type, size_t b, int j, int half, int i)
{
    const vi four = load_four(type, words_at(t, type, b, i), j, half);
    return quant_table(type) ? vi_look_up(load_table(type), four) : four;
}

/* Where vector 0 of these four is among those that tiles share. */
ALWAYS_INLINE size_t four_at(size_t b, int j, int half, int vectors)
{
    return ((b * 4 + (size_t)j) * 2 + (size_t)half) * (size_t)vectors;
}

ALWAYS_INLINE void unpack_fours(const struct tile *t, uint32_t type, vi *fours, int vectors)
{
    for (size_t b = 0; b < t->n; b++) {
        UNROLL
        for (int j = 0; j < 4; j++) {
            UNROLL
            for (int half = 0; half < 2; half++) {
                UNROLL
                for (int i = 0; i < vectors; i++)
                    fours[four_at(b, j, half, vectors) + (size_t)i] =
                        find_four(t, type, b, j, half, i);
            }
        }
    }
}

/* The integers that the tiles of a run share, unpacked by the first one; NULL if a tile reads them
 * packed. Then the lines of a later segment are asked for at once: a branch in each sub-block costs
 * more than a burst. */
ALWAYS_INLINE const vi *share_fours(const struct tile *t, uint32_t type, bool shared,
                                    struct factors *factors, int groups, int rows)
{
    if (!shared)
        return NULL;
    for (size_t b = 0; b < t->n; b++)
        fetch_ahead(t, type, b, groups, rows);
    if (factors->of != t->w)
        unpack_fours(t, type, factors->fours, groups * PARTS);
    return factors->fours;
}

/* Adds products of four integers each, of `halves` of pair j of sub-block b. Loads the weights of all
 * vectors first: then an input needs a register only briefly, and the sums stay in theirs. */
ALWAYS_INLINE void add_four(const struct tile *t, uint32_t type, const vi *fours, size_t b, int j,
                            int half, int halves, struct dot *dot, int vectors, int rows)
{
    const int most = dot_most(type);
    vi w[2][MAX_VECTORS];
    UNROLL
    for (int i = 0; i < vectors; i++) {
        UNROLL
        for (int h = 0; h < halves; h++)
            w[h][i] = fours ? fours[four_at(b, j, half + h, vectors) + (size_t)i]
                            : find_four(t, type, b, j, half + h, i);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const int8_t *a = panel_inputs(t->panel, b, rows, r) + 4 * j;
        UNROLL
        for (int h = half; h < half + halves; h++) {
            const vi x = panel_word(a + 16 * h);
            UNROLL
            for (int i = 0; i < vectors; i++) {
                dot_add(type, &dot[r * vectors + i], w[h - half][i], x);
                if ((2 * j + h + 1) % most == 0)
                    dot_widen(&dot[r * vectors + i]);
            }
        }
    }
}

/* isum [rows][vectors] of sub-block b, for types with one scale per sub-block. */
ALWAYS_INLINE void sums(const struct tile *t, uint32_t type, const vi *fours, size_t b,
                        struct dot *dot, int vectors, int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const vi start =
            panel_offset(type) ? panel_word(panel_start(t->panel, b, rows, r)) : vi_zero();
        UNROLL
        for (int i = 0; i < vectors; i++)
            dot_begin(&dot[r * vectors + i], start);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        UNROLL
        for (int half = 0; half < 2; half += HALVES)
            add_four(t, type, fours, b, j, half, HALVES, dot, vectors, rows);
    }
}

ALWAYS_INLINE void segment_factors(const struct tile *t, uint32_t type, struct factors *factors,
                                   int vectors)
{
    for (int i = 0; i < vectors; i++) {
        if (type == QUANT_Q4_K || type == QUANT_Q5_K)
            k_factors(t, i, factors->w[i], factors->m[i]);
        else if (has_minima(type))
            half_factors(t, i, factors->w[i], factors->m[i]);
        else if (byte_scaled(type))
            byte_factors(t, type, i, factors->w[i]);
    }
}

ALWAYS_INLINE void add_scaled(const struct tile *t, uint32_t type, struct factors *factors,
                              bool shared, vf *acc, int groups, int rows)
{
    const int vectors = groups * PARTS;
    const bool minima = has_minima(type);
    const vi *fours = share_fours(t, type, shared, factors, groups, rows);
    if (factors->of != t->w)
        segment_factors(t, type, factors, vectors);
    factors->of = t->w;
    for (size_t b = 0; b < t->n; b++) {
        struct dot dot[MAX_ACC];
        if (!fours)
            fetch_ahead(t, type, b, groups, rows);
        sums(t, type, fours, b, dot, vectors, rows);
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const vf w = minima || byte_scaled(type) ? factors->w[i][b]
                         : type == QUANT_MXFP4       ? load_e8m0(factors_at(t, b * 16, 1, i))
                                                     : v_load_f16(factors_at(t, b * 32, 2, i));
            const vf m = minima ? factors->m[i][b] : v_zero();
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

/* What a sum of half a sub-block's activations is multiplied by: minus the offset of the integers,
 * with which the integer sum then starts, or 1 where it has minima to multiply. */
ALWAYS_INLINE int32_t half_factor(uint32_t type)
{
    return type == QUANT_Q6_K ? -32 : type == QUANT_Q3_K ? -4 : 1;
}

/* start [2][8]: the sums of a row's half sub-blocks times half_factor, for a whole segment. Computed
 * once per tile, so that a sub-block only loads them. */
ALWAYS_INLINE void half_starts(const struct tile *t, uint32_t type, int rows, int r,
                               int32_t (*start)[SUBS])
{
    const __m256i one = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
    const __m256i factor = _mm256_set1_epi32(half_factor(type));
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
        const __m256i starts = _mm256_mullo_epi32(sums, factor);
        _mm_storeu_si128((__m128i *)(void *)(start[0] + b), _mm256_castsi256_si128(starts));
        _mm_storeu_si128((__m128i *)(void *)(start[1] + b), _mm256_extracti128_si256(starts, 1));
    }
}

/* isum [rows][vectors] of half a sub-block. */
ALWAYS_INLINE void half_sums(const struct tile *t, uint32_t type, const vi *fours, size_t b,
                             int half, struct dot *dot, int vectors, int rows)
{
    UNROLL
    for (int j = 0; j < 4; j++) {
        vi w[MAX_VECTORS];
        UNROLL
        for (int i = 0; i < vectors; i++)
            w[i] = fours ? fours[four_at(b, j, half, vectors) + (size_t)i]
                         : find_four(t, type, b, j, half, i);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vi x = panel_word(panel_inputs(t->panel, b, rows, r) + 16 * half + 4 * j);
            UNROLL
            for (int i = 0; i < vectors; i++) {
                dot_add(type, &dot[r * vectors + i], w[i], x);
                if ((j + 1) % dot_most(type) == 0 || j == 3)
                    dot_widen(&dot[r * vectors + i]);
            }
        }
    }
}

/* The scales of half h of sub-block b; of Q2_K they share bytes with the minima. */
ALWAYS_INLINE vf half_scale(const struct tile *t, uint32_t type, size_t b, size_t h, int i)
{
    const uint8_t *at = factors_at(t, b * 32 + h * 16, 1, i);
    return type == QUANT_Q2_K ? vi_float(vi_and(vi_load_u8(at), vi_set1(15))) : v_load_i8(at);
}

ALWAYS_INLINE vf half_min(const struct tile *t, size_t b, size_t h, int i)
{
    return vi_float(vi_shift(vi_load_u8(factors_at(t, b * 32 + h * 16, 1, i)), -4));
}

/* Begins the sums of half h of sub-block b. */
ALWAYS_INLINE void half_begin(uint32_t type, int32_t (*const start)[2][SUBS], size_t b, int h,
                              struct dot *dot, int vectors, int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const vi from = type == QUANT_Q2_K ? vi_zero() : vi_set1(start[r][h][b]);
        UNROLL
        for (int i = 0; i < vectors; i++)
            dot_begin(&dot[r * vectors + i], from);
    }
}

/* Types with two scales a sub-block. sc[0] * isum0 + sc[1] * isum1 is below 2^24 and so exact in
 * float, too; as is the sum of activations with minima. Doing one half after the other keeps the
 * sums in registers. */
ALWAYS_INLINE void add_halves(const struct tile *t, uint32_t type, struct factors *factors,
                              bool shared, vf *acc, int groups, int rows)
{
    const int vectors = groups * PARTS;
    vf scale[MAX_VECTORS], dmin[MAX_VECTORS];
    int32_t start[TILE_ROWS][2][SUBS];
    const vi *fours = share_fours(t, type, shared, factors, groups, rows);
    factors->of = t->w;
    UNROLL
    for (int r = 0; r < rows; r++)
        half_starts(t, type, rows, r, start[r]);
    UNROLL
    for (int i = 0; i < vectors; i++) {
        scale[i] = v_load_f16(factors_at(t, 256, 2, i));
        dmin[i] = type == QUANT_Q2_K ? v_load_f16(factors_at(t, 288, 2, i)) : v_zero();
    }
    for (size_t b = 0; b < t->n; b++) {
        struct dot dot[2][MAX_ACC];
        vf isum[MAX_ACC];
        if (!fours)
            fetch_ahead(t, type, b, groups, rows);
        half_begin(type, start, b, 0, dot[0], vectors, rows);
        half_sums(t, type, fours, b, 0, dot[0], vectors, rows);
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const vf sc = half_scale(t, type, b, 0, i);
            UNROLL
            for (int r = 0; r < rows; r++)
                isum[r * vectors + i] = v_mul(vi_float(dot[0][r * vectors + i].sum), sc);
        }
        half_begin(type, start, b, 1, dot[1], vectors, rows);
        half_sums(t, type, fours, b, 1, dot[1], vectors, rows);
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const vf sc = half_scale(t, type, b, 1, i);
            UNROLL
            for (int r = 0; r < rows; r++) {
                const int at = r * vectors + i;
                const vf d = panel_float(panel_scale(t->panel, b, rows, r));
                acc[at] = v_fma(v_fma(vi_float(dot[1][at].sum), sc, isum[at]), v_mul(scale[i], d),
                                acc[at]);
                if (type != QUANT_Q2_K)
                    continue;
                const vf first = v_set1((float)start[r][0][b]),
                         second = v_set1((float)start[r][1][b]);
                const vf asum =
                    v_fma(half_min(t, b, 1, i), second, v_mul(half_min(t, b, 0, i), first));
                acc[at] = v_fnma(asum, v_mul(dmin[i], d), acc[at]);
            }
        }
    }
}

#define SCALED_TILE(type, groups, rows) TILE(add_scaled, type, groups, rows)
#define HALVES_TILE(type, groups, rows) TILE(add_halves, type, groups, rows)
TILE_SHAPES(SCALED_TILE, Q4_1)
TILE_SHAPES(SCALED_TILE, Q5_0)
TILE_SHAPES(SCALED_TILE, Q5_1)
TILE_SHAPES(SCALED_TILE, Q4_K)
TILE_SHAPES(SCALED_TILE, Q5_K)
TILE_SHAPES(SCALED_TILE, MXFP4)
TILE_SHAPES(SCALED_TILE, IQ4_NL)
TILE_SHAPES(SCALED_TILE, IQ4_XS)
TILE_SHAPES(SCALED_TILE, IQ3_XXS)
TILE_SHAPES(SCALED_TILE, IQ3_S)
TILE_SHAPES(HALVES_TILE, Q2_K)
TILE_SHAPES(HALVES_TILE, Q3_K)
TILE_SHAPES(HALVES_TILE, Q6_K)

const struct tile_set SIMD(tiles_q4_1) = TILE_SET(Q4_1);
const struct tile_set SIMD(tiles_q5_0) = TILE_SET(Q5_0);
const struct tile_set SIMD(tiles_q5_1) = TILE_SET(Q5_1);
const struct tile_set SIMD(tiles_q4_k) = TILE_SET(Q4_K);
const struct tile_set SIMD(tiles_q5_k) = TILE_SET(Q5_K);
const struct tile_set SIMD(tiles_mxfp4) = TILE_SET(MXFP4);
const struct tile_set SIMD(tiles_iq4_nl) = TILE_SET(IQ4_NL);
const struct tile_set SIMD(tiles_iq4_xs) = TILE_SET(IQ4_XS);
const struct tile_set SIMD(tiles_iq3_xxs) = TILE_SET(IQ3_XXS);
const struct tile_set SIMD(tiles_iq3_s) = TILE_SET(IQ3_S);
const struct tile_set SIMD(tiles_q2_k) = TILE_SET(Q2_K);
const struct tile_set SIMD(tiles_q3_k) = TILE_SET(Q3_K);
const struct tile_set SIMD(tiles_q6_k) = TILE_SET(Q6_K);
