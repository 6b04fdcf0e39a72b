/* The device's memory: one reserved range of addresses, of which allocations take pieces that are
 * never handed out twice, so that a stale pointer stays one. Beside it a shadow, one byte a byte:
 * allocated, written. Pages that are not allocated are inaccessible in both, and cost nothing.
 *
 * Between two allocations lie at least 256 unused bytes, and addresses are aligned to 256 and no
 * more, as cudaMalloc guarantees. */
#include "tests/cudasim/sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALIGNMENT = 256 };

struct allocation {
    uintptr_t base;
    size_t bytes;
    unsigned number; /* of cudaMalloc calls, from 1; of pinned memory 0 */
    bool freed, pinned, registered;
    struct allocation *next; /* older */
};

struct sim_memory sim_memory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct allocation *allocations;
static size_t next_offset = PAGE, used;
static unsigned n_device;

static void fatal(const char *text)
{
    fprintf(stderr, "cudasim: %s\n", text);
    abort();
}

static void reserve(void)
{
    void *device =
        mmap(NULL, SIM_DEVICE_SPAN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    /* readable: unallocated addresses are looked up as well */
    void *shadow =
        mmap(NULL, SIM_DEVICE_SPAN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (device == MAP_FAILED || shadow == MAP_FAILED)
        fatal("cannot reserve addresses for the device's memory (is there a ulimit -v?)");
    (void)madvise(device, SIM_DEVICE_SPAN, MADV_DONTDUMP);
    (void)madvise(shadow, SIM_DEVICE_SPAN, MADV_DONTDUMP);
    sim_memory.device = (uintptr_t)device;
    sim_memory.shadow = shadow;
}

void sim_memory_open(void)
{
    pthread_once(&once, reserve);
}

bool sim_is_device(uintptr_t address)
{
    return address - sim_memory.device < SIM_DEVICE_SPAN;
}

static struct allocation *allocation_new(uintptr_t base, size_t bytes, bool pinned)
{
    struct allocation *allocation = calloc(1, sizeof(*allocation));

    if (allocation == NULL)
        fatal("out of memory");
    *allocation = (struct allocation){base,  bytes,      pinned ? 0 : ++n_device, false, pinned,
                                      false, allocations};
    allocations = allocation;
    return allocation;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* Opens or shuts the pages of an allocation, in the memory and in the shadow. The shadow of a page
 * of memory is a page. */
static void protect(uintptr_t base, size_t bytes, bool open)
{
    const size_t offset = (base - sim_memory.device) & ~(size_t)(PAGE - 1);
    const size_t length = whole_pages(base - sim_memory.device - offset + bytes);
    void *memory = (void *)(sim_memory.device + offset), *shadow = sim_memory.shadow + offset;

    if (!open) {
        (void)madvise(memory, length, MADV_DONTNEED);
        (void)madvise(shadow, length, MADV_DONTNEED);
    }
    if (mprotect(memory, length, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0 ||
        mprotect(shadow, length, open ? PROT_READ | PROT_WRITE : PROT_READ) != 0)
        fatal("mprotect failed");
}

cudaError_t cudaMalloc(void **ret_pointer, size_t bytes)
{
    cudaError_t error = sim_enter();

    *ret_pointer = NULL;
    if (error == cudaSuccess)
        error = sim_inject(SIM_MALLOC);
    if (error != cudaSuccess || bytes == 0)
        return sim_failed(error);
    pthread_mutex_lock(&lock);
    if (bytes > sim_settings()->memory_bytes - used) {
        pthread_mutex_unlock(&lock);
        return sim_failed(cudaErrorMemoryAllocation);
    }
    const uintptr_t base = sim_memory.device + next_offset + ALIGNMENT;
    next_offset += whole_pages(2 * ALIGNMENT + bytes);
    if (next_offset > SIM_DEVICE_SPAN)
        fatal("this process has used up the simulated device's addresses");
    (void)allocation_new(base, bytes, false);
    protect(base, bytes, true);
    memset(sim_memory.shadow + (base - sim_memory.device), SIM_ALLOCATED, bytes);
    used += bytes;
    pthread_mutex_unlock(&lock);
    *ret_pointer = (void *)base;
    return cudaSuccess;
}

static struct allocation *find_base(uintptr_t base)
{
    struct allocation *allocation = allocations;

    while (allocation != NULL && (allocation->base != base || allocation->freed))
        allocation = allocation->next;
    return allocation;
}

uintptr_t sim_memory_reserve(size_t bytes, size_t alignment)
{
    pthread_mutex_lock(&lock);
    const size_t at = (next_offset + PAGE + alignment - 1) / alignment * alignment;
    next_offset = at + whole_pages(bytes) + PAGE;
    if (next_offset > SIM_DEVICE_SPAN)
        fatal("this process has used up the simulated device's addresses");
    const uintptr_t base = sim_memory.device + at;
    allocation_new(base, bytes, false)->registered = true; /* of addresses alone */
    pthread_mutex_unlock(&lock);
    return base;
}

bool sim_memory_unreserve(uintptr_t base, size_t bytes)
{
    pthread_mutex_lock(&lock);
    struct allocation *allocation = find_base(base);
    const bool found = allocation != NULL && allocation->bytes == bytes;
    if (found)
        allocation->freed = true;
    pthread_mutex_unlock(&lock);
    return found;
}

bool sim_memory_take(size_t bytes)
{
    pthread_mutex_lock(&lock);
    const bool enough = bytes <= sim_settings()->memory_bytes - used;
    used += enough ? bytes : 0;
    pthread_mutex_unlock(&lock);
    return enough;
}

void sim_memory_give(size_t bytes)
{
    pthread_mutex_lock(&lock);
    used -= bytes;
    pthread_mutex_unlock(&lock);
}

void sim_memory_map(uintptr_t base, size_t bytes, bool on)
{
    pthread_mutex_lock(&lock);
    protect(base, bytes, on);
    if (on)
        memset(sim_memory.shadow + (base - sim_memory.device), SIM_ALLOCATED, bytes);
    pthread_mutex_unlock(&lock);
}

static void release(struct allocation *allocation)
{
    allocation->freed = true;
    if (allocation->registered)
        return;
    if (allocation->pinned) {
        (void)munmap((void *)allocation->base, whole_pages(allocation->bytes));
        return;
    }
    protect(allocation->base, allocation->bytes, false);
    used -= allocation->bytes;
}

/* As the real one: waits for the device first, so that no kernel still uses the memory. */
static cudaError_t free_one(void *pointer, bool pinned)
{
    cudaError_t error = sim_enter();

    if (error != cudaSuccess || pointer == NULL)
        return sim_failed(error);
    error = cudaDeviceSynchronize();
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&lock);
    struct allocation *allocation = find_base((uintptr_t)pointer);
    if (allocation == NULL || allocation->pinned != pinned || allocation->registered)
        error = cudaErrorInvalidValue;
    else
        release(allocation);
    pthread_mutex_unlock(&lock);
    return sim_failed(error);
}

cudaError_t cudaFree(void *pointer)
{
    return free_one(pointer, false);
}

cudaError_t cudaFreeHost(void *pointer)
{
    return free_one(pointer, true);
}

cudaError_t cudaHostAlloc(void **ret_pointer, size_t bytes, unsigned flags)
{
    cudaError_t error = sim_enter();

    *ret_pointer = NULL;
    if (error == cudaSuccess)
        error = flags > 7 ? cudaErrorInvalidValue : sim_inject(SIM_MALLOC);
    if (error != cudaSuccess || bytes == 0)
        return sim_failed(error);
    void *memory =
        mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return sim_failed(cudaErrorMemoryAllocation);
    pthread_mutex_lock(&lock);
    (void)allocation_new((uintptr_t)memory, bytes, true);
    pthread_mutex_unlock(&lock);
    *ret_pointer = memory;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **ret_pointer, size_t bytes)
{
    return cudaHostAlloc(ret_pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess || pointer == NULL || bytes == 0 || flags > 15)
        return sim_failed(error != cudaSuccess ? error : cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    allocation_new((uintptr_t)pointer, bytes, true)->registered = true;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    cudaError_t error = cudaDeviceSynchronize();

    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&lock);
    struct allocation *allocation = find_base((uintptr_t)pointer);
    if (allocation == NULL || !allocation->registered)
        error = cudaErrorInvalidValue;
    else
        release(allocation);
    pthread_mutex_unlock(&lock);
    return sim_failed(error);
}

cudaError_t cudaHostGetDevicePointer(void **ret_device, void *host, unsigned flags)
{
    const cudaError_t error = sim_enter();

    *ret_device = NULL;
    if (error != cudaSuccess)
        return sim_failed(error);
    if (flags != 0 || !sim_memory_pinned((uintptr_t)host, 1))
        return sim_failed(cudaErrorInvalidValue);
    *ret_device = host;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total)
{
    const cudaError_t error = sim_enter();

    pthread_mutex_lock(&lock);
    *ret_free = sim_settings()->memory_bytes - used;
    pthread_mutex_unlock(&lock);
    *ret_total = sim_settings()->memory_bytes;
    return sim_failed(error);
}

/* Pinned memory that holds the address, or the device allocation at or nearest below it. */
static bool nearer(const struct allocation *a, uintptr_t address, uintptr_t than)
{
    if (a->pinned)
        return address - a->base < a->bytes;
    return sim_is_device(address) && a->base <= address && a->base > than;
}

void sim_memory_find(uintptr_t address, struct sim_block_found *ret_found)
{
    *ret_found = (struct sim_block_found){0};
    pthread_mutex_lock(&lock);
    for (const struct allocation *a = allocations; a != NULL; a = a->next) {
        if (!nearer(a, address, ret_found->base))
            continue;
        *ret_found = (struct sim_block_found){a->base, a->bytes, a->number, a->freed};
        if (a->pinned)
            break; /* the youngest */
    }
    pthread_mutex_unlock(&lock);
}

/* The shadow of bytes inside an allocation, gaps included; NULL for others. */
static uint8_t *shadow_of(const void *address, size_t bytes)
{
    if (!sim_is_device((uintptr_t)address))
        return NULL;
    uint8_t *shadow = sim_memory.shadow + ((uintptr_t)address - sim_memory.device);
    for (size_t i = 0; i < bytes; i++) {
        if ((shadow[i] & (SIM_ALLOCATED | SIM_GAP)) == 0)
            return NULL;
    }
    return shadow;
}

void cudasim_gap(const void *address, size_t bytes)
{
    uint8_t *shadow = shadow_of(address, bytes);

    if (shadow != NULL)
        memset(shadow, SIM_GAP, bytes);
}

void cudasim_forget(const void *address, size_t bytes)
{
    uint8_t *shadow = shadow_of(address, bytes);

    for (size_t i = 0; shadow != NULL && i < bytes; i++)
        shadow[i] = shadow[i] & SIM_GAP ? SIM_GAP : SIM_ALLOCATED;
}

bool sim_memory_pinned(uintptr_t address, size_t bytes)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (const struct allocation *a = allocations; a != NULL && !found; a = a->next)
        found = a->pinned && !a->freed && address >= a->base && bytes <= a->bytes &&
                address - a->base <= a->bytes - bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

void sim_memory_reset(void)
{
    pthread_mutex_lock(&lock);
    for (struct allocation *a = allocations; a != NULL; a = a->next) {
        if (!a->freed)
            release(a);
    }
    pthread_mutex_unlock(&lock);
}
