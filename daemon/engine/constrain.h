/*
 * constrain: answers that follow a grammar, or whose thoughts are limited: the masks of a pass, made
 * beforehand within a budget.
 *
 * A request's run (daemon/grammar/grammar.h) follows its accepted tokens and each draft, so what a
 * row may sample follows from the tokens before it, like everything else about a sample. A slot
 * whose mask is not made yet sits out the pass; a window is cut before the first draft that has
 * none. So a grammar costs other slots a bounded piece of a step, and its own request the rest.
 *
 * Marks (daemon/policy/marks.h) say where a grammar begins to bind: they follow accepted tokens only.
 * What would change with a drafted token is not drafted, so a window lies on one side of a mark.
 */
#ifndef HEARTH_DAEMON_ENGINE_CONSTRAIN_H
#define HEARTH_DAEMON_ENGINE_CONSTRAIN_H

#include "daemon/cache/slot.h"
#include "daemon/engine/grammars.h"
#include "ipc/event.h"
#include "ipc/vocab.h"

/* Many times what a token takes in a usual grammar. */
enum { CONSTRAIN_TOKEN = GRAMMAR_MILLISECOND / 16 };

struct constrain {
    struct grammars grammars;
    const struct vocab *vocab;
    uint32_t n_vocab; /* bits of a mask */
    int64_t step;     /* what a step may spend on masks; GRAMMAR_MILLISECOND says in what */
    int64_t token;    /* ... and between two passes on a token of an answer: CONSTRAIN_TOKEN */
    int64_t budget;   /* left in this step */
    uint64_t turn;    /* number of the last step in which a slot had it before all others */
};

/* Asks for the grammar of the slot's decoded request, if it has one. Returns 0, or -ENOMEM with one
 * line: the request must not begin. Once the grammar is compiled, constrain_step begins its run and
 * follows the part of the answer that a resumed request brought, or ends the request with the
 * grammar's error. */
int constrain_begin(struct constrain *constrain, struct slot *slot, char *line, size_t line_bytes);
void constrain_end(struct slot *slot);

/* A token of the answer was accepted; `drafted`: the first draft, which constrain_draft has
 * followed. Returns DONE_EOS where the grammar lets nothing follow, DONE_ERROR where it cannot be
 * followed, 0: the answer goes on, or the request is `behind`: what is left of the token takes
 * long, and constrain_step follows it, or ends the request, before the slot is in a pass again. */
enum done_reason constrain_accept(const struct vocab *vocab, struct slot *slot, uint32_t token,
                                  bool drafted);

/* Drafts the token, if the grammar lets it follow, and no mark ends with it. Returns whether it does. */
bool constrain_draft(const struct vocab *vocab, struct slot *slot, uint32_t token);

/* Makes the mask of the row after the first `draft` drafts: the request's masks[draft]. Returns
 * whether there is one, or none is needed. */
bool constrain_mask(struct constrain *constrain, struct slot *slot, uint32_t draft);

/* A step begins: begins runs of compiled grammars, follows answers that were brought along, makes
 * the masks that first rows need, ends answers that cannot go on. Slots whose grammar or masks are
 * not made yet sit out the step (SLOT_MASKING); those whose text is being read do anyway, and are
 * left alone. Users take turns at being the first to use the budget, and so do each user's slots.
 * Returns how many of them another step will help. */
uint32_t constrain_step(struct constrain *constrain, struct slots *slots);

/* Would a step help this slot, which is SLOT_MASKING? Not while its grammar is compiled. */
bool constrain_goes_on(const struct slot *slot);

/* After drafting: makes a mask for each row of the windows of slots [n], and cuts a window before
 * the first draft without one. */
void constrain_windows(struct constrain *constrain, struct slot *const *slots, uint32_t n);

#endif
