/* The engine's surroundings, made small. */
#include "tests/unit/engine_rig.h"

#include "ipc/params.h"
#include "kernels/kv.h"
#include "tests/unit/grammar_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { EVENT_CELLS = 64, SUBMIT_CELLS = 16 };

static uint64_t clock_ns;

static uint64_t rig_now(void)
{
    return clock_ns += 1000;
}

static uint32_t or_default(uint32_t value, uint32_t fallback)
{
    return value ? value : fallback;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The same for every rig, and therefore built once a process. */
static struct vocab rig_vocab;
static struct grammar_vocab *rig_grammar_vocab;

static void open_vocab(void)
{
    static void *block;
    struct vocab_string texts[FAKE_VOCAB];
    char names[FAKE_VOCAB][8] = {"<unk>", "<s>", "</s>"}, err[200];
    int32_t types[FAKE_VOCAB] = {VOCAB_TYPE_UNKNOWN, VOCAB_TYPE_CONTROL, VOCAB_TYPE_CONTROL};
    struct vocab_desc desc;
    size_t bytes;

    if (block)
        return;
    for (uint32_t i = FAKE_BYTES; i < FAKE_VOCAB; i++) {
        snprintf(names[i], sizeof(names[i]), "<0x%02X>", (i - FAKE_BYTES) & 0xff);
        types[i] = VOCAB_TYPE_BYTE;
    }
    for (uint32_t i = 0; i < FAKE_VOCAB; i++)
        texts[i] = (struct vocab_string){names[i], strlen(names[i])};
    vocab_desc_init(&desc);
    desc.model = (struct vocab_string){"llama", 5};
    desc.n_tokens = FAKE_VOCAB;
    desc.texts = texts;
    desc.types = types;
    desc.roles[VOCAB_EOS] = FAKE_END;
    int rc = vocab_build(&desc, &block, &bytes, err, sizeof(err));
    RIG_CHECK(rc == 0, "%s", err);
    rc = vocab_open(block, bytes, &rig_vocab, err, sizeof(err));
    RIG_CHECK(rc == 0, "%s", err);
    RIG_CHECK(vocab_is_end(&rig_vocab, FAKE_END), "the end token");
    rc = grammars_vocab_open(&rig_vocab, FAKE_VOCAB, &rig_grammar_vocab);
    RIG_CHECK(rc == 0, "no memory");
}

static void open_engine(struct rig *rig)
{
    char err[200];
    struct engine_options options = {
        .resident = &rig->resident,
        .ctl = rig->ctl,
        .inbox = &rig->inbox,
        .outbox = &rig->outbox,
        .n_slots = rig->desc.slots,
        .n_clients = rig->desc.clients,
        .params_bytes = RIG_PARAMS_BYTES,
        .pass_ns = 1000000000,
        .linger_ns = rig->desc.linger_ns,
        .loop = rig->desc.loop,
        .now_ns = rig->desc.now_ns     ? rig->desc.now_ns
                  : rig->desc.threaded ? bell_now_ns
                                       : rig_now,
    };
    int rc = engine_open(&rig->engine, &options, err, sizeof(err));

    RIG_CHECK(rc == 0, "%s", err);
}

/* The proposer that all tests of a rig are to be run with, and what it needs. */
static void choose_proposer(struct rig_desc *d)
{
    const char *name = getenv("HEARTH_RIG_PROPOSER");

    if (d->proposer == PROPOSER_AUTO && name) {
        d->wrong = or_default(d->wrong, 4);
        d->proposer = !strcmp(name, "draft")    ? PROPOSER_DRAFT
                      : !strcmp(name, "shadow") ? PROPOSER_SHADOW
                                                : PROPOSER_NONE;
    }
    if (d->proposer == PROPOSER_SHADOW)
        d->fast = BACKEND_FAST_SHADOW;
    else if (d->proposer == PROPOSER_FAST)
        d->fast = BACKEND_FAST_NATIVE;
    else if (d->proposer == PROPOSER_DRAFT)
        d->draft_pages = or_default(d->draft_pages, d->pages);
    d->draft_context = or_default(d->draft_context, d->context);
}

/* The draft model: the same function on a device of its own, which may be wrong now and then. */
static void open_draft(struct rig *rig)
{
    struct resident *draft = &rig->draft_resident;

    if (rig->desc.draft_pages == 0)
        return;
    draft->limits = rig->resident.limits;
    draft->limits.pages = rig->desc.draft_pages;
    draft->limits.context = rig->desc.draft_context;
    RIG_CHECK(fake_init(&rig->draft, &draft->limits) == 0, "no memory");
    rig->draft.fast = BACKEND_FAST_NATIVE;
    rig->draft.wrong = rig->desc.wrong;
    draft->model = &rig->model;
    draft->ops = &fake_ops;
    draft->backend = fake_backend(&rig->draft);
    fake_ops.describe(draft->backend, &draft->info);
    rig->resident.draft = draft;
}

void rig_open(struct rig *rig, const struct rig_desc *desc)
{
    static const struct rig_desc none;
    struct rig_desc d = desc ? *desc : none;

    memset(rig, 0, sizeof(*rig));
    clock_ns = 0;
    d.slots = or_default(d.slots, 8);
    d.clients = or_default(d.clients, 8);
    d.context = or_default(d.context, 512);
    d.pages = or_default(d.pages, d.slots * kv_pages(d.context));
    d.rows = or_default(d.rows, 64);
    d.picks = or_default(d.picks, 16);
    d.mail = or_default(d.mail, 64);
    choose_proposer(&d);
    rig->desc = d;
    rig->resident.limits = (struct backend_limits){
        .rows = d.rows, .picks = d.picks, .pages = d.pages, .context = d.context, .threads = 1};
    RIG_CHECK(fake_init(&rig->fake, &rig->resident.limits) == 0, "no memory");
    rig->fake.fast = d.fast;
    rig->fake.wrong = d.wrong;
    rig->model =
        (struct model){.n_vocab = FAKE_VOCAB, .n_layer = FAKE_LAYERS, .n_context = d.context};
    rig->resident.model = &rig->model;
    rig->resident.ops = &fake_ops;
    rig->resident.backend = fake_backend(&rig->fake);
    fake_ops.describe(rig->resident.backend, &rig->resident.info);
    open_draft(rig);
    open_vocab();
    rig->resident.vocab = rig_vocab;
    rig->resident.grammar_vocab = rig_grammar_vocab;
    rig->ctl = aligned_alloc(IPC_PAGE, IPC_PAGE);
    RIG_CHECK(rig->ctl, "no memory");
    memset(rig->ctl, 0, sizeof(*rig->ctl));
    RIG_CHECK(mailbox_init(&rig->inbox, d.mail) == 0, "mailbox");
    RIG_CHECK(mailbox_init(&rig->outbox, d.mail) == 0, "mailbox");
    RIG_CHECK(segment_guard_init() == 0, "guard");
    open_engine(rig);
}

void rig_close(struct rig *rig)
{
    engine_close(rig->engine);
    mailbox_fini(&rig->inbox);
    mailbox_fini(&rig->outbox);
    free(rig->ctl);
    fake_fini(&rig->fake);
    fake_fini(&rig->draft);
}

/* ---- the control thread's part --------------------------------------------------------------- */

void rig_post(struct rig *rig, enum mail_kind kind, struct client *client)
{
    struct mail mail = {.kind = (uint16_t)kind, .clients = {client}};

    RIG_CHECK(mailbox_post(&rig->inbox, &mail), "the mailbox is full");
    mailbox_ring(&rig->inbox);
}

uint32_t rig_mail(struct rig *rig)
{
    struct mail mail;
    uint32_t detached = 0;

    while (mailbox_take(&rig->outbox, &mail)) {
        detached += mail.kind == MAIL_DETACHED;
        rig->n_stopped += mail.kind == MAIL_STOPPED;
        if (mail.kind == MAIL_CLOSE) {
            rig->n_closed++;
            rig->last_close = mail.error;
        }
    }
    return detached;
}

void rig_equip(struct rig *rig, struct rig_client *c, uint32_t n_slots, uid_t uid, const char *name)
{
    struct ipc_limits limits = {.slots = n_slots,
                                .context = rig->desc.context,
                                .submit_cells = SUBMIT_CELLS,
                                .event_cells = EVENT_CELLS,
                                .params_bytes = RIG_PARAMS_BYTES};
    struct client *client = calloc(1, sizeof(*client));
    char err[200] = "";
    int notify[2] = {-1, -1};

    memset(c, 0, sizeof(*c));
    RIG_CHECK(client && n_slots <= RIG_SLOTS, "no memory");
    RIG_CHECK(segment_open(&client->segment, &limits, err, sizeof(err)) == 0, "%s", err);
    RIG_CHECK(segment_map(&c->segment, client->segment.up_fd, client->segment.down_fd, &limits, err,
                          sizeof(err)) == 0,
              "%s", err);
    segment_close_fds(&client->segment);
    client->state = CLIENT_ATTACHED;
    client->socket_fd = client->pid_fd = -1;
    client->bell_fd = rig->desc.threaded ? bell_open() : -1;
    if (rig->desc.threaded)
        RIG_CHECK(bell_notify_open(notify) == 0, "no socketpair");
    client->notify_fd = notify[0];
    c->notify_fd = notify[1];
    client->uid = uid;
    client->n_slots = n_slots;
    snprintf(client->name, sizeof(client->name), "%s", name);
    c->client = client;
    c->n_slots = n_slots;
    c->threaded = rig->desc.threaded;
    c->proposer = rig->desc.proposer;
    segment_submit_writer(&c->segment, &c->submit);
    for (uint32_t i = 0; i < n_slots; i++)
        segment_event_reader(&c->segment, i, &c->slots[i].events);
}

void rig_strip(struct rig_client *c)
{
    segment_close(&c->client->segment);
    segment_close(&c->segment);
    if (c->threaded) {
        close(c->client->bell_fd);
        close(c->client->notify_fd);
        close(c->notify_fd);
    }
    free(c->client);
    c->client = NULL;
}

void rig_attach(struct rig *rig, struct rig_client *c, uint32_t n_slots, uid_t uid,
                const char *name)
{
    rig_equip(rig, c, n_slots, uid, name);
    rig_post(rig, MAIL_ATTACH, c->client);
    engine_step(rig->engine);
}

void rig_detach(struct rig *rig, struct rig_client *c)
{
    rig_mail(rig);
    rig_post(rig, MAIL_DETACH, c->client);
    engine_step(rig->engine);
    RIG_CHECK(rig_mail(rig) == 1, "a detached client is let go in the same step");
    rig_strip(c);
}

uint32_t rig_run(struct rig *rig, uint32_t most)
{
    uint32_t steps = 0;

    while (engine_step(rig->engine)) {
        rig_check(rig);
        RIG_CHECK(++steps <= most, "still working after %u steps", steps);
    }
    rig_check(rig);
    return steps;
}

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
                             segment_params(&c->segment, slot), RIG_PARAMS_BYTES, err, sizeof(err));
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
    while (engine_step(rig->engine));
    rig_check(rig);
    rig_read_all(c);
    RIG_CHECK(c->slots[slot].last.generation == generation && c->slots[slot].last.reason,
              "request %u has no end", generation);
    return &c->slots[slot].last;
}

/* ---- what must be ---------------------------------------------------------------------------- */

/* Does a stop text end within bytes [from, n)? From the definition: every text at every place. */
static bool text_ends(const struct params *p, const char *bytes, uint32_t from, uint32_t n)
{
    const char *text = (const char *)p->stop_texts;

    for (uint32_t i = 0; i < p->n_stop_texts; i++) {
        uint32_t length = p->stop_text_lengths[i];
        for (uint32_t at = 0; at + length <= n; at++)
            if (at + length > from && !memcmp(bytes + at, text, length))
                return true;
        text += length;
    }
    return false;
}

static enum done_reason token_ends(const struct params *p, uint32_t token, const char *bytes,
                                   uint32_t n_bytes)
{
    for (uint32_t i = 0; i < p->n_stop_tokens; i++)
        if (p->stop_tokens[i] == token)
            return DONE_STOP;
    return text_ends(p, bytes, n_bytes - 1, n_bytes) ? DONE_STOP : (enum done_reason)0;
}

/* What the grammar of the request allows behind bytes [n] of its answer, by the definition: tokens in
 * `allowed` [FAKE_VOCAB bits]. Returns how many, but for the end token. */
static uint32_t find_allowed(struct reference *grammar, char *bytes, uint32_t n, uint64_t *allowed)
{
    uint32_t n_allowed = 0;
    bool whole, ignored;

    memset(allowed, 0, (FAKE_VOCAB + 63) / 64 * sizeof(*allowed));
    RIG_CHECK(reference_match(grammar, bytes, n, &whole), "the answer is none of the grammar");
    if (whole)
        allowed[0] |= 1u << FAKE_END;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bytes[n] = (char)byte;
        if (!reference_match(grammar, bytes, n + 1, &ignored))
            continue;
        allowed[(FAKE_BYTES + byte) >> 6] |= (uint64_t)1 << ((FAKE_BYTES + byte) & 63);
        n_allowed++;
    }
    return n_allowed;
}

void rig_alone(const struct rig *rig, const struct rig_request *request, struct rig_answer *ret)
{
    uint32_t sequence[RIG_TOKENS], n = request->n;
    uint32_t prompt = request->prompt_length ? request->prompt_length : n;
    char bytes[RIG_TOKENS]; /* of the answer; every token is one byte */
    struct params standard;
    const struct params *p = request->params ? request->params : &standard;
    uint64_t allowed[(FAKE_VOCAB + 63) / 64], *mask = NULL;
    struct reference grammar;

    params_default(&standard);
    *ret = (struct rig_answer){0};
    memcpy(sequence, request->tokens, n * sizeof(*sequence));
    for (uint32_t i = prompt; i < n; i++)
        bytes[i - prompt] = (char)(sequence[i] - FAKE_BYTES);
    if (n > prompt)
        ret->reason = token_ends(p, sequence[n - 1], bytes, n - prompt);
    if (p->grammar_bytes > 0) {
        int rc = reference_open(&grammar, (const char *)p->grammar, p->grammar_bytes);
        RIG_CHECK(rc == 0, "the grammar does not parse");
        mask = allowed;
    }
    while (!ret->reason) {
        if (mask && find_allowed(&grammar, bytes, n - prompt, mask) == 0) {
            ret->reason = DONE_EOS;
            break;
        }
        if (n >= rig->desc.context || n - prompt >= request->max_tokens) {
            ret->reason = DONE_LENGTH;
            break;
        }
        uint32_t token = fake_allowed(fake_next(&rig->fake, sequence, n, p->seed), mask);
        if (token == FAKE_END) {
            ret->reason = DONE_EOS;
            break;
        }
        bytes[n - prompt] = (char)(token - FAKE_BYTES);
        sequence[n++] = ret->tokens[ret->n++] = token;
        ret->reason = token_ends(p, token, bytes, n - prompt);
    }
    if (mask)
        reference_close(&grammar);
}

bool rig_same(const struct rig *rig, const struct rig_request *request,
              const struct rig_answer *got)
{
    struct rig_answer want;
    uint32_t same = 0,
             known = request->n - (request->prompt_length ? request->prompt_length : request->n);

    rig_alone(rig, request, &want);
    while (same < want.n && same < got->n && want.tokens[same] == got->tokens[same])
        same++;
    if (same == want.n && same == got->n && want.reason == got->reason &&
        got->done.output == known + want.n)
        return true;
    fprintf(stderr,
            "answer of %u tokens, reason %d (counted %u), alone %u tokens, reason %d; equal up to "
            "%u: %s\n",
            got->n, got->reason, got->done.output, want.n, want.reason, same, got->done.text);
    return false;
}

/* A page of the cache as its slot sees it. */
static void check_shared_page(const struct engine *engine, const struct slot *slot, uint32_t i)
{
    uint32_t id = slot->pages[i];
    const struct prefix_page *page = &engine->prefix.pages[id];

    RIG_CHECK(page->cached && page->uid == slot->uid, "page %u is not for this slot", id);
    RIG_CHECK(page->parent == (i ? slot->pages[i - 1] : PAGE_NONE), "page %u's parent", id);
    RIG_CHECK(!memcmp(page->tokens, slot->tokens + (size_t)i * PREFIX_TOKENS, sizeof(page->tokens)),
              "page %u holds other tokens", id);
}

/* A slot's pages: first those in the cache, which hold its tokens, user's and position's, then its
 * own. Counts the holders of the former. */
/* NOLINTNEXTLINE(readability-function-size): checks are macros, and count as nesting */
static void check_slot_pages(const struct engine *engine, const struct slot *slot, uint8_t *seen,
                             uint32_t *held)
{
    uint32_t full = slot->spec.canonical / KV_PAGE_POSITIONS;

    RIG_CHECK(slot->n_shared == (prefix_shares(slot->uid) ? full : 0),
              "%u pages are shared, %u are canonical", slot->n_shared, full);
    for (uint32_t i = 0; i < slot->n_pages; i++) {
        uint32_t id = slot->pages[i];
        if (i < slot->n_shared) {
            held[id]++;
            check_shared_page(engine, slot, i);
        } else {
            RIG_CHECK(seen[id]++ == 0, "page %u has two owners", id);
        }
    }
}

/* A page of the cache as the device sees it. */
static void check_cached_page(const struct rig *rig, uint32_t id)
{
    const struct prefix *prefix = &rig->engine->prefix;
    const struct prefix_page *page = &prefix->pages[id];

    RIG_CHECK(prefix_find(prefix, page->uid, page->parent, page->tokens) == id,
              "page %u is not found", id);
    for (uint32_t k = 0; k < PREFIX_TOKENS; k++)
        RIG_CHECK(rig->fake.kv[id * PREFIX_TOKENS + k] == page->tokens[k] + 1,
                  "page %u was written to", id);
    RIG_CHECK(page->parent == PAGE_NONE || prefix->pages[page->parent].cached,
              "page %u lost its parent", id);
}

/* The cache: what it says of its pages is what slots hold, and what the device's memory has. */
static void check_cache(const struct rig *rig, uint8_t *seen, const uint32_t *held)
{
    const struct prefix *prefix = &rig->engine->prefix;
    uint32_t cached = 0, idle = 0, listed = 0;

    for (uint32_t i = 0; i < rig->engine->pool.total; i++) {
        const struct prefix_page *page = &prefix->pages[i];
        RIG_CHECK(held[i] == (page->cached ? page->held : 0), "page %u is held by %u", i, held[i]);
        if (!page->cached)
            continue;
        cached++;
        idle += page->held == 0;
        seen[i]++;
        check_cached_page(rig, i);
    }
    for (uint32_t i = prefix->oldest; i != PAGE_NONE; i = prefix->pages[i].newer)
        RIG_CHECK(prefix->pages[i].held == 0 && ++listed <= cached, "the list of idle pages");
    RIG_CHECK(cached == prefix->n_cached && idle == prefix->n_idle && listed == idle,
              "%u cached of %u, %u idle of %u, %u in the list", cached, prefix->n_cached, idle,
              prefix->n_idle, listed);
}

/* The draft model's pages: free, or in one slot's table, which holds what it says. */
static void check_draft_pages(const struct rig *rig)
{
    const struct engine *engine = rig->engine;
    const struct pages *pool = &engine->drafters[DRAFTER_MODEL].pool;
    uint8_t seen[4096] = {0};

    for (uint32_t i = 0; i < pool->n_free; i++)
        seen[pool->free[i]]++;
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        const struct slot *slot = &engine->slots[i];
        const struct draft_kv *kv = &slot->draft_kv;
        for (uint32_t k = 0; k < kv->n_pages; k++)
            seen[kv->pages[k]]++;
        RIG_CHECK(kv->computed <= slot->spec.accepted + slot->spec.drafted, "slot %u", i);
        for (uint32_t k = 0; k < kv->computed; k++)
            RIG_CHECK((rig->draft.kv[kv->pages[k / KV_PAGE_POSITIONS] * KV_PAGE_POSITIONS +
                                     k % KV_PAGE_POSITIONS] &
                       ~FAKE_MARK) == slot->tokens[k] + 1,
                      "slot %u: the draft model has another token at %u", i, k);
    }
    for (uint32_t i = 0; i < pool->total; i++)
        RIG_CHECK(seen[i] == 1, "page %u of the draft model is %u times there", i, seen[i]);
}

void rig_check(const struct rig *rig)
{
    const struct engine *engine = rig->engine;
    uint8_t seen[4096] = {0};
    uint32_t held[4096] = {0};
    uint32_t active = 0, paused = 0;

    RIG_CHECK(engine->pool.total <= sizeof(seen), "a rig has at most 4096 pages");
    for (uint32_t i = 0; i < engine->pool.n_free; i++)
        RIG_CHECK(seen[engine->pool.free[i]]++ == 0, "page %u is free twice", engine->pool.free[i]);
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        const struct slot *slot = &engine->slots[i];
        check_slot_pages(engine, slot, seen, held);
        RIG_CHECK(spec_valid(&slot->spec), "slot %u", i);
        RIG_CHECK(kv_pages(slot->spec.canonical) <= slot->n_pages, "slot %u lost pages", i);
        RIG_CHECK(!slot->active || slot->client, "slot %u runs for nobody", i);
        RIG_CHECK(slot->client || slot->name[0] || slot->n_pages == 0,
                  "slot %u is free, with pages", i);
        active += slot->active;
        paused += slot->active && slot->paused;
    }
    check_cache(rig, seen, held);
    check_draft_pages(rig);
    for (uint32_t i = 0; i < engine->pool.total; i++)
        RIG_CHECK(seen[i] == 1, "page %u is nowhere", i);
    RIG_CHECK(active == engine->n_active && paused == engine->n_paused,
              "%u active of %u, %u paused of %u", active, engine->n_active, paused,
              engine->n_paused);
}

void rig_end(struct rig *rig, struct rig_client *clients, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (clients[i].client)
            rig_detach(rig, &clients[i]);
    for (uint32_t i = 0; i < rig->engine->options.n_slots; i++)
        slot_evict(&rig->engine->slots[i], &rig->engine->prefix);
    rig_check(rig);
    RIG_CHECK(prefix_spare(&rig->engine->prefix) == rig->engine->pool.total, "%u pages are spare",
              prefix_spare(&rig->engine->prefix));
    rig_close(rig);
    memset(clients, 0, n * sizeof(*clients));
}

void rig_tokens(uint32_t *tokens, uint32_t n, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;

    for (uint32_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = FAKE_BYTES + (uint32_t)(state >> 33) % 256;
    }
}
