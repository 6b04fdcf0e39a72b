/* grammar_nodes.c: nodes and states as interned sets of frames, for grammar_state.c. */
#include "daemon/grammar/grammar_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    UNION_COST = 64,   /* of a union, in frames, beside those of its nodes */
    UNITED_MAX = 32768 /* cost of a union (struct united) above which it is not made */
};

size_t grammar_states_bytes(const struct grammar *g)
{
    const struct states *s = &g->states;
    return grammar_nodes_bytes(g) + s->sets.n * grammar_node_bytes(0) +
           s->sets.n_frames * sizeof(struct stack_frame) +
           (size_t)s->sets.n * (g->program.n_classes * sizeof(*s->next) + 9) +
           s->unions.n * (grammar_node_bytes(0) + sizeof(*s->united)) +
           s->unions.n_frames * sizeof(struct stack_frame);
}

size_t grammar_nodes_bytes(const struct grammar *g)
{
    const struct set_table *t = &g->states.nodes;
    return t->n * grammar_node_bytes(0) + t->n_frames * sizeof(struct stack_frame);
}

/* ---- sets ------------------------------------------------------------------------------------ */

int64_t states_add(struct grammar *g, const struct stack_frame *f, uint32_t n, uint32_t hash)
{
    struct states *s = &g->states;
    const uint32_t n_classes = g->program.n_classes;
    if (s->sets.n == s->room) {
        const uint32_t room = s->room > 0 ? s->room * 2 : 16;
        uint32_t *next = realloc(s->next, (size_t)room * n_classes * sizeof(*next));
        s->next = next != NULL ? next : s->next;
        uint8_t *ends = realloc(s->ends, room);
        s->ends = ends != NULL ? ends : s->ends;
        uint32_t *mask = realloc(s->mask, room * sizeof(*mask));
        s->mask = mask != NULL ? mask : s->mask;
        uint32_t *stacks = realloc(s->stacks, room * sizeof(*stacks));
        s->stacks = stacks != NULL ? stacks : s->stacks;
        if (next == NULL || ends == NULL || mask == NULL || stacks == NULL)
            return -ENOMEM;
        s->room = room;
    }
    const int64_t number = sets_add(&s->sets, f, n, hash);
    if (number < 0)
        return number;
    memset(s->next + (size_t)number * n_classes, 0, n_classes * sizeof(*s->next));
    s->ends[number] = n > 0 && f[n - 1].op == GRAMMAR_NONE;
    s->mask[number] = s->stacks[number] = 0;
    return number;
}

/* Finds the set of these frames in one of the two tables, or adds it. */
static int64_t find_set(struct grammar *g, struct set_table *t, const struct stack_frame *f,
                        uint32_t n)
{
    const uint32_t hash = frames_hash(g->states.key, f, n);
    const uint32_t found = sets_find(t, f, n, hash);
    if (found != GRAMMAR_NONE)
        return found;
    if (grammar_states_bytes(g) > g->states.limit)
        return -ENOSPC;
    if (t->n * 2 >= t->n_slots && sets_grow(t) < 0)
        return -ENOMEM;
    const int64_t number =
        t == &g->states.sets ? states_add(g, f, n, hash) : sets_add(t, f, n, hash);
    if (number >= 0)
        sets_put(t, (uint32_t)number);
    return number;
}

int64_t states_find(struct grammar *g, const struct stack_frame *f, uint32_t n)
{
    return find_set(g, &g->states.sets, f, n);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

int nodes_push_all(struct states *s, struct frame_list *l, uint32_t node)
{
    const struct frame_set set = s->nodes.sets[node];
    int rc = 0;
    for (uint32_t i = 0; i < set.n && rc == 0; i++) {
        const struct stack_frame f = s->nodes.frames[set.at + i];
        rc = frames_push(l, f.op, f.node);
    }
    return rc;
}

int64_t nodes_find_sorted(struct grammar *g, const struct stack_frame *f, uint32_t n)
{
    g->states.asked += grammar_node_bytes(n);
    return n > GRAMMAR_WIDTH_MAX ? -E2BIG : find_set(g, &g->states.nodes, f, n);
}

/* The union being made: its cost so far (struct united), and that of those which it is within. */
struct making {
    uint32_t around, cost;
};

static int64_t find_merged(struct grammar *g, uint32_t from, struct making *in);

/* The list of merged frames may be longer than others: it grows with the nesting of unions. */
static int push_merged(struct frame_list *m, uint32_t op, uint32_t node)
{
    if (GROW(m->items, m->room, m->n) < 0)
        return -ENOMEM;
    m->items[m->n++] = (struct stack_frame){op, node};
    return 0;
}

/* Finds the union of the nodes merge.items[from, merge.n), or adds it, and removes them from the
 * list; their op is ignored. Returns its number or -errno. A cost of 0 means it is new. */
static int64_t find_union(struct states *s, uint32_t from)
{
    const struct stack_frame *keys = s->merge.items + from;
    const uint32_t n = s->merge.n - from, hash = frames_hash(s->key, keys, n);
    const uint32_t known = sets_find(&s->unions, keys, n, hash);
    s->merge.n = from;
    if (known != GRAMMAR_NONE)
        return known;
    if (s->unions.n * 2 >= s->unions.n_slots && sets_grow(&s->unions) < 0)
        return -ENOMEM;
    if (GROW(s->united, s->room_united, s->unions.n) < 0)
        return -ENOMEM;
    const int64_t number = sets_add(&s->unions, keys, n, hash);
    if (number < 0)
        return number;
    s->united[number] = (struct united){0};
    sets_put(&s->unions, (uint32_t)number);
    return number;
}

/* Makes the node of a union within others, which cost `around` so far. Returns 0, -E2BIG: it is too
 * much for these, or -errno. A union that cannot be made costs more than UNITED_MAX for every
 * caller; where it is only too much for those around it this is found out at the top. */
static int make_union(struct grammar *g, uint32_t number, uint32_t around)
{
    struct states *s = &g->states;
    const struct frame_set keys = s->unions.sets[number];
    const uint32_t from = s->merge.n;
    const uint64_t asked = s->asked;
    struct making in = {around, UNION_COST};
    for (uint32_t k = 0; k < keys.n; k++)
        in.cost += s->nodes.sets[s->unions.frames[keys.at + k].node].n;
    int rc = around + in.cost > UNITED_MAX ? -E2BIG : 0;
    for (uint32_t k = 0; k < keys.n && rc == 0; k++) {
        const struct frame_set set = s->nodes.sets[s->unions.frames[keys.at + k].node];
        for (uint32_t i = 0; i < set.n && rc == 0; i++) {
            const struct stack_frame f = s->nodes.frames[set.at + i];
            rc = push_merged(&s->merge, f.op, f.node);
        }
    }
    int64_t node = rc < 0 ? rc : find_merged(g, from, &in);
    s->merge.n = from;
    if (node == -E2BIG && around == 0)
        node = GRAMMAR_NONE;
    if (node < 0)
        return (int)node;
    const uint64_t took = s->asked - asked;
    s->united[number] =
        (struct united){(uint32_t)node, in.cost, took < UINT32_MAX ? (uint32_t)took : UINT32_MAX};
    return 0;
}

/* The frames merge.items[at, end) have the same op: merges them into one at `at`, on the union of
 * their nodes. Returns how many frames there are then. If the union is too much work they stay as
 * they are, which means the same in more frames; but within a union the result is GRAMMAR_NONE. Or
 * -errno. */
static int64_t merge_group(struct grammar *g, uint32_t at, uint32_t end, struct making *in)
{
    struct states *s = &g->states;
    const uint32_t n = s->merge.n;
    int rc = 0;
    if (end == at + 1)
        return 1;
    for (uint32_t k = at; k < end && rc == 0; k++)
        rc = push_merged(&s->merge, 0, s->merge.items[k].node);
    const int64_t number = rc < 0 ? rc : find_union(s, n);
    if (number < 0)
        return number;
    if (s->united[number].cost == 0)
        rc = make_union(g, (uint32_t)number, in != NULL ? in->around + in->cost : 0);
    else
        s->asked += s->united[number].asked;
    if (rc < 0)
        return rc;
    const struct united u = s->united[number];
    if (in != NULL && (in->cost += u.cost) > UNITED_MAX)
        return GRAMMAR_NONE;
    if (u.node == GRAMMAR_NONE)
        return in != NULL ? GRAMMAR_NONE : end - at;
    s->merge.items[at].node = u.node;
    return 1;
}

/* The node of the frames merge.items[from, merge.n), which are removed from the list, frames with
 * the same op merged; or GRAMMAR_NONE as in merge_group, or -errno. */
static int64_t find_merged(struct grammar *g, uint32_t from, struct making *in)
{
    struct frame_list *m = &g->states.merge;
    const uint32_t n = from + frames_sort(m->items + from, m->n - from);
    uint32_t kept = from;
    g->states.merged += m->n - from;
    m->n = n;
    for (uint32_t i = from, end; i < n; i = end) {
        for (end = i + 1; end < n && m->items[end].op == m->items[i].op; end++)
            ;
        const int64_t left = merge_group(g, i, end, in);
        if (left < 0 || left == GRAMMAR_NONE)
            return left;
        memmove(m->items + kept, m->items + i, (size_t)left * sizeof(*m->items));
        kept += (uint32_t)left;
    }
    m->n = from;
    return nodes_find_sorted(g, m->items + from, kept - from);
}

int64_t nodes_find(struct grammar *g, const struct frame_list *l)
{
    struct states *s = &g->states;
    int rc = 0;
    s->merge.n = 0;
    for (uint32_t i = 0; i < l->n && rc == 0; i++)
        rc = push_merged(&s->merge, l->items[i].op, l->items[i].node);
    return rc < 0 ? rc : find_merged(g, 0, NULL);
}

void nodes_forget_unions(struct states *s)
{
    memset(s->unions.slots, 0, s->unions.n_slots * sizeof(*s->unions.slots));
    s->unions.n = s->unions.n_frames = 0;
}
