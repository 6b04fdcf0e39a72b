/*
 * One pass: end what was voided, gather rows, run, measure, and take what came out. A pass mixes
 * prefill chunks, windows and single rows of any slots; nobody waits for somebody else's.
 */
#include "daemon/engine/engine_impl.h"

#include "daemon/policy/fault.h"
#include "daemon/log.h"

#include <time.h>

enum { LATELY_NS = 500000000 }; /* who types goes on within that */

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

/* What a step of decoding takes: its fast pass where that answers, its canonical one where that does,
 * too. */
static uint64_t pass_decode_ns(const struct engine *engine, bool decodes)
{
    float fast_ns = engine->drafters[DRAFTER_SELF].window.cost.pass_ns;

    if (!engine->streaming)
        return (uint64_t)engine->cost.pass_ns;
    return (uint64_t)(fast_ns + (decodes ? engine->cost.pass_ns : 0));
}

struct plan_cost pass_cost(const struct engine *engine, bool decodes)
{
    return (struct plan_cost){
        .pass_ns = engine->options.pass_ns,
        .decode_ns = pass_decode_ns(engine, decodes),
        .streams = engine->streaming,
        .row_ns = engine->row_ns,
        .credit_ns = engine->credit_ns,
        .lately = engine->answered_ns && engine->now_ns - engine->answered_ns < LATELY_NS,
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

/* What a row of a prefill adds: the pass without what decoding alone takes. */
static void pass_measure_prefill(struct engine *engine, uint32_t rows, bool decodes, uint64_t took)
{
    uint64_t decode_ns = decodes ? (uint64_t)engine->cost.pass_ns : 0;

    if (rows >= PLAN_CHUNK_MIN / 4 && took > decode_ns)
        engine->row_ns = engine_smooth(engine->row_ns, (took - decode_ns) / rows + 1);
}

/* Somebody reads an answer: what long prompts took of this pass comes off their credit. */
static void pass_measure_credit(struct engine *engine, bool decodes, uint64_t took)
{
    struct plan_cost cost = pass_cost(engine, decodes);
    uint64_t decode_ns = decodes ? (uint64_t)engine->cost.pass_ns : 0;
    uint64_t others = decode_ns + engine->brief_rows * cost.row_ns;
    uint64_t least = engine->long_rows * cost.row_ns / 4;
    uint64_t prefill = took > others + least ? took - others : least;

    engine->answered_ns = engine->now_ns;
    engine->credit_ns = plan_credit(&cost, engine->long_rows ? prefill : 0);
}

static void pass_measure(struct engine *engine, uint32_t n_rows, uint32_t n_sequences)
{
    uint64_t took = engine->now_ns - engine->pass_start_ns;
    uint32_t decode_rows = pass_decode_rows(engine, n_sequences);

    if (engine->answering)
        pass_measure_credit(engine, decode_rows > 0, took);

    if (decode_rows == n_rows)
        window_measured(&engine->cost, n_sequences, n_rows, took);
    pass_measure_prefill(engine, n_rows - decode_rows, decode_rows > 0, took);
    engine->step_ns = engine_smooth(engine->step_ns, engine->drafting_ns + took + 1);
    engine->drafting_ns = 0;
    counters_add(engine->options.ctl, COUNTER_PASSES, 1);
    counters_add(engine->options.ctl, COUNTER_ROWS, n_rows);
    counters_set(engine->options.ctl, COUNTER_LAST_STEP_NS, took);
}

/* A step without a canonical pass, in which a fast one answered. */
static void pass_measure_stream(struct engine *engine)
{
    struct plan_cost cost = pass_cost(engine, false);

    if (engine->answering) {
        engine->answered_ns = engine->now_ns;
        engine->credit_ns = plan_credit(&cost, 0);
    }
    engine->step_ns = engine_smooth(engine->step_ns, engine->drafting_ns + 1);
    engine->drafting_ns = 0;
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
        pass_measure_stream(engine);
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
