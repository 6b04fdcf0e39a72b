/* The thread pool: every chunk runs once, the caller sees the results, idle takes no CPU, clean
 * shutdown. */
#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/pool.h"
#include "tests/run_suite.h"

enum { MOST = 500 };

struct chunk_counts {
    uint32_t runs[MOST]; /* not atomic on purpose: one writer each, read by the caller afterwards */
    uint32_t threads;
    _Atomic uint32_t strange;
};

static void count(void *arg, uint32_t chunk, uint32_t worker)
{
    struct chunk_counts *job = arg;
    if (worker >= job->threads)
        job->strange++;
    job->runs[chunk]++;
}

START_TEST(every_chunk_runs_once)
{
    struct thread_pool *pool;
    uint32_t threads = (uint32_t)_i;
    ck_assert_int_eq(pool_open(threads, &pool), 0);
    ck_assert_uint_eq(pool_threads(pool), threads);
    struct chunk_counts job = {.threads = threads};
    uint32_t expected = 0;
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t n = round % 7 == 0 ? MOST : round % 11;
        pool_run(pool, count, &job, n);
        expected += n > 10;
        if (round % 400 == 0)
            usleep(2000); /* lets the workers fall asleep */
    }
    for (uint32_t i = 11; i < MOST; i++)
        ck_assert_uint_eq(job.runs[i], expected);
    ck_assert_uint_eq(job.strange, 0);
    pool_close(pool);
}
END_TEST

static void slow(void *arg, uint32_t chunk, uint32_t worker)
{
    (void)worker;
    if (chunk % 2)
        usleep(3000); /* longer than the caller spins, so it sleeps and is woken */
    count(arg, chunk, 0);
}

START_TEST(the_caller_sleeps_for_a_slow_worker_and_wakes)
{
    struct thread_pool *pool;
    ck_assert_int_eq(pool_open(3, &pool), 0);
    struct chunk_counts job = {.threads = 1};
    for (uint32_t round = 0; round < 20; round++) {
        pool_run(pool, slow, &job, 4);
        for (uint32_t i = 0; i < 4; i++)
            ck_assert_uint_eq(job.runs[i], round + 1);
    }
    pool_close(pool);
}
END_TEST

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

START_TEST(an_idle_pool_uses_no_cpu)
{
    struct thread_pool *pool;
    ck_assert_int_eq(pool_open(4, &pool), 0);
    struct chunk_counts job = {.threads = 4};
    pool_run(pool, count, &job, 8);
    /* How long the bounded spin takes depends on the scheduler; after it the pool sleeps for
     * good. */
    double used = 1;
    for (int i = 0; i < 100 && used >= 0.02; i++) {
        double before = cpu_seconds();
        usleep(200000);
        used = cpu_seconds() - before;
    }
    ck_assert(used < 0.02);
    pool_close(pool);
}
END_TEST

START_TEST(two_pools_are_independent)
{
    struct thread_pool *a, *b;
    ck_assert_int_eq(pool_open(2, &a), 0);
    ck_assert_int_eq(pool_open(3, &b), 0);
    struct chunk_counts ja = {.threads = 2}, jb = {.threads = 3};
    for (int i = 0; i < 200; i++) {
        pool_run(a, count, &ja, 20);
        pool_run(b, count, &jb, 30);
    }
    ck_assert_uint_eq(ja.runs[19], 200);
    ck_assert_uint_eq(jb.runs[29], 200);
    pool_close(a);
    pool_close(b);
}
END_TEST

START_TEST(opens_and_closes_at_any_time)
{
    for (uint32_t i = 0; i < 50; i++) {
        struct thread_pool *pool;
        ck_assert_int_eq(pool_open(1 + i % 4, &pool), 0);
        struct chunk_counts job = {.threads = 4};
        if (i % 3 == 0)
            pool_run(pool, count, &job, 5);
        pool_close(pool);
    }
    struct thread_pool *none;
    ck_assert_int_eq(pool_open(0, &none), -EINVAL);
    pool_close(NULL);
}
END_TEST

static void halve_denormal(void *arg, uint32_t chunk, uint32_t worker)
{
    (void)worker;
    volatile float least = 0x1p-126f;
    float *out = arg;
    out[chunk] = least * 0.5f;
    usleep(100);
}

START_TEST(denormals_are_kept_in_any_caller_mode)
{
    struct thread_pool *pool;
    ck_assert_int_eq(pool_open(3, &pool), 0);
    float out[16] = {0};
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x9fc0); /* flush to zero, denormals are zero */
#endif
    uint32_t mode = pool_float_mode();
    pool_run(pool, halve_denormal, out, 16);
    pool_float_restore(mode);
#if defined(__x86_64__)
    ck_assert_uint_eq(mode, 0x9fc0);
    ck_assert_uint_eq(__builtin_ia32_stmxcsr() & 0xffc0, 0x9fc0);
    __builtin_ia32_ldmxcsr(0x1f80);
#endif
    for (int i = 0; i < 16; i++)
        ck_assert(out[i] == 0x1p-127f);
    pool_close(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_pool");
    TCase *tcase = tcase_create("pool");
    tcase_add_loop_test(tcase, every_chunk_runs_once, 1, 5);
    tcase_add_test(tcase, the_caller_sleeps_for_a_slow_worker_and_wakes);
    tcase_add_test(tcase, an_idle_pool_uses_no_cpu);
    tcase_add_test(tcase, two_pools_are_independent);
    tcase_add_test(tcase, opens_and_closes_at_any_time);
    tcase_add_test(tcase, denormals_are_kept_in_any_caller_mode);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
