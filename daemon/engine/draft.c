/*
 * Which slots draft, and how much: from text at once, by models over several steps. Slots whose
 * windows a model fills go on together, and no other slot waits for them: a canonical pass that is
 * due for any slot takes along what they have.
 *
 * Then the models' passes: the draft model has KV of its own; a fast pass of the model itself writes
 * where the verification will write over it.
 */
#include "daemon/engine/draft.h"

#include "daemon/engine/answer.h"
#include "daemon/engine/request.h"
#include "daemon/engine/state.h"
#include "daemon/engine/unverified.h"
#include "daemon/policy/fault.h"
#include "ipc/counters.h"

_Static_assert(WINDOW_MAX + 1 <= (int)SPEC_RECORDS_MAX, "a window's rows leave records");

enum { LAG_MAX = 8 }; /* rows that the draft model may catch up with in the pass that drafts */

/* How many drafts the slot may have: not beyond the end of its answer, nor of its reader's room,
 * nor so many that the windows of all do not fit the samples of one pass. */
static uint32_t draft_limit(const struct engine *engine, const struct slot *slot, uint32_t room)
{
    const struct request *request = slot->request;
    uint32_t most =
        request->limit - slot->spec.accepted; /* the last token needs no draft before it */
    uint32_t decoding = engine->batch.n_decoding;
    uint32_t samples = engine->options.loaded->limits.samples / (decoding ? decoding : 1);
    most = most > 0 ? most - 1 : 0;
    if (most > WINDOW_MAX)
        most = WINDOW_MAX;
    if (most + 1 > samples)
        most = samples > 0 ? samples - 1 : 0;
    while (most > 0 && answer_room(request, most + 1) > room)
        most--;
    return most;
}

/* Drafts from text: all at once. */
static void draft_text(struct engine *engine, struct slot *slot, uint32_t most)
{
    struct spec *spec = &slot->spec;
    struct proposer *proposer = &slot->proposer;
    uint32_t drafts[WINDOW_MAX];
    if (!proposer_active(proposer))
        return;
    most = window_choose(&proposer->window, &engine->cost.decode,
                         engine->slots.n_active - engine->slots.n_paused, most,
                         proposer->kind != PROPOSER_AUTO);
    uint32_t n = most ? proposer_draft(proposer, slot->tokens, spec->accepted, most, drafts) : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (fault_hits(FAULT_DRAFT_MISMATCH))
            drafts[i] = (drafts[i] + 1) % engine->n_vocab;
        if (!constrain_draft(engine->vocab, slot, drafts[i]))
            break; /* it would be rejected, and what follows it */
        spec_draft(spec, slot->tokens, drafts[i]);
        slot->request->drafted++;
    }
}

/* Where the draft model has more to catch up with than a drafting pass takes along, does that pay? */
static bool draft_lag_pays(const struct engine *engine, const struct slot *slot,
                           const struct drafter *drafter, uint32_t lag)
{
    return slot->proposer.kind != PROPOSER_AUTO ||
           window_lag_pays(&engine->cost.decode, &drafter->window,
                           slot->proposer.by_model.acceptance, lag,
                           slot->request->limit - slot->spec.accepted);
}

/* Drafts that there are records for: the model's own fast pass leaves them after those of what was
 * accepted since the last canonical pass. */
static uint32_t draft_records(const struct engine *engine, const struct slot *slot,
                              const struct drafter *drafter)
{
    if (drafter->kind != DRAFTER_SELF || !engine->slots.kv.prefix.states)
        return WINDOW_MAX;
    if (slot_from(slot, &engine->slots.kv.prefix) != (int32_t)slot->own)
        return 0; /* it goes on from elsewhere */
    return SPEC_RECORDS_MAX - spec_apply(&slot->spec, slot->spec.canonical);
}

/* The slot begins a window of the drafter's as soon as windows are shared out; or the draft model
 * catches up first. */
static void draft_join(struct engine *engine, struct slot *slot, struct drafter *drafter,
                       uint32_t most)
{
    struct drafters *drafters = &engine->drafters;
    uint32_t accepted = slot->spec.accepted, lag = drafters_lag(drafter, slot);
    if (slot->request->no_drafts || accepted > drafter->context)
        return;
    if (lag > LAG_MAX) {
        if (draft_lag_pays(engine, slot, drafter, lag))
            drafters->lagging[drafters->n_lagging++] = slot;
        return;
    }
    if (most > drafter->context + 1 - accepted)
        most = drafter->context + 1 - accepted;
    if (most > draft_records(engine, slot, drafter))
        most = draft_records(engine, slot, drafter);
    if (most == 0)
        return;
    drafter->slots[drafter->n_shares] = slot;
    drafter->shares[drafter->n_shares++] = (struct window_share){
        .acceptance = slot->proposer.by_model.acceptance,
        .most = most,
        .always = slot->proposer.kind != PROPOSER_AUTO,
    };
}

/* Drafts for one slot from text, or lets it join those that a model drafts for. */
static void draft_slot(struct engine *engine, struct slot *slot, uint32_t room)
{
    if (slot->goal > 0 || slot->spec.drafted > 0) { /* in the middle of a window */
        engine->drafters.n_next += drafters_due(slot);
        return;
    }
    engine->drafters.n_next++;
    if (spec_rows(&slot->spec) != 1 || !slot->request->first_sample_ns)
        return;
    uint32_t most = draft_limit(engine, slot, room);
    draft_text(engine, slot, most);
    struct drafter *drafter = drafters_find(&engine->drafters, slot);
    if (drafter && slot->spec.drafted == 0)
        draft_join(engine, slot, drafter, most);
}

/* Shares out windows among the slots that begin one with this drafter. */
static void draft_share(struct engine *engine, struct drafter *drafter)
{
    uint32_t n = drafter->n_shares;
    window_share(drafter->shares, n, engine->drafters.n_next - n, &engine->cost.decode,
                 &drafter->window);
    for (uint32_t i = 0; i < n; i++)
        drafter->slots[i]->goal = drafter->shares[i].drafts;
}

/* ---- what a pass computes -------------------------------------------------------------------- */

/* The least recently used of the idle slots loses what the draft model knows of it. */
static bool draft_evict(struct engine *engine)
{
    struct slot *victim = NULL;
    for (uint32_t i = 0; i < engine->slots.n; i++) {
        struct slot *slot = &engine->slots.all[i];
        if (slot->state == SLOT_IDLE && slot->draft_kv.n_pages > 0 &&
            (!victim || slot->serial < victim->serial))
            victim = slot;
    }
    if (victim)
        drafters_forget(&engine->drafters, victim);
    return victim != NULL;
}

/* Pages for the drafter's rows. No request gives up any for them: there are no drafts then. */
static bool draft_reserve(struct engine *engine, struct drafter *drafter, struct slot *slot,
                          uint32_t n_positions)
{
    if (drafter->kind == DRAFTER_SELF)
        return slot_reserve(slot, &engine->slots.kv.prefix, slot->spec.canonical, n_positions);
    while (!draft_kv_reserve(&slot->draft_kv, &drafter->pool, n_positions))
        if (!draft_evict(engine))
            return false;
    return true;
}

/* Puts rows [from, to) of the slot into the pass; with `samples` the last one gives a draft. */
static void draft_rows(struct engine *engine, const struct drafter *drafter, struct slot *slot,
                       uint32_t from, uint32_t to, bool samples)
{
    uint32_t i = engine->batch.n_slots;
    struct sampler_params *sampler = &engine->drafters.samplers[i];
    *sampler = slot->request->sampler;
    sampler->logprobs = false;
    batch_add(&engine->batch, slot, to - from);
    batch_rows(&engine->batch, i, from, samples ? to - 1 : to,
               drafter->kind == DRAFTER_SELF ? slot->pages : slot->draft_kv.pages, sampler);
    if (drafter->kind == DRAFTER_SELF && engine->slots.kv.prefix.states)
        engine->batch.sequences[i].state =
            (struct pass_state){.from = (int32_t)slot->own,
                                .own = (int32_t)slot->own,
                                .replay = spec_apply(&slot->spec, from)};
}

/* Rows of one pass that catches up, by what they cost lately: slots that decode wait for them half a
 * pass, as for a prefill (plan_budget). */
static uint32_t draft_chunk(const struct engine *engine, const struct drafter *drafter)
{
    uint64_t wait_ns = (uint64_t)engine->cost.decode.pass_ns / 2;
    uint64_t rows = drafter->row_ns ? wait_ns / drafter->row_ns : 2 * PLAN_CHUNK_MIN;
    if (rows < PLAN_CHUNK_MIN)
        rows = PLAN_CHUNK_MIN;
    return rows < drafter->rows ? (uint32_t)rows : drafter->rows;
}

/* Slots below their goal. One that finds no room in the pass is verified with what it has. */
static void draft_plan(struct engine *engine, struct drafter *drafter)
{
    struct batch *batch = &engine->batch;
    for (uint32_t i = 0; i < batch->n_verified; i++) {
        struct slot *slot = batch->verified[i];
        if (!slot_runs(slot) || drafters_due(slot) ||
            drafters_find(&engine->drafters, slot) != drafter)
            continue;
        uint32_t to = slot->spec.accepted + slot->spec.drafted;
        uint32_t from = drafter->kind == DRAFTER_SELF ? to - 1 : slot->draft_kv.computed;
        if (batch->n_slots < drafter->samples && batch->n_rows + to - from <= drafter->rows &&
            constrain_mask(&engine->constrain, slot, slot->spec.drafted) &&
            draft_reserve(engine, drafter, slot, to))
            draft_rows(engine, drafter, slot, from, to, true);
        else
            slot->goal = slot->spec.drafted;
    }
}

/* Slots whose text the draft model has not seen: a chunk, shared in the order of slots. */
static void draft_plan_lag(struct engine *engine, struct drafter *drafter)
{
    const struct drafters *drafters = &engine->drafters;
    uint32_t most = draft_chunk(engine, drafter);
    for (uint32_t i = 0; i < drafters->n_lagging && engine->batch.n_rows < most; i++) {
        struct slot *slot = drafters->lagging[i];
        uint32_t from = slot->draft_kv.computed, to = slot->spec.accepted - 1;
        if (to - from > most - engine->batch.n_rows)
            to = from + most - engine->batch.n_rows;
        if (from < to && draft_reserve(engine, drafter, slot, to))
            draft_rows(engine, drafter, slot, from, to, false);
    }
}

/* ---- what comes out -------------------------------------------------------------------------- */

/* Takes the result of the slot's last row. */
static void draft_take(struct engine *engine, struct drafter *drafter, const struct batch_slot *b,
                       bool sampled)
{
    struct slot *slot = b->slot;
    const struct row_result *last = &engine->batch.results[b->row + b->take - 1];
    uint32_t token = last->sample.token;
    if (last->status < 0 || (sampled && token >= engine->n_vocab)) {
        slot->request->no_drafts = true; /* a value that is not finite: nothing will come of it */
        slot->goal = slot->spec.drafted;
        return;
    }
    if (drafter->kind == DRAFTER_MODEL)
        slot->draft_kv.computed += b->take;
    if (!sampled)
        return;
    if (fault_hits(FAULT_DRAFT_MISMATCH))
        token = (token + 1) % engine->n_vocab;
    if (!constrain_draft(engine->vocab, slot,
                         token)) { /* an end, too: the verifier finds it as early */
        slot->goal = slot->spec.drafted;
        return;
    }
    spec_draft(&slot->spec, slot->tokens, token);
    slot->request->drafted++;
    if (vocab_is_end(engine->vocab, token)) /* nothing follows if it is accepted */
        slot->goal = slot->spec.drafted;
}

static int draft_run(struct engine *engine, struct drafter *drafter)
{
    const struct batch *batch = &engine->batch;
    uint64_t start_ns = steady_look(&engine->clock);
    int rc = batch_run(&engine->batch, drafter->ops, drafter->backend, PASS_FAST);
    uint64_t took = steady_look(&engine->clock) - start_ns;
    window_measured(&drafter->window.cost, batch->n_slots, batch->n_rows, took);
    if (batch->n_rows >= PLAN_CHUNK_MIN)
        drafter->row_ns = curve_smooth(drafter->row_ns, took / batch->n_rows + 1);
    engine->cost.drafting_ns += took;
    counters_add(engine->options.ctl, COUNTER_DRAFT_PASSES, 1);
    counters_add(engine->options.ctl, COUNTER_DRAFT_ROWS, batch->n_rows);
    return rc;
}

/* One pass: a draft for each slot below its goal; and, of the model's own pass, a row of each slot
 * that unverified_plan chose; of the draft model's, a chunk of what it has not seen yet of slots that
 * would like to draft. Returns the rows, or -errno. */
static int draft_pass(struct engine *engine, struct drafter *drafter)
{
    struct batch *batch = &engine->batch;
    uint32_t n_unverified, n_samples;

    batch_clear(batch);
    if (drafter->kind == DRAFTER_SELF)
        unverified_rows(batch);
    n_unverified = batch->n_slots;
    draft_plan(engine, drafter);
    n_samples = batch->n_slots;
    if (drafter->kind == DRAFTER_MODEL && !batch->prefills) /* prompts go before any catching up */
        draft_plan_lag(engine, drafter);
    if (batch->n_rows == 0)
        return 0;
    int rc = draft_run(engine, drafter);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < batch->n_slots; i++) {
        struct batch_slot *b = &batch->slots[i];
        if (i < n_unverified)
            slots_set(&engine->slots, b->slot, SLOT_READY);
        if (request_void(b->slot)) /* nothing is taken for it */
            request_end(&engine->slots, b->slot, DONE_CANCELLED, 0, "");
        else if (i < n_unverified)
            unverified_take(engine, b);
        else
            draft_take(engine, drafter, b, i < n_samples);
    }
    return (int)batch->n_rows;
}

int draft_step(struct engine *engine, const char **ret_error)
{
    const struct batch *batch = &engine->batch;
    struct drafters *drafters = &engine->drafters;
    int rows = 0;
    drafters->n_next = drafters->n_lagging = 0;
    for (int k = 0; k < DRAFTERS; k++)
        drafters->all[k].n_shares = 0;
    for (uint32_t i = 0; i < batch->n_verified; i++) {
        int room = event_room(client_events(batch->verified[i]));
        if (room >= 0 && (uint32_t)room >= answer_room_needed(batch->verified[i]))
            draft_slot(engine, batch->verified[i], (uint32_t)room);
    }
    for (int k = 0; k < DRAFTERS; k++) {
        struct drafter *drafter = &drafters->all[k];
        if (!drafter->ops)
            continue;
        draft_share(engine, drafter);
        int rc = draft_pass(engine, drafter);
        if (rc < 0) {
            *ret_error = drafter->ops->error(drafter->backend);
            return rc;
        }
        rows += rc;
    }
    return rows;
}
