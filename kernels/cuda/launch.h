/*
 * launch: starts one kernel a job on a stream. Host, C. `rows` is the number of rows (or of rows with wants) that the
 * grid covers, at least that of the pass: kernels read the true number in device memory. Each returns a cudaError_t.
 */
#ifndef HEARTH_KERNELS_CUDA_LAUNCH_H
#define HEARTH_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>

#include "kernels/cuda/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Once per device and process: shared memory beyond 48 KiB. */
int cuda_launch_init(void);

/* Reads n units of 16 bytes once; sum [1] is written when they add up to a number that they never do. */
int cuda_launch_read(cudaStream_t stream, const void *from, uint64_t n, uint32_t *sum,
                     uint32_t blocks);

int cuda_launch_begin(cudaStream_t stream, const struct begin_job *job, uint32_t rows);
int cuda_launch_norm(cudaStream_t stream, const struct norm_job *job, uint32_t rows);
int cuda_launch_product(cudaStream_t stream, const struct product_job *job, uint32_t rows);
int cuda_launch_heads(cudaStream_t stream, const struct heads_job *job, uint32_t rows);
int cuda_launch_attend(cudaStream_t stream, const struct attend_job *job, uint32_t items);
int cuda_launch_merge(cudaStream_t stream, const struct merge_job *job, uint32_t rows);
int cuda_launch_silu(cudaStream_t stream, const struct silu_job *job, uint32_t rows);
int cuda_launch_pick(cudaStream_t stream, const struct pick_job *job, uint32_t rows);

#ifdef __cplusplus
}
#endif

#endif
