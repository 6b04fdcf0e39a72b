/* attend_items_device.h: the items of attention that a block of a large-tile kernel computes.
 * Included by .cu files only. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_ATTEND_ITEMS_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_ATTEND_ITEMS_DEVICE_H

#include "kernels/cuda/device/pass_device.h"

/* Calls compute(item) for each large tile of this block. All blocks of a row of the grid share the
 * tiles; the last rows of a sequence, which have the most KV to read, come first. */
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
