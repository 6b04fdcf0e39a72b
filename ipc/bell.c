/* bell.c: going to sleep, and the system calls of bell.h. */
#include "ipc/bell.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_LOOKS                                                                                 \
    16 /* polls between two clock readings; reading the clock costs as much as two polls */

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

uint64_t bell_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- client rings for the daemon ------------------------------------------------------------- */

int bell_open(void)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int bell_ring(const struct ctl *ctl, int bell_fd)
{
    uint64_t one = 1;
    /* Our cell or progress must be visible before we conclude that the daemon is awake: a store,
     * then a load of another word, whose order only a full fence keeps. */
    atomic_thread_fence(memory_order_seq_cst); /* S2 -> S1 */
    if (atomic_load_explicit(&ctl->sleeping, memory_order_relaxed) == 0)
        return 0;
    /* EAGAIN: the counter is at its maximum, so the descriptor is readable, as wanted. */
    if (write(bell_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        return -errno;
    return 1;
}

void bell_daemon_sleep(struct ctl *ctl)
{
    atomic_store_explicit(&ctl->sleeping, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* S1 -> S2; the caller's scan is the second look */
}

void bell_daemon_awake(struct ctl *ctl)
{
    atomic_store_explicit(&ctl->sleeping, 0, memory_order_relaxed);
}

void bell_daemon_pulse(struct ctl *ctl, uint64_t now_ns, uint64_t step_ns)
{
    uint64_t beat = atomic_load_explicit(&ctl->heartbeat, memory_order_relaxed);
    atomic_store_explicit(&ctl->heartbeat, beat + 1, memory_order_relaxed);
    atomic_store_explicit(&ctl->step_ns, step_ns, memory_order_relaxed);
    atomic_store_explicit(&ctl->step_at_ns, now_ns, memory_order_relaxed);
}

/* ---- daemon wakes a client ------------------------------------------------------------------- */

void bell_waker_init(struct bell_waker *w, const _Atomic uint32_t *waiting, _Atomic uint32_t *wake,
                     int notify_fd)
{
    *w = (struct bell_waker){.waiting = waiting, .wake = wake, .notify_fd = notify_fd};
}

int bell_due_slow(struct bell_waker *w, uint32_t ticket)
{
    w->last = ticket;
    if ((ticket & 1u) == BELL_NOTIFY && w->notify_fd >= 0)
        return BELL_NOTIFY;
    /* Raised here and not beside the system call, which another thread may make: the word has one
     * writer. A client that has announced but does not sleep yet finds it changed and does not
     * sleep (S1). */
    uint32_t wake = atomic_load_explicit(w->wake, memory_order_relaxed);
    atomic_store_explicit(w->wake, wake + 1, memory_order_release);
    return BELL_FUTEX;
}

int bell_wake(_Atomic uint32_t *wake)
{
    long r = syscall(SYS_futex, wake, FUTEX_WAKE, 1, NULL, NULL, 0);
    return r < 0 && errno != EFAULT ? -errno : 0;
}

int bell_notify(int notify_fd)
{
    if (send(notify_fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN)
        return -errno;
    return 0;
}

int bell_notify_open(int ret_fds[2])
{
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_fds) < 0 ? -errno : 0;
}

/* ---- client waits ---------------------------------------------------------------------------- */

void bell_sleeper_init(struct bell_sleeper *s, const _Atomic uint32_t *wake,
                       _Atomic uint32_t *waiting, int socket_fd, int notify_fd)
{
    *s = (struct bell_sleeper){.wake = wake,
                               .waiting = waiting,
                               .socket_fd = socket_fd,
                               .notify_fd = notify_fd,
                               .look_ns = BELL_LOOK_NS};
}

static void sleeper_announce(struct bell_sleeper *s, enum bell_way way)
{
    s->number++;
    if ((s->number << 1) == 0)
        s->number = 1;
    atomic_store_explicit(s->waiting, s->number << 1 | (uint32_t)way, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* S1 -> S2; the next ready() is the second look */
}

static void sleeper_awake(struct bell_sleeper *s)
{
    atomic_store_explicit(s->waiting, 0, memory_order_relaxed);
}

static int sleeper_hung_up(const struct bell_sleeper *s)
{
    struct pollfd p = {.fd = s->socket_fd, .events = POLLRDHUP};
    return s->socket_fd >= 0 && poll(&p, 1, 0) == 1;
}

/* Returns 0 (woken, or the word moved), -ETIMEDOUT or -EINTR. The page is read-only here and shared
 * between processes: never FUTEX_PRIVATE_FLAG. */
static int sleeper_futex(const _Atomic uint32_t *wake, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec t = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                         .tv_nsec = (long)(timeout_ns % 1000000000u)};
    if (syscall(SYS_futex, wake, FUTEX_WAIT, seen, &t, NULL, 0) == 0 || errno == EAGAIN)
        return 0;
    return -errno;
}

/* Blocks until ready or until_ns (0: for ever). Returns as bell_wait(). */
static int sleeper_block(struct bell_sleeper *s, int (*ready)(const void *), const void *arg,
                         uint64_t until_ns)
{
    for (;;) {
        uint32_t seen = atomic_load_explicit(s->wake, memory_order_acquire); /* S1 */
        uint64_t slice = s->look_ns;
        int rc = 0;
        sleeper_announce(s, BELL_FUTEX);
        if (!ready(arg)) {
            if (until_ns != 0) {
                uint64_t now = bell_now_ns();
                slice = now >= until_ns ? 0 : until_ns - now;
                slice = slice < s->look_ns ? slice : s->look_ns;
            }
            rc = slice == 0 ? -ETIMEDOUT : sleeper_futex(s->wake, seen, slice);
        }
        sleeper_awake(s);
        if (ready(arg))
            return 0;
        if (rc == -ETIMEDOUT && sleeper_hung_up(s))
            return ready(arg) ? 0 : -EPIPE; /* what it published before it died comes first */
        if (rc == -ETIMEDOUT && until_ns != 0 && bell_now_ns() >= until_ns)
            return -ETIMEDOUT;
        if (rc != 0 && rc != -ETIMEDOUT)
            return rc;
    }
}

static int sleeper_spin(int (*ready)(const void *), const void *arg, uint64_t until_ns)
{
    do {
        for (int i = 0; i < SPIN_LOOKS; i++) {
            if (ready(arg))
                return 1;
            spin_pause();
        }
    } while (bell_now_ns() < until_ns);
    return 0;
}

static uint64_t sooner(uint64_t a_ns, uint64_t deadline_ns)
{
    return deadline_ns != 0 && deadline_ns < a_ns ? deadline_ns : a_ns;
}

int bell_wait(struct bell_sleeper *s, int (*ready)(const void *arg), const void *arg,
              const struct bell_patience *p)
{
    uint64_t now, spin_until;
    if (ready(arg))
        return 0;
    now = bell_now_ns();
    spin_until = now + p->spin_ns;
    if (p->expect_ns != 0) {
        /* Announced and asleep until shortly before: an early event still wakes us. */
        if (p->expect_ns > now + p->guard_ns) {
            uint64_t until = sooner(p->expect_ns - p->guard_ns, p->deadline_ns);
            int rc = sleeper_block(s, ready, arg, until);
            if (rc != -ETIMEDOUT)
                return rc;
            now = bell_now_ns();
        }
        spin_until = p->expect_ns + p->guard_ns;
    }
    spin_until = sooner(spin_until, p->deadline_ns);
    if (spin_until > now && sleeper_spin(ready, arg, spin_until))
        return 0;
    return sleeper_block(s, ready, arg, p->deadline_ns);
}

int bell_arm(struct bell_sleeper *s, int (*ready)(const void *arg), const void *arg)
{
    if (ready(arg))
        return 0;
    sleeper_announce(s, BELL_NOTIFY);
    if (!ready(arg))
        return 1;
    sleeper_awake(s);
    return 0;
}

void bell_drain(struct bell_sleeper *s)
{
    char bytes[256];
    sleeper_awake(s);
    while (recv(s->notify_fd, bytes, sizeof(bytes), MSG_DONTWAIT) == (ssize_t)sizeof(bytes))
        ;
}
