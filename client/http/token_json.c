/* token_json: see token_json.h. */
#include "client/http/token_json.h"

#include "client/base/buffer.h"
#include "client/base/utf8.h"

#include <string.h>

size_t token_text(struct hearth *h, uint32_t id, char *bytes)
{
    /* A detokenizer may drop the first space of a text: not of the same token after itself. */
    const uint32_t ids[2] = {id, id};
    const int64_t first = hearth_detokenize(h, ids, 1, HEARTH_SPECIAL, bytes, TOKEN_TEXT_BYTES);
    const int64_t own = hearth_detokenize(h, ids, 2, HEARTH_SPECIAL, NULL, 0) - first;
    if (first < 0 || own < first)
        return 0;
    const size_t n = own < TOKEN_TEXT_BYTES ? (size_t)own : TOKEN_TEXT_BYTES;
    if (own > first) {
        memmove(bytes + 1, bytes, n - 1);
        bytes[0] = ' ';
    }
    return n;
}

json_t *json_of_text(const char *bytes, size_t n)
{
    json_t *s = json_stringn(bytes, n);
    struct buffer valid = {0};
    if (s)
        return s;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        int k = utf8_step(bytes + i, n - i, &code);
        buffer_add(&valid, k > 0 ? bytes + i : "\xef\xbf\xbd", k > 0 ? (size_t)k : 3);
        i += k > 0 ? (size_t)k : k < 0 ? (size_t)-k : n - i; /* a broken sequence is one */
    }
    s = valid.failed ? NULL : json_stringn(valid.data, valid.bytes);
    buffer_fini(&valid);
    return s;
}

json_t *json_of_bytes(const char *bytes, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer((unsigned char)bytes[i]));
    return a;
}

json_t *json_of_exact(const char *bytes, size_t n)
{
    json_t *s = json_stringn(bytes, n);
    return s ? s : json_of_bytes(bytes, n);
}

json_t *json_of_ids(const uint32_t *ids, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer(ids[i]));
    return a;
}
