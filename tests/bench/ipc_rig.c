/* ipc_rig.c: see ipc_rig.h. */
#include "tests/bench/ipc_rig.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct ipc_limits limits = {.slots = 2,
                                         .context = 1024,
                                         .submit_cells = RIG_SUBMIT_CELLS,
                                         .event_cells = RIG_EVENT_CELLS,
                                         .params_bytes = 256};

/* Clients as the daemon keeps them: the words that a scan touches are adjacent. */
static struct segment daemon_segments[CLIENTS_MAX];
struct ring_reader rig_submit_in[CLIENTS_MAX];
struct ring_writer rig_events_out[CLIENTS_MAX];
struct bell_waker rig_wakers[CLIENTS_MAX];

struct bench_client rig_clients[CLIENTS_MAX];

struct ctl *rig_ctl;
int rig_bell, rig_epoll;

struct cache_word rig_ping, rig_pong, rig_stop;

static void start_at(struct cache_word *w, uint64_t value)
{
    atomic_store(&w->value, value);
}

void rig_beside(void *(*other)(void *), void *arg, void (*daemon)(void *))
{
    pthread_t thread;

    start_at(&rig_ping, 0);
    start_at(&rig_pong, 0);
    start_at(&rig_stop, 0);
    if (pthread_create(&thread, NULL, other, arg) != 0)
        abort();
    daemon(arg);
    pthread_join(thread, NULL);
}

void rig_breathe(uint64_t i)
{
    uint64_t until = bench_ticks() + (uint64_t)((double)(200 + i * 37 % 800) / bench_tick_ns());

    while (bench_ticks() < until)
        bench_pause();
}

void rig_idle(const struct bench_job *j, uint64_t i)
{
    uint64_t ns = j->period_us * (990 + i * 7 % 21);
    uint64_t until = bench_ticks() + (uint64_t)((double)ns / bench_tick_ns());

    if (j->period_us == 0) {
        rig_breathe(i);
        return;
    }
    while (bench_ticks() < until)
        bench_pause();
}

/* ---- floors --------------------------------------------------------------------------------- */

/* One cache line, one way, containing its write time. */
void *rig_line_writer(void *arg)
{
    struct bench_job *j = arg;

    bench_pin(1);
    for (uint64_t i = 0; i < j->rounds; i++) {
        rig_idle(j, i);
        rig_store(&rig_ping, bench_ticks());
        while (rig_load(&rig_pong) != i + 1)
            bench_pause();
    }
    return NULL;
}

void rig_line_reader(void *arg)
{
    struct bench_job *j = arg;
    uint64_t last = 0, now;

    for (uint64_t i = 0; i < j->rounds; i++) {
        while ((now = rig_load(&rig_ping)) == last)
            bench_pause();
        bench_add(&j->samples, bench_ticks() - now);
        last = now;
        rig_store(&rig_pong, i + 1);
    }
}

/* A round trip over two cache lines, both sides spinning. */
void *rig_echo_lines(void *arg)
{
    struct bench_job *j = arg;

    bench_pin(1);
    for (uint64_t i = 1; i <= j->rounds; i++) {
        while (rig_load(&rig_ping) != i)
            bench_pause();
        rig_store(&rig_pong, i);
    }
    return NULL;
}

void rig_call_lines(void *arg)
{
    struct bench_job *j = arg;

    for (uint64_t i = 1; i <= j->rounds; i++) {
        uint64_t start = bench_ticks();

        rig_store(&rig_ping, i);
        while (rig_load(&rig_pong) != i)
            bench_pause();
        bench_add(&j->samples, bench_ticks() - start);
    }
}

/* A round trip over futexes, both sides asleep. */
static _Atomic uint32_t futex_there, futex_back;

static void futex_await(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t now;

    while ((now = atomic_load(word)) != value)
        syscall(SYS_futex, word, FUTEX_WAIT, now, NULL, NULL, 0);
}

static void futex_set(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void *rig_echo_futex(void *arg)
{
    struct bench_job *j = arg;

    bench_pin(1);
    for (uint32_t i = 1; i <= j->rounds; i++) {
        futex_await(&futex_there, i);
        futex_set(&futex_back, i);
    }
    return NULL;
}

void rig_call_futex(void *arg)
{
    struct bench_job *j = arg;

    atomic_store(&futex_there, 0);
    atomic_store(&futex_back, 0);
    for (uint32_t i = 1; i <= j->rounds; i++) {
        usleep(200); /* the other side is asleep */
        uint64_t start = bench_ticks();

        futex_set(&futex_there, i);
        futex_await(&futex_back, i);
        bench_add(&j->samples, bench_ticks() - start);
    }
}

/* The floor: one store to a cache line of each client, held by the other core, and one fence. */
void *rig_lines_clients(void *arg)
{
    struct bench_job *j = arg;

    bench_pin(1);
    for (uint32_t step = 1; step <= j->rounds; step++) {
        for (int i = 0; i < j->clients; i++)
            while (atomic_load_explicit(&segment_down_slot(&rig_clients[i].s, 0)->state,
                                        memory_order_acquire) != step)
                bench_pause();
        rig_store(&rig_pong, step);
    }
    return NULL;
}

void rig_lines_daemon(void *arg)
{
    struct bench_job *j = arg;

    for (int i = 0; i < j->clients; i++)
        atomic_store(&segment_down_slot(&daemon_segments[i], 0)->state, 0);
    for (uint32_t step = 1; step <= j->rounds; step++) {
        rig_breathe(step);
        uint64_t start = bench_ticks();

        for (int i = 0; i < j->clients; i++)
            atomic_store_explicit(&segment_down_slot(&daemon_segments[i], 0)->state, step,
                                  memory_order_release);
        bell_fence();
        bench_add(&j->samples, bench_ticks() - start);
        while (rig_load(&rig_pong) != step)
            bench_pause();
    }
}

static int client_open(int i, char *err, size_t err_bytes)
{
    struct segment *d = &daemon_segments[i];
    struct bench_client *c = &rig_clients[i];

    if (segment_open(d, &limits, err, err_bytes) < 0 ||
        segment_map(&c->s, d->up_fd, d->down_fd, &limits, err, err_bytes) < 0)
        return -1;
    segment_submit_reader(d, &rig_submit_in[i]);
    segment_event_writer(d, 0, &rig_events_out[i]);
    bell_waker_init(&rig_wakers[i], &segment_up_head(d)->waiting, &segment_down_head(d)->wake, -1);
    segment_submit_writer(&c->s, &c->submit_out);
    segment_event_reader(&c->s, 0, &c->events_in);
    bell_sleeper_init(&c->sleeper, &segment_down_head(&c->s)->wake,
                      &segment_up_head(&c->s)->waiting, -1, -1);
    return 0;
}

int rig_open(char *err, size_t err_bytes)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLET};

    rig_bell = bell_open();
    rig_epoll = epoll_create1(EPOLL_CLOEXEC);
    if (segment_guard_init() < 0 || segment_ctl_open(&rig_ctl, err, err_bytes) < 0 ||
        epoll_ctl(rig_epoll, EPOLL_CTL_ADD, rig_bell, &e) < 0)
        return -1;
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (client_open(i, err, err_bytes) < 0)
            return -1;
    return 0;
}
