/* matmul_launch: what matmul.cu has of matmul_kernel.cu, matmul_row.cu, expert_row.cu,
 * matmul_expert.cu, matmul_large.cu and matmul_half.cu. C++. */
#ifndef HEARTH_KERNELS_CUDA_MATMUL_LAUNCH_H
#define HEARTH_KERNELS_CUDA_MATMUL_LAUNCH_H

#include "kernels/cuda/launch.h"

/* As cuda_launch_matmul, in tiles of 8 * TILES rows. BY_ROWS: how matrices lie. */
template <int TILES, bool BY_ROWS>
int matmul_launch(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows);

/* As cuda_launch_expert, of runs of up to 8 * TILES rows. */
template <int TILES>
int expert_launch(const struct cuda_queue *queue, const struct expert_job *job, uint32_t rows);

/* As cuda_launch_matmul, for passes of up to ROWS rows: whether the kernel takes the job, whose
 * sums of segments have to fit a block's shared memory, gate and up to be of one type, and of
 * more than two rows all types to be float ones. And an expert_job of one row whose matmul <1>
 * takes. */
template <int ROWS> bool matmul_row_takes(const struct matmul_job *job);
template <int ROWS>
int matmul_row_launch(const struct cuda_queue *queue, const struct matmul_job *job);
int expert_row_launch(const struct cuda_queue *queue, const struct expert_job *job);

/* Quantized types alone: 256 outputs a block. */
template <int TILES>
int matmul_large_launch(const struct cuda_queue *queue, const struct matmul_job *job,
                        uint32_t rows);

/* Native numerics, parts of F16 alone or BF16 alone: 128 outputs and 128 rows a block, and how
 * many that makes. */
int matmul_half_launch(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows);
uint64_t matmul_half_blocks(const struct matmul_job *job, uint32_t rows);

#endif
