/*
 * arena: one allocation of device memory, handed out from its start. Used twice with the same calls: first with no
 * memory, to count; then, after cuda_arena_open, for real. Any thread, one at a time.
 *
 * cuda_forget: the next pass must not read what was written there. On a GPU it does nothing; the simulator checks it,
 * after cuda_settle: a pass has its results while idle blocks of its last kernel still run.
 */
#ifndef HEARTH_KERNELS_CUDA_ARENA_H
#define HEARTH_KERNELS_CUDA_ARENA_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef HEARTH_CUDASIM /* the simulator reports accesses outside a piece, and reads of forgotten bytes */
#include <cudasim.h>
enum { CUDA_GAP = 256 };
#define cuda_gap(address, bytes) cudasim_gap(address, bytes)
#define cuda_forget(address, bytes) cudasim_forget(address, bytes)
#define cuda_settle(stream) ((void)cudaStreamSynchronize(stream))
#else
enum { CUDA_GAP = 0 };
#define cuda_gap(address, bytes) ((void)(address), (void)(bytes))
#define cuda_forget(address, bytes) ((void)(address), (void)(bytes))
#define cuda_settle(stream) ((void)(stream))
#endif

struct cuda_arena {
    uint8_t *base; /* device memory; NULL while counting */
    size_t used;
};

enum { CUDA_ALIGNMENT = 256 };

/* While counting the address returned is not valid. */
static inline void *cuda_take(struct cuda_arena *arena, size_t bytes)
{
    const size_t at = arena->used, end = at + bytes;
    arena->used = (end + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT + CUDA_GAP;
    if (!arena->base)
        return NULL;
    cuda_gap(arena->base + end, arena->used - end);
    return arena->base + at;
}

/* Allocates what was counted, and sets the count to 0. Returns a cudaError_t. */
static inline int cuda_arena_open(struct cuda_arena *arena)
{
    const size_t bytes = arena->used;
    arena->used = 0;
    return (int)cudaMalloc((void **)&arena->base, bytes > 0 ? bytes : CUDA_ALIGNMENT);
}

static inline void cuda_arena_close(struct cuda_arena *arena)
{
    if (arena->base)
        cudaFree(arena->base);
    arena->base = NULL;
}

#endif
