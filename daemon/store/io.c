/* io.c: the store's thread. What io_uring does for it are the reads and writes of records; files are opened, made
 * and removed in between, because that is rare. */
#include "daemon/store/io.h"

#include "ipc/bell.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    PARTS = 2,
    TURN = 8, /* completions after which it looks for jobs */
    /* While the day's bytes are spent, the thread looks for another day this often. */
    LOOK_MS = 60000,
    SLOW_NS = 50000000,
    AT_ONCE = 64 << 10, /* bytes of a call without io_uring: one that fails has written less */
};
static const uint64_t SAY_AGAIN_NS = 60000000000; /* one cause, such as a full disk */

static const uint64_t BELL = UINT64_MAX; /* user_data of the poll on event_fd */

/* ---- rings ------------------------------------------------------------------------------------- */

static int ring_open(struct io_ring *ring, uint32_t n)
{
    uint32_t capacity = 1;
    while (capacity < n)
        capacity *= 2;
    ring->cells = aligned_alloc(IPC_LINE, capacity * sizeof(*ring->cells));
    if (!ring->cells)
        return -ENOMEM;
    memset(ring->cells, 0, capacity * sizeof(*ring->cells));
    atomic_init(&ring->progress, 0);
    ring_writer_init(&ring->writer, ring->cells, capacity, &ring->progress);
    ring_reader_init(&ring->reader, ring->cells, capacity, &ring->progress);
    return 0;
}

static void ring_put(struct io_ring *ring, const void *message, size_t bytes)
{
    uint8_t cell[IPC_LINE] = {0};
    int space = ring_space(&ring->writer);
    assert(space > 0);
    memcpy(cell, message, bytes);
    ring_push(&ring->writer, cell);
}

static bool ring_get(struct io_ring *ring, void *ret, size_t bytes)
{
    uint8_t cell[IPC_LINE];
    if (ring_peek(&ring->reader, cell) != 1)
        return false;
    memcpy(ret, cell, bytes);
    ring_release(&ring->reader, 1);
    return true;
}

static void ring_bell(int event_fd)
{
    static const uint64_t one = 1;
    if (write(event_fd, &one, sizeof(one)) < 0)
        return; /* it cannot fill up: that takes 2^64 */
}

static void clear_bell(int event_fd)
{
    uint64_t n;
    if (read(event_fd, &n, sizeof(n)) < 0)
        return; /* it was clear */
}

/* ---- the other side ---------------------------------------------------------------------------- */

uint32_t io_room(struct io *io)
{
    int space = ring_space(&io->jobs.writer);
    return space > 0 ? (uint32_t)space : 0;
}

void io_post(struct io *io, const struct io_job *job)
{
    ring_put(&io->jobs, job, sizeof(*job));
    io->posted = true;
}

void io_submit(struct io *io)
{
    if (io->posted && !io->by_hand)
        ring_bell(io->event_fd);
    io->posted = false;
}

void io_abandon(struct io *io)
{
    atomic_store(&io->abandoned, true);
}

bool io_take(struct io *io, struct io_done *ret)
{
    return ring_get(&io->done, ret, sizeof(*ret));
}

bool io_ready(const struct io *io)
{
    return ring_ready(&io->done.reader);
}

/* ---- one job ----------------------------------------------------------------------------------- */

static const struct store_file_header *header_of(const struct io *io, const struct io_job *job)
{
    return &io->files->segments[job->segment].header;
}

/* Sets the parts of a read or write. Returns 0 or -errno: the file cannot be opened. */
static int prepare(struct io *io, struct io_busy *b)
{
    const struct io_job *job = &b->job;
    struct store_file_entry *entry = &io->entries[job->buffer];
    void *payload = io_payload(io, job->buffer);
    int rc = 0;
    if (job->kind == IO_WRITE)
        rc = files_need(io->files, job->segment, job->number, job->uid, job->class);
    else if (io->files->segments[job->segment].fd < 0)
        rc = -ENOENT;
    if (rc == 0 && job->fault == IO_FAILS)
        rc = -EIO;
    if (job->fault == IO_SLOW)
        nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
    if (rc < 0)
        return rc;
    const struct store_file_header *header = header_of(io, job);
    b->n_parts = job->kind == IO_WRITE ? 2 : 1;
    b->parts[0] =
        (struct io_part){payload, header->payload_bytes, format_slot_at(header, job->slot)};
    if (job->kind == IO_READ)
        return 0;
    format_seal(entry, header, payload);
    b->parts[1] = (struct io_part){(uint8_t *)entry, sizeof(*entry), format_entry_at(job->slot)};
    if (job->fault == IO_TORN)
        b->parts[0].left /= 2;
    return 0;
}

/* One line for one cause, then one a minute. */
static void say_failed(struct io *io, const struct io_job *job, int status)
{
    const struct files_segment *s = &io->files->segments[job->segment];
    const uint64_t now_ns = bell_now_ns();
    if (status == -ECANCELED || (status == io->said && now_ns - io->said_ns < SAY_AGAIN_NS))
        return;
    io->said = status;
    io->said_ns = now_ns;
    log_warning("store: cannot %s %s/%u/%04u.kv: %s", job->kind == IO_READ ? "read" : "write",
                io->files->model, job->uid, s->fd < 0 ? job->number : s->number, files_why(status));
}

/* Bytes of the payload that a failed write left out: all of it where the write could not begin. */
static uint64_t unwritten(const struct io *io, const struct io_busy *b)
{
    if (b->status == 0 || b->job.kind != IO_WRITE)
        return 0;
    return b->parts[0].data ? b->parts[0].left : io->files->class_bytes[b->job.class];
}

static void complete(struct io *io, struct io_busy *b)
{
    const struct io_job *job = &b->job;
    if (b->status == -ENODATA)
        b->status = -EBADMSG;
    if (b->status == 0 && job->kind == IO_READ &&
        !format_payload_is(io_payload(io, job->buffer), header_of(io, job)->payload_bytes,
                           io->entries[job->buffer].payload))
        b->status = -EBADMSG;
    if (b->status < 0)
        say_failed(io, job, b->status);
    const struct io_done done = {.buffer = job->buffer,
                                 .status = b->status,
                                 .unwritten = unwritten(io, b),
                                 .took_ns = bell_now_ns() - b->since_ns};
    ring_put(&io->done, &done, sizeof(done));
    ring_bell(io->done_fd);
}

static void move_on(struct io_part *part, size_t bytes)
{
    part->data += bytes;
    part->at += bytes;
    part->left -= bytes;
}

static void do_plain(struct io *io, struct io_busy *b)
{
    const int fd = io->files->segments[b->job.segment].fd;
    for (uint32_t i = 0; i < b->n_parts && b->status == 0;) {
        struct io_part *part = &b->parts[i];
        const size_t n = part->left < AT_ONCE ? part->left : AT_ONCE;
        b->status = b->job.kind == IO_READ ? files_read(fd, part->data, n, part->at)
                                           : files_write(io->files, fd, part->data, n, part->at);
        if (b->status == 0)
            move_on(part, n);
        i += part->left == 0;
    }
    complete(io, b);
}

/* ---- io_uring ---------------------------------------------------------------------------------- */

/* There are as many entries as parts of all buffers, and one for the bell. */
static struct io_uring_sqe *next_sqe(struct io *io, uint64_t data)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(io->uring);
    if (!sqe) {
        io_uring_submit(io->uring);
        sqe = io_uring_get_sqe(io->uring);
    }
    assert(sqe);
    io_uring_sqe_set_data64(sqe, data);
    return sqe;
}

/* The kernel takes 32 bits of length, and does less if it has to: uring_part goes on. */
static void queue_part(struct io *io, const struct io_busy *b, uint32_t i)
{
    const struct io_part *part = &b->parts[i];
    const unsigned n = part->left < 1 << 30 ? (unsigned)part->left : 1 << 30;
    const int fd = io->files->segments[b->job.segment].fd;
    struct io_uring_sqe *sqe = next_sqe(io, (uint64_t)b->job.buffer * PARTS + i);
    const uint64_t data = sqe->user_data; /* prep clears it in some versions of liburing */
    if (b->job.kind == IO_READ)
        io_uring_prep_read(sqe, fd, part->data, n, part->at);
    else
        io_uring_prep_write(sqe, fd, part->data, n, part->at);
    io_uring_sqe_set_data64(sqe, data);
}

static void queue_bell(struct io *io)
{
    struct io_uring_sqe *sqe = next_sqe(io, BELL);
    io_uring_prep_poll_add(sqe, io->event_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, BELL);
}

/* A part was read or written, all or some of it. */
static void part_done(struct io *io, uint64_t data, int result)
{
    struct io_busy *b = &io->busy[data / PARTS];
    struct io_part *part = &b->parts[data % PARTS];
    if (result > 0)
        move_on(part, (size_t)result);
    if (result == -EINTR || result == -EAGAIN || (result > 0 && part->left > 0)) {
        queue_part(io, b, (uint32_t)(data % PARTS));
        return;
    }
    if (result <= 0 && b->status == 0)
        b->status = result < 0 ? result : -ENODATA;
    if (--b->n_parts > 0)
        return;
    io->n_busy--;
    complete(io, b);
}

/* Waits for something, up to wait_ms (-1: without limit), and takes all that came. */
static void uring_turn(struct io *io, int wait_ms)
{
    struct __kernel_timespec time = {.tv_sec = wait_ms / 1000};
    struct io_uring_cqe *cqe;
    if (io_uring_submit_and_wait_timeout(io->uring, &cqe, 1, wait_ms < 0 ? NULL : &time, NULL) <
            0 &&
        io_uring_peek_cqe(io->uring, &cqe) != 0)
        return;
    for (uint32_t i = 0; i < TURN && io_uring_peek_cqe(io->uring, &cqe) == 0; i++) {
        const uint64_t data = io_uring_cqe_get_data64(cqe);
        const int result = cqe->res;
        io_uring_cqe_seen(io->uring, cqe);
        if (data == BELL) {
            clear_bell(io->event_fd);
            queue_bell(io);
        } else {
            part_done(io, data, result);
        }
    }
}

/* NULL: the system refuses it. */
static struct io_uring *open_uring(const struct io *io)
{
    struct io_uring *ring = calloc(1, sizeof(*ring));
    struct io_uring_params params = {.flags = IORING_SETUP_CLAMP};
    if (ring && io_uring_queue_init_params(io->n_buffers * PARTS + 1, ring, &params) < 0) {
        free(ring);
        return NULL;
    }
    if (ring && !(params.features & IORING_FEAT_EXT_ARG)) { /* before 5.11 */
        io_uring_queue_exit(ring);
        free(ring);
        return NULL;
    }
    return ring;
}

/* ---- the thread -------------------------------------------------------------------------------- */

static void begin(struct io *io, const struct io_job *job)
{
    const bool abandoned = atomic_load(&io->abandoned);
    if (job->kind == IO_LET_GO) {
        if (!abandoned) /* else nothing is written into its place either */
            files_let_go(io->files, &job->gone);
        return;
    }
    struct io_busy *b = &io->busy[job->buffer];
    *b = (struct io_busy){.job = *job, .since_ns = bell_now_ns()};
    b->status = abandoned ? -ECANCELED : prepare(io, b);
    if (b->status < 0) {
        complete(io, b);
    } else if (!io->uring) {
        do_plain(io, b);
    } else {
        io->n_busy++;
        for (uint32_t i = 0; i < b->n_parts; i++)
            queue_part(io, b, i);
    }
}

uint32_t io_work(struct io *io, uint32_t n)
{
    struct io_job job;
    uint32_t done = 0;
    for (; done < n && ring_get(&io->jobs, &job, sizeof(job)); done++)
        begin(io, &job);
    day_grant(io->day);
    return done;
}

static void plain_turn(struct io *io, int wait_ms)
{
    struct pollfd bell = {.fd = io->event_fd, .events = POLLIN};
    if (poll(&bell, 1, wait_ms) > 0)
        clear_bell(io->event_fd);
}

static void *io_thread(void *arg)
{
    struct io *io = arg;
    io->uring = io->plain ? NULL : open_uring(io);
    if (io->uring)
        queue_bell(io);
    for (;;) {
        const bool stop = atomic_load(&io->stop); /* before the last look at the jobs */
        const uint32_t did = io_work(io, IO_JOBS);
        if (stop && did == 0 && io->n_busy == 0)
            break;
        const int wait_ms = stop && io->n_busy == 0           ? 0
                            : atomic_load(&io->day->short_of) ? LOOK_MS
                                                              : -1;
        if (io->uring)
            uring_turn(io, wait_ms);
        else
            plain_turn(io, wait_ms);
    }
    if (io->uring) {
        io_uring_queue_exit(io->uring);
        free(io->uring);
    }
    return NULL;
}

/* ---- open and close ---------------------------------------------------------------------------- */

static int open_buffers(struct io *io, size_t payload_bytes)
{
    io->stride = (payload_bytes + STORE_FILE_BLOCK - 1) / STORE_FILE_BLOCK * STORE_FILE_BLOCK;
    size_t n = IO_BUFFER_BYTES / io->stride;
    n = n < IO_LEAST_BUFFERS ? IO_LEAST_BUFFERS : n > IO_BUFFERS ? IO_BUFFERS : n;
    io->payloads = mmap(NULL, n * io->stride, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (io->payloads == MAP_FAILED) {
        io->payloads = NULL;
        return -ENOMEM;
    }
    io->n_buffers = (uint32_t)n;
    io->into = calloc(n, sizeof(*io->into));
    io->entries = calloc(n, sizeof(*io->entries));
    io->busy = calloc(n, sizeof(*io->busy));
    return io->into && io->entries && io->busy ? 0 : -ENOMEM;
}

int io_open(struct io *io, struct files *files, struct day *day, size_t payload_bytes, bool plain,
            bool by_hand)
{
    io->files = files;
    io->day = day;
    io->plain = plain;
    io->by_hand = by_hand;
    io->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    io->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = io->event_fd < 0 || io->done_fd < 0 ? -errno : open_buffers(io, payload_bytes);
    if (rc == 0)
        rc = ring_open(&io->jobs, IO_JOBS);
    if (rc == 0)
        rc = ring_open(&io->done, io->n_buffers);
    if (rc == 0 && !by_hand)
        rc = -pthread_create(&io->thread, NULL, io_thread, io);
    io->runs = rc == 0 && !by_hand;
    return rc;
}

void io_close(struct io *io)
{
    if (io->runs) {
        atomic_store(&io->stop, true);
        ring_bell(io->event_fd);
        pthread_join(io->thread, NULL);
    } else if (io->by_hand && io->jobs.cells && io->done.cells) {
        io_work(io, UINT32_MAX);
    }
    if (io->payloads)
        munmap(io->payloads, io->n_buffers * io->stride);
    free(io->into);
    free(io->entries);
    free(io->busy);
    free(io->jobs.cells);
    free(io->done.cells);
    if (io->event_fd >= 0)
        close(io->event_fd);
    if (io->done_fd >= 0)
        close(io->done_fd);
}
