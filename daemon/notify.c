/* Source: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3). */
#include "daemon/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LISTEN_FDS_START = 3 };

int notify_send(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int rc = 0;

    if (!path || !*path)
        return 0;
    size_t n = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || n >= sizeof(address.sun_path))
        return -EINVAL;
    memcpy(address.sun_path, path, n);
    if (path[0] == '@')
        address.sun_path[0] = 0; /* the abstract namespace */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
        rc = -errno;
    close(fd);
    return rc;
}

/* The variable is meant for this process: the one that names a pid names ours. */
static int meant_for_us(const char *pid_variable)
{
    const char *pid = getenv(pid_variable);

    return !pid || strtol(pid, NULL, 10) == (long)getpid();
}

uint64_t notify_watchdog_ns(void)
{
    const char *usec = getenv("WATCHDOG_USEC");

    if (!usec || !meant_for_us("WATCHDOG_PID"))
        return 0;
    return strtoull(usec, NULL, 10) * 1000 / 2;
}

int notify_listen_fd(void)
{
    const char *count = getenv("LISTEN_FDS");

    if (!count || strtol(count, NULL, 10) < 1 || !getenv("LISTEN_PID") ||
        !meant_for_us("LISTEN_PID"))
        return -1;
    if (fcntl(LISTEN_FDS_START, F_SETFD, FD_CLOEXEC) < 0)
        return -1;
    int flags = fcntl(LISTEN_FDS_START, F_GETFL);
    if (flags < 0 || fcntl(LISTEN_FDS_START, F_SETFL, flags | O_NONBLOCK) < 0)
        return -1;
    return LISTEN_FDS_START;
}
