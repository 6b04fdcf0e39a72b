/* Methods: 'text'.strip(), {}.items(), [].index(x), loop.cycle(a, b). */
#include "client/jinja/eval.h"
#include "client/jinja/text.h"

#include <errno.h>
#include <string.h>

#define METHOD(name) static struct value name(struct eval *e, const struct call *c)

BUILTIN(strip, text_strip(e, c->self, c->a[0], true, true))
BUILTIN(lstrip, text_strip(e, c->self, c->a[0], true, false))
BUILTIN(rstrip, text_strip(e, c->self, c->a[0], false, true))
BUILTIN(upper, text_case(e, c->self, 'u'))
BUILTIN(lower, text_case(e, c->self, 'l'))
BUILTIN(title, text_case(e, c->self, 't'))
BUILTIN(capitalize, text_case(e, c->self, 'c'))
BUILTIN(swapcase, text_case(e, c->self, 's'))
BUILTIN(ljust, text_pad(e, c->self, arg_integer(e, c, 0, 0), arg_string(e, c, 1, " "), 'l'))
BUILTIN(rjust, text_pad(e, c->self, arg_integer(e, c, 0, 0), arg_string(e, c, 1, " "), 'r'))
BUILTIN(center, text_pad(e, c->self, arg_integer(e, c, 0, 0), arg_string(e, c, 1, " "), 'c'))

/* Zeros stand after a sign. */
METHOD(zfill)
{
    int64_t width = arg_integer(e, c, 0, 0);
    size_t sign = c->self.bytes && (*c->self.text == '+' || *c->self.text == '-');
    struct value digits = value_slice(c->self, sign, c->self.bytes - sign);
    struct buf b = {.heap = e->heap};
    buf_string(&b, value_slice(c->self, 0, sign));
    width = width > 0 ? width - (int64_t)sign : 0;
    buf_string(&b, text_pad(e, digits, width, value_text("0", 1), 'r'));
    return buf_value(&b);
}

BUILTIN(replace, text_replace(e, c->self, arg_string(e, c, 0, ""), arg_string(e, c, 1, ""),
                              arg_integer(e, c, 2, -1)))

static bool has_end(struct eval *e, struct value s, struct value part, bool at_end)
{
    if (part.bytes > s.bytes)
        return false;
    heap_charge(e->heap, part.bytes / 64);
    size_t at = at_end ? s.bytes - part.bytes : 0;
    return !part.bytes || memcmp(s.text + at, part.text, part.bytes) == 0;
}

/* The argument is a string or a tuple of them. */
static struct value ends(struct eval *e, const struct call *c, bool at_end)
{
    if (c->a[0].kind != VALUE_TUPLE)
        return value_bool(has_end(e, c->self, arg_string(e, c, 0, ""), at_end));
    for (size_t i = 0; i < c->a[0].list->n; i++) {
        struct value part = c->a[0].list->items[i];
        if (part.kind == VALUE_STRING && has_end(e, c->self, part, at_end))
            return value_bool(true);
    }
    return value_bool(false);
}

BUILTIN(startswith, ends(e, c, false))
BUILTIN(endswith, ends(e, c, true))

METHOD(removeprefix)
{
    struct value part = arg_string(e, c, 0, "");
    bool there = has_end(e, c->self, part, false);
    return there ? value_slice(c->self, part.bytes, c->self.bytes - part.bytes) : c->self;
}

METHOD(removesuffix)
{
    struct value part = arg_string(e, c, 0, "");
    bool there = has_end(e, c->self, part, true);
    return there ? value_slice(c->self, 0, c->self.bytes - part.bytes) : c->self;
}

METHOD(text_join)
{
    struct list *items = value_items(e->heap, c->a[0]);
    struct buf b = {.heap = e->heap};
    for (size_t i = 0; i < items->n; i++) {
        if (items->items[i].kind != VALUE_STRING)
            heap_fault(e->heap, -EINVAL, "sequence item %zu: expected str instance, %s found", i,
                       value_type(items->items[i]));
        if (i)
            buf_string(&b, c->self);
        buf_string(&b, items->items[i]);
    }
    return buf_value(&b);
}

BUILTIN(text_format, text_format_braces(e, c->self, c->given))

/* Are all characters, and at least one, of this kind? */
static struct value all_are(struct eval *e, const struct call *c, bool (*is)(uint32_t code))
{
    struct value s = c->self;
    heap_charge(e->heap, s.bytes / 8);
    bool all = s.bytes > 0;
    for (size_t at = 0, n; all && at < s.bytes; at += n)
        all = is(text_code(s.text + at, s.bytes - at, &n));
    return value_bool(all);
}

static bool is_digit(uint32_t code)
{
    return code >= '0' && code <= '9';
}

static bool is_alnum(uint32_t code)
{
    return is_digit(code) || text_is_letter(code);
}

BUILTIN(text_isdigit, all_are(e, c, is_digit))
BUILTIN(text_isalpha, all_are(e, c, text_is_letter))
BUILTIN(text_isalnum, all_are(e, c, is_alnum))
BUILTIN(text_isspace, all_are(e, c, text_is_space))
BUILTIN(text_isupper, value_bool(text_is_case(e, c->self, 'u')))
BUILTIN(text_islower, value_bool(text_is_case(e, c->self, 'l')))

/* ---- dicts, lists, loops --------------------------------------------------------------------- */

BUILTIN(dict_items, dict_pairs(e, c->self))

METHOD(dict_keys)
{
    struct value all = value_list(e->heap);
    all.list = value_items(e->heap, c->self);
    return all;
}

METHOD(dict_values)
{
    struct value all = value_list(e->heap);
    for (size_t i = 0; i < c->self.dict->n; i++)
        list_push(e->heap, all.list, c->self.dict->entries[i].value);
    return all;
}

METHOD(dict_get)
{
    struct value *found = dict_find(e->heap, c->self.dict, c->a[0]);
    if (found)
        return *found;
    return c->a[1].kind == VALUE_ABSENT ? value_none() : c->a[1];
}

METHOD(dict_copy)
{
    struct value all = value_dict(e->heap);
    heap_charge(e->heap, c->self.dict->n);
    for (size_t i = 0; i < c->self.dict->n; i++)
        dict_add(e->heap, all.dict, c->self.dict->entries[i].key, c->self.dict->entries[i].value);
    return all;
}

METHOD(list_index)
{
    for (size_t i = 0; i < c->self.list->n; i++)
        if (value_equal(e->heap, c->self.list->items[i], c->a[0]))
            return value_integer((int64_t)i);
    heap_fault(e->heap, -EINVAL, "the value is not in the list");
}

METHOD(list_count)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->self.list->n; i++)
        n += value_equal(e->heap, c->self.list->items[i], c->a[0]);
    return value_integer(n);
}

METHOD(loop_cycle)
{
    if (!c->given->n)
        heap_fault(e->heap, -EINVAL, "loop.cycle needs at least one argument");
    return c->given->at[c->self.loop->at % c->given->n];
}

METHOD(loop_changed)
{
    struct loop *l = c->self.loop;
    struct value now = value_list(e->heap);
    list_extend(e->heap, now.list, c->given->at, c->given->n);
    bool same = l->changed.kind != VALUE_ABSENT && value_equal(e->heap, l->changed, now);
    l->changed = now;
    return value_bool(!same);
}

static const struct builtin text_methods[] = {
    {"strip", strip, 0, "chars"},
    {"lstrip", lstrip, 0, "chars"},
    {"rstrip", rstrip, 0, "chars"},
    {"startswith", startswith, 1, "prefix"},
    {"endswith", endswith, 1, "suffix"},
    {"replace", replace, 2, "old new count"},
    {"upper", upper, 0, ""},
    {"lower", lower, 0, ""},
    {"title", title, 0, ""},
    {"capitalize", capitalize, 0, ""},
    {"swapcase", swapcase, 0, ""},
    {"casefold", lower, 0, ""},
    {"ljust", ljust, 1, "width fillchar"},
    {"rjust", rjust, 1, "width fillchar"},
    {"center", center, 1, "width fillchar"},
    {"zfill", zfill, 1, "width"},
    {"join", text_join, 1, "iterable"},
    {"format", text_format, 0, "*"},
    {"removeprefix", removeprefix, 1, "prefix"},
    {"removesuffix", removesuffix, 1, "suffix"},
    {"isdigit", text_isdigit, 0, ""},
    {"isdecimal", text_isdigit, 0, ""},
    {"isnumeric", text_isdigit, 0, ""},
    {"isalpha", text_isalpha, 0, ""},
    {"isalnum", text_isalnum, 0, ""},
    {"isspace", text_isspace, 0, ""},
    {"isupper", text_isupper, 0, ""},
    {"islower", text_islower, 0, ""},
};

static const struct builtin dict_methods[] = {
    {"items", dict_items, 0, ""},        {"keys", dict_keys, 0, ""}, {"values", dict_values, 0, ""},
    {"get", dict_get, 1, "key default"}, {"copy", dict_copy, 0, ""},
};

static const struct builtin list_methods[] = {
    {"index", list_index, 1, "value"},
    {"count", list_count, 1, "value"},
};

static const struct builtin loop_methods[] = {
    {"cycle", loop_cycle, 0, "*"},
    {"changed", loop_changed, 0, "*"},
};

#define FIND(table) builtin_find(table, sizeof(table) / sizeof(*(table)), name, bytes)

const struct builtin *methods_find(enum value_kind kind, const char *name, size_t bytes)
{
    const struct builtin *b;
    switch (kind) {
    case VALUE_STRING:
        b = FIND(text_methods);
        return b ? b : builtin_find(search_methods, n_search_methods, name, bytes);
    case VALUE_DICT:
        return FIND(dict_methods);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return FIND(list_methods);
    case VALUE_LOOP:
        return FIND(loop_methods);
    default:
        return NULL;
    }
}
