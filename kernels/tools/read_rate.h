/* read_rate.h: measures how fast this machine reads memory, which limits a decode step.
 *
 * A plain read of a buffer like the backend's weights: of the same size, 2 GiB at most, in the same
 * kind of pages (the arena's), by as many threads of the same kind of pool, every byte once, with the
 * widest loads available. The best of several passes counts, or the mean of passes in turns with what
 * they are compared with, as the speed of a shared machine changes within milliseconds. One thread
 * opens, runs and closes. Owns the buffer and the pool. */
#ifndef HEARTH_KERNELS_TOOLS_READ_RATE_H
#define HEARTH_KERNELS_TOOLS_READ_RATE_H

#include <stddef.h>
#include <stdint.h>

struct read_rate;

/* `bytes` is rounded down to whole kilobytes, at least one. Returns 0, or -errno (-ENOMEM,
 * -EAGAIN). */
int read_rate_open(size_t bytes, uint32_t threads, struct read_rate **ret_rate);

/* Reads the buffer in each known way, for some milliseconds, and returns the GB/s (1e9 bytes) of
 * the best pass. */
double read_rate_run(struct read_rate *rate);

/* GB/s of one pass in the way that was the best of the last run. */
double read_rate_again(struct read_rate *rate);

/* Nanoseconds of one pass over the caller's memory, such as a mapped file. */
uint64_t read_rate_pass_ns(struct read_rate *rate, const void *data, size_t bytes);

void read_rate_close(struct read_rate *rate); /* NULL is fine */

#endif
