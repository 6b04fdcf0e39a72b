/*
 * Fuzzes the daemon's reading of a client's segment: an engine stepped by hand, a hostile client
 * that writes anything anywhere in its `up`, and a good client whose answers must equal those it
 * gets alone. Slots, pages and rings are small, so that pressure and full rings are common.
 *
 * The input is a list of operations, a byte each, its arguments in the bytes after it: words and
 * ranges anywhere, cells with plausible fields, parameter blocks with one damaged byte,
 * generations, progress, tickets, new attaches; the good client asks, reads, cancels and stops
 * reading; steps.
 *
 * It aborts on: a broken promise to the good client, a pass that breaks the backend's contract, a
 * page lost or owned twice, a good client closed, a second close, an answer that never ends.
 */
/* The helpers' sources, not their objects: fuzz targets are linked with the folders' objects alone.
 */
#include "tests/rig/engine_rig.c"
#include "tests/rig/engine_rig_alone.c"
#include "tests/rig/engine_rig_client.c"
#include "tests/rig/engine_rig_pages.c"
#include "tests/rig/fake_backend.c"
#include "tests/rig/grammar_reference.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BAD_SLOTS = 2, OPERATIONS_MAX = 400 };

struct fuzz {
    const uint8_t *data;
    size_t left;
    struct rig rig;
    struct rig_client good, bad;
    uint32_t n_cells; /* that the bad client wrote at the right place */
    struct rig_request request;
    uint32_t tokens[RIG_TOKENS];
    uint32_t generation; /* of the good client's request; 0: none is running */
    bool cancelled;
    uint32_t closed; /* MAIL_CLOSE of this attach of the bad client */
};

static struct fuzz f;

static uint32_t take(uint32_t bytes)
{
    uint32_t value = 0;

    while (bytes-- > 0 && f.left > 0) {
        value = value << 8 | *f.data++;
        f.left--;
    }
    return value;
}

/* ---- the good client ------------------------------------------------------------------------- */

static void good_read(uint32_t most)
{
    const struct rig_answer *last = &f.good.slots[0].last;

    rig_read(&f.good, 0, most);
    if (!f.generation || last->generation != f.generation)
        return;
    if (f.cancelled)
        RIG_CHECK(last->reason == DONE_CANCELLED || last->reason == DONE_SUPERSEDED ||
                      rig_same(&f.rig, &f.request, last),
                  "a cancelled answer ended with %d", last->reason);
    else
        RIG_CHECK(rig_same(&f.rig, &f.request, last), "another client changed the answer");
    f.generation = 0;
}

static void good_ask(void)
{
    static const enum submit_proposer proposers[] = {PROPOSER_AUTO, PROPOSER_NONE, PROPOSER_DRAFT,
                                                     PROPOSER_SHADOW};
    uint32_t from = take(1) % 100;

    if (f.generation)
        return;
    /* The first part is mostly the previous one, so that prefixes are kept. */
    rig_tokens(f.tokens + from, RIG_TOKENS - from, take(1) % 4);
    f.request = (struct rig_request){.tokens = f.tokens,
                                     .n = 1 + take(1) % 100,
                                     .max_tokens = 1 + take(1) % 64,
                                     .batch = take(1) % 4 == 0};
    f.good.proposer = proposers[take(1) % 4];
    f.cancelled = false;
    f.generation = rig_submit(&f.good, 0, &f.request);
}

static void step(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        rig_step(&f.rig);
        rig_check(&f.rig);
        engine_look(f.rig.engine);
        rig_mail(&f.rig);
        RIG_CHECK(f.rig.n_closed <= 1 && !f.good.client->error, "closed %u times, good %d",
                  f.rig.n_closed, f.good.client->error);
    }
}

/* ---- the hostile client ---------------------------------------------------------------------- */

/* A 4-aligned place in `up`: every part is equally likely, whatever its size. */
static uint32_t *place(void)
{
    const struct segment_plan *plan = &f.bad.segment.plan;
    const uint64_t starts[] = {
        0, plan->up_slots, plan->up_submit, plan->up_params, plan->up_arenas, plan->up_bytes};
    uint32_t part = take(1) % 5;
    uint64_t words = (starts[part + 1] - starts[part]) / 4;

    return (uint32_t *)(void *)(f.bad.segment.up + starts[part]) + take(2) % words;
}

static void bad_word(void)
{
    uint32_t *word = place();

    atomic_store((_Atomic uint32_t *)word, take(take(1) % 5));
}

static void bad_range(void)
{
    uint8_t *from = (uint8_t *)place();
    size_t n = take(2) * 4u, room = (size_t)(f.bad.segment.up + f.bad.segment.plan.up_bytes - from);

    memset(from, (int)take(1), n < room ? n : room);
}

static void bad_push(struct submit_cell *cell)
{
    struct ring_cell *cells =
        (struct ring_cell *)(void *)(f.bad.segment.up + f.bad.segment.plan.up_submit);

    cell->seq = ++f.n_cells;
    memcpy(&cells[(f.n_cells - 1) % SUBMIT_CELLS], cell, sizeof(*cell));
}

/* A cell as a client writes it, with at most one field set by the input. */
static void bad_cell(void)
{
    uint32_t slot = take(1) % BAD_SLOTS;
    struct params params;
    char err[200];
    uint32_t *words, spoil;

    params_default(&params);
    params.seed = take(1) % 4;
    params.logprobs_on = params.seed == 1;
    params.logprobs = params.seed == 1 ? 20 : 0;
    int used = params_encode(&params, segment_params(&f.bad.segment, slot), RIG_PARAMS_BYTES, err,
                             sizeof(err));
    struct submit_cell cell = {
        .opcode = take(1) % 8 ? SUBMIT_REQUEST : SUBMIT_NOP,
        .slot = (uint16_t)slot,
        .generation = ring_generation(&segment_up_slot(&f.bad.segment, slot)->generation),
        .keep = take(1) % 100,
        .length = 1 + take(1) % 110,
        .max_tokens = 1 + take(1) % 120,
        .params_bytes = (uint32_t)used,
        .proposer = take(1) % PROPOSER_COUNT,
    };
    cell.prompt_length = 1 + take(1) % cell.length;
    if (cell.keep > cell.length)
        cell.keep = cell.length;
    words = (uint32_t *)(void *)&cell;
    spoil = take(1);
    if (spoil < 64)
        words[spoil % 16] = take(4);
    bad_push(&cell);
}

static void bad_tokens(void)
{
    uint32_t slot = take(1) % BAD_SLOTS, from = take(1) % 100;

    rig_tokens(segment_arena(&f.bad.segment, slot) + from, f.rig.desc.context - from, take(1));
}

/* Honest progress: the ring stays valid, and answers go on. */
static void bad_read(void)
{
    uint32_t slot = take(1) % BAD_SLOTS;

    atomic_store(&segment_up_slot(&f.bad.segment, slot)->events,
                 f.bad.client->events[slot].next - take(1) % 4);
}

static void bad_attach(void)
{
    rig_attach(&f.rig, &f.bad, BAD_SLOTS, 2000 + take(1) % 2, take(1) % 2 ? "name" : "");
    f.n_cells = 0;
    f.rig.n_closed = 0;
}

static void operate(void)
{
    switch (take(1) % 16) {
    case 0:
    case 1:
    case 2:
        step(1 + take(1) % 4);
        break;
    case 3:
    case 4:
        bad_cell();
        break;
    case 5:
        bad_word();
        break;
    case 6:
        bad_range();
        break;
    case 7:
        bad_tokens();
        break;
    case 8:
        bad_read();
        break;
    case 9:
        ring_generation_start(&segment_up_slot(&f.bad.segment, take(1) % BAD_SLOTS)->generation,
                              take(1) % 4);
        break;
    case 10:
        atomic_store(&segment_up_head(&f.bad.segment)->waiting, take(1));
        break;
    case 11:
        good_ask();
        break;
    case 12:
        good_read(take(1) % 8);
        break;
    case 13:
        if (take(1) % 4 == 0 && f.generation) {
            rig_cancel(&f.good, 0);
            f.cancelled = true;
        }
        break;
    case 14:
        if (take(1) % 8 == 0)
            atomic_store(&f.bad.client->segment.broken, 1);
        break;
    case 15: /* only now and then: it costs more time than all the rest of an input */
        if (take(1) % 8)
            break;
        rig_detach(&f.rig, &f.bad);
        bad_attach();
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct rig_desc desc = {.slots = 4,
                                         .clients = 3,
                                         .context = 128,
                                         .pages = 6,
                                         .rows = 24,
                                         .samples = 4,
                                         .mail = 16,
                                         .fast = BACKEND_FAST_SHADOW,
                                         .wrong = 3,
                                         .draft_pages = 5};

    f = (struct fuzz){.data = data, .left = size};
    rig_open(&f.rig, &desc);
    rig_tokens(f.tokens, RIG_TOKENS, 1);
    rig_attach(&f.rig, &f.good, 1, 1000, "good");
    bad_attach();
    for (int i = 0; i < OPERATIONS_MAX && f.left > 0; i++)
        operate();
    for (int i = 0; i < 2000 && f.generation; i++) {
        good_read(UINT32_MAX);
        step(1);
    }
    good_read(UINT32_MAX);
    RIG_CHECK(!f.generation, "the good client's answer does not end");
    rig_detach(&f.rig, &f.bad);
    rig_detach(&f.rig, &f.good);
    rig_check(&f.rig);
    rig_close(&f.rig);
    return 0;
}
