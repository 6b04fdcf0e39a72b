/*
 * unverified: requests that need not be deterministic, on a device whose fast pass is the model in
 * faster numerics: a fast pass over the row of the last accepted token gives the next one, which is
 * published as it is. These rows go with the drafting ones of other slots, in one pass.
 *
 * The prompt and the first token come from canonical passes, and so does what is computed again
 * after an eviction: what is shared and kept is canonical, whatever asked for it.
 */
#ifndef HEARTH_DAEMON_ENGINE_UNVERIFIED_H
#define HEARTH_DAEMON_ENGINE_UNVERIFIED_H

#include "daemon/engine/batch.h"
#include "daemon/engine/client.h"
#include "daemon/engine/drafters.h"

/* May fast passes answer such a request? */
bool unverified_fits(const struct loaded_model *loaded, const struct submit_cell *cell);

/* Does the slot's next token come from a fast pass? From its first token on, as long as all but the
 * last one have KV. */
bool unverified_due(const struct slot *slot);

/* Chooses which of the step's unverified slots have a row of the fast pass, as far as there is room,
 * and takes pages for them. `fast` has that pass's limits. */
void unverified_plan(struct batch *batch, struct slots *slots, struct attached *clients,
                     const struct drafter *fast);

/* Puts their rows into the pass. */
void unverified_rows(struct batch *batch);

/* Takes the result of the slot's row: accepts its sample. A row that gave none is left to canonical
 * passes, and so is the rest of the answer. */
void unverified_take(struct slots *slots, struct batch_slot *b, const struct row_result *result,
                     const struct vocab *vocab, struct ctl *ctl);

#endif
