/* pack.c: packs a group of 16 rows of the file into the layout of repack.h. Rows are read in
 * parallel, memory is written sequentially. Written over lanes.h and compiled once per number of
 * rows that an instruction set handles at a time; the bytes are the same for all. The Makefile
 * defines LANES_ROWS and the function's name, PACK_GROUP (VARIANTS_pack.c). */
#include "kernels/cpu/simd/lanes.h"
#include "kernels/cpu/repack.h"
#include "kernels/quant/quant_block.h"

#include <assert.h>
#include <string.h>

enum { SEGMENT_BLOCKS = CPU_SEGMENT / CPU_BLOCK };

/* ---- integers of quantized types ------------------------------------------------------------- */

/* The low nibble of each byte of a word. */
#define NIBBLES 0x0f0f0f0fu
#define ONES 0x01010101u
#define TWOS 0x03030303u

/* Words are stored WORD bytes apart, because sixteen rows are interleaved. */
enum { WORD = 4 * CPU_LANES };

static inline void store_words(uint8_t *to, lanes a, lanes b, lanes c, lanes d)
{
    lanes_store(to, a);
    lanes_store(to + WORD, b);
    lanes_store(to + 2 * WORD, c);
    lanes_store(to + 3 * WORD, d);
}

/* Copies 16 bytes. */
static inline void pack_bytes(const uint8_t *blocks, size_t stride, size_t at, uint8_t *to)
{
    const uint32_t sign = 0x80808080u;
    lanes w[4];
    lanes_load4(blocks, stride, at, w);
    store_words(to, w[0] ^ sign, w[1] ^ sign, w[2] ^ sign, w[3] ^ sign);
}

/* Blocks of 32 have this order of nibbles already. */
static inline void copy_nibbles(const uint8_t *blocks, size_t stride, size_t at, uint8_t *to)
{
    lanes w[4];
    lanes_load4(blocks, stride, at, w);
    store_words(to, w[0], w[1], w[2], w[3]);
}

static inline lanes two_nibbles(lanes first, lanes second, uint32_t shift)
{
    return (first >> shift & NIBBLES) | (second >> shift & NIBBLES) << 4;
}

/* Takes from each of 32 bytes its low nibble for one sub-block, and the high one for another, whose
 * words are at `high`. */
static inline void split_nibbles(const uint8_t *blocks, size_t stride, size_t at, uint8_t *low,
                                 uint8_t *high)
{
    lanes a[4], b[4];
    lanes_load4(blocks, stride, at, a);
    lanes_load4(blocks, stride, at + 16, b);
    store_words(low, two_nibbles(a[0], b[0], 0), two_nibbles(a[1], b[1], 0),
                two_nibbles(a[2], b[2], 0), two_nibbles(a[3], b[3], 0));
    store_words(high, two_nibbles(a[0], b[0], 4), two_nibbles(a[1], b[1], 4),
                two_nibbles(a[2], b[2], 4), two_nibbles(a[3], b[3], 4));
}

/* Bits c, 4 + c, 8 + c .. 28 + c of x, as a byte. */
static inline lanes every_fourth(lanes x, uint32_t c)
{
    x = x >> c & 0x11111111u;
    x = (x | x >> 3) & 0x03030303u;
    x = (x | x >> 6) & 0x000f000fu;
    return (x | x >> 12) & 0xffu;
}

static inline void pack_fifths(const uint8_t *blocks, size_t stride, size_t at, uint8_t *to)
{
    const lanes bits = lanes_load(blocks, stride, at);
    lanes word = {0};
    for (uint32_t c = 0; c < 4; c++)
        word |= every_fourth(bits, c) << 8 * c;
    lanes_store(to, word);
}

static inline lanes bits_of(const lanes w[4], uint32_t bit)
{
    return (w[0] >> bit & ONES) | (w[1] >> bit & ONES) << 1 | (w[2] >> bit & ONES) << 2 |
           (w[3] >> bit & ONES) << 3;
}

/* Collects bit i of each of 32 bytes for sub-block i, whose word is i * to_next bytes further. */
static inline void split_bits(const uint8_t *blocks, size_t stride, size_t at, uint8_t *to,
                              size_t to_next)
{
    lanes a[4], b[4];
    lanes_load4(blocks, stride, at, a);
    lanes_load4(blocks, stride, at + 16, b);
    for (uint32_t i = 0; i < 8; i++, to += to_next)
        lanes_store(to, bits_of(a, i) | bits_of(b, i) << 4);
}

/* Collects bits 2i and 2i + 1 of each of 16 bytes for sub-block i of four, whose word is
 * i * to_next bytes further. */
static inline void split_twos(const uint8_t *blocks, size_t stride, size_t at, uint8_t *to,
                              size_t to_next)
{
    lanes w[4];
    lanes_load4(blocks, stride, at, w);
    for (uint32_t i = 0; i < 8; i += 2, to += to_next)
        lanes_store(to, (w[0] >> i & TWOS) | (w[1] >> i & TWOS) << 2 | (w[2] >> i & TWOS) << 4 |
                            (w[3] >> i & TWOS) << 6);
}

/* Looks up the points of the IQ3 types, row by row. */
static inline void pack_points(uint32_t type, const uint8_t *blocks, size_t stride, uint32_t sub,
                               uint8_t *to)
{
    for (size_t lane = 0; lane < LANES_ROWS; lane++) {
        uint8_t n[QUANT_SUB];
        quant_sub_nibbles(type, blocks + lane * stride, (int)sub, n);
        for (size_t j = 0; j < 4; j++) {
            uint32_t first, second;
            memcpy(&first, n + 4 * j, sizeof(first));
            memcpy(&second, n + 16 + 4 * j, sizeof(second));
            first |= second << 4;
            memcpy(to + j * WORD + 4 * lane, &first, sizeof(first));
        }
    }
}

/* Packs the file's block of 256, or of 32, for LANES_ROWS rows. Layouts: kernels/quant/quant_block.c. */
static inline void pack_some(uint32_t type, const uint8_t *blocks, size_t stride, uint8_t *to)
{
    const size_t next = repack_integers(type);
    switch (type) {
    case QUANT_Q8_0:
        pack_bytes(blocks, stride, 2, to);
        pack_bytes(blocks, stride, 18, to + 4 * WORD);
        return;
    case QUANT_Q4_0:
    case QUANT_IQ4_NL:
        copy_nibbles(blocks, stride, 2, to);
        return;
    case QUANT_Q4_1:
        copy_nibbles(blocks, stride, 4, to);
        return;
    case QUANT_MXFP4:
        copy_nibbles(blocks, stride, 1, to);
        return;
    case QUANT_IQ4_XS:
        for (size_t sub = 0; sub < 8; sub++)
            copy_nibbles(blocks, stride, 8 + 16 * sub, to + sub * next);
        return;
    case QUANT_IQ3_XXS:
    case QUANT_IQ3_S:
        for (uint32_t sub = 0; sub < 8; sub++)
            pack_points(type, blocks, stride, sub, to + sub * next);
        return;
    case QUANT_Q5_0:
        pack_fifths(blocks, stride, 2, to);
        copy_nibbles(blocks, stride, 6, to + WORD);
        return;
    case QUANT_Q5_1:
        pack_fifths(blocks, stride, 4, to);
        copy_nibbles(blocks, stride, 8, to + WORD);
        return;
    case QUANT_Q2_K:
        for (size_t half = 0; half < 2; half++, to += 4 * next) {
            split_twos(blocks, stride, 16 + 32 * half, to, next);
            split_twos(blocks, stride, 32 + 32 * half, to + WORD, next);
        }
        return;
    case QUANT_Q3_K:
        split_bits(blocks, stride, 0, to, next);
        for (size_t half = 0; half < 2; half++, to += 4 * next) {
            split_twos(blocks, stride, 32 + 32 * half, to + WORD, next);
            split_twos(blocks, stride, 48 + 32 * half, to + 2 * WORD, next);
        }
        return;
    case QUANT_Q4_K:
        for (size_t pair = 0; pair < 4; pair++, to += 2 * next)
            split_nibbles(blocks, stride, 16 + 32 * pair, to, to + next);
        return;
    case QUANT_Q5_K:
        split_bits(blocks, stride, 16, to, next);
        for (size_t pair = 0; pair < 4; pair++, to += 2 * next)
            split_nibbles(blocks, stride, 48 + 32 * pair, to + WORD, to + next + WORD);
        return;
    case QUANT_Q6_K:
        for (size_t half = 0; half < 2; half++, to += 4 * next) {
            split_twos(blocks, stride, 128 + 32 * half, to, next);
            split_nibbles(blocks, stride, 64 * half, to + WORD, to + 2 * next + WORD);
            split_nibbles(blocks, stride, 64 * half + 32, to + next + WORD, to + 3 * next + WORD);
            split_twos(blocks, stride, 144 + 32 * half, to + 5 * WORD, next);
        }
        return;
    default:
        assert(false && "a quantized type without a layout");
    }
}

/* ---- a group
 * ---------------------------------------------------------------------------------- */

/* Copies a line of each row before the next line: rows a power of two apart would collide in the
 * same cache sets. */
enum { LINE = 64, STEP_MOST = 256 };

/* Sixteen rows of the file, read one step (a block, or a line of values) at a time. */
struct rows {
    const uint8_t *at; /* start of the first row */
    size_t stride;     /* from row to row */
    uint32_t there;    /* rows that exist; the others of a last group are zeros */
    const uint8_t *from;
    size_t row_bytes;
    uint8_t step[CPU_LANES * STEP_MOST];
};

/* Makes the next `bytes` of every row available, at most STEP_MOST. */
static void show(struct rows *rows, size_t bytes)
{
    rows->at = rows->from;
    rows->stride = rows->row_bytes;
    rows->from += bytes;
    if (rows->there == CPU_LANES)
        return;
    for (uint32_t lane = 0; lane < rows->there; lane++)
        memcpy(rows->step + lane * bytes, rows->at + lane * rows->row_bytes, bytes);
    memset(rows->step + rows->there * bytes, 0, (CPU_LANES - rows->there) * bytes);
    rows->at = rows->step;
    rows->stride = bytes;
}

static void pack_f32(const struct cpu_matrix *m, uint8_t *to, struct rows *rows)
{
    uint32_t left = m->file.cols;
    for (; left >= LINE / 4; left -= LINE / 4, to += (size_t)LINE * CPU_LANES) {
        show(rows, LINE);
        for (size_t lane = 0; lane < CPU_LANES; lane += LANES_ROWS) {
            for (size_t i = 0; i < LINE / 4; i += 4) {
                lanes w[4];
                lanes_load4(rows->at + lane * rows->stride, rows->stride, 4 * i, w);
                for (size_t j = 0; j < 4; j++)
                    lanes_store(to + ((i + j) * CPU_LANES + lane) * 4, w[j]);
            }
        }
    }
    for (; left > 0; left--, to += (size_t)4 * CPU_LANES) {
        show(rows, 4);
        for (size_t lane = 0; lane < CPU_LANES; lane++)
            memcpy(to + 4 * lane, rows->at + lane * rows->stride, 4);
    }
}

static void pack_half(const struct cpu_matrix *m, uint8_t *to, struct rows *rows)
{
    uint32_t left = m->file.cols;
    for (; left >= LINE / 2; left -= LINE / 2, to += (size_t)LINE * CPU_LANES) {
        show(rows, LINE);
        for (size_t lane = 0; lane < CPU_LANES; lane += LANES_ROWS) {
            for (size_t i = 0; i < LINE / 2; i += 8) {
                lanes w[4];
                lanes_load4(rows->at + lane * rows->stride, rows->stride, 2 * i, w);
                for (size_t j = 0; j < 4; j++)
                    lanes_store_halves(to + ((i + 2 * j) * CPU_LANES + lane) * 2, w[j]);
            }
        }
    }
    for (; left > 0; left--, to += (size_t)2 * CPU_LANES) {
        show(rows, 2);
        for (size_t lane = 0; lane < CPU_LANES; lane++)
            memcpy(to + 2 * lane, rows->at + lane * rows->stride, 2);
    }
}

/* Sixteen bytes of each row become 16 times a byte of all rows. */
static void pack_scales(const uint8_t *blocks, size_t stride, size_t at, uint8_t *to)
{
    for (size_t i = 0; i < CPU_LANES; i += LANES_ROWS) {
        lanes w[4];
        lanes_load4(blocks + i * stride, stride, at, w);
        for (size_t j = 0; j < 16; j++)
            lanes_store_bytes(to + j * CPU_LANES + i, w[j / 4] >> (uint32_t)(j % 4 * 8));
    }
}

/* Packs the factors of a segment's sub-block `in`, whose blocks start at `at`; for types with
 * blocks of 256, of the whole segment. */
static void pack_factors(uint32_t type, const struct rows *rows, uint32_t in, uint8_t *to)
{
    const uint8_t *at = rows->at;
    const size_t stride = rows->stride;
    uint16_t minus_min;
    switch (type) {
    case QUANT_MXFP4:
        for (uint32_t lane = 0; lane < CPU_LANES; lane++, at += stride)
            to[in * CPU_LANES + lane] = at[0];
        return;
    case QUANT_IQ4_XS:
    case QUANT_IQ3_XXS:
    case QUANT_IQ3_S:
        for (uint32_t lane = 0; lane < CPU_LANES; lane++, at += stride) {
            for (uint32_t i = 0; i < 8; i++)
                to[i * CPU_LANES + lane] = (uint8_t)quant_byte_scale(type, at, (int)i);
            memcpy(to + 128 + 2 * lane, at, 2);
        }
        return;
    case QUANT_Q2_K:
        pack_scales(at, stride, 0, to);
        for (uint32_t lane = 0; lane < CPU_LANES; lane++, at += stride) {
            memcpy(to + 256 + 2 * lane, at + 80, 2);
            memcpy(to + 288 + 2 * lane, at + 82, 2);
        }
        return;
    case QUANT_Q3_K:
        for (uint32_t lane = 0; lane < CPU_LANES; lane++, at += stride) {
            for (uint32_t i = 0; i < 8; i++) {
                int8_t scale[2];
                quant_q3_k_scales(at, (int)i, scale);
                to[2 * i * CPU_LANES + lane] = (uint8_t)scale[0];
                to[(2 * i + 1) * CPU_LANES + lane] = (uint8_t)scale[1];
            }
            memcpy(to + 256 + 2 * lane, at + 108, 2);
        }
        return;
    case QUANT_Q4_1:
    case QUANT_Q5_1:
        for (uint32_t lane = 0; lane < CPU_LANES; lane++, at += stride) {
            memcpy(to + in * 64 + 2 * lane, at, 2);
            memcpy(&minus_min, at + 2, 2);
            minus_min ^= 0x8000;
            memcpy(to + in * 64 + 32 + 2 * lane, &minus_min, 2);
        }
        return;
    case QUANT_Q4_K:
    case QUANT_Q5_K:
        for (size_t i = 0; i < CPU_LANES; i += LANES_ROWS) {
            lanes w[4]; /* D and Dmin, then scales and minima */
            lanes_load4(at + i * stride, stride, 0, w);
            for (size_t j = 1; j < 4; j++)
                lanes_store(to + (j - 1) * WORD + 4 * i, w[j]);
            lanes_store_halves(to + 192 + 2 * i, w[0]);
        }
        return;
    case QUANT_Q6_K:
        pack_scales(at, stride, 192, to);
        for (uint32_t lane = 0; lane < CPU_LANES; lane++, at += stride)
            memcpy(to + 256 + 2 * lane, at + 208, 2);
        return;
    default:
        for (uint32_t lane = 0; lane < CPU_LANES; lane++, at += stride)
            memcpy(to + in * 32 + 2 * lane, at, 2);
    }
}

/* Packs the file's block for 16 rows. */
static inline void pack_integers(uint32_t type, const struct rows *rows, uint8_t *to)
{
    for (size_t i = 0; i < CPU_LANES; i += LANES_ROWS)
        pack_some(type, rows->at + i * rows->stride, rows->stride, to + 4 * i);
}

static void pack_blocks(const struct cpu_matrix *m, uint8_t *to, struct rows *rows)
{
    const struct quant_info *info = quant_find(m->file.type);
    const uint32_t subs = info->block / CPU_BLOCK; /* 1 or SEGMENT_BLOCKS */
    const size_t integers = repack_integers(info->type), factors = repack_factors(info->type);
    for (uint32_t left = m->file.cols / CPU_BLOCK, n; left > 0; left -= n) {
        n = left < SEGMENT_BLOCKS ? left : SEGMENT_BLOCKS;
        for (uint32_t in = 0; in < n; in += subs) {
            show(rows, info->block_bytes);
            pack_factors(info->type, rows, in, to);
            pack_integers(info->type, rows, to + n * factors + in * integers);
        }
        to += n * (integers + factors);
    }
}

void PACK_GROUP(const struct cpu_matrix *m, uint32_t group, const uint8_t *from)
{
    uint8_t *to = m->packed + group * m->group_bytes;
    const uint32_t left = m->file.rows - group * CPU_LANES;
    struct rows rows;
    rows.there = left < CPU_LANES ? left : CPU_LANES;
    rows.from = from;
    rows.row_bytes = m->file.row_bytes;
    if (quant_find(m->file.type)->quantized)
        pack_blocks(m, to, &rows);
    else if (m->file.type == QUANT_F32)
        pack_f32(m, to, &rows);
    else
        pack_half(m, to, &rows);
    lanes_done();
}
