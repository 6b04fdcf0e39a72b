/*
 * grid_device: a barrier of all blocks of a cooperative launch, which the device runs all at once. Its word counts arrivals
 * of the whole launch and never goes back: the nth barrier is passed when it has n * gridDim.x. It is zero when the kernel
 * begins. Between arriving and waiting a block may do what depends on no other block.
 *
 * All threads of a block call both. What any thread of the grid wrote before it arrived is seen by all that have waited:
 * __syncthreads brings a block's writes to its first thread, add_release and load_acquire from block to block.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_GRID_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_GRID_DEVICE_H

#include "kernels/cuda/device.h"

static __device__ __forceinline__ void grid_arrive(unsigned *arrived)
{
    __syncthreads();
    if (threadIdx.x == 0)
        add_release(arrived, 1);
}

static __device__ __forceinline__ void grid_wait(const unsigned *arrived, unsigned goal)
{
    if (threadIdx.x == 0) {
        while (load_acquire(arrived) < goal)
            ;
    }
    __syncthreads();
}

#endif
