/* A pass mixes prefill chunks, windows and single rows of any slots; no slot waits for another one's. */
#include "daemon/engine/pass.h"

#include "daemon/engine/answer.h"
#include "daemon/engine/attached.h"
#include "daemon/engine/draft.h"
#include "daemon/engine/gather.h"
#include "daemon/engine/ingest.h"
#include "daemon/engine/request.h"
#include "daemon/engine/state.h"
#include "daemon/engine/unverified.h"
#include "daemon/engine/verify.h"
#include "daemon/log.h"
#include "daemon/policy/fault.h"
#include "ipc/counters.h"

#include <time.h>

bool pass_runnable(struct slot *slot)
{
    if (request_void(slot))
        return true;
    if (slot->state == SLOT_MASKING)
        return constrain_goes_on(slot);
    if (slot->state == SLOT_WAITING)
        return false; /* until another slot's answer moves: that is a step of its own */
    if (slot->state == SLOT_READING)
        return false; /* until the store's event */
    int room = event_room(client_events(slot));
    return room < 0 || (uint32_t)room >= answer_room_needed(slot);
}

/* The backend broke: every answer ends, and the engine stops. */
static void pass_broke(struct engine *engine, int error, const char *text)
{
    engine->failed = error;
    log_error("%s", text);
    request_end_all(&engine->slots, error, text);
    batch_clear(&engine->batch);
}

/* Which slots go on in this step, and by which kind of pass, whatever happens meanwhile. Slots that
 * waited for pages may try again. Returns how many sit out for a mask. */
static uint32_t pass_plan(struct batch *batch, struct slots *slots, struct constrain *constrain)
{
    uint32_t masking = constrain_step(constrain, slots);
    batch->n_verified = batch->n_unverified = batch->n_decoding = 0;
    batch->fast_rows = slots->n_following = 0;
    batch->fast_interactive = batch->prefills = false;
    for (uint32_t i = 0; i < slots->n; i++) {
        struct slot *slot = &slots->all[i];
        if (slot->state == SLOT_IDLE || slot->state == SLOT_ENDING || slot->state == SLOT_READING)
            continue;
        if (slot->state == SLOT_MASKING)
            continue;
        if (slot->state == SLOT_STARVED)
            slots_set(slots, slot, SLOT_READY);
        else if (slot->state == SLOT_WAITING)
            slots_set(slots, slot, SLOT_STARVED);
        batch->prefills |= slot->state == SLOT_READY && !slot->request->first_sample_ns;
        if (unverified_due(slot)) {
            batch->unverified[batch->n_unverified++] = slot;
        } else {
            batch->verified[batch->n_verified++] = slot;
            batch->n_decoding += slot->state == SLOT_READY;
        }
    }
    return masking;
}

/* One pass of a drafter. Returns its rows, or -errno: the backend broke. */
static int pass_fast(struct engine *engine, struct drafter *drafter)
{
    struct batch *batch = &engine->batch;
    struct ctl *ctl = engine->options.ctl;
    uint32_t rows = draft_plan(batch, &engine->slots, &engine->drafters, drafter,
                               &engine->constrain, &engine->cost, ctl);
    if (rows == 0)
        return 0;
    uint64_t start_ns = steady_look(&engine->clock);
    int rc = batch_run(batch, drafter->ops, drafter->backend,
                       drafter->kind == DRAFTER_MTP ? PASS_MTP : PASS_FAST);
    uint64_t took_ns = steady_look(&engine->clock) - start_ns;
    drafters_measured(drafter, batch->n_slots, rows, took_ns);
    engine->cost.drafting_ns += took_ns;
    counters_add(ctl, COUNTER_DRAFT_PASSES, 1);
    counters_add(ctl, COUNTER_DRAFT_ROWS, rows);
    if (rc < 0)
        return rc;
    draft_take(batch, &engine->slots, drafter, engine->options.loaded, ctl);
    return (int)rows;
}

/* Text and models draft; fast passes give unverified slots their tokens. Returns the rows. */
static uint32_t pass_draft(struct engine *engine)
{
    uint32_t rows = 0;
    draft_choose(&engine->batch, &engine->slots, &engine->drafters, &engine->cost,
                 &engine->options.loaded->vocab);
    for (int k = 0; k < DRAFTERS; k++) {
        struct drafter *drafter = &engine->drafters.all[k];
        int rc = drafter->ops ? pass_fast(engine, drafter) : 0;
        if (rc < 0) {
            pass_broke(engine, rc, drafter->ops->error(drafter->backend));
            return 1;
        }
        rows += (uint32_t)rc;
    }
    return rows;
}

/* Rows of the slots that decode in this pass: one row and its drafts, no prefill. */
static uint32_t pass_decode_rows(const struct batch *batch)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < batch->n_slots; i++)
        if (batch->slots[i].take == batch->slots[i].slot->spec.drafted + 1)
            rows += batch->slots[i].take;
    return rows;
}

static void pass_measure(const struct batch *batch, struct cost *cost, struct cost_step *step,
                         struct ctl *ctl)
{
    step->decode_rows = pass_decode_rows(batch);
    struct cost_pass pass = {
        .took_ns = batch->n_rows > 0 ? batch->end_ns - batch->start_ns : 0,
        .slots = batch->n_slots,
        .rows = batch->n_rows,
        .decode_rows = step->decode_rows,
        .short_rows = batch->short_rows,
        .long_rows = batch->long_rows,
        .answering = batch->answering,
    };
    gather_charge(batch, cost_short_ns(cost, &pass));
    cost_measured(cost, step, &pass);
    if (batch->n_rows == 0)
        return;
    counters_add(ctl, COUNTER_PASSES, 1);
    counters_add(ctl, COUNTER_ROWS, batch->n_rows);
    counters_set(ctl, COUNTER_LAST_STEP_NS, pass.took_ns);
}

/* Fills and runs the step's canonical pass. Returns its rows; 0: no slot can go on. */
static uint32_t pass_canonical(struct engine *engine)
{
    const struct loaded_model *loaded = engine->options.loaded;
    struct batch *batch = &engine->batch;
    struct ctl *ctl = engine->options.ctl;
    struct cost_step step = {
        .now_ns = engine->clock.now_ns,
        .unverified = batch->fast_interactive,
        .fast_ns = (uint64_t)engine->drafters.all[DRAFTER_SELF].window.cost.pass_ns,
    };
    constrain_windows(&engine->constrain, batch->verified, batch->n_verified);
    uint32_t rows = gather_plan(batch, &engine->slots, &engine->clients, &engine->cost, &step);
    if (rows == 0) {
        if (batch->fast_rows > 0)
            pass_measure(batch, &engine->cost, &step,
                         ctl); /* fast passes answered, and that was the step */
        return 0;
    }
    if (fault_hits(FAULT_DELAY_PASS))
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    batch->start_ns = steady_look(&engine->clock);
    int rc = batch_run(batch, loaded->ops, loaded->backend, PASS_CANONICAL);
    step.now_ns = batch->end_ns = steady_look(&engine->clock);
    if (rc < 0)
        pass_broke(engine, rc, loaded->ops->error(loaded->backend));
    else
        pass_measure(batch, &engine->cost, &step, ctl);
    return rows;
}

/* Tokens, then ends. */
static void pass_publish(struct engine *engine)
{
    answer_publish(&engine->batch, &engine->clients);
    answer_ends(&engine->slots, &engine->clients, engine->options.loaded, engine->clock.now_ns);
}

uint32_t pass_step(struct engine *engine)
{
    const struct loaded_model *loaded = engine->options.loaded;
    struct batch *batch = &engine->batch;
    struct slots *slots = &engine->slots;
    struct attached *clients = &engine->clients;
    struct drafters *drafters = &engine->drafters;
    uint32_t work = attached_reap(clients, slots, loaded, engine->clock.now_ns);
    work += attached_mail(clients, slots, drafters, loaded, engine->clock.now_ns);
    work += ingest_step(clients, slots, drafters, &engine->constrain, loaded, &engine->clock);
    work += grammars_step(&engine->constrain.grammars, engine->clock.now_ns);
    work += fetches_step(&engine->fetches, clients, &engine->clock);
    if (slots->n_active > 0) {
        uint32_t masking = pass_plan(batch, slots, &engine->constrain);
        unverified_plan(batch, slots, clients, &drafters->all[DRAFTER_SELF]);
        uint32_t drafting = pass_draft(engine);
        pass_publish(engine); /* what fast passes gave does not wait for the canonical one */
        uint32_t rows = pass_canonical(engine);
        verify_settle(batch, slots);
        verify_step(batch, slots, drafters, loaded);
        pass_publish(engine);
        work += rows ? rows : drafting + masking;
    }
    stored_submit(&engine->fetches.stored);
    if (clients->fence_due) { /* also when all there was to do was to end something */
        attached_wake(clients, slots_running(slots) > 0, engine->clock.now_ns);
        work++;
    }
    return work + clients->n_failed;
}
