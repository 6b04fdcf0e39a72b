/* eval: runs a tree. Scopes are chained by name; a loop's pass, a macro's call and a block have
 * scopes of their own. One thread; faults leave through the heap. */
#ifndef HEARTH_CLIENT_JINJA_EVAL_H
#define HEARTH_CLIENT_JINJA_EVAL_H

#include "client/jinja/builtin.h"
#include "client/jinja/node.h"

struct binding {
    const struct name *name;
    struct value value;
    struct binding *next;
};

struct scope {
    struct scope *up;
    struct binding *first;
};

enum flow { FLOW_ON = 0, FLOW_BREAK, FLOW_CONTINUE };

struct eval {
    struct heap *heap;
    struct names *names;
    struct scope *scope;
    struct buf *out;
    unsigned depth; /* of nodes that are being evaluated */
    enum flow flow;
    int64_t now; /* seconds since 1970, for strftime_now */
};

struct macro {
    const struct node *node; /* NODE_MACRO */
    struct scope *scope;     /* where it was defined */
};

struct method {
    struct value self;
    const struct builtin *builtin;
};

struct loop {
    const struct node *node; /* NODE_FOR */
    struct scope *scope;     /* around it */
    struct list *items;
    size_t at;
    unsigned depth;       /* 0: the outermost of a recursive loop */
    struct value changed; /* what loop.changed was called with last */
};

void scope_set(struct eval *e, struct scope *s, const struct name *name, struct value v);

struct value eval_node(struct eval *e, const struct node *n);
void exec_nodes(struct eval *e, const struct node *n); /* a chain of statements */

/* A fault beyond the nesting limit; every enter has its leave. */
void eval_enter(struct eval *e, const struct node *n);
void eval_deeper(struct eval *e); /* without a node: the filter map calls filters, itself too */
void eval_leave(struct eval *e);

/* What the statements print, as a string; in a scope inside `scope`. */
struct value exec_captured(struct eval *e, const struct node *n, struct scope *scope);
/* NODE_FILTERs around a block's value. */
struct value eval_block_filters(struct eval *e, const struct node *n, struct value block);

/* Arguments of a call, a filter or a test; with `caller`, where it is not NULL, as one more. */
struct args eval_args(struct eval *e, const struct node *positional, const struct node *named,
                      const struct keyword *caller);
struct value call_value(struct eval *e, struct value callee, const struct args *a);
struct value call_builtin(struct eval *e, const struct builtin *b, struct value self,
                          const struct args *a);
struct value call_loop(struct eval *e, const struct loop *of, struct value items);

/* v.name and v[key]; undefined where it is missing. */
struct value get_attribute(struct eval *e, struct value v, const char *name, size_t bytes);
struct value get_item(struct eval *e, struct value v, struct value key);
/* "a.b.0" */
struct value get_path(struct eval *e, struct value v, struct value path);

struct value op_binary(struct eval *e, unsigned op, struct value a, struct value b);
bool op_compare(struct eval *e, unsigned op, struct value a, struct value b);

/* str() and repr() of Python. */
struct value print_string(struct eval *e, struct value v);
void print_value(struct buf *b, struct value v);
void print_repr(struct buf *b, struct value v);

struct print_style {
    bool json;              /* json.dumps(), else repr() */
    int64_t indent;         /* below 0: all in one line */
    struct value item, key; /* separators */
    bool sorted, ascii;
};
void print_styled(struct buf *b, struct value v, const struct print_style *style);

#endif
