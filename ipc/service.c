/* service: see service.h. */
#include "ipc/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_FDS = 1024 };

int service_notify(const char *state)
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
    const int flags = strncmp(state, "READY=1", 7) == 0 ? 0 : MSG_DONTWAIT;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | flags, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
        rc = -errno;
    close(fd);
    return rc;
}

/* The variable that names a pid must name ours, or the settings are meant for another process. */
static bool meant_for_us(const char *pid_variable)
{
    const char *pid = getenv(pid_variable);
    return !pid || strtol(pid, NULL, 10) == (long)getpid();
}

uint64_t service_watchdog_ns(void)
{
    const char *usec = getenv("WATCHDOG_USEC");
    if (!usec || !meant_for_us("WATCHDOG_PID"))
        return 0;
    return strtoull(usec, NULL, 10) * 1000 / 2;
}

/* True for a socket such as hearthd makes itself. */
static bool is_listening_socket(int fd)
{
    int domain = 0, type = 0, listens = 0;
    socklen_t a = sizeof(domain), b = sizeof(type), c = sizeof(listens);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &a) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &b) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &c) == 0 && domain == AF_UNIX &&
           type == SOCK_SEQPACKET && listens;
}

int service_listen_fds(void)
{
    const char *text = getenv("LISTEN_FDS");
    long count = text ? strtol(text, NULL, 10) : 0;
    if (count < 1 || !getenv("LISTEN_PID") || !meant_for_us("LISTEN_PID"))
        return 0;
    count = count < MOST_FDS ? count : MOST_FDS;
    for (int fd = SERVICE_FIRST_FD; fd < SERVICE_FIRST_FD + count; fd++) {
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    return (int)count;
}

int service_listen_fd(char *err, size_t err_bytes)
{
    int count = service_listen_fds();
    if (count == 0)
        return -ENOENT;
    if (count == 1 && is_listening_socket(SERVICE_FIRST_FD))
        return SERVICE_FIRST_FD;
    if (count > 1)
        snprintf(err, err_bytes,
                 "the service manager passed %d descriptors, but hearthd serves one socket: give "
                 "each its own unit",
                 count);
    else
        snprintf(err, err_bytes,
                 "the service manager did not pass a listening SOCK_SEQPACKET Unix socket: use "
                 "ListenSequentialPacket= with a path");
    return -ENOTSOCK;
}

bool service_has_journal(void)
{
    /* The variable holds device and inode of the stderr that the service manager opened: stderr may
     * be redirected since. */
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == (dev_t)device &&
           st.st_ino == (ino_t)inode;
}

void service_raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}
