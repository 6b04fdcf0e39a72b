/* say: see say.h. */
#include "client/http/say.h"

#include "client/base/printable.h"
#include "ipc/service.h"

#include <stdarg.h>
#include <stdio.h>

void say(int priority, const char *text)
{
    char mark[8] = "", line[1024];
    snprintf(line, sizeof(line), "%s", text);
    printable_mask(line); /* it may hold what a client or a file says */
    if (service_has_journal())
        snprintf(mark, sizeof(mark), "<%d>", priority);
    fprintf(stderr, "%shearth-http: %s\n", mark, line);
}

void say_once(atomic_flag *said, const char *format, ...)
{
    char text[300];
    va_list args;
    if (atomic_flag_test_and_set(said))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    say(6, text);
}
