/* segment.h: makes, seals, maps and reads the shared mappings of layout.h, on both sides.
 *
 * Daemon: segment_open() makes one client's pair (control thread); the engine thread then owns the
 * mapping until it hands it back to the control thread, which calls segment_close(). Client:
 * segment_map() checks and maps what it received. Neither side allocates heap memory. Nothing here
 * knows the contents of the rings.
 *
 * Daemon:
 *   segment_guard_init()                         once, at start
 *   segment_open(&s, &limits, ...)               for a client; send it s.up_fd and s.down_fd
 *   segment_is_touched(&s)                       before the first answer
 *   segment_submit_reader(&s, &submit), segment_event_writer(&s, slot, &events[slot])
 *   segment_copy_in(&s, to, segment_arena(&s, slot) + from, n * 4)
 *   segment_broken(&s)                           after every scan
 *   segment_close(&s)
 * Client:
 *   segment_map(&s, up_fd, down_fd, &limits, ...)           from WELCOME (hello.h)
 *   segment_map_sealed(ctl_fd, sizeof(struct ctl), ...)
 *   segment_map_constant(vocab_fd, vocab_bytes, ...)
 *   segment_submit_writer(&s, &submit), segment_event_reader(&s, slot, &events[slot])
 *   segment_copy_out(segment_arena(&s, slot) + from, tokens + from, n * 4)
 *   segment_close(&s)
 *
 * THE GUARD. A page of `up` can fail under the daemon: a client may punch holes into it under a
 * memory limit. The guard's SIGBUS handler maps a page of zeroes there, marks the segment as broken
 * and lets the access continue, so plain loads of shared words need no check of their own. After
 * reading, check segment_broken() before using what was read. */
#ifndef HEARTH_IPC_SEGMENT_H
#define HEARTH_IPC_SEGMENT_H

#include "ipc/ring.h"

/* Offsets from the start of the segment, computed by both sides from the limits and the shift
 * alone. */
struct segment_plan {
    uint64_t up_head, up_slots, up_submit, up_params, up_arenas, up_bytes;
    uint64_t down_head, down_slots, down_events, down_bytes;
    uint64_t arena_bytes; /* distance of arenas: context * 4 rounded up to a page */
};

struct segment {
    struct ipc_limits limits;
    struct segment_plan plan;
    uint8_t *up;             /* daemon: mapped PROT_READ, do not write; client: read-write */
    uint8_t *down;           /* daemon: read-write; client: mapped PROT_READ */
    int up_fd;               /* daemon only: segment_copy_in() reads it; else -1 */
    int down_fd;             /* daemon only: segment_is_touched() asks it; else -1 */
    _Atomic uint32_t broken; /* set by the guard; read by segment_broken() */
};

/* Returns 0, or -EINVAL with one line when a limit or the shift is outside layout.h's bounds. */
int segment_plan(const struct ipc_limits *limits, uint32_t shift, struct segment_plan *ret_plan,
                 char *err, size_t err_bytes);

/* ---- daemon ---------------------------------------------------------------------------------- */

/* Installs the SIGBUS handler, once per process. A fault outside guarded memory still kills the
 * process. */
int segment_guard_init(void);

/* Guards [base, base + bytes); the handler sets *broken. Returns 0, or -ENOSPC when the table is
 * full. segment_open() does this by itself; `base` is page-aligned. */
int segment_guard_add(const void *base, size_t bytes, _Atomic uint32_t *broken);
void segment_guard_remove(const void *base);

/* Makes both memfds, maps, fills in down_about, seals, guards; picks another shift than for recent
 * clients. Touches no page but that of down_about: the client populates (and pays for) the others.
 * `s` must not move afterwards. Returns 0 or -errno. */
int segment_open(struct segment *s, const struct ipc_limits *limits, char *err, size_t err_bytes);

/* Makes ctl: mapped read-write here, sealed against writing by others. Returns the fd to hand out,
 * or -errno. */
int segment_ctl_open(struct ctl **ret_ctl, char *err, size_t err_bytes);
void segment_ctl_close(struct ctl *ctl, int fd);

/* Publishes constant bytes (the vocabulary): a memfd with a copy, sealed so that nobody can change it
 * any more, not mapped. Returns its fd or -errno. */
int segment_seal(const char *name, const void *bytes, size_t size, char *err, size_t err_bytes);

/* True if a page of this client has failed. Then nothing read from it since the last check is
 * valid. */
static inline int segment_broken(const struct segment *s)
{
    return atomic_load_explicit(&s->broken, memory_order_relaxed) != 0;
}

/* Copies `bytes` (a multiple of 4; `from` inside up, 4-aligned) to private memory, by a system
 * call: pages that the client never touched read as zeroes and stay untouched. Returns 0, or
 * -EFAULT when a page failed: close the client. */
int segment_copy_in(const struct segment *s, void *to, const void *from, size_t bytes);

/* Did the client touch every page of down, as segment_map() does? Otherwise publishing would
 * allocate the rest, at the daemon's expense. */
int segment_is_touched(const struct segment *s);

/* ---- client ---------------------------------------------------------------------------------- */

/* Checks seals and sizes of both, maps them (MADV_DONTFORK), checks down_about against `limits`.
 * Does not take ownership of the fds. Returns 0 or -errno with one line. */
int segment_map(struct segment *s, int up_fd, int down_fd, const struct ipc_limits *limits,
                char *err, size_t err_bytes);

/* Checks seals and size of what the daemon writes and others read (ctl) and maps it. Unmap with
 * munmap. */
int segment_map_sealed(int fd, uint64_t bytes, const void **ret_base, char *err, size_t err_bytes);

/* The same of constant bytes (the vocabulary), which are checked once and then used in place: it
 * refuses what the one that made it could still write to. */
int segment_map_constant(int fd, uint64_t bytes, const void **ret_base, char *err,
                         size_t err_bytes);

/* Copies to up (a multiple of 4 bytes, both 4-aligned): memcpy, in a form that race detectors
 * understand. */
void segment_copy_out(void *to, const void *from, size_t bytes);

/* ---- both ------------------------------------------------------------------------------------ */

/* Unmaps; the daemon also removes the guard and closes any fd left. Client: must not be waiting. */
void segment_close(struct segment *s);

void segment_submit_reader(const struct segment *s, struct ring_reader *ret); /* daemon */
void segment_submit_writer(const struct segment *s, struct ring_writer *ret); /* client */
void segment_event_writer(const struct segment *s, uint32_t slot,
                          struct ring_writer *ret); /* daemon */
void segment_event_reader(const struct segment *s, uint32_t slot,
                          struct ring_reader *ret); /* client */

/* PRECOND of all: slot < limits.slots. */
static inline struct up_head *segment_up_head(const struct segment *s)
{
    return (struct up_head *)(void *)(s->up + s->plan.up_head);
}

static inline struct up_slot *segment_up_slot(const struct segment *s, uint32_t slot)
{
    return (struct up_slot *)(void *)(s->up + s->plan.up_slots) + slot;
}

static inline struct down_about *segment_down_about(const struct segment *s)
{
    return (struct down_about *)(void *)s->down;
}

static inline struct down_head *segment_down_head(const struct segment *s)
{
    return (struct down_head *)(void *)(s->down + s->plan.down_head);
}

static inline struct down_slot *segment_down_slot(const struct segment *s, uint32_t slot)
{
    return (struct down_slot *)(void *)(s->down + s->plan.down_slots) + slot;
}

/* uint32_t[limits.context], by absolute position */
static inline uint32_t *segment_arena(const struct segment *s, uint32_t slot)
{
    return (uint32_t *)(void *)(s->up + s->plan.up_arenas + slot * s->plan.arena_bytes);
}

/* uint8_t[limits.params_bytes], 64-aligned */
static inline uint8_t *segment_params(const struct segment *s, uint32_t slot)
{
    return s->up + s->plan.up_params + (uint64_t)slot * s->limits.params_bytes;
}

#endif
