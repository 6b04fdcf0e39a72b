/* shim: included before everything else in the files that run under the explorer. What they do to
 * shared memory and ask of the kernel goes to explore.c; what they do to their own stays. */
#ifndef HEARTH_TESTS_MODEL_SHIM_H
#define HEARTH_TESTS_MODEL_SHIM_H

#include "tests/model/explore.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_thread_fence
#define atomic_load_explicit(word, order)                                                          \
    ((__typeof__(+*(word)))model_load((word), sizeof(*(word)), (order), __func__))
#define atomic_store_explicit(word, value, order)                                                  \
    model_store((word), sizeof(*(word)), (value), (order), __func__)
#define atomic_thread_fence(order) model_fence((order), __func__)
#define memcpy(to, from, bytes) model_copy((to), (from), (bytes), __func__)
#define syscall(number, word, operation, value, ...) model_futex((word), (operation), (value))
#define pread(fd, to, bytes, at) model_pread((fd), (to), (bytes), (at), __func__)
#define clock_gettime(clock, time) (*(time) = (struct timespec){0})
#define eventfd(count, flags) model_eventfd()
#define write(fd, bytes, size) model_write((fd), __func__)
#define send(fd, bytes, size, flags) ((void)(fd), 1L) /* no thread waits at the socket */
#define aligned_alloc(alignment, size) model_alloc(size)

#endif
