/* Kernels, copies and fills: checks at the call, the work when a stream reaches it. */
#include "tests/cudasim/operation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations ---- */

static void *must(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "cudasim: out of memory\n");
        abort();
    }
    return memory;
}

struct operation *operation_new(enum operation_kind kind)
{
    struct operation *operation = must(calloc(1, sizeof(*operation)));

    operation->kind = kind;
    return operation;
}

static void *bytes_copy(const void *from, size_t bytes)
{
    return memcpy(must(malloc(bytes)), from, bytes);
}

struct operation *operation_copy(const struct operation *operation)
{
    struct operation *copy = bytes_copy(operation, sizeof(*operation));

    copy->next = NULL;
    if (operation->kernel != NULL)
        copy->kernel = bytes_copy(operation->kernel, sizeof(*operation->kernel));
    if (operation->copy.staged != NULL)
        copy->copy.staged = bytes_copy(operation->copy.staged, operation->copy.bytes);
    if (operation->graph != NULL)
        (void)operations_hold(operation->graph);
    return copy;
}

void operation_free(struct operation *operation)
{
    free(operation->kernel);
    free(operation->copy.staged);
    if (operation->graph != NULL)
        operations_drop(operation->graph);
    free(operation);
}

struct operations *operations_copy(const struct operation *first)
{
    struct operations *operations = must(calloc(1, sizeof(*operations)));
    struct operation **end = &operations->first;

    operations->references = 1;
    for (; first != NULL; first = first->next) {
        *end = operation_copy(first);
        end = &(*end)->next;
    }
    return operations;
}

struct operations *operations_hold(struct operations *operations)
{
    operations->references++;
    return operations;
}

void operations_drop(struct operations *operations)
{
    if (--operations->references > 0)
        return;
    while (operations->first != NULL) {
        struct operation *operation = operations->first;

        operations->first = operation->next;
        operation_free(operation);
    }
    free(operations);
}

/* ---- ranges ---- */

void operation_check(const char *call, const void *pointer, size_t bytes, bool written)
{
    const uintptr_t address = (uintptr_t)pointer;
    const uint8_t *shadow = sim_memory.shadow + (address - sim_memory.device);
    const uint8_t wanted = written ? SIM_READY : SIM_ALLOCATED;
    struct sim_block_found found;

    for (size_t i = 0; i < bytes; i++) {
        if ((shadow[i] & wanted) == wanted || (!written && (shadow[i] & SIM_GAP) != 0))
            continue;
        sim_memory_find(address, &found);
        if ((shadow[i] & SIM_ALLOCATED) != 0)
            sim_report(NULL, 0, NULL,
                       "%s: %zu bytes at %zu of allocation %u: byte %zu was never written", call,
                       bytes, address - found.base, found.number, address - found.base + i);
        sim_report(NULL, 0, NULL, "%s: %zu bytes at %zu of allocation %u, which %s", call, bytes,
                   address - found.base, found.number,
                   found.freed ? "has been freed" : "do not lie in it");
    }
}

static void mark_written(const void *pointer, size_t bytes)
{
    uint8_t *shadow = sim_memory.shadow + ((uintptr_t)pointer - sim_memory.device);

    for (size_t i = 0; i < bytes; i++)
        shadow[i] = shadow[i] & SIM_GAP ? SIM_GAP : SIM_READY;
}

/* ---- running ---- */

/* A device that computes a wrong result, as seen from the host. */
static void invert_bit(uint8_t *to, size_t bytes)
{
    const size_t bit = (size_t)sim_inject(SIM_BIT);

    if (bit > 0 && bit / 8 < bytes)
        to[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

static void run_copy(const struct operation *operation)
{
    const void *from =
        operation->copy.staged != NULL ? operation->copy.staged : operation->copy.from;
    const bool from_device = sim_is_device((uintptr_t)from);
    const bool to_device = sim_is_device((uintptr_t)operation->copy.to);
    const size_t bytes = operation->copy.bytes;

    if (to_device)
        operation_check("cudaMemcpy", operation->copy.to, bytes, false);
    if (from_device)
        operation_check("cudaMemcpy", from, bytes, !to_device);
    memmove(operation->copy.to, from, bytes);
    if (to_device && from_device) /* unwritten bytes stay unwritten */
        memmove(sim_memory.shadow + ((uintptr_t)operation->copy.to - sim_memory.device),
                sim_memory.shadow + ((uintptr_t)from - sim_memory.device), bytes);
    else if (to_device)
        mark_written(operation->copy.to, bytes);
    else if (from_device)
        invert_bit(operation->copy.to, bytes);
}

static void run_set(const struct operation *operation)
{
    if (sim_is_device((uintptr_t)operation->copy.to)) {
        operation_check("cudaMemset", operation->copy.to, operation->copy.bytes, false);
        mark_written(operation->copy.to, operation->copy.bytes);
    }
    memset(operation->copy.to, operation->value, operation->copy.bytes);
}

void operation_run(const struct operation *operation)
{
    if (operation->fails != cudaSuccess)
        sim_device_lose(operation->fails);
    if (sim_device_error() != cudaSuccess)
        return;
    switch (operation->kind) {
    case OPERATION_KERNEL:
        sim_grid_run(operation->kernel);
        break;
    case OPERATION_COPY:
        run_copy(operation);
        break;
    case OPERATION_SET:
        run_set(operation);
        break;
    case OPERATION_HOST:
        operation->function(operation->data);
        break;
    case OPERATION_MATMUL:
        matmul_run(&operation->matmul);
        break;
    case OPERATION_GRAPH:
        for (const struct operation *o = operation->graph->first; o != NULL; o = o->next)
            operation_run(o);
        break;
    default: /* events */
        break;
    }
}

/* ---- the calls ---- */

/* An error that ends the context happens when the device reaches the operation, others at the
 * call. */
cudaError_t operation_add(cudaStream_t stream, struct operation *operation, enum sim_event event)
{
    const cudaError_t error = sim_inject(event);

    if (sim_is_sticky(error)) {
        operation->fails = error;
    } else if (error != cudaSuccess) {
        operation_free(operation);
        return sim_failed(error);
    }
    return sim_failed(stream_add(stream, operation));
}

static bool launch_valid(const cudaLaunchConfig_t *config, const void *function)
{
    const dim3 grid = config->gridDim, block = config->blockDim;
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;

    return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= INT32_MAX && grid.y <= 65535 &&
           grid.z <= 65535 && threads > 0 && threads <= SIM_THREADS_PER_BLOCK && block.z <= 64 &&
           config->dynamicSmemBytes <= sim_function_shared(function);
}

static cudaError_t read_attributes(const cudaLaunchConfig_t *config, struct sim_kernel *kernel)
{
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute *attribute = &config->attrs[i];

        if (attribute->id == cudaLaunchAttributeProgrammaticStreamSerialization)
            kernel->dependent = attribute->val.programmaticStreamSerializationAllowed != 0;
        else if (attribute->id == cudaLaunchAttributePreferredSharedMemoryCarveout) {
            if (attribute->val.sharedMemCarveout > 100)
                return cudaErrorInvalidValue;
        } else if (attribute->id != cudaLaunchAttributeIgnore)
            return cudaErrorNotSupported;
    }
    if (kernel->dependent && sim_settings()->arch < 90)
        return cudaErrorNotSupported;
    return cudaSuccess;
}

cudaError_t cudasim_launch(const cudaLaunchConfig_t *config, const struct cudasim_kernel *kernel)
{
    cudaError_t error = sim_enter();

    if (error != cudaSuccess)
        return sim_failed(error);
    if (!stream_valid(config->stream))
        return sim_failed(cudaErrorInvalidResourceHandle);
    if (!launch_valid(config, kernel->function))
        return sim_failed(cudaErrorInvalidConfiguration);
    struct operation *operation = operation_new(OPERATION_KERNEL);
    operation->kernel = must(calloc(1, sizeof(*operation->kernel)));
    operation->kernel->function = kernel->function;
    operation->kernel->call = kernel->call;
    operation->kernel->argument_bytes = kernel->argument_bytes;
    operation->kernel->grid_dim = config->gridDim;
    operation->kernel->block_dim = config->blockDim;
    operation->kernel->shared_bytes = config->dynamicSmemBytes;
    memcpy(operation->kernel->arguments, kernel->arguments, kernel->argument_bytes);
    error = read_attributes(config, operation->kernel);
    if (error != cudaSuccess) {
        operation_free(operation);
        return sim_failed(error);
    }
    return operation_add(config->stream, operation, SIM_LAUNCH);
}

/* Whether this kind of copy fits its addresses; cudaMemcpyDefault always does. */
static bool direction_valid(const void *to, const void *from, enum cudaMemcpyKind kind)
{
    const bool to_device = sim_is_device((uintptr_t)to);
    const bool from_device = sim_is_device((uintptr_t)from);

    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    default:
        return kind == cudaMemcpyDefault;
    }
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess)
        return sim_failed(error);
    if (!stream_valid(stream))
        return sim_failed(cudaErrorInvalidResourceHandle);
    if (bytes == 0)
        return cudaSuccess;
    if (!direction_valid(to, from, kind) ||
        (sim_is_device((uintptr_t)to) && bytes > sim_most_copied()))
        return sim_failed(cudaErrorInvalidValue);
    struct operation *operation = operation_new(OPERATION_COPY);
    operation->copy.to = to;
    operation->copy.from = from;
    operation->copy.bytes = bytes;
    /* pageable memory is staged at the call, pinned memory is read when the copy runs */
    const bool pageable =
        !sim_is_device((uintptr_t)from) && !sim_memory_pinned((uintptr_t)from, bytes);
    if (pageable && stream_capture(stream) == NULL)
        operation->copy.staged = bytes_copy(from, bytes);
    const cudaError_t added = operation_add(stream, operation, SIM_COPY);
    /* to pageable memory the call returns when the bytes are there */
    if (added == cudaSuccess && stream_capture(stream) == NULL && !sim_is_device((uintptr_t)to) &&
        !sim_memory_pinned((uintptr_t)to, bytes))
        return stream_wait(stream);
    return added;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);

    return error != cudaSuccess ? error : stream_wait(NULL);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess)
        return sim_failed(error);
    if (!stream_valid(stream))
        return sim_failed(cudaErrorInvalidResourceHandle);
    if (bytes == 0)
        return cudaSuccess;
    if (!sim_is_device((uintptr_t)to) && !sim_memory_pinned((uintptr_t)to, bytes))
        return sim_failed(cudaErrorInvalidValue);
    struct operation *operation = operation_new(OPERATION_SET);
    operation->copy.to = to;
    operation->copy.bytes = bytes;
    operation->value = value;
    return operation_add(stream, operation, SIM_COPY);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return cudaMemsetAsync(to, value, bytes, NULL);
}
