/* Is there a device that this can run on? One clear line for each reason why not. */
#include <errno.h>

#include "kernels/cuda/backend_cuda.h"
#include "kernels/base/fail.h"

enum { LEAST_MAJOR = 8 }; /* int8 mma of 16 x 8 x 32: Ampere */

static int no_device(cudaError_t code, int driver, int runtime, char *err, size_t err_bytes)
{
    if (driver == 0)
        return fail(err, err_bytes, -ENODEV,
                    "no NVIDIA driver is loaded: install one, or use --device cpu");
    if (code == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000)
        return fail(err, err_bytes, -ENODEV,
                    "the NVIDIA driver is too old: it knows CUDA %d.%d, this needs %d.%d or later",
                    driver / 1000, driver % 1000 / 10, runtime / 1000, 0);
    if (code == cudaErrorNoDevice || code == cudaSuccess)
        return fail(err, err_bytes, -ENODEV,
                    "the NVIDIA driver sees no GPU (is one hidden by CUDA_VISIBLE_DEVICES?)");
    return fail(err, err_bytes, -ENODEV, "the GPU cannot be used: %s", cudaGetErrorString(code));
}

int cuda_probe(char *err, size_t err_bytes)
{
    int driver = 0, runtime = 0, count = 0, major = 0, minor = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess || count == 0 || driver == 0) {
        cudaGetLastError(); /* it shall not be found by a later call */
        return no_device(code, driver, runtime, err, err_bytes);
    }
    code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    if (code != cudaSuccess)
        return no_device(code, driver, runtime, err, err_bytes);
    if (major < LEAST_MAJOR)
        return fail(err, err_bytes, -ENODEV,
                    "the GPU has compute capability %d.%d: hearth needs 8.0 or later", major,
                    minor);
    return 0;
}
