/* read.cu: reads memory as fast as possible, for benches: 16-byte loads, eight in flight per
 * thread. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/device/launch_device.h"

struct read_job {
    const uint4 *from;
    uint64_t n;
    uint32_t *sum;
};

enum { AT_ONCE = 8 };

static __global__ void __launch_bounds__(CUDA_THREADS) read_kernel(const struct read_job job)
{
    const uint64_t threads = (uint64_t)gridDim.x * CUDA_THREADS;
    uint64_t i = (uint64_t)blockIdx.x * CUDA_THREADS + threadIdx.x;
    uint32_t sum = 0;
    for (; i + (AT_ONCE - 1) * threads < job.n; i += AT_ONCE * threads) {
        uint4 v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            v[k] = load_stream(job.from + i + k * threads);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            sum |= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < job.n; i += threads)
        sum |= load_stream(job.from + i).x;
    if (sum == 0x9e3779b9u) /* a sink that keeps the compiler from removing the loads */
        *job.sum = sum;
}

int cuda_launch_read(const struct cuda_queue *queue, const void *from, uint64_t n, uint32_t *sum,
                     uint32_t blocks)
{
    const struct read_job job = {(const uint4 *)from, n, sum};
    return launch(queue, read_kernel, dim3(blocks), 0, job);
}
