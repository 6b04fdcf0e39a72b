/*
 * arena: memory of one backend instance: handed out zeroed and 64-byte aligned, freed at once with
 * the arena. What is reserved in one piece lies in one mapping, for which huge pages are asked. One
 * thread.
 */
#ifndef HEARTH_KERNELS_BASE_ARENA_H
#define HEARTH_KERNELS_BASE_ARENA_H

#include <stddef.h>

struct arena;

struct arena *arena_open(void);        /* NULL: no memory */
void arena_close(struct arena *arena); /* NULL is fine */

/* The next arena_alloc calls, up to `bytes` in all with every piece rounded up to 64, follow each
 * other in one mapping. Returns 0 or -ENOMEM. */
int arena_reserve(struct arena *arena, size_t bytes);

/* Returns zeroed memory, or NULL. bytes may be 0. */
void *arena_alloc(struct arena *arena, size_t bytes);

#endif
