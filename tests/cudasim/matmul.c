/* A matmul as an operation of a stream: the visible behaviour of cuBLAS on a GPU. */
#include "tests/cudasim/operation.h"

#include <math.h>

#include "kernels/base/num.h"

static uint8_t *shadow_of(const void *pointer)
{
    return sim_memory.shadow + ((uintptr_t)pointer - sim_memory.device);
}

/* [pointer, + bytes) of one piece of device memory; weights written. */
static void check(const char *what, const void *pointer, size_t bytes, bool written)
{
    const uint8_t *shadow = shadow_of(pointer);

    operation_check(what, pointer, bytes, written);
    for (size_t i = 0; i < bytes; i++) {
        if ((shadow[i] & SIM_GAP) != 0)
            sim_report(NULL, 0, NULL, "%s: byte %zu of a row of %zu lies between two pieces", what,
                       i, bytes);
    }
}

static bool all_written(const uint16_t *values, uint32_t n)
{
    const uint8_t *shadow = shadow_of(values);

    for (size_t i = 0; i < n * sizeof(*values); i++) {
        if ((shadow[i] & SIM_READY) != SIM_READY)
            return false;
    }
    return true;
}

static float value(const struct cudasim_matmul *matmul, uint16_t half)
{
    return matmul->bf16 ? num_f32_from_bf16(half) : num_f32_from_f16(half);
}

/* Sums from the last input to the first, unlike any kernel. */
static float sum(const struct cudasim_matmul *matmul, const uint16_t *w, const uint16_t *x)
{
    float y = 0;

    for (uint32_t p = matmul->k; p-- > 0;)
        y = fmaf(value(matmul, w[p]), value(matmul, x[p]), y);
    return y;
}

/* One row of y. It counts as written by a kernel: a dependent launch after it must wait. */
static void run_row(const struct cudasim_matmul *matmul, uint32_t j)
{
    const uint16_t *x = matmul->x + (size_t)j * matmul->x_stride;
    float *y = matmul->y + (size_t)j * matmul->y_stride;
    uint8_t *shadow = shadow_of(y);

    check("cublasGemmEx, inputs", x, matmul->k * sizeof(*x), false);
    check("cublasGemmEx, outputs", y, matmul->m * sizeof(*y), false);
    const bool written = all_written(x, matmul->k);
    for (uint32_t i = 0; written && i < matmul->m; i++)
        y[i] = sum(matmul, matmul->w + (size_t)i * matmul->w_stride, x);
    for (size_t i = 0; i < matmul->m * sizeof(*y); i++)
        shadow[i] = SIM_ALLOCATED | (written ? SIM_READY | SIM_BY_KERNEL : 0);
}

void matmul_run(const struct cudasim_matmul *matmul)
{
    for (uint32_t i = 0; i < matmul->m; i++)
        check("cublasGemmEx, weights", matmul->w + (size_t)i * matmul->w_stride,
              matmul->k * sizeof(*matmul->w), true);
    for (uint32_t j = 0; j < matmul->n; j++)
        run_row(matmul, j);
}

cudaError_t cudasim_matmul(cudaStream_t stream, const struct cudasim_matmul *matmul)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess)
        return sim_failed(error);
    if (!stream_valid(stream))
        return sim_failed(cudaErrorInvalidResourceHandle);
    if (!sim_is_device((uintptr_t)matmul->w) || !sim_is_device((uintptr_t)matmul->x) ||
        !sim_is_device((uintptr_t)matmul->y))
        return sim_failed(cudaErrorInvalidValue);
    struct operation *operation = operation_new(OPERATION_MATMUL);
    operation->matmul = *matmul;
    return operation_add(stream, operation, SIM_LAUNCH);
}
