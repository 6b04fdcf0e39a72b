/*
 * drafters: the models that draft: a draft model beside the model, the model's own next-token layer,
 * and its own fast pass.
 * Which slot they draft for, and what each of them has learnt.
 *
 * Engine thread. Drafts from text are the proposer's (daemon/policy/proposer.h). Whatever drafts, and
 * however well, the answer is the same.
 */
#ifndef HEARTH_DAEMON_ENGINE_DRAFTERS_H
#define HEARTH_DAEMON_ENGINE_DRAFTERS_H

#include "daemon/cache/slot.h"
#include "daemon/model/loaded_model.h"

/* A pass of a drafter gives one draft to each slot that takes part. */
enum drafter_kind {
    DRAFTER_MODEL, /* the draft model: a backend instance of its own */
    DRAFTER_MTP,   /* the model's own next-token layer, into the slots' own pages and records */
    DRAFTER_SELF,  /* the model's own fast pass, into these, too; the last in a step */
    DRAFTERS
};

struct drafter {
    const struct backend_ops *ops; /* NULL: the daemon has no such drafter */
    struct backend *backend;
    enum drafter_kind kind;
    uint32_t rows, samples, context; /* limits of its passes */
    struct pages pool;               /* DRAFTER_MODEL: its KV pages */
    uint64_t row_ns;                 /* smoothed cost of one row in a large pass */
    uint64_t turn;                   /* the last one at catching up */
    uint32_t held;                   /* steps in a row in which prompts went before that */
    struct window_drafter window;

    /* of a step */
    struct slot **slots;         /* [n_shares] slots that could begin a window of its drafts */
    struct window_share *shares; /* [n_shares] */
    struct slot **lagging;       /* [n_lagging] slots whose text it is to catch up with */
    uint32_t n_shares, n_lagging;
    struct sampler_params *samplers; /* [n slots] of its pass */
};

struct drafters {
    struct drafter all[DRAFTERS];
    enum backend_fast fast; /* what the device's fast pass is */
};

/* Are its KV and its records the slots' own? */
static inline bool drafter_is_own(const struct drafter *drafter)
{
    return drafter->kind != DRAFTER_MODEL;
}

/* From what the daemon has loaded. Returns 0 or -ENOMEM; call drafters_fini in either case. */
int drafters_init(struct drafters *drafters, const struct loaded_model *loaded, uint32_t n_slots);
void drafters_fini(struct drafters *drafters);

/* Says in `line` why a request cannot have this proposer: -ENOTSUP, else 0. */
int drafters_check(const struct drafters *drafters, enum submit_proposer proposer, char *line,
                   size_t line_bytes);

/* The model that drafts for the slot's request, NULL when there is none. */
struct drafter *drafters_find(struct drafters *drafters, const struct slot *slot);

/* A request begins on the slot, the first `common` tokens as before. Its proposer was set. */
void drafters_begin(struct drafters *drafters, struct slot *slot, uint32_t common);

/* Does the slot have as many drafts as it was granted? Otherwise it goes into a canonical pass only
 * beside one that has. */
static inline bool drafters_due(const struct slot *slot)
{
    return slot->spec.drafted >= slot->goal;
}

/* Rows that the draft model has to compute before its first draft here, besides that one's. */
uint32_t drafters_lag(const struct drafter *drafter, const struct slot *slot);

/* A pass of it took so long. */
void drafters_measured(struct drafter *drafter, uint32_t n_slots, uint32_t n_rows,
                       uint64_t took_ns);

/* `window` drafts were verified, the first `accepted` are accepted. For every pass that samples. */
void drafters_verified(struct drafters *drafters, struct slot *slot, uint32_t window,
                       uint32_t accepted);

/* Drops the draft model's KV of the slot, whose tokens are forgotten. */
void drafters_forget(struct drafters *drafters, struct slot *slot);

#endif
