/* lanes.h: one 32-bit word of each of LANES_ROWS rows: 4 on any machine, 8 with AVX2, 16 with
 * AVX-512 (BW, DQ, VL). The includer defines which. The packing of weights is written over this. */
#ifndef HEARTH_KERNELS_CPU_SIMD_LANES_H
#define HEARTH_KERNELS_CPU_SIMD_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if LANES_ROWS > 4
#include <immintrin.h>
#endif

typedef uint32_t lanes __attribute__((vector_size(4 * LANES_ROWS)));

#define LANES_WORD(rows, i) lanes_word((rows) + (i)*stride + at)
static inline uint32_t lanes_word(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

#if LANES_ROWS == 16

/* 16 bytes of every fourth row, and how two of these are interleaved. */
static inline lanes lanes_rows(const uint8_t *rows, size_t stride)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)rows));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(rows + 4 * stride)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(rows + 8 * stride)), 2);
    return (lanes)_mm512_inserti32x4(x, _mm_loadu_si128((const void *)(rows + 12 * stride)), 3);
}

#define LANES_MIX(how, a, b) (lanes) _mm512_unpack##how((__m512i)(a), (__m512i)(b))

/* A non-temporal store of a whole line: it is not read again until everything is loaded. */
static inline void lanes_store(uint8_t *to, lanes w)
{
    if ((uintptr_t)to % sizeof(w) == 0)
        _mm512_stream_si512((void *)to, (__m512i)w);
    else
        memcpy(to, &w, sizeof(w));
}

/* Orders the non-temporal stores before later stores of this thread. */
static inline void lanes_done(void)
{
    _mm_sfence();
}

static inline lanes lanes_load(const uint8_t *rows, size_t stride, size_t at)
{
    return (lanes){
        LANES_WORD(rows, 0),  LANES_WORD(rows, 1),  LANES_WORD(rows, 2),  LANES_WORD(rows, 3),
        LANES_WORD(rows, 4),  LANES_WORD(rows, 5),  LANES_WORD(rows, 6),  LANES_WORD(rows, 7),
        LANES_WORD(rows, 8),  LANES_WORD(rows, 9),  LANES_WORD(rows, 10), LANES_WORD(rows, 11),
        LANES_WORD(rows, 12), LANES_WORD(rows, 13), LANES_WORD(rows, 14), LANES_WORD(rows, 15)};
}

#else

#if LANES_ROWS == 8

static inline lanes lanes_rows(const uint8_t *rows, size_t stride)
{
    __m256i x = _mm256_castsi128_si256(_mm_loadu_si128((const void *)rows));
    return (lanes)_mm256_inserti128_si256(x, _mm_loadu_si128((const void *)(rows + 4 * stride)), 1);
}

#define LANES_MIX(how, a, b) (lanes) _mm256_unpack##how((__m256i)(a), (__m256i)(b))

static inline lanes lanes_load(const uint8_t *rows, size_t stride, size_t at)
{
    return (lanes){LANES_WORD(rows, 0), LANES_WORD(rows, 1), LANES_WORD(rows, 2),
                   LANES_WORD(rows, 3), LANES_WORD(rows, 4), LANES_WORD(rows, 5),
                   LANES_WORD(rows, 6), LANES_WORD(rows, 7)};
}

#else

static inline lanes lanes_rows(const uint8_t *rows, size_t stride)
{
    (void)stride;
    lanes x;
    memcpy(&x, rows, sizeof(x));
    return x;
}

#define LANES_MIX(how, a, b) __builtin_shufflevector(a, b, LANES_##how)
#define LANES_lo_epi32 0, 4, 1, 5
#define LANES_hi_epi32 2, 6, 3, 7
#define LANES_lo_epi64 0, 1, 4, 5
#define LANES_hi_epi64 2, 3, 6, 7

static inline lanes lanes_load(const uint8_t *rows, size_t stride, size_t at)
{
    return (lanes){LANES_WORD(rows, 0), LANES_WORD(rows, 1), LANES_WORD(rows, 2),
                   LANES_WORD(rows, 3)};
}

#endif

static inline void lanes_store(uint8_t *to, lanes w)
{
    memcpy(to, &w, sizeof(w));
}

static inline void lanes_done(void)
{
}

#endif

/* w[j] = lanes_load(rows, stride, at + 4 * j), j = 0 .. 3: loads of four words and a transpose. */
static inline void lanes_load4(const uint8_t *rows, size_t stride, size_t at, lanes w[4])
{
    const lanes a = lanes_rows(rows + at, stride), b = lanes_rows(rows + stride + at, stride);
    const lanes c = lanes_rows(rows + 2 * stride + at, stride);
    const lanes d = lanes_rows(rows + 3 * stride + at, stride);
    const lanes ab01 = LANES_MIX(lo_epi32, a, b), ab23 = LANES_MIX(hi_epi32, a, b);
    const lanes cd01 = LANES_MIX(lo_epi32, c, d), cd23 = LANES_MIX(hi_epi32, c, d);
    w[0] = LANES_MIX(lo_epi64, ab01, cd01);
    w[1] = LANES_MIX(hi_epi64, ab01, cd01);
    w[2] = LANES_MIX(lo_epi64, ab23, cd23);
    w[3] = LANES_MIX(hi_epi64, ab23, cd23);
}

/* Stores the lower halves of the words at `to`, the upper halves 32 bytes further, where the next
 * sixteen rows begin. */
static inline void lanes_store_halves(uint8_t *to, lanes w)
{
    typedef uint16_t halves __attribute__((vector_size(2 * LANES_ROWS)));
    const halves even = __builtin_convertvector(w, halves);
    const halves odd = __builtin_convertvector(w >> 16, halves);
#if LANES_ROWS == 16
    lanes_store(to,
                (lanes)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)even), (__m256i)odd, 1));
#else
    memcpy(to, &even, sizeof(even));
    memcpy(to + 32, &odd, sizeof(odd));
#endif
}

/* Stores the lowest byte of each word. */
static inline void lanes_store_bytes(uint8_t *to, lanes w)
{
    typedef uint8_t bytes __attribute__((vector_size(LANES_ROWS)));
    const bytes low = __builtin_convertvector(w, bytes);
    memcpy(to, &low, sizeof(low));
}

#endif
