#include "kernels/cpu/repack.h"

#include <string.h>

#include "kernels/num.h"

enum { SEGMENT_BLOCKS = CPU_SEGMENT / CPU_BLOCK };

static bool is_quantized(uint32_t type)
{
    return quant_find(type)->quantized;
}

static uint32_t value_bytes(uint32_t type)
{
    return quant_find(type)->block_bytes;
}

static uint32_t block_quants(uint32_t type)
{
    return type == QUANT_Q8_0 ? REPACK_Q8_BLOCK : REPACK_Q4_BLOCK;
}

void repack_init(struct cpu_matrix *matrix, const struct model_tensor *file)
{
    matrix->file = *file;
    matrix->packed = NULL;
    matrix->groups = (file->rows + CPU_LANES - 1) / CPU_LANES;
    size_t bytes = is_quantized(file->type)
                       ? file->cols / CPU_BLOCK * (size_t)(block_quants(file->type) + REPACK_SCALES)
                       : (size_t)file->cols * CPU_LANES * value_bytes(file->type);
    matrix->group_bytes = (bytes + 63) / 64 * 64;
}

size_t repack_bytes(const struct cpu_matrix *matrix)
{
    return matrix->groups * matrix->group_bytes;
}

/* Where the quants of block b and its scales lie in a group. */
static size_t quants_at(const struct cpu_matrix *m, uint32_t b, size_t *ret_scales)
{
    uint32_t blocks = m->file.cols / CPU_BLOCK, quants = block_quants(m->file.type);
    uint32_t segment = b / SEGMENT_BLOCKS, in = b % SEGMENT_BLOCKS;
    uint32_t left = blocks - segment * SEGMENT_BLOCKS;
    uint32_t n = left < SEGMENT_BLOCKS ? left : SEGMENT_BLOCKS;
    size_t begin = (size_t)segment * SEGMENT_BLOCKS * (quants + REPACK_SCALES);
    *ret_scales = begin + (size_t)n * quants + (size_t)in * REPACK_SCALES;
    return begin + (size_t)in * quants;
}

/* Output lanes are the inner loop: memory is written in order, from 16 rows read in order. */
static void pack_f32(const struct cpu_matrix *m, uint8_t *to, const uint8_t *rows, uint32_t lanes)
{
    for (uint32_t i = 0; i < m->file.cols; i++, to += CPU_LANES * 4) {
        for (uint32_t lane = 0; lane < lanes; lane++)
            memcpy(to + lane * 4, rows + lane * m->file.row_bytes + (size_t)i * 4, 4);
    }
}

static void pack_half(const struct cpu_matrix *m, uint8_t *to, const uint8_t *rows, uint32_t lanes)
{
    for (uint32_t i = 0; i < m->file.cols; i++, to += CPU_LANES * 2) {
        for (uint32_t lane = 0; lane < lanes; lane++)
            memcpy(to + lane * 2, rows + lane * m->file.row_bytes + (size_t)i * 2, 2);
    }
}

static void pack_blocks(const struct cpu_matrix *m, uint8_t *to, const uint8_t *rows,
                        uint32_t lanes)
{
    uint32_t bytes = value_bytes(m->file.type);
    uint32_t quads = block_quants(m->file.type) / (CPU_LANES * 4);
    uint32_t flip = m->file.type == QUANT_Q8_0 ? 0x80808080u : 0;
    for (uint32_t b = 0; b < m->file.cols / CPU_BLOCK; b++) {
        size_t scales, quants = quants_at(m, b, &scales);
        for (uint32_t lane = 0; lane < lanes; lane++) {
            const uint8_t *block = rows + lane * m->file.row_bytes + (size_t)b * bytes;
            memcpy(to + scales + 2 * lane, block, 2);
            for (uint32_t j = 0; j < quads; j++) {
                uint32_t four;
                memcpy(&four, block + 2 + 4 * j, 4);
                four ^= flip;
                memcpy(to + quants + (j * CPU_LANES + lane) * 4, &four, 4);
            }
        }
    }
}

void repack_group(const struct cpu_matrix *m, uint32_t group)
{
    uint8_t *to = m->packed + group * m->group_bytes;
    const uint8_t *rows = m->file.data + (uint64_t)group * CPU_LANES * m->file.row_bytes;
    uint32_t left = m->file.rows - group * CPU_LANES;
    uint32_t lanes = left < CPU_LANES ? left : CPU_LANES;
    if (is_quantized(m->file.type))
        pack_blocks(m, to, rows, lanes);
    else if (m->file.type == QUANT_F32)
        pack_f32(m, to, rows, lanes);
    else
        pack_half(m, to, rows, lanes);
}

static void unpack_blocks(const struct cpu_matrix *m, const uint8_t *from, uint32_t lane, float *x)
{
    for (uint32_t i = 0; i < m->file.cols; i++) {
        size_t scales, quants = quants_at(m, i / CPU_BLOCK, &scales);
        uint32_t k = i % CPU_BLOCK;
        uint16_t scale;
        memcpy(&scale, from + scales + 2 * lane, 2);
        int q;
        if (m->file.type == QUANT_Q8_0) {
            q = from[quants + (k / 4 * CPU_LANES + lane) * 4 + k % 4] - 128;
        } else {
            uint8_t byte = from[quants + (k % 16 / 4 * CPU_LANES + lane) * 4 + k % 4];
            q = (k < 16 ? byte & 15 : byte >> 4) - 8;
        }
        x[i] = num_f32_from_f16(scale) * (float)q;
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
