/*
 * Answers that follow a grammar: the masks of a pass, made beforehand within a budget.
 *
 * A request's run (daemon/grammar/grammar.h) stands behind its accepted tokens and behind each draft, so
 * what a row may sample follows from the tokens before it, like everything else about a sample. A slot
 * whose mask is not made yet sits out the pass; a window is cut in front of the first draft that has
 * none. So a grammar costs everybody a bounded piece of a step, and its own request the rest.
 */
#include "daemon/engine/engine_impl.h"

#include <assert.h>
#include <stdio.h>

_Static_assert((int)WINDOW_MAX <= (int)GRAMMAR_DRAFTS_MAX,
               "a run stands behind each draft of a window");

/* Does a space at the beginning of the answer belong to the tokenizer? The library drops it. */
static bool constrain_drops_space(const struct engine *engine, uint32_t last_of_prompt)
{
    return (engine->vocab->flags & VOCAB_ADD_SPACE_PREFIX) != 0 &&
           vocab_is_control(engine->vocab, last_of_prompt);
}

int constrain_begin(struct engine *engine, struct slot *slot, uint32_t last_of_prompt, char *line,
                    size_t line_bytes)
{
    struct request *request = slot->request;
    const struct params *params = &request->params;
    struct grammar *grammar;

    if (params->grammar_bytes == 0)
        return 0;
    int rc = grammars_take(&engine->grammars, slot->uid, params->grammar, params->grammar_bytes,
                           &grammar, line, line_bytes);
    if (rc == 0)
        grammar_begin(grammar, constrain_drops_space(engine, last_of_prompt), &request->run);
    return rc;
}

void constrain_end(struct engine *engine, struct slot *slot)
{
    struct request *request = slot->request;
    const struct grammar *grammar = request->run.grammar;

    if (!grammar)
        return;
    grammar_end(&request->run);
    grammars_give(&engine->grammars, grammar);
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

/* The mask behind the first `draft` drafts. Returns 1 with the request's masks[draft] set, 0: not in
 * this step, or -errno. */
static int constrain_mask(struct engine *engine, struct slot *slot, uint32_t draft)
{
    struct request *request = slot->request;
    struct grammar_mask mask;
    int rc = grammar_mask(&request->run, draft, &engine->grammar_budget, &mask);

    request->masks[draft] = rc == 1 ? mask.bits : NULL;
    if (rc == 1 && mask.n_allowed == 0)
        rc = -ENOTSUP;
    return rc;
}

bool constrain_ready(struct engine *engine, struct slot *slot, uint32_t draft)
{
    return !slot->request->run.grammar || constrain_mask(engine, slot, draft) == 1;
}

/* Nothing can follow: a sentence may end here without a token that says so, or this vocabulary has
 * no way on. */
static void constrain_stuck(struct engine *engine, struct slot *slot, int error)
{
    if (error != -ENOTSUP)
        answer_end(engine, slot, DONE_ERROR, error, grammar_too_wide);
    else if (grammar_may_end(&slot->request->run))
        answer_end(engine, slot, DONE_EOS, 0, "");
    else
        answer_end(engine, slot, DONE_ERROR, error,
                   "the model's vocabulary has no token that the grammar allows here: let the "
                   "grammar use characters that it has");
}

/* Follows the part of the answer that a resumed request brought, as far as the budget lasts: a
 * client chooses it and the grammar, and it may be as long as the context. Returns whether it is
 * behind us and the answer goes on. */
static bool constrain_follow(struct engine *engine, struct slot *slot)
{
    struct request *request = slot->request;
    int rc = 0;

    if (request->followed == request->length)
        return true;
    while (request->followed < request->length && engine->grammar_budget > 0 && rc == 0) {
        rc =
            grammar_follow(&request->run, slot->tokens[request->followed], &engine->grammar_budget);
        request->followed++;
    }
    slot->masking = rc == 0 && request->followed < request->length;
    if (rc == -EPERM)
        answer_end(engine, slot, DONE_ERROR, -EINVAL,
                   "the answer so far is none of this grammar: ask anew");
    else if (rc < 0)
        answer_end(engine, slot, DONE_ERROR, rc, grammar_too_wide);
    else if (!slot->masking && grammar_must_end(&request->run))
        answer_end(engine, slot, DONE_EOS, 0, "");
    else if (!slot->masking && request->length >= request->limit)
        answer_end(engine, slot, DONE_LENGTH, 0, "");
    return slot->active && !slot->masking;
}

uint32_t constrain_step(struct engine *engine)
{
    uint32_t waiting = 0;
    uint32_t turn = engine->turn.passes + engine->stream_turn.passes;

    grammars_release(&engine->grammars);
    engine->grammar_budget = engine->grammar_step;
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        /* Each step somebody else is the first to use the budget. */
        struct slot *slot = &engine->slots[(i + turn) % engine->options.n_slots];
        if (!slot->active || !slot->request->run.grammar || slot->request->prewarm)
            continue;
        if (!constrain_follow(engine, slot)) {
            waiting += slot->masking;
            continue;
        }
        int rc = constrain_mask(engine, slot, 0);
        slot->masking = rc == 0;
        waiting += slot->masking;
        if (rc < 0)
            constrain_stuck(engine, slot, rc);
    }
    return waiting;
}

void constrain_windows(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        uint32_t n = 0;
        if (!slot->active || !slot->request->run.grammar || slot->spec.drafted == 0)
            continue;
        assert(slot->request->run.n_drafts == slot->spec.drafted);
        while (n < slot->spec.drafted && constrain_mask(engine, slot, n + 1) == 1)
            n++;
        slot->request->unused += spec_cut(&slot->spec, n);
        grammar_keep(&slot->request->run, n);
    }
}
