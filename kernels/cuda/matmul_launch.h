/* matmul_launch: what matmul.cu has of matmul_kernel.cu, matmul_row.cu, expert_row.cu,
 * matmul_expert.cu, matmul_large.cu, matmul_half.cu and matmul_warpgroup.cu. C++. */
#ifndef HEARTH_KERNELS_CUDA_MATMUL_LAUNCH_H
#define HEARTH_KERNELS_CUDA_MATMUL_LAUNCH_H

#include "kernels/cuda/launch.h"

/* Matrices as layout.h has them, in portable numerics or in native ones; F16 and BF16 by rows, which
 * are native. */
enum matmul_kind { MATMUL_PORTABLE, MATMUL_NATIVE, MATMUL_BY_ROWS };

/* As cuda_launch_matmul, in tiles of 8 * TILES rows. */
template <int TILES, enum matmul_kind KIND>
int matmul_launch(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows);

/* As cuda_launch_expert, of runs of up to 8 * TILES rows. */
template <int TILES>
int expert_launch(const struct cuda_queue *queue, const struct expert_job *job, uint32_t rows);

/* As cuda_launch_matmul, for passes of up to ROWS rows: whether the kernel takes the job, whose
 * sums of segments have to fit a block's shared memory, gate and up to be of one type, and of
 * more than two rows, and in native numerics, all types to be float ones. And an expert_job of one row whose matmul <1>
 * takes. */
template <int ROWS> bool matmul_row_takes(const struct matmul_job *job);
template <int ROWS>
int matmul_row_launch(const struct cuda_queue *queue, const struct matmul_job *job);
int expert_row_launch(const struct cuda_queue *queue, const struct expert_job *job);

/* Quantized types alone: 256 outputs a block. */
template <int TILES>
int matmul_large_launch(const struct cuda_queue *queue, const struct matmul_job *job,
                        uint32_t rows);

/* Native numerics: 128 outputs and 128 rows a block, and how many that makes. matmul_half: parts of
 * F16 alone or BF16 alone. matmul_warpgroup: where the queue has warpgroups; parts of any types but
 * F32, gate and up of one. */
static inline dim3 half_grid(const struct matmul_job &job, uint32_t rows)
{
    uint32_t tiles = 0;
    for (int i = 0; i < 3 && !job.gate; i++)
        tiles += half_tiles(job.part[i].matrix.groups);
    return dim3((rows + HALF_ROWS - 1) / HALF_ROWS, job.gate ? half_tiles(2 * job.groups) : tiles);
}
int matmul_half_launch(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows);
int matmul_warpgroup_launch(const struct cuda_queue *queue, const struct matmul_job *job,
                            uint32_t rows);

#endif
