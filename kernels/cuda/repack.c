#include "kernels/cuda/repack.h"

#include <string.h>

#include "kernels/cuda/layout.h"
#include "kernels/model/model.h"
#include "kernels/quant/quant_block.h"

/* The integers of a sub-block as stored: with the type's offset, or the nibbles of a table, as bytes. */
static void stored_integers(const struct model_tensor *t, const uint8_t *row, uint32_t block,
                            uint8_t q[CUDA_BLOCK])
{
    const struct quant_info *info = quant_find(t->type);
    const uint32_t subs = info->block / CUDA_BLOCK;
    struct quant_sub sub;
    if (layout_table(t->type)) {
        quant_sub_nibbles(t->type, row + (uint64_t)(block / subs) * info->block_bytes,
                          (int)(block % subs), q);
        return;
    }
    quant_sub_load(t->type, row, block, &sub);
    for (int i = 0; i < CUDA_BLOCK; i++)
        q[i] = (uint8_t)(sub.q[i] + layout_offset(t->type));
}

/* A lane's word with bits added to those of other rows. */
static void add_bits(uint8_t *to, uint32_t bits)
{
    uint32_t word;
    memcpy(&word, to, sizeof(word));
    word |= bits;
    memcpy(to, &word, sizeof(word));
}

/* Four nibbles, one in each byte, side by side. */
static uint32_t join_nibbles(uint32_t four)
{
    const uint32_t pairs = four | four >> 4;
    return (pairs & 0xff) | (pairs >> 8 & 0xff00);
}

/* Two bits of each of eight integers to the upper bits of a block. */
static void add_pairs(uint8_t *to, uint32_t first, uint32_t second, uint32_t r)
{
    const uint32_t pairs = 0x03030303;
    add_bits(to, (first & pairs) << 2 * r);
    add_bits(to + 4, (second & pairs) << 2 * r);
}

/* One bit of each of them. */
static void add_ones(uint8_t *to, uint32_t first, uint32_t second, uint32_t r)
{
    const uint32_t ones = 0x01010101;
    add_bits(to, (first & ones) << 2 * r | (second & ones) << (2 * r + 1));
}

/* Row `row` (0 .. 31 of the group) of one block into its low units and its segment's bits: four inputs at a time, a byte
 * each of a word, of which nothing is shifted into another byte. */
static void place(uint32_t type, const uint8_t q[CUDA_BLOCK], uint32_t row, uint32_t in,
                  uint8_t *bits, uint8_t *low)
{
    const uint32_t r = row / 8, nibbles = 0x0f0f0f0f;
    uint32_t word[CUDA_BLOCK / 4];
    memcpy(word, q, CUDA_BLOCK);
    for (uint32_t t = 0; t < 4; t++) {
        const uint32_t at = (4 * (row % 8) + t) * 16, first = word[t], second = word[4 + t],
                       both = layout_table(type) ? join_nibbles(first) | join_nibbles(second) << 16
                                                 : (first & nibbles) | (second & nibbles) << 4;
        uint8_t *to = low + at + (size_t)r * 4;
        uint8_t *two = bits + in / 2 * CUDA_UNIT + at + (size_t)(in % 2) * 8;
        uint8_t *one = bits + in / 4 * CUDA_UNIT + at + (size_t)(in % 4) * 4;
        if (layout_low(type))
            memcpy(to, type == QUANT_Q8_0 ? &first : &both, sizeof(both));
        if (type == QUANT_Q8_0)
            memcpy(to + CUDA_UNIT, &second, sizeof(second));
        else if (type == QUANT_Q6_K)
            add_pairs(two, first >> 4, second >> 4, r);
        else if (type == QUANT_Q2_K || type == QUANT_Q3_K)
            add_pairs(two, first, second, r);
        else if (layout_bits(type))
            add_ones(one, first >> 4, second >> 4, r);
        if (type == QUANT_Q3_K)
            add_ones(one + 4 * CUDA_UNIT, first >> 2, second >> 2, r);
    }
}

/* What the file's block says besides integers; `block` points to the one that sub-block `in` of the segment is in. */
static void place_factors(uint32_t type, const uint8_t *block, uint32_t row, uint32_t in,
                          uint8_t *to)
{
    uint8_t *mine = to + (size_t)row * 16, *bytes = to + (size_t)row * 8;
    switch (type) {
    case QUANT_MXFP4:
        bytes[in] = block[0];
        return;
    case QUANT_IQ4_XS:
    case QUANT_IQ3_XXS:
    case QUANT_IQ3_S:
        for (int s = 0; s < CUDA_SEGMENT_BLOCKS; s++)
            bytes[s] = (uint8_t)quant_byte_scale(type, block, s);
        memcpy(to + (size_t)4 * CUDA_TAIL + (size_t)2 * row, block, 2);
        return;
    case QUANT_Q2_K:
        memcpy(mine, block, 16);
        memcpy(to + CUDA_UNIT + (size_t)2 * row, block + 80, 2);
        memcpy(to + CUDA_UNIT + CUDA_TAIL + (size_t)2 * row, block + 82, 2);
        return;
    case QUANT_Q3_K:
        for (int s = 0; s < CUDA_SEGMENT_BLOCKS; s++)
            quant_q3_k_scales(block, s, (int8_t *)mine + 2 * s);
        memcpy(to + CUDA_UNIT + (size_t)2 * row, block + 108, 2);
        return;
    case QUANT_Q4_1:
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
    const uint32_t groups = (t->rows + CUDA_GROUP - 1) / CUDA_GROUP, matrix = group / groups,
                   first = group % groups * CUDA_GROUP, left = t->rows - first;
    memset(to, 0, layout_group_bytes(t->type, t->cols));
    for (uint32_t row = 0; row < CUDA_GROUP && row < left; row++) {
        const uint8_t *from = model_tensor_row(t, (uint64_t)matrix * t->rows + first + row);
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
