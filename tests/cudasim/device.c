/* The simulated device: its properties, its errors and injected ones.
 *
 * HEARTH_CUDASIM_FAIL=EVENT@N=CODE[,...]: the Nth event (malloc, copy, launch, graph, sync;
 * counted from 1 since the variable has this value) fails with cudaError CODE. A code that ends
 * a context on a real device (an illegal address, a launch failure ...) loses the device: it
 * comes with the next call that could report it and with every call after that, until
 * cudaDeviceReset. N = 0: every one. bit@N=B: the Nth copy to the host arrives with bit B
 * inverted. */
#include "tests/cudasim/sim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread cudaError_t last_error;
static _Atomic int device_error;

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return #name;
        CUDASIM_ERRORS(X)
#undef X
    default:
        return "unrecognized error code";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return text;
        CUDASIM_ERRORS(X)
#undef X
    default:
        return "unrecognized error code";
    }
}

cudaError_t sim_failed(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    const cudaError_t lost = sim_device_error();

    return lost != cudaSuccess ? lost : last_error;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = cudaPeekAtLastError();

    last_error = cudaSuccess;
    return error;
}

bool sim_is_sticky(cudaError_t error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown:
        return true;
    default:
        return false;
    }
}

cudaError_t sim_device_error(void)
{
    return (cudaError_t)atomic_load(&device_error);
}

void sim_device_lose(cudaError_t error)
{
    int well = cudaSuccess;

    atomic_compare_exchange_strong(&device_error, &well, (int)error);
}

cudaError_t sim_enter(void)
{
    if (sim_settings()->devices == 0)
        return cudaErrorNoDevice;
    sim_memory_open();
    return sim_device_error();
}

static bool event_named(const char *text, size_t length, enum sim_event event)
{
    static const char *const names[SIM_EVENTS] = {"malloc", "copy", "launch",
                                                  "graph",  "sync", "bit"};

    return strlen(names[event]) == length && strncmp(names[event], text, length) == 0;
}

/* The event's number among its kind since the variable has this value: a test that sets another
 * value counts from there. */
static unsigned count_event(enum sim_event event, const char *failures)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static unsigned counts[SIM_EVENTS];
    static char asked[256];

    pthread_mutex_lock(&lock);
    if (strncmp(asked, failures, sizeof(asked) - 1) != 0) {
        snprintf(asked, sizeof(asked), "%s", failures);
        memset(counts, 0, sizeof(counts));
    }
    const unsigned count = ++counts[event];
    pthread_mutex_unlock(&lock);
    return count;
}

cudaError_t sim_inject(enum sim_event event)
{
    const char *item = getenv("HEARTH_CUDASIM_FAIL");
    const unsigned count = count_event(event, item == NULL ? "" : item);

    while (item != NULL && item[0] != '\0') {
        const size_t length = strcspn(item, "@");
        unsigned at = 0;
        int code = 0;

        if (sscanf(item + length, "@%u=%d", &at, &code) != 2) {
            fprintf(stderr, "cudasim: HEARTH_CUDASIM_FAIL: \"%s\" is not EVENT@N=CODE\n", item);
            abort();
        }
        if ((at == count || at == 0) && event_named(item, length, event))
            return (cudaError_t)code;
        item = strchr(item, ',');
        item = item == NULL ? NULL : item + 1;
    }
    return cudaSuccess;
}

/* ---- properties ---- */

size_t sim_shared_per_processor(void)
{
    switch (sim_settings()->arch) {
    case 80:
        return 164 * 1024;
    case 86:
    case 89:
    case 120:
        return 100 * 1024;
    default:
        return 228 * 1024;
    }
}

size_t sim_shared_per_block(void)
{
    return sim_shared_per_processor() - SIM_SHARED_RESERVED;
}

unsigned sim_threads_per_processor(void)
{
    const unsigned arch = sim_settings()->arch;

    return arch == 86 || arch == 89 || arch == 120 ? 1536 : 2048;
}

size_t sim_most_copied(void)
{
    const char *text = getenv("HEARTH_CUDASIM_COPY");

    return text == NULL ? SIZE_MAX : (size_t)strtoull(text, NULL, 10);
}

size_t sim_granule(void)
{
    const char *text = getenv("HEARTH_CUDASIM_GRANULE");

    return text == NULL ? 4096 : (size_t)strtoull(text, NULL, 10);
}

unsigned sim_occupancy(unsigned block_threads, size_t dynamic_bytes)
{
    const unsigned warps = (block_threads + 31) / 32;

    if (block_threads == 0 || block_threads > SIM_THREADS_PER_BLOCK ||
        dynamic_bytes > sim_shared_per_block())
        return 0;
    unsigned by_threads = sim_threads_per_processor() / (warps * 32);
    size_t by_shared = sim_shared_per_processor() / (dynamic_bytes + SIM_SHARED_RESERVED);
    unsigned blocks = by_threads < by_shared ? by_threads : (unsigned)by_shared;
    return blocks < SIM_BLOCKS_PER_PROCESSOR ? blocks : SIM_BLOCKS_PER_PROCESSOR;
}

cudaError_t cudaGetDeviceCount(int *ret_count)
{
    *ret_count = (int)sim_settings()->devices;
    return *ret_count == 0 ? sim_failed(cudaErrorNoDevice) : cudaSuccess;
}

static cudaError_t check_device(int device)
{
    if (device < 0 || (unsigned)device >= sim_settings()->devices)
        return sim_failed(sim_settings()->devices == 0 ? cudaErrorNoDevice
                                                       : cudaErrorInvalidDevice);
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return check_device(device);
}

cudaError_t cudaGetDevice(int *ret_device)
{
    *ret_device = 0;
    return check_device(0);
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    return flags > 15 ? sim_failed(cudaErrorInvalidValue) : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret_prop, int device)
{
    const struct sim_settings *set = sim_settings();

    if (check_device(device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    *ret_prop = (struct cudaDeviceProp){
        .name = "cudasim",
        .uuid = {"hearth-cudasim"},
        .totalGlobalMem = set->memory_bytes,
        .sharedMemPerBlock = SIM_SHARED_DEFAULT,
        .regsPerBlock = 65536,
        .warpSize = 32,
        .maxThreadsPerBlock = SIM_THREADS_PER_BLOCK,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {INT32_MAX, 65535, 65535},
        .major = (int)set->arch / 10,
        .minor = (int)set->arch % 10,
        .multiProcessorCount = (int)set->processors,
        .canMapHostMemory = 1,
        .concurrentKernels = 1,
        .pciBusID = 1,
        .asyncEngineCount = 2,
        .unifiedAddressing = 1,
        .memoryBusWidth = 256,
        .l2CacheSize = 4 << 20,
        .maxThreadsPerMultiProcessor = (int)sim_threads_per_processor(),
        .sharedMemPerMultiprocessor = sim_shared_per_processor(),
        .regsPerMultiprocessor = 65536,
        .sharedMemPerBlockOptin = sim_shared_per_block(),
        .reservedSharedMemPerBlock = SIM_SHARED_RESERVED,
        .maxBlocksPerMultiProcessor = SIM_BLOCKS_PER_PROCESSOR,
    };
    return cudaSuccess;
}

static const struct {
    enum cudaDeviceAttr attribute;
    int value;
} fixed_attributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, SIM_THREADS_PER_BLOCK},
    {cudaDevAttrMaxSharedMemoryPerBlock, SIM_SHARED_DEFAULT},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxRegistersPerBlock, 65536},
    {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
    {cudaDevAttrClockRate, 1000000},
    {cudaDevAttrKernelExecTimeout, 0},
    {cudaDevAttrIntegrated, 0},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrMemoryClockRate, 1000000},
    {cudaDevAttrGlobalMemoryBusWidth, 256},
    {cudaDevAttrL2CacheSize, 4 << 20},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrMaxBlocksPerMultiprocessor, SIM_BLOCKS_PER_PROCESSOR},
    {cudaDevAttrReservedSharedMemoryPerBlock, SIM_SHARED_RESERVED},
};

cudaError_t cudaDeviceGetAttribute(int *ret_value, enum cudaDeviceAttr attribute, int device)
{
    if (check_device(device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    for (size_t i = 0; i < sizeof(fixed_attributes) / sizeof(fixed_attributes[0]); i++) {
        if (fixed_attributes[i].attribute == attribute) {
            *ret_value = fixed_attributes[i].value;
            return cudaSuccess;
        }
    }
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *ret_value = (int)sim_settings()->processors;
        return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *ret_value = (int)sim_threads_per_processor();
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *ret_value = (int)sim_settings()->arch / 10;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *ret_value = (int)sim_settings()->arch % 10;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *ret_value = (int)sim_shared_per_processor();
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *ret_value = (int)sim_shared_per_block();
        return cudaSuccess;
    default:
        return sim_failed(cudaErrorInvalidValue);
    }
}

cudaError_t cudaDeviceGetPCIBusId(char *ret_id, int bytes, int device)
{
    if (check_device(device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    (void)snprintf(ret_id, (size_t)bytes, "0000:01:00.0");
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *ret_version)
{
    *ret_version = sim_settings()->devices == 0 ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *ret_version)
{
    *ret_version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- functions ---- */

enum { FUNCTIONS = 256 };
static struct {
    const void *function;
    size_t shared_bytes;
} functions[FUNCTIONS];
static unsigned n_functions;
static pthread_mutex_t functions_lock = PTHREAD_MUTEX_INITIALIZER;

size_t sim_function_shared(const void *function)
{
    size_t bytes = SIM_SHARED_DEFAULT;

    pthread_mutex_lock(&functions_lock);
    for (unsigned i = 0; i < n_functions; i++) {
        if (functions[i].function == function)
            bytes = functions[i].shared_bytes;
    }
    pthread_mutex_unlock(&functions_lock);
    return bytes;
}

void sim_functions_reset(void)
{
    pthread_mutex_lock(&functions_lock);
    n_functions = 0;
    pthread_mutex_unlock(&functions_lock);
    atomic_store(&device_error, cudaSuccess);
}

static cudaError_t set_shared(const void *function, size_t bytes)
{
    unsigned i = 0;

    pthread_mutex_lock(&functions_lock);
    while (i < n_functions && functions[i].function != function)
        i++;
    if (i < FUNCTIONS) {
        functions[i].function = function;
        functions[i].shared_bytes = bytes;
        n_functions = i == n_functions ? i + 1 : n_functions;
    }
    pthread_mutex_unlock(&functions_lock);
    return i < FUNCTIONS ? cudaSuccess : sim_failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess)
        return sim_failed(error);
    if (function == NULL)
        return sim_failed(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return value >= -1 && value <= 100 ? cudaSuccess : sim_failed(cudaErrorInvalidValue);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        (size_t)value > sim_shared_per_block())
        return sim_failed(cudaErrorInvalidValue);
    return set_shared(function, (size_t)value);
}

/* Registers and local memory are the real compiler's business: 0 here. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *ret, const void *function)
{
    if (function == NULL)
        return sim_failed(cudaErrorInvalidDeviceFunction);
    *ret = (struct cudaFuncAttributes){
        .localSizeBytes = sim_settings()->stack_bytes,
        .maxThreadsPerBlock = SIM_THREADS_PER_BLOCK,
        .ptxVersion = (int)sim_settings()->arch,
        .binaryVersion = (int)sim_settings()->arch,
        .maxDynamicSharedSizeBytes = (int)sim_function_shared(function),
        .preferredShmemCarveout = -1,
    };
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *ret_blocks, const void *function,
                                                          int block_threads, size_t dynamic_bytes)
{
    if (function == NULL)
        return sim_failed(cudaErrorInvalidDeviceFunction);
    if (block_threads <= 0)
        return sim_failed(cudaErrorInvalidValue);
    *ret_blocks = dynamic_bytes > sim_function_shared(function)
                      ? 0
                      : (int)sim_occupancy((unsigned)block_threads, dynamic_bytes);
    return cudaSuccess;
}
