/* launch_device.h: loads and launches kernels. Included by .cu files only. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_LAUNCH_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_LAUNCH_DEVICE_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"

/* Loads a kernel, which takes so much dynamic shared memory, and notes what it is. */
template <typename JOB>
static int prepare(void (*kernel)(JOB), size_t shared_bytes, struct cuda_code *code)
{
    cudaFuncAttributes attributes;
    const cudaError_t failed = cudaFuncGetAttributes(&attributes, kernel);
    if (failed != cudaSuccess)
        return (int)failed;
    const uint32_t stack = (uint32_t)attributes.localSizeBytes;
    code->version = (uint32_t)attributes.ptxVersion;
    code->stack = stack > code->stack ? stack : code->stack;
    return (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)shared_bytes);
}

/* One division of an SM's memory for all kernels, as much of it as can be shared: an SM waits until it is idle before it
 * changes that. */
static inline cudaLaunchAttribute shared_memory_first(void)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attribute.val.sharedMemCarveout = 100;
    return attribute;
}

template <typename JOB>
static int launch(const struct cuda_queue *queue, void (*kernel)(JOB), dim3 grid,
                  size_t shared_bytes, const JOB &job, unsigned threads = CUDA_THREADS)
{
    cudaLaunchAttribute attributes[2] = {shared_memory_first()};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    /* Grid, block, shared memory, stream, attributes. */
    const cudaLaunchConfig_t config = {grid,          dim3(threads), shared_bytes,
                                       queue->stream, attributes,    queue->dependent ? 2u : 1u};
    return (int)cudaLaunchKernelEx(&config, kernel, job);
}

#endif
