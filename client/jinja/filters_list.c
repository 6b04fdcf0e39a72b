/* Filters over lists: {{ messages | selectattr('role', 'equalto', 'user') | list }}. */
#include "client/jinja/eval.h"

#include <errno.h>
#include <string.h>

#define FILTER(name) static struct value name(struct eval *e, const struct call *c)

static struct value string_case(struct eval *e, struct value v, bool keep)
{
    return v.kind == VALUE_STRING && !keep ? text_case(e, v, 'l') : v;
}

FILTER(first)
{
    struct list *l = value_items(e->heap, c->self);
    return l->n ? l->items[0] : value_undefined("first item", 10);
}

FILTER(last)
{
    struct list *l = value_items(e->heap, c->self);
    return l->n ? l->items[l->n - 1] : value_undefined("last item", 9);
}

FILTER(list)
{
    struct value all = value_list(e->heap);
    struct list *l = value_items(e->heap, c->self);
    list_extend(e->heap, all.list, l->items, l->n);
    return all;
}

FILTER(join)
{
    struct list *l = value_items(e->heap, c->self);
    struct value by = c->a[0].kind == VALUE_ABSENT ? value_literal("") : print_string(e, c->a[0]);
    struct buf b = {.heap = e->heap};
    for (size_t i = 0; i < l->n; i++) {
        struct value v = l->items[i];
        if (c->a[1].kind != VALUE_ABSENT)
            v = get_path(e, v, c->a[1]);
        if (i)
            buf_string(&b, by);
        print_value(&b, v);
    }
    return buf_value(&b);
}

FILTER(reverse)
{
    struct list *l = value_items(e->heap, c->self);
    struct value all = value_list(e->heap);
    struct buf b = {.heap = e->heap};
    heap_charge(e->heap, l->n);
    for (size_t i = l->n; i-- > 0;) {
        if (c->self.kind == VALUE_STRING)
            buf_string(&b, l->items[i]);
        else
            list_push(e->heap, all.list, l->items[i]);
    }
    return c->self.kind == VALUE_STRING ? buf_value(&b) : all;
}

/* Items with what they are sorted by. */
static struct entry *keyed(struct eval *e, const struct list *l, struct value attribute,
                           bool case_sensitive)
{
    struct entry *entries = heap_take(e->heap, l->n * sizeof(*entries));
    for (size_t i = 0; i < l->n; i++) {
        struct value key = l->items[i];
        if (attribute.kind != VALUE_ABSENT && attribute.kind != VALUE_NONE)
            key = get_path(e, key, attribute);
        entries[i] = (struct entry){string_case(e, key, case_sensitive), l->items[i]};
    }
    return entries;
}

static struct value sorted(struct eval *e, struct entry *entries, size_t n, bool reverse)
{
    struct value all = value_list(e->heap);
    entries_sort(e->heap, entries, n, reverse);
    for (size_t i = 0; i < n; i++)
        list_push(e->heap, all.list, entries[i].value);
    return all;
}

FILTER(sort)
{
    struct list *l = value_items(e->heap, c->self);
    struct entry *entries = keyed(e, l, c->a[2], arg_bool(c, 1, false));
    return sorted(e, entries, l->n, arg_bool(c, 0, false));
}

FILTER(dictsort)
{
    struct value pairs = dict_pairs(e, c->self);
    bool by_value = value_is(arg_string(e, c, 1, "key"), "value");
    struct entry *entries = keyed(e, pairs.list, value_integer(by_value), arg_bool(c, 0, false));
    return sorted(e, entries, pairs.list->n, arg_bool(c, 2, false));
}

FILTER(unique)
{
    struct list *l = value_items(e->heap, c->self);
    struct entry *entries = keyed(e, l, c->a[1], arg_bool(c, 0, false));
    struct value all = value_list(e->heap), seen = value_list(e->heap);
    for (size_t i = 0; i < l->n; i++)
        if (!value_contains(e->heap, seen, entries[i].key)) {
            list_push(e->heap, seen.list, entries[i].key);
            list_push(e->heap, all.list, entries[i].value);
        }
    return all;
}

static struct value extreme(struct eval *e, const struct call *c, int sign)
{
    struct list *l = value_items(e->heap, c->self);
    struct entry *entries = keyed(e, l, c->a[1], arg_bool(c, 0, false));
    size_t best = 0;
    for (size_t i = 1; i < l->n; i++)
        if (sign * value_compare(e->heap, entries[i].key, entries[best].key) > 0)
            best = i;
    return l->n ? entries[best].value : value_undefined("an item of an empty list", 24);
}

BUILTIN(minimum, extreme(e, c, -1))
BUILTIN(maximum, extreme(e, c, 1))

FILTER(sum)
{
    struct list *l = value_items(e->heap, c->self);
    struct value all = c->a[1].kind == VALUE_ABSENT ? value_integer(0) : c->a[1];
    for (size_t i = 0; i < l->n; i++) {
        bool path = c->a[0].kind != VALUE_ABSENT && c->a[0].kind != VALUE_NONE;
        all = op_binary(e, '+', all, path ? get_path(e, l->items[i], c->a[0]) : l->items[i]);
    }
    return all;
}

FILTER(batch)
{
    struct list *l = value_items(e->heap, c->self);
    struct value all = value_list(e->heap), row = all;
    int64_t n = arg_integer(e, c, 0, 1);
    if (n < 1)
        heap_fault(e->heap, -EINVAL, "batch needs a number above 0");
    for (size_t i = 0; i < l->n; i++) {
        if (i % (size_t)n == 0) {
            row = value_list(e->heap);
            list_push(e->heap, all.list, row);
        }
        list_push(e->heap, row.list, l->items[i]);
    }
    for (; c->a[1].kind != VALUE_ABSENT && l->n && row.list->n < (size_t)n;) {
        heap_charge(e->heap, 1);
        list_push(e->heap, row.list, c->a[1]);
    }
    return all;
}

/* ---- with another filter or a test ----------------------------------------------------------- */

static const struct value *named_argument(struct eval *e, const struct args *a, const char *name)
{
    heap_charge(e->heap, a->n_named / 8);
    for (size_t i = 0; i < a->n_named; i++)
        if (a->named[i].name->bytes == strlen(name) &&
            memcmp(a->named[i].name->text, name, strlen(name)) == 0)
            return &a->named[i].value;
    return NULL;
}

FILTER(map)
{
    const struct args *a = c->given;
    const struct value *path = named_argument(e, a, "attribute");
    const struct value *otherwise = named_argument(e, a, "default");
    struct list *l = value_items(e->heap, c->self);
    struct value all = value_list(e->heap);
    const struct builtin *filter = NULL;
    struct args rest = *a;
    if (!path) {
        if (!a->n || a->at[0].kind != VALUE_STRING)
            heap_fault(e->heap, -EINVAL, "map needs a filter's name or attribute=");
        filter = filters_find(a->at[0].text, a->at[0].bytes);
        if (!filter)
            heap_fault(e->heap, -EINVAL, "no filter is named '%.*s'",
                       (int)(a->at[0].bytes < 64 ? a->at[0].bytes : 64), a->at[0].text);
        rest.at++;
        rest.n--;
    }
    for (size_t i = 0; i < l->n; i++) {
        struct value v = l->items[i];
        eval_deeper(e);
        v = path ? get_path(e, v, *path) : call_builtin(e, filter, v, &rest);
        eval_leave(e);
        if (otherwise && v.kind == VALUE_UNDEFINED)
            v = *otherwise;
        list_push(e->heap, all.list, v);
    }
    return all;
}

/* Items for which the test holds (or not); of an attribute of theirs where there is one. */
static struct value choose(struct eval *e, const struct call *c, bool attribute, bool wanted)
{
    const struct args *a = c->given;
    struct list *l = value_items(e->heap, c->self);
    struct value all = value_list(e->heap);
    struct args rest = {.at = a->at, .n = a->n};
    const struct builtin *test = NULL;
    if (attribute) {
        if (!rest.n)
            heap_fault(e->heap, -EINVAL, "selectattr needs an attribute's name");
        rest.at++;
        rest.n--;
    }
    if (rest.n) {
        struct value name = *rest.at++;
        rest.n--;
        test = name.kind == VALUE_STRING ? tests_find(name.text, name.bytes) : NULL;
        if (!test)
            heap_fault(e->heap, -EINVAL, "no test has the name given to select");
    }
    for (size_t i = 0; i < l->n; i++) {
        struct value v = attribute ? get_path(e, l->items[i], a->at[0]) : l->items[i];
        heap_charge(e->heap, 1);
        if (test)
            v = call_builtin(e, test, v, &rest);
        if (value_true(v) == wanted)
            list_push(e->heap, all.list, l->items[i]);
    }
    return all;
}

BUILTIN(select, choose(e, c, false, true))
BUILTIN(reject, choose(e, c, false, false))
BUILTIN(selectattr, choose(e, c, true, true))
BUILTIN(rejectattr, choose(e, c, true, false))

/* Tuples of a key and the items that have it, sorted by it. */
FILTER(groupby)
{
    struct list *l = value_items(e->heap, c->self);
    struct entry *entries = keyed(e, l, c->a[0], true);
    struct value all = value_list(e->heap), group = all;
    entries_sort(e->heap, entries, l->n, false);
    for (size_t i = 0; i < l->n; i++) {
        if (i == 0 || !value_equal(e->heap, entries[i].key, entries[i - 1].key)) {
            struct value pair = value_tuple(e->heap);
            group = value_list(e->heap);
            list_push(e->heap, pair.list, entries[i].key);
            list_push(e->heap, pair.list, group);
            list_push(e->heap, all.list, pair);
        }
        list_push(e->heap, group.list, entries[i].value);
    }
    return all;
}

const struct builtin list_filters[] = {
    {"first", first, 0, ""},
    {"last", last, 0, ""},
    {"list", list, 0, ""},
    {"join", join, 0, "d attribute"},
    {"map", map, 0, "*"},
    {"select", select, 0, "*"},
    {"reject", reject, 0, "*"},
    {"selectattr", selectattr, 0, "*"},
    {"rejectattr", rejectattr, 0, "*"},
    {"reverse", reverse, 0, ""},
    {"sort", sort, 0, "reverse case_sensitive attribute"},
    {"dictsort", dictsort, 0, "case_sensitive by reverse"},
    {"unique", unique, 0, "case_sensitive attribute"},
    {"min", minimum, 0, "case_sensitive attribute"},
    {"max", maximum, 0, "case_sensitive attribute"},
    {"sum", sum, 0, "attribute start"},
    {"batch", batch, 1, "linecount fill_with"},
    {"groupby", groupby, 1, "attribute"},
};

const size_t n_list_filters = sizeof(list_filters) / sizeof(list_filters[0]);
