/* gguf_find.c: lookups in a parsed file, by name, with values converted. See gguf.h. */
#include "kernels/gguf/gguf_impl.h"

#include "kernels/gguf/gguf_value.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

const struct gguf_key *gguf_find_key(const struct gguf *gguf, const char *name)
{
    int64_t i = find_name(gguf->keys_by_name, gguf->n_keys, named_keys(gguf), name);
    return i < 0 ? NULL : &gguf->keys[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name)
{
    int64_t i = find_name(gguf->tensors_by_name, gguf->n_tensors, named_tensors(gguf), name);
    return i < 0 ? NULL : &gguf->tensors[i];
}

int gguf_u64(const struct gguf *gguf, const char *name, uint64_t *ret)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);
    if (!key)
        return -ENOENT;
    uint64_t value;
    bool negative;
    if (key->type == GGUF_BOOL || !value_integer(key->type, key->raw, &value, &negative))
        return -EINVAL;
    if (negative)
        return -ERANGE;
    *ret = value;
    return 0;
}

int gguf_u32(const struct gguf *gguf, const char *name, uint32_t *ret)
{
    uint64_t value;
    int rc = gguf_u64(gguf, name, &value);
    if (rc)
        return rc;
    if (value > UINT32_MAX)
        return -ERANGE;
    *ret = (uint32_t)value;
    return 0;
}

int gguf_f32(const struct gguf *gguf, const char *name, float *ret)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);
    if (!key)
        return -ENOENT;
    return value_float(key->type, key->raw, ret) ? 0 : -EINVAL;
}

int gguf_bool(const struct gguf *gguf, const char *name, bool *ret)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);
    if (!key)
        return -ENOENT;
    if (key->type != GGUF_BOOL)
        return -EINVAL;
    *ret = key->raw[0] != 0;
    return 0;
}

int gguf_string(const struct gguf *gguf, const char *name, struct gguf_string *ret)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);
    if (!key)
        return -ENOENT;
    if (key->type != GGUF_STRING)
        return -EINVAL;
    ret->data = (const char *)key->raw + 8;
    ret->bytes = key->raw_bytes - 8;
    return 0;
}

int gguf_array(const struct gguf *gguf, const char *name, struct gguf_array *ret)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);
    if (!key)
        return -ENOENT;
    if (key->type != GGUF_ARRAY)
        return -EINVAL;
    *ret = key->array;
    return 0;
}

int64_t gguf_array_i64(const struct gguf_array *array, uint64_t index)
{
    uint64_t value = 0;
    bool negative = false;
    assert(index < array->count);
    bool known = value_integer(array->type, array->data + index * value_bytes(array->type), &value,
                               &negative);
    assert(known);
    return !negative && value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

float gguf_array_f32(const struct gguf_array *array, uint64_t index)
{
    float value = 0;
    assert(index < array->count);
    bool known = value_float(array->type, array->data + index * value_bytes(array->type), &value);
    assert(known);
    return value;
}

bool gguf_array_next_string(const struct gguf_array *array, uint64_t *at, struct gguf_string *ret)
{
    assert(array->type == GGUF_STRING);
    if (*at > array->bytes || array->bytes - *at < 8)
        return false;
    uint64_t bytes = le64(array->data + *at);
    if (bytes > array->bytes - *at - 8)
        return false; /* the file changed under the mapping */
    *ret = (struct gguf_string){(const char *)array->data + *at + 8, bytes};
    *at += 8 + bytes;
    return true;
}

bool gguf_string_equal(struct gguf_string string, const char *text)
{
    return string.bytes == strlen(text) && memcmp(string.data, text, string.bytes) == 0;
}

const char *gguf_value_type_name(uint32_t type)
{
    static const char *const NAMES[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return type < sizeof(NAMES) / sizeof(NAMES[0]) ? NAMES[type] : "unknown";
}
