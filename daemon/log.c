/* log.c: formats log lines; the priorities are syslog's, written as in sd-daemon(3). */
#include "daemon/log.h"

#include "daemon/rate.h"
#include "ipc/service.h"
#include "ipc/stderr_line.h"

#include <stdarg.h>
#include <stdio.h>

static enum log_level log_most = LOG_LEVEL_INFO;
static bool log_journal;

void log_init(enum log_level level)
{
    log_most = level;
    log_journal = service_has_journal();
}

static const char *log_prefix(enum log_level level)
{
    static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"};
    return log_journal ? priorities[level] : "hearthd: ";
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
    stderr_line(log_prefix(LOG_LEVEL_WARNING), line, (size_t)n);
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
