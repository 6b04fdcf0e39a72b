/* arena.h: the memory of one backend instance: allocations are zeroed and 64-byte aligned, and are
 * freed all at once with the arena. A large one is a mapping of its own, for which huge pages are
 * requested. One thread. */
#ifndef HEARTH_KERNELS_BASE_ARENA_H
#define HEARTH_KERNELS_BASE_ARENA_H

#include <stddef.h>

struct arena;

struct arena *arena_open(void);        /* NULL: no memory */
void arena_close(struct arena *arena); /* NULL is fine */

/* Returns zeroed memory, or NULL. bytes may be 0. */
void *arena_alloc(struct arena *arena, size_t bytes);

#endif
