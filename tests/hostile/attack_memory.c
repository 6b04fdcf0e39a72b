/* attack_memory: hostile writes to `up`, while requests of the same client run. */
#include "tests/hostile/attack.h"

#include "ipc/params.h"
#include "tests/e2e/raw_client.h"
#include "tests/random.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SLOTS = 2,
    REQUESTS = 12, /* of a connection beside a thread */
    CELLS = 1000,  /* of a connection whose cells are mutated */
    PROMPT = 100,
    BLOCK = 2048, /* bytes of a parameter block before its mutation */
    BLOCK_USED = 65536,
    GRAMMAR = 60000,
    GRAMMARS = 100, /* of a connection */
};

struct intruder {
    struct raw_client raw;
    struct ring_writer submit;
    struct ring_reader events[SLOTS];
    uint32_t generation[SLOTS];
};

static bool intruder_open(struct intruder *in, const struct attack_state *a)
{
    memset(in, 0, sizeof(*in));
    if (raw_open(&in->raw, a->socket, SLOTS) < 0) {
        attack_sleep_us(1000);
        return false;
    }
    segment_submit_writer(&in->raw.segment, &in->submit);
    for (uint32_t i = 0; i < in->raw.segment.limits.slots; i++)
        segment_event_reader(&in->raw.segment, i, &in->events[i]);
    return true;
}

/* Consumes the answers' cells as an honest client would, so that requests go on. */
static void intruder_read(struct intruder *in)
{
    struct event_cell cell;

    for (uint32_t i = 0; i < in->raw.segment.limits.slots; i++)
        while (ring_peek(&in->events[i], &cell) == 1)
            ring_release(&in->events[i], 1);
}

static uint32_t fill_params(uint32_t *random, void *block)
{
    static const char grammar[] = "root ::= (\"a\" | [b-z] root)* \"!\"";
    static const uint32_t lengths[] = {3};
    struct params_bias bias = {.token = 5, .value = 2};
    struct params p;

    params_default(&p);
    p.temperature = random_below(random, 2) ? 0.9f : 0;
    p.seed = next_random(random);
    p.logprobs_on = random_below(random, 3) == 0;
    if (random_below(random, 2)) {
        p.bias = &bias;
        p.n_bias = 1;
        p.stop_text_lengths = lengths;
        p.stop_texts = (const uint8_t *)"zzz";
        p.n_stop_texts = 1;
        p.stop_text_bytes = 3;
    }
    if (random_below(random, 4) == 0) {
        p.grammar = (const uint8_t *)grammar;
        p.grammar_bytes = sizeof(grammar) - 1;
    }
    int bytes = params_encode(&p, block, BLOCK, NULL, 0);
    return bytes > 0 ? (uint32_t)bytes : 0;
}

/* Writes tokens and parameters for a valid request of a slot, and prepares its cell. */
static void prepare(struct intruder *in, uint32_t *random, struct submit_cell *ret)
{
    uint32_t slot = random_below(random, in->raw.segment.limits.slots), tokens[PROMPT];
    uint64_t block[BLOCK / 8];
    uint32_t n = 1 + random_below(random, PROMPT);

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = 3 + random_below(random, 250);
    *ret = (struct submit_cell){
        .opcode = SUBMIT_REQUEST,
        .slot = (uint16_t)slot,
        .generation = ++in->generation[slot],
        .length = n,
        .prompt_length = n,
        .max_tokens = 1 + random_below(random, 60),
        .params_bytes = fill_params(random, block),
    };
    ring_generation_start(&segment_up_slot(&in->raw.segment, slot)->generation, ret->generation);
    segment_copy_out(segment_arena(&in->raw.segment, slot), tokens, n * 4ul);
    segment_copy_out(segment_params(&in->raw.segment, slot), block, ret->params_bytes);
}

/* Pushes a cell where the ring has room within a moment. */
static bool push(struct intruder *in, const struct submit_cell *cell)
{
    for (int i = 0; i < 50 && ring_space(&in->submit) == 0; i++)
        attack_sleep_us(100);
    if (ring_space(&in->submit) <= 0)
        return false;
    ring_push(&in->submit, cell);
    raw_ring(&in->raw);
    return true;
}

/* ---- a thread beside the requests ------------------------------------------------------------- */

enum scope { SCOPE_ALL, SCOPE_BODIES, SCOPE_BULK, SCOPES };

struct scribbler {
    const struct segment *segment;
    struct attack_state *state;
    uint32_t random;
    enum scope scope;
    _Atomic bool stop;
};

/* Submits requests, each `pushes` times, and reads answers while the thread does its worst. */
static void submit_beside(struct attack_state *a, void *(*thread)(void *), int pushes)
{
    struct intruder in;
    struct submit_cell cell;
    pthread_t id;

    if (!intruder_open(&in, a))
        return;
    struct scribbler s = {.segment = &in.raw.segment,
                          .state = a,
                          .random = next_random(&a->random),
                          .scope = (enum scope)random_below(&a->random, SCOPES)};
    if (pthread_create(&id, NULL, thread, &s) == 0) {
        for (int i = 0; i < REQUESTS; i++) {
            prepare(&in, &a->random, &cell);
            for (int k = 0; k < pushes; k++)
                push(&in, &cell);
            attack_sleep_us(500);
            intruder_read(&in);
        }
        atomic_store(&s.stop, true);
        pthread_join(id, NULL);
    }
    raw_close(&in.raw);
}

/* ---- every word, at any time ------------------------------------------------------------------ */

/* Words whose wrong values close the client at once hide what is checked after them: so the second
 * scope leaves out the rings' numbers and the progress of reading, the third writes parameters and
 * tokens alone. */
static bool is_within(const struct scribbler *s, uint64_t at)
{
    const struct segment_plan *plan = &s->segment->plan;

    if (s->scope == SCOPE_BULK)
        return at >= plan->up_params;
    if (s->scope == SCOPE_ALL || at >= plan->up_params || at < plan->up_slots)
        return true;
    if (at < plan->up_submit)
        return (at - plan->up_slots) % sizeof(struct up_slot) < IPC_STRIDE;
    return (at - plan->up_submit) % IPC_LINE >= 4;
}

static uint32_t worst_value(uint32_t *random, uint32_t old)
{
    switch (random_below(random, 8)) {
    case 0:
        return 0;
    case 1:
        return UINT32_MAX;
    case 2:
        return old + 1;
    case 3:
        return old - 1;
    case 4:
        return old ^ 1u << random_below(random, 32);
    case 5:
        return random_below(random, 512);
    case 6:
        return 1u << random_below(random, 32);
    default:
        return next_random(random) << 8 ^ next_random(random);
    }
}

/* The place of byte `at` of what requests use: of each parameter block the beginning alone. */
static uint64_t used_place(const struct segment *s, uint64_t at)
{
    uint64_t blocks = at - s->plan.up_params;

    if (at < s->plan.up_params)
        return at;
    if (blocks < s->limits.slots * BLOCK_USED)
        return s->plan.up_params + blocks / BLOCK_USED * s->limits.params_bytes +
               blocks % BLOCK_USED;
    return s->plan.up_arenas + blocks - s->limits.slots * BLOCK_USED;
}

static uint64_t used_bytes(const struct segment *s)
{
    return s->plan.up_bytes - s->plan.up_arenas + s->plan.up_params + s->limits.slots * BLOCK_USED;
}

/* A thread: all words in an order without a pattern, over and over. That it races is its purpose. */
__attribute__((no_sanitize("thread"))) static void *scribble(void *arg)
{
    struct scribbler *s = arg;
    _Atomic uint32_t *words = (_Atomic uint32_t *)(void *)s->segment->up;
    uint64_t n = used_bytes(s->segment) / 4, done = 0;

    for (uint64_t i = 0; !atomic_load_explicit(&s->stop, memory_order_relaxed); i++) {
        uint64_t at = used_place(s->segment, i * 7919 % n * 4) / 4;
        if (!is_within(s, at * 4))
            continue;
        uint32_t old = atomic_load_explicit(&words[at], memory_order_relaxed);
        atomic_store_explicit(&words[at], worst_value(&s->random, old), memory_order_relaxed);
        if (++done % 512 == 0)
            attack_sleep_us(20); /* the requests beside it shall be read in between */
    }
    atomic_fetch_add(&s->state->done, done);
    return NULL;
}

void attack_words(struct attack_state *a)
{
    submit_beside(a, scribble, 1);
}

/* ---- cells with one mistake -------------------------------------------------------------------- */

/* One word of the cell, or of the block or the tokens that it names. */
static void mutate(struct intruder *in, uint32_t *random, struct submit_cell *cell)
{
    const struct segment *s = &in->raw.segment;
    uint32_t slot = cell->slot, at;

    switch (random_below(random, 4)) {
    case 0:
    case 1:
        at = 1 + random_below(random, IPC_LINE / 4 - 1); /* not the ring's number */
        ((uint32_t *)(void *)cell)[at] =
            worst_value(random, ((const uint32_t *)(const void *)cell)[at]);
        break;
    case 2:
        at = random_below(random, cell->params_bytes / 4);
        ((uint32_t *)(void *)segment_params(s, slot))[at] = worst_value(random, 0);
        break;
    default:
        segment_arena(s, slot)[random_below(random, cell->length)] = worst_value(random, 0);
    }
}

void attack_cells(struct attack_state *a)
{
    struct intruder in;
    struct submit_cell cell;

    if (!intruder_open(&in, a))
        return;
    for (int i = 0; i < CELLS; i++) {
        prepare(&in, &a->random, &cell);
        mutate(&in, &a->random, &cell);
        if (!push(&in, &cell))
            break;
        intruder_read(&in);
        atomic_fetch_add(&a->done, 1);
    }
    if (random_below(&a->random, 4) == 0) /* the ring itself is nonsense: it is closed */
        in.submit.next += random_below(&a->random, 3) - 1;
    ring_push(&in.submit, &cell);
    raw_ring(&in.raw);
    raw_close(&in.raw);
}

/* ---- pages that go away ------------------------------------------------------------------------ */

static void *punch(void *arg)
{
    struct scribbler *s = arg;
    uint32_t n = (uint32_t)(used_bytes(s->segment) / IPC_PAGE);

    while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
        uint64_t at = used_place(s->segment, random_below(&s->random, n) * (uint64_t)IPC_PAGE);
        madvise(s->segment->up + at / IPC_PAGE * IPC_PAGE, IPC_PAGE, MADV_REMOVE);
        atomic_fetch_add(&s->state->done, 1);
        attack_sleep_us(20);
    }
    return NULL;
}

/* A thread takes pages out of the segment while requests that lie in them are read. */
void attack_holes(struct attack_state *a)
{
    submit_beside(a, punch, 1);
}

/* ---- grammars ---------------------------------------------------------------------------------- */

/* Of GRAMMAR bytes, another one each time; the mistake comes last. */
static uint32_t fill_grammar(uint32_t number, char *text)
{
    int n = sprintf(text, "root ::= \"%u\"", number);

    while (n < GRAMMAR)
        n += sprintf(text + n, " | \"a%d\" [b-z]", n);
    n += sprintf(text + n, " | missing");
    return (uint32_t)n;
}

/* Requests whose grammars cost much and do not compile, and each of their cells again and again. */
void attack_grammars(struct attack_state *a)
{
    static char text[GRAMMAR + 100];
    struct intruder in;
    struct submit_cell cell;
    struct params p;

    if (!intruder_open(&in, a))
        return;
    for (uint32_t i = 0; i < GRAMMARS && !atomic_load(&a->stop); i++) {
        prepare(&in, &a->random, &cell);
        params_default(&p);
        p.grammar = (const uint8_t *)text;
        p.grammar_bytes = fill_grammar(next_random(&a->random), text);
        int bytes = params_encode(&p, segment_params(&in.raw.segment, cell.slot),
                                  in.raw.segment.limits.params_bytes, NULL, 0);
        cell.params_bytes = (uint32_t)bytes;
        for (int k = 0; k < 16; k++)
            push(&in, &cell);
        intruder_read(&in);
        atomic_fetch_add(&a->done, 1);
    }
    raw_close(&in.raw);
}

/* ---- requests void at any time ----------------------------------------------------------------- */

static void *supersede(void *arg)
{
    struct scribbler *s = arg;

    while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
        struct up_slot *slot =
            segment_up_slot(s->segment, random_below(&s->random, s->segment->limits.slots));
        uint32_t old = atomic_load_explicit(&slot->generation, memory_order_relaxed);
        atomic_store(&slot->generation, old + random_below(&s->random, 3) - 1);
        atomic_fetch_add(&s->state->done, 1);
        if (random_below(&s->random, 4) == 0)
            attack_sleep_us(10);
    }
    return NULL;
}

/* The word that says which request is live goes up and down while they are read and run: many are
 * live again, and the same cell may be pushed again. */
void attack_generations(struct attack_state *a)
{
    submit_beside(a, supersede, 8);
}
