/*
 * step_jobs_device: the jobs of step.h as a block has them: those of the layer in shared memory, brought there while the
 * block waits for the layer before, and which of them a phase is. A job is named by where it lies in shared memory, not
 * by a pointer, so that the compiler knows that memory for what it is.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_STEP_JOBS_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_STEP_JOBS_DEVICE_H

#include <stddef.h>

#include "kernels/cuda/device/matmul_device.h"
#include "kernels/cuda/step.h"

struct step_shared {
    struct layer_jobs layer;
    struct head_jobs head;
    uint32_t last; /* this block is the last one at a merge */
};

/* Where the phase's own memory begins; matmuls have the first bytes of it, then a row's norm. */
enum { STEP_SCRATCH = (sizeof(struct step_shared) + 127) / 128 * 128 };
#define STEP_MATMUL_BYTES(tiles) (CUDA_WARPS * SEGMENT_FLOATS(tiles) * (uint32_t)sizeof(float))

#define STEP_JOB(name) ((uint32_t)offsetof(struct step_shared, name))

/* The phases of a layer; the head has the first two, with jobs of its own. */
enum step_phase {
    STEP_NORM,
    STEP_QKV,
    STEP_HEADS,
    STEP_ATTEND,
    STEP_OUTPUT,
    STEP_FFN_NORM,
    STEP_GATE_UP,
    STEP_DOWN,
    STEP_END,
    STEP_PHASES,
    STEP_HEAD_PHASES = STEP_HEADS
};

/* ---- jobs ------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void copy_words(void *to, const void *from, uint32_t bytes)
{
    for (uint32_t i = threadIdx.x; i < bytes / 4; i += CUDA_THREADS)
        ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
}

/* The row's norm goes to the block's own memory, and the matmul reads it there. */
static __device__ __forceinline__ void make_own(const struct step_job &job, struct norm_job *norm,
                                                struct matmul_job *matmul, unsigned char *memory)
{
    const uint32_t stride = norm->out.stride;
    norm->out.scale = (struct cuda_scale *)memory;
    norm->out.q = (uint32_t *)(memory + stride / CUDA_BLOCK * CUDA_TILE * sizeof(cuda_scale));
    norm->out.f = (float *)(memory + job.own_floats);
    matmul->x = norm->out;
}

/* The jobs of a layer, of the head behind the last. They are there behind the next barrier. */
static __device__ void step_load(const struct step_job &job, uint32_t layer)
{
    SHARED_BYTES(memory);
    struct step_shared &shared = *(struct step_shared *)memory;
    unsigned char *own = memory + STEP_SCRATCH + STEP_MATMUL_BYTES(1);
    if (layer < job.n_layer)
        copy_words(&shared.layer, job.layers + layer, sizeof shared.layer);
    else
        copy_words(&shared.head, &job.head, sizeof shared.head);
    __syncthreads();
    if (!job.own_norm || threadIdx.x != 0)
        return;
    if (layer < job.n_layer) {
        make_own(job, &shared.layer.attn_norm, &shared.layer.qkv, own);
        make_own(job, &shared.layer.ffn_norm, &shared.layer.gate_up, own);
    } else {
        make_own(job, &shared.head.norm, &shared.head.logits, own);
    }
}

/* The norm of a phase, or of the matmul that a phase is. */
static __device__ __forceinline__ uint32_t step_norm_of(uint32_t phase, bool head)
{
    return head                ? STEP_JOB(head.norm)
           : phase <= STEP_QKV ? STEP_JOB(layer.attn_norm)
           : phase < STEP_END  ? STEP_JOB(layer.ffn_norm)
                               : STEP_JOB(layer.end);
}

/* The matmul that a phase is, or else the next one. */
static __device__ __forceinline__ uint32_t step_matmul_of(uint32_t phase, bool head)
{
    return head                    ? STEP_JOB(head.logits)
           : phase <= STEP_QKV     ? STEP_JOB(layer.qkv)
           : phase <= STEP_OUTPUT  ? STEP_JOB(layer.o)
           : phase <= STEP_GATE_UP ? STEP_JOB(layer.gate_up)
                                   : STEP_JOB(layer.down);
}

/* The first weights of the matmul at `at`, of this block's first item, come closer. */
static __device__ __forceinline__ void step_prefetch(uint32_t at)
{
    SHARED_BYTES(memory);
    const struct matmul_job &job = *(const struct matmul_job *)(memory + at);
    if (blockIdx.x < job.groups)
        prefetch_weights<false>(job, blockIdx.x);
}

#endif
