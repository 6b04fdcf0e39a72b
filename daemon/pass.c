/*
 * One pass: end what was voided, choose rows, make sure of pages, run, and take what came out
 * through the speculation record. A pass mixes prefill chunks, windows and single rows of any
 * slots; nobody waits for somebody else's.
 */
#include "daemon/engine_impl.h"

#include "daemon/fault.h"
#include "daemon/log.h"
#include "kernels/kv.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LATELY_NS = 500000000 }; /* who types goes on within that */

static bool pass_void(const struct slot *slot)
{
    const struct up_slot *up = segment_up_slot(&slot->client->segment, slot->ring);

    return ring_generation(&up->generation) != slot->request->generation;
}

bool pass_runnable(struct slot *slot)
{
    if (pass_void(slot))
        return true;
    if (slot->masking)
        return true; /* the next step goes on with its mask */
    if (slot->waiting)
        return false; /* until somebody else's answer moves: that is a step of its own */
    int room = event_room(engine_events(slot));
    return room < 0 || (uint32_t)room >= answer_room_needed(slot);
}

/* A newer generation makes the request void: cancelled, as far as we know here. */
static void pass_end_void(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->active && pass_void(slot))
            answer_end(engine, slot, DONE_CANCELLED, 0, "");
    }
}

static void pass_pause(struct engine *engine, struct slot *slot, bool pause)
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

/* Pages that another slot has computed meanwhile. What this request computed once and lost is no
 * gain. */
static void pass_adopt(struct engine *engine, struct slot *slot)
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

/* Slots that could compute now. A slot whose reader leaves no room for a window is paused, and only
 * it. Nothing is due while a model drafts for all of them. */
static uint32_t pass_candidates(struct engine *engine)
{
    uint32_t n = 0, due = 0;

    for (uint32_t i = 0; i < engine->options.n_slots && engine->n_active > 0; i++) {
        struct slot *slot = &engine->slots[i];
        if (!slot->active || slot->waiting || slot->masking)
            continue;
        int room = event_room(engine_events(slot));
        if (room < 0) {
            engine_close_client(engine, slot->client, room);
            continue;
        }
        pass_pause(engine, slot, (uint32_t)room < answer_room_needed(slot));
        if (slot->paused)
            continue;
        pass_adopt(engine, slot);
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
static bool pass_ahead(const struct slot *a, const struct slot *b)
{
    if (a->spec.canonical != b->spec.canonical)
        return a->spec.canonical > b->spec.canonical;
    return a->request->serial < b->request->serial;
}

/* Which candidate computes the page that candidate `i` needs next: the foremost of those that do,
 * itself included. One that found no room for pages is not relied on. */
static uint32_t pass_leader(const struct engine *engine, uint32_t n, uint32_t i)
{
    const struct slot *slot = engine->candidates[i];
    uint32_t leader = i;

    for (uint32_t k = 0; k < n && slot_fills_page(slot); k++) {
        const struct slot *other = engine->candidates[k];
        if (other->active && !other->starved && pass_ahead(other, engine->candidates[leader]) &&
            slot_fills_page(other) && slot_same_page(slot, other))
            leader = k;
    }
    return leader;
}

/* Takes slots out of the plan whose next page another one computes; they lend that one their
 * priority. They are looked at again before every pass: when the other one ends, pauses or loses
 * its pages, the next one in order goes on. Returns the number of candidates left. */
static uint32_t pass_follow(struct engine *engine, uint32_t n)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = engine->candidates[i];
        uint32_t leader = pass_leader(engine, n, i);
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

/* Interactive before batch, older before newer: the order in which slots may take pages. */
static int pass_precedes(const void *a, const void *b)
{
    const struct request *x = (*(struct slot *const *)a)->request;
    const struct request *y = (*(struct slot *const *)b)->request;

    if (x->batch != y->batch)
        return x->batch ? 1 : -1;
    return x->serial < y->serial ? -1 : x->serial > y->serial;
}

/* Takes somebody's pages for `slot`. False: there is nobody. */
static bool pass_evict(struct engine *engine, struct slot *slot)
{
    struct slot *victim = slot_victim(engine->slots, engine->options.n_slots, slot);

    if (!victim)
        return false;
    counters_add(engine->options.ctl, COUNTER_EVICTIONS, victim->n_pages);
    slot_evict(victim, &engine->prefix);
    return true;
}

/* Pages for the slot's rows, taken from others where the pool is empty. */
static bool pass_pages(struct engine *engine, struct slot *slot, uint32_t n_positions)
{
    if (fault_hits(FAULT_REFUSE_PAGES))
        pass_evict(engine, slot);
    while (!slot_reserve(slot, &engine->prefix, n_positions))
        if (!pass_evict(engine, slot))
            return false;
    return true;
}

/* Puts the slot's next `take` rows into the pass. Only a pass that reaches the end of the sequence
 * picks, and none of a request that wants no token. */
static uint32_t pass_rows(struct engine *engine, struct slot *slot, uint32_t take,
                          uint32_t sequence, uint32_t n_rows)
{
    const struct spec *spec = &slot->spec;
    bool picks = take == spec_rows(spec) && !slot->request->prewarm;

    engine->sequences[sequence] = (struct pass_sequence){
        .pages = slot->pages,
        .tokens = slot->tokens,
        .prompt_length = slot->request->prompt_length,
        .pick = &slot->request->pick,
    };
    for (uint32_t i = 0; i < take; i++) {
        uint32_t position = spec->canonical + i;
        bool wants = picks && position + 1 >= spec->accepted;
        bool masked = wants && slot->request->run.grammar;
        engine->rows[n_rows++] = (struct row){
            .sequence = sequence,
            .position = position,
            .token = slot->tokens[position],
            .wants = wants ? ROW_PICK : 0,
            .allowed = masked ? slot->request->masks[position + 1 - spec->accepted] : NULL,
        };
    }
    slot->planned = true;
    return n_rows;
}

static struct plan_cost pass_cost(const struct engine *engine)
{
    return (struct plan_cost){
        .pass_ns = engine->options.pass_ns,
        .decode_ns = (uint64_t)engine->cost.pass_ns,
        .row_ns = engine->row_ns,
        .credit_ns = engine->credit_ns,
        .lately = engine->answered_ns && engine->now_ns - engine->answered_ns < LATELY_NS,
    };
}

/* One try: fills engine->rows and engine->order [*ret_sequences]. Returns the number of rows; slots
 * that were given rows but found no pages are marked as waiting, *ret_planned counts them as well.
 */
static uint32_t pass_try(struct engine *engine, uint32_t *ret_sequences, uint32_t *ret_planned)
{
    uint32_t n = pass_follow(engine, pass_candidates(engine));
    uint32_t n_order = 0, n_rows = 0, n_sequences = 0;
    struct plan_cost cost = pass_cost(engine);
    struct plan_limits limits = {.picks = engine->options.resident->limits.picks};

    *ret_sequences = *ret_planned = 0;
    engine->answering =
        plan_budget(engine->plan, n, &cost, engine->options.resident->limits.rows, &limits);
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
    if (n_order > 1)
        qsort(engine->order, n_order, sizeof(*engine->order), pass_precedes);
    for (uint32_t i = 0; i < n_order; i++) {
        struct slot *slot = engine->order[i];
        if (!slot->active || slot->take == 0)
            continue; /* its client was closed because of another slot; it gave way to one */
        slot->waiting = !pass_pages(engine, slot, slot->spec.canonical + slot->take);
        if (slot->waiting)
            continue;
        n_rows = pass_rows(engine, slot, slot->take, n_sequences, n_rows);
        engine->order[n_sequences++] = slot;
    }
    *ret_sequences = n_sequences;
    *ret_planned = n_order;
    return n_rows;
}

/* Plans until there are rows: when all that were planned wait for pages, the others get their turn
 * in this step, or a step would find nothing to do although somebody could go on. */
static uint32_t pass_plan(struct engine *engine, uint32_t *ret_sequences)
{
    uint32_t n_rows, planned;

    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        engine->slots[i].starved = engine->slots[i].waiting;
        engine->slots[i].waiting = engine->slots[i].follows = false;
    }
    do
        n_rows = pass_try(engine, ret_sequences, &planned);
    while (n_rows == 0 && planned > 0);
    return n_rows;
}

bool pass_stops(const struct engine *engine, struct request *request, uint32_t token)
{
    const struct params *params = &request->params;
    uint32_t n_bytes;

    for (uint32_t i = 0; i < params->n_stop_tokens; i++)
        if (params->stop_tokens[i] == token)
            return true;
    const char *bytes = vocab_bytes(engine->vocab, token, &n_bytes);
    /* Control tokens are no text: clients do not print them, so no stop text spans them. */
    return bytes && !vocab_is_control(engine->vocab, token) &&
           stop_feed(&request->stop, bytes, n_bytes);
}

/* What follows from one accepted token: does the answer end with it? 0: it goes on. */
static enum done_reason pass_token_ends(struct engine *engine, struct slot *slot, uint32_t token)
{
    if (vocab_is_end(engine->vocab, token)) {
        slot->request->unused += spec_rollback(&slot->spec);
        spec_drop_last(&slot->spec); /* a reason, not a token of the answer */
        return DONE_EOS;
    }
    enum done_reason constrained = constrain_accept(slot, token);
    if (constrained == DONE_ERROR)
        return constrained;
    if (pass_stops(engine, slot->request, token))
        return DONE_STOP;
    if (constrained)
        return constrained;
    return slot->spec.accepted >= slot->request->limit ? DONE_LENGTH : (enum done_reason)0;
}

/* Takes the picks of a window, first to last, up to the first that is not the draft's. */
static void pass_accept(struct engine *engine, struct slot *slot, const struct row_result *results,
                        uint32_t n_picks)
{
    const struct pick **picks = engine->picks;
    struct request *request = slot->request;
    uint32_t from = slot->spec.accepted, n = 0;
    enum done_reason reason = 0;
    uint32_t window = slot->spec.drafted, held = 0;
    bool agreed = true;

    if (!request->first_pick_ns)
        request->first_pick_ns = engine->now_ns;
    for (uint32_t i = 0; i < n_picks && agreed && !reason; i++) {
        uint32_t drafted = slot->spec.drafted;
        uint32_t pick = results[i].pick.token;
        if (drafted > 0 && fault_hits(FAULT_ACCEPT_DRAFTS))
            pick = slot->tokens[slot->spec.accepted];
        agreed = spec_accept(&slot->spec, slot->tokens, pick);
        held += agreed;
        request->rollbacks += !agreed && drafted > 0;
        request->rejected += agreed ? 0 : drafted;
        picks[n++] = &results[i].pick;
        reason = pass_token_ends(engine, slot, pick);
        bool counts = !vocab_is_end(engine->vocab, pick); /* that one is no token of the answer */
        request->accepted_drafts += agreed && counts;
        request->unused += agreed && !counts;
        request->own += !agreed && counts;
    }
    /* The verifier's own pick comes on top of the drafts that held, whether all did or not. */
    assert(reason || n == held + 1);
    request->unused += spec_rollback(&slot->spec);
    draft_verified(engine, slot, window, held);
    if (slot->spec.accepted > from)
        answer_tokens(engine, slot, from, picks);
    if (reason && slot->active) /* a client that was closed meanwhile had its end */
        answer_end(engine, slot, reason, reason == DONE_ERROR ? -E2BIG : 0,
                   reason == DONE_ERROR ? grammar_too_wide : "");
}

/* A row came out poisoned: the request cannot go on, and says which layer. */
static void pass_poisoned(struct engine *engine, struct slot *slot, const struct row_result *result)
{
    char text[160];

    if (result->layer < engine->options.resident->model->n_layer)
        snprintf(text, sizeof(text),
                 "layer %u gave a value that is not finite: the model cannot continue",
                 result->layer);
    else
        snprintf(text, sizeof(text),
                 "the logits hold a value that is not finite: the model cannot continue");
    answer_end(engine, slot, DONE_ERROR, -EDOM, text);
}

/* Takes the results of the slot's `take` rows. */
static void pass_take(struct engine *engine, struct slot *slot, const struct row_result *results)
{
    struct request *request = slot->request;
    uint32_t take = slot->take, rows = spec_rows(&slot->spec);
    uint32_t window = slot->spec.drafted + 1;
    uint32_t before = take == rows ? rows - window : take; /* rows that only fill KV */

    slot->planned = false;
    request->passes++;
    if (!request->first_row_ns)
        request->first_row_ns = engine->pass_start_ns;
    for (uint32_t i = 0; i < take; i++) {
        if (results[i].status == 0)
            continue;
        spec_prefilled(&slot->spec, i < before ? i : before);
        pass_poisoned(engine, slot, &results[i]);
        return;
    }
    spec_prefilled(&slot->spec, before);
    if (take == rows && request->prewarm)
        answer_end(engine, slot, DONE_LENGTH, 0, "");
    else if (take == rows)
        pass_accept(engine, slot, results + before, window);
    if (slot->active)
        answer_progress(slot, take == rows ? DOWN_DECODE : DOWN_PREFILL);
}

/* Rows of the slots that decode in this pass: one row and its drafts, no prefill. */
static uint32_t pass_decode_rows(const struct engine *engine, uint32_t n_sequences)
{
    uint32_t rows = 0;

    for (uint32_t i = 0; i < n_sequences; i++)
        if (engine->order[i]->take == engine->order[i]->spec.drafted + 1)
            rows += engine->order[i]->take;
    return rows;
}

/* What a row of a prefill adds: the pass without what decoding alone takes. */
static void pass_measure_prefill(struct engine *engine, uint32_t rows, bool decodes, uint64_t took)
{
    uint64_t decode_ns = decodes ? (uint64_t)engine->cost.pass_ns : 0;

    if (rows >= PLAN_CHUNK_MIN / 4 && took > decode_ns)
        engine->row_ns = engine_smooth(engine->row_ns, (took - decode_ns) / rows + 1);
}

/* Somebody reads an answer: what long prompts took of this pass comes off their credit. */
static void pass_measure_credit(struct engine *engine, bool decodes, uint64_t took)
{
    struct plan_cost cost = pass_cost(engine);
    uint64_t others = (decodes ? cost.decode_ns : 0) + engine->brief_rows * cost.row_ns;
    uint64_t least = engine->long_rows * cost.row_ns / 4;
    uint64_t prefill = took > others + least ? took - others : least;

    engine->answered_ns = engine->now_ns;
    engine->credit_ns = plan_credit(&cost, engine->long_rows ? prefill : 0);
}

static void pass_measure(struct engine *engine, uint32_t n_rows, uint32_t n_sequences)
{
    uint64_t took = engine->now_ns - engine->pass_start_ns;
    uint32_t decode_rows = pass_decode_rows(engine, n_sequences);

    if (engine->answering)
        pass_measure_credit(engine, decode_rows > 0, took);

    if (decode_rows == n_rows)
        window_measured(&engine->cost, n_sequences, n_rows, took);
    pass_measure_prefill(engine, n_rows - decode_rows, decode_rows > 0, took);
    engine->step_ns = engine_smooth(engine->step_ns, engine->drafting_ns + took + 1);
    engine->drafting_ns = 0;
    counters_add(engine->options.ctl, COUNTER_PASSES, 1);
    counters_add(engine->options.ctl, COUNTER_ROWS, n_rows);
    counters_set(engine->options.ctl, COUNTER_LAST_STEP_NS, took);
}

static int pass_run(struct engine *engine, uint32_t n_rows, uint32_t n_sequences)
{
    const struct resident *resident = engine->options.resident;
    struct pass pass = {
        .kind = PASS_CANONICAL,
        .rows = engine->rows,
        .n_rows = n_rows,
        .sequences = engine->sequences,
        .n_sequences = n_sequences,
        .results = engine->results,
    };
    int rc = resident->ops->start(resident->backend, &pass);

    return rc < 0 ? rc : resident->ops->finish(resident->backend);
}

/* The backend broke: every answer ends, and the engine stops. */
static void pass_failed(struct engine *engine, int error, const char *text)
{
    engine->failed = error;
    log_error("%s", text);
    for (uint32_t i = 0; i < engine->options.n_slots; i++)
        if (engine->slots[i].active)
            answer_end(engine, &engine->slots[i], DONE_ERROR, error, text);
}

uint32_t pass_step(struct engine *engine)
{
    const struct resident *resident = engine->options.resident;
    uint32_t n_sequences, n_rows, row = 0;
    const char *error;

    pass_end_void(engine);
    uint32_t masking = constrain_step(engine);
    int drafting = draft_step(engine, &error);
    if (drafting < 0) {
        pass_failed(engine, drafting, error);
        return 1;
    }
    if (drafting > 0)
        pass_end_void(engine);
    constrain_windows(engine);
    n_rows = pass_plan(engine, &n_sequences);
    if (n_rows == 0)
        return (uint32_t)drafting + masking;
    if (fault_hits(FAULT_DELAY_PASS))
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    engine->pass_start_ns = engine->options.now_ns();
    int rc = pass_run(engine, n_rows, n_sequences);
    engine->now_ns = engine->options.now_ns();
    if (rc < 0) {
        pass_failed(engine, rc, resident->ops->error(resident->backend));
        return n_rows;
    }
    pass_measure(engine, n_rows, n_sequences);
    pass_end_void(engine); /* nothing is published for a request that was voided meanwhile */
    for (uint32_t i = 0; i < n_sequences; i++) {
        struct slot *slot = engine->order[i];
        uint32_t take = slot->take;
        if (slot->active) {
            pass_take(engine, slot, engine->results + row);
            slot_publish(slot, &engine->prefix);
            if (slot->request->reached < slot->spec.canonical)
                slot->request->reached = slot->spec.canonical;
        }
        slot->planned = false;
        row += take;
    }
    return n_rows;
}
