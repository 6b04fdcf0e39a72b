/* Functions that every template has. */
#include "client/jinja/eval.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define FUNCTION(name) static struct value name(struct eval *e, const struct call *c)

enum { MOST_RANGE = 1000000 };

FUNCTION(range)
{
    int64_t from = arg_integer(e, c, 0, 0), to = arg_integer(e, c, 1, 0);
    int64_t step = arg_integer(e, c, 2, 1);
    struct value all = value_list(e->heap);
    if (c->a[1].kind == VALUE_ABSENT) {
        to = from;
        from = 0;
    }
    if (!step)
        heap_fault(e->heap, -EINVAL, "range() arg 3 must not be zero");
    while (step > 0 ? from < to : from > to) {
        if (all.list->n == MOST_RANGE)
            heap_fault(e->heap, -E2BIG, "a range is too long");
        heap_charge(e->heap, 1);
        list_push(e->heap, all.list, value_integer(from));
        if (__builtin_add_overflow(from, step, &from))
            break;
    }
    return all;
}

/* A dict of the named arguments, on top of those of a dict or a list of pairs. */
FUNCTION(dict)
{
    const struct args *a = c->given;
    struct value all = value_dict(e->heap);
    if (a->n > 1)
        heap_fault(e->heap, -EINVAL, "dict takes one argument and named ones");
    struct value from = a->n ? a->at[0] : all;
    struct list *pairs = from.kind == VALUE_DICT || from.kind == VALUE_NAMESPACE
                             ? dict_pairs(e, from).list
                             : value_items(e->heap, from);
    for (size_t i = 0; i < pairs->n; i++) {
        struct list *pair = value_items(e->heap, pairs->items[i]);
        if (pair->n != 2)
            heap_fault(e->heap, -EINVAL, "dict takes pairs");
        dict_set(e->heap, all.dict, pair->items[0], pair->items[1]);
    }
    for (size_t i = 0; i < a->n_named; i++)
        dict_set(e->heap, all.dict, keyword_text(&a->named[i]), a->named[i].value);
    return all;
}

FUNCTION(namespace)
{
    struct value all = dict(e, c);
    all.kind = VALUE_NAMESPACE;
    return all;
}

FUNCTION(raise_exception)
{
    struct value text = print_string(e, c->a[0]);
    e->heap->line = 0; /* the template speaks for itself */
    heap_fault(e->heap, -EINVAL, "%.*s", (int)(text.bytes < 1000 ? text.bytes : 1000), text.text);
}

FUNCTION(strftime_now)
{
    struct value format = arg_string(e, c, 0, "");
    char pattern[256], text[1024];
    time_t now = (time_t)e->now;
    struct tm tm;
    if (format.bytes >= sizeof(pattern) || !localtime_r(&now, &tm))
        heap_fault(e->heap, -EINVAL, "strftime_now: the format is too long");
    heap_charge(e->heap, 2 * format.bytes);
    if (format.bytes)
        memcpy(pattern, format.text, format.bytes);
    pattern[format.bytes] = 0;
    size_t bytes = strftime(text, sizeof(text), pattern, &tm);
    char *copy = heap_take(e->heap, bytes);
    memcpy(copy, text, bytes);
    struct value v = value_text(copy, bytes);
    v.origin = format.origin == ORIGIN_TEMPLATE ? ORIGIN_TEMPLATE : ORIGIN_INPUT;
    return v;
}

const struct builtin globals[] = {
    {"range", range, 1, "start stop step"},
    {"dict", dict, 0, "*"},
    {"namespace", namespace, 0, "*"},
    {"raise_exception", raise_exception, 1, "message"},
    {"strftime_now", strftime_now, 1, "format"},
};

const size_t n_globals = sizeof(globals) / sizeof(globals[0]);
