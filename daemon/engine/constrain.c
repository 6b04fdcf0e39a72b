/* Runs of grammars, one per request, and the masks of the tokens that may follow. */
#include "daemon/engine/constrain.h"

#include "daemon/engine/request.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

_Static_assert((int)WINDOW_MAX <= (int)GRAMMAR_DRAFTS_MAX, "a run follows each draft of a window");

/* Does a space at the beginning of the answer belong to the tokenizer? The library drops it. */
static bool drops_space(const struct vocab *vocab, uint32_t last_of_prompt)
{
    return (vocab->flags & VOCAB_ADD_SPACE_PREFIX) != 0 && vocab_is_control(vocab, last_of_prompt);
}

int constrain_begin(struct constrain *constrain, struct slot *slot, char *line, size_t line_bytes)
{
    struct request *request = slot->request;
    const struct params *params = &request->params;
    if (params->grammar_bytes == 0)
        return 0;
    if (grammars_take(&constrain->grammars, slot->uid, params->grammar, params->grammar_bytes,
                      &request->grammar) < 0) {
        snprintf(line, line_bytes, "not enough memory for the grammar: try again later");
        return -ENOMEM;
    }
    constrain->n_grammars++;
    return 0;
}

void constrain_end(struct constrain *constrain, struct slot *slot)
{
    struct request *request = slot->request;
    if (!request->grammar)
        return;
    grammar_end(&request->run);
    grammars_give(request->grammar);
    request->grammar = NULL;
    constrain->n_grammars--;
}

enum done_reason constrain_accept(struct slot *slot, uint32_t token)
{
    struct grammar_run *run = &slot->request->run;
    if (!run->grammar)
        return 0;
    if (grammar_accept(run, token) < 0)
        return DONE_ERROR;
    return grammar_must_end(run) ? DONE_EOS : (enum done_reason)0;
}

bool constrain_draft(struct slot *slot, uint32_t token)
{
    return !slot->request->run.grammar || grammar_draft(&slot->request->run, token) == 0;
}

/* The mask after the first `draft` drafts. Returns 1 with the request's masks[draft] set, 0: not in
 * this step, or -errno. */
static int make_mask(struct constrain *constrain, struct slot *slot, uint32_t draft)
{
    struct request *request = slot->request;
    struct grammar_mask mask;
    int rc = grammar_mask(&request->run, draft, &constrain->budget, &mask);
    request->masks[draft] = rc == 1 ? mask.bits : NULL;
    if (rc == 1 && mask.n_allowed == 0)
        rc = -ENOTSUP;
    return rc;
}

bool constrain_mask(struct constrain *constrain, struct slot *slot, uint32_t draft)
{
    return !slot->request->run.grammar || make_mask(constrain, slot, draft) == 1;
}

/* Nothing can follow: a sentence may end here without a token that says so, or this vocabulary has
 * no way on. */
static void end_stuck(struct slots *slots, struct slot *slot, int error)
{
    if (error != -ENOTSUP)
        request_end(slots, slot, DONE_ERROR, error, grammar_too_wide);
    else if (grammar_may_end(&slot->request->run))
        request_end(slots, slot, DONE_EOS, 0, "");
    else
        request_end(slots, slot, DONE_ERROR, error,
                    "the model's vocabulary has no token that the grammar allows here: let the "
                    "grammar use characters that it has");
}

/* The run stands where the answer so far ends. Returns 1: there is more to come; -1: that is all. */
static int check_end(struct slots *slots, struct slot *slot)
{
    const struct request *request = slot->request;
    if (grammar_must_end(&request->run))
        request_end(slots, slot, DONE_EOS, 0, "");
    else if (request->length >= request->limit)
        request_end(slots, slot, DONE_LENGTH, 0, "");
    return slot->state == SLOT_ENDING ? -1 : 1;
}

/* Begins the run when the grammar is compiled. Returns as follow. */
static int begin_run(const struct constrain *constrain, struct slots *slots, struct slot *slot)
{
    struct request *request = slot->request;
    struct grammars_entry *entry = request->grammar;
    if (entry->state != GRAMMARS_DONE)
        return 0;
    if (!entry->job.grammar) {
        request_end(slots, slot, DONE_ERROR, entry->job.error, entry->job.line);
        return -1;
    }
    grammar_begin(entry->job.grammar,
                  drops_space(constrain->vocab, slot->tokens[request->prompt_length - 1]),
                  &request->run);
    if (request->prewarm || request->followed < request->length)
        return 1;
    return check_end(slots, slot);
}

/* Follows the part of the answer that a resumed request brought, as far as the budget lasts: a
 * client chooses it and the grammar, and it may be as long as the context. Returns 1: it is
 * followed and the answer goes on; 0: not yet; -1: the answer is over. */
static int follow(struct constrain *constrain, struct slots *slots, struct slot *slot)
{
    struct request *request = slot->request;
    int rc = 0;
    if (request->followed == request->length)
        return 1;
    while (request->followed < request->length && constrain->budget > 0 && rc == 0) {
        rc = grammar_follow(&request->run, slot->tokens[request->followed], &constrain->budget);
        request->followed++;
    }
    if (rc == -EPERM)
        request_end(slots, slot, DONE_ERROR, -EINVAL,
                    "the answer so far does not follow this grammar: ask anew");
    else if (rc < 0)
        request_end(slots, slot, DONE_ERROR, rc, grammar_too_wide);
    else if (request->followed < request->length)
        return 0;
    else
        return check_end(slots, slot);
    return -1;
}

/* One slot's run, and its first mask. Returns whether the next step has more to do for it. */
static bool mask_first_row(struct constrain *constrain, struct slots *slots, struct slot *slot)
{
    struct request *request = slot->request;
    int rc = request->run.grammar ? 1 : begin_run(constrain, slots, slot);
    if (rc == 1 && !request->prewarm)
        rc = follow(constrain, slots, slot);
    if (rc == 1 && !request->prewarm) {
        rc = make_mask(constrain, slot, 0);
        if (rc < 0)
            end_stuck(slots, slot, rc);
    }
    if (rc == 0)
        slots_set(slots, slot, SLOT_MASKING);
    else if (slot->state == SLOT_MASKING)
        slots_set(slots, slot, SLOT_READY);
    return rc == 0 && constrain_goes_on(slot);
}

uint32_t constrain_step(struct constrain *constrain, struct slots *slots, uint32_t turn)
{
    uint32_t waiting = 0;
    if (constrain->n_grammars == 0)
        return 0;
    grammars_release(&constrain->grammars);
    constrain->budget = constrain->step;
    for (uint32_t i = 0; i < slots->n; i++) {
        struct slot *slot = &slots->all[(i + turn) % slots->n];
        if (slot->state != SLOT_IDLE && slot->request->grammar)
            waiting += mask_first_row(constrain, slots, slot);
    }
    return waiting;
}

bool constrain_goes_on(const struct slot *slot)
{
    return slot->request->run.grammar != NULL;
}

void constrain_windows(struct constrain *constrain, struct slot *const *slots, uint32_t n)
{
    for (uint32_t i = 0; i < n && constrain->n_grammars > 0; i++) {
        struct slot *slot = slots[i];
        struct request *request = slot->request;
        uint32_t ready = 0;
        if (!slot_runs(slot) || !request->run.grammar || slot->spec.drafted == 0)
            continue;
        assert(request->run.n_drafts == slot->spec.drafted);
        while (ready < slot->spec.drafted && make_mask(constrain, slot, ready + 1) == 1)
            ready++;
        request->unused += spec_cut(&slot->spec, ready);
        grammar_keep(&request->run, ready);
    }
}
