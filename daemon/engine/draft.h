/* draft: the stage that drafts: from text at once; a model makes one draft for each slot in a step, in
 * a pass of its own, which also has the rows of unverified slots where it is the model's own. */
#ifndef HEARTH_DAEMON_ENGINE_DRAFT_H
#define HEARTH_DAEMON_ENGINE_DRAFT_H

#include "daemon/engine/batch.h"
#include "daemon/engine/constrain.h"
#include "daemon/engine/drafters.h"
#include "daemon/policy/cost.h"

/* Drafts from text for the slots that are about to decode, or lets them begin a window of a model's.
 * The first token of an answer never waits for drafts. */
void draft_choose(const struct batch *batch, const struct slots *slots, struct drafters *drafters,
                  const struct cost *cost, const struct vocab *vocab);

/* Fills the batch for the drafter's pass: a row for a draft of each slot below its goal; in the
 * model's own pass also those of the slots that unverified_plan chose, which come first; in the
 * draft model's a chunk of what it has not seen yet. Returns the number of rows. */
uint32_t draft_plan(struct batch *batch, struct slots *slots, struct drafters *drafters,
                    struct drafter *drafter, struct constrain *constrain, const struct cost *cost,
                    struct ctl *ctl);

/* Takes what came out of that pass. */
void draft_take(struct batch *batch, struct slots *slots, const struct drafter *drafter,
                const struct loaded_model *loaded, struct ctl *ctl);

#endif
