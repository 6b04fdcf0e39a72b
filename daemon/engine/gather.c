/*
 * What goes into the next pass: which slots could compute, who computes a page that several need,
 * how many rows each has, and pages for them.
 */
#include "daemon/engine/engine_impl.h"

#include "daemon/policy/fault.h"

#include <stdlib.h>

static void gather_pause(struct engine *engine, struct slot *slot, bool pause)
{
    if (slot->paused == pause)
        return;
    slot->paused = pause;
    engine->n_paused += pause ? 1 : UINT32_MAX;
    if (pause) {
        engine->fence_due =
            true; /* a step that does nothing else is no idle one: the gauges follow */
        counters_add(engine->options.ctl, COUNTER_STALLS, 1);
        answer_progress(slot, DOWN_PAUSED);
    }
}

bool gather_reads(struct engine *engine, struct slot *slot)
{
    int room = event_room(engine_events(slot));

    if (room < 0) {
        engine_close_client(engine, slot->client, room);
        return false;
    }
    gather_pause(engine, slot, (uint32_t)room < answer_room_needed(slot));
    return !slot->paused;
}

/* Pages that another slot has computed meanwhile. What this request computed once and lost is no
 * gain. */
static void gather_adopt(struct engine *engine, struct slot *slot)
{
    struct request *request = slot->request;

    if (slot_adopt(slot, &engine->prefix) == 0 || slot->spec.canonical <= request->reached)
        return;
    uint32_t gained = slot->spec.canonical - request->reached;
    request->reached = slot->spec.canonical;
    request->cached += gained;
    counters_add(engine->options.ctl, COUNTER_CACHED_TOKENS, gained);
    answer_progress(slot, DOWN_PREFILL);
}

/* Do slots decode in the pass that is planned for candidates [0, n)? */
static bool gather_decodes(const struct engine *engine, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (engine->plan[i].rows <= engine->plan[i].window)
            return true;
    return false;
}

/* Slots that could compute now. A slot whose reader leaves no room for a window is paused, and only
 * it. Nothing is due while a model drafts for all of them. */
static uint32_t gather_candidates(struct engine *engine)
{
    uint32_t n = 0, due = 0;

    for (uint32_t i = 0; i < engine->options.n_slots && engine->n_active > 0; i++) {
        struct slot *slot = &engine->slots[i];
        if (!slot->active || slot->streams || slot->waiting || slot->masking ||
            !gather_reads(engine, slot))
            continue;
        gather_adopt(engine, slot);
        due += draft_due(slot);
        engine->plan[n] = (struct plan_slot){
            .rows = spec_rows(&slot->spec),
            .window = slot->spec.drafted + 1,
            .batch = slot->request->batch,
        };
        engine->candidates[n++] = slot;
    }
    return due ? n : 0;
}

/* Of two slots that compute the same page, does `a` come before `b`? Who has more of it, then who
 * began before: a strict order, so that nobody waits for who waits for him. */
static bool gather_ahead(const struct slot *a, const struct slot *b)
{
    if (a->spec.canonical != b->spec.canonical)
        return a->spec.canonical > b->spec.canonical;
    return a->request->serial < b->request->serial;
}

/* Which candidate computes the page that candidate `i` needs next: the foremost of those that do,
 * itself included. One that found no room for pages is not relied on. */
static uint32_t gather_leader(const struct engine *engine, uint32_t n, uint32_t i)
{
    const struct slot *slot = engine->candidates[i];
    uint32_t leader = i;

    for (uint32_t k = 0; k < n && slot_fills_page(slot); k++) {
        const struct slot *other = engine->candidates[k];
        if (other->active && !other->starved && gather_ahead(other, engine->candidates[leader]) &&
            slot_fills_page(other) && slot_same_page(slot, other))
            leader = k;
    }
    return leader;
}

/* Takes slots out of the plan whose next page another one computes; they lend that one their
 * priority. They are looked at again before every pass: when the other one ends, pauses or loses
 * its pages, the next one in order goes on. Returns the number of candidates left. */
static uint32_t gather_follow(struct engine *engine, uint32_t n)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = engine->candidates[i];
        uint32_t leader = gather_leader(engine, n, i);
        slot->follows = leader != i;
        if (slot->follows && !slot->request->batch)
            engine->plan[leader].batch = false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (engine->candidates[i]->follows)
            continue;
        engine->plan[left] = engine->plan[i];
        engine->candidates[left++] = engine->candidates[i];
    }
    return left;
}

static int gather_precedes(const void *a, const void *b)
{
    const struct request *x = (*(struct slot *const *)a)->request;
    const struct request *y = (*(struct slot *const *)b)->request;

    if (x->batch != y->batch)
        return x->batch ? 1 : -1;
    return x->serial < y->serial ? -1 : x->serial > y->serial;
}

void gather_sort(struct slot **slots, uint32_t n)
{
    if (n > 1)
        qsort(slots, n, sizeof(struct slot *), gather_precedes);
}

/* Takes somebody's pages for `slot`. False: there is nobody. */
static bool gather_evict(struct engine *engine, struct slot *slot)
{
    struct slot *victim = slot_victim(engine->slots, engine->options.n_slots, slot);

    if (!victim)
        return false;
    counters_add(engine->options.ctl, COUNTER_EVICTIONS, victim->n_pages);
    slot_evict(victim, &engine->prefix);
    return true;
}

bool gather_pages(struct engine *engine, struct slot *slot, uint32_t n_positions)
{
    if (fault_hits(FAULT_REFUSE_PAGES))
        gather_evict(engine, slot);
    while (!slot_reserve(slot, &engine->prefix, n_positions))
        if (!gather_evict(engine, slot))
            return false;
    return true;
}

uint32_t gather_rows(struct engine *engine, struct slot *slot, uint32_t from, uint32_t sequence,
                     uint32_t n_rows)
{
    const struct spec *spec = &slot->spec;
    uint32_t to = from + slot->take;
    bool samples = to == spec->accepted + spec->drafted && !slot->request->prewarm;

    engine->sequences[sequence] = (struct pass_sequence){
        .pages = slot->pages,
        .tokens = slot->tokens,
        .prompt_length = slot->request->prompt_length,
        .sampler = &slot->request->sampler,
    };
    for (uint32_t position = from; position < to; position++) {
        bool wants = samples && position + 1 >= spec->accepted;
        bool masked = wants && slot->request->run.grammar;
        engine->rows[n_rows++] = (struct row){
            .sequence = sequence,
            .position = position,
            .token = slot->tokens[position],
            .wants = wants ? ROW_SAMPLE : 0,
            .allowed = masked ? slot->request->masks[position + 1 - spec->accepted] : NULL,
        };
    }
    slot->planned = true;
    return n_rows;
}

/* One try: fills engine->rows and engine->order [*ret_sequences]. Returns the number of rows; slots
 * that were given rows but found no pages are marked as waiting, *ret_planned counts them as well.
 */
static uint32_t gather_try(struct engine *engine, uint32_t *ret_sequences, uint32_t *ret_planned)
{
    uint32_t n = gather_follow(engine, gather_candidates(engine));
    uint32_t n_order = 0, n_rows = 0, n_sequences = 0;
    struct cost_step step = pass_cost_step(engine, gather_decodes(engine, n));
    struct plan_cost cost = cost_plan(&engine->cost, &step);
    struct plan_limits limits = {.samples = engine->options.loaded->limits.samples};

    *ret_sequences = *ret_planned = 0;
    engine->answering =
        plan_budget(engine->plan, n, &cost, engine->options.loaded->limits.rows, &limits);
    if (plan_pass(engine->plan, n, &limits, &engine->turn) == 0)
        return 0;
    engine->long_rows = engine->brief_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_slot *plan = &engine->plan[i];
        engine->candidates[i]->take = plan->take;
        if (plan->take)
            engine->order[n_order++] = engine->candidates[i];
        if (plan_is_long(plan))
            engine->long_rows += plan->take;
        else if (plan->rows > plan->window)
            engine->brief_rows += plan->take;
    }
    gather_sort(engine->order, n_order);
    for (uint32_t i = 0; i < n_order; i++) {
        struct slot *slot = engine->order[i];
        if (!slot->active || slot->take == 0)
            continue; /* its client was closed because of another slot; it gave way to one */
        slot->waiting = !gather_pages(engine, slot, slot->spec.canonical + slot->take);
        if (slot->waiting)
            continue;
        n_rows = gather_rows(engine, slot, slot->spec.canonical, n_sequences, n_rows);
        engine->order[n_sequences++] = slot;
    }
    *ret_sequences = n_sequences;
    *ret_planned = n_order;
    return n_rows;
}

void gather_begin(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        engine->slots[i].starved = engine->slots[i].waiting;
        engine->slots[i].waiting = engine->slots[i].follows = false;
    }
}

/* Plans until there are rows: when all that were planned wait for pages, the others get their turn
 * in this step, or a step would find nothing to do although somebody could go on. */
uint32_t gather_plan(struct engine *engine, uint32_t *ret_sequences)
{
    uint32_t n_rows, planned;

    do
        n_rows = gather_try(engine, ret_sequences, &planned);
    while (n_rows == 0 && planned > 0);
    return n_rows;
}
