/* Formatting of log lines; the priorities are syslog's, as sd-daemon(3) writes them. */
#include "daemon/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static enum log_level log_most = LOG_LEVEL_INFO;
static bool log_journal;

void log_init(enum log_level level)
{
    log_most = level;
    log_journal = getenv("JOURNAL_STREAM") != NULL;
}

void log_line(enum log_level level, const char *format, ...)
{
    static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"};
    char line[1024];
    va_list args;

    if (level > log_most)
        return;
    int n = snprintf(line, sizeof(line), "%s", log_journal ? priorities[level] : "hearthd: ");
    va_start(args, format);
    int more = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    va_end(args);
    n += more;
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return; /* nobody reads stderr: there is no one to tell */
}
