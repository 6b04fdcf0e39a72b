/* The engine's memory: all of it is taken when it is opened, but for grammars. */
#include "daemon/engine/engine_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For masks of grammars in one step: a third of a millisecond, where a pass of a model that is worth
 * a grammar takes some. */
static const int64_t GRAMMAR_STEP = GRAMMAR_MILLISECOND / 3;

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
    const struct loaded_model *loaded = engine->options.loaded;
    struct {
        uint8_t fingerprint[MODEL_FINGERPRINT_BYTES];
        char numerics[64];
    } seed = {0};

    memcpy(seed.fingerprint, loaded->fingerprint, sizeof(seed.fingerprint));
    snprintf(seed.numerics, sizeof(seed.numerics), "%s", loaded->info.numerics);
    return prefix_init(&engine->prefix, &engine->pool, &seed, sizeof(seed));
}

static int engine_alloc(struct engine *engine)
{
    const struct engine_options *options = &engine->options;
    const struct backend_limits *limits = &options->loaded->limits;
    size_t n_slots = options->n_slots, n_rows = limits->rows;

    engine->clients = calloc(options->n_clients, sizeof(*engine->clients));
    engine->due = calloc(options->n_clients, sizeof(*engine->due));
    engine->plan = calloc(n_slots, sizeof(*engine->plan));
    engine->candidates = calloc(n_slots, sizeof(*engine->candidates));
    engine->streams = calloc(n_slots, sizeof(*engine->streams));
    engine->order = calloc(n_slots, sizeof(*engine->order));
    engine->sequences = calloc(n_slots, sizeof(*engine->sequences));
    engine->rows = calloc(n_rows, sizeof(*engine->rows));
    engine->results = calloc(n_rows, sizeof(*engine->results));
    engine->samples = calloc(n_rows, sizeof(*engine->samples));
    engine->draft_samplers = calloc(n_slots, sizeof(*engine->draft_samplers));
    engine->shares = calloc(n_slots, sizeof(*engine->shares));
    engine->mosts = calloc(n_slots, sizeof(*engine->mosts));
    engine->arena = calloc(limits->context, sizeof(*engine->arena));
    engine->block = calloc(1, options->params_bytes);
    if (!engine->clients || !engine->due || !engine->plan || !engine->candidates ||
        !engine->streams || !engine->order || !engine->sequences || !engine->rows ||
        !engine->results || !engine->samples || !engine->draft_samplers || !engine->shares ||
        !engine->mosts || !engine->arena || !engine->block ||
        grammars_init(&engine->grammars, options->loaded->grammar_vocab, options->n_slots) < 0 ||
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
        engine->cost.limit_ns = options->pass_ns;
        engine->grammar_step = GRAMMAR_STEP;
        engine->vocab = &options->loaded->vocab;
        engine->n_vocab = options->loaded->model->n_vocab;
        engine->context = options->loaded->limits.context;
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
    free(engine->streams);
    free(engine->order);
    free(engine->sequences);
    free(engine->rows);
    free(engine->results);
    free(engine->samples);
    free(engine->draft_samplers);
    free(engine->shares);
    free(engine->mosts);
    free(engine->arena);
    free(engine->block);
    free(engine);
}
