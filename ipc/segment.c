/* segment.c: memfds and their mappings; the SIGBUS guard is in segment_guard.c. */
#include "ipc/segment.h"

#include "ipc/counters.h"
#include "ipc/fail.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Missing from the headers of some systems that we build on. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define SEALS_SIZE (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define SEALS_READ_ONLY (SEALS_SIZE | F_SEAL_FUTURE_WRITE)
#define SEALS_CONSTANT (SEALS_SIZE | F_SEAL_WRITE) /* nobody has a writable mapping either */

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static int cells_valid(uint32_t cells, uint32_t least)
{
    return cells >= least && cells <= LIMIT_CELLS_MAX && (cells & (cells - 1)) == 0;
}

int segment_plan(const struct ipc_limits *l, uint32_t shift, struct segment_plan *p, char *err,
                 size_t err_bytes)
{
    if (l->slots < 1 || l->slots > LIMIT_SLOTS_MAX)
        return ipc_fail(err, err_bytes, -EINVAL, "%u slots are outside 1..%u", l->slots,
                        LIMIT_SLOTS_MAX);
    if (l->context < 1 || l->context > LIMIT_CONTEXT_MAX)
        return ipc_fail(err, err_bytes, -EINVAL, "a context of %u is outside 1..%u", l->context,
                        LIMIT_CONTEXT_MAX);
    if (!cells_valid(l->submit_cells, LIMIT_SUBMIT_CELLS_MIN))
        return ipc_fail(err, err_bytes, -EINVAL, "%u submit cells: not a power of two in %u..%u",
                        l->submit_cells, LIMIT_SUBMIT_CELLS_MIN, LIMIT_CELLS_MAX);
    if (!cells_valid(l->event_cells, LIMIT_EVENT_CELLS_MIN))
        return ipc_fail(err, err_bytes, -EINVAL, "%u event cells: not a power of two in %u..%u",
                        l->event_cells, LIMIT_EVENT_CELLS_MIN, LIMIT_CELLS_MAX);
    if (l->params_bytes < LIMIT_PARAMS_MIN || l->params_bytes > LIMIT_PARAMS_MAX ||
        l->params_bytes % IPC_LINE != 0)
        return ipc_fail(err, err_bytes, -EINVAL,
                        "%u parameter bytes: not a multiple of %u in %u..%u", l->params_bytes,
                        IPC_LINE, LIMIT_PARAMS_MIN, LIMIT_PARAMS_MAX);

    if (shift % IPC_STRIDE != 0 || shift >= IPC_PAGE)
        return ipc_fail(err, err_bytes, -EINVAL, "a shift of %u: not a multiple of %u below %u",
                        shift, IPC_STRIDE, IPC_PAGE);

    p->up_head = shift;
    p->up_slots = p->up_head + sizeof(struct up_head);
    p->up_submit = p->up_slots + (uint64_t)l->slots * sizeof(struct up_slot);
    p->up_params = p->up_submit + (uint64_t)l->submit_cells * IPC_LINE;
    p->up_arenas = round_up(p->up_params + (uint64_t)l->slots * l->params_bytes, IPC_PAGE);
    p->arena_bytes = round_up((uint64_t)l->context * sizeof(uint32_t), IPC_PAGE);
    p->up_bytes = p->up_arenas + l->slots * p->arena_bytes;
    p->down_head = IPC_STRIDE + shift;
    p->down_slots = p->down_head + sizeof(struct down_head);
    p->down_events = p->down_slots + (uint64_t)l->slots * sizeof(struct down_slot);
    p->down_bytes =
        round_up(p->down_events + (uint64_t)l->slots * l->event_cells * IPC_LINE, IPC_PAGE);
    return 0;
}

/* ---- daemon ---------------------------------------------------------------------------------- */

/* Always negative: callers tell success by the sign. */
static int last_error(void)
{
    int e = errno;
    return e > 0 ? -e : -EIO;
}

/* Returns a memfd of `bytes` zeroes, not sealed yet, or -errno. */
static int memfd_open(const char *name, uint64_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return last_error();
    if (ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    int rc = last_error();
    close(fd);
    return rc;
}

/* Makes a memfd, maps it here with `prot`, then seals it. On failure nothing is left. */
static int memfd_share(const char *name, uint64_t bytes, int prot, int seals, uint8_t **ret_base)
{
    int fd = memfd_open(name, bytes);
    int rc;
    if (fd < 0)
        return fd;
    void *base = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        rc = last_error();
        goto out_close;
    }
    if (fcntl(fd, F_ADD_SEALS, seals) < 0) {
        rc = last_error();
        goto out_unmap;
    }
    *ret_base = base;
    return fd;

out_unmap:
    munmap(base, bytes);
out_close:
    close(fd);
    return rc;
}

/* Cycles through 32 values. */
static uint32_t next_shift(void)
{
    static _Atomic uint32_t opened;
    return atomic_fetch_add(&opened, 1) * IPC_STRIDE % IPC_PAGE;
}

int segment_open(struct segment *s, const struct ipc_limits *limits, char *err, size_t err_bytes)
{
    uint32_t shift = next_shift();
    struct segment_plan plan;
    uint8_t *up = NULL, *down = NULL;
    int up_fd, down_fd;
    int rc = segment_plan(limits, shift, &plan, err, err_bytes);
    if (rc < 0)
        return rc;
    up_fd = memfd_share("hearth-up", plan.up_bytes, PROT_READ, SEALS_SIZE, &up);
    if (up_fd < 0)
        return ipc_fail(err, err_bytes, up_fd, "no memory for a client's segment: %s",
                        strerror(-up_fd));
    down_fd =
        memfd_share("hearth-down", plan.down_bytes, PROT_READ | PROT_WRITE, SEALS_READ_ONLY, &down);
    if (down_fd < 0) {
        rc = ipc_fail(err, err_bytes, down_fd, "no memory for a client's events: %s",
                      strerror(-down_fd));
        goto out_up;
    }
    *s = (struct segment){.limits = *limits,
                          .plan = plan,
                          .up = up,
                          .down = down,
                          .up_fd = up_fd,
                          .down_fd = down_fd};
    rc = segment_guard_add(up, plan.up_bytes, &s->broken);
    if (rc == 0)
        rc = segment_guard_add(down, plan.down_bytes, &s->broken);
    if (rc < 0) {
        segment_close(s);
        return ipc_fail(err, err_bytes, rc, "too many clients for the memory guard");
    }
    *segment_down_about(s) = (struct down_about){
        .magic = DOWN_MAGIC, .version = IPC_VERSION, .limits = *limits, .shift = shift};
    return 0;

out_up:
    munmap(up, plan.up_bytes);
    close(up_fd);
    return rc;
}

int segment_ctl_open(struct ctl **ret_ctl, char *err, size_t err_bytes)
{
    uint8_t *base = NULL;
    int fd = memfd_share("hearth-ctl", sizeof(struct ctl), PROT_READ | PROT_WRITE, SEALS_READ_ONLY,
                         &base);
    struct timespec now;
    if (fd < 0)
        return ipc_fail(err, err_bytes, fd, "no memory for the control page: %s", strerror(-fd));
    clock_gettime(CLOCK_REALTIME, &now);
    assert(base);
    struct ctl *ctl = (struct ctl *)(void *)base;
    ctl->magic = CTL_MAGIC;
    ctl->version = IPC_VERSION;
    ctl->engine_counters = COUNTERS_ENGINE_N;
    ctl->control_counters = COUNTERS_CONTROL_N;
    ctl->start_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    ctl->pid = (uint32_t)getpid();
    *ret_ctl = ctl;
    return fd;
}

void segment_ctl_close(struct ctl *ctl, int fd)
{
    munmap(ctl, sizeof(*ctl));
    close(fd);
}

int segment_seal(const char *name, const void *bytes, size_t size, char *err, size_t err_bytes)
{
    int fd = memfd_open(name, size);
    size_t done = 0;
    while (fd >= 0 && done < size) {
        ssize_t n = pwrite(fd, (const uint8_t *)bytes + done, size - done, (off_t)done);
        if (n < 0) {
            n = -errno;
            close(fd);
            fd = (int)n;
        } else {
            done += (size_t)n;
        }
    }
    if (fd >= 0 && fcntl(fd, F_ADD_SEALS, SEALS_CONSTANT) < 0) {
        int rc = -errno;
        close(fd);
        fd = rc;
    }
    if (fd < 0)
        return ipc_fail(err, err_bytes, fd, "no memory to share %zu bytes (%s): %s", size, name,
                        strerror(-fd));
    return fd;
}

/* Race detectors know atomics but not generations: in such builds the copies that G1 guards consist
 * of relaxed loads and stores. */
#if defined(__SANITIZE_THREAD__)
#define COPY_ATOMIC 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COPY_ATOMIC 1
#endif
#endif

static void copy_words(void *to, const void *from, size_t bytes)
{
#ifdef COPY_ATOMIC
    _Atomic uint32_t *t = to;
    const _Atomic uint32_t *f = from;
    for (size_t i = 0; i < bytes / 4; i++)
        atomic_store_explicit(&t[i], atomic_load_explicit(&f[i], memory_order_relaxed),
                              memory_order_relaxed);
#else
    ring_copy(to, from, bytes);
#endif
}

int segment_copy_in(const struct segment *s, void *to, const void *from, size_t bytes)
{
    assert((const uint8_t *)from >= s->up &&
           (const uint8_t *)from + bytes <= s->up + s->plan.up_bytes && bytes % 4 == 0);
    /* Read through the file, which leaves a hole a hole: a load would make a page of it, charged to
     * this process for as long as the client keeps the file. */
    ssize_t n = pread(s->up_fd, to, bytes, (const uint8_t *)from - s->up);
    return n == (ssize_t)bytes && !segment_broken(s) ? 0 : -EFAULT;
}

int segment_is_touched(const struct segment *s)
{
    struct stat st;
    return fstat(s->down_fd, &st) == 0 && (uint64_t)st.st_blocks * 512 >= s->plan.down_bytes;
}

/* ---- client ---------------------------------------------------------------------------------- */

/* Checks that the daemon passed what it should have. Without the seals on size, a later truncation
 * would kill us by SIGBUS. */
static int check_fd(int fd, const char *what, int seals, uint64_t bytes, char *err,
                    size_t err_bytes)
{
    int have = fcntl(fd, F_GET_SEALS);
    struct stat st;
    if (have < 0 || fstat(fd, &st) < 0)
        return ipc_fail(err, err_bytes, -EPROTO, "the daemon's %s is not a sealable memfd", what);
    if ((have & seals) != seals)
        return ipc_fail(err, err_bytes, -EPROTO, "the daemon's %s lacks seals: 0x%x of 0x%x", what,
                        have, seals);
    if ((uint64_t)st.st_size != bytes)
        return ipc_fail(err, err_bytes, -EPROTO, "the daemon's %s has %llu bytes, expected %llu",
                        what, (unsigned long long)st.st_size, (unsigned long long)bytes);
    return 0;
}

static int map_fd(int fd, uint64_t bytes, int prot, int flags, uint8_t **ret_base)
{
    void *base = mmap(NULL, bytes, prot, flags, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    /* A forked child shares neither our positions nor our locks: it gets no mapping at all rather
     * than a corrupted ring. */
    madvise(base, bytes, MADV_DONTFORK);
    *ret_base = base;
    return 0;
}

/* The daemon chooses the shift and stores it in the segment itself, whose size depends on it: so
 * the first page is read before the rest is mapped. */
static int read_shift(int down_fd, const struct ipc_limits *limits, uint32_t *ret_shift)
{
    struct down_about about;
    if (pread(down_fd, &about, sizeof(about), 0) != (ssize_t)sizeof(about) ||
        about.magic != DOWN_MAGIC || about.version != IPC_VERSION ||
        memcmp(&about.limits, limits, sizeof(*limits)) != 0)
        return -EPROTO;
    *ret_shift = about.shift;
    return 0;
}

int segment_map(struct segment *s, int up_fd, int down_fd, const struct ipc_limits *limits,
                char *err, size_t err_bytes)
{
    struct segment_plan plan;
    uint8_t *up = NULL, *down = NULL;
    uint32_t shift;
    int rc = read_shift(down_fd, limits, &shift);
    if (rc < 0)
        return ipc_fail(err, err_bytes, rc,
                        "the limits in the down segment differ from those of the handshake");
    rc = segment_plan(limits, shift, &plan, err, err_bytes);
    if (rc == 0)
        rc = check_fd(up_fd, "up segment", SEALS_SIZE, plan.up_bytes, err, err_bytes);
    if (rc == 0)
        rc = check_fd(down_fd, "down segment", SEALS_SIZE, plan.down_bytes, err, err_bytes);
    if (rc < 0)
        return rc;
    rc = map_fd(up_fd, plan.up_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, &up);
    if (rc < 0)
        return ipc_fail(err, err_bytes, rc, "cannot map the up segment: %s", strerror(-rc));
    /* All of down, and of up what is polled, is touched first on this side: pages are charged to
     * the one that does, for as long as they exist, and a client may keep them after it hung up. */
    rc = map_fd(down_fd, plan.down_bytes, PROT_READ, MAP_SHARED, &down);
    if (rc == 0 && madvise(down, plan.down_bytes, MADV_POPULATE_READ) < 0) {
        rc = -errno;
        munmap(down, plan.down_bytes);
    }
    if (rc < 0) {
        munmap(up, plan.up_bytes);
        return ipc_fail(err, err_bytes, rc, "cannot map the down segment: %s", strerror(-rc));
    }
    *s = (struct segment){
        .limits = *limits, .plan = plan, .up = up, .down = down, .up_fd = -1, .down_fd = -1};
    madvise(s->up, round_up(plan.up_params, IPC_PAGE), MADV_POPULATE_WRITE);
    return 0;
}

/* What is mapped to be read, with these seals. */
static int map_read(int fd, uint64_t bytes, int seals, int flags, const void **ret_base, char *err,
                    size_t err_bytes)
{
    uint8_t *base = NULL;
    int rc = check_fd(fd, "shared table", seals, bytes, err, err_bytes);
    if (rc < 0)
        return rc;
    rc = map_fd(fd, bytes, PROT_READ, flags, &base);
    if (rc < 0)
        return ipc_fail(err, err_bytes, rc, "cannot map a shared table: %s", strerror(-rc));
    *ret_base = base;
    return 0;
}

int segment_map_sealed(int fd, uint64_t bytes, const void **ret_base, char *err, size_t err_bytes)
{
    return map_read(fd, bytes, SEALS_SIZE, MAP_SHARED, ret_base, err, err_bytes);
}

/* MAP_PRIVATE: before Linux 6.7 there is no shared mapping of what is sealed so, not even to read
 * it. The pages are the same ones, as nobody writes. */
int segment_map_constant(int fd, uint64_t bytes, const void **ret_base, char *err, size_t err_bytes)
{
    return map_read(fd, bytes, SEALS_CONSTANT, MAP_PRIVATE, ret_base, err, err_bytes);
}

void segment_copy_out(void *to, const void *from, size_t bytes)
{
    assert(bytes % 4 == 0);
    copy_words(to, from, bytes);
}

/* ---- both ------------------------------------------------------------------------------------ */

void segment_close(struct segment *s)
{
    segment_guard_remove(s->up);
    segment_guard_remove(s->down);
    munmap(s->up, s->plan.up_bytes);
    munmap(s->down, s->plan.down_bytes);
    if (s->up_fd >= 0)
        close(s->up_fd);
    if (s->down_fd >= 0)
        close(s->down_fd);
    s->up_fd = s->down_fd = -1;
    s->up = s->down = NULL;
}

static struct ring_cell *submit_cells(const struct segment *s)
{
    return (struct ring_cell *)(void *)(s->up + s->plan.up_submit);
}

static struct ring_cell *slot_event_cells(const struct segment *s, uint32_t slot)
{
    return (struct ring_cell *)(void *)(s->down + s->plan.down_events) +
           (uint64_t)slot * s->limits.event_cells;
}

void segment_submit_reader(const struct segment *s, struct ring_reader *ret)
{
    ring_reader_init(ret, submit_cells(s), s->limits.submit_cells,
                     &segment_down_head(s)->submitted);
}

void segment_submit_writer(const struct segment *s, struct ring_writer *ret)
{
    ring_writer_init(ret, submit_cells(s), s->limits.submit_cells,
                     &segment_down_head(s)->submitted);
}

void segment_event_writer(const struct segment *s, uint32_t slot, struct ring_writer *ret)
{
    ring_writer_init(ret, slot_event_cells(s, slot), s->limits.event_cells,
                     &segment_up_slot(s, slot)->events);
}

void segment_event_reader(const struct segment *s, uint32_t slot, struct ring_reader *ret)
{
    ring_reader_init(ret, slot_event_cells(s, slot), s->limits.event_cells,
                     &segment_up_slot(s, slot)->events);
}
