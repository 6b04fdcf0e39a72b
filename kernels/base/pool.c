/* pool.c: the thread pool of pool.h: one job at a time, claimed chunk by chunk with a CAS. */
#include "kernels/base/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Memory ordering, by label:
 *   J1  caller, after filling the job: store `ticket`
 *   J2  claimer: CAS of `ticket`; pairs with J1: a claim sees the job it belongs to
 *   D1  claimer, after its chunk: fetch_add `done`
 *   D2  caller: load `done`; pairs with D1: the caller sees every chunk's result
 *   W1  worker going to sleep: announce in `sleepers`, look at `ticket` and `stop` again, then
 *       wait on the value that `wake` had before
 *   W2  caller after J1: look at `sleepers`; bump and wake `wake`
 *   C1  caller going to sleep: announce in `caller_waits`, look at `done` again, wait on it
 *   C2  claimer of the last chunk after D1: look at `caller_waits`; wake `done`
 *
 * W1 and W2, C1 and C2 are seq_cst on both sides, and J1 and D1 too: of two threads that announce
 * and then look, at least one sees the other. These are operations and not fences, which TSan does
 * not model. */
struct thread_pool {
    /* High half: job number. Low half: chunks not claimed yet. A claim is a CAS of the whole word,
     * so a claimer that was preempted for long can only claim from the job it looked at. */
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic uint32_t done; /* chunks finished in this job */
    _Alignas(64) _Atomic uint32_t wake; /* futex: bumped to wake workers */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t caller_waits;
    _Atomic uint32_t stop;
    /* The job: written by the caller before J1, read by claimers after J2. */
    _Alignas(64) pool_chunk *run;
    void *arg;
    uint32_t n_chunks;
    uint32_t threads;
    struct worker {
        struct thread_pool *pool;
        pthread_t thread;
        uint32_t index;
    } workers[];
};

enum { SPINS = 2000 }; /* pauses before sleeping: 20 to 80 us */

static void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

uint32_t pool_float_mode(void)
{
#if defined(__x86_64__)
    uint32_t mode = _mm_getcsr();
    _mm_setcsr(0x1f80); /* all exceptions masked, nearest even, no FTZ, no DAZ */
    return mode;
#else
    return 0;
#endif
}

void pool_float_restore(uint32_t mode)
{
#if defined(__x86_64__)
    _mm_setcsr(mode);
#else
    (void)mode;
#endif
}

static uint32_t unclaimed(uint64_t ticket)
{
    return (uint32_t)ticket;
}

/* Claims and runs chunks until none is left. */
static void work(struct thread_pool *pool, uint32_t worker)
{
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_relaxed);
    while (unclaimed(ticket) > 0) {
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1,
                                                   memory_order_acquire, memory_order_relaxed))
            continue; /* J2 */
        uint32_t n = pool->n_chunks;
        pool->run(pool->arg, n - unclaimed(ticket), worker);
        uint32_t done = atomic_fetch_add(&pool->done, 1) + 1;             /* D1 */
        if (done == n && worker != 0 && atomic_load(&pool->caller_waits)) /* C2 */
            futex_wake(&pool->done, 1);
        ticket = atomic_load_explicit(&pool->ticket, memory_order_relaxed);
    }
}

static bool has_work(struct thread_pool *pool)
{
    return unclaimed(atomic_load(&pool->ticket)) > 0 || atomic_load(&pool->stop);
}

static void wait_for_work(struct thread_pool *pool)
{
    for (int i = 0; i < SPINS; i++) {
        if (has_work(pool))
            return;
        relax();
    }
    uint32_t wake = atomic_load_explicit(&pool->wake, memory_order_acquire);
    atomic_fetch_add(&pool->sleepers, 1); /* W1 */
    if (!has_work(pool))
        futex_wait(&pool->wake, wake);
    atomic_fetch_sub_explicit(&pool->sleepers, 1, memory_order_relaxed);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct thread_pool *pool = worker->pool;
    pool_float_mode();
    while (!atomic_load_explicit(&pool->stop, memory_order_acquire)) {
        work(pool, worker->index);
        wait_for_work(pool);
    }
    return NULL;
}

static void wake_sleepers(struct thread_pool *pool, uint32_t n)
{
    if (atomic_load(&pool->sleepers) > 0) { /* W2 */
        atomic_fetch_add_explicit(&pool->wake, 1, memory_order_release);
        futex_wake(&pool->wake, n > INT_MAX ? INT_MAX : (int)n);
    }
}

static bool all_done(struct thread_pool *pool, uint32_t *ret_done)
{
    *ret_done = atomic_load(&pool->done); /* D2 */
    return *ret_done == pool->n_chunks;
}

static void wait_for_others(struct thread_pool *pool)
{
    uint32_t done;
    for (int i = 0; i < SPINS; i++) {
        if (all_done(pool, &done))
            return;
        relax();
    }
    atomic_store(&pool->caller_waits, 1); /* C1 */
    while (!all_done(pool, &done))
        futex_wait(&pool->done, done);
    atomic_store_explicit(&pool->caller_waits, 0, memory_order_relaxed);
}

void pool_run(struct thread_pool *pool, pool_chunk *run, void *arg, uint32_t n_chunks)
{
    if (n_chunks <= 1 || pool->threads == 1) {
        for (uint32_t i = 0; i < n_chunks; i++)
            run(arg, i, 0);
        return;
    }
    pool->run = run;
    pool->arg = arg;
    pool->n_chunks = n_chunks;
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    uint64_t job = (atomic_load_explicit(&pool->ticket, memory_order_relaxed) >> 32) + 1;
    atomic_store(&pool->ticket, job << 32 | n_chunks); /* J1 */
    uint32_t others = pool->threads - 1;
    wake_sleepers(pool, n_chunks - 1 < others ? n_chunks - 1 : others);
    work(pool, 0);
    wait_for_others(pool);
}

uint32_t pool_threads(const struct thread_pool *pool)
{
    return pool->threads;
}

static int start_worker(struct thread_pool *pool, uint32_t index)
{
    struct worker *worker = &pool->workers[index - 1];
    worker->pool = pool;
    worker->index = index;
    /* Signals are the daemon's business: a worker takes none. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&worker->thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -rc;
}

int pool_open(uint32_t threads, struct thread_pool **ret_pool)
{
    if (threads == 0 || threads > 1024)
        return -EINVAL;
    size_t bytes = sizeof(struct thread_pool) + (threads - 1) * sizeof(struct worker);
    struct thread_pool *pool = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!pool)
        return -ENOMEM;
    *pool = (struct thread_pool){.threads = 1};
    for (uint32_t i = 1; i < threads; i++) {
        int rc = start_worker(pool, i);
        if (rc) {
            pool_close(pool);
            return rc;
        }
        pool->threads = i + 1;
    }
    *ret_pool = pool;
    return 0;
}

void pool_close(struct thread_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, 1);
    atomic_fetch_add_explicit(&pool->wake, 1, memory_order_release);
    futex_wake(&pool->wake, INT_MAX);
    for (uint32_t i = 1; i < pool->threads; i++)
        pthread_join(pool->workers[i - 1].thread, NULL);
    free(pool);
}
