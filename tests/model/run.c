/* The room kept for EVENT_DONE, on ipc/event.c: whatever an engine publishes and whenever its reader
 * reads, the end of a request that runs can be told at once. */
#include "tests/model/shim.h"

#include "ipc/event.h"

enum { RUN_RING = 2 * EVENT_RUN_CELLS, RUN_STEPS = 3, RUN_LAST = 1000 };

static struct ring_cell *cells;
static _Atomic uint32_t *progress;

static void setup(void)
{
    cells = model_alloc(RUN_RING * sizeof(*cells));
    progress = model_alloc(IPC_LINE);
    model_name(cells, RUN_RING * sizeof(*cells), "cells");
    model_name(progress, 4, "progress");
}

static void put_done(struct ring_writer *w, uint32_t generation, uint32_t length)
{
    struct event_done done = {.reason = DONE_LENGTH};

    memset(done.text, 'x', sizeof(done.text) - 1); /* as long as it can be */
    model_expect(event_put_done(w, generation, length, &done) == 0,
                 "a request's end does not fit its ring");
}

static void put_token(struct ring_writer *w, uint32_t generation)
{
    uint32_t token = 7;

    if (event_room(w) >= 1) /* as the engine looks (event_room): else the slot is paused */
        model_expect(event_put_tokens(w, generation, 0, &token, 1) == 0,
                     "room for a token is gone");
}

static void put_nop(struct ring_writer *w)
{
    if (!model_mutant("a NOP takes the reserve")) {
        (void)event_put_nop(w, 0, 0); /* -EAGAIN: the cell stays unread */
    } else if (ring_space(w) > 0) {
        memset(event_prep(w, 0, 0, EVENT_NOP, 0, 8), 0, 0);
        ring_publish(w);
    }
}

/* As ingest_cell(): an older request ends, and this one begins or is refused. */
static int take_request(struct ring_writer *w, uint32_t generation, int active)
{
    int need = (active && !model_mutant("two ends in the room of one") ? 2 : 1) * EVENT_RUN_CELLS;

    if (ring_space(w) < need)
        return active;
    if (active)
        put_done(w, generation - 1, 0);
    if (model_choose(2, "begin, refuse") == 0)
        return 1;
    put_done(w, generation, 0);
    return 0;
}

static void engine(void)
{
    struct ring_writer w;
    uint32_t generation = 1;
    int active = 1;

    ring_writer_init(&w, cells, RUN_RING, progress);
    for (int i = 0; i < RUN_STEPS; i++) {
        switch (model_choose(active ? 4 : 2, "NOP, request, token, end")) {
        case 0:
            put_nop(&w);
            break;
        case 1:
            active = take_request(&w, ++generation, active);
            break;
        case 2:
            put_token(&w, generation);
            break;
        default:
            put_done(&w, generation, 0);
            active = 0;
        }
    }
    if (!active) /* the last one begins when its end fits */
        model_poll(ring_space(&w) >= (int)EVENT_RUN_CELLS);
    put_done(&w, generation + 1, RUN_LAST);
}

static void reader(void)
{
    struct ring_reader r;
    struct event_run run;
    struct event_done done;

    ring_reader_init(&r, cells, RUN_RING, progress);
    do {
        int n = event_next(&r, &run);

        model_expect(n >= 0, "the reader takes a run for nonsense");
        model_poll(n);
        model_expect(run.kind != EVENT_DONE || (event_done(&run, &done) == 0 &&
                                                strlen(done.text) == sizeof(done.text) - 1),
                     "an end is not the one that was published");
        ring_release(&r, run.cells);
    } while (run.position != RUN_LAST);
}

const struct litmus litmus_run = {
    .name = "run",
    .says = "runs come whole, and the end of a request that runs always fits",
    .threads = {{"engine", engine}, {"reader", reader}},
    .setup = setup,
    .mutants = {"two ends in the room of one", "a NOP takes the reserve"},
};
