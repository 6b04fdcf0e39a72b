/* cudasim: __half as bits, with the conversions that hearth uses: one IEEE rounding each.
 * Arithmetic on __half is missing on purpose: canonical sums are f32 (kernels/NUMERICS.md). */
#ifndef HEARTH_TESTS_CUDASIM_INCLUDE_CUDA_FP16_H
#define HEARTH_TESTS_CUDASIM_INCLUDE_CUDA_FP16_H

#include <cuda_runtime.h>

#ifdef __cplusplus

struct __half {
    unsigned short bits;
};
struct alignas(4) __half2 {
    __half x, y;
};
typedef __half half;
typedef __half2 half2;

static inline __half __ushort_as_half(unsigned short bits)
{
    return __half{bits};
}
static inline unsigned short __half_as_ushort(__half a)
{
    return a.bits;
}

/* Exact; a NaN becomes quiet. A denormal is its ten bits times 2^-24. */
static inline float __half2float(__half a)
{
    const unsigned sign = (a.bits & 0x8000u) << 16, exponent = a.bits >> 10 & 31;
    const unsigned fraction = a.bits & 1023u;

    if (exponent == 31)
        return __uint_as_float(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    if (exponent == 0)
        return __uint_as_float(__float_as_uint((float)fraction * 0x1p-24f) | sign);
    return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

/* To nearest, ties to even: the rounding is one of the binary64 sum with a power of two whose last
 * bit is the last bit of the result. */
static inline __half __float2half_rn(float a)
{
    const unsigned bits = __float_as_uint(a), sign = bits >> 16 & 0x8000u;
    const unsigned magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u)
        return __half{(unsigned short)(sign | 0x7e00u | (magnitude >> 13 & 1023u))};
    if (magnitude >= 0x47800000u) /* 2^16 and above */
        return __half{(unsigned short)(sign | 0x7c00u)};
    int exponent = (int)(magnitude >> 23) - 127;
    if (exponent < -14)
        exponent = -14;
    /* steps of 2^(exponent - 10) */
    const double units = (double)__uint_as_float(magnitude) * ldexp(1.0, 10 - exponent);
    const unsigned whole = (unsigned)((units + 0x1p52) - 0x1p52);
    /* whole 2048 carries into the exponent, as the fields lie side by side */
    return __half{(unsigned short)(sign | ((unsigned)(exponent + 14) * 1024u + whole))};
}
static inline __half __float2half(float a)
{
    return __float2half_rn(a);
}

static inline __half2 __halves2half2(__half a, __half b)
{
    return __half2{a, b};
}
static inline __half __low2half(__half2 a)
{
    return a.x;
}
static inline __half __high2half(__half2 a)
{
    return a.y;
}
static inline float __low2float(__half2 a)
{
    return __half2float(a.x);
}
static inline float __high2float(__half2 a)
{
    return __half2float(a.y);
}
static inline float2 __half22float2(__half2 a)
{
    return make_float2(__half2float(a.x), __half2float(a.y));
}
static inline __half2 __floats2half2_rn(float a, float b)
{
    return __half2{__float2half_rn(a), __float2half_rn(b)};
}

#endif

#endif
