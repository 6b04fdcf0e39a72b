/* arena.c: chunks of mapped memory, with huge pages where possible. */
#include "kernels/base/arena.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { CHUNK_BYTES = 1 << 18, HEADER_BYTES = 64, HUGE_BYTES = 2 << 20 };

struct chunk { /* at the start of each mapping */
    struct chunk *next;
    size_t bytes; /* size of the mapping */
    size_t used;  /* bytes used, counted from its start */
};

struct arena {
    struct chunk *chunks; /* the first one has room for small allocations */
};

/* Maps bytes at a multiple of HUGE_BYTES, as huge pages need. */
static void *map_aligned(size_t bytes)
{
    uint8_t *memory = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    size_t before = (HUGE_BYTES - (uintptr_t)memory % HUGE_BYTES) % HUGE_BYTES;
    if (before)
        munmap(memory, before);
    munmap(memory + before + bytes, HUGE_BYTES - before);
    madvise(memory + before, bytes, MADV_HUGEPAGE); /* for speed only: failure is harmless */
    return memory + before;
}

static struct chunk *map_chunk(size_t bytes)
{
    void *memory = bytes >= HUGE_BYTES ? map_aligned(bytes)
                                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!memory || memory == MAP_FAILED)
        return NULL;
    struct chunk *chunk = memory;
    chunk->bytes = bytes;
    chunk->used = HEADER_BYTES;
    return chunk;
}

struct arena *arena_open(void)
{
    return calloc(1, sizeof(struct arena));
}

void arena_close(struct arena *arena)
{
    if (!arena)
        return;
    while (arena->chunks) {
        struct chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        munmap(chunk, chunk->bytes);
    }
    free(arena);
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + HEADER_BYTES + 4095) / 4096 * 4096;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + 63) / 64 * 64;
    struct chunk *chunk = arena->chunks;
    if (!chunk || chunk->bytes - chunk->used < bytes) {
        size_t need = whole_pages(bytes);
        struct chunk *fresh = map_chunk(need > CHUNK_BYTES ? need : CHUNK_BYTES);
        if (!fresh)
            return NULL;
        if (chunk && need > CHUNK_BYTES) { /* a full chunk goes after the one that has room */
            fresh->next = chunk->next;
            chunk->next = fresh;
        } else {
            fresh->next = chunk;
            arena->chunks = fresh;
        }
        chunk = fresh;
    }
    void *memory = (uint8_t *)chunk + chunk->used;
    chunk->used += bytes;
    return memory;
}
