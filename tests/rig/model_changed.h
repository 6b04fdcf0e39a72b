/*
 * model_changed: a tiny model's file with some keys and tensors in place of its own, for tests of
 * what model_open takes and refuses. A header of static functions like gguf_writer.h.
 */
#ifndef HEARTH_TESTS_RIG_MODEL_CHANGED_H
#define HEARTH_TESTS_RIG_MODEL_CHANGED_H

#include "tests/rig/model_opened.h"
#include "tests/rig/tiny_model.h"

/* What the file has of its own: a key in place of another, or added; a tensor, too. */
struct change {
    const char *key;
    uint32_t type; /* of the value, or of each of `count` values; GGUF_ARRAY: the key is left out */
    uint32_t count;     /* 0: no array */
    const void *values; /* of four bytes, but for GGUF_BOOL */
    const char *tensor;
    uint32_t tensor_type, cols, rows; /* cols 0: the tensor is left out */
};

static inline void copy_key(struct gw *w, const struct gguf_key *key)
{
    char name[GGUF_MAX_KEY + 1];
    snprintf(name, sizeof(name), "%.*s", GGUF_SHOW(key->name));
    gw_key(w, name, key->type, key->raw, key->raw_bytes);
}

static inline void copy_tensor(struct gw *w, const struct gguf_tensor *t)
{
    char name[GGUF_MAX_NAME + 1];
    snprintf(name, sizeof(name), "%.*s", GGUF_SHOW(t->name));
    gw_tensor_info(w, name, t->type, t->n_dims, t->ne, w->data.bytes);
    gw_put(&w->data, t->data, t->bytes);
    gw_pad(&w->data, w->alignment);
}

static inline void changed_write(struct gw *w, const struct tiny_model *shape,
                                 const struct change *change, uint32_t n)
{
    struct opened o;
    size_t bytes;
    uint8_t *file = tiny_model_file(shape, &bytes);
    ck_assert_int_eq(open_file(file, bytes, &o), 0);
    gw_init(w);
    for (uint64_t i = 0; i < o.gguf->n_keys; i++) {
        bool kept = true;
        for (uint32_t c = 0; c < n; c++)
            kept &= !change[c].key || !gguf_string_equal(o.gguf->keys[i].name, change[c].key);
        if (kept)
            copy_key(w, &o.gguf->keys[i]);
    }
    for (uint64_t i = 0; i < gguf_n_tensors(o.gguf); i++) {
        bool kept = true;
        for (uint32_t c = 0; c < n; c++)
            kept &= !change[c].tensor ||
                    !gguf_string_equal(gguf_tensor_at(o.gguf, i)->name, change[c].tensor);
        if (kept)
            copy_tensor(w, gguf_tensor_at(o.gguf, i));
    }
    for (uint32_t c = 0; c < n; c++) {
        const size_t value_bytes = change[c].type == GGUF_BOOL ? 1 : 4;
        if (change[c].key && change[c].count > 0)
            gw_key_array(w, change[c].key, change[c].type, change[c].count, change[c].values,
                         change[c].count * value_bytes);
        else if (change[c].key && change[c].type != GGUF_ARRAY)
            gw_key(w, change[c].key, change[c].type, change[c].values, value_bytes);
        if (change[c].tensor && change[c].cols > 0)
            gw_tensor(w, change[c].tensor, change[c].tensor_type, change[c].cols, change[c].rows);
    }
    close_opened(&o);
}

static inline void changed_open(struct opened *o, const struct tiny_model *shape,
                                const struct change *change, uint32_t n)
{
    struct gw w;
    size_t bytes;
    changed_write(&w, shape, change, n);
    uint8_t *file = gw_finish(&w, &bytes, NULL);
    ck_assert_msg(open_file(file, bytes, o) == 0, "%s", err);
}

#endif
