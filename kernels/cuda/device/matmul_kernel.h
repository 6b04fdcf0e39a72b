/*
 * matmul_kernel: the kernel of matmuls for rows in TILES tiles of 8, and what launches it. matmul_1.cu and the others
 * make it for 1, 2, 4 and 8: a file each, because ten types are unrolled in every one and they take long to compile;
 * matmul_rows.cu all of them for matrices by rows, which have two types.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_MATMUL_KERNEL_H
#define HEARTH_KERNELS_CUDA_DEVICE_MATMUL_KERNEL_H

#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/matmul_large_device.h"
#include "kernels/cuda/matmul_launch.h"

template <int TILES, bool BY_ROWS>
static __global__ void __launch_bounds__(CUDA_THREADS) matmul_kernel(const struct matmul_job job)
{
    SHARED_BYTES(shared);
    let_next_start();
    prefetch_weights<BY_ROWS>(job, blockIdx.x);
    wait_for_previous();
    matmul_item<TILES, BY_ROWS>(job, blockIdx.x, blockIdx.y, (float *)shared);
}

template <int TILES> static constexpr int shared_bytes()
{
    return (int)(CUDA_WARPS * SEGMENT_FLOATS(TILES) * sizeof(float));
}

template <int TILES, bool BY_ROWS>
int matmul_launch(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows)
{
    const uint32_t per_item = CUDA_TILE * TILES;
    return launch(queue, matmul_kernel<TILES, BY_ROWS>,
                  dim3(job->groups, (rows + per_item - 1) / per_item), shared_bytes<TILES>(), *job);
}

template <int TILES, bool BY_ROWS> int matmul_init(int *ret_version)
{
    cudaFuncAttributes attributes;
    const cudaError_t code = cudaFuncGetAttributes(&attributes, matmul_kernel<TILES, BY_ROWS>);
    if (code != cudaSuccess)
        return (int)code;
    *ret_version = attributes.ptxVersion;
    return (int)cudaFuncSetAttribute(matmul_kernel<TILES, BY_ROWS>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     shared_bytes<TILES>());
}

/* Blocks that follow one another have the same weights and other rows, so that weights leave the memory once. 8 and 4 tiles
 * have 40 and 20 KB of shared memory, and registers (registers.txt) for one block a processor. */
template <int TILES>
static __global__ void __launch_bounds__(CUDA_THREADS)
    matmul_large_kernel(const struct matmul_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    matmul_large_item<TILES>(job, blockIdx.y, blockIdx.x, *(matmul_large_shared<TILES> *)shared);
}

template <int TILES>
int matmul_large_launch(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows)
{
    const uint32_t per_item = CUDA_TILE * TILES;
    static_assert(sizeof(matmul_large_shared<TILES>) <= 48 << 10, "without asking for more");
    return launch(
        queue, matmul_large_kernel<TILES>,
        dim3((rows + per_item - 1) / per_item, (job->groups + CUDA_WARPS - 1) / CUDA_WARPS),
        sizeof(matmul_large_shared<TILES>), *job);
}

/* Brings the kernel's code to the device: small models never launch it while they are opened. */
template <int TILES> int matmul_large_init(void)
{
    cudaFuncAttributes attributes;
    return (int)cudaFuncGetAttributes(&attributes, matmul_large_kernel<TILES>);
}

#define MATMUL_LARGE_OF(tiles)                                                                     \
    template int matmul_large_launch<tiles>(const struct cuda_queue *, const struct matmul_job *,  \
                                            uint32_t);                                             \
    template int matmul_large_init<tiles>(void)

#define MATMUL_OF(tiles, by_rows)                                                                  \
    template int matmul_launch<tiles, by_rows>(const struct cuda_queue *,                          \
                                               const struct matmul_job *, uint32_t);               \
    template int matmul_init<tiles, by_rows>(int *)

#endif
