/* Values as text: str(), repr() and json.dumps() of Python. */
#include "client/base/utf8.h"
#include "client/jinja/eval.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 200 };

static void check_depth(struct buf *b, unsigned depth)
{
    heap_charge(b->heap, 1);
    if (depth >= MOST_DEPTH)
        heap_fault(b->heap, -E2BIG, "a value that is nested too deeply is printed");
}

static void put_integer(struct buf *b, int64_t integer)
{
    char digits[32];
    snprintf(digits, sizeof(digits), "%" PRId64, integer);
    buf_literal(b, digits);
}

/* The shortest digits that read back as the same number, as Python writes it: 1.0, 1e+16, 0.0001. */
static void put_float(struct buf *b, double number)
{
    char digits[64], *e;
    int precision = 1;
    if (isnan(number) || isinf(number)) {
        buf_literal(b, isnan(number) ? "nan" : number < 0 ? "-inf" : "inf");
        return;
    }
    do
        snprintf(digits, sizeof(digits), "%.*e", precision - 1, number);
    while (strtod(digits, NULL) != number && precision++ < 17);
    e = strchr(digits, 'e');
    long exponent = strtol(e + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        int places = precision - 1 - (int)exponent;
        snprintf(digits, sizeof(digits), "%.*f", places > 1 ? places : 1, number);
    } else {
        snprintf(digits, sizeof(digits), "%.*e", precision - 1, number);
    }
    buf_literal(b, digits);
}

/* How Python's repr writes a character that is not printed as it is; 0 bytes: it is. */
static int escape(char *out, size_t room, uint32_t code, int quote)
{
    if (code == (uint32_t)quote || code == '\\')
        return snprintf(out, room, "\\%c", (int)code);
    if (code == '\n' || code == '\r' || code == '\t')
        return snprintf(out, room, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    if (code < 0x20 || (code >= 0x7f && code <= 0xa0) || code == 0xad)
        return snprintf(out, room, "\\x%02x", code);
    if (code == 0x2028 || code == 0x2029 || code == 0xfeff || (code >= 0x200b && code <= 0x200f))
        return snprintf(out, room, "\\u%04x", code);
    return 0;
}

/* How a writer of literals spells a character: writes it to `out`, or returns 0 where it stands for
 * itself. `how` is the writer's own. */
typedef int escape_function(char *out, size_t room, uint32_t code, int how);

/* The text between two quotes; what an escape stands for is of the origin that the character has. */
static void add_escaped(struct buf *b, struct value s, escape_function *spell, int how)
{
    for (size_t at = 0, n, plain = 0; at < s.bytes; at += n) {
        uint32_t code = (unsigned char)s.text[at];
        char out[16];
        n = text_step(s.text + at, s.bytes - at);
        if (n > 1)
            (void)utf8_step(s.text + at, s.bytes - at, &code);
        int bytes = spell(out, sizeof(out), code, how);
        if (bytes || at + n == s.bytes) {
            size_t to = bytes ? at : at + n;
            buf_string(b, value_slice(s, plain, to - plain));
            plain = at + n;
        }
        if (bytes)
            buf_add(b, out, (size_t)bytes, origin_at(s, at));
    }
}

static void repr_string(struct buf *b, struct value s)
{
    bool single = s.bytes && memchr(s.text, '\'', s.bytes);
    char quote = single && !memchr(s.text, '"', s.bytes) ? '"' : '\'';
    buf_add(b, &quote, 1, ORIGIN_TEMPLATE);
    add_escaped(b, s, escape, quote);
    buf_add(b, &quote, 1, ORIGIN_TEMPLATE);
}

static void repr(struct buf *b, struct value v, unsigned depth);

static void repr_list(struct buf *b, struct value v, unsigned depth)
{
    bool tuple = v.kind == VALUE_TUPLE;
    buf_literal(b, tuple ? "(" : "[");
    for (size_t i = 0; i < v.list->n; i++) {
        buf_literal(b, i ? ", " : "");
        repr(b, v.list->items[i], depth + 1);
    }
    buf_literal(b, tuple ? v.list->n == 1 ? ",)" : ")" : "]");
}

static void repr_dict(struct buf *b, struct value v, unsigned depth)
{
    buf_literal(b, "{");
    for (size_t i = 0; i < v.dict->n; i++) {
        buf_literal(b, i ? ", " : "");
        repr(b, v.dict->entries[i].key, depth + 1);
        buf_literal(b, ": ");
        repr(b, v.dict->entries[i].value, depth + 1);
    }
    buf_literal(b, "}");
}

static void repr(struct buf *b, struct value v, unsigned depth)
{
    check_depth(b, depth);
    switch (v.kind) {
    case VALUE_NONE:
        buf_literal(b, "None");
        break;
    case VALUE_BOOL:
        buf_literal(b, v.truth ? "True" : "False");
        break;
    case VALUE_INTEGER:
        put_integer(b, v.integer);
        break;
    case VALUE_FLOAT:
        put_float(b, v.number);
        break;
    case VALUE_STRING:
        repr_string(b, v);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        repr_list(b, v, depth);
        break;
    case VALUE_DICT:
        repr_dict(b, v, depth);
        break;
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
        buf_literal(b, "Undefined");
        break;
    default:
        buf_literal(b, "<");
        buf_literal(b, value_type(v));
        buf_literal(b, ">");
    }
}

void print_repr(struct buf *b, struct value v)
{
    repr(b, v, 0);
}

void print_value(struct buf *b, struct value v)
{
    if (v.kind == VALUE_STRING)
        buf_string(b, v);
    else if (v.kind != VALUE_UNDEFINED)
        repr(b, v, 0);
}

struct value print_string(struct eval *e, struct value v)
{
    struct buf b = {.heap = e->heap};
    if (v.kind == VALUE_STRING)
        return v;
    print_value(&b, v);
    return buf_value(&b);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static int json_escape(char *out, size_t room, uint32_t code, int ascii)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *simple = code && code < 0x80 ? memchr(from, (int)code, sizeof(from) - 1) : NULL;
    if (simple)
        return snprintf(out, room, "\\%c", to[simple - from]);
    if (code < 0x20 || (ascii && code >= 0x7f && code < 0x10000))
        return snprintf(out, room, "\\u%04x", code);
    if (ascii && code >= 0x10000)
        return snprintf(out, room, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                        0xdc00 + ((code - 0x10000) & 0x3ff));
    return 0;
}

static void json_string_to(struct buf *b, struct value s, bool ascii)
{
    buf_literal(b, "\"");
    add_escaped(b, s, json_escape, ascii);
    buf_literal(b, "\"");
}

static void new_line(struct buf *b, const struct json_style *style, unsigned depth)
{
    if (style->indent < 0)
        return;
    buf_literal(b, "\n");
    for (int64_t i = 0; i < style->indent * (int64_t)depth; i++)
        buf_literal(b, " ");
}

static void json(struct buf *b, struct value v, const struct json_style *style, unsigned depth);

static void json_list(struct buf *b, const struct list *l, const struct json_style *style,
                      unsigned depth)
{
    buf_literal(b, "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            buf_string(b, style->item);
        new_line(b, style, depth + 1);
        json(b, l->items[i], style, depth + 1);
    }
    if (l->n)
        new_line(b, style, depth);
    buf_literal(b, "]");
}

static void json_dict(struct buf *b, const struct dict *d, const struct json_style *style,
                      unsigned depth)
{
    struct entry *entries = d->entries;
    if (style->sorted && d->n) {
        entries = heap_take(b->heap, d->n * sizeof(*entries));
        memcpy(entries, d->entries, d->n * sizeof(*entries));
        entries_sort(b->heap, entries, d->n, false);
    }
    buf_literal(b, "{");
    for (size_t i = 0; i < d->n; i++) {
        struct value key = entries[i].key;
        if (i)
            buf_string(b, style->item);
        new_line(b, style, depth + 1);
        if (key.kind == VALUE_STRING) {
            json_string_to(b, key, style->ascii);
        } else {
            buf_literal(b, "\"");
            json(b, key, style, depth + 1);
            buf_literal(b, "\"");
        }
        buf_string(b, style->key);
        json(b, entries[i].value, style, depth + 1);
    }
    if (d->n)
        new_line(b, style, depth);
    buf_literal(b, "}");
}

static void json(struct buf *b, struct value v, const struct json_style *style, unsigned depth)
{
    check_depth(b, depth);
    switch (v.kind) {
    case VALUE_NONE:
        buf_literal(b, "null");
        break;
    case VALUE_BOOL:
        buf_literal(b, v.truth ? "true" : "false");
        break;
    case VALUE_INTEGER:
        put_integer(b, v.integer);
        break;
    case VALUE_FLOAT:
        if (isnan(v.number) || isinf(v.number))
            buf_literal(b, isnan(v.number) ? "NaN" : v.number < 0 ? "-Infinity" : "Infinity");
        else
            put_float(b, v.number);
        break;
    case VALUE_STRING:
        json_string_to(b, v, style->ascii);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        json_list(b, v.list, style, depth);
        break;
    case VALUE_DICT:
        json_dict(b, v.dict, style, depth);
        break;
    case VALUE_UNDEFINED:
        value_undefined_fault(b->heap, v);
    default:
        heap_fault(b->heap, -EINVAL, "an object of type %s has no JSON", value_type(v));
    }
}

void print_json(struct buf *b, struct value v, const struct json_style *style)
{
    json(b, v, style, 0);
}
