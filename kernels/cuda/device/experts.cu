/* experts.cu: the kernels of routers and of the sum over experts, and their launches. */
#include "kernels/cuda/device/experts_device.h"
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/init_launch.h"

static __global__ void __launch_bounds__(CUDA_THREADS) route_kernel(const struct route_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    route_item(job, blockIdx.x, *(struct route_shared *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    expert_sum_kernel(const struct expert_sum_job job)
{
    follow_previous();
    if (blockIdx.y < job.pass.counts[CUDA_COUNT_ROWS])
        expert_sum_item(job, blockIdx.y, blockIdx.x);
}

int experts_init(struct cuda_code *code)
{
    const int rc = prepare(route_kernel, sizeof(struct route_shared), code);
    return rc ? rc : prepare(expert_sum_kernel, 0, code);
}

int cuda_launch_route(const struct cuda_queue *queue, const struct route_job *job, uint32_t rows)
{
    struct route_job cut = *job;
    cut.most = CUDA_TILE * expert_tiles(job->experts, rows);
    return launch(queue, route_kernel, dim3((rows + CUDA_WARPS - 1) / CUDA_WARPS),
                  sizeof(struct route_shared), cut);
}

int cuda_launch_expert_sum(const struct cuda_queue *queue, const struct expert_sum_job *job,
                           uint32_t rows)
{
    return launch(queue, expert_sum_kernel,
                  dim3((job->stride + CUDA_THREADS - 1) / CUDA_THREADS, rows), 0, *job);
}
