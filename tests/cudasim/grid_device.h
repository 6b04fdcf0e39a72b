/* grid_device.h: for the toys, a barrier of all blocks of a cooperative launch, which the device runs all at the
 * same time. Its word counts the arrivals of the whole launch and never decreases: barrier number n
 * is passed when it has reached n * gridDim.x. It is zero when the kernel starts. Between arriving
 * and waiting a block may do work that does not depend on other blocks.
 *
 * All threads of a block call both. Whatever any thread of the grid wrote before arriving is
 * visible to all threads that have waited: __syncthreads orders a block's writes before its first
 * thread's add_release, and the fence after the last look pairs with that across blocks.
 */
#ifndef HEARTH_TESTS_CUDASIM_GRID_DEVICE_H
#define HEARTH_TESTS_CUDASIM_GRID_DEVICE_H

#include "kernels/cuda/device.h"

/* release: what the block wrote before is seen by a thread that finds the addition in the word and then fences. */
static inline void add_release(unsigned *p, unsigned n, CUDASIM_HERE)
{
    cudasim_release(p);
    cudasim_atomic(CUDASIM_ATOMIC_ADD, p, 4, n, 0, CUDASIM_PLACE);
}

static inline unsigned load_relaxed(const unsigned *p, CUDASIM_HERE)
{
    return (unsigned)cudasim_atomic(CUDASIM_ATOMIC_LOAD, (void *)p, 4, 0, 0, CUDASIM_PLACE);
}

static inline void fence_acquire(const unsigned *p)
{
    cudasim_acquire(p);
}

static __device__ __forceinline__ void grid_arrive(unsigned *arrived)
{
    __syncthreads();
    if (threadIdx.x == 0)
        add_release(arrived, 1);
}

static __device__ __forceinline__ void grid_wait(const unsigned *arrived, unsigned goal)
{
    if (threadIdx.x == 0) {
        while (load_relaxed(arrived) < goal)
            ;
        fence_acquire(arrived);
    }
    __syncthreads();
}

#endif
