/* Models that draft: their passes, and what else goes with them (stream.c). The draft model has KV of
 * its own; a fast pass of the model itself writes where the verification will write over it. */
#include "daemon/engine/engine_impl.h"

#include "daemon/policy/fault.h"
#include "kernels/kv.h"

#include <stdlib.h>

int drafters_init(struct engine *engine)
{
    const struct loaded_model *loaded = engine->options.loaded;
    const struct loaded_model *model = loaded->draft;

    for (int k = 0; k < DRAFTERS; k++) {
        const struct loaded_model *from = k == DRAFTER_MODEL ? model : loaded;
        struct drafter *drafter = &engine->drafters[k];
        if (!from || (k == DRAFTER_SELF && loaded->info.fast == BACKEND_FAST_NONE))
            continue;
        *drafter = (struct drafter){
            .ops = from->ops,
            .backend = from->backend,
            .kind = (enum drafter_kind)k,
            .rows =
                from->limits.rows < loaded->limits.rows ? from->limits.rows : loaded->limits.rows,
            .samples = from->limits.samples,
            .context = from->limits.context,
        };
        window_drafter_init(&drafter->window);
    }
    return model ? pages_init(&engine->drafters[DRAFTER_MODEL].pool, model->limits.pages) : 0;
}

void drafters_fini(struct engine *engine)
{
    pages_fini(&engine->drafters[DRAFTER_MODEL].pool);
}

uint32_t draft_lag(const struct drafter *drafter, const struct slot *slot)
{
    if (drafter->kind == DRAFTER_SELF)
        return 0;
    return slot->spec.accepted - 1 - slot->draft_kv.computed;
}

/* ---- what a pass computes -------------------------------------------------------------------- */

/* The idle slot unused the longest loses what the draft model knows of it. */
static bool draft_evict(struct engine *engine)
{
    struct slot *victim = NULL;

    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (!slot->active && slot->draft_kv.n_pages > 0 &&
            (!victim || slot->last_used < victim->last_used))
            victim = slot;
    }
    if (victim)
        draft_forget(engine, victim);
    return victim != NULL;
}

/* Pages for the drafter's rows. Never at the cost of anybody's request: there are no drafts then. */
static bool draft_reserve(struct engine *engine, struct drafter *drafter, struct slot *slot,
                          uint32_t n_positions)
{
    if (drafter->kind == DRAFTER_SELF)
        return slot_reserve(slot, &engine->prefix, n_positions);
    while (!draft_kv_reserve(&slot->draft_kv, &drafter->pool, n_positions))
        if (!draft_evict(engine))
            return false;
    return true;
}

/* Puts rows [from, to) of the slot into the pass; with `samples` the last one gives a draft. */
static uint32_t draft_rows(struct engine *engine, const struct drafter *drafter, struct slot *slot,
                           uint32_t from, uint32_t to, bool samples, uint32_t sequence,
                           uint32_t n_rows)
{
    engine->draft_samplers[sequence] = slot->request->sampler;
    engine->draft_samplers[sequence].logprobs = false;
    engine->sequences[sequence] = (struct pass_sequence){
        .pages = drafter->kind == DRAFTER_SELF ? slot->pages : slot->draft_kv.pages,
        .tokens = slot->tokens,
        .prompt_length = slot->request->prompt_length,
        .sampler = &engine->draft_samplers[sequence],
    };
    const uint64_t *mask =
        slot->request->run.grammar ? slot->request->masks[slot->spec.drafted] : NULL;
    for (uint32_t position = from; position < to; position++)
        engine->rows[n_rows++] = (struct row){
            .sequence = sequence,
            .position = position,
            .token = slot->tokens[position],
            .wants = samples && position + 1 == to ? ROW_SAMPLE : 0,
            .allowed = samples && position + 1 == to ? mask : NULL,
        };
    engine->order[sequence] = slot;
    slot->take = to - from;
    return n_rows;
}

/* Rows of one pass that catches up, by what they cost lately: those who decode wait for them half a
 * pass, as for a prefill (plan_budget). */
static uint32_t draft_chunk(const struct engine *engine, const struct drafter *drafter)
{
    uint64_t wait_ns = (uint64_t)engine->cost.decode.pass_ns / 2;
    uint64_t rows = drafter->row_ns ? wait_ns / drafter->row_ns : 2 * PLAN_CHUNK_MIN;

    if (rows < PLAN_CHUNK_MIN)
        rows = PLAN_CHUNK_MIN;
    return rows < drafter->rows ? (uint32_t)rows : drafter->rows;
}

/* Slots below their goal, behind `n_rows` rows of as many others. One that finds no room in the pass
 * is verified with what it has. */
static uint32_t draft_plan(struct engine *engine, struct drafter *drafter, uint32_t n_rows,
                           uint32_t *ret_sequences)
{
    uint32_t n = n_rows;

    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (!slot->active || slot->masking || draft_due(slot) ||
            draft_source(engine, slot) != drafter)
            continue;
        uint32_t to = slot->spec.accepted + slot->spec.drafted;
        uint32_t from = drafter->kind == DRAFTER_SELF ? to - 1 : slot->draft_kv.computed;
        if (n < drafter->samples && n_rows + to - from <= drafter->rows &&
            constrain_ready(engine, slot, slot->spec.drafted) &&
            draft_reserve(engine, drafter, slot, to))
            n_rows = draft_rows(engine, drafter, slot, from, to, true, n++, n_rows);
        else
            slot->goal = slot->spec.drafted;
    }
    *ret_sequences = n;
    return n_rows;
}

/* Slots whose text the draft model has not seen: a chunk, shared in the order of slots. */
static uint32_t draft_plan_lag(struct engine *engine, struct drafter *drafter, uint32_t n_rows,
                               uint32_t *sequences)
{
    uint32_t most = draft_chunk(engine, drafter);

    for (uint32_t i = 0; i < engine->options.n_slots && n_rows < most; i++) {
        struct slot *slot = &engine->slots[i];
        if (!slot->active || !slot->lags || slot->goal > 0)
            continue;
        uint32_t from = slot->draft_kv.computed, to = slot->spec.accepted - 1;
        if (to - from > most - n_rows)
            to = from + most - n_rows;
        if (from < to && draft_reserve(engine, drafter, slot, to))
            n_rows = draft_rows(engine, drafter, slot, from, to, false, (*sequences)++, n_rows);
    }
    return n_rows;
}

/* ---- what comes out -------------------------------------------------------------------------- */

/* Takes the result of the slot's last row. */
static void draft_take(struct engine *engine, struct drafter *drafter, struct slot *slot,
                       const struct row_result *last, bool sampled)
{
    uint32_t token = last->sample.token;

    if (last->status < 0 || (sampled && token >= engine->n_vocab)) {
        slot->no_drafts = true; /* a value that is not finite: nothing will come of it */
        slot->lags = false;
        slot->goal = slot->spec.drafted;
        return;
    }
    if (drafter->kind == DRAFTER_MODEL)
        slot->draft_kv.computed += slot->take;
    if (!sampled)
        return;
    if (fault_hits(FAULT_DRAFT_MISMATCH))
        token = (token + 1) % engine->n_vocab;
    if (!constrain_draft(slot, token)) { /* an end, too: the verifier finds it as early */
        slot->goal = slot->spec.drafted;
        return;
    }
    spec_draft(&slot->spec, slot->tokens, token);
    slot->request->drafted++;
    if (vocab_is_end(engine->vocab, token)) /* nothing follows if it holds */
        slot->goal = slot->spec.drafted;
}

static int draft_run(struct engine *engine, struct drafter *drafter, uint32_t n_rows,
                     uint32_t n_sequences)
{
    struct pass pass = {
        .kind = PASS_FAST,
        .rows = engine->rows,
        .n_rows = n_rows,
        .sequences = engine->sequences,
        .n_sequences = n_sequences,
        .results = engine->results,
    };
    uint64_t start_ns = engine->options.now_ns();
    int rc = drafter->ops->start(drafter->backend, &pass);

    if (rc == 0)
        rc = drafter->ops->finish(drafter->backend);
    engine->now_ns = engine->options.now_ns();
    uint64_t took = engine->now_ns - start_ns;
    window_measured(&drafter->window.cost, n_sequences, n_rows, took);
    if (n_rows >= PLAN_CHUNK_MIN)
        drafter->row_ns = cost_smooth(drafter->row_ns, took / n_rows + 1);
    engine->cost.drafting_ns += took;
    counters_add(engine->options.ctl, COUNTER_DRAFT_PASSES, 1);
    counters_add(engine->options.ctl, COUNTER_DRAFT_ROWS, n_rows);
    return rc;
}

int draft_pass(struct engine *engine, struct drafter *drafter, bool catch_up)
{
    uint32_t n_samples, n_sequences, row = 0;
    uint32_t n_streams = drafter->kind == DRAFTER_SELF ? stream_plan(engine, drafter) : 0;
    uint32_t n_rows = draft_plan(engine, drafter, n_streams, &n_samples);

    n_sequences = n_samples;
    if (drafter->kind == DRAFTER_MODEL && catch_up)
        n_rows = draft_plan_lag(engine, drafter, n_rows, &n_sequences);
    if (n_rows == 0)
        return 0;
    int rc = draft_run(engine, drafter, n_rows, n_sequences);
    if (rc < 0)
        return rc;
    pass_end_void(engine); /* nothing is taken for a request that was voided meanwhile */
    for (uint32_t i = 0; i < n_sequences; i++) {
        struct slot *slot = engine->order[i];
        row += slot->take;
        slot->planned = false;
        if (slot->active && i < n_streams)
            stream_take(engine, slot, &engine->results[row - 1]);
        else if (slot->active)
            draft_take(engine, drafter, slot, &engine->results[row - 1], i < n_samples);
        slot->take = 0;
    }
    return (int)n_rows;
}
