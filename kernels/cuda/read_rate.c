/* The rate of a plain read, for benches: median of several, timed on the device. */
#include <stdlib.h>

#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/launch.h"

enum { RUNS = 7, LEAST_BYTES = 1 << 28 }; /* several times the second-level cache */

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Milliseconds of one read of the buffer; 0 when something failed. */
static float read_once(cudaStream_t stream, cudaEvent_t begin, cudaEvent_t end,
                       const uint8_t *memory, size_t bytes)
{
    float ms = 0;
    int processors = 0;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    cudaEventRecord(begin, stream);
    const struct cuda_queue queue = {.stream = stream};
    if (cuda_launch_read(&queue, memory, bytes / 16, (uint32_t *)(uintptr_t)(memory + bytes),
                         (uint32_t)processors * 8))
        return 0;
    cudaEventRecord(end, stream);
    return cudaEventSynchronize(end) == cudaSuccess &&
                   cudaEventElapsedTime(&ms, begin, end) == cudaSuccess
               ? ms
               : 0;
}

double cuda_read_gb_s(size_t bytes)
{
    uint8_t *memory = NULL;
    cudaStream_t stream = NULL;
    cudaEvent_t begin = NULL, end = NULL;
    float ms[RUNS] = {0};
    bytes = (bytes < LEAST_BYTES ? LEAST_BYTES : bytes) / 16 * 16;
    if (cudaMalloc((void **)&memory, bytes + 16) == cudaSuccess &&
        cudaMemset(memory, 0x5a, bytes) == cudaSuccess &&
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
        cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess) {
        cudaDeviceSynchronize();
        for (int i = 0; i < RUNS; i++)
            ms[i] = read_once(stream, begin, end, memory, bytes);
    }
    if (begin)
        cudaEventDestroy(begin);
    if (end)
        cudaEventDestroy(end);
    if (stream)
        cudaStreamDestroy(stream);
    cudaFree(memory);
    qsort(ms, RUNS, sizeof(ms[0]), ascending);
    return ms[RUNS / 2] > 0 ? (double)bytes / 1e6 / (double)ms[RUNS / 2] : 0;
}
