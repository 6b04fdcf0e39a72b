/* Expressions: operators, from the loosest binding to the tightest. */
#include "client/jinja/node.h"

#include <string.h>

static struct node *parse_power(struct parser *p)
{
    struct node *n = parse_unary(p, true);
    while (parser_skip_sign(p, OP2('*', '*')))
        n = parser_binary(p, NODE_BINARY, OP2('*', '*'), n, parse_unary(p, true));
    return n;
}

/* The sign that comes next if it is one of these, else 0. */
static unsigned take_sign(struct parser *p, const unsigned *signs)
{
    for (; *signs; signs++)
        if (parser_skip_sign(p, *signs))
            return *signs;
    return 0;
}

static struct node *parse_product(struct parser *p)
{
    static const unsigned signs[] = {'*', '/', OP2('/', '/'), '%', 0};
    struct node *n = parse_power(p);
    for (unsigned sign; (sign = take_sign(p, signs));)
        n = parser_binary(p, NODE_BINARY, sign, n, parse_power(p));
    return n;
}

static struct node *parse_concat(struct parser *p)
{
    struct node *n = parse_product(p);
    if (!parser_is_sign(p, '~'))
        return n;
    struct chain parts = {0};
    chain_add(&parts, n);
    while (parser_skip_sign(p, '~'))
        chain_add(&parts, parse_product(p));
    return parser_binary(p, NODE_CONCAT, 0, parts.first, NULL);
}

static struct node *parse_sum(struct parser *p)
{
    static const unsigned signs[] = {'+', '-', 0};
    struct node *n = parse_concat(p);
    for (unsigned sign; (sign = take_sign(p, signs));)
        n = parser_binary(p, NODE_BINARY, sign, n, parse_concat(p));
    return n;
}

static unsigned take_comparison(struct parser *p)
{
    static const unsigned signs[] = {
        OP2('=', '='), OP2('!', '='), OP2('<', '='), OP2('>', '='), '<', '>', 0};
    if (parser_skip_name(p, "in"))
        return OP_IN;
    if (parser_is_name(p, "not") && p->t[1].kind == TOKEN_NAME && p->t[1].bytes == 2 &&
        memcmp(p->t[1].text, "in", 2) == 0) {
        p->t += 2;
        return OP_NOT_IN;
    }
    return take_sign(p, signs);
}

static struct node *parse_comparison(struct parser *p)
{
    struct node *n = parse_sum(p);
    struct chain operands = {0};
    for (unsigned op; (op = take_comparison(p));)
        chain_add(&operands, parser_binary(p, NODE_OPERAND, op, parse_sum(p), NULL));
    return operands.first ? parser_binary(p, NODE_COMPARE, 0, n, operands.first) : n;
}

static struct node *parse_not(struct parser *p)
{
    if (!parser_skip_name(p, "not"))
        return parse_comparison(p);
    parser_enter(p);
    struct node *n = parser_binary(p, NODE_NOT, 0, parse_not(p), NULL);
    parser_leave(p);
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p);
    while (parser_skip_name(p, "and"))
        n = parser_binary(p, NODE_AND, 0, n, parse_not(p));
    return n;
}

/* An expression without a ternary. */
static struct node *parse_or(struct parser *p)
{
    struct node *n = parse_and(p);
    while (parser_skip_name(p, "or"))
        n = parser_binary(p, NODE_OR, 0, n, parse_and(p));
    return n;
}

struct node *parse_expression(struct parser *p)
{
    parser_enter(p);
    struct node *n = parse_or(p);
    while (parser_skip_name(p, "if")) {
        struct node *choice = parser_binary(p, NODE_CHOICE, 0, n, parse_or(p));
        if (parser_skip_name(p, "else"))
            choice->c = parse_expression(p);
        n = choice;
    }
    parser_leave(p);
    return n;
}

struct node *parse_tuple(struct parser *p, bool ternary)
{
    struct node *first = ternary ? parse_expression(p) : parse_or(p);
    if (!parser_is_sign(p, ','))
        return first;
    struct chain items = {0};
    chain_add(&items, first);
    while (parser_skip_sign(p, ',')) {
        if (p->t->kind == TOKEN_TAG_END || p->t->kind == TOKEN_OUTPUT_END || parser_is_sign(p, ')'))
            break;
        chain_add(&items, ternary ? parse_expression(p) : parse_or(p));
    }
    return parser_binary(p, NODE_TUPLE, 0, items.first, NULL);
}
