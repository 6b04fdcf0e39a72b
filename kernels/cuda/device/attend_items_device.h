/* attend_items_device: the items of attention that a block of a kernel for large tiles computes. Included by .cu files only. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_ATTEND_ITEMS_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_ATTEND_ITEMS_DEVICE_H

#include "kernels/cuda/device/pass_device.h"

/* compute(item) for each large tile that is this block's, of those that all blocks of a row of the grid share: the last rows
 * of a sequence, which have the most to read, first. */
template <class COMPUTE>
static __device__ __forceinline__ void each_large_item(const struct attend_job &job,
                                                       COMPUTE compute)
{
    follow_previous();
    const uint32_t n = attend_count(job);
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        const struct cuda_item item = attend_items(job)[n - 1 - i];
        if (item.kind == CUDA_ITEM_LARGE)
            compute(item);
    }
}

#endif
