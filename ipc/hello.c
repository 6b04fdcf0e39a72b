/* hello.c: checks of the messages, then the socket calls. */
#include "ipc/hello.h"

#include "ipc/bell.h"
#include "ipc/fail.h"

#include <poll.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- checks ---------------------------------------------------------------------------------- */

/* True for printable ASCII padded with zeroes, of which there is at least one. `least`: the lowest
 * byte allowed. */
static int text_valid(const char *text, size_t bytes, char least)
{
    size_t n = strnlen(text, bytes);
    if (n == bytes)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        if (i < n ? text[i] < least || text[i] > 0x7e : text[i] != 0)
            return 0;
    return 1;
}

int hello_kind(const void *message, size_t bytes)
{
    struct hello_head h;
    if (bytes < sizeof(h))
        return -EPROTO;
    memcpy(&h, message, sizeof(h));
    if (h.magic != HELLO_MAGIC || h.bytes != bytes || h.kind < HELLO_HELLO ||
        h.kind > HELLO_STATUS || (h.number != 0 && h.kind < HELLO_STATUS_ASK))
        return -EPROTO;
    return h.kind;
}

uint32_t hello_number(const void *message)
{
    struct hello_head h;
    memcpy(&h, message, sizeof(h));
    return h.number;
}

static int check_version(const struct hello_head *h, char *err, size_t err_bytes)
{
    if (h->version >= IPC_VERSION_OLDEST && h->version <= IPC_VERSION)
        return 0;
    return ipc_fail(err, err_bytes, -EPROTONOSUPPORT,
                    "protocol version %u is too %s: this side speaks %u to %u; "
                    "install the same version of hearth on both sides",
                    h->version, h->version > IPC_VERSION ? "new" : "old", IPC_VERSION_OLDEST,
                    IPC_VERSION);
}

/* The version is looked at before the size, which another version may have changed. */
static int check_head(const void *message, size_t bytes, int kind, size_t wanted, char *err,
                      size_t err_bytes)
{
    struct hello_head h;
    if (hello_kind(message, bytes) != kind)
        return ipc_fail(err, err_bytes, -EPROTO, "not a hearth handshake message");
    memcpy(&h, message, sizeof(h));
    int r = check_version(&h, err, err_bytes);
    if (r < 0)
        return r;
    if (bytes != wanted)
        return ipc_fail(err, err_bytes, -EPROTO, "a handshake message has %zu bytes, expected %zu",
                        bytes, wanted);
    return 0;
}

int hello_check_hello(const void *message, size_t bytes, struct hello *ret, char *err,
                      size_t err_bytes)
{
    int rc = check_head(message, bytes, HELLO_HELLO, sizeof(*ret), err, err_bytes);
    if (rc < 0)
        return rc;
    memcpy(ret, message, sizeof(*ret));
    if (ret->slots > LIMIT_SLOTS_MAX)
        return ipc_fail(err, err_bytes, -EINVAL, "the client wants %u slots, outside 0..%u",
                        ret->slots, LIMIT_SLOTS_MAX);
    if (ret->slots == 0 && (ret->name[0] != 0 || ret->flags != 0))
        return ipc_fail(err, err_bytes, -EINVAL,
                        "a client without slots cannot have a name or a notify socket");
    if ((ret->flags & ~(uint32_t)HELLO_FLAGS) != 0)
        return ipc_fail(err, err_bytes, -EINVAL, "unknown handshake flags 0x%x", ret->flags);
    if (ret->zeroes[0] != 0 || ret->zeroes[1] != 0)
        return ipc_fail(err, err_bytes, -EINVAL, "reserved bytes of the handshake are not zero");
    if (!text_valid(ret->name, sizeof(ret->name), 0x21))
        return ipc_fail(err, err_bytes, -EINVAL,
                        "a slot name must be 1 to %u printable ASCII characters without spaces",
                        HELLO_NAME_BYTES - 1);
    return 0;
}

int hello_check_welcome(const void *message, size_t bytes, struct hello_welcome *ret, char *err,
                        size_t err_bytes)
{
    int rc = check_head(message, bytes, HELLO_WELCOME, sizeof(*ret), err, err_bytes);
    if (rc < 0)
        return rc;
    memcpy(ret, message, sizeof(*ret));
    bool fds_fit = ret->limits.slots == 0 ? ret->n_fds == HELLO_FDS_SHARED
                                          : ret->n_fds == HELLO_FDS || ret->n_fds == HELLO_FDS - 1;
    if (!fds_fit || ret->n_vocab == 0 || ret->vocab_bytes == 0 ||
        !text_valid(ret->numerics, sizeof(ret->numerics), 0x20) ||
        !text_valid(ret->model, sizeof(ret->model), 0x20) ||
        !text_valid(ret->daemon, sizeof(ret->daemon), 0x20))
        return ipc_fail(err, err_bytes, -EPROTO, "the daemon's WELCOME message is malformed");
    return 0;
}

int hello_check_refuse(const void *message, size_t bytes, struct hello_refuse *ret)
{
    if (hello_kind(message, bytes) != HELLO_REFUSE || bytes != sizeof(*ret))
        return -EPROTO;
    memcpy(ret, message, sizeof(*ret));
    if (ret->code >= 0 || ret->code < -4095 || !text_valid(ret->line, sizeof(ret->line), 0x20))
        return -EPROTO;
    return 0;
}

/* ---- filling --------------------------------------------------------------------------------- */

static struct hello_head head_of(enum hello_kind kind, size_t bytes)
{
    return (struct hello_head){.magic = HELLO_MAGIC,
                               .version = IPC_VERSION,
                               .kind = (uint16_t)kind,
                               .bytes = (uint32_t)bytes};
}

int hello_prep_hello(struct hello *ret, uint32_t slots, uint32_t flags, const char *name)
{
    size_t n = name != NULL ? strlen(name) : 0;
    memset(ret, 0, sizeof(*ret));
    ret->head = head_of(HELLO_HELLO, sizeof(*ret));
    ret->slots = slots;
    ret->flags = flags;
    if (n >= sizeof(ret->name) || (name != NULL && n == 0))
        return -EINVAL;
    if (name != NULL)
        memcpy(ret->name, name, n);
    return text_valid(ret->name, sizeof(ret->name), 0x21) ? 0 : -EINVAL;
}

void hello_prep_welcome(struct hello_welcome *w)
{
    w->head = head_of(HELLO_WELCOME, sizeof(*w));
}

void hello_prep_refuse(struct hello_refuse *ret, int code, const char *line)
{
    memset(ret, 0, sizeof(*ret));
    ret->head = head_of(HELLO_REFUSE, sizeof(*ret));
    ret->code = code;
    for (size_t i = 0; i + 1 < sizeof(ret->line) && line[i] != 0; i++)
        ret->line[i] = line[i] >= 0x20 && line[i] <= 0x7e ? line[i] : '?';
}

/* ---- socket ---------------------------------------------------------------------------------- */

int hello_socket_path(char *ret_path, char *err, size_t err_bytes)
{
    const char *whole = getenv("HEARTH_SOCKET");
    const char *run = getenv("XDG_RUNTIME_DIR");
    int n;
    if (whole != NULL && whole[0] != 0)
        n = snprintf(ret_path, HELLO_PATH_BYTES, "%s", whole);
    else if (run != NULL && run[0] != 0)
        n = snprintf(ret_path, HELLO_PATH_BYTES, "%s/hearth/hearth.sock", run);
    else
        n = snprintf(ret_path, HELLO_PATH_BYTES, HELLO_MACHINE_SOCKET);
    if (n >= (int)HELLO_PATH_BYTES)
        return ipc_fail(err, err_bytes, -ENAMETOOLONG,
                        "the socket path has %d bytes, at most %u are allowed: set HEARTH_SOCKET "
                        "to a shorter one",
                        n, HELLO_PATH_BYTES - 1);
    return 0;
}

int hello_find_socket(const char *machine, char *ret_path, char *err, size_t err_bytes)
{
    const char *named = getenv("HEARTH_SOCKET");
    int rc = hello_socket_path(ret_path, err, err_bytes);
    if (rc == 0 && (named == NULL || named[0] == 0) && access(ret_path, F_OK) < 0 &&
        access(machine, F_OK) == 0)
        snprintf(ret_path, HELLO_PATH_BYTES, "%s", machine);
    return rc;
}

/* connect() of a socket whose backlog is full waits as long as SO_SNDTIMEO says. */
static void limit_connect(int fd, int timeout_ms)
{
    struct timeval t = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* timeout_ms: -1: without limit. */
static int connect_type(const char *path, int type, int timeout_ms, char *err, size_t err_bytes)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint64_t start = bell_now_ns();
    int fd, r, left = timeout_ms;
    if (strlen(path) >= sizeof(a.sun_path))
        return ipc_fail(err, err_bytes, -ENAMETOOLONG, "the socket path is too long: %s", path);
    memcpy(a.sun_path, path, strlen(path));
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | type, 0);
    if (fd < 0)
        return ipc_fail(err, err_bytes, -errno, "cannot create a socket: %s", strerror(errno));
    do {
        if (timeout_ms >= 0)
            limit_connect(fd, left > 0 ? left : 1); /* 0 would be no limit */
        r = connect(fd, (struct sockaddr *)&a, sizeof(a));
        left = timeout_ms - (int)((bell_now_ns() - start) / 1000000u);
    } while (r < 0 && errno == EINTR && (timeout_ms < 0 || left > 0));
    if (r == 0) {
        if (timeout_ms >= 0)
            limit_connect(fd, 0);
        return fd;
    }
    r = -errno;
    close(fd);
    if (timeout_ms >= 0 && (r == -EAGAIN || r == -EINTR))
        return ipc_fail(err, err_bytes, -ETIMEDOUT,
                        "the daemon at %s accepts no connection: see whether it runs", path);
    return ipc_fail(err, err_bytes, r, "no daemon at %s (%s): start hearthd, or set HEARTH_SOCKET",
                    path, strerror(-r));
}

int hello_connect(const char *path, int timeout_ms, char *err, size_t err_bytes)
{
    return connect_type(path, 0, timeout_ms, err, err_bytes);
}

int hello_connect_now(const char *path, char *err, size_t err_bytes)
{
    return connect_type(path, SOCK_NONBLOCK, -1, err, err_bytes);
}

int hello_send(int socket_fd, const void *message, size_t bytes, const int *fds, uint32_t n_fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(HELLO_FDS * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)message, .iov_len = bytes};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;
    assert(n_fds <= HELLO_FDS);
    if (n_fds > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    do
        n = sendmsg(socket_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

int hello_send_refuse(int socket_fd, int code, const char *line)
{
    struct hello_refuse m;
    hello_prep_refuse(&m, code, line);
    return hello_send(socket_fd, &m, sizeof(m), NULL, 0);
}

int hello_send_status(int socket_fd, uint32_t number, const char *text, size_t bytes)
{
    struct hello_head h = head_of(HELLO_STATUS, sizeof(h) + bytes);
    struct iovec iov[2] = {{.iov_base = &h, .iov_len = sizeof(h)},
                           {.iov_base = (void *)text, .iov_len = bytes}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    if (bytes > HELLO_STATUS_MAX - sizeof(h))
        return -EMSGSIZE;
    h.number = number;
    return sendmsg(socket_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Takes the descriptors out of `m`: at most max_fds go to ret_fds, the others are closed. Returns
 * how many there were. */
static uint32_t take_fds(struct msghdr *m, int *ret_fds, uint32_t max_fds)
{
    uint32_t seen = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
            if (seen < max_fds)
                ret_fds[seen] = fd;
            else
                close(fd);
            seen++;
        }
    }
    return seen;
}

/* As hello_recv() without room for descriptors. Looks first: taking a packet closes what came with
 * it, which can take for ever. */
static int recv_plain(int socket_fd, void *buffer, size_t bytes, int flags)
{
    struct iovec iov = {.iov_base = buffer, .iov_len = bytes};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n = recvmsg(socket_fd, &m, flags | MSG_PEEK);
    if (n >= 0 && (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        return -EPROTO; /* CTRUNC: it carries descriptors */
    if (n >= 0)
        n = recv(socket_fd, buffer, bytes, flags);
    return n < 0 ? -errno : (int)n;
}

int hello_recv(int socket_fd, void *buffer, size_t bytes, int *ret_fds, uint32_t max_fds,
               uint32_t *ret_n_fds, int flags)
{
    union { /* room for more than we accept, so that surplus descriptors are seen and closed */
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * HELLO_FDS * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = buffer, .iov_len = bytes};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    ssize_t n;
    if (max_fds == 0)
        return recv_plain(socket_fd, buffer, bytes, flags);
    do
        n = recvmsg(socket_fd, &m, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR && !(flags & MSG_DONTWAIT));
    if (n < 0)
        return -errno;
    uint32_t n_fds = take_fds(&m, ret_fds, max_fds);
    if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || n_fds > max_fds || (n == 0 && n_fds > 0)) {
        for (uint32_t i = 0; i < n_fds && i < max_fds; i++) {
            close(ret_fds[i]);
            ret_fds[i] = -1; /* the caller must not close the number again */
        }
        return -EPROTO;
    }
    if (ret_n_fds != NULL)
        *ret_n_fds = n_fds;
    return (int)n;
}

/* Waits until the socket is readable or hung up; signals do not interrupt it. timeout_ms: -1:
 * without limit. Returns 0, -ETIMEDOUT, or -errno. */
static int wait_readable(int socket_fd, int timeout_ms)
{
    struct pollfd p = {.fd = socket_fd, .events = POLLIN};
    uint64_t start = bell_now_ns();
    int left = timeout_ms;
    for (;;) {
        int n = poll(&p, 1, left);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (timeout_ms < 0)
            continue;
        uint64_t passed = (bell_now_ns() - start) / 1000000u;
        if (n == 0 || passed >= (uint64_t)timeout_ms)
            return -ETIMEDOUT;
        left = timeout_ms - (int)passed;
    }
}

/* Names what is wrong with an answer that is longer, or brings more descriptors, than this version
 * knows: another version, if its head says so. */
static int refuse_longer(const uint8_t *message, char *err, size_t err_bytes)
{
    struct hello_head h;
    memcpy(&h, message, sizeof(h));
    if (h.magic == HELLO_MAGIC && check_version(&h, err, err_bytes) < 0)
        return -EPROTONOSUPPORT;
    return ipc_fail(err, err_bytes, -EPROTO, "the daemon's WELCOME message is malformed");
}

int hello_recv_answer(int socket_fd, struct hello_welcome *ret, int *ret_fds, int timeout_ms,
                      char *err, size_t err_bytes)
{
    uint8_t buffer[512] = {0};
    struct hello_refuse refuse;
    uint32_t n_fds = 0;
    int n = wait_readable(socket_fd, timeout_ms);
    int rc;
    for (uint32_t i = 0; i < HELLO_FDS; i++)
        ret_fds[i] = -1;
    if (n == 0)
        n = hello_recv(socket_fd, buffer, sizeof(buffer), ret_fds, HELLO_FDS, &n_fds, 0);
    if (n == -ETIMEDOUT)
        return ipc_fail(err, err_bytes, n, "the daemon does not answer the handshake");
    if (n == -EPROTO)
        return refuse_longer(buffer, err, err_bytes);
    if (n <= 0)
        return ipc_fail(err, err_bytes, n == 0 ? -ECONNRESET : n,
                        "the daemon hung up during the handshake%s%s", n < 0 ? ": " : "",
                        n < 0 ? strerror(-n) : "");
    if (hello_check_refuse(buffer, (size_t)n, &refuse) == 0)
        rc = ipc_fail(err, err_bytes, refuse.code, "%s", refuse.line);
    else
        rc = hello_check_welcome(buffer, (size_t)n, ret, err, err_bytes);
    if (rc == 0 && n_fds != ret->n_fds)
        rc = ipc_fail(err, err_bytes, -EPROTO, "the daemon passed %u descriptors, expected %u",
                      n_fds, ret->n_fds);
    for (uint32_t i = 0; rc < 0 && i < n_fds; i++) {
        close(ret_fds[i]);
        ret_fds[i] = -1;
    }
    return rc;
}

/* Takes one STATUS. Returns the bytes of its text; -EAGAIN: it has another number; or -errno. */
static int recv_status(int socket_fd, uint32_t number, char *ret_text, size_t text_bytes)
{
    struct hello_head h = {0};
    struct iovec iov[2] = {{.iov_base = &h, .iov_len = sizeof(h)},
                           {.iov_base = ret_text, .iov_len = text_bytes - 1}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    /* Without a control buffer the kernel drops any descriptors that come along. */
    ssize_t n = recvmsg(socket_fd, &m, 0);
    if (n < 0)
        return -errno;
    if (n == 0)
        return -ECONNRESET;
    if (h.magic == HELLO_MAGIC && h.kind == HELLO_STATUS && h.number != number)
        return -EAGAIN;
    if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || (size_t)n < sizeof(h) ||
        h.magic != HELLO_MAGIC || h.kind != HELLO_STATUS || h.bytes != (size_t)n)
        return -EPROTO;
    n -= (ssize_t)sizeof(h);
    ret_text[n] = 0;
    return (int)n;
}

int hello_status(int socket_fd, uint32_t number, char *ret_text, size_t text_bytes, int timeout_ms)
{
    struct hello_head ask = head_of(HELLO_STATUS_ASK, sizeof(ask));
    uint64_t start = bell_now_ns();
    ask.number = number;
    int r = hello_send(socket_fd, &ask, sizeof(ask), NULL, 0), passed = 0;
    for (bool first = true; r == 0; first = false) {
        if (timeout_ms >= 0 && passed >= timeout_ms && !first)
            return -ETIMEDOUT; /* also where there are more answers that came after their time */
        r = wait_readable(socket_fd, timeout_ms < 0        ? -1
                                     : passed < timeout_ms ? timeout_ms - passed
                                                           : 0);
        if (r == 0)
            r = recv_status(socket_fd, number, ret_text, text_bytes);
        if (r != -EAGAIN)
            return r;
        r = 0;
        passed = (int)((bell_now_ns() - start) / 1000000u);
    }
    return r;
}
