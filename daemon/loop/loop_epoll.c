/* loop_epoll.c: the loop on epoll, edge-triggered, for systems that refuse io_uring. Same
 * semantics. */
#include "daemon/loop/loop_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BATCH = 64 };

struct epoll_loop {
    int fd;
};

/* poll(2) and epoll(7) use the same values for these bits. */
_Static_assert(POLLIN == EPOLLIN && POLLHUP == EPOLLHUP && POLLRDHUP == EPOLLRDHUP &&
                   POLLERR == EPOLLERR,
               "poll and epoll masks agree");

static int epoll_arm(struct loop *loop, uint32_t slot)
{
    struct epoll_loop *epoll = loop->backend;
    struct loop_entry *entry = &loop->entries[slot];
    struct epoll_event event = {
        .events =
            (entry->accept ? (uint32_t)EPOLLIN : (uint32_t)(unsigned short)entry->events | EPOLLET),
        .data.u64 = loop_tag(loop, slot),
    };
    return epoll_ctl(epoll->fd, EPOLL_CTL_ADD, entry->fd, &event) < 0 ? -errno : 0;
}

static void epoll_disarm(struct loop *loop, uint32_t slot)
{
    struct epoll_loop *epoll = loop->backend;
    epoll_ctl(epoll->fd, EPOLL_CTL_DEL, loop->entries[slot].fd, NULL);
}

static int timeout_ms(int64_t timeout_ns)
{
    if (timeout_ns < 0)
        return -1;
    int64_t ms = (timeout_ns + 999999) / 1000000;
    return ms > 1000000 ? 1000000 : (int)ms;
}

static int epoll_wait_events(struct loop *loop, int64_t timeout_ns, struct loop_event *events,
                             size_t capacity)
{
    struct epoll_loop *epoll = loop->backend;
    struct epoll_event batch[BATCH];
    int wanted = capacity < BATCH ? (int)capacity : BATCH;
    int n = epoll_wait(epoll->fd, batch, wanted, timeout_ms(timeout_ns));
    int filled = 0;
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < n; i++) {
        struct loop_entry *entry = loop_find(loop, batch[i].data.u64);
        if (!entry)
            continue;
        int32_t result = (int32_t)batch[i].events;
        if (entry->accept) {
            /* Level-triggered: one connection per event, the next wait returns the next. */
            result = accept4(entry->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (result < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
                continue;
            if (result < 0) {
                result = -errno;
                epoll_disarm(loop, (uint32_t)batch[i].data.u64);
                entry->live = false; /* an error ends the registration (loop.h) */
            }
        }
        events[filled++] = (struct loop_event){.cookie = entry->cookie, .result = result};
    }
    return filled;
}

static void epoll_close(struct loop *loop)
{
    struct epoll_loop *epoll = loop->backend;
    close(epoll->fd);
    free(epoll);
}

static const struct loop_ops epoll_ops = {
    .name = "epoll",
    .arm = epoll_arm,
    .disarm = epoll_disarm,
    .wait = epoll_wait_events,
    .close = epoll_close,
};

int loop_epoll_open(struct loop *loop)
{
    struct epoll_loop *epoll = calloc(1, sizeof(*epoll));
    if (!epoll)
        return -ENOMEM;
    epoll->fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll->fd < 0) {
        int rc = -errno;
        free(epoll);
        return rc;
    }
    loop->backend = epoll;
    loop->ops = &epoll_ops;
    return 0;
}
