/* loop_impl.h: shared by loop.c and its two backends; private to them.
 *
 * The kernel knows a registration by a tag: its index and a generation that grows with every reuse,
 * so that a late completion of a removed registration does not match. */
#ifndef HEARTH_DAEMON_LOOP_LOOP_IMPL_H
#define HEARTH_DAEMON_LOOP_LOOP_IMPL_H

#include "daemon/loop/loop.h"

#include <stdbool.h>

struct loop_entry {
    uint64_t cookie;
    int fd;
    uint32_t generation;
    short events;
    bool accept;
    bool accept_once; /* the kernel refused multishot accept: re-armed after each connection */
    bool ending;      /* accepting is being cancelled: connections accepted before still come */
    bool live;
};

struct loop_ops {
    const char *name;
    bool asynchronous; /* a disarmed entry may still have events to come, and a final one */
    int (*arm)(struct loop *loop, uint32_t slot);
    void (*disarm)(struct loop *loop, uint32_t slot);
    int (*wait)(struct loop *loop, int64_t timeout_ns, struct loop_event *events, size_t capacity);
    void (*close)(struct loop *loop);
};

struct loop {
    const struct loop_ops *ops;
    void *backend; /* owned by ops */
    bool lost;     /* io_uring: completions were dropped, and all registrations must be renewed */
    uint32_t n_entries;
    struct loop_entry entries[LOOP_ENTRIES];
};

int loop_uring_open(struct loop *loop);
int loop_epoll_open(struct loop *loop);

/* The live registration with this tag, or NULL if it was removed meanwhile. */
struct loop_entry *loop_find(struct loop *loop, uint64_t tag);
uint64_t loop_tag(const struct loop *loop, uint32_t slot);

#endif
