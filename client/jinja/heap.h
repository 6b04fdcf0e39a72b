/* heap: the memory, the step limit and the error exit of one rendering.
 *
 * Whatever a template makes is allocated here and freed together at the end. Bytes
 * and steps are bounded, because templates come from untrusted model files. What goes
 * wrong (memory, limits, an error in the template) is a fault: it leaves by longjmp to the one
 * caller that set `escape` up, so nothing in between owns or checks anything. One thread. */
#ifndef HEARTH_CLIENT_JINJA_HEAP_H
#define HEARTH_CLIENT_JINJA_HEAP_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

struct heap_block;

struct heap {
    struct heap_block *blocks; /* the newest first */
    size_t bytes, most_bytes;  /* of all blocks, and their limit */
    uint64_t steps;            /* left */
    uint32_t line;             /* of the template, where the work is now; 0: none */
    jmp_buf escape;
    int code;  /* -errno of the fault */
    char *err; /* [err_bytes] one line of the fault */
    size_t err_bytes;
};

/* The caller sets escape, err and err_bytes. */
void heap_init(struct heap *h, size_t most_bytes, uint64_t steps);
void heap_fini(struct heap *h);

/* Zeroed memory, aligned for anything. Calls heap_fault where there is none. */
void *heap_take(struct heap *h, size_t bytes);

/* The same with the first `used` of `old` bytes at p copied; p itself where it could grow. */
void *heap_grow(struct heap *h, void *p, size_t used, size_t old, size_t bytes);

/* Counts steps before they are done. Calls heap_fault beyond the limit. */
void heap_charge(struct heap *h, size_t steps);

/* Does not return. Control characters in the line become blanks. */
_Noreturn void heap_fault(struct heap *h, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
