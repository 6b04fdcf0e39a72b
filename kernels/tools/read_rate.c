/* read_rate.c: the ways to read, and the threads that do. See read_rate.h. */
#include "kernels/tools/read_rate.h"

#include "kernels/base/arena.h"
#include "kernels/base/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNKS = 64, UNIT = 1024, SHORTEST_NS = 20 * 1000 * 1000 };

static const size_t MOST = (size_t)2 << 30; /* no cache holds it: a larger one is read no slower */

/* A way to read: folds bytes [begin, end), both multiples of 64, into one word that depends on all
 * of them. */
typedef uint64_t read_way(const uint8_t *begin, const uint8_t *end);

struct read_rate {
    struct arena *arena;
    struct thread_pool *pool;
    const uint8_t *data;
    size_t bytes, chunk_bytes;
    read_way *way;         /* after a run: the best */
    uint64_t sums[CHUNKS]; /* a sink that keeps the compiler from removing the reads */
};

/* Eight words: one or more vector registers, depending on what the function is compiled for. */
typedef uint64_t wide __attribute__((vector_size(64), aligned(64), may_alias));

#define READ_WAY(name, attributes, ahead)                                                          \
    attributes static uint64_t name(const uint8_t *begin, const uint8_t *end)                      \
    {                                                                                              \
        wide a = {0}, b = {0}, c = {0}, d = {0};                                                   \
        const wide *p = (const void *)begin, *last = (const void *)end;                            \
        for (; p + 4 <= last; p += 4) {                                                            \
            if (ahead) {                                                                           \
                __builtin_prefetch((const char *)p + (ahead));                                     \
                __builtin_prefetch((const char *)p + (ahead) + 64);                                \
                __builtin_prefetch((const char *)p + (ahead) + 128);                               \
                __builtin_prefetch((const char *)p + (ahead) + 192);                               \
            }                                                                                      \
            a += p[0];                                                                             \
            b += p[1];                                                                             \
            c += p[2];                                                                             \
            d += p[3];                                                                             \
        }                                                                                          \
        for (; p < last; p++)                                                                      \
            a += p[0];                                                                             \
        a = (a ^ b) + (c ^ d);                                                                     \
        return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];                              \
    }

READ_WAY(read_plain, , 0)
READ_WAY(read_ahead, , 4096)
#if defined(__x86_64__)
READ_WAY(read_avx2, __attribute__((target("avx2"))), 0)
READ_WAY(read_avx2_ahead, __attribute__((target("avx2"))), 4096)
READ_WAY(read_avx512, __attribute__((target("avx512f"))), 0)
READ_WAY(read_avx512_ahead, __attribute__((target("avx512f"))), 4096)
#endif

static int ways(read_way *list[6])
{
    int n = 0;
    list[n++] = read_plain;
    list[n++] = read_ahead;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        list[n++] = read_avx2;
        list[n++] = read_avx2_ahead;
    }
    if (__builtin_cpu_supports("avx512f")) {
        list[n++] = read_avx512;
        list[n++] = read_avx512_ahead;
    }
#endif
    return n;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void read_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    struct read_rate *r = arg;
    (void)worker;
    size_t begin = chunk * r->chunk_bytes, end = begin + r->chunk_bytes;
    begin = begin < r->bytes ? begin : r->bytes;
    end = end < r->bytes ? end : r->bytes;
    r->sums[chunk] += r->way(r->data + begin, r->data + end);
}

static uint64_t pass_ns(struct read_rate *r)
{
    uint64_t begin = now_ns();
    pool_run(r->pool, read_chunk, r, CHUNKS);
    return now_ns() - begin;
}

static void aim(struct read_rate *r, const void *data, size_t bytes)
{
    r->data = data;
    r->bytes = bytes / 64 * 64;
    r->chunk_bytes = (bytes / CHUNKS + UNIT) / UNIT * UNIT;
}

int read_rate_open(size_t bytes, uint32_t threads, struct read_rate **ret_rate)
{
    struct read_rate *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    bytes = bytes < UNIT ? UNIT : bytes > MOST ? MOST : bytes / UNIT * UNIT;
    int rc = pool_open(threads, &r->pool);
    r->arena = arena_open();
    uint8_t *data = !rc && r->arena ? arena_alloc(r->arena, bytes) : NULL;
    if (!data) {
        read_rate_close(r);
        return rc ? rc : -ENOMEM;
    }
    memset(data, 1, bytes); /* allocates pages, instead of mapping the shared zero page */
    aim(r, data, bytes);
    r->way = read_plain;
    *ret_rate = r;
    return 0;
}

double read_rate_run(struct read_rate *r)
{
    read_way *list[6], *best_way = read_plain;
    int n = ways(list);
    double best = 0;
    for (int i = 0; i < n; i++) {
        uint64_t spent = 0;
        r->way = list[i];
        for (int k = 0; k < 2 || spent < SHORTEST_NS; k++) {
            uint64_t ns = pass_ns(r);
            spent += ns + 1;
            double rate = (double)r->bytes / (double)(ns ? ns : 1);
            if (rate > best) {
                best = rate;
                best_way = list[i];
            }
        }
    }
    r->way = best_way;
    return best;
}

double read_rate_again(struct read_rate *r)
{
    const uint64_t ns = pass_ns(r);
    return (double)r->bytes / (double)(ns ? ns : 1);
}

uint64_t read_rate_pass_ns(struct read_rate *r, const void *data, size_t bytes)
{
    struct read_rate other = {.pool = r->pool, .way = read_plain};
    /* Only whole cache lines inside the caller's memory. */
    size_t skip = (64 - (uintptr_t)data % 64) % 64;
    aim(&other, (const uint8_t *)data + (skip < bytes ? skip : 0), skip < bytes ? bytes - skip : 0);
    return pass_ns(&other);
}

void read_rate_close(struct read_rate *r)
{
    if (!r)
        return;
    pool_close(r->pool);
    arena_close(r->arena);
    free(r);
}
