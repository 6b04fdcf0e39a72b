/* When states have used up their memory: what no run, no walk and no kept mask needs goes, and the
 * rest gets new numbers, in the same order. */
#include "kernels/grammar_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* mark[i] of what stays becomes its new number; 0 of what goes (number 0 always stays). */
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
        s->mask[kept++] = s->mask[i];
    }
}

int grammar_sweep(struct grammar *g)
{
    struct states *s = &g->states;
    uint32_t *states = calloc(s->sets.n, sizeof *states);
    uint32_t *nodes = calloc(s->nodes.n, sizeof *nodes);
    if (states == NULL || nodes == NULL) {
        free(states);
        free(nodes);
        return -ENOMEM;
    }
    mark_roots(g, states);
    nodes[NODE_BOTTOM] = 1;
    for (uint32_t i = 0; i < s->sets.n; i++)
        for (uint32_t k = 0; states[i] != 0 && k < s->sets.sets[i].n; k++)
            nodes[s->sets.frames[s->sets.sets[i].at + k].node] = 1;
    for (uint32_t i = s->nodes.n; i > 0; i--) /* what a node stands on was made before it */
        for (uint32_t k = 0; nodes[i - 1] != 0 && k < s->nodes.sets[i - 1].n; k++)
            nodes[s->nodes.frames[s->nodes.sets[i - 1].at + k].node] = 1;
    const uint32_t n_states = s->sets.n;
    number(states, n_states);
    number(nodes, s->nodes.n);
    sets_compact(&s->nodes, nodes, nodes);
    sets_compact(&s->sets, states, nodes);
    compact_states(g, states, n_states);
    move_roots(g, states);
    memset(s->united, 0, sizeof s->united);
    free(states);
    free(nodes);
    s->n_sweeps++;
    return grammar_states_bytes(g) > GRAMMAR_BYTES_MAX / 4 * 3 ? -E2BIG : 0;
}
