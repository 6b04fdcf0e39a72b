/* Binding the socket; a stale one is told from a live one by trying to connect. */
#include "daemon/listen.h"

#include "ipc/hello.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 256, PROBE_MS = 500 };

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

/* Makes the folder of the default path, as a first start needs. */
static void listen_make_folder(const char *path)
{
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    const char *slash = strrchr(path, '/');

    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) : 0, path);
    unsigned mode = listen_folder_mode(folder);
    if (mode && mkdir(folder, mode) == 0) /* else it is there, or bind says why it cannot be */
        chmod(folder, mode); /* whatever the umask: others pass through the machine's */
}

/* Does somebody answer at this address? A daemon that has just died may still be there for a moment, as the
 * kernel takes its ring apart: it lets us connect, never accepts, and hangs up. A live one waits for our
 * HELLO. -ENOTSOCK: something else lies there, which is not ours to remove (connect would say
 * -ECONNREFUSED for it, too). Returns 0: somebody does; -ECONNREFUSED: nobody; another -errno: it cannot be told. */
static int listen_probe(const struct sockaddr_un *address)
{
    struct stat st;
    int fd, rc;

    if (lstat(address->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return -ENOTSOCK;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    rc = connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;
    if (rc == 0) {
        struct pollfd hang_up = {.fd = fd, .events = POLLRDHUP};
        if (poll(&hang_up, 1, PROBE_MS) > 0)
            rc = -ECONNREFUSED;
    }
    close(fd);
    return rc;
}

static int listen_bind(int fd, const struct sockaddr_un *address)
{
    mode_t old = umask(0177);
    int rc = bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;

    umask(old);
    return rc;
}

int listen_open(const char *path, char *err, size_t err_bytes)
{
    struct sockaddr_un address;
    int rc = listen_address(path, &address);
    int fd = rc < 0 ? -1 : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int probe = 0;

    if (rc == 0 && fd < 0)
        rc = -errno;
    if (rc == 0) {
        listen_make_folder(path);
        rc = listen_bind(fd, &address);
    }
    if (rc == -EADDRINUSE)
        probe = listen_probe(&address);
    if (probe == -ECONNREFUSED) {
        unlink(path);
        rc = listen_bind(fd, &address);
    }
    if (rc == 0 && listen(fd, BACKLOG) < 0)
        rc = -errno;
    if (rc == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    if (probe == -ENOTSOCK) {
        snprintf(err, err_bytes, "%s is there and is no socket: give another --socket", path);
        return probe;
    }
    if (rc == -ENOENT)
        snprintf(err, err_bytes,
                 "cannot listen at %s: its folder is not there: make it, or give another --socket",
                 path);
    else if (rc == -ENAMETOOLONG)
        snprintf(err, err_bytes,
                 "a socket's path takes at most %zu bytes: give a shorter --socket than %s",
                 sizeof(address.sun_path) - 1, path);
    else if (rc == -EADDRINUSE)
        snprintf(err, err_bytes,
                 "a daemon already listens at %s: stop it, or give another --socket", path);
    else
        snprintf(err, err_bytes, "cannot listen at %s: %s: give another --socket", path,
                 strerror(-rc));
    return rc;
}

void listen_close(const char *path, int listen_fd)
{
    struct sockaddr_un address;

    /* Refuses from now on, although the ring may hold on to the socket for a while. */
    shutdown(listen_fd, SHUT_RDWR);
    close(listen_fd);
    if (listen_address(path, &address) == 0 && listen_probe(&address) == -ECONNREFUSED)
        unlink(path);
}
