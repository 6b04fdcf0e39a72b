/* gguf_parse.c: walks the file once with a cursor that can only move inside it: every read first
 * calls `take`, which compares with the bytes left, so no sum of two numbers from the file is
 * formed before it is known to fit. The result is two arrays (keys, tensors) and two index arrays
 * sorted by name, which find duplicates without quadratic work and serve the lookups afterwards.
 *
 * Layout: "GGUF", u32 version, u64 tensors, u64 keys; keys: name, u32 type, value; tensors: name,
 * u32 n_dims, u64 ne[n_dims], u32 type, u64 offset; padding to the alignment; data. A string is a
 * u64 length and its bytes; an array is u32 type, u64 count and its elements. */
#include "kernels/gguf/gguf_impl.h"

#include "kernels/base/fail.h"
#include "kernels/gguf/gguf_value.h"
#include "kernels/quant/quant_types.h"

#include <errno.h>
#include <stdlib.h>

enum {
    DEFAULT_ALIGNMENT = 32,
    MAX_ALIGNMENT = 65536,
    HEADER_BYTES = 24,
    MIN_KEY_BYTES = 8 + 1 + 4 + 1,            /* name, type, the smallest value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name, n_dims, one dimension, type, offset */
};

struct cursor {
    const uint8_t *data;
    uint64_t at, end; /* at <= end */
    bool ran_out;     /* more was to be taken than there is up to the end */
    char *err;
    size_t err_bytes;
};

/* Advances by `bytes` and returns where they start, or NULL when fewer are left. */
static const uint8_t *take(struct cursor *c, uint64_t bytes)
{
    c->ran_out |= bytes > c->end - c->at;
    if (c->ran_out)
        return NULL;
    const uint8_t *p = c->data + c->at;
    c->at += bytes;
    return p;
}

static int truncated(struct cursor *c, const char *what)
{
    return fail(c->err, c->err_bytes, -EBADMSG,
                "malformed: the file ends inside %s (%llu bytes; is it truncated?)", what,
                (unsigned long long)c->end);
}

static bool take_string(struct cursor *c, struct gguf_string *ret)
{
    const uint8_t *length = take(c, 8);
    const uint8_t *text = length ? take(c, le64(length)) : NULL;
    if (!text)
        return false;
    *ret = (struct gguf_string){.data = (const char *)text, .bytes = (size_t)le64(length)};
    return true;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int parse_array(struct cursor *c, struct gguf_key *key)
{
    const uint8_t *head = take(c, 12);
    if (!head)
        return truncated(c, "an array's header");
    struct gguf_array *array = &key->array;
    array->type = le32(head);
    array->count = le64(head + 4);
    array->data = head + 12;
    uint32_t size = value_bytes(array->type);
    if (size > 0) {
        c->ran_out |= array->count > (c->end - c->at) / size;
        if (c->ran_out)
            return fail(
                c->err, c->err_bytes, -EBADMSG,
                "malformed: key %.*s has an array of %llu elements, more than the file holds",
                GGUF_SHOW(key->name), (unsigned long long)array->count);
        array->bytes = array->count * size;
        c->at += array->bytes;
        return 0;
    }
    if (array->type != GGUF_STRING)
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "malformed: key %.*s is an array of %s (value type %u)", GGUF_SHOW(key->name),
                    array->type == GGUF_ARRAY ? "arrays" : "an unknown type", array->type);
    uint64_t start = c->at;
    struct gguf_string element;
    for (uint64_t i = 0; i < array->count; i++)
        if (!take_string(c, &element))
            return fail(c->err, c->err_bytes, -EBADMSG,
                        "malformed: key %.*s has %llu strings, but the file ends in number %llu",
                        GGUF_SHOW(key->name), (unsigned long long)array->count,
                        (unsigned long long)i);
    array->bytes = c->at - start;
    return 0;
}

static int parse_key(struct cursor *c, struct gguf_key *key)
{
    if (!take_string(c, &key->name))
        return truncated(c, "the name of a key");
    if (key->name.bytes == 0 || key->name.bytes > GGUF_MAX_KEY)
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "malformed: the name of a key has %zu bytes, must be 1 to %d", key->name.bytes,
                    GGUF_MAX_KEY);
    const uint8_t *type = take(c, 4);
    if (!type)
        return truncated(c, "the type of a key");
    key->type = le32(type);
    uint64_t start = c->at;
    key->raw = c->data + start;
    if (key->type == GGUF_ARRAY) {
        int rc = parse_array(c, key);
        if (rc)
            return rc;
    } else if (key->type == GGUF_STRING) {
        struct gguf_string value;
        if (!take_string(c, &value))
            return truncated(c, "a string");
    } else {
        uint32_t size = value_bytes(key->type);
        if (size == 0)
            return fail(c->err, c->err_bytes, -EBADMSG,
                        "malformed: key %.*s has an unknown value type %u", GGUF_SHOW(key->name),
                        key->type);
        if (!take(c, size))
            return truncated(c, "a value");
    }
    key->raw_bytes = c->at - start;
    return 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Sorts the entries by name into *ret_order; refuses duplicate names. */
static int index_names(struct cursor *c, const char *what, uint64_t n, struct named named,
                       uint32_t **ret_order)
{
    uint32_t *order = sorted_indices(n, compare_named, &named);
    if (!order)
        return fail(c->err, c->err_bytes, -ENOMEM, "not enough memory for the index of names");
    *ret_order = order;
    for (uint64_t i = 1; i < n; i++) {
        struct gguf_string name = name_of(&named, order[i]);
        if (compare_names(name_of(&named, order[i - 1]), name) == 0)
            return fail(c->err, c->err_bytes, -EBADMSG, "malformed: duplicate %s %.*s", what,
                        GGUF_SHOW(name));
    }
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Checks type and shape and computes the size in bytes. */
static int size_tensor(struct cursor *c, struct gguf_tensor *t)
{
    const struct quant_info *info = quant_find(t->type);
    if (!info)
        return fail(c->err, c->err_bytes, -EBADMSG, "malformed: tensor %.*s has an unknown type %u",
                    GGUF_SHOW(t->name), t->type);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        if (t->ne[i] == 0 || t->ne[i] > INT64_MAX / elements)
            return fail(c->err, c->err_bytes, -EBADMSG,
                        "malformed: tensor %.*s has an impossible shape (dimension %u is %llu)",
                        GGUF_SHOW(t->name), i, (unsigned long long)t->ne[i]);
        elements *= t->ne[i];
    }
    if (t->ne[0] % info->block != 0)
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "malformed: tensor %.*s is %s with rows of %llu, not a multiple of %u",
                    GGUF_SHOW(t->name), info->name, (unsigned long long)t->ne[0], info->block);
    if (elements / info->block > INT64_MAX / info->block_bytes)
        return fail(c->err, c->err_bytes, -EBADMSG, "malformed: tensor %.*s is too large",
                    GGUF_SHOW(t->name));
    t->bytes = elements / info->block * info->block_bytes;
    return 0;
}

static int parse_tensor(struct cursor *c, struct gguf_tensor *t)
{
    if (!take_string(c, &t->name))
        return truncated(c, "the name of a tensor");
    if (t->name.bytes == 0 || t->name.bytes > GGUF_MAX_NAME)
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "malformed: the name of a tensor has %zu bytes, must be 1 to %d", t->name.bytes,
                    GGUF_MAX_NAME);
    const uint8_t *n_dims = take(c, 4);
    if (!n_dims)
        return truncated(c, "the list of tensors");
    t->n_dims = le32(n_dims);
    if (t->n_dims == 0 || t->n_dims > GGUF_MAX_DIMS)
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "malformed: tensor %.*s has %u dimensions, must be 1 to %d", GGUF_SHOW(t->name),
                    t->n_dims, GGUF_MAX_DIMS);
    const uint8_t *ne = take(c, 8 * (uint64_t)t->n_dims);
    const uint8_t *rest = ne ? take(c, 12) : NULL;
    if (!rest)
        return truncated(c, "the list of tensors");
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++)
        t->ne[i] = i < t->n_dims ? le64(ne + 8 * (size_t)i) : 1;
    t->type = le32(rest);
    t->offset = le64(rest + 4);
    return size_tensor(c, t);
}

/* Sets *ret to the end of the tensor's padded data, counted from the data section. */
static int tensor_end(const struct gguf *g, struct cursor *c, const struct gguf_tensor *t,
                      uint64_t *ret)
{
    uint64_t mask = g->alignment - 1;
    if (t->offset & mask)
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "malformed: tensor %.*s starts at %llu, not a multiple of the alignment %u",
                    GGUF_SHOW(t->name), (unsigned long long)t->offset, g->alignment);
    uint64_t padded = (t->bytes + mask) & ~mask; /* bytes <= INT64_MAX: no wrap */
    if (t->offset > UINT64_MAX - padded)
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "malformed: tensor %.*s has an impossible offset %llu", GGUF_SHOW(t->name),
                    (unsigned long long)t->offset);
    *ret = t->offset + padded;
    return 0;
}

static int compare_offsets(const void *a, const void *b, void *tensors)
{
    const struct gguf_tensor *t = tensors;
    uint64_t x = t[*(const uint32_t *)a].offset;
    uint64_t y = t[*(const uint32_t *)b].offset;
    return (x > y) - (x < y);
}

/* Assigns each tensor its data, which must be inside the file, aligned, and not overlap. */
static int place_tensors(struct gguf *g, struct cursor *c)
{
    uint64_t mask = g->alignment - 1;
    uint64_t data_at = (c->at + mask) & ~mask; /* at is a file size: no wrap */
    uint64_t data_bytes = data_at < g->bytes ? g->bytes - data_at : 0;
    g->header_bytes = c->at;
    g->has_data = data_bytes > 0;
    uint32_t *order = sorted_indices(g->n_tensors, compare_offsets, g->tensors);
    if (!order)
        return fail(c->err, c->err_bytes, -ENOMEM, "not enough memory for the list of tensors");
    int rc = 0;
    uint64_t previous_end = 0;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[order[i]];
        uint64_t end = 0;
        rc = tensor_end(g, c, t, &end);
        if (rc)
            break;
        if (t->offset < previous_end) {
            rc = fail(c->err, c->err_bytes, -EBADMSG,
                      "malformed: the data of tensor %.*s overlaps that of another tensor",
                      GGUF_SHOW(t->name));
            break;
        }
        if (g->has_data && end > data_bytes) {
            rc = fail(c->err, c->err_bytes, -EBADMSG,
                      "malformed: the file ends inside tensor %.*s (is it truncated?)",
                      GGUF_SHOW(t->name));
            break;
        }
        t->data = g->has_data ? g->data + data_at + t->offset : NULL;
        previous_end = end;
    }
    free(order);
    return rc;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int parse_header(struct gguf *g, struct cursor *c)
{
    const uint8_t *head = take(c, HEADER_BYTES);
    if (g->bytes >= 4 && memcmp(g->data, "GGUF", 4) != 0)
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "not a GGUF file: it starts with \"%.4s\", not \"GGUF\"",
                    (const char[5]){(char)g->data[0], (char)g->data[1], (char)g->data[2],
                                    (char)g->data[3], 0});
    if (!head)
        return truncated(c, "the header");
    g->version = le32(head + 4);
    g->n_tensors = le64(head + 8);
    g->n_keys = le64(head + 16);
    if (g->version != 0 && (g->version & 0xffff) == 0)
        return fail(c->err, c->err_bytes, -ENOTSUP,
                    "this GGUF file is big-endian: hearth reads little-endian ones, convert it");
    if (g->version < 2 || g->version > 3)
        return fail(c->err, c->err_bytes, -ENOTSUP,
                    "GGUF version %u is not supported: hearth reads versions 2 and 3, convert the "
                    "file again",
                    g->version);
    uint64_t left = c->end - c->at;
    if (g->n_keys > GGUF_MAX_ENTRIES || g->n_keys > left / MIN_KEY_BYTES)
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "malformed: the header states %llu keys, more than the file can hold",
                    (unsigned long long)g->n_keys);
    if (g->n_tensors > GGUF_MAX_ENTRIES || g->n_tensors > left / MIN_TENSOR_BYTES)
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "malformed: the header states %llu tensors, more than the file can hold",
                    (unsigned long long)g->n_tensors);
    return 0;
}

static int parse_alignment(struct gguf *g, struct cursor *c)
{
    g->alignment = DEFAULT_ALIGNMENT;
    const struct gguf_key *key = gguf_find_key(g, "general.alignment");
    if (!key)
        return 0;
    if (key->type != GGUF_U32)
        return fail(c->err, c->err_bytes, -EBADMSG, "malformed: general.alignment is a %s, not u32",
                    gguf_value_type_name(key->type));
    g->alignment = le32(key->raw);
    if (g->alignment == 0 || g->alignment > MAX_ALIGNMENT || (g->alignment & (g->alignment - 1)))
        return fail(c->err, c->err_bytes, -EBADMSG,
                    "malformed: general.alignment is %u, must be a power of two up to %d",
                    g->alignment, MAX_ALIGNMENT);
    return 0;
}

int gguf_index_tensors(struct gguf *g, char *err, size_t err_bytes)
{
    struct cursor c = {.err = err, .err_bytes = err_bytes};
    return index_names(&c, "tensor", g->n_tensors, named_tensors(g), &g->tensors_by_name);
}

int gguf_parse(struct gguf *g, char *err, size_t err_bytes)
{
    struct cursor c = {.data = g->data,
                       .end = g->bytes < GGUF_MAX_HEADER ? g->bytes : GGUF_MAX_HEADER,
                       .err = err,
                       .err_bytes = err_bytes};
    int rc = parse_header(g, &c);
    if (rc)
        return rc;
    g->keys = calloc(g->n_keys + 1, sizeof(*g->keys));
    g->tensors = calloc(g->n_tensors + 1, sizeof(*g->tensors));
    if (!g->keys || !g->tensors)
        return fail(err, err_bytes, -ENOMEM, "not enough memory for the lists of the file");
    for (uint64_t i = 0; i < g->n_keys && !rc; i++)
        rc = parse_key(&c, &g->keys[i]);
    for (uint64_t i = 0; i < g->n_tensors && !rc; i++)
        rc = parse_tensor(&c, &g->tensors[i]);
    if (c.ran_out && c.end < g->bytes)
        rc = fail(err, err_bytes, -EBADMSG,
                  "malformed: its keys and list of tensors take more than %d MiB",
                  GGUF_MAX_HEADER >> 20);
    if (!rc)
        rc = index_names(&c, "key", g->n_keys, named_keys(g), &g->keys_by_name);
    if (!rc)
        rc = gguf_index_tensors(g, err, err_bytes);
    if (!rc)
        rc = parse_alignment(g, &c);
    if (!rc)
        rc = place_tensors(g, &c);
    return rc;
}
