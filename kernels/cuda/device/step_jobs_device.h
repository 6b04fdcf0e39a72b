/* step_jobs_device.h: the jobs of step.h as a block holds them: those of the current layer in
 * shared memory, loaded while the block waits for the end of the layer before, and which of them
 * belongs to a phase. A job is identified by its offset in shared memory instead of a pointer, so
 * that the compiler knows the address space. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_STEP_JOBS_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_STEP_JOBS_DEVICE_H

#include <stddef.h>

#include "kernels/cuda/device/matmul_device.h"
#include "kernels/cuda/step.h"

struct step_shared {
    struct layer_jobs layer;
    struct head_jobs head;
    uint32_t last; /* this block is the last one to finish its splits */
};

/* Offset of the phase's own memory; matmuls use its first bytes, followed by a row's norm. */
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
    norm->out.scale = (struct cuda_scale *)memory;
    norm->out.q = (uint32_t *)(memory + stride / CUDA_BLOCK * CUDA_TILE * sizeof(cuda_scale));
    norm->out.f = (float *)(memory + job.own_floats);
    matmul->x = norm->out;
}

/* Loads the jobs of a layer, or of the head after the last layer. They are valid after the next
 * barrier. */
static __device__ void step_load(const struct step_job &job, uint32_t layer)
{
    SHARED_BYTES(memory);
    struct step_shared &shared = *(struct step_shared *)memory;
    unsigned char *own = memory + STEP_SCRATCH + STEP_MATMUL_BYTES(1);
    if (layer < job.n_layer)
        copy_words(&shared.layer, job.layers + layer, sizeof(shared.layer));
    else
        copy_words(&shared.head, &job.head, sizeof(shared.head));
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

/* The norm of a phase, or the one before the matmul of a phase. */
static __device__ __forceinline__ uint32_t step_norm_of(uint32_t phase, bool head)
{
    return head                ? STEP_JOB(head.norm)
           : phase <= STEP_QKV ? STEP_JOB(layer.attn_norm)
           : phase < STEP_END  ? STEP_JOB(layer.ffn_norm)
                               : STEP_JOB(layer.end);
}

/* The matmul of a phase, or else the next one. */
static __device__ __forceinline__ uint32_t step_matmul_of(uint32_t phase, bool head)
{
    return head                    ? STEP_JOB(head.logits)
           : phase <= STEP_QKV     ? STEP_JOB(layer.qkv)
           : phase <= STEP_OUTPUT  ? STEP_JOB(layer.o)
           : phase <= STEP_GATE_UP ? STEP_JOB(layer.gate_up)
                                   : STEP_JOB(layer.down);
}

/* Prefetches the first weights of this block's first item of the matmul at `at`. */
static __device__ __forceinline__ void step_prefetch(uint32_t at)
{
    SHARED_BYTES(memory);
    const struct matmul_job &job = *(const struct matmul_job *)(memory + at);
    if (blockIdx.x < job.groups)
        prefetch_weights<false>(job, blockIdx.x);
}

#endif
