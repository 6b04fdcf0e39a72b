/* grammar_parse_impl.h: shared by the files that parse a grammar's text: grammar_parse.c its rules,
 * grammar_characters.c literals and classes. Private to them. */
#ifndef HEARTH_DAEMON_GRAMMAR_GRAMMAR_PARSE_IMPL_H
#define HEARTH_DAEMON_GRAMMAR_GRAMMAR_PARSE_IMPL_H

#include "daemon/grammar/grammar_impl.h"

struct grammar_parser {
    struct ast_tree *t;
    uint32_t at;
    uint32_t nesting;
};

static inline bool more(const struct grammar_parser *p)
{
    return p->at < p->t->text_bytes;
}

/* The current byte; 0 at the end, which no rule accepts. */
static inline char look(const struct grammar_parser *p)
{
    return more(p) ? p->t->text[p->at] : 0;
}

/* Adds a node to the tree. Returns its number or -ENOMEM. */
int64_t grammar_new_node(struct grammar_parser *p, struct ast node);

/* Parses the item that begins here: a literal, a class, or any character. Returns its node, or
 * -errno. */
int64_t grammar_take_literal(struct grammar_parser *p);
int64_t grammar_take_class(struct grammar_parser *p);
int64_t grammar_take_any(struct grammar_parser *p);

#endif
