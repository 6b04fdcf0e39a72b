/* libcublas.so.13 of the simulated machine: it lies beside the simulated plugin, which opens it
 * like NVIDIA's and whose device it uses. It refuses matmuls in forms that hearth does not use,
 * operands that are not aligned for tensor cores, and a matmul without a workspace from its caller.
 *
 * HEARTH_CUDASIM_CUBLAS=0, read each time: it opens no handle. */
#include <cudasim.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cublas.h"

#define EXPORT __attribute__((visibility("default")))

struct cublasContext {
    cudaStream_t stream;
    void *workspace;
    cublasMath_t mode;
};

EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t *ret_handle)
{
    const char *asked = getenv("HEARTH_CUDASIM_CUBLAS");

    if (asked && strcmp(asked, "0") == 0)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *ret_handle = calloc(1, sizeof(**ret_handle));
    return *ret_handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    free(handle);
    return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    handle->workspace = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    if ((uintptr_t)workspace % 256 || bytes < 4u << 20)
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    handle->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_INITIALIZED ? "the library was not initialized" : "failed";
}

static int aligned(const void *address, int stride, int bytes)
{
    return (uintptr_t)address % 16 == 0 && stride * bytes % 16 == 0;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are NVIDIA's */
EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_op,
                                   cublasOperation_t b_op, int m, int n, int k, const void *alpha,
                                   const void *a, cudaDataType a_type, int a_stride, const void *b,
                                   cudaDataType b_type, int b_stride, const void *beta, void *c,
                                   cudaDataType c_type, int c_stride, cublasComputeType_t compute,
                                   cublasGemmAlgo_t algorithm)
{
    const struct cudasim_matmul matmul = {
        .w = a,
        .x = b,
        .y = c,
        .m = (uint32_t)m,
        .n = (uint32_t)n,
        .k = (uint32_t)k,
        .w_stride = (uint32_t)a_stride,
        .x_stride = (uint32_t)b_stride,
        .y_stride = (uint32_t)c_stride,
        .bf16 = a_type == CUDA_R_16BF,
    };

    if (a_op != CUBLAS_OP_T || b_op != CUBLAS_OP_N || a_type != b_type || c_type != CUDA_R_32F ||
        (a_type != CUDA_R_16F && a_type != CUDA_R_16BF) || compute != CUBLAS_COMPUTE_32F ||
        algorithm != CUBLAS_GEMM_DEFAULT || *(const float *)alpha != 1 ||
        *(const float *)beta != 0 ||
        !(handle->mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (m <= 0 || n <= 0 || k <= 0 || a_stride < k || b_stride < k || c_stride < m || k % 8 != 0 ||
        !aligned(a, a_stride, 2) || !aligned(b, b_stride, 2) || !aligned(c, c_stride, 4) ||
        !handle->workspace)
        return CUBLAS_STATUS_INVALID_VALUE;
    return cudasim_matmul(handle->stream, &matmul) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                  : CUBLAS_STATUS_EXECUTION_FAILED;
}
