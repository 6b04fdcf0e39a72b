/* repack.c: sizes, packing and single rows of repacked weights. See repack.h. */
#include "kernels/cpu/repack.h"

#include "kernels/base/num.h"
#include "kernels/quant/quant_block.h"

#include <string.h>

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
    return matrix->file.n_matrices * matrix->groups * matrix->group_bytes;
}

struct cpu_matrix repack_part(const struct cpu_matrix *matrix, uint32_t index, uint32_t group)
{
    struct cpu_matrix part = *matrix;
    part.file.n_matrices = 1;
    part.file.rows -= group * CPU_LANES;
    part.file.bytes = part.file.rows * part.file.row_bytes;
    if (part.file.data) /* a shadow's has none */
        part.file.data +=
            index * part.file.matrix_bytes + (size_t)group * CPU_LANES * part.file.row_bytes;
    part.groups -= group;
    if (part.packed)
        part.packed += ((size_t)index * matrix->groups + group) * part.group_bytes;
    return part;
}

/* Offsets in a group of the integers of sub-block b and of the factors of its segment. */
static size_t integers_at(const struct cpu_matrix *m, uint32_t b, size_t *ret_factors)
{
    size_t integers = repack_integers(m->file.type), factors = repack_factors(m->file.type);
    uint32_t in = b % SEGMENT_BLOCKS, left = m->file.cols / CPU_BLOCK - (b - in);
    uint32_t n = left < SEGMENT_BLOCKS ? left : SEGMENT_BLOCKS;
    *ret_factors = (b - in) * (integers + factors);
    return *ret_factors + n * factors + in * integers;
}

void repack_group(const struct cpu_matrix *m, uint32_t group, const uint8_t *from)
{
#if defined(__x86_64__)
    /* The CPU is probed once, before main: this only reads a word. */
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
        pack_group_avx512(m, group, from);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        pack_group_avx2(m, group, from);
        return;
    }
#endif
    pack_group_any(m, group, from);
}

static float load_f16(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    return num_f32_from_f16(h);
}

/* Unpacks what quant_sub_load would read from the file. */
static void unpack_factors(uint32_t type, const uint8_t *from, uint32_t in, uint32_t lane,
                           struct quant_sub *s)
{
    const uint8_t *halves = from + (size_t)2 * in * CPU_LANES + lane; /* of types with two scales */
    uint8_t packed[12], scale, min;
    s->scale[0] = s->scale[1] = s->min_scale[0] = s->min_scale[1] = 1;
    s->has_min = type == QUANT_Q4_1 || type == QUANT_Q5_1 || type == QUANT_Q2_K ||
                 type == QUANT_Q4_K || type == QUANT_Q5_K;
    s->min = 0.0f;
    switch (type) {
    case QUANT_MXFP4:
        s->d = quant_e8m0(from[(size_t)in * CPU_LANES + lane]);
        return;
    case QUANT_IQ4_XS:
    case QUANT_IQ3_XXS:
    case QUANT_IQ3_S:
        s->d = load_f16(from + 128 + (size_t)2 * lane) * (type == QUANT_IQ3_XXS ? 0.25f : 1.0f) *
               (float)(int8_t)from[(size_t)in * CPU_LANES + lane];
        return;
    case QUANT_Q4_1:
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
    case QUANT_Q2_K:
        for (size_t h = 0; h < 2; h++) {
            s->scale[h] = halves[h * CPU_LANES] & 15;
            s->min_scale[h] = (int8_t)(halves[h * CPU_LANES] >> 4);
        }
        s->d = load_f16(from + 256 + (size_t)2 * lane);
        s->min = load_f16(from + 288 + (size_t)2 * lane);
        return;
    case QUANT_Q3_K:
    case QUANT_Q6_K:
        s->scale[0] = (int8_t)halves[0];
        s->scale[1] = (int8_t)halves[CPU_LANES];
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
