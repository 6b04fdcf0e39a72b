/* say: lines on stderr. From any thread. */
#ifndef HEARTH_CLIENT_HTTP_SAY_H
#define HEARTH_CLIENT_HTTP_SAY_H

#include <stdatomic.h>

/* With a priority of syslog's, where the journal reads them. */
void say(int priority, const char *text);

/* A notice that a run of the program needs once: `said` is static, ATOMIC_FLAG_INIT. */
__attribute__((format(printf, 2, 3))) void say_once(atomic_flag *said, const char *format, ...);

#endif
