/* num.h: scalar numerics: exp, log, silu, gelu, swiglu and the 16-bit float types, with every
 * bit specified.
 *
 * kernels/NUMERICS.md, "Scalar functions", is the definition; num.c follows it line by line. Only
 * IEEE-754 binary32 operations and explicit fmaf are used, no libm function besides fmaf (which
 * IEEE defines exactly), so every machine gives the same bits, and so do SIMD and CUDA lanes
 * (num_avx2.h is one such version).
 *
 * Threads: pure functions, any thread, default rounding mode, denormals kept. Never: allocates,
 * prints, sets errno, depends on global state. */
#ifndef HEARTH_KERNELS_BASE_NUM_H
#define HEARTH_KERNELS_BASE_NUM_H

#include <stdint.h>
#include <string.h>

/* Below NUM_EXP_MIN exp is +0; above NUM_EXP_MAX it is exp(NUM_EXP_MAX). */
#define NUM_EXP_MIN (-87.0f)
#define NUM_EXP_MAX 88.0f

/* Constants of num_exp; c6 .. c2: a polynomial near (exp(r) - 1 - r) / r^2 on |r| <= ln(2)/2. */
#define NUM_LOG2E 0x1.715476p+0f
#define NUM_LN2_HI 0x1.62e430p-1f   /* ln 2 rounded to binary32; n * HI is exact inside fmaf */
#define NUM_LN2_LO -0x1.05c610p-29f /* ln 2 - HI */
#define NUM_ROUND 0x1.8p+23f        /* t = x + NUM_ROUND has rint(x) in its low bits, |x| < 2^22 */
#define NUM_EXP_C6 0x1.6d110ap-10f
#define NUM_EXP_C5 0x1.120b6ep-7f
#define NUM_EXP_C4 0x1.55551ap-5f
#define NUM_EXP_C3 0x1.5554dcp-3f
#define NUM_EXP_C2 0x1.000000p-1f

/* e^x, at most 1 ulp off. exp(0) is exactly 1. NaN gives NaN, -inf gives +0, +inf gives exp(88)
 * = 1.65e38. */
float num_exp(float x);

/* The natural logarithm, at most 2 ulp off, denormals included. log(1) is +0; +-0 gives -inf, +inf
 * gives +inf; a negative argument or NaN gives NaN. */
float num_log(float x);

/* 1 / (1 + exp(-x)), IEEE divide. NaN gives NaN; for x < -88 it is 1 / 1.65e38, not 0. */
float num_sigmoid(float x);

/* x / (1 + exp(-x)), IEEE divide. NaN gives NaN; for x < -88 it is x / 1.65e38, not 0. */
float num_silu(float x);

/* 1 / (1 + exp(-x)), IEEE divide. NaN gives NaN; for x < -88 it is 1 / 1.65e38, not 0. */
float num_sigmoid(float x);

/* log(1 + exp(x)), x itself above 20. NaN gives NaN. */
float num_softplus(float x);

/* Constants of num_gelu: 2 sqrt(2 / pi), and 0.044715 times it. */
#define NUM_GELU_A 0x1.988454p+0f
#define NUM_GELU_B 0x1.2444f2p-4f

/* GELU in its tanh form, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, which is
 * x / (1 + exp(-v)) with v = x (A + B x^2), IEEE divide. NaN gives NaN; where v < -88 it is
 * x / 1.65e38, not 0. */
float num_gelu(float x);

/* Constants of num_swiglu. */
#define NUM_SWIGLU_A 0x1.b3b646p+0f /* 1.702 */
#define NUM_SWIGLU_LIMIT 7.0f

/* The gate of gpt-oss: with g at most 7 and u between -7 and 7, g / (1 + exp(-1.702 g)) * (u + 1).
 * A NaN in either gives NaN. */
float num_swiglu(float g, float u);

/* cap * tanh(x / cap), tanh(v) as 1 - 2 / (1 + exp(2v)), IEEE divide. What is not finite gives NaN. */
float num_cap(float x, float cap);

static inline uint32_t num_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline float num_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

/* binary16 to binary32, exact. A NaN becomes quiet and keeps its payload, as vcvtph2ps does. */
static inline float num_f32_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00u) { /* inf, NaN */
        const uint32_t payload = (magnitude & 0x3ffu) << 13;
        return num_float(sign | 0x7f800000u | payload | (payload != 0 ? 0x400000u : 0u));
    }
    if (magnitude < 0x400u) { /* zero or denormal: magnitude * 2^-24, exact */
        return num_float(sign | num_bits((float)magnitude * 0x1p-24f));
    }
    return num_float(sign | ((magnitude << 13) + (112u << 23)));
}

/* binary32 to binary16, nearest even. Above 65519.99 it is inf; a NaN becomes quiet and keeps the
 * upper ten bits of its payload, as vcvtps2ph does. */
static inline uint16_t num_f16_from_f32(float x)
{
    const uint32_t bits = num_bits(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) {
        return (uint16_t)(sign | 0x7c00u);
    } /* 65520: half way to 2^16 */
    if (magnitude <
        0x38800000u) { /* below 2^-14: units of 2^-24; the addition rounds to nearest even */
        return (uint16_t)(sign | (num_bits(num_float(magnitude) + 0.5f) - 0x3f000000u));
    }
    const uint32_t odd = (magnitude >> 13) & 1u;
    return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}

/* bfloat16 to binary32, exact, every payload kept. */
static inline float num_f32_from_bf16(uint16_t b)
{
    return num_float((uint32_t)b << 16);
}

/* binary32 to bfloat16, nearest even. Above the largest value it is inf; a NaN becomes quiet. */
static inline uint16_t num_bf16_from_f32(float x)
{
    const uint32_t bits = num_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#endif
