/* stderr_line: see stderr_line.h. */
#include "ipc/stderr_line.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns false where there is no room for the line: ours take turns, and a pipe that polls as writable has room
 * for a line. */
static bool write_line(const char *line, size_t bytes)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) == 0)
        return false;
    ssize_t n = send(STDERR_FILENO, line, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == ENOTSOCK)
        n = write(STDERR_FILENO, line, bytes);
    return n >= 0 || errno != EAGAIN; /* any other error: the line is lost */
}

void stderr_line(const char *prefix, const char *line, size_t bytes)
{
    static uint64_t dropped;
    char before[96];
    bool told = true;
    pthread_mutex_lock(&lock);
    if (dropped > 0) {
        int n = snprintf(before, sizeof(before), "%s%llu lines were dropped: nothing read stderr\n",
                         prefix, (unsigned long long)dropped);
        told = write_line(before, (size_t)n);
    }
    if (told)
        dropped = write_line(line, bytes) ? 0 : 1;
    else
        dropped++;
    pthread_mutex_unlock(&lock);
}
