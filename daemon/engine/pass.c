/*
 * One pass: end what was voided, gather rows, run, measure, and take what came out. A pass mixes
 * prefill chunks, windows and single rows of any slots; nobody waits for somebody else's.
 */
#include "daemon/engine/engine_impl.h"

#include "daemon/policy/fault.h"
#include "daemon/log.h"

#include <time.h>

static bool pass_void(const struct slot *slot)
{
    const struct up_slot *up = segment_up_slot(&slot->client->segment, slot->ring);

    return ring_generation(&up->generation) != slot->request->generation;
}

bool pass_runnable(struct slot *slot)
{
    if (pass_void(slot))
        return true;
    if (slot->masking)
        return true; /* the next step goes on with its mask */
    if (slot->waiting)
        return false; /* until somebody else's answer moves: that is a step of its own */
    int room = event_room(engine_events(slot));
    return room < 0 || (uint32_t)room >= answer_room_needed(slot);
}

void pass_end_void(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->active && pass_void(slot))
            answer_end(engine, slot, DONE_CANCELLED, 0, "");
    }
}

struct cost_step pass_cost_step(const struct engine *engine, bool decodes)
{
    return (struct cost_step){
        .now_ns = engine->now_ns,
        .unverified = engine->streaming,
        .fast_ns = (uint64_t)engine->drafters[DRAFTER_SELF].window.cost.pass_ns,
        .decodes = decodes,
    };
}

/* Rows of the slots that decode in this pass: one row and its drafts, no prefill. */
static uint32_t pass_decode_rows(const struct engine *engine, uint32_t n_sequences)
{
    uint32_t rows = 0;

    for (uint32_t i = 0; i < n_sequences; i++)
        if (engine->order[i]->take == engine->order[i]->spec.drafted + 1)
            rows += engine->order[i]->take;
    return rows;
}

static void pass_measure(struct engine *engine, uint32_t n_rows, uint32_t n_sequences)
{
    uint64_t took = n_rows > 0 ? engine->now_ns - engine->pass_start_ns : 0;
    uint32_t decode_rows = pass_decode_rows(engine, n_sequences);
    struct cost_step step = pass_cost_step(engine, decode_rows > 0);
    struct cost_pass pass = {
        .took_ns = took,
        .slots = n_sequences,
        .rows = n_rows,
        .decode_rows = decode_rows,
        .short_rows = n_rows > 0 ? engine->brief_rows : 0,
        .long_rows = n_rows > 0 ? engine->long_rows : 0,
        .answering = engine->answering,
    };

    cost_measured(&engine->cost, &step, &pass);
    if (n_rows == 0)
        return;
    counters_add(engine->options.ctl, COUNTER_PASSES, 1);
    counters_add(engine->options.ctl, COUNTER_ROWS, n_rows);
    counters_set(engine->options.ctl, COUNTER_LAST_STEP_NS, took);
}

static int pass_run(struct engine *engine, uint32_t n_rows, uint32_t n_sequences)
{
    const struct loaded_model *loaded = engine->options.loaded;
    struct pass pass = {
        .kind = PASS_CANONICAL,
        .rows = engine->rows,
        .n_rows = n_rows,
        .sequences = engine->sequences,
        .n_sequences = n_sequences,
        .results = engine->results,
    };
    int rc = loaded->ops->start(loaded->backend, &pass);

    return rc < 0 ? rc : loaded->ops->finish(loaded->backend);
}

/* The backend broke: every answer ends, and the engine stops. */
static void pass_failed(struct engine *engine, int error, const char *text)
{
    engine->failed = error;
    log_error("%s", text);
    for (uint32_t i = 0; i < engine->options.n_slots; i++)
        if (engine->slots[i].active)
            answer_end(engine, &engine->slots[i], DONE_ERROR, error, text);
}

uint32_t pass_step(struct engine *engine)
{
    const struct loaded_model *loaded = engine->options.loaded;
    uint32_t n_sequences, n_rows, row = 0;
    const char *error;

    pass_end_void(engine);
    gather_begin(engine);
    uint32_t masking = constrain_step(engine);
    int drafting = draft_step(engine, &error);
    if (drafting < 0) {
        pass_failed(engine, drafting, error);
        return 1;
    }
    constrain_windows(engine);
    n_rows = gather_plan(engine, &n_sequences);
    if (n_rows == 0 && engine->stream_rows > 0)
        pass_measure(engine, 0, 0); /* fast passes answered, and that was the step */
    if (n_rows == 0)
        return (uint32_t)drafting + masking;
    if (fault_hits(FAULT_DELAY_PASS))
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    engine->pass_start_ns = engine->options.now_ns();
    int rc = pass_run(engine, n_rows, n_sequences);
    engine->now_ns = engine->options.now_ns();
    if (rc < 0) {
        pass_failed(engine, rc, loaded->ops->error(loaded->backend));
        return n_rows;
    }
    pass_measure(engine, n_rows, n_sequences);
    pass_end_void(engine); /* nothing is published for a request that was voided meanwhile */
    for (uint32_t i = 0; i < n_sequences; i++) {
        struct slot *slot = engine->order[i];
        uint32_t take = slot->take;
        if (slot->active) {
            verify_take(engine, slot, engine->results + row);
            slot_publish(slot, &engine->prefix);
            if (slot->request->reached < slot->spec.canonical)
                slot->request->reached = slot->spec.canonical;
        }
        slot->planned = false;
        row += take;
    }
    return n_rows;
}
