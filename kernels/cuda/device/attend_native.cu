/* attend_native.cu: the attention kernels in native numerics. The small one takes 16 queries per
 * block, for single rows and small tiles; the large one 64, or 32 of heads above 128, in passes
 * that have large tiles. Each skips the items of the other. */
#include <stddef.h>

#include "kernels/cuda/device/attend_items_device.h"
#include "kernels/cuda/attend_launch.h"
#include "kernels/cuda/init_launch.h"
#include "kernels/cuda/device/attend_native_device.h"
#include "kernels/cuda/device/launch_device.h"

enum { MOST_BYTES = 99 << 10 /* available to a block on every GPU */ };

template <uint32_t KV, int PAIRS>
static __global__ void __launch_bounds__(CUDA_THREADS, 2)
    native_small_kernel(const struct attend_job job)
{
    SHARED_BYTES(shared);
    follow_previous();
    for (uint32_t i = blockIdx.x; i < attend_count(job); i += gridDim.x) {
        const struct cuda_item item = attend_items(job)[i];
        if (item.kind != CUDA_ITEM_LARGE)
            attend_native_item<KV, 1, PAIRS>(job, item, blockIdx.y, *(attend_native<1> *)shared);
    }
}

template <uint32_t KV, int MTILES, int PAIRS>
static __global__ void __launch_bounds__(CUDA_THREADS, 1)
    native_large_kernel(const struct attend_job job)
{
    SHARED_BYTES(shared);
    each_large_item(job, [&](const struct cuda_item &item) {
        attend_native_item<KV, MTILES, PAIRS>(job, item, blockIdx.y,
                                              *(attend_native<MTILES> *)shared);
    });
}

/* Heads of K and V of up to 128 and 256 values; KV in f16 and q8_0. */
enum { SIZES = 2, KV_TYPES = 2, WIDE_TILES = 2, NARROW_TILES = 4 };
static_assert(NATIVE_TILE * NARROW_TILES == CUDA_NATIVE_QUERIES &&
                  NATIVE_TILE * WIDE_TILES == CUDA_LARGE_QUERIES &&
                  sizeof(attend_native<WIDE_TILES>) <= MOST_BYTES,
              "tiles of plan.c");
typedef void (*attend_function)(struct attend_job);
static const attend_function small_kernels[SIZES][KV_TYPES] = {
    {native_small_kernel<CUDA_KV_F16, 1>, native_small_kernel<CUDA_KV_Q8_0, 1>},
    {native_small_kernel<CUDA_KV_F16, 2>, native_small_kernel<CUDA_KV_Q8_0, 2>}};
static const attend_function large_kernels[SIZES][KV_TYPES] = {
    {native_large_kernel<CUDA_KV_F16, NARROW_TILES, 4>,
     native_large_kernel<CUDA_KV_Q8_0, NARROW_TILES, 4>},
    {native_large_kernel<CUDA_KV_F16, WIDE_TILES, 4>,
     native_large_kernel<CUDA_KV_Q8_0, WIDE_TILES, 4>}};

template <int MTILES> static size_t tile_bytes(uint32_t k_dim)
{
    const size_t pitch = (k_dim + NATIVE_TILE - 1) / NATIVE_TILE * NATIVE_TILE + 8;
    return offsetof(attend_native<MTILES>, q) +
           attend_native<MTILES>::QUERIES * pitch * sizeof(unsigned short);
}

int attend_native_init(struct cuda_code *code)
{
    int rc = 0;
    for (int size = 0; size < SIZES; size++)
        for (int type = 0; type < KV_TYPES && !rc; type++) {
            const uint32_t head_dim = size ? CUDA_LARGE_HEAD : CUDA_LARGE_HEAD / 2;
            rc = prepare(small_kernels[size][type], tile_bytes<1>(head_dim), code);
            rc = rc ? rc
                    : prepare(large_kernels[size][type],
                              size ? tile_bytes<WIDE_TILES>(head_dim)
                                   : tile_bytes<NARROW_TILES>(head_dim),
                              code);
        }
    return rc;
}

int attend_native_launch(const struct cuda_queue *queue, const struct attend_job *job,
                         uint32_t blocks, uint32_t kinds)
{
    const uint32_t k = job->kv.k_dim, type = job->kv.type == CUDA_KV_Q8_0,
                   size = (k > job->kv.v_dim ? k : job->kv.v_dim) > CUDA_LARGE_HEAD / 2;
    const dim3 grid(blocks, job->kv.n_head_kv);
    int rc = 0;
    if (kinds & (1u << CUDA_ITEM_ROW | 1u << CUDA_ITEM_TILE))
        rc = launch(queue, small_kernels[size][type], grid, tile_bytes<1>(k), *job);
    if (kinds & 1u << CUDA_ITEM_LARGE && !rc)
        rc = launch(queue, large_kernels[size][type], grid,
                    size ? tile_bytes<WIDE_TILES>(k) : tile_bytes<NARROW_TILES>(k), *job);
    return rc;
}
