/* kernels.cu: one kernel for every job except attention (attend.cu) and matmuls (matmul.cu), and
 * their launches: one block per item. */
#include "kernels/cuda/device/attend_device.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/sample_device.h"

/* Of shared memory. */
enum {
    NORM_BYTES = 129 * sizeof(float), /* without groups */
    GROUPS_BYTES = (128 + CUDA_MAX_GROUPS) * sizeof(float),
    HEADS_BYTES = (1 + CUDA_WARPS) * CUDA_MAX_HEAD * sizeof(float),
};

static __global__ void __launch_bounds__(CUDA_THREADS) embed_kernel(const struct embed_job job)
{
    if (blockIdx.y < follow_previous(job.pass, 0))
        embed_item(job, blockIdx.y, blockIdx.x);
}

static __global__ void __launch_bounds__(CUDA_THREADS) norm_kernel(const struct norm_job job)
{
    SHARED_BYTES(shared);
    if (blockIdx.y < follow_previous(job.pass, job.wanted))
        norm_item(job, blockIdx.y, blockIdx.x, gridDim.x, (float *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS) gate_kernel(const struct gate_job job)
{
    if (blockIdx.y < follow_previous(job.pass, 0))
        gate_item(job, blockIdx.y, blockIdx.x);
}

static __global__ void __launch_bounds__(CUDA_THREADS) inputs_kernel(const struct inputs_job job)
{
    SHARED_BYTES(shared);
    if (blockIdx.y < follow_previous(job.pass, 0))
        inputs_item(job, blockIdx.x, blockIdx.y, (float *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    qkv_finish_kernel(const struct qkv_finish_job job)
{
    SHARED_BYTES(shared);
    let_next_start();
    const bool there = blockIdx.y < rows_of(job.pass, 0);
    if (there)
        rope_angles(job, blockIdx.y, (float *)shared);
    wait_for_previous();
    if (there)
        qkv_finish_item(job, blockIdx.y, blockIdx.x, (float *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS) combine_kernel(const struct combine_job job)
{
    SHARED_BYTES(shared);
    const uint32_t n = job.n_head * job.v_dim, begin = blockIdx.x * CUDA_THREADS;
    let_next_start();
    const bool there = blockIdx.y < rows_of(job.pass, 0);
    const struct combine_span span = there ? combine_span_of(job, blockIdx.y) : combine_span{0, 0};
    wait_for_previous();
    if (there)
        combine_item(job, blockIdx.y, span, begin,
                     n - begin < CUDA_THREADS ? n : begin + CUDA_THREADS,
                     *(struct combine_shared *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS, 1)
    sample_part_kernel(const struct sample_job job)
{
    SHARED_BYTES(shared);
    if (blockIdx.y < follow_previous(job.pass, 1))
        sample_part_item(job, blockIdx.y, blockIdx.x, (struct sample_shared *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    sample_sum_kernel(const struct sample_job job)
{
    SHARED_BYTES(shared);
    if (blockIdx.y < follow_previous(job.pass, 1))
        sample_sum_item(job, blockIdx.y, blockIdx.x, (struct sample_shared *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS, 1)
    sample_best_kernel(const struct sample_job job)
{
    SHARED_BYTES(shared);
    if (blockIdx.x < follow_previous(job.pass, 1))
        sample_best_item(job, blockIdx.x, (struct sample_shared *)shared);
}

static __global__ void __launch_bounds__(CUDA_THREADS) end_kernel(const struct end_job job)
{
    follow_previous();
    end_item(job.pass, job.results);
}

int kernels_init(struct cuda_code *code)
{
    constexpr size_t SAMPLE = sizeof(struct sample_shared);
    int rc = prepare(embed_kernel, 0, code);
    rc = rc ? rc : prepare(norm_kernel, GROUPS_BYTES, code);
    rc = rc ? rc : prepare(gate_kernel, 0, code);
    rc = rc ? rc : prepare(inputs_kernel, NORM_BYTES, code);
    rc = rc ? rc : prepare(qkv_finish_kernel, HEADS_BYTES, code);
    rc = rc ? rc : prepare(combine_kernel, sizeof(struct combine_shared), code);
    rc = rc ? rc : prepare(sample_part_kernel, SAMPLE, code);
    rc = rc ? rc : prepare(sample_sum_kernel, SAMPLE, code);
    rc = rc ? rc : prepare(sample_best_kernel, SAMPLE, code);
    return rc ? rc : prepare(end_kernel, 0, code);
}

static uint32_t parts_of(uint32_t n)
{
    return (n + CUDA_THREADS - 1) / CUDA_THREADS;
}

int cuda_launch_embed(const struct cuda_queue *queue, const struct embed_job *job, uint32_t rows)
{
    return launch(queue, embed_kernel, dim3(embed_parts(*job), rows), 0, *job);
}

int cuda_launch_norm(const struct cuda_queue *queue, const struct norm_job *job, uint32_t rows)
{
    const size_t shared = (128 + job->n / job->group) * sizeof(float);
    return launch(queue, norm_kernel, dim3(norm_parts(job->n, rows), rows), shared, *job);
}

int cuda_launch_gate(const struct cuda_queue *queue, const struct gate_job *job, uint32_t rows)
{
    return launch(queue, gate_kernel, dim3(parts_of(job->out.stride), rows), 0, *job);
}

int cuda_launch_inputs(const struct cuda_queue *queue, const struct inputs_job *job, uint32_t rows)
{
    return launch(queue, inputs_kernel, dim3(job->n_layer, rows), NORM_BYTES, *job);
}

int cuda_launch_qkv_finish(const struct cuda_queue *queue, const struct qkv_finish_job *job,
                           uint32_t rows)
{
    const uint32_t heads = job->n_head + 2 * job->kv.n_head_kv;
    return launch(queue, qkv_finish_kernel, dim3((heads + CUDA_WARPS - 1) / CUDA_WARPS, rows),
                  HEADS_BYTES, *job);
}

int cuda_launch_combine(const struct cuda_queue *queue, const struct combine_job *job,
                        uint32_t rows)
{
    return launch(queue, combine_kernel, dim3(parts_of(job->n_head * job->v_dim), rows),
                  sizeof(struct combine_shared), *job);
}

int cuda_launch_sample(const struct cuda_queue *queue, const struct sample_job *job, uint32_t rows)
{
    const dim3 parts(sample_parts(job->n_vocab), rows);
    int rc = launch(queue, sample_part_kernel, parts, sizeof(struct sample_shared), *job);
    rc = rc ? rc : launch(queue, sample_sum_kernel, parts, sizeof(struct sample_shared), *job);
    return rc ? rc
              : launch(queue, sample_best_kernel, dim3(rows), sizeof(struct sample_shared), *job);
}

int cuda_launch_end(const struct cuda_queue *queue, const struct end_job *job)
{
    return launch(queue, end_kernel, dim3(1), 0, *job);
}
