/* The rows of one pass, slot after slot. */
#include "daemon/engine/batch.h"

#include "daemon/engine/request.h"

#include <errno.h>
#include <stdlib.h>

int batch_init(struct batch *batch, uint32_t n_slots, const struct backend_limits *limits)
{
    batch->most_rows = limits->rows;
    batch->most_samples = limits->samples;
    batch->verified = calloc(n_slots, sizeof(struct slot *));
    batch->unverified = calloc(n_slots, sizeof(struct slot *));
    batch->plan = calloc(n_slots, sizeof(*batch->plan));
    batch->candidates = calloc(n_slots, sizeof(struct slot *));
    batch->slots = calloc(n_slots, sizeof(*batch->slots));
    batch->sequences = calloc(n_slots, sizeof(*batch->sequences));
    batch->rows = calloc(limits->rows, sizeof(*batch->rows));
    batch->results = calloc(limits->rows, sizeof(*batch->results));
    return batch->verified && batch->unverified && batch->plan && batch->candidates &&
                   batch->slots && batch->sequences && batch->rows && batch->results
               ? 0
               : -ENOMEM;
}

void batch_fini(struct batch *batch)
{
    free(batch->verified);
    free(batch->unverified);
    free(batch->plan);
    free(batch->candidates);
    free(batch->slots);
    free(batch->sequences);
    free(batch->rows);
    free(batch->results);
    *batch = (struct batch){0};
}

void batch_add(struct batch *batch, struct slot *slot, uint32_t take)
{
    batch->slots[batch->n_slots++] =
        (struct batch_slot){.slot = slot, .take = take, .from = slot->spec.accepted};
}

static bool precedes(const struct slot *x, const struct slot *y)
{
    return x->batch != y->batch ? y->batch : slot_precedes(x, y);
}

/* By insertion: qsort may allocate. */
void batch_sort(struct batch *batch)
{
    for (uint32_t i = 1; i < batch->n_slots; i++) {
        struct batch_slot moved = batch->slots[i];
        uint32_t k = i;
        for (; k > 0 && precedes(moved.slot, batch->slots[k - 1].slot); k--)
            batch->slots[k] = batch->slots[k - 1];
        batch->slots[k] = moved;
    }
}

void batch_drop(struct batch *batch, const struct slot *slot)
{
    for (uint32_t i = 0; i < batch->n_slots; i++)
        if (batch->slots[i].slot == slot)
            batch->slots[i].take = 0;
}

void batch_rows(struct batch *batch, uint32_t i, uint32_t from, uint32_t sampled,
                const uint32_t *pages, const struct sampler_params *sampler)
{
    struct batch_slot *b = &batch->slots[i];
    const struct slot *slot = b->slot;
    const struct request *request = slot->request;
    batch->sequences[i] = (struct pass_sequence){
        .pages = pages,
        .window_pages = slot->windows, /* the draft model has none, and does not look */
        .tokens = slot->tokens,
        .prompt_length = request->prompt_length,
        .sampler = sampler,
    };
    b->row = batch->n_rows;
    for (uint32_t position = from; position < from + b->take; position++) {
        bool samples = position >= sampled;
        bool masked = samples && request->constrained;
        batch->rows[batch->n_rows++] = (struct row){
            .sequence = i,
            .position = position,
            .token = slot->tokens[position],
            .wants = samples ? ROW_SAMPLE : 0,
            .allowed = masked ? request->masks[position + 1 - slot->spec.accepted] : NULL,
        };
    }
}

int batch_run(struct batch *batch, const struct backend_ops *ops, struct backend *backend,
              enum pass_kind kind)
{
    struct pass pass = {
        .kind = kind,
        .rows = batch->rows,
        .n_rows = batch->n_rows,
        .sequences = batch->sequences,
        .n_sequences = batch->n_slots,
        .results = batch->results,
    };
    int rc = ops->start(backend, &pass);
    return rc < 0 ? rc : ops->finish(backend);
}
