/* steady.h: time that never goes back, whatever its clock does: where the clock was set back, time goes on from
 * the last look at it. So no deadline moves away, and no span is negative. One thread. */
#ifndef HEARTH_DAEMON_STEADY_H
#define HEARTH_DAEMON_STEADY_H

#include <stdint.h>

struct steady {
    uint64_t (*clock)(void);
    uint64_t now_ns;   /* of the last look at it */
    uint64_t ahead_ns; /* of the clock */
};

/* Looks at the clock. */
static inline uint64_t steady_look(struct steady *steady)
{
    uint64_t clock_ns = steady->clock();
    if (clock_ns + steady->ahead_ns < steady->now_ns)
        steady->ahead_ns = steady->now_ns - clock_ns;
    return steady->now_ns = clock_ns + steady->ahead_ns;
}

#endif
