#include "kernels/cpu/repack.h"

#include <string.h>

#include "kernels/num.h"

enum { SEGMENT_BLOCKS = CPU_SEGMENT / CPU_BLOCK };

static bool is_quantized(uint32_t type) { return quant_find(type)->quantized; }

static uint32_t value_bytes(uint32_t type) { return quant_find(type)->block_bytes; }

static uint32_t block_quants(uint32_t type) {
    return type == QUANT_Q8_0 ? REPACK_Q8_BLOCK : REPACK_Q4_BLOCK;
}

void repack_init(struct cpu_matrix *matrix, const struct model_tensor *file) {
    matrix->file = *file;
    matrix->packed = NULL;
    matrix->groups = (file->rows + CPU_LANES - 1) / CPU_LANES;
    size_t bytes = is_quantized(file->type)
                       ? file->cols / CPU_BLOCK * (size_t)(block_quants(file->type) + REPACK_SCALES)
                       : (size_t)file->cols * CPU_LANES * value_bytes(file->type);
    matrix->group_bytes = (bytes + 63) / 64 * 64;
}

size_t repack_bytes(const struct cpu_matrix *matrix) {
    return matrix->groups * matrix->group_bytes;
}

/* Where the quants of block b and its scales lie in a group. */
static size_t quants_at(const struct cpu_matrix *m, uint32_t b, size_t *ret_scales) {
    uint32_t blocks = m->file.cols / CPU_BLOCK, quants = block_quants(m->file.type);
    uint32_t segment = b / SEGMENT_BLOCKS, in = b % SEGMENT_BLOCKS;
    uint32_t left = blocks - segment * SEGMENT_BLOCKS;
    uint32_t n = left < SEGMENT_BLOCKS ? left : SEGMENT_BLOCKS;
    size_t begin = (size_t)segment * SEGMENT_BLOCKS * (quants + REPACK_SCALES);
    *ret_scales = begin + (size_t)n * quants + (size_t)in * REPACK_SCALES;
    return begin + (size_t)in * quants;
}

static void pack_floats(const struct cpu_matrix *m, uint8_t *to, const uint8_t *row, uint32_t lane) {
    uint32_t bytes = value_bytes(m->file.type);
    for (uint32_t i = 0; i < m->file.cols; i++) {
        size_t at = ((size_t)i * CPU_LANES + lane) * bytes;
        memcpy(to + at, row + (size_t)i * bytes, bytes);
    }
}

static void pack_blocks(const struct cpu_matrix *m, uint8_t *to, const uint8_t *row, uint32_t lane) {
    uint32_t bytes = quant_find(m->file.type)->block_bytes;
    uint32_t quads = bytes == 34 ? 8 : 4;
    uint8_t flip = m->file.type == QUANT_Q8_0 ? 0x80 : 0;
    for (uint32_t b = 0; b < m->file.cols / CPU_BLOCK; b++, row += bytes) {
        size_t scales, quants = quants_at(m, b, &scales);
        memcpy(to + scales + 2 * lane, row, 2);
        for (uint32_t j = 0; j < quads; j++) {
            uint8_t *four = to + quants + (j * CPU_LANES + lane) * 4;
            for (uint32_t c = 0; c < 4; c++)
                four[c] = row[2 + 4 * j + c] ^ flip;
        }
    }
}

void repack_group(const struct cpu_matrix *m, uint32_t group) {
    uint8_t *to = m->packed + group * m->group_bytes;
    for (uint32_t lane = 0; lane < CPU_LANES; lane++) {
        uint32_t row = group * CPU_LANES + lane;
        if (row >= m->file.rows)
            break;
        const uint8_t *from = m->file.data + row * m->file.row_bytes;
        if (is_quantized(m->file.type))
            pack_blocks(m, to, from, lane);
        else
            pack_floats(m, to, from, lane);
    }
}

static void unpack_blocks(const struct cpu_matrix *m, const uint8_t *from, uint32_t lane, float *x) {
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

void repack_row(const struct cpu_matrix *m, uint32_t row, float *x) {
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
