/* num_device.h: NUMERICS.md, "Scalar functions", on the device, line by line, and sums over a warp.
 * Constants: num.h. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_NUM_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_NUM_DEVICE_H

#include "kernels/cuda/device.h"
#include "kernels/base/num.h"
#include "kernels/cuda/cuda.h"

#define FULL_WARP 0xffffffffu

static __device__ __forceinline__ float device_exp(float x)
{
    const float a = NUM_EXP_MAX < x ? NUM_EXP_MAX : x;
    const float t = __fmaf_rn(a, NUM_LOG2E, NUM_ROUND);
    const float n = __fadd_rn(t, -NUM_ROUND);
    float r = __fmaf_rn(n, -(NUM_LN2_HI), a);
    r = __fmaf_rn(n, -(NUM_LN2_LO), r);
    float p = __fmaf_rn(NUM_EXP_C6, r, NUM_EXP_C5);
    p = __fmaf_rn(p, r, NUM_EXP_C4);
    p = __fmaf_rn(p, r, NUM_EXP_C3);
    p = __fmaf_rn(p, r, NUM_EXP_C2);
    p = __fmaf_rn(p, r, 1.0f);
    p = __fmaf_rn(p, r, 1.0f);
    const float scale = __uint_as_float((__float_as_uint(t) + 127u) << 23);
    const float y = __fmul_rn(p, scale);
    return x < NUM_EXP_MIN ? 0.0f : y;
}

static __device__ float device_log(float x)
{
    if (!(x > 0.0f))
        return __uint_as_float(x == 0.0f ? 0xff800000u : 0x7fc00000u);
    uint32_t bits = __float_as_uint(x);
    if (bits == 0x7f800000u)
        return x;
    int e = 0;
    if (bits < 0x00800000u) { /* denormal: times 2^23, exact */
        bits = __float_as_uint(__fmul_rn(x, 0x1p23f));
        e = -23;
    }
    const int k = (int)(bits - 0x3f3504f3u) >> 23;
    const float f = __fadd_rn(__uint_as_float(bits - ((uint32_t)k << 23)), -1.0f);
    const float n = (float)(e + k), ff = __fmul_rn(f, f);
    float p = __fmaf_rn(0x1.1d8ea6p-4f, f, -0x1.d635bcp-4f);
    p = __fmaf_rn(p, f, 0x1.dea282p-4f);
    p = __fmaf_rn(p, f, -0x1.fcf4c6p-4f);
    p = __fmaf_rn(p, f, 0x1.23d21ap-3f);
    p = __fmaf_rn(p, f, -0x1.555b4ap-3f);
    p = __fmaf_rn(p, f, 0x1.999d5ap-3f);
    p = __fmaf_rn(p, f, -0x1.fffffcp-3f);
    p = __fmaf_rn(p, f, 0x1.555554p-2f);
    float y = __fmul_rn(p, f);
    y = __fmaf_rn(y, ff, __fmul_rn(n, NUM_LN2_LO));
    y = __fmaf_rn(ff, -0.5f, y);
    y = __fadd_rn(y, f);
    return __fmaf_rn(n, NUM_LN2_HI, y);
}

static __device__ __forceinline__ float device_sigmoid(float x)
{
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, device_exp(-x)));
}

static __device__ __forceinline__ float device_softplus(float x)
{
    return x > 20.0f ? x : device_log(__fadd_rn(1.0f, device_exp(x)));
}

/* silu(g) * u, gelu(g) * u, or swiglu(g, u). */
static __device__ __forceinline__ float device_gated(uint32_t gate, float g, float u)
{
    const float limit = NUM_SWIGLU_LIMIT;
    float v = g;
    if (gate == CUDA_GATE_GELU)
        v = __fmul_rn(g, __fmaf_rn(NUM_GELU_B, __fmul_rn(g, g), NUM_GELU_A));
    if (gate == CUDA_GATE_SWIGLU) {
        g = g > limit ? limit : g;
        u = __fadd_rn(u > limit ? limit : u < -limit ? -limit : u, 1.0f);
        v = __fmul_rn(NUM_SWIGLU_A, g);
    }
    return __fmul_rn(__fdiv_rn(g, __fadd_rn(1.0f, device_exp(-v))), u);
}

/* c tanh(x / c), and a NaN of what is not finite. */
static __device__ __forceinline__ float device_cap(float x, float c)
{
    const float v = __fdiv_rn(x, c), u = device_exp(__fadd_rn(v, v));
    const float tanh = __fadd_rn(1.0f, -__fdiv_rn(2.0f, __fadd_rn(1.0f, u)));
    return __fadd_rn(__fmul_rn(c, tanh), __fadd_rn(x, -x));
}

static __device__ __forceinline__ bool device_finite(float x)
{
    return (__float_as_uint(x) & 0x7fffffffu) < 0x7f800000u;
}

/* True if x does not round to an infinite f16 (65520 does). */
static __device__ __forceinline__ bool device_fits_f16(float x)
{
    return (__float_as_uint(x) & 0x7fffffffu) < 0x477ff000u;
}

static __device__ __forceinline__ unsigned warp_max(unsigned x)
{
    for (int step = 16; step > 0; step /= 2) {
        const unsigned other = __shfl_xor_sync(FULL_WARP, x, step);
        x = other > x ? other : x;
    }
    return x;
}

static __device__ __forceinline__ float warp_max_float(float x)
{
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(FULL_WARP, x, step);
        x = other > x ? other : x;
    }
    return x;
}

static __device__ __forceinline__ int warp_sum(int x)
{
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(FULL_WARP, x, step);
    return x;
}

/* The tree of NUMERICS.md over the lanes, stride 16 to 1: the sum in lane 0. */
static __device__ __forceinline__ float warp_tree(float x)
{
    for (int stride = 16; stride > 0; stride /= 2)
        x = __fadd_rn(x, __shfl_down_sync(FULL_WARP, x, stride));
    return x;
}

#endif
