/* matmul_half.cu: the tensor-core matmul kernels for many rows, native numerics. Consecutive blocks
 * have the same weights and different rows. */
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/matmul_half_large_device.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/matmul_launch.h"

template <bool BF16>
static __global__ void __launch_bounds__(CUDA_THREADS, 1)
    matmul_half_kernel(const struct matmul_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    matmul_half_item<BF16>(job, blockIdx.y, blockIdx.x, *(half_large_shared *)shared);
}

static_assert(sizeof(half_large_shared) <= 99 << 10, "that every GPU has for a block");

int matmul_half_init(struct cuda_code *code)
{
    const int rc = prepare(matmul_half_kernel<false>, sizeof(half_large_shared), code);
    return rc ? rc : prepare(matmul_half_kernel<true>, sizeof(half_large_shared), code);
}

int matmul_half_launch(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows)
{
    return launch(queue,
                  job->part[0].matrix.type == QUANT_BF16 ? matmul_half_kernel<true>
                                                         : matmul_half_kernel<false>,
                  half_grid(*job, rows), sizeof(half_large_shared), *job);
}
