/* attend.cu: the attention kernels, and which one computes which items and head sizes.
 * attend_kernel computes single rows and small tiles, in passes of any size; attend_large_kernel
 * large tiles, which only larger passes have. Each skips the items of the other.
 *
 * 128 registers, so that an SM runs two blocks; small tiles of heads above 256 and large ones of heads above 128 take more,
 * with one block per SM (registers.txt). Shared memory for heads of 64, 128, 256, 512: 43, 48, 58, 79 KB; large tiles 64,
 * 73, 91 KB. An item reads the KV of its run of splits once from memory or L2: K and V of each
 * position.
 */
#include <stddef.h>

#include "kernels/cuda/device/attend_items_device.h"
#include "kernels/cuda/attend_launch.h"
#include "kernels/cuda/device/attend_tile_device.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/device/launch_device.h"

enum {
    SMALL_GROUPS = CUDA_TILE_QUERIES / TILE_EACH,
    LARGE_GROUPS = CUDA_LARGE_QUERIES / TILE_EACH,
    MOST_BYTES = 99 << 10 /* available to a block on every GPU */
};

template <uint32_t KV, int DIMS>
static __global__ void __launch_bounds__(CUDA_THREADS, DIMS > 2 ? 1 : 2)
    attend_kernel(const struct attend_job job)
{
    SHARED_BYTES(shared);
    let_next_start();
    prefetch_item(job, blockIdx.x, blockIdx.y);
    wait_for_previous();
    for (uint32_t i = blockIdx.x; i < attend_count(job); i += gridDim.x) {
        const struct cuda_item item = attend_items(job)[i];
        if (item.kind == CUDA_ITEM_ROW)
            attend_item<KV>(job, item, queries_of(job, item.row, blockIdx.y), blockIdx.y,
                            *(attend_shared *)shared);
        else if (item.kind == CUDA_ITEM_TILE)
            attend_tile_item<KV, SMALL_GROUPS, DIMS>(job, item, blockIdx.y,
                                                     *(attend_tile<SMALL_GROUPS> *)shared);
    }
}

template <uint32_t KV, int DIMS>
static __global__ void __launch_bounds__(CUDA_THREADS, DIMS > 2 ? 1 : 2)
    attend_large_kernel(const struct attend_job job)
{
    SHARED_BYTES(shared);
    each_large_item(job, [&](const struct cuda_item &item) {
        attend_tile_item<KV, LARGE_GROUPS, DIMS>(job, item, blockIdx.y,
                                                 *(attend_tile<LARGE_GROUPS> *)shared);
    });
}

/* Heads of V of up to 128, 256 and 512 values; large tiles: of up to 64, 128 and 256. */
enum { SMALL_SIZES = 3, LARGE_SIZES = 3, KV_TYPES = 3 };
typedef void (*attend_function)(struct attend_job);
#define OF_TYPES(kernel, dims)                                                                     \
    {                                                                                              \
        kernel<CUDA_KV_F16, dims>, kernel<CUDA_KV_F32, dims>, kernel<CUDA_KV_Q8_0, dims>           \
    }
static const attend_function small_kernels[SMALL_SIZES][KV_TYPES] = {
    OF_TYPES(attend_kernel, 1), OF_TYPES(attend_kernel, 2), OF_TYPES(attend_kernel, 4)};
static const attend_function large_kernels[LARGE_SIZES][KV_TYPES] = {
    OF_TYPES(attend_large_kernel, 1), OF_TYPES(attend_large_kernel, 2),
    OF_TYPES(attend_large_kernel, 4)};

template <int GROUPS> static size_t tile_bytes(uint32_t k_dim)
{
    return offsetof(attend_tile<GROUPS>, q) +
           (size_t)k_dim * attend_tile<GROUPS>::PITCH * sizeof(float);
}

static_assert(sizeof(attend_tile<LARGE_GROUPS>) <= MOST_BYTES &&
                  sizeof(attend_tile<SMALL_GROUPS>) <= MOST_BYTES &&
                  sizeof(attend_shared) <= offsetof(attend_tile<SMALL_GROUPS>, q),
              "the shared memory of a block");

int attend_init(struct cuda_code *code)
{
    int rc = 0;
    for (int type = 0; type < KV_TYPES; type++) {
        for (int i = 0; i < SMALL_SIZES && !rc; i++)
            rc = prepare(small_kernels[i][type], sizeof(attend_tile<SMALL_GROUPS>), code);
        for (int i = 0; i < LARGE_SIZES && !rc; i++)
            rc = prepare(large_kernels[i][type], sizeof(attend_tile<LARGE_GROUPS>), code);
    }
    return rc;
}

int cuda_launch_attend(const struct cuda_queue *queue, const struct attend_job *job,
                       uint32_t blocks, uint32_t kinds)
{
    const uint32_t k = job->kv.k_dim, v = job->kv.v_dim, type = job->kv.type;
    const dim3 grid(blocks, job->kv.n_head_kv);
    int rc = 0;
    if (job->native)
        return attend_native_launch(queue, job, blocks, kinds);
    if (kinds & (1u << CUDA_ITEM_ROW | 1u << CUDA_ITEM_TILE))
        rc = launch(queue, small_kernels[v > 256 ? 2 : v > 128][type], grid,
                    tile_bytes<SMALL_GROUPS>(k), *job);
    if (kinds & 1u << CUDA_ITEM_LARGE && !rc)
        rc = launch(queue, large_kernels[v > 128 ? 2 : v > 64][type], grid,
                    tile_bytes<LARGE_GROUPS>(k), *job);
    return rc;
}
