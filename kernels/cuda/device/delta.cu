/* delta.cu: the kernels of recurrent layers, and their launches. */
#include <stddef.h>

#include "kernels/cuda/device/delta_device.h"
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/init_launch.h"

/* Of shared memory: two norms. */
enum { JOIN_BYTES = 130 * sizeof(float) };

static __global__ void __launch_bounds__(CUDA_THREADS)
    convolve_kernel(const struct convolve_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    if (blockIdx.y < job.pass.counts[CUDA_COUNT_ROWS])
        convolve_item(job, blockIdx.y, blockIdx.x, (float *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS) delta_kernel(const struct delta_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    if (blockIdx.y < job.pass.counts[CUDA_COUNT_STATES])
        delta_item(job, blockIdx.y, blockIdx.x, *(struct delta_shared *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS) settle_kernel(const struct delta_job job)
{
    follow_previous();
    if (blockIdx.y < job.pass.counts[CUDA_COUNT_STATES])
        settle_item(job, blockIdx.y, blockIdx.x);
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    head_gate_kernel(const struct head_gate_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    if (blockIdx.y < job.pass.counts[CUDA_COUNT_ROWS])
        head_gate_item(job, blockIdx.y, blockIdx.x, (float *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS) join_kernel(const struct join_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    if (blockIdx.y < job.pass.counts[CUDA_COUNT_ROWS])
        join_item(job, blockIdx.y, blockIdx.x, gridDim.x, (float *)shared);
}

int delta_init(struct cuda_code *code)
{
    constexpr size_t ROW = CUDA_WARPS * CUDA_MAX_STATE * sizeof(float);
    int rc = prepare(convolve_kernel, ROW, code);
    rc = rc ? rc : prepare(delta_kernel, sizeof(struct delta_shared), code);
    rc = rc ? rc : prepare(settle_kernel, 0, code);
    rc = rc ? rc : prepare(join_kernel, JOIN_BYTES, code);
    return rc ? rc : prepare(head_gate_kernel, CUDA_BLOCK / CUDA_WARPS * ROW, code);
}

uint32_t cuda_delta_bytes(uint32_t k_dim)
{
    return (uint32_t)(offsetof(struct delta_shared, state) +
                      (size_t)k_dim * CUDA_STATE_COLUMNS * sizeof(float));
}

int cuda_launch_convolve(const struct cuda_queue *queue, const struct convolve_job *job,
                         uint32_t rows)
{
    return launch(queue, convolve_kernel, dim3(convolve_parts(job->states), rows),
                  CUDA_WARPS * CUDA_MAX_STATE * sizeof(float), *job);
}

int cuda_launch_delta(const struct cuda_queue *queue, const struct delta_job *job, uint32_t states)
{
    return launch(queue, delta_kernel, dim3(delta_parts(job->states), states),
                  cuda_delta_bytes(job->states.k_dim), *job);
}

int cuda_launch_settle(const struct cuda_queue *queue, const struct delta_job *job, uint32_t states)
{
    return launch(queue, settle_kernel, dim3(settle_parts(job->states), states), 0, *job);
}

int cuda_launch_head_gate(const struct cuda_queue *queue, const struct head_gate_job *job,
                          uint32_t rows)
{
    return launch(queue, head_gate_kernel, dim3(head_gate_parts(*job), rows),
                  head_gate_heads(*job) * job->n * sizeof(float), *job);
}

int cuda_launch_join(const struct cuda_queue *queue, const struct join_job *job, uint32_t rows)
{
    return launch(queue, join_kernel, dim3(norm_parts(2 * job->n, rows), rows), JOIN_BYTES, *job);
}
