#include "kernels/cpu/repack.h"

#include <string.h>

#include "kernels/cpu/lanes.h"
#include "kernels/num.h"
#include "kernels/quant_block.h"

_Static_assert((int)PACK_ROWS == (int)CPU_LANES, "rows packed side by side");

enum { SEGMENT_BLOCKS = CPU_SEGMENT / CPU_BLOCK };

static bool is_quantized(uint32_t type)
{
    return quant_find(type)->quantized;
}

static uint32_t value_bytes(uint32_t type)
{
    return quant_find(type)->block_bytes;
}

void repack_init(struct cpu_matrix *matrix, const struct model_tensor *file)
{
    matrix->file = *file;
    matrix->packed = NULL;
    matrix->groups = (file->rows + CPU_LANES - 1) / CPU_LANES;
    size_t bytes =
        is_quantized(file->type)
            ? file->cols / CPU_BLOCK * (repack_integers(file->type) + repack_factors(file->type))
            : (size_t)file->cols * CPU_LANES * value_bytes(file->type);
    matrix->group_bytes = (bytes + 63) / 64 * 64;
}

size_t repack_bytes(const struct cpu_matrix *matrix)
{
    return matrix->groups * matrix->group_bytes;
}

/* Where the integers of sub-block b and the factors of its segment lie in a group. */
static size_t integers_at(const struct cpu_matrix *m, uint32_t b, size_t *ret_factors)
{
    size_t integers = repack_integers(m->file.type), factors = repack_factors(m->file.type);
    uint32_t in = b % SEGMENT_BLOCKS, left = m->file.cols / CPU_BLOCK - (b - in);
    uint32_t n = left < SEGMENT_BLOCKS ? left : SEGMENT_BLOCKS;
    *ret_factors = (b - in) * (integers + factors);
    return *ret_factors + n * factors + in * integers;
}

/* ---- packing: 16 rows are read side by side, memory is written in order ---------------------- */

/* A line of each row before the next: rows a power of two apart do not fit a cache together. */
enum { LINE = 64, STEP_MOST = 256 };

/* Sixteen rows of the file, a step (a block, or a line of values) of each at a time. */
struct rows {
    const uint8_t *at; /* of the first one */
    size_t stride;     /* from row to row */
    uint32_t there;    /* a last group may lack rows: these are zeros */
    const uint8_t *from;
    size_t row_bytes;
    struct hash128 *hash; /* NULL: nobody wants it */
    const uint8_t *hashed, *end;
    uint8_t step[CPU_LANES * STEP_MOST];
};

/* Hashes about as many bytes of the file as a step packs, whole lines. A hash waits for its own last line, and a
 * processor that has both before it packs meanwhile. */
static void hash_on(struct rows *rows, size_t bytes)
{
    const size_t left = (size_t)(rows->end - rows->hashed);
    bytes = (bytes + LINE - 1) / LINE * LINE;
    bytes = bytes < left ? bytes : left;
    hash128_update(rows->hash, rows->hashed, bytes);
    rows->hashed += bytes;
}

/* Shows the next `bytes` of every row, at most STEP_MOST. */
static void show(struct rows *rows, size_t bytes)
{
    if (rows->hash)
        hash_on(rows, bytes * CPU_LANES);
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

/* to [2][16] halves = inputs 2j and 2j + 1 of eight rows, whose words are a and b. */
static void store_halves(uint8_t *to, lanes a, lanes b)
{
    typedef uint16_t halves __attribute__((vector_size(16)));
    const halves even = __builtin_shufflevector((halves)a, (halves)b, 0, 2, 4, 6, 8, 10, 12, 14);
    const halves odd = __builtin_shufflevector((halves)a, (halves)b, 1, 3, 5, 7, 9, 11, 13, 15);
    memcpy(to, &even, sizeof even);
    memcpy(to + (size_t)2 * CPU_LANES, &odd, sizeof odd);
}

static void pack_half(const struct cpu_matrix *m, uint8_t *to, struct rows *rows)
{
    uint32_t left = m->file.cols;
    for (; left >= LINE / 2; left -= LINE / 2, to += (size_t)LINE * CPU_LANES) {
        show(rows, LINE);
        for (size_t lane = 0; lane < CPU_LANES; lane += 8) {
            for (size_t i = 0; i < LINE / 2; i += 8) {
                lanes a[4], b[4];
                lanes_load4(rows->at + lane * rows->stride, rows->stride, 2 * i, a);
                lanes_load4(rows->at + (lane + 4) * rows->stride, rows->stride, 2 * i, b);
                for (size_t j = 0; j < 4; j++)
                    store_halves(to + ((i + 2 * j) * CPU_LANES + lane) * 2, a[j], b[j]);
            }
        }
    }
    for (; left > 0; left--, to += (size_t)2 * CPU_LANES) {
        show(rows, 2);
        for (size_t lane = 0; lane < CPU_LANES; lane++)
            memcpy(to + 2 * lane, rows->at + lane * rows->stride, 2);
    }
}

/* The factors of a segment's sub-block `in`, whose blocks begin at `at`; of the types with blocks of
 * 256, of the whole segment. */
static void pack_factors(uint32_t type, const struct rows *rows, uint32_t in, uint8_t *to)
{
    const uint8_t *at = rows->at;
    const size_t stride = rows->stride;
    uint16_t minus_min;
    switch (type) {
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
        for (uint32_t lane = 0; lane < CPU_LANES; lane++, at += stride) {
            for (uint32_t i = 0; i < 3; i++)
                memcpy(to + i * 64 + 4 * lane, at + 4 + 4 * i, 4);
            memcpy(to + 192 + 2 * lane, at, 2);
            memcpy(to + 224 + 2 * lane, at + 2, 2);
        }
        return;
    case QUANT_Q6_K:
        for (uint32_t lane = 0; lane < CPU_LANES; lane++, at += stride) {
            for (uint32_t i = 0; i < 16; i++)
                to[i * CPU_LANES + lane] = at[192 + i];
            memcpy(to + 256 + 2 * lane, at + 208, 2);
        }
        return;
    default:
        for (uint32_t lane = 0; lane < CPU_LANES; lane++, at += stride)
            memcpy(to + in * 32 + 2 * lane, at, 2);
    }
}

static void pack_blocks(const struct cpu_matrix *m, uint8_t *to, struct rows *rows)
{
    const struct quant_info *info = quant_find(m->file.type);
    const uint32_t subs = info->block / CPU_BLOCK; /* 1 or SEGMENT_BLOCKS */
    const size_t integers = repack_integers(info->type), factors = repack_factors(info->type);
    for (uint32_t left = m->file.cols / CPU_BLOCK, n; left > 0; left -= n) {
        n = left < SEGMENT_BLOCKS ? left : SEGMENT_BLOCKS;
        for (uint32_t in = 0; in < n; in++) {
            if (in % subs == 0) {
                show(rows, info->block_bytes);
                pack_factors(info->type, rows, in, to);
            }
            pack_sub(info->type, rows->at, rows->stride, in % subs,
                     to + n * factors + in * integers);
        }
        to += n * (integers + factors);
    }
}

void repack_group(const struct cpu_matrix *m, uint32_t group, const uint8_t *from,
                  struct hash128 *hash)
{
    uint8_t *to = m->packed + group * m->group_bytes;
    const uint32_t left = m->file.rows - group * CPU_LANES;
    struct rows rows;
    rows.there = left < CPU_LANES ? left : CPU_LANES;
    rows.from = from;
    rows.row_bytes = m->file.row_bytes;
    rows.hash = hash;
    rows.hashed = from;
    rows.end = from + rows.there * rows.row_bytes;
    if (is_quantized(m->file.type))
        pack_blocks(m, to, &rows);
    else if (m->file.type == QUANT_F32)
        pack_f32(m, to, &rows);
    else
        pack_half(m, to, &rows);
}

static float load_f16(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return num_f32_from_f16(h);
}

/* The other way: what quant_sub_load reads in the file. */
static void unpack_factors(uint32_t type, const uint8_t *from, uint32_t in, uint32_t lane,
                           struct quant_sub *s)
{
    uint8_t packed[12], scale, min;
    s->scale[0] = s->scale[1] = 1;
    s->has_min = type == QUANT_Q5_1 || type == QUANT_Q4_K || type == QUANT_Q5_K;
    s->min = 0.0f;
    switch (type) {
    case QUANT_Q5_1:
        s->d = load_f16(from + (size_t)in * 64 + (size_t)2 * lane);
        s->min = load_f16(from + (size_t)in * 64 + 32 + (size_t)2 * lane);
        return;
    case QUANT_Q4_K:
    case QUANT_Q5_K:
        for (size_t i = 0; i < 3; i++)
            memcpy(packed + 4 * i, from + 64 * i + (size_t)4 * lane, 4);
        quant_scale_min(packed, (int)in, &scale, &min);
        s->d = load_f16(from + 192 + (size_t)2 * lane) * (float)scale;
        s->min = load_f16(from + 224 + (size_t)2 * lane) * (float)min;
        return;
    case QUANT_Q6_K:
        s->scale[0] = (int8_t)from[(size_t)2 * in * CPU_LANES + lane];
        s->scale[1] = (int8_t)from[((size_t)2 * in + 1) * CPU_LANES + lane];
        s->d = load_f16(from + 256 + (size_t)2 * lane);
        return;
    default:
        s->d = load_f16(from + (size_t)in * 32 + (size_t)2 * lane);
    }
}

static void unpack_blocks(const struct cpu_matrix *m, const uint8_t *from, uint32_t lane, float *x)
{
    const uint32_t type = m->file.type, n_words = pack_words(type);
    for (uint32_t b = 0; b < m->file.cols / CPU_BLOCK; b++) {
        size_t factors, integers = integers_at(m, b, &factors);
        uint32_t words[PACK_MOST];
        struct quant_sub s;
        for (uint32_t j = 0; j < n_words; j++)
            memcpy(&words[j], from + integers + (j * CPU_LANES + lane) * 4, 4);
        pack_read(type, words, s.q);
        unpack_factors(type, from + factors, b % SEGMENT_BLOCKS, lane, &s);
        quant_sub_values(&s, x + (size_t)b * CPU_BLOCK);
    }
}

void repack_row(const struct cpu_matrix *m, uint32_t row, float *x)
{
    const uint8_t *from = m->packed + row / CPU_LANES * m->group_bytes;
    uint32_t lane = row % CPU_LANES;
    if (is_quantized(m->file.type)) {
        unpack_blocks(m, from, lane, x);
        return;
    }
    for (uint32_t i = 0; i < m->file.cols; i++) {
        size_t at = (size_t)i * CPU_LANES + lane;
        uint16_t half;
        switch (m->file.type) {
        case QUANT_F32:
            memcpy(&x[i], from + 4 * at, 4);
            break;
        case QUANT_F16:
            memcpy(&half, from + 2 * at, 2);
            x[i] = num_f32_from_f16(half);
            break;
        default: /* BF16 */
            memcpy(&half, from + 2 * at, 2);
            x[i] = num_f32_from_bf16(half);
        }
    }
}
