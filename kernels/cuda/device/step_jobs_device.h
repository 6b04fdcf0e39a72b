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

/* Offset of the phase's own memory; matmuls use its first bytes, followed by a row's norm. */
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

/* Redirects the row's norm to the block's own memory, where the matmul reads it. */
static __device__ __forceinline__ void make_own(const struct step_job &job, struct norm_job *norm,
                                                struct matmul_job *matmul, unsigned char *memory)
{
    const uint32_t stride = norm->out.stride;
    norm->out.lanes = CUDA_ROW_LANES;
    norm->out.scale = (struct cuda_scale *)memory;
    norm->out.q = (uint32_t *)(memory + stride / CUDA_BLOCK * CUDA_ROW_SCALES * sizeof(cuda_scale));
    norm->out.f = (float *)(memory + job.own_floats);
    matmul->x = norm->out;
}

/* Whether job i is a norm that the matmul after it alone reads. */
static __device__ __forceinline__ bool step_read_norm(const struct layer_jobs &layer, uint32_t i)
{
    return i + 1 < layer.n && layer.job[i].kind == CUDA_JOB_NORM && layer.job[i].of.norm.alone &&
           layer.job[i + 1].kind == CUDA_JOB_MATMUL;
}

/* Loads the jobs of a layer; after the last layer, those of the head. Their kinds and weights, which step_next and
 * step_prefetch read, are there when this returns, the rest after the next barrier. */
static __device__ void step_load(const struct step_job &job, uint32_t layer)
{
    SHARED_BYTES(memory);
    struct step_shared &shared = *(struct step_shared *)memory;
    unsigned char *own = memory + STEP_SCRATCH + STEP_MATMUL_BYTES(1);
    const struct layer_jobs *from = job.layers + layer;
    struct layer_jobs &to = step_layer(job);
    copy_words(&to, from,
               offsetof(struct layer_jobs, job) + from->n * (uint32_t)sizeof(struct cuda_job));
    if (layer == job.n_layer)
        copy_words(&shared.sample, &job.sample, sizeof(shared.sample));
    __syncthreads();
    const uint32_t i = threadIdx.x;
    if (job.own_norm && i < to.n && step_read_norm(to, i))
        make_own(job, &to.job[i].of.norm, &to.job[i + 1].of.matmul, own);
}

/* The norm of a phase, or the one before the matmul of a phase. */
static __device__ __forceinline__ uint32_t step_next(const struct step_job &job, uint32_t i)
{
    const struct layer_jobs &layer = step_layer(job);
    while (i < layer.n && ((job.own_norm && step_read_norm(layer, i)) ||
                           (job.own_heads && layer.job[i].kind == CUDA_JOB_QKV_FINISH)))
        i++;
    return i;
}

/* The first weights of the matmul that job i is, or else of the next one, if any, of this block's first item, come closer. */
static __device__ __forceinline__ void step_prefetch(const struct step_job &step, uint32_t i)
{
    SHARED_BYTES(memory);
    const struct layer_jobs &layer = step_layer(step);
    const uint32_t at = layer.job[i].at_matmul;
    if (at == layer.n)
        return;
    const struct matmul_job &job = *(const struct matmul_job *)(memory + step_job_at(step, at));
    if (blockIdx.x < job.groups)
        prefetch_weights<false>(job, blockIdx.x);
}

#endif
