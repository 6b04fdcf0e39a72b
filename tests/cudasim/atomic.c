/* Atomic operations, and the asynchronous copies of a thread. */
#include "tests/cudasim/sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- atomics ---- */

static uint64_t sign_extend(uint64_t value, unsigned bytes)
{
    return bytes == 4 ? (uint64_t)(int64_t)(int32_t)value : value;
}

static uint64_t changed(enum cudasim_atomic kind, uint64_t old, uint64_t value, uint64_t compare,
                        unsigned bytes)
{
    const int64_t a = (int64_t)sign_extend(old, bytes), b = (int64_t)sign_extend(value, bytes);

    switch (kind) {
    case CUDASIM_ATOMIC_ADD:
        return old + value;
    case CUDASIM_ATOMIC_MIN:
        return value < old ? value : old;
    case CUDASIM_ATOMIC_MAX:
        return value > old ? value : old;
    case CUDASIM_ATOMIC_MIN_SIGNED:
        return b < a ? value : old;
    case CUDASIM_ATOMIC_MAX_SIGNED:
        return b > a ? value : old;
    case CUDASIM_ATOMIC_AND:
        return old & value;
    case CUDASIM_ATOMIC_OR:
        return old | value;
    case CUDASIM_ATOMIC_XOR:
        return old ^ value;
    case CUDASIM_ATOMIC_COMPARE:
        return old == compare ? value : old;
    case CUDASIM_ATOMIC_LOAD:
        return old;
    default:
        return value;
    }
}

static void check(enum cudasim_atomic kind, uintptr_t address, unsigned bytes, const char *file,
                  int line)
{
    const void *caller = __builtin_return_address(0);

    if (address % bytes != 0)
        cudasim_misaligned((const void *)address, bytes, file, line);
    if (address - sim_shared.base < sim_shared.bytes) {
        if (kind == CUDASIM_ATOMIC_STORE) /* may be the first write */
            sim_shared_access(address, bytes, true, false, caller);
        else
            sim_shared_access(address, bytes, kind != CUDASIM_ATOMIC_LOAD, true, caller);
        return;
    }
    if (kind != CUDASIM_ATOMIC_STORE)
        sim_access_relaxed(address, bytes, false, caller);
    if (kind == CUDASIM_ATOMIC_LOAD)
        return;
    sim_access_relaxed(address, bytes, true, caller);
    if (sim_is_device(address))
        sim_mapped_atomic();
}

/* The host may look at the same word in mapped memory: so these are real atomics, though no other
 * simulated thread runs meanwhile. */
static uint64_t load(const void *address, unsigned bytes)
{
    return bytes == 4 ? __atomic_load_n((const uint32_t *)address, __ATOMIC_ACQUIRE)
                      : __atomic_load_n((const uint64_t *)address, __ATOMIC_ACQUIRE);
}

static void store(void *address, unsigned bytes, uint64_t value)
{
    if (bytes == 4)
        __atomic_store_n((uint32_t *)address, (uint32_t)value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint64_t *)address, value, __ATOMIC_RELEASE);
}

/* A load that would see the same value as the thread's previous load is a polling loop: the other
 * threads run first. The first load does not wait, so that code which does not loop is caught. */
static void poll(const void *address, unsigned bytes, const char *file, int line)
{
    struct sim_thread *thread = sim_current;

    if (thread->polled == address && thread->polled_value == load(address, bytes))
        sim_wait(SIM_SPINNING, file, line);
    thread->polled = address;
    thread->polled_value = load(address, bytes);
}

/* An operation that changed nothing may be a polling loop too. */
uint64_t cudasim_atomic(enum cudasim_atomic kind, void *address, unsigned bytes, uint64_t value,
                        uint64_t compare, const char *file, int line)
{
    const uint64_t bits = bytes == 4 ? UINT32_MAX : UINT64_MAX;
    const uint64_t progress = sim_progress;

    check(kind, (uintptr_t)address, bytes, file, line);
    if (kind == CUDASIM_ATOMIC_LOAD)
        poll(address, bytes, file, line);
    const uint64_t old = load(address, bytes);
    const uint64_t now = changed(kind, old, value & bits, compare & bits, bytes) & bits;
    if (now != old) {
        store(address, bytes, now);
        sim_progress++;
    } else if (kind != CUDASIM_ATOMIC_LOAD) {
        sim_progress = progress; /* the check counted a write */
        sim_wait(SIM_SPINNING, file, line);
    }
    return old;
}

void cudasim_fence_system(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    sim_mapped_fence();
}

/* ---- asynchronous copies ---- */

/* A pending copy: its bytes arrive only at the wait, and its source must not change until then. */
struct sim_copy {
    struct sim_copy *next; /* younger */
    void *shared;
    const void *global;
    unsigned bytes, source_bytes, group;
    unsigned char seen[16]; /* the source when it was issued */
};

static bool copy_bytes_valid(unsigned bytes, unsigned source_bytes)
{
    return (bytes == 4 || bytes == 8 || bytes == 16) && source_bytes <= bytes;
}

void cudasim_copy_async(void *shared, const void *global, unsigned bytes, unsigned source_bytes,
                        const char *file, int line)
{
    const void *caller = __builtin_return_address(0);
    struct sim_thread *thread = sim_current;
    struct sim_copy **end = &thread->copies, *copy = calloc(1, sizeof(*copy));

    if (copy == NULL)
        abort();
    if (!copy_bytes_valid(bytes, source_bytes))
        sim_report(file, line, NULL, "an asynchronous copy of %u bytes, %u of them read", bytes,
                   source_bytes);
    if ((uintptr_t)shared % bytes != 0)
        cudasim_misaligned(shared, bytes, file, line);
    if ((uintptr_t)global % bytes != 0)
        cudasim_misaligned(global, bytes, file, line);
    if ((uintptr_t)shared - sim_shared.base >= sim_shared.bytes)
        sim_report(file, line, NULL, "an asynchronous copy to %p, which is not shared memory",
                   shared);
    if (source_bytes > 0)
        sim_access_read((uintptr_t)global, source_bytes, caller);
    sim_shared_access((uintptr_t)shared, bytes, true, false, caller);
    sim_shared_copying((uintptr_t)shared, bytes, true);
    *copy = (struct sim_copy){NULL, shared, global, bytes, source_bytes, thread->copy_group, {0}};
    memcpy(copy->seen, global, source_bytes);
    while (*end != NULL)
        end = &(*end)->next;
    *end = copy;
}

void cudasim_copy_commit(void)
{
    sim_current->copy_group++;
}

static void arrive(struct sim_copy *copy, const char *file, int line)
{
    const void *caller = __builtin_return_address(0);

    if (memcmp(copy->seen, copy->global, copy->source_bytes) != 0)
        sim_report(file, line, NULL,
                   "the source %p of an asynchronous copy changed before its wait", copy->global);
    memset(copy->shared, 0, copy->bytes);
    memcpy(copy->shared, copy->seen, copy->source_bytes);
    sim_shared_copying((uintptr_t)copy->shared, copy->bytes, false);
    /* for other threads it is written now, not when it was issued */
    sim_shared_access((uintptr_t)copy->shared, copy->bytes, true, false, caller);
    free(copy);
}

/* Groups below `end` are complete now. */
static void wait_below(unsigned end, const char *file, int line)
{
    struct sim_thread *thread = sim_current;

    while (thread->copies != NULL && thread->copies->group < end) {
        struct sim_copy *copy = thread->copies;

        thread->copies = copy->next;
        arrive(copy, file, line);
    }
}

void cudasim_copy_wait(unsigned pending, const char *file, int line)
{
    const unsigned groups = sim_current->copy_group;

    wait_below(groups > pending ? groups - pending : 0, file, line);
}

void cudasim_copy_wait_all(const char *file, int line)
{
    wait_below(UINT32_MAX, file, line);
}

/* Bytes without a wait never arrive. */
void sim_copies_ended(struct sim_thread *thread)
{
    while (thread->copies != NULL) {
        struct sim_copy *copy = thread->copies;

        thread->copies = copy->next;
        free(copy);
    }
}
