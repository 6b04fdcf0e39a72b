/*
 * state: the engine, in parts. A file that needs one part is given that part; those that turn a
 * step see all of them.
 */
#ifndef HEARTH_DAEMON_ENGINE_STATE_H
#define HEARTH_DAEMON_ENGINE_STATE_H

#include "daemon/cache/slot.h"
#include "daemon/engine/batch.h"
#include "daemon/engine/client.h"
#include "daemon/engine/constrain.h"
#include "daemon/engine/drafters.h"
#include "daemon/engine/options.h"
#include "daemon/policy/cost.h"
#include "daemon/steady.h"

struct engine {
    struct engine_options options;
    struct slots slots;
    struct attached clients;
    struct constrain constrain;
    struct drafters drafters;
    struct cost cost;
    struct batch batch;

    struct steady clock;
    int failed; /* 0, or why the backend cannot go on */
};

#endif
