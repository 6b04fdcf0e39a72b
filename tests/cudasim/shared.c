/* Shared memory of the block that runs. Each byte has a flag whether it was written; each
 * word has its last writer and reader and the barrier before each: two threads that touch the same
 * bytes, one of them writing, without a barrier between them, are a race, whatever order they
 * happened to run in. __syncwarp orders the lanes of a warp; atomics do not race with atomics. */
#include "tests/cudasim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_BYTES = 256 * 1024, WORD = 4 };

struct touch {
    uint32_t epoch; /* the block's when it happened; 0: never */
    uint16_t thread, warp_epoch;
    uint8_t mask; /* bytes of the word */
    uint8_t atomic;
    uint8_t readers; /* reads: 1; 2: several lanes of one warp; 3: of several warps */
    const void *code;
};

struct shared_word {
    struct touch write, read;
};

struct sim_shared sim_shared;
static uint8_t *states;           /* [MOST_BYTES] SIM_* */
static struct shared_word *words; /* [MOST_BYTES / WORD] */
static bool looks_for_races;

void sim_shared_open(void)
{
    if (sim_shared.base != 0)
        return;
    void *memory = mmap(NULL, MOST_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    states = calloc(1, MOST_BYTES);
    words = calloc(MOST_BYTES / WORD, sizeof(*words));
    if (memory == MAP_FAILED || states == NULL || words == NULL) {
        fprintf(stderr, "cudasim: no memory for shared memory\n");
        abort();
    }
    sim_shared = (struct sim_shared){(uintptr_t)memory, MOST_BYTES};
    looks_for_races = sim_settings()->races;
}

void sim_shared_begin(const struct sim_block *block)
{
    memset(states, SIM_ALLOCATED, block->shared_bytes);
}

void *sim_shared_memory(void)
{
    return (void *)sim_shared.base;
}

static size_t offset_of(uintptr_t address)
{
    return address - sim_shared.base;
}

/* ---- races ---- */

static bool conflicts(const struct touch *before, const struct touch *now)
{
    const bool same_warp = before->thread / 32 == now->thread / 32;

    if (before->epoch != now->epoch || (before->mask & now->mask) == 0 ||
        (before->atomic && now->atomic))
        return false;
    if (same_warp && before->warp_epoch != now->warp_epoch)
        return before->readers == 3;
    return before->thread != now->thread || before->readers > 1;
}

static uint3 thread_index(unsigned flat)
{
    const dim3 dim = sim_current->self.block_dim;

    return (uint3){flat % dim.x, flat / dim.x % dim.y, flat / dim.x / dim.y};
}

__attribute__((noinline, cold)) static void report_race(const struct touch *before, size_t offset,
                                                        size_t bytes, const char *verb,
                                                        const char *other, const void *caller)
{
    char line[200] = "?";
    const uint3 thread = thread_index(before->thread);

    (void)sim_symbol_line(before->code, line, sizeof(line));
    sim_report(
        NULL, 0, caller,
        "%s %zu bytes at %zu of shared memory that thread (%u,%u,%u) %s (%s), with no barrier "
        "between",
        verb, bytes, offset, thread.x, thread.y, thread.z, other, line);
}

static void note_read(struct touch *read, const struct touch *now)
{
    const bool same = read->epoch == now->epoch && read->mask == now->mask;

    if (!same || read->thread == now->thread) {
        const uint8_t readers = same && read->warp_epoch == now->warp_epoch ? read->readers : 1;
        *read = *now;
        read->readers = readers > 1 ? readers : 1;
    } else if (read->thread / 32 != now->thread / 32) {
        read->readers = 3;
    } else if (read->warp_epoch == now->warp_epoch) {
        read->readers = read->readers > 2 ? 3 : 2;
    } else if (read->readers < 3) {
        *read = *now;
        read->readers = 1;
    }
}

/* Threads of several warps have read the word since the barrier and none has written it: one more reader changes nothing. */
static inline bool known_read(const struct shared_word *word, const struct touch *now)
{
    return word->read.epoch == now->epoch && word->read.readers == 3 &&
           word->read.mask == now->mask && word->write.epoch != now->epoch;
}

static void touch_word(struct shared_word *word, struct touch *now, size_t offset, size_t bytes,
                       bool write)
{
    if (!write && known_read(word, now))
        return;
    const char *verb = now->atomic ? "changes" : write ? "writes" : "reads";

    if (conflicts(&word->write, now))
        report_race(&word->write, offset, bytes, verb, word->write.atomic ? "changed" : "wrote",
                    now->code);
    if (!write) {
        note_read(&word->read, now);
        return;
    }
    if (conflicts(&word->read, now))
        report_race(&word->read, offset, bytes, verb, "read", now->code);
    word->write = *now;
}

static void check_races(size_t offset, size_t bytes, bool write, bool atomic, const void *caller)
{
    const struct sim_thread *thread = sim_current;
    const struct sim_block *block = thread->block;
    struct touch now = {.epoch = (uint32_t)block->epoch,
                        .thread = (uint16_t)thread->index,
                        .warp_epoch = (uint16_t)block->warps[thread->index / 32].epoch,
                        .atomic = atomic,
                        .code = caller};

    for (size_t at = offset; at < offset + bytes;) {
        const size_t first = at % WORD, left = offset + bytes - at;
        const size_t n = left < WORD - first ? left : WORD - first;

        now.mask = (uint8_t)(((1u << n) - 1) << first);
        touch_word(&words[at / WORD], &now, offset, bytes, write);
        at += n;
    }
}

/* ---- accesses ---- */

__attribute__((noinline, cold)) static void report_state(size_t offset, size_t bytes, bool write,
                                                         const void *caller)
{
    bool copying = false;

    for (size_t i = offset; i < offset + bytes; i++)
        copying |= (states[i] & SIM_COPYING) != 0;
    if (copying)
        sim_report(NULL, 0, caller,
                   "%s %zu bytes at %zu of shared memory that an asynchronous copy without its "
                   "wait may still be writing",
                   write ? "writes" : "reads", bytes, offset);
    sim_report(NULL, 0, caller, "reads %zu bytes at %zu of shared memory, never written", bytes,
               offset);
}

static inline void check_state(size_t offset, size_t bytes, bool write, const void *caller)
{
    uint32_t any = 0, all = UINT32_MAX;
    size_t i = offset;

    for (; i + WORD <= offset + bytes; i += WORD) {
        uint32_t four;
        memcpy(&four, states + i, sizeof(four));
        any |= four;
        all &= four;
    }
    all &= all >> 16;
    all &= all >> 8;
    any |= any >> 16;
    any |= any >> 8;
    for (; i < offset + bytes; i++) {
        any |= states[i];
        all &= states[i];
    }
    if (any & SIM_COPYING || (!write && !(all & SIM_WRITTEN)))
        report_state(offset, bytes, write, caller);
}

void sim_shared_access(uintptr_t address, size_t bytes, bool write, bool atomic, const void *caller)
{
    const struct sim_block *block = sim_current->block;
    const size_t offset = offset_of(address);

    if (offset >= block->shared_bytes || bytes > block->shared_bytes - offset)
        sim_report(NULL, 0, caller,
                   "%s %zu bytes at %ld, outside of its %zu bytes of shared memory",
                   write ? "writes" : "reads", bytes, (long)offset, block->shared_bytes);
    check_state(offset, bytes, write && !atomic, caller); /* an atomic reads as well */
    if (write)
        memset(states + offset, SIM_READY, bytes);
    if (looks_for_races)
        check_races(offset, bytes, write, atomic, caller);
}

void sim_shared_copying(uintptr_t address, size_t bytes, bool on)
{
    memset(states + offset_of(address), on ? SIM_ALLOCATED | SIM_COPYING : SIM_READY, bytes);
}
