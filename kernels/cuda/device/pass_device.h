/* pass_device.h: values that change from pass to pass, as kernels read them (cuda.h). A kernel
 * loads the counts and array bases together, first of all, so loading an array's base costs no
 * extra latency. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_PASS_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_PASS_DEVICE_H

#include "kernels/cuda/device.h"
#include "kernels/cuda/ops.h"

/* Rows of the pass, or those with wants. They are there before its first kernel, so every kernel may read them before it waits for
 * the one before. */
static __device__ __forceinline__ uint32_t rows_of(const struct cuda_pass &pass, uint32_t wanted)
{
    return pass.counts[wanted ? CUDA_COUNT_WANTED : CUDA_COUNT_ROWS];
}

/* What a kernel begins with whose items are rows: follow_previous, and their number. */
static __device__ __forceinline__ uint32_t follow_previous(const struct cuda_pass &pass,
                                                           uint32_t wanted)
{
    let_next_start();
    const uint32_t n = rows_of(pass, wanted);
    wait_for_previous();
    return n;
}

/* Items of a job of attention: [attend_count]. */
static __device__ __forceinline__ uint32_t attend_count(const struct attend_job &job)
{
    return job.pass.counts[CUDA_COUNT_ITEMS + job.local];
}

static __device__ __forceinline__ const struct cuda_item *attend_items(const struct attend_job &job)
{
    const uint32_t at = job.pass.counts[CUDA_AT_ITEMS + job.local];
    return (const struct cuda_item *)(job.pass.words + at);
}

/* The sampling of row w of those with wants. */
static __device__ __forceinline__ const struct cuda_sampling &
sampling_of(const struct cuda_pass &pass, uint32_t w)
{
    return ((const struct cuda_sampling *)(pass.words + pass.counts[CUDA_AT_SAMPLING]))[w];
}

#endif
