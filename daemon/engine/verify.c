/*
 * What came out of a pass, taken through the speculation record: drafts that hold are accepted, the
 * rest is rolled back, and an answer that ends ends here.
 */
#include "daemon/engine/engine_impl.h"

#include "daemon/policy/fault.h"

#include <assert.h>
#include <stdio.h>

bool verify_stops(const struct engine *engine, struct request *request, uint32_t token)
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

enum done_reason verify_ends(struct engine *engine, struct slot *slot, uint32_t token)
{
    if (vocab_is_end(engine->vocab, token)) {
        slot->request->unused += spec_rollback(&slot->spec);
        spec_drop_last(&slot->spec); /* a reason, not a token of the answer */
        return DONE_EOS;
    }
    enum done_reason constrained = constrain_accept(slot, token);
    if (constrained == DONE_ERROR)
        return constrained;
    if (verify_stops(engine, slot->request, token))
        return DONE_STOP;
    if (constrained)
        return constrained;
    return slot->spec.accepted >= slot->request->limit ? DONE_LENGTH : (enum done_reason)0;
}

void verify_publish(struct engine *engine, struct slot *slot, uint32_t from,
                    const struct sample *const *samples, enum done_reason reason)
{
    if (slot->spec.accepted > from)
        answer_tokens(engine, slot, from, samples);
    if (reason && slot->active) /* a client that was closed meanwhile had its end */
        answer_end(engine, slot, reason, reason == DONE_ERROR ? -E2BIG : 0,
                   reason == DONE_ERROR ? grammar_too_wide : "");
}

/* Takes the samples of a window, first to last, up to the first that is not the draft's. */
static void verify_accept(struct engine *engine, struct slot *slot,
                          const struct row_result *results, uint32_t n_samples)
{
    const struct sample **samples = engine->samples;
    struct request *request = slot->request;
    uint32_t from = slot->spec.accepted, n = 0;
    enum done_reason reason = 0;
    uint32_t window = slot->spec.drafted, held = 0;
    bool agreed = true;

    if (!request->first_sample_ns)
        request->first_sample_ns = engine->now_ns;
    for (uint32_t i = 0; i < n_samples && agreed && !reason; i++) {
        uint32_t drafted = slot->spec.drafted;
        uint32_t sample = results[i].sample.token;
        if (drafted > 0 && fault_hits(FAULT_ACCEPT_DRAFTS))
            sample = slot->tokens[slot->spec.accepted];
        agreed = spec_accept(&slot->spec, slot->tokens, sample);
        held += agreed;
        request->rollbacks += !agreed && drafted > 0;
        request->rejected += agreed ? 0 : drafted;
        samples[n++] = &results[i].sample;
        reason = verify_ends(engine, slot, sample);
        bool counts = !vocab_is_end(engine->vocab, sample); /* that one is no token of the answer */
        request->accepted_drafts += agreed && counts;
        request->unused += agreed && !counts;
        request->own += !agreed && counts;
    }
    /* The verifier's own sample comes on top of the drafts that held, whether all did or not. */
    assert(reason || n == held + 1);
    request->unused += spec_rollback(&slot->spec);
    draft_verified(engine, slot, window, held);
    verify_publish(engine, slot, from, samples, reason);
}

/* A row came out poisoned: the request cannot go on, and says which layer. */
static void verify_poisoned(struct engine *engine, struct slot *slot,
                            const struct row_result *result)
{
    char text[160];

    if (result->layer < engine->options.loaded->model->n_layer)
        snprintf(text, sizeof(text),
                 "layer %u gave a value that is not finite: the model cannot continue",
                 result->layer);
    else
        snprintf(text, sizeof(text),
                 "the logits hold a value that is not finite: the model cannot continue");
    answer_end(engine, slot, DONE_ERROR, -EDOM, text);
}

/* Takes the results of the slot's `take` rows. */
void verify_take(struct engine *engine, struct slot *slot, const struct row_result *results)
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
        verify_poisoned(engine, slot, &results[i]);
        return;
    }
    spec_prefilled(&slot->spec, before);
    if (take == rows && request->prewarm)
        answer_end(engine, slot, DONE_LENGTH, 0, "");
    else if (take == rows)
        verify_accept(engine, slot, results + before, window);
    if (slot->active)
        answer_progress(slot, take == rows ? DOWN_DECODE : DOWN_PREFILL);
}
