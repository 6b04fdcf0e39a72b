/* cudasim: CUDA's C++ side for device code compiled by the host compiler: keywords, built-in
 * variables, intrinsics, typed launches. Own text. Threads are fibres, so everything here is
 * plain C++ on one thread; operations that wait or cross threads call the runtime (cudasim.h).
 *
 * Numerics: every *_rn function is one IEEE operation; -ffp-contract=off keeps the rest apart. */
#ifndef HEARTH_TESTS_CUDASIM_INCLUDE_CUDA_RUNTIME_H
#define HEARTH_TESTS_CUDASIM_INCLUDE_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include <cudasim.h>
#include <cudasim_vectors.h>

#define __global__
#define __device__ __attribute__((unused))
#define __host__
#define __constant__ const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
#ifndef __restrict__
#define __restrict__ __restrict
#endif

#define threadIdx (cudasim_self()->thread)
#define blockIdx (cudasim_self()->block)
#define blockDim (cudasim_self()->block_dim)
#define gridDim (cudasim_self()->grid_dim)
#define warpSize 32

/* ---- barriers, fences ---- */

static inline void __syncthreads(CUDASIM_HERE)
{
    (void)cudasim_barrier(CUDASIM_BARRIER, 0, CUDASIM_PLACE);
}
static inline int __syncthreads_count(int predicate, CUDASIM_HERE)
{
    return cudasim_barrier(CUDASIM_BARRIER_COUNT, predicate, CUDASIM_PLACE);
}
static inline int __syncthreads_and(int predicate, CUDASIM_HERE)
{
    return cudasim_barrier(CUDASIM_BARRIER_AND, predicate, CUDASIM_PLACE);
}
static inline int __syncthreads_or(int predicate, CUDASIM_HERE)
{
    return cudasim_barrier(CUDASIM_BARRIER_OR, predicate, CUDASIM_PLACE);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, CUDASIM_HERE)
{
    (void)cudasim_collective(CUDASIM_SYNC_WARP, mask, 0, 0, 32, CUDASIM_PLACE);
}
/* All fibres run on one thread: every store is seen in order. */
static inline void __threadfence_block(void)
{
}
static inline void __threadfence(void)
{
}
/* The host reads mapped memory on another thread. */
static inline void __threadfence_system(void)
{
    cudasim_fence_system();
}
static inline void __nanosleep(unsigned, CUDASIM_HERE)
{
    cudasim_yield(CUDASIM_PLACE);
}

/* ---- warps ---- */

template <class T> static inline uint64_t cudasim_bits(T value)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "4 or 8 plain bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <class T> static inline T cudasim_value(uint64_t bits)
{
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
}

#define CUDASIM_SHUFFLE_LIKE(name, kind, argument_type)                                            \
    template <class T>                                                                             \
    static inline T name(unsigned mask, T value, argument_type argument, int width = 32,           \
                         CUDASIM_HERE)                                                             \
    {                                                                                              \
        return cudasim_value<T>(cudasim_collective(                                                \
            kind, mask, cudasim_bits(value), (unsigned)argument, (unsigned)width, CUDASIM_PLACE)); \
    }
CUDASIM_SHUFFLE_LIKE(__shfl_sync, CUDASIM_SHUFFLE, int)
CUDASIM_SHUFFLE_LIKE(__shfl_up_sync, CUDASIM_SHUFFLE_UP, unsigned)
CUDASIM_SHUFFLE_LIKE(__shfl_down_sync, CUDASIM_SHUFFLE_DOWN, unsigned)
CUDASIM_SHUFFLE_LIKE(__shfl_xor_sync, CUDASIM_SHUFFLE_XOR, int)
#undef CUDASIM_SHUFFLE_LIKE

#define CUDASIM_VOTE(name, kind, result, type)                                                     \
    static inline result name(unsigned mask, type value, CUDASIM_HERE)                             \
    {                                                                                              \
        return (result)cudasim_collective(kind, mask, (uint32_t)value, 0, 32, CUDASIM_PLACE);      \
    }
CUDASIM_VOTE(__ballot_sync, CUDASIM_BALLOT, unsigned, int)
CUDASIM_VOTE(__any_sync, CUDASIM_ANY, int, int)
CUDASIM_VOTE(__all_sync, CUDASIM_ALL, int, int)
CUDASIM_VOTE(__reduce_add_sync, CUDASIM_REDUCE_ADD, int, int)
CUDASIM_VOTE(__reduce_min_sync, CUDASIM_REDUCE_MIN_S32, int, int)
CUDASIM_VOTE(__reduce_max_sync, CUDASIM_REDUCE_MAX_S32, int, int)
CUDASIM_VOTE(__reduce_add_sync, CUDASIM_REDUCE_ADD, unsigned, unsigned)
CUDASIM_VOTE(__reduce_min_sync, CUDASIM_REDUCE_MIN_U32, unsigned, unsigned)
CUDASIM_VOTE(__reduce_max_sync, CUDASIM_REDUCE_MAX_U32, unsigned, unsigned)
CUDASIM_VOTE(__reduce_and_sync, CUDASIM_REDUCE_AND, unsigned, unsigned)
CUDASIM_VOTE(__reduce_or_sync, CUDASIM_REDUCE_OR, unsigned, unsigned)
CUDASIM_VOTE(__reduce_xor_sync, CUDASIM_REDUCE_XOR, unsigned, unsigned)
#undef CUDASIM_VOTE

template <class T> static inline unsigned __match_any_sync(unsigned mask, T value, CUDASIM_HERE)
{
    return (unsigned)cudasim_collective(CUDASIM_MATCH_ANY, mask, cudasim_bits(value), 0, 32,
                                        CUDASIM_PLACE);
}

/* ---- atomics: integers only, as float sums would depend on the order ---- */

#define CUDASIM_ATOMIC_1(name, kind, type)                                                         \
    static inline type name(type *address, type value, CUDASIM_HERE)                               \
    {                                                                                              \
        return (type)cudasim_atomic(kind, address, sizeof(type), (uint64_t)value, 0,               \
                                    CUDASIM_PLACE);                                                \
    }
#define CUDASIM_ATOMIC_ALL(name, kind)                                                             \
    CUDASIM_ATOMIC_1(name, kind, int)                                                              \
    CUDASIM_ATOMIC_1(name, kind, unsigned)                                                         \
    CUDASIM_ATOMIC_1(name, kind, unsigned long long)
CUDASIM_ATOMIC_ALL(atomicAdd, CUDASIM_ATOMIC_ADD)
CUDASIM_ATOMIC_ALL(atomicExch, CUDASIM_ATOMIC_EXCHANGE)
CUDASIM_ATOMIC_ALL(atomicAnd, CUDASIM_ATOMIC_AND)
CUDASIM_ATOMIC_ALL(atomicOr, CUDASIM_ATOMIC_OR)
CUDASIM_ATOMIC_ALL(atomicXor, CUDASIM_ATOMIC_XOR)
CUDASIM_ATOMIC_1(atomicMin, CUDASIM_ATOMIC_MIN_SIGNED, int)
CUDASIM_ATOMIC_1(atomicMin, CUDASIM_ATOMIC_MIN, unsigned)
CUDASIM_ATOMIC_1(atomicMin, CUDASIM_ATOMIC_MIN, unsigned long long)
CUDASIM_ATOMIC_1(atomicMin, CUDASIM_ATOMIC_MIN_SIGNED, long long)
CUDASIM_ATOMIC_1(atomicMax, CUDASIM_ATOMIC_MAX_SIGNED, int)
CUDASIM_ATOMIC_1(atomicMax, CUDASIM_ATOMIC_MAX, unsigned)
CUDASIM_ATOMIC_1(atomicMax, CUDASIM_ATOMIC_MAX, unsigned long long)
CUDASIM_ATOMIC_1(atomicMax, CUDASIM_ATOMIC_MAX_SIGNED, long long)
#undef CUDASIM_ATOMIC_1
#undef CUDASIM_ATOMIC_ALL

#define CUDASIM_SUBTRACT(type)                                                                     \
    static inline type atomicSub(type *address, type value, CUDASIM_HERE)                          \
    {                                                                                              \
        return (type)cudasim_atomic(CUDASIM_ATOMIC_ADD, address, sizeof(type),                     \
                                    (uint64_t)0 - (uint64_t)value, 0, CUDASIM_PLACE);              \
    }
CUDASIM_SUBTRACT(int)
CUDASIM_SUBTRACT(unsigned)
#undef CUDASIM_SUBTRACT

#define CUDASIM_COMPARE(type)                                                                      \
    static inline type atomicCAS(type *address, type compare, type value, CUDASIM_HERE)            \
    {                                                                                              \
        return (type)cudasim_atomic(CUDASIM_ATOMIC_COMPARE, address, sizeof(type),                 \
                                    (uint64_t)value, (uint64_t)compare, CUDASIM_PLACE);            \
    }
CUDASIM_COMPARE(int)
CUDASIM_COMPARE(unsigned)
CUDASIM_COMPARE(unsigned long long)
#undef CUDASIM_COMPARE

/* ---- loads and stores with a cache hint: plain ones, at CUDA's alignment ---- */

template <class T> static inline void cudasim_aligned(const T *address, const char *file, int line)
{
    if ((uintptr_t)address % alignof(T) != 0)
        cudasim_misaligned(address, alignof(T), file, line);
}
#define CUDASIM_LOAD(name)                                                                         \
    template <class T> static inline T name(const T *address, CUDASIM_HERE)                        \
    {                                                                                              \
        cudasim_aligned(address, CUDASIM_PLACE);                                                   \
        return *address;                                                                           \
    }
CUDASIM_LOAD(__ldg)
CUDASIM_LOAD(__ldcg)
CUDASIM_LOAD(__ldca)
CUDASIM_LOAD(__ldcs)
CUDASIM_LOAD(__ldlu)
#undef CUDASIM_LOAD
#define CUDASIM_STORE(name)                                                                        \
    template <class T>                                                                             \
    static inline void name(T *address, typename std::common_type<T>::type value, CUDASIM_HERE)    \
    {                                                                                              \
        cudasim_aligned(address, CUDASIM_PLACE);                                                   \
        *address = value;                                                                          \
    }
CUDASIM_STORE(__stwb)
CUDASIM_STORE(__stcg)
CUDASIM_STORE(__stcs)
CUDASIM_STORE(__stwt)
#undef CUDASIM_STORE

/* ---- arithmetic ---- */

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}

static inline int __float_as_int(float a)
{
    return cudasim_value<int>(cudasim_bits(a));
}
static inline unsigned __float_as_uint(float a)
{
    return (unsigned)cudasim_bits(a);
}
static inline float __int_as_float(int a)
{
    return cudasim_value<float>(cudasim_bits(a));
}
static inline float __uint_as_float(unsigned a)
{
    return cudasim_value<float>(a);
}
static inline long long __double_as_longlong(double a)
{
    return (long long)cudasim_bits(a);
}
static inline double __longlong_as_double(long long a)
{
    return cudasim_value<double>((uint64_t)a);
}

static inline float __int2float_rn(int a)
{
    return (float)a;
}
static inline float __uint2float_rn(unsigned a)
{
    return (float)a;
}
/* Out of range saturates and a NaN is 0, as on the device. */
static inline int __float2int_rn(float a)
{
    return a != a ? 0 : a >= 0x1p31f ? INT32_MAX : a < -0x1p31f ? INT32_MIN : (int)rintf(a);
}
static inline int __float2int_rz(float a)
{
    return a != a ? 0 : a >= 0x1p31f ? INT32_MAX : a < -0x1p31f ? INT32_MIN : (int)a;
}
static inline unsigned long long __float2ull_rz(float a)
{
    return a != a || a <= 0 ? 0 : a >= 0x1p64f ? UINT64_MAX : (unsigned long long)a;
}
static inline float __ull2float_rn(unsigned long long a)
{
    return (float)a;
}

static inline int __mulhi(int a, int b)
{
    return (int)(((int64_t)a * b) >> 32);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((uint64_t)a * b) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __popc(unsigned a)
{
    return __builtin_popcount(a);
}
static inline int __popcll(unsigned long long a)
{
    return __builtin_popcountll(a);
}
static inline int __clz(int a)
{
    return a == 0 ? 32 : __builtin_clz((unsigned)a);
}
static inline int __clzll(long long a)
{
    return a == 0 ? 64 : __builtin_clzll((unsigned long long)a);
}
static inline int __ffs(int a)
{
    return __builtin_ffs(a);
}
static inline int __ffsll(long long a)
{
    return __builtin_ffsll(a);
}
static inline unsigned __brev(unsigned a)
{
    unsigned reversed = 0;
    for (unsigned i = 0; i < 32; i++)
        reversed |= ((a >> i) & 1u) << (31 - i);
    return reversed;
}
/* Bytes of the eight in {b, a}, by the four nibbles of the selector; bit 3 of a nibble: its
 * sign. */
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned result = 0;

    for (unsigned i = 0; i < 4; i++) {
        const unsigned nibble = selector >> (4 * i) & 15;
        unsigned byte = (unsigned)(bytes >> (8 * (nibble & 7))) & 255;
        if (nibble & 8)
            byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)((((uint64_t)high << 32 | low) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}

/* Four products of bytes and a sum that wraps. */
static inline int __dp4a(int a, int b, int c)
{
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 32; i += 8)
        sum += (unsigned)((int)(int8_t)(a >> i) * (int)(int8_t)(b >> i));
    return (int)sum;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 32; i += 8)
        c += (a >> i & 255) * (b >> i & 255);
    return c;
}
/* dp4a.s32.u32 and dp4a.u32.s32, which CUDA has no C++ name for. */
static inline int cudasim_dp4a_us(unsigned a, int b, int c)
{
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 32; i += 8)
        sum += (unsigned)((int)(a >> i & 255) * (int)(int8_t)(b >> i));
    return (int)sum;
}

/* ---- SIMD in a word ---- */

static inline unsigned __vsub4(unsigned a, unsigned b)
{
    unsigned result = 0;
    for (int i = 0; i < 32; i += 8)
        result |= (((a >> i) - (b >> i)) & 255) << i;
    return result;
}
static inline unsigned __vadd4(unsigned a, unsigned b)
{
    unsigned result = 0;
    for (int i = 0; i < 32; i += 8)
        result |= (((a >> i) + (b >> i)) & 255) << i;
    return result;
}

#define CUDASIM_MIN_MAX(type)                                                                      \
    static inline type min(type a, type b)                                                         \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline type max(type a, type b)                                                         \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
CUDASIM_MIN_MAX(int)
CUDASIM_MIN_MAX(unsigned)
CUDASIM_MIN_MAX(long)
CUDASIM_MIN_MAX(unsigned long)
CUDASIM_MIN_MAX(long long)
CUDASIM_MIN_MAX(unsigned long long)
#undef CUDASIM_MIN_MAX
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

/* ---- time, traps ---- */

static inline long long clock64(void)
{
#if defined(__x86_64__)
    return (long long)__builtin_ia32_rdtsc();
#else
    return 0;
#endif
}
static inline void __trap(CUDASIM_HERE)
{
    cudasim_trap("__trap()", CUDASIM_PLACE);
}

/* ---- launches ---- */

/* The parameters of one launch; copied, byte for byte, to every thread's stack. */
template <class... P> struct cudasim_arguments {
    void (*function)(P...);
    std::tuple<P...> values;

    static void call(const void *arguments)
    {
        const auto *self = static_cast<const cudasim_arguments *>(arguments);
        std::apply(self->function, self->values);
    }
};

template <class... P, class... A>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                             void (*function)(P...), A &&...arguments)
{
    static_assert((std::is_trivially_copyable<P>::value && ...),
                  "parameters of kernels are plain data");
    cudasim_arguments<P...> packed{function, std::tuple<P...>(static_cast<P>(arguments)...)};
    const cudasim_kernel kernel = {(const void *)function, cudasim_arguments<P...>::call, &packed,
                                   sizeof(packed)};
    static_assert(sizeof(packed) <= CUDASIM_ARGUMENT_BYTES, "parameters of a kernel: 4 KiB");
    return cudasim_launch(config, &kernel);
}

template <class T>
static inline cudaError_t cudaFuncSetAttribute(T *function, cudaFuncAttribute attribute, int value)
{
    return ::cudaFuncSetAttribute((const void *)function, attribute, value);
}
template <class T>
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *ret, T *function)
{
    return ::cudaFuncGetAttributes(ret, (const void *)function);
}
template <class T>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *ret_blocks, T function,
                                                                        int block_threads,
                                                                        size_t dynamic_bytes)
{
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(ret_blocks, (const void *)function,
                                                           block_threads, dynamic_bytes);
}
template <class T> static inline cudaError_t cudaMalloc(T **ret_pointer, size_t bytes)
{
    return ::cudaMalloc((void **)ret_pointer, bytes);
}
template <class T> static inline cudaError_t cudaMallocHost(T **ret_pointer, size_t bytes)
{
    return ::cudaMallocHost((void **)ret_pointer, bytes);
}

#endif /* __cplusplus */

#endif
