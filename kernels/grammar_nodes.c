/* Nodes and states as sets of frames: found where they are known, added where they are new. What
 * grammar_state.c steps through is made of them. */
#include "kernels/grammar_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { UNITE_DEPTH = 100, UNITED_MAX = 4096 };

size_t grammar_states_bytes(const struct grammar *g)
{
    const struct states *s = &g->states;
    const size_t set = sizeof(struct frame_set) + 2 * sizeof(uint32_t),
                 frame = sizeof(struct frame);
    return (s->nodes.n + (size_t)s->sets.n) * set +
           ((size_t)s->nodes.n_frames + s->sets.n_frames) * frame +
           (size_t)s->sets.n * (g->program.n_classes * sizeof *s->next + 5);
}

/* ---- sets ------------------------------------------------------------------------------------ */

int64_t states_add(struct grammar *g, const struct frame *f, uint32_t n, uint32_t hash)
{
    struct states *s = &g->states;
    const uint32_t n_classes = g->program.n_classes;
    if (s->sets.n == s->room) {
        const uint32_t room = s->room > 0 ? s->room * 2 : 16;
        uint32_t *next = realloc(s->next, (size_t)room * n_classes * sizeof *next);
        s->next = next != NULL ? next : s->next;
        uint8_t *ends = realloc(s->ends, room);
        s->ends = ends != NULL ? ends : s->ends;
        uint32_t *mask = realloc(s->mask, room * sizeof *mask);
        s->mask = mask != NULL ? mask : s->mask;
        if (next == NULL || ends == NULL || mask == NULL)
            return -ENOMEM;
        s->room = room;
    }
    const int64_t number = sets_add(&s->sets, f, n, hash);
    if (number < 0)
        return number;
    memset(s->next + (size_t)number * n_classes, 0, n_classes * sizeof *s->next);
    s->ends[number] = n > 0 && f[n - 1].op == GRAMMAR_NONE;
    s->mask[number] = 0;
    return number;
}

/* The set of these frames in one of the two tables, which it is added to where it is new. */
static int64_t find_set(struct grammar *g, struct set_table *t, const struct frame *f, uint32_t n)
{
    const uint32_t hash = frames_hash(f, n);
    const uint32_t found = sets_find(t, f, n, hash);
    if (found != GRAMMAR_NONE)
        return found;
    if (grammar_states_bytes(g) > GRAMMAR_BYTES_MAX)
        return -ENOSPC;
    if (t->n * 2 >= t->n_slots && sets_grow(t) < 0)
        return -ENOMEM;
    const int64_t number =
        t == &g->states.sets ? states_add(g, f, n, hash) : sets_add(t, f, n, hash);
    if (number >= 0)
        sets_put(t, (uint32_t)number);
    return number;
}

int64_t states_find(struct grammar *g, const struct frame *f, uint32_t n)
{
    return find_set(g, &g->states.sets, f, n);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

int nodes_push_all(struct states *s, struct frame_list *l, uint32_t node)
{
    const struct frame_set set = s->nodes.sets[node];
    int rc = 0;
    for (uint32_t i = 0; i < set.n && rc == 0; i++) {
        const struct frame f = s->nodes.frames[set.at + i];
        rc = frames_push(l, f.op, f.node);
    }
    return rc;
}

int64_t nodes_find_sorted(struct grammar *g, const struct frame *f, uint32_t n)
{
    return n > GRAMMAR_WIDTH_MAX ? -E2BIG : find_set(g, &g->states.nodes, f, n);
}

static int64_t unite(struct grammar *g, uint32_t a, uint32_t b, uint32_t depth);

/* The node of the frames merge.items[from, merge.n), which it takes away. Frames of one op become
 * one, over a node that is all of theirs; where that is too much work they stay several, which says
 * the same at greater length. */
static int64_t find_merged(struct grammar *g, uint32_t from, uint32_t depth)
{
    struct frame_list *m = &g->states.merge;
    uint32_t n = frames_sort(m->items + from, m->n - from), kept = from;
    m->n = from + n;
    for (uint32_t i = from; i < from + n; i++) {
        const struct frame f = m->items[i];
        int64_t both = GRAMMAR_NONE;
        if (kept > from && m->items[kept - 1].op == f.op && f.op != GRAMMAR_NONE)
            both = unite(g, m->items[kept - 1].node, f.node, depth);
        if (both < 0)
            return both;
        if (both != GRAMMAR_NONE)
            m->items[kept - 1].node = (uint32_t)both;
        else
            m->items[kept++] = f;
    }
    n = frames_sort(m->items + from, kept - from);
    const int64_t node = nodes_find_sorted(g, m->items + from, n);
    m->n = from;
    return node;
}

/* The node of the stacks of both. Returns it, GRAMMAR_NONE: too much work to be worth it, or -errno. */
static int64_t unite(struct grammar *g, uint32_t a, uint32_t b, uint32_t depth)
{
    struct states *s = &g->states;
    if (a == b)
        return a;
    if (a > b)
        return unite(g, b, a, depth);
    struct united *known = &s->united[(a * 2654435761u ^ b * 2246822519u) >> 16 & (UNITED - 1)];
    if (known->a == a && known->b == b)
        return known->both;
    if (depth == 0 || ++s->n_united > UNITED_MAX)
        return GRAMMAR_NONE;
    const uint32_t from = s->merge.n;
    int rc = nodes_push_all(s, &s->merge, a);
    rc = rc < 0 ? rc : nodes_push_all(s, &s->merge, b);
    const int64_t both = rc < 0 ? rc : find_merged(g, from, depth - 1);
    if (both >= 0)
        *known = (struct united){a, b, (uint32_t)both};
    return both;
}

int64_t nodes_find(struct grammar *g, const struct frame_list *l)
{
    struct states *s = &g->states;
    int rc = 0;
    s->merge.n = 0;
    for (uint32_t i = 0; i < l->n && rc == 0; i++)
        rc = frames_push(&s->merge, l->items[i].op, l->items[i].node);
    return rc < 0 ? rc : find_merged(g, 0, UNITE_DEPTH);
}
