/* attend_launch: what attend.cu has of attend_native.cu: as cuda_launch_attend, in native numerics. */
#ifndef HEARTH_KERNELS_CUDA_ATTEND_LAUNCH_H
#define HEARTH_KERNELS_CUDA_ATTEND_LAUNCH_H

#include "kernels/cuda/launch.h"

int attend_native_launch(const struct cuda_queue *queue, const struct attend_job *job,
                         uint32_t blocks, uint32_t kinds);

#endif
