/* json_shortest: see json_shortest.h. */
#include "client/base/json_shortest.h"

#include "client/base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

static bool has_real(const json_t *value)
{
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
        if (has_real(item))
            return true;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (has_real(json_array_get(value, i)))
            return true;
    return json_is_real(value);
}

static int add(const char *data, size_t bytes, void *text)
{
    struct buffer *t = text;
    buffer_add(t, data, bytes);
    return t->failed ? -1 : 0;
}

/* Not by json_dumps(), whose text is of the program's own memory where that gave jansson such. */
char *json_shortest(const json_t *value, size_t flags)
{
    enum { LEAST_DIGITS = 15, MOST_DIGITS = 17 };
    struct buffer text = {0};
    bool same = false;
    flags |= JSON_ENCODE_ANY;
    for (size_t digits = has_real(value) ? LEAST_DIGITS : MOST_DIGITS; !same; digits++) {
        text.bytes = 0;
        if (json_dump_callback(value, add, &text, flags | JSON_REAL_PRECISION(digits))) {
            buffer_fini(&text);
            return NULL;
        }
        same = digits == MOST_DIGITS;
        json_t *again =
            same ? NULL : json_loadb(text.data, text.bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        same = same || json_equal(again, value);
        json_decref(again);
    }
    return text.data;
}
