/* One grid at a time: its blocks and their threads as fibres.
 *
 * A stack ("carrier") takes a thread that has not begun, runs the kernel for it, and takes the next
 * one: a kernel that never waits costs a call a thread and no switch. A waiting thread keeps its
 * stack, and another carrier continues. The order of scheduling: threads that can run, then
 * threads that have not begun, then those that spin. Blocks run one after another, so that a block
 * that waits for another one is noticed.
 *
 * HEARTH_CUDASIM_ORDER reverses the order of blocks and threads or shuffles both: results that
 * change with it depend on an order that no GPU guarantees. */
#include "tests/cudasim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rounds of polling without a change of memory that count as a deadlock: more than any bounded
 * polling loop makes. */
enum { IDLE_ROUNDS = 20000 };

enum next { NEXT_READY, NEXT_NEWBORN, NEXT_NONE };

struct queue {
    struct sim_thread *head, **tail;
};

struct sim_grid {
    const struct sim_kernel *kernel;
    struct sim_block *block; /* that runs */
    struct queue ready, spinning;
    struct sim_thread *chosen;
    uint64_t progress_seen;
    unsigned idle_rounds;
    bool shuffled; /* of the settings */
};

__thread struct sim_thread *sim_current;
uint64_t sim_progress;
static struct sim_grid grid;
static struct sim_fibre main_fibre;
static struct sim_fibre *own_fibre; /* of the carrier that begins */
static uint64_t last_epoch;

const struct sim_kernel *sim_running(void)
{
    return grid.kernel;
}

uint64_t sim_next_epoch(void)
{
    return ++last_epoch;
}

const struct cudasim_self *cudasim_self(void)
{
    return &sim_current->self;
}

void *cudasim_shared(void)
{
    return sim_shared_memory();
}

/* ---- scheduling ---- */

static void queue_clear(struct queue *queue)
{
    queue->head = NULL;
    queue->tail = &queue->head;
}

static void queue_push(struct queue *queue, struct sim_thread *thread)
{
    thread->next = NULL;
    *queue->tail = thread;
    queue->tail = &thread->next;
}

static struct sim_thread *queue_pop(struct queue *queue)
{
    struct sim_thread *thread = queue->head;

    queue->head = thread->next;
    if (queue->head == NULL)
        queue->tail = &queue->head;
    return thread;
}

static inline bool shuffled(void)
{
    return grid.shuffled;
}

void sim_make_ready(struct sim_thread *thread)
{
    thread->block->states[thread->index] = SIM_READY_TO_RUN;
    if (shuffled() && grid.ready.head != NULL && (sim_random() & 1)) {
        thread->next = grid.ready.head;
        grid.ready.head = thread;
        return;
    }
    queue_push(&grid.ready, thread);
}

static bool newborn_waits(void)
{
    return grid.block->next_thread < grid.block->n_threads;
}

/* All threads of the block poll, and no memory has changed for long. */
static void report_spinning(void)
{
    sim_current = grid.spinning.head;
    sim_report(
        sim_current->file, sim_current->line, NULL,
        "polls memory that no thread of its block changes any more: other blocks need not run");
}

/* All polling threads get another turn; counts the turns in which nothing changed. */
static void poll_again(void)
{
    if (sim_progress != grid.progress_seen) {
        grid.progress_seen = sim_progress;
        grid.idle_rounds = 0;
    } else if (++grid.idle_rounds > IDLE_ROUNDS) {
        report_spinning();
    }
    while (grid.spinning.head != NULL)
        sim_make_ready(queue_pop(&grid.spinning));
}

static enum next choose(void)
{
    const bool newborn = newborn_waits();

    if (grid.ready.head == NULL && !newborn && grid.spinning.head != NULL)
        poll_again();
    if (grid.ready.head != NULL && !(newborn && shuffled() && (sim_random() & 1))) {
        grid.chosen = queue_pop(&grid.ready);
        return NEXT_READY;
    }
    return newborn ? NEXT_NEWBORN : NEXT_NONE;
}

static void carry(void);

/* Continues with another fibre; returns when one switches back to `from`. */
static void leave(struct sim_fibre *from, enum next next)
{
    struct sim_fibre *to = &main_fibre;

    sim_current = NULL;
    if (next == NEXT_NEWBORN) {
        own_fibre = to = sim_fibre_take(carry);
    } else if (next == NEXT_READY) {
        sim_current = grid.chosen;
        to = grid.chosen->fibre;
    }
    if (to == from)
        return;
    sim_fibre_switch(from, to);
}

void sim_wait(enum sim_state state, const char *file, int line)
{
    struct sim_thread *thread = sim_current;

    thread->file = file;
    thread->line = line;
    thread->block->states[thread->index] = (uint8_t)state;
    if (state == SIM_SPINNING)
        queue_push(&grid.spinning, thread);
    leave(thread->fibre, choose());
}

void cudasim_yield(const char *file, int line)
{
    sim_wait(SIM_SPINNING, file, line);
}

/* ---- threads ---- */

static uint3 index_of(unsigned flat, dim3 dim)
{
    return (uint3){flat % dim.x, flat / dim.x % dim.y, flat / dim.x / dim.y};
}

static void birth(struct sim_thread *thread, struct sim_fibre *fibre, void *arguments)
{
    struct sim_block *block = grid.block;
    const unsigned index = block->order[block->next_thread++];

    *thread = (struct sim_thread){
        .self = {index_of(index, grid.kernel->block_dim), block->index, grid.kernel->block_dim,
                 grid.kernel->grid_dim, index % 32},
        .stack = (uintptr_t)fibre->stack,
        .block = block,
        .fibre = fibre,
        .index = index,
    };
    memcpy(arguments, grid.kernel->arguments, grid.kernel->argument_bytes);
    block->threads[index] = thread;
    block->states[index] = SIM_READY_TO_RUN;
    block->warps[index / 32].born |= 1u << index % 32;
    sim_current = thread;
}

static void check_ended(const struct sim_block *block)
{
    if (block->arrived > 0)
        sim_report(NULL, 0, NULL,
                   "ends while %u of %u threads of its block wait at __syncthreads (%s:%d)",
                   block->arrived, block->n_threads, block->barrier_file, block->barrier_line);
}

static void death(struct sim_thread *thread)
{
    struct sim_block *block = thread->block;

    check_ended(block);
    sim_warp_ended(thread);
    sim_copies_ended(thread);
    block->ended++;
    block->states[thread->index] = SIM_ENDED;
    block->threads[thread->index] = NULL;
    sim_progress++;
}

static void carry(void)
{
    struct sim_thread thread;
    _Alignas(16) unsigned char arguments[CUDASIM_ARGUMENT_BYTES];
    struct sim_fibre *fibre = own_fibre;
    enum next next;

    do {
        birth(&thread, fibre, arguments);
        grid.kernel->call(arguments);
        death(&thread);
        next = choose();
    } while (next == NEXT_NEWBORN);
    sim_fibre_give(fibre);
    leave(fibre, next);
}

/* ---- barriers ---- */

static void check_barrier(const struct sim_block *block, enum cudasim_barrier kind,
                          const char *file, int line)
{
    if (block->ended > 0)
        sim_report(file, line, NULL,
                   "waits at __syncthreads, but %u of %u threads of its block have ended",
                   block->ended, block->n_threads);
    if (block->arrived > 0 &&
        (block->barrier_kind != kind || block->barrier_line != line ||
         (block->barrier_file != file && strcmp(block->barrier_file, file) != 0)))
        sim_report(
            file, line, NULL,
            "waits at __syncthreads, but %u threads of its block wait at another one (%s:%d)",
            block->arrived, block->barrier_file, block->barrier_line);
}

int cudasim_barrier(enum cudasim_barrier kind, int predicate, const char *file, int line)
{
    struct sim_thread *thread = sim_current;
    struct sim_block *block = thread->block;

    check_barrier(block, kind, file, line);
    if (block->arrived == 0) {
        block->barrier_kind = kind;
        block->barrier_file = file;
        block->barrier_line = line;
        block->count = block->any = 0;
        block->all = 1;
        block->waiting = NULL;
        block->any_followed = false;
    }
    block->any_followed |= thread->followed;
    block->count += predicate != 0;
    block->any |= predicate != 0;
    block->all &= predicate != 0;
    if (++block->arrived < block->n_threads) {
        thread->next = block->waiting;
        block->waiting = thread;
        sim_wait(SIM_AT_BARRIER, file, line);
        return (int)thread->result;
    }
    const int result = kind == CUDASIM_BARRIER_COUNT ? block->count
                       : kind == CUDASIM_BARRIER_AND ? block->all
                                                     : block->any;
    block->arrived = 0;
    block->epoch = sim_next_epoch();
    block->followed |= block->any_followed;
    for (struct sim_thread *next, *t = block->waiting; t != NULL; t = next) {
        next = t->next;
        t->result = (uint64_t)result;
        sim_make_ready(t);
    }
    return result;
}

/* ---- grids ---- */

static void *must(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "cudasim: out of memory\n");
        abort();
    }
    return memory;
}

/* Its arrays fit any block. */
static struct sim_block *block_open(void)
{
    struct sim_block *block = must(calloc(1, sizeof(*block)));

    block->order = must(calloc(SIM_THREADS_PER_BLOCK, sizeof(*block->order)));
    block->states = must(calloc(SIM_THREADS_PER_BLOCK, sizeof(*block->states)));
    block->threads = must(calloc(SIM_THREADS_PER_BLOCK, sizeof(struct sim_thread *)));
    block->warps = must(calloc(SIM_THREADS_PER_BLOCK / 32, sizeof(*block->warps)));
    return block;
}

/* [0, n) in the order of the settings. */
static void order_fill(void *order, unsigned n, void (*put)(void *, unsigned, unsigned),
                       unsigned (*get)(const void *, unsigned))
{
    for (unsigned i = 0; i < n; i++)
        put(order, i, sim_settings()->order == SIM_ORDER_DOWN ? n - 1 - i : i);
    for (unsigned i = n; shuffled() && i > 1; i--) {
        const unsigned other = (unsigned)(sim_random() % i), kept = get(order, i - 1);

        put(order, i - 1, get(order, other));
        put(order, other, kept);
    }
}

static void put16(void *order, unsigned i, unsigned value)
{
    ((uint16_t *)order)[i] = (uint16_t)value;
}

static unsigned get16(const void *order, unsigned i)
{
    return ((const uint16_t *)order)[i];
}

static void put32(void *order, unsigned i, unsigned value)
{
    ((uint32_t *)order)[i] = value;
}

static unsigned get32(const void *order, unsigned i)
{
    return ((const uint32_t *)order)[i];
}

static void block_begin(struct sim_block *block, unsigned flat)
{
    const struct sim_kernel *kernel = grid.kernel;
    const unsigned n = kernel->block_dim.x * kernel->block_dim.y * kernel->block_dim.z;

    block->grid = &grid;
    block->index = index_of(flat, kernel->grid_dim);
    block->n_threads = n;
    block->next_thread = block->ended = block->arrived = 0;
    block->followed = !kernel->dependent;
    block->shared_bytes = kernel->shared_bytes;
    block->epoch = block->number = sim_next_epoch();
    order_fill(block->order, n, put16, get16);
    memset(block->states, SIM_UNBORN, n);
    for (unsigned i = 0; i < (n + 31) / 32; i++)
        block->warps[i] = (struct sim_warp){0};
    sim_shared_begin(block);
}

static const char *state_text(enum sim_state state)
{
    switch (state) {
    case SIM_AT_BARRIER:
        return "waits at __syncthreads";
    case SIM_AT_WARP:
        return "waits for its warp";
    case SIM_ENDED:
        return "has ended";
    default:
        return "has not come";
    }
}

/* No thread can run, and not all have ended. */
static void report_stuck(void)
{
    const struct sim_block *block = grid.block;

    sim_warp_stuck(block);
    for (unsigned t = 0; block->arrived > 0 && t < block->n_threads; t++) {
        if (block->states[t] == SIM_AT_BARRIER)
            continue;
        sim_current = block->waiting;
        sim_report(block->barrier_file, block->barrier_line, NULL,
                   "waits at __syncthreads, but thread %u of its block %s", t,
                   state_text((enum sim_state)block->states[t]));
    }
    sim_report(NULL, 0, NULL, "threads are left over that nothing wakes");
}

static void block_run(void)
{
    const enum next next = choose();

    if (next != NEXT_NONE)
        leave(&main_fibre, next);
    if (grid.block->ended < grid.block->n_threads)
        report_stuck();
}

void sim_grid_run(const struct sim_kernel *kernel)
{
    static struct sim_block *block;
    const unsigned n = kernel->grid_dim.x * kernel->grid_dim.y * kernel->grid_dim.z;
    uint32_t *order = must(calloc(n, sizeof(*order)));

    if (block == NULL)
        block = block_open();
    sim_shared_open();
    grid = (struct sim_grid){
        .kernel = kernel, .block = block, .shuffled = sim_settings()->order == SIM_ORDER_SHUFFLED};
    queue_clear(&grid.ready);
    queue_clear(&grid.spinning);
    order_fill(order, n, put32, get32);
    sim_races_launch();
    sim_mapped_begin();
    for (unsigned i = 0; i < n; i++) {
        block_begin(block, order[i]);
        sim_races_block();
        block_run();
    }
    grid.kernel = NULL;
    free(order);
}

/* ---- dependent launches ---- */

/* Grids run one after another, so the previous one is done. On a GPU it may still run until the
 * wait: access.c checks that a dependent kernel does not touch memory that a kernel may still
 * use. */
void cudasim_grid_wait(void)
{
    sim_current->followed = true;
}

void cudasim_grid_launch_dependents(void)
{
}
