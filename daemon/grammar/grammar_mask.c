/* grammar_mask.c: masks: which tokens may follow in a state.
 *
 * A walk visits the trie of the vocabulary with a stack of states, one for each byte of the path,
 * and skips the subtree of a byte that may not come. Three things keep most masks from walking most
 * of the trie:
 *
 *   groups   States that differ only in what is below their nodes share a mask: that of the same
 *            ops above the bottom ("alone"), with a list of trie nodes at which the bottom may be
 *            reached (pops). From those few nodes the walk continues with what is below. So the
 *            inside of a string is walked once, at whatever depth of a nested text it appears.
 *   same     Copies of a counted repetition far from its end allow the same tokens: one mask.
 *   long     Nearer to the end the short tokens are still the same, and only the long ones are
 *            walked.
 *
 * Masks are cached for recently used states. The walk stops when its budget is used up, and
 * continues at the next call. */
#include "daemon/grammar/grammar_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUPS_MAX = 4,
    POPS_MAX = 1 << 15,
    MASKS_LEAST = 32,   /* a mask may need more than one other */
    WALK_MAX = 40000000 /* for one mask: trie nodes plus ops of the states reached */
};

const char grammar_too_wide[] =
    "the grammar is too ambiguous or too deeply nested to be followed here";

/* ---- what is kept ---------------------------------------------------------------------------- */

int grammar_masks_open(struct grammar *g)
{
    g->walk.stack = calloc(GRAMMAR_TOKEN_MAX + 1, sizeof(*g->walk.stack));
    return g->walk.stack != NULL ? 0 : -ENOMEM;
}

void grammar_masks_close(struct grammar *g)
{
    for (uint32_t i = 0; i < g->n_masks; i++) {
        free(g->masks[i].bits);
        free(g->masks[i].pops);
    }
    free(g->masks);
    free(g->walk.stack);
}

void grammar_release(struct grammar *g)
{
    g->released = g->clock;
}

void grammar_forget_masks(struct grammar *g)
{
    for (uint32_t i = 0; i < g->n_masks; i++) {
        struct mask_entry *m = &g->masks[i];
        if (m->state == GRAMMAR_NONE || m->used > g->released ||
            g->states.stacks[m->state] == grammar_node_bytes(1))
            continue;
        g->states.mask[m->state] = 0;
        m->state = GRAMMAR_NONE;
        m->used = 0;
    }
}

static struct mask_entry *find_mask(struct grammar *g, uint32_t state)
{
    const uint32_t i = g->states.mask[state];
    if (i == 0)
        return NULL;
    g->masks[i - 1].used = ++g->clock;
    return &g->masks[i - 1];
}

/* Finds room for one more mask: a new entry, or the least recently used one that is not in use
 * outside. Returns its index or -ENOMEM. */
static int64_t take_entry(struct grammar *g)
{
    const uint32_t room = GRAMMAR_MASK_BYTES / (g->vocab->n_words * (uint32_t)sizeof(uint64_t));
    const uint32_t most = room < MASKS_LEAST         ? MASKS_LEAST
                          : room < GRAMMAR_MASKS_MAX ? room
                                                     : GRAMMAR_MASKS_MAX;
    uint32_t oldest = GRAMMAR_NONE;
    for (uint32_t i = 0; i < g->n_masks && g->n_masks >= most; i++)
        if (g->masks[i].used <= g->released &&
            (oldest == GRAMMAR_NONE || g->masks[i].used < g->masks[oldest].used))
            oldest = i;
    if (oldest == GRAMMAR_NONE) {
        uint64_t *bits = malloc(g->vocab->n_words * sizeof(*bits));
        if (bits == NULL ||
            grammar_grow((void **)&g->masks, &g->room_masks, g->n_masks, sizeof(*g->masks)) < 0) {
            free(bits);
            return -ENOMEM;
        }
        oldest = g->n_masks++;
        g->masks[oldest] = (struct mask_entry){.bits = bits};
    } else if (g->masks[oldest].state != GRAMMAR_NONE) {
        g->states.mask[g->masks[oldest].state] = 0;
    }
    struct mask_entry *m = &g->masks[oldest];
    m->state = GRAMMAR_NONE;
    m->used = ++g->clock;
    m->error = 0;
    m->n_pops = 0;
    m->has_pops = false;
    memset(m->bits, 0, g->vocab->n_words * sizeof(*m->bits));
    return oldest;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* The distinct nodes below the state's ops. Returns how many, at most GROUPS_MAX + 1. */
static uint32_t find_groups(const struct grammar *g, uint32_t state, uint32_t *nodes)
{
    const struct set_table *t = &g->states.sets;
    const struct frame_set set = t->sets[state];
    uint32_t n = 0;
    for (uint32_t i = 0; i < set.n && n <= GROUPS_MAX; i++) {
        const struct stack_frame f = t->frames[set.at + i];
        uint32_t k = 0;
        while (k < n && nodes[k] != f.node)
            k++;
        if (f.op != GRAMMAR_NONE && k == n)
            nodes[n++] = f.node;
    }
    return n;
}

/* The state whose mask must be made before that of `state`. STATE_UNKNOWN: none, or it would not
 * help. *ret_groups: the masks of its groups exist. */
static int64_t needed_first(struct grammar *g, uint32_t state, bool *ret_groups)
{
    uint32_t nodes[GROUPS_MAX + 1];
    *ret_groups = false;
    const uint32_t n = find_groups(g, state, nodes);
    if (n == 0 || n > GROUPS_MAX || (n == 1 && nodes[0] == NODE_BOTTOM) || state == STATE_TWIN)
        return STATE_UNKNOWN;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t alone = grammar_state_alone(g, state, nodes[i]);
        if (alone < 0)
            return alone;
        const struct mask_entry *m = find_mask(g, (uint32_t)alone);
        if (m == NULL)
            return alone;
        if (!m->has_pops)
            return STATE_UNKNOWN;
    }
    *ret_groups = true;
    return STATE_UNKNOWN;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static inline void set_bit(uint64_t *bits, uint32_t id)
{
    bits[id >> 6] |= (uint64_t)1 << (id & 63);
}

/* The state after a byte; makes it if necessary, and sweeps if there is no room. `depth`: of the
 * trie's node, whose parent's state is on the stack. */
static int64_t walk_step(struct grammar *g, uint32_t depth, uint32_t class, int64_t *budget)
{
    struct walk *w = &g->walk;
    int64_t cost = 0;
    w->depth = depth - 1;
    int64_t to = grammar_step(g, w->stack[depth - 1], class, &cost);
    if (to == -ENOSPC) {
        const int rc = grammar_sweep(g, &cost);
        to = rc < 0 ? rc : grammar_step(g, w->stack[depth - 1], class, &cost);
    }
    *budget -= cost;
    return to;
}

static int add_pop(struct mask_entry *m, uint32_t node)
{
    if (!m->has_pops)
        return 0;
    if (m->n_pops == POPS_MAX) {
        m->has_pops = false;
        return 0;
    }
    if (grammar_grow((void **)&m->pops, &m->room_pops, m->n_pops, sizeof(*m->pops)) < 0)
        return -ENOMEM;
    m->pops[m->n_pops++] = node;
    return 0;
}

/* Visits nodes [at, end). Returns 1 when it is done, 0 when the budget is used up, or -errno. */
static int walk_range(struct grammar *g, int64_t *budget)
{
    struct walk *w = &g->walk;
    const struct grammar_trie *t = w->trie;
    const uint8_t *class_of = g->program.class_of;
    const uint32_t n_classes = g->program.n_classes;
    struct mask_entry *m = &g->masks[w->entry];
    while (w->at < w->end) {
        const uint32_t i = w->at, depth = t->depth[i], class = class_of[t->byte[i]];
        if (--*budget < 0) {
            w->depth = depth - 1;
            return 0;
        }
        int64_t to = g->states.next[(size_t)w->stack[depth - 1] * n_classes + class];
        if (to == STATE_UNKNOWN)
            to = walk_step(g, depth, class, budget);
        if (to < 0)
            return (int)to;
        /* Not the actual cost, which is less if other answers made the states already: whether a
         * mask is too expensive must not depend on them. */
        w->spent += 1 + g->states.sets.sets[to].n;
        if (w->spent > WALK_MAX)
            return -E2BIG;
        if (to == STATE_DEAD) {
            w->at = t->next[i];
            continue;
        }
        w->stack[depth] = (uint32_t)to;
        for (uint32_t k = t->first[i]; k < t->first[i + 1]; k++)
            set_bit(m->bits, t->ids[k]);
        if (w->keeps_pops && g->states.ends[to] && add_pop(m, i) < 0)
            return -ENOMEM;
        w->at = i + 1;
    }
    w->depth = w->base;
    return 1;
}

/* Starts a group's pops. Returns 0 or -errno with the walk unchanged. */
static int walk_group(struct grammar *g, uint32_t node, int64_t *budget)
{
    struct walk *w = &g->walk;
    int64_t cost = 0;
    const int64_t below = grammar_state_below(g, w->target, node, &cost);
    const int64_t alone = below < 0 ? below : grammar_state_alone(g, w->target, node);
    if (alone < 0)
        return (int)alone;
    *budget -= cost;
    w->below = (uint32_t)below;
    w->part = g->states.mask[alone] - 1;
    w->pop = 0;
    return 0;
}

/* Continues after the next pop. Returns 1 with a range to walk, 0 when none is left, or -errno. */
static int walk_next_pop(struct grammar *g, int64_t *budget)
{
    struct walk *w = &g->walk;
    uint32_t nodes[GROUPS_MAX + 1];
    for (;;) {
        const struct mask_entry *m = w->below != STATE_UNKNOWN ? &g->masks[w->part] : NULL;
        while (m != NULL && w->pop < m->n_pops) {
            const uint32_t at = m->pops[w->pop++];
            if (w->trie->next[at] == at + 1)
                continue; /* no token is longer */
            w->base = w->depth = w->trie->depth[at];
            w->stack[w->base] = w->below;
            w->at = at + 1;
            w->end = w->trie->next[at];
            return 1;
        }
        w->below = STATE_UNKNOWN;
        if (w->group == find_groups(g, w->target, nodes))
            return 0;
        const int rc = walk_group(g, nodes[w->group], budget);
        if (rc < 0)
            return rc;
        w->group++;
    }
}

static void add_bits(struct grammar *g, struct mask_entry *m, uint32_t state, const uint64_t *only)
{
    const struct mask_entry *from = find_mask(g, state);
    assert(from != NULL); /* made before, and used too recently to have been evicted */
    for (uint32_t k = 0; k < g->vocab->n_words; k++)
        m->bits[k] |= from->bits[k] & (only != NULL ? only[k] : UINT64_MAX);
}

/* Starts from what is known already. Returns 0 or -errno. */
static int walk_begin(struct grammar *g, uint32_t state, bool groups, int64_t *budget)
{
    struct walk *w = &g->walk;
    uint32_t nodes[GROUPS_MAX + 1];
    const int64_t near = grammar_state_same(g, state, 0, budget);
    const struct mask_entry *short_ones =
        near >= 0 && near != state ? find_mask(g, (uint32_t)near) : NULL;
    const bool is_long = short_ones != NULL && short_ones->error == 0;
    const uint32_t n = groups ? find_groups(g, state, nodes) : 0;
    for (uint32_t i = 0; i < n; i++) { /* they exist, so nothing below can fail */
        const int64_t alone = grammar_state_alone(g, state, nodes[i]);
        if (alone < 0)
            return (int)alone;
        nodes[i] = (uint32_t)alone;
    }
    const int64_t entry = near < 0 ? near : take_entry(g);
    if (entry < 0)
        return (int)entry;
    struct mask_entry *m = &g->masks[entry];
    *w = (struct walk){.stack = w->stack, .target = state, .entry = (uint32_t)entry};
    w->trie = is_long ? &g->vocab->long_tokens : &g->vocab->all;
    w->stack[0] = state;
    w->goes_on = n > 0;
    w->keeps_pops = m->has_pops = n == 0 && !is_long;
    w->end = w->goes_on ? 0 : w->trie->n_nodes;
    for (uint32_t i = 0; i < n; i++)
        add_bits(g, m, nodes[i], NULL);
    if (is_long)
        add_bits(g, m, (uint32_t)near, g->vocab->short_bits);
    return 0;
}

static void walk_done(struct grammar *g, int error)
{
    struct walk *w = &g->walk;
    struct mask_entry *m = &g->masks[w->entry];
    m->error = error;
    m->has_pops = m->has_pops && error == 0; /* an incomplete mask must not be used for others */
    m->n_allowed = 0;
    if (g->states.ends[w->target])
        for (uint32_t i = 0; i < g->vocab->n_ends; i++)
            set_bit(m->bits, g->vocab->ends[i]);
    for (uint32_t i = 0; i < g->vocab->n_words; i++)
        m->n_allowed += (uint32_t)__builtin_popcountll(m->bits[i]);
    m->state = w->target;
    g->states.mask[w->target] = w->entry + 1;
    w->target = STATE_UNKNOWN;
}

static int sweep_within(struct grammar *g, int64_t *budget)
{
    int64_t cost = 0;
    const int rc = grammar_sweep(g, &cost);
    *budget -= cost;
    return rc;
}

/* Continues the mask being made. Returns 1 when it is complete, 0 when the budget is used up, or
 * -ENOMEM. A state that cannot be followed gets a mask that says so. */
static int walk_on(struct grammar *g, int64_t *budget)
{
    struct walk *w = &g->walk;
    int rc;
    do {
        rc = walk_range(g, budget);
        if (rc == 1 && w->goes_on) {
            rc = walk_next_pop(g, budget);
            if (rc == -ENOSPC && (rc = sweep_within(g, budget)) == 0)
                rc = walk_next_pop(g, budget);
            rc = rc == 1 ? 2 : rc == 0 ? 1 : rc;
        }
    } while (rc == 2);
    if (rc == 0 || rc == -ENOMEM)
        return rc;
    walk_done(g, rc < 0 ? -E2BIG : 0);
    return 1;
}

/* Starts the mask that must be made first for that of `state`. */
static int begin_needed(struct grammar *g, uint32_t state, int64_t *budget)
{
    bool groups = false;
    for (;;) {
        const int64_t near = grammar_state_same(g, state, 0, budget);
        if (near < 0)
            return (int)near;
        if (near != state && find_mask(g, (uint32_t)near) == NULL) {
            state = (uint32_t)near;
            continue;
        }
        const int64_t first = near != state ? STATE_UNKNOWN : needed_first(g, state, &groups);
        if (first < 0)
            return (int)first;
        if (first == STATE_UNKNOWN)
            return walk_begin(g, state, groups, budget);
        state = (uint32_t)first;
    }
}

int grammar_mask(struct grammar_run *run, uint32_t draft, int64_t *budget, struct grammar_mask *ret)
{
    struct grammar *g = run->grammar;
    assert(draft <= run->n_drafts);
    for (uint32_t sweeps = 0;;) {
        const uint32_t state = run->states[draft]; /* a sweep gives it another number */
        /* What is equivalent is found at once, however deep it is: not with nothing left. */
        if (*budget <= 0 && sweeps == 0 && !grammar_same_known(g, state, 1))
            return 0;
        int64_t rc = grammar_state_same(g, state, 1, budget);
        if (rc >= 0) {
            const struct mask_entry *m = find_mask(g, (uint32_t)rc);
            if (m != NULL) {
                *ret = (struct grammar_mask){m->bits, m->n_allowed};
                return m->error != 0 ? m->error : 1;
            }
            if (*budget <= 0 && sweeps == 0)
                return 0;
            rc = g->walk.target != STATE_UNKNOWN ? 0 : begin_needed(g, (uint32_t)rc, budget);
        }
        if (rc == -ENOSPC && sweeps < 2) {
            rc = sweep_within(g, budget);
            /* The equivalents of a deep stack take as much as it does, and a sweep drops them. */
            g->states.limit += sweeps++ > 0 ? GRAMMAR_STACKS_MAX : 0;
        } else if (rc == 0) {
            rc = walk_on(g, budget);
            if (rc == 0)
                return 0;
        }
        if (rc < 0)
            return rc == -ENOMEM ? -ENOMEM : -E2BIG;
    }
}
