/*
 * Requests that need not be deterministic, on a device whose fast pass is the model in faster
 * numerics: a fast pass over the row of the last accepted token gives the next one, which is
 * published as it is. These rows go with the drafting ones of other slots, in one pass.
 *
 * The prompt and the first token come from canonical passes, and so does what is computed again
 * after pages were taken back: what is shared and kept is canonical, whoever asked for it.
 */
#include "daemon/engine/engine_impl.h"

/* A slot streams from its first token on, as long as all but the last one have KV. */
static bool stream_due(const struct slot *slot)
{
    return slot->active && slot->request->fast && slot->request->first_sample_ns &&
           spec_streams(&slot->spec);
}

void stream_begin(struct engine *engine)
{
    engine->streaming = false;
    engine->n_streams = engine->stream_rows = 0;
    if (engine->options.loaded->info.fast != BACKEND_FAST_NATIVE)
        return;
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        slot->streams = stream_due(slot);
        engine->n_streams += slot->streams && !slot->paused;
    }
}

bool stream_fits(const struct engine *engine, const struct submit_cell *cell)
{
    return cell->flags & SUBMIT_FAST && cell->max_tokens > 0 &&
           engine->options.loaded->info.fast == BACKEND_FAST_NATIVE;
}

/* Shares out the pass's rows among slots that stream, each one: fills engine->order. Returns how
 * many have theirs. */
static uint32_t stream_share(struct engine *engine, const struct drafter *drafter)
{
    const struct plan_limits limits = {.rows = drafter->rows, .samples = drafter->samples};
    uint32_t n = 0, n_order = 0;

    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (!slot->active || !slot->streams || slot->masking || !gather_reads(engine, slot))
            continue;
        engine->plan[n] = (struct plan_slot){.rows = 1, .window = 1, .batch = slot->request->batch};
        engine->streams[n++] = slot;
    }
    plan_pass(engine->plan, n, &limits, &engine->stream_turn);
    for (uint32_t i = 0; i < n; i++) {
        engine->streams[i]->take = engine->plan[i].take;
        if (engine->plan[i].take)
            engine->order[n_order++] = engine->streams[i];
    }
    gather_sort(engine->order, n_order);
    return n_order;
}

uint32_t stream_plan(struct engine *engine, const struct drafter *drafter)
{
    uint32_t n_order = stream_share(engine, drafter), n = 0;

    for (uint32_t i = 0; i < n_order; i++) {
        struct slot *slot = engine->order[i];
        if (!slot->active || slot->take == 0)
            continue; /* its client was closed because of another slot; it gave way to one */
        if (!gather_pages(engine, slot, slot->spec.accepted)) {
            slot->waiting = true;
            slot->take = 0;
            continue;
        }
        gather_rows(engine, slot, slot->spec.accepted - 1, n, n);
        engine->streaming |= !slot->request->batch;
        engine->order[n++] = slot;
    }
    engine->stream_rows = n;
    return n;
}

void stream_take(struct engine *engine, struct slot *slot, const struct row_result *result)
{
    struct request *request = slot->request;
    const struct sample *sample = &result->sample;
    uint32_t from = slot->spec.accepted;

    request->passes++;
    if (result->status < 0) {
        request->fast = false; /* whether the model can go on, canonical passes know */
        return;
    }
    spec_stream(&slot->spec, slot->tokens, sample->token);
    if (request->reached < spec_computed(&slot->spec))
        request->reached = spec_computed(&slot->spec);
    enum done_reason reason = verify_ends(engine, slot, sample->token);
    bool counts = !vocab_is_end(engine->vocab, sample->token);
    request->own += counts;
    request->streamed = true;
    counters_add(engine->options.ctl, COUNTER_STREAMED_TOKENS, counts);
    verify_publish(engine, slot, from, &sample, reason);
    if (slot->active)
        answer_progress(slot, DOWN_DECODE);
}
