/*
 * arena: memory of one backend instance: handed out zeroed and 64-byte aligned, freed at once with
 * the arena. Large pieces are mappings of their own for which huge pages are asked. One thread.
 */
#ifndef HEARTH_KERNELS_CPU_ARENA_H
#define HEARTH_KERNELS_CPU_ARENA_H

#include <stddef.h>

struct arena;

struct arena *arena_open(void);        /* NULL: no memory */
void arena_close(struct arena *arena); /* NULL is fine */

/* Returns zeroed memory, or NULL. bytes may be 0. */
void *arena_alloc(struct arena *arena, size_t bytes);

#endif
