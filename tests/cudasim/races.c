/* Device memory between the blocks of a cooperative grid: two blocks that touch the same word, one
 * of them writing, without a release of the first and an acquire of the second in between, are a
 * race, whatever order they happened to run in.
 *
 * These are vector clocks: a block has a clock, advanced by each of its releases, and for every
 * other block the clock up to which it has seen that block's work. A released word keeps what its
 * releasers had seen; an acquire takes it over. Each word of memory has the block and clock of its
 * last write and of its last read; earlier ones are forgotten, so some races are missed. Atomics
 * and volatile accesses never race and order nothing by themselves. */
#include "tests/cudasim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_BLOCKS = 64, MOST_ORDERS = 4096, WORD = 4 };

struct stamp {
    uint32_t grid; /* number of the launch, from 1; of another one: never */
    uint16_t clock;
    uint8_t block, mask; /* bytes of the word */
};

struct device_word {
    struct stamp write, read;
};

struct order {
    uintptr_t address;
    uint16_t known[MOST_BLOCKS];
};

bool sim_races_on;
static struct device_word *words; /* [SIM_DEVICE_SPAN / WORD] */
static struct order orders[MOST_ORDERS];
static unsigned n_orders, n_blocks;
static uint16_t known[MOST_BLOCKS][MOST_BLOCKS]; /* [block][other]: last clock seen */
static uint32_t grid_number;

static void words_open(void)
{
    if (words != NULL)
        return;
    words = mmap(NULL, SIM_DEVICE_SPAN / WORD * sizeof(*words), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (words == MAP_FAILED) {
        fprintf(stderr, "cudasim: cannot reserve addresses for races (HEARTH_CUDASIM_RACES=0)\n");
        abort();
    }
    (void)madvise(words, SIM_DEVICE_SPAN / WORD * sizeof(*words), MADV_DONTDUMP);
}

void sim_races_begin(unsigned blocks)
{
    sim_races_on = sim_settings()->races && blocks > 1 && blocks <= MOST_BLOCKS;
    if (!sim_races_on)
        return;
    words_open();
    memset(known, 0, sizeof(known));
    for (unsigned i = 0; i < blocks; i++)
        known[i][i] = 1;
    n_blocks = blocks;
    n_orders = 0;
    grid_number++;
}

void sim_races_end(void)
{
    sim_races_on = false;
}

/* ---- order ---- */

static struct order *order_of(const void *address)
{
    for (unsigned i = 0; i < n_orders; i++) {
        if (orders[i].address == (uintptr_t)address)
            return &orders[i];
    }
    if (n_orders == MOST_ORDERS) {
        fprintf(stderr, "cudasim: more than %d words that order blocks\n", MOST_ORDERS);
        abort();
    }
    orders[n_orders] = (struct order){.address = (uintptr_t)address};
    return &orders[n_orders++];
}

static void join(uint16_t *to, const uint16_t *from)
{
    for (unsigned i = 0; i < n_blocks; i++)
        to[i] = from[i] > to[i] ? from[i] : to[i];
}

void cudasim_release(const void *address)
{
    const unsigned block = sim_current->block->slot;

    if (!sim_races_on)
        return;
    join(order_of(address)->known, known[block]);
    if (known[block][block]++ == UINT16_MAX) {
        fprintf(stderr, "cudasim: more than 65535 releases of a block\n");
        abort();
    }
}

void cudasim_acquire(const void *address)
{
    if (sim_races_on)
        join(known[sim_current->block->slot], order_of(address)->known);
}

/* ---- accesses ---- */

static bool races(const struct stamp *before, const struct stamp *now)
{
    return before->grid == now->grid && before->block != now->block &&
           (before->mask & now->mask) != 0 && known[now->block][before->block] < before->clock;
}

__attribute__((noinline, cold, noreturn)) static void report(uintptr_t offset, size_t bytes,
                                                             const struct stamp *before,
                                                             const char *verb, const char *other,
                                                             const void *caller)
{
    struct sim_block_found found;

    sim_memory_find(sim_memory.device + offset, &found);
    sim_report(NULL, 0, caller,
               "%s %zu bytes at %zu of allocation %u that another block (number %u of those that "
               "run) %s without a release and an acquire in between",
               verb, bytes, sim_memory.device + offset - found.base, found.number, before->block,
               other);
}

/* The bytes of word i inside [offset, offset + bytes). */
static uint8_t mask_of(uintptr_t offset, size_t bytes, uintptr_t i)
{
    const uintptr_t begin = i * WORD, end = begin + WORD;
    const unsigned before = offset > begin ? (unsigned)(offset - begin) : 0,
                   after = end > offset + bytes ? (unsigned)(end - offset - bytes) : 0;

    return (uint8_t)(15u >> (before + after) << before);
}

void sim_races_access(uintptr_t offset, size_t bytes, bool write, const void *caller)
{
    const unsigned block = sim_current->block->slot;
    struct stamp now = {grid_number, known[block][block], (uint8_t)block, 0};

    for (uintptr_t i = offset / WORD; i <= (offset + bytes - 1) / WORD; i++) {
        struct device_word *word = &words[i];

        now.mask = mask_of(offset, bytes, i);
        if (races(&word->write, &now))
            report(offset, bytes, &word->write, write ? "writes" : "reads", "has written", caller);
        if (write && races(&word->read, &now))
            report(offset, bytes, &word->read, "writes", "has read", caller);
        if (write)
            word->write = now;
        else
            word->read = now;
    }
}
