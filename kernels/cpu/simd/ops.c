/* ops.c: row-wise operations, over vec.h; compiled for AVX2 and AVX-512 (VARIANTS_ops.c in the
 * Makefile). See cpu.h for what each does and ref_ops.c for the order of its operations. */
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/vec.h"

#include <math.h>

enum { NORM_VECTORS = 128 / VEC };

static float sum_of_squares(const float *x, uint32_t n)
{
    vf s[NORM_VECTORS];
    UNROLL
    for (int j = 0; j < NORM_VECTORS; j++)
        s[j] = v_zero();
    uint32_t i = 0;
    for (; i + 128 <= n; i += 128) {
        UNROLL
        for (int j = 0; j < NORM_VECTORS; j++) {
            vf v = v_load(x + i + j * VEC);
            s[j] = v_fma(v, v, s[j]);
        }
    }
    /* The remainder goes to partial 0. A lane without a term adds 0 * 0 to a sum that is never -0,
     * which changes nothing. */
    UNROLL
    for (int j = 0; j < NORM_VECTORS; j++) {
        if (i < n) {
            vf v = n - i < VEC ? v_load_part(x + i, n - i) : v_load(x + i);
            s[j] = v_fma(v, v, s[j]);
            i += VEC;
        }
    }
    UNROLL
    for (int stride = NORM_VECTORS / 2; stride > 0; stride /= 2) {
        for (int j = 0; j < stride; j++)
            s[j] = v_add(s[j], s[j + stride]);
    }
#if defined(__AVX512F__)
    return v_fold8(v_fold16(s[0]));
#else
    return v_fold8(s[0]);
#endif
}

void SIMD(simd_unit)(float *x, uint32_t n, float factor)
{
    vf r = v_set1(1.0f / sqrtf(sum_of_squares(x, n) + 1e-6f)), f = v_set1(factor);
    uint32_t i = 0;
    for (; i + VEC <= n; i += VEC)
        v_store(x + i, v_mul(v_mul(v_load(x + i), r), f));
    if (i < n)
        v_store_part(x + i, v_mul(v_mul(v_load_part(x + i, n - i), r), f), n - i);
}

void SIMD(simd_norm)(const float *x, const float *w, uint32_t n, float eps, float *y)
{
    float mean = sum_of_squares(x, n) / (float)n;
    vf r = v_set1(1.0f / sqrtf(mean + eps));
    uint32_t i = 0;
    for (; i + VEC <= n; i += VEC)
        v_store(y + i, v_mul(v_mul(v_load(x + i), r), v_load(w + i)));
    if (i < n) {
        vf v = v_mul(v_mul(v_load_part(x + i, n - i), r), v_load_part(w + i, n - i));
        v_store_part(y + i, v, n - i);
    }
}

/* q [32] = rint(x * f) clamped, returns their sum. */
static int32_t round_block(const float *x, float f, int8_t *q)
{
#if defined(__AVX512F__)
    __m512i low = _mm512_set1_epi32(-127), high = _mm512_set1_epi32(127), sum = vi_zero();
    for (int i = 0; i < 32; i += 16) {
        __m512i v = _mm512_cvtps_epi32(v_mul(v_load(x + i), v_set1(f)));
        v = _mm512_min_epi32(_mm512_max_epi32(v, low), high);
        sum = _mm512_add_epi32(sum, v);
        _mm_storeu_si128((__m128i *)(void *)(q + i), _mm512_cvtepi32_epi8(v));
    }
    return _mm512_reduce_add_epi32(sum);
#else
    __m256i low = _mm256_set1_epi32(-127), high = _mm256_set1_epi32(127), v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_cvtps_epi32(v_mul(v_load(x + 8 * i), v_set1(f)));
        v[i] = _mm256_min_epi32(_mm256_max_epi32(v[i], low), high);
    }
    /* The pack instructions work per 128-bit half: the permutation restores the order of the
     * dwords. */
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3]));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
#endif
}

void SIMD(simd_quantize)(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum)
{
    for (uint32_t b = 0; b < n / CPU_BLOCK; b++, x += CPU_BLOCK, q += CPU_BLOCK) {
        vi m = vi_zero();
        UNROLL
        for (int i = 0; i < CPU_BLOCK; i += VEC)
            m = vi_max(m, v_magnitude(v_load(x + i)));
        float amax = num_float(vi_reduce_max(m));
        if (amax < 0x1p-100f) {
            d[b] = 0.0f;
            sum[b] = 0;
            memset(q, 0, CPU_BLOCK);
            continue;
        }
        d[b] = amax / 127.0f;
        sum[b] = round_block(x, 127.0f / amax, q);
    }
}

void SIMD(simd_add)(float *x, const float *bias, uint32_t n)
{
    uint32_t i = 0;
    for (; i + VEC <= n; i += VEC)
        v_store(x + i, v_add(v_load(x + i), v_load(bias + i)));
    if (i < n)
        v_store_part(x + i, v_add(v_load_part(x + i, n - i), v_load_part(bias + i, n - i)), n - i);
}

void SIMD(simd_add_scaled)(float *x, float factor, const float *y, uint32_t n)
{
    const vf f = v_set1(factor);
    uint32_t i = 0;
    for (; i + VEC <= n; i += VEC)
        v_store(x + i, v_fma(f, v_load(y + i), v_load(x + i)));
    if (i < n)
        v_store_part(x + i, v_fma(f, v_load_part(y + i, n - i), v_load_part(x + i, n - i)), n - i);
}

void SIMD(simd_rope_interleaved)(float *x, uint32_t heads, uint32_t head_dim, uint32_t n_rot,
                                 const float *cs, const float *sn)
{
    for (uint32_t h = 0; h < heads; h++, x += head_dim) {
        uint32_t i = 0;
        for (; i + 8 <= n_rot; i += 8) {
            __m256 v = _mm256_loadu_ps(x + i);
            __m256 other = _mm256_mul_ps(_mm256_permute_ps(v, 0xb1), _mm256_loadu_ps(sn + i));
            _mm256_storeu_ps(x + i, _mm256_fmadd_ps(v, _mm256_loadu_ps(cs + i), other));
        }
        for (; i < n_rot; i += 2) {
            float a = x[i], b = x[i + 1];
            x[i] = fmaf(a, cs[i], b * sn[i]);
            x[i + 1] = fmaf(b, cs[i + 1], a * sn[i + 1]);
        }
    }
}

void SIMD(simd_rope_neox)(float *x, uint32_t heads, uint32_t head_dim, uint32_t n_rot,
                          const float *cs, const float *sn)
{
    uint32_t half = n_rot / 2;
    for (uint32_t h = 0; h < heads; h++, x += head_dim) {
        float *y = x + half;
        uint32_t i = 0;
        for (; i + VEC <= half; i += VEC) {
            vf a = v_load(x + i), b = v_load(y + i), c = v_load(cs + i);
            v_store(x + i, v_fma(a, c, v_mul(b, v_load(sn + i))));
            v_store(y + i, v_fma(b, c, v_mul(a, v_load(sn + half + i))));
        }
        for (; i < half; i++) {
            float a = x[i], b = y[i];
            x[i] = fmaf(a, cs[i], b * sn[i]);
            y[i] = fmaf(b, cs[i], a * sn[half + i]);
        }
    }
}

static uint32_t largest_magnitude(const float *x, uint32_t n)
{
    vi m = vi_zero();
    uint32_t i = 0;
    for (; i + VEC <= n; i += VEC)
        m = vi_max(m, v_magnitude(v_load(x + i)));
    if (i < n)
        m = vi_max(m, v_magnitude(v_load_part(x + i, n - i)));
    return vi_reduce_max(m);
}

bool SIMD(simd_finite)(const float *x, uint32_t n)
{
    return largest_magnitude(x, n) < 0x7f800000u;
}

bool SIMD(simd_fits_f16)(const float *x, uint32_t n)
{
    return largest_magnitude(x, n) < 0x477ff000u; /* 65520 rounds to infinity */
}

static void append_f32(const struct kv_layer *kv, uint8_t *page, uint32_t in_page, const float *k,
                       const float *v)
{
    for (uint32_t h = 0; h < kv->n_head_kv; h++, k += kv->k_dim, v += kv->v_dim) {
        float *kh = (float *)(void *)(page + kv_k_offset(kv, h)) + in_page;
        float *vh = (float *)(void *)(page + kv_v_offset(kv, h)) + in_page * kv->v_dim;
        for (uint32_t d = 0; d < kv->k_dim; d++)
            kh[d * KV_PAGE_POSITIONS] = k[d];
        memcpy(vh, v, kv->v_dim * sizeof(float));
    }
}

/* x [dim] as blocks of int8: integer i at q[i * step], scale b at scales[b * scale_step]. */
static void store_blocks(int8_t *q, size_t step, float *scales, size_t scale_step, const float *x,
                         uint32_t dim)
{
    for (uint32_t d = 0; d < dim; d += KV_BLOCK, scales += scale_step) {
        float block[KV_BLOCK] = {0};
        int8_t rounded[KV_BLOCK];
        int32_t sum;
        uint32_t left = dim - d, n = left < KV_BLOCK ? left : KV_BLOCK;
        memcpy(block, x + d, n * sizeof(float));
        SIMD(simd_quantize)(block, KV_BLOCK, rounded, scales, &sum);
        for (uint32_t i = 0; i < n; i++)
            q[(d + i) * step] = rounded[i];
    }
}

static void append_q8_0(const struct kv_layer *kv, uint8_t *page, uint32_t in_page, const float *k,
                        const float *v)
{
    for (uint32_t h = 0; h < kv->n_head_kv; h++, k += kv->k_dim, v += kv->v_dim) {
        uint8_t *kh = page + kv_k_offset(kv, h), *vh = page + kv_v_offset(kv, h);
        float *k_scales = (float *)(void *)(kh + kv_scales_offset(kv->k_dim));
        float *v_scales = (float *)(void *)(vh + kv_scales_offset(kv->v_dim));
        store_blocks((int8_t *)kh + in_page, KV_PAGE_POSITIONS, k_scales + in_page,
                     KV_PAGE_POSITIONS, k, kv->k_dim);
        store_blocks((int8_t *)vh + (size_t)in_page * kv->v_dim, 1,
                     v_scales + (size_t)in_page * kv->v_blocks, 1, v, kv->v_dim);
    }
}

/* x [n] rounded to f16, value i at to[i * step]. */
ALWAYS_INLINE void store_f16(uint16_t *to, size_t step, const float *x, uint32_t n)
{
    uint32_t d = 0;
    for (; d + 8 <= n; d += 8) {
        uint16_t half[8];
        _mm_storeu_si128((__m128i *)(void *)half,
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + d), _MM_FROUND_TO_NEAREST_INT));
        for (uint32_t i = 0; i < 8; i++)
            to[(d + i) * step] = half[i];
    }
    for (; d < n; d++)
        to[d * step] = num_f16_from_f32(x[d]);
}

void SIMD(simd_append)(const struct kv_layer *kv, uint8_t *page, uint32_t in_page, const float *k,
                       const float *v)
{
    if (kv->type == KV_F32) {
        append_f32(kv, page, in_page, k, v);
        return;
    }
    if (kv->type == KV_Q8_0) {
        append_q8_0(kv, page, in_page, k, v);
        return;
    }
    for (uint32_t h = 0; h < kv->n_head_kv; h++, k += kv->k_dim, v += kv->v_dim) {
        uint16_t *kh = (uint16_t *)(void *)(page + kv_k_offset(kv, h));
        uint16_t *vh = (uint16_t *)(void *)(page + kv_v_offset(kv, h));
        store_f16(kh + in_page, KV_PAGE_POSITIONS, k, kv->k_dim);
        store_f16(vh + in_page * kv->v_dim, 1, v, kv->v_dim);
    }
}

/* g / (1 + exp(-v)) * u: v is g for silu; for sigmoid the first g is 1. Of two operands with a NaN
 * v_min and v_max give the second. */
ALWAYS_INLINE vf gate_mul(vf g, vf u, enum model_gate gate)
{
    vf v = g;
    if (gate == MODEL_GATE_PRODUCT)
        return v_mul(g, u);
    if (gate == MODEL_GATE_GELU)
        v = v_mul(g, v_fma(v_set1(NUM_GELU_B), v_mul(g, g), v_set1(NUM_GELU_A)));
    if (gate == MODEL_GATE_SWIGLU) {
        const vf limit = v_set1(NUM_SWIGLU_LIMIT);
        g = v_min(limit, g);
        u = v_add(v_max(v_neg(limit), v_min(limit, u)), v_set1(1.0f));
        v = v_mul(v_set1(NUM_SWIGLU_A), g);
    }
    const vf one = v_set1(1.0f);
    return v_mul(v_div(gate == MODEL_GATE_SIGMOID ? one : g, v_add(one, v_exp(v_neg(v)))), u);
}

ALWAYS_INLINE void gate_mul_row(const float *g, const float *u, uint32_t n, float *m,
                                enum model_gate gate)
{
    uint32_t i = 0;
    for (; i + VEC <= n; i += VEC)
        v_store(m + i, gate_mul(v_load(g + i), v_load(u + i), gate));
    if (i < n) {
        vf part = gate_mul(v_load_part(g + i, n - i), v_load_part(u + i, n - i), gate);
        v_store_part(m + i, part, n - i);
    }
}

void SIMD(simd_silu_mul)(const float *g, const float *u, uint32_t n, float *m)
{
    gate_mul_row(g, u, n, m, MODEL_GATE_SILU);
}

void SIMD(simd_gelu_mul)(const float *g, const float *u, uint32_t n, float *m)
{
    gate_mul_row(g, u, n, m, MODEL_GATE_GELU);
}

void SIMD(simd_swiglu)(const float *g, const float *u, uint32_t n, float *m)
{
    gate_mul_row(g, u, n, m, MODEL_GATE_SWIGLU);
}

void SIMD(simd_product)(const float *g, const float *u, uint32_t n, float *m)
{
    gate_mul_row(g, u, n, m, MODEL_GATE_PRODUCT);
}

void SIMD(simd_sigmoid_mul)(const float *g, const float *u, uint32_t n, float *m)
{
    gate_mul_row(g, u, n, m, MODEL_GATE_SIGMOID);
}

ALWAYS_INLINE vf cap_of(vf x, float cap)
{
    const vf one = v_set1(1.0f), v = v_div(x, v_set1(cap));
    const vf tanh = v_sub(one, v_div(v_set1(2.0f), v_add(one, v_exp(v_add(v, v)))));
    return v_add(v_mul(v_set1(cap), tanh), v_sub(x, x));
}

void SIMD(simd_cap)(float *x, float cap, uint32_t n)
{
    uint32_t i = 0;
    for (; i + VEC <= n; i += VEC)
        v_store(x + i, cap_of(v_load(x + i), cap));
    if (i < n)
        v_store_part(x + i, cap_of(v_load_part(x + i, n - i), cap), n - i);
}

bool SIMD(simd_canonical_logits)(float *x, uint32_t n)
{
    vi m = vi_zero();
    uint32_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        vf v = v_add(v_load(x + i), v_zero());
        v_store(x + i, v);
        m = vi_max(m, v_magnitude(v));
    }
    if (i < n) {
        vf v = v_add(v_load_part(x + i, n - i), v_zero());
        v_store_part(x + i, v, n - i);
        m = vi_max(m, v_magnitude(v));
    }
    return vi_reduce_max(m) < 0x7f800000u;
}
