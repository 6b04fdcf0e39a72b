/* The simulator's inside: what its files share.
 *
 *   settings.c   environment, injected errors
 *   device.c     properties, error codes
 *   memory.c     device and pinned memory, shadow
 *   virtual.c    addresses that are reserved, and memory that is mapped there
 *   access.c     a check of every load and store
 *   shared.c     shared memory, races
 *   races.c      races in device memory between blocks
 *   mapped.c     host memory that kernels write
 *   block.c      one grid: threads, barriers
 *   fibre.c      stacks and the switch between them
 *   warp.c       shuffles, votes, matrices
 *   atomic.c     atomics, asynchronous copies
 *   stream.c     queues, events, the worker thread
 *   graph.c      capture, graphs
 *   operation.c  the operations of a stream
 *   matmul.c     library operations on the device
 *   symbol.c     names of kernels, source lines
 *   report.c     prints a finding and ends the process
 *
 * Threads: everything about a running grid is touched by the one thread that runs it (the worker of
 * stream.c, under its lock); memory.c has a lock of its own. */
#ifndef HEARTH_TESTS_CUDASIM_SIM_H
#define HEARTH_TESTS_CUDASIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/cudasim/include/cudasim.h"

#define SIM_HIDDEN __attribute__((visibility("hidden")))

/* ---- settings.c: from the environment, once ---- */

enum sim_order { SIM_ORDER_UP, SIM_ORDER_DOWN, SIM_ORDER_SHUFFLED };

struct sim_settings {
    enum sim_order order; /* of blocks and threads: HEARTH_CUDASIM_ORDER=up|down|SEED */
    uint64_t seed;
    unsigned processors; /* HEARTH_CUDASIM_SMS */
    unsigned arch;       /* HEARTH_CUDASIM_ARCH=90 */
    size_t memory_bytes; /* HEARTH_CUDASIM_MEMORY */
    size_t stack_bytes;  /* HEARTH_CUDASIM_STACK: what each kernel's stack is said to be */
    unsigned devices;    /* HEARTH_CUDASIM_DEVICES=0: none */
    bool blocking;       /* CUDA_LAUNCH_BLOCKING: no worker thread */
    bool races;          /* HEARTH_CUDASIM_RACES=0: do not look for them */
};

const struct sim_settings *sim_settings(void);

/* A number of the seed's sequence; the same for the same calls. */
uint64_t sim_random(void);
void sim_random_reset(void);

/* ---- device.c ---- */

enum sim_event { SIM_MALLOC, SIM_COPY, SIM_LAUNCH, SIM_GRAPH, SIM_SYNC, SIM_BIT, SIM_EVENTS };

/* Counts one event of the kind; returns the error that was asked for at this count, else
 * success. */
cudaError_t sim_inject(enum sim_event event);

/* Keeps the error for cudaGetLastError; returns it. */
cudaError_t sim_failed(cudaError_t error);
/* The device's own error, success while it works. An error that ends a context makes it lost. */
cudaError_t sim_device_error(void);
void sim_device_lose(cudaError_t error);
bool sim_is_sticky(cudaError_t error);
/* The first step of every call: fails unless there is a working device. */
cudaError_t sim_enter(void);

/* Bytes of shared memory: of one processor, of one block at most, and without asking. */
size_t sim_shared_per_processor(void);
size_t sim_shared_per_block(void);
enum {
    SIM_SHARED_DEFAULT = 48 * 1024,
    SIM_THREADS_PER_BLOCK = 1024,
    SIM_BLOCKS_PER_PROCESSOR = 32,
    SIM_SHARED_RESERVED = 1024
};
unsigned sim_threads_per_processor(void);
/* The most dynamic shared memory that this function may have. */
size_t sim_function_shared(const void *function);
void sim_functions_reset(void);
/* The most bytes that a copy to the device may have: HEARTH_CUDASIM_COPY, read each time, for
 * tests. */
size_t sim_most_copied(void);
/* The unit of virtual memory, 0: the device has none: HEARTH_CUDASIM_GRANULE, read each time, for tests. */
size_t sim_granule(void);
/* Blocks of this shape that fit one processor at once. */
unsigned sim_occupancy(unsigned block_threads, size_t dynamic_bytes);

/* ---- memory.c ---- */

/* Bits of a shadow byte. READY: both that a read needs. BY_KERNEL: the last writer was a kernel.
 * GAP, alone: in an allocation but in no piece of it (cudasim_gap); a copy may span it. */
enum {
    SIM_ALLOCATED = 1,
    SIM_WRITTEN = 2,
    SIM_READY = 3,
    SIM_COPYING = 4,
    SIM_BY_KERNEL = 8,
    SIM_GAP = 16
};

struct sim_memory {
    uintptr_t device; /* the device's addresses: SIM_DEVICE_SPAN bytes */
    uint8_t *shadow;  /* [SIM_DEVICE_SPAN] SIM_* bits of each byte */
};
extern struct sim_memory sim_memory SIM_HIDDEN;

#define SIM_DEVICE_SPAN ((size_t)1 << 37)

void sim_memory_open(void);
void sim_memory_reset(void); /* frees everything; for cudaDeviceReset */

/* The allocation at an address, for reports. */
struct sim_block_found {
    uintptr_t base; /* of the allocation at or nearest below, 0: none */
    size_t bytes;
    unsigned number; /* of cudaMalloc calls, from 1; of pinned memory 0 */
    bool freed;
};
void sim_memory_find(uintptr_t address, struct sim_block_found *ret_found);
/* Is [address, address + bytes) all in one living pinned allocation? */
bool sim_memory_pinned(uintptr_t address, size_t bytes);
bool sim_is_device(uintptr_t address);

/* For virtual.c. reserve: addresses without memory, never handed out again; unreserve: false for others than reserve gave.
 * take, give: bytes of the device's memory, false where there are too few. map: whole pages become accessible and
 * unwritten, or inaccessible. */
uintptr_t sim_memory_reserve(size_t bytes, size_t alignment);
bool sim_memory_unreserve(uintptr_t base, size_t bytes);
bool sim_memory_take(size_t bytes);
void sim_memory_give(size_t bytes);
void sim_memory_map(uintptr_t base, size_t bytes, bool on);

/* ---- report.c ---- */

/* One line on stderr: "cudasim: KERNEL block (x,y,z) thread (x,y,z): text (file:line)", then abort.
 * file NULL: the place is that of the code at `caller`, or none when that is NULL too. */
__attribute__((noreturn, format(printf, 4, 5))) void
sim_report(const char *file, int line, const void *caller, const char *format, ...);

/* ---- symbol.c ---- */

/* Name of the function that begins at the address, demangled without parameters; "?" when
 * unknown. */
void sim_symbol_name(const void *function, char *ret_name, size_t bytes);
/* "file:line" of the code at an address, by addr2line where it is installed; false: unknown. */
bool sim_symbol_line(const void *code, char *ret_line, size_t bytes);
/* Is the address in the read-only data of the object that holds the function? */
bool sim_symbol_constant(const void *function, uintptr_t address, size_t bytes);

/* ---- fibre.c ---- */

enum { SIM_STACK_BYTES = 128 * 1024 };

struct sim_fibre {
    void *stack_pointer; /* saved while it does not run */
    char *stack, *top;   /* lowest address, above a guard page; where it begins */
    struct sim_fibre *next;
};

/* A fibre from the pool that starts in `enter` when first switched to. */
struct sim_fibre *sim_fibre_take(void (*enter)(void));
void sim_fibre_give(struct sim_fibre *fibre);
/* Saves the running context in *from and continues in *to. */
void sim_fibre_switch(struct sim_fibre *from, struct sim_fibre *to);

/* ---- block.c ---- */

enum sim_state {
    SIM_UNBORN,
    SIM_READY_TO_RUN,
    SIM_AT_BARRIER,
    SIM_AT_WARP,
    SIM_SPINNING,
    SIM_ENDED
};

struct sim_copy_group;

struct sim_thread {
    struct cudasim_self self; /* first: what device code reads */
    uintptr_t stack;          /* lowest address of its own memory */
    struct sim_block *block;
    struct sim_fibre *fibre;
    struct sim_thread *next; /* in the queue that it waits in */
    unsigned index;          /* in the block */
    const char *file;        /* where it waits */
    int line;
    uint64_t value, result;  /* of the operation that it waits for */
    struct sim_copy *copies; /* asynchronous copies, oldest first */
    unsigned copy_group;     /* number of the open group */
    struct sim_wgmma *wgmma; /* under way, or NULL */
    bool followed;           /* has waited for the kernel before (griddepcontrol.wait) */
    const void *polled;      /* the word that it loaded last as an atomic, and what that was */
    uint64_t polled_value;
    void *arguments; /* its own copy of the kernel's */
};

/* A thread's wgmma since the last end: their sums, what d was when the first was called and then, and what they read. */
enum { SIM_WGMMA = 16 };
struct sim_wgmma {
    float *d, before[64], sums[64];
    unsigned n;
    struct {
        const char *b;
        unsigned pitch;
        uint64_t read; /* hash of this lane's columns */
    } of[SIM_WGMMA];
};

enum { SIM_PENDING = 4 }; /* collectives of one warp at the same time, on disjoint masks */
struct sim_pending {
    uint32_t mask, arrived; /* mask 0: free */
    enum cudasim_collective kind;
    struct sim_thread *threads[32];
    unsigned arguments[32], width;
};
struct sim_warp {
    uint32_t born, ended; /* lanes */
    uint32_t epoch;       /* of __syncwarp */
    struct sim_pending pending[SIM_PENDING];
};

struct sim_block {
    struct sim_grid *grid;
    uint3 index;
    unsigned n_threads, next_thread, ended, arrived; /* at the barrier */
    enum cudasim_barrier barrier_kind;
    const char *barrier_file;
    int barrier_line, count, all, any;
    uint64_t epoch;              /* of the barrier; never the same again in this process */
    uint64_t number;             /* the epoch that it began with */
    uint16_t *order;             /* [n_threads] in which threads begin */
    uint8_t *states;             /* [n_threads] enum sim_state, for reports */
    struct sim_thread **threads; /* [n_threads] those that live */
    struct sim_warp *warps;      /* [(n_threads + 31) / 32] */
    struct sim_thread *waiting;  /* at the barrier */
    bool followed, any_followed; /* some thread has waited: before the last barrier, at this one */
    size_t shared_bytes;
};

struct sim_kernel {
    const void *function;
    void (*call)(const void *arguments);
    size_t argument_bytes;
    dim3 grid_dim, block_dim;
    size_t shared_bytes;
    bool dependent;
    unsigned char arguments[CUDASIM_ARGUMENT_BYTES];
};

/* Runs one grid to its end on the calling thread. One at a time in the process. */
void sim_grid_run(const struct sim_kernel *kernel);

/* The running simulated thread; NULL in host code. */
extern __thread struct sim_thread *sim_current SIM_HIDDEN
    __attribute__((tls_model("initial-exec")));
/* Changes of memory that another thread could wait for. */
extern uint64_t sim_progress SIM_HIDDEN;

void sim_wgmma_ended(struct sim_thread *thread); /* with its thread */

const struct sim_kernel *sim_running(void); /* NULL outside a grid */

/* The running thread waits in `state` until another one makes it ready. */
void sim_wait(enum sim_state state, const char *file, int line);
void sim_make_ready(struct sim_thread *thread);
uint64_t sim_next_epoch(void);

/* ---- warp.c ---- */

void sim_warp_ended(struct sim_thread *thread);
/* Reports a collective that waits for a lane which can no longer arrive, if there is one. */
void sim_warp_stuck(const struct sim_block *block);

/* ---- access.c, shared.c, atomic.c ---- */

/* Checks (and for a write marks) an access of the running thread. caller: the code. relaxed:
 * atomic, or volatile. */
void sim_access_read(uintptr_t address, size_t bytes, const void *caller);
void sim_access_write(uintptr_t address, size_t bytes, const void *caller);
void sim_access_relaxed(uintptr_t address, size_t bytes, bool write, const void *caller);

/* ---- races.c ---- */

/* Races between the blocks of a launch, where sim_races_on. A launch begins; one of its blocks begins;
 * an access at `offset` in the device's memory. */
extern bool sim_races_on SIM_HIDDEN;
void sim_races_launch(void);
void sim_races_block(void);
void sim_races_access(uintptr_t offset, size_t bytes, bool write, const void *caller);

/* ---- mapped.c ---- */

void sim_mapped_begin(void); /* a grid begins */
/* A store to host memory (signals: a volatile or atomic one, which signals other stores to the
 * host); a system fence; an atomic that changes device memory. */
void sim_mapped_write(bool signals, const void *caller);
void sim_mapped_fence(void);
void sim_mapped_atomic(void);

struct sim_shared {
    uintptr_t base;
    size_t bytes;
};
extern struct sim_shared sim_shared SIM_HIDDEN;
void sim_shared_open(void);
void sim_shared_begin(const struct sim_block *block); /* nothing of it is written */
void *sim_shared_memory(void);
void sim_shared_access(uintptr_t address, size_t bytes, bool write, bool atomic,
                       const void *caller);
/* Bytes that an asynchronous copy will write: they must not be accessed. */
void sim_shared_copying(uintptr_t address, size_t bytes, bool on);

void sim_copies_ended(struct sim_thread *thread);

#endif
