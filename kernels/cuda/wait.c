/* Waiting for the end of a pass. The thread sleeps until shortly before passes of so many rows usually end. The last kernel
 * writes the pass's number into mapped memory: for a while the thread looks there, which costs no call and no interrupt; a
 * pass that is longer is slept for. Errors of the device are looked for meanwhile, as a kernel that failed writes nothing. */
#include <stdatomic.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cuda/backend_cuda.h"

/* How long to look, how often to ask for errors, and looks for each look at the clock. */
#ifdef HEARTH_CUDASIM /* whose passes take a hundred times as long, and need the processor */
enum { SPIN_NS = 300000000, QUERY_NS = 2000000, LOOKS = 16 };

static void relax(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}
#else /* longer than a decoding step of most models, and a small part of a pass that prefills */
enum { SPIN_NS = 5000000, QUERY_NS = 100000, LOOKS = 64 };

static void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}
#endif

/* What a sleep may last longer than asked; and of what a pass usually takes, the part that it may take less. */
enum { LATE_NS = 60000, SPARE = 8 };

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Passes of as many rows, or nearly, take about as long. */
static uint64_t *usual_ns(struct backend *b)
{
    const uint32_t rows = b->pass->n_rows;
    uint32_t i = rows < CUDA_TIMED_ROWS ? rows : CUDA_TIMED_ROWS;
    for (uint32_t n = rows / CUDA_TIMED_ROWS; n > 1; n /= 2)
        i++;
    return &b->usual_ns[b->pass->kind][i];
}

void cuda_wait_begin(struct backend *b)
{
    b->began_ns = now_ns();
}

static void sleep_until_soon(uint64_t began, uint64_t usual)
{
    const uint64_t until = began + usual - usual / SPARE - LATE_NS;
    const struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    if (usual - usual / SPARE > 2 * LATE_NS)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* The usual time after a pass whose end was seen took `took`: drops to it at once, and rises
 * slowly. */
static uint64_t learnt(uint64_t usual, uint64_t took)
{
    return usual == 0 || took < usual ? took : usual + (took - usual) / SPARE;
}

/* D1: pairs with the fence and the store of end_item (sample_device.h): the number is seen after the results. */
static bool is_done(const struct backend *b)
{
    return atomic_load_explicit((_Atomic uint32_t *)b->results.done, memory_order_acquire) ==
           b->pass_number;
}

static bool is_done_soon(const struct backend *b)
{
    for (int i = 0; i < LOOKS && !is_done(b); i++)
        relax();
    return is_done(b);
}

/* True: done. False: it takes longer, or the device failed. */
static bool spin(struct backend *b)
{
    const uint64_t begin = now_ns();
    uint64_t asked = begin, now = begin;
    while (!is_done_soon(b) && now - begin < SPIN_NS) {
        now = now_ns();
        if (now - asked < QUERY_NS)
            continue;
        asked = now;
        const cudaError_t code = cudaStreamQuery(b->queue.stream);
        if (code != cudaErrorNotReady)
            return cuda_ok(b, (int)code, "a pass") && is_done(b);
    }
    return is_done(b);
}

/* Until the stream has ended. */
static bool synchronize(struct backend *b)
{
    cuda_ok(b, (int)cudaEventRecord(b->ended, b->queue.stream), "a pass");
    if (!b->broken)
        cuda_ok(b, (int)cudaEventSynchronize(b->ended), "a pass");
    if (!b->broken && !is_done(b))
        cuda_ok(b, cudaErrorUnknown, "a pass, which ended without its results");
    return !b->broken;
}

bool cuda_wait(struct backend *b, bool copies)
{
    uint64_t *usual = usual_ns(b);
    if (is_done(b)) /* when is not known */
        return !copies || synchronize(b);
    sleep_until_soon(b->began_ns, *usual);
    if (is_done(b)) { /* nor here, but it took less than it usually does */
        *usual /= 2;
        return !copies || synchronize(b);
    }
    const bool good = (spin(b) && !copies) || synchronize(b);
    *usual = learnt(*usual, now_ns() - b->began_ns);
    return good;
}
