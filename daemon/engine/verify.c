/* Settled, then verified: what a pass computed, and what follows from it for the answers. */
#include "daemon/engine/verify.h"

#include "daemon/engine/request.h"
#include "daemon/engine/state.h"
#include "daemon/policy/fault.h"

#include <assert.h>
#include <stdio.h>

void verify_settle(struct engine *engine)
{
    struct batch *batch = &engine->batch;
    for (uint32_t i = 0; i < batch->n_slots; i++) {
        struct batch_slot *b = &batch->slots[i];
        struct slot *slot = b->slot;
        uint32_t before = spec_commit(&slot->spec, b->take); /* rows that sample nothing */

        b->window = b->take - before;
        b->samples = &batch->results[b->row + before];
        while (b->poisoned < b->take && batch->results[b->row + b->poisoned].status == 0)
            b->poisoned++;
        slot_settle(slot, &engine->slots.kv.prefix, b->take, b->poisoned);
        slots_set(&engine->slots, slot, SLOT_READY);
    }
}

bool verify_feed_stops(const struct vocab *vocab, struct request *request, uint32_t token)
{
    const struct params *params = &request->params;
    uint32_t n_bytes;
    for (uint32_t i = 0; i < params->n_stop_tokens; i++)
        if (params->stop_tokens[i] == token)
            return true;
    const char *bytes = vocab_bytes(vocab, token, &n_bytes);
    /* Clients do not print what is not text, so no stop text spans it. */
    return bytes && vocab_is_text(vocab, token) && stop_feed(&request->stop, bytes, n_bytes);
}

enum done_reason verify_token(const struct vocab *vocab, struct slot *slot, uint32_t token)
{
    if (vocab_is_end(vocab, token)) {
        slot->request->unused += spec_rollback(&slot->spec);
        spec_drop_last(&slot->spec); /* a reason, not a token of the answer */
        return DONE_EOS;
    }
    enum done_reason constrained = constrain_accept(vocab, slot, token);
    if (constrained == DONE_ERROR)
        return constrained;
    if (verify_feed_stops(vocab, slot->request, token))
        return DONE_STOP;
    if (constrained)
        return constrained;
    return slot->spec.accepted >= slot->request->limit ? DONE_LENGTH : (enum done_reason)0;
}

void verify_end(struct slots *slots, struct slot *slot, enum done_reason reason)
{
    if (reason)
        request_end(slots, slot, reason, reason == DONE_ERROR ? -E2BIG : 0,
                    reason == DONE_ERROR ? grammar_too_wide : "");
}

/* Takes the samples of a window, first to last, up to the first that is not the draft's. */
static void verify_window(struct engine *engine, const struct batch_slot *b)
{
    struct slot *slot = b->slot;
    struct request *request = slot->request;
    uint32_t window = slot->spec.drafted, accepted = 0, n = 0;
    enum done_reason reason = 0;
    bool agreed = true;
    if (!request->first_sample_ns)
        request->first_sample_ns = engine->clock.now_ns;
    for (; n < b->window && agreed && !reason; n++) {
        uint32_t drafted = slot->spec.drafted;
        uint32_t sample = b->samples[n].sample.token;
        if (drafted > 0 && fault_hits(FAULT_ACCEPT_DRAFTS))
            sample = slot->tokens[slot->spec.accepted];
        agreed = spec_accept(&slot->spec, slot->tokens, sample);
        accepted += agreed;
        request->rollbacks += !agreed && drafted > 0;
        request->rejected += agreed ? 0 : drafted;
        reason = verify_token(engine->vocab, slot, sample);
        bool counts =
            !vocab_is_end(engine->vocab, sample); /* that one is not a token of the answer */
        request->accepted_drafts += agreed && counts;
        request->unused += agreed && !counts;
        request->own += !agreed && counts;
    }
    /* The verifier's own sample comes on top of the accepted drafts, whether all were or not. */
    assert(reason || n == accepted + 1);
    request->unused += spec_rollback(&slot->spec);
    drafters_verified(&engine->drafters, slot, window, accepted);
    verify_end(&engine->slots, slot, reason);
}

/* A row came out poisoned: the request cannot go on, and says which layer. */
static void verify_poisoned(struct engine *engine, struct slot *slot,
                            const struct row_result *result)
{
    struct request *request = slot->request;
    if (result->layer < engine->options.loaded->model->n_layer)
        snprintf(request->line, sizeof(request->line),
                 "layer %u gave a value that is not finite: the model cannot continue",
                 result->layer);
    else
        snprintf(request->line, sizeof(request->line),
                 "the logits hold a value that is not finite: the model cannot continue");
    request_end(&engine->slots, slot, DONE_ERROR, -EDOM, request->line);
}

static void verify_slot(struct engine *engine, struct batch_slot *b)
{
    struct slot *slot = b->slot;
    struct request *request = slot->request;
    request->passes++;
    if (!request->first_row_ns)
        request->first_row_ns = engine->batch.start_ns;
    b->progress = b->window > 0 ? DOWN_DECODE : DOWN_PREFILL;
    if (b->poisoned < b->take)
        verify_poisoned(engine, slot, &engine->batch.results[b->row + b->poisoned]);
    else if (b->window > 0 && request->prewarm)
        request_end(&engine->slots, slot, DONE_LENGTH, 0, "");
    else if (b->window > 0)
        verify_window(engine, b);
}

/* What the pass kept on its way, as far as no row before it was poisoned: restart points of pages
 * that are shared now. */
static void verify_keep(struct engine *engine, const struct batch_slot *b,
                        const struct pass_state *state)
{
    struct prefix *prefix = &engine->slots.kv.prefix;
    uint32_t clean = engine->batch.rows[b->row].position + b->poisoned;
    for (uint32_t i = 0; i < state->n_keep; i++) {
        uint32_t id = (uint32_t)state->keep[i].id;
        if (state->keep[i].position <= clean)
            slot_keep(b->slot, prefix, state->keep[i].position, id);
        else
            pages_return(prefix->states, id);
    }
}

void verify_step(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->batch.n_slots; i++) {
        struct batch_slot *b = &engine->batch.slots[i];
        struct slot *slot = b->slot;
        if (request_void(slot)) /* nothing is taken for a request that was voided meanwhile */
            request_end(&engine->slots, slot, DONE_CANCELLED, 0, "");
        else
            verify_slot(engine, b);
        slot_share(slot, &engine->slots.kv.prefix);
        verify_keep(engine, b, &engine->batch.sequences[i].state);
        if (slot->request->reached < slot->spec.canonical)
            slot->request->reached = slot->spec.canonical;
    }
}
