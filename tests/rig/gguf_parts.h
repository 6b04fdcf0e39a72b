/* gguf_parts.h: writes a GGUF file again in parts, as llama.cpp's gguf-split does: all keys in the
 * first, tensors in their order over all of them; every part says which one it is. For tests. */
#ifndef HEARTH_TESTS_RIG_GGUF_PARTS_H
#define HEARTH_TESTS_RIG_GGUF_PARTS_H

#include "tests/rig/gguf_writer.h"

struct gguf_split {
    uint32_t no, count; /* what the part says of itself */
    uint32_t tensors;   /* the same: of the model */
    uint64_t from, to;  /* tensors of the whole that it holds */
};

/* The file of one part; free() it. Keys of the whole are in the one called 0. */
static inline uint8_t *gguf_part(const struct gguf *whole, const struct gguf_split *s,
                                 size_t *ret_bytes)
{
    struct gw w;
    char name[GGUF_MAX_KEY + 1];
    gw_init(&w);
    for (uint64_t i = 0; s->no == 0 && i < gguf_n_keys(whole); i++) {
        const struct gguf_key *key = gguf_key_at(whole, i);
        snprintf(name, sizeof(name), "%.*s", (int)key->name.bytes, key->name.data);
        gw_key(&w, name, key->type, key->raw, key->raw_bytes);
    }
    gw_key_u32(&w, "split.no", s->no);
    gw_key_u32(&w, "split.count", s->count);
    gw_key_u32(&w, "split.tensors.count", s->tensors);
    for (uint64_t i = s->from; i < s->to; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(whole, i);
        snprintf(name, sizeof(name), "%.*s", (int)t->name.bytes, t->name.data);
        gw_tensor_info(&w, name, t->type, t->n_dims, t->ne, w.data.bytes);
        gw_put(&w.data, t->data, t->bytes);
        gw_pad(&w.data, w.alignment);
    }
    return gw_finish(&w, ret_bytes, NULL);
}

/* "STEM-00002-of-00003.gguf"; i from 1. */
static inline void gguf_part_path(char *path, size_t path_bytes, const char *stem, uint32_t i,
                                  uint32_t n)
{
    snprintf(path, path_bytes, "%s-%05u-of-%05u.gguf", stem, i, n);
}

/* Writes part s->no under the name of part i, all but its last `cut` bytes. */
static inline void gguf_write_part(const struct gguf *whole, const struct gguf_split *s,
                                   const char *stem, uint32_t i, uint32_t n, size_t cut)
{
    char path[512];
    size_t bytes;
    uint8_t *file = gguf_part(whole, s, &bytes);
    gguf_part_path(path, sizeof(path), stem, i, n);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(file, 1, bytes - cut, out) != bytes - cut || fclose(out))
        abort();
    free(file);
}

/* Writes n parts, the first without tensors. */
static inline void gguf_write_parts(const struct gguf *whole, const char *stem, uint32_t n)
{
    const uint64_t all = gguf_n_tensors(whole);
    for (uint32_t i = 0; i < n; i++) {
        const struct gguf_split s = {i, n, (uint32_t)all, i == 0 ? 0 : all * (i - 1) / (n - 1),
                                     all * i / (n - 1)};
        gguf_write_part(whole, &s, stem, i + 1, n, 0);
    }
}

#endif
