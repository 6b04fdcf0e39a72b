/* service: see service.h. */
#include "client/http/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_FDS = 16 };

int service_notify(const char *state)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path ? strlen(path) : 0;
    if (!n)
        return 0;
    if ((path[0] != '/' && path[0] != '@') || n >= sizeof(to.sun_path))
        return -EINVAL;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@')
        to.sun_path[0] = 0; /* the abstract namespace */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    ssize_t sent =
        sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to, bytes);
    int rc = sent < 0 ? -errno : 0;
    close(fd);
    return rc;
}

int service_listen_fds(void)
{
    const char *count = getenv("LISTEN_FDS"), *pid = getenv("LISTEN_PID");
    if (!count || !pid || strtol(pid, NULL, 10) != (long)getpid())
        return 0;
    long n = strtol(count, NULL, 10);
    if (n < 0 || n > MOST_FDS)
        return 0;
    for (int fd = SERVICE_FIRST_FD; fd < SERVICE_FIRST_FD + n; fd++) {
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
            fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            return 0;
    }
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    return (int)n;
}
