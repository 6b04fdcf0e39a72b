/* matmul_warpgroup.cu: the kernel of matmul_warpgroup_device.h, for sm_90a alone. Consecutive
 * blocks have the same weights and different rows. */
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/matmul_warpgroup_device.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/matmul_launch.h"

static __global__ void __launch_bounds__(CUDA_THREADS, 1)
    matmul_warpgroup_kernel(const struct matmul_job job)
{
#if defined(DEVICE_HAS_WGMMA) || defined(HEARTH_CUDASIM)
    SHARED_BYTES(shared);
    follow_previous();
    matmul_warpgroup_item(job, blockIdx.y, blockIdx.x, *(warpgroup_shared *)shared);
#else
    __trap(); /* never launched: it would leave what the matmul should overwrite */
#endif
}

int matmul_warpgroup_init(struct cuda_code *code)
{
    return prepare(matmul_warpgroup_kernel, sizeof(warpgroup_shared), code);
}

int matmul_warpgroup_launch(const struct cuda_queue *queue, const struct matmul_job *job,
                            uint32_t rows)
{
    return launch(queue, matmul_warpgroup_kernel, half_grid(*job, rows), sizeof(warpgroup_shared),
                  *job);
}
