/*
 * launch: starts one kernel a job on a stream. Host, C. `rows` is the number of rows (or of rows with wants) that the
 * grid covers, at least that of the pass: kernels read the true number in device memory. Each returns a cudaError_t.
 */
#ifndef HEARTH_KERNELS_CUDA_LAUNCH_H
#define HEARTH_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "kernels/cuda/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where kernels go. dependent: a kernel may begin before the one before it has ended, and waits where it must. */
struct cuda_queue {
    cudaStream_t stream;
    uint32_t processors; /* of the device */
    bool warpgroups;     /* it has wgmma, which adds as its mma does */
    int dependent;
};

/* What the kernels are as they were loaded: the compute capability that the code was made for, 90 for sm_90; bytes of the
 * largest stack of a thread, for which the device sets memory aside as if every thread that it can run had it. */
struct cuda_code {
    uint32_t version, stack;
};

/* Once per device and process: loads every kernel; shared memory beyond 48 KiB. */
int cuda_launch_init(struct cuda_code *ret_code);

/* Reads n units of 16 bytes once; sum [1] is written when they add up to a number that they never do. */
int cuda_launch_read(const struct cuda_queue *queue, const void *from, uint64_t n, uint32_t *sum,
                     uint32_t blocks);

int cuda_launch_embed(const struct cuda_queue *queue, const struct embed_job *job, uint32_t rows);
int cuda_launch_gate(const struct cuda_queue *queue, const struct gate_job *job, uint32_t rows);
int cuda_launch_inputs(const struct cuda_queue *queue, const struct inputs_job *job, uint32_t rows);
int cuda_launch_norm(const struct cuda_queue *queue, const struct norm_job *job, uint32_t rows);
int cuda_launch_matmul(const struct cuda_queue *queue, const struct matmul_job *job, uint32_t rows);
/* Whether a matmul of one row should compute its own norm. */
bool cuda_takes_norm(const struct matmul_job *job);
int cuda_launch_route(const struct cuda_queue *queue, const struct route_job *job, uint32_t rows);
int cuda_launch_expert(const struct cuda_queue *queue, const struct expert_job *job, uint32_t rows);
int cuda_launch_expert_sum(const struct cuda_queue *queue, const struct expert_sum_job *job,
                           uint32_t rows);
int cuda_launch_sums(const struct cuda_queue *queue, const struct sums_job *job, uint32_t rows);
int cuda_launch_qkv_finish(const struct cuda_queue *queue, const struct qkv_finish_job *job,
                           uint32_t rows);
int cuda_launch_convolve(const struct cuda_queue *queue, const struct convolve_job *job,
                         uint32_t rows);
int cuda_launch_delta(const struct cuda_queue *queue, const struct delta_job *job, uint32_t states);
int cuda_launch_settle(const struct cuda_queue *queue, const struct delta_job *job,
                       uint32_t states);
uint32_t cuda_delta_bytes(uint32_t k_dim); /* of shared memory that a block takes */
int cuda_launch_head_gate(const struct cuda_queue *queue, const struct head_gate_job *job,
                          uint32_t rows);
int cuda_launch_join(const struct cuda_queue *queue, const struct join_job *job, uint32_t rows);
int cuda_launch_combine(const struct cuda_queue *queue, const struct combine_job *job,
                        uint32_t rows);
int cuda_launch_sample(const struct cuda_queue *queue, const struct sample_job *job, uint32_t rows);
int cuda_launch_end(const struct cuda_queue *queue, const struct end_job *job);

/* Blocks share the pass's items out among them. kinds: those that it may have, a bit for each enum cuda_item_kind. */
int cuda_launch_attend(const struct cuda_queue *queue, const struct attend_job *job,
                       uint32_t blocks, uint32_t kinds);

#ifdef __cplusplus
}
#endif

#endif
