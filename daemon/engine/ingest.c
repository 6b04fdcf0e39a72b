/*
 * From a submit cell to a request. Everything is copied once, the copy is checked, the copy is
 * used; a copy that a newer request tore is thrown away (G2). Nothing here believes the client.
 */
#include "daemon/engine/ingest.h"

#include "daemon/engine/answer.h"
#include "daemon/engine/attached.h"
#include "daemon/engine/request.h"
#include "daemon/engine/unverified.h"
#include "daemon/engine/verify.h"
#include "ipc/counters.h"
#include "kernels/kv.h"

#include <math.h>
#include <stdio.h>

enum {
    INGEST_CELLS = 16,       /* most cells of one user in one step: bounded work ... */
    INGEST_TOKENS = 1 << 16, /* ... and no further cell once this many tokens were looked at */
    INGEST_SHARE = 8,        /* beside answers cells take at most 1 / this of a pass's time */
    LINE_BYTES = 256
};

_Static_assert(PARAMS_STOP_TEXTS_MAX == STOP_TEXTS_MAX &&
                   PARAMS_STOP_TEXT_BYTES_MAX == STOP_TEXT_BYTES_MAX &&
                   PARAMS_LOGPROBS_MAX == SAMPLE_TOP_MAX && PARAMS_STAGES == SAMPLE_STAGES + 1,
               "what params_check lets through has room in a request");

/* Time that cells may take at once when none came for long; and what they may have taken too much:
 * an expensive cell, or a preempted one, must not stop all others for long. */
static const int64_t INGEST_CREDIT_NS = 2000000;
static const int64_t INGEST_DEBT_NS = 8000000;

/* What a checked request will be, before the slot is touched. */
struct incoming {
    struct client *client;
    uint64_t now_ns; /* when its cell was taken */
    struct submit_cell cell;
    struct slot *slot;
    uint32_t limit; /* the sequence ends at this length */
    uint32_t valid; /* arena [0, valid) is what the slot has */
    uint32_t need;  /* free event cells without which the cell stays unread */
    char line[LINE_BYTES];
};

/* Copies arena [valid, length), and the parameter block into the slot's request, which is over. Returns 0; -EFAULT: the client's memory
 * failed; -ESTALE: a newer request was there before the copy was whole. */
static int ingest_copy(uint32_t *scratch, const struct incoming *in)
{
    struct client *client = in->client;
    const struct submit_cell *cell = &in->cell;
    const uint32_t *arena = segment_arena(&client->segment, cell->slot);
    const uint8_t *block = segment_params(&client->segment, cell->slot);
    const struct up_slot *up = segment_up_slot(&client->segment, cell->slot);
    size_t tokens = (size_t)(cell->length - in->valid) * sizeof(*arena);
    size_t params =
        (cell->params_bytes + 3u) & ~3u; /* whole words; params_decode refuses an odd size */
    if (segment_copy_in(&client->segment, scratch + in->valid, arena + in->valid, tokens) < 0 ||
        segment_copy_in(&client->segment, in->slot->request->block, block, params) < 0)
        return -EFAULT;
    return ring_generation_live(&up->generation, cell->generation) ? 0 : -ESTALE;
}

/* The first position at which the new sequence leaves what the slot has computed. */
static uint32_t ingest_common(const uint32_t *scratch, const struct incoming *in)
{
    const struct slot *slot = in->slot;
    uint32_t known = slot->spec.accepted < in->cell.length ? slot->spec.accepted : in->cell.length;
    uint32_t common = in->valid < known ? in->valid : known;
    while (common < known && slot->tokens[common] == scratch[common])
        common++;
    return common;
}

static int ingest_check_tokens(const uint32_t *scratch, uint32_t n_vocab, struct incoming *in)
{
    for (uint32_t i = in->valid; i < in->cell.length; i++) {
        if (scratch[i] < n_vocab)
            continue;
        snprintf(in->line, sizeof(in->line),
                 "token id %u at position %u is out of range: the model has %u", scratch[i], i,
                 n_vocab);
        return -ERANGE;
    }
    return 0;
}

/* Could this request ever run? One alone must fit the pool, or it would wait forever. */
static int ingest_check_size(uint32_t n_pages, struct incoming *in)
{
    uint32_t pages = kv_pages(in->limit);
    if (pages <= n_pages)
        return 0;
    snprintf(in->line, sizeof(in->line),
             "prompt and max-tokens need %u KV pages, the daemon has %u: ask for less, or raise "
             "--kv-bytes",
             pages, n_pages);
    return -ENOMEM;
}

static uint32_t ingest_limit(uint32_t context, const struct submit_cell *cell)
{
    uint64_t limit = (uint64_t)cell->prompt_length + cell->max_tokens;
    if (limit > context)
        limit = context;
    return limit < cell->length ? cell->length : (uint32_t)limit;
}

/* The wire's parameters become the sampler's. Same meaning, same stage numbers (sample.h). A token that the model never says
 * has a bias that no other outweighs. */
static void ingest_sampler(struct request *request)
{
    const struct params *p = &request->params;
    struct sampler_params *sampler = &request->sampler;
    sampler_params_init(sampler);
    sampler->seed = p->seed;
    sampler->temperature = p->temperature;
    sampler->top_k = p->top_k;
    sampler->top_p = p->top_p;
    sampler->min_p = p->min_p;
    sampler->typical_p = p->typical_p;
    sampler->repeat_penalty = p->repeat_penalty;
    sampler->frequency_penalty = p->frequency_penalty;
    sampler->presence_penalty = p->presence_penalty;
    sampler->penalty_last_n = p->penalty_last_n > INT32_MAX ? -1 : (int32_t)p->penalty_last_n;
    sampler->logprobs = p->logprobs_on != 0;
    sampler->n_top = (uint8_t)p->logprobs;
    sampler->n_order = 0;
    while (sampler->n_order < SAMPLE_STAGES && p->order[sampler->n_order] != PARAMS_STAGE_END) {
        sampler->order[sampler->n_order] = p->order[sampler->n_order];
        sampler->n_order++;
    }
    sampler->n_bias = p->n_bias;
    sampler->bias = request->bias;
    for (uint32_t i = 0; i < p->n_bias; i++)
        request->bias[i] = (struct sample_bias){.id = p->bias[i].token, .value = p->bias[i].value};
    for (uint32_t i = 0; i < request->n_suppressed; i++)
        request->bias[sampler->n_bias++] =
            (struct sample_bias){.id = request->suppressed[i], .value = -INFINITY};
}

static void ingest_stops(struct request *request)
{
    const struct params *p = &request->params;
    const char *bytes = (const char *)p->stop_texts;
    for (uint32_t i = 0; i < p->n_stop_texts; i++) {
        request->stop_texts[i] =
            (struct stop_text){.bytes = bytes, .n_bytes = p->stop_text_lengths[i]};
        bytes += p->stop_text_lengths[i];
    }
    stop_init(&request->stop, request->stop_texts, p->n_stop_texts);
}

/* Where the tokens begin that a stop text of the answer to come can still reach back to; at least
 * the last one. What verify_feed_stops does not feed to the matcher does not count. */
static uint32_t ingest_tail(const struct vocab *vocab, const struct slot *slot)
{
    const struct request *request = slot->request;
    uint32_t from = request->length;
    size_t reach = 0;
    while (from > request->prompt_length &&
           (from == request->length || reach < request->stop.longest)) {
        uint32_t n_bytes = 0;
        if (vocab_bytes(vocab, slot->tokens[--from], &n_bytes) &&
            vocab_is_text(vocab, slot->tokens[from]))
            reach += n_bytes;
    }
    return from;
}

/* A resumed request brings part of its answer: the stop matcher has seen those tokens. Returns why
 * that part is the whole answer already (or the prompt fills the context), 0 when there is more to
 * come. */
static enum done_reason ingest_replay(const struct vocab *vocab, struct slot *slot)
{
    struct request *request = slot->request;
    bool stopped = false;
    for (uint32_t i = ingest_tail(vocab, slot); i < request->length && !stopped; i++)
        stopped = verify_feed_stops(vocab, request, slot->tokens[i]);
    if (stopped)
        return DONE_STOP;
    if (request->prewarm)
        return 0;
    if (request->constrained)
        return 0; /* its end is known when its grammar is compiled and has followed that part */
    return request->length >= request->limit ? DONE_LENGTH : (enum done_reason)0;
}

/* The answer may be over already. */
static void ingest_begin(struct attached *clients, struct slots *slots, struct drafters *drafters,
                         const struct loaded_model *loaded, const struct incoming *in)
{
    const struct submit_cell *cell = &in->cell;
    struct slot *slot = in->slot;
    struct request *request = slot->request;
    struct prefix *prefix = &slots->kv.prefix;
    uint32_t common = ingest_common(clients->scratch, in), before = slot->spec.accepted;
    enum done_reason reason;
    memcpy(slot->tokens + in->valid, clients->scratch + in->valid,
           (cell->length - in->valid) * sizeof(*slot->tokens));
    slot->same = cell->length;

    slot->serial = ++slots->serial;
    slot->batch = cell->priority == PRIORITY_BATCH;
    request->generation = cell->generation;
    request->prompt_length = cell->prompt_length;
    request->length = cell->length;
    request->followed = cell->prompt_length;
    request->whole = 0;
    request->limit = in->limit;
    request->prewarm = cell->max_tokens == 0;
    request->fast = unverified_fits(loaded, cell);
    request->unverified = request->no_drafts = request->looked = false;
    request->prefix_break = common;
    request->prefix_lost = before > common ? before - common : 0;
    request->passes = request->drafted = request->accepted_drafts = request->rollbacks = 0;
    request->rejected = request->unused = request->own = request->stored = 0;
    request->submitted_ns = in->now_ns;
    request->first_row_ns = request->first_sample_ns = 0;
    ingest_sampler(request);
    ingest_stops(request);
    reason = ingest_replay(&loaded->vocab, slot);

    spec_begin(&slot->spec, cell->length,
               common < slot->spec.canonical ? common : slot->spec.canonical);
    proposer_begin(&slot->proposer, (enum submit_proposer)cell->proposer, common, cell->length,
                   request->params.guess, request->params.n_guess);
    drafters_begin(drafters, slot, common);
    slot_adopt(slot, prefix);
    slot_trim(slot, prefix);
    slot_branch(slot, prefix, cell->length, common, before);
    request->cached = request->reached = slot->spec.canonical;
    slots_set(slots, slot, SLOT_READY);
    counters_add(clients->ctl, COUNTER_REQUESTS_STARTED, 1);
    counters_add(clients->ctl, COUNTER_PROMPT_TOKENS, request->prompt_length);
    counters_add(clients->ctl, COUNTER_CACHED_TOKENS, request->cached);
    answer_progress(slot, DOWN_QUEUED);
    if (reason)
        request_end(slots, slot, reason, 0, "");
}

/* Copies what the cell announced and checks the copies. Returns as ingest_copy, or why the request is
 * refused. */
static int ingest_copied(uint32_t *scratch, uint32_t n_pages, uint32_t n_vocab,
                         struct constrain *constrain, struct incoming *in)
{
    struct request *request = in->slot->request;
    int rc = ingest_copy(scratch, in);
    if (rc == 0)
        rc = ingest_check_tokens(scratch, n_vocab, in);
    if (rc == 0)
        rc = ingest_check_size(n_pages, in);
    if (rc == 0)
        rc = params_decode(request->block, in->cell.params_bytes, n_vocab, &request->params,
                           in->line, sizeof(in->line));
    if (rc == 0)
        rc = constrain_begin(constrain, in->slot, in->line, sizeof(in->line));
    return rc;
}

/* One live request. Returns 0 when the cell is dealt with (begun or refused), -EAGAIN when it must
 * stay unread, another -errno when the client must be closed. */
static int ingest_request(struct attached *clients, struct slots *slots, struct drafters *drafters,
                          struct constrain *constrain, const struct loaded_model *loaded,
                          struct incoming *in)
{
    const struct submit_cell *cell = &in->cell;
    int rc = submit_check(cell, &in->client->segment.limits, in->line, sizeof(in->line));
    if (rc == -EPROTO)
        return rc;
    in->limit = ingest_limit(slots->context, cell);
    /* An answer that began at another daemon goes on here, with whatever drafts there are. */
    if (rc == 0 && cell->length == cell->prompt_length)
        rc = drafters_check(drafters, (enum submit_proposer)cell->proposer, in->line,
                            sizeof(in->line));
    if (rc == 0) {
        rc = ingest_copied(clients->scratch, slots->kv.pool.total, loaded->model->n_vocab,
                           constrain, in);
        if (rc < 0)
            request_spare(in->slot->request, cell->params_bytes);
    }
    if (rc == -EFAULT)
        return rc;
    if (rc == -ESTALE)
        return answer_refuse(clients, loaded, in->client, cell, 0, "");
    if (rc < 0)
        return answer_refuse(clients, loaded, in->client, cell, rc, in->line);
    ingest_begin(clients, slots, drafters, loaded, in);
    answer_ends(slots, clients, loaded, in->now_ns);
    return 0;
}

static int ingest_cell(struct attached *clients, struct slots *slots, struct drafters *drafters,
                       struct constrain *constrain, const struct loaded_model *loaded,
                       struct incoming *in)
{
    const struct submit_cell *cell = &in->cell;
    struct client *client = in->client;
    if (cell->slot >= client->n_slots)
        return -EPROTO;
    struct ring_writer *events = &client->events[cell->slot];
    in->need = EVENT_RUN_CELLS + 1;
    if (cell->opcode == SUBMIT_NOP) {
        int rc = event_put_nop(events, cell->generation, cell->cookie);
        if (rc == 0)
            counters_add(clients->ctl, COUNTER_NOPS, 1);
        return rc;
    }

    struct slot *slot = in->slot = client->slots[cell->slot];
    const struct up_slot *up = segment_up_slot(&client->segment, cell->slot);
    bool live = ring_generation(&up->generation) == cell->generation;

    slot->same = slot->same < cell->keep ? slot->same : cell->keep;
    in->valid = slot->same < cell->length ? slot->same : cell->length;
    if (client->taken[cell->slot] == cell->generation + 1ull)
        return 0; /* repeated: it has, or had, its answer */

    /* An end for the older request, one for this: both must fit before anything is touched. */
    int room = ring_space(events);
    if (room < 0)
        return room;
    in->need = (slot->state != SLOT_IDLE ? 2u : 1u) * EVENT_RUN_CELLS;
    if ((uint32_t)room < in->need)
        return -EAGAIN;
    if (slot->state != SLOT_IDLE) {
        request_end(slots, slot, DONE_SUPERSEDED, 0, "");
        answer_ends(slots, clients, loaded, in->now_ns);
    }
    if (!live)
        return answer_refuse(clients, loaded, client, cell, 0, "");
    client->taken[cell->slot] = cell->generation + 1ull;
    return ingest_request(clients, slots, drafters, constrain, loaded, in);
}

bool ingest_ready(struct client *client)
{
    if (client->error)
        return false;
    if (segment_broken(&client->segment))
        return true;
    if (!ring_ready(&client->submit))
        return false;
    if (client->blocked_need == 0)
        return true;
    int room = ring_space(&client->events[client->blocked_slot]);
    return room < 0 || (uint32_t)room >= client->blocked_need;
}

/* Takes one cell of the client. Returns 0 when it has to stay unread, or the client is closed. */
static uint32_t ingest_client(struct attached *clients, struct slots *slots,
                              struct drafters *drafters, struct constrain *constrain,
                              const struct loaded_model *loaded, struct incoming *in)
{
    struct client *client = in->client;
    int rc = -EFAULT;
    client->blocked_need = 0;
    if (!segment_broken(&client->segment))
        rc = ring_peek(&client->submit, &in->cell);
    if (rc == 0)
        return 0;
    if (rc > 0 && !client->is_touched)
        client->is_touched = segment_is_touched(&client->segment);
    if (rc > 0) {
        in->line[0] = 0;
        rc = client->is_touched ? ingest_cell(clients, slots, drafters, constrain, loaded, in)
                                : -EPROTO;
    }
    if (rc == 0 && segment_broken(&client->segment))
        rc = -EFAULT;
    if (rc == -EAGAIN) {
        client->blocked_need = in->need;
        client->blocked_slot = in->cell.slot;
        return 0;
    }
    if (rc < 0) {
        attached_fail(clients, client, rc);
        return 0;
    }
    ring_release(&client->submit, 1);
    attached_news(clients, client);
    client->user->cells++;
    client->user->tokens += in->cell.length + in->cell.params_bytes / 4;
    attached_listen(clients, client);
    return 1;
}

/* Clients with cells, in this step. */
static void ingest_collect(struct attached *clients)
{
    clients->n_ready = 0;
    for (uint32_t i = 0; i < clients->n; i++) {
        struct client *client = clients->all[i];
        if (!ingest_ready(client))
            continue;
        clients->ready[clients->n_ready++] = client;
        client->user->cells = 0;
        client->user->tokens = 0;
    }
}

static bool ingest_precedes(const struct client *a, const struct client *b)
{
    return a->user != b->user ? a->user->served < b->user->served : a->served < b->served;
}

/* Whose cell comes next: a place in `ready`; n_ready: none in this step. */
static uint32_t ingest_next(const struct attached *clients)
{
    uint32_t next = clients->n_ready;
    for (uint32_t i = 0; i < clients->n_ready; i++) {
        const struct client *client = clients->ready[i];
        if (client->user->cells < INGEST_CELLS && client->user->tokens < INGEST_TOKENS &&
            (next == clients->n_ready || ingest_precedes(client, clients->ready[next])))
            next = i;
    }
    return next;
}

/* Cells are free while no answer waits for their end; beside answers they are paid from what the time
 * since the last step has earned. */
static void ingest_earn(struct attached *clients, uint64_t now_ns, bool beside)
{
    uint64_t passed_ns = now_ns - clients->served_ns;
    if (beside && passed_ns < (uint64_t)(INGEST_CREDIT_NS + INGEST_DEBT_NS) * INGEST_SHARE)
        clients->credit_ns += (int64_t)(passed_ns / INGEST_SHARE);
    else
        clients->credit_ns = INGEST_CREDIT_NS;
    if (clients->credit_ns > INGEST_CREDIT_NS)
        clients->credit_ns = INGEST_CREDIT_NS;
}

/* Returns how many cells were taken. */
static uint32_t ingest_cells(struct attached *clients, struct slots *slots,
                             struct drafters *drafters, struct constrain *constrain,
                             const struct loaded_model *loaded, struct steady *clock)
{
    bool beside = slots_running(slots) > 0;
    uint32_t taken = 0, next;
    ingest_earn(clients, steady_look(clock), beside);
    while ((next = ingest_next(clients)) < clients->n_ready && clients->credit_ns > 0) {
        struct incoming in;
        in.client = clients->ready[next];
        in.now_ns = clock->now_ns;
        taken += ingest_client(clients, slots, drafters, constrain, loaded, &in);
        in.client->served = in.client->user->served = ++clients->served;
        steady_look(clock);
        if (beside)
            clients->credit_ns -= (int64_t)(clock->now_ns - in.now_ns);
        if (!ingest_ready(in.client))
            clients->ready[next] = clients->ready[--clients->n_ready];
    }
    if (clients->credit_ns < -INGEST_DEBT_NS)
        clients->credit_ns = -INGEST_DEBT_NS;
    clients->served_ns = clock->now_ns;
    return taken;
}

uint32_t ingest_step(struct attached *clients, struct slots *slots, struct drafters *drafters,
                     struct constrain *constrain, const struct loaded_model *loaded,
                     struct steady *clock)
{
    uint32_t work = 0;
    ingest_collect(clients);
    if (clients->n_ready > 0)
        work = ingest_cells(clients, slots, drafters, constrain, loaded, clock) + clients->n_ready;
    if (slots->n_active == 0)
        return work;
    for (uint32_t i = 0; i < slots->n; i++) {
        struct slot *slot = &slots->all[i];
        if (slot->state != SLOT_IDLE && request_void(slot))
            request_end(slots, slot, DONE_CANCELLED, 0, "");
    }
    answer_ends(slots, clients, loaded, steady_look(clock));
    return work;
}
