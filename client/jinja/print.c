/* Values as text: str(), repr() and json.dumps() of Python. */
#include "client/base/utf8.h"
#include "client/jinja/eval.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 200, FLOAT_STEPS = 16 /* of a float that is written and read back */ };

static void put_integer(struct buf *b, int64_t integer)
{
    char digits[32];
    snprintf(digits, sizeof(digits), "%" PRId64, integer);
    buf_literal(b, digits);
}

/* The shortest digits that read back as the same number, as Python writes it: 1.0, 1e+16. */
static void put_float(struct buf *b, double number, bool json)
{
    static const char *const others[2][3] = {{"nan", "-inf", "inf"},
                                             {"NaN", "-Infinity", "Infinity"}};
    char digits[64], *e;
    int precision = 1;
    if (isnan(number) || isinf(number)) {
        buf_literal(b, others[json][isnan(number) ? 0 : number < 0 ? 1 : 2]);
        return;
    }
    do {
        heap_charge(b->heap, FLOAT_STEPS);
        snprintf(digits, sizeof(digits), "%.*e", precision - 1, number);
    } while (strtod(digits, NULL) != number && precision++ < 17);
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
static int repr_escape(char *out, size_t room, uint32_t code, int quote)
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

/* How a writer of literals spells a character: writes it to `out`, or returns 0 where it stands for
 * itself. `how` is the writer's own. */
typedef int escape_function(char *out, size_t room, uint32_t code, int how);

/* The text between two quotes; an escape has the origin of the character that it stands for. */
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
    add_escaped(b, s, repr_escape, quote);
    buf_add(b, &quote, 1, ORIGIN_TEMPLATE);
}

static void json_string_to(struct buf *b, struct value s, bool ascii)
{
    buf_literal(b, "\"");
    add_escaped(b, s, json_escape, ascii);
    buf_literal(b, "\"");
}

/* ---- values ---------------------------------------------------------------------------------- */

static void new_line(struct buf *b, const struct print_style *style, unsigned depth)
{
    if (style->indent < 0)
        return;
    buf_literal(b, "\n");
    for (int64_t i = 0; i < style->indent * (int64_t)depth; i++)
        buf_literal(b, " ");
}

static void print(struct buf *b, struct value v, const struct print_style *style, unsigned depth);

static void print_list(struct buf *b, struct value v, const struct print_style *style,
                       unsigned depth)
{
    const struct list *l = v.list;
    bool tuple = v.kind == VALUE_TUPLE && !style->json;
    buf_literal(b, tuple ? "(" : "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            buf_string(b, style->item);
        new_line(b, style, depth + 1);
        print(b, l->items[i], style, depth + 1);
    }
    if (l->n)
        new_line(b, style, depth);
    buf_literal(b, !tuple ? "]" : l->n == 1 ? ",)" : ")");
}

static void print_dict(struct buf *b, const struct dict *d, const struct print_style *style,
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
        bool quoted = style->json && entries[i].key.kind != VALUE_STRING;
        if (i)
            buf_string(b, style->item);
        new_line(b, style, depth + 1);
        buf_literal(b, quoted ? "\"" : "");
        print(b, entries[i].key, style, depth + 1);
        buf_literal(b, quoted ? "\"" : "");
        buf_string(b, style->key);
        print(b, entries[i].value, style, depth + 1);
    }
    if (d->n)
        new_line(b, style, depth);
    buf_literal(b, "}");
}

static void print_other(struct buf *b, struct value v, const struct print_style *style)
{
    if (style->json)
        value_need(b->heap, v);
    if (style->json)
        heap_fault(b->heap, -EINVAL, "an object of type %s has no JSON", value_type(v));
    bool missing = v.kind == VALUE_ABSENT || v.kind == VALUE_UNDEFINED;
    buf_literal(b, missing ? "" : "<");
    buf_literal(b, value_type(v));
    buf_literal(b, missing ? "" : ">");
}

static void print(struct buf *b, struct value v, const struct print_style *style, unsigned depth)
{
    bool json = style->json;
    heap_charge(b->heap, 1);
    if (depth >= MOST_DEPTH)
        heap_fault(b->heap, -EINVAL, "a value that is nested too deeply is printed");
    switch (v.kind) {
    case VALUE_NONE:
        buf_literal(b, json ? "null" : "None");
        break;
    case VALUE_BOOL:
        buf_literal(b, v.truth ? json ? "true" : "True" : json ? "false" : "False");
        break;
    case VALUE_INTEGER:
        put_integer(b, v.integer);
        break;
    case VALUE_FLOAT:
        put_float(b, v.number, json);
        break;
    case VALUE_STRING:
        if (json)
            json_string_to(b, v, style->ascii);
        else
            repr_string(b, v);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        print_list(b, v, style, depth);
        break;
    case VALUE_DICT:
        print_dict(b, v.dict, style, depth);
        break;
    default:
        print_other(b, v, style);
    }
}

void print_styled(struct buf *b, struct value v, const struct print_style *style)
{
    print(b, v, style, 0);
}

void print_repr(struct buf *b, struct value v)
{
    static const struct print_style plain = {
        .indent = -1,
        .item = {.kind = VALUE_STRING, .text = ", ", .bytes = 2},
        .key = {.kind = VALUE_STRING, .text = ": ", .bytes = 2}};
    print(b, v, &plain, 0);
}

void print_value(struct buf *b, struct value v)
{
    if (v.kind == VALUE_STRING)
        buf_string(b, v);
    else if (v.kind != VALUE_UNDEFINED)
        print_repr(b, v);
}

struct value print_string(struct eval *e, struct value v)
{
    struct buf b = {.heap = e->heap};
    if (v.kind == VALUE_STRING)
        return v;
    print_value(&b, v);
    return buf_value(&b);
}
