/* arena.h: the memory of one backend instance: allocations are zeroed and 64-byte aligned, and are
 * freed all at once with the arena. What is reserved in one piece is one mapping, for which huge
 * pages are requested. One thread. */
#ifndef HEARTH_KERNELS_BASE_ARENA_H
#define HEARTH_KERNELS_BASE_ARENA_H

#include <stddef.h>

struct arena;

struct arena *arena_open(void);        /* NULL: no memory */
void arena_close(struct arena *arena); /* NULL is fine */

/* Makes the next arena_alloc calls, up to `bytes` in total with every size rounded up to 64, return
 * consecutive memory of one mapping. Returns 0 or -ENOMEM. */
int arena_reserve(struct arena *arena, size_t bytes);

/* Returns zeroed memory, or NULL. bytes may be 0. */
void *arena_alloc(struct arena *arena, size_t bytes);

#endif
