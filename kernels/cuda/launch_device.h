/* launch_device: starts a kernel of 256 threads a block. Included by .cu files only. */
#ifndef HEARTH_KERNELS_CUDA_LAUNCH_DEVICE_H
#define HEARTH_KERNELS_CUDA_LAUNCH_DEVICE_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"

template <typename JOB>
static int launch(cudaStream_t stream, void (*kernel)(JOB), dim3 grid, size_t shared_bytes,
                  const JOB &job)
{
    /* Grid, block, shared memory, stream, attributes. */
    const cudaLaunchConfig_t config = {grid, dim3(CUDA_THREADS), shared_bytes, stream, nullptr, 0};
    return (int)cudaLaunchKernelEx(&config, kernel, job);
}

#endif
