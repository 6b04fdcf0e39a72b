/* cudasim: __nv_bfloat16 as bits, with conversions only (see cuda_fp16.h). */
#ifndef HEARTH_TESTS_CUDASIM_INCLUDE_CUDA_BF16_H
#define HEARTH_TESTS_CUDASIM_INCLUDE_CUDA_BF16_H

#include <cuda_runtime.h>

#ifdef __cplusplus

struct __nv_bfloat16 {
    unsigned short bits;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return __nv_bfloat16{bits};
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a)
{
    return a.bits;
}
static inline float __bfloat162float(__nv_bfloat16 a)
{
    return __uint_as_float((unsigned)a.bits << 16);
}
/* To nearest, ties to even; a NaN is the device's 0x7fff. */
static inline __nv_bfloat16 __float2bfloat16_rn(float a)
{
    const unsigned bits = __float_as_uint(a);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return __nv_bfloat16{0x7fff};
    return __nv_bfloat16{(unsigned short)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}
static inline __nv_bfloat16 __float2bfloat16(float a)
{
    return __float2bfloat16_rn(a);
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return __nv_bfloat162{__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}

#endif

#endif
