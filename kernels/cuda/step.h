/*
 * step: a whole pass of up to 16 rows as one kernel: what it is given, and its limits. C and C++; plain data.
 *
 * A pass of few words comes as a parameter of the kernel, and the first block puts it into device memory during the first
 * phase, which reads the parameter; a larger one is copied before.
 *
 * There are as many blocks as the device runs at once. They go through the jobs of each layer, then of the head, together,
 * with a barrier between two jobs (ops.h, struct layer_jobs; jobs.c makes them). A llama layer:
 *
 *     norm | q/k/v | qkv_finish | attention, combine | output, residual | norm | gate, up | down, residual, check
 *
 * A layer with experts has, in place of gate and down:
 *
 *     router | choice; shared gate, up | shared down; gate, up | down | sum, residual, check
 *
 * and a recurrent one, in place of q/k/v to attention:
 *
 *     norm | beta/alpha; qkv/z | convolution | delta rule | gates; records and inputs
 *
 * Jobs without a barrier between them (;) do not need each other (cuda_job.beside).
 *
 * After the layers, where rows have wants: the head's jobs, then samples: parts | sums, where a sample needs them | draws,
 * and the results to the host. Without wants: the results alone.
 *
 * Some jobs are computed by every block that needs them where that costs less than a barrier (1.2 us):
 *
 *   qkv_finish  of rows without another one of their sequence: a block that attends rotates its own queries, and the one
 *               with the last positions appends the key and value that no other block reads in this pass (own_heads).
 *               Rows of one sequence read each other's keys and values: then it is a job
 *   combine     always: by the block that finishes the last split of a KV head
 */
#ifndef HEARTH_KERNELS_CUDA_STEP_H
#define HEARTH_KERNELS_CUDA_STEP_H

#include "kernels/cuda/ops.h"

/* Rows of a pass; kernels for up to 8 and up to 16; blocks of a processor at most. */
enum { STEP_ROWS = 16, STEP_KERNELS = 2, STEP_BLOCKS = 2 };

/* Shared memory that a block may have for its own queries: with the rest, two blocks a processor. */
enum { STEP_OWN_BYTES = 64 << 10 };

/* Words of a pass that may come as a parameter: with the rest of it, 4 KiB. */
enum { STEP_WORDS = 768 };

struct step_job {
    struct embed_job embed;
    struct sample_job sample;
    const struct layer_jobs *layers; /* [n_layer + 1] the last: the head; device memory */
    uint32_t *splits_done; /* [STEP_ROWS][n_head_kv] splits done, device memory; 0 between layers */
    uint32_t
        *arrived;  /* [2][CUDA_LINE / 4] device memory: barriers of this pass and, 0, of the next */
    uint32_t turn; /* which of the two is this pass's */
    uint32_t n_words; /* of the pass, in words; 0: in device memory */
    uint32_t n_layer;
    uint32_t most_jobs;   /* of a layer */
    uint32_t jobs_at;     /* bytes of shared memory before a layer's jobs; set by the launch */
    uint32_t delta_bytes; /* of shared memory for a state's columns; 0: no layer is recurrent */
    uint32_t k_dim;       /* of the layer with the most */
    uint32_t own_queries; /* bytes of a KV head's queries, of the layer with the most */
    uint32_t own_heads;
    uint32_t words[STEP_WORDS];
};

#endif
