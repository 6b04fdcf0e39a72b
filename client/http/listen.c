/* listen: see listen.h. */
#include "client/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128 };

void listen_default_path(char *path, size_t path_bytes)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (runtime && *runtime == '/')
        snprintf(path, path_bytes, "%s/hearth/http.sock", runtime);
    else
        snprintf(path, path_bytes, "/run/hearth/http.sock");
}

/* Makes the folder of the default path where `path` lies in it, for a user's first start. Any other
 * missing folder is probably mistyped. */
static void make_directory(const char *path)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    listen_default_path(directory, sizeof(directory));
    *strrchr(directory, '/') = 0;
    size_t n = strlen(directory);
    /* Every user may enter the machine's folder, whatever the umask. */
    mode_t mode = strcmp(directory, "/run/hearth") == 0 ? 0755 : 0700;
    if (slash && (size_t)(slash - path) == n && memcmp(path, directory, n) == 0 &&
        mkdir(directory, mode) == 0) /* else it is there, or bind says why it cannot be */
        chmod(directory, mode);
}

static int bind_private(int fd, const struct sockaddr_un *to)
{
    mode_t old = umask(0177);
    int rc = bind(fd, (const struct sockaddr *)to, sizeof(*to)) < 0 ? -errno : 0;
    umask(old);
    return rc;
}

static bool is_no_socket(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode);
}

/* Is it a stale socket, without a listener? */
static int is_stale(const struct sockaddr_un *to)
{
    if (access(to->sun_path, F_OK) < 0 || is_no_socket(to->sun_path))
        return 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    int stale = connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0 && errno == ECONNREFUSED;
    close(fd);
    return stale;
}

static int set_address(struct sockaddr_un *to, const char *path)
{
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(to->sun_path))
        return -ENAMETOOLONG;
    memcpy(to->sun_path, path, strlen(path) + 1);
    return 0;
}

int listen_unix(const char *path, char *err, size_t err_bytes)
{
    struct sockaddr_un to;
    int rc = set_address(&to, path);
    int fd = rc ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (!rc && fd < 0)
        rc = -errno;
    if (!rc) {
        make_directory(path);
        rc = bind_private(fd, &to);
    }
    if (rc == -EADDRINUSE && is_stale(&to)) {
        unlink(path);
        rc = bind_private(fd, &to);
    }
    if (!rc && listen(fd, BACKLOG) < 0)
        rc = -errno;
    if (!rc)
        return fd;
    if (fd >= 0)
        close(fd);
    if (rc == -EADDRINUSE && is_no_socket(path)) {
        snprintf(err, err_bytes, "%s exists and is not a socket: give another --listen", path);
        return -ENOTSOCK;
    }
    if (rc == -EADDRINUSE)
        snprintf(err, err_bytes,
                 "%s: another program listens there: stop it, or give another --listen", path);
    else if (rc == -ENOENT)
        snprintf(err, err_bytes,
                 "cannot listen at %s: its folder is missing: make it, or give "
                 "another --listen",
                 path);
    else
        snprintf(err, err_bytes, "cannot listen at %s: %s: give another --listen, or a --port",
                 path, strerror(-rc));
    return rc;
}

void listen_unix_close(const char *path, int fd)
{
    struct sockaddr_un to;
    close(fd);
    if (set_address(&to, path) == 0 && is_stale(&to))
        unlink(path);
}

int listen_loopback(const char *address, uint16_t port, char *err, size_t err_bytes)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int is_v6 = strcmp(address, "::1") == 0, on = 1, rc = 0;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v6.sin6_addr = in6addr_loopback;
    const struct sockaddr *to = is_v6 ? (const struct sockaddr *)&v6 : (const struct sockaddr *)&v4;
    int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        rc = -errno;
    if (!rc) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (is_v6)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
        if (bind(fd, to, is_v6 ? sizeof(v6) : sizeof(v4)) < 0 || listen(fd, BACKLOG) < 0)
            rc = -errno;
    }
    if (!rc)
        return fd;
    if (fd >= 0)
        close(fd);
    snprintf(err, err_bytes, "cannot listen on port %u of %s: %s: give another --port", port,
             address, strerror(-rc));
    return rc;
}

int listen_check(int fd, char *err, size_t err_bytes)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof(at);
    int ok = 0;
    if (getsockname(fd, (struct sockaddr *)&at, &bytes) < 0)
        ok = 0;
    else if (at.ss_family == AF_UNIX)
        ok = 1;
    else if (at.ss_family == AF_INET)
        ok = ntohl(((struct sockaddr_in *)&at)->sin_addr.s_addr) >> 24 == 127;
    else if (at.ss_family == AF_INET6)
        ok = IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&at)->sin6_addr);
    if (ok)
        return 0;
    snprintf(
        err, err_bytes,
        "the socket that was passed is reachable from other machines: let ListenStream= name a "
        "path, 127.0.0.1 or [::1]");
    return -EINVAL;
}
