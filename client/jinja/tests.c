/* Tests: {% if x is string %}. */
#include "client/jinja/eval.h"

#include <errno.h>

#define TEST(name) static struct value name(struct eval *e, const struct call *c)

BUILTIN(is_defined, value_bool(c->self.kind != VALUE_UNDEFINED))
BUILTIN(is_undefined, value_bool(c->self.kind == VALUE_UNDEFINED))
BUILTIN(is_none, value_bool(c->self.kind == VALUE_NONE))
BUILTIN(is_boolean, value_bool(c->self.kind == VALUE_BOOL))
BUILTIN(is_true, value_bool(c->self.kind == VALUE_BOOL && c->self.truth))
BUILTIN(is_false, value_bool(c->self.kind == VALUE_BOOL && !c->self.truth))
BUILTIN(is_integer, value_bool(c->self.kind == VALUE_INTEGER))
BUILTIN(is_float, value_bool(c->self.kind == VALUE_FLOAT))
BUILTIN(is_number, value_bool(value_is_number(c->self)))
BUILTIN(is_string, value_bool(c->self.kind == VALUE_STRING))
BUILTIN(is_mapping, value_bool(c->self.kind == VALUE_DICT))
BUILTIN(is_sequence, value_bool(c->self.kind == VALUE_STRING || c->self.kind == VALUE_DICT ||
                                value_is_list(c->self)))
BUILTIN(is_iterable, value_bool(c->self.kind == VALUE_STRING || c->self.kind == VALUE_DICT ||
                                c->self.kind == VALUE_UNDEFINED || value_is_list(c->self)))
BUILTIN(is_callable, value_bool(c->self.kind == VALUE_MACRO || c->self.kind == VALUE_BUILTIN ||
                                c->self.kind == VALUE_METHOD || c->self.kind == VALUE_LOOP))
BUILTIN(is_filter, value_bool(c->a[0].kind == VALUE_ABSENT && c->self.kind == VALUE_STRING &&
                              filters_find(c->self.text, c->self.bytes) != NULL))
BUILTIN(is_test,
        value_bool(c->self.kind == VALUE_STRING && tests_find(c->self.text, c->self.bytes)))
BUILTIN(is_lower, value_bool(text_is_case(e, self_string(e, c), 'l')))
BUILTIN(is_upper, value_bool(text_is_case(e, self_string(e, c), 'u')))

static int64_t remainder_of(struct eval *e, const struct call *c, int64_t by)
{
    if (c->self.kind != VALUE_INTEGER && c->self.kind != VALUE_BOOL)
        heap_fault(e->heap, -EINVAL, "a number is wanted, not %s", value_type(c->self));
    if (!by)
        heap_fault(e->heap, -EINVAL, "division by zero");
    return by == -1 ? 0 : value_whole(c->self) % by;
}

BUILTIN(is_odd, value_bool(remainder_of(e, c, 2) != 0))
BUILTIN(is_even, value_bool(remainder_of(e, c, 2) == 0))
BUILTIN(is_divisible, value_bool(remainder_of(e, c, arg_integer(e, c, 0, 0)) == 0))
BUILTIN(is_equal, value_bool(value_equal(e->heap, c->self, c->a[0])))
BUILTIN(is_not_equal, value_bool(!value_equal(e->heap, c->self, c->a[0])))

TEST(is_same)
{
    struct value a = c->self, b = c->a[0];
    if (a.kind != b.kind)
        return value_bool(false);
    if (a.kind == VALUE_LIST || a.kind == VALUE_TUPLE || a.kind == VALUE_DICT)
        return value_bool(a.list == b.list);
    return value_bool(value_equal(e->heap, a, b));
}

BUILTIN(is_in, value_bool(value_contains(e->heap, c->a[0], c->self)))
BUILTIN(is_greater, value_bool(value_compare(e->heap, c->self, c->a[0]) > 0))
BUILTIN(is_at_least, value_bool(value_compare(e->heap, c->self, c->a[0]) >= 0))
BUILTIN(is_less, value_bool(value_compare(e->heap, c->self, c->a[0]) < 0))
BUILTIN(is_at_most, value_bool(value_compare(e->heap, c->self, c->a[0]) <= 0))

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
