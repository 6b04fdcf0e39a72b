/*
 * state: the engine, in parts. A stage is given the parts that it works on; what runs a step
 * (pass.c, engine.c) sees all of them. */
#ifndef HEARTH_DAEMON_ENGINE_STATE_H
#define HEARTH_DAEMON_ENGINE_STATE_H

#include "daemon/cache/slot.h"
#include "daemon/engine/batch.h"
#include "daemon/engine/client.h"
#include "daemon/engine/constrain.h"
#include "daemon/engine/drafters.h"
#include "daemon/engine/fetch.h"
#include "daemon/engine/options.h"
#include "daemon/policy/cost.h"
#include "daemon/steady.h"

struct engine {
    struct engine_options options;
    struct slots slots;         /* the sequences, and KV for them */
    struct attached clients;    /* what they sent, and are told */
    struct constrain constrain; /* grammars of requests, and masks */
    struct drafters drafters;   /* models that draft */
    struct fetches fetches;     /* requests whose text is read from the store */
    struct cost cost;           /* of passes */
    struct batch batch;         /* of a pass */
    struct steady clock;
    int failed; /* 0, or why the backend cannot go on */
};

#endif
