/*
 * step_kernel: the kernel of step_device.h for rows in TILES tiles of 8, and what launches it. An
 * object for each ROW_TILES, 1 and 2 (VARIANTS_step_kernel.cu in the Makefile), because each takes
 * long to compile.
 */
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/device/launch_device.h"
#include "kernels/cuda/device/step_device.h"
#include "kernels/cuda/step_launch.h"

static_assert(sizeof(struct step_job) <= 4096, "that every device takes as a parameter");
static_assert(sizeof(struct combine_shared) <= sizeof(struct sample_shared) &&
                  sizeof(float) * CUDA_BLOCK * CUDA_MAX_HEAD <= sizeof(struct sample_shared),
              "phases that are not counted below");

/* Two blocks per SM if the matmuls use few enough registers. */
template <int TILES>
static __global__ void __launch_bounds__(CUDA_THREADS, TILES == 1 ? STEP_BLOCKS : 1)
    step_kernel(const __grid_constant__ struct step_job job)
{
    step_pass<TILES>(job);
}

static constexpr size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Shared memory per block before a layer's jobs: that of the phase that needs most. */
template <int TILES> static uint32_t step_jobs_at(const struct step_job &job)
{
    const size_t tile = offsetof(attend_tile<STEP_TILE_GROUPS>, q) +
                        job.k_dim * sizeof(float) * attend_tile<STEP_TILE_GROUPS>::PITCH,
                 row = STEP_QUERIES + (job.own_heads ? job.own_queries : 0),
                 matmul = STEP_MATMUL_BYTES(TILES),
                 of_samples = larger(sizeof(struct sample_shared), sizeof(struct route_shared));
    const size_t phases = larger(larger(tile, row), larger(matmul, of_samples));
    return (uint32_t)((STEP_SCRATCH + larger(phases, job.delta_bytes) + 15) / 16 * 16);
}

static size_t step_jobs_bytes(uint32_t n)
{
    return offsetof(struct layer_jobs, job) + n * sizeof(struct cuda_job);
}

template <int TILES> static size_t step_bytes(const struct step_job &job)
{
    return step_jobs_at<TILES>(job) + step_jobs_bytes(job.most_jobs);
}

/* For any instance: a function attribute is set per process, not per instance. */
template <int TILES> static constexpr size_t step_most_bytes()
{
    return STEP_SCRATCH + sizeof(struct layer_jobs) + 16 +
           larger(larger(sizeof(attend_tile<STEP_TILE_GROUPS>), sizeof(struct delta_shared)),
                  larger(STEP_OWN_BYTES + STEP_QUERIES, (size_t)STEP_MATMUL_BYTES(TILES)));
}

template <int TILES> int step_init(struct cuda_code *code)
{
    static_assert(step_most_bytes<TILES>() <= 99 << 10, "that every GPU has for a block");
    return prepare(step_kernel<TILES>, step_most_bytes<TILES>(), code);
}

template <int TILES>
int step_open(const struct cuda_queue *queue, const struct step_job *job, uint32_t *ret_blocks)
{
    int n = 0;
    const cudaError_t code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &n, step_kernel<TILES>, CUDA_THREADS, step_bytes<TILES>(*job));
    *ret_blocks = (uint32_t)(n < STEP_BLOCKS ? n : STEP_BLOCKS) * queue->processors;
    return (int)code;
}

/* Launched cooperatively: all blocks run at once, or the launch fails. */
template <int TILES>
int step_launch(const struct cuda_queue *queue, const struct step_job *job, uint32_t blocks)
{
    cudaLaunchAttribute attributes[2] = {shared_memory_first()};
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    const cudaLaunchConfig_t config = {dim3(blocks),  dim3(CUDA_THREADS), step_bytes<TILES>(*job),
                                       queue->stream, attributes,         2};
    struct step_job placed = *job;
    placed.jobs_at = step_jobs_at<TILES>(*job);
    return (int)cudaLaunchKernelEx(&config, step_kernel<TILES>, placed);
}

template int step_init<ROW_TILES>(struct cuda_code *);
template int step_open<ROW_TILES>(const struct cuda_queue *, const struct step_job *, uint32_t *);
template int step_launch<ROW_TILES>(const struct cuda_queue *, const struct step_job *, uint32_t);
