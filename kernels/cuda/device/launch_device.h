/* launch_device.h: launches a kernel with 256 threads per block. Included by .cu files only. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_LAUNCH_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_LAUNCH_DEVICE_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"

template <typename JOB>
static int launch(const struct cuda_queue *queue, void (*kernel)(JOB), dim3 grid,
                  size_t shared_bytes, const JOB &job)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    /* Grid, block, shared memory, stream, attributes. */
    const cudaLaunchConfig_t config = {grid,         dim3(CUDA_THREADS),
                                       shared_bytes, queue->stream,
                                       &attribute,   queue->dependent ? 1u : 0u};
    return (int)cudaLaunchKernelEx(&config, kernel, job);
}

#endif
