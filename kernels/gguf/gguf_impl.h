/* gguf_impl.h: shared by the files of the GGUF reader. gguf.c: the file and its mapping;
 * gguf_parse.c: from bytes to lists of keys and tensors; gguf_find.c: the getters; gguf_parts.c:
 * models in several files. */
#ifndef HEARTH_KERNELS_GGUF_GGUF_IMPL_H
#define HEARTH_KERNELS_GGUF_GGUF_IMPL_H

#include "kernels/gguf/gguf.h"
#include "kernels/gguf/name_index.h"

/* Parses g->data [g->bytes] into the lists and the header's fields. Returns 0, or -errno with a
 * line; then gguf_close frees what was allocated. */
int gguf_parse(struct gguf *g, char *err, size_t err_bytes);

/* Sorts the tensors by name; two of one name are malformed. Returns as gguf_parse. */
int gguf_index_tensors(struct gguf *g, char *err, size_t err_bytes);

static inline struct named named_keys(const struct gguf *g)
{
    return (struct named){.entries = g->keys, .stride = sizeof(*g->keys)};
}

static inline struct named named_tensors(const struct gguf *g)
{
    return (struct named){.entries = g->tensors, .stride = sizeof(*g->tensors)};
}

#endif
