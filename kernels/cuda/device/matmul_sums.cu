/* matmul_sums.cu: the epilogue of matmuls whose sums cuBLAS computed: residuals, checks, gates and
 * activation formats, as for every other matmul. A block takes 32 outputs of eight rows, a warp
 * those of one row. */
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/matmul_device.h"
#include "kernels/cuda/init_launch.h"

static __global__ void __launch_bounds__(CUDA_THREADS) sums_kernel(const struct sums_job job)
{
    const struct matmul_job &matmul = job.matmul;
    const uint32_t group = blockIdx.x, row = blockIdx.y * CUDA_WARPS + threadIdx.x / 32;
    follow_previous();
    if (row >= matmul.pass.counts[CUDA_COUNT_ROWS])
        return;
    const float *y = job.sums + (uint64_t)row * job.stride + group * CUDA_GROUP + threadIdx.x % 32;
    if (matmul.gate)
        put_gated(matmul, group, row, y[0], y[matmul.groups * CUDA_GROUP]);
    else
        put_output(matmul, matmul.part[0], group, row, y[0]);
}

int matmul_sums_init(struct cuda_code *code)
{
    return prepare(sums_kernel, 0, code);
}

int cuda_launch_sums(const struct cuda_queue *queue, const struct sums_job *job, uint32_t rows)
{
    return launch(queue, sums_kernel,
                  dim3(job->matmul.groups, (rows + CUDA_WARPS - 1) / CUDA_WARPS), 0, *job);
}
