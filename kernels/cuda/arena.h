/*
 * arena: one allocation of device memory, handed out from its start. Used twice with the same calls: first with no
 * memory behind it, to count; then, after cuda_arena_open, for real. Any thread, one at a time.
 */
#ifndef HEARTH_KERNELS_CUDA_ARENA_H
#define HEARTH_KERNELS_CUDA_ARENA_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

struct cuda_arena {
    uint8_t *base; /* device memory; NULL while counting */
    size_t used;
};

enum { CUDA_ALIGNMENT = 256 };

/* The address while counting is no address. */
static inline void *cuda_take(struct cuda_arena *arena, size_t bytes)
{
    void *at = arena->base + arena->used;
    arena->used += (bytes + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
    return arena->base ? at : NULL;
}

/* Memory for all that was counted; counting begins anew. Returns a cudaError_t. */
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
