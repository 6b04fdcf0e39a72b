/* What builtins share: their arguments, and strings that several of them change. */
#include "client/base/utf8.h"
#include "client/jinja/eval.h"
#include "client/jinja/text.h"

#include <errno.h>
#include <string.h>

const struct builtin *builtin_find(const struct builtin *table, size_t n, const char *name,
                                   size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == bytes && memcmp(table[i].name, name, bytes) == 0)
            return &table[i];
    return NULL;
}

struct value keyword_text(const struct keyword *k)
{
    struct value text = value_text(k->name->text, k->name->bytes);
    text.origin = (uint8_t)k->origin;
    return text;
}

int64_t arg_integer(struct eval *e, const struct call *c, size_t i, int64_t otherwise)
{
    struct value v = c->a[i];
    if (v.kind == VALUE_ABSENT || v.kind == VALUE_NONE)
        return otherwise;
    value_need(e->heap, v);
    if (v.kind != VALUE_INTEGER && v.kind != VALUE_BOOL)
        heap_fault(e->heap, -EINVAL, "a number is wanted, not %s", value_type(v));
    return value_whole(v);
}

bool arg_bool(const struct call *c, size_t i, bool otherwise)
{
    return c->a[i].kind == VALUE_ABSENT ? otherwise : value_true(c->a[i]);
}

struct value arg_string(struct eval *e, const struct call *c, size_t i, const char *otherwise)
{
    struct value v = c->a[i];
    if (v.kind == VALUE_ABSENT)
        return value_literal(otherwise);
    value_need(e->heap, v);
    if (v.kind != VALUE_STRING)
        heap_fault(e->heap, -EINVAL, "a string is wanted, not %s", value_type(v));
    return v;
}

struct value self_string(struct eval *e, const struct call *c)
{
    return print_string(e, c->self);
}

/* ---- strings --------------------------------------------------------------------------------- */

/* `before` is the character before, 0 at the beginning. */
static uint32_t change_case(uint32_t code, int how, uint32_t before)
{
    bool begins = before == 0;
    if (how == 't') /* the method title(): a word is a run of letters */
        begins = !text_is_letter(before);
    else if (how == 'w') /* the filter title: a word begins after a blank or a bracket */
        begins = begins || text_is_space(before) || (before < 0x80 && strchr("-({[<", (int)before));
    switch (how) {
    case 'u':
        return text_upper(code);
    case 'l':
        return text_lower(code);
    case 's': /* the other one of the two */
        return text_upper(code) != code ? text_upper(code) : text_lower(code);
    default:
        return begins ? text_upper(code) : text_lower(code);
    }
}

struct value text_case(struct eval *e, struct value s, int how)
{
    struct buf b = {.heap = e->heap};
    uint32_t before = 0;
    heap_charge(e->heap, s.bytes / 4);
    for (size_t at = 0, n; at < s.bytes; at += n) {
        uint32_t code = text_code(s.text + at, s.bytes - at, &n);
        uint32_t other = change_case(code, how, before);
        char out[4];
        if (other == code)
            buf_add(&b, s.text + at, n, origin_at(s, at));
        else
            buf_add(&b, out, utf8_put(other, out), origin_at(s, at));
        before = code;
    }
    return buf_value(&b);
}

bool text_is_case(struct eval *e, struct value s, int how)
{
    return value_equal(e->heap, s, text_case(e, s, how)) &&
           !value_equal(e->heap, s, text_case(e, s, how == 'l' ? 'u' : 'l'));
}

bool text_is_index(const char *text, size_t bytes, int64_t *ret)
{
    bool digits = bytes > 0 && bytes < 10;
    *ret = 0;
    for (size_t i = 0; digits && i < bytes; i++) {
        digits = text[i] >= '0' && text[i] <= '9';
        *ret = *ret * 10 + (text[i] - '0');
    }
    return digits;
}

/* Is the character at text[at] one of `chars`, or, without `chars`, a blank? */
static bool strips(struct eval *e, struct value s, size_t at, size_t bytes, struct value chars)
{
    size_t n;
    heap_charge(e->heap, 1 + chars.bytes / 8);
    if (chars.kind != VALUE_STRING)
        return text_is_space(text_code(s.text + at, bytes, &n));
    for (size_t i = 0; i < chars.bytes; i += n) {
        n = text_step(chars.text + i, chars.bytes - i);
        if (n == bytes && memcmp(chars.text + i, s.text + at, n) == 0)
            return true;
    }
    return false;
}

struct value text_pad(struct eval *e, struct value s, int64_t width, struct value fill, int side)
{
    struct buf b = {.heap = e->heap};
    if (value_length(e->heap, fill) != 1)
        heap_fault(e->heap, -EINVAL, "the fill character must be one character");
    int64_t n = (int64_t)value_length(e->heap, s), room = width > n ? width - n : 0;
    int64_t half = room / 2 + (room & width & 1); /* an odd number is split as in Python */
    int64_t left = side == 'l' ? 0 : side == 'r' ? room : half;
    for (int64_t i = 0; i < left; i++)
        buf_string(&b, fill);
    buf_string(&b, s);
    for (int64_t i = left; i < room; i++)
        buf_string(&b, fill);
    return buf_value(&b);
}

struct value text_strip(struct eval *e, struct value s, struct value chars, bool left, bool right)
{
    size_t from = 0, to = s.bytes;
    value_need(e->heap, chars);
    if (chars.kind != VALUE_STRING && chars.kind != VALUE_NONE && chars.kind != VALUE_ABSENT)
        heap_fault(e->heap, -EINVAL, "strip arg must be None or str");
    heap_charge(e->heap, s.bytes / 16);
    while (left && from < to) {
        size_t n = text_step(s.text + from, to - from);
        if (!strips(e, s, from, n, chars))
            break;
        from += n;
    }
    while (right && to > from) {
        size_t begin = to - 1;
        while (begin > from && to - begin < 4 && ((unsigned char)s.text[begin] & 0xc0) == 0x80)
            begin--;
        if (text_step(s.text + begin, to - begin) != to - begin)
            begin = to - 1; /* no UTF-8 */
        if (!strips(e, s, begin, to - begin, chars))
            break;
        to = begin;
    }
    return value_slice(s, from, to - from);
}

struct value text_replace(struct eval *e, struct value s, struct value from, struct value to,
                          int64_t most)
{
    struct buf b = {.heap = e->heap};
    size_t at = 0;
    while (at <= s.bytes && most != 0) {
        const char *found = s.text + at;
        if (from.bytes)
            found = at < s.bytes ? memmem(s.text + at, s.bytes - at, from.text, from.bytes) : NULL;
        if (!found)
            break;
        heap_charge(e->heap, 1);
        size_t stop = (size_t)(found - s.text);
        buf_string(&b, value_slice(s, at, stop - at));
        buf_string(&b, to);
        at = stop + from.bytes;
        most -= most > 0;
        if (!from.bytes) { /* between all characters */
            size_t n = at < s.bytes ? text_step(s.text + at, s.bytes - at) : 0;
            buf_string(&b, value_slice(s, at, n));
            at += n ? n : 1;
        }
    }
    if (at < s.bytes)
        buf_string(&b, value_slice(s, at, s.bytes - at));
    return buf_value(&b);
}

struct value dict_pairs(struct eval *e, struct value d)
{
    struct value all = value_list(e->heap);
    value_need(e->heap, d);
    if (d.kind != VALUE_DICT && d.kind != VALUE_NAMESPACE)
        heap_fault(e->heap, -EINVAL, "'%s' object has no items", value_type(d));
    heap_charge(e->heap, d.dict->n);
    for (size_t i = 0; i < d.dict->n; i++) {
        struct value pair = value_tuple(e->heap);
        list_push(e->heap, pair.list, d.dict->entries[i].key);
        list_push(e->heap, pair.list, d.dict->entries[i].value);
        list_push(e->heap, all.list, pair);
    }
    return all;
}
