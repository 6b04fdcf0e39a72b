/* log.c: formats log lines; the priorities are syslog's, written as in sd-daemon(3). */
#include "daemon/log.h"

#include "daemon/rate.h"
#include "ipc/service.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static enum log_level log_most = LOG_LEVEL_INFO;
static bool log_journal;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

void log_init(enum log_level level)
{
    log_most = level;
    log_journal = service_has_journal();
}

/* Returns false where there is no room for the line. Only another process that writes to the same pipe can still
 * make this wait: ours take turns, and a pipe that polls as writable has room for a line. */
static bool log_write(const char *line, size_t bytes)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) == 0)
        return false;
    ssize_t n = send(STDERR_FILENO, line, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == ENOTSOCK)
        n = write(STDERR_FILENO, line, bytes);
    return n >= 0 || errno != EAGAIN; /* any other error: the line is lost */
}

static const char *log_prefix(enum log_level level)
{
    static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"};
    return log_journal ? priorities[level] : "hearthd: ";
}

/* Writes the line, after one that says how many were dropped before it. */
static void log_write_in_turn(const char *line, size_t bytes)
{
    static uint64_t dropped;
    char before[96];
    bool told = true;
    pthread_mutex_lock(&log_lock);
    if (dropped > 0) {
        int n = snprintf(before, sizeof(before), "%s%llu lines were dropped: nothing read stderr\n",
                         log_prefix(LOG_LEVEL_WARNING), (unsigned long long)dropped);
        told = log_write(before, (size_t)n);
    }
    if (told)
        dropped = log_write(line, bytes) ? 0 : 1;
    else
        dropped++;
    pthread_mutex_unlock(&log_lock);
}

void log_line(enum log_level level, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (level > log_most)
        return;
    const int start = snprintf(line, sizeof(line), "%s", log_prefix(level));
    int n = start;
    va_start(args, format);
    int more = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    va_end(args);
    n += more;
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    /* Paths and names may be of files from elsewhere, and the line reaches terminals: as in
     * kernels/base/fail.h. */
    for (int i = start; i < n; i++)
        if (line[i] < 0x20 || line[i] > 0x7e)
            line[i] = '?';
    line[n++] = '\n';
    log_write_in_turn(line, (size_t)n);
}

bool log_allowed(struct log_limit *limit, uint64_t now_ns)
{
    static const struct rate rate = {.every_ns = 10000000000, .burst = LOG_BURST};
    if (!rate_take(&limit->due_ns, &rate, now_ns)) {
        limit->left_out++;
        return false;
    }
    if (limit->left_out > 0)
        log_warning("%llu lines like the next one were left out",
                    (unsigned long long)limit->left_out);
    limit->left_out = 0;
    return true;
}
