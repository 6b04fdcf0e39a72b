/* token_json: see token_json.h. */
#include "client/http/token_json.h"

#include "client/base/buffer.h"
#include "client/base/utf8.h"

#include <string.h>

size_t token_text(struct hearth *h, uint32_t id, char *bytes)
{
    /* A detokenizer drops the first space of a text: so the token is put after another one. */
    uint32_t ids[2] = {0, id};
    char both[2 * TOKEN_TEXT_BYTES];
    if (hearth_tokenize(h, "a", 1, 0, ids, 1) < 1)
        return 0;
    ids[1] = id;
    int64_t first = hearth_detokenize(h, ids, 1, HEARTH_SPECIAL, both, 0);
    int64_t n = hearth_detokenize(h, ids, 2, HEARTH_SPECIAL, both, sizeof(both));
    if (first < 0 || n <= first)
        return 0;
    if (n > (int64_t)sizeof(both))
        n = sizeof(both);
    size_t mine = (size_t)(n - first) < TOKEN_TEXT_BYTES ? (size_t)(n - first) : TOKEN_TEXT_BYTES;
    memcpy(bytes, both + first, mine);
    return mine;
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
