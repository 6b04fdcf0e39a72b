/* printable: see printable.h. */
#include "client/base/printable.h"

#include "client/base/utf8.h"

#include <stdbool.h>
#include <string.h>

static bool is_shown(uint32_t code)
{
    return code >= 0x20 && (code < 0x7f || code >= 0xa0) && !(code >= 0x2028 && code <= 0x202e) &&
           !(code >= 0x2066 && code <= 0x2069);
}

/* The bytes of the first character, [n > 0] of a text; or of what is none, which is then not shown. */
static size_t step(const char *text, size_t n, uint32_t *ret_code, bool *ret_shown)
{
    int bytes = utf8_step(text, n, ret_code);
    *ret_shown = bytes > 0 && is_shown(*ret_code);
    if (bytes > 0)
        return (size_t)bytes;
    *ret_code = (unsigned char)*text;
    return 1;
}

void printable_add(struct buffer *b, const char *text, size_t bytes, const char *keeps)
{
    uint32_t code;
    bool shown;
    for (size_t i = 0, n; i < bytes; i += n) {
        n = step(text + i, bytes - i, &code, &shown);
        if (shown || (n == 1 && text[i] && strchr(keeps, text[i])))
            buffer_add(b, text + i, n);
        else
            buffer_format(b, n == 1 ? "\\x%02x" : "\\u%04x", code);
    }
}

void printable_mask(char *text)
{
    uint32_t code;
    bool shown;
    for (size_t n, left = strlen(text); left > 0; text += n, left -= n) {
        n = step(text, left, &code, &shown);
        if (!shown)
            memset(text, '?', n);
    }
}
