/* heap: see heap.h. */
#include "client/jinja/heap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Blocks double from the first size to the last: most templates are small. */
enum { FIRST_BYTES = 8 * 1024, BLOCK_BYTES = 64 * 1024, ALIGN = 16 };

struct heap_block {
    struct heap_block *next;
    size_t used, room;
};

static const size_t HEAD = (sizeof(struct heap_block) + ALIGN - 1) / ALIGN * ALIGN;

void heap_init(struct heap *h, size_t most_bytes, uint64_t steps)
{
    memset(h, 0, sizeof(*h));
    h->most_bytes = most_bytes;
    h->steps = steps;
}

void heap_fini(struct heap *h)
{
    while (h->blocks) {
        struct heap_block *next = h->blocks->next;
        free(h->blocks);
        h->blocks = next;
    }
}

static void add_block(struct heap *h, size_t bytes)
{
    size_t block = !h->blocks ? FIRST_BYTES : h->bytes < BLOCK_BYTES ? h->bytes : BLOCK_BYTES;
    size_t room = bytes > block / 4 ? bytes : block;
    if (room > h->most_bytes || h->bytes > h->most_bytes - room)
        heap_fault(h, -E2BIG, "it takes more than %zu MiB of memory", h->most_bytes >> 20);
    struct heap_block *b = calloc(1, HEAD + room);
    if (!b)
        heap_fault(h, -ENOMEM, "out of memory: free some and try again");
    b->room = room;
    b->next = h->blocks;
    h->blocks = b;
    h->bytes += room;
}

static size_t aligned(struct heap *h, size_t bytes)
{
    if (bytes > h->most_bytes)
        heap_fault(h, -E2BIG, "it takes more than %zu MiB of memory", h->most_bytes >> 20);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

void *heap_take(struct heap *h, size_t bytes)
{
    bytes = aligned(h, bytes);
    if (!h->blocks || h->blocks->room - h->blocks->used < bytes)
        add_block(h, bytes);
    char *p = (char *)h->blocks + HEAD + h->blocks->used;
    h->blocks->used += bytes;
    return p;
}

void *heap_grow(struct heap *h, void *p, size_t used, size_t old, size_t bytes)
{
    old = aligned(h, old);
    bytes = aligned(h, bytes);
    struct heap_block *b = h->blocks;
    if (p && b && (char *)p + old == (char *)b + HEAD + b->used &&
        b->room - b->used >= bytes - old) {
        b->used += bytes - old;
        return p;
    }
    void *more = heap_take(h, bytes);
    if (p && used)
        memcpy(more, p, used);
    return more;
}

void heap_charge(struct heap *h, size_t steps)
{
    if (steps >= h->steps)
        heap_fault(h, -E2BIG, "it takes too many steps");
    h->steps -= steps;
}

void heap_fault(struct heap *h, int code, const char *format, ...)
{
    size_t at = 0;
    h->code = code;
    if (h->line && h->err_bytes)
        at = (size_t)snprintf(h->err, h->err_bytes, "line %u: ", h->line);
    va_list args;
    va_start(args, format);
    if (at < h->err_bytes)
        vsnprintf(h->err + at, h->err_bytes - at, format, args);
    va_end(args);
    for (char *c = h->err_bytes ? h->err : ""; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    longjmp(h->escape, 1);
}
