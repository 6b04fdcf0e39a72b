/* product_launch: what product.cu has of product_kernel.h. C++. */
#ifndef HEARTH_KERNELS_CUDA_MATMUL_LAUNCH_H
#define HEARTH_KERNELS_CUDA_MATMUL_LAUNCH_H

#include "kernels/cuda/launch.h"

/* As cuda_launch_product, in tiles of 8 * TILES rows; as cuda_launch_init. BY_ROWS: how matrices lie. */
template <int TILES, bool BY_ROWS>
int product_launch(const struct cuda_queue *queue, const struct product_job *job, uint32_t rows);
template <int TILES, bool BY_ROWS> int product_init(int *ret_version);

/* Quantized types alone: 256 outputs a block. */
template <int TILES>
int product_large_launch(const struct cuda_queue *queue, const struct product_job *job,
                         uint32_t rows);
template <int TILES> int product_large_init(void);

/* Native numerics, parts of F16 alone or BF16 alone: 128 outputs and 128 rows a block, and how many that makes. */
int product_half_launch(const struct cuda_queue *queue, const struct product_job *job,
                        uint32_t rows);
uint64_t product_half_blocks(const struct product_job *job, uint32_t rows);
int product_half_init(void);

#endif
