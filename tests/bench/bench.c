/* bench.c: see bench.h. */
#include "tests/bench/bench.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double bench_tick_ns(void)
{
    static double tick_ns;
    uint64_t ns, ticks;

    if (tick_ns != 0)
        return tick_ns;
    ns = now_ns();
    ticks = bench_ticks();
    while (now_ns() - ns < 20000000u)
        ;
    tick_ns = (double)(now_ns() - ns) / (double)(bench_ticks() - ticks);
    return tick_ns;
}

int bench_pin(int index)
{
    static cpu_set_t allowed; /* the affinity before the first pin */
    static int known;
    cpu_set_t one;
    int n, seen = 0;

    if (!known && sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
        known = 1;
    n = CPU_COUNT(&allowed);
    if (n < 1)
        return 1;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == index % n)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return n;
}

int bench_samples_open(struct bench_samples *s, size_t capacity)
{
    *s = (struct bench_samples){.ticks = malloc(capacity * sizeof(uint64_t)), .capacity = capacity};
    return s->ticks == NULL ? -ENOMEM : 0;
}

void bench_samples_close(struct bench_samples *s)
{
    free(s->ticks);
    *s = (struct bench_samples){0};
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

double bench_percentile_us(struct bench_samples *s, double p)
{
    size_t at;

    if (s->n == 0)
        return 0;
    qsort(s->ticks, s->n, sizeof(*s->ticks), by_size);
    at = (size_t)(p / 100 * (double)(s->n - 1) + 0.5);
    return (double)s->ticks[at] * bench_tick_ns() * 1e-3;
}

static void print_number(const char *name, double value)
{
    if (value != 0)
        printf(",\"%s\":%.4g", name, value);
}

/* True when p50 is within its target, in microseconds or as a multiple of the floor. */
static int p50_met(const struct bench_row *r)
{
    return (r->target_p50_us != 0 && r->p50_us <= r->target_p50_us) ||
           (r->target_x_floor != 0 && r->p50_us <= r->target_x_floor * r->floor_us);
}

/* True when every target of the row is met; -1 when it has none. */
static int row_met(const struct bench_row *r)
{
    int met = -1;

    if (r->target_p50_us != 0 || r->target_x_floor != 0)
        met = p50_met(r);
    if (r->target_p99_us != 0)
        met = met != 0 && r->p99_us <= r->target_p99_us;
    if (r->target_m_per_s != 0)
        met = met != 0 && r->m_per_s >= r->target_m_per_s;
    return met;
}

void bench_print(const struct bench_row *r)
{
    int met = row_met(r);

    printf("{\"bench\":\"%s\",\"what\":\"%s\"", r->bench, r->what);
    if (r->clients != 0)
        printf(",\"clients\":%d", r->clients);
    print_number("floor_us", r->floor_us);
    print_number("p50_us", r->p50_us);
    print_number("p99_us", r->p99_us);
    print_number("target_p50_us", r->target_p50_us);
    print_number("target_p99_us", r->target_p99_us);
    if (r->floor_us != 0)
        print_number("x_floor", r->p50_us / r->floor_us);
    print_number("target_x_floor", r->target_x_floor);
    print_number("m_per_s", r->m_per_s);
    print_number("floor_m_per_s", r->floor_m_per_s);
    print_number("target_m_per_s", r->target_m_per_s);
    if (r->note != NULL)
        printf(",\"note\":\"%s\"", r->note);
    if (met >= 0)
        printf(",\"met\":%s", met ? "true" : "false");
    printf("}\n");
    fflush(stdout);
}

void bench_print_samples(struct bench_row row, struct bench_samples *s)
{
    row.p50_us = bench_percentile_us(s, 50);
    row.p99_us = bench_percentile_us(s, 99);
    bench_print(&row);
}

void bench_print_ratio(const struct bench_ratio *r)
{
    printf("{\"bench\":\"%s\",\"what\":\"%s\",\"model\":\"%s\",\"ratio\":%.4g", r->bench, r->what,
           r->model, r->x);
    print_number("least", r->least);
    print_number("most", r->most);
    if (r->target != 0)
        printf(",\"target\":\"%s %.4g\",\"met\":%s", r->at_most ? "<=" : ">=", r->target,
               (r->at_most ? r->x <= r->target : r->x >= r->target) ? "true" : "false");
    if (r->note != NULL)
        printf(",\"note\":\"%s\"", r->note);
    printf("}\n");
    fflush(stdout);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

void bench_ratio_of(struct bench_ratio *r, const double *a, const double *b, int n)
{
    double ratios[64];

    for (int i = 0; i < n; i++)
        ratios[i] = a[i] / b[i];
    qsort(ratios, (size_t)n, sizeof(*ratios), by_value);
    r->x = ratios[n / 2];
    r->least = ratios[0];
    r->most = ratios[n - 1];
}
