/* draft_pass: one fast pass of a model that drafts. */
#ifndef HEARTH_DAEMON_ENGINE_DRAFT_PASS_H
#define HEARTH_DAEMON_ENGINE_DRAFT_PASS_H

struct drafter;
struct engine;

/* A draft for each slot below its goal; and, of the model's own pass, a row of each slot that
 * unverified_plan chose; of the draft model's, a chunk of what it has not seen yet of slots that
 * would like to draft. Returns the rows, or -errno: the backend broke. */
int draft_pass(struct engine *engine, struct drafter *drafter);

#endif
