/* bench.h: what all benches share: a fine clock, pinning, percentiles, one JSON line for each row.
 *
 * A row states its result beside a floor that was measured in the same run on the same cores, and
 * its target where TARGETS has one: absolute times of a shared machine mean little, multiples of
 * the floor mean something. Called from any thread; a set of samples belongs to one.
 */
#ifndef HEARTH_TESTS_BENCH_BENCH_H
#define HEARTH_TESTS_BENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <time.h>
#endif

/* Ticks of a clock that all cores share, cheaper than the system's: the TSC (invariant on
 * everything that runs this), elsewhere CLOCK_MONOTONIC. */
static inline uint64_t bench_ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

/* Nanoseconds of one tick; calibrated by the first call (20 ms). */
double bench_tick_ns(void);

/* Pins the calling thread to the index-th CPU it may use (modulo their number). Returns how many
 * there are. */
int bench_pin(int index);

static inline void bench_pause(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}

struct bench_samples {
    uint64_t *ticks; /* [capacity] */
    size_t n, capacity;
};

/* Returns 0 or -ENOMEM. */
int bench_samples_open(struct bench_samples *s, size_t capacity);
void bench_samples_close(struct bench_samples *s);

/* Samples beyond the capacity are dropped. */
static inline void bench_add(struct bench_samples *s, uint64_t ticks)
{
    if (s->n < s->capacity)
        s->ticks[s->n++] = ticks;
}

/* The p-th percentile in microseconds; sorts. 0 without samples. */
double bench_percentile_us(struct bench_samples *s, double p);

/* One measured quantity. Fields that are 0 are left out of the line. */
struct bench_row {
    const char *bench;
    const char *what;
    int clients;
    double floor_us;
    double p50_us, p99_us;
    double target_p50_us, target_p99_us;
    double target_x_floor;                         /* the target as a multiple of the floor */
    double m_per_s, floor_m_per_s, target_m_per_s; /* millions a second */
    const char *note;
};

/* Prints the row as one JSON object on a line of stdout. It adds "x_floor", and "met": p50 within
 * its target or its multiple of the floor, p99 within its own, the rate reached. */
void bench_print(const struct bench_row *row);

/* One quantity that TARGETS states as a ratio or a count. */
struct bench_ratio {
    const char *bench;
    const char *what;
    const char *model;
    double x;           /* the median */
    double least, most; /* of the repeats; both 0: not repeated */
    double target;      /* 0: none */
    int at_most;        /* the target is an upper limit */
    const char *note;
};

/* Prints it as one JSON object on a line of stdout, with "met" where there is a target. */
void bench_print_ratio(const struct bench_ratio *r);

/* Sets x, least and most from a[i] / b[i], the two sides of n interleaved repeats. n <= 64. */
void bench_ratio_of(struct bench_ratio *r, const double *a, const double *b, int n);

/* Fills in p50 and p99 from the samples and prints. */
void bench_print_samples(struct bench_row row, struct bench_samples *s);

#endif
