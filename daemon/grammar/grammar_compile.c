/* grammar_compile.c: from the tree to ops. Ops are emitted back to front: emit(node, next) makes
 * the ops of a node that continues at `next`, and returns its first op. */
#include "daemon/grammar/grammar_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WORK_MAX = 4 * GRAMMAR_OPS_MAX, TAILS = 16 };

/* The copies of a repetition's part: copy k, counted from the last one, is at op first + stride *
 * k. */
struct copies {
    uint32_t first, stride, n;
};

struct compiler {
    struct ast_tree *t;
    struct program *p;
    uint32_t single[256]; /* the set of this single byte + 1, or 0 */
    uint32_t *trees;      /* [n_rules] */
    uint32_t room_trees;
    uint32_t *rule_at; /* [n_rules] */
    uint32_t room_rule_at;
    struct copies *copies;
    uint32_t n_copies, room_copies;
    uint32_t work;
    uint32_t at; /* position in the text of what is being emitted, for errors */
};

static int64_t emit(struct compiler *c, uint32_t node, uint32_t next);

static int64_t new_op(struct compiler *c, enum op_kind kind, uint32_t a, uint32_t b)
{
    struct program *p = c->p;
    if (p->n_ops == GRAMMAR_OPS_MAX)
        return grammar_fail(c->t, c->at,
                            "the grammar is too large here: with its repetitions expanded it has "
                            "more than %d parts",
                            GRAMMAR_OPS_MAX);
    if (GROW(p->ops, p->room_ops, p->n_ops) < 0)
        return -ENOMEM;
    p->ops[p->n_ops] = (struct op){kind, a, b};
    return p->n_ops++;
}

static int64_t new_set(struct compiler *c)
{
    struct program *p = c->p;
    if (GROW(p->sets, p->room_sets, p->n_sets) < 0)
        return -ENOMEM;
    p->sets[p->n_sets] = (struct byte_set){{0}};
    return p->n_sets++;
}

static void set_add(struct byte_set *s, uint32_t from, uint32_t to)
{
    for (uint32_t byte = from; byte <= to; byte++)
        s->bits[byte >> 6] |= (uint64_t)1 << (byte & 63);
}

static int64_t new_rule(struct compiler *c, uint32_t tree, uint32_t at)
{
    struct program *p = c->p;
    if (p->n_rules == GRAMMAR_RULES_MAX)
        return grammar_fail(c->t, at, "more than %d rules, including those made for repetitions",
                            GRAMMAR_RULES_MAX);
    if (GROW(c->trees, c->room_trees, p->n_rules) < 0 ||
        GROW(c->rule_at, c->room_rule_at, p->n_rules) < 0)
        return -ENOMEM;
    c->trees[p->n_rules] = tree;
    c->rule_at[p->n_rules] = at;
    return p->n_rules++;
}

/* ---- characters ------------------------------------------------------------------------------ */

static int64_t emit_byte(struct compiler *c, uint8_t byte, uint32_t next)
{
    if (c->single[byte] == 0) {
        const int64_t set = new_set(c);
        if (set < 0)
            return set;
        set_add(&c->p->sets[set], byte, byte);
        c->single[byte] = (uint32_t)set + 1;
    }
    return new_op(c, OP_BYTE, c->single[byte] - 1, next);
}

static int64_t emit_literal(struct compiler *c, const struct ast *node, uint32_t next)
{
    int64_t op = next;
    for (uint32_t i = node->b; i > 0 && op >= 0; i--)
        op = emit_byte(c, c->t->bytes[node->a + i - 1], (uint32_t)op);
    return op;
}

/* The ops of one character class: continuation bytes, shared where encodings end alike, and sets of
 * lead bytes by what follows them. */
struct class_ops {
    struct compiler *c;
    uint32_t next;
    struct {
        uint32_t from, to, next, op;
    } tails[TAILS];
    uint32_t n_tails;
    uint32_t leads[TAILS], sets[TAILS]; /* the op that follows, and its set of lead bytes */
    uint32_t n_leads;
    int64_t begin; /* ops of leads that no longer fit, or -1 */
};

static int64_t class_tail(struct class_ops *k, uint32_t from, uint32_t to, uint32_t next)
{
    struct compiler *c = k->c;
    for (uint32_t i = 0; i < k->n_tails && i < TAILS; i++)
        if (k->tails[i].from == from && k->tails[i].to == to && k->tails[i].next == next)
            return k->tails[i].op;
    const int64_t set = new_set(c);
    if (set < 0)
        return set;
    set_add(&c->p->sets[set], from, to);
    const int64_t op = new_op(c, OP_BYTE, (uint32_t)set, next);
    if (op < 0)
        return op;
    const uint32_t i = k->n_tails++ % TAILS;
    k->tails[i].from = from;
    k->tails[i].to = to;
    k->tails[i].next = next;
    k->tails[i].op = (uint32_t)op;
    return op;
}

/* Adds an op to the ways the class may begin. */
static int class_join(struct class_ops *k, int64_t op)
{
    if (op >= 0 && k->begin >= 0)
        op = new_op(k->c, OP_SPLIT, (uint32_t)op, (uint32_t)k->begin);
    if (op >= 0)
        k->begin = op;
    return op < 0 ? (int)op : 0;
}

static int class_lead(struct class_ops *k, uint32_t from, uint32_t to, uint32_t next)
{
    struct compiler *c = k->c;
    uint32_t i = 0;
    while (i < k->n_leads && k->leads[i] != next)
        i++;
    if (i == TAILS) { /* evict one, though not the oldest: it will be needed again */
        const int rc = class_join(k, new_op(c, OP_BYTE, k->sets[0], k->leads[0]));
        if (rc < 0)
            return rc;
        memmove(k->leads, k->leads + 1, (TAILS - 1) * sizeof(*k->leads));
        memmove(k->sets, k->sets + 1, (TAILS - 1) * sizeof(*k->sets));
        k->n_leads = i = TAILS - 1;
    }
    if (i == k->n_leads) {
        const int64_t set = new_set(c);
        if (set < 0)
            return (int)set;
        k->leads[i] = next;
        k->sets[i] = (uint32_t)set;
        k->n_leads++;
    }
    set_add(&c->p->sets[k->sets[i]], from, to);
    return 0;
}

/* Emits code points whose encodings are one range of bytes at each position. */
static int class_bytes(struct class_ops *k, uint32_t from, uint32_t to)
{
    uint8_t low[4], high[4];
    const uint32_t n = grammar_utf8(from, low);
    int64_t next = k->next;
    grammar_utf8(to, high);
    for (uint32_t i = n - 1; i > 0 && next >= 0; i--)
        next = class_tail(k, low[i], high[i], (uint32_t)next);
    return next < 0 ? (int)next : class_lead(k, low[0], high[0], (uint32_t)next);
}

/* Splits a range where its encodings stop being one byte range at each position. */
static int class_range(struct class_ops *k, uint32_t from, uint32_t to)
{
    static const uint32_t last[] = {0x7f, 0x7ff, 0xffff};
    uint32_t cut = to; /* the last code point of the first part */
    for (int i = 0; i < 3 && cut == to; i++)
        if (from <= last[i] && to > last[i])
            cut = last[i];
    for (uint32_t bits = 6; bits < 24 && from >= 0x80 && cut == to; bits += 6) {
        const uint32_t mask = (1u << bits) - 1;
        if ((from & ~mask) == (to & ~mask))
            break;
        if ((from & mask) != 0)
            cut = from | mask;
        else if ((to & mask) != mask)
            cut = (to & ~mask) - 1;
    }
    if (cut == to)
        return class_bytes(k, from, to);
    const int rc = class_range(k, from, cut);
    return rc < 0 ? rc : class_range(k, cut + 1, to);
}

static int64_t emit_class(struct compiler *c, const struct ast *node, uint32_t next)
{
    struct class_ops k = {.c = c, .next = next, .begin = -1};
    int rc = 0;
    for (uint32_t i = 0; i < node->b && rc == 0; i++) {
        const struct ast_range r = c->t->ranges[node->a + i];
        rc = class_range(&k, r.from, r.to);
    }
    for (uint32_t i = k.n_leads; i > 0 && rc == 0; i--)
        rc = class_join(&k, new_op(c, OP_BYTE, k.sets[i - 1], k.leads[i - 1]));
    return rc < 0 ? rc : k.begin;
}

/* ---- repetitions ----------------------------------------------------------------------------- */

/* True if the node compiles to one op. */
static bool is_single(const struct compiler *c, const struct ast *node)
{
    if (node->kind == AST_CLASS)
        return c->t->ranges[node->a + node->b - 1].to < 0x80;
    return node->kind == AST_RULE || (node->kind == AST_LITERAL && node->b == 1) ||
           node->rule != GRAMMAR_NONE;
}

/* Makes a rule of a child that is to be copied, unless it is one op. */
static int outline(struct compiler *c, uint32_t child)
{
    struct ast *node = &c->t->nodes[child];
    if (is_single(c, node))
        return 0;
    const int64_t rule = new_rule(c, child, node->at);
    if (rule < 0)
        return (int)rule;
    node->rule = (uint32_t)rule;
    return 0;
}

static int note_copies(struct compiler *c, uint32_t first, uint32_t stride, uint32_t n)
{
    if (n <= GRAMMAR_SHORT)
        return 0;
    if (GROW(c->copies, c->room_copies, c->n_copies) < 0)
        return -ENOMEM;
    c->copies[c->n_copies++] = (struct copies){first, stride, n};
    return 0;
}

static int64_t emit_star(struct compiler *c, uint32_t child, uint32_t next, bool once)
{
    const int64_t split = new_op(c, OP_SPLIT, OP_AT_FAIL, next);
    const int64_t body = split < 0 ? split : emit(c, child, (uint32_t)split);
    if (body < 0)
        return body;
    c->p->ops[split].a = (uint32_t)body;
    return once ? body : split;
}

/* Emits up to n repetitions. */
static int64_t emit_up_to(struct compiler *c, uint32_t child, uint32_t next, uint32_t n)
{
    const uint32_t first = c->p->n_ops;
    int64_t op = next;
    for (uint32_t i = 0; i < n && op >= 0; i++) {
        op = emit(c, child, (uint32_t)op);
        op = op < 0 ? op : new_op(c, OP_SPLIT, (uint32_t)op, next);
    }
    return op < 0 || note_copies(c, first, 2, n) < 0 ? (op < 0 ? op : -ENOMEM) : op;
}

static int64_t emit_times(struct compiler *c, uint32_t child, uint32_t next, uint32_t n)
{
    const uint32_t first = c->p->n_ops;
    int64_t op = next;
    for (uint32_t i = 0; i < n && op >= 0; i++)
        op = emit(c, child, (uint32_t)op);
    return op < 0 || note_copies(c, first, 1, n) < 0 ? (op < 0 ? op : -ENOMEM) : op;
}

static int64_t emit_repeat(struct compiler *c, uint32_t index, uint32_t next)
{
    const struct ast node = c->t->nodes[index];
    const bool endless = node.c == GRAMMAR_NONE;
    if (endless && node.b <= 1)
        return emit_star(c, node.a, next, node.b == 1);
    if (node.c > 1) {
        const int rc = outline(c, node.a);
        if (rc < 0)
            return rc;
    }
    int64_t op =
        endless ? emit_star(c, node.a, next, false) : emit_up_to(c, node.a, next, node.c - node.b);
    return op < 0 ? op : emit_times(c, node.a, (uint32_t)op, node.b);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static int64_t emit_sequence(struct compiler *c, uint32_t first, uint32_t next)
{
    /* Emitted last to first, but children are linked forwards: collect them. */
    uint32_t n = 0;
    for (uint32_t i = first; i != GRAMMAR_NONE; i = c->t->nodes[i].sibling)
        n++;
    uint32_t *children = malloc((n + 1u) * sizeof(*children));
    if (children == NULL)
        return -ENOMEM;
    n = 0;
    for (uint32_t i = first; i != GRAMMAR_NONE; i = c->t->nodes[i].sibling)
        children[n++] = i;
    int64_t op = next;
    while (n > 0 && op >= 0)
        op = emit(c, children[--n], (uint32_t)op);
    free(children);
    return op;
}

static int64_t emit_choice(struct compiler *c, uint32_t first, uint32_t next)
{
    int64_t op = emit(c, first, next);
    for (uint32_t i = c->t->nodes[first].sibling; i != GRAMMAR_NONE && op >= 0;
         i = c->t->nodes[i].sibling) {
        const int64_t other = emit(c, i, next);
        op = other < 0 ? other : new_op(c, OP_SPLIT, (uint32_t)op, (uint32_t)other);
    }
    return op;
}

static int64_t emit(struct compiler *c, uint32_t index, uint32_t next)
{
    const struct ast *node = &c->t->nodes[index];
    c->at = node->at;
    if (++c->work > WORK_MAX) /* repetitions of an empty part emit no ops but cost time */
        return grammar_fail(c->t, c->at, "too many nested repetitions around this");
    if (node->rule != GRAMMAR_NONE)
        return new_op(c, OP_CALL, node->rule, next);
    switch (node->kind) {
    case AST_LITERAL:
        return emit_literal(c, node, next);
    case AST_CLASS:
        return emit_class(c, node, next);
    case AST_RULE:
        return new_op(c, OP_CALL, node->a, next);
    case AST_SEQUENCE:
        return emit_sequence(c, node->a, next);
    case AST_CHOICE:
        return emit_choice(c, node->a, next);
    case AST_REPEAT:
        return emit_repeat(c, index, next);
    }
    return -EINVAL;
}

/* Emits the rules of the text, then those made for repetitions, which may make more. */
static int emit_rules(struct compiler *c)
{
    struct program *p = c->p;
    assert(c->trees != NULL); /* there is at least the root */
    for (uint32_t i = 0; i < p->n_rules; i++) {
        struct ast *node = &c->t->nodes[c->trees[i]];
        const uint32_t called = node->rule;
        node->rule = GRAMMAR_NONE; /* within the rule its body is not a call of it */
        const int64_t op = emit(c, c->trees[i], OP_AT_RETURN);
        c->t->nodes[c->trees[i]].rule = called;
        if (op < 0)
            return (int)op;
        if (GROW(p->starts, p->room_rules, i) < 0)
            return -ENOMEM;
        p->starts[i] = (uint32_t)op;
    }
    return 0;
}

/* Copies of a part that takes at least a byte, more than `reach` copies before the end, are
 * equivalent. */
static int find_same(struct compiler *c, uint32_t reach, int which)
{
    struct program *p = c->p;
    uint32_t *same = malloc(p->n_ops * sizeof(*same));
    if (same == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->n_ops; i++)
        same[i] = i;
    for (uint32_t i = 0; i < c->n_copies; i++) {
        const struct copies *s = &c->copies[i];
        const struct op *part = &p->ops[s->first];
        if (part->kind == OP_CALL ? p->nullable[part->a] : part->kind != OP_BYTE)
            continue;
        p->has_same[which] |= s->n > reach + 1;
        for (uint32_t k = reach + 1; k < s->n; k++)
            for (uint32_t j = 0; j < s->stride; j++)
                same[s->first + k * s->stride + j] = s->first + reach * s->stride + j;
    }
    p->same[which] = same;
    return 0;
}

static int compile(struct compiler *c, uint32_t longest)
{
    struct program *p = c->p;
    int64_t rc = new_op(c, OP_RETURN, 0, 0);
    rc = rc < 0 ? rc : new_op(c, OP_FAIL, 0, 0);
    for (uint32_t i = 0; i < c->t->n_rules && rc >= 0; i++)
        rc = new_rule(c, c->t->rules[i].tree, c->t->rules[i].at);
    p->root = c->t->root;
    rc = rc < 0 ? rc : emit_rules(c);
    rc = rc < 0 ? rc : grammar_analyse(c->t, c->rule_at, p);
    rc = rc < 0 ? rc : find_same(c, GRAMMAR_SHORT, 0);
    return rc < 0 ? (int)rc : find_same(c, longest, 1);
}

int grammar_compile(struct ast_tree *t, uint32_t longest, struct program *ret)
{
    struct compiler *c = calloc(1, sizeof(*c));
    *ret = (struct program){0};
    if (c == NULL)
        return -ENOMEM;
    c->t = t;
    c->p = ret;
    const int rc = compile(c, longest > GRAMMAR_SHORT ? longest : GRAMMAR_SHORT);
    free(c->trees);
    free(c->rule_at);
    free(c->copies);
    free(c);
    return rc;
}

void grammar_program_free(struct program *p)
{
    free(p->ops);
    free(p->sets);
    free(p->starts);
    free(p->nullable);
    free(p->order);
    free(p->by_order);
    free(p->same[0]);
    free(p->same[1]);
}
