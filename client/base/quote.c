/* quote: see quote.h. */
#include "client/base/quote.h"

#include "client/base/utf8.h"

#include <stdint.h>
#include <string.h>

static void escape(struct buffer *b, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char special[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const char *at = c ? strchr(special, c) : NULL;
    if (at) {
        const char pair[2] = {'\\', letter[at - special]};
        buffer_add(b, pair, 2);
        return;
    }
    const char code[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    buffer_add(b, code, 6);
}

static void escape_raw(struct buffer *b, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        buffer_format(b, "\\udc%02x", (unsigned char)text[i]);
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void add_string(struct buffer *b, const char *text, size_t bytes, bool keeps_bytes)
{
    buffer_add(b, "\"", 1);
    size_t plain = 0; /* text[plain, i) needs no change and is not added yet */
    for (size_t i = 0; i < bytes;) {
        uint32_t code;
        unsigned char c = (unsigned char)text[i];
        if (is_plain(c)) {
            i++;
            continue;
        }
        int n = c < 0x80 ? 0 : utf8_step(text + i, bytes - i, &code);
        if (n > 0) {
            i += (size_t)n;
            continue;
        }
        buffer_add(b, text + plain, i - plain);
        size_t step = c < 0x80 ? 1 : n < 0 ? (size_t)-n : bytes - i;
        if (c < 0x80)
            escape(b, c);
        else if (keeps_bytes)
            escape_raw(b, text + i, step);
        else
            buffer_text(b, "\\ufffd");
        i += step;
        plain = i;
    }
    buffer_add(b, text + plain, bytes - plain);
    buffer_add(b, "\"", 1);
}

void quote_text(struct buffer *b, const char *text, size_t bytes)
{
    add_string(b, text, bytes, false);
}

void quote_bytes(struct buffer *b, const char *text, size_t bytes)
{
    add_string(b, text, bytes, true);
}
