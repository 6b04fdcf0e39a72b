/* step_launch: what step.cu has of step_kernel.cu. C++. */
#ifndef HEARTH_KERNELS_CUDA_STEP_LAUNCH_H
#define HEARTH_KERNELS_CUDA_STEP_LAUNCH_H

#include "kernels/cuda/launch.h"

/* As cuda_step_blocks and cuda_launch_step, for up to 8 * TILES rows. */
template <int TILES>
int step_open(const struct cuda_queue *queue, const struct step_job *job, uint32_t *ret_blocks);
template <int TILES>
int step_launch(const struct cuda_queue *queue, const struct step_job *job, uint32_t blocks);

#endif
