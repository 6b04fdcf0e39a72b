/* The engine thread: its step, its sleep, and the loop around both. */
#include "daemon/engine/engine.h"

#include "daemon/engine/attached.h"
#include "daemon/engine/gauges.h"
#include "daemon/engine/ingest.h"
#include "daemon/engine/pass.h"
#include "daemon/engine/state.h"
#include "ipc/bell.h"
#include "ipc/counters.h"

#include <poll.h>

enum { BUSY_STEPS = 4096 }; /* steps in a row after which the loop is looked at, too */

static const uint64_t RESCAN_NS = 1000000000;
static const uint64_t RESCAN_GRACE_NS = 2000000;
/* For what is warm to go to the store: far below the 90 s after which systemd kills, some GB. */
static const uint64_t STOP_NS = 10000000000;

uint32_t engine_step(struct engine *engine)
{
    uint32_t work = pass_step(engine);
    if (work) {
        bell_daemon_pulse(engine->options.ctl, engine->clock.now_ns, engine->cost.step_ns);
        gauges_slots(&engine->slots, &engine->options.loaded->info, engine->options.ctl);
        gauges_costs(&engine->cost, &engine->drafters, engine->options.ctl);
        stored_count(&engine->fetches.stored);
    }
    return work;
}

bool engine_look(const struct engine *engine)
{
    if (mailbox_ready(engine->clients.inbox) || engine->clients.n_failed > 0 ||
        grammars_look(&engine->constrain.grammars) || fetches_look(&engine->fetches))
        return true;
    for (uint32_t i = 0; i < engine->clients.n; i++)
        if (ingest_ready(engine->clients.all[i]))
            return true;
    for (uint32_t i = 0; i < engine->slots.n && engine->slots.n_active > 0; i++)
        if (engine->slots.all[i].state != SLOT_IDLE && pass_runnable(&engine->slots.all[i]))
            return true;
    return false;
}

/* ---- sleeping -------------------------------------------------------------------------------- */

/* Does the client wait for an answer? Then it also rings for the events it has read. */
static bool engine_client_active(const struct client *client)
{
    for (uint32_t i = 0; i < client->n_slots; i++)
        if (client->slots[i]->state != SLOT_IDLE)
            return true;
    return false;
}

/* Stops polling a bell that keeps ringing without work: that client is served by scan. */
static void engine_idle_ring(struct loop *loop, struct client *client)
{
    if (ingest_ready(client) || engine_client_active(client) || !client->bell_polled ||
        ++client->idle_rings < IDLE_RINGS_MAX)
        return;
    loop_remove(loop, client->bell_fd, (uintptr_t)client);
    client->bell_polled = false;
}

static void engine_tidy_pool(struct engine *engine, const struct loaded_model *loaded,
                             struct pages *pool, enum page_class class)
{
    uint32_t page;
    while (loaded->ops->release_page && !engine_look(engine) &&
           (page = pages_clean(pool)) != PAGE_NONE)
        loaded->ops->release_page(loaded->backend, class, page);
}

static void engine_tidy_states(struct engine *engine, const struct loaded_model *loaded)
{
    uint32_t state;
    while (loaded->ops->release_state && !engine_look(engine) &&
           (state = pages_clean(&engine->slots.kv.states)) != PAGE_NONE)
        loaded->ops->release_state(loaded->backend, state);
}

void engine_tidy(struct engine *engine)
{
    const struct loaded_model *loaded = engine->options.loaded;
    engine_tidy_states(engine, loaded);
    engine_tidy_pool(engine, loaded, &engine->slots.kv.pool, PAGES_FULL);
    engine_tidy_pool(engine, loaded, &engine->slots.kv.windows, PAGES_WINDOW);
    if (loaded->draft)
        engine_tidy_pool(engine, loaded->draft, &engine->drafters.all[DRAFTER_MODEL].pool,
                         PAGES_FULL);
}

/* Is there work that a bell should have announced? Work of a client that is served by scan does not
 * count: its bell is not polled. */
static bool engine_missed(const struct attached *clients)
{
    if (mailbox_ready(clients->inbox))
        return true;
    for (uint32_t i = 0; i < clients->n; i++) {
        struct client *client = clients->all[i];
        if (client->idle_rings >= IDLE_RINGS_MAX)
            continue;
        if (ingest_ready(client))
            return true;
        for (uint32_t k = 0; k < client->n_slots; k++)
            if (client->slots[k]->state != SLOT_IDLE && pass_runnable(client->slots[k]))
                return true;
    }
    return false;
}

/* The clock ran out: look at everything, still announced as asleep, so that a client that comes
 * meanwhile rings. Work that no bell announces within a moment is counted and served: its client was
 * stopped between submitting and ringing, or a wake-up was lost, which must never happen. */
static void engine_rescan(struct attached *clients)
{
    struct loop_event event;
    counters_add(clients->ctl, COUNTER_RESCANS, 1);
    if (engine_missed(clients) &&
        loop_wait(clients->loop, (int64_t)RESCAN_GRACE_NS, &event, 1) == 0)
        counters_add(clients->ctl, COUNTER_RESCANS_FOUND, 1);
}

/* How long it may sleep: a slot does not wait for a disk for ever, and a grammar until its user has
 * paid for the ones before. -1: until something comes. */
static int64_t engine_sleep_ns(const struct engine *engine, bool rescan)
{
    uint64_t now_ns = engine->clock.now_ns, until_ns = fetches_deadline(&engine->fetches);
    uint64_t paid_ns = grammars_deadline(&engine->constrain.grammars);
    until_ns = paid_ns < until_ns ? paid_ns : until_ns;
    uint64_t most_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    if (rescan && most_ns > RESCAN_NS)
        return (int64_t)RESCAN_NS;
    return until_ns == UINT64_MAX ? -1 : (int64_t)most_ns;
}

/* S1: announce, look once more, block. */
static int engine_sleep(struct engine *engine)
{
    struct attached *clients = &engine->clients;
    struct ctl *ctl = engine->options.ctl;
    struct loop_event events[64];
    int n = 0;
    bell_daemon_sleep(ctl);
    if (engine_look(engine)) {
        bell_daemon_awake(ctl);
        return 0;
    }
    bool rescan = engine->options.rescan && clients->n > 0;
    if (clients->n == 0)
        engine_tidy(engine); /* nothing will wake it for that later */
    uint64_t slept_ns = steady_look(&engine->clock);
    n = loop_wait(clients->loop, engine_sleep_ns(engine, rescan), events, 64);
    bool rescans = n == 0 && rescan && steady_look(&engine->clock) - slept_ns >= RESCAN_NS;
    if (rescans)
        engine_rescan(clients);
    bell_daemon_awake(ctl);
    counters_add(ctl, COUNTER_ENGINE_WAKEUPS, 1);
    for (int i = 0; i < n; i++)
        if (events[i].cookie != 0)
            engine_idle_ring(clients->loop, (struct client *)(uintptr_t)events[i].cookie);
    if (rescans)
        engine_tidy(engine);
    return n < 0 ? n : 0;
}

static int engine_loop_look(struct loop *loop)
{
    struct loop_event events[64];
    int n = loop_wait(loop, 0, events, 64);
    return n < 0 ? n : 0; /* what they announce is seen by the next step */
}

/* Runs steps until told to stop. After the last work it spins for the linger, then sleeps. */
static int engine_turn(struct engine *engine)
{
    uint64_t worked_ns = steady_look(&engine->clock);
    uint32_t idle = 0, busy = 0;
    int rc = 0;
    while (!engine->clients.stopping && !engine->failed && rc == 0) {
        if (engine_step(engine)) {
            worked_ns = engine->clock.now_ns;
            idle = 0;
            /* A loop that is never asked keeps the remains of bells that were removed. */
            if (++busy % BUSY_STEPS == 0)
                rc = engine_loop_look(engine->clients.loop);
            continue;
        }
        if (++idle % 16 != 0)
            continue; /* the clock costs more than a look at the rings */
        if (steady_look(&engine->clock) - worked_ns >= engine->options.linger_ns)
            rc = engine_sleep(engine);
    }
    return rc ? rc : engine->failed;
}

int engine_run(struct engine *engine)
{
    struct attached *clients = &engine->clients;
    int rc = loop_open(&clients->loop, engine->options.loop);
    if (rc == 0)
        rc = loop_add_poll(clients->loop, clients->inbox->event_fd, POLLIN, 0);
    if (rc == 0)
        rc = compiler_open(&engine->constrain.grammars.compiler, clients->inbox);
    if (rc == 0 && engine->options.store)
        rc = loop_add_poll(clients->loop, store_event_fd(engine->options.store), POLLIN, 0);
    if (rc == 0)
        rc = engine_turn(engine);
    compiler_close(&engine->constrain.grammars.compiler);
    attached_stop(clients, &engine->slots, engine->options.loaded, engine->clock.now_ns);
    attached_wake(clients, false, engine->clock.now_ns);
    fetches_stop(&engine->fetches);
    attached_post(clients, MAIL_STOPPED, NULL, rc);
    if (rc == 0)
        stored_stop(&engine->fetches.stored, engine->options.now_ns, STOP_NS);
    return rc;
}

int engine_save_slots(struct engine *engine)
{
    return engine->options.store ? stored_save_slots(&engine->fetches.stored) : 0;
}
