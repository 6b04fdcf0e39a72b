/* Methods that search and split strings: 'a b'.split(), 'text'.find('x'). */
#include "client/jinja/eval.h"
#include "client/jinja/text.h"

#include <errno.h>
#include <string.h>

#define METHOD(name) static struct value name(struct eval *e, const struct call *c)

/* Byte offset of part in s, the first or the last; SIZE_MAX for none. */
static size_t search(struct eval *e, struct value s, struct value part, bool last)
{
    heap_charge(e->heap, 1 + s.bytes / 16);
    if (part.bytes > s.bytes)
        return SIZE_MAX;
    if (!part.bytes)
        return last ? s.bytes : 0;
    const char *found = memmem(s.text, s.bytes, part.text, part.bytes);
    size_t at = found ? (size_t)(found - s.text) : SIZE_MAX;
    while (last && found) {
        heap_charge(e->heap, 1 + part.bytes / 16); /* they may overlap */
        at = (size_t)(found - s.text);
        found = memmem(found + 1, s.bytes - at - 1, part.text, part.bytes);
    }
    return at;
}

static struct value find_in(struct eval *e, const struct call *c, bool last)
{
    size_t at = search(e, c->self, arg_string(e, c, 0, ""), last);
    return value_integer(at == SIZE_MAX ? -1 : (int64_t)text_length(c->self.text, at));
}

BUILTIN(find, find_in(e, c, false))
BUILTIN(rfind, find_in(e, c, true))

METHOD(text_index)
{
    struct value at = find_in(e, c, false);
    if (at.integer < 0)
        heap_fault(e->heap, -EINVAL, "substring not found");
    return at;
}

METHOD(text_count)
{
    struct value part = arg_string(e, c, 0, ""), rest = c->self;
    int64_t n = 0;
    if (!part.bytes)
        return value_integer((int64_t)text_length(rest.text, rest.bytes) + 1);
    heap_charge(e->heap, rest.bytes / 16);
    for (const char *found; rest.bytes; n++) {
        found = memmem(rest.text, rest.bytes, part.text, part.bytes);
        if (!found)
            break;
        size_t used = (size_t)(found - rest.text) + part.bytes;
        rest = value_slice(rest, used, rest.bytes - used);
    }
    return value_integer(n);
}

static size_t skip_blanks(struct value s, size_t at, bool blanks)
{
    size_t n;
    while (at < s.bytes && text_is_space(text_code(s.text + at, s.bytes - at, &n)) == blanks)
        at += n;
    return at;
}

static struct value split_blanks(struct eval *e, struct value s, int64_t most)
{
    struct value all = value_list(e->heap);
    heap_charge(e->heap, s.bytes / 4);
    for (size_t at = skip_blanks(s, 0, true); at < s.bytes; most--) {
        size_t stop = most == 0 ? s.bytes : skip_blanks(s, at, false);
        list_push(e->heap, all.list, value_slice(s, at, stop - at));
        at = skip_blanks(s, stop, true);
    }
    return all;
}

/* The last words, at most `most`, after an item that holds all before them, blanks included. */
static struct value rsplit_blanks(struct eval *e, struct value s, int64_t most)
{
    struct value all = split_blanks(e, s, INT64_MAX);
    struct list *words = all.list;
    if (words->n == 0 || (uint64_t)most >= words->n)
        return all;
    size_t skipped = words->n - (size_t)most - 1;
    struct value end = words->items[skipped];
    words->items += skipped;
    words->n -= skipped;
    words->room -= skipped;
    words->items[0] = value_slice(s, 0, (size_t)(end.text - s.text) + end.bytes);
    return all;
}

METHOD(split)
{
    struct value s = c->self;
    int64_t most = arg_integer(e, c, 1, -1);
    if (most < 0) /* any number: it is counted down, but not from the lowest one */
        most = INT64_MAX;
    if (c->a[0].kind == VALUE_ABSENT || c->a[0].kind == VALUE_NONE)
        return split_blanks(e, s, most);
    struct value by = arg_string(e, c, 0, ""), all = value_list(e->heap);
    if (!by.bytes)
        heap_fault(e->heap, -EINVAL, "empty separator");
    heap_charge(e->heap, s.bytes / 16);
    for (; most != 0; most--) {
        const char *found = s.bytes ? memmem(s.text, s.bytes, by.text, by.bytes) : NULL;
        if (!found)
            break;
        size_t at = (size_t)(found - s.text);
        list_push(e->heap, all.list, value_slice(s, 0, at));
        s = value_slice(s, at + by.bytes, s.bytes - at - by.bytes);
        heap_charge(e->heap, 1);
    }
    list_push(e->heap, all.list, s);
    return all;
}

METHOD(rsplit)
{
    struct value s = c->self;
    int64_t most = arg_integer(e, c, 1, -1);
    if (most < 0)
        return split(e, c); /* the side makes no difference */
    if (c->a[0].kind == VALUE_ABSENT || c->a[0].kind == VALUE_NONE)
        return rsplit_blanks(e, s, most);
    struct value by = arg_string(e, c, 0, ""), all = value_list(e->heap);
    if (!by.bytes)
        heap_fault(e->heap, -EINVAL, "empty separator");
    for (; most > 0; most--) {
        size_t at = search(e, s, by, true);
        if (at == SIZE_MAX)
            break;
        list_push(e->heap, all.list, value_slice(s, at + by.bytes, s.bytes - at - by.bytes));
        s = value_slice(s, 0, at);
    }
    list_push(e->heap, all.list, s);
    for (size_t i = 0, k = all.list->n - 1; i < k; i++, k--) {
        struct value other = all.list->items[i];
        all.list->items[i] = all.list->items[k];
        all.list->items[k] = other;
    }
    return all;
}

/* What ends a line for Python. */
static bool ends_line(uint32_t code)
{
    return (code >= '\n' && code <= '\r') || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

METHOD(splitlines)
{
    struct value s = c->self, all = value_list(e->heap);
    bool keep = arg_bool(c, 0, false);
    heap_charge(e->heap, s.bytes / 4);
    for (size_t at = 0; at < s.bytes;) {
        size_t stop = at, n = 0;
        while (stop < s.bytes && !ends_line(text_code(s.text + stop, s.bytes - stop, &n)))
            stop += n;
        size_t next = stop < s.bytes ? stop + n : stop;
        next += next < s.bytes && s.text[stop] == '\r' && s.text[next] == '\n';
        list_push(e->heap, all.list, value_slice(s, at, (keep ? next : stop) - at));
        at = next;
    }
    return all;
}

static struct value partition_at(struct eval *e, const struct call *c, bool last)
{
    struct value s = c->self, by = arg_string(e, c, 0, ""), all = value_tuple(e->heap);
    size_t at = search(e, s, by, last);
    bool there = at != SIZE_MAX;
    if (!there)
        at = last ? 0 : s.bytes;
    size_t used = there ? by.bytes : 0;
    list_push(e->heap, all.list, value_slice(s, 0, at));
    list_push(e->heap, all.list, value_slice(s, at, used));
    list_push(e->heap, all.list, value_slice(s, at + used, s.bytes - at - used));
    return all;
}

BUILTIN(partition, partition_at(e, c, false))
BUILTIN(rpartition, partition_at(e, c, true))

const struct builtin search_methods[] = {
    {"split", split, 0, "sep maxsplit"},
    {"rsplit", rsplit, 0, "sep maxsplit"},
    {"find", find, 1, "sub"},
    {"rfind", rfind, 1, "sub"},
    {"index", text_index, 1, "sub"},
    {"count", text_count, 1, "sub"},
    {"splitlines", splitlines, 0, "keepends"},
    {"partition", partition, 1, "sep"},
    {"rpartition", rpartition, 1, "sep"},
};

const size_t n_search_methods = sizeof(search_methods) / sizeof(search_methods[0]);
