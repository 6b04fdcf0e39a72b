/* draft: the stage that drafts, and runs the step's fast passes. */
#ifndef HEARTH_DAEMON_ENGINE_DRAFT_H
#define HEARTH_DAEMON_ENGINE_DRAFT_H

struct engine;

/* Drafts for the slots that are about to decode: from text at once; a model makes one for each slot
 * in a step, in a pass of its own. The first token of an answer never waits for drafts. Slots that
 * unverified_plan put into the batch get their tokens here, too. Returns the rows computed, or
 * -errno: a backend broke, *ret_error is its line. */
int draft_step(struct engine *engine, const char **ret_error);

#endif
