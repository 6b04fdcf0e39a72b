/* The engine's memory: all of it is taken when it is opened, but for grammars. */
#include "daemon/engine/engine.h"

#include "daemon/engine/gauges.h"
#include "daemon/engine/request.h"
#include "daemon/engine/state.h"
#include "kernels/kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For masks of grammars in one step: a third of a millisecond, where a pass of a model that is worth
 * a grammar takes some. */
static const int64_t GRAMMAR_STEP = GRAMMAR_MILLISECOND / 3;

/* What KV depends on besides its tokens: pages of another model or numerics are never found. */
static int open_kv(struct kv *kv, const struct loaded_model *loaded)
{
    struct {
        uint8_t fingerprint[MODEL_FINGERPRINT_BYTES];
        char numerics[64];
    } seed = {0};

    memcpy(seed.fingerprint, loaded->fingerprint, sizeof(seed.fingerprint));
    snprintf(seed.numerics, sizeof(seed.numerics), "%s", loaded->info.numerics);
    if (pages_init(&kv->pool, loaded->limits.pages) < 0 ||
        prefix_init(&kv->prefix, &kv->pool, &seed, sizeof(seed)) < 0)
        return -ENOMEM;
    if (loaded->limits.states > 0) {
        kv->prefix.states = &kv->states;
        if (pages_init(&kv->states, loaded->limits.states) < 0)
            return -ENOMEM;
    }
    if (loaded->limits.window_pages == 0)
        return 0;
    kv->prefix.windows = &kv->windows;
    kv->prefix.window = kv_window(loaded->model);
    return pages_init(&kv->windows, loaded->limits.window_pages);
}

static int open_slots(struct slots *slots, const struct engine_options *options)
{
    int rc = slots_init(slots, options->n_slots, options->loaded->limits.context,
                        options->loaded->limits.states > 0);
    for (uint32_t i = 0; i < options->n_slots && rc == 0; i++) {
        slots->all[i].request = request_open(options->params_bytes, options->loaded->suppressed,
                                             options->loaded->n_suppressed);
        rc = slots->all[i].request ? 0 : -ENOMEM;
    }
    return rc == 0 ? open_kv(&slots->kv, options->loaded) : rc;
}

static int open_attached(struct attached *clients, const struct engine_options *options)
{
    uint32_t n = options->n_clients;
    clients->ctl = options->ctl;
    clients->inbox = options->inbox;
    clients->outbox = options->outbox;
    clients->cpu_ns = options->cpu_ns;
    clients->n_most = n;
    clients->all = calloc(n, sizeof(struct client *));
    clients->failed = calloc(n, sizeof(struct client *));
    clients->due = calloc(n, sizeof(*clients->due));
    clients->ready = calloc(n, sizeof(struct client *));
    clients->users = calloc(n, sizeof(*clients->users));
    clients->scratch = calloc(options->loaded->limits.context, sizeof(*clients->scratch));
    return clients->all && clients->failed && clients->due && clients->ready && clients->users &&
                   clients->scratch
               ? 0
               : -ENOMEM;
}

static int open_parts(struct engine *engine)
{
    const struct engine_options *options = &engine->options;
    const struct loaded_model *loaded = options->loaded;
    uint32_t n = options->n_slots;
    engine->fetches.stored = (struct stored){
        .store = options->store, .loaded = loaded, .cost = &engine->cost, .ctl = options->ctl};
    if (open_attached(&engine->clients, options) < 0 ||
        batch_init(&engine->batch, n, &loaded->limits) < 0 ||
        grammars_init(&engine->constrain.grammars, loaded->grammar_vocab, n, options->cpu_ns) < 0 ||
        drafters_init(&engine->drafters, loaded, n) < 0)
        return -ENOMEM;
    int rc = open_slots(&engine->slots, options);
    if (rc == 0)
        rc = fetches_init(&engine->fetches, &engine->slots);
    return rc == 0 && options->store ? stored_load_slots(&engine->fetches.stored) : rc;
}

int engine_open(struct engine **ret_engine, const struct engine_options *options, char *err,
                size_t err_bytes)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    if (engine) {
        engine->options = *options;
        engine->clock.clock = options->now_ns;
        engine->cost.limit_ns = options->pass_ns;
        engine->constrain.step = GRAMMAR_STEP;
        engine->constrain.token = CONSTRAIN_TOKEN;
        engine->constrain.n_vocab = options->loaded->model->n_vocab;
        engine->constrain.vocab = &options->loaded->vocab;
        if (open_parts(engine) == 0) {
            gauges_slots(&engine->slots, &options->loaded->info, options->ctl);
            stored_count(&engine->fetches.stored);
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
    for (uint32_t i = 0; i < engine->slots.n; i++) {
        struct slot *slot = &engine->slots.all[i];
        if (slot->request)
            constrain_end(slot);
        request_close(slot->request);
    }
    slots_fini(&engine->slots);
    grammars_fini(&engine->constrain.grammars);
    drafters_fini(&engine->drafters);
    fetches_fini(&engine->fetches);
    batch_fini(&engine->batch);
    loop_close(engine->clients.loop);
    free(engine->clients.all);
    free(engine->clients.failed);
    free(engine->clients.due);
    free(engine->clients.ready);
    free(engine->clients.users);
    free(engine->clients.scratch);
    free(engine);
}
