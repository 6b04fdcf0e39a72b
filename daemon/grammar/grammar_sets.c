/* grammar_sets.c: interned sets of frames: nodes and states. */
#include "daemon/grammar/grammar_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { INSERTION_MAX = 24 };

static int by_op(const void *x, const void *y)
{
    const struct stack_frame *a = x, *b = y;
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    return a->node < b->node ? -1 : a->node > b->node;
}

uint32_t frames_sort(struct stack_frame *f, uint32_t n)
{
    if (n > INSERTION_MAX)
        qsort(f, n, sizeof(*f), by_op);
    else
        for (uint32_t i = 1; i < n; i++) {
            const struct stack_frame x = f[i];
            uint32_t k = i;
            for (; k > 0 && by_op(&f[k - 1], &x) > 0; k--)
                f[k] = f[k - 1];
            f[k] = x;
        }
    uint32_t kept = n > 0;
    for (uint32_t i = 1; i < n; i++)
        if (by_op(&f[kept - 1], &f[i]) != 0)
            f[kept++] = f[i];
    return kept;
}

uint32_t frames_hash(uint64_t key, const struct stack_frame *f, uint32_t n)
{
    uint64_t hash = key ^ n;
    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ f[i].op) * 0x9e3779b185ebca87u;
        hash = (hash ^ hash >> 29 ^ f[i].node) * 0xc2b2ae3d27d4eb4fu;
    }
    return (uint32_t)(hash >> 32);
}

void sets_put(struct set_table *t, uint32_t number)
{
    if (number == t->hidden[0] || number == t->hidden[1])
        return;
    uint32_t slot = t->sets[number].hash & (t->n_slots - 1);
    while (t->slots[slot] != 0)
        slot = (slot + 1) & (t->n_slots - 1);
    t->slots[slot] = number + 1;
}

int sets_grow(struct set_table *t)
{
    const uint32_t n = t->n_slots > 0 ? t->n_slots * 2 : 64;
    uint32_t *slots = calloc(n, sizeof(*slots));
    if (slots == NULL)
        return -ENOMEM;
    free(t->slots);
    t->slots = slots;
    t->n_slots = n;
    for (uint32_t i = 0; i < t->n; i++)
        sets_put(t, i);
    return 0;
}

int64_t sets_add(struct set_table *t, const struct stack_frame *f, uint32_t n, uint32_t hash)
{
    if (GROW(t->sets, t->room, t->n) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        if (GROW(t->frames, t->room_frames, t->n_frames + i) < 0)
            return -ENOMEM;
        t->frames[t->n_frames + i] = f[i];
    }
    t->sets[t->n] = (struct frame_set){t->n_frames, n, hash, {GRAMMAR_NONE, GRAMMAR_NONE}};
    t->n_frames += n;
    return t->n++;
}

uint32_t sets_find(const struct set_table *t, const struct stack_frame *f, uint32_t n,
                   uint32_t hash)
{
    for (uint32_t slot = hash & (t->n_slots - 1); t->slots[slot] != 0;
         slot = (slot + 1) & (t->n_slots - 1)) {
        const struct frame_set *s = &t->sets[t->slots[slot] - 1];
        if (s->hash == hash && s->n == n && memcmp(t->frames + s->at, f, n * sizeof(*f)) == 0)
            return t->slots[slot] - 1;
    }
    return GRAMMAR_NONE;
}

void sets_compact(struct set_table *t, const uint32_t *to, const uint32_t *node_to, uint64_t key)
{
    uint32_t n = 0, n_frames = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        if (!number_stays(to, i))
            continue;
        struct frame_set s = t->sets[i];
        for (uint32_t k = 0; k < s.n; k++) {
            const struct stack_frame f = t->frames[s.at + k];
            t->frames[n_frames + k] = (struct stack_frame){f.op, node_to[f.node]};
        }
        s.at = n_frames;
        n_frames += s.n;
        s.hash = frames_hash(key, t->frames + s.at, s.n); /* renumbering keeps the order */
        s.same[0] = s.same[1] = GRAMMAR_NONE;
        t->sets[n++] = s;
    }
    t->n = n;
    t->n_frames = n_frames;
    memset(t->slots, 0, t->n_slots * sizeof(*t->slots));
    for (uint32_t i = 0; i < n; i++)
        sets_put(t, i);
}
