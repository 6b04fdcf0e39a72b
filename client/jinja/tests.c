/* Tests: {% if x is string %}. */
#include "client/jinja/eval.h"

#include <errno.h>

#define TEST(name) static struct value name(struct eval *e, const struct call *c)
#define KIND_TEST(name, condition)                                                                 \
    TEST(name)                                                                                     \
    {                                                                                              \
        (void)e;                                                                                   \
        return value_bool(condition);                                                              \
    }

KIND_TEST(is_defined, c->self.kind != VALUE_UNDEFINED)
KIND_TEST(is_undefined, c->self.kind == VALUE_UNDEFINED)
KIND_TEST(is_none, c->self.kind == VALUE_NONE)
KIND_TEST(is_boolean, c->self.kind == VALUE_BOOL)
KIND_TEST(is_true, c->self.kind == VALUE_BOOL && c->self.truth)
KIND_TEST(is_false, c->self.kind == VALUE_BOOL && !c->self.truth)
KIND_TEST(is_integer, c->self.kind == VALUE_INTEGER)
KIND_TEST(is_float, c->self.kind == VALUE_FLOAT)
KIND_TEST(is_number, value_is_number(c->self))
KIND_TEST(is_string, c->self.kind == VALUE_STRING)
KIND_TEST(is_mapping, c->self.kind == VALUE_DICT)
KIND_TEST(is_sequence,
          c->self.kind == VALUE_STRING || c->self.kind == VALUE_DICT || value_is_list(c->self))
KIND_TEST(is_iterable, c->self.kind == VALUE_STRING || c->self.kind == VALUE_DICT ||
                           c->self.kind == VALUE_UNDEFINED || value_is_list(c->self))
KIND_TEST(is_callable, c->self.kind == VALUE_MACRO || c->self.kind == VALUE_BUILTIN ||
                           c->self.kind == VALUE_METHOD || c->self.kind == VALUE_LOOP)
KIND_TEST(is_filter, c->a[0].kind == VALUE_ABSENT && c->self.kind == VALUE_STRING &&
                         filters_find(c->self.text, c->self.bytes) != NULL)
KIND_TEST(is_test, c->self.kind == VALUE_STRING && tests_find(c->self.text, c->self.bytes) != NULL)

TEST(is_lower)
{
    struct value s = self_string(e, c), low = text_case(e, s, 'l');
    return value_bool(value_equal(e->heap, s, low) &&
                      !value_equal(e->heap, low, text_case(e, s, 'u')));
}

TEST(is_upper)
{
    struct value s = self_string(e, c), up = text_case(e, s, 'u');
    return value_bool(value_equal(e->heap, s, up) &&
                      !value_equal(e->heap, up, text_case(e, s, 'l')));
}

static int64_t remainder_of(struct eval *e, const struct call *c, int64_t by)
{
    if (c->self.kind != VALUE_INTEGER && c->self.kind != VALUE_BOOL)
        heap_fault(e->heap, -EINVAL, "a number is wanted, not %s", value_type(c->self));
    if (!by)
        heap_fault(e->heap, -EINVAL, "division by zero");
    return by == -1 ? 0 : value_whole(c->self) % by;
}

TEST(is_odd)
{
    return value_bool(remainder_of(e, c, 2) != 0);
}

TEST(is_even)
{
    return value_bool(remainder_of(e, c, 2) == 0);
}

TEST(is_divisible)
{
    return value_bool(remainder_of(e, c, arg_integer(e, c, 0, 0)) == 0);
}

TEST(is_equal)
{
    return value_bool(value_equal(e->heap, c->self, c->a[0]));
}

TEST(is_not_equal)
{
    return value_bool(!value_equal(e->heap, c->self, c->a[0]));
}

TEST(is_same)
{
    struct value a = c->self, b = c->a[0];
    if (a.kind != b.kind)
        return value_bool(false);
    if (a.kind == VALUE_LIST || a.kind == VALUE_TUPLE || a.kind == VALUE_DICT)
        return value_bool(a.list == b.list);
    return value_bool(value_equal(e->heap, a, b));
}

TEST(is_in)
{
    return value_bool(value_contains(e->heap, c->a[0], c->self));
}

TEST(is_greater)
{
    return value_bool(value_compare(e->heap, c->self, c->a[0]) > 0);
}

TEST(is_at_least)
{
    return value_bool(value_compare(e->heap, c->self, c->a[0]) >= 0);
}

TEST(is_less)
{
    return value_bool(value_compare(e->heap, c->self, c->a[0]) < 0);
}

TEST(is_at_most)
{
    return value_bool(value_compare(e->heap, c->self, c->a[0]) <= 0);
}

static const struct builtin tests[] = {
    {"defined", is_defined, 0, ""},
    {"undefined", is_undefined, 0, ""},
    {"none", is_none, 0, ""},
    {"string", is_string, 0, ""},
    {"mapping", is_mapping, 0, ""},
    {"iterable", is_iterable, 0, ""},
    {"sequence", is_sequence, 0, ""},
    {"boolean", is_boolean, 0, ""},
    {"true", is_true, 0, ""},
    {"false", is_false, 0, ""},
    {"integer", is_integer, 0, ""},
    {"float", is_float, 0, ""},
    {"number", is_number, 0, ""},
    {"callable", is_callable, 0, ""},
    {"odd", is_odd, 0, ""},
    {"even", is_even, 0, ""},
    {"divisibleby", is_divisible, 1, "num"},
    {"eq", is_equal, 1, "other"},
    {"equalto", is_equal, 1, "other"},
    {"ne", is_not_equal, 1, "other"},
    {"sameas", is_same, 1, "other"},
    {"in", is_in, 1, "seq"},
    {"gt", is_greater, 1, "other"},
    {"greaterthan", is_greater, 1, "other"},
    {"ge", is_at_least, 1, "other"},
    {"lt", is_less, 1, "other"},
    {"lessthan", is_less, 1, "other"},
    {"le", is_at_most, 1, "other"},
    {"==", is_equal, 1, "other"},
    {"!=", is_not_equal, 1, "other"},
    {"lower", is_lower, 0, ""},
    {"upper", is_upper, 0, ""},
    {"filter", is_filter, 0, ""},
    {"test", is_test, 0, ""},
};

const struct builtin *tests_find(const char *name, size_t bytes)
{
    return builtin_find(tests, sizeof(tests) / sizeof(tests[0]), name, bytes);
}
