/* grammar_state.c: states, made on demand, identified by number, swept when there are too many. */
#include "daemon/grammar/grammar_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEEN_SLOTS = 2 * GRAMMAR_WIDTH_MAX,
    /* Ops of rules begun in one step: those that take a byte are GRAMMAR_WIDTH_MAX at most, and
     * what leads to them is some times as many, unless it leads nowhere. */
    BEGUN_MAX = 16 * GRAMMAR_WIDTH_MAX,
    /* Frames of the nodes that ops of one step are on, each as often as such an op. */
    UNITED_MAX = 64 * GRAMMAR_WIDTH_MAX,
    /* Of a frame that is sorted, hashed and compared, in what GRAMMAR_MILLISECOND says. */
    MERGED_COST = 6
};

/* ---- one step -------------------------------------------------------------------------------- */

/* Marks the frame as done in this step. Returns 1 if it was new, else 0; -E2BIG. */
static int see(struct states *s, struct stack_frame f)
{
    uint32_t slot = frames_hash(s->key, &f, 1) & (SEEN_SLOTS - 1);
    for (; s->seen_stamp[slot] == s->stamp; slot = (slot + 1) & (SEEN_SLOTS - 1))
        if (s->seen[slot].op == f.op && s->seen[slot].node == f.node)
            return 0;
    if (++s->n_seen > GRAMMAR_WIDTH_MAX)
        return -E2BIG;
    s->seen[slot] = f;
    s->seen_stamp[slot] = s->stamp;
    return 1;
}

/* Notes a call of a rule; after it `f` continues. */
static int add_call(struct grammar *g, uint32_t rule, struct stack_frame f)
{
    struct states *s = &g->states;
    const uint32_t at = s->calls.n;
    const int rc = frames_push(&s->calls, f.op, f.node);
    if (rc < 0)
        return rc;
    if (GROW(s->call_next, s->room_call_next, at) < 0)
        return -ENOMEM;
    const uint32_t order = g->program.order[rule];
    s->called[order >> 6] |= (uint64_t)1 << (order & 63);
    s->call_next[at] = s->call_head[rule];
    s->call_head[rule] = at;
    return 0;
}

/* An op on `node` calls a rule. If nothing is left to do after the call, the rule returns to where
 * the op's own rule returns to (a tail call), so that right recursion does not deepen the stack. */
static int call(struct grammar *g, const struct op *op, uint32_t node)
{
    const struct set_table *t = &g->states.nodes;
    if (op->b != OP_AT_RETURN)
        return add_call(g, op->a, (struct stack_frame){op->b, node});
    const uint32_t at = t->sets[node].at;
    for (uint32_t i = 0, n = t->sets[node].n; i < n; i++) {
        const int rc = add_call(g, op->a, t->frames[at + i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Follows one op up to those that take a byte. `begun`: no byte was taken since the op's rule was
 * called; reaching its end then adds nothing: a caller of a nullable rule has already been advanced
 * past it. */
static int follow(struct grammar *g, struct stack_frame f, bool begun)
{
    struct states *s = &g->states;
    const struct op *op = &g->program.ops[f.op];
    int rc = 0;
    switch (op->kind) {
    case OP_BYTE:
        return frames_push(&s->out, f.op, f.node);
    case OP_SPLIT:
        rc = frames_push(&s->work, op->a, f.node);
        return rc < 0 ? rc : frames_push(&s->work, op->b, f.node);
    case OP_CALL:
        rc = call(g, op, f.node);
        return rc < 0 || !g->program.nullable[op->a] ? rc : frames_push(&s->work, op->b, f.node);
    case OP_RETURN:
        for (uint32_t i = 0; i < s->nodes.sets[f.node].n && !begun && rc == 0; i++) {
            const struct stack_frame to = s->nodes.frames[s->nodes.sets[f.node].at + i];
            if (to.op == GRAMMAR_NONE)
                s->may_end = true;
            else
                rc = frames_push(&s->work, to.op, to.node);
        }
        return rc;
    case OP_FAIL:
        return 0;
    }
    return -EINVAL;
}

/* Begins the rules that were called, callers first, each once for all its callers. */
static int begin_rules(struct grammar *g, int64_t *cost)
{
    struct states *s = &g->states;
    const struct program *p = &g->program;
    for (uint32_t word = 0; word <= p->n_rules / 64; word++)
        while (s->called[word] != 0) {
            const uint32_t order = word * 64 + (uint32_t)__builtin_ctzll(s->called[word]);
            const uint32_t rule = p->by_order[order];
            s->called[word] &= s->called[word] - 1;
            s->work.n = 0;
            int rc = 0;
            for (uint32_t i = s->call_head[rule]; i != GRAMMAR_NONE && rc == 0; i = s->call_next[i])
                rc = frames_push(&s->work, s->calls.items[i].op, s->calls.items[i].node);
            s->call_head[rule] = GRAMMAR_NONE;
            const int64_t node = rc < 0 ? rc : nodes_find(g, &s->work);
            if (node < 0)
                return (int)node;
            s->work.n = 0;
            rc = frames_push(&s->work, p->starts[rule], (uint32_t)node);
            for (; s->work.n > 0 && rc == 0; ++*cost) {
                const struct stack_frame f = s->work.items[--s->work.n];
                if (s->op_stamp[f.op] == s->stamp && f.op > OP_AT_FAIL)
                    continue;
                s->op_stamp[f.op] = s->stamp;
                rc = ++s->n_begun > BEGUN_MAX ? -E2BIG : follow(g, f, true);
            }
            *cost += 8;
            if (rc < 0)
                return rc;
        }
    return 0;
}

/* Keeps one entry per op: an op on several nodes moves to the union of them. */
static int merge_nodes(struct grammar *g)
{
    struct states *s = &g->states;
    struct stack_frame *out = s->out.items;
    const uint32_t n = frames_sort(out, s->out.n);
    uint32_t kept = 0, united = 0;
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && out[end].op == out[i].op; end++)
            ;
        struct stack_frame f = out[i];
        if (end > i + 1) {
            s->work.n = 0;
            for (uint32_t k = i; k < end; k++) {
                const int rc = nodes_push_all(s, &s->work, out[k].node);
                if (rc < 0)
                    return rc;
            }
            united += s->work.n;
            const int64_t node = united > UNITED_MAX ? -E2BIG : nodes_find(g, &s->work);
            if (node < 0)
                return (int)node;
            f.node = (uint32_t)node;
        }
        out[kept++] = f;
    }
    s->out.n = kept;
    return kept > GRAMMAR_WIDTH_MAX ? -E2BIG : 0;
}

static void begin_step(struct grammar *g)
{
    struct states *s = &g->states;
    s->work.n = s->out.n = s->calls.n = s->n_seen = s->n_begun = 0;
    s->asked = s->merged = 0;
    s->may_end = false;
    if (++s->stamp == 0) { /* when the counter wraps, old stamps could match */
        memset(s->seen_stamp, 0, SEEN_SLOTS * sizeof(*s->seen_stamp));
        memset(s->op_stamp, 0, g->program.n_ops * sizeof(*s->op_stamp));
        s->stamp = 1;
    }
}

/* Cleans up after a step that failed halfway. */
static void forget_calls(struct grammar *g)
{
    struct states *s = &g->states;
    memset(s->called, 0, (g->program.n_rules / 64 + 1u) * sizeof(*s->called));
    for (uint32_t i = 0; i < g->program.n_rules; i++)
        s->call_head[i] = GRAMMAR_NONE;
}

/* Upper bound of the bytes of the nodes that a state stands on. */
static uint64_t stacks_of(const struct states *s, uint32_t state)
{
    return s->stacks[state] > 0 ? s->stacks[state] : UINT32_MAX;
}

/* Turns the work list, whose nodes take at most `stacks` bytes, into a state. */
static int64_t end_step(struct grammar *g, uint64_t stacks, int64_t *cost)
{
    struct states *s = &g->states;
    const uint32_t n_unions = s->unions.n;
    int rc = 0;
    for (; s->work.n > 0 && rc >= 0; ++*cost) {
        const struct stack_frame f = s->work.items[--s->work.n];
        rc = see(s, f);
        if (rc == 1)
            rc = follow(g, f, false);
    }
    if (rc >= 0 && s->calls.n > 0)
        rc = begin_rules(g, cost);
    *cost += 10 + 2 * (int64_t)s->out.n;
    if (rc >= 0)
        rc = merge_nodes(g);
    *cost += 20 * (int64_t)(s->unions.n - n_unions) + MERGED_COST * (int64_t)s->merged;
    if (rc >= 0 && s->may_end)
        rc = frames_push(&s->out, GRAMMAR_NONE, NODE_BOTTOM);
    if (rc < 0)
        forget_calls(g);
    const int64_t to = rc < 0 ? rc : states_find(g, s->out.items, s->out.n);
    rc = to < 0 ? 0 : grammar_check_stacks(g, (uint32_t)to, stacks + s->asked, cost);
    return rc < 0 ? rc : to;
}

int64_t grammar_step(struct grammar *g, uint32_t state, uint32_t class, int64_t *cost)
{
    struct states *s = &g->states;
    const struct program *p = &g->program;
    const uint8_t byte = p->byte_of[class];
    const struct frame_set from = s->sets.sets[state];
    int64_t to = STATE_START;
    if (state != STATE_TWIN || byte != ' ') {
        int rc = 0;
        begin_step(g);
        *cost += 2 + from.n;
        for (uint32_t i = 0; i < from.n && rc == 0; i++) {
            const struct stack_frame f = s->sets.frames[from.at + i];
            if (f.op == GRAMMAR_NONE || !byte_set_has(&p->sets[p->ops[f.op].a], byte))
                continue;
            rc = frames_push(&s->work, p->ops[f.op].b, f.node);
        }
        to = rc < 0 ? rc : end_step(g, stacks_of(s, state), cost);
    }
    if (to >= 0)
        s->next[(size_t)state * p->n_classes + class] = (uint32_t)to;
    return to;
}

/* ---- states made of others ------------------------------------------------------------------- */

int64_t grammar_state_alone(struct grammar *g, uint32_t state, uint32_t node)
{
    struct states *s = &g->states;
    const struct frame_set from = s->sets.sets[state];
    s->out.n = 0;
    for (uint32_t i = 0; i < from.n; i++) {
        const struct stack_frame f = s->sets.frames[from.at + i];
        const int rc =
            f.op == GRAMMAR_NONE || f.node != node ? 0 : frames_push(&s->out, f.op, NODE_BOTTOM);
        if (rc < 0)
            return rc;
    }
    const int64_t alone = states_find(g, s->out.items, s->out.n);
    if (alone >= 0)
        s->stacks[alone] = (uint32_t)grammar_node_bytes(1);
    return alone;
}

int64_t grammar_state_below(struct grammar *g, uint32_t state, uint32_t node, int64_t *cost)
{
    begin_step(g);
    const int rc = frames_push(&g->states.work, OP_AT_RETURN, node);
    return rc < 0 ? rc : end_step(g, stacks_of(&g->states, state), cost);
}

/* Lists the nodes below `set` whose equivalents are not known yet. Returns 0 or -ENOMEM. */
static int list_below(struct states *s, struct frame_set set, int which)
{
    const struct set_table *t = &s->nodes;
    for (uint32_t i = 0; i < set.n; i++) {
        const struct stack_frame f = t->frames[set.at + i];
        if (f.op == GRAMMAR_NONE || t->sets[f.node].same[which] != GRAMMAR_NONE)
            continue;
        /* deep stacks make long lists, which are not limited here */
        if (GROW(s->work.items, s->work.room, s->work.n) < 0)
            return -ENOMEM;
        s->work.items[s->work.n++] = f;
    }
    return 0;
}

/* Finds the node of the equivalent stack, where those of all nodes below are known. Returns 0 or
 * -errno. */
static int find_same(struct grammar *g, uint32_t node, int which)
{
    struct states *s = &g->states;
    const struct set_table *t = &s->nodes;
    const struct frame_set set = t->sets[node];
    int rc = 0;
    s->calls.n = 0;
    for (uint32_t i = 0; i < set.n && rc == 0; i++) {
        const struct stack_frame f = t->frames[set.at + i];
        rc = f.op == GRAMMAR_NONE ? frames_push(&s->calls, f.op, f.node)
                                  : frames_push(&s->calls, g->program.same[which][f.op],
                                                t->sets[f.node].same[which]);
    }
    const int64_t same = rc < 0 ? rc : nodes_find(g, &s->calls);
    if (same >= 0)
        s->nodes.sets[node].same[which] = (uint32_t)same;
    return same < 0 ? (int)same : 0;
}

/* Returns the node of the equivalent stack (`same`), or -errno. It depends on those of all nodes
 * below, so these are found first, from the lowest up, without recursion. */
static int64_t same_node(struct grammar *g, uint32_t node, int which, int64_t *budget)
{
    struct states *s = &g->states;
    struct set_table *t = &s->nodes;
    s->work.n = 0;
    int rc = frames_push(&s->work, 0, node);
    while (s->work.n > 0 && rc == 0) {
        const uint32_t top = s->work.items[s->work.n - 1].node, n_work = s->work.n;
        if (t->sets[top].same[which] != GRAMMAR_NONE) { /* it was listed twice */
            s->work.n--;
            continue;
        }
        const uint64_t merged = s->merged;
        *budget -= 1 + t->sets[top].n;
        rc = list_below(s, t->sets[top], which);
        if (rc == 0 && s->work.n == n_work)
            rc = find_same(g, top, which);
        *budget -= MERGED_COST * (int64_t)(s->merged - merged);
    }
    return rc < 0 ? rc : (int64_t)t->sets[node].same[which];
}

int64_t grammar_state_same(struct grammar *g, uint32_t state, int which, int64_t *budget)
{
    struct states *s = &g->states;
    if (!g->program.has_same[which] || state == STATE_TWIN)
        return state;
    if (s->sets.sets[state].same[which] != GRAMMAR_NONE)
        return s->sets.sets[state].same[which];
    const struct frame_set from = s->sets.sets[state];
    s->out.n = 0;
    bool ends = false;
    for (uint32_t i = 0; i < from.n; i++) {
        const struct stack_frame f = s->sets.frames[from.at + i];
        if (f.op == GRAMMAR_NONE) {
            ends = true;
            continue;
        }
        const int64_t node = same_node(g, f.node, which, budget);
        const int rc = node < 0
                           ? (int)node
                           : frames_push(&s->out, g->program.same[which][f.op], (uint32_t)node);
        if (rc < 0)
            return rc;
    }
    const uint64_t merged = s->merged;
    int rc = merge_nodes(g);
    *budget -= from.n + MERGED_COST * (int64_t)(s->merged - merged);
    if (rc == 0 && ends)
        rc = frames_push(&s->out, GRAMMAR_NONE, NODE_BOTTOM);
    const int64_t same = rc < 0 ? rc : states_find(g, s->out.items, s->out.n);
    if (same >= 0)
        s->sets.sets[state].same[which] = (uint32_t)same;
    return same;
}

/* ---- making it ------------------------------------------------------------------------------- */

static int open_start(struct grammar *g)
{
    struct states *s = &g->states;
    const uint32_t root = g->program.root;
    int64_t cost = 0;
    begin_step(g);
    s->may_end = g->program.nullable[root];
    int64_t rc = add_call(g, root, (struct stack_frame){GRAMMAR_NONE, NODE_BOTTOM});
    rc = rc < 0 ? rc : end_step(g, grammar_node_bytes(1), &cost);
    if (rc < 0)
        return (int)rc;
    assert(rc == STATE_START); /* it has a sentence, so it is not STATE_DEAD */
    const struct frame_set set = s->sets.sets[STATE_START];
    struct stack_frame *copy = malloc(set.n * sizeof(*copy));
    if (copy == NULL)
        return -ENOMEM;
    memcpy(copy, s->sets.frames + set.at, set.n * sizeof(*copy));
    rc = states_add(g, copy, set.n, set.hash);
    free(copy);
    return rc < 0 ? (int)rc : 0;
}

int grammar_states_open(struct grammar *g)
{
    struct states *s = &g->states;
    const struct program *p = &g->program;
    const struct stack_frame bottom = {GRAMMAR_NONE, NODE_BOTTOM};
    s->seen = calloc(SEEN_SLOTS, sizeof(*s->seen));
    s->seen_stamp = calloc(SEEN_SLOTS, sizeof(*s->seen_stamp));
    s->op_stamp = calloc(p->n_ops, sizeof(*s->op_stamp));
    s->call_head = malloc(p->n_rules * sizeof(*s->call_head));
    s->called = calloc(p->n_rules / 64 + 1u, sizeof(*s->called));
    if (s->seen == NULL || s->seen_stamp == NULL || s->op_stamp == NULL || s->call_head == NULL ||
        s->called == NULL || sets_grow(&s->nodes) < 0 || sets_grow(&s->sets) < 0 ||
        sets_grow(&s->unions) < 0)
        return -ENOMEM;
    if (grammar_draw_key(&s->key) < 0)
        return -ENOMEM;
    forget_calls(g);
    s->nodes.hidden[0] = s->nodes.hidden[1] = GRAMMAR_NONE;
    s->sets.hidden[0] = STATE_UNKNOWN;
    s->sets.hidden[1] = STATE_TWIN;
    s->unions.hidden[0] = s->unions.hidden[1] = GRAMMAR_NONE;
    s->limit = GRAMMAR_BYTES_MAX;
    if (nodes_find_sorted(g, &bottom, 1) < 0 || states_add(g, NULL, 0, 0) < 0 ||
        states_add(g, NULL, 0, frames_hash(s->key, NULL, 0)) < 0)
        return -ENOMEM;
    sets_put(&s->sets, STATE_DEAD);
    return open_start(g);
}

void grammar_states_close(struct grammar *g)
{
    struct states *s = &g->states;
    struct set_table *tables[] = {&s->nodes, &s->sets, &s->unions};
    for (int i = 0; i < 3; i++) {
        free(tables[i]->frames);
        free(tables[i]->sets);
        free(tables[i]->slots);
    }
    free(s->next);
    free(s->ends);
    free(s->mask);
    free(s->stacks);
    free(s->united);
    free(s->work.items);
    free(s->out.items);
    free(s->calls.items);
    free(s->merge.items);
    free(s->seen);
    free(s->seen_stamp);
    free(s->op_stamp);
    free(s->call_head);
    free(s->call_next);
    free(s->called);
}
