/* G1 G2: a client that overwrites its arena for newer requests, and ingest_copy() of the daemon,
 * which must notice. Arena and parameters are copied by segment.c in the form that race detectors
 * understand (relaxed words): what memcpy does to them is not defined by C11. */
#include "tests/model/shim.h"

#include "daemon/engine/ingest.c"

enum { REQUESTS = 3, TOKENS = 2, SUBMIT_CELLS = 4 };

static struct segment segment; /* of both sides: what lies there is shared, this is constant */
static struct ring_cell *cells;
static _Atomic uint32_t *progress;

static void setup(void)
{
    segment = (struct segment){
        .limits = {.slots = 1, .context = TOKENS, .params_bytes = IPC_LINE},
        .plan = {.up_params = 256, .up_arenas = 320, .up_bytes = 384},
        .up = model_alloc(384),
    };
    model_files[segment.up_fd] = segment.up;
    cells = model_alloc(SUBMIT_CELLS * sizeof(*cells));
    progress = model_alloc(IPC_LINE);
    model_name(segment.up, 4, "generation");
    model_name(segment_params(&segment, 0), 4, "params");
    model_name(segment_arena(&segment, 0), 4 * TOKENS, "arena");
    model_name(cells, SUBMIT_CELLS * sizeof(*cells), "cells");
    model_name(progress, 4, "progress");
}

/* As publish() of the library. */
static void submit(struct ring_writer *w, uint32_t generation)
{
    _Atomic uint32_t *word = &segment_up_slot(&segment, 0)->generation;
    uint32_t tokens[TOKENS] = {10 * generation, 10 * generation + 1};
    struct submit_cell cell = {.generation = generation, .length = TOKENS, .params_bytes = 4};
    int late = model_mutant("the arena before the generation");

    if (!late)
        ring_generation_start(word, generation);
    segment_copy_out(segment_arena(&segment, 0), tokens, sizeof(tokens));
    segment_copy_out(segment_params(&segment, 0), &generation, sizeof(generation));
    if (late)
        ring_generation_start(word, generation);
    model_expect(ring_space(w) > 0, "the ring has room for all");
    ring_push(w, &cell);
}

static void client(void)
{
    struct ring_writer w;

    ring_writer_init(&w, cells, SUBMIT_CELLS, progress);
    for (uint32_t g = 1; g <= REQUESTS; g++)
        submit(&w, g);
}

static void take(uint32_t *arena, struct incoming *in)
{
    int rc = ingest_copy(arena, in);
    uint32_t generation = in->cell.generation, params;

    if (model_mutant("the generation is not read again") && rc == -ESTALE)
        rc = 0;
    model_expect(rc == 0 || generation < REQUESTS, "a request that nothing made void is void");
    if (rc < 0)
        return;
    memcpy(&params, in->slot->request->block, sizeof(params));
    model_expect(params == generation && arena[0] == 10 * generation &&
                     arena[1] == 10 * generation + 1,
                 "a copy that another request tore is taken for whole");
}

static void daemon_ingest(void)
{
    static struct client from; /* large; constant but for the reader, which starts anew */
    uint32_t arena[TOKENS];
    uint8_t block[IPC_LINE];
    struct request request = {.block = block};
    struct slot slot = {.request = &request};

    from.segment = segment;
    ring_reader_init(&from.submit, cells, SUBMIT_CELLS, progress);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct incoming in = {.client = &from, .slot = &slot, .line = ""};
        int n = ring_peek(&from.submit, &in.cell);

        model_expect(n >= 0, "the reader takes a number for nonsense");
        model_poll(n);
        take(arena, &in);
        ring_release(&from.submit, 1);
    }
}

const struct litmus litmus_generation = {
    .name = "generation",
    .says = "a copy that passes the second look at the generation is one request's",
    .threads = {{"client", client}, {"daemon", daemon_ingest}},
    .setup = setup,
    .mutants = {"the arena before the generation", "the generation is not read again"},
};
