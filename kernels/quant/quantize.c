/* quantize.c: rows, plain numbers, and blocks of 32. See quantize.h. */
#include "kernels/quant/quantize.h"

#include "kernels/quant/quant_block.h"
#include "kernels/quant/quantize_fit.h"
#include "kernels/quant/quantize_grid.h"
#include "kernels/quant/quantize_k.h"

#include <errno.h>
#include <string.h>

enum { BLOCK = 32, VECTORS = BLOCK / 4 };

static const float F16_MAX = 65504.0f;

/* Writes a factor that fit_hold_f16 rounded; false where f16 cannot hold it. */
static bool put_f16(float d, uint8_t *to)
{
    const uint16_t half = num_f16_from_f32(d);
    memcpy(to, &half, sizeof(half));
    return d <= F16_MAX && d >= -F16_MAX;
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

static int write_q8_0(const float *x, uint8_t *out)
{
    v4f v[VECTORS], q[VECTORS];
    memcpy(v, x, sizeof(v));
    const float e = fit_extreme(v, VECTORS);
    const float d = fit_hold_f16((e < 0 ? -e : e) / 127.0f);
    if (!put_f16(d, out))
        return -ERANGE;
    fit_round(v, VECTORS, fit_inverse(d), 0.0f, -127.0f, 127.0f, q);
    for (int i = 0; i < VECTORS; i++) {
        const v4i bits = (v4i)(q[i] + NUM_ROUND);
        for (int j = 0; j < 4; j++)
            out[2 + 4 * i + j] = (uint8_t)bits[j];
    }
    return 0;
}

/* Integers q + offset, 0 .. 31: the low four bits; weights 0 .. 15 in low nibbles, 16 .. 31 in high
 * ones. */
static void put_nibbles(const v4f *q, float offset, uint8_t *out)
{
    for (int i = 0; i < VECTORS / 2; i++) {
        const v4i low = (v4i)(q[i] + (offset + NUM_ROUND));
        const v4i high = (v4i)(q[i + VECTORS / 2] + (offset + NUM_ROUND));
        const v4i both = (low & 15) | (high & 15) << 4;
        for (int j = 0; j < 4; j++)
            out[4 * i + j] = (uint8_t)both[j];
    }
}

/* Their fifth bits. */
static void put_fifth_bits(const v4f *q, float offset, uint8_t *out)
{
    memset(out, 0, BLOCK / 8);
    for (int i = 0; i < BLOCK; i++)
        out[i / 8] = (uint8_t)(out[i / 8] | ((int)(q[i / 4][i % 4] + offset) >> 4) << i % 8);
}

static int write_q4_0(const float *x, uint8_t *out)
{
    v4f v[VECTORS], q[VECTORS];
    memcpy(v, x, sizeof(v));
    if (!put_f16(fit_signed(v, VECTORS, -8.0f, fit_hold_f16, q), out))
        return -ERANGE;
    put_nibbles(q, 8.0f, out + 2);
    return 0;
}

static int write_q5_0(const float *x, uint8_t *out)
{
    v4f v[VECTORS], q[VECTORS];
    memcpy(v, x, sizeof(v));
    if (!put_f16(fit_signed(v, VECTORS, -16.0f, fit_hold_f16, q), out))
        return -ERANGE;
    put_fifth_bits(q, 16.0f, out + 2);
    put_nibbles(q, 16.0f, out + 6);
    return 0;
}

static int write_q4_1(const float *x, uint8_t *out)
{
    v4f v[VECTORS];
    struct fit_affine fit;
    memcpy(v, x, sizeof(v));
    fit_unsigned(v, VECTORS, 15.0f, false, fit_hold_f16, &fit);
    if (!put_f16(fit.d, out) || !put_f16(fit.m, out + 2))
        return -ERANGE;
    put_nibbles(fit.q, 0.0f, out + 4);
    return 0;
}

static int write_q5_1(const float *x, uint8_t *out)
{
    v4f v[VECTORS];
    struct fit_affine fit;
    memcpy(v, x, sizeof(v));
    fit_unsigned(v, VECTORS, 31.0f, false, fit_hold_f16, &fit);
    if (!put_f16(fit.d, out) || !put_f16(fit.m, out + 2))
        return -ERANGE;
    put_fifth_bits(fit.q, 0.0f, out + 4);
    put_nibbles(fit.q, 0.0f, out + 8);
    return 0;
}

static int write_iq4_nl(const float *x, uint8_t *out)
{
    v4f v[VECTORS], q[VECTORS];
    v4i index[VECTORS];
    memcpy(v, x, sizeof(v));
    if (!put_f16(fit_scale(v, VECTORS, &fit_iq4, fit_hold_f16, q), out))
        return -ERANGE;
    fit_nearest(&fit_iq4, q, VECTORS, 1.0f, q, index);
    for (int i = 0; i < BLOCK / 2; i++)
        out[2 + i] = (uint8_t)(index[i / 4][i % 4] | index[4 + i / 4][i % 4] << 4);
    return 0;
}

/* The nibble of a place in fit_fp4. */
static int nibble_fp4(int index)
{
    return index < 7 ? 15 - index : index - 7;
}

/* The largest weight that the format's own rule for e gives is 8 or 12 w, so that those above 12 w
 * are cut off; the next e cuts off none. */
static int write_mxfp4(const float *x, uint8_t *out)
{
    v4f v[VECTORS], q[2][VECTORS];
    v4i index[VECTORS];
    float error[2];
    memcpy(v, x, sizeof(v));
    const int e = (int)(num_bits(fit_extreme(v, VECTORS)) >> 23 & 255) - 2, low = e < 0 ? 0 : e;
    const float inverse = fit_inverse(quant_e8m0((uint8_t)low));
    for (int i = 0; i < VECTORS; i++)
        v[i] = v[i] * inverse; /* exact: a power of two */
    for (int k = 0; k < 2; k++) {
        fit_nearest(&fit_fp4, v, VECTORS, k ? 0.5f : 1.0f, q[k], NULL);
        error[k] = fit_error(v, q[k], VECTORS, k ? 2.0f : 1.0f, 0.0f);
    }
    const int k = error[1] < error[0];
    out[0] = (uint8_t)(low + k);
    fit_nearest(&fit_fp4, q[k], VECTORS, 1.0f, q[k], index);
    for (int i = 0; i < BLOCK / 2; i++)
        out[1 + i] =
            (uint8_t)(nibble_fp4(index[i / 4][i % 4]) | nibble_fp4(index[4 + i / 4][i % 4]) << 4);
    return 0;
}

/* ---- a row ----------------------------------------------------------------------------------- */

typedef int (*write_block)(const float *x, uint8_t *out);

static write_block writer_of(uint32_t type)
{
    switch (type) {
    case QUANT_Q8_0:
        return write_q8_0;
    case QUANT_Q4_0:
        return write_q4_0;
    case QUANT_Q4_1:
        return write_q4_1;
    case QUANT_Q5_0:
        return write_q5_0;
    case QUANT_Q5_1:
        return write_q5_1;
    case QUANT_MXFP4:
        return write_mxfp4;
    case QUANT_IQ4_NL:
        return write_iq4_nl;
    case QUANT_IQ4_XS:
        return quantize_iq4_xs;
    case QUANT_Q2_K:
        return quantize_q2_k;
    case QUANT_Q3_K:
        return quantize_q3_k;
    case QUANT_Q4_K:
        return quantize_q4_k;
    case QUANT_Q5_K:
        return quantize_q5_k;
    case QUANT_Q6_K:
        return quantize_q6_k;
    default:
        return NULL;
    }
}

static int write_halves(uint32_t type, const float *x, uint64_t n, uint8_t *out)
{
    const uint16_t inf = type == QUANT_F16 ? 0x7c00u : 0x7f80u;
    for (uint64_t i = 0; i < n; i++) {
        const uint16_t h = type == QUANT_F16 ? num_f16_from_f32(x[i]) : num_bf16_from_f32(x[i]);
        if ((h & inf) == inf)
            return -ERANGE;
        memcpy(out + 2 * i, &h, 2);
    }
    return 0;
}

static bool all_finite(const float *x, uint64_t n)
{
    v4i bad = {0};
    uint64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        v4i v;
        memcpy(&v, x + i, sizeof(v));
        bad |= (v & 0x7f800000) == 0x7f800000;
    }
    for (; i < n; i++)
        bad[0] |= (num_bits(x[i]) & 0x7f800000u) == 0x7f800000u;
    return (bad[0] | bad[1] | bad[2] | bad[3]) == 0;
}

bool quantize_writes(uint32_t type)
{
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16 || writer_of(type);
}

int quantize_row(uint32_t type, const float *x, uint64_t n, uint8_t *out)
{
    if (!quantize_writes(type))
        return -ENOTSUP;
    const struct quant_info *info = quant_find(type);
    if (n % info->block != 0)
        return -EINVAL;
    if (!all_finite(x, n))
        return -EDOM;
    if (type == QUANT_F32) {
        memcpy(out, x, 4 * n);
        return 0;
    }
    if (!info->quantized)
        return write_halves(type, x, n, out);
    const write_block write = writer_of(type);
    int rc = 0;
    for (uint64_t b = 0; b < n / info->block && !rc; b++)
        rc = write(x + b * info->block, out + b * info->block_bytes);
    return rc;
}
