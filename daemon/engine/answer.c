/* What a client gets to see: accepted tokens, progress, and one end for every request. */
#include "daemon/engine/answer.h"

#include "daemon/engine/constrain.h"
#include "daemon/engine/mailbox.h"
#include "daemon/engine/request.h"
#include "ipc/counters.h"
#include "kernels/base/hash128.h"
#include "kernels/kv.h"

#include <assert.h>
#include <stdio.h>

uint32_t answer_room_needed(const struct slot *slot)
{
    return answer_room(slot->request, slot->spec.drafted + 1);
}

uint32_t answer_room(const struct request *request, uint32_t window)
{
    if (!request->sampler.logprobs)
        return (window + EVENT_TOKENS_MAX - 1) / EVENT_TOKENS_MAX;
    return window * event_cells(sizeof(struct event_logprob) +
                                request->sampler.n_top * sizeof(struct event_top));
}

static int answer_logprob(struct slot *slot, uint32_t position, const struct sample *sample)
{
    struct event_top top[EVENT_TOP_MAX];
    struct event_logprob head = {
        .token = sample->token, .logprob = sample->logprob, .n_top = sample->n_top};
    for (uint32_t i = 0; i < sample->n_top; i++)
        top[i] = (struct event_top){.token = sample->top[i].id, .logprob = sample->top[i].logprob};
    return event_put_logprob(client_events(slot), slot->request->generation, position, &head, top);
}

/* Publishes what came out of a pass for one slot, with log-probabilities where they were asked for.
 * Room was made sure of before the pass: only a reader that takes its progress back has none. */
static int answer_tokens(struct attached *clients, const struct batch_slot *b)
{
    struct slot *slot = b->slot;
    struct down_slot *down = segment_down_slot(&slot->client->segment, slot->ring);
    uint32_t n = slot->spec.accepted - b->from;
    int rc = 0;
    if (!slot->request->sampler.logprobs)
        rc = event_put_tokens(client_events(slot), slot->request->generation, b->from,
                              slot->tokens + b->from, n);
    else
        for (uint32_t i = 0; i < n && rc == 0; i++)
            rc = answer_logprob(slot, b->from + i, &b->samples[i].sample);
    attached_news(clients, slot->client);
    counters_add(clients->ctl, COUNTER_OUTPUT_TOKENS, n);
    /* One writer: no locked instruction. */
    uint64_t outputs = atomic_load_explicit(&down->outputs, memory_order_relaxed);
    atomic_store_explicit(&down->outputs, outputs + n, memory_order_relaxed);
    return rc;
}

void answer_progress(struct slot *slot, enum down_state state)
{
    struct down_slot *down = segment_down_slot(&slot->client->segment, slot->ring);
    const struct request *request = slot->request;
    atomic_store_explicit(&down->generation, request->generation, memory_order_relaxed);
    atomic_store_explicit(&down->prefill_done, spec_computed(&slot->spec), memory_order_relaxed);
    atomic_store_explicit(&down->prefill_total, request->length, memory_order_relaxed);
    atomic_store_explicit(&down->prompt, request->prompt_length, memory_order_relaxed);
    atomic_store_explicit(&down->output, slot->spec.accepted - request->prompt_length,
                          memory_order_relaxed);
    atomic_store_explicit(&down->batch, slot->batch, memory_order_relaxed);
    atomic_store_explicit(&down->prefix_break, request->prefix_break, memory_order_relaxed);
    atomic_store_explicit(&down->prefix_lost, request->prefix_lost, memory_order_relaxed);
    atomic_store_explicit(&down->state, (uint32_t)state, memory_order_relaxed);
}

/* Hashes the parameter block without the guess, which changes no answer. */
static void answer_hash_params(const struct request *request, uint8_t ret[16])
{
    const struct params *params = &request->params;
    const uint8_t *guess = (const uint8_t *)params->guess;
    uint32_t guess_bytes = params->n_guess * (uint32_t)sizeof(*params->guess);
    struct params_head head;
    struct hash128 hash;
    memcpy(&head, request->block, sizeof(head));
    const uint8_t *end = request->block + head.bytes;
    head.n_guess = 0;
    head.bytes -= guess_bytes;
    hash128_init(&hash);
    hash128_update(&hash, &head, sizeof(head));
    hash128_update(&hash, request->block + sizeof(head),
                   (size_t)(guess - request->block) - sizeof(head));
    hash128_update(&hash, guess + guess_bytes, (size_t)(end - guess) - guess_bytes);
    hash128_final(&hash, ret);
}

/* Hashes the parameters (but for the guess), lengths and prompt: what the answer is a function of,
 * besides the model. Not the deterministic flag: where canonical is all there is it changes
 * nothing, and what came from a fast pass that differs says so in `numerics`, where people can read
 * it. */
static void answer_hash_request(const struct slot *slot, uint8_t ret[16])
{
    const struct request *request = slot->request;
    uint8_t parts[2][16];
    struct {
        uint8_t block[16], prompt[16];
        uint32_t prompt_length, limit;
    } whole = {.prompt_length = request->prompt_length, .limit = request->limit};

    answer_hash_params(request, parts[0]);
    hash128(slot->tokens, (size_t)request->prompt_length * sizeof(uint32_t), parts[1]);
    memcpy(whole.block, parts[0], sizeof(parts[0]));
    memcpy(whole.prompt, parts[1], sizeof(parts[1]));
    hash128(&whole, sizeof(whole), ret);
}

static uint64_t span_ns(uint64_t from, uint64_t to)
{
    return from && to > from ? to - from : 0;
}

static void answer_fill(const struct slot *slot, const struct loaded_model *loaded, uint64_t now_ns,
                        struct event_done *done)
{
    const struct request *request = slot->request;
    uint64_t first_row = request->first_row_ns ? request->first_row_ns : now_ns;
    uint64_t first_sample = request->first_sample_ns ? request->first_sample_ns : now_ns;
    *done = (struct event_done){
        .reason = (uint32_t)request->reason,
        .error = request->error,
        .prompt = request->prompt_length,
        .cached = request->cached,
        .stored = request->stored,
        .output = slot->spec.accepted - request->prompt_length,
        .passes = request->passes,
        .drafted = request->drafted,
        .accepted_drafts = request->accepted_drafts,
        .rollbacks = request->rollbacks,
        .prefix_break = request->prefix_break,
        .queue_ns = span_ns(request->submitted_ns, first_row),
        .prefill_ns = span_ns(request->first_row_ns, first_sample),
        .decode_ns = span_ns(request->first_sample_ns, now_ns),
    };
    memcpy(done->model, loaded->fingerprint, sizeof(done->model));
    snprintf(done->numerics, sizeof(done->numerics), "%s%s", loaded->info.numerics,
             request->unverified ? NUMERICS_FAST : "");
    snprintf(done->text, sizeof(done->text), "%s", request->text);
    if (request->reason == DONE_CANCELLED || request->reason == DONE_SUPERSEDED ||
        (request->grammar && !request->compiled))
        return; /* no receipt: it was not answered, and its texts may be long */
    answer_hash_request(slot, done->request_hash);
    hash128(slot->tokens + request->prompt_length, (size_t)done->output * sizeof(uint32_t),
            done->output_hash);
}

static void answer_count(struct ctl *ctl, const struct request *request)
{
    counters_add(ctl,
                 request->reason == DONE_CANCELLED    ? COUNTER_REQUESTS_CANCELLED
                 : request->reason == DONE_SUPERSEDED ? COUNTER_REQUESTS_SUPERSEDED
                 : request->reason == DONE_ERROR      ? COUNTER_REQUESTS_ERRORS
                                                      : COUNTER_REQUESTS_FINISHED,
                 1);
    counters_add(ctl, COUNTER_DRAFTED, request->drafted);
    counters_add(ctl, COUNTER_ACCEPTED_DRAFTS, request->accepted_drafts);
    counters_add(ctl, COUNTER_REJECTED_DRAFTS, request->rejected);
    counters_add(ctl, COUNTER_UNUSED_DRAFTS, request->unused);
    counters_add(ctl, COUNTER_OWN_PICKS, request->own);
    counters_add(ctl, COUNTER_ROLLBACKS, request->rollbacks);
}

/* The control thread keeps the weights then (--weights-cache). */
static void answer_tell_first(struct attached *clients, const struct loaded_model *loaded)
{
    struct mail mail = {.kind = MAIL_ANSWERED};
    if (clients->answered || !loaded->weights_dir ||
        counters_get(clients->ctl, COUNTER_REQUESTS_FINISHED) == 0)
        return;
    clients->answered = mailbox_post(clients->outbox, &mail);
    mailbox_ring(clients->outbox);
}

/* Every draft came to one end, every token of the answer from one of two places, and each window
 * that was rolled back gave at least the verifier's own token. */
static void answer_balance(const struct slot *slot)
{
    const struct request *request = slot->request;
    assert(request->drafted == request->accepted_drafts + request->rejected + request->unused);
    assert(slot->spec.accepted - request->length == request->accepted_drafts + request->own);
    assert(request->rollbacks <= request->passes && request->rollbacks <= request->rejected);
}

/* Counts, publishes EVENT_DONE, lets the slot rest with what is canonical. */
static void answer_end(struct slot *slot, struct slots *slots, struct attached *clients,
                       const struct loaded_model *loaded, uint64_t now_ns)
{
    struct event_done done;
    slot->request->unused += spec_rollback(&slot->spec);
    answer_balance(slot);
    spec_rest(&slot->spec);
    draft_kv_keep(&slot->draft_kv, slot->spec.accepted);
    slot->goal = 0;
    answer_fill(slot, loaded, now_ns, &done);
    slots_set(slots, slot, SLOT_IDLE);
    constrain_end(slot);
    request_spare(slot->request, (uint32_t)params_bytes(&slot->request->params));
    slot_trim(slot, &slots->kv.prefix);
    answer_count(clients->ctl, slot->request);
    answer_progress(slot, DOWN_IDLE);
    attached_news(clients, slot->client);
    /* The reserve kept room for this; a failure means that the reader broke its own ring. */
    int rc =
        event_put_done(client_events(slot), slot->request->generation, slot->spec.accepted, &done);
    if (rc < 0)
        attached_fail(clients, slot->client, -EPROTO);
    answer_tell_first(clients, loaded);
}

void answer_ends(struct slots *slots, struct attached *clients, const struct loaded_model *loaded,
                 uint64_t now_ns)
{
    for (uint32_t i = 0; i < slots->n_ending; i++)
        answer_end(slots->ending[i], slots, clients, loaded, now_ns);
    slots->n_ending = 0;
}

void answer_publish(struct batch *batch, struct attached *clients)
{
    for (uint32_t i = 0; i < batch->n_slots; i++) {
        const struct batch_slot *b = &batch->slots[i];
        int rc = b->slot->spec.accepted > b->from ? answer_tokens(clients, b) : 0;
        if (rc < 0)
            attached_fail(clients, b->slot->client, rc);
        if (b->slot->state != SLOT_ENDING && b->progress != DOWN_IDLE)
            answer_progress(b->slot, b->progress);
    }
    batch_clear(batch);
}

int answer_refuse(struct attached *clients, const struct loaded_model *loaded,
                  struct client *client, const struct submit_cell *cell, int error,
                  const char *text)
{
    struct event_done done = {
        .reason = error ? DONE_ERROR : DONE_SUPERSEDED,
        .error = error,
        .prompt = cell->prompt_length,
    };
    memcpy(done.model, loaded->fingerprint, sizeof(done.model));
    snprintf(done.numerics, sizeof(done.numerics), "%s", loaded->info.numerics);
    snprintf(done.text, sizeof(done.text), "%s", text);
    int rc = event_put_done(&client->events[cell->slot], cell->generation, cell->length, &done);
    if (rc == 0) {
        attached_news(clients, client);
        counters_add(clients->ctl, error ? COUNTER_REQUESTS_REFUSED : COUNTER_REQUESTS_SUPERSEDED,
                     1);
    }
    return rc;
}
