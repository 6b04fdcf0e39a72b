/* grammar_sweep.c: when states reach their memory limit, drops everything that no run, walk or
 * cached mask needs, and renumbers the rest in the same order. */
#include "daemon/grammar/grammar_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SWEPT_BYTES = 8 }; /* that a sweep looks at for a unit of a budget */

static void mark_roots(const struct grammar *g, uint32_t *mark)
{
    for (uint32_t i = 0; i < STATE_NUMBERS; i++)
        mark[i] = 1;
    for (const struct grammar_run *run = g->runs; run != NULL; run = run->next) {
        for (uint32_t i = 0; i <= run->n_drafts; i++)
            mark[run->states[i]] = 1;
        mark[run->moving] = 1;
    }
    for (uint32_t i = 0; i < g->n_masks; i++)
        if (g->masks[i].state != GRAMMAR_NONE)
            mark[g->masks[i].state] = 1;
    mark[g->walk.target] = mark[g->walk.below] = 1;
    for (uint32_t i = g->walk.base; g->walk.target != STATE_UNKNOWN && i <= g->walk.depth; i++)
        mark[g->walk.stack[i]] = 1;
}

static void move_roots(struct grammar *g, const uint32_t *to)
{
    for (struct grammar_run *run = g->runs; run != NULL; run = run->next) {
        for (uint32_t i = 0; i <= run->n_drafts; i++)
            run->states[i] = to[run->states[i]];
        run->moving = to[run->moving];
    }
    for (uint32_t i = 0; i < g->n_masks; i++)
        if (g->masks[i].state != GRAMMAR_NONE)
            g->masks[i].state = to[g->masks[i].state];
    for (uint32_t i = g->walk.base; g->walk.target != STATE_UNKNOWN && i <= g->walk.depth; i++)
        g->walk.stack[i] = to[g->walk.stack[i]];
    g->walk.target = to[g->walk.target];
    g->walk.below = to[g->walk.below];
}

/* mark[i] of a set that stays becomes its new number; of others 0 (number 0 always stays). */
static void number(uint32_t *mark, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        mark[i] = mark[i] != 0 ? kept++ : 0;
}

static void compact_states(struct grammar *g, const uint32_t *to, uint32_t n)
{
    struct states *s = &g->states;
    const uint32_t n_classes = g->program.n_classes;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!number_stays(to, i))
            continue;
        for (uint32_t k = 0; k < n_classes; k++)
            s->next[(size_t)kept * n_classes + k] = to[s->next[(size_t)i * n_classes + k]];
        s->ends[kept] = s->ends[i];
        s->stacks[kept] = s->stacks[i];
        s->mask[kept++] = s->mask[i];
    }
}

/* Marks the nodes below marked ones, which have lower numbers. */
static void mark_below(const struct set_table *nodes, uint32_t *mark)
{
    for (uint32_t i = nodes->n; i > 0; i--)
        for (uint32_t k = 0; mark[i - 1] != 0 && k < nodes->sets[i - 1].n; k++)
            mark[nodes->frames[nodes->sets[i - 1].at + k].node] = 1;
}

static void mark_nodes(const struct states *s, uint32_t state, uint32_t *mark)
{
    for (uint32_t k = 0; k < s->sets.sets[state].n; k++)
        mark[s->sets.frames[s->sets.sets[state].at + k].node] = 1;
}

/* Bytes of the nodes that a state stands on, or -ENOMEM. */
static int64_t count_stacks(const struct states *s, uint32_t state)
{
    uint32_t *mark = calloc(s->nodes.n, sizeof(*mark));
    size_t bytes = 0;
    if (mark == NULL)
        return -ENOMEM;
    mark_nodes(s, state, mark);
    mark_below(&s->nodes, mark);
    for (uint32_t i = 0; i < s->nodes.n; i++)
        bytes += mark[i] != 0 ? grammar_node_bytes(s->nodes.sets[i].n) : 0;
    free(mark);
    return (int64_t)bytes;
}

/* Counts exactly only if the upper bound is too large. */
int grammar_check_stacks(struct grammar *g, uint32_t state, uint64_t most, int64_t *cost)
{
    struct states *s = &g->states;
    int64_t bytes = (int64_t)grammar_nodes_bytes(g);
    if (s->stacks[state] != 0)
        return 0;
    if (most <= GRAMMAR_STACKS_MAX) {
        bytes = (int64_t)most;
    } else if (bytes > GRAMMAR_STACKS_MAX) {
        bytes = count_stacks(s, state);
        *cost += s->nodes.n / 4;
    }
    if (bytes < 0 || bytes > GRAMMAR_STACKS_MAX)
        return bytes < 0 ? (int)bytes : -E2BIG;
    s->stacks[state] = bytes > 0 ? (uint32_t)bytes : 1;
    return 0;
}

static int sweep(struct grammar *g, int64_t *cost)
{
    struct states *s = &g->states;
    *cost += (int64_t)(grammar_states_bytes(g) / SWEPT_BYTES);
    uint32_t *states = calloc(s->sets.n, sizeof(*states));
    uint32_t *nodes = calloc(s->nodes.n, sizeof(*nodes));
    if (states == NULL || nodes == NULL) {
        free(states);
        free(nodes);
        return -ENOMEM;
    }
    mark_roots(g, states);
    nodes[NODE_BOTTOM] = 1;
    for (uint32_t i = 0; i < s->sets.n; i++)
        if (states[i] != 0)
            mark_nodes(s, i, nodes);
    mark_below(&s->nodes, nodes);
    const uint32_t n_states = s->sets.n;
    number(states, n_states);
    number(nodes, s->nodes.n);
    sets_compact(&s->nodes, nodes, nodes, s->key);
    sets_compact(&s->sets, states, nodes, s->key);
    compact_states(g, states, n_states);
    move_roots(g, states);
    nodes_forget_unions(s);
    free(states);
    free(nodes);
    s->n_sweeps++;
    return 0;
}

/* Frees a quarter of the limit, or raises it: what the runs need was checked for each run. Where many
 * need much, the next sweep comes when a quarter more was made: each looks at all of it. */
int grammar_sweep(struct grammar *g, int64_t *cost)
{
    const size_t least = GRAMMAR_BYTES_MAX / 4;
    const bool crowded = g->states.limit > GRAMMAR_BYTES_MAX; /* by what runs needed before */
    if (crowded)
        grammar_forget_masks(g);
    int rc = sweep(g, cost);
    if (rc == 0 && !crowded && grammar_states_bytes(g) > GRAMMAR_BYTES_MAX - least) {
        grammar_forget_masks(g);
        rc = sweep(g, cost);
    }
    const size_t kept = grammar_states_bytes(g);
    const size_t wanted = kept + (kept / 4 > least ? kept / 4 : least);
    g->states.limit = wanted > GRAMMAR_BYTES_MAX ? wanted : GRAMMAR_BYTES_MAX;
    return rc;
}
