/* json_read: see json_read.h. */
#include "client/cli/json_read.h"

#include "client/base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 64 }; /* longer ones are not needed: 17 digits are exact */

void json_reader_init(struct json_reader *r, const char *text, size_t bytes)
{
    *r = (struct json_reader){.start = text, .p = text, .end = text + bytes};
}

int json_read_fail(struct json_reader *r, int rc, const char *why)
{
    if (!r->rc) {
        r->rc = rc;
        r->why = why;
        r->at = (size_t)(r->p - r->start);
    }
    return r->rc;
}

/* The next byte that is not a blank, not taken; -1 at the end, or after an error. */
static int look(struct json_reader *r)
{
    if (r->rc)
        return -1;
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r' || *r->p == '\n'))
        r->p++;
    return r->p < r->end ? (unsigned char)*r->p : -1;
}

static const char *expected(char mark)
{
    switch (mark) {
    case '{':
        return "'{' expected";
    case '[':
        return "'[' expected";
    case ':':
        return "':' expected";
    case ',':
        return "',' expected";
    case ']':
        return "',' or ']' expected";
    default:
        return "',' or '}' expected";
    }
}

int json_read_mark(struct json_reader *r, char mark)
{
    if (look(r) != mark)
        return json_read_fail(r, -EBADMSG, expected(mark));
    r->p++;
    return 0;
}

int json_read_next(struct json_reader *r, char close, uint32_t *count)
{
    int c = look(r);
    if (r->rc)
        return r->rc;
    if (c == close) {
        r->p++;
        return 0;
    }
    if (*count == UINT32_MAX)
        return json_read_fail(r, -EBADMSG, "too many items");
    if ((*count)++ == 0)
        return c < 0 ? json_read_fail(r, -EBADMSG, expected(close)) : 1;
    if (c != ',')
        return json_read_fail(r, -EBADMSG, expected(close));
    r->p++;
    return 1;
}

int json_read_end(struct json_reader *r)
{
    if (look(r) >= 0)
        return json_read_fail(r, -EBADMSG, "nothing more expected");
    return r->rc;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static const char *skip_digits(const char *p)
{
    while (*p >= '0' && *p <= '9')
        p++;
    return p;
}

/* Is the whole of `text` a number as JSON has it? *ret_whole: without fraction and exponent. */
static int is_number(const char *text, int *ret_whole)
{
    const char *p = text + (*text == '-'), *digits = p;
    p = skip_digits(p);
    if (p == digits || (*digits == '0' && p - digits > 1))
        return 0;
    *ret_whole = !*p;
    if (*p == '.') {
        digits = ++p;
        p = skip_digits(p);
        if (p == digits)
            return 0;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '+' || *p == '-';
        digits = p;
        p = skip_digits(p);
        if (p == digits)
            return 0;
    }
    return !*p;
}

/* Takes a number's text, with a 0 after it. whole: no fraction and no exponent. */
static int take_number(struct json_reader *r, int whole, char text[NUMBER_BYTES])
{
    size_t n = 0;
    int is_whole;
    (void)look(r);
    while (!r->rc && n < (size_t)(r->end - r->p) && n < NUMBER_BYTES - 1 && r->p[n] &&
           strchr("+-.eE0123456789", r->p[n])) {
        text[n] = r->p[n];
        n++;
    }
    text[n] = 0;
    if (r->rc || !is_number(text, &is_whole) || (whole && !is_whole))
        return json_read_fail(r, -EBADMSG, whole ? "whole number expected" : "number expected");
    r->p += n;
    return 0;
}

int json_read_unsigned(struct json_reader *r, uint64_t most, uint64_t *ret)
{
    char text[NUMBER_BYTES];
    if (take_number(r, 1, text))
        return r->rc;
    errno = 0;
    *ret = strtoull(text, NULL, 10);
    return text[0] == '-' || errno || *ret > most ? json_read_fail(r, -EBADMSG, "out of range") : 0;
}

int json_read_signed(struct json_reader *r, int32_t *ret)
{
    char text[NUMBER_BYTES];
    if (take_number(r, 1, text))
        return r->rc;
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno || value < INT32_MIN || value > INT32_MAX)
        return json_read_fail(r, -EBADMSG, "out of range");
    *ret = (int32_t)value;
    return 0;
}

int json_read_float(struct json_reader *r, float *ret)
{
    char text[NUMBER_BYTES];
    if (take_number(r, 0, text))
        return r->rc;
    *ret = strtof(text, NULL);
    return isfinite(*ret) ? 0 : json_read_fail(r, -EBADMSG, "out of range");
}

int json_read_bool(struct json_reader *r, uint32_t *ret)
{
    (void)look(r);
    size_t left = r->rc ? 0 : (size_t)(r->end - r->p);
    int yes = left >= 4 && memcmp(r->p, "true", 4) == 0;
    if (!yes && !(left >= 5 && memcmp(r->p, "false", 5) == 0))
        return json_read_fail(r, -EBADMSG, "true or false expected");
    r->p += yes ? 4 : 5;
    *ret = (uint32_t)yes;
    return 0;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Four hex digits at p, or -1. */
static int32_t hex4(const struct json_reader *r)
{
    int32_t value = 0;
    if (r->end - r->p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = r->p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* After "\u". */
static int read_code(struct json_reader *r, struct buffer *ret)
{
    int32_t code = hex4(r);
    if (code <= 0)
        return json_read_fail(r, -EBADMSG,
                              code ? "four hex digits expected" : "a text has no byte 0");
    r->p += 4;
    if (code >= 0xdc80 && code <= 0xdcff) {
        const char byte = (char)(code & 0xff);
        buffer_add(ret, &byte, 1);
        return 0;
    }
    if (code >= 0xd800 && code < 0xdc00 && r->end - r->p >= 6 && r->p[0] == '\\' &&
        r->p[1] == 'u') {
        r->p += 2;
        int32_t low = hex4(r);
        if (low < 0xdc00 || low > 0xdfff)
            return json_read_fail(r, -EBADMSG, "the second half of a pair expected");
        r->p += 4;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xd800 && code < 0xe000)
        return json_read_fail(r, -EBADMSG, "half of a pair");
    char utf8[4];
    buffer_add(ret, utf8, utf8_put((uint32_t)code, utf8));
    return 0;
}

static int read_escape(struct json_reader *r, struct buffer *ret)
{
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    char c = r->p < r->end ? *r->p : 0;
    if (c == 'u') {
        r->p++;
        return read_code(r, ret);
    }
    const char *at = c ? strchr(letters, c) : NULL;
    if (!at)
        return json_read_fail(r, -EBADMSG, "no such escape");
    r->p++;
    buffer_add(ret, &bytes[at - letters], 1);
    return 0;
}

int json_read_text(struct json_reader *r, struct buffer *ret)
{
    if (look(r) != '"')
        return json_read_fail(r, -EBADMSG, "'\"' expected");
    r->p++;
    while (r->p < r->end && *r->p != '"') {
        if (*r->p == '\\') {
            r->p++;
            if (read_escape(r, ret))
                return r->rc;
            continue;
        }
        uint32_t code;
        int n = utf8_step(r->p, (size_t)(r->end - r->p), &code);
        if (n <= 0 || (unsigned char)*r->p < 0x20)
            return json_read_fail(r, -EBADMSG, "no byte of a JSON text");
        buffer_add(ret, r->p, (size_t)n);
        r->p += n;
    }
    if (r->p == r->end)
        return json_read_fail(r, -EBADMSG, "'\"' expected");
    r->p++;
    return ret->failed ? json_read_fail(r, -ENOMEM, "out of memory") : 0;
}
