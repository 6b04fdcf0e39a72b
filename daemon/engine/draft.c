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
#include "daemon/engine/gather.h"
#include "daemon/engine/request.h"
#include "daemon/engine/unverified.h"
#include "daemon/policy/fault.h"

#include <stdlib.h>

_Static_assert(WINDOW_MAX + 1 <= (int)SPEC_RECORDS_MAX, "a window's rows leave records");

enum {
    LAG_MAX = 8,  /* rows that the draft model may catch up with in the pass that drafts */
    LAG_TURN = 8, /* steps beside prompts, of which one catches up */
};

/* The most drafts that the slot may have. They end with its answer, fit its event ring, and leave
 * every decoding slot its share of the samples of one pass, and the other class its rows and
 * samples. */
static uint32_t draft_limit(const struct batch *batch, const struct slot *slot, uint32_t room)
{
    const struct request *request = slot->request;
    uint32_t most =
        request->limit - slot->spec.accepted; /* the last token needs no draft before it */
    uint32_t samples = batch->most_samples / (batch->n_decoding ? batch->n_decoding : 1);
    uint32_t least =
        batch->most_rows < batch->most_samples ? batch->most_rows : batch->most_samples;
    uint32_t widest = plan_widest(least, slot->batch);
    if (samples > widest)
        samples = widest;
    most = most > 0 ? most - 1 : 0;
    if (most > WINDOW_MAX)
        most = WINDOW_MAX;
    if (most + 1 > samples)
        most = samples > 0 ? samples - 1 : 0;
    while (most > 0 && answer_room(request, most + 1) > room)
        most--;
    return most;
}

/* What is drafted; test builds spoil it. */
static uint32_t draft_token(uint32_t token)
{
    if (!fault_hits(FAULT_DRAFT_MISMATCH))
        return token;
    return token > 0 ? token - 1 : 1;
}

/* Drafts from text: all at once. `running`: slots that decode. */
static void draft_text(struct slot *slot, const struct cost *cost, uint32_t running, uint32_t most,
                       const struct vocab *vocab)
{
    struct spec *spec = &slot->spec;
    struct proposer *proposer = &slot->proposer;
    uint32_t drafts[WINDOW_MAX];
    if (!proposer_active(proposer))
        return;
    most = window_choose(&proposer->window, &cost->decode, running, most,
                         proposer->kind != PROPOSER_AUTO);
    uint32_t n = most ? proposer_draft(proposer, slot->tokens, spec->accepted, most, drafts) : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t token = draft_token(drafts[i]);
        if (!constrain_draft(vocab, slot, token))
            break; /* it would be rejected, and what follows it */
        spec_draft(spec, slot->tokens, token);
        slot->request->drafted++;
    }
}

/* Does drafting pay although the draft model first has to catch up with `lag` rows, more than a
 * drafting pass takes along? */
static bool draft_lag_pays(const struct cost *cost, const struct slot *slot,
                           const struct drafter *drafter, uint32_t lag)
{
    return slot->proposer.kind != PROPOSER_AUTO ||
           window_lag_pays(&cost->decode, &drafter->window, slot->proposer.by_model.acceptance, lag,
                           slot->request->limit - slot->spec.accepted);
}

/* How many drafts have room for their records: the model's own passes write them after the records
 * of what was accepted since the last canonical pass. */
static uint32_t draft_records(const struct prefix *prefix, const struct slot *slot,
                              const struct drafter *drafter)
{
    if (!drafter_is_own(drafter) || !prefix->states)
        return WINDOW_MAX;
    if (slot_from(slot, prefix) != (int32_t)slot->own)
        return 0; /* it goes on from elsewhere */
    return SPEC_RECORDS_MAX - spec_apply(&slot->spec, slot->spec.canonical);
}

/* Lists the slot among those that begin a window when windows are shared out, or first among those
 * that the draft model catches up with. */
static void draft_join(struct drafter *drafter, struct slot *slot, uint32_t most,
                       const struct cost *cost, const struct prefix *prefix)
{
    uint32_t accepted = slot->spec.accepted, lag = drafters_lag(drafter, slot);
    if (slot->request->no_drafts || accepted > drafter->context)
        return;
    if (lag > LAG_MAX) {
        if (draft_lag_pays(cost, slot, drafter, lag))
            drafter->lagging[drafter->n_lagging++] = slot;
        return;
    }
    if (most > drafter->context + 1 - accepted)
        most = drafter->context + 1 - accepted;
    if (most > draft_records(prefix, slot, drafter))
        most = draft_records(prefix, slot, drafter);
    if (most == 0)
        return;
    drafter->slots[drafter->n_shares] = slot;
    drafter->shares[drafter->n_shares++] = (struct window_share){
        .acceptance = slot->proposer.by_model.acceptance,
        .most = most,
        .always = slot->proposer.kind != PROPOSER_AUTO,
    };
}

/* Drafts for one slot from text, or lets it join those that a model drafts for. `most`: drafts. */
static void draft_slot(struct slot *slot, struct drafters *drafters, uint32_t most,
                       const struct slots *slots, const struct cost *cost,
                       const struct vocab *vocab)
{
    struct drafter *drafter = drafters_find(drafters, slot);
    if (spec_rows(&slot->spec) != 1 || !slot->request->first_sample_ns)
        return;
    draft_text(slot, cost, slots_running(slots), most, vocab);
    if (drafter && slot->spec.drafted == 0)
        draft_join(drafter, slot, most, cost, &slots->kv.prefix);
}

/* Shares out windows among the slots that begin one with this drafter, of `n_next` that go on. */
static void draft_share(struct drafter *drafter, uint32_t n_next, const struct cost *cost)
{
    uint32_t n = drafter->n_shares;
    window_share(drafter->shares, n, n_next - n, &cost->decode, &drafter->window);
    for (uint32_t i = 0; i < n; i++)
        drafter->slots[i]->goal = drafter->shares[i].drafts;
}

void draft_choose(const struct batch *batch, const struct slots *slots, struct drafters *drafters,
                  const struct cost *cost, const struct vocab *vocab)
{
    uint32_t n_next = 0; /* slots that begin a window, or get a token by themselves */
    for (int k = 0; k < DRAFTERS; k++)
        drafters->all[k].n_shares = drafters->all[k].n_lagging = 0;
    for (uint32_t i = 0; i < batch->n_verified; i++) {
        struct slot *slot = batch->verified[i];
        int room = event_room(client_events(slot));
        if (room < 0 || (uint32_t)room < answer_room_needed(slot))
            continue;
        n_next += drafters_due(slot);
        if (slot->goal == 0 && slot->spec.drafted == 0) /* else in the middle of a window */
            draft_slot(slot, drafters, draft_limit(batch, slot, (uint32_t)room), slots, cost,
                       vocab);
    }
    for (int k = 0; k < DRAFTERS; k++)
        draft_share(&drafters->all[k], n_next, cost);
}

/* ---- what a pass computes -------------------------------------------------------------------- */

/* An idle slot, or one that stands still, loses what the draft model knows of it. */
static bool draft_evict(struct slots *slots, struct drafter *drafter, const struct slot *needy)
{
    struct slot *victim = slot_draft_victim(slots->all, slots->n, &slots->kv.prefix, needy);
    if (victim)
        draft_kv_clear(&victim->draft_kv, &drafter->pool);
    return victim != NULL;
}

/* Pages for the drafter's rows. No request that goes on gives up pages for drafts: without free ones
 * there are no drafts. */
static bool draft_reserve(struct slots *slots, struct drafter *drafter, struct slot *slot,
                          uint32_t n_positions, struct ctl *ctl)
{
    if (drafter_is_own(drafter))
        return gather_reserve(slots, ctl, slot, slot->spec.canonical, n_positions);
    while (!draft_kv_reserve(&slot->draft_kv, &drafter->pool, n_positions))
        if (!draft_evict(slots, drafter, slot))
            return false;
    return true;
}

/* The rows of the slot that was added last: from position `from` on; the one at `sampled` gives a
 * draft. */
static void draft_rows(struct batch *batch, struct drafter *drafter, const struct prefix *prefix,
                       uint32_t from, uint32_t sampled)
{
    uint32_t i = batch->n_slots - 1;
    struct slot *slot = batch->slots[i].slot;
    bool own = drafter_is_own(drafter);
    drafter->samplers[i] = slot->request->sampler;
    drafter->samplers[i].logprobs = false;
    slot->draft_kv.in_pass = !own;
    batch_rows(batch, i, from, sampled, own ? slot->pages : slot->draft_kv.pages,
               &drafter->samplers[i]);
    if (own && prefix->states)
        batch->sequences[i].state = (struct pass_state){.from = (int32_t)slot->own,
                                                        .own = (int32_t)slot->own,
                                                        .replay = spec_apply(&slot->spec, from)};
}

/* Slots below their goal. One that finds no room in the pass is verified with what it has. */
static void draft_plan_windows(struct batch *batch, struct slots *slots, struct drafters *drafters,
                               struct drafter *drafter, struct constrain *constrain,
                               struct ctl *ctl)
{
    for (uint32_t i = 0; i < batch->n_verified; i++) {
        struct slot *slot = batch->verified[i];
        if (!slot_runs(slot) || drafters_due(slot) || drafters_find(drafters, slot) != drafter)
            continue;
        uint32_t to = slot->spec.accepted + slot->spec.drafted;
        uint32_t from = drafter_is_own(drafter) ? to - 1 : slot->draft_kv.computed;
        if (batch->n_slots < drafter->samples && batch->n_rows + to - from <= drafter->rows &&
            constrain_mask(constrain, slot, slot->spec.drafted) &&
            draft_reserve(slots, drafter, slot, to, ctl)) {
            batch_add(batch, slot, to - from);
            draft_rows(batch, drafter, &slots->kv.prefix, from, to - 1);
        } else {
            slot->goal = slot->spec.drafted;
        }
    }
}

/* Rows of one pass that catches up, by what they cost lately: slots that decode wait for them half a
 * pass, as for a prefill (plan_budget). */
static uint32_t draft_chunk(const struct cost *cost, const struct drafter *drafter)
{
    uint64_t wait_ns = (uint64_t)cost->decode.pass_ns / 2;
    uint64_t rows = drafter->row_ns ? wait_ns / drafter->row_ns : 2 * PLAN_CHUNK_MIN;
    if (rows < PLAN_CHUNK_MIN)
        rows = PLAN_CHUNK_MIN;
    return rows < drafter->rows ? (uint32_t)rows : drafter->rows;
}

/* Users take turns at catching up, and then each user's slots. */
static int compare_turns(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a, *y = *(struct slot *const *)b;
    const uint64_t *u = &x->client->user->caught_up, *v = &y->client->user->caught_up;
    if (u == v) {
        u = &x->request->caught_up;
        v = &y->request->caught_up;
    }
    return *u != *v ? (*u > *v) - (*u < *v) : (x > y) - (x < y);
}

/* Slots whose text the draft model has not seen: a chunk, shared in the order of their turns. */
static void draft_plan_lag(struct batch *batch, struct slots *slots, struct drafter *drafter,
                           uint32_t most, struct ctl *ctl)
{
    qsort(drafter->lagging, drafter->n_lagging, sizeof(struct slot *), compare_turns);
    for (uint32_t i = 0; i < drafter->n_lagging && batch->n_rows < most; i++) {
        struct slot *slot = drafter->lagging[i];
        uint32_t from = slot->draft_kv.computed, to = slot->spec.accepted - 1;
        if (to - from > most - batch->n_rows)
            to = from + most - batch->n_rows;
        if (from < to && draft_reserve(slots, drafter, slot, to, ctl)) {
            batch_add(batch, slot, to - from);
            draft_rows(batch, drafter, &slots->kv.prefix, from, to);
            slot->request->caught_up = slot->client->user->caught_up = ++drafter->turn;
        }
    }
}

/* May this step catch up? Prompts go first, but they may never end: another user's text would not be
 * seen, and have no drafts, for as long as they come. */
static bool draft_catches_up(const struct batch *batch, struct drafter *drafter)
{
    if (batch->prefills && drafter->n_lagging > 0 && ++drafter->held < LAG_TURN)
        return false;
    drafter->held = 0;
    return true;
}

uint32_t draft_plan(struct batch *batch, struct slots *slots, struct drafters *drafters,
                    struct drafter *drafter, struct constrain *constrain, const struct cost *cost,
                    struct ctl *ctl)
{
    batch_clear(batch);
    for (uint32_t i = 0; i < slots->n; i++)
        slots->all[i].draft_kv.in_pass = false;
    if (drafter->kind == DRAFTER_SELF)
        unverified_rows(batch);
    draft_plan_windows(batch, slots, drafters, drafter, constrain, ctl);
    if (draft_catches_up(batch, drafter))
        draft_plan_lag(batch, slots, drafter, draft_chunk(cost, drafter), ctl);
    return batch->n_rows;
}

/* ---- what comes out -------------------------------------------------------------------------- */

/* Takes the result of the slot's last row. */
static void take_draft(const struct batch *batch, const struct batch_slot *b,
                       const struct drafter *drafter, const struct loaded_model *loaded)
{
    struct slot *slot = b->slot;
    const struct row_result *last = &batch->results[b->row + b->take - 1];
    bool sampled = batch->rows[b->row + b->take - 1].wants & ROW_SAMPLE;
    if (last->status < 0 || (sampled && last->sample.token >= loaded->model->n_vocab)) {
        slot->request->no_drafts = true; /* a value is not finite: this request gets no more */
        slot->goal = slot->spec.drafted;
        return;
    }
    if (drafter->kind == DRAFTER_MODEL)
        slot->draft_kv.computed += b->take;
    if (!sampled)
        return;
    uint32_t token = draft_token(last->sample.token);
    if (!constrain_draft(&loaded->vocab, slot,
                         token)) { /* an end, too: the verifier finds it as early */
        slot->goal = slot->spec.drafted;
        draft_kv_keep(&slot->draft_kv, slot->spec.accepted + slot->spec.drafted - 1);
        return;
    }
    spec_draft(&slot->spec, slot->tokens, token);
    slot->request->drafted++;
    if (vocab_is_end(&loaded->vocab, token)) /* nothing follows if it is accepted */
        slot->goal = slot->spec.drafted;
}

void draft_take(struct batch *batch, struct slots *slots, const struct drafter *drafter,
                const struct loaded_model *loaded, struct ctl *ctl)
{
    uint32_t n_unverified = drafter->kind == DRAFTER_SELF ? batch->n_unverified : 0;
    for (uint32_t i = 0; i < batch->n_slots; i++) {
        struct batch_slot *b = &batch->slots[i];
        if (i < n_unverified)
            slots_set(slots, b->slot, SLOT_READY);
        if (request_void(b->slot)) /* nothing is taken for it */
            request_end(slots, b->slot, DONE_CANCELLED, 0, "");
        else if (i < n_unverified)
            unverified_take(slots, b, &batch->results[b->row], &loaded->vocab, ctl);
        else
            take_draft(batch, b, drafter, loaded);
    }
}
