/* One sweep over the slots, one store a counter. */
#include "daemon/engine/gauges.h"

#include "ipc/counters.h"

static void set_pages(const struct kv *kv, const struct backend_info *info, struct ctl *ctl)
{
    const struct prefix *prefix = &kv->prefix;
    uint32_t free_pages = prefix_spare(prefix), free_windows = prefix_spare_windows(prefix);
    uint32_t free_states = kv->states.n_free + prefix->points.n;
    counters_set(ctl, COUNTER_PAGES_TOTAL, kv->pool.total);
    counters_set(ctl, COUNTER_PAGES_FREE, free_pages);
    counters_set(ctl, COUNTER_PAGES_CACHED, prefix->idle.n);
    counters_set(ctl, COUNTER_WINDOW_PAGES_TOTAL, kv->windows.total);
    counters_set(ctl, COUNTER_WINDOW_PAGES_FREE, free_windows);
    counters_set(ctl, COUNTER_WINDOW_PAGES_CACHED, prefix->passed.n + prefix->resting.n);
    counters_set(ctl, COUNTER_STATES_TOTAL, kv->states.total);
    counters_set(ctl, COUNTER_STATES_FREE, free_states);
    counters_set(ctl, COUNTER_RESTART_POINTS, prefix->points.n);
    uint64_t pages = kv->pool.total - free_pages, windows = kv->windows.total - free_windows,
             states = kv->states.total - free_states;
    counters_set(ctl, COUNTER_KV_BYTES,
                 pages * info->page_bytes + windows * info->window_page_bytes +
                     states * (info->state_bytes + info->record_bytes));
}

void gauges_slots(const struct slots *slots, const struct backend_info *info, struct ctl *ctl)
{
    uint32_t used = 0, waiting = slots->n_active ? slots->n_following : 0;
    for (uint32_t i = 0; i < slots->n; i++) {
        used += slots->all[i].client != NULL;
        waiting += slots->all[i].state == SLOT_WAITING;
    }
    counters_set(ctl, COUNTER_SLOTS_WAITING, waiting);
    counters_set(ctl, COUNTER_SLOTS_USED, used);
    counters_set(ctl, COUNTER_SLOTS_ACTIVE, slots->n_active);
    counters_set(ctl, COUNTER_SLOTS_PAUSED, slots->n_paused);
    set_pages(&slots->kv, info, ctl);
}

void gauges_costs(const struct cost *cost, const struct drafters *drafters, struct ctl *ctl)
{
    counters_set(ctl, COUNTER_DECODE_NS, (uint64_t)cost->decode.pass_ns);
    counters_set(ctl, COUNTER_WINDOW_ROW_NS, (uint64_t)cost->decode.row_ns);
    for (int k = 0; k < DRAFTERS; k++) /* the one that auto would take */
        if (drafters->all[DRAFTERS - 1 - k].ops)
            counters_set(ctl, COUNTER_DRAFT_NS,
                         (uint64_t)drafters->all[DRAFTERS - 1 - k].window.cost.pass_ns);
}
