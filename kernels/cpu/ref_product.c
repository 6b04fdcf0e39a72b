/* NUMERICS.md, "Products" and "Embedding", over the weights as they lie in the file. */
#include "kernels/cpu/ref.h"

#include <math.h>
#include <string.h>

#include "kernels/num.h"

/* A block of Q8_0: f16 scale, 32 int8. Of Q4_0: f16 scale, 16 bytes of nibbles. */
enum { Q8_0_BYTES = 34, Q4_0_BYTES = 18 };

static float load_f16(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return num_f32_from_f16(h);
}

static float float_weight(uint32_t type, const uint8_t *row, uint32_t i)
{
    uint16_t h;
    float f;
    switch (type) {
    case QUANT_F32:
        memcpy(&f, row + 4 * (size_t)i, sizeof f);
        return f;
    case QUANT_F16:
        return load_f16(row + 2 * (size_t)i);
    default: /* BF16 */
        memcpy(&h, row + 2 * (size_t)i, sizeof h);
        return num_f32_from_bf16(h);
    }
}

/* Integer weight i (0..31) of block b, and the scale of the block. */
static int32_t block_weight(uint32_t type, const uint8_t *row, uint32_t b, uint32_t i)
{
    if (type == QUANT_Q8_0)
        return (int8_t)row[(size_t)b * Q8_0_BYTES + 2 + i];
    uint8_t byte = row[(size_t)b * Q4_0_BYTES + 2 + i % 16];
    return (i < 16 ? byte & 15 : byte >> 4) - 8;
}

static float block_scale(uint32_t type, const uint8_t *row, uint32_t b)
{
    return load_f16(row + (size_t)b * (type == QUANT_Q8_0 ? Q8_0_BYTES : Q4_0_BYTES));
}

static bool quantized(uint32_t type)
{
    return type == QUANT_Q8_0 || type == QUANT_Q4_0;
}

static float float_segment(uint32_t type, const uint8_t *row, const float *x, uint32_t begin,
                           uint32_t end)
{
    float acc = 0.0f;
    for (uint32_t i = begin; i < end; i++)
        acc = fmaf(float_weight(type, row, i), x[i], acc);
    return acc;
}

static float block_segment(uint32_t type, const uint8_t *row, const int8_t *q, const float *d,
                           uint32_t begin, uint32_t end)
{
    float acc = 0.0f;
    for (uint32_t b = begin / CPU_BLOCK; b < end / CPU_BLOCK; b++) {
        int32_t isum = 0;
        for (uint32_t i = 0; i < CPU_BLOCK; i++)
            isum += block_weight(type, row, b, i) * q[b * CPU_BLOCK + i];
        acc = fmaf((float)isum, block_scale(type, row, b) * d[b], acc);
    }
    return acc;
}

static float output(const struct cpu_product *p, uint32_t r, uint32_t o)
{
    const struct model_tensor *t = &p->matrix->file;
    const struct cpu_input *x = p->x;
    const uint8_t *row = t->data + o * t->row_bytes;
    size_t at = (size_t)r * x->stride;
    float y = 0.0f;
    for (uint32_t begin = 0; begin < t->cols; begin += CPU_SEGMENT) {
        uint32_t end = t->cols - begin < CPU_SEGMENT ? t->cols : begin + CPU_SEGMENT;
        float seg = quantized(t->type)
                        ? block_segment(t->type, row, x->q + at, x->d + at / CPU_BLOCK, begin, end)
                        : float_segment(t->type, row, x->f + at, begin, end);
        y = begin == 0 ? seg : y + seg;
    }
    if (p->residual)
        y = y + p->residual[(size_t)r * p->stride + o];
    return y;
}

void ref_product(const struct cpu_product *p)
{
    uint32_t end = p->group1 * CPU_LANES;
    for (uint32_t r = p->row0; r < p->row1; r++) {
        for (uint32_t o = p->group0 * CPU_LANES; o < end; o++)
            p->y[(size_t)r * p->stride + o] = o < p->matrix->file.rows ? output(p, r, o) : 0.0f;
    }
}

void ref_matrix_row(const struct model_tensor *t, uint32_t row, float *x)
{
    const uint8_t *data = t->data + row * t->row_bytes;
    for (uint32_t i = 0; i < t->cols; i++) {
        if (quantized(t->type))
            x[i] = block_scale(t->type, data, i / CPU_BLOCK) *
                   (float)block_weight(t->type, data, i / CPU_BLOCK, i % CPU_BLOCK);
        else
            x[i] = float_weight(t->type, data, i);
    }
}
