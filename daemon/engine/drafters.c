/* What each model that drafts is, and what it knows of a slot. */
#include "daemon/engine/drafters.h"

#include "daemon/engine/client.h"
#include "daemon/policy/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert((int)DRAFTERS == (int)CLIENT_DRAFTERS, "a user has a past with each of them");

int drafters_init(struct drafters *drafters, const struct loaded_model *loaded, uint32_t n_slots)
{
    const struct loaded_model *model = loaded->draft;
    drafters->fast = loaded->info.fast;
    for (int k = 0; k < DRAFTERS; k++) {
        const struct loaded_model *from = k == DRAFTER_MODEL ? model : loaded;
        struct drafter *drafter = &drafters->all[k];
        if (!from || (k == DRAFTER_SELF && loaded->info.fast == BACKEND_FAST_NONE) ||
            (k == DRAFTER_MTP && !loaded->info.mtp))
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
        drafter->slots = calloc(n_slots, sizeof(struct slot *));
        drafter->shares = calloc(n_slots, sizeof(*drafter->shares));
        drafter->lagging = calloc(n_slots, sizeof(struct slot *));
        drafter->samplers = calloc(n_slots, sizeof(*drafter->samplers));
        if (!drafter->slots || !drafter->shares || !drafter->lagging || !drafter->samplers)
            return -ENOMEM;
    }
    return model ? pages_init(&drafters->all[DRAFTER_MODEL].pool, model->limits.pages) : 0;
}

void drafters_fini(struct drafters *drafters)
{
    for (int k = 0; k < DRAFTERS; k++) {
        pages_fini(&drafters->all[k].pool);
        free(drafters->all[k].slots);
        free(drafters->all[k].shares);
        free(drafters->all[k].lagging);
        free(drafters->all[k].samplers);
    }
    *drafters = (struct drafters){0};
}

static struct drafter *find_kind(struct drafters *drafters, enum drafter_kind kind)
{
    return drafters->all[kind].ops ? &drafters->all[kind] : NULL;
}

struct drafter *drafters_find(struct drafters *drafters, const struct slot *slot)
{
    struct drafter *model = find_kind(drafters, DRAFTER_MODEL),
                   *mtp = find_kind(drafters, DRAFTER_MTP);
    switch (slot->proposer.kind) {
    case PROPOSER_DRAFT:
        return model;
    case PROPOSER_MTP:
        return mtp;
    case PROPOSER_SHADOW:
    case PROPOSER_FAST:
        return find_kind(drafters, DRAFTER_SELF);
    case PROPOSER_AUTO:
        return model ? model : mtp ? mtp : find_kind(drafters, DRAFTER_SELF);
    default:
        return NULL;
    }
}

int drafters_check(const struct drafters *drafters, enum submit_proposer proposer, char *line,
                   size_t line_bytes)
{
    const char *missing = NULL;
    if (proposer == PROPOSER_DRAFT && !drafters->all[DRAFTER_MODEL].ops)
        missing = "proposer draft: this daemon has no draft model, start it with --draft FILE";
    else if (proposer == PROPOSER_SHADOW && drafters->fast != BACKEND_FAST_SHADOW)
        missing = "proposer shadow: this daemon has no shadow, start it with --shadow yes";
    else if (proposer == PROPOSER_FAST && drafters->fast != BACKEND_FAST_NATIVE)
        missing = "proposer fast: this daemon's device has no fast pass";
    else if (proposer == PROPOSER_MTP && !drafters->all[DRAFTER_MTP].ops)
        missing = "proposer mtp: this daemon's model has no next-token layer";
    if (!missing)
        return 0;
    snprintf(line, line_bytes, "%s; or ask for auto", missing);
    return -ENOTSUP;
}

void drafters_begin(struct drafters *drafters, struct slot *slot, uint32_t common)
{
    const struct drafter *drafter = drafters_find(drafters, slot);
    slot->goal = 0;
    draft_kv_keep(&slot->draft_kv, common);
    draft_kv_keep(&slot->draft_kv, slot->spec.accepted - 1);
    if (drafter)
        slot->proposer.by_model.acceptance =
            window_past_acceptance(&slot->client->user->drafts[drafter->kind]);
}

uint32_t drafters_lag(const struct drafter *drafter, const struct slot *slot)
{
    if (drafter_is_own(drafter))
        return 0;
    return slot->spec.accepted - 1 - slot->draft_kv.computed;
}

void drafters_measured(struct drafter *drafter, uint32_t n_slots, uint32_t n_rows, uint64_t took_ns)
{
    window_measured(&drafter->window.cost, n_slots, n_rows, took_ns);
    if (n_rows >= PLAN_CHUNK_MIN)
        drafter->row_ns = curve_smooth(drafter->row_ns, took_ns / n_rows + 1);
}

void drafters_verified(struct drafters *drafters, struct slot *slot, uint32_t window,
                       uint32_t accepted)
{
    struct drafter *drafter = slot->goal > 0 ? drafters_find(drafters, slot) : NULL;
    if (window > 0 && drafter) {
        window_verified(&slot->proposer.by_model, window, accepted);
        window_past_verified(&slot->client->user->drafts[drafter->kind], window, accepted);
    } else if (window > 0) {
        window_verified(&slot->proposer.window, window, accepted);
    }
    slot->goal = 0;
    draft_kv_keep(&slot->draft_kv, slot->spec.accepted - 1); /* the last one is the verifier's */
}

void drafters_forget(struct drafters *drafters, struct slot *slot)
{
    draft_kv_clear(&slot->draft_kv, &drafters->all[DRAFTER_MODEL].pool);
}
