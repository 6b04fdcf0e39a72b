/* connect: a handle's beginning and end: the handshake, what it maps, and letting go of it. */
#include "client/lib/handle.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static struct hearth *handle_open(void)
{
    struct hearth *h = calloc(1, sizeof(*h));
    if (!h)
        return NULL;
    h->socket_fd = h->bell_fd = h->notify_fd = h->poll_fd = h->timer_fd = h->resume.fd = -1;
    token_list_init(&h->scratch);
    void *page = mmap(NULL, IPC_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        free(h);
        return NULL;
    }
    madvise(page, IPC_PAGE, MADV_WIPEONFORK);
    h->not_forked = page;
    *h->not_forked = 1;
    cpu_set_t cpus;
    h->processors = sched_getaffinity(0, sizeof(cpus), &cpus) < 0 ? 1 : (uint32_t)CPU_COUNT(&cpus);
    return h;
}

uid_t handle_peer(int socket_fd)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof(peer);
    (void)getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
    return peer.uid;
}

/* The common failures get a line of their own. */
static int connect_socket(struct hearth *h, int timeout_ms, char *err, size_t err_bytes)
{
    int fd = h->never_wait ? hello_connect_now(h->path, err, err_bytes)
                           : hello_connect(h->path, timeout_ms, err, err_bytes);
    if (fd == -ENOENT || fd == -ECONNREFUSED || fd == -ENOTDIR)
        snprintf(err, err_bytes, "no daemon at %s: start one with hearthd --model FILE", h->path);
    else if (fd == -EACCES || fd == -EPERM)
        snprintf(err, err_bytes,
                 "%s: permission denied: have the owner of hearthd add you, or start your own",
                 h->path);
    if (fd < 0)
        return fd;
    h->socket_fd = fd;
    h->daemon_uid = handle_peer(fd);
    return 0;
}

/* Maps what WELCOME brought. Takes the bell and the notify descriptor out of fds; the caller closes
 * the rest. */
static int map_shared(struct hearth *h, int *fds, char *err, size_t err_bytes)
{
    const struct hello_welcome *w = &h->welcome;
    const void *ctl = NULL;
    int rc = 0;
    if (w->limits.slots)
        rc = segment_map(&h->segment, fds[HELLO_FD_UP], fds[HELLO_FD_DOWN], &w->limits, err,
                         err_bytes);
    if (rc)
        return rc;
    rc = segment_map_sealed(fds[HELLO_FD_CTL], sizeof(struct ctl), &ctl, err, err_bytes);
    if (rc)
        return rc;
    h->ctl = ctl;
    rc = segment_map_constant(fds[HELLO_FD_VOCAB], w->vocab_bytes, &h->vocab_block, err, err_bytes);
    if (!rc)
        rc = vocab_open(h->vocab_block, w->vocab_bytes, &h->vocab, err, err_bytes);
    if (rc)
        return rc;
    if (h->vocab.n_tokens > w->n_vocab) { /* fewer are fine: the model pads its matrix */
        snprintf(err, err_bytes,
                 "the daemon's vocabulary has %u tokens, its model %u: update hearthd",
                 h->vocab.n_tokens, w->n_vocab);
        return -EPROTO;
    }
    h->bell_fd = fds[HELLO_FD_BELL];
    h->notify_fd = fds[HELLO_FD_NOTIFY];
    fds[HELLO_FD_BELL] = fds[HELLO_FD_NOTIFY] = -1;
    return 0;
}

static int open_slots(struct hearth *h, char *err, size_t err_bytes)
{
    uint32_t n = h->welcome.limits.slots;
    h->slots = calloc(n ? n : 1, sizeof(*h->slots));
    if (!h->slots) {
        snprintf(err, err_bytes, "out of memory: free some and try again");
        return -ENOMEM;
    }
    h->n_slots = n;
    for (uint32_t i = 0; i < n; i++) {
        segment_event_reader(&h->segment, i, &h->slots[i].events);
        token_list_init(&h->slots[i].ids);
    }
    if (n) {
        segment_submit_writer(&h->segment, &h->submit);
        bell_sleeper_init(&h->sleeper, &segment_down_head(&h->segment)->wake,
                          &segment_up_head(&h->segment)->waiting, h->socket_fd, h->notify_fd);
    }
    handle_hex(h->welcome.fingerprint, h->fingerprint);
    return 0;
}

static int send_hello(struct hearth *h, char *err, size_t err_bytes)
{
    int rc = hello_send(h->socket_fd, &h->hello, sizeof(h->hello), NULL, 0);
    if (rc)
        snprintf(err, err_bytes, "cannot send to the daemon at %s: %s", h->path, strerror(-rc));
    return rc;
}

static int shake_hands(struct hearth *h, const struct hearth_options *o, char *err,
                       size_t err_bytes)
{
    uint32_t flags = o->flags & HEARTH_POLLABLE ? HELLO_NOTIFY : 0;
    if (o->slots > LIMIT_SLOTS_MAX) {
        snprintf(err, err_bytes, "%u slots: ask for at most %u", o->slots, LIMIT_SLOTS_MAX);
        return -EINVAL;
    }
    if (hello_prep_hello(&h->hello, o->slots, flags, o->slot_name)) {
        snprintf(err, err_bytes,
                 "slot name '%s': give 1 to %u printable ASCII characters without blanks",
                 o->slot_name, HELLO_NAME_BYTES - 1);
        return -EINVAL;
    }
    return send_hello(h, err, err_bytes);
}

/* Waits for the daemon's answer and takes what it brings. -ETIMEDOUT: it has not come yet. */
static int take_answer(struct hearth *h, int timeout_ms, char *err, size_t err_bytes)
{
    int fds[HELLO_FDS] = {-1, -1, -1, -1, -1, -1};
    int rc = hello_recv_answer(h->socket_fd, &h->welcome, fds, timeout_ms, err, err_bytes);
    if (!rc)
        rc = map_shared(h, fds, err, err_bytes);
    for (int i = 0; i < HELLO_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc ? rc : open_slots(h, err, err_bytes);
}

/* The descriptor of hearth_fd(). Its number stays the same when another daemon takes over; until
 * the handshake is answered it becomes readable with the answer. */
static int open_poll_fd(struct hearth *h, char *err, size_t err_bytes)
{
    int fd = h->connecting ? h->socket_fd : h->notify_fd;
    if (fd < 0)
        return 0;
    h->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    int rc = h->poll_fd < 0 ? -errno : resume_watch(h, -1, fd);
    if (rc)
        snprintf(err, err_bytes, "no descriptor to poll: %s", strerror(-rc));
    return rc;
}

/* What is left of a timeout in ms; below 0 it has no end. */
static int time_left(int timeout_ms, uint64_t start_ns)
{
    uint64_t passed = (bell_now_ns() - start_ns) / 1000000u;
    if (timeout_ms < 0)
        return timeout_ms;
    return passed < (uint64_t)timeout_ms ? timeout_ms - (int)passed : 0;
}

/* After the answer -ESHUTDOWN: the daemon had accepted the connection when it was told to stop, and
 * its service manager keeps further connections for the daemon that follows. So this client
 * connects anew and is not refused. */
static int say_again(struct hearth *h, int timeout_ms, char *err, size_t err_bytes)
{
    if (h->poll_fd >= 0) /* to close it is not enough where a forked child has it open, too */
        (void)epoll_ctl(h->poll_fd, EPOLL_CTL_DEL, h->socket_fd, NULL);
    close(h->socket_fd);
    h->socket_fd = -1;
    int rc = connect_socket(h, timeout_ms, err, err_bytes);
    return rc ? rc : send_hello(h, err, err_bytes);
}

/* Says hello, and takes the answer unless that is for hearth_ready(). */
static int start(struct hearth *h, const struct hearth_options *o, char *err, size_t err_bytes)
{
    h->resume.ms = o->resume_ms > 0 ? o->resume_ms : 0;
    h->never_wait = (o->flags & HEARTH_NONBLOCK) != 0;
    int timeout_ms = o->connect_timeout_ms; /* of connecting and the answer together */
    uint64_t start_ns = bell_now_ns();
    int rc = connect_socket(h, timeout_ms, err, err_bytes);
    if (!rc)
        rc = shake_hands(h, o, err, err_bytes);
    while (!rc && !h->never_wait) {
        rc = take_answer(h, time_left(timeout_ms, start_ns), err, err_bytes);
        if (rc != -ESHUTDOWN || !time_left(timeout_ms, start_ns))
            break;
        rc = say_again(h, time_left(timeout_ms, start_ns), err, err_bytes);
    }
    h->connecting = h->never_wait;
    if (h->connecting && o->connect_timeout_ms >= 0)
        h->give_up_ns = bell_now_ns() + (uint64_t)o->connect_timeout_ms * 1000000u;
    if (rc || (h->connecting && !(o->flags & HEARTH_POLLABLE)))
        return rc;
    return open_poll_fd(h, err, err_bytes);
}

int hearth_connect(const char *path, const struct hearth_options *options, struct hearth **ret_h,
                   char *err, size_t err_bytes)
{
    char none[1];
    *ret_h = NULL;
    if (!err || !err_bytes) {
        err = none;
        err_bytes = sizeof(none);
    }
    struct hearth_options o;
    hearth_options_init(&o, sizeof(o));
    if (options && options->size < sizeof(options->size)) {
        snprintf(err, err_bytes, "prepare the options with hearth_options_init");
        return -EINVAL;
    }
    if (options) /* fields that the caller's header lacks keep their defaults */
        memcpy(&o, options, options->size < sizeof(o) ? options->size : sizeof(o));
    struct hearth *h = handle_open();
    if (!h) {
        snprintf(err, err_bytes, "out of memory: free some and try again");
        return -ENOMEM;
    }
    int rc = 0;
    if (!path)
        rc = hello_find_socket(HELLO_MACHINE_SOCKET, h->path, err, err_bytes);
    else if (strlen(path) < sizeof(h->path))
        memcpy(h->path, path, strlen(path) + 1);
    else {
        snprintf(err, err_bytes, "%s: too long for a socket: use a path below %zu bytes", path,
                 sizeof(h->path));
        rc = -ENAMETOOLONG;
    }
    if (!rc)
        rc = start(h, &o, err, err_bytes);
    if (rc) {
        hearth_close(h);
        return rc;
    }
    *ret_h = h;
    return 0;
}

int hearth_ready(struct hearth *h)
{
    int rc = handle_check_fork(h);
    if (rc || h->connecting <= 0)
        return rc ? rc : h->connecting < 0 ? h->connecting : 1;
    char err[sizeof(h->error)];
    rc = take_answer(h, 0, err, sizeof(err));
    if (rc == -ESHUTDOWN) {
        rc = say_again(h, 0, err, sizeof(err));
        if (!rc && h->poll_fd >= 0)
            rc = resume_watch(h, -1, h->socket_fd);
        if (!rc)
            rc = -ETIMEDOUT;
    }
    if (rc == -ETIMEDOUT && (!h->give_up_ns || bell_now_ns() < h->give_up_ns))
        return 0;
    if (rc == -ETIMEDOUT)
        snprintf(err, sizeof(err), "the daemon at %s did not answer in time: see hearth status",
                 h->path);
    if (!rc && h->poll_fd >= 0 && h->notify_fd >= 0)
        rc = resume_watch(h, h->socket_fd, h->notify_fd);
    h->connecting = rc;
    return rc ? handle_fail(h, rc, "%s", err) : 1;
}

static void slot_fini(struct client_slot *s)
{
    answer_fini(&s->answer);
    token_list_fini(&s->ids);
    free(s->stop_tokens);
    free(s->logprobs);
    free(s->tops);
    free(s->backlog);
}

void hearth_close(struct hearth *h)
{
    if (!h)
        return;
    /* In a forked child the shared mappings are not there, and others may be in their place. */
    if (*h->not_forked) {
        if (h->vocab_block)
            munmap((void *)h->vocab_block, h->welcome.vocab_bytes);
        if (h->ctl)
            munmap((void *)h->ctl, sizeof(*h->ctl));
        if (h->segment.up)
            segment_close(&h->segment);
    }
    /* A child that was forked has the socket, too, and would keep the slots. */
    if (*h->not_forked && h->socket_fd >= 0)
        (void)shutdown(h->socket_fd, SHUT_RDWR);
    if (*h->not_forked && h->resume.fd >= 0)
        (void)shutdown(h->resume.fd, SHUT_RDWR);
    const int fds[] = {h->socket_fd, h->bell_fd,  h->notify_fd,
                       h->poll_fd,   h->timer_fd, h->resume.fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (uint32_t i = 0; i < h->n_slots; i++)
        slot_fini(&h->slots[i]);
    free(h->slots);
    token_list_fini(&h->scratch);
    if (h->prompt_cache)
        h->prompt_cache_close(h->prompt_cache);
    munmap(h->not_forked, IPC_PAGE);
    free(h);
}
