/* gauges: the counters that say how things are now. */
#ifndef HEARTH_DAEMON_ENGINE_GAUGES_H
#define HEARTH_DAEMON_ENGINE_GAUGES_H

struct engine;

void gauges_set(const struct engine *engine);

#endif
