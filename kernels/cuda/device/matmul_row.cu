/* matmul_row.cu: the kernels of matmuls and of experts' matmuls for ROWS rows, 1, 2 or up to 4,
 * and what launches them. Consecutive blocks are of consecutive runs, as in matmul_expert.cu. */
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/matmul_row_device.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/matmul_launch.h"

enum { MOST_SHARED = 96 << 10 };

template <int ROWS>
static __global__ void __launch_bounds__(ROW_THREADS, ROWS == 1 ? 2 : 1)
    matmul_row_kernel(const struct matmul_job job)
{
    SHARED_BYTES(shared);
    let_next_start();
    const uint32_t n = rows_of(job.pass, job.wanted);
    if (n > 0)
        matmul_row_item<ROWS>(job, blockIdx.x, n, shared);
    else
        wait_for_previous();
}

template <int ROWS>
static __global__ void __launch_bounds__(ROW_THREADS, ROWS == 1 ? 2 : 1)
    expert_row_kernel(const struct expert_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    if (blockIdx.x < *job.experts.n_runs)
        expert_row_item<ROWS>(job, blockIdx.x, blockIdx.y, shared);
}

template <int ROWS> bool matmul_row_takes(const struct matmul_job *job)
{
    return row_shared_bytes<ROWS>(*job) <= MOST_SHARED &&
           (!job->gate || job->part[0].matrix.type == job->part[1].matrix.type);
}

template <int ROWS>
int matmul_row_launch(const struct cuda_queue *queue, const struct matmul_job *job)
{
    return launch(queue, matmul_row_kernel<ROWS>, dim3(job->groups), row_shared_bytes<ROWS>(*job),
                  *job, ROW_THREADS);
}

template <int ROWS>
int expert_row_launch(const struct cuda_queue *queue, const struct expert_job *job, uint32_t rows)
{
    return launch(queue, expert_row_kernel<ROWS>,
                  dim3(expert_runs(job->experts, rows, CUDA_TILE), job->matmul.groups),
                  row_shared_bytes<ROWS>(job->matmul), *job, ROW_THREADS);
}

template <int ROWS> int matmul_row_init(struct cuda_code *code)
{
    const int rc = prepare(matmul_row_kernel<ROWS>, MOST_SHARED, code);
    return rc ? rc : prepare(expert_row_kernel<ROWS>, MOST_SHARED, code);
}

template bool matmul_row_takes<ROW_TILES>(const struct matmul_job *);
template int matmul_row_launch<ROW_TILES>(const struct cuda_queue *, const struct matmul_job *);
template int expert_row_launch<ROW_TILES>(const struct cuda_queue *, const struct expert_job *,
                                          uint32_t);
template int matmul_row_init<ROW_TILES>(struct cuda_code *);
