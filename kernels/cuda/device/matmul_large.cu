/*
 * matmul_large: the kernel of matmuls of quantized types, 256 outputs a block and rows in TILES
 * tiles of 8, and what launches it. An object for each ROW_TILES, 4 and 8 (VARIANTS_matmul_large.cu
 * in the Makefile).
 */
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/matmul_large_device.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/matmul_launch.h"

/* Consecutive blocks have the same weights and different rows, so that weights are read from memory
 * once. 8 and 4 tiles take 40 and 20 KB of shared memory, and registers (registers.txt) for one
 * block per SM. */
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
    return launch(
        queue, matmul_large_kernel<TILES>,
        dim3((rows + per_item - 1) / per_item, (job->groups + CUDA_WARPS - 1) / CUDA_WARPS),
        sizeof(matmul_large_shared<TILES>), *job);
}

template <int TILES> int matmul_large_init(struct cuda_code *code)
{
    return prepare(matmul_large_kernel<TILES>, sizeof(matmul_large_shared<TILES>), code);
}

template int matmul_large_launch<ROW_TILES>(const struct cuda_queue *, const struct matmul_job *,
                                            uint32_t);
template int matmul_large_init<ROW_TILES>(struct cuda_code *);
