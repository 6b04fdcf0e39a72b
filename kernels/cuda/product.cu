/*
 * product: the kernels of products, for up to 8, 16, 32 and any number of rows, and what launches them.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/launch_device.h"
#include "kernels/cuda/product_device.h"

template <int TILES>
static __global__ void __launch_bounds__(CUDA_THREADS) product_kernel(const struct product_job job)
{
    SHARED_BYTES(shared);
    product_item<TILES>(job, blockIdx.x, blockIdx.y, (float *)shared);
}

template <int TILES> static constexpr size_t shared_bytes()
{
    return CUDA_WARPS * SEGMENT_FLOATS(TILES) * sizeof(float);
}

template <int TILES>
static int launch_tiles(cudaStream_t stream, const struct product_job *job, uint32_t rows)
{
    const uint32_t per_item = CUDA_TILE * TILES;
    return launch(stream, product_kernel<TILES>,
                  dim3(job->groups, (rows + per_item - 1) / per_item), shared_bytes<TILES>(), *job);
}

int cuda_launch_init(void)
{
    return (int)cudaFuncSetAttribute(product_kernel<CUDA_MAX_TILES>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)shared_bytes<CUDA_MAX_TILES>());
}

int cuda_launch_product(cudaStream_t stream, const struct product_job *job, uint32_t rows)
{
    if (rows <= CUDA_TILE)
        return launch_tiles<1>(stream, job, rows);
    if (rows <= 2 * CUDA_TILE)
        return launch_tiles<2>(stream, job, rows);
    if (rows <= 4 * CUDA_TILE)
        return launch_tiles<4>(stream, job, rows);
    return launch_tiles<CUDA_MAX_TILES>(stream, job, rows);
}
