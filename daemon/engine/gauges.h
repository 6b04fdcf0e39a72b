/* gauges: the counters that say how things are now. */
#ifndef HEARTH_DAEMON_ENGINE_GAUGES_H
#define HEARTH_DAEMON_ENGINE_GAUGES_H

#include "daemon/engine/drafters.h"
#include "daemon/policy/cost.h"

struct ctl;

/* Slots, and the KV that they have. */
void gauges_slots(const struct slots *slots, const struct backend_info *info, struct ctl *ctl);

/* What passes cost. */
void gauges_costs(const struct cost *cost, const struct drafters *drafters, struct ctl *ctl);

#endif
