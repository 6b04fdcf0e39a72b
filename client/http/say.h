/* say: lines on stderr. From any thread. */
#ifndef HEARTH_CLIENT_HTTP_SAY_H
#define HEARTH_CLIENT_HTTP_SAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* With a priority of syslog's, where the journal reads them. */
void say(int priority, const char *text);

/* A notice that a run of the program needs once: `said` is static, ATOMIC_FLAG_INIT. */
__attribute__((format(printf, 2, 3))) void say_once(atomic_flag *said, const char *format, ...);

/* What was left out, by its type: so many types are remembered. */
enum { SAY_MOST_TYPES = 32, SAY_TYPE_BYTES = 41 };

struct say_types {
    pthread_mutex_t lock;
    uint32_t n;
    bool is_full; /* and that was said */
    char types[SAY_MOST_TYPES][SAY_TYPE_BYTES];
};

#define SAY_TYPES_INITIALIZER                                                                      \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

/* A notice that a run of the program needs once for each type (of a few, which clients choose): `said`
 * is static, SAY_TYPES_INITIALIZER. When more have come, a last one says that they are not named. */
__attribute__((format(printf, 3, 4))) void say_type(struct say_types *said, const char *type,
                                                    const char *format, ...);

#endif
