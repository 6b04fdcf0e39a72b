/* Answers of fast passes. What they computed is never canonical. */
#include "daemon/engine/unverified.h"

#include "daemon/engine/gather.h"
#include "daemon/engine/request.h"
#include "daemon/engine/verify.h"
#include "ipc/counters.h"

bool unverified_fits(const struct loaded_model *loaded, const struct submit_cell *cell)
{
    /* Only canonical passes carry a recurrent state on. */
    return cell->flags & SUBMIT_FAST && cell->max_tokens > 0 && loaded->limits.states == 0 &&
           loaded->info.fast == BACKEND_FAST_NATIVE;
}

bool unverified_due(const struct slot *slot)
{
    return slot->request->fast && slot->request->first_sample_ns && spec_at_tip(&slot->spec);
}

/* Shares out the pass's rows, one a slot: the batch's slots, in order of their right to pages. */
static void unverified_share(struct batch *batch, struct slots *slots, struct attached *clients,
                             const struct drafter *fast)
{
    const struct plan_limits limits = {.rows = fast->rows, .samples = fast->samples};
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->n_unverified; i++) {
        struct slot *slot = batch->unverified[i];
        if (!gather_admit(slots, clients, slot))
            continue;
        batch->plan[n] =
            (struct plan_slot){.rows = 1, .window = 1, .user = slot->uid, .batch = slot->batch};
        batch->candidates[n++] = slot;
    }
    plan_pass(batch->plan, n, &limits, &batch->fast_turns);
    for (uint32_t i = 0; i < n; i++)
        if (batch->plan[i].take)
            batch_add(batch, batch->candidates[i], batch->plan[i].take);
    batch_sort(batch);
}

void unverified_plan(struct batch *batch, struct slots *slots, struct attached *clients,
                     const struct drafter *fast)
{
    uint32_t n = 0;
    batch_clear(batch);
    if (batch->n_unverified == 0)
        return;
    unverified_share(batch, slots, clients, fast);
    for (uint32_t i = 0; i < batch->n_slots; i++) {
        struct slot *slot = batch->slots[i].slot;
        uint32_t to = slot->spec.accepted;
        if (batch->slots[i].take == 0 ||
            !gather_pages(batch, slots, clients->ctl, slot, to - 1, to))
            continue;
        batch->fast_interactive |= !slot->batch;
        batch->unverified[n++] = slot;
    }
    batch->n_unverified = batch->fast_rows = n;
}

void unverified_rows(struct batch *batch)
{
    for (uint32_t i = 0; i < batch->n_unverified; i++) {
        struct slot *slot = batch->unverified[i];
        uint32_t last = slot->spec.accepted - 1;
        batch_add(batch, slot, 1);
        batch_rows(batch, i, last, last, slot->pages, &slot->request->sampler);
    }
}

void unverified_take(struct slots *slots, struct batch_slot *b, const struct row_result *result,
                     const struct vocab *vocab, struct ctl *ctl)
{
    struct slot *slot = b->slot;
    struct request *request = slot->request;
    uint32_t token = result->sample.token;
    request->passes++;
    if (result->status < 0) {
        request->fast = false; /* canonical passes will find whether the model can go on */
        return;
    }
    spec_take_unverified(&slot->spec, slot->tokens, token);
    slots_worked(slots, slot, 1, request_reached(request, spec_computed(&slot->spec)));
    bool counts = !vocab_is_end(vocab, token);
    request->own += counts;
    request->unverified = true;
    counters_add(ctl, COUNTER_STREAMED_TOKENS, counts);
    b->samples = result;
    b->progress = DOWN_DECODE;
    verify_end(slots, slot, verify_token(vocab, slot, token, false));
}
