/* grammar_characters.c: the items of a grammar that are characters: literals and classes. */
#include "daemon/grammar/grammar_parse_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { POINT_MAX = 0x10ffff };

static int64_t take_hex(struct grammar_parser *p, uint32_t digits)
{
    const uint32_t at = p->at;
    uint32_t value = 0;
    for (uint32_t i = 0; i < digits; i++, p->at++) {
        const char c = look(p);
        const uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                               : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                               : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                      : 16;
        if (digit == 16)
            return grammar_fail(p->t, at, "expected %u hex digits", digits);
        value = value << 4 | digit;
    }
    if (value > POINT_MAX || (value >= 0xd800 && value <= 0xdfff))
        return grammar_fail(p->t, at, "%x is not a Unicode code point", value);
    return value;
}

static int64_t take_escape(struct grammar_parser *p)
{
    static const char plain[] = "\\\"[]-^'/.";
    const char c = look(p);
    p->at++;
    switch (c) {
    case 'x':
        return take_hex(p, 2);
    case 'u':
        return take_hex(p, 4);
    case 'U':
        return take_hex(p, 8);
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case 'n':
        return '\n';
    default:
        if (c != 0 && strchr(plain, c) != NULL)
            return c;
        return grammar_fail(p->t, p->at - 2,
                            "unknown escape: the known ones are \\n \\r \\t \\\\ \\\" \\[ \\] \\- "
                            "\\xHH \\uHHHH \\UHHHHHHHH");
    }
}

/* Parses one code point of UTF-8. */
static int64_t take_utf8(struct grammar_parser *p)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const uint32_t at = p->at;
    const uint8_t lead = (uint8_t)look(p);
    const uint32_t n = lead < 0x80             ? 1
                       : (lead & 0xe0) == 0xc0 ? 2
                       : (lead & 0xf0) == 0xe0 ? 3
                       : (lead & 0xf8) == 0xf0 ? 4
                                               : 0;
    uint32_t point = n == 1 ? lead : n == 0 ? 0 : lead & (0x7fu >> n);
    p->at++;
    for (uint32_t i = 1; i < n; i++, p->at++) {
        if (!more(p) || ((uint8_t)look(p) & 0xc0) != 0x80)
            return grammar_fail(p->t, at, "invalid UTF-8");
        point = point << 6 | ((uint8_t)look(p) & 0x3f);
    }
    if (n == 0 || point < least[n] || point > POINT_MAX || (point >= 0xd800 && point <= 0xdfff))
        return grammar_fail(p->t, at, "invalid UTF-8");
    return point;
}

/* Parses a character of the literal or class that begins at `from`. */
static int64_t take_character(struct grammar_parser *p, uint32_t from, const char *what)
{
    if (!more(p))
        return grammar_fail(p->t, from, "this %s is not closed", what);
    if (look(p) != '\\')
        return take_utf8(p);
    p->at++;
    if (!more(p))
        return grammar_fail(p->t, from, "this %s is not closed", what);
    return take_escape(p);
}

uint32_t grammar_utf8(uint32_t point, uint8_t *to)
{
    if (point < 0x80) {
        to[0] = (uint8_t)point;
        return 1;
    }
    const uint32_t n = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (uint32_t i = n - 1; i > 0; i--, point >>= 6)
        to[i] = (uint8_t)(0x80 | (point & 0x3f));
    to[0] = (uint8_t)(0xf00u >> n | point);
    return n;
}

int64_t grammar_take_literal(struct grammar_parser *p)
{
    struct ast_tree *t = p->t;
    const uint32_t from = p->at++;
    struct ast node = {.kind = AST_LITERAL, .a = t->n_bytes, .at = from};
    while (look(p) != '"' || !more(p)) {
        const int64_t point = take_character(p, from, "literal");
        if (point < 0)
            return point;
        uint8_t bytes[4];
        const uint32_t n = grammar_utf8((uint32_t)point, bytes);
        for (uint32_t i = 0; i < n; i++) {
            if (GROW(t->bytes, t->room_bytes, t->n_bytes) < 0)
                return -ENOMEM;
            t->bytes[t->n_bytes++] = bytes[i];
        }
    }
    p->at++;
    node.b = t->n_bytes - node.a;
    return grammar_new_node(p, node);
}

/* ---- classes --------------------------------------------------------------------------------- */

static int add_range(struct ast_tree *t, uint32_t from, uint32_t to)
{
    if (from > to)
        return 0;
    if (GROW(t->ranges, t->room_ranges, t->n_ranges) < 0)
        return -ENOMEM;
    t->ranges[t->n_ranges++] = (struct ast_range){from, to};
    return 0;
}

/* Adds a range without surrogates, which UTF-8 cannot encode. */
static int add_points(struct ast_tree *t, uint32_t from, uint32_t to)
{
    const int rc = add_range(t, from, to < 0xd7ff ? to : 0xd7ff);
    return rc < 0 ? rc : add_range(t, from > 0xe000 ? from : 0xe000, to);
}

static int by_from(const void *x, const void *y)
{
    const struct ast_range *a = x, *b = y;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Makes ranges [first, n_ranges) ascending and disjoint. */
static void merge_ranges(struct ast_tree *t, uint32_t first)
{
    if (t->n_ranges == first)
        return;
    struct ast_range *r = t->ranges + first;
    const uint32_t n = t->n_ranges - first;
    uint32_t kept = 0;
    qsort(r, n, sizeof(*r), by_from);
    for (uint32_t i = 1; i < n; i++) {
        if (r[i].from > r[kept].to + 1)
            r[++kept] = r[i];
        else if (r[i].to > r[kept].to)
            r[kept].to = r[i].to;
    }
    t->n_ranges = first + kept + 1;
}

static int negate_ranges(struct ast_tree *t, uint32_t *first)
{
    const uint32_t end = t->n_ranges;
    uint32_t from = 0;
    for (uint32_t i = *first; i < end; i++) {
        const struct ast_range r = t->ranges[i];
        if (r.from > from && add_points(t, from, r.from - 1) < 0)
            return -ENOMEM;
        from = r.to + 1;
    }
    *first = end;
    return from <= POINT_MAX ? add_points(t, from, POINT_MAX) : 0;
}

static int take_members(struct grammar_parser *p, uint32_t open)
{
    while (look(p) != ']' || !more(p)) {
        const uint32_t at = p->at;
        const int64_t from = take_character(p, open, "class");
        if (from < 0)
            return (int)from;
        int64_t to = from;
        if (look(p) == '-' && p->at + 1 < p->t->text_bytes && p->t->text[p->at + 1] != ']') {
            p->at++;
            to = take_character(p, open, "class");
            if (to < 0)
                return (int)to;
        }
        if (to < from)
            return grammar_fail(p->t, at, "this range ends before it begins");
        const int rc = add_points(p->t, (uint32_t)from, (uint32_t)to);
        if (rc < 0)
            return rc;
    }
    p->at++;
    return 0;
}

int64_t grammar_take_class(struct grammar_parser *p)
{
    struct ast_tree *t = p->t;
    const uint32_t open = p->at++;
    const bool negated = look(p) == '^';
    struct ast node = {.kind = AST_CLASS, .a = t->n_ranges, .at = open};
    p->at += negated;
    int rc = take_members(p, open);
    merge_ranges(t, node.a);
    if (rc == 0 && negated)
        rc = negate_ranges(t, &node.a);
    if (rc < 0)
        return rc;
    node.b = t->n_ranges - node.a;
    if (node.b == 0)
        return grammar_fail(t, open, "this class contains no character");
    return grammar_new_node(p, node);
}

int64_t grammar_take_any(struct grammar_parser *p)
{
    struct ast node = {.kind = AST_CLASS, .a = p->t->n_ranges, .b = 2, .at = p->at++};
    return add_points(p->t, 0, POINT_MAX) < 0 ? -ENOMEM : grammar_new_node(p, node);
}
