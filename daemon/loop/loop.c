/* loop.c: the table of registrations, shared by both backends, and the dispatch to them. */
#include "daemon/loop/loop.h"
#include "daemon/loop/loop_impl.h"

#include <errno.h>
#include <stdlib.h>

int loop_open(struct loop **ret_loop, enum loop_backend backend)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    if (!loop)
        return -ENOMEM;
    int rc = backend == LOOP_EPOLL ? -ENOSYS : loop_uring_open(loop);
    if (rc < 0 && backend != LOOP_URING)
        rc = loop_epoll_open(loop);
    if (rc < 0) {
        free(loop);
        return rc;
    }
    *ret_loop = loop;
    return 0;
}

void loop_close(struct loop *loop)
{
    if (!loop)
        return;
    loop->ops->close(loop);
    free(loop);
}

const char *loop_name(const struct loop *loop)
{
    return loop->ops->name;
}

static int loop_add(struct loop *loop, int fd, short events, bool accept, uint64_t cookie)
{
    uint32_t slot = 0;
    while (slot < loop->n_entries && loop->entries[slot].live)
        slot++;
    if (slot == LOOP_ENTRIES)
        return -ENOSPC;
    if (slot == loop->n_entries)
        loop->n_entries++;

    struct loop_entry *entry = &loop->entries[slot];
    entry->fd = fd;
    entry->events = events;
    entry->accept = accept;
    entry->accept_once = entry->ending = false;
    entry->cookie = cookie;
    entry->generation++;
    entry->live = true;
    int rc = loop->ops->arm(loop, slot);
    if (rc < 0)
        entry->live = false;
    return rc;
}

int loop_add_accept(struct loop *loop, int listen_fd, uint64_t cookie)
{
    return loop_add(loop, listen_fd, 0, true, cookie);
}

int loop_add_poll(struct loop *loop, int fd, short events, uint64_t cookie)
{
    return loop_add(loop, fd, events, false, cookie);
}

int loop_end_accept(struct loop *loop, int listen_fd, uint64_t cookie)
{
    for (uint32_t i = 0; i < loop->n_entries; i++) {
        struct loop_entry *entry = &loop->entries[i];
        if (!entry->live || !entry->accept || entry->fd != listen_fd || entry->cookie != cookie)
            continue;
        loop->ops->disarm(loop, i);
        entry->ending = loop->ops->asynchronous;
        entry->live = entry->ending;
        return entry->ending;
    }
    return 0;
}

void loop_remove(struct loop *loop, int fd, uint64_t cookie)
{
    for (uint32_t i = 0; i < loop->n_entries; i++) {
        struct loop_entry *entry = &loop->entries[i];
        if (!entry->live || entry->fd != fd || entry->cookie != cookie)
            continue;
        loop->ops->disarm(loop, i);
        entry->live = false;
        return;
    }
}

int loop_wait(struct loop *loop, int64_t timeout_ns, struct loop_event *events, size_t capacity)
{
    return loop->ops->wait(loop, timeout_ns, events, capacity);
}

struct loop_entry *loop_find(struct loop *loop, uint64_t tag)
{
    uint32_t slot = (uint32_t)tag;
    if (slot >= loop->n_entries)
        return NULL;
    struct loop_entry *entry = &loop->entries[slot];
    return entry->live && entry->generation == (uint32_t)(tag >> 32) ? entry : NULL;
}

uint64_t loop_tag(const struct loop *loop, uint32_t slot)
{
    return (uint64_t)loop->entries[slot].generation << 32 | slot;
}
