/* Expressions and calls. */
#include "client/jinja/eval.h"

#include <errno.h>
#include <string.h>

enum { MOST_DEPTH = 400 };

void eval_enter(struct eval *e, const struct node *n)
{
    e->heap->line = n->line;
    eval_deeper(e);
}

void eval_deeper(struct eval *e)
{
    heap_charge(e->heap, 1);
    if (++e->depth > MOST_DEPTH)
        heap_fault(e->heap, -EINVAL, "it is nested too deeply");
}

void eval_leave(struct eval *e)
{
    e->depth--;
}

void scope_set(struct eval *e, struct scope *s, const struct name *name, struct value v)
{
    struct binding **at = &s->first;
    for (; *at; at = &(*at)->next) {
        heap_charge(e->heap, 1);
        if ((*at)->name == name) {
            (*at)->value = v;
            return;
        }
    }
    *at = heap_take(e->heap, sizeof(**at));
    **at = (struct binding){.name = name, .value = v};
}

static struct value find_name(struct eval *e, const struct name *name)
{
    size_t looked = 0;
    for (struct scope *s = e->scope; s; s = s->up)
        for (struct binding *b = s->first; b; b = b->next, looked++)
            if (b->name == name) {
                heap_charge(e->heap, looked / 8);
                return b->value;
            }
    heap_charge(e->heap, looked / 8);
    return value_undefined(name->text, name->bytes);
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct keywords {
    struct keyword *at; /* [n] */
    size_t n, room;
};

static void add_keyword(struct eval *e, struct keywords *k, struct keyword one)
{
    if (k->n == k->room) {
        size_t room = k->room ? 2 * k->room : 4, item = sizeof(*k->at);
        k->at = heap_grow(e->heap, k->at, k->n * item, k->room * item, room * item);
        k->room = room;
    }
    k->at[k->n++] = one;
}

/* **v */
static void spread_named(struct eval *e, struct keywords *k, struct value v)
{
    struct list *pairs = dict_pairs(e, v).list;
    for (size_t i = 0; i < pairs->n; i++) {
        struct value key = pairs->items[i].list->items[0];
        if (key.kind != VALUE_STRING)
            heap_fault(e->heap, -EINVAL, "keywords must be strings");
        add_keyword(e, k,
                    (struct keyword){.name = names_find(e->names, key.text, key.bytes),
                                     .origin = key.origin == ORIGIN_TEMPLATE ? ORIGIN_TEMPLATE
                                                                             : ORIGIN_INPUT,
                                     .value = pairs->items[i].list->items[1]});
    }
}

/* With `caller`, where it is not NULL, as one more argument. */
struct args eval_args(struct eval *e, const struct node *positional, const struct node *named,
                      const struct keyword *caller)
{
    struct list all = {0};
    struct keywords k = {0};
    for (; positional; positional = positional->next) {
        bool spreads = positional->kind == NODE_SPREAD;
        struct value v = eval_node(e, spreads ? positional->a : positional);
        struct list *items = spreads ? value_items(e->heap, v) : NULL;
        list_extend(e->heap, &all, spreads ? items->items : &v, spreads ? items->n : 1);
    }
    if (caller)
        add_keyword(e, &k, *caller);
    for (; named; named = named->next) {
        struct value v = eval_node(e, named->a);
        if (named->kind == NODE_SPREAD)
            spread_named(e, &k, v);
        else
            add_keyword(e, &k, (struct keyword){.name = named->name, .value = v});
    }
    return (struct args){.at = all.items, .n = all.n, .named = k.at, .n_named = k.n};
}

/* The place of a name in "width first blank", or -1. */
static int find_parameter(const char *parameters, const struct name *name)
{
    int place = 0;
    for (const char *p = parameters; *p; place++) {
        size_t bytes = strcspn(p, " ");
        if (bytes == name->bytes && memcmp(p, name->text, bytes) == 0)
            return place;
        p += bytes + (p[bytes] == ' ');
    }
    return -1;
}

static size_t count_parameters(const char *parameters)
{
    size_t n = *parameters != 0;
    for (; *parameters; parameters++)
        n += *parameters == ' ';
    return n;
}

struct value call_builtin(struct eval *e, const struct builtin *b, struct value self,
                          const struct args *a)
{
    struct value bound[BUILTIN_MOST_PARAMETERS] = {{.kind = VALUE_ABSENT}};
    struct call c = {.self = self, .a = bound, .given = a};
    if (strcmp(b->parameters, "*") == 0)
        return b->run(e, &c);
    size_t most = count_parameters(b->parameters);
    if (a->n > most)
        heap_fault(e->heap, -EINVAL, "%s takes at most %zu arguments, not %zu", b->name, most,
                   a->n);
    for (size_t i = 0; i < a->n; i++)
        bound[i] = a->at[i];
    for (size_t i = 0; i < a->n_named; i++) {
        const struct name *name = a->named[i].name;
        int place = find_parameter(b->parameters, name);
        if (place < 0 || bound[place].kind != VALUE_ABSENT)
            heap_fault(e->heap, -EINVAL, "%s takes no argument '%.*s'", b->name,
                       (int)(name->bytes < 64 ? name->bytes : 64), name->text);
        bound[place] = a->named[i].value;
    }
    for (size_t i = 0; i < b->least; i++)
        if (bound[i].kind == VALUE_ABSENT)
            heap_fault(e->heap, -EINVAL, "%s needs %u argument%s", b->name, b->least,
                       b->least == 1 ? "" : "s");
    return b->run(e, &c);
}

static struct value call_macro(struct eval *e, const struct macro *m, const struct args *a)
{
    struct scope *inside = heap_take(e->heap, sizeof(*inside)), *outside = e->scope;
    const struct name *name = m->node->name;
    size_t i = 0, used = 0;
    inside->up = m->scope;
    e->scope = inside; /* a default may name an earlier parameter */
    for (const struct node *p = m->node->a; p; p = p->next, i++) {
        struct value v = value_undefined(p->name->text, p->name->bytes);
        bool given = i < a->n;
        if (given)
            v = a->at[i];
        for (size_t k = 0; k < a->n_named; k++)
            if (a->named[k].name == p->name) {
                v = a->named[k].value;
                given = true;
                used++;
            }
        if (!given && p->a)
            v = eval_node(e, p->a);
        scope_set(e, inside, p->name, v);
    }
    for (size_t k = 0; k < a->n_named; k++)
        if (a->named[k].name->bytes == 6 && memcmp(a->named[k].name->text, "caller", 6) == 0) {
            scope_set(e, inside, a->named[k].name, a->named[k].value);
            used++;
        }
    if (a->n > i || used < a->n_named)
        heap_fault(e->heap, -EINVAL, "macro '%.*s' takes other arguments",
                   (int)(name->bytes < 64 ? name->bytes : 64), name->text);
    struct value r = exec_captured(e, m->node->b, inside);
    e->scope = outside;
    return r;
}

struct value call_value(struct eval *e, struct value callee, const struct args *a)
{
    switch (callee.kind) {
    case VALUE_MACRO:
        return call_macro(e, callee.macro, a);
    case VALUE_BUILTIN:
        return call_builtin(e, callee.builtin, value_none(), a);
    case VALUE_METHOD:
        return call_builtin(e, callee.method->builtin, callee.method->self, a);
    case VALUE_LOOP:
        if (a->n != 1 || a->n_named || !callee.loop->node->flag)
            heap_fault(e->heap, -EINVAL, "loop() is for recursive loops and takes one argument");
        return call_loop(e, callee.loop, a->at[0]);
    case VALUE_UNDEFINED:
        value_undefined_fault(e->heap, callee);
    default:
        heap_fault(e->heap, -EINVAL, "'%s' object is not callable", value_type(callee));
    }
}

static struct value eval_filter(struct eval *e, const struct node *n, struct value of)
{
    if (!n->builtin)
        heap_fault(e->heap, -EINVAL, "no filter is named '%.*s'",
                   (int)(n->name->bytes < 64 ? n->name->bytes : 64), n->name->text);
    struct args a = eval_args(e, n->b, n->c, NULL);
    e->heap->line = n->line;
    return call_builtin(e, n->builtin, of, &a);
}

struct value eval_block_filters(struct eval *e, const struct node *n, struct value block)
{
    if (!n)
        return block;
    eval_enter(e, n);
    struct value v = eval_filter(e, n, eval_block_filters(e, n->a, block));
    eval_leave(e);
    return v;
}

static struct value eval_test(struct eval *e, const struct node *n)
{
    struct value of = eval_node(e, n->a);
    if (!n->builtin)
        heap_fault(e->heap, -EINVAL, "no test is named '%.*s'",
                   (int)(n->name->bytes < 64 ? n->name->bytes : 64), n->name->text);
    struct args a = eval_args(e, n->b, n->c, NULL);
    return value_bool(value_true(call_builtin(e, n->builtin, of, &a)) != n->flag);
}

/* ---- expressions ----------------------------------------------------------------------------- */

static struct value eval_list(struct eval *e, const struct node *n)
{
    struct value v = n->kind == NODE_TUPLE ? value_tuple(e->heap) : value_list(e->heap);
    for (const struct node *item = n->a; item; item = item->next)
        list_push(e->heap, v.list, eval_node(e, item));
    return v;
}

static struct value eval_dict(struct eval *e, const struct node *n)
{
    struct value v = value_dict(e->heap);
    for (const struct node *key = n->a; key; key = key->next->next) {
        struct value k = eval_node(e, key);
        dict_set(e->heap, v.dict, k, eval_node(e, key->next));
    }
    return v;
}

static struct value eval_compare(struct eval *e, const struct node *n)
{
    struct value a = eval_node(e, n->a);
    for (const struct node *o = n->b; o; o = o->next) {
        struct value b = eval_node(e, o->a);
        if (!op_compare(e, o->op, a, b))
            return value_bool(false);
        a = b;
    }
    return value_bool(true);
}

static struct value eval_concat(struct eval *e, const struct node *n)
{
    struct buf b = {.heap = e->heap};
    for (const struct node *part = n->a; part; part = part->next)
        print_value(&b, eval_node(e, part));
    return buf_value(&b);
}

static struct value eval_sign(struct eval *e, const struct node *n)
{
    struct value v = eval_node(e, n->a);
    value_need(e->heap, v);
    if (!value_is_number(v))
        heap_fault(e->heap, -EINVAL, "'%s' has no sign", value_type(v));
    if (n->kind == NODE_POSITIVE)
        return v;
    return op_binary(e, '-', v.kind == VALUE_FLOAT ? value_float(-0.0) : value_integer(0), v);
}

/* An end of a slice, as Python cuts it to [low, high]. */
static int64_t slice_end(struct eval *e, const struct node *n, int64_t length, int64_t otherwise,
                         int64_t low, int64_t high)
{
    struct value v = n ? eval_node(e, n) : value_none();
    if (v.kind == VALUE_NONE)
        return otherwise;
    if (v.kind != VALUE_INTEGER)
        heap_fault(e->heap, -EINVAL, "slice indices must be integers");
    int64_t i = v.integer;
    if (i < 0)
        i = i < -length ? -1 : i + length;
    return i < low ? low : i > high ? high : i;
}

static struct value take_slice(struct eval *e, struct value of, const int64_t at[3])
{
    struct list *all = value_items(e->heap, of);
    struct value v = value_list(e->heap);
    for (int64_t i = at[0]; at[2] > 0 ? i < at[1] : i > at[1];) {
        list_push(e->heap, v.list, all->items[i]);
        if (__builtin_add_overflow(i, at[2], &i))
            break;
    }
    if (of.kind == VALUE_STRING) {
        struct buf b = {.heap = e->heap};
        for (size_t i = 0; i < v.list->n; i++)
            buf_string(&b, v.list->items[i]);
        return buf_value(&b);
    }
    v.kind = of.kind;
    return v;
}

static struct value eval_slice(struct eval *e, const struct node *n)
{
    struct value of = eval_node(e, n->a), step = n->d ? eval_node(e, n->d) : value_none();
    value_need(e->heap, of);
    if (of.kind != VALUE_STRING && !value_is_list(of))
        heap_fault(e->heap, -EINVAL, "'%s' object cannot be sliced", value_type(of));
    if (step.kind != VALUE_NONE && (step.kind != VALUE_INTEGER || !step.integer))
        heap_fault(e->heap, -EINVAL, "slice step must be an integer and not zero");
    int64_t length = (int64_t)value_length(e->heap, of), by = 1;
    if (step.kind == VALUE_INTEGER)
        by = step.integer;
    int64_t low = by > 0 ? 0 : -1, high = by > 0 ? length : length - 1;
    int64_t at[3] = {slice_end(e, n->b, length, by > 0 ? low : high, low, high),
                     slice_end(e, n->c, length, by > 0 ? high : low, low, high), by};
    if (of.kind == VALUE_STRING && by == 1) {
        size_t from = text_offset(of.text, of.bytes, (size_t)at[0]), to = from;
        if (at[1] > at[0])
            to += text_offset(of.text + from, of.bytes - from, (size_t)(at[1] - at[0]));
        return value_slice(of, from, to - from);
    }
    return take_slice(e, of, at);
}

static struct value eval_logic(struct eval *e, const struct node *n)
{
    struct value v = eval_node(e, n->a);
    switch (n->kind) {
    case NODE_NOT:
        return value_bool(!value_true(v));
    case NODE_AND:
        return value_true(v) ? eval_node(e, n->b) : v;
    default:
        return value_true(v) ? v : eval_node(e, n->b);
    }
}

static struct value eval_call(struct eval *e, const struct node *n)
{
    struct value callee = eval_node(e, n->a);
    struct args a = eval_args(e, n->b, n->c, NULL);
    e->heap->line = n->line;
    if (callee.kind == VALUE_UNDEFINED && n->a->kind == NODE_ATTRIBUTE)
        heap_fault(e->heap, -EINVAL, "there is no method '%.*s'",
                   (int)(callee.bytes < 64 ? callee.bytes : 64), callee.text);
    return call_value(e, callee, &a);
}

static struct value eval_choice(struct eval *e, const struct node *n)
{
    if (value_true(eval_node(e, n->b)))
        return eval_node(e, n->a);
    return n->c ? eval_node(e, n->c) : value_undefined("the other case of an if", 23);
}

static struct value eval_kind(struct eval *e, const struct node *n)
{
    struct value a;
    switch (n->kind) {
    case NODE_CONST:
        return n->value;
    case NODE_NAME:
        return find_name(e, n->name);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_list(e, n);
    case NODE_DICT:
        return eval_dict(e, n);
    case NODE_NOT:
    case NODE_AND:
    case NODE_OR:
        return eval_logic(e, n);
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        return eval_sign(e, n);
    case NODE_CHOICE:
        return eval_choice(e, n);
    case NODE_BINARY:
        a = eval_node(e, n->a);
        return op_binary(e, n->op, a, eval_node(e, n->b));
    case NODE_COMPARE:
        return eval_compare(e, n);
    case NODE_CONCAT:
        return eval_concat(e, n);
    case NODE_ATTRIBUTE:
        return get_attribute(e, eval_node(e, n->a), n->name->text, n->name->bytes);
    case NODE_ITEM:
        a = eval_node(e, n->a);
        return get_item(e, a, eval_node(e, n->b));
    case NODE_SLICE:
        return eval_slice(e, n);
    case NODE_CALL:
        return eval_call(e, n);
    case NODE_FILTER:
        return eval_filter(e, n, eval_node(e, n->a));
    default:
        return eval_test(e, n);
    }
}

struct value eval_node(struct eval *e, const struct node *n)
{
    eval_enter(e, n);
    struct value v = eval_kind(e, n);
    eval_leave(e);
    return v;
}
