/* Runs of grammars, one per request, and the masks of the tokens that may follow. */
#include "daemon/engine/constrain.h"

#include "daemon/engine/request.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    marks_begin(&request->marks, params);
    request->constrained = params->grammar_bytes > 0 || request->marks.limit;
    request->compiled = request->behind = request->stopped = false;
    request->work = constrain->token;
    slot->masked = 0;
    request->rest = 0;
    request->mark_token = request->one_token = MARKS_NO_TOKEN;
    if (params->grammar_bytes > 0 && grammars_take(&constrain->grammars, slot->uid, params->grammar,
                                                   params->grammar_bytes, &request->grammar) < 0) {
        request->constrained = false;
        snprintf(line, line_bytes, "not enough memory for the grammar: try again later");
        return -ENOMEM;
    }
    return 0;
}

void constrain_end(struct slot *slot)
{
    struct request *request = slot->request;
    if (!request->constrained)
        return;
    grammar_end(&request->run);
    if (request->grammar)
        grammars_give(request->grammar);
    free(request->one);
    request->grammar = NULL;
    request->one = NULL;
    request->constrained = false;
}

/* Marks take a token that the grammar does not bind. Returns what it costs, in units of a budget: each
 * mark is compared at each byte. */
static int64_t accept_free(const struct vocab *vocab, struct request *request, uint32_t token)
{
    uint32_t n;
    const char *bytes = vocab_bytes(vocab, token, &n);
    request->rest = (uint32_t)marks_accept(&request->marks, bytes, n);
    if (request->marks.where == MARKS_BOUND)
        request->mark_token = token;
    return 1 + (int64_t)n * request->params.n_marks;
}

enum done_reason constrain_accept(const struct vocab *vocab, struct slot *slot, uint32_t token,
                                  bool drafted)
{
    struct request *request = slot->request;
    int64_t budget = request->work;
    int rc = 0;
    if (!request->constrained)
        return 0;
    if (request->marks.where != MARKS_BOUND) {
        (void)accept_free(vocab, request, token);
        return 0;
    }
    if (drafted)
        grammar_agree(&request->run);
    else
        rc = grammar_follow(&request->run, token, &budget);
    request->behind = rc == -EAGAIN;
    if (rc < 0)
        return request->behind ? (enum done_reason)0 : DONE_ERROR;
    return grammar_must_end(&request->run) ? DONE_EOS : (enum done_reason)0;
}

/* Each draft is compared with the marks once: request->ahead goes along. */
bool constrain_draft(const struct vocab *vocab, struct slot *slot, uint32_t token)
{
    struct request *request = slot->request;
    if (!request->constrained)
        return true;
    if (slot->spec.drafted == 0) {
        request->drafting = CONSTRAIN_TOKEN;
        request->ahead = request->marks;
    }
    if (request->marks.where == MARKS_BOUND) /* the run begins with the next step */
        return request->run.grammar && request->drafting > 0 &&
               grammar_draft_within(&request->run, token, &request->drafting) == 0;
    struct marks ahead = request->ahead;
    uint32_t n;
    const char *bytes = vocab_bytes(vocab, token, &n);
    if (marks_forced(&ahead) != MARKS_NO_TOKEN)
        return false;
    (void)marks_accept(&ahead, bytes, n);
    if (ahead.where == MARKS_BOUND || marks_forced(&ahead) != MARKS_NO_TOKEN)
        return false;
    request->ahead = ahead;
    return true;
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
    if (request->stopped)
        request_end(slots, slot, DONE_STOP, 0, "");
    else if (request->run.grammar && grammar_must_end(&request->run))
        request_end(slots, slot, DONE_EOS, 0, "");
    else if (slot->spec.accepted >= request->limit)
        request_end(slots, slot, DONE_LENGTH, 0, "");
    return slot->state == SLOT_ENDING ? -1 : 1;
}

/* Is the grammar compiled, if there is one? Returns as follow. */
static int check_grammar(struct slots *slots, struct slot *slot)
{
    struct request *request = slot->request;
    const struct grammars_entry *entry = request->grammar;
    if (!entry || request->compiled)
        return 1;
    if (entry->state != GRAMMARS_DONE)
        return 0;
    if (!entry->job.grammar) {
        request_end(slots, slot, DONE_ERROR, entry->job.error, entry->job.line);
        return -1;
    }
    request->compiled = true;
    return 1;
}

/* Begins the run: at the start of the answer, or after a mark, whose token may have more text. What
 * follows the end of a thought in the same token is not part of the answer's form; what follows the
 * mark of a call is. Returns 0 or -errno; -EAGAIN: the budget is used up within that. */
static int begin_run(struct constrain *constrain, struct slot *slot)
{
    struct request *request = slot->request;
    struct grammar *grammar = request->grammar->job.grammar;
    bool begins = request->mark_token == MARKS_NO_TOKEN;
    uint32_t n, rest = request->rest;
    if (!request->run.grammar)
        grammar_begin(grammar,
                      begins &&
                          drops_space(constrain->vocab, slot->tokens[request->prompt_length - 1]),
                      &request->run);
    if (rest == 0)
        return 0;
    const char *bytes = vocab_bytes(constrain->vocab, request->mark_token, &n);
    int rc = grammar_follow_text(&request->run, bytes + n - rest, rest, &constrain->budget);
    if (rc == -EAGAIN)
        return rc;
    request->rest = 0;
    if (rc != -EPERM || !request->marks.calls)
        return rc == -EPERM ? 0 : rc;
    grammar_end(&request->run);
    marks_reject(&request->marks);
    return 0;
}

/* Is there a run to begin, or the rest of a mark's token to be followed? */
static bool begins_run(const struct request *request)
{
    return request->marks.where == MARKS_BOUND && (!request->run.grammar || request->rest > 0);
}

/* One token of the part of an answer that came along. */
static int follow_token(struct constrain *constrain, struct slot *slot, uint32_t token)
{
    struct request *request = slot->request;
    int rc = 0;
    if (begins_run(request))
        rc = begin_run(constrain, slot);
    if (rc < 0 || request->marks.where == MARKS_BOUND)
        return rc < 0 ? rc : grammar_follow(&request->run, token, &constrain->budget);
    uint32_t forced = marks_forced(&request->marks);
    if (forced != MARKS_NO_TOKEN && forced != token)
        return -EPERM;
    constrain->budget -= accept_free(constrain->vocab, request, token);
    return 0;
}

/* What is left of the last accepted token. */
static int follow_last(struct constrain *constrain, struct slot *slot)
{
    struct request *request = slot->request;
    const int rc =
        grammar_follow(&request->run, slot->tokens[slot->spec.accepted - 1], &constrain->budget);
    request->behind = rc == -EAGAIN;
    return rc;
}

/* Follows the part of the answer that a resumed request brought, and what constrain_accept left of
 * a token, as far as the budget lasts, and begins the run where the grammar binds what is next: a
 * client chooses it and the grammar, and it may be as long as the context. Returns 1: it is
 * followed and the answer goes on; 0: not yet; -1: the answer is over. */
static int follow(struct constrain *constrain, struct slots *slots, struct slot *slot)
{
    struct request *request = slot->request;
    int rc = 0;
    while (request->followed < request->length && constrain->budget > 0 && rc == 0) {
        rc = follow_token(constrain, slot, slot->tokens[request->followed]);
        request->followed += rc != -EAGAIN;
    }
    if (rc == 0 && request->followed < request->length)
        return 0;
    if (rc == 0 && request->behind)
        rc = follow_last(constrain, slot);
    if (rc == 0 && begins_run(request))
        rc = begin_run(constrain, slot);
    if (rc == -EAGAIN)
        return 0;
    if (rc == -EPERM)
        request_end(slots, slot, DONE_ERROR, -EINVAL,
                    "the answer so far does not follow this grammar: start a new request");
    else if (rc < 0)
        request_end(slots, slot, DONE_ERROR, rc, grammar_too_wide);
    else
        return check_end(slots, slot);
    return -1;
}

/* The mask of the one token that may follow. Returns as make_mask. */
static int make_one(struct constrain *constrain, struct request *request, uint32_t token)
{
    if (!request->one)
        request->one = calloc((constrain->n_vocab + 63) / 64, sizeof(*request->one));
    if (!request->one)
        return -ENOMEM;
    if (request->one_token != MARKS_NO_TOKEN)
        request->one[request->one_token / 64] = 0;
    request->one[token / 64] = (uint64_t)1 << token % 64;
    request->one_token = token;
    request->masks[0] = request->one;
    return 1;
}

static int make_first(struct constrain *constrain, struct slots *slots, struct slot *slot)
{
    struct request *request = slot->request;
    uint32_t forced = marks_forced(&request->marks);
    memset(request->masks, 0, sizeof(request->masks));
    if (request->run.grammar) {
        int rc = make_mask(constrain, slot, 0);
        if (rc < 0)
            end_stuck(slots, slot, rc);
        return rc;
    }
    if (forced == MARKS_NO_TOKEN)
        return 1;
    int rc = make_one(constrain, request, forced);
    if (rc < 0)
        request_end(slots, slot, DONE_ERROR, rc, "not enough memory for the answer's form");
    return rc;
}

/* One slot's run, and its first mask. Returns whether the next step has more to do for it. */
static bool mask_first_row(struct constrain *constrain, struct slots *slots, struct slot *slot)
{
    struct request *request = slot->request;
    int rc = check_grammar(slots, slot);
    if (rc == 1 && !request->prewarm)
        rc = follow(constrain, slots, slot);
    if (rc == 1 && !request->prewarm)
        rc = make_first(constrain, slots, slot);
    if (rc != 0)
        slot->masked = 0;
    else if (slot->masked < MASKED_LONG) /* a compiler's turn may take any number of steps */
        slot->masked = constrain_goes_on(slot) ? slot->masked + 1 : MASKED_LONG;
    if (rc == 0)
        slots_set(slots, slot, SLOT_MASKING);
    else if (slot->state == SLOT_MASKING)
        slots_set(slots, slot, SLOT_READY);
    if (rc == 0)
        slots_waited(slots, slot);
    return rc == 0 && constrain_goes_on(slot);
}

static bool is_constrained(const struct slot *slot)
{
    return slot->state != SLOT_IDLE && slot->state != SLOT_READING && slot->request->constrained;
}

/* Had `a` or its user the budget before all others longer ago than `b`? */
static bool budget_precedes(const struct slot *a, const struct slot *b)
{
    const struct client_user *x = a->client->user, *y = b->client->user;
    return x != y ? x->masked < y->masked : a->request->masked < b->request->masked;
}

/* The slot that has the budget before all others: users take turns, and then each user's slots. */
static uint32_t take_turn(struct constrain *constrain, const struct slots *slots)
{
    uint32_t first = slots->n;
    for (uint32_t i = 0; i < slots->n; i++)
        if (is_constrained(&slots->all[i]) && constrain_goes_on(&slots->all[i]) &&
            (first == slots->n || budget_precedes(&slots->all[i], &slots->all[first])))
            first = i;
    if (first == slots->n)
        return 0;
    const struct slot *slot = &slots->all[first];
    slot->request->masked = slot->client->user->masked = ++constrain->turn;
    return first;
}

uint32_t constrain_step(struct constrain *constrain, struct slots *slots)
{
    const uint32_t first = take_turn(constrain, slots);
    uint32_t waiting = 0;
    grammars_release(&constrain->grammars);
    constrain->budget = constrain->step;
    for (uint32_t i = 0; i < slots->n; i++) {
        struct slot *slot = &slots->all[(i + first) % slots->n];
        if (is_constrained(slot))
            waiting += mask_first_row(constrain, slots, slot);
    }
    return waiting;
}

bool constrain_goes_on(const struct slot *slot)
{
    return !slot->request->grammar || slot->request->compiled;
}

/* The window ends after its first `n` drafts and is verified with these. Whoever drafts next
 * computes the row of the last token, so the draft model's KV ends before it. */
static void cut_window(struct slot *slot, uint32_t n)
{
    slot->request->unused += spec_cut(&slot->spec, n);
    grammar_keep(&slot->request->run, n);
    draft_kv_keep(&slot->draft_kv, slot->spec.accepted + n - 1);
    slot->goal = slot->goal < n ? slot->goal : n;
}

void constrain_windows(struct constrain *constrain, struct slot *const *slots, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = slots[i];
        struct request *request = slot->request;
        uint32_t ready = 0;
        if (!slot_runs(slot) || !request->run.grammar || slot->spec.drafted == 0)
            continue;
        assert(request->run.n_drafts == slot->spec.drafted);
        while (ready < slot->spec.drafted && make_mask(constrain, slot, ready + 1) == 1)
            ready++;
        if (ready < slot->spec.drafted)
            cut_window(slot, ready);
    }
}
