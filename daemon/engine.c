/* The engine thread: its loop, its sleep, and which clients it serves. */
#include "daemon/engine_impl.h"

#include "ipc/bell.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t RESCAN_NS = 1000000000;
static const uint64_t RESCAN_GRACE_NS = 2000000;

/* For masks of grammars in one step: a third of a millisecond, where a pass of a model that is worth
 * a grammar takes some. */
static const int64_t GRAMMAR_STEP = GRAMMAR_MILLISECOND / 3;

/* ---- clients ----------------------------------------------------------------------------------
 */

static void engine_post(struct engine *engine, enum mail_kind kind, struct client *client,
                        int error)
{
    struct mail mail = {.kind = (uint16_t)kind, .error = error, .clients = {client}};
    bool posted = mailbox_post(engine->options.outbox, &mail);

    /* Sized for every message that can be on its way at once (mailbox.h). */
    assert(posted);
    (void)posted;
    mailbox_ring(engine->options.outbox);
}

void engine_close_client(struct engine *engine, struct client *client, int error)
{
    if (client->closing)
        return;
    client->closing = true;
    counters_add(engine->options.ctl, error == -EFAULT ? COUNTER_SIGBUS : COUNTER_PROTOCOL_ERRORS,
                 1);
    for (uint32_t i = 0; i < client->n_slots; i++)
        if (client->slots[i]->active)
            answer_end(engine, client->slots[i], DONE_ERROR, error, "");
    engine_post(engine, MAIL_CLOSE, client, error);
}

/* A slot for the client: its own parked one, else a free one, else the parked one unused the
 * longest. */
static struct slot *engine_find_slot(struct engine *engine, const struct client *client,
                                     const char *name)
{
    struct slot *parked = NULL, *free_slot = NULL;

    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->client)
            continue;
        if (!slot->name[0])
            free_slot = free_slot ? free_slot : slot;
        else if (name[0] && slot->uid == client->uid && !strcmp(slot->name, name))
            return slot;
        else if (!parked || slot->last_used < parked->last_used)
            parked = slot;
    }
    if (free_slot)
        return free_slot;
    assert(parked); /* the control thread admits no more clients than there are slots */
    draft_forget(engine, parked);
    slot_clear(parked, &engine->prefix, engine->context);
    return parked;
}

void engine_listen(struct engine *engine, struct client *client)
{
    client->idle_rings = 0;
    if (!client->bell_polled && engine->loop)
        client->bell_polled =
            loop_add_poll(engine->loop, client->bell_fd, POLLIN, (uintptr_t)client) == 0;
}

static void engine_attach(struct engine *engine, struct client *client)
{
    const struct segment *segment = &client->segment;

    segment_submit_reader(segment, &client->submit);
    bell_waker_init(&client->waker, &segment_up_head(segment)->waiting,
                    &segment_down_head(segment)->wake, client->notify_fd);
    for (uint32_t i = 0; i < client->n_slots; i++) {
        const char *name = i == 0 ? client->name : "";
        struct slot *slot = engine_find_slot(engine, client, name);
        slot->client = client;
        slot->ring = i;
        slot->uid = client->uid;
        slot->same = 0;
        snprintf(slot->name, sizeof(slot->name), "%s", name);
        client->slots[i] = slot;
        segment_event_writer(segment, i, &client->events[i]);
    }
    engine->clients[engine->n_clients++] = client;
    engine_listen(engine, client);
}

static void engine_gauges(struct engine *engine);

static void engine_detach(struct engine *engine, struct client *client)
{
    for (uint32_t i = 0; i < client->n_slots; i++) {
        struct slot *slot = client->slots[i];
        if (slot->active)
            answer_end(engine, slot, DONE_CANCELLED, 0, "");
        slot->client = NULL;
        if (slot->name[0])
            continue;
        draft_forget(engine, slot);
        slot_clear(slot, &engine->prefix, engine->context);
    }
    if (client->bell_polled)
        loop_remove(engine->loop, client->bell_fd, (uintptr_t)client);
    for (uint32_t i = 0; i < engine->n_clients; i++)
        if (engine->clients[i] == client)
            engine->clients[i] = engine->clients[--engine->n_clients];
    engine_gauges(engine); /* who sees that the client is gone sees its slots and pages free */
    engine_post(engine, MAIL_DETACHED, client, 0);
}

static void engine_stop(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->options.n_slots; i++)
        if (engine->slots[i].active)
            answer_end(engine, &engine->slots[i], DONE_ERROR, -ESHUTDOWN,
                       "the daemon is stopping: try again when it is back");
    engine->stopping = true;
}

static uint32_t engine_mail(struct engine *engine)
{
    struct mail mail;
    uint32_t taken = 0;

    while (mailbox_take(engine->options.inbox, &mail)) {
        taken++;
        if (mail.kind == MAIL_ATTACH)
            engine_attach(engine, mail.clients[0]);
        else if (mail.kind == MAIL_DETACH)
            engine_detach(engine, mail.clients[0]);
        else if (mail.kind == MAIL_STOP)
            engine_stop(engine);
    }
    return taken;
}

/* ---- waking -----------------------------------------------------------------------------------
 */

static void engine_wake(struct engine *engine, const struct engine_due *due)
{
    client_wake(due->client, due->way);
    counters_add(engine->options.ctl, COUNTER_WAKES, 1);
}

/* Hands up to MAIL_WAKES sleepers to the control thread. Returns how many it took. Clients decide
 * how often they are woken: the place of each client's MAIL_CLOSE and MAIL_DETACHED, and of
 * MAIL_STOPPED, is not for wakes. */
static uint32_t engine_hand_off(struct engine *engine, const struct engine_due *due, uint32_t n)
{
    struct mail mail = {.kind = MAIL_WAKE, .n_wakes = (uint16_t)(n < MAIL_WAKES ? n : MAIL_WAKES)};

    if (mailbox_room(engine->options.outbox) <= 2 * engine->options.n_clients + 1)
        return 0;
    for (uint32_t i = 0; i < mail.n_wakes; i++) {
        mail.clients[i] = due[i].client;
        mail.ways |= (uint32_t)due[i].way << i;
    }
    if (!mailbox_post(engine->options.outbox, &mail))
        return 0;
    counters_add(engine->options.ctl, COUNTER_WAKE_HANDOFFS, mail.n_wakes);
    return mail.n_wakes;
}

/* S2, once a step: wakes whoever sleeps. While passes follow each other the control thread makes
 * the system calls, at one ring of its bell a step; a single sleeper costs no more than that ring
 * would. */
static void engine_wake_all(struct engine *engine)
{
    uint32_t n = 0, done = 0;

    engine->fence_due = false;
    bell_fence();
    for (uint32_t i = 0; i < engine->n_clients; i++) {
        int way = bell_due(&engine->clients[i]->waker);
        if (way != BELL_NONE)
            engine->due[n++] = (struct engine_due){engine->clients[i], way};
    }
    if (n > 1 && engine->n_active > engine->n_paused) {
        for (uint32_t took = 1; done < n && took; done += took)
            took = engine_hand_off(engine, engine->due + done, n - done);
        mailbox_ring(engine->options.outbox);
    }
    for (; done < n; done++)
        engine_wake(engine, &engine->due[done]);
}

/* ---- the step ---------------------------------------------------------------------------------
 */

static void engine_gauges(struct engine *engine)
{
    struct ctl *ctl = engine->options.ctl;
    uint32_t used = 0, waiting = 0;

    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        used += engine->slots[i].client != NULL;
        waiting +=
            engine->slots[i].active && (engine->slots[i].waiting || engine->slots[i].follows);
    }
    counters_set(ctl, COUNTER_SLOTS_WAITING, waiting);
    counters_set(ctl, COUNTER_SLOTS_USED, used);
    counters_set(ctl, COUNTER_SLOTS_ACTIVE, engine->n_active);
    counters_set(ctl, COUNTER_SLOTS_PAUSED, engine->n_paused);
    counters_set(ctl, COUNTER_DECODE_NS, (uint64_t)engine->cost.pass_ns);
    counters_set(ctl, COUNTER_WINDOW_ROW_NS, (uint64_t)engine->cost.row_ns);
    for (int k = 0; k < DRAFTERS; k++) /* the one that auto would take */
        if (engine->drafters[DRAFTERS - 1 - k].ops)
            counters_set(ctl, COUNTER_DRAFT_NS,
                         (uint64_t)engine->drafters[DRAFTERS - 1 - k].window.cost.pass_ns);
    counters_set(ctl, COUNTER_PAGES_TOTAL, engine->pool.total);
    counters_set(ctl, COUNTER_PAGES_FREE, prefix_spare(&engine->prefix));
    counters_set(ctl, COUNTER_PAGES_CACHED, engine->prefix.n_idle);
    counters_set(ctl, COUNTER_KV_BYTES,
                 (uint64_t)(engine->pool.total - prefix_spare(&engine->prefix)) *
                     engine->options.resident->info.page_bytes);
}

uint32_t engine_step(struct engine *engine)
{
    uint32_t work = 0;

    if (mailbox_ready(engine->options.inbox))
        work += engine_mail(engine);
    for (uint32_t i = 0; i < engine->n_clients; i++) {
        struct client *client = engine->clients[i];
        if (!ingest_ready(client))
            continue;
        engine->now_ns = engine->options.now_ns();
        work += ingest_client(engine, client);
    }
    if (engine->n_active > 0) {
        engine->now_ns = engine->options.now_ns();
        work += pass_step(engine);
    }
    if (engine->fence_due) { /* also when all there was to do was to end something */
        engine_wake_all(engine);
        work++;
    }
    if (work) {
        bell_daemon_pulse(engine->options.ctl, engine->now_ns, engine->step_ns);
        engine_gauges(engine);
    }
    return work;
}

bool engine_look(const struct engine *engine)
{
    if (mailbox_ready(engine->options.inbox))
        return true;
    for (uint32_t i = 0; i < engine->n_clients; i++)
        if (ingest_ready(engine->clients[i]))
            return true;
    for (uint32_t i = 0; i < engine->options.n_slots && engine->n_active > 0; i++)
        if (engine->slots[i].active && pass_runnable(&engine->slots[i]))
            return true;
    return false;
}

/* ---- sleeping ---------------------------------------------------------------------------------
 */

/* Does the client wait for an answer? Then it also rings for the events it has read. */
static bool engine_client_active(const struct client *client)
{
    for (uint32_t i = 0; i < client->n_slots; i++)
        if (client->slots[i]->active)
            return true;
    return false;
}

/* A bell that rings on and on for nothing is not listened to any more: that client is served by
 * scan. */
static void engine_idle_ring(struct engine *engine, struct client *client)
{
    if (ingest_ready(client) || engine_client_active(client) || !client->bell_polled ||
        ++client->idle_rings < IDLE_RINGS_MAX)
        return;
    loop_remove(engine->loop, client->bell_fd, (uintptr_t)client);
    client->bell_polled = false;
}

static void engine_tidy_pool(struct engine *engine, const struct resident *resident,
                             struct pages *pool)
{
    uint32_t page;

    while (resident->ops->release_page && !engine_look(engine) &&
           (page = pages_clean(pool)) != PAGE_NONE)
        resident->ops->release_page(resident->backend, page);
}

void engine_tidy(struct engine *engine)
{
    const struct resident *resident = engine->options.resident;

    engine_tidy_pool(engine, resident, &engine->pool);
    if (resident->draft)
        engine_tidy_pool(engine, resident->draft, &engine->drafters[DRAFTER_MODEL].pool);
}

/* The clock ran out: look at everything. Work that no bell announces within a moment was missed,
 * which must never happen; it is served all the same. */
static void engine_rescan(struct engine *engine)
{
    struct loop_event event;

    counters_add(engine->options.ctl, COUNTER_RESCANS, 1);
    if (engine_look(engine) && loop_wait(engine->loop, (int64_t)RESCAN_GRACE_NS, &event, 1) == 0)
        counters_add(engine->options.ctl, COUNTER_RESCANS_FOUND, 1);
}

/* S1: announce, look once more, block. */
static int engine_sleep(struct engine *engine)
{
    struct ctl *ctl = engine->options.ctl;
    struct loop_event events[64];
    int n = 0;

    bell_daemon_sleep(ctl);
    if (engine_look(engine)) {
        bell_daemon_awake(ctl);
        return 0;
    }
    bool rescan = engine->options.rescan && engine->n_clients > 0;
    if (engine->n_clients == 0)
        engine_tidy(engine); /* nothing will wake it for that later */
    uint64_t slept_ns = engine->options.now_ns();
    n = loop_wait(engine->loop, rescan ? (int64_t)RESCAN_NS : -1, events, 64);
    bell_daemon_awake(ctl);
    counters_add(ctl, COUNTER_ENGINE_WAKEUPS, 1);
    for (int i = 0; i < n; i++)
        if (events[i].cookie != 0)
            engine_idle_ring(engine, (struct client *)(uintptr_t)events[i].cookie);
    if (n == 0 && rescan && engine->options.now_ns() - slept_ns >= RESCAN_NS) {
        engine_rescan(engine);
        engine_tidy(engine);
    }
    return n < 0 ? n : 0;
}

static int engine_loop_look(struct engine *engine)
{
    struct loop_event events[64];
    int n =
        loop_wait(engine->loop, 0, events, 64); /* what they announce is seen by the next step */

    return n < 0 ? n : 0;
}

/* Turns steps until it is told to stop. Spins for the linger after the last work, then sleeps. */
static int engine_turn(struct engine *engine)
{
    uint64_t worked_ns = engine->options.now_ns();
    uint32_t idle = 0, busy = 0;
    int rc = 0;

    while (!engine->stopping && !engine->failed && rc == 0) {
        if (engine_step(engine)) {
            worked_ns = engine->now_ns;
            idle = 0;
            /* A loop that is never asked keeps the remains of bells that were removed. */
            if (++busy % BUSY_STEPS == 0)
                rc = engine_loop_look(engine);
            continue;
        }
        if (++idle % 16 != 0)
            continue; /* the clock costs more than a look at the rings */
        uint64_t now = engine->options.now_ns();
        if (worked_ns > now)
            worked_ns = now;
        if (now - worked_ns >= engine->options.linger_ns)
            rc = engine_sleep(engine);
    }
    return rc ? rc : engine->failed;
}

int engine_run(struct engine *engine)
{
    int rc = loop_open(&engine->loop, engine->options.loop);

    if (rc == 0)
        rc = loop_add_poll(engine->loop, engine->options.inbox->event_fd, POLLIN, 0);
    if (rc == 0)
        rc = engine_turn(engine);
    engine_stop(engine);
    engine_wake_all(engine);
    engine_post(engine, MAIL_STOPPED, NULL, rc);
    return rc;
}

const char *engine_loop_name(const struct engine *engine)
{
    return engine->loop ? loop_name(engine->loop) : "";
}

/* ---- making it --------------------------------------------------------------------------------
 */

static int engine_alloc_slots(struct engine *engine)
{
    const struct engine_options *options = &engine->options;
    int rc = 0;

    engine->slots = calloc(options->n_slots, sizeof(*engine->slots));
    if (!engine->slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < options->n_slots && rc == 0; i++) {
        rc = slot_init(&engine->slots[i], engine->context);
        if (rc == 0)
            rc = request_init(engine->slots[i].request, options->params_bytes);
    }
    return rc;
}

/* What KV depends on besides its tokens: pages of another model or numerics are never found. */
static int engine_alloc_prefix(struct engine *engine)
{
    const struct resident *resident = engine->options.resident;
    struct {
        uint8_t fingerprint[MODEL_FINGERPRINT_BYTES];
        char numerics[64];
    } seed = {0};

    memcpy(seed.fingerprint, resident->fingerprint, sizeof(seed.fingerprint));
    snprintf(seed.numerics, sizeof(seed.numerics), "%s", resident->info.numerics);
    return prefix_init(&engine->prefix, &engine->pool, &seed, sizeof(seed));
}

static int engine_alloc(struct engine *engine)
{
    const struct engine_options *options = &engine->options;
    const struct backend_limits *limits = &options->resident->limits;
    size_t n_slots = options->n_slots, n_rows = limits->rows;

    engine->clients = calloc(options->n_clients, sizeof(*engine->clients));
    engine->due = calloc(options->n_clients, sizeof(*engine->due));
    engine->plan = calloc(n_slots, sizeof(*engine->plan));
    engine->candidates = calloc(n_slots, sizeof(*engine->candidates));
    engine->order = calloc(n_slots, sizeof(*engine->order));
    engine->sequences = calloc(n_slots, sizeof(*engine->sequences));
    engine->rows = calloc(n_rows, sizeof(*engine->rows));
    engine->results = calloc(n_rows, sizeof(*engine->results));
    engine->picks = calloc(n_rows, sizeof(*engine->picks));
    engine->draft_picks = calloc(n_slots, sizeof(*engine->draft_picks));
    engine->shares = calloc(n_slots, sizeof(*engine->shares));
    engine->mosts = calloc(n_slots, sizeof(*engine->mosts));
    engine->arena = calloc(limits->context, sizeof(*engine->arena));
    engine->block = calloc(1, options->params_bytes);
    if (!engine->clients || !engine->due || !engine->plan || !engine->candidates ||
        !engine->order || !engine->sequences || !engine->rows || !engine->results ||
        !engine->picks || !engine->draft_picks || !engine->shares || !engine->mosts ||
        !engine->arena || !engine->block ||
        grammars_init(&engine->grammars, options->resident->grammar_vocab, options->n_slots) < 0 ||
        drafters_init(engine) < 0 || pages_init(&engine->pool, limits->pages) < 0 ||
        engine_alloc_prefix(engine) < 0)
        return -ENOMEM;
    return engine_alloc_slots(engine);
}

int engine_open(struct engine **ret_engine, const struct engine_options *options, char *err,
                size_t err_bytes)
{
    struct engine *engine = calloc(1, sizeof(*engine));

    if (engine) {
        engine->options = *options;
        engine->grammar_step = GRAMMAR_STEP;
        engine->vocab = &options->resident->vocab;
        engine->n_vocab = options->resident->model->n_vocab;
        engine->context = options->resident->limits.context;
        if (engine_alloc(engine) == 0) {
            engine_gauges(engine);
            *ret_engine = engine;
            return 0;
        }
    }
    engine_close(engine);
    snprintf(err, err_bytes, "not enough memory for %u slots: lower --slots or --context",
             options->n_slots);
    return -ENOMEM;
}

void engine_close(struct engine *engine)
{
    if (!engine)
        return;
    for (uint32_t i = 0; engine->slots && i < engine->options.n_slots; i++) {
        if (engine->slots[i].request) {
            constrain_end(engine, &engine->slots[i]);
            request_fini(engine->slots[i].request);
        }
        slot_fini(&engine->slots[i], engine->context);
    }
    prefix_fini(&engine->prefix);
    grammars_fini(&engine->grammars);
    drafters_fini(engine);
    pages_fini(&engine->pool);
    loop_close(engine->loop);
    free(engine->slots);
    free(engine->clients);
    free(engine->due);
    free(engine->plan);
    free(engine->candidates);
    free(engine->order);
    free(engine->sequences);
    free(engine->rows);
    free(engine->results);
    free(engine->picks);
    free(engine->draft_picks);
    free(engine->shares);
    free(engine->mosts);
    free(engine->arena);
    free(engine->block);
    free(engine);
}
