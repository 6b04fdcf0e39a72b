/* grammar_parse_impl: what the files that read a grammar's text share: grammar_parse.c its rules,
 * grammar_characters.c literals and classes. Not for anybody else. */
#ifndef HEARTH_DAEMON_GRAMMAR_GRAMMAR_PARSE_IMPL_H
#define HEARTH_DAEMON_GRAMMAR_GRAMMAR_PARSE_IMPL_H

#include "daemon/grammar/grammar_impl.h"

struct parser {
    struct ast_tree *t;
    uint32_t at;
    uint32_t nesting;
};

static inline bool more(const struct parser *p)
{
    return p->at < p->t->text_bytes;
}

/* The byte here; 0 at the end, which no rule takes for itself. */
static inline char look(const struct parser *p)
{
    return more(p) ? p->t->text[p->at] : 0;
}

/* Adds a node to the tree. Returns its number or -ENOMEM. */
int64_t grammar_new_node(struct parser *p, struct ast node);

/* Takes the item that begins here: a literal, a class, or any character. Returns its node, or -errno. */
int64_t grammar_take_literal(struct parser *p);
int64_t grammar_take_class(struct parser *p);
int64_t grammar_take_any(struct parser *p);

#endif
