/* json_mend: see json_mend.h. */
#include "client/base/json_mend.h"

#include "client/base/buffer.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ESCAPE_BYTES = 6, MOST_DIGITS = 400 };

static bool is_hex(char c)
{
    return c && strchr("0123456789abcdefABCDEF", c);
}

/* An escape of half a surrogate pair: 'h' for the high one, 'l' for the low one, else 0. */
static char half_at(const char *at, const char *end)
{
    if (end - at < ESCAPE_BYTES || at[0] != '\\' || at[1] != 'u' || (at[2] | 32) != 'd' ||
        !is_hex(at[3]) || !is_hex(at[4]) || !is_hex(at[5]))
        return 0;
    return strchr("89abAB", at[3]) ? 'h' : strchr("cdefCDEF", at[3]) ? 'l' : 0;
}

/* Copies a string, from after its opening quote to after the closing one. */
static const char *add_string(struct buffer *t, const char *at, const char *end)
{
    while (at < end && *at != '"') {
        size_t n = *at == '\\' && end - at > 1 ? 2 : 1;
        const char half = half_at(at, end);
        if (half)
            n = half == 'h' && half_at(at + ESCAPE_BYTES, end) == 'l' ? 2 * (size_t)ESCAPE_BYTES
                                                                      : ESCAPE_BYTES;
        if (half && n == ESCAPE_BYTES)
            buffer_text(t, "\\ufffd");
        else
            buffer_add(t, at, n);
        at += n;
    }
    buffer_add(t, at, at < end);
    return at + (at < end);
}

static size_t count_digits(const char *at, const char *end)
{
    const char *from = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return (size_t)(at - from);
}

/* Is it a number of JSON, and nothing else? */
static bool is_number(const char *at, size_t bytes)
{
    const char *end = at + bytes;
    at += at < end && *at == '-';
    size_t n = count_digits(at, end);
    if (!n || (*at == '0' && n > 1))
        return false;
    at += n;
    if (at < end && *at == '.') {
        n = count_digits(++at, end);
        at += n;
    }
    if (n && at < end && (*at | 32) == 'e') {
        at++;
        at += at < end && (*at == '+' || *at == '-');
        n = count_digits(at, end);
        at += n;
    }
    return n && at == end;
}

/* Does jansson hold it? One that is longer than any such number it does not. */
static bool fits(const char *number, size_t bytes)
{
    char text[MOST_DIGITS];
    if (bytes >= sizeof(text))
        return false;
    memcpy(text, number, bytes);
    text[bytes] = 0;
    errno = 0;
    if (strpbrk(text, ".eE"))
        return isfinite(strtod(text, NULL));
    (void)strtoll(text, NULL, 10);
    return errno == 0;
}

static const char *add_number(struct buffer *t, const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && at[n] && strchr("+-.0123456789eE", at[n]))
        n++;
    const char *quote = !is_number(at, n) || fits(at, n) ? "" : "\"";
    buffer_text(t, quote);
    buffer_add(t, at, n);
    buffer_text(t, quote);
    return at + n;
}

json_t *json_mend(const char *text, size_t bytes, size_t flags, json_error_t *error)
{
    const char *at = text, *end = text + bytes;
    struct buffer t = {0};
    json_t *read = json_loadb(text, bytes, flags, error);
    if (read)
        return read;
    while (at < end) {
        const bool begins_number = *at == '-' || (*at >= '0' && *at <= '9');
        buffer_add(&t, at, !begins_number);
        at += !begins_number;
        if (begins_number)
            at = add_number(&t, at, end);
        else if (at[-1] == '"')
            at = add_string(&t, at, end);
    }
    if (!t.failed && t.bytes) {
        json_error_t other;
        read = json_loadb(t.data, t.bytes, flags, &other);
    }
    buffer_fini(&t);
    return read;
}
