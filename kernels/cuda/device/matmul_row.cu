/* matmul_row.cu: the kernel of matmuls of up to ROWS rows, 1, 2 or, of float types, 4, and what
 * launches it. */
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/matmul_row_device.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/matmul_launch.h"

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

template <int ROWS> bool matmul_row_takes(const struct matmul_job *job)
{
    for (int i = 0; i < 3 && (ROWS > ROW_QUANTIZED || job->native); i++)
        if (job->part[i].matrix.groups > 0 && layout_quantized(job->part[i].matrix.type))
            return false;
    return row_shared_bytes<ROWS>(*job) <= MOST_SHARED &&
           (!job->gate || job->part[0].matrix.type == job->part[1].matrix.type);
}

template <int ROWS>
int matmul_row_launch(const struct cuda_queue *queue, const struct matmul_job *job)
{
    return launch(queue, matmul_row_kernel<ROWS>, dim3(job->groups), row_shared_bytes<ROWS>(*job),
                  *job, ROW_THREADS);
}

template <int ROWS> int matmul_row_init(struct cuda_code *code)
{
    return prepare(matmul_row_kernel<ROWS>, MOST_SHARED, code);
}

template bool matmul_row_takes<ROW_TILES>(const struct matmul_job *);
template int matmul_row_launch<ROW_TILES>(const struct cuda_queue *, const struct matmul_job *);
template int matmul_row_init<ROW_TILES>(struct cuda_code *);
