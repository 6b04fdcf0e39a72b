/* ipc_rig.h: the setup of bench_ipc: many clients with both ends in reach, a second thread, and the
 * floors.
 *
 * The calling thread plays the daemon, the other the clients. A floor is the plainest thing that
 * could do the same as a row: one cache line, one futex, one stream of stores.
 */
#ifndef HEARTH_TESTS_BENCH_IPC_RIG_H
#define HEARTH_TESTS_BENCH_IPC_RIG_H

#include "ipc/bell.h"
#include "ipc/event.h"
#include "ipc/segment.h"
#include "tests/bench/bench.h"

#define CLIENTS_MAX 256
#define RIG_SUBMIT_CELLS 16
#define RIG_EVENT_CELLS 128

/* Clients as the daemon keeps them: the words that a scan touches are adjacent. */
extern struct ring_reader rig_submit_in[CLIENTS_MAX];
extern struct ring_writer rig_events_out[CLIENTS_MAX];
extern struct bell_waker rig_wakers[CLIENTS_MAX];

/* One client as its library keeps it. */
struct bench_client {
    _Alignas(128) struct segment s;
    struct ring_writer submit_out;
    struct ring_reader events_in;
    struct bell_sleeper sleeper;
};
extern struct bench_client rig_clients[CLIENTS_MAX];

extern struct ctl *rig_ctl;
extern int rig_bell, rig_epoll; /* the daemon's bell, and what watches it */

/* Makes everything above. Returns 0 or -1 with one line. */
int rig_open(char *err, size_t err_bytes);

/* A word that only one thread writes, on its own cache line. */
struct cache_word {
    _Alignas(128) _Atomic uint64_t value;
};
extern struct cache_word rig_ping, rig_pong, rig_stop; /* 0 when a job starts */

static inline uint64_t rig_load(struct cache_word *w)
{
    return atomic_load_explicit(&w->value, memory_order_acquire);
}

static inline void rig_store(struct cache_word *w, uint64_t value)
{
    atomic_store_explicit(&w->value, value, memory_order_release);
}

struct bench_job {
    struct bench_samples samples;
    int clients;
    uint64_t rounds;
    uint64_t period_us; /* 0: as fast as possible */
};

/* Runs `other` in a thread beside daemon(arg). */
void rig_beside(void *(*other)(void *), void *arg, void (*daemon)(void *));

/* A pause of 0.2 to 1 us, so that the other side is back at its first look. */
void rig_breathe(uint64_t i);

/* Between two events: rig_breathe(), or the period +-1 %, busy like a daemon in a pass. */
void rig_idle(const struct bench_job *j, uint64_t i);

/* The floors; each pair is for beside() with a struct bench_job. */
void *rig_line_writer(void *arg); /* one cache line, one way, containing its write time */
void rig_line_reader(void *arg);
void *rig_echo_lines(void *arg); /* two lines there and back, both sides spinning */
void rig_call_lines(void *arg);
void *rig_echo_futex(void *arg); /* a futex there and back, both sides asleep */
void rig_call_futex(void *arg);
void *rig_lines_clients(void *arg); /* a store to each client's cache line, and a fence */
void rig_lines_daemon(void *arg);

#endif
