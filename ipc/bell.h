/* bell.h: sleeping and waking, so that bells are rung only for sleepers and no wake is lost.
 *
 * Both directions are the same handshake. The sleeper: read the wake word, say that it sleeps, full
 * fence, look once more, sleep (S1). The other side: publish or free, full fence, look whether
 * somebody sleeps (S2). One of the two must see the other. A wake is a hint to look, never a count.
 *
 *   client -> daemon   ctl.sleeping says whether to ring; the bell is an eventfd per client, polled
 *                      and never read
 *   daemon -> client   up_head.waiting holds a ticket while the client waits; the bell is a shared
 *                      futex on down_head.wake, or, for programs with an event loop, a byte on a
 *                      socketpair
 *
 * A ticket is 0 when awake, else (number << 1 | way), a new number per wait; the daemon rings once
 * per ticket. ONE thread of a client waits at a time: the library sees to that.
 *
 * Never writes to a descriptor whose file flags the other side can change in a way that could block
 * us: the daemon only polls the eventfd, and sends on the socketpair with per-call flags. No
 * io_uring here: bell_open() gives the descriptor to poll, by whatever means. Memory ordering: the
 * table in ring.h.
 */
#ifndef HEARTH_IPC_BELL_H
#define HEARTH_IPC_BELL_H

#include "ipc/ring.h"

#define BELL_LOOK_NS                                                                               \
    250000000u /* longest single sleep of a client; then it looks at the socket                    \
                */

/* ---- client rings for the daemon ------------------------------------------------------------- */

/* Daemon: makes one client's bell. Returns an eventfd (EFD_NONBLOCK, CLOEXEC) to poll, never to
 * read; or -errno. */
int bell_open(void);

/* Client, after ring_push() (R1) and after ring_release() of events (R2): S2, then rings when the
 * daemon sleeps. Returns 1 when it rang, 0 when nobody sleeps, -errno when the descriptor is
 * unusable. */
int bell_ring(const struct ctl *ctl, int bell_fd);

/* Daemon's engine thread, S1: announce, then scan every ring once more, then block on the polled
 * bells. */
void bell_daemon_sleep(struct ctl *ctl);
void bell_daemon_awake(struct ctl *ctl);

/* Daemon's engine thread, once a step, after publishing and waking (the clients read this line:
 * stores to it would hold up those behind them by 0.1 us): one more step, and how long a decode
 * step takes now (0: unknown). */
void bell_daemon_pulse(struct ctl *ctl, uint64_t now_ns, uint64_t step_ns);

/* ---- daemon wakes a client ------------------------------------------------------------------- */

enum bell_way { BELL_NONE = -1, BELL_FUTEX = 0, BELL_NOTIFY = 1 };

/* Daemon's private record of one client's sleep. */
struct bell_waker {
    const _Atomic uint32_t *waiting; /* up_head.waiting */
    _Atomic uint32_t *wake;          /* down_head.wake */
    uint32_t last;                   /* last ticket rung */
    int notify_fd;                   /* our end of the socketpair, or -1 */
};

void bell_waker_init(struct bell_waker *w, const _Atomic uint32_t *waiting, _Atomic uint32_t *wake,
                     int notify_fd);

/* S2: once a step, after all R1 and R2 of the step and before the first bell_due(). */
static inline void bell_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst); /* S2 -> S1 */
}

/* Does this client sleep with a ticket not rung yet? Then notes the ticket, raises the wake word
 * and returns how to wake it (no system call yet, so that it may be handed to another thread); else
 * BELL_NONE. PRECOND: bell_fence(). */
int bell_due_slow(struct bell_waker *w, uint32_t ticket);
static inline int bell_due(struct bell_waker *w)
{
    uint32_t ticket = atomic_load_explicit(w->waiting, memory_order_relaxed);

    return ticket == 0 || ticket == w->last ? BELL_NONE : bell_due_slow(w, ticket);
}

/* The system call that bell_due() asked for; any thread. `wake` may be unmapped by then: the kernel
 * then says EFAULT and nothing happens. Returns 0, or -errno for the log; -EAGAIN from a full
 * notify socket is success. */
int bell_wake(_Atomic uint32_t *wake);
int bell_notify(int notify_fd);

/* Makes the socketpair: ret_fds[0] stays with the daemon, ret_fds[1] goes to the client. Returns 0
 * or -errno. */
int bell_notify_open(int ret_fds[2]);

/* ---- client waits ---------------------------------------------------------------------------- */

struct bell_sleeper {
    const _Atomic uint32_t *wake; /* down_head.wake, read-only here */
    _Atomic uint32_t *waiting;    /* up_head.waiting */
    uint32_t number;              /* of the last ticket */
    int socket_fd;                /* the handshake socket, looked at for hang-up; -1 none */
    int notify_fd;                /* our end of the socketpair, or -1 */
    uint64_t look_ns;             /* BELL_LOOK_NS; tests sleep longer, so that a lost wake shows */
};

/* How patient a wait is. All zero: block at once, without end. */
struct bell_patience {
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    uint64_t expect_ns;   /* CLOCK_MONOTONIC time when the event is expected; 0: unknown */
    uint32_t guard_ns;    /* with expect_ns: spin from this long before it to this long after */
    uint32_t spin_ns;     /* without expect_ns: spin this long before blocking */
};

void bell_sleeper_init(struct bell_sleeper *s, const _Atomic uint32_t *wake,
                       _Atomic uint32_t *waiting, int socket_fd, int notify_fd);

/* Waits until ready(arg) is true. `ready` looks at shared words only: ring_ready() for an event,
 * ring_space_changed() when blocked on space. Returns 0 when ready; -ETIMEDOUT; -EINTR when a
 * signal was handled; -EPIPE when the daemon hung up and ready(arg) is still false (drain `down`
 * first, then believe it). */
int bell_wait(struct bell_sleeper *s, int (*ready)(const void *arg), const void *arg,
              const struct bell_patience *patience);

/* For event loops. Arm before going back to the loop: returns 1 when armed, 0 when ready(arg) is
 * true already (not armed: go on reading). When the descriptor is readable: drain, then read the
 * rings, then arm again. */
int bell_arm(struct bell_sleeper *s, int (*ready)(const void *arg), const void *arg);
void bell_drain(struct bell_sleeper *s);

/* CLOCK_MONOTONIC. */
uint64_t bell_now_ns(void);

#endif
