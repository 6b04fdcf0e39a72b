/* Operands: what stands between operators, with its calls, filters and tests. */
#include "client/jinja/builtin.h"
#include "client/jinja/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Positional arguments to n->b, named ones to n->c; after the parenthesis. */
static void parse_arguments(struct parser *p, struct node *n)
{
    struct chain positional = {0}, named = {0};
    while (!parser_skip_sign(p, ')')) {
        if (p->t->kind == TOKEN_NAME && p->t[1].kind == TOKEN_SIGN && p->t[1].sign == '=') {
            struct node *k = parser_node(p, NODE_KEYWORD);
            k->name = parser_take_name(p);
            p->t++;
            k->a = parse_expression(p);
            chain_add(&named, k);
        } else if (parser_skip_sign(p, OP2('*', '*'))) {
            chain_add(&named, parser_binary(p, NODE_SPREAD, 0, parse_expression(p), NULL));
        } else if (parser_skip_sign(p, '*')) {
            chain_add(&positional, parser_binary(p, NODE_SPREAD, 0, parse_expression(p), NULL));
        } else {
            if (named.first)
                parser_fault(p, "a named argument");
            chain_add(&positional, parse_expression(p));
        }
        if (!parser_is_sign(p, ')'))
            parser_expect_sign(p, ',');
    }
    n->b = positional.first;
    n->c = named.first;
}

/* Items up to the sign `close`. */
static struct node *parse_items(struct parser *p, unsigned close)
{
    struct chain items = {0};
    while (!parser_skip_sign(p, close)) {
        chain_add(&items, parse_expression(p));
        if (!parser_is_sign(p, close))
            parser_expect_sign(p, ',');
    }
    return items.first;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *n = parser_node(p, NODE_DICT);
    struct chain items = {0};
    while (!parser_skip_sign(p, '}')) {
        chain_add(&items, parse_expression(p));
        parser_expect_sign(p, ':');
        chain_add(&items, parse_expression(p));
        if (!parser_is_sign(p, '}'))
            parser_expect_sign(p, ',');
    }
    n->a = items.first;
    return n;
}

/* Adjacent strings are joined to one. */
static struct node *parse_string(struct parser *p)
{
    struct node *n = parser_node(p, NODE_CONST);
    n->value = value_text(p->t->text, p->t->bytes);
    for (p->t++; p->t->kind == TOKEN_STRING; p->t++) {
        size_t bytes = n->value.bytes + p->t->bytes;
        char *text = heap_take(p->heap, bytes);
        memcpy(text, n->value.text, n->value.bytes);
        memcpy(text + n->value.bytes, p->t->text, p->t->bytes);
        n->value = value_text(text, bytes);
    }
    return n;
}

static struct node *parse_number(struct parser *p)
{
    struct node *n = parser_node(p, NODE_CONST);
    char digits[64], *end;
    size_t used = 0;
    for (size_t i = 0; i < p->t->bytes; i++) {
        if (used == sizeof(digits) - 1)
            heap_fault(p->heap, -EINVAL, "a number is too long");
        if (p->t->text[i] != '_')
            digits[used++] = p->t->text[i];
    }
    digits[used] = 0;
    errno = 0;
    if (p->t->kind == TOKEN_FLOAT)
        n->value = value_float(strtod(digits, &end));
    else
        n->value = value_integer(strtoll(digits, &end, 10));
    if (errno == ERANGE && p->t->kind == TOKEN_INTEGER)
        heap_fault(p->heap, -EINVAL, "the number %s is too large", digits);
    p->t++;
    return n;
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *name;
        struct value value;
    } constants[] = {
        {"true", {.kind = VALUE_BOOL, .truth = true}},
        {"True", {.kind = VALUE_BOOL, .truth = true}},
        {"false", {.kind = VALUE_BOOL}},
        {"False", {.kind = VALUE_BOOL}},
        {"none", {.kind = VALUE_NONE}},
        {"None", {.kind = VALUE_NONE}},
    };
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
        if (parser_skip_name(p, constants[i].name)) {
            struct node *n = parser_node(p, NODE_CONST);
            n->value = constants[i].value;
            return n;
        }
    struct node *n = parser_node(p, NODE_NAME);
    n->name = parser_take_name(p);
    return n;
}

static struct node *parse_primary(struct parser *p)
{
    struct node *n;
    switch (p->t->kind) {
    case TOKEN_NAME:
        return parse_name(p);
    case TOKEN_STRING:
        return parse_string(p);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return parse_number(p);
    default:
        break;
    }
    if (parser_skip_sign(p, '(')) {
        if (parser_skip_sign(p, ')'))
            return parser_node(p, NODE_TUPLE);
        n = parse_tuple(p, true);
        parser_expect_sign(p, ')');
        return n;
    }
    if (parser_skip_sign(p, '[')) {
        n = parser_node(p, NODE_LIST);
        n->a = parse_items(p, ']');
        return n;
    }
    if (parser_skip_sign(p, '{'))
        return parse_dict(p);
    parser_fault(p, "an expression");
}

/* After `[`: an item, or a part from:to:step. */
static struct node *parse_subscript(struct parser *p, struct node *of)
{
    struct node *n = parser_node(p, NODE_ITEM);
    n->a = of;
    if (!parser_is_sign(p, ':'))
        n->b = parse_expression(p);
    if (parser_skip_sign(p, ':')) {
        n->kind = NODE_SLICE;
        if (!parser_is_sign(p, ']') && !parser_is_sign(p, ':'))
            n->c = parse_expression(p);
        if (parser_skip_sign(p, ':') && !parser_is_sign(p, ']'))
            n->d = parse_expression(p);
    }
    parser_expect_sign(p, ']');
    return n;
}

static struct node *parse_attribute(struct parser *p, struct node *of)
{
    struct node *n;
    if (p->t->kind == TOKEN_INTEGER) {
        n = parser_node(p, NODE_ITEM);
        n->b = parse_number(p);
    } else {
        n = parser_node(p, NODE_ATTRIBUTE);
        n->name = parser_take_name(p);
    }
    n->a = of;
    return n;
}

static struct node *parse_call(struct parser *p, struct node *of)
{
    struct node *n = parser_node(p, NODE_CALL);
    n->a = of;
    parse_arguments(p, n);
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    for (;;) {
        if (parser_skip_sign(p, '.'))
            n = parse_attribute(p, n);
        else if (parser_skip_sign(p, '['))
            n = parse_subscript(p, n);
        else if (parser_skip_sign(p, '('))
            n = parse_call(p, n);
        else
            return n;
    }
}

static struct node *parse_filter(struct parser *p, struct node *of)
{
    struct node *n = parser_node(p, NODE_FILTER);
    n->a = of;
    n->name = parser_take_name(p);
    n->builtin = filters_find(n->name->text, n->name->bytes);
    if (parser_skip_sign(p, '('))
        parse_arguments(p, n);
    return n;
}

struct node *parse_filters(struct parser *p)
{
    struct node *n = parse_filter(p, NULL);
    while (parser_skip_sign(p, '|'))
        n = parse_filter(p, n);
    return n;
}

/* Can this token begin the one argument of a test without parentheses, `is divisibleby 3`? */
static bool begins_argument(const struct parser *p)
{
    switch (p->t->kind) {
    case TOKEN_NAME:
        return !parser_is_name(p, "else") && !parser_is_name(p, "or") &&
               !parser_is_name(p, "and") && !parser_is_name(p, "is") && !parser_is_name(p, "if") &&
               !parser_is_name(p, "in") && !parser_is_name(p, "not");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return true;
    default:
        return parser_is_sign(p, '[') || parser_is_sign(p, '{');
    }
}

static struct node *parse_test(struct parser *p, struct node *of)
{
    struct node *n = parser_node(p, NODE_TEST);
    n->a = of;
    n->flag = parser_skip_name(p, "not");
    n->name = parser_take_name(p);
    n->builtin = tests_find(n->name->text, n->name->bytes);
    if (parser_skip_sign(p, '('))
        parse_arguments(p, n);
    else if (begins_argument(p))
        n->b = parse_postfix(p, parse_primary(p));
    return n;
}

/* What follows an operand: filters, tests, calls. */
static struct node *parse_tail(struct parser *p, struct node *n)
{
    for (;;) {
        if (parser_skip_sign(p, '|'))
            n = parse_filter(p, n);
        else if (parser_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (parser_skip_sign(p, '('))
            n = parse_call(p, n);
        else
            return n;
    }
}

struct node *parse_unary(struct parser *p, bool filters)
{
    struct node *n;
    parser_enter(p);
    bool negative = parser_is_sign(p, '-');
    if (negative || parser_is_sign(p, '+')) {
        p->t++;
        n = parser_binary(p, negative ? NODE_NEGATIVE : NODE_POSITIVE, 0, parse_unary(p, false),
                          NULL);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (filters)
        n = parse_tail(p, n);
    parser_leave(p);
    return n;
}

/* A name, a namespace's attribute, or several of them with commas between. */
struct node *parse_target(struct parser *p)
{
    bool paren = parser_skip_sign(p, '(');
    struct chain items = {0};
    bool several = false;
    do {
        struct node *n = parser_node(p, NODE_NAME);
        n->name = parser_take_name(p);
        if (parser_skip_sign(p, '.'))
            n = parse_attribute(p, n);
        chain_add(&items, n);
        if (!parser_skip_sign(p, ','))
            break;
        several = true;
    } while (p->t->kind == TOKEN_NAME && !parser_is_name(p, "in"));
    if (paren)
        parser_expect_sign(p, ')');
    return several ? parser_binary(p, NODE_TUPLE, 0, items.first, NULL) : items.first;
}

struct node *parse_primary_call(struct parser *p)
{
    struct node *n = parse_postfix(p, parse_primary(p));
    if (n->kind != NODE_CALL)
        parser_fault(p, "a call");
    return n;
}
