#include "tests/rig/state_walk.h"

uint32_t walk_below(uint64_t *random, uint32_t n)
{
    uint64_t z = (*random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) % n);
}

/* Where it starts: mostly where it is, else at another state or from the beginning; and where it
 * goes on. */
static void choose_states(uint64_t *random, const struct walk_text *t, struct walk_plan *p)
{
    const uint32_t other = walk_below(random, WALK_IDS);
    p->from = walk_below(random, 8) > 0 ? t->at : t->holds[other] ? other : WALK_IDS;
    p->from = p->from == WALK_IDS || !t->holds[p->from] ? WALK_IDS : p->from;
    p->own =
        p->from < WALK_IDS && walk_below(random, 4) > 0 ? p->from : walk_below(random, WALK_IDS);
}

/* How many rows, and how many of them are folded in. */
static void choose_rows(uint64_t *random, struct walk_plan *p)
{
    const uint32_t left = WALK_TOKENS - p->first;
    p->good = walk_below(random, 4) > 0 ? walk_below(random, 14) : walk_below(random, 40);
    p->good = p->good > left ? left : p->good;
    p->drafts =
        p->good == left || (p->good > 0 && walk_below(random, 2)) ? 0 : 1 + walk_below(random, 6);
    p->drafts = p->drafts > left - p->good ? left - p->good : p->drafts;
    const uint32_t room = BACKEND_STATE_RECORDS - p->state.replay;
    p->drafts = p->drafts > room ? room : p->drafts;
    if (p->state.replay > 0)
        p->good = p->good + p->drafts > room ? room - p->drafts : p->good;
    else
        p->state.commit = p->good > room - p->drafts
                              ? p->good - walk_below(random, room - p->drafts + 1)
                              : walk_below(random, p->good + 1);
}

struct walk_plan walk_choose(uint64_t *random, const struct walk_text *t)
{
    struct walk_plan p = {.own = 0};
    const int32_t id0 = (int32_t)(t->index * WALK_IDS);
    choose_states(random, t, &p);
    const uint32_t base = p.from < WALK_IDS ? t->base[p.from] : 0,
                   records = p.from < WALK_IDS ? t->records[p.from] : 0,
                   seen = walk_below(random, records + 1);
    p.state.apply = walk_below(random, 3) > 0 ? seen : walk_below(random, seen + 1);
    p.state.replay = seen - p.state.apply;
    p.first = base + seen;
    choose_rows(random, &p);
    p.state.from = p.from < WALK_IDS ? id0 + (int32_t)p.from : BACKEND_STATE_ZERO;
    p.state.own = id0 + (int32_t)p.own;
    for (uint32_t id = 0; id < WALK_IDS && p.state.n_keep < BACKEND_STATE_KEEPS; id++)
        if (id != p.own && id != p.from && walk_below(random, 3) == 0) {
            const uint32_t moved = p.state.apply + p.state.commit;
            p.state.keep[p.state.n_keep].position = base + walk_below(random, moved + 1);
            p.state.keep[p.state.n_keep++].id = id0 + (int32_t)id;
        }
    return p;
}

/* Drafts have written over the KV of later positions, or a page was begun anew. */
static void forget_after(struct walk_text *t, uint32_t end)
{
    for (uint32_t id = 0; id < WALK_IDS; id++) {
        t->holds[id] &= t->base[id] <= end;
        if (t->holds[id] && t->base[id] + t->records[id] > end)
            t->records[id] = end - t->base[id];
    }
}

void walk_done(struct walk_text *t, const struct walk_plan *p)
{
    const uint32_t moved = p->first - p->state.replay + p->state.commit;
    for (uint32_t i = 0; i < p->state.n_keep; i++) {
        const uint32_t id = (uint32_t)p->state.keep[i].id - t->index * WALK_IDS;
        t->base[id] = p->state.keep[i].position;
        t->records[id] = 0;
        t->holds[id] = true;
    }
    t->base[p->own] = moved;
    t->records[p->own] = p->first + p->good - moved;
    t->holds[p->own] = true;
    t->at = p->own;
    forget_after(t, p->first + p->good);
}
