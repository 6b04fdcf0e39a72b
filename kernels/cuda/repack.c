#include "kernels/cuda/repack.h"

#include <string.h>

#include "kernels/cuda/layout.h"
#include "kernels/model.h"
#include "kernels/quant_block.h"

/* The integers of a sub-block as stored: with the type's offset, as bytes. */
static void stored_integers(const struct model_tensor *t, const uint8_t *row, uint32_t block,
                            uint8_t q[CUDA_BLOCK])
{
    struct quant_sub sub;
    quant_sub_load(t->type, row, block, &sub);
    for (int i = 0; i < CUDA_BLOCK; i++)
        q[i] = (uint8_t)(sub.q[i] + layout_offset(t->type));
}

/* Row `row` (0 .. 31 of the group) of one block into its low units and its segment's bits. */
static void place(uint32_t type, const uint8_t q[CUDA_BLOCK], uint32_t row, uint32_t in,
                  uint8_t *bits, uint8_t *low)
{
    const uint32_t g = row % 8, r = row / 8;
    for (uint32_t i = 0; i < CUDA_BLOCK; i++) {
        const uint32_t h = i / 16, lane = 4 * g + i % 16 / 4, c = i % 4;
        if (type == QUANT_Q8_0) {
            low[h * CUDA_UNIT + lane * 16 + r * 4 + c] = q[i];
            continue;
        }
        low[lane * 16 + r * 4 + c] |= (uint8_t)((q[i] & 15) << 4 * h);
        const uint32_t upper = q[i] >> 4;
        if (type == QUANT_Q6_K)
            bits[in / 2 * CUDA_UNIT + lane * 16 + (in % 2 * 2 + h) * 4 + c] |=
                (uint8_t)(upper << 2 * r);
        else if (layout_bits(type))
            bits[in / 4 * CUDA_UNIT + lane * 16 + in % 4 * 4 + c] |=
                (uint8_t)(upper << (2 * r + h));
    }
}

/* What the file's block says besides integers; `block` points to the one that sub-block `in` of the segment is in. */
static void place_factors(uint32_t type, const uint8_t *block, uint32_t row, uint32_t in,
                          uint8_t *to)
{
    uint8_t *mine = to + (size_t)row * 16;
    switch (type) {
    case QUANT_Q5_1:
        memcpy(mine + (size_t)2 * in, block, 2);
        memcpy(mine + CUDA_UNIT + (size_t)2 * in, block + 2, 2);
        return;
    case QUANT_Q4_K:
    case QUANT_Q5_K:
        memcpy(mine, block, 16);
        return;
    case QUANT_Q6_K:
        memcpy(mine, block + 192, 16);
        memcpy(to + CUDA_UNIT + (size_t)2 * row, block + 208, 2);
        return;
    default:
        memcpy(mine + (size_t)2 * in, block, 2);
    }
}

static void repack_blocks(const struct model_tensor *t, uint32_t row, const uint8_t *from,
                          uint8_t *to)
{
    const struct quant_info *info = quant_find(t->type);
    const uint32_t subs = info->block / CUDA_BLOCK, low_bytes = layout_low(t->type) * CUDA_UNIT;
    for (uint32_t b = 0; b < t->cols / CUDA_BLOCK; b++) {
        const uint32_t in = b % CUDA_SEGMENT_BLOCKS;
        uint8_t *segment = to + (uint64_t)(b / CUDA_SEGMENT_BLOCKS) * layout_segment_bytes(t->type);
        uint8_t *low = segment + layout_head_bytes(t->type) + (size_t)in * low_bytes;
        uint8_t *bits = segment + layout_factors(t->type) * CUDA_UNIT + layout_tail(t->type);
        uint8_t q[CUDA_BLOCK];
        stored_integers(t, from, b, q);
        place(t->type, q, row, in, bits, low);
        if (b % subs == 0)
            place_factors(t->type, from + (uint64_t)(b / subs) * info->block_bytes, row, in,
                          segment);
    }
}

static void repack_floats(const struct model_tensor *t, uint32_t row, const uint8_t *from,
                          uint8_t *to)
{
    for (uint64_t at = 0; at < t->row_bytes; at += 16) {
        const uint64_t left = t->row_bytes - at;
        memcpy(to + at / 16 * CUDA_UNIT + (size_t)row * 16, from + at, left < 16 ? left : 16);
    }
}

void cuda_repack_group(const struct model_tensor *t, uint32_t group, uint8_t *to)
{
    const uint32_t first = group * CUDA_GROUP, left = t->rows - first;
    memset(to, 0, layout_group_bytes(t->type, t->cols));
    for (uint32_t row = 0; row < CUDA_GROUP && row < left; row++) {
        const uint8_t *from = t->data + (uint64_t)(first + row) * t->row_bytes;
        if (layout_quantized(t->type))
            repack_blocks(t, row, from, to);
        else
            repack_floats(t, row, from, to);
    }
}

void cuda_copy_group(const struct model_tensor *t, uint32_t group, uint8_t *to)
{
    const uint64_t bytes = layout_group_bytes(t->type, t->cols), pitch = bytes / CUDA_GROUP;
    const uint32_t first = group * CUDA_GROUP, left = t->rows - first;
    memset(to, 0, bytes);
    for (uint32_t row = 0; row < CUDA_GROUP && row < left; row++)
        memcpy(to + row * pitch, t->data + (uint64_t)(first + row) * t->row_bytes, t->row_bytes);
}
