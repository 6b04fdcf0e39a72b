#include "kernels/cuda/reserved.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "kernels/cuda/arena.h"

_Static_assert((int)CUDA_ERROR_OUT_OF_MEMORY == (int)cudaErrorMemoryAllocation,
               "errors of the driver are those of the runtime");

/* The first version of CUDA that has these calls, as they are to this day. */
enum { VM_VERSION = 10020 };

static const CUmemAllocationProp on_device = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static bool find(const char *name, void *ret_function)
{
    enum cudaDriverEntryPointQueryResult result;
    return cudaGetDriverEntryPointByVersion(name, ret_function, VM_VERSION, cudaEnableDefault,
                                            &result) == cudaSuccess &&
           result == cudaDriverEntryPointSuccess;
}

void cuda_vm_open(struct cuda_vm *ret)
{
    __typeof__(&cuDeviceGetAttribute) get_attribute;
    __typeof__(&cuMemGetAllocationGranularity) get_granularity;
    int has = 0;
    size_t granule = 0;
    *ret = (struct cuda_vm){0};
    if (find("cuDeviceGetAttribute", &get_attribute) &&
        find("cuMemGetAllocationGranularity", &get_granularity) &&
        find("cuMemAddressReserve", &ret->reserve) &&
        find("cuMemAddressFree", &ret->free_addresses) && find("cuMemCreate", &ret->create) &&
        find("cuMemRelease", &ret->release) && find("cuMemMap", &ret->map) &&
        find("cuMemUnmap", &ret->unmap) && find("cuMemSetAccess", &ret->set_access) &&
        get_attribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0) ==
            CUDA_SUCCESS &&
        has &&
        get_granularity(&granule, &on_device, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS)
        ret->granule = granule;
}

static size_t granules_of(const struct cuda_vm *vm, uint32_t n, size_t part_bytes)
{
    return vm->granule == 0 ? 0 : (n * part_bytes + vm->granule - 1) / vm->granule;
}

size_t cuda_reserved_bytes(const struct cuda_vm *vm, uint32_t n, size_t part_bytes)
{
    const size_t granules = granules_of(vm, n, part_bytes);
    return granules < CUDA_FEW_GRANULES ? n * part_bytes : granules * vm->granule;
}

int cuda_reserved_open(struct cuda_reserved *r, const struct cuda_vm *vm, uint32_t n,
                       size_t part_bytes)
{
    const size_t granules = granules_of(vm, n, part_bytes);
    *r = (struct cuda_reserved){.n = n, .part_bytes = part_bytes};
    if (n * part_bytes == 0)
        return cudaSuccess;
    if (granules < CUDA_FEW_GRANULES)
        return (int)cudaMalloc((void **)&r->base, n * part_bytes);
    r->vm = vm;
    r->used = calloc(n, sizeof(*r->used));
    r->users = calloc(granules, sizeof(*r->users));
    if (!r->used || !r->users)
        return cudaErrorMemoryAllocation;
    CUdeviceptr at;
    const CUresult code = vm->reserve(&at, granules * vm->granule, 0, 0, 0);
    if (code == CUDA_SUCCESS)
        r->base = (uint8_t *)(uintptr_t)at;
    return (int)code;
}

static CUdeviceptr address_of(const struct cuda_reserved *r, size_t granule)
{
    return (CUdeviceptr)(uintptr_t)r->base + granule * r->vm->granule;
}

void cuda_reserved_close(struct cuda_reserved *r)
{
    const size_t n = r->vm ? granules_of(r->vm, r->n, r->part_bytes) : 0;
    for (size_t g = 0; r->base && g < n; g++)
        if (r->users[g] > 0)
            r->vm->unmap(address_of(r, g), r->vm->granule);
    if (r->base && r->vm)
        r->vm->free_addresses(address_of(r, 0), n * r->vm->granule);
    else if (r->base)
        cudaFree(r->base);
    free(r->used);
    free(r->users);
    *r = (struct cuda_reserved){0};
}

/* The granules that a part has bytes in: [first, end). */
static size_t first_granule(const struct cuda_reserved *r, uint32_t i)
{
    return i * r->part_bytes / r->vm->granule;
}

static size_t end_granule(const struct cuda_reserved *r, uint32_t i)
{
    return ((i + 1) * r->part_bytes - 1) / r->vm->granule + 1;
}

/* The memory lives as long as it is mapped: nothing else holds it. */
static int map_granule(const struct cuda_reserved *r, size_t granule)
{
    const struct cuda_vm *v = r->vm;
    const CUmemAccessDesc access = {on_device.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUdeviceptr at = address_of(r, granule);
    CUmemGenericAllocationHandle memory;
    CUresult code = v->create(&memory, v->granule, &on_device, 0);
    if (code != CUDA_SUCCESS)
        return (int)code;
    code = v->map(at, v->granule, 0, memory, 0);
    v->release(memory);
    if (code != CUDA_SUCCESS)
        return (int)code;
    code = v->set_access(at, v->granule, &access, 1);
    if (code != CUDA_SUCCESS)
        v->unmap(at, v->granule);
    return (int)code;
}

/* Bytes of the last granule that belong to no part. */
static void note_rest(const struct cuda_reserved *r)
{
    const size_t end = r->n * r->part_bytes,
                 all = granules_of(r->vm, r->n, r->part_bytes) * r->vm->granule;
    cuda_gap(r->base + end, all - end);
}

int cuda_reserved_commit(struct cuda_reserved *r, uint32_t i)
{
    if (!r->vm || r->used[i])
        return cudaSuccess;
    const size_t first = first_granule(r, i), end = end_granule(r, i);
    for (size_t g = first; g < end; g++) {
        if (r->users[g] > 0)
            continue;
        int code =
            (int)cudaSetDevice(0); /* the calls of the driver are about the thread's device */
        code = code == cudaSuccess ? map_granule(r, g) : code;
        while (code != cudaSuccess && g-- > first)
            if (r->users[g] == 0)
                r->vm->unmap(address_of(r, g), r->vm->granule);
        if (code != cudaSuccess)
            return code;
    }
    for (size_t g = first; g < end; g++)
        r->users[g]++;
    r->used[i] = true;
    if (end == granules_of(r->vm, r->n, r->part_bytes))
        note_rest(r);
    return cudaSuccess;
}

bool cuda_reserved_gives(const struct cuda_reserved *r, uint32_t i)
{
    if (!r->vm || !r->used[i])
        return false;
    bool gives = false;
    for (size_t g = first_granule(r, i); g < end_granule(r, i); g++)
        gives = gives || r->users[g] == 1;
    return gives;
}

int cuda_reserved_release(struct cuda_reserved *r, uint32_t i)
{
    if (!r->vm || !r->used[i])
        return cudaSuccess;
    CUresult code = CUDA_SUCCESS;
    r->used[i] = false;
    for (size_t g = first_granule(r, i); g < end_granule(r, i); g++)
        if (--r->users[g] == 0 && code == CUDA_SUCCESS)
            code = r->vm->unmap(address_of(r, g), r->vm->granule);
    return (int)code;
}
