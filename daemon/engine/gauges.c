/* One sweep over the slots, one store a counter. */
#include "daemon/engine/gauges.h"

#include "daemon/engine/state.h"
#include "ipc/counters.h"

static void set_states(const struct engine *engine, struct ctl *ctl)
{
    const struct kv *kv = &engine->slots.kv;
    counters_set(ctl, COUNTER_STATES_TOTAL, kv->states.total);
    counters_set(ctl, COUNTER_STATES_FREE, kv->states.n_free + kv->prefix.points.n);
    counters_set(ctl, COUNTER_RESTART_POINTS, kv->prefix.points.n);
}

static void set_windows(const struct engine *engine, struct ctl *ctl)
{
    const struct kv *kv = &engine->slots.kv;
    counters_set(ctl, COUNTER_WINDOW_PAGES_TOTAL, kv->windows.total);
    counters_set(ctl, COUNTER_WINDOW_PAGES_FREE, prefix_spare_windows(&kv->prefix));
    counters_set(ctl, COUNTER_WINDOW_PAGES_CACHED, kv->prefix.passed.n + kv->prefix.resting.n);
}

void gauges_set(const struct engine *engine)
{
    struct ctl *ctl = engine->options.ctl;
    const struct kv *kv = &engine->slots.kv;
    uint32_t used = 0, waiting = engine->slots.n_active ? engine->batch.n_following : 0;
    for (uint32_t i = 0; i < engine->slots.n; i++) {
        used += engine->slots.all[i].client != NULL;
        waiting += engine->slots.all[i].state == SLOT_WAITING;
    }
    counters_set(ctl, COUNTER_SLOTS_WAITING, waiting);
    counters_set(ctl, COUNTER_SLOTS_USED, used);
    counters_set(ctl, COUNTER_SLOTS_ACTIVE, engine->slots.n_active);
    counters_set(ctl, COUNTER_SLOTS_PAUSED, engine->slots.n_paused);
    counters_set(ctl, COUNTER_DECODE_NS, (uint64_t)engine->cost.decode.pass_ns);
    counters_set(ctl, COUNTER_WINDOW_ROW_NS, (uint64_t)engine->cost.decode.row_ns);
    for (int k = 0; k < DRAFTERS; k++) /* the one that auto would take */
        if (engine->drafters.all[DRAFTERS - 1 - k].ops)
            counters_set(ctl, COUNTER_DRAFT_NS,
                         (uint64_t)engine->drafters.all[DRAFTERS - 1 - k].window.cost.pass_ns);
    counters_set(ctl, COUNTER_PAGES_TOTAL, kv->pool.total);
    counters_set(ctl, COUNTER_PAGES_FREE, prefix_spare(&kv->prefix));
    counters_set(ctl, COUNTER_PAGES_CACHED, kv->prefix.idle.n);
    set_windows(engine, ctl);
    set_states(engine, ctl);
    const struct backend_info *info = &engine->options.loaded->info;
    uint64_t pages = kv->pool.total - prefix_spare(&kv->prefix),
             windows = kv->windows.total - prefix_spare_windows(&kv->prefix),
             states = kv->states.total - kv->states.n_free - kv->prefix.points.n;
    counters_set(ctl, COUNTER_KV_BYTES,
                 pages * info->page_bytes + windows * info->window_page_bytes +
                     states * (info->state_bytes + info->record_bytes));
}
