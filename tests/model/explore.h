/* explore: every execution of a small program that the C11 memory model allows, one after the
 * other. The program is threads that run the real code of ipc/ and daemon/: shim.h turns its
 * atomics, its copies of shared memory and its system calls into the calls below.
 *
 * Memory is a list of messages per atomic word, and each thread has views: what it must have seen.
 * A load takes any message that is not older than its view; README.md has the rules and their
 * sources. Plain accesses to shared memory that are not ordered by happens-before are a failure.
 */
#ifndef HEARTH_TESTS_MODEL_EXPLORE_H
#define HEARTH_TESTS_MODEL_EXPLORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { MODEL_THREADS = 4, MODEL_MUTANTS = 4, MODEL_SITES = 32 };

struct litmus {
    const char *name;
    const char *says; /* what holds in every execution */
    struct {
        const char *name;
        void (*run)(void);
    } threads[MODEL_THREADS]; /* the first without a name ends them */
    void (*setup)(void); /* on zeroed shared memory; its stores were there before all threads */
    void (*check)(void); /* when all threads have ended; or NULL */
    const char *mutants[MODEL_MUTANTS]; /* changes of the program that must be noticed */
};

/* ---- what litmus programs call --------------------------------------------------------------- */

/* Shared memory, aligned to a cell. Only in setup. */
void *model_alloc(size_t bytes);

/* A name for an address in printed executions: "name" of word 0, "name+1" of the next. */
void model_name(const void *word, size_t bytes, const char *name);

/* One of 0 ... n - 1: all are tried. `what` is printed. */
uint32_t model_choose(uint32_t n, const char *what);

/* Ends this execution without a verdict unless true: a poll that found nothing, which a program
 * repeats. The execution in which it finds something at once is tried as well. */
void model_poll(int found);

/* A failure unless true. */
void model_expect(int holds, const char *what);

/* A thread's private state is told apart by all that it has read. Where less of it matters, it says so:
 * forget, then know each part of the state that does. */
void model_forget(void);
void model_know(const void *bytes, size_t n);

/* Waits until one of these descriptors (bits) was written since the last wait, as the daemon's
 * loop does. */
void model_wait(uint32_t fds);

/* Is this mutant of the litmus program the one that runs? */
int model_mutant(const char *name);

/* ---- what table.c calls ---------------------------------------------------------------------- */

/* An order in the real code that is stronger than relaxed. */
struct model_site {
    const char *function, *kind; /* "load", "store" or "fence" */
    int order;
    const struct litmus *in[16]; /* programs that get there */
    uint32_t n_in;
};

extern struct model_run {
    int collect; /* sites into ... */
    struct model_site sites[MODEL_SITES];
    uint32_t n_sites;
    const struct model_site *weak; /* this one, or NULL, ... */
    int weak_order;                /* ... has this order; -1: is not there */
    const char *mutant;            /* of the program, or NULL */
} model_run;

/* Runs all executions. Returns NULL, or how one fails: model_print() runs and prints that one. */
const char *model_explore(const struct litmus *program, size_t *ret_states);
void model_print(void);
const char *model_order(int order);
int classic_run(void); /* the classics; returns how many come out as they should not */

/* ---- what shim.h calls ----------------------------------------------------------------------- */

uint64_t model_load(const volatile void *word, size_t bytes, int order, const char *function);
void model_store(volatile void *word, size_t bytes, uint64_t value, int order,
                 const char *function);
void model_fence(int order, const char *function);
/* Shared memory that pread reads, by its descriptor; the kernel copies it word by word, in no order. */
extern const uint8_t *model_files[1];
ssize_t model_pread(int fd, void *to, size_t bytes, off_t at, const char *function);
void *model_copy(void *to, const void *from, size_t bytes, const char *function);
long model_futex(const volatile void *word, int operation, uint32_t value);
int model_eventfd(void);
long model_write(int fd, const char *function);

#endif
