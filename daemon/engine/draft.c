/*
 * Which slots draft, and how much: from text at once, by models over several steps. Slots whose
 * windows a model fills go on together, and no other slot waits for them: a canonical pass that is
 * due for any slot takes along what they have.
 */
#include "daemon/engine/draft.h"

#include "daemon/engine/answer.h"
#include "daemon/engine/draft_pass.h"
#include "daemon/engine/request.h"
#include "daemon/engine/state.h"
#include "daemon/policy/fault.h"

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
        if (!constrain_draft(slot, drafts[i]))
            break; /* it would be rejected, and what follows it */
        spec_draft(spec, slot->tokens, drafts[i]);
        slot->request->drafted++;
    }
}

/* Can the drafter begin a window here? Where the draft model has more to catch up with than a
 * drafting pass takes along, it does so first, if that pays. */
static bool draft_ready(struct engine *engine, struct slot *slot, const struct drafter *drafter)
{
    const struct spec *spec = &slot->spec;
    struct drafters *drafters = &engine->drafters;
    uint32_t lag = drafters_lag(drafter, slot);

    if (slot->request->no_drafts || spec->accepted > drafter->context)
        return false;
    if (lag <= LAG_MAX)
        return true;
    if (slot->proposer.kind != PROPOSER_AUTO ||
        window_lag_pays(&engine->cost.decode, &drafter->window, slot->proposer.by_model.acceptance,
                        lag, slot->request->limit - spec->accepted))
        drafters->lagging[drafters->n_lagging++] = slot;
    return false;
}

/* Looks at one slot, drafts from text, or makes it a candidate for a model's drafts. A slot that is
 * not in the middle of a window, nor a candidate, gets a token by itself in this step. */
static void draft_look(struct engine *engine, struct slot *slot, uint32_t room)
{
    const struct spec *spec = &slot->spec;
    struct drafters *drafters = &engine->drafters;
    const struct drafter *drafter;

    if (slot->goal > 0 || spec->drafted > 0) {
        drafters->others += drafters_due(slot);
        return;
    }
    drafters->others++;
    if (spec_rows(spec) != 1 || !slot->request->first_sample_ns)
        return;
    uint32_t most = draft_limit(engine, slot, room);
    draft_text(engine, slot, most);
    drafter = drafters_find(drafters, slot);
    if (!drafter || spec->drafted > 0 || !draft_ready(engine, slot, drafter))
        return;
    if (most > drafter->context + 1 - spec->accepted)
        most = drafter->context + 1 - spec->accepted;
    if (most == 0)
        return;
    drafters->others--;
    drafters->mosts[drafters->n_candidates] = most;
    drafters->candidates[drafters->n_candidates++] = slot;
}

/* Shares out windows among the candidates that begin one with this drafter. */
static void draft_share(struct engine *engine, struct drafter *drafter)
{
    struct drafters *drafters = &engine->drafters;
    struct window_share *shares = drafters->shares;
    uint32_t n = drafters->n_candidates, n_shares = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct slot *slot = drafters->candidates[i];
        if (drafters_find(drafters, slot) == drafter)
            shares[n_shares++] = (struct window_share){
                .acceptance = slot->proposer.by_model.acceptance,
                .most = drafters->mosts[i],
                .always = slot->proposer.kind != PROPOSER_AUTO,
            };
    }
    window_share(shares, n_shares, drafters->others + n - n_shares, &engine->cost.decode,
                 &drafter->window);
    for (uint32_t i = 0, k = 0; i < n; i++)
        if (drafters_find(drafters, drafters->candidates[i]) == drafter)
            drafters->candidates[i]->goal = shares[k++].drafts;
}

int draft_step(struct engine *engine, const char **ret_error)
{
    struct batch *batch = &engine->batch;
    struct drafters *drafters = &engine->drafters;
    int rows = 0;

    drafters->n_candidates = drafters->others = drafters->n_lagging = 0;
    for (uint32_t i = 0; i < batch->n_verified; i++) {
        int room = event_room(client_events(batch->verified[i]));
        if (room >= 0 && (uint32_t)room >= answer_room_needed(batch->verified[i]))
            draft_look(engine, batch->verified[i], (uint32_t)room);
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
