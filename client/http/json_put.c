/* json_put: see json_put.h. */
#include "client/http/json_put.h"

#include "client/base/quote.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 32 };

static void put_integer(struct buffer *t, json_int_t value)
{
    char digits[NUMBER_BYTES];
    size_t at = NUMBER_BYTES;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0)
        digits[--at] = '-';
    buffer_add(t, digits + at, NUMBER_BYTES - at);
}

static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                               1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};

/* A value in [1e-4, 1e8) as an integer below `most`, 1e9 or 1e15, and how many of its digits are
 * decimals: nine or fifteen significant ones. */
static uint64_t scale(double value, double most, int *ret_decimals)
{
    int decimals = sizeof(power) / sizeof(power[0]) - 1;
    while (value * power[decimals] >= most)
        decimals--;
    *ret_decimals = decimals;
    return (uint64_t)llrint(value * power[decimals]);
}

/* Do so many digits give exactly this value? Both numbers that are divided are exact. */
static bool is_exact(double value, double most)
{
    int decimals;
    const uint64_t digits = scale(value, most, &decimals);
    return (double)digits / power[decimals] == value;
}

/* The digits that give it, as 1e9 or 1e15; 0: more. */
static double find_digits(double value)
{
    return is_exact(value, 1e9) ? 1e9 : is_exact(value, 1e15) ? 1e15 : 0;
}

/* These digits, without the zeros at their end. */
static void put_digits(struct buffer *t, double value, double most)
{
    char digits[NUMBER_BYTES];
    int decimals, at = NUMBER_BYTES;
    uint64_t left = scale(value, most, &decimals);
    while (decimals > 1 && left % 10 == 0) {
        left /= 10;
        decimals--;
    }
    for (; decimals > 0 || left; left /= 10) {
        digits[--at] = (char)('0' + left % 10);
        if (--decimals == 0)
            digits[--at] = '.';
    }
    if (digits[at] == '.')
        digits[--at] = '0';
    buffer_add(t, digits + at, (size_t)(NUMBER_BYTES - at));
}

static bool is_plain(double value)
{
    return fabs(value) >= 1e-4 && fabs(value) < 1e8;
}

static void put_printed(struct buffer *t, const char *digits)
{
    buffer_text(t, digits);
    if (!strpbrk(digits, ".e"))
        buffer_text(t, ".0");
}

/* It stays a real for those that read it: 1.0. */
static void put_real(struct buffer *t, double value)
{
    char digits[NUMBER_BYTES];
    if (fabs(value) < INT32_MAX &&
        value == (double)(int32_t)value) { /* most are, and printf is slow */
        put_integer(t, (json_int_t)value);
        buffer_text(t, ".0");
    } else if (is_plain(value)) {
        buffer_text(t, value < 0 ? "-" : "");
        put_digits(t, fabs(value), 1e9);
    } else {
        snprintf(digits, sizeof(digits), "%.9g", value);
        put_printed(t, digits);
    }
}

/* A real that may be a client's: nine digits, or as many more as give the same double. */
static void put_given(struct buffer *t, double value)
{
    static const int precisions[] = {9, 15, 16, 17};
    char digits[NUMBER_BYTES];
    double most;
    size_t i = 0;
    if ((double)(float)value == value) { /* nine do */
        put_real(t, value);
    } else if (is_plain(value) && (most = find_digits(fabs(value))) > 0) {
        buffer_text(t, value < 0 ? "-" : "");
        put_digits(t, fabs(value), most);
    } else {
        do
            snprintf(digits, sizeof(digits), "%.*g", precisions[i], value);
        while (precisions[i++] < 17 && strtod(digits, NULL) != value);
        put_printed(t, digits);
    }
}

static void put_array(struct buffer *t, const json_t *list)
{
    buffer_add(t, "[", 1);
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i)
            buffer_add(t, ",", 1);
        json_put(t, json_array_get(list, i));
    }
    buffer_add(t, "]", 1);
}

static void put_object(struct buffer *t, json_t *object)
{
    const char *mark = "{", *key;
    size_t key_bytes;
    json_t *value;
    json_object_keylen_foreach(object, key, key_bytes, value)
    {
        buffer_add(t, mark, 1);
        quote_text(t, key, key_bytes);
        buffer_add(t, ":", 1);
        json_put(t, value);
        mark = ",";
    }
    buffer_text(t, *mark == '{' ? "{}" : "}");
}

void json_put(struct buffer *t, const json_t *value)
{
    if (!value) {
        t->failed = true;
        return;
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        put_object(t, (json_t *)(uintptr_t)value);
        break;
    case JSON_ARRAY:
        put_array(t, value);
        break;
    case JSON_STRING:
        quote_text(t, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        put_integer(t, json_integer_value(value));
        break;
    case JSON_REAL:
        put_given(t, json_real_value(value));
        break;
    default:
        buffer_text(t, json_is_null(value) ? "null" : json_is_true(value) ? "true" : "false");
    }
}

/* One value of a format. */
static void put_argument(struct buffer *t, char kind, va_list args)
{
    const char *text;
    json_t *value;
    switch (kind) {
    case 's':
        text = va_arg(args, const char *);
        quote_text(t, text, strlen(text));
        break;
    case 't':
        text = va_arg(args, const char *);
        quote_text(t, text, va_arg(args, size_t));
        break;
    case 'd':
        put_integer(t, va_arg(args, int64_t));
        break;
    case 'f':
        put_real(t, va_arg(args, double));
        break;
    case 'b':
        buffer_text(t, va_arg(args, int) ? "true" : "false");
        break;
    default:
        assert(kind == 'o');
        value = va_arg(args, json_t *);
        json_put(t, value);
        json_decref(value);
    }
}

/* Text of a format up to a value, its quotes as double ones. Returns where that is, or the end. */
static const char *put_literal(struct buffer *t, const char *format)
{
    size_t n = (size_t)(strchrnul(format, '%') - format);
    if (!buffer_reserve(t, n))
        return format + n;
    char *to = t->data + t->bytes;
    for (size_t i = 0; i < n; i++)
        to[i] = format[i] == '\'' ? '"' : format[i];
    to[n] = 0;
    t->bytes += n;
    return format + n;
}

void json_put_format(struct buffer *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (format = put_literal(t, format); *format; format = put_literal(t, format + 2))
        put_argument(t, format[1], args);
    va_end(args);
}
