/* step_jobs_device.h: the jobs of step.h as a block holds them: those of the current layer at the
 * end of its shared memory, loaded while the block waits for the end of the layer before, and which
 * of them belongs to a phase. A job is identified by its offset in shared memory instead of a pointer, so
 * that the compiler knows the address space. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_STEP_JOBS_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_STEP_JOBS_DEVICE_H

#include <stddef.h>

#include "kernels/cuda/device/matmul_device.h"
#include "kernels/cuda/step.h"

struct step_shared {
    struct sample_job sample;
    uint32_t last; /* this block is the last one at a combination of splits */
};

/* Offset of the phase's own memory. */
enum { STEP_SCRATCH = (sizeof(struct step_shared) + 127) / 128 * 128 };
#define STEP_MATMUL_BYTES(tiles) (CUDA_WARPS * SEGMENT_FLOATS(tiles) * (uint32_t)sizeof(float))

/* The jobs of the layer, or of the head. */
static __device__ __forceinline__ struct layer_jobs &step_layer(const struct step_job &job)
{
    SHARED_BYTES(memory);
    return *(struct layer_jobs *)(memory + job.jobs_at);
}

/* Where job i of the layer lies in shared memory. */
static __device__ __forceinline__ uint32_t step_job_at(const struct step_job &job, uint32_t i)
{
    return job.jobs_at +
           (uint32_t)(offsetof(struct layer_jobs, job) + offsetof(struct cuda_job, of)) +
           i * (uint32_t)sizeof(struct cuda_job);
}

/* ---- jobs
 * ------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void copy_words(void *to, const void *from, uint32_t bytes)
{
    for (uint32_t i = threadIdx.x; i < bytes / 4; i += CUDA_THREADS)
        ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
}

/* Loads the jobs of a layer; after the last layer, those of the head. Their kinds and weights, which step_next and
 * step_prefetch read, are there when this returns, the rest after the next barrier. */
static __device__ void step_load(const struct step_job &job, uint32_t layer)
{
    SHARED_BYTES(memory);
    struct step_shared &shared = *(struct step_shared *)memory;
    const struct layer_jobs *from = job.layers + layer;
    struct layer_jobs &to = step_layer(job);
    copy_words(&to, from,
               offsetof(struct layer_jobs, job) + from->n * (uint32_t)sizeof(struct cuda_job));
    if (layer == job.n_layer)
        copy_words(&shared.sample, &job.sample, sizeof(shared.sample));
    __syncthreads();
}

/* The next job from i on that is a phase's. */
static __device__ __forceinline__ uint32_t step_next(const struct step_job &job, uint32_t i)
{
    const struct layer_jobs &layer = step_layer(job);
    return i < layer.n && job.own_heads && layer.job[i].kind == CUDA_JOB_QKV_FINISH ? i + 1 : i;
}

#endif
