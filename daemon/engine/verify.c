/* Settled, then verified: what a pass computed, and what follows from it for the answers. */
#include "daemon/engine/verify.h"

#include "daemon/engine/constrain.h"
#include "daemon/engine/request.h"
#include "daemon/policy/fault.h"

#include <assert.h>
#include <stdio.h>

void verify_settle(struct batch *batch, struct slots *slots)
{
    for (uint32_t i = 0; i < batch->n_slots; i++) {
        struct batch_slot *b = &batch->slots[i];
        struct slot *slot = b->slot;
        uint32_t before = spec_commit(&slot->spec, b->take); /* rows that sample nothing */

        b->window = b->take - before;
        b->samples = &batch->results[b->row + before];
        while (b->poisoned < b->take && batch->results[b->row + b->poisoned].status == 0)
            b->poisoned++;
        slot_settle(slot, &slots->kv.prefix, b->take, b->poisoned);
        slots_set(slots, slot, SLOT_READY);
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

enum done_reason verify_token(const struct vocab *vocab, struct slot *slot, uint32_t token,
                              bool drafted)
{
    if (vocab_is_end(vocab, token)) {
        slot->request->unused += spec_rollback(&slot->spec);
        spec_drop_last(&slot->spec); /* a reason, not a token of the answer */
        return DONE_EOS;
    }
    enum done_reason constrained = constrain_accept(vocab, slot, token, drafted);
    if (constrained == DONE_ERROR)
        return constrained;
    const bool stopped = verify_feed_stops(vocab, slot->request, token);
    if (slot->request->behind) { /* constrain_step says whether that was all */
        slot->request->stopped = stopped;
        return 0;
    }
    if (stopped)
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

/* A row came out poisoned: the request cannot go on, and says which layer. */
static void verify_poisoned(struct slots *slots, struct slot *slot, uint32_t layer,
                            uint32_t n_layer)
{
    struct request *request = slot->request;
    if (layer < n_layer)
        snprintf(request->line, sizeof(request->line),
                 "layer %u gave a value that is not finite: the model cannot continue", layer);
    else
        snprintf(request->line, sizeof(request->line),
                 "the logits hold a value that is not finite: the model cannot continue");
    request_end(slots, slot, DONE_ERROR, -EDOM, request->line);
}

/* Takes the first `clean` samples of a window, first to last, up to the first that is not the
 * draft's. Returns whether the answer goes on with a row after these: an accepted draft's, which was
 * poisoned. */
static bool verify_window(const struct batch_slot *b, uint32_t clean, struct slots *slots,
                          struct drafters *drafters, const struct vocab *vocab)
{
    struct slot *slot = b->slot;
    struct request *request = slot->request;
    uint32_t window = slot->spec.drafted, accepted = 0, n = 0;
    enum done_reason reason = 0;
    bool agreed = true;
    for (; n < clean && agreed && !reason; n++) {
        uint32_t drafted = slot->spec.drafted;
        uint32_t sample = b->samples[n].sample.token;
        if (drafted > 0 && fault_hits(FAULT_ACCEPT_DRAFTS))
            sample = slot->tokens[slot->spec.accepted];
        agreed = spec_accept(&slot->spec, slot->tokens, sample);
        accepted += agreed;
        request->rollbacks += !agreed && drafted > 0;
        request->rejected += agreed ? 0 : drafted;
        reason = verify_token(vocab, slot, sample, agreed);
        bool counts = !vocab_is_end(vocab, sample); /* that one is not a token of the answer */
        request->accepted_drafts += agreed && counts;
        request->unused += agreed && !counts;
        request->own += !agreed && counts;
    }
    const bool poisoned = agreed && !reason && clean < b->window;
    /* The verifier's own sample comes on top of the accepted drafts, whether all were or not. */
    assert(reason || poisoned || n == accepted + 1);
    request->unused += spec_rollback(&slot->spec);
    drafters_verified(drafters, slot, window, accepted);
    verify_end(slots, slot, reason);
    return poisoned;
}

static void verify_slot(const struct batch *batch, struct batch_slot *b, struct slots *slots,
                        struct drafters *drafters, const struct loaded_model *loaded)
{
    struct slot *slot = b->slot;
    struct request *request = slot->request;
    const uint32_t before = b->take - b->window; /* rows that sample nothing */
    const bool prewarm = request->prewarm;
    bool poisoned = b->poisoned < b->take;
    request->passes++;
    if (!request->first_row_ns)
        request->first_row_ns = batch->start_ns;
    b->progress = b->window > 0 ? DOWN_DECODE : DOWN_PREFILL;
    if (b->window > 0 && b->poisoned > before && !prewarm) {
        if (!request->first_sample_ns)
            request->first_sample_ns = batch->end_ns;
        /* A poisoned row of a draft that is rejected is nothing to the answer. */
        poisoned = verify_window(b, b->poisoned - before, slots, drafters, &loaded->vocab);
    }
    if (poisoned)
        verify_poisoned(slots, slot, batch->results[b->row + b->poisoned].layer,
                        loaded->model->n_layer);
    else if (b->window > 0 && prewarm)
        request_end(slots, slot, DONE_LENGTH, 0, "");
}

/* Turns the states that the pass kept into restart points of pages that are shared now, as far as
 * no row before was poisoned. */
static void verify_keep(const struct batch *batch, uint32_t i, struct prefix *prefix)
{
    const struct batch_slot *b = &batch->slots[i];
    const struct pass_state *state = &batch->sequences[i].state;
    uint32_t clean = batch->rows[b->row].position + b->poisoned;
    for (uint32_t k = 0; k < state->n_keep; k++) {
        uint32_t id = (uint32_t)state->keep[k].id;
        if (state->keep[k].position <= clean)
            slot_keep(b->slot, prefix, state->keep[k].position, id);
        else
            pages_return(prefix->states, id);
    }
}

void verify_step(struct batch *batch, struct slots *slots, struct drafters *drafters,
                 const struct loaded_model *loaded)
{
    for (uint32_t i = 0; i < batch->n_slots; i++) {
        struct batch_slot *b = &batch->slots[i];
        struct slot *slot = b->slot;
        if (request_void(slot)) /* nothing is taken for a request that was voided meanwhile */
            request_end(slots, slot, DONE_CANCELLED, 0, "");
        else
            verify_slot(batch, b, slots, drafters, loaded);
        slot_share(slot, &slots->kv.prefix);
        verify_keep(batch, i, &slots->kv.prefix);
        slots_worked(slots, slot, b->take, request_reached(slot->request, slot->spec.canonical));
    }
}
