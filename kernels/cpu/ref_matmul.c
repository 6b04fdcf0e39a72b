/* ref_matmul.c: NUMERICS.md, "Matmuls" and "Embedding", over the weights as stored in the file. */
#include "kernels/cpu/ref.h"

#include "kernels/quant/quant_block.h"

#include <math.h>

static float float_segment(uint32_t type, const uint8_t *row, const float *x, uint32_t begin,
                           uint32_t end)
{
    float acc = 0.0f;
    for (uint32_t i = begin; i < end; i++)
        acc = fmaf(quant_float(type, row, i), x[i], acc);
    return acc;
}

static float block_segment(uint32_t type, const uint8_t *row, const int8_t *q, const float *d,
                           uint32_t begin, uint32_t end)
{
    float acc = 0.0f;
    for (uint32_t b = begin / CPU_BLOCK; b < end / CPU_BLOCK; b++) {
        struct quant_sub w;
        int32_t half[2] = {0, 0}, sum[2] = {0, 0};
        quant_sub_load(type, row, b, &w);
        for (uint32_t i = 0; i < CPU_BLOCK; i++) {
            half[i / 16] += w.q[i] * q[b * CPU_BLOCK + i];
            sum[i / 16] += q[b * CPU_BLOCK + i];
        }
        int32_t isum = w.scale[0] * half[0] + w.scale[1] * half[1];
        int32_t asum = w.min_scale[0] * sum[0] + w.min_scale[1] * sum[1];
        acc = fmaf((float)isum, w.d * d[b], acc);
        if (w.has_min)
            acc = fmaf((float)asum, -(w.min * d[b]), acc);
    }
    return acc;
}

static float output(const struct cpu_matmul *p, uint32_t r, uint32_t o)
{
    const struct model_tensor *t = &p->matrix->file;
    const struct cpu_input *x = p->x;
    const uint8_t *row = t->data + o * t->row_bytes;
    size_t at = (size_t)(p->gather ? p->gather[r] : r) * x->stride;
    float y = 0.0f;
    for (uint32_t begin = 0; begin < t->cols; begin += CPU_SEGMENT) {
        uint32_t end = t->cols - begin < CPU_SEGMENT ? t->cols : begin + CPU_SEGMENT;
        float seg = quant_find(t->type)->quantized
                        ? block_segment(t->type, row, x->q + at, x->d + at / CPU_BLOCK, begin, end)
                        : float_segment(t->type, row, x->f + at, begin, end);
        y = begin == 0 ? seg : y + seg;
    }
    if (p->residual)
        y = y + p->residual[(size_t)r * p->stride + o];
    return y;
}

void ref_matmul(const struct cpu_matmul *p)
{
    uint32_t end = p->group1 * CPU_LANES;
    for (uint32_t r = p->row0; r < p->row1; r++) {
        for (uint32_t o = p->group0 * CPU_LANES; o < end; o++)
            p->y[(size_t)r * p->stride + o] = o < p->matrix->file.rows ? output(p, r, o) : 0.0f;
    }
}

void ref_matrix_row(const struct model_tensor *t, uint32_t row, float *x)
{
    quant_row_values(t->type, model_tensor_row(t, row), t->cols, x);
}
