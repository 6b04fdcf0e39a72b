/* loopback: see loopback.h. */
#include "client/http/loopback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 128 };

int loopback_open(const char *address, uint16_t port, char *err, size_t err_bytes)
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

int loopback_check(int fd, char *err, size_t err_bytes)
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

bool loopback_is_tcp(int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof(at);
    return getsockname(fd, (struct sockaddr *)&at, &bytes) < 0 || at.ss_family != AF_UNIX;
}
