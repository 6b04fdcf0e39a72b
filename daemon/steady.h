/* steady.h: time that never goes back, whatever its clock does: where the clock was set back, time goes on from
 * the last look at it. So no deadline moves away, and no span is negative. One thread. */
#ifndef HEARTH_DAEMON_STEADY_H
#define HEARTH_DAEMON_STEADY_H

#include <stdint.h>

struct steady {
    uint64_t last_ns, ahead_ns; /* ahead: of the clock */
};

/* The time, after a look at the clock. */
static inline uint64_t steady_ns(struct steady *steady, uint64_t clock_ns)
{
    if (clock_ns + steady->ahead_ns < steady->last_ns)
        steady->ahead_ns = steady->last_ns - clock_ns;
    return steady->last_ns = clock_ns + steady->ahead_ns;
}

#endif
