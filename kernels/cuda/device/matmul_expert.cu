/* matmul_expert.cu: the kernel of experts' matmuls for runs in TILES tiles of 8, and what launches
 * it. An object for each ROW_TILES, 1 and 4 (VARIANTS_matmul_expert.cu in the Makefile). Consecutive
 * blocks are of consecutive runs: those of one expert have the same weights. */
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/matmul_device.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/matmul_launch.h"

template <int TILES>
static __global__ void __launch_bounds__(CUDA_THREADS) expert_kernel(const struct expert_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    expert_item<TILES>(job, blockIdx.x, blockIdx.y, (float *)shared);
}

template <int TILES> static constexpr size_t shared_bytes()
{
    return CUDA_WARPS * SEGMENT_FLOATS(TILES) * sizeof(float);
}

template <int TILES>
int expert_launch(const struct cuda_queue *queue, const struct expert_job *job, uint32_t rows)
{
    return launch(queue, expert_kernel<TILES>,
                  dim3(expert_runs(job->experts, rows, CUDA_TILE * TILES), job->matmul.groups),
                  shared_bytes<TILES>(), *job);
}

template <int TILES> int expert_init(struct cuda_code *code)
{
    return prepare(expert_kernel<TILES>, shared_bytes<TILES>(), code);
}

template int expert_launch<ROW_TILES>(const struct cuda_queue *, const struct expert_job *,
                                      uint32_t);
template int expert_init<ROW_TILES>(struct cuda_code *);
