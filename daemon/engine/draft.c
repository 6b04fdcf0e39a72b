/*
 * Who drafts for which slot, and how much: text proposers on the spot, models over several steps.
 * Slots whose windows a model fills go on together, and nobody else waits for them: a canonical
 * pass that is due for anybody takes along what they have.
 */
#include "daemon/engine/engine_impl.h"

#include "daemon/policy/fault.h"

#include <stdio.h>

enum { LAG_MAX = 8 }; /* rows that the draft model may catch up with in the pass that drafts */

static struct drafter *draft_there(struct engine *engine, enum drafter_kind kind)
{
    return engine->drafters[kind].ops ? &engine->drafters[kind] : NULL;
}

struct drafter *draft_source(struct engine *engine, const struct slot *slot)
{
    switch (slot->proposer.kind) {
    case PROPOSER_DRAFT:
        return draft_there(engine, DRAFTER_MODEL);
    case PROPOSER_SHADOW:
    case PROPOSER_FAST:
        return draft_there(engine, DRAFTER_SELF);
    case PROPOSER_AUTO:
        return draft_there(engine, DRAFTER_MODEL) ? draft_there(engine, DRAFTER_MODEL)
                                                  : draft_there(engine, DRAFTER_SELF);
    default:
        return NULL;
    }
}

int draft_check(const struct engine *engine, enum submit_proposer proposer, char *line,
                size_t line_bytes)
{
    enum backend_fast fast = engine->options.loaded->info.fast;
    const char *missing = NULL;

    if (proposer == PROPOSER_DRAFT && !engine->drafters[DRAFTER_MODEL].ops)
        missing = "proposer draft: this daemon has no draft model, start it with --draft FILE";
    else if (proposer == PROPOSER_SHADOW && fast != BACKEND_FAST_SHADOW)
        missing = "proposer shadow: this daemon has no shadow, start it with --shadow yes";
    else if (proposer == PROPOSER_FAST && fast != BACKEND_FAST_NATIVE)
        missing = "proposer fast: this daemon's device has no fast pass";
    if (!missing)
        return 0;
    snprintf(line, line_bytes, "%s; or ask for auto", missing);
    return -ENOTSUP;
}

void draft_begin(struct engine *engine, struct slot *slot, uint32_t common)
{
    const struct drafter *drafter = draft_source(engine, slot);

    slot->goal = 0;
    slot->no_drafts = slot->lags = false;
    draft_kv_keep(&slot->draft_kv, common);
    draft_kv_keep(&slot->draft_kv, slot->spec.accepted - 1);
    if (drafter)
        slot->proposer.by_model.acceptance = drafter->window.acceptance;
}

bool draft_due(const struct slot *slot)
{
    return slot->spec.drafted >= slot->goal;
}

void draft_verified(struct engine *engine, struct slot *slot, uint32_t window, uint32_t held)
{
    struct drafter *drafter = slot->goal > 0 ? draft_source(engine, slot) : NULL;

    if (window > 0 && drafter) {
        window_verified(&slot->proposer.by_model, window, held);
        window_drafter_verified(&drafter->window, window, held);
    } else if (window > 0) {
        window_verified(&slot->proposer.window, window, held);
    }
    slot->goal = 0;
    draft_kv_keep(&slot->draft_kv, slot->spec.accepted - 1); /* the last one is the verifier's */
}

void draft_forget(struct engine *engine, struct slot *slot)
{
    draft_kv_clear(&slot->draft_kv, &engine->drafters[DRAFTER_MODEL].pool);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* How many drafts the slot may have: not beyond the end of its answer, nor of its reader's room,
 * nor so many that the windows of all do not fit the samples of one pass. */
static uint32_t draft_limit(const struct engine *engine, const struct slot *slot, uint32_t room)
{
    const struct request *request = slot->request;
    uint32_t most =
        request->limit - slot->spec.accepted; /* the last token needs no draft before it */
    uint32_t decoding = engine->n_active - engine->n_paused - engine->n_streams;
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
    most =
        window_choose(&proposer->window, &engine->cost.decode, engine->n_active - engine->n_paused,
                      most, proposer->kind != PROPOSER_AUTO);
    uint32_t n = most ? proposer_draft(proposer, slot->tokens, spec->accepted, most, drafts) : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (fault_hits(FAULT_DRAFT_MISMATCH))
            drafts[i] = (drafts[i] + 1) % engine->n_vocab;
        if (!constrain_draft(slot, drafts[i]))
            break; /* it cannot hold, nor what follows it */
        spec_draft(spec, slot->tokens, drafts[i]);
        slot->request->drafted++;
    }
}

/* Can the drafter begin a window here? Where the draft model is behind, it is asked to catch up if
 * that pays. */
static bool draft_ready(struct engine *engine, struct slot *slot, const struct drafter *drafter)
{
    const struct spec *spec = &slot->spec;
    uint32_t lag = draft_lag(drafter, slot);

    if (slot->no_drafts || spec->accepted > drafter->context)
        return false;
    if (lag <= LAG_MAX)
        return true;
    slot->lags =
        slot->proposer.kind != PROPOSER_AUTO ||
        window_lag_pays(&engine->cost.decode, &drafter->window, slot->proposer.by_model.acceptance,
                        lag, slot->request->limit - spec->accepted);
    return false;
}

/* Looks at one active slot. Returns false when it gets a token by itself in this step's canonical
 * pass; true when it is in the middle of a window, or could begin one: then with *ret_most > 0. */
static bool draft_look(struct engine *engine, struct slot *slot, uint32_t room, uint32_t *ret_most)
{
    const struct spec *spec = &slot->spec;
    const struct drafter *drafter;

    *ret_most = 0;
    if (slot->goal > 0 || spec->drafted > 0)
        return !draft_due(slot);
    if (spec_rows(spec) != 1 || !slot->request->first_sample_ns)
        return false;
    uint32_t most = draft_limit(engine, slot, room);
    draft_text(engine, slot, most);
    drafter = draft_source(engine, slot);
    if (!drafter || spec->drafted > 0 || !draft_ready(engine, slot, drafter))
        return false;
    if (most > drafter->context + 1 - spec->accepted)
        most = drafter->context + 1 - spec->accepted;
    *ret_most = most;
    return most > 0;
}

/* Shares out windows among the slots that begin one with this drafter: candidates [0, n). */
static void draft_share(struct engine *engine, struct drafter *drafter, uint32_t n,
                        const uint32_t *most, uint32_t others)
{
    struct window_share *shares = engine->shares;
    uint32_t n_shares = 0;

    for (uint32_t i = 0; i < n; i++)
        if (draft_source(engine, engine->candidates[i]) == drafter)
            shares[n_shares++] = (struct window_share){
                .acceptance = engine->candidates[i]->proposer.by_model.acceptance,
                .most = most[i],
                .always = engine->candidates[i]->proposer.kind != PROPOSER_AUTO,
            };
    window_share(shares, n_shares, others + n - n_shares, &engine->cost.decode, &drafter->window);
    for (uint32_t i = 0, k = 0; i < n; i++)
        if (draft_source(engine, engine->candidates[i]) == drafter)
            engine->candidates[i]->goal = shares[k++].drafts;
}

/* Is there a slot whose prompt is not computed yet? It goes before any catching up. */
static bool draft_prefills(const struct engine *engine)
{
    for (uint32_t i = 0; i < engine->options.n_slots; i++)
        if (engine->slots[i].active && !engine->slots[i].request->first_sample_ns)
            return true;
    return false;
}

int draft_step(struct engine *engine, const char **ret_error)
{
    uint32_t n = 0, others = 0;
    bool catches_up = !draft_prefills(engine);
    int rows = 0;

    stream_begin(engine);
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        int room = slot->active ? event_room(engine_events(slot)) : -1;
        uint32_t most;
        slot->lags = false; /* said anew in every step: only who could draft now catches up */
        if (room < 0 || (uint32_t)room < answer_room_needed(slot) || slot->masking)
            continue; /* paused, or about to be closed, or without a mask: gather.c sees to it */
        if (slot->streams)
            continue;
        if (!draft_look(engine, slot, (uint32_t)room, &most)) {
            others++;
        } else if (most > 0) {
            engine->mosts[n] = most;
            engine->candidates[n++] = slot;
        }
    }
    for (int k = 0; k < DRAFTERS; k++) {
        struct drafter *drafter = &engine->drafters[k];
        if (!drafter->ops)
            continue;
        draft_share(engine, drafter, n, engine->mosts, others);
        int rc = draft_pass(engine, drafter, catches_up);
        if (rc < 0) {
            *ret_error = drafter->ops->error(drafter->backend);
            return rc;
        }
        rows += rc;
    }
    return rows;
}
