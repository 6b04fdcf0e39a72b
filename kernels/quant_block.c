#include "kernels/quant_block.h"

#include <assert.h>
#include <string.h>

#include "kernels/num.h"

static float load_f16(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return num_f32_from_f16(h);
}

/* f16 d, then int8 q[32]. */
static void load_q8_0(const uint8_t *block, struct quant_sub *s)
{
    s->d = load_f16(block);
    memcpy(s->q, block + 2, QUANT_SUB);
}

/* f16 d, then 16 bytes: weight i in the low nibble of byte i, i + 16 in the high one, minus 8. */
static void load_q4_0(const uint8_t *block, struct quant_sub *s)
{
    s->d = load_f16(block);
    for (int i = 0; i < 16; i++) {
        s->q[i] = (int8_t)((block[2 + i] & 15) - 8);
        s->q[i + 16] = (int8_t)((block[2 + i] >> 4) - 8);
    }
}

bool quant_readable(uint32_t type)
{
    return type == QUANT_Q8_0 || type == QUANT_Q4_0;
}

void quant_sub_load(uint32_t type, const uint8_t *row, uint64_t index, struct quant_sub *ret)
{
    const struct quant_info *info = quant_find(type);
    const uint8_t *block = row + index * QUANT_SUB / info->block * info->block_bytes;
    ret->scale[0] = ret->scale[1] = 1;
    ret->has_min = false;
    ret->min = 0.0f;
    switch (type) {
    case QUANT_Q8_0:
        load_q8_0(block, ret);
        return;
    case QUANT_Q4_0:
        load_q4_0(block, ret);
        return;
    default:
        assert(!"a type that quant_readable refuses");
    }
}

float quant_float(uint32_t type, const uint8_t *row, uint64_t i)
{
    float f;
    uint16_t h;
    if (type == QUANT_F32) {
        memcpy(&f, row + 4 * i, sizeof f);
        return f;
    }
    memcpy(&h, row + 2 * i, sizeof h);
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
        for (uint32_t i = 0; i < QUANT_SUB; i++)
            x[index * QUANT_SUB + i] = s.d * (float)s.q[i];
    }
}
