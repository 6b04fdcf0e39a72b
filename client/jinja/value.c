/* value: see value.h. */
#include "client/jinja/value.h"

#include "client/base/utf8.h"

#include <errno.h>
#include <string.h>

/* ---- making ---------------------------------------------------------------------------------- */

struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}

struct value value_bool(bool truth)
{
    return (struct value){.kind = VALUE_BOOL, .truth = truth};
}

struct value value_integer(int64_t integer)
{
    return (struct value){.kind = VALUE_INTEGER, .integer = integer};
}

struct value value_float(double number)
{
    return (struct value){.kind = VALUE_FLOAT, .number = number};
}

struct value value_text(const char *text, size_t bytes)
{
    return (struct value){.kind = VALUE_STRING, .text = text, .bytes = bytes};
}

struct value value_literal(const char *text)
{
    return value_text(text, strlen(text));
}

struct value value_undefined(const char *name, size_t bytes)
{
    return (struct value){.kind = VALUE_UNDEFINED, .text = name, .bytes = bytes};
}

struct value value_list(struct heap *h)
{
    return (struct value){.kind = VALUE_LIST, .list = heap_take(h, sizeof(struct list))};
}

struct value value_tuple(struct heap *h)
{
    return (struct value){.kind = VALUE_TUPLE, .list = heap_take(h, sizeof(struct list))};
}

struct value value_dict(struct heap *h)
{
    return (struct value){.kind = VALUE_DICT, .dict = heap_take(h, sizeof(struct dict))};
}

struct value value_slice(struct value s, size_t at, size_t bytes)
{
    s.text += at;
    s.bytes = bytes;
    if (s.origin == ORIGIN_MIXED)
        s.origins += at;
    return s;
}

void list_push(struct heap *h, struct list *l, struct value v)
{
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 8;
        l->items = heap_grow(h, l->items, l->n * sizeof(v), l->room * sizeof(v), room * sizeof(v));
        l->room = room;
    }
    l->items[l->n++] = v;
}

void list_extend(struct heap *h, struct list *l, const struct value *items, size_t n)
{
    heap_charge(h, n);
    for (size_t i = 0; i < n; i++)
        list_push(h, l, items[i]);
}

struct value *dict_find(struct heap *h, const struct dict *d, struct value key)
{
    heap_charge(h, d->n / 8);
    for (size_t i = 0; i < d->n; i++) {
        struct value k = d->entries[i].key;
        if (k.bytes == key.bytes)
            heap_charge(h, k.bytes / 64);
        if (k.kind == VALUE_STRING && key.kind == VALUE_STRING
                ? k.bytes == key.bytes && (!k.bytes || memcmp(k.text, key.text, k.bytes) == 0)
                : value_equal(h, k, key))
            return &d->entries[i].value;
    }
    return NULL;
}

void dict_add(struct heap *h, struct dict *d, struct value key, struct value v)
{
    if (d->n == d->room) {
        size_t room = d->room ? 2 * d->room : 8, item = sizeof(*d->entries);
        d->entries = heap_grow(h, d->entries, d->n * item, d->room * item, room * item);
        d->room = room;
    }
    d->entries[d->n++] = (struct entry){.key = key, .value = v};
}

void dict_set(struct heap *h, struct dict *d, struct value key, struct value v)
{
    struct value *there = dict_find(h, d, key);
    if (there)
        *there = v;
    else
        dict_add(h, d, key, v);
}

/* ---- asking ---------------------------------------------------------------------------------- */

bool value_is_list(struct value v)
{
    return v.kind == VALUE_LIST || v.kind == VALUE_TUPLE;
}

bool value_is_number(struct value v)
{
    return v.kind == VALUE_BOOL || v.kind == VALUE_INTEGER || v.kind == VALUE_FLOAT;
}

int64_t value_whole(struct value v)
{
    return v.kind == VALUE_BOOL ? v.truth : v.integer;
}

double value_number(struct value v)
{
    return v.kind == VALUE_FLOAT ? v.number : (double)value_whole(v);
}

bool value_is(struct value v, const char *text)
{
    return v.kind == VALUE_STRING && v.bytes == strlen(text) && memcmp(v.text, text, v.bytes) == 0;
}

const char *value_type(struct value v)
{
    static const char *const names[] = {
        [VALUE_ABSENT] = "Undefined", [VALUE_UNDEFINED] = "Undefined", [VALUE_NONE] = "NoneType",
        [VALUE_BOOL] = "bool",        [VALUE_INTEGER] = "int",         [VALUE_FLOAT] = "float",
        [VALUE_STRING] = "str",       [VALUE_LIST] = "list",           [VALUE_TUPLE] = "tuple",
        [VALUE_DICT] = "dict",        [VALUE_NAMESPACE] = "Namespace", [VALUE_MACRO] = "Macro",
        [VALUE_BUILTIN] = "function", [VALUE_METHOD] = "method",       [VALUE_LOOP] = "LoopContext",
    };
    return names[v.kind];
}

bool value_true(struct value v)
{
    switch (v.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return v.truth;
    case VALUE_INTEGER:
        return v.integer != 0;
    case VALUE_FLOAT:
        return v.number != 0;
    case VALUE_STRING:
        return v.bytes != 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
        return v.list->n != 0;
    case VALUE_DICT:
        return v.dict->n != 0;
    default:
        return true;
    }
}

void value_undefined_fault(struct heap *h, struct value v)
{
    heap_fault(h, -EINVAL, "'%.*s' is undefined", (int)(v.bytes < 100 ? v.bytes : 100), v.text);
}

void value_need(struct heap *h, struct value v)
{
    if (v.kind == VALUE_UNDEFINED)
        value_undefined_fault(h, v);
}

/* ---- comparing ------------------------------------------------------------------------------- */

enum { MOST_DEPTH = 200 };

static bool equal(struct heap *h, struct value a, struct value b, unsigned depth);

static bool equal_lists(struct heap *h, const struct list *a, const struct list *b, unsigned depth)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = equal(h, a->items[i], b->items[i], depth);
    return same;
}

static bool equal_dicts(struct heap *h, const struct dict *a, const struct dict *b, unsigned depth)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        struct value *other = dict_find(h, b, a->entries[i].key);
        same = other && equal(h, a->entries[i].value, *other, depth);
    }
    return same;
}

static bool equal_numbers(struct value a, struct value b)
{
    if (a.kind == VALUE_FLOAT || b.kind == VALUE_FLOAT)
        return value_number(a) == value_number(b);
    return value_whole(a) == value_whole(b);
}

static bool equal(struct heap *h, struct value a, struct value b, unsigned depth)
{
    heap_charge(h, 1);
    if (depth == MOST_DEPTH)
        heap_fault(h, -EINVAL, "values that are nested too deeply are compared");
    if (value_is_number(a) && value_is_number(b))
        return equal_numbers(a, b);
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return true;
    case VALUE_STRING:
        heap_charge(h, a.bytes / 64);
        return a.bytes == b.bytes && (!a.bytes || memcmp(a.text, b.text, a.bytes) == 0);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return equal_lists(h, a.list, b.list, depth + 1);
    case VALUE_DICT:
        return equal_dicts(h, a.dict, b.dict, depth + 1);
    default:
        return a.dict == b.dict; /* the same thing, whatever it is */
    }
}

bool value_equal(struct heap *h, struct value a, struct value b)
{
    return equal(h, a, b, 0);
}

static int compare_texts(struct value a, struct value b)
{
    size_t n = a.bytes < b.bytes ? a.bytes : b.bytes;
    int order = n ? memcmp(a.text, b.text, n) : 0;
    return order ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static int compare(struct heap *h, struct value a, struct value b, unsigned depth)
{
    heap_charge(h, 1);
    value_need(h, a);
    value_need(h, b);
    if (depth == MOST_DEPTH)
        heap_fault(h, -EINVAL, "values that are nested too deeply are compared");
    if (value_is_number(a) && value_is_number(b)) {
        if (a.kind == VALUE_FLOAT || b.kind == VALUE_FLOAT)
            return (value_number(a) > value_number(b)) - (value_number(a) < value_number(b));
        return (value_whole(a) > value_whole(b)) - (value_whole(a) < value_whole(b));
    }
    if (a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
        heap_charge(h, a.bytes / 64);
        return compare_texts(a, b);
    }
    if (a.kind != b.kind || !value_is_list(a))
        heap_fault(h, -EINVAL, "'%s' and '%s' cannot be compared", value_type(a), value_type(b));
    for (size_t i = 0; i < a.list->n && i < b.list->n; i++)
        if (!value_equal(h, a.list->items[i], b.list->items[i]))
            return compare(h, a.list->items[i], b.list->items[i], depth + 1);
    return (a.list->n > b.list->n) - (a.list->n < b.list->n);
}

int value_compare(struct heap *h, struct value a, struct value b)
{
    return compare(h, a, b, 0);
}

bool value_contains(struct heap *h, struct value all, struct value one)
{
    switch (all.kind) {
    case VALUE_UNDEFINED:
        return false;
    case VALUE_STRING:
        value_need(h, one);
        if (one.kind != VALUE_STRING)
            heap_fault(h, -EINVAL, "'in <string>' requires string as left operand, not %s",
                       value_type(one));
        heap_charge(h, all.bytes / (one.bytes > 2 ? 16 : 64)); /* short ones are found fast */
        return !one.bytes || (all.bytes && memmem(all.text, all.bytes, one.text, one.bytes));
    case VALUE_DICT:
        return dict_find(h, all.dict, one) != NULL;
    case VALUE_LIST:
    case VALUE_TUPLE:
        for (size_t i = 0; i < all.list->n; i++)
            if (value_equal(h, all.list->items[i], one))
                return true;
        return false;
    default:
        heap_fault(h, -EINVAL, "argument of type '%s' is not iterable", value_type(all));
    }
}

/* Merges from[at, middle) and from[middle, end) into to[at, end). */
static void merge(struct heap *h, const struct entry *from, struct entry *to, const size_t at[3],
                  bool reverse)
{
    size_t a = at[0], middle = at[1], b = at[1], end = at[2];
    for (size_t i = a; i < end; i++) {
        bool left = b == end;
        if (a < middle && b < end) {
            int order = value_compare(h, from[a].key, from[b].key);
            left = reverse ? order >= 0 : order <= 0;
        }
        to[i] = left ? from[a++] : from[b++];
    }
}

void entries_sort(struct heap *h, struct entry *entries, size_t n, bool reverse)
{
    struct entry *from = entries, *to = heap_take(h, n * sizeof(*to));
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t at = 0; at < n; at += 2 * width) {
            size_t middle = n - at < width ? n : at + width;
            size_t end = n - middle < width ? n : middle + width;
            merge(h, from, to, (const size_t[]){at, middle, end}, reverse);
        }
        struct entry *other = from;
        from = to;
        to = other;
    }
    if (from != entries && n)
        memcpy(entries, from, n * sizeof(*entries));
}

/* ---- parts ----------------------------------------------------------------------------------- */

size_t text_step(const char *text, size_t bytes)
{
    uint32_t code;
    if ((unsigned char)*text < 0x80)
        return 1;
    int step = utf8_step(text, bytes, &code);
    return step > 0 ? (size_t)step : 1;
}

size_t text_length(const char *text, size_t bytes)
{
    size_t n = 0;
    for (size_t at = 0; at < bytes; n++)
        at += text_step(text + at, bytes - at);
    return n;
}

size_t text_offset(const char *text, size_t bytes, size_t i)
{
    size_t at = 0;
    for (; at < bytes && i; i--)
        at += text_step(text + at, bytes - at);
    return at;
}

struct list *value_items(struct heap *h, struct value v)
{
    struct list *l = v.list;
    if (value_is_list(v))
        return l;
    l = heap_take(h, sizeof(*l));
    if (v.kind == VALUE_STRING) {
        heap_charge(h, v.bytes);
        for (size_t at = 0, n; at < v.bytes; at += n) {
            n = text_step(v.text + at, v.bytes - at);
            list_push(h, l, value_slice(v, at, n));
        }
    } else if (v.kind == VALUE_DICT) {
        heap_charge(h, v.dict->n);
        for (size_t i = 0; i < v.dict->n; i++)
            list_push(h, l, v.dict->entries[i].key);
    } else if (v.kind != VALUE_UNDEFINED) {
        heap_fault(h, -EINVAL, "'%s' object is not iterable", value_type(v));
    }
    return l;
}

size_t value_length(struct heap *h, struct value v)
{
    switch (v.kind) {
    case VALUE_UNDEFINED:
        return 0;
    case VALUE_STRING:
        heap_charge(h, v.bytes / 8);
        return text_length(v.text, v.bytes);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return v.list->n;
    case VALUE_DICT:
        return v.dict->n;
    default:
        heap_fault(h, -EINVAL, "object of type '%s' has no len()", value_type(v));
    }
}
