/* init_launch: what launch.cu has of the others: each prepares the kernels of a file, as cuda_launch_init. C++. */
#ifndef HEARTH_KERNELS_CUDA_INIT_LAUNCH_H
#define HEARTH_KERNELS_CUDA_INIT_LAUNCH_H

#include "kernels/cuda/launch.h"

int kernels_init(struct cuda_code *code);
int attend_init(struct cuda_code *code);
int attend_native_init(struct cuda_code *code);
int delta_init(struct cuda_code *code);
int expert_row_init(struct cuda_code *code);
int experts_init(struct cuda_code *code);
int matmul_sums_init(struct cuda_code *code);
int matmul_half_init(struct cuda_code *code);
int matmul_warpgroup_init(struct cuda_code *code);
template <int ROWS> int matmul_row_init(struct cuda_code *code);
template <int TILES> int matmul_init(struct cuda_code *code);
template <int TILES> int matmul_large_init(struct cuda_code *code);
template <int TILES> int expert_init(struct cuda_code *code);

#endif
