/* listen.c: binds the socket, under a lock; tries to connect to tell a stale socket from a live
 * one. */
#include "ipc/listen.h"

#include "ipc/hello.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 256,
    PROBE_MS = 500, /* the kernel has mostly removed a dead daemon's socket by then */
    TRIES = 8       /* attempts at one that hangs up and reappears, or outlives its process */
};

static int listen_address(const char *path, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(ret->sun_path))
        return -ENAMETOOLONG;
    memcpy(ret->sun_path, path, strlen(path) + 1);
    return 0;
}

unsigned listen_folder_mode(const char *folder)
{
    static const char machine[] = HELLO_MACHINE_SOCKET;
    const char *run = getenv("XDG_RUNTIME_DIR");
    size_t n = run ? strlen(run) : 0;
    if (n && !strncmp(folder, run, n) && !strcmp(folder + n, "/hearth"))
        return 0700;
    n = (size_t)(strrchr(machine, '/') - machine);
    return strlen(folder) == n && !memcmp(folder, machine, n) ? 0755 : 0;
}

/* Makes the folder of the default path if it is missing, as at a first start. */
static void listen_make_folder(const char *path)
{
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) : 0, path);
    unsigned mode = listen_folder_mode(folder);
    if (mode && mkdir(folder, mode) == 0) /* on failure bind() reports the error */
        chmod(folder, mode); /* regardless of the umask: other users need the machine's folder */
}

/* Is the lock file ours, or its folder's owner's? In a folder that all may write to, anybody else
 * could make it, and hold the lock for ever. */
static bool listen_may_wait(const char *path, int lock_fd)
{
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    const char *slash = strrchr(path, '/');
    struct stat lock, in;
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    return fstat(lock_fd, &lock) == 0 &&
           (lock.st_uid == geteuid() || (stat(folder, &in) == 0 && lock.st_uid == in.st_uid));
}

/* Making, replacing or removing the socket at `path` takes this lock, so that one of several
 * daemons that start at once gets it and the others leave it alone. The lock file exists only
 * meanwhile. Returns a descriptor for listen_unlock, or -errno. */
static int listen_lock(const char *path, char *lock_path, size_t lock_bytes)
{
    struct stat st;
    snprintf(lock_path, lock_bytes, "%s.lock", path);
    for (;;) {
        int fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        int rc = fd < 0 ? -errno : listen_may_wait(path, fd) ? 0 : -EPERM;
        while (rc == 0 && flock(fd, LOCK_EX) < 0)
            rc = errno == EINTR ? 0 : -errno;
        if (rc == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0)
            return fd;
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            return rc;
        /* Its holder removed the file while we waited: try again with a new file. */
    }
}

static void listen_unlock(const char *lock_path, int lock_fd)
{
    unlink(lock_path);
    close(lock_fd);
}

/* Tries to connect to this address, without waiting. Returns 1 with a descriptor (-1: the
 * listener's queue is full); 0: no process listens; -ENOTSOCK: the path is not a socket, so it must
 * not be removed (connect would fail as for a stale socket); or another -errno. */
static int listen_probe(const struct sockaddr_un *address, int type, int *ret_fd)
{
    struct stat st;
    int rc = 1;
    *ret_fd = -1;
    if (lstat(address->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return -ENOTSOCK;
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0) {
        *ret_fd = fd;
        return 1;
    }
    if (errno != EAGAIN)
        rc = errno == ECONNREFUSED ? 0 : -errno;
    close(fd);
    return rc;
}

static int listen_bind(int fd, const struct sockaddr_un *address)
{
    mode_t old = umask(0177);
    int rc = bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;
    umask(old);
    return rc < 0 || listen(fd, BACKLOG) == 0 ? rc : -errno;
}

/* Listens at the address, in place of a socket that no process listens on. Returns 0, or -errno;
 * with -EADDRINUSE *ret_other is a connection to the listener (or -1). */
static int listen_take(int fd, int type, const struct sockaddr_un *address, int *ret_other)
{
    char lock_path[sizeof(address->sun_path) + sizeof(".lock")];
    int lock_fd = listen_lock(address->sun_path, lock_path, sizeof(lock_path));
    int rc = lock_fd < 0 ? lock_fd : listen_bind(fd, address);
    *ret_other = -1;
    if (rc == -EADDRINUSE) {
        int probe = listen_probe(address, type, ret_other);
        if (probe == 0) {
            unlink(address->sun_path);
            rc = listen_bind(fd, address);
        } else if (probe == -ENOTSOCK) {
            rc = probe;
        }
    }
    if (lock_fd >= 0)
        listen_unlock(lock_path, lock_fd);
    return rc;
}

/* The process that listens at the other end of this connection; 0: the kernel does not tell. */
static pid_t listen_owner(int other)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    if (other < 0 || getsockopt(other, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
        return 0;
    return peer.pid;
}

/* True if the program at the other end of this connection is alive. The socket of a daemon that has
 * just died may exist for a moment, while the kernel tears its ring down: it lets us connect, never
 * accepts, and hangs up, on a busy machine only after some seconds. A live program waits for our
 * first message, or refuses with a reason. */
static bool listen_lives(int other)
{
    struct pollfd answer = {.fd = other, .events = POLLIN | POLLRDHUP};
    char byte;
    if (other < 0)
        return true;
    if (poll(&answer, 1, PROBE_MS) != 0)
        return recv(other, &byte, 1, MSG_DONTWAIT) > 0;
    pid_t owner = listen_owner(other);
    return owner <= 0 || kill(owner, 0) == 0 || errno != ESRCH;
}

/* Writes one line that says what to do. */
static void listen_explain(const char *path, const char *option, int error, int other, char *err,
                           size_t err_bytes)
{
    char owner[40] = "";
    pid_t pid = listen_owner(other);
    if (pid > 0)
        snprintf(owner, sizeof(owner), " (process %ld)", (long)pid);
    if (error == -ENOTSOCK)
        snprintf(err, err_bytes, "%s exists and is not a socket: give another %s", path, option);
    else if (error == -ENOENT)
        snprintf(err, err_bytes,
                 "cannot listen at %s: its folder does not exist: make it, or give another %s",
                 path, option);
    else if (error == -ENAMETOOLONG)
        snprintf(err, err_bytes, "a socket path has at most %zu bytes: give a shorter %s than %s",
                 sizeof(((struct sockaddr_un *)0)->sun_path) - 1, option, path);
    else if (error == -EADDRINUSE)
        snprintf(err, err_bytes,
                 "another program%s already listens at %s: stop it, or give another %s", owner,
                 path, option);
    else
        snprintf(err, err_bytes, "cannot listen at %s: %s: give another %s", path, strerror(-error),
                 option);
}

int listen_open(const char *path, int type, const char *option, char *err, size_t err_bytes)
{
    struct sockaddr_un address;
    int rc = listen_address(path, &address), other = -1;
    int fd = rc < 0 ? -1 : socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (rc == 0 && fd < 0)
        rc = -errno;
    if (rc == 0) {
        listen_make_folder(path);
        rc = listen_take(fd, type, &address, &other);
        for (int i = 0; i < TRIES && rc == -EADDRINUSE && !listen_lives(other); i++) {
            close(other);
            rc = listen_take(fd, type, &address, &other);
        }
    }
    if (rc < 0)
        listen_explain(path, option, rc, other, err, err_bytes);
    if (other >= 0)
        close(other);
    if (rc < 0 && fd >= 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

void listen_close(const char *path, int type, int listen_fd)
{
    struct sockaddr_un address;
    char lock_path[sizeof(address.sun_path) + sizeof(".lock")];
    int other = -1;
    /* Refuses connections from now on. */
    shutdown(listen_fd, SHUT_RDWR);
    if (listen_address(path, &address) < 0)
        return;
    int lock_fd = listen_lock(path, lock_path, sizeof(lock_path));
    if (listen_probe(&address, type, &other) == 0)
        unlink(path);
    if (other >= 0)
        close(other);
    if (lock_fd >= 0)
        listen_unlock(lock_path, lock_fd);
}
