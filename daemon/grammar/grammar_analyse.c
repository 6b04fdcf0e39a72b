/* grammar_analyse.c: derives from the ops which rules may be empty, which ops are dead ends, what a
 * rule begins with, and which bytes no op distinguishes. All linear in the ops. */
#include "daemon/grammar/grammar_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SHOWN = 40 };

/* ---- what a rule's end can be reached from --------------------------------------------------- */

/* For each op, the ops that depend on it: from[at[op] .. at[op + 1]]. */
struct users {
    uint32_t *at, *from;
    uint32_t *queue;
};

/* The ops that op i depends on. Returns how many. */
static uint32_t needs(const struct program *p, uint32_t i, uint32_t ret[2])
{
    const struct op *op = &p->ops[i];
    switch (op->kind) {
    case OP_BYTE:
        ret[0] = op->b;
        return 1;
    case OP_SPLIT:
        ret[0] = op->a;
        ret[1] = op->b;
        return 2;
    case OP_CALL:
        ret[0] = p->starts[op->a];
        ret[1] = op->b;
        return 2;
    default:
        return 0;
    }
}

static int users_open(const struct program *p, struct users *u)
{
    uint32_t on[2];
    u->at = calloc(p->n_ops + 2u, sizeof(*u->at));
    u->from = calloc(p->n_ops * 2u, sizeof(*u->from));
    u->queue = calloc(p->n_ops, sizeof(*u->queue));
    if (u->at == NULL || u->from == NULL || u->queue == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = needs(p, i, on); k > 0; k--)
            u->at[on[k - 1] + 2]++;
    for (uint32_t i = 2; i < p->n_ops + 2; i++)
        u->at[i] += u->at[i - 1];
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = needs(p, i, on); k > 0; k--)
            u->from[u->at[on[k - 1] + 1]++] = i;
    return 0;
}

static void users_close(struct users *u)
{
    free(u->at);
    free(u->from);
    free(u->queue);
}

/* yes[op]: the end of its rule can be reached from op; without taking a byte unless `bytes`. */
static void solve(const struct program *p, const struct users *u, bool bytes, uint8_t *yes)
{
    uint32_t n = 1;
    memset(yes, 0, p->n_ops);
    yes[OP_AT_RETURN] = 1;
    u->queue[0] = OP_AT_RETURN;
    while (n > 0) {
        const uint32_t at = u->queue[--n];
        for (uint32_t k = u->at[at]; k < u->at[at + 1]; k++) {
            const uint32_t i = u->from[k];
            const struct op *op = &p->ops[i];
            bool now = op->kind == OP_BYTE    ? bytes
                       : op->kind == OP_SPLIT ? true
                                              : yes[p->starts[op->a]] && yes[op->b];
            if (now && !yes[i]) {
                yes[i] = 1;
                u->queue[n++] = i;
            }
        }
    }
}

/* ---- what a rule begins with ----------------------------------------------------------------- */

struct edges {
    uint32_t *at;                /* [n_rules + 1] */
    uint32_t *to, n_to, room_to; /* the rules that each rule may call before it takes a byte */
    uint32_t *stack;             /* [n_ops] */
    uint32_t *seen;              /* [n_ops] rule + 1 that visited the op last */
};

static int add_edges(const struct program *p, uint32_t rule, struct edges *e)
{
    uint32_t n = 0;
    e->stack[n++] = p->starts[rule];
    e->seen[p->starts[rule]] = rule + 1;
    while (n > 0) {
        const struct op *op = &p->ops[e->stack[--n]];
        uint32_t on[2], n_on = 0;
        if (op->kind == OP_SPLIT) {
            on[n_on++] = op->a;
            on[n_on++] = op->b;
        } else if (op->kind == OP_CALL) {
            if (grammar_grow((void **)&e->to, &e->room_to, e->n_to, sizeof(*e->to)) < 0)
                return -ENOMEM;
            e->to[e->n_to++] = op->a;
            if (p->nullable[op->a])
                on[n_on++] = op->b;
        }
        for (; n_on > 0; n_on--)
            if (e->seen[on[n_on - 1]] != rule + 1) {
                e->seen[on[n_on - 1]] = rule + 1;
                e->stack[n++] = on[n_on - 1];
            }
    }
    e->at[rule + 1] = e->n_to;
    return 0;
}

static int tell_left_recursion(const struct ast_tree *t, const uint32_t *rule_at, uint32_t rule)
{
    if (rule >= t->n_rules)
        return grammar_fail(
            t, rule_at[rule],
            "this item begins with itself (left recursion): put something before it, or use *");
    const struct ast_rule *r = &t->rules[rule];
    const int shown = (int)(r->name_bytes < NAME_SHOWN ? r->name_bytes : NAME_SHOWN);
    return grammar_fail(
        t, rule_at[rule],
        "rule %.*s begins with itself (left recursion): write the repeated part after it, with *",
        shown, t->text + r->name_at);
}

/* Orders rules so that callers come before the rules they begin with, by depth-first search; a rule
 * on its own path is left-recursive and refused. */
static int find_order(const struct ast_tree *t, const uint32_t *rule_at, struct program *p,
                      const struct edges *e)
{
    uint32_t *path = calloc(p->n_rules, sizeof(*path));
    uint32_t *edge = calloc(p->n_rules, sizeof(*edge));
    uint8_t *state = calloc(p->n_rules, 1); /* 1: on the path, 2: done */
    uint32_t left = p->n_rules;
    int rc = path == NULL || edge == NULL || state == NULL ? -ENOMEM : 0;
    for (uint32_t first = 0; first < p->n_rules && rc == 0; first++) {
        uint32_t depth = 0;
        if (state[first] == 0) {
            path[depth++] = first;
            state[first] = 1;
            edge[first] = e->at[first];
        }
        while (depth > 0 && rc == 0) {
            const uint32_t rule = path[depth - 1];
            if (edge[rule] == e->at[rule + 1]) {
                state[rule] = 2;
                p->order[rule] = --left;
                p->by_order[left] = rule;
                depth--;
                continue;
            }
            const uint32_t to = e->to[edge[rule]++];
            if (state[to] == 1)
                rc = tell_left_recursion(t, rule_at, to);
            if (state[to] != 0)
                continue;
            state[to] = 1;
            edge[to] = e->at[to];
            path[depth++] = to;
        }
    }
    free(path);
    free(edge);
    free(state);
    return rc;
}

static int order_rules(const struct ast_tree *t, const uint32_t *rule_at, struct program *p)
{
    struct edges e = {0};
    e.at = calloc(p->n_rules + 1u, sizeof(*e.at));
    e.stack = calloc(p->n_ops, sizeof(*e.stack));
    e.seen = calloc(p->n_ops, sizeof(*e.seen));
    int rc = e.at == NULL || e.stack == NULL || e.seen == NULL ? -ENOMEM : 0;
    for (uint32_t i = 0; i < p->n_rules && rc == 0; i++)
        rc = add_edges(p, i, &e);
    if (rc == 0)
        rc = find_order(t, rule_at, p, &e);
    free(e.at);
    free(e.to);
    free(e.stack);
    free(e.seen);
    return rc;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Bytes that every set contains or excludes alike form one class; the space is a class of its own
 * (grammar_begin). */
static void find_classes(struct program *p)
{
    bool border[256] = {[0] = true, [' '] = true, [' ' + 1] = true};
    for (uint32_t i = 0; i < p->n_sets; i++)
        for (uint32_t word = 0; word < 4; word++) {
            const uint64_t bits = p->sets[i].bits[word];
            const uint64_t before = word > 0 ? p->sets[i].bits[word - 1] >> 63 : 0;
            for (uint64_t changes = bits ^ (bits << 1 | before); changes != 0;
                 changes &= changes - 1)
                border[word * 64 + (uint32_t)__builtin_ctzll(changes)] = true;
        }
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (border[byte])
            p->byte_of[p->n_classes++] = (uint8_t)byte;
        p->class_of[byte] = (uint8_t)(p->n_classes - 1);
    }
}

int grammar_analyse(const struct ast_tree *t, const uint32_t *rule_at, struct program *p)
{
    struct users u = {0};
    uint8_t *yes = malloc(p->n_ops);
    p->nullable = calloc(p->n_rules, 1);
    p->order = calloc(p->n_rules, sizeof(*p->order));
    p->by_order = calloc(p->n_rules, sizeof(*p->by_order));
    int rc = -ENOMEM;
    if (yes != NULL && p->nullable != NULL && p->order != NULL && p->by_order != NULL)
        rc = users_open(p, &u);
    if (rc == 0) {
        solve(p, &u, false, yes);
        for (uint32_t i = 0; i < p->n_rules; i++)
            p->nullable[i] = yes[p->starts[i]];
        rc = order_rules(t, rule_at, p);
    }
    if (rc == 0) {
        solve(p, &u, true, yes);
        if (!yes[p->starts[p->root]])
            rc = grammar_fail(
                t, rule_at[p->root],
                "rule root matches no finite text: every way through it recurses forever");
        for (uint32_t i = 0; i < p->n_ops; i++)
            if (!yes[i])
                p->ops[i].kind = OP_FAIL;
        find_classes(p);
    }
    users_close(&u);
    free(yes);
    return rc;
}
