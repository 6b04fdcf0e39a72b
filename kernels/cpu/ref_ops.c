/* ref_ops.c: NUMERICS.md, "RMSNorm", "Activations of a quantized matrix", "Rotary embedding", "KV",
 * "One pass". */
#include "kernels/cpu/ref.h"

#include "kernels/base/num.h"

#include <math.h>
#include <string.h>

static float sum_of_squares(const float *x, uint32_t n)
{
    float s[128] = {0};
    for (uint32_t i = 0; i < n; i++)
        s[i % 128] = fmaf(x[i], x[i], s[i % 128]);
    for (uint32_t stride = 64; stride > 0; stride /= 2) {
        for (uint32_t j = 0; j < stride; j++)
            s[j] = s[j] + s[j + stride];
    }
    return s[0];
}

void ref_norm(const float *x, const float *w, uint32_t n, float eps, float *y)
{
    float mean = sum_of_squares(x, n) / (float)n;
    float r = 1.0f / sqrtf(mean + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = (x[i] * r) * w[i];
}

/* rint of a value clamped to -127 .. 127; a NaN, whose block is not finite anyway, gives -127. */
static int8_t round_clamped(float v)
{
    if (v >= 127.0f)
        return 127;
    if (!(v > -127.0f))
        return -127;
    float t = v + 0x1.8p+23f; /* |v| < 2^22: rounds to an integer, nearest even */
    return (int8_t)(t - 0x1.8p+23f);
}

static void quantize_block(const float *x, int8_t *q, float *d, int32_t *sum)
{
    uint32_t m = 0;
    for (int i = 0; i < CPU_BLOCK; i++) {
        uint32_t magnitude = num_bits(x[i]) & 0x7fffffffu;
        m = magnitude > m ? magnitude : m;
    }
    float amax = num_float(m);
    *sum = 0;
    if (amax < 0x1p-100f) {
        *d = 0.0f;
        memset(q, 0, CPU_BLOCK);
        return;
    }
    *d = amax / 127.0f;
    float f = 127.0f / amax;
    for (int i = 0; i < CPU_BLOCK; i++) {
        q[i] = round_clamped(x[i] * f);
        *sum += q[i];
    }
}

void ref_quantize(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum)
{
    for (uint32_t b = 0; b < n / CPU_BLOCK; b++)
        quantize_block(x + b * CPU_BLOCK, q + b * CPU_BLOCK, d + b, sum + b);
}

void ref_add(float *x, const float *bias, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] + bias[i];
}

void ref_add_scaled(float *x, float factor, const float *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = fmaf(factor, y[i], x[i]);
}

void ref_rope_interleaved(float *x, uint32_t heads, uint32_t head_dim, uint32_t n_rot,
                          const float *cs, const float *sn)
{
    for (uint32_t h = 0; h < heads; h++, x += head_dim) {
        for (uint32_t i = 0; i < n_rot; i += 2) {
            float a = x[i], b = x[i + 1], c = cs[i], s = sn[i + 1];
            x[i] = fmaf(a, c, -(b * s));
            x[i + 1] = fmaf(b, c, a * s);
        }
    }
}

void ref_rope_neox(float *x, uint32_t heads, uint32_t head_dim, uint32_t n_rot, const float *cs,
                   const float *sn)
{
    uint32_t half = n_rot / 2;
    for (uint32_t h = 0; h < heads; h++, x += head_dim) {
        for (uint32_t i = 0; i < half; i++) {
            float a = x[i], b = x[i + half], c = cs[i], s = sn[i + half];
            x[i] = fmaf(a, c, -(b * s));
            x[i + half] = fmaf(b, c, a * s);
        }
    }
}

bool ref_finite(const float *x, uint32_t n)
{
    bool all = true;
    for (uint32_t i = 0; i < n; i++)
        all &= (num_bits(x[i]) & 0x7fffffffu) < 0x7f800000u;
    return all;
}

bool ref_fits_f16(const float *x, uint32_t n)
{
    bool all = true;
    for (uint32_t i = 0; i < n; i++)
        all &= (num_bits(x[i]) & 0x7fffffffu) < 0x477ff000u; /* 65520 rounds to infinity */
    return all;
}

/* Value i of K or V, rounded to the KV's type. */
static void store(enum kv_type type, uint8_t *values, uint32_t i, float x)
{
    if (type == KV_F32)
        ((float *)(void *)values)[i] = x;
    else
        ((uint16_t *)(void *)values)[i] = num_f16_from_f32(x);
}

/* x [dim] as blocks of int8: integer i at q[i * step], scale b at scales[b * scale_step]. */
static void store_blocks(int8_t *q, uint32_t step, float *scales, uint32_t scale_step,
                         const float *x, uint32_t dim)
{
    for (uint32_t b = 0; b * KV_BLOCK < dim; b++) {
        float block[KV_BLOCK] = {0};
        int8_t rounded[KV_BLOCK];
        int32_t sum;
        uint32_t left = dim - b * KV_BLOCK, n = left < KV_BLOCK ? left : KV_BLOCK;
        memcpy(block, x + b * KV_BLOCK, n * sizeof(float));
        ref_quantize(block, KV_BLOCK, rounded, &scales[(size_t)b * scale_step], &sum);
        for (uint32_t i = 0; i < n; i++)
            q[(size_t)(b * KV_BLOCK + i) * step] = rounded[i];
    }
}

static void append_q8_0(const struct kv_layer *kv, uint8_t *kh, uint8_t *vh, uint32_t in_page,
                        const float *k, const float *v)
{
    float *k_scales = (float *)(void *)(kh + kv_scales_offset(kv->k_dim));
    float *v_scales = (float *)(void *)(vh + kv_scales_offset(kv->v_dim));
    store_blocks((int8_t *)kh + in_page, KV_PAGE_POSITIONS, k_scales + in_page, KV_PAGE_POSITIONS,
                 k, kv->k_dim);
    store_blocks((int8_t *)vh + (size_t)in_page * kv->v_dim, 1,
                 v_scales + (size_t)in_page * kv->v_blocks, 1, v, kv->v_dim);
}

void ref_append(const struct kv_layer *kv, uint8_t *page, uint32_t in_page, const float *k,
                const float *v)
{
    for (uint32_t h = 0; h < kv->n_head_kv; h++, k += kv->k_dim, v += kv->v_dim) {
        uint8_t *kh = page + kv_k_offset(kv, h), *vh = page + kv_v_offset(kv, h);
        if (kv->type == KV_Q8_0) {
            append_q8_0(kv, kh, vh, in_page, k, v);
            continue;
        }
        for (uint32_t d = 0; d < kv->k_dim; d++)
            store(kv->type, kh, d * KV_PAGE_POSITIONS + in_page, k[d]);
        for (uint32_t d = 0; d < kv->v_dim; d++)
            store(kv->type, vh, in_page * kv->v_dim + d, v[d]);
    }
}

void ref_silu_mul(const float *g, const float *u, uint32_t n, float *m)
{
    for (uint32_t i = 0; i < n; i++)
        m[i] = num_silu(g[i]) * u[i];
}

void ref_gelu_mul(const float *g, const float *u, uint32_t n, float *m)
{
    for (uint32_t i = 0; i < n; i++)
        m[i] = num_gelu(g[i]) * u[i];
}

void ref_swiglu(const float *g, const float *u, uint32_t n, float *m)
{
    for (uint32_t i = 0; i < n; i++)
        m[i] = num_swiglu(g[i], u[i]);
}

void ref_sigmoid_mul(const float *g, const float *u, uint32_t n, float *m)
{
    for (uint32_t i = 0; i < n; i++)
        m[i] = num_sigmoid(g[i]) * u[i];
}

void ref_product(const float *g, const float *u, uint32_t n, float *m)
{
    for (uint32_t i = 0; i < n; i++)
        m[i] = g[i] * u[i];
}

void ref_convolve(const struct cpu_convolution *a)
{
    for (uint32_t c = 0; c < a->n; c++) {
        float acc = a->bias ? a->bias[c] : 0.0f;
        for (uint32_t j = 0; j < a->n_taps; j++)
            acc = fmaf(a->taps[(size_t)j * a->n + c], a->x[j][c], acc);
        a->y[c] = a->silu ? num_silu(acc) : acc;
    }
}

void ref_unit(float *x, uint32_t n, float factor)
{
    float r = 1.0f / sqrtf(sum_of_squares(x, n) + 1e-6f);
    for (uint32_t i = 0; i < n; i++)
        x[i] = (x[i] * r) * factor;
}

void ref_delta_read(const float *state, const float *k, uint32_t n, float *p)
{
    for (uint32_t j = 0; j < STATE_COLUMNS; j++) {
        p[j] = 0.0f;
        for (uint32_t i = 0; i < n; i++)
            p[j] = fmaf(state[i * STATE_COLUMNS + j], k[i], p[j]);
    }
}

void ref_delta_step(const struct cpu_delta *a)
{
    for (uint32_t j = 0; j < STATE_COLUMNS; j++) {
        float o = 0.0f, p = 0.0f;
        for (uint32_t i = 0; i < a->n; i++) {
            const size_t at = (size_t)i * STATE_COLUMNS + j;
            float s = fmaf(a->k[i], a->d[j], a->from[at] * a->decay);
            if (a->to)
                a->to[at] = s;
            if (a->q)
                o = fmaf(s, a->q[i], o);
            if (a->next_k)
                p = fmaf(s, a->next_k[i], p);
        }
        if (a->q)
            a->o[j] = o;
        if (a->next_k)
            a->p[j] = p;
    }
}

void ref_cap(float *x, float cap, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = num_cap(x[i], cap);
}

bool ref_canonical_logits(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] + 0.0f;
    return ref_finite(x, n);
}

static bool always(void)
{
    return true;
}

const struct cpu_isa cpu_isa_ref = {
    .name = "ref",
    .usable = always,
    .norm = ref_norm,
    .quantize = ref_quantize,
    .matmul = ref_matmul,
    .add = ref_add,
    .add_scaled = ref_add_scaled,
    .rope = {[MODEL_ROPE_ADJACENT] = ref_rope_interleaved, [MODEL_ROPE_HALVES] = ref_rope_neox},
    .finite = ref_finite,
    .fits_f16 = ref_fits_f16,
    .append = ref_append,
    .attend = ref_attend,
    .attend_split = ref_attend_split,
    .attend_combine = ref_attend_combine,
    .gate_mul = {[MODEL_GATE_SILU] = ref_silu_mul,
                 [MODEL_GATE_GELU] = ref_gelu_mul,
                 [MODEL_GATE_SWIGLU] = ref_swiglu,
                 [MODEL_GATE_PRODUCT] = ref_product,
                 [MODEL_GATE_SIGMOID] = ref_sigmoid_mul},
    .convolve = ref_convolve,
    .unit = ref_unit,
    .delta_read = ref_delta_read,
    .delta_step = ref_delta_step,
    .cap = ref_cap,
    .canonical_logits = ref_canonical_logits,
};
