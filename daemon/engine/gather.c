/* Candidates, leaders, plan, pages, rows: in that order, until there are rows. */
#include "daemon/engine/gather.h"

#include "daemon/engine/answer.h"
#include "daemon/engine/drafters.h"
#include "daemon/engine/request.h"
#include "daemon/policy/fault.h"
#include "ipc/counters.h"
#include "kernels/kv.h"

enum { LOOK_PAGES = 1024 };   /* that a step looks at in vain, or adopts again, in the long run */
enum { KEYSTROKE_SHARE = 4 }; /* a quarter of the time beside other users' answers ... */
static const uint64_t KEYSTROKE_CREDIT_NS = 1000000000; /* ... in the long run */

bool gather_admit(struct slots *slots, struct attached *clients, struct slot *slot)
{
    int room = event_room(client_events(slot));
    if (room < 0) {
        attached_fail(clients, slot->client, room);
        return false;
    }
    if ((uint32_t)room >= answer_room_needed(slot)) {
        if (slot->state == SLOT_PAUSED)
            slots_set(slots, slot, SLOT_READY);
        return true;
    }
    if (slot->state != SLOT_PAUSED) {
        slots_set(slots, slot, SLOT_PAUSED);
        clients->fence_due = true; /* it is work: the gauges follow */
        counters_add(clients->ctl, COUNTER_STALLS, 1);
        answer_progress(slot, DOWN_PAUSED);
    }
    return false;
}

/* Another slot has computed them. What this request itself computed and lost does not count. */
uint32_t gather_adopt(struct slot *slot, struct prefix *prefix, struct ctl *ctl)
{
    return slot_adopt(slot, prefix) > 0 ? gather_gained(slot, ctl) : 0;
}

uint32_t gather_gained(struct slot *slot, struct ctl *ctl)
{
    struct request *request = slot->request;
    uint32_t gained = request_reached(request, slot->spec.canonical);
    if (gained == 0)
        return 0;
    request->cached += gained;
    counters_add(ctl, COUNTER_CACHED_TOKENS, gained);
    answer_progress(slot, DOWN_PREFILL);
    return gained;
}

/* Candidates [n] adopt, in turns, while the step's budget lasts: for looks in vain, and for what they
 * had and lost, which may be thousands of pages for each, in each step. */
static void gather_adopt_all(struct batch *batch, uint32_t n, struct prefix *prefix,
                             struct ctl *ctl)
{
    uint32_t first = 0;
    while (first < n && batch->candidates[first]->number <= batch->looked)
        first++;
    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = batch->candidates[(first + i) % n];
        if (batch->look > 0)
            batch->looked = slot->number;
        const uint32_t from = slot->spec.canonical, reached = slot->request->reached;
        if (slot_adopt_within(slot, prefix, &batch->look) == 0)
            continue;
        const uint32_t to = slot->spec.canonical < reached ? slot->spec.canonical : reached;
        if (to > from)
            batch->look -= (to - from) / KV_PAGE_POSITIONS; /* it had them before */
        gather_gained(slot, ctl);
    }
}

/* Slots that could compute now. None is due while a model drafts for all of them. */
static uint32_t gather_candidates(struct batch *batch, struct slots *slots,
                                  struct attached *clients, uint64_t now_ns)
{
    uint32_t n = 0, due = 0;
    for (uint32_t i = 0; i < batch->n_verified; i++)
        if (slot_runs(batch->verified[i]) && gather_admit(slots, clients, batch->verified[i]))
            batch->candidates[n++] = batch->verified[i];
    gather_adopt_all(batch, n, &slots->kv.prefix, clients->ctl);
    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = batch->candidates[i];
        const uint32_t rows = spec_rows(&slot->spec);
        due += drafters_due(slot);
        if (slot->request->whole < rows)
            slot->request->whole = rows;
        batch->plan[i] = (struct plan_slot){
            .rows = rows,
            .window = slot->spec.drafted + 1,
            .whole = slot->request->whole,
            .user = slot->uid,
            .batch = slot->batch,
            .owes = debt_owes(&slot->client->user->keystrokes, KEYSTROKE_CREDIT_NS, now_ns),
        };
    }
    return due ? n : 0;
}

/* Of two slots that compute the same page, does `a` come before `b`? Furthest along wins, ties go to
 * the older request: a strict order, so waits cannot form a cycle. */
static bool gather_ahead(const struct slot *a, const struct slot *b)
{
    if (a->spec.canonical != b->spec.canonical)
        return a->spec.canonical > b->spec.canonical;
    return a->serial < b->serial;
}

/* Does `other` compute what `slot` needs next: the same page, or, of a recurrent model, the text up
 * to a place where both could begin? */
static bool gather_serves(const struct slot *other, const struct slot *slot, bool recurrent)
{
    if (recurrent)
        return slot_meets(slot, other) > 0;
    return slot_fills_page(other) && slot_same_page(slot, other);
}

/* Which candidate computes the page that candidate `i` needs next: the foremost of those that do,
 * itself included. A starved one is not relied on. */
static uint32_t gather_leader(const struct batch *batch, uint32_t n, uint32_t i, bool recurrent)
{
    const struct slot *slot = batch->candidates[i];
    uint32_t leader = i;
    for (uint32_t k = 0; k < n && slot_fills_page(slot); k++) {
        const struct slot *other = batch->candidates[k];
        if (other->state != SLOT_STARVED && gather_ahead(other, batch->candidates[leader]) &&
            gather_serves(other, slot, recurrent))
            leader = k;
    }
    return leader;
}

/* The leader keeps a restart point where the first of those that follow it goes its own way. */
static void gather_meet(const struct slot *slot, struct slot *leader)
{
    uint32_t at = slot_meets(slot, leader);
    if (leader->meets == 0 || at < leader->meets)
        leader->meets = at;
}

/* Takes slots out of the plan whose next page another one computes; they lend that one their
 * priority. They are looked at again before every pass: when the other one ends, pauses or loses
 * its pages, the next one in order goes on. Returns the number of candidates left. */
static uint32_t gather_follow(struct batch *batch, struct slots *slots, uint32_t n)
{
    bool recurrent = slots->kv.prefix.states != NULL;
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++)
        batch->candidates[i]->meets = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t leader = gather_leader(batch, n, i, recurrent);
        if (leader == i)
            continue;
        if (recurrent)
            gather_meet(batch->candidates[i], batch->candidates[leader]);
        batch->plan[i].rows = 0;
        if (!batch->candidates[i]->batch)
            batch->plan[leader].batch = false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (batch->plan[i].rows == 0)
            continue;
        batch->plan[left] = batch->plan[i];
        batch->candidates[left++] = batch->candidates[i];
    }
    slots->n_following = n - left;
    return left;
}

static bool gather_evict(struct batch *batch, struct slots *slots, struct ctl *ctl,
                         const struct slot *needy)
{
    struct slot *victim = slot_victim(slots->all, slots->n, &slots->kv.prefix, needy);
    if (!victim)
        return false;
    counters_add(ctl, COUNTER_EVICTIONS, slots_evict(slots, victim));
    batch_drop(batch, victim);
    return true;
}

/* Page by page: each may be the one that another user has to give. */
bool gather_reserve(struct slots *slots, struct ctl *ctl, struct slot *slot, uint32_t from,
                    uint32_t to)
{
    struct prefix *prefix = &slots->kv.prefix;
    uint32_t until;
    do {
        const uint32_t next = (slot->n_pages + 1) * KV_PAGE_POSITIONS;
        until = next < to ? next : to;
        if (slot->n_pages < kv_pages(until))
            counters_add(ctl, COUNTER_EVICTIONS, slots_level(slots, prefix, slot));
        if (!slot_reserve(slot, prefix, from, until))
            return false;
    } while (until < to);
    return true;
}

bool gather_pages(struct batch *batch, struct slots *slots, struct ctl *ctl, struct slot *slot,
                  uint32_t from, uint32_t to)
{
    struct prefix *prefix = &slots->kv.prefix;
    bool reserved;
    if (fault_hits(FAULT_REFUSE_PAGES))
        gather_evict(batch, slots, ctl, slot);
    do
        reserved =
            gather_reserve(slots, ctl, slot, from, to) && slots_own_state(slots, prefix, slot);
    while (!reserved && gather_evict(batch, slots, ctl, slot));
    slots_set(slots, slot, reserved ? SLOT_PLANNED : SLOT_WAITING);
    return reserved;
}

/* What a canonical pass does with the state of a recurrent model: what was accepted since the last
 * one is folded in, and so are its rows before the last accepted token. */
static struct pass_state gather_state(const struct prefix *prefix, const struct slot *slot,
                                      uint32_t take)
{
    const struct spec *spec = &slot->spec;
    if (!prefix->states)
        return (struct pass_state){0};
    return (struct pass_state){
        .from = slot_from(slot, prefix),
        .own = (int32_t)slot->own,
        .apply = spec_apply(spec, spec->canonical),
        .commit = spec_commit(spec, take),
    };
}

/* Shares out the rows of the pass among candidates [n]: the batch's slots. */
static void gather_share(struct batch *batch, uint32_t n, const struct cost *cost,
                         struct cost_step *step)
{
    struct plan_limits limits = {.samples = batch->most_samples};
    step->decode_rows = 0;
    for (uint32_t i = 0; i < n; i++)
        if (batch->plan[i].rows <= batch->plan[i].window)
            step->decode_rows += batch->plan[i].rows;
    struct plan_cost costs = cost_plan(cost, step);
    batch->answering = plan_budget(batch->plan, n, &costs, batch->most_rows, &limits);
    plan_pass(batch->plan, n, &limits, &batch->turns);
    batch->long_rows = batch->short_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_slot *plan = &batch->plan[i];
        bool is_long = plan_is_long(plan), brief = !is_long && plan->rows > plan->window;
        batch->long_rows += is_long ? plan->take : 0;
        batch->short_rows += brief ? plan->take : 0;
        if (plan->take == 0)
            continue;
        batch_add(batch, batch->candidates[i], plan->take);
        batch->slots[batch->n_slots - 1].brief = brief;
    }
}

/* Would the slot compute what it lost in pages that it will lose again? Those that are planned before
 * it lack `lacking`, for the text that they have and a page to go on in. */
static bool gather_in_vain(const struct slots *slots, const struct batch_slot *b, uint32_t lacking)
{
    const struct slot *slot = b->slot;
    const uint32_t pages = kv_pages(slot->spec.canonical + b->take);
    if (lacking == 0 || slot->spec.canonical >= slot->request->reached || pages <= slot->n_pages)
        return false;
    return slots_room(slots, slot) < lacking + pages - slot->n_pages;
}

/* Plans once. Returns whether slots were given rows; those that found no pages wait. */
static bool gather_try(struct batch *batch, struct slots *slots, struct attached *clients,
                       const struct cost *cost, struct cost_step *step)
{
    struct prefix *prefix = &slots->kv.prefix;
    batch_clear(batch);
    uint32_t n = gather_candidates(batch, slots, clients, step->now_ns);
    n = gather_follow(batch, slots, n);
    gather_share(batch, n, cost, step);
    if (batch->n_slots == 0)
        return false;
    batch_sort(batch);
    uint32_t lacking = 0;
    n = 0;
    for (uint32_t i = 0; i < batch->n_slots; i++) {
        struct batch_slot b = batch->slots[i];
        struct slot *slot = b.slot;
        const struct spec *spec = &slot->spec;
        if (b.take == 0)
            continue;
        if (gather_in_vain(slots, &b, lacking)) {
            slots_set(slots, slot, SLOT_WAITING);
            continue;
        }
        if (!gather_pages(batch, slots, clients->ctl, slot, spec->canonical,
                          spec->canonical + b.take))
            continue;
        if (kv_pages(spec->accepted) >= slot->n_pages)
            lacking += kv_pages(spec->accepted) + 1 - slot->n_pages;
        /* Only rows that reach the end of the sequence sample, and none of a request for no token. */
        bool samples = b.take == spec_rows(spec) && !slot->request->prewarm;
        batch->slots[n] = b;
        batch_rows(batch, n, spec->canonical, samples ? spec->accepted - 1 : UINT32_MAX,
                   slot->pages, &slot->request->sampler);
        batch->sequences[n++].state = gather_state(prefix, slot, b.take);
    }
    batch->n_slots = n;
    return true;
}

/* Does the pass also decode an interactive answer of another user? */
static bool gather_delays(const struct batch *batch, uid_t uid)
{
    for (uint32_t i = 0; i < batch->n_slots; i++) {
        const struct slot *slot = batch->slots[i].slot;
        if (slot->uid != uid && !slot->batch && batch->slots[i].take == slot->spec.drafted + 1)
            return true;
    }
    for (uint32_t i = 0; i < batch->n_unverified; i++)
        if (batch->unverified[i]->uid != uid && !batch->unverified[i]->batch)
            return true;
    return false;
}

void gather_charge(const struct batch *batch, uint64_t short_ns)
{
    for (uint32_t i = 0; i < batch->n_slots; i++) {
        const struct batch_slot *b = &batch->slots[i];
        if (b->brief && gather_delays(batch, b->slot->uid))
            debt_charge(&b->slot->client->user->keystrokes, short_ns * b->take / batch->short_rows,
                        KEYSTROKE_SHARE, KEYSTROKE_CREDIT_NS, batch->end_ns);
    }
}

/* Takes states for the restart points that the pass reaches. Its slots have their own already. */
static void gather_keep(struct batch *batch, struct slots *slots)
{
    struct prefix *prefix = &slots->kv.prefix;
    for (uint32_t i = 0; i < batch->n_slots && prefix->states; i++) {
        const struct slot *slot = batch->slots[i].slot;
        struct pass_state *state = &batch->sequences[i].state;
        uint32_t from = slot->spec.canonical, points[BACKEND_STATE_KEEPS];
        uint32_t n = slot_points(slot, from, from + state->commit, points);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t id = slots_take_state(slots, prefix);
            if (id == PAGE_NONE)
                return;
            state->keep[state->n_keep].position = points[k];
            state->keep[state->n_keep++].id = (int32_t)id;
        }
    }
}

/* Plans until there are rows: when all that were planned wait for pages, the others get their turn
 * in this step, or a step would find nothing to do although some slot could go on. */
uint32_t gather_plan(struct batch *batch, struct slots *slots, struct attached *clients,
                     const struct cost *cost, struct cost_step *step)
{
    bool planned;
    batch->look = batch->look < 0 ? batch->look + LOOK_PAGES : LOOK_PAGES;
    do
        planned = gather_try(batch, slots, clients, cost, step);
    while (planned && batch->n_rows == 0);
    gather_keep(batch, slots);
    return batch->n_rows;
}
