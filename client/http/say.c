/* say: see say.h. */
#include "client/http/say.h"

#include "client/base/printable.h"
#include "ipc/service.h"
#include "ipc/stderr_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void say(int priority, const char *text)
{
    char prefix[24] = "hearth-http: ", masked[1000], line[1024];
    snprintf(masked, sizeof(masked), "%s", text);
    printable_mask(masked); /* it may hold what a client or a file says */
    if (service_has_journal())
        snprintf(prefix, sizeof(prefix), "<%d>hearth-http: ", priority);
    int n = snprintf(line, sizeof(line), "%s%s\n", prefix, masked);
    stderr_line(prefix, line, (size_t)n);
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

/* Is it the first of its type, and is there room to remember that? */
static bool remember(struct say_types *said, const char *type)
{
    char own[SAY_TYPE_BYTES];
    snprintf(own, sizeof(own), "%s", type);
    for (uint32_t i = 0; i < said->n; i++)
        if (strcmp(said->types[i], own) == 0)
            return false;
    if (said->n == SAY_MOST_TYPES) {
        if (!said->is_full)
            say(6, "clients send more types that are left out: they are not named from here on");
        said->is_full = true;
        return false;
    }
    memcpy(said->types[said->n++], own, sizeof(own));
    return true;
}

void say_type(struct say_types *said, const char *type, const char *format, ...)
{
    char text[300];
    va_list args;
    pthread_mutex_lock(&said->lock);
    bool is_new = remember(said, type);
    pthread_mutex_unlock(&said->lock);
    if (!is_new)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    say(6, text);
}
