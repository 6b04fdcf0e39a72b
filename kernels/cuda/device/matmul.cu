/* matmul.cu: chooses the matmul kernel by the number of rows. */
#include "kernels/cuda/matmul_launch.h"

static bool all_quantized(const struct matmul_job *job)
{
    for (int i = 0; i < 3; i++) {
        if (job->part[i].matrix.groups > 0 && !layout_quantized(job->part[i].matrix.type))
            return false;
    }
    return true;
}

static bool all_half(const struct matmul_job *job)
{
    const uint32_t type = job->part[0].matrix.type;
    for (int i = 1; i < 3; i++) {
        if (job->part[i].matrix.groups > 0 && job->part[i].matrix.type != type)
            return false;
    }
    return type == QUANT_F16 || type == QUANT_BF16;
}

static bool for_warpgroups(const struct matmul_job *job)
{
    for (int i = 0; i < 3; i++) {
        if (job->part[i].matrix.groups > 0 && job->part[i].matrix.type == QUANT_F32)
            return false;
    }
    return !job->gate || job->part[0].matrix.type == job->part[1].matrix.type;
}

/* True if this many blocks give most SMs one. */
static bool fills(const struct cuda_queue *queue, uint64_t blocks)
{
    return 4 * blocks >= 3 * (uint64_t)queue->processors;
}

/* Blocks of 256 outputs and this many rows. */
static uint64_t large_blocks(const struct matmul_job *job, uint32_t rows, uint32_t rows_of_block)
{
    return (uint64_t)((job->groups + CUDA_WARPS - 1) / CUDA_WARPS) *
           ((rows + rows_of_block - 1) / rows_of_block);
}

template <enum matmul_kind KIND>
static int launch_tiles(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows)
{
    if (rows <= CUDA_TILE)
        return matmul_launch<1, KIND>(queue, job, rows);
    if (rows <= 2 * CUDA_TILE)
        return matmul_launch<2, KIND>(queue, job, rows);
    if (rows <= 4 * CUDA_TILE)
        return matmul_launch<4, KIND>(queue, job, rows);
    return matmul_launch<CUDA_MAX_TILES, KIND>(queue, job, rows);
}

/* Every block of a matmul that computes its norm reads the whole row. On an H100 that paid where
 * they read 2 MiB, and did not where they read 7 (tests/gpu/README.md). */
enum { MOST_NORMED = 2 << 20 };

bool cuda_takes_norm(const struct matmul_job *job)
{
    const struct cuda_matrix *m = &job->part[0].matrix;
    return !m->by_rows && matmul_row_takes<1>(job) &&
           (uint64_t)job->groups * m->cols * sizeof(float) <= MOST_NORMED;
}

static int launch_native(const struct cuda_queue *queue, const struct matmul_job *job,
                         uint32_t rows)
{
    const dim3 grid = half_grid(*job, rows);
    if (rows > CUDA_TILE * CUDA_MAX_TILES && fills(queue, (uint64_t)grid.x * grid.y)) {
        if (queue->warpgroups && for_warpgroups(job))
            return matmul_warpgroup_launch(queue, job, rows);
        if (all_half(job))
            return matmul_half_launch(queue, job, rows);
    }
    return launch_tiles<MATMUL_NATIVE>(queue, job, rows);
}

int cuda_launch_matmul(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows)
{
    if (job->part[0].matrix.by_rows)
        return launch_tiles<MATMUL_BY_ROWS>(queue, job, rows);
    if (rows == 1 && matmul_row_takes<1>(job))
        return matmul_row_launch<1>(queue, job);
    if (rows == 2 && matmul_row_takes<2>(job))
        return matmul_row_launch<2>(queue, job);
    if (rows <= 4 && matmul_row_takes<4>(job))
        return matmul_row_launch<4>(queue, job);
    if (job->native)
        return launch_native(queue, job, rows);
    if (rows > CUDA_TILE * CUDA_MAX_TILES && all_quantized(job)) {
        if (fills(queue, large_blocks(job, rows, 8 * CUDA_TILE)))
            return matmul_large_launch<8>(queue, job, rows);
        if (fills(queue, large_blocks(job, rows, 4 * CUDA_TILE)))
            return matmul_large_launch<4>(queue, job, rows);
    }
    return launch_tiles<MATMUL_PORTABLE>(queue, job, rows);
}

int cuda_launch_expert(const struct cuda_queue *queue, const struct expert_job *job, uint32_t rows)
{
    if (rows == 1 && matmul_row_takes<1>(&job->matmul))
        return expert_row_launch(queue, job);
    return expert_tiles(job->experts, rows) == 1
               ? expert_launch<1>(queue, job, rows)
               : expert_launch<CUDA_EXPERT_TILES>(queue, job, rows);
}
