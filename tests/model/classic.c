/* The classics: programs whose outcomes under C11 are in every paper. The explorer must find the
 * odd one where it is allowed, and must not where it is forbidden. */
#include "tests/model/shim.h"

#include <stdio.h>

static _Atomic uint32_t *x, *y;
static uint32_t r[4]; /* what was read */
static memory_order store_order, load_order;
static int fence_order; /* -1: no fence */
static int odd;         /* was seen */

static void setup(void)
{
    x = model_alloc(4);
    y = model_alloc(4);
}

static void put(_Atomic uint32_t *word, memory_order order)
{
    atomic_store_explicit(word, 1, order);
}

static uint32_t get(_Atomic uint32_t *word, memory_order order)
{
    return atomic_load_explicit(word, order);
}

static void fence(void)
{
    if (fence_order >= 0)
        atomic_thread_fence(fence_order);
}

/* Store buffering: neither of two threads sees the other's store. */
static void sb_0(void)
{
    put(x, store_order);
    fence();
    r[0] = get(y, load_order);
}

static void sb_1(void)
{
    put(y, store_order);
    fence();
    r[1] = get(x, load_order);
}

static void sb_check(void)
{
    odd |= !r[0] && !r[1];
}

/* Message passing: the flag is seen, the data is not. */
static void mp_0(void)
{
    put(x, memory_order_relaxed);
    fence();
    put(y, store_order);
}

static void mp_1(void)
{
    r[0] = get(y, load_order);
    fence();
    r[1] = get(x, memory_order_relaxed);
}

static void mp_check(void)
{
    odd |= r[0] && !r[1];
}

/* Write to read causality: the data, seen by one thread, is told to another, which does not see it. */
static void wrc_0(void)
{
    put(x, memory_order_relaxed);
}

static void wrc_1(void)
{
    r[2] = get(x, memory_order_relaxed);
    fence();
    if (r[2])
        put(y, store_order);
}

/* Independent reads of independent writes: two threads see two stores in different orders. */
static void iriw_1(void)
{
    put(y, memory_order_relaxed);
}

static void iriw_2(void)
{
    r[0] = get(x, load_order);
    fence();
    r[1] = get(y, load_order);
}

static void iriw_3(void)
{
    r[2] = get(y, load_order);
    fence();
    r[3] = get(x, load_order);
}

static void iriw_check(void)
{
    odd |= r[0] && !r[1] && r[2] && !r[3];
}

/* Coherence: of one word, the old value after the new one. */
static void corr_1(void)
{
    r[0] = get(x, memory_order_relaxed);
    r[1] = get(x, memory_order_relaxed);
}

#define PROGRAM(check_it, ...)                                                                     \
    {                                                                                              \
        .name = "classic", .threads = {__VA_ARGS__}, .setup = setup, .check = (check_it)           \
    }
static const struct litmus sb = PROGRAM(sb_check, {"0", sb_0}, {"1", sb_1});
static const struct litmus mp = PROGRAM(mp_check, {"0", mp_0}, {"1", mp_1});
static const struct litmus wrc = PROGRAM(mp_check, {"0", wrc_0}, {"1", wrc_1}, {"2", mp_1});
static const struct litmus iriw =
    PROGRAM(iriw_check, {"0", wrc_0}, {"1", iriw_1}, {"2", iriw_2}, {"3", iriw_3});
static const struct litmus corr = PROGRAM(mp_check, {"0", wrc_0}, {"1", corr_1});

#define RLX memory_order_relaxed
#define ACQ memory_order_acquire
#define REL memory_order_release
static const struct {
    const char *name;
    const struct litmus *program;
    memory_order store, load;
    int fence, odd;
} classics[] = {
    {"store buffering", &sb, RLX, RLX, -1, 1},
    {"store buffering, release and acquire", &sb, REL, ACQ, -1, 1},
    {"store buffering, acq_rel fences", &sb, RLX, RLX, memory_order_acq_rel, 1},
    {"store buffering, seq_cst fences", &sb, RLX, RLX, memory_order_seq_cst, 0},
    {"message passing", &mp, RLX, RLX, -1, 1},
    {"message passing, release alone", &mp, REL, RLX, -1, 1},
    {"message passing, acquire alone", &mp, RLX, ACQ, -1, 1},
    {"message passing, release and acquire", &mp, REL, ACQ, -1, 0},
    {"message passing, acq_rel fences", &mp, RLX, RLX, memory_order_acq_rel, 0},
    {"write to read causality", &wrc, RLX, RLX, -1, 1},
    {"write to read causality, release and acquire", &wrc, REL, ACQ, -1, 0},
    {"write to read causality, seq_cst fences", &wrc, RLX, RLX, memory_order_seq_cst, 0},
    {"independent reads, acquire", &iriw, RLX, ACQ, -1, 1},
    {"independent reads, seq_cst fences", &iriw, RLX, RLX, memory_order_seq_cst, 0},
    {"coherence", &corr, RLX, RLX, -1, 0},
};

int classic_run(void)
{
    int wrong = 0;
    size_t states;

    for (size_t i = 0; i < sizeof(classics) / sizeof(*classics); i++) {
        store_order = classics[i].store;
        load_order = classics[i].load;
        fence_order = classics[i].fence;
        odd = 0;
        const char *how = model_explore(classics[i].program, &states);
        int good = !how && odd == classics[i].odd;
        printf("classic: %s: %s%s\n", classics[i].name, odd ? "allowed" : "forbidden",
               good ? "" : ": WRONG");
        wrong += !good;
    }
    return wrong;
}
