/* grammar_parse.c: from text to a tree: llama.cpp's dialect of GBNF. The grammar of grammars:
 *
 *   file      ::= ( rule ( newline rule )* )?
 *   rule      ::= name "::=" choice
 *   choice    ::= sequence ( "|" sequence )*
 *   sequence  ::= ( item ( "*" | "+" | "?" | "{" m ( "," n? )? "}" )* )*
 *   item      ::= literal | class | "." | token | name | "(" choice ")"
 *   token     ::= "<[" id "]>"
 *
 * Blanks and comments may appear anywhere; a rule ends at a newline outside of parentheses that is
 * not followed by "|". */
#include "daemon/grammar/grammar_parse_impl.h"

#include <errno.h>
#include <string.h>

enum { COUNT_MAX = 1000000 };

static void skip_blanks(struct grammar_parser *p, bool newlines)
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

/* ---- nodes and names ------------------------------------------------------------------------- */

int64_t grammar_new_node(struct grammar_parser *p, struct ast node)
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

/* Parses a name. Returns its rule, or -errno. */
static int64_t take_name(struct grammar_parser *p)
{
    const uint32_t at = p->at;
    while (more(p) && is_name(look(p)))
        p->at++;
    if (p->at == at)
        return grammar_fail(p->t, at, "expected the name of a rule");
    return grammar_find_rule(p->t, at, p->at - at);
}

/* ---- repetitions ----------------------------------------------------------------------------- */

static int64_t take_count(struct grammar_parser *p, const char *what)
{
    const uint32_t at = p->at;
    uint32_t value = 0;
    while (look(p) >= '0' && look(p) <= '9' && value <= COUNT_MAX)
        value = value * 10 + (uint32_t)(p->t->text[p->at++] - '0');
    if (p->at == at)
        return grammar_fail(p->t, at, "expected a number");
    if (value > COUNT_MAX)
        return grammar_fail(p->t, at, "a %s above %d", what, COUNT_MAX);
    return value;
}

/* Parses {m}, {m,}, {m,n} or {,n}. */
static int take_counts(struct grammar_parser *p, bool newlines, struct ast *node)
{
    const uint32_t open = p->at++;
    int64_t least = 0, most;
    skip_blanks(p, newlines);
    if (look(p) != ',')
        least = take_count(p, "repetition count");
    if (least < 0)
        return (int)least;
    most = least;
    skip_blanks(p, newlines);
    if (look(p) == ',') {
        p->at++;
        skip_blanks(p, newlines);
        most = look(p) >= '0' && look(p) <= '9' ? take_count(p, "repetition count")
                                                : (int64_t)GRAMMAR_NONE;
        if (most < 0)
            return (int)most;
        skip_blanks(p, newlines);
    }
    if (look(p) != '}')
        return grammar_fail(p->t, open,
                            "this repetition is not closed: expected {m}, {m,} or {m,n}");
    p->at++;
    if (most < least)
        return grammar_fail(p->t, open, "a repetition of at least %u but at most %u",
                            (unsigned)least, (unsigned)most);
    node->b = (uint32_t)least;
    node->c = (uint32_t)most;
    return 0;
}

static bool repeats(char c)
{
    return c == '*' || c == '+' || c == '?' || c == '{';
}

/* Parses the operators after an item; they accumulate. */
static int64_t take_repetitions(struct grammar_parser *p, bool newlines, int64_t item)
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
        item = grammar_new_node(p, node);
        if (item < 0)
            return item;
        skip_blanks(p, newlines);
    }
    return item;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static int64_t take_choice(struct grammar_parser *p, bool newlines);

static int64_t take_group(struct grammar_parser *p)
{
    const uint32_t open = p->at++;
    if (++p->nesting > GRAMMAR_NESTING_MAX)
        return grammar_fail(p->t, open, "more than %d nested parentheses", GRAMMAR_NESTING_MAX);
    skip_blanks(p, true);
    const int64_t node = take_choice(p, true);
    if (node < 0)
        return node;
    if (look(p) != ')' || !more(p))
        return grammar_fail(p->t, more(p) ? p->at : open,
                            more(p) ? "unexpected text: expected )"
                                    : "this parenthesis is not closed");
    p->at++;
    p->nesting--;
    return node;
}

/* Parses <[id]>: that token, which is a control token of the vocabulary. */
static int64_t take_token(struct grammar_parser *p)
{
    struct ast_tree *t = p->t;
    struct ast node = {
        .kind = AST_LITERAL, .a = t->n_bytes, .b = GRAMMAR_CONTROL_BYTES, .at = p->at};
    uint8_t spelled[GRAMMAR_CONTROL_BYTES];
    const uint32_t open = p->at++;
    if (look(p) != '[')
        return grammar_fail(t, open, "expected a token: <[id]>");
    p->at++;
    const int64_t id = take_count(p, "token");
    if (id < 0)
        return id;
    for (const char *close = "]>"; *close; close++)
        if (look(p) == *close)
            p->at++;
        else
            return grammar_fail(t, open, "this token is not closed: expected <[id]>");
    grammar_spell_control((uint32_t)id, spelled);
    for (uint32_t i = 0; i < GRAMMAR_CONTROL_BYTES; i++) {
        if (GROW(t->bytes, t->room_bytes, t->n_bytes) < 0)
            return -ENOMEM;
        t->bytes[t->n_bytes++] = spelled[i];
    }
    return grammar_new_node(p, node);
}

/* Parses one item. Returns 0 if there is none: node 0 is never an item, because it is made
 * first. */
static int64_t take_item(struct grammar_parser *p)
{
    const char c = look(p);
    if (!more(p))
        return 0;
    if (c == '"')
        return grammar_take_literal(p);
    if (c == '[')
        return grammar_take_class(p);
    if (c == '.')
        return grammar_take_any(p);
    if (c == '<')
        return take_token(p);
    if (c == '(')
        return take_group(p);
    if (repeats(c))
        return grammar_fail(p->t, p->at, "there is nothing before %c to repeat", c);
    if (!is_name(c))
        return 0;
    const uint32_t at = p->at;
    const int64_t rule = take_name(p);
    return rule < 0
               ? rule
               : grammar_new_node(p, (struct ast){.kind = AST_RULE, .a = (uint32_t)rule, .at = at});
}

static int64_t take_sequence(struct grammar_parser *p, bool newlines)
{
    const int64_t sequence =
        grammar_new_node(p, (struct ast){.kind = AST_SEQUENCE, .a = GRAMMAR_NONE, .at = p->at});
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

/* If a "|" follows after blanks and newlines, moves to it and returns true. */
static bool at_bar(struct grammar_parser *p)
{
    const uint32_t at = p->at;
    skip_blanks(p, true);
    if (look(p) == '|')
        return true;
    p->at = at;
    return false;
}

static int64_t take_choice(struct grammar_parser *p, bool newlines)
{
    const uint32_t at = p->at;
    int64_t item = take_sequence(p, newlines);
    if (item < 0 || !at_bar(p))
        return item;
    const int64_t choice =
        grammar_new_node(p, (struct ast){.kind = AST_CHOICE, .a = (uint32_t)item, .at = at});
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

static int take_rule(struct grammar_parser *p)
{
    struct ast_tree *t = p->t;
    const uint32_t at = p->at;
    const int64_t rule = take_name(p);
    if (rule < 0)
        return (int)rule;
    if (t->rules[rule].tree != GRAMMAR_NONE)
        return grammar_fail(t, at, "rule %.*s is already defined", (int)(p->at - at), t->text + at);
    skip_blanks(p, false);
    if (t->text_bytes - p->at < 3 || memcmp(t->text + p->at, "::=", 3) != 0)
        return grammar_fail(t, p->at, "expected ::=");
    p->at += 3;
    t->rules[rule].at = at;
    skip_blanks(p, true);
    const int64_t tree = take_choice(p, false);
    if (tree < 0)
        return (int)tree;
    t->rules[rule].tree = (uint32_t)tree;
    if (more(p) && look(p) != '\n' && look(p) != '\r')
        return grammar_fail(t, p->at, "unexpected text");
    skip_blanks(p, true);
    return 0;
}

int grammar_parse(const char *text, size_t bytes, struct ast_tree *ret, char *err, size_t err_bytes)
{
    *ret = (struct ast_tree){.text = text, .err = err, .err_bytes = err_bytes};
    struct grammar_parser p = {.t = ret};
    if (bytes > GRAMMAR_TEXT_MAX)
        return grammar_fail(ret, 0, "the grammar has %zu bytes, more than %d", bytes,
                            GRAMMAR_TEXT_MAX);
    ret->text_bytes = (uint32_t)bytes;
    const char *zero = bytes > 0 ? memchr(text, 0, bytes) : NULL;
    if (zero != NULL)
        return grammar_fail(ret, (uint32_t)(zero - text),
                            "a zero byte: write \\x00 in a literal or class");
    /* Node 0 is a dummy, so that 0 can mean "no item". */
    int rc = grammar_draw_key(&ret->key);
    if (rc == 0 && grammar_new_node(&p, (struct ast){.kind = AST_SEQUENCE, .a = GRAMMAR_NONE}) < 0)
        rc = -ENOMEM;
    skip_blanks(&p, true);
    while (rc == 0 && more(&p))
        rc = take_rule(&p);
    return rc < 0 ? rc : grammar_check_rules(ret);
}
