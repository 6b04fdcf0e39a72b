/* Operators: arithmetic, comparison, attributes and items. */
#include "client/jinja/eval.h"

#include <errno.h>
#include <string.h>

static const char *op_name(unsigned op, char text[3])
{
    text[0] = (char)op;
    text[1] = (char)(op >> 8);
    text[2] = 0;
    return text;
}

_Noreturn static void no_operator(struct eval *e, unsigned op, struct value a, struct value b)
{
    char text[3];
    value_need(e->heap, a);
    value_need(e->heap, b);
    if (op == '+' && a.kind == VALUE_STRING)
        heap_fault(e->heap, -EINVAL, "can only concatenate str (not \"%s\") to str", value_type(b));
    heap_fault(e->heap, -EINVAL, "unsupported operand type(s) for %s: '%s' and '%s'",
               op_name(op, text), value_type(a), value_type(b));
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

/* What floor_divide leaves: it has the sign of b. */
static int64_t floor_remainder(int64_t a, int64_t b)
{
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Without libm, which would cost the command a library to load. */
double value_floor(double number)
{
    if (!(number > -0x1p52 && number < 0x1p52))
        return number; /* whole already */
    double whole = (double)(int64_t)number;
    return whole - (whole > number);
}

static double float_power(struct eval *e, double a, double b)
{
    double r = 1;
    if (b != value_floor(b) || b < -1024 || b > 1024)
        heap_fault(e->heap, -EINVAL, "** takes whole exponents up to 1024");
    heap_charge(e->heap, (size_t)(b < 0 ? -b : b) / 32);
    for (int i = (int)(b < 0 ? -b : b); i > 0; i--)
        r *= a;
    return b < 0 ? 1 / r : r;
}

static struct value float_op(struct eval *e, unsigned op, double a, double b)
{
    bool divides = op == '/' || op == OP2('/', '/') || op == '%';
    if (divides && b == 0)
        heap_fault(e->heap, -EINVAL, "division by zero");
    switch (op) {
    case '+':
        return value_float(a + b);
    case '-':
        return value_float(a - b);
    case '*':
        return value_float(a * b);
    case '/':
        return value_float(a / b);
    case OP2('/', '/'):
        return value_float(value_floor(a / b));
    case '%':
        return value_float(a - b * value_floor(a / b));
    default:
        return value_float(float_power(e, a, b));
    }
}

static bool power(int64_t a, int64_t b, int64_t *ret)
{
    *ret = 1;
    if (b > 64 && a != 0 && a != 1 && a != -1)
        return true;
    if (b > 64)
        b = 64 + b % 2;
    for (; b > 0; b--)
        if (__builtin_mul_overflow(*ret, a, ret))
            return true;
    return false;
}

static struct value integer_op(struct eval *e, unsigned op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool over = false;
    if ((op == '%' || op == OP2('/', '/')) && b == 0)
        heap_fault(e->heap, -EINVAL, "division by zero");
    if (op == '/' || (op == OP2('*', '*') && b < 0))
        return float_op(e, op, (double)a, (double)b);
    switch (op) {
    case '+':
        over = __builtin_add_overflow(a, b, &r);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case OP2('/', '/'):
        over = a == INT64_MIN && b == -1;
        r = over ? 0 : floor_divide(a, b);
        break;
    case '%':
        r = b == -1 ? 0 : floor_remainder(a, b);
        break;
    default:
        over = power(a, b, &r);
    }
    if (over)
        heap_fault(e->heap, -EINVAL, "a number is too large");
    return value_integer(r);
}

static struct value join_lists(struct eval *e, struct value a, struct value b)
{
    struct value r = value_list(e->heap);
    r.kind = a.kind;
    list_extend(e->heap, r.list, a.list->items, a.list->n);
    list_extend(e->heap, r.list, b.list->items, b.list->n);
    return r;
}

static struct value repeat(struct eval *e, struct value of, int64_t times)
{
    if (of.kind == VALUE_STRING) {
        struct buf b = {.heap = e->heap};
        for (int64_t i = 0; of.bytes && i < times; i++)
            buf_string(&b, of);
        return buf_value(&b);
    }
    struct value r = value_list(e->heap);
    r.kind = of.kind;
    for (int64_t i = 0; of.list->n && i < times; i++)
        list_extend(e->heap, r.list, of.list->items, of.list->n);
    return r;
}

static bool is_whole(struct value v)
{
    return v.kind == VALUE_INTEGER || v.kind == VALUE_BOOL;
}

static bool is_sequence(struct value v)
{
    return v.kind == VALUE_STRING || value_is_list(v);
}

struct value op_binary(struct eval *e, unsigned op, struct value a, struct value b)
{
    if (op == '%' && a.kind == VALUE_STRING)
        return text_format_percent(e, a, b);
    if (is_whole(a) && is_whole(b))
        return integer_op(e, op, value_whole(a), value_whole(b));
    if (value_is_number(a) && value_is_number(b))
        return float_op(e, op, value_number(a), value_number(b));
    if (op == '*' && is_sequence(a) && is_whole(b))
        return repeat(e, a, value_whole(b));
    if (op == '*' && is_whole(a) && is_sequence(b))
        return repeat(e, b, value_whole(a));
    if (op == '+' && a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
        struct buf s = {.heap = e->heap};
        buf_string(&s, a);
        buf_string(&s, b);
        return buf_value(&s);
    }
    if (op == '+' && value_is_list(a) && a.kind == b.kind)
        return join_lists(e, a, b);
    no_operator(e, op, a, b);
}

bool op_compare(struct eval *e, unsigned op, struct value a, struct value b)
{
    switch (op) {
    case OP2('=', '='):
        return value_equal(e->heap, a, b);
    case OP2('!', '='):
        return !value_equal(e->heap, a, b);
    case OP_IN:
        return value_contains(e->heap, b, a);
    case OP_NOT_IN:
        return !value_contains(e->heap, b, a);
    default:
        break;
    }
    int order = value_compare(e->heap, a, b);
    if (op == '<')
        return order < 0;
    if (op == '>')
        return order > 0;
    return op == OP2('<', '=') ? order <= 0 : order >= 0;
}

/* ---- attributes and items -------------------------------------------------------------------- */

static struct value loop_attribute(struct eval *e, const struct loop *l, const char *name,
                                   size_t bytes)
{
    static const char *const names[] = {"index", "index0",   "revindex", "revindex0",
                                        "first", "last",     "length",   "previtem",
                                        "depth", "nextitem", "depth0"};
    int64_t at = (int64_t)l->at, n = (int64_t)l->items->n;
    size_t i = 0, count = sizeof(names) / sizeof(names[0]);
    while (i < count && (strlen(names[i]) != bytes || memcmp(names[i], name, bytes) != 0))
        i++;
    switch (i) {
    case 0:
        return value_integer(at + 1);
    case 1:
        return value_integer(at);
    case 2:
        return value_integer(n - at);
    case 3:
        return value_integer(n - at - 1);
    case 4:
        return value_bool(at == 0);
    case 5:
        return value_bool(at + 1 == n);
    case 6:
        return value_integer(n);
    case 7:
        return at > 0 ? l->items->items[at - 1] : value_undefined("loop.previtem", 13);
    case 8:
        return value_integer(l->depth + 1);
    case 9:
        return at + 1 < n ? l->items->items[at + 1] : value_undefined("loop.nextitem", 13);
    case 10:
        return value_integer(l->depth);
    default:
        (void)e;
        return value_undefined(name, bytes);
    }
}

struct value get_attribute(struct eval *e, struct value v, const char *name, size_t bytes)
{
    value_need(e->heap, v);
    const struct builtin *b = methods_find((enum value_kind)v.kind, name, bytes);
    if (b) {
        struct method *m = heap_take(e->heap, sizeof(*m));
        *m = (struct method){.self = v, .builtin = b};
        return (struct value){.kind = VALUE_METHOD, .method = m};
    }
    if (v.kind == VALUE_DICT || v.kind == VALUE_NAMESPACE) {
        struct value *found = dict_find(e->heap, v.dict, value_text(name, bytes));
        if (found)
            return *found;
    }
    if (v.kind == VALUE_LOOP)
        return loop_attribute(e, v.loop, name, bytes);
    return value_undefined(name, bytes);
}

static struct value list_item(const struct list *l, int64_t i)
{
    if (i < 0)
        i += (int64_t)l->n;
    return i >= 0 && (size_t)i < l->n ? l->items[i] : value_undefined("list item", 9);
}

static struct value character(struct eval *e, struct value s, int64_t i)
{
    int64_t n = (int64_t)value_length(e->heap, s);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return value_undefined("character", 9);
    size_t at = text_offset(s.text, s.bytes, (size_t)i);
    return value_slice(s, at, text_step(s.text + at, s.bytes - at));
}

struct value get_item(struct eval *e, struct value v, struct value key)
{
    value_need(e->heap, v);
    if (v.kind == VALUE_DICT) {
        struct value *found = dict_find(e->heap, v.dict, key);
        if (found)
            return *found;
    }
    if (is_whole(key) && value_is_list(v))
        return list_item(v.list, value_whole(key));
    if (is_whole(key) && v.kind == VALUE_STRING)
        return character(e, v, value_whole(key));
    if (key.kind == VALUE_STRING)
        return get_attribute(e, v, key.text, key.bytes);
    value_need(e->heap, key);
    return value_undefined("item", 4);
}

struct value get_path(struct eval *e, struct value v, struct value path)
{
    if (path.kind != VALUE_STRING)
        return get_item(e, v, path);
    for (size_t at = 0; at <= path.bytes;) {
        const char *part = path.text + at;
        const char *dot = at < path.bytes ? memchr(part, '.', path.bytes - at) : NULL;
        size_t bytes = dot ? (size_t)(dot - part) : path.bytes - at;
        int64_t index;
        bool digits = text_is_index(part, bytes, &index);
        heap_charge(e->heap, 1 + bytes / 64);
        v = get_item(e, v, digits ? value_integer(index) : value_text(part, bytes));
        at += bytes + 1;
    }
    return v;
}
