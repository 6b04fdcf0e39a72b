/*
 * io: jobs on segments, done by a thread of its own: with io_uring, or one after the other where io_uring is
 * refused; or by hand, by the thread that queues them (tests).
 *
 *   io_post -- ring, event_fd --> the thread -- ring, done_fd --> io_take
 *
 * One thread posts and takes. Reads and writes have a buffer each, whose job is done when it is taken; other
 * jobs are done in their order, before those that are posted after them are begun. Owns the buffers, made
 * at open; their memory is committed as it is used.
 */
#ifndef HEARTH_DAEMON_STORE_IO_H
#define HEARTH_DAEMON_STORE_IO_H

#include "daemon/log.h"
#include "daemon/store/day.h"
#include "daemon/store/files.h"
#include "ipc/ring.h"

#include <pthread.h>
#include <stdatomic.h>

struct io_uring;

enum {
    IO_JOBS = 1024,   /* that wait to be begun */
    IO_BUFFERS = 256, /* most */
    IO_LEAST_BUFFERS = 8,
};

#define IO_BUFFER_BYTES ((size_t)64 << 20) /* of all buffers, where that is enough for the least */

enum io_kind { IO_READ, IO_WRITE, IO_LET_GO };

/* What a test build makes go wrong. */
enum io_fault {
    IO_SOUND,
    IO_TORN, /* half is written, and said to be whole */
    IO_FAILS,
    IO_SLOW, /* the thread sleeps first */
};

struct io_job {
    uint32_t seq; /* the ring's */
    uint8_t kind, class, fault;
    uint32_t buffer;
    uint32_t segment, slot, number;
    uid_t uid;
    struct index_gone gone; /* IO_LET_GO */
};
_Static_assert(sizeof(struct io_job) <= IPC_LINE, "a job is one cell");

struct io_done {
    uint32_t seq; /* the ring's */
    uint32_t buffer;
    int32_t status;     /* 0; -EBADMSG: other contents than were written; -errno */
    uint64_t unwritten; /* bytes of the payload, of a write that failed */
    uint64_t took_ns;
};
_Static_assert(sizeof(struct io_done) <= IPC_LINE, "a completion is one cell");

/* A read or write under way: [0] the payload, [1] a write's entry. */
struct io_part {
    uint8_t *data;
    size_t left;
    uint64_t at;
};

struct io_busy {
    struct io_job job;
    struct io_part parts[2];
    uint32_t n_parts; /* that are not done */
    int status;
    uint64_t since_ns;
};

struct io_ring {
    struct ring_cell *cells;
    struct ring_writer writer;
    _Alignas(IPC_STRIDE) struct ring_reader reader;
    _Alignas(IPC_STRIDE) _Atomic uint32_t progress;
};

struct io {
    struct files *files;
    struct day *day;
    uint8_t *payloads; /* [n_buffers][stride] */
    void **into;       /* [n_buffers] of a read: where it goes instead, or NULL */
    struct store_file_entry
        *entries;         /* [n_buffers] of a write: what is to be written, the hashes set by the
                                         thread; of a read: payload is the hash that is expected */
    struct io_busy *busy; /* [n_buffers] */
    size_t stride;
    uint32_t n_buffers;
    struct io_ring jobs, done;
    int event_fd, done_fd;
    bool posted;            /* since the last io_submit */
    uint32_t n_busy;        /* begun with io_uring, and not done */
    struct io_uring *uring; /* the thread's; NULL: plain */
    bool by_hand, plain;
    pthread_t thread;
    bool runs;
    _Atomic bool stop, abandoned;
    int said; /* status of the last line */
    uint64_t said_ns;
};

/* Buffers of `payload_bytes` at least. Returns 0 or -errno; call io_close in either case. */
int io_open(struct io *io, struct files *files, struct day *day, size_t payload_bytes, bool plain,
            bool by_hand);

/* Does what was posted and not abandoned, and ends the thread. */
void io_close(struct io *io);

static inline void *io_payload(const struct io *io, uint32_t buffer)
{
    return io->into[buffer] ? io->into[buffer] : io->payloads + buffer * io->stride;
}

/* Room for so many jobs more. */
uint32_t io_room(struct io *io);

/* PRECOND: there is room. */
void io_post(struct io *io, const struct io_job *job);
void io_submit(struct io *io);

/* What is not begun is not done: reads and writes end with -ECANCELED. */
void io_abandon(struct io *io);
bool io_take(struct io *io, struct io_done *ret);
bool io_ready(const struct io *io);

/* By hand: does up to `n` jobs. Returns how many. */
uint32_t io_work(struct io *io, uint32_t n);

#endif
