/* Device memory between the blocks of a launch, which a GPU runs in any order, or at once: two blocks that touch
 * the same bytes, one of them writing, are a race, whatever they find there here.
 *
 * Blocks run one after another here, so time is counted in moments: one begins with each block, and one after each release. A
 * word keeps the moment of its last write, and of the first read in a launch. An access races with a moment of
 * an earlier block of its launch, unless that block released a word afterwards which this one has acquired. Atomic and
 * volatile accesses never race, and order nothing by themselves. Where blocks touch different bytes of a word, one
 * of them is kept, so some races are missed; reads of what no kernel wrote are not looked at (access.c). */
#include "tests/cudasim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WORD = 4, WHOLE = 15, MOST_ORDERS = 64, LAST_MOMENT = (1 << 28) - 1 };

/* moment << WORD | which bytes of the word; 0: never */
struct device_word {
    uint32_t write, read;
};

/* A word that orders blocks: those that acquire it know what was released before. */
struct order {
    const void *address;
    uint64_t also; /* orders that its releasers had acquired */
};

bool sim_races_on;
static struct device_word *words; /* [SIM_DEVICE_SPAN / WORD] */
static uint32_t moment;           /* now */
static uint32_t launch_began, block_began;
static uint64_t *released; /* [moment - launch_began] at which orders, a bit each */
static size_t n_released;
static uint64_t acquired; /* orders, of the block that runs */
static struct order orders[MOST_ORDERS];
static unsigned n_orders;

static void *must(void *memory)
{
    if (memory == NULL || memory == MAP_FAILED) {
        fprintf(stderr, "cudasim: no memory to look for races (HEARTH_CUDASIM_RACES=0)\n");
        abort();
    }
    return memory;
}

static void words_open(void)
{
    const size_t bytes = SIM_DEVICE_SPAN / WORD * sizeof(*words);

    if (words != NULL && moment < LAST_MOMENT / 2)
        return;
    if (words != NULL)
        (void)munmap(words, bytes); /* moments begin anew */
    words = must(mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    (void)madvise(words, bytes, MADV_DONTDUMP);
    moment = 0;
}

static void next_moment(void)
{
    moment++;
    const size_t n = moment - launch_began + 1;
    if (n > n_released) {
        const size_t more = n * 2;
        released = must(realloc(released, more * sizeof(*released)));
        memset(released + n_released, 0, (more - n_released) * sizeof(*released));
        n_released = more;
    }
    released[n - 1] = 0;
}

void sim_races_launch(void)
{
    sim_races_on = sim_settings()->races;
    if (!sim_races_on)
        return;
    words_open();
    launch_began = moment + 1;
    n_orders = 0;
}

void sim_races_block(void)
{
    if (!sim_races_on)
        return;
    next_moment();
    if (moment == LAST_MOMENT) {
        fprintf(stderr, "cudasim: too many blocks to look for races (HEARTH_CUDASIM_RACES=0)\n");
        abort();
    }
    block_began = moment;
    acquired = 0;
}

/* ---- order ---- */

static unsigned order_of(const void *address)
{
    for (unsigned i = 0; i < n_orders; i++) {
        if (orders[i].address == address)
            return i;
    }
    if (n_orders == MOST_ORDERS) {
        fprintf(stderr, "cudasim: more than %d words that order blocks\n", MOST_ORDERS);
        abort();
    }
    orders[n_orders] = (struct order){.address = address};
    return n_orders++;
}

void cudasim_release(const void *address)
{
    if (!sim_races_on)
        return;
    const unsigned i = order_of(address);
    orders[i].also |= acquired;
    for (uint32_t m = block_began; m <= moment; m++)
        released[m - launch_began] |= UINT64_C(1) << i;
    next_moment();
}

void cudasim_acquire(const void *address)
{
    if (!sim_races_on)
        return;
    const unsigned i = order_of(address);
    acquired |= orders[i].also | UINT64_C(1) << i;
}

/* ---- accesses ---- */

static bool races(uint32_t stamp, uint32_t bytes)
{
    const uint32_t then = stamp >> WORD;

    return then >= launch_began && then < block_began && (stamp & bytes) != 0 &&
           (released[then - launch_began] & acquired) == 0;
}

__attribute__((noinline, cold, noreturn)) static void
report(uintptr_t offset, size_t bytes, const char *verb, const char *other, const void *caller)
{
    struct sim_block_found found;

    sim_memory_find(sim_memory.device + offset, &found);
    sim_report(NULL, 0, caller,
               "%s %zu bytes at %zu of allocation %u that another block of the launch %s without a "
               "release and an "
               "acquire in between",
               verb, bytes, sim_memory.device + offset - found.base, found.number, other);
}

/* The bytes of word i inside [offset, offset + bytes). */
static uint32_t bytes_of(uintptr_t offset, size_t bytes, uintptr_t i)
{
    const uintptr_t begin = i * WORD, end = begin + WORD;
    const unsigned before = offset > begin ? (unsigned)(offset - begin) : 0,
                   after = end > offset + bytes ? (unsigned)(end - offset - bytes) : 0;

    return (uint32_t)WHOLE >> (before + after) << before;
}

static inline void touch(uintptr_t i, uint32_t which, bool write, uintptr_t offset, size_t bytes,
                         const void *caller)
{
    struct device_word *word = &words[i];

    if (races(word->write, which))
        report(offset, bytes, write ? "writes" : "reads", "has written", caller);
    if (write && races(word->read, which))
        report(offset, bytes, "writes", "has read", caller);
    uint32_t *stamp = write ? &word->write : &word->read;
    if (*stamp >> WORD == moment)
        *stamp |= which;
    else if (write || *stamp >> WORD < launch_began)
        *stamp = moment << WORD | which;
}

void sim_races_access(uintptr_t offset, size_t bytes, bool write, const void *caller)
{
    const uintptr_t end = offset + bytes;

    if ((offset | bytes) % WORD == 0) {
        for (uintptr_t i = offset / WORD; i < end / WORD; i++)
            touch(i, WHOLE, write, offset, bytes, caller);
        return;
    }
    for (uintptr_t i = offset / WORD; i <= (end - 1) / WORD; i++)
        touch(i, bytes_of(offset, bytes, i), write, offset, bytes, caller);
}
