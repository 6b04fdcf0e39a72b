/* The clients of a rig: what they ask, and what they read. */
#include "tests/rig/engine_rig.h"

#include "ipc/params.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a client's requests --------------------------------------------------------------------- */

static void rig_generation(struct rig_client *c, uint32_t slot)
{
    struct rig_slot *s = &c->slots[slot];

    s->generation++;
    ring_generation_start(&segment_up_slot(&c->segment, slot)->generation, s->generation);
    if (!c->threaded)
        s->fence = c->client->events[slot].next;
}

void rig_cancel(struct rig_client *c, uint32_t slot)
{
    rig_generation(c, slot);
}

struct submit_cell rig_prepare(struct rig_client *c, uint32_t slot,
                               const struct rig_request *request)
{
    struct rig_slot *s = &c->slots[slot];
    uint32_t *arena = segment_arena(&c->segment, slot);
    struct params params;
    uint32_t keep = 0;
    char err[200] = "";

    while (keep < s->sent && keep < request->n && arena[keep] == request->tokens[keep])
        keep++;
    rig_generation(c, slot);
    segment_copy_out(arena + keep, request->tokens + keep,
                     (request->n - keep) * sizeof(*request->tokens));
    s->sent = request->n;
    params_default(&params);
    int used = params_encode(request->params ? request->params : &params,
                             segment_params(&c->segment, slot), c->segment.limits.params_bytes, err,
                             sizeof(err));
    RIG_CHECK(used > 0, "%s", err);
    return (struct submit_cell){
        .opcode = SUBMIT_REQUEST,
        .priority = request->batch ? PRIORITY_BATCH : PRIORITY_INTERACTIVE,
        .slot = (uint16_t)slot,
        .generation = s->generation,
        .keep = keep,
        .length = request->n,
        .prompt_length = request->prompt_length ? request->prompt_length : request->n,
        .max_tokens = request->max_tokens,
        .flags = request->fast ? SUBMIT_FAST : 0,
        .params_bytes = (uint32_t)used,
        .proposer = (uint32_t)c->proposer,
    };
}

void rig_push(struct rig_client *c, const struct submit_cell *cell)
{
    RIG_CHECK(ring_space(&c->submit) > 0, "the submit ring is full");
    ring_push(&c->submit, cell);
    if (cell->opcode == SUBMIT_REQUEST && cell->slot < c->n_slots)
        c->slots[cell->slot].n_requests++;
}

uint32_t rig_submit(struct rig_client *c, uint32_t slot, const struct rig_request *request)
{
    struct submit_cell cell = rig_prepare(c, slot, request);

    rig_push(c, &cell);
    return cell.generation;
}

/* ---- a client's answers ---------------------------------------------------------------------- */

static void read_token(struct rig_slot *s, const struct event_run *run, uint32_t i, uint32_t token)
{
    struct rig_answer *now = &s->now;

    if (now->n == 0) {
        now->generation = run->generation;
        now->first = run->position;
    }
    RIG_CHECK(now->generation == run->generation, "tokens of %u inside the answer of %u",
              run->generation, now->generation);
    RIG_CHECK(now->n < RIG_TOKENS, "too many tokens");
    RIG_CHECK(run->position + i == now->first + now->n, "a hole before position %u",
              run->position + i);
    now->tokens[now->n++] = token;
}

static void read_done(struct rig_slot *s, const struct event_run *run)
{
    RIG_CHECK(event_done(run, &s->now.done) == 0, "a bad EVENT_DONE");
    if (s->now.n)
        RIG_CHECK(s->now.generation == run->generation, "the end of another answer");
    for (uint32_t i = 0; i < s->n_ends && i < RIG_ENDS; i++)
        RIG_CHECK(s->ended[i] != run->generation, "request %u ended twice", run->generation);
    s->now.generation = run->generation;
    s->now.reason = (enum done_reason)s->now.done.reason;
    if (s->n_ends < RIG_ENDS) {
        s->ended[s->n_ends] = run->generation;
        s->reasons[s->n_ends] = s->now.reason;
    }
    s->n_ends++;
    RIG_CHECK(s->n_ends <= s->n_requests, "more ends than requests");
    s->last = s->now;
    s->now = (struct rig_answer){0};
}

static void read_logprobs(struct rig_slot *s, const struct event_run *run)
{
    struct event_top top[EVENT_TOP_MAX];
    struct event_logprob head;
    uint32_t offset = 0, i = 0;
    int rc;

    while ((rc = event_logprob_next(run, &offset, &head, top)) == 1) {
        read_token(s, run, i++, head.token);
        for (uint32_t k = 0; k < head.n_top; k++)
            RIG_CHECK(top[k].token == k, "alternative %u is %u", k, top[k].token);
        s->n_logprobs++;
    }
    RIG_CHECK(rc == 0, "a bad EVENT_LOGPROBS");
}

uint32_t rig_read(struct rig_client *c, uint32_t slot, uint32_t most)
{
    struct rig_slot *s = &c->slots[slot];
    struct event_run run;
    uint32_t taken = 0;
    int rc = 0;

    while (taken < most && (rc = event_next(&s->events, &run)) > 0) {
        const uint32_t *tokens;
        uint32_t n = event_tokens(&run, &tokens);
        bool late = !c->threaded && (int32_t)(s->events.next - s->fence) >= 0;

        if (run.kind == EVENT_TOKENS || run.kind == EVENT_LOGPROBS)
            RIG_CHECK(!late || run.generation == s->generation,
                      "tokens of %u were published after the store of %u", run.generation,
                      s->generation);
        for (uint32_t i = 0; i < n; i++)
            read_token(s, &run, i, tokens[i]);
        if (run.kind == EVENT_LOGPROBS)
            read_logprobs(s, &run);
        else if (run.kind == EVENT_DONE)
            read_done(s, &run);
        else if (run.kind == EVENT_NOP)
            s->n_nops += event_nop(&run, &s->cookie) == 0;
        ring_release(&s->events, run.cells);
        taken++;
    }
    RIG_CHECK(rc >= 0, "the event ring is broken");
    return taken;
}

void rig_read_all(struct rig_client *c)
{
    for (uint32_t i = 0; i < c->n_slots; i++)
        rig_read(c, i, UINT32_MAX);
}

const struct rig_answer *rig_ask(struct rig *rig, struct rig_client *c, uint32_t slot,
                                 const struct rig_request *request)
{
    uint32_t generation = rig_submit(c, slot, request);

    do
        rig_read_all(c);
    while (rig_step(rig));
    rig_check(rig);
    rig_read_all(c);
    RIG_CHECK(c->slots[slot].last.generation == generation && c->slots[slot].last.reason,
              "request %u has no end", generation);
    return &c->slots[slot].last;
}

void rig_tokens(uint32_t *tokens, uint32_t n, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;

    for (uint32_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = FAKE_BYTES + (uint32_t)(state >> 33) % 256;
    }
}
