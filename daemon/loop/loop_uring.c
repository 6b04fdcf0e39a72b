/* loop_uring.c: the loop on io_uring. One blocking call covers everything a thread waits for.
 *
 * Fallbacks, each probed by trying: DEFER_TASKRUN|SINGLE_ISSUER (6.1), else COOP_TASKRUN (5.19),
 * else plain; multishot accept (5.19), else one accept at a time. Without EXT_ARG timeouts (5.11),
 * or if io_uring is forbidden altogether, loop_open uses epoll. */
#include "daemon/loop/loop_impl.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

enum { RING_ENTRIES = 256 };

/* Completions of removals carry this tag, which matches no registration: generation 0 is never
 * live. */
static const uint64_t TAG_NONE = 0xffffffff;

static struct io_uring_sqe *uring_sqe(struct io_uring *ring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (!sqe) {
        io_uring_submit(ring);
        sqe = io_uring_get_sqe(ring);
    }
    return sqe;
}

static int uring_arm(struct loop *loop, uint32_t slot)
{
    struct loop_entry *entry = &loop->entries[slot];
    struct io_uring_sqe *sqe = uring_sqe(loop->backend);
    if (!sqe)
        return -EBUSY;
    if (!entry->accept)
        io_uring_prep_poll_multishot(sqe, entry->fd, (unsigned)(unsigned short)entry->events);
    else if (entry->accept_once)
        io_uring_prep_accept(sqe, entry->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    else
        io_uring_prep_multishot_accept(sqe, entry->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    io_uring_sqe_set_data64(sqe, loop_tag(loop, slot));
    return 0;
}

static void uring_disarm(struct loop *loop, uint32_t slot)
{
    struct io_uring_sqe *sqe = uring_sqe(loop->backend);
    if (!sqe)
        return;
    /* Used for polls, too: IORING_OP_POLL_REMOVE fails (-EALREADY) for a poll that has just fired
     * but whose completion was not read yet, and the poll would hold its file forever. */
    io_uring_prep_cancel64(sqe, loop_tag(loop, slot), 0);
    io_uring_sqe_set_data64(sqe, TAG_NONE);
    /* Submitted now, not at the next wait: the caller closes the descriptor, but a poll holds a
     * reference to it. */
    io_uring_submit(loop->backend);
}

/* Turns one completion into an event. Returns 1 when there is one for the caller, 0 otherwise. */
static int uring_take(struct loop *loop, const struct io_uring_cqe *cqe, struct loop_event *event)
{
    struct loop_entry *entry = loop_find(loop, cqe->user_data);
    if (!entry)
        return 0;
    if (entry->ending && cqe->res < 0) {
        entry->live = false; /* the cancellation's completion, or an error that came first */
        *event = (struct loop_event){.cookie = entry->cookie, .result = -ECANCELED};
        return 1;
    }
    if (entry->accept && !entry->accept_once && cqe->res == -EINVAL) {
        entry->accept_once = true; /* this kernel has no multishot accept */
        uring_arm(loop, (uint32_t)cqe->user_data);
        return 0;
    }
    bool passing = cqe->res == -ECANCELED || cqe->res == -EAGAIN || cqe->res == -EINTR ||
                   cqe->res == -ECONNABORTED;
    if (entry->accept && cqe->res < 0 && !passing)
        entry->live = false; /* an error ends the registration (loop.h) */
    else if (!(cqe->flags & IORING_CQE_F_MORE) && cqe->res != -EBADF)
        uring_arm(loop, (uint32_t)cqe->user_data);
    if (entry->ending && !(cqe->flags & IORING_CQE_F_MORE))
        uring_disarm(loop, (uint32_t)cqe->user_data); /* it came before the cancellation */
    if (passing)
        return 0;
    *event = (struct loop_event){.cookie = entry->cookie, .result = cqe->res};
    return 1;
}

/* True for errors that do not mean the end of the ring: timeout, a signal, no memory to submit with
 * just now (retried at the next wait), or, before 6.0, more completions than the ring has room for,
 * which must be taken first. */
static bool uring_passes(int error)
{
    return error == -ETIME || error == -EINTR || error == -EAGAIN || error == -EBUSY;
}

/* Completions were dropped (the ring was full, and memory short), and the kernel does not say
 * whose: some registrations have ended. All are renewed; what is ready then is reported again. Only
 * a connection whose accept completion was dropped stays open and unanswered. */
static void uring_restore(struct loop *loop)
{
    loop->lost = false;
    for (uint32_t i = 0; i < loop->n_entries; i++) {
        struct loop_entry *entry = &loop->entries[i];
        if (!entry->live)
            continue;
        uring_disarm(loop, i);
        entry->generation++;
        uring_arm(loop, i);
        if (entry->ending)
            uring_disarm(loop, i);
    }
}

static int uring_wait(struct loop *loop, int64_t timeout_ns, struct loop_event *events,
                      size_t capacity)
{
    struct io_uring *ring = loop->backend;
    struct __kernel_timespec timeout = {
        .tv_sec = timeout_ns > 0 ? timeout_ns / 1000000000 : 0,
        .tv_nsec = timeout_ns > 0 ? timeout_ns % 1000000000 : 0,
    };
    struct io_uring_cqe *cqe;
    size_t filled = 0;
    /* Even with a zero timeout it asks for one completion: only then does DEFER_TASKRUN run pending
     * work. */
    int rc =
        io_uring_submit_and_wait_timeout(ring, &cqe, 1, timeout_ns < 0 ? NULL : &timeout, NULL);
    loop->lost |= rc == -EBADR; /* reported once */
    if (rc < 0 && rc != -EBADR && !uring_passes(rc))
        return rc;
    /* A completion is taken only while its registration can be armed anew: that takes one
     * submission, two where accepting ends. */
    while (filled < capacity && io_uring_sq_space_left(ring) >= 2 &&
           io_uring_peek_cqe(ring, &cqe) == 0) {
        filled += (size_t)uring_take(loop, cqe, &events[filled]);
        io_uring_cqe_seen(ring, cqe);
    }
    if (loop->lost &&
        io_uring_cq_ready(ring) == 0) /* the accepted connections among them were taken first */
        uring_restore(loop);
    return (int)filled;
}

static void uring_close(struct loop *loop)
{
    io_uring_queue_exit(loop->backend);
    free(loop->backend);
}

static const struct loop_ops uring_ops = {
    .name = "io_uring",
    .asynchronous = true,
    .arm = uring_arm,
    .disarm = uring_disarm,
    .wait = uring_wait,
    .close = uring_close,
};

int loop_uring_open(struct loop *loop)
{
    static const unsigned setups[] = {
        IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_CLAMP,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CLAMP,
        IORING_SETUP_CLAMP,
    };
    struct io_uring *ring = calloc(1, sizeof(*ring));
    struct io_uring_params params;
    int rc = -EINVAL;
    if (!ring)
        return -ENOMEM;
    for (size_t i = 0; rc == -EINVAL && i < sizeof(setups) / sizeof(*setups); i++) {
        params = (struct io_uring_params){
            .flags = setups[i] | IORING_SETUP_CQSIZE,
            .cq_entries = LOOP_ENTRIES,
        };
        rc = io_uring_queue_init_params(RING_ENTRIES, ring, &params);
    }
    if (rc == 0 && !(params.features & IORING_FEAT_EXT_ARG)) {
        io_uring_queue_exit(ring);
        rc = -ENOSYS;
    }
    if (rc < 0) {
        free(ring);
        return rc;
    }
    loop->backend = ring;
    loop->ops = &uring_ops;
    return 0;
}
