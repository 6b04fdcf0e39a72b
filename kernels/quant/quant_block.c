/* quant_block.c: decodes the blocks of each quantized type. */
#include "kernels/quant/quant_block.h"

#include "kernels/base/num.h"
#include "kernels/quant/quant_grids.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static float load_f16(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    return num_f32_from_f16(h);
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* Weight i in the low nibble of byte i, i + 16 in the high one. */
static void load_nibbles(const uint8_t *quants, struct quant_sub *s)
{
    for (int i = 0; i < 16; i++) {
        s->q[i] = (int8_t)(quants[i] & 15);
        s->q[i + 16] = (int8_t)(quants[i] >> 4);
    }
}

/* Bit i of 32 is bit 4 of weight i. */
static void add_fifth_bits(const uint8_t *bits, struct quant_sub *s)
{
    for (int i = 0; i < QUANT_SUB; i++)
        s->q[i] = (int8_t)(s->q[i] | (bits[i / 8] >> i % 8 & 1) << 4);
}

static void subtract(int offset, struct quant_sub *s)
{
    for (int i = 0; i < QUANT_SUB; i++)
        s->q[i] = (int8_t)(s->q[i] - offset);
}

/* block: f16 d, int8 q[32]. */
static void load_q8_0(const uint8_t *block, struct quant_sub *s)
{
    s->d = load_f16(block);
    memcpy(s->q, block + 2, QUANT_SUB);
}

/* block: f16 d, nibbles[16]; minus 8. */
static void load_q4_0(const uint8_t *block, struct quant_sub *s)
{
    s->d = load_f16(block);
    load_nibbles(block + 2, s);
    subtract(8, s);
}

/* block: f16 d, f16 m, nibbles[16]; the value is d * q + m. */
static void load_q4_1(const uint8_t *block, struct quant_sub *s)
{
    s->d = load_f16(block);
    s->has_min = true;
    s->min = -load_f16(block + 2);
    load_nibbles(block + 4, s);
}

/* block: f16 d, bits[4], nibbles[16]; minus 16. */
static void load_q5_0(const uint8_t *block, struct quant_sub *s)
{
    s->d = load_f16(block);
    load_nibbles(block + 6, s);
    add_fifth_bits(block + 2, s);
    subtract(16, s);
}

/* block: f16 d, f16 m, bits[4], nibbles[16]; the value is d * q + m. */
static void load_q5_1(const uint8_t *block, struct quant_sub *s)
{
    s->d = load_f16(block);
    s->has_min = true;
    s->min = -load_f16(block + 2);
    load_nibbles(block + 8, s);
    add_fifth_bits(block + 4, s);
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/* Unpacks scale and minimum, six bits each, of one of eight sub-blocks from twelve bytes.
 * Sub-blocks 0..3 have them in the low six bits of bytes 0..3 and 4..7. Sub-blocks 4..7 have four
 * bits in a nibble of bytes 8..11 (scale low, minimum high) and the upper two in the high bits of
 * the byte of the sub-block four before. */
void quant_scale_min(const uint8_t *packed, int sub, uint8_t *ret_scale, uint8_t *ret_min)
{
    if (sub < 4) {
        *ret_scale = packed[sub] & 63;
        *ret_min = packed[sub + 4] & 63;
        return;
    }
    *ret_scale = (uint8_t)((packed[sub + 4] & 15) | packed[sub - 4] >> 6 << 4);
    *ret_min = (uint8_t)(packed[sub + 4] >> 4 | packed[sub] >> 6 << 4);
}

/* block: f16 d, f16 dmin, scales[12]; sub-blocks 2c and 2c + 1 in the low and high nibbles of 32
 * bytes. */
static void load_q45_k(const uint8_t *block, const uint8_t *quants, int sub, struct quant_sub *s)
{
    uint8_t scale, min;
    quant_scale_min(block + 4, sub, &scale, &min);
    s->has_min = true;
    s->d = load_f16(block) * (float)scale;
    s->min = load_f16(block + 2) * (float)min;
    for (int i = 0; i < QUANT_SUB; i++)
        s->q[i] = (int8_t)(quants[sub / 2 * QUANT_SUB + i] >> sub % 2 * 4 & 15);
}

/* Bit `sub` of byte i is bit 4 of weight i. */
static void add_q5_k_bits(const uint8_t *bits, int sub, struct quant_sub *s)
{
    for (int i = 0; i < QUANT_SUB; i++)
        s->q[i] = (int8_t)(s->q[i] | (bits[i] >> sub & 1) << 4);
}

/* block: low[128], high[64], int8 scales[16], f16 d. Each half of the block has 64 bytes of low
 * nibbles (sub-blocks 0, 1 in the low ones, 2, 3 in the high ones) and 32 bytes with two more bits
 * for each of its four sub-blocks; minus 32. A scale is for 16 weights. */
static void load_q6_k(const uint8_t *block, int sub, struct quant_sub *s)
{
    const int half = sub / 4, in = sub % 4;
    const uint8_t *low = block + 64 * half + QUANT_SUB * (in % 2);
    const uint8_t *high = block + 128 + QUANT_SUB * half;
    s->d = load_f16(block + 208);
    memcpy(s->scale, block + 192 + 2 * sub, 2);
    for (int i = 0; i < QUANT_SUB; i++)
        s->q[i] = (int8_t)(((low[i] >> in / 2 * 4 & 15) | (high[i] >> 2 * in & 3) << 4) - 32);
}

/* Two bits of each weight: a half of the block has 32 bytes for its four sub-blocks. */
static void load_pairs(const uint8_t *quants, int sub, struct quant_sub *s)
{
    for (int i = 0; i < QUANT_SUB; i++)
        s->q[i] = (int8_t)(quants[QUANT_SUB * (sub / 4) + i] >> 2 * (sub % 4) & 3);
}

/* block: scales[16] (low nibbles) and minima (high ones) of 16 weights each, pairs[64], f16 d,
 * f16 dmin. */
static void load_q2_k(const uint8_t *block, int sub, struct quant_sub *s)
{
    s->d = load_f16(block + 80);
    s->has_min = true;
    s->min = load_f16(block + 82);
    for (int h = 0; h < 2; h++) {
        s->scale[h] = block[2 * sub + h] & 15;
        s->min_scale[h] = (int8_t)(block[2 * sub + h] >> 4);
    }
    load_pairs(block + 16, sub, s);
}

/* A scale has its low four bits in a nibble of bytes 0 .. 7 (groups 0 .. 7 in the low ones), the
 * upper two in bytes 8 .. 11 (groups g, g + 4, g + 8, g + 12 in byte g); minus 32. */
void quant_q3_k_scales(const uint8_t *block, int sub, int8_t ret_scale[2])
{
    const uint8_t *packed = block + 96;
    for (int h = 0; h < 2; h++) {
        const int g = 2 * sub + h;
        const int low = packed[g % 8] >> g / 8 * 4 & 15, high = packed[8 + g % 4] >> g / 4 * 2 & 3;
        ret_scale[h] = (int8_t)((low | high << 4) - 32);
    }
}

/* block: bits[32], pairs[64], scales[12], f16 d; bit `sub` of byte i is bit 2 of weight i; minus 4. */
static void load_q3_k(const uint8_t *block, int sub, struct quant_sub *s)
{
    s->d = load_f16(block + 108);
    quant_q3_k_scales(block, sub, s->scale);
    load_pairs(block + 32, sub, s);
    for (int i = 0; i < QUANT_SUB; i++)
        s->q[i] = (int8_t)(s->q[i] | (block[i] >> sub & 1) << 2);
    subtract(4, s);
}

/* ---- nibbles of a table ---------------------------------------------------------------------- */

/* Eight points of a grid, and a sign for each of their 32 weights. */
static void load_points(const uint16_t *grid, const uint16_t point[8], const uint8_t sign[4],
                        uint8_t n[QUANT_SUB])
{
    for (size_t k = 0; k < 8; k++) {
        const uint32_t g = grid[point[k]], signs = sign[k / 2] >> k % 2 * 4 & 15;
        /* digits, then signs, each to a byte of its own: by shifts of 5 a digit, of 7 a sign */
        const uint32_t four = (g & 07) | (g & 070) << 5 | (g & 0700) << 10 | (g & 07000) << 15 |
                              (signs * 0x00204081u & 0x01010101u) << 3;
        memcpy(n + 4 * k, &four, sizeof(four));
    }
}

/* block: f16 d, points[64], for each sub-block 32 bits: four times seven signs, the scale. The
 * eighth sign makes the number of negative weights even. */
static void load_iq3_xxs(const uint8_t *block, int sub, uint8_t n[QUANT_SUB])
{
    uint16_t point[8];
    uint8_t sign[4];
    uint32_t bits;
    memcpy(&bits, block + 66 + 4 * sub, sizeof(bits));
    for (int k = 0; k < 8; k++)
        point[k] = block[2 + 8 * sub + k];
    for (int k = 0; k < 4; k++) {
        const uint32_t seven = bits >> 7 * k & 127;
        sign[k] = (uint8_t)(seven | (uint32_t)__builtin_parity(seven) << 7);
    }
    load_points(quant_grid_iq3_xxs, point, sign, n);
}

/* block: f16 d, points[64], their ninth bits[8], signs[32], scales[4]. */
static void load_iq3_s(const uint8_t *block, int sub, uint8_t n[QUANT_SUB])
{
    uint16_t point[8];
    for (int k = 0; k < 8; k++)
        point[k] = (uint16_t)(block[2 + 8 * sub + k] | (block[66 + sub] >> k & 1) << 8);
    load_points(quant_grid_iq3_s, point, block + 74 + 4 * sub, n);
}

/* MXFP4: byte e, nibbles[16]. IQ4_NL: f16 d, nibbles[16]. IQ4_XS: f16 d, upper[2] and lower[4] bits
 * of its scales, nibbles[128]. */
void quant_sub_nibbles(uint32_t type, const uint8_t *block, int sub, uint8_t n[QUANT_SUB])
{
    if (type == QUANT_IQ3_XXS || type == QUANT_IQ3_S) {
        (type == QUANT_IQ3_S ? load_iq3_s : load_iq3_xxs)(block, sub, n);
        return;
    }
    const uint8_t *nibbles = block + (type == QUANT_MXFP4 ? 1 : type == QUANT_IQ4_NL ? 2 : 8);
    for (int i = 0; i < QUANT_SUB; i++)
        n[i] = nibbles[16 * sub + i % 16] >> i / 16 * 4 & 15;
}

int8_t quant_byte_scale(uint32_t type, const uint8_t *block, int sub)
{
    if (type == QUANT_IQ4_XS) {
        const int low = block[4 + sub / 2] >> sub % 2 * 4 & 15;
        return (int8_t)((low | (block[2 + sub / 4] >> sub % 4 * 2 & 3) << 4) - 32);
    }
    if (type == QUANT_IQ3_XXS)
        return (int8_t)(2 * (block[69 + 4 * sub] >> 4) + 1);
    return (int8_t)(2 * (block[106 + sub / 2] >> sub % 2 * 4 & 15) + 1);
}

float quant_e8m0(uint8_t e)
{
    return num_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

static void load_looked_up(uint32_t type, const uint8_t *block, int sub, struct quant_sub *s)
{
    const int8_t *table = quant_table(type);
    uint8_t n[QUANT_SUB];
    quant_sub_nibbles(type, block, sub, n);
    for (int i = 0; i < QUANT_SUB; i++)
        s->q[i] = table[n[i]];
    if (type == QUANT_MXFP4)
        s->d = quant_e8m0(block[0]);
    else if (type == QUANT_IQ4_NL)
        s->d = load_f16(block);
    else
        s->d = load_f16(block) * (type == QUANT_IQ3_XXS ? 0.25f : 1.0f) *
               (float)quant_byte_scale(type, block, sub);
}

/* ---- any type -------------------------------------------------------------------------------- */

bool quant_readable(uint32_t type)
{
    switch (type) {
    case QUANT_Q8_0:
    case QUANT_Q4_0:
    case QUANT_Q4_1:
    case QUANT_Q5_0:
    case QUANT_Q5_1:
    case QUANT_Q2_K:
    case QUANT_Q3_K:
    case QUANT_Q4_K:
    case QUANT_Q5_K:
    case QUANT_Q6_K:
        return true;
    default:
        return quant_table(type) != NULL;
    }
}

void quant_sub_load(uint32_t type, const uint8_t *row, uint64_t index, struct quant_sub *ret)
{
    const struct quant_info *info = quant_find(type);
    const uint32_t subs = info->block / QUANT_SUB; /* 1 or 8 */
    const uint8_t *block = row + index / subs * info->block_bytes;
    const int sub = (int)(index % subs);
    ret->scale[0] = ret->scale[1] = ret->min_scale[0] = ret->min_scale[1] = 1;
    ret->has_min = false;
    ret->min = 0.0f;
    switch (type) {
    case QUANT_Q8_0:
        load_q8_0(block, ret);
        return;
    case QUANT_Q4_0:
        load_q4_0(block, ret);
        return;
    case QUANT_Q4_1:
        load_q4_1(block, ret);
        return;
    case QUANT_Q5_0:
        load_q5_0(block, ret);
        return;
    case QUANT_Q5_1:
        load_q5_1(block, ret);
        return;
    case QUANT_Q2_K:
        load_q2_k(block, sub, ret);
        return;
    case QUANT_Q3_K:
        load_q3_k(block, sub, ret);
        return;
    case QUANT_Q4_K:
        load_q45_k(block, block + 16, sub, ret);
        return;
    case QUANT_Q5_K:
        load_q45_k(block, block + 48, sub, ret);
        add_q5_k_bits(block + 16, sub, ret);
        return;
    case QUANT_Q6_K:
        load_q6_k(block, sub, ret);
        return;
    default:
        assert(quant_table(type) && "a type that quant_readable refuses");
        load_looked_up(type, block, sub, ret);
    }
}

void quant_sub_values(const struct quant_sub *s, float *x)
{
    for (uint32_t i = 0; i < QUANT_SUB; i++) {
        const uint32_t half = i / 16;
        const float w = s->d * (float)s->scale[half], q = (float)s->q[i];
        x[i] = s->has_min ? fmaf(w, q, -(s->min * (float)s->min_scale[half])) : w * q;
    }
}

float quant_float(uint32_t type, const uint8_t *row, uint64_t i)
{
    float f;
    uint16_t h;
    if (type == QUANT_F32) {
        memcpy(&f, row + 4 * i, sizeof(f));
        return f;
    }
    memcpy(&h, row + 2 * i, sizeof(h));
    return type == QUANT_F16 ? num_f32_from_f16(h) : num_f32_from_bf16(h);
}

void quant_row_values(uint32_t type, const uint8_t *row, uint64_t n, float *x)
{
    if (!quant_find(type)->quantized) {
        for (uint64_t i = 0; i < n; i++)
            x[i] = quant_float(type, row, i);
        return;
    }
    for (uint64_t index = 0; index < n / QUANT_SUB; index++) {
        struct quant_sub s;
        quant_sub_load(type, row, index, &s);
        quant_sub_values(&s, x + index * QUANT_SUB);
    }
}
