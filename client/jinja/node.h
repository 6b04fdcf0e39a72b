/* node: a template as a tree, and the parser that makes it. Nodes live in the heap. */
#ifndef HEARTH_CLIENT_JINJA_NODE_H
#define HEARTH_CLIENT_JINJA_NODE_H

#include "client/jinja/lex.h"

/* A name in the template: one for all its places, so that names are compared as pointers. */
struct name {
    const char *text; /* [bytes] */
    size_t bytes;
    struct name *next; /* of the same hash */
};

/* What a, b, c, d and e are; lists are chained by `next`. */
enum node_kind {
    NODE_CONST,     /* value */
    NODE_NAME,      /* name */
    NODE_LIST,      /* a: items */
    NODE_TUPLE,     /* a: items */
    NODE_DICT,      /* a: key, value, key, value... */
    NODE_NOT,       /* a */
    NODE_NEGATIVE,  /* a */
    NODE_POSITIVE,  /* a */
    NODE_AND,       /* a, b */
    NODE_OR,        /* a, b */
    NODE_CHOICE,    /* a if b else c, c may be NULL */
    NODE_BINARY,    /* a `op` b */
    NODE_COMPARE,   /* a, then b: a list of NODE_OPERAND */
    NODE_OPERAND,   /* `op` a; OP_IN, OP_NOT_IN */
    NODE_CONCAT,    /* a: the parts of a ~ b ~ c */
    NODE_ATTRIBUTE, /* a.name */
    NODE_ITEM,      /* a[b] */
    NODE_SLICE,     /* a[b:c:d], each may be NULL */
    NODE_CALL,      /* a(b, c): b positional, c NODE_KEYWORDs */
    NODE_KEYWORD,   /* name=a */
    NODE_SPREAD,    /* *a among positional, **a among named arguments */
    NODE_FILTER,    /* a | name(b, c); a is NULL for what a block gives */
    NODE_TEST,      /* a is name(b, c); flag: is not */

    NODE_TEXT,         /* value */
    NODE_OUTPUT,       /* {{ a }} */
    NODE_IF,           /* a condition, b then, c else; flag: c is one NODE_IF, of elif */
    NODE_FOR,          /* a target, b over, c condition, d body, e else; flag: recursive */
    NODE_SET,          /* a target, b value */
    NODE_SET_BLOCK,    /* a target, b body, c filters */
    NODE_MACRO,        /* name, a parameters (NODE_KEYWORD, a: default or NULL), b body */
    NODE_CALL_BLOCK,   /* a the call, b NODE_MACRO of the block */
    NODE_FILTER_BLOCK, /* a filters, b body */
    NODE_WITH,         /* a NODE_SETs, b body */
    NODE_SCOPE,        /* b body: {% generation %} */
    NODE_DO,           /* a */
    NODE_BREAK,
    NODE_CONTINUE
};

enum { OP_IN = 'i', OP_NOT_IN = 'n' };

struct node {
    uint8_t kind; /* enum node_kind */
    bool flag;
    uint16_t op; /* a character, or OP2 of two */
    uint32_t line;
    struct node *next, *a, *b, *c, *d, *e;
    const struct name *name;
    const struct builtin *builtin; /* of a filter or a test; NULL: unknown */
    struct value value;
};

enum { NAME_BUCKETS = 1024 };

struct names {
    struct heap *heap;
    struct name *buckets[NAME_BUCKETS];
};

/* The one name of this text; text is kept. */
const struct name *names_find(struct names *n, const char *text, size_t bytes);

/* Statements of a template, chained; NULL for an empty one. */
struct node *parse(struct names *names, const char *source, size_t bytes);

/* ---- the parser's parts ---------------------------------------------------------------------- */

struct parser {
    struct heap *heap;
    struct names *names;
    const struct token *t; /* the next */
    unsigned depth;        /* of nesting */
};

/* Chains nodes. */
struct chain {
    struct node *first, *last;
};
void chain_add(struct chain *c, struct node *n);

struct node *parser_node(struct parser *p, enum node_kind kind);
struct node *parser_binary(struct parser *p, enum node_kind kind, unsigned op, struct node *a,
                           struct node *b);
void parser_enter(struct parser *p); /* a fault beyond the nesting limit */
void parser_leave(struct parser *p);
_Noreturn void parser_fault(struct parser *p, const char *wanted);
bool parser_is_sign(const struct parser *p, unsigned sign);
bool parser_is_name(const struct parser *p, const char *name);
bool parser_skip_sign(struct parser *p, unsigned sign); /* true: it was there */
bool parser_skip_name(struct parser *p, const char *name);
void parser_expect_sign(struct parser *p, unsigned sign);
const struct name *parser_take_name(struct parser *p);

/* An operand, also with a sign before it; with `filters` also with what follows it: filters,
 * tests. */
struct node *parse_unary(struct parser *p, bool filters);
struct node *parse_expression(struct parser *p);
/* One expression, or several with commas between: a tuple. */
struct node *parse_tuple(struct parser *p, bool ternary);
struct node *parse_target(struct parser *p); /* what set and for assign to */
/* Filters with `|` between, around what a block gives (NULL); at the first name. */
struct node *parse_filters(struct parser *p);
struct node *parse_primary_call(struct parser *p); /* the call of {% call %} */

#endif
