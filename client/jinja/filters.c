/* Filters over one value: {{ x | trim }}. Those over lists are in filters_list.c. */
#include "client/jinja/eval.h"
#include "client/jinja/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name) static struct value name(struct eval *e, const struct call *c)

BUILTIN(trim, text_strip(e, self_string(e, c), c->a[0], true, true))
BUILTIN(upper, text_case(e, self_string(e, c), 'u'))
BUILTIN(lower, text_case(e, self_string(e, c), 'l'))
BUILTIN(title, text_case(e, self_string(e, c), 'w'))
BUILTIN(capitalize, text_case(e, self_string(e, c), 'c'))

static const struct print_style plain_json = {
    .json = true,
    .indent = -1,
    .item = {.kind = VALUE_STRING, .text = ", ", .bytes = 2},
    .key = {.kind = VALUE_STRING, .text = ": ", .bytes = 2}};

/* A list or a dict becomes JSON, unlike in {{ }}: the published test vectors expect it. */
FILTER(string)
{
    struct buf b = {.heap = e->heap};
    if (!value_is_list(c->self) && c->self.kind != VALUE_DICT)
        return self_string(e, c);
    print_styled(&b, c->self, &plain_json);
    return buf_value(&b);
}

BUILTIN(replace, text_replace(e, self_string(e, c), arg_string(e, c, 0, ""),
                              arg_string(e, c, 1, ""), arg_integer(e, c, 2, -1)))

FILTER(otherwise)
{
    bool given = c->self.kind != VALUE_UNDEFINED;
    if (arg_bool(c, 1, false))
        given = value_true(c->self);
    if (given)
        return c->self;
    (void)e;
    return c->a[0].kind == VALUE_ABSENT ? value_literal("") : c->a[0];
}

BUILTIN(length, value_integer((int64_t)value_length(e->heap, c->self)))

/* Indents lines after the first by this many blanks, or by a string. */
FILTER(indent)
{
    struct value s = self_string(e, c), by = c->a[0];
    struct buf blank = {.heap = e->heap}, b = {.heap = e->heap};
    bool first = arg_bool(c, 1, false), blanks = arg_bool(c, 2, false);
    if (by.kind == VALUE_STRING)
        buf_string(&blank, by);
    else
        for (int64_t i = arg_integer(e, c, 0, 4); i > 0; i--)
            buf_literal(&blank, " ");
    by = buf_value(&blank);
    for (size_t at = 0; at <= s.bytes;) {
        const char *end = at < s.bytes ? memchr(s.text + at, '\n', s.bytes - at) : NULL;
        size_t stop = end ? (size_t)(end - s.text) : s.bytes;
        if (at ? stop > at || blanks : first)
            buf_string(&b, by);
        buf_string(&b, value_slice(s, at, stop - at + (end != NULL)));
        at = stop + 1;
    }
    return buf_value(&b);
}

FILTER(tojson)
{
    struct print_style style = plain_json;
    struct value by = c->a[1];
    struct buf b = {.heap = e->heap};
    style.sorted = arg_bool(c, 2, false);
    style.ascii = arg_bool(c, 3, false);
    style.indent = arg_integer(e, c, 0, -1);
    if (style.indent > 1000)
        style.indent = 1000;
    if (style.indent >= 0)
        style.item = value_literal(",");
    if (value_is_list(by) && by.list->n == 2 && by.list->items[0].kind == VALUE_STRING &&
        by.list->items[1].kind == VALUE_STRING) {
        style.item = by.list->items[0];
        style.key = by.list->items[1];
    }
    print_styled(&b, c->self, &style);
    return buf_value(&b);
}

FILTER(items)
{
    if (c->self.kind == VALUE_UNDEFINED)
        return value_list(e->heap);
    return dict_pairs(e, c->self);
}

BUILTIN(center, text_pad(e, self_string(e, c), arg_integer(e, c, 0, 80), value_text(" ", 1), 'c'))

FILTER(escape)
{
    static const struct {
        char c;
        const char *text;
    } marks[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    struct value s = self_string(e, c);
    struct buf b = {.heap = e->heap};
    for (size_t i = 0; i < s.bytes; i++) {
        const char *text = NULL;
        for (size_t k = 0; k < sizeof(marks) / sizeof(marks[0]); k++)
            if (marks[k].c == s.text[i])
                text = marks[k].text;
        if (text)
            buf_add(&b, text, strlen(text), origin_at(s, i));
        else
            buf_string(&b, value_slice(s, i, 1));
    }
    return buf_value(&b);
}

FILTER(urlencode)
{
    struct value s = self_string(e, c);
    struct buf b = {.heap = e->heap};
    for (size_t i = 0; i < s.bytes; i++) {
        static const char hex[] = "0123456789ABCDEF";
        unsigned char ch = (unsigned char)s.text[i];
        const char out[3] = {'%', hex[ch >> 4], hex[ch & 15]};
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                     (ch >= '0' && ch <= '9') || (ch && strchr("-._~/", ch));
        if (plain)
            buf_string(&b, value_slice(s, i, 1));
        else
            buf_add(&b, out, 3, origin_at(s, i));
    }
    return buf_value(&b);
}

FILTER(wordcount)
{
    struct value s = self_string(e, c);
    int64_t words = 0;
    bool inside = false;
    heap_charge(e->heap, s.bytes / 4);
    for (size_t at = 0, n; at < s.bytes; at += n) {
        uint32_t code = text_code(s.text + at, s.bytes - at, &n);
        bool letter = text_is_letter(code) || (code >= '0' && code <= '9') || code == '_';
        words += letter && !inside;
        inside = letter;
    }
    return value_integer(words);
}

FILTER(truncate)
{
    struct value s = self_string(e, c), end = arg_string(e, c, 2, "...");
    int64_t length = arg_integer(e, c, 0, 255), leeway = arg_integer(e, c, 3, 5);
    int64_t n = (int64_t)value_length(e->heap, s);
    int64_t n_end = (int64_t)value_length(e->heap, end);
    if (length < n_end || leeway < 0 || leeway > 1 << 20 || length > 1 << 30)
        heap_fault(e->heap, -EINVAL, "truncate: the length is out of range");
    if (n <= length + leeway)
        return s;
    size_t bytes = text_offset(s.text, s.bytes, (size_t)(length - n_end));
    if (!arg_bool(c, 1, false)) {
        const char *blank = bytes ? memrchr(s.text, ' ', bytes) : NULL;
        bytes = blank ? (size_t)(blank - s.text) : bytes;
    }
    struct buf b = {.heap = e->heap};
    buf_string(&b, value_slice(s, 0, bytes));
    buf_string(&b, end);
    return buf_value(&b);
}

FILTER(format)
{
    const struct args *given = c->given;
    struct value all = given->n_named ? value_dict(e->heap) : value_tuple(e->heap);
    for (size_t i = 0; i < given->n_named; i++)
        dict_set(e->heap, all.dict, keyword_text(&given->named[i]), given->named[i].value);
    if (!given->n_named)
        list_extend(e->heap, all.list, given->at, given->n);
    return text_format_percent(e, self_string(e, c), all);
}

/* ---- numbers --------------------------------------------------------------------------------- */

enum { NUMBER_BYTES = 64 }; /* longer ones are none */

/* A string without the blanks around it, followed by a 0; false: too long, or not a string. */
static bool number_text(struct eval *e, struct value v, char text[NUMBER_BYTES])
{
    if (v.kind != VALUE_STRING)
        return false;
    v = text_strip(e, v, value_none(), true, true);
    if (!v.bytes || v.bytes >= NUMBER_BYTES)
        return false;
    memcpy(text, v.text, v.bytes);
    text[v.bytes] = 0;
    return strlen(text) == v.bytes;
}

/* The number that a string holds, all of it; false: none. */
static bool read_number(struct eval *e, struct value v, double *ret)
{
    char text[NUMBER_BYTES], *end;
    if (value_is_number(v)) {
        *ret = value_number(v);
        return true;
    }
    if (!number_text(e, v, text) || text[strspn(text, "+-.0123456789eE")]) /* no inf, no 0x10 */
        return false;
    *ret = strtod(text, &end);
    return end != text && !*end;
}

static bool read_integer(struct eval *e, struct value v, int64_t base, int64_t *ret)
{
    char text[NUMBER_BYTES], *end;
    if (!number_text(e, v, text) || base < 0 || base == 1 || base > 36)
        return false;
    errno = 0;
    *ret = strtoll(text, &end, (int)base);
    return end != text && !*end && !errno;
}

FILTER(to_int)
{
    double number;
    int64_t whole;
    if (c->self.kind == VALUE_INTEGER || c->self.kind == VALUE_BOOL)
        return value_integer(value_whole(c->self));
    if (read_integer(e, c->self, arg_integer(e, c, 1, 10), &whole))
        return value_integer(whole);
    if (!read_number(e, c->self, &number) || !(number > -9e18 && number < 9e18))
        return c->a[0].kind == VALUE_ABSENT ? value_integer(0) : c->a[0];
    return value_integer((int64_t)number);
}

FILTER(to_float)
{
    double number;
    if (!read_number(e, c->self, &number))
        return c->a[0].kind == VALUE_ABSENT ? value_float(0) : c->a[0];
    return value_float(number);
}

FILTER(absolute)
{
    if (c->self.kind == VALUE_FLOAT)
        return value_float(__builtin_fabs(c->self.number));
    value_need(e->heap, c->self);
    if (!value_is_number(c->self) || value_whole(c->self) == INT64_MIN)
        heap_fault(e->heap, -EINVAL, "abs is for numbers");
    return value_integer(llabs(value_whole(c->self)));
}

static double power_of_ten(int64_t n)
{
    double power = 1;
    for (; n > 0; n--)
        power *= 10;
    return power;
}

/* Rounds to the nearest, ties to even; an integer stays an integer. printf rounds the exact
 * value. */
static struct value round_nearest(struct eval *e, struct value v, double number, int64_t places)
{
    char digits[340]; /* the largest double has 309 in front of the point */
    bool is_whole = v.kind == VALUE_INTEGER || v.kind == VALUE_BOOL;
    if (is_whole && places >= 0)
        return value_integer(value_whole(v));
    double scale = power_of_ten(-places);
    int n = snprintf(digits, sizeof(digits), "%.*f", places > 0 ? (int)places : 0, number / scale);
    heap_charge(e->heap, 2 * (size_t)n);
    number = strtod(digits, NULL) * scale;
    return is_whole && number > -9e18 && number < 9e18 ? value_integer((int64_t)number)
                                                       : value_float(number);
}

FILTER(round_to)
{
    double number;
    int64_t places = arg_integer(e, c, 0, 0);
    struct value how = arg_string(e, c, 1, "common");
    if (!read_number(e, c->self, &number) || places < -15 || places > 15)
        heap_fault(e->heap, -EINVAL, "round is for numbers");
    if (!value_is(how, "ceil") && !value_is(how, "floor"))
        return round_nearest(e, c->self, number, places);
    double up = power_of_ten(places), down = power_of_ten(-places);
    number = number * up / down;
    double whole = value_floor(number);
    if (value_is(how, "ceil") && number > whole)
        whole++;
    return value_float(whole * down / up);
}

static const struct builtin filters[] = {
    {"trim", trim, 0, "chars"},
    {"tojson", tojson, 0, "indent separators sort_keys ensure_ascii"},
    {"length", length, 0, ""},
    {"count", length, 0, ""},
    {"string", string, 0, ""},
    {"safe", self_string, 0, ""},
    {"default", otherwise, 0, "default_value boolean"},
    {"d", otherwise, 0, "default_value boolean"},
    {"upper", upper, 0, ""},
    {"lower", lower, 0, ""},
    {"title", title, 0, ""},
    {"capitalize", capitalize, 0, ""},
    {"replace", replace, 2, "old new count"},
    {"indent", indent, 0, "width first blank"},
    {"items", items, 0, ""},
    {"int", to_int, 0, "default base"},
    {"float", to_float, 0, "default"},
    {"abs", absolute, 0, ""},
    {"round", round_to, 0, "precision method"},
    {"center", center, 0, "width"},
    {"escape", escape, 0, ""},
    {"e", escape, 0, ""},
    {"urlencode", urlencode, 0, ""},
    {"wordcount", wordcount, 0, ""},
    {"truncate", truncate, 0, "length killwords end leeway"},
    {"format", format, 0, "*"},
};

const struct builtin *filters_find(const char *name, size_t bytes)
{
    const struct builtin *b =
        builtin_find(filters, sizeof(filters) / sizeof(filters[0]), name, bytes);
    return b ? b : builtin_find(list_filters, n_list_filters, name, bytes);
}
