/*
 * matmul_kernel: the kernel of matmuls for rows in TILES tiles of 8, and what launches it. An object for each ROW_TILES,
 * 1, 2, 4 and 8 (VARIANTS_matmul_kernel.cu in the Makefile), because all types are unrolled in every one and they take long to
 * compile.
 */
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/matmul_device.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/matmul_launch.h"

template <int TILES, enum matmul_kind KIND>
static __global__ void __launch_bounds__(CUDA_THREADS, TILES == 1 ? 2 : 1)
    matmul_kernel(const struct matmul_job job)
{
    SHARED_BYTES(shared);
    let_next_start();
    prefetch_weights<KIND == MATMUL_BY_ROWS>(job, blockIdx.x);
    wait_for_previous();
    matmul_item<TILES, KIND>(job, blockIdx.x, blockIdx.y, (float *)shared);
}

template <int TILES> static constexpr int shared_bytes()
{
    return (int)(CUDA_WARPS * SEGMENT_FLOATS(TILES) * sizeof(float));
}

template <int TILES, enum matmul_kind KIND>
int matmul_launch(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows)
{
    const uint32_t per_item = CUDA_TILE * TILES;
    return launch(queue, matmul_kernel<TILES, KIND>,
                  dim3(job->groups, (rows + per_item - 1) / per_item), shared_bytes<TILES>(), *job);
}

template <int TILES> int matmul_init(struct cuda_code *code)
{
    int rc = prepare(matmul_kernel<TILES, MATMUL_PORTABLE>, shared_bytes<TILES>(), code);
    rc = rc ? rc : prepare(matmul_kernel<TILES, MATMUL_NATIVE>, shared_bytes<TILES>(), code);
    return rc ? rc : prepare(matmul_kernel<TILES, MATMUL_BY_ROWS>, shared_bytes<TILES>(), code);
}

#define LAUNCH(kind)                                                                               \
    template int matmul_launch<ROW_TILES, kind>(const struct cuda_queue *,                         \
                                                const struct matmul_job *, uint32_t)
LAUNCH(MATMUL_PORTABLE);
LAUNCH(MATMUL_NATIVE);
LAUNCH(MATMUL_BY_ROWS);
template int matmul_init<ROW_TILES>(struct cuda_code *);
