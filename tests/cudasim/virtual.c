/* Virtual memory of the driver API: addresses are reserved, memory is created by granules, mapped there, and made
 * accessible. What is not mapped and accessible is not there: kernels and copies that touch it are reported. */
#include "tests/cudasim/sim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

/* Physical memory: freed when it is released and mapped nowhere. */
struct memory {
    size_t bytes;
    bool released;
    uintptr_t at; /* where it is mapped, or 0: hearth maps each in one place */
    bool accessible;
    struct memory *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *memories;

static bool whole(size_t bytes)
{
    const size_t granule = sim_granule();

    return granule > 0 && bytes > 0 && bytes % granule == 0;
}

static bool of_the_device(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == 0;
}

static void drop_unused(struct memory *memory)
{
    struct memory **at = &memories;

    if (!memory->released || memory->at != 0)
        return;
    while (*at != memory)
        at = &(*at)->next;
    *at = memory->next;
    sim_memory_give(memory->bytes);
    free(memory);
}

CUresult cuDeviceGetAttribute(int *ret_value, CUdevice_attribute attribute, CUdevice device)
{
    if (device != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute != CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_value = sim_granule() > 0;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *ret_granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM || !of_the_device(&prop->location))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_granularity = sim_granule();
    return sim_granule() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemAddressReserve(CUdeviceptr *ret_pointer, size_t bytes, size_t alignment,
                             CUdeviceptr at, unsigned long long flags)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess)
        return (CUresult)error;
    if (!whole(bytes) || at != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_pointer = sim_memory_reserve(bytes, alignment > sim_granule() ? alignment : sim_granule());
    return CUDA_SUCCESS;
}

/* Whether something is mapped in [at, at + bytes). */
static bool is_mapped(uintptr_t at, size_t bytes)
{
    for (const struct memory *m = memories; m != NULL; m = m->next) {
        if (m->at != 0 && m->at < at + bytes && at < m->at + m->bytes)
            return true;
    }
    return false;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    pthread_mutex_lock(&lock);
    const bool mapped = is_mapped(pointer, bytes);
    pthread_mutex_unlock(&lock);
    return !mapped && sim_memory_unreserve(pointer, bytes) ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct memory *memory;

    if (!whole(bytes) || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || flags != 0 ||
        !of_the_device(&prop->location))
        return CUDA_ERROR_INVALID_VALUE;
    const cudaError_t injected = sim_inject(SIM_MALLOC);
    if (injected != cudaSuccess)
        return (CUresult)injected;
    if (!sim_memory_take(bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory = calloc(1, sizeof(*memory));
    if (memory == NULL)
        abort();
    memory->bytes = bytes;
    pthread_mutex_lock(&lock);
    memory->next = memories;
    memories = memory;
    pthread_mutex_unlock(&lock);
    *ret_handle = (uintptr_t)memory;
    return CUDA_SUCCESS;
}

static struct memory *find_handle(CUmemGenericAllocationHandle handle)
{
    struct memory *memory = memories;

    while (memory != NULL && ((uintptr_t)memory != handle || memory->released))
        memory = memory->next;
    return memory;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&lock);
    struct memory *memory = find_handle(handle);
    if (memory != NULL) {
        memory->released = true;
        drop_unused(memory);
    }
    pthread_mutex_unlock(&lock);
    return memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool is_reserved(uintptr_t at, size_t bytes)
{
    struct sim_block_found found;

    sim_memory_find(at, &found);
    return found.base != 0 && !found.freed && at - found.base <= found.bytes &&
           bytes <= found.bytes - (at - found.base);
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    pthread_mutex_lock(&lock);
    struct memory *memory = find_handle(handle);
    const bool good = memory != NULL && memory->at == 0 && offset == 0 && flags == 0 &&
                      bytes == memory->bytes && pointer % sim_granule() == 0 &&
                      is_reserved(pointer, bytes) && !is_mapped(pointer, bytes);
    if (good)
        memory->at = pointer;
    pthread_mutex_unlock(&lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Calls `function` for the memories that are mapped in [at, at + bytes) if they are all of it. */
static CUresult for_mapped(uintptr_t at, size_t bytes, void (*function)(struct memory *))
{
    size_t found = 0;

    pthread_mutex_lock(&lock);
    for (struct memory *m = memories; m != NULL; m = m->next) {
        if (m->at >= at && m->at < at + bytes)
            found += m->bytes;
    }
    for (struct memory *m = memories, *next; m != NULL && found == bytes; m = next) {
        next = m->next;
        if (m->at >= at && m->at < at + bytes)
            function(m);
    }
    pthread_mutex_unlock(&lock);
    return bytes > 0 && found == bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void open_memory(struct memory *memory)
{
    if (!memory->accessible)
        sim_memory_map(memory->at, memory->bytes, true);
    memory->accessible = true;
}

static void unmap(struct memory *memory)
{
    sim_memory_map(memory->at, memory->bytes, false);
    memory->at = 0;
    memory->accessible = false;
    drop_unused(memory);
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    return for_mapped(pointer, bytes, unmap);
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *desc,
                        size_t count)
{
    if (count != 1 || desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
        !of_the_device(&desc->location))
        return CUDA_ERROR_INVALID_VALUE;
    return for_mapped(pointer, bytes, open_memory);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **ret_function,
                                             unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *ret_status)
{
#define ENTRY(name)                                                                                \
    {                                                                                              \
#name, (void *)name                                                                        \
    }
    static const struct {
        const char *name;
        void *function;
    } entries[] = {ENTRY(cuDeviceGetAttribute),
                   ENTRY(cuMemGetAllocationGranularity),
                   ENTRY(cuMemAddressReserve),
                   ENTRY(cuMemAddressFree),
                   ENTRY(cuMemCreate),
                   ENTRY(cuMemRelease),
                   ENTRY(cuMemMap),
                   ENTRY(cuMemUnmap),
                   ENTRY(cuMemSetAccess)};
    const cudaError_t error = sim_enter();

    *ret_function = NULL;
    *ret_status = cudaDriverEntryPointSymbolNotFound;
    if (error != cudaSuccess || flags != cudaEnableDefault || version < 10020)
        return sim_failed(error != cudaSuccess ? error : cudaErrorInvalidValue);
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        if (strcmp(entries[i].name, symbol) == 0) {
            *ret_function = entries[i].function;
            *ret_status = cudaDriverEntryPointSuccess;
        }
    }
    return cudaSuccess;
}
