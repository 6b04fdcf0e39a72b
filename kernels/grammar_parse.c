/* From text to a tree: llama.cpp's dialect of GBNF. The grammar of grammars:
 *
 *   file      ::= ( rule ( newline rule )* )?
 *   rule      ::= name "::=" choice
 *   choice    ::= sequence ( "|" sequence )*
 *   sequence  ::= ( item ( "*" | "+" | "?" | "{" m ( "," n? )? "}" )* )*
 *   item      ::= literal | class | "." | name | "(" choice ")"
 *
 * Blanks and comments may stand everywhere; a rule's end is a newline outside of parentheses that no
 * "|" follows. */
#include "kernels/grammar_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { POINT_MAX = 0x10ffff, COUNT_MAX = 1000000 };

struct parser {
    struct ast_tree *t;
    uint32_t at;
    uint32_t nesting;
};

static bool more(const struct parser *p)
{
    return p->at < p->t->text_bytes;
}

/* The byte here; 0 at the end, which no rule takes for itself. */
static char look(const struct parser *p)
{
    return more(p) ? p->t->text[p->at] : 0;
}

static void skip_blanks(struct parser *p, bool newlines)
{
    for (; more(p); p->at++) {
        const char c = look(p);
        if (c == '#')
            while (more(p) && look(p) != '\n' && look(p) != '\r')
                p->at++;
        const bool is_newline = look(p) == '\n' || look(p) == '\r';
        if (!more(p) || !(look(p) == ' ' || look(p) == '\t' || (newlines && is_newline)))
            return;
    }
}

/* ---- the tree -------------------------------------------------------------------------------- */

static int64_t new_node(struct parser *p, struct ast node)
{
    struct ast_tree *t = p->t;
    if (GROW(t->nodes, t->room_nodes, t->n_nodes) < 0)
        return -ENOMEM;
    node.sibling = node.rule = GRAMMAR_NONE;
    t->nodes[t->n_nodes] = node;
    return t->n_nodes++;
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Takes a name. Returns its rule, or -errno. */
static int64_t take_name(struct parser *p)
{
    const uint32_t at = p->at;
    while (more(p) && is_name(look(p)))
        p->at++;
    if (p->at == at)
        return grammar_fail(p->t, at, "a rule's name is expected");
    return grammar_find_rule(p->t, at, p->at - at);
}

/* ---- characters ------------------------------------------------------------------------------ */

static int64_t take_hex(struct parser *p, uint32_t digits)
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
            return grammar_fail(p->t, at, "%u hex digits are expected", digits);
        value = value << 4 | digit;
    }
    if (value > POINT_MAX || (value >= 0xd800 && value <= 0xdfff))
        return grammar_fail(p->t, at, "%x is no code point of Unicode", value);
    return value;
}

static int64_t take_escape(struct parser *p)
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
                            "this escape is unknown: there are \\n \\r \\t \\\\ \\\" \\[ \\] \\- "
                            "\\xHH \\uHHHH \\UHHHHHHHH");
    }
}

/* One code point of UTF-8. */
static int64_t take_utf8(struct parser *p)
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
            return grammar_fail(p->t, at, "this is not UTF-8");
        point = point << 6 | ((uint8_t)look(p) & 0x3f);
    }
    if (n == 0 || point < least[n] || point > POINT_MAX || (point >= 0xd800 && point <= 0xdfff))
        return grammar_fail(p->t, at, "this is not UTF-8");
    return point;
}

/* A character of a literal or class that begins at `from`. */
static int64_t take_character(struct parser *p, uint32_t from, const char *what)
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

static int64_t take_literal(struct parser *p)
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
    return new_node(p, node);
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

/* The same without surrogates, which no UTF-8 holds. */
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

/* Ranges [first, n_ranges) become ascending and disjoint. */
static void merge_ranges(struct ast_tree *t, uint32_t first)
{
    if (t->n_ranges == first)
        return;
    struct ast_range *r = t->ranges + first;
    const uint32_t n = t->n_ranges - first;
    uint32_t kept = 0;
    qsort(r, n, sizeof *r, by_from);
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

static int take_members(struct parser *p, uint32_t open)
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

static int64_t take_class(struct parser *p)
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
        return grammar_fail(t, open, "this class holds no character");
    return new_node(p, node);
}

static int64_t take_any(struct parser *p)
{
    struct ast node = {.kind = AST_CLASS, .a = p->t->n_ranges, .b = 2, .at = p->at++};
    return add_points(p->t, 0, POINT_MAX) < 0 ? -ENOMEM : new_node(p, node);
}

/* ---- repetitions ----------------------------------------------------------------------------- */

static int64_t take_count(struct parser *p)
{
    const uint32_t at = p->at;
    uint32_t value = 0;
    while (look(p) >= '0' && look(p) <= '9' && value <= COUNT_MAX)
        value = value * 10 + (uint32_t)(p->t->text[p->at++] - '0');
    if (p->at == at)
        return grammar_fail(p->t, at, "a number is expected");
    if (value > COUNT_MAX)
        return grammar_fail(p->t, at, "a repetition of more than %d", COUNT_MAX);
    return value;
}

/* {m}, {m,}, {m,n}, {,n} */
static int take_counts(struct parser *p, bool newlines, struct ast *node)
{
    const uint32_t open = p->at++;
    int64_t least = 0, most;
    skip_blanks(p, newlines);
    if (look(p) != ',')
        least = take_count(p);
    if (least < 0)
        return (int)least;
    most = least;
    skip_blanks(p, newlines);
    if (look(p) == ',') {
        p->at++;
        skip_blanks(p, newlines);
        most = look(p) >= '0' && look(p) <= '9' ? take_count(p) : (int64_t)GRAMMAR_NONE;
        if (most < 0)
            return (int)most;
        skip_blanks(p, newlines);
    }
    if (look(p) != '}')
        return grammar_fail(p->t, open, "this repetition is not closed: {m}, {m,} or {m,n}");
    p->at++;
    if (most < least)
        return grammar_fail(p->t, open, "at least %u but at most %u", (unsigned)least,
                            (unsigned)most);
    node->b = (uint32_t)least;
    node->c = (uint32_t)most;
    return 0;
}

static bool repeats(char c)
{
    return c == '*' || c == '+' || c == '?' || c == '{';
}

/* The operators behind an item; they add up. */
static int64_t take_repetitions(struct parser *p, bool newlines, int64_t item)
{
    for (uint32_t n = 0; more(p) && repeats(look(p)); n++) {
        struct ast node = {.kind = AST_REPEAT, .a = (uint32_t)item, .at = p->at};
        const char c = look(p);
        if (n == GRAMMAR_NESTING_MAX)
            return grammar_fail(p->t, p->at, "more than %d operators in a row",
                                GRAMMAR_NESTING_MAX);
        if (c == '{') {
            const int rc = take_counts(p, newlines, &node);
            if (rc < 0)
                return rc;
        } else {
            node.b = c == '+';
            node.c = c == '?' ? 1 : GRAMMAR_NONE;
            p->at++;
        }
        item = new_node(p, node);
        if (item < 0)
            return item;
        skip_blanks(p, newlines);
    }
    return item;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static int64_t take_choice(struct parser *p, bool newlines);

static int64_t take_group(struct parser *p)
{
    const uint32_t open = p->at++;
    if (++p->nesting > GRAMMAR_NESTING_MAX)
        return grammar_fail(p->t, open, "more than %d parentheses in each other",
                            GRAMMAR_NESTING_MAX);
    skip_blanks(p, true);
    const int64_t node = take_choice(p, true);
    if (node < 0)
        return node;
    if (look(p) != ')' || !more(p))
        return grammar_fail(p->t, more(p) ? p->at : open,
                            more(p) ? "this does not belong here: ) is expected"
                                    : "this parenthesis is not closed");
    p->at++;
    p->nesting--;
    return node;
}

/* One item; 0 where there is none is no node of a sequence: node 0 is made before. */
static int64_t take_item(struct parser *p)
{
    const char c = look(p);
    if (!more(p))
        return 0;
    if (c == '"')
        return take_literal(p);
    if (c == '[')
        return take_class(p);
    if (c == '.')
        return take_any(p);
    if (c == '(')
        return take_group(p);
    if (repeats(c))
        return grammar_fail(p->t, p->at, "there is nothing before %c to repeat", c);
    if (!is_name(c))
        return 0;
    const uint32_t at = p->at;
    const int64_t rule = take_name(p);
    return rule < 0 ? rule
                    : new_node(p, (struct ast){.kind = AST_RULE, .a = (uint32_t)rule, .at = at});
}

static int64_t take_sequence(struct parser *p, bool newlines)
{
    const int64_t sequence =
        new_node(p, (struct ast){.kind = AST_SEQUENCE, .a = GRAMMAR_NONE, .at = p->at});
    uint32_t last = GRAMMAR_NONE;
    for (int64_t item = sequence; item >= 0;) {
        item = take_item(p);
        if (item == 0)
            return sequence;
        skip_blanks(p, newlines);
        if (item > 0)
            item = take_repetitions(p, newlines, item);
        if (item < 0)
            return item;
        if (last == GRAMMAR_NONE)
            p->t->nodes[sequence].a = (uint32_t)item;
        else
            p->t->nodes[last].sibling = (uint32_t)item;
        last = (uint32_t)item;
    }
    return sequence;
}

/* Is there a "|" behind blanks and newlines? Then goes there. */
static bool at_bar(struct parser *p)
{
    const uint32_t at = p->at;
    skip_blanks(p, true);
    if (look(p) == '|')
        return true;
    p->at = at;
    return false;
}

static int64_t take_choice(struct parser *p, bool newlines)
{
    const uint32_t at = p->at;
    int64_t item = take_sequence(p, newlines);
    if (item < 0 || !at_bar(p))
        return item;
    const int64_t choice =
        new_node(p, (struct ast){.kind = AST_CHOICE, .a = (uint32_t)item, .at = at});
    while (choice >= 0 && at_bar(p)) {
        p->at++;
        skip_blanks(p, true);
        const uint32_t last = (uint32_t)item;
        item = take_sequence(p, newlines);
        if (item < 0)
            return item;
        p->t->nodes[last].sibling = (uint32_t)item;
    }
    return choice;
}

static int take_rule(struct parser *p)
{
    struct ast_tree *t = p->t;
    const uint32_t at = p->at;
    const int64_t rule = take_name(p);
    if (rule < 0)
        return (int)rule;
    if (t->rules[rule].tree != GRAMMAR_NONE)
        return grammar_fail(t, at, "rule %.*s is there already", (int)(p->at - at), t->text + at);
    skip_blanks(p, false);
    if (t->text_bytes - p->at < 3 || memcmp(t->text + p->at, "::=", 3) != 0)
        return grammar_fail(t, p->at, "::= is expected");
    p->at += 3;
    t->rules[rule].at = at;
    skip_blanks(p, true);
    const int64_t tree = take_choice(p, false);
    if (tree < 0)
        return (int)tree;
    t->rules[rule].tree = (uint32_t)tree;
    if (more(p) && look(p) != '\n' && look(p) != '\r')
        return grammar_fail(t, p->at, "this does not belong here");
    skip_blanks(p, true);
    return 0;
}

int grammar_parse(const char *text, size_t bytes, struct ast_tree *ret, char *err, size_t err_bytes)
{
    *ret = (struct ast_tree){.text = text, .err = err, .err_bytes = err_bytes};
    struct parser p = {.t = ret};
    if (bytes > GRAMMAR_TEXT_MAX)
        return grammar_fail(ret, 0, "%zu bytes are above %d", bytes, GRAMMAR_TEXT_MAX);
    ret->text_bytes = (uint32_t)bytes;
    const char *zero = bytes > 0 ? memchr(text, 0, bytes) : NULL;
    if (zero != NULL)
        return grammar_fail(ret, (uint32_t)(zero - text),
                            "a byte 0: write \\x00 in a literal or class");
    /* Node 0 is nobody's, so that 0 is no item. */
    int rc = new_node(&p, (struct ast){.kind = AST_SEQUENCE, .a = GRAMMAR_NONE}) < 0 ? -ENOMEM : 0;
    skip_blanks(&p, true);
    while (rc == 0 && more(&p))
        rc = take_rule(&p);
    return rc < 0 ? rc : grammar_check_rules(ret);
}
