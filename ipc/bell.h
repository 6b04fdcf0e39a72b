/* bell.h: sleeping and waking: a bell is rung only when the other side sleeps, and no wake-up is
 * lost.
 *
 * Both directions use the same handshake (S1, S2 in the table of ring.h). The side that goes to
 * sleep reads the wake word, announces that it sleeps, executes a full fence, looks once more, and
 * sleeps (S1). The other side publishes or frees, executes a full fence, and looks for an
 * announcement (S2). At least one of the two sees the other. A wake-up is a hint to look, never a
 * count; spurious wake-ups happen.
 *
 *   client -> daemon   ctl.sleeping says whether to ring; the bell is an eventfd per client, polled
 *                      and never read
 *   daemon -> client   up_head.waiting holds a ticket while the client waits; the bell is a shared
 *                      futex on down_head.wake, or, for programs with an event loop, a byte on a
 *                      socketpair
 *
 * A ticket is 0 while the client is awake, else (number << 1 | way) with a new number per wait; the
 * daemon rings once per ticket. Only ONE thread of a client may wait at a time; the library
 * enforces that.
 *
 * The daemon never does anything on a shared descriptor that the client could make block by
 * changing its file flags: it only polls the eventfd, and sends on the socketpair with per-call
 * flags. No io_uring here: bell_open() returns a descriptor that the caller polls by whatever
 * means. */
#ifndef HEARTH_IPC_BELL_H
#define HEARTH_IPC_BELL_H

#include "ipc/ring.h"

#define BELL_LOOK_NS 250000000u /* longest single sleep of a client before it looks at the socket */

/* ---- client rings for the daemon ------------------------------------------------------------- */

/* Daemon: makes one client's bell. Returns an eventfd (EFD_NONBLOCK, CLOEXEC) to poll, never to
 * read; or -errno. */
int bell_open(void);

/* Client, after ring_push() (R1) and after ring_release() of events (R2): S2, then rings when the
 * daemon sleeps. Returns 1 when it rang, 0 when it is awake, -errno when the descriptor is
 * unusable. */
int bell_ring(const struct ctl *ctl, int bell_fd);

/* Daemon's engine thread, S1: announce the sleep. Then scan every ring once more, then block on the
 * polled bells. */
void bell_daemon_sleep(struct ctl *ctl);
void bell_daemon_awake(struct ctl *ctl);

/* Daemon's engine thread, once a step: counts one more step and says how long a decode step takes
 * now (0: unknown). Call it after publishing and waking: clients read this cache line, so a store
 * to it would delay the stores that follow by 0.1 us. */
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

/* If this client sleeps with a ticket not rung yet: notes the ticket, raises the wake word and
 * returns how to wake it (without the system call, which another thread may make); else returns
 * BELL_NONE. PRECOND: bell_fence(). */
int bell_due_slow(struct bell_waker *w, uint32_t ticket);
static inline int bell_due(struct bell_waker *w)
{
    uint32_t ticket = atomic_load_explicit(w->waiting, memory_order_relaxed);
    return ticket == 0 || ticket == w->last ? BELL_NONE : bell_due_slow(w, ticket);
}

/* Makes the system call that bell_due() asked for; any thread. `wake` may be unmapped by then: the
 * kernel returns EFAULT and nothing happens. Returns 0, or -errno for the log; -EAGAIN from a full
 * notify socket counts as success. */
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
    int socket_fd;                /* the handshake socket, watched for hang-up; -1: none */
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
