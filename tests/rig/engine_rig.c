/* The engine's surroundings, made small: what it stands on, and the control thread's part. */
#include "tests/rig/engine_rig.h"

#include "daemon/engine/waker.h"
#include "kernels/kv.h"

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
    rc = loaded_vocab_of_grammars(&rig_vocab, FAKE_VOCAB, &rig_grammar_vocab);
    RIG_CHECK(rc == 0, "no memory");
}

/* Nothing takes time: what users owe for it does not depend on the machine. */
static uint64_t rig_cpu(void)
{
    return 0;
}

static void open_engine(struct rig *rig)
{
    char err[200];
    struct engine_options options = {
        .loaded = &rig->loaded,
        .store = rig->store,
        .ctl = rig->ctl,
        .inbox = &rig->inbox,
        .outbox = &rig->outbox,
        .n_slots = rig->desc.slots,
        .n_clients = rig->desc.clients,
        .params_bytes = rig->desc.params_bytes,
        .pass_ns = 1000000000,
        .linger_ns = rig->desc.linger_ns,
        .loop = rig->desc.loop,
        .now_ns = rig->desc.now_ns     ? rig->desc.now_ns
                  : rig->desc.threaded ? bell_now_ns
                                       : rig_now,
        .cpu_ns = rig->desc.cpu_ns     ? rig->desc.cpu_ns
                  : rig->desc.threaded ? waker_cpu_ns
                                       : rig_cpu,
    };
    int rc = engine_open(&rig->engine, &options, err, sizeof(err));

    RIG_CHECK(rc == 0, "%s", err);
    rig->engine->fetches.always = true;
}

static void open_store(struct rig *rig)
{
    const struct backend_info *info = &rig->loaded.info;
    const struct store_options options = {
        .path = rig->desc.store,
        .model = "fake",
        .seed = "fake",
        .seed_bytes = 4,
        .class_bytes = {info->page_bytes, info->window_page_bytes, info->state_bytes},
        .bytes = rig->desc.store_bytes ? rig->desc.store_bytes : 256 << 20,
        .day_bytes = 1ull << 40,
        .min_tokens = rig->desc.store_min,
        .by_hand = true,
        .cut = rig->desc.store_cut};
    char err[600];

    if (rig->desc.store) {
        int rc = store_open(&rig->store, &options, err, sizeof(err));
        RIG_CHECK(rc == 0, "%s", err);
    }
}

/* The proposer that all tests of a rig are to be run with, and what it needs. */
static void choose_proposer(struct rig_desc *d)
{
    const char *name = getenv("HEARTH_RIG_PROPOSER");

    if (d->proposer == PROPOSER_AUTO && name) {
        d->wrong = or_default(d->wrong, 4);
        d->proposer = !strcmp(name, "draft")    ? PROPOSER_DRAFT
                      : !strcmp(name, "shadow") ? PROPOSER_SHADOW
                      : !strcmp(name, "mtp")    ? PROPOSER_MTP
                                                : PROPOSER_NONE;
    }
    if (d->proposer == PROPOSER_SHADOW)
        d->fast = BACKEND_FAST_SHADOW;
    else if (d->proposer == PROPOSER_FAST)
        d->fast = BACKEND_FAST_NATIVE;
    else if (d->proposer == PROPOSER_MTP)
        d->states = or_default(d->states, 2 * d->slots); /* hidden rows lie with states */
    else if (d->proposer == PROPOSER_DRAFT)
        d->draft_pages = or_default(d->draft_pages, d->pages);
    d->draft_context = or_default(d->draft_context, d->context);
}

/* Window pages of one slot: its window, and the rows of a pass. */
static void choose_window(struct rig_desc *d)
{
    const char *window = getenv("HEARTH_RIG_WINDOW");

    if (d->window == 0 && window)
        d->window = (uint32_t)strtoul(window, NULL, 10);
    if (d->window == 0) {
        d->window_pages = 0;
        return;
    }
    uint32_t one = kv_pages(d->window + d->rows) + 1;
    if (one > kv_pages(d->context))
        one = kv_pages(d->context);
    d->window_pages = or_default(d->window_pages, d->pages < d->slots * one ? one : d->slots * one);
}

static void choose_states(struct rig_desc *d)
{
    const char *states = getenv("HEARTH_RIG_STATES");

    if (d->states == 0 && states)
        d->states = (uint32_t)strtoul(states, NULL, 10);
}

/* Every second layer has the window. */
static void open_layers(struct rig *rig)
{
    for (uint32_t i = 0; i < FAKE_LAYERS; i++)
        rig->layers[i].geometry.sliding_window =
            i % 2 || rig->desc.window == 0 ? MODEL_NO_WINDOW : rig->desc.window;
    rig->model.layers = rig->layers;
}

/* The draft model: the same function on a device of its own, which may be wrong now and then. */
static void open_draft(struct rig *rig)
{
    struct loaded_model *draft = &rig->draft_resident;

    if (rig->desc.draft_pages == 0)
        return;
    draft->limits = rig->loaded.limits;
    draft->limits.pages = rig->desc.draft_pages;
    draft->limits.window_pages = 0;
    draft->limits.states = 0;
    draft->limits.context = rig->desc.draft_context;
    RIG_CHECK(fake_init(&rig->draft, &draft->limits) == 0, "no memory");
    rig->draft.fast = BACKEND_FAST_NATIVE;
    rig->draft.wrong = rig->desc.wrong;
    draft->model = &rig->model;
    draft->ops = &fake_ops;
    draft->backend = fake_backend(&rig->draft);
    fake_ops.describe(draft->backend, &draft->info);
    rig->loaded.draft = draft;
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
    d.samples = or_default(d.samples, 16);
    choose_window(&d);
    choose_states(&d);
    d.mail = or_default(d.mail, 64);
    d.params_bytes = or_default(d.params_bytes, RIG_PARAMS_BYTES);
    choose_proposer(&d);
    rig->desc = d;
    rig->loaded.limits = (struct backend_limits){
        .rows = d.rows, .samples = d.samples, .pages = d.pages, .context = d.context, .threads = 1};
    rig->loaded.limits.window_pages = d.window_pages;
    rig->loaded.limits.states = d.states;
    RIG_CHECK(fake_init(&rig->fake, &rig->loaded.limits) == 0, "no memory");
    rig->fake.window = d.window;
    rig->fake.fast = d.fast;
    rig->fake.mtp = d.proposer == PROPOSER_MTP;
    rig->fake.wrong = d.wrong;
    rig->model =
        (struct model){.n_vocab = FAKE_VOCAB, .n_layer = FAKE_LAYERS, .n_context = d.context};
    open_layers(rig);
    rig->loaded.model = &rig->model;
    rig->loaded.ops = &fake_ops;
    rig->loaded.backend = fake_backend(&rig->fake);
    fake_ops.describe(rig->loaded.backend, &rig->loaded.info);
    open_draft(rig);
    open_vocab();
    rig->loaded.vocab = rig_vocab;
    rig->loaded.grammar_vocab = rig_grammar_vocab;
    rig->ctl = aligned_alloc(IPC_PAGE, IPC_PAGE);
    RIG_CHECK(rig->ctl, "no memory");
    memset(rig->ctl, 0, sizeof(*rig->ctl));
    RIG_CHECK(mailbox_init(&rig->inbox, d.mail) == 0, "mailbox");
    RIG_CHECK(mailbox_init(&rig->outbox, d.mail) == 0, "mailbox");
    RIG_CHECK(segment_guard_init() == 0, "guard");
    open_store(rig);
    open_engine(rig);
}

void rig_close(struct rig *rig)
{
    engine_close(rig->engine);
    store_close(rig->store);
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
                                .params_bytes = rig->desc.params_bytes};
    struct client *client = calloc(1, sizeof(*client));
    char err[200] = "";
    int notify[2] = {-1, -1};

    memset(c, 0, sizeof(*c));
    RIG_CHECK(client && n_slots <= RIG_SLOTS, "no memory");
    RIG_CHECK(segment_open(&client->segment, &limits, err, sizeof(err)) == 0, "%s", err);
    RIG_CHECK(segment_map(&c->segment, client->segment.up_fd, client->segment.down_fd, &limits, err,
                          sizeof(err)) == 0,
              "%s", err);
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
    waker_forget(c->client);
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

uint32_t rig_step(struct rig *rig)
{
    uint32_t work = engine_step(rig->engine);

    if (rig->store && !rig->store_stands)
        work += store_work(rig->store, UINT32_MAX);
    return work + compiler_step(&rig->engine->constrain.grammars.compiler);
}

uint32_t rig_run(struct rig *rig, uint32_t most)
{
    uint32_t steps = 0;

    while (rig_step(rig)) {
        rig_check(rig);
        RIG_CHECK(++steps <= most, "still working after %u steps", steps);
    }
    rig_check(rig);
    return steps;
}

static struct rig *stopping;

/* The disk works while time passes. */
static uint64_t stop_now(void)
{
    store_work(stopping->store, UINT32_MAX);
    return rig_now();
}

void rig_stop(struct rig *rig)
{
    stopping = rig;
    fetches_stop(&rig->engine->fetches);
    stored_stop(&rig->engine->fetches.stored, stop_now, 1000000000);
    int rc = engine_save_slots(rig->engine);
    RIG_CHECK(rc == 0, "slots: error %d", rc);
}

void rig_end(struct rig *rig, struct rig_client *clients, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (clients[i].client)
            rig_detach(rig, &clients[i]);
    for (uint32_t i = 0; i < rig->engine->options.n_slots; i++)
        slot_evict(&rig->engine->slots.all[i], &rig->engine->slots.kv.prefix);
    rig_check(rig);
    RIG_CHECK(prefix_spare(&rig->engine->slots.kv.prefix) + rig_reads(rig, STORE_PAGE) ==
                  rig->engine->slots.kv.pool.total,
              "%u pages are spare", prefix_spare(&rig->engine->slots.kv.prefix));
    RIG_CHECK(rig->engine->slots.kv.states.n_free + rig->engine->slots.kv.prefix.points.n +
                      rig_reads(rig, STORE_STATE) ==
                  rig->desc.states,
              "%u states are free", rig->engine->slots.kv.states.n_free);
    rig_close(rig);
    memset(clients, 0, n * sizeof(*clients));
}
