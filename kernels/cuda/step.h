/*
 * step: a whole pass of up to 16 rows as one kernel: what it is given, and its limits. C and C++; plain data.
 *
 * The blocks are as many as the device runs at once and go through the phases of a pass together, a barrier between two
 * of them. A layer's phases:
 *
 *     q/k/v | heads, append, attention, merge | output, residual | gate, up and their function | down, residual, check
 *
 * Where what a part adds is normed, residuals and check are the next norm's (ops.h), and a phase behind the last layer.
 * Behind the layers, where rows have wants:
 *
 *     norm | logits | parts of samples | sums, where a sample needs them | samples, and the results to the host
 *
 * Where none has: the results alone.
 *
 * A small operation is computed by every block that needs it where that costs less than a barrier (1.2 us):
 *
 *   norm    of one row: 1 to 2 us, by each block into its shared memory (own_norm). Rows of a block come one after the
 *           other, so that two already cost more than a phase in which each is another block's
 *   heads   of rows without another one of their sequence: a block that attends rotates its own queries, and the one
 *           with the last positions appends the key and value that nobody else reads in this pass (own_heads). In a
 *           window other blocks read them, too: a phase
 *   merge   by the block that is the last to attend for a KV head, whichever that is: always
 */
#ifndef HEARTH_KERNELS_CUDA_STEP_H
#define HEARTH_KERNELS_CUDA_STEP_H

#include "kernels/cuda/ops.h"

/* Rows of a pass; kernels for up to 8 and up to 16; blocks of a processor at most. */
enum { STEP_ROWS = 16, STEP_KERNELS = 2, STEP_BLOCKS = 2 };

/* Shared memory that a block may have for its own norm, or its own queries: with the rest, two blocks a processor. */
enum { STEP_OWN_BYTES = 64 << 10 };

struct step_job {
    struct embed_job embed;
    struct sample_job sample;
    const struct layer_jobs *layers; /* [n_layer + 1] the last: the head; device memory */
    uint32_t *merges; /* [STEP_ROWS][n_head_kv] splits done, device memory; 0 between layers */
    uint32_t n_layer;
    uint32_t share;         /* heads of a KV head */
    uint32_t combine_heads; /* KV heads whose values make whole blocks of activations: 1, or all */
    uint32_t own_bytes;     /* of a row's norm in shared memory */
    uint32_t own_floats;    /* of them before its floats */
    uint32_t own_norm, own_heads;
};

#endif
