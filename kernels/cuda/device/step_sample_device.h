/* step_sample_device.h: the end of a pass of step.h: sampling for the rows of its head, then the
 * results to the host, followed by the pass number, which tells the host that they are complete.
 * The operations are those of sample_device.h, as in a graph.
 *
 * One phase for each sampling job. The stages of a row are one block's work: the other blocks are
 * finished when they have arrived.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_STEP_SAMPLE_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_STEP_SAMPLE_DEVICE_H

#include "kernels/cuda/device/grid_device.h"
#include "kernels/cuda/device/sample_device.h"
#include "kernels/cuda/device/step_jobs_device.h"

/* goal: the count of `arrived` that all blocks have passed. Not inlined into the loop over layers, whose
 * matmuls need the registers. */
static __device__ __noinline__ void step_samples(unsigned *arrived, uint32_t goal)
{
    SHARED_BYTES(memory);
    const struct sample_job &job = ((const struct step_shared *)memory)->sample;
    struct sample_shared *shared = (struct sample_shared *)(memory + STEP_SCRATCH);
    const uint32_t rows = job.pass.counts[CUDA_COUNT_WANTED], parts = sample_parts(job.n_vocab);
    grid_arrive(arrived);
    grid_wait(arrived, goal += gridDim.x);
    for (uint32_t i = blockIdx.x; i < rows * parts; i += gridDim.x)
        sample_part_item(job, i / parts, i % parts, shared);
    if (job.pass.counts[CUDA_COUNT_SUMMED] > 0) {
        grid_arrive(arrived);
        grid_wait(arrived, goal += gridDim.x);
        for (uint32_t i = blockIdx.x; i < rows * parts; i += gridDim.x)
            sample_sum_item(job, i / parts, i % parts, shared);
    }
    grid_arrive(arrived);
    if (blockIdx.x >= rows)
        return;
    grid_wait(arrived, goal += gridDim.x);
    for (uint32_t w = blockIdx.x; w < rows; w += gridDim.x)
        sample_best_item(job, w, shared);
}

/* For a pass in which no row wants anything: done by the last block, which has the fewest items and
 * arrives first. */
static __device__ __forceinline__ void step_end(const struct step_job &job, unsigned *arrived,
                                                uint32_t goal)
{
    grid_arrive(arrived);
    if (blockIdx.x + 1 < gridDim.x)
        return;
    grid_wait(arrived, goal + gridDim.x);
    end_item(job.embed.pass, job.sample.results);
}

#endif
