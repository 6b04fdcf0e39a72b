/* pool.h: the thread pool: a fixed set of threads that share the chunks of one job at a time.
 *
 * The thread that calls pool_run takes part: it claims chunks like the others and never waits for a
 * worker that has claimed nothing, so a job is done even if every worker is asleep or preempted.
 * Which thread computes a chunk never affects its result. Workers spin for the next job for a short
 * bounded time and then sleep on a futex: an idle pool uses no CPU.
 *
 * Threads: open, run and close from one thread (at a time). Owns its workers. pool_run allocates
 * nothing. Workers run with the floating-point mode of pool_float_mode. */
#ifndef HEARTH_KERNELS_BASE_POOL_H
#define HEARTH_KERNELS_BASE_POOL_H

#include <stdint.h>

struct thread_pool;

/* One chunk of a job. `worker` is 0 for the caller of pool_run, 1 .. threads - 1 for the others. */
typedef void pool_chunk(void *arg, uint32_t chunk, uint32_t worker);

/* Starts threads - 1 workers. Returns 0, or -errno (-EAGAIN, -ENOMEM, -EINVAL for 0 threads). */
int pool_open(uint32_t threads, struct thread_pool **ret_pool);

/* Ends and joins the workers. NULL is fine. */
void pool_close(struct thread_pool *pool);

uint32_t pool_threads(const struct thread_pool *pool);

/* Runs chunks 0 .. n_chunks - 1, each once, and returns when all are done. A job of one chunk, or
 * in a pool of one thread, runs in the caller alone. */
void pool_run(struct thread_pool *pool, pool_chunk *run, void *arg, uint32_t n_chunks);

/* Sets this thread to round to nearest even with denormals kept and exceptions masked; returns the
 * previous mode, for pool_float_restore. */
uint32_t pool_float_mode(void);
void pool_float_restore(uint32_t mode);

#endif
