/* Statements. */
#include "client/jinja/eval.h"

#include <errno.h>

static struct scope *scope_open(struct eval *e, struct scope *up)
{
    struct scope *s = heap_take(e->heap, sizeof(*s));
    s->up = up;
    return s;
}

struct value exec_captured(struct eval *e, const struct node *n, struct scope *scope)
{
    struct buf b = {.heap = e->heap}, *out = e->out;
    struct scope *before = e->scope;
    enum flow flow = e->flow;
    e->out = &b;
    e->scope = scope;
    e->flow = FLOW_ON;
    exec_nodes(e, n);
    e->out = out;
    e->scope = before;
    e->flow = flow;
    return buf_value(&b);
}

static void assign(struct eval *e, const struct node *target, struct value v)
{
    if (target->kind == NODE_NAME) {
        scope_set(e, e->scope, target->name, v);
    } else if (target->kind == NODE_TUPLE) {
        struct list *items = value_items(e->heap, v);
        size_t i = 0;
        for (const struct node *t = target->a; t; t = t->next, i++)
            if (i < items->n)
                assign(e, t, items->items[i]);
        if (i != items->n)
            heap_fault(e->heap, -EINVAL, "%zu values for %zu names", items->n, i);
    } else {
        struct value of = eval_node(e, target->a);
        if (of.kind != VALUE_NAMESPACE || target->kind != NODE_ATTRIBUTE)
            heap_fault(e->heap, -EINVAL, "only attributes of a namespace() can be set, not of %s",
                       value_type(of));
        dict_set(e->heap, of.dict, value_text(target->name->text, target->name->bytes), v);
    }
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* The items that the loop's condition lets through. */
static struct list *choose_items(struct eval *e, const struct node *n, struct list *all,
                                 struct scope *around)
{
    if (!n->c)
        return all;
    struct list *chosen = heap_take(e->heap, sizeof(*chosen));
    for (size_t i = 0; i < all->n; i++) {
        e->scope = scope_open(e, around);
        assign(e, n->a, all->items[i]);
        if (value_true(eval_node(e, n->c)))
            list_push(e->heap, chosen, all->items[i]);
    }
    e->scope = around;
    return chosen;
}

static void run_loop(struct eval *e, const struct node *n, struct list *all, struct scope *around,
                     unsigned depth)
{
    struct scope *before = e->scope;
    struct loop *l = heap_take(e->heap, sizeof(*l));
    struct value loop = {.kind = VALUE_LOOP, .loop = l};
    e->scope = around;
    *l = (struct loop){
        .node = n, .scope = around, .depth = depth, .changed = {.kind = VALUE_ABSENT}};
    l->items = choose_items(e, n, all, around);
    for (; l->at < l->items->n && e->flow != FLOW_BREAK; l->at++) {
        e->scope = scope_open(e, around);
        scope_set(e, e->scope, names_find(e->names, "loop", 4), loop);
        assign(e, n->a, l->items->items[l->at]);
        e->flow = FLOW_ON;
        exec_nodes(e, n->d);
    }
    e->flow = FLOW_ON;
    if (!l->items->n && n->e) {
        e->scope = scope_open(e, around);
        exec_nodes(e, n->e);
    }
    e->scope = before;
}

struct value call_loop(struct eval *e, const struct loop *of, struct value items)
{
    struct buf b = {.heap = e->heap}, *out = e->out;
    eval_enter(e, of->node);
    e->out = &b;
    run_loop(e, of->node, value_items(e->heap, items), of->scope, of->depth + 1);
    e->out = out;
    eval_leave(e);
    return buf_value(&b);
}

/* ---- the others ------------------------------------------------------------------------------ */

static struct value make_macro(struct eval *e, const struct node *n)
{
    struct macro *m = heap_take(e->heap, sizeof(*m));
    *m = (struct macro){.node = n, .scope = e->scope};
    return (struct value){.kind = VALUE_MACRO, .macro = m};
}

/* The call of {% call %}, with the block as its argument `caller`. */
static void exec_call_block(struct eval *e, const struct node *n)
{
    struct value callee = eval_node(e, n->a->a);
    const struct keyword caller = {.name = n->b->name, .value = make_macro(e, n->b)};
    const struct args args = eval_args(e, n->a->b, n->a->c, &caller);
    print_value(e->out, call_value(e, callee, &args));
}

static void exec_with(struct eval *e, const struct node *n)
{
    struct scope *before = e->scope, *inside = scope_open(e, before);
    for (const struct node *set = n->a; set; set = set->next)
        scope_set(e, inside, set->a->name, eval_node(e, set->b));
    e->scope = inside;
    exec_nodes(e, n->b);
    e->scope = before;
}

static void exec_scope(struct eval *e, const struct node *n)
{
    struct scope *before = e->scope;
    e->scope = scope_open(e, before);
    exec_nodes(e, n->b);
    e->scope = before;
}

static void exec_if(struct eval *e, const struct node *n)
{
    while (!value_true(eval_node(e, n->a))) {
        if (!n->flag) { /* the statements of else, if any */
            exec_nodes(e, n->c);
            return;
        }
        n = n->c;
    }
    exec_nodes(e, n->b);
}

static void exec_node(struct eval *e, const struct node *n)
{
    struct value v;
    switch (n->kind) {
    case NODE_TEXT:
        buf_string(e->out, n->value);
        break;
    case NODE_OUTPUT:
        print_value(e->out, eval_node(e, n->a));
        break;
    case NODE_IF:
        exec_if(e, n);
        break;
    case NODE_FOR:
        run_loop(e, n, value_items(e->heap, eval_node(e, n->b)), e->scope, 0);
        break;
    case NODE_SET:
        assign(e, n->a, eval_node(e, n->b));
        break;
    case NODE_SET_BLOCK:
        v = exec_captured(e, n->b, scope_open(e, e->scope));
        assign(e, n->a, eval_block_filters(e, n->c, v));
        break;
    case NODE_MACRO:
        scope_set(e, e->scope, n->name, make_macro(e, n));
        break;
    case NODE_CALL_BLOCK:
        exec_call_block(e, n);
        break;
    case NODE_FILTER_BLOCK:
        v = exec_captured(e, n->b, scope_open(e, e->scope));
        print_value(e->out, eval_block_filters(e, n->a, v));
        break;
    case NODE_WITH:
        exec_with(e, n);
        break;
    case NODE_SCOPE:
        exec_scope(e, n);
        break;
    case NODE_DO:
        (void)eval_node(e, n->a);
        break;
    default:
        e->flow = n->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    }
}

void exec_nodes(struct eval *e, const struct node *n)
{
    for (; n && e->flow == FLOW_ON; n = n->next) {
        eval_enter(e, n);
        exec_node(e, n);
        eval_leave(e);
    }
}
