/*
 * device: what device code takes from the machine, in one place. Everything that is neither plain C++ nor a
 * function of CUDA's own headers stands here, twice: as PTX, and, with HEARTH_CUDASIM defined, as calls of the
 * simulator that runs the same kernels on a machine without a GPU. Names and meaning are the same.
 *
 * Included by .cu files only. Float arithmetic whose rounding counts (NUMERICS.md) is written with CUDA's
 * intrinsics (__fmaf_rn and the like): never contracted, never approximated, whatever the flags.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_H

#include <cuda_runtime.h>
#include <cuda_fp16.h>

/* f16 <-> f32: exact, and nearest even; denormals kept. */
static __device__ __forceinline__ float f32_from_f16(unsigned short h)
{
    return __half2float(__ushort_as_half(h));
}

static __device__ __forceinline__ unsigned short f16_from_f32(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}

/* f32 -> bf16: nearest even, as num_bf16_from_f32 of num.h. */
static __device__ __forceinline__ unsigned short bf16_from_f32(float x)
{
    const unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (unsigned short)(bits >> 16 | 0x40u);
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Two of them, the first in the lower half. */
static __device__ __forceinline__ unsigned bf16_pair(float first, float second)
{
#ifdef HEARTH_CUDASIM
    return bf16_from_f32(first) | (unsigned)bf16_from_f32(second) << 16;
#else
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
#endif
}

#ifndef HEARTH_CUDASIM

/* Dynamic shared memory of the kernel, by the name given: unsigned char [bytes of the launch]. */
#define SHARED_BYTES(name) extern __shared__ __align__(16) unsigned char name[]

/* 16 bytes that no kernel writes and none reads again soon: weights. */
static __device__ __forceinline__ uint4 load_stream(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* Values that are loaded here, and not, as the compiler may decide for other loads, where they are first used: loads that
 * stand together wait for memory together. */
static __device__ __forceinline__ uint2 load_now(const uint2 *p)
{
    uint2 v;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

static __device__ __forceinline__ uint4 load_now(const uint4 *p)
{
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

static __device__ __forceinline__ unsigned short load_now(const unsigned short *p)
{
    unsigned short v;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(p));
    return v;
}

static __device__ __forceinline__ float load_now(const float *p)
{
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p));
    return v;
}

static __device__ __forceinline__ signed char load_now(const signed char *p)
{
    int v;
    asm volatile("ld.global.s8 %0, [%1];" : "=r"(v) : "l"(p));
    return (signed char)v;
}

/* The line of memory at p is brought to the second-level cache; changes nothing. */
static __device__ __forceinline__ void prefetch_l2(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/*
 * d = a b + c over a warp, all lanes: a 16 x 32 and b 32 x 8 of int8, c 16 x 8 of int32, exact. With g = lane / 4 and
 * t = lane % 4, byte i of a word the lower k first:
 *   a[0] row g,     k = 4t + i        a[1] row g + 8, k = 4t + i
 *   a[2] row g,     k = 16 + 4t + i   a[3] row g + 8, k = 16 + 4t + i
 *   b[0] column g,  k = 4t + i        b[1] column g,  k = 16 + 4t + i
 *   c[0] row g, column 2t    c[1] row g, column 2t + 1    c[2] row g + 8, column 2t    c[3] row g + 8, column 2t + 1
 */
static __device__ __forceinline__ void mma_s8(int d[4], const unsigned a[4], const unsigned b[2],
                                              const int c[4])
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11, %12, %13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
          "r"(c[2]), "r"(c[3]));
}

/*
 * d = a b + c over a warp, all lanes: a 16 x 16 and b 16 x 8 of f16 (or bf16), c and d 16 x 8 of f32. In which order, and
 * with how many bits, the 17 terms of an element are added is the hardware's; it depends on nothing but them. With
 * g = lane / 4 and t = lane % 4, the lower half of a word first:
 *   a[0] row g, k = 2t, 2t + 1    a[1] row g + 8, the same    a[2] row g, k = 8 + 2t, 9 + 2t    a[3] row g + 8, the same
 *   b[0] column g, k = 2t, 2t + 1    b[1] column g, k = 8 + 2t, 9 + 2t    c as of mma_s8
 */
template <bool BF16>
static __device__ __forceinline__ void mma_half(float d[4], const unsigned a[4],
                                                const unsigned b[2], const float c[4])
{
    if constexpr (BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
              "f"(c[1]), "f"(c[2]), "f"(c[3]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
              "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

/* Four 8 x 8 matrices of 16-bit values from shared memory, all lanes: lane i gives row i % 8 of matrix i / 8, 16 bytes. Word
 * m is of matrix m: row lane / 4, columns 2 * (lane % 4) and + 1; of its transpose where TRANSPOSED. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void load_matrices(unsigned to[4], const void *row)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
}

/* 16 bytes to shared memory while the thread goes on, of which the first `bytes` are copied and the rest become zeros.
 * Copies belong to the group that the next commit closes; a wait lasts until at most PENDING groups are under way. */
static __device__ __forceinline__ void copy_async(void *shared, const void *from, unsigned bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(shared)),
                 "l"(from), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING> static __device__ __forceinline__ void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define DEVICE_HAS_WGMMA
#endif

/* d += a b over a warpgroup, all of its 128 threads: a 64 x 16 of bf16 (or f16), warp w having rows 16 w .. 16 w + 15 as a of
 * mma_half; b 16 x 128 in shared memory, 128-byte aligned, in cores of 8 columns by 8 k, of 128 bytes, a column's k together:
 * [k / 8][column / 8][column % 8][k % 8], from one k / 8 to the next `pitch` bytes; d 64 x 128 of f32, where d[4 j + i] is
 * c[i] of mma_half for columns 8 j .. 8 j + 7. Terms are added as mma_half adds them (tests/gpu/README.md).
 *
 * It runs on while the thread does: between begin and end the thread leaves d and what was a alone, and no thread writes
 * b. begin: what was written to registers is seen. end: all is done. shared_written: other threads' wgmma, after a barrier,
 * see what this thread wrote to shared memory. */
static __device__ __forceinline__ void wgmma_begin(void)
{
#ifdef DEVICE_HAS_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

static __device__ __forceinline__ void shared_written(void)
{
#ifdef DEVICE_HAS_WGMMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#define WGMMA_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_16(i) WGMMA_4(i), WGMMA_4(i + 4), WGMMA_4(i + 8), WGMMA_4(i + 12)
#define WGMMA_D WGMMA_16(0), WGMMA_16(16), WGMMA_16(32), WGMMA_16(48)
#define WGMMA(type)                                                                                \
    asm volatile("{.reg .pred more; setp.eq.u32 more, 0, 0; "                                      \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " "                  \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "    \
                 "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "     \
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "     \
                 "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "     \
                 "%62, %63}, {%64, %65, %66, %67}, %68, more, 1, 1, 0;}"                           \
                 : WGMMA_D                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix))

template <bool BF16>
static __device__ __forceinline__ void wgmma_half(float d[64], const unsigned a[4], const void *b,
                                                  unsigned pitch)
{
#ifdef DEVICE_HAS_WGMMA
    /* PTX, "Matrix descriptor": no swizzle; in units of 16 bytes the address, the pitch along k and that along columns. */
    const uint64_t at = (uint64_t)__cvta_generic_to_shared(b) >> 4,
                   matrix = (at & 0x3fff) | (uint64_t)(pitch >> 4) << 16 | (uint64_t)8 << 32;
    if constexpr (BF16)
        WGMMA("bf16");
    else
        WGMMA("f16");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

static __device__ __forceinline__ void wgmma_end(float d[64])
{
#ifdef DEVICE_HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned 0;" : WGMMA_D::"memory");
#endif
}

/* The kernel before this one in the stream may still run when this one was launched for programmatic stream
 * serialization: waits until all it wrote is visible. And: the next kernel may start now. */
static __device__ __forceinline__ void wait_for_previous(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void let_next_start(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Adds to a word that blocks count in; returns the word before it. What a block wrote before its addition (and, after
 * __syncthreads, its other threads) is seen by a block that finds the addition in the word. */
static __device__ __forceinline__ unsigned add_acquire_release(unsigned *p, unsigned n)
{
    unsigned old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(p), "r"(n)
                 : "memory");
    return old;
}

#else

#define SHARED_BYTES(name) unsigned char *const name = (unsigned char *)cudasim_shared()

static inline uint4 load_stream(const void *p)
{
    return *(const uint4 *)p;
}

template <typename VALUE> static inline VALUE load_now(const VALUE *p)
{
    return *p;
}

static inline void prefetch_l2(const void *)
{
}

static inline void mma_s8(int d[4], const unsigned a[4], const unsigned b[2], const int c[4],
                          CUDASIM_HERE)
{
    struct cudasim_mma mma = {};
    for (int i = 0; i < 4; i++) {
        mma.a[i] = a[i];
        mma.c[i] = (uint32_t)c[i];
    }
    mma.b[0] = b[0];
    mma.b[1] = b[1];
    cudasim_mma(CUDASIM_MMA_I8, &mma, CUDASIM_PLACE);
    for (int i = 0; i < 4; i++)
        d[i] = (int)mma.d[i];
}

template <bool BF16>
static inline void mma_half(float d[4], const unsigned a[4], const unsigned b[2], const float c[4],
                            CUDASIM_HERE)
{
    struct cudasim_mma mma = {};
    for (int i = 0; i < 4; i++) {
        mma.a[i] = a[i];
        mma.c[i] = __float_as_uint(c[i]);
    }
    mma.b[0] = b[0];
    mma.b[1] = b[1];
    cudasim_mma(BF16 ? CUDASIM_MMA_BF16 : CUDASIM_MMA_F16, &mma, CUDASIM_PLACE);
    for (int i = 0; i < 4; i++)
        d[i] = __uint_as_float(mma.d[i]);
}

static inline void wgmma_begin(void)
{
}

static inline void shared_written(void)
{
}

template <bool BF16>
static inline void wgmma_half(float d[64], const unsigned a[4], const void *b, unsigned pitch,
                              CUDASIM_HERE)
{
    struct cudasim_wgmma wgmma = {{a[0], a[1], a[2], a[3]}, b, pitch, BF16, d};
    cudasim_wgmma(&wgmma, CUDASIM_PLACE);
}

static inline void wgmma_end(float d[64], CUDASIM_HERE)
{
    cudasim_wgmma_end(d, CUDASIM_PLACE);
}

template <bool TRANSPOSED>
static inline void load_matrices(unsigned to[4], const void *row, CUDASIM_HERE)
{
    struct cudasim_load_matrix load = {row, 4, TRANSPOSED, {}};
    cudasim_load_matrix(&load, CUDASIM_PLACE);
    for (int i = 0; i < 4; i++)
        to[i] = load.registers[i];
}

static inline void copy_async(void *shared, const void *from, unsigned bytes, CUDASIM_HERE)
{
    cudasim_copy_async(shared, from, 16, bytes, CUDASIM_PLACE);
}

static inline void copy_commit(void)
{
    cudasim_copy_commit();
}

template <int PENDING> static inline void copy_wait(CUDASIM_HERE)
{
    cudasim_copy_wait(PENDING, CUDASIM_PLACE);
}

static inline void wait_for_previous(void)
{
    cudasim_grid_wait();
}

static inline void let_next_start(void)
{
    cudasim_grid_launch_dependents();
}

static inline unsigned add_acquire_release(unsigned *p, unsigned n, CUDASIM_HERE)
{
    cudasim_release(p);
    const unsigned old = (unsigned)cudasim_atomic(CUDASIM_ATOMIC_ADD, p, 4, n, 0, CUDASIM_PLACE);
    cudasim_acquire(p);
    return old;
}

#endif

/* What a kernel begins with that reads what kernels before it wrote. */
static __device__ __forceinline__ void follow_previous(void)
{
    let_next_start();
    wait_for_previous();
}

#endif
