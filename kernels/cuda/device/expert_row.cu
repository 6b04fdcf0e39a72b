/* expert_row.cu: the kernel of experts' matmuls for one row, and what launches it. Consecutive
 * blocks are of consecutive runs, as in matmul_expert.cu. */
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/matmul_row_device.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/matmul_launch.h"

static __global__ void __launch_bounds__(ROW_THREADS, 2)
    expert_row_kernel(const struct expert_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    if (blockIdx.x < *job.experts.n_runs)
        expert_row_item(job, blockIdx.x, blockIdx.y, shared);
}

int expert_row_launch(const struct cuda_queue *queue, const struct expert_job *job)
{
    return launch(queue, expert_row_kernel, dim3(job->experts.n_used, job->matmul.groups),
                  row_shared_bytes<1>(job->matmul), *job, ROW_THREADS);
}

int expert_row_init(struct cuda_code *code)
{
    return prepare(expert_row_kernel, MOST_SHARED, code);
}
