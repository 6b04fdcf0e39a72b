/* name_index.h: sorts and finds entries of an array by the name they begin with. Sorting makes
 * duplicates neighbours, so hostile names cost no more than others. Private to the GGUF reader and
 * the fingerprint.
 *
 * Pure functions, any thread; the index array belongs to the caller. */
#ifndef HEARTH_KERNELS_GGUF_NAME_INDEX_H
#define HEARTH_KERNELS_GGUF_NAME_INDEX_H
#include "kernels/gguf/gguf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Keys and tensors both begin with their name, so the same code sorts and finds them. */
_Static_assert(offsetof(struct gguf_key, name) == 0, "name first");
_Static_assert(offsetof(struct gguf_tensor, name) == 0, "name first");

struct named {
    const void *entries; /* [n][stride bytes], a struct gguf_string first */
    size_t stride;
};

static inline struct gguf_string name_of(const struct named *n, uint64_t index)
{
    struct gguf_string name;
    memcpy(&name, (const char *)n->entries + index * n->stride, sizeof(name));
    return name;
}

/* Byte order; a prefix comes first. data is never NULL. */
static inline int compare_names(struct gguf_string a, struct gguf_string b)
{
    int order = memcmp(a.data, b.data, a.bytes < b.bytes ? a.bytes : b.bytes);
    return order ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static inline int compare_named(const void *a, const void *b, void *named)
{
    return compare_names(name_of(named, *(const uint32_t *)a),
                         name_of(named, *(const uint32_t *)b));
}

/* Returns 0..n-1 in the order of `compare` (of two uint32_t, given `context`); free() it; NULL
 * without memory. */
static inline uint32_t *
sorted_indices(uint64_t n, int (*compare)(const void *, const void *, void *), void *context)
{
    uint32_t *order = calloc(n + 1, sizeof(*order));
    if (!order)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, n, sizeof(*order), compare, context);
    return order;
}

/* Returns the index of the entry called `name`, or -1. */
static inline int64_t find_name(const uint32_t *order, uint64_t n, struct named named,
                                const char *name)
{
    struct gguf_string wanted = {.data = name, .bytes = strlen(name)};
    uint64_t low = 0;
    uint64_t high = n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int compared = compare_names(name_of(&named, order[middle]), wanted);
        if (compared == 0)
            return order[middle];
        if (compared < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

#endif
