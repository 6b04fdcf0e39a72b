/* Formats: 'x %s' % y, the filter format, and 'x {}'.format(y). */
#include "client/jinja/eval.h"
#include "client/jinja/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void pad(struct buf *b, struct value s, int64_t width, bool left, char fill)
{
    int64_t n = (int64_t)text_length(s.text, s.bytes);
    if (left)
        buf_string(b, s);
    for (; n < width; n++)
        buf_add(b, &fill, 1, ORIGIN_TEMPLATE);
    if (!left)
        buf_string(b, s);
}

/* Formatting costs what the widths in the flags say. */
static void charge_width(struct eval *e, const char *flags)
{
    size_t number = 0;
    for (const char *d = flags; *d; d++) {
        number = *d >= '0' && *d <= '9' ? number * 10 + (size_t)(*d - '0') : 0;
        heap_charge(e->heap, number / 16);
    }
}

static int print_number(char *text, size_t bytes, const char *format, struct value v)
{
    return v.kind == VALUE_FLOAT ? snprintf(text, bytes, format, v.number)
                                 : snprintf(text, bytes, format, (long long)v.integer);
}

enum { MOST_DIGITS = 1100 }; /* of a float; what follows are zeros */

static void put_number(struct buf *b, const char *format, struct value v)
{
    int bytes = print_number(NULL, 0, format, v);
    if (bytes < 0)
        heap_fault(b->heap, -EINVAL, "unsupported format");
    if (v.kind == VALUE_FLOAT) /* the digits of large ones are dear */
        heap_charge(b->heap, 4 * (size_t)(bytes < MOST_DIGITS ? bytes : MOST_DIGITS));
    char *text = heap_take(b->heap, (size_t)bytes + 1);
    print_number(text, (size_t)bytes + 1, format, v);
    buf_add(b, text, (size_t)bytes, ORIGIN_TEMPLATE);
}

/* One % conversion with what is between % and its letter: flags, width, precision. */
static void convert(struct eval *e, struct buf *b, const char *flags, char letter, struct value v)
{
    char format[48];
    struct buf one = {.heap = e->heap};
    value_need(e->heap, v);
    if (letter == 's' || letter == 'r') {
        if (letter == 's')
            print_value(&one, v);
        else
            print_repr(&one, v);
        int64_t width = 0;
        bool left = strchr(flags, '-') != NULL;
        for (const char *d = flags; *d && *d != '.'; d++)
            if (*d >= '0' && *d <= '9')
                width = width * 10 + (*d - '0');
        struct value shown = buf_value(&one);
        const char *dot = strchr(flags, '.');
        if (dot) /* a precision: at most that many characters */
            shown = value_slice(
                shown, 0, text_offset(shown.text, shown.bytes, (size_t)strtoul(dot + 1, NULL, 10)));
        pad(b, shown, width, left, ' ');
        return;
    }
    if (!value_is_number(v))
        heap_fault(e->heap, -EINVAL, "%%%c format: a number is required, not %s", letter,
                   value_type(v));
    charge_width(e, flags);
    if (strchr("di", letter)) {
        if (v.kind == VALUE_FLOAT && !(v.number > -9e18 && v.number < 9e18))
            heap_fault(e->heap, -EINVAL, "a number is too large");
        v = value_integer(v.kind == VALUE_FLOAT ? (int64_t)v.number : value_whole(v));
        snprintf(format, sizeof(format), "%%%slld", flags);
    } else if (strchr("xXo", letter) && v.kind != VALUE_FLOAT) {
        v = value_integer(value_whole(v));
        snprintf(format, sizeof(format), "%%%sll%c", flags, letter);
    } else {
        v = value_float(value_number(v));
        letter = strchr("xXo", letter) ? 'f' : letter;
        snprintf(format, sizeof(format), "%%%s%c", flags, letter);
    }
    put_number(b, format, v);
}

/* The values of a format, by place or by name. */
struct source {
    struct value all; /* a tuple, a dict, or one value */
    size_t next;
};

static struct value next_value(struct eval *e, struct source *s)
{
    bool several = s->all.kind == VALUE_TUPLE;
    if (several ? s->next >= s->all.list->n : s->next > 0)
        heap_fault(e->heap, -EINVAL, "not enough arguments for format string");
    s->next++;
    return several ? s->all.list->items[s->next - 1] : s->all;
}

/* What "%(key)s" names. */
static struct value member(struct eval *e, struct value all, const char *key, size_t bytes)
{
    value_need(e->heap, all);
    struct value *found =
        all.kind == VALUE_DICT ? dict_find(e->heap, all.dict, value_text(key, bytes)) : NULL;
    return found ? *found : value_undefined(key, bytes);
}

/* The conversion after a % at f[at]; returns where it ends. */
static size_t percent_one(struct eval *e, struct buf *b, struct value f, size_t at,
                          struct source *s)
{
    char flags[8] = "";
    size_t n = 0;
    struct value v = {.kind = VALUE_ABSENT};
    if (at < f.bytes && f.text[at] == '(') {
        const char *end = memchr(f.text + at, ')', f.bytes - at);
        if (!end)
            heap_fault(e->heap, -EINVAL, "incomplete format key");
        size_t bytes = (size_t)(end - f.text) - at - 1;
        v = member(e, s->all, f.text + at + 1, bytes);
        at += bytes + 2;
    }
    while (at < f.bytes && strchr("-+ #.0123456789", f.text[at]) && f.text[at]) {
        if (n == sizeof(flags) - 1)
            heap_fault(e->heap, -EINVAL, "a format has too many digits");
        flags[n++] = f.text[at++];
    }
    char letter = at < f.bytes ? f.text[at] : 0;
    if (letter == '%') {
        buf_literal(b, "%");
        return at + 1;
    }
    if (!letter || !strchr("sdirfFeEgGxXo", letter))
        heap_fault(e->heap, -EINVAL, "unsupported format character");
    if (v.kind == VALUE_ABSENT)
        v = next_value(e, s);
    convert(e, b, flags, letter, v);
    return at + 1;
}

struct value text_format_percent(struct eval *e, struct value format, struct value arguments)
{
    struct buf b = {.heap = e->heap};
    struct source s = {.all = arguments};
    for (size_t at = 0; at < format.bytes;) {
        const char *mark = memchr(format.text + at, '%', format.bytes - at);
        size_t stop = mark ? (size_t)(mark - format.text) : format.bytes;
        buf_string(&b, value_slice(format, at, stop - at));
        at = mark ? percent_one(e, &b, format, stop + 1, &s) : stop;
    }
    if (s.all.kind == VALUE_TUPLE && s.next < s.all.list->n)
        heap_fault(e->heap, -EINVAL, "not all arguments converted during string formatting");
    return buf_value(&b);
}

/* What {field} names: nothing the next, a number, or a name. */
static struct value braces_value(struct eval *e, struct value field, const struct args *args,
                                 size_t *next)
{
    int64_t index;
    bool digits = text_is_index(field.text, field.bytes, &index);
    if (!field.bytes)
        index = (int64_t)(*next)++;
    if ((digits || !field.bytes) && (size_t)index < args->n)
        return args->at[index];
    heap_charge(e->heap, args->n_named / 8);
    for (size_t i = 0; i < args->n_named; i++)
        if (args->named[i].name->bytes == field.bytes &&
            memcmp(args->named[i].name->text, field.text, field.bytes) == 0)
            return args->named[i].value;
    heap_fault(e->heap, -EINVAL, "a format names an argument that was not given");
}

struct value text_format_braces(struct eval *e, struct value format, const struct args *args)
{
    struct buf b = {.heap = e->heap};
    size_t next = 0;
    for (size_t at = 0; at < format.bytes;) {
        char c = format.text[at];
        bool doubled = at + 1 < format.bytes && format.text[at + 1] == c;
        if ((c != '{' && c != '}') || doubled) {
            buf_string(&b, value_slice(format, at, 1));
            at += (c == '{' || c == '}') && doubled ? 2 : 1;
            continue;
        }
        const char *end = memchr(format.text + at, '}', format.bytes - at);
        if (c == '}' || !end)
            heap_fault(e->heap, -EINVAL, "a single brace in a format");
        size_t bytes = (size_t)(end - format.text) - at - 1;
        struct value field = value_slice(format, at + 1, bytes);
        if (bytes && (memchr(field.text, ':', bytes) || memchr(field.text, '!', bytes)))
            heap_fault(e->heap, -EINVAL, "format() knows {} and {name} only");
        print_value(&b, braces_value(e, field, args, &next));
        at += bytes + 2;
    }
    return buf_value(&b);
}
