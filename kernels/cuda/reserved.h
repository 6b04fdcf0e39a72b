/*
 * reserved: arrays of equal parts in device memory: KV pages, states, their records. Addresses are reserved at open; memory
 * is committed when a part is first used, and goes back when no part needs it, by granules of the driver's virtual memory
 * management (2 MiB). A granule that several parts share stays until all of them were released. Where the device has no
 * such memory, and of an array of fewer than CUDA_FEW_GRANULES, all is there from open to close.
 *
 * Host memory is changed by nothing here; a part's bits are its owner's. One thread at a time; nothing may use a part that is
 * released. Functions that can fail return a cudaError_t.
 */
#ifndef HEARTH_KERNELS_CUDA_RESERVED_H
#define HEARTH_KERNELS_CUDA_RESERVED_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CUDA_FEW_GRANULES = 4 };

/* The calls of the driver, which the plugin is not linked with. granule: bytes; 0: this device has none. */
struct cuda_vm {
    size_t granule;
    __typeof__(&cuMemAddressReserve) reserve;
    __typeof__(&cuMemAddressFree) free_addresses;
    __typeof__(&cuMemCreate) create;
    __typeof__(&cuMemRelease) release;
    __typeof__(&cuMemMap) map;
    __typeof__(&cuMemUnmap) unmap;
    __typeof__(&cuMemSetAccess) set_access;
};

struct cuda_reserved {
    const struct cuda_vm *vm; /* NULL: one allocation, all of it there */
    uint8_t *base;            /* [n][part_bytes], device addresses */
    size_t part_bytes;
    uint32_t n;
    bool *used;      /* [n] the part was committed and not released */
    uint32_t *users; /* of each granule: used parts in it; 0: no memory */
};

/* After cudaSetDevice. */
void cuda_vm_open(struct cuda_vm *ret);

/* What n parts take of the device when all are used. */
size_t cuda_reserved_bytes(const struct cuda_vm *vm, uint32_t n, size_t part_bytes);

/* vm must outlive it. On an error close it all the same; a zeroed one may be closed. */
int cuda_reserved_open(struct cuda_reserved *r, const struct cuda_vm *vm, uint32_t n,
                       size_t part_bytes);
void cuda_reserved_close(struct cuda_reserved *r);

/* Before the first use of a part, and before any use after release: its memory is there, with any contents. Fails with
 * cudaErrorMemoryAllocation when the device has none left. Not while a stream is captured. */
int cuda_reserved_commit(struct cuda_reserved *r, uint32_t i);

/* Whether release(i) would give a granule back: then the device must have ended what used the part. */
bool cuda_reserved_gives(const struct cuda_reserved *r, uint32_t i);

/* Nothing for a part that is not used. */
int cuda_reserved_release(struct cuda_reserved *r, uint32_t i);

static inline uint8_t *cuda_part(const struct cuda_reserved *r, uint32_t i)
{
    return r->base + i * r->part_bytes;
}

#endif
