/* log.c: formats log lines; the priorities are syslog's, written as in sd-daemon(3). */
#include "daemon/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static enum log_level log_most = LOG_LEVEL_INFO;
static bool log_journal;

/* The variable holds device and inode of the stderr that the service manager opened. If stderr was
 * redirected since, it does not go to the journal. */
static bool log_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;

    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == (dev_t)device &&
           st.st_ino == (ino_t)inode;
}

void log_init(enum log_level level)
{
    log_most = level;
    log_journal = log_is_journal();
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
        return; /* stderr cannot be written: there is no other place to report it */
}
