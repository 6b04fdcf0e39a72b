/* The engine thread: its step, its sleep, its turns of both. */
#include "daemon/engine/engine_impl.h"

#include "ipc/bell.h"

#include <poll.h>

static const uint64_t RESCAN_NS = 1000000000;
static const uint64_t RESCAN_GRACE_NS = 2000000;

void engine_gauges(struct engine *engine)
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
    counters_set(ctl, COUNTER_DECODE_NS, (uint64_t)engine->cost.decode.pass_ns);
    counters_set(ctl, COUNTER_WINDOW_ROW_NS, (uint64_t)engine->cost.decode.row_ns);
    for (int k = 0; k < DRAFTERS; k++) /* the one that auto would take */
        if (engine->drafters[DRAFTERS - 1 - k].ops)
            counters_set(ctl, COUNTER_DRAFT_NS,
                         (uint64_t)engine->drafters[DRAFTERS - 1 - k].window.cost.pass_ns);
    counters_set(ctl, COUNTER_PAGES_TOTAL, engine->pool.total);
    counters_set(ctl, COUNTER_PAGES_FREE, prefix_spare(&engine->prefix));
    counters_set(ctl, COUNTER_PAGES_CACHED, engine->prefix.n_idle);
    counters_set(ctl, COUNTER_KV_BYTES,
                 (uint64_t)(engine->pool.total - prefix_spare(&engine->prefix)) *
                     engine->options.loaded->info.page_bytes);
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
        bell_daemon_pulse(engine->options.ctl, engine->now_ns, engine->cost.step_ns);
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

static void engine_tidy_pool(struct engine *engine, const struct loaded_model *loaded,
                             struct pages *pool)
{
    uint32_t page;

    while (loaded->ops->release_page && !engine_look(engine) &&
           (page = pages_clean(pool)) != PAGE_NONE)
        loaded->ops->release_page(loaded->backend, page);
}

void engine_tidy(struct engine *engine)
{
    const struct loaded_model *loaded = engine->options.loaded;

    engine_tidy_pool(engine, loaded, &engine->pool);
    if (loaded->draft)
        engine_tidy_pool(engine, loaded->draft, &engine->drafters[DRAFTER_MODEL].pool);
}

/* The clock ran out: look at everything, still announced as asleep, so that whoever comes meanwhile rings.
 * Work that no bell announces within a moment was missed, which must never happen; it is served all the
 * same. */
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
    bool rescans = n == 0 && rescan && engine->options.now_ns() - slept_ns >= RESCAN_NS;
    if (rescans)
        engine_rescan(engine);
    bell_daemon_awake(ctl);
    counters_add(ctl, COUNTER_ENGINE_WAKEUPS, 1);
    for (int i = 0; i < n; i++)
        if (events[i].cookie != 0)
            engine_idle_ring(engine, (struct client *)(uintptr_t)events[i].cookie);
    if (rescans)
        engine_tidy(engine);
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
