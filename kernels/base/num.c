/* num.c: kernels/NUMERICS.md, "Scalar functions", line by line. */
#include "kernels/base/num.h"

#include <math.h>

float num_exp(float x)
{
    const float a = NUM_EXP_MAX < x ? NUM_EXP_MAX : x; /* in this order a NaN is kept */
    const float t = fmaf(a, NUM_LOG2E, NUM_ROUND);
    const float n = t - NUM_ROUND; /* rint(a * log2 e), exact */
    float r = fmaf(n, -NUM_LN2_HI, a);
    r = fmaf(n, -NUM_LN2_LO, r);
    float p = fmaf(NUM_EXP_C6, r, NUM_EXP_C5);
    p = fmaf(p, r, NUM_EXP_C4);
    p = fmaf(p, r, NUM_EXP_C3);
    p = fmaf(p, r, NUM_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    /* 2^n: the shift leaves only n's low bits, since the low nine bits of NUM_ROUND's pattern are
     * 0. -126 <= n <= 127, so the factor is normal and the product exact. */
    const float scale = num_float((num_bits(t) + 127u) << 23);
    const float y = p * scale;
    return x < NUM_EXP_MIN ? 0.0f : y;
}

/* P of NUMERICS.md: log(1 + f) = f - f^2/2 + f^3 P(f) for sqrt(1/2) - 1 <= f < sqrt(2) - 1. */
static float log_polynomial(float f)
{
    float p = fmaf(0x1.1d8ea6p-4f, f, -0x1.d635bcp-4f);
    p = fmaf(p, f, 0x1.dea282p-4f);
    p = fmaf(p, f, -0x1.fcf4c6p-4f);
    p = fmaf(p, f, 0x1.23d21ap-3f);
    p = fmaf(p, f, -0x1.555b4ap-3f);
    p = fmaf(p, f, 0x1.999d5ap-3f);
    p = fmaf(p, f, -0x1.fffffcp-3f);
    return fmaf(p, f, 0x1.555554p-2f);
}

float num_log(float x)
{
    if (!(x > 0.0f)) {
        return x == 0.0f ? num_float(0xff800000u) : num_float(0x7fc00000u);
    }
    if (num_bits(x) == 0x7f800000u) {
        return x;
    }
    uint32_t bits = num_bits(x);
    int32_t e = 0;
    if (bits < 0x00800000u) { /* denormal: times 2^23, exact */
        bits = num_bits(x * 0x1p23f);
        e = -23;
    }
    /* x = 2^e (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2) */
    const int32_t k = (int32_t)(bits - 0x3f3504f3u) >> 23;
    const float f = num_float(bits - ((uint32_t)k << 23)) - 1.0f;
    const float n = (float)(e + k);
    const float ff = f * f;
    float y = log_polynomial(f) * f;
    y = fmaf(y, ff, n * NUM_LN2_LO);
    y = fmaf(ff, -0.5f, y);
    y = y + f;
    return fmaf(n, NUM_LN2_HI, y);
}

float num_sigmoid(float x)
{
    return 1.0f / (1.0f + num_exp(-x));
}

float num_softplus(float x)
{
    return x > 20.0f ? x : num_log(1.0f + num_exp(x));
}

float num_silu(float x)
{
    return x / (1.0f + num_exp(-x));
}

float num_gelu(float x)
{
    const float v = x * fmaf(NUM_GELU_B, x * x, NUM_GELU_A);
    return x / (1.0f + num_exp(-v));
}

float num_cap(float x, float cap)
{
    const float v = x / cap;
    return cap * (1.0f - 2.0f / (1.0f + num_exp(v + v))) + (x - x);
}

float num_swiglu(float g, float u)
{
    const float limit = NUM_SWIGLU_LIMIT, a = g > limit ? limit : g;
    const float c = u > limit ? limit : u < -limit ? -limit : u;
    return a / (1.0f + num_exp(-(NUM_SWIGLU_A * a))) * (c + 1.0f);
}
