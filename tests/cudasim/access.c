/* Every load and store of device code, checked: the compiler instruments kernels for a thread
 * sanitizer (-fsanitize=thread), and instead of that sanitizer's runtime its calls come here (the
 * Makefile renames __tsan_* in the objects, cudasim.syms). So each access is known with its
 * address, size and thread.
 *
 * Device code may touch: its own stack, device memory that is allocated and (to read) written, its
 * block's shared memory, pinned host memory, constants of its object. The launchers in the same
 * files are host code and pass unchecked. */
#include "tests/cudasim/sim.h"

#include <string.h>

#define HOOK __attribute__((visibility("hidden")))
#define CALLER __builtin_return_address(0)

static void describe_device(const struct sim_block_found *found, uintptr_t address, size_t bytes,
                            const char *verb, const void *caller)
{
    if (found->base == 0)
        sim_report(NULL, 0, caller, "%s %zu bytes at %p, which is in no allocation", verb, bytes,
                   (void *)address);
    if (found->freed && address - found->base < found->bytes)
        sim_report(NULL, 0, caller,
                   "%s %zu bytes at %zu of allocation %u (%zu bytes), which has been freed", verb,
                   bytes, address - found->base, found->number, found->bytes);
    if (address - found->base < found->bytes)
        sim_report(NULL, 0, caller,
                   "%s %zu bytes at %zu of reserved addresses, where no memory is mapped", verb,
                   bytes, address - found->base);
    sim_report(NULL, 0, caller, "%s %zu bytes at %zu, outside of allocation %u (%zu bytes)", verb,
               bytes, address - found->base, found->number, found->bytes);
}

__attribute__((noinline, cold)) static void report_device(uintptr_t address, size_t bytes,
                                                          const char *verb, const void *caller)
{
    const uint8_t *shadow = sim_memory.shadow + (address - sim_memory.device);
    struct sim_block_found found;

    sim_memory_find(address, &found);
    for (size_t i = 0; i < bytes; i++) {
        if ((shadow[i] & SIM_GAP) != 0)
            sim_report(NULL, 0, caller,
                       "%s %zu bytes at %zu of allocation %u, between the pieces that it was cut "
                       "into",
                       verb, bytes, address - found.base, found.number);
        if ((shadow[i] & SIM_ALLOCATED) == 0)
            describe_device(&found, address, bytes, verb, caller);
    }
    sim_report(NULL, 0, caller, "%s %zu bytes at %zu of allocation %u (%zu bytes), never written",
               verb, bytes, address - found.base, found.number, found.bytes);
}

__attribute__((noinline, cold)) static void report_host(uintptr_t address, size_t bytes,
                                                        const char *verb, const void *caller)
{
    struct sim_block_found found;

    sim_memory_find(address, &found);
    if (found.base != 0)
        sim_report(NULL, 0, caller, "%s %zu bytes at %p: pinned host memory of %zu bytes%s", verb,
                   bytes, (void *)address, found.bytes,
                   found.freed ? " that has been freed" : ", and past its end");
    sim_report(NULL, 0, caller, "%s %zu bytes at %p, which is %s", verb, bytes, (void *)address,
               address < 65536 ? "a null pointer" : "host memory or another thread's stack");
}

/* For functions that are called with a constant number of bytes. */
#define INLINE static inline __attribute__((always_inline))

/* True when the shadow of each of `bytes` bytes has these bits. */
INLINE bool all_have(const uint8_t *shadow, size_t bytes, uint64_t bits)
{
    uint64_t word = bits;

    for (; bytes >= 8; bytes -= 8, shadow += 8) {
        uint64_t eight;
        memcpy(&eight, shadow, 8);
        word &= eight;
    }
    for (; bytes >= 4; bytes -= 4, shadow += 4) {
        uint32_t four;
        memcpy(&four, shadow, 4);
        word &= four | (bits & ~(uint64_t)UINT32_MAX);
    }
    for (; bytes > 0; bytes--, shadow++)
        word &= *shadow | (bits & ~UINT64_C(255));
    return (word & bits) == bits;
}

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

static void host_access(uintptr_t address, size_t bytes, bool write, bool relaxed,
                        const void *caller)
{
    const char *verb = write ? "writes" : "reads";

    if (sim_memory_pinned(address, bytes)) {
        sim_progress += write;
        if (write)
            sim_mapped_write(relaxed, caller);
        return;
    }
    if (write || !sim_symbol_constant(sim_running()->function, address, bytes))
        report_host(address, bytes, verb, caller);
}

/* A kernel launched while the previous one may still run: until its wait it must not write device
 * memory, nor read any that kernels write. */
static void check_followed(uintptr_t offset, size_t bytes, bool write, const void *caller)
{
    for (size_t i = 0; i < bytes; i++) {
        if (write || (sim_memory.shadow[offset + i] & SIM_BY_KERNEL) != 0)
            sim_report(NULL, 0, caller,
                       "%s %zu bytes at %p before it waits for the kernel before it%s",
                       write ? "writes" : "reads", bytes, (void *)(sim_memory.device + offset),
                       write ? "" : ", which may still write them");
    }
}

INLINE bool followed(const struct sim_thread *thread)
{
    return thread->followed || thread->block->followed;
}

/* relaxed: atomic or volatile, so other blocks may access it at the same time. */
INLINE void read_as(uintptr_t address, size_t bytes, bool relaxed, const void *caller)
{
    const struct sim_thread *thread = sim_current;

    if (thread == NULL || address - thread->stack < SIM_STACK_BYTES)
        return;
    const uintptr_t offset = address - sim_memory.device;
    if (offset < SIM_DEVICE_SPAN) {
        if (!all_have(sim_memory.shadow + offset, bytes, EACH(SIM_READY)))
            report_device(address, bytes, "reads", caller);
        if (!followed(thread))
            check_followed(offset, bytes, false, caller);
        if (sim_races_on && !relaxed && (sim_memory.shadow[offset] & SIM_BY_KERNEL) != 0)
            sim_races_access(offset, bytes, false,
                             caller); /* weights, which no kernel writes, never race */
    } else if (address - sim_shared.base < sim_shared.bytes) {
        sim_shared_access(address, bytes, false, false, caller);
    } else {
        host_access(address, bytes, false, relaxed, caller);
    }
}

INLINE void write_as(uintptr_t address, size_t bytes, bool relaxed, const void *caller)
{
    const struct sim_thread *thread = sim_current;

    if (thread == NULL || address - thread->stack < SIM_STACK_BYTES)
        return;
    const uintptr_t offset = address - sim_memory.device;
    sim_progress++;
    if (offset < SIM_DEVICE_SPAN) {
        uint8_t *shadow = sim_memory.shadow + offset;
        if (!all_have(shadow, bytes, EACH(SIM_ALLOCATED)))
            report_device(address, bytes, "writes", caller);
        if (!followed(thread))
            check_followed(offset, bytes, true, caller);
        if (sim_races_on && !relaxed)
            sim_races_access(offset, bytes, true, caller);
        memset(shadow, SIM_READY | SIM_BY_KERNEL, bytes);
    } else if (address - sim_shared.base < sim_shared.bytes) {
        sim_shared_access(address, bytes, true, false, caller);
    } else {
        host_access(address, bytes, true, relaxed, caller);
    }
}

INLINE void read_at(uintptr_t address, size_t bytes, const void *caller)
{
    read_as(address, bytes, false, caller);
}

INLINE void write_at(uintptr_t address, size_t bytes, const void *caller)
{
    write_as(address, bytes, false, caller);
}

void sim_access_read(uintptr_t address, size_t bytes, const void *caller)
{
    read_at(address, bytes, caller);
}

void sim_access_write(uintptr_t address, size_t bytes, const void *caller)
{
    write_at(address, bytes, caller);
}

void sim_access_relaxed(uintptr_t address, size_t bytes, bool write, const void *caller)
{
    if (write)
        write_as(address, bytes, true, caller);
    else
        read_as(address, bytes, true, caller);
}

/* ---- called by the compiler's instrumentation ---- */

void cudasim_hook_init(void) HOOK;
void cudasim_hook_init(void)
{
}

static void volatile_read(uintptr_t address, size_t bytes, const void *caller)
{
    const struct sim_thread *thread = sim_current;

    if (thread == NULL || address - thread->stack < SIM_STACK_BYTES)
        return;
    sim_wait(SIM_SPINNING, NULL, 0);
    read_as(address, bytes, true, caller);
}

static void volatile_write(uintptr_t address, size_t bytes, const void *caller)
{
    write_as(address, bytes, true, caller);
}

/* Code polls by volatile reads: other threads run first, then the read sees what they wrote. */
#define HOOK_AS(name, function, bytes)                                                             \
    void cudasim_hook_##name##bytes(void *) HOOK;                                                  \
    void cudasim_hook_##name##bytes(void *address)                                                 \
    {                                                                                              \
        function((uintptr_t)address, bytes, CALLER);                                               \
    }
#define HOOKS(bytes)                                                                               \
    HOOK_AS(read, read_at, bytes)                                                                  \
    HOOK_AS(write, write_at, bytes)                                                                \
    HOOK_AS(volatile_read, volatile_read, bytes)                                                   \
    HOOK_AS(volatile_write, volatile_write, bytes)                                                 \
    HOOK_AS(unaligned_read, read_at, bytes)                                                        \
    HOOK_AS(unaligned_write, write_at, bytes)                                                      \
    HOOK_AS(unaligned_volatile_read, volatile_read, bytes)                                         \
    HOOK_AS(unaligned_volatile_write, volatile_write, bytes)

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void cudasim_hook_read_range(void *, size_t) HOOK;
void cudasim_hook_write_range(void *, size_t) HOOK;

void cudasim_hook_read_range(void *address, size_t bytes)
{
    read_at((uintptr_t)address, bytes, CALLER);
}

void cudasim_hook_write_range(void *address, size_t bytes)
{
    write_at((uintptr_t)address, bytes, CALLER);
}

/* Calls that the compiler makes of copies and of loops that fill or copy. */
void *cudasim_hook_memcpy(void *, const void *, size_t) HOOK;
void *cudasim_hook_memmove(void *, const void *, size_t) HOOK;
void *cudasim_hook_memset(void *, int, size_t) HOOK;

void *cudasim_hook_memcpy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        read_at((uintptr_t)from, bytes, CALLER);
        write_at((uintptr_t)to, bytes, CALLER);
    }
    return memcpy(to, from, bytes);
}

void *cudasim_hook_memmove(void *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        read_at((uintptr_t)from, bytes, CALLER);
        write_at((uintptr_t)to, bytes, CALLER);
    }
    return memmove(to, from, bytes);
}

void *cudasim_hook_memset(void *to, int value, size_t bytes)
{
    if (bytes > 0)
        write_at((uintptr_t)to, bytes, CALLER);
    return memset(to, value, bytes);
}

/* -fsanitize=alignment: gcc's description of the place and the type. */
struct type_mismatch {
    const char *file;
    uint32_t line, column;
    const void *type;
    unsigned char log_alignment, kind;
};
void cudasim_hook_misaligned(const struct type_mismatch *, uintptr_t) HOOK;

void cudasim_hook_misaligned(const struct type_mismatch *data, uintptr_t address)
{
    if (address == 0)
        return; /* the access itself will be reported */
    cudasim_misaligned((const void *)address, 1u << data->log_alignment, data->file,
                       (int)data->line);
}
