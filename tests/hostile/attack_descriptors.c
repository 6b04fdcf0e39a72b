/* attack_descriptors: descriptors of every kind sent to the daemon, and what can be done to those
 * that it hands out. */
#include "tests/hostile/attack.h"

#include "ipc/bell.h"
#include "tests/e2e/raw_client.h"
#include "tests/random.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINGER_S = 30, HOLD_US = 50000, DUPS = 20000, RINGS = 100, WAITS = 50 };

/* ---- passed to the daemon ---------------------------------------------------------------------- */

/* A TCP socket whose close() waits: data that its peer does not take, and SO_LINGER. Returns it, and
 * the peer, whose close ends the wait. */
static int lingering_socket(int *ret_peer)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
    socklen_t bytes = sizeof(at);
    static const char zeroes[65536];
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = -1;

    *ret_peer = -1;
    if (bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(listener, 1) == 0 &&
        getsockname(listener, (struct sockaddr *)&at, &bytes) == 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
            *ret_peer = accept(listener, NULL, NULL);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
        while (send(fd, zeroes, sizeof(zeroes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
            ;
    }
    close(listener);
    return fd;
}

enum { KINDS = 8 };

static int descriptor_of(uint32_t kind, const struct attack_state *a, int *ret_other)
{
    int pair[2] = {-1, -1};

    *ret_other = -1;
    switch (kind) {
    case 0:
        return lingering_socket(ret_other);
    case 1:
        return eventfd(0, EFD_CLOEXEC);
    case 2:
        return memfd_create("hostile", MFD_CLOEXEC);
    case 3:
        return epoll_create1(EPOLL_CLOEXEC);
    case 4:
        return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case 5:
        return hello_connect(a->socket, -1, NULL, 0); /* another connection to the daemon itself */
    case 6:
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
            return -1;
        *ret_other = pair[0];
        return pair[1];
    default:
        if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
            return -1;
        *ret_other = pair[0];
        return pair[1];
    }
}

int attack_send_fds(int socket_fd, const void *message, size_t bytes, int fd, uint32_t n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(ATTACK_PASSED_MAX * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n * sizeof(int));
    for (uint32_t i = 0; i < n; i++)
        memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof(int));
    return (int)sendmsg(socket_fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* With a HELLO, with a question for the status, with an empty message, through the notify socket that
 * the daemon never reads, or queued in a socket that is closed unread. */
void attack_passed(struct attack_state *a)
{
    static const uint32_t counts[] = {
        1, 2, HELLO_FDS, HELLO_FDS + 1, 2 * HELLO_FDS + 1, ATTACK_PASSED_MAX};
    uint32_t n = counts[random_below(&a->random, 6)], way = random_below(&a->random, 4);
    uint32_t kind = random_below(&a->random, KINDS);
    struct raw_client raw;
    struct hello hello;
    int other, fd = descriptor_of(kind, a, &other), to = -1, sent;

    hello_prep_hello(&hello, 1, HELLO_NOTIFY, NULL);
    bool attached = way == 3 && raw_open_notify(&raw, a->socket, 1) == 0;
    if (attached) {
        sent = attack_send_fds(raw.fds[HELLO_FD_NOTIFY], "x", 1, fd, n);
    } else {
        to = hello_connect(a->socket, -1, NULL, 0);
        if (way == 1)
            hello.head = (struct hello_head){.magic = HELLO_MAGIC,
                                             .version = IPC_VERSION,
                                             .kind = HELLO_STATUS_ASK,
                                             .bytes = sizeof(hello.head)};
        sent = attack_send_fds(to, &hello, way == 2 ? 0 : hello.head.bytes, fd, n);
        attack_send_fds(to, &hello, hello.head.bytes, fd, n); /* after it in the queue */
    }
    if (sent < 0) /* then our close() is the last one */
        close(other);
    close(fd);
    if (attached)
        raw_close(&raw);
    if (sent >= 0 && kind == 0)
        attack_sleep_us(HOLD_US);
    close(to);
    if (sent >= 0)
        close(other);
    atomic_fetch_add(&a->done, n);
}

/* ---- handed out by the daemon ------------------------------------------------------------------ */

/* File flags are shared with the daemon: blocking, asynchronous with its process as the owner; and
 * values that make the next write wait. */
void attack_bells(struct attack_state *a)
{
    static const uint64_t most = UINT64_MAX - 1;
    struct raw_client raw;
    uint64_t value;

    /* Refused while the daemon empties the last one's socket. */
    for (int i = 0; raw_open_notify(&raw, a->socket, 1) < 0; i++) {
        if (i == RINGS)
            return;
        attack_sleep_us(2000);
    }
    int bell = raw.fds[HELLO_FD_BELL], notify = raw.fds[HELLO_FD_NOTIFY];
    pid_t daemon = (pid_t)raw.daemon_pid;
    for (int i = 0; i < RINGS; i++) {
        int fd = random_below(&a->random, 2) ? bell : notify;
        switch (random_below(&a->random, 6)) {
        case 0:
            fcntl(fd, F_SETFL, random_below(&a->random, 2) ? O_NONBLOCK : 0);
            break;
        case 1:
            fcntl(fd, F_SETOWN, daemon);
            fcntl(fd, F_SETSIG, 9);
            fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK);
            break;
        case 2:
            fcntl(bell, F_SETFL, O_NONBLOCK);
            if (write(bell, &most, sizeof(most)) < 0)
                break;
            break;
        case 3:
            fcntl(bell, F_SETFL, O_NONBLOCK);
            if (read(bell, &value, sizeof(value)) < 0)
                break;
            break;
        case 4:
            while (send(notify, &most, sizeof(most), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
                ;
            break;
        default:
            fcntl(bell, F_SETFL, O_NONBLOCK);
            raw_ring(&raw);
        }
        atomic_fetch_add(&a->done, 1);
    }
    raw_close(&raw);
}

/* Copies of a descriptor, each of them watched: a wake of it goes through all of them. */
struct watchers {
    int epoll, n, copies[DUPS];
};

static void watch(struct watchers *w, int fd)
{
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (w->n = 0; w->n < DUPS; w->n++) {
        struct epoll_event event = {.events = EPOLLIN};
        if ((w->copies[w->n] = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
            break;
        epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->copies[w->n], &event);
    }
}

static void unwatch(struct watchers *w)
{
    while (w->n > 0)
        close(w->copies[--w->n]);
    close(w->epoll);
}

static struct watchers dups; /* too large for a stack */

/* Every wake of this client has to go through thousands of watchers of its notify socket. */
void attack_dups(struct attack_state *a)
{
    struct raw_client raw;
    struct ring_writer submit;

    if (raw_open_notify(&raw, a->socket, 1) < 0)
        return;
    watch(&dups, raw.fds[HELLO_FD_NOTIFY]);
    segment_submit_writer(&raw.segment, &submit);
    for (uint32_t i = 1; i <= WAITS; i++) { /* waits, and is woken by an answer to a cell */
        struct submit_cell cell = {.opcode = SUBMIT_NOP, .cookie = i};
        atomic_store(&segment_up_head(&raw.segment)->waiting, i << 1 | BELL_NOTIFY);
        if (ring_space(&submit) > 0)
            ring_push(&submit, &cell);
        raw_ring(&raw);
        attack_sleep_us(1000);
    }
    unwatch(&dups);
    raw_close(&raw);
    atomic_fetch_add(&a->done, DUPS);
}

/* What the daemon writes must not be writable here, by whatever way it is opened. */
void attack_seals(struct attack_state *a)
{
    static const enum hello_fd read_only[] = {HELLO_FD_CTL, HELLO_FD_VOCAB, HELLO_FD_DOWN};
    struct raw_client raw;
    char path[64];

    if (raw_open(&raw, a->socket, 1) < 0)
        return;
    for (int i = 0; i < 3; i++) {
        int fd = raw.fds[read_only[i]];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int again = open(path, O_RDWR | O_CLOEXEC);
        const int ways[] = {fd, again};
        for (int k = 0; k < 2; k++) {
            void *map = mmap(NULL, IPC_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ways[k], 0);
            attack_forbidden(map != MAP_FAILED, "a writable mapping of what the daemon writes");
            attack_forbidden(pwrite(ways[k], "x", 1, 0) == 1, "a write to what the daemon writes");
            attack_forbidden(ftruncate(ways[k], 0) == 0, "truncating what the daemon writes");
            attack_forbidden(
                fallocate(ways[k], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, IPC_PAGE) == 0,
                "a hole in what the daemon writes");
        }
        close(again);
        attack_forbidden(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0, "another seal");
    }
    attack_forbidden(mprotect(raw.segment.down, IPC_PAGE, PROT_READ | PROT_WRITE) == 0,
                     "making the daemon's memory writable");
    attack_forbidden(ftruncate(raw.fds[HELLO_FD_UP], 0) == 0, "truncating `up`");
    attack_forbidden(ftruncate(raw.fds[HELLO_FD_UP], 1 << 30) == 0, "growing `up`");
    attack_forbidden(fcntl(raw.fds[HELLO_FD_UP], F_ADD_SEALS, F_SEAL_WRITE) == 0,
                     "another seal of `up`");
    raw_close(&raw);
    atomic_fetch_add(&a->done, 1);
}
