/* rate.h: a token bucket in one word. Any thread, under its caller's lock; no clock of its own. */
#ifndef HEARTH_DAEMON_RATE_H
#define HEARTH_DAEMON_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct rate {
    uint64_t every_ns; /* one more token each */
    uint32_t burst;    /* tokens of a full bucket, at least 1 */
};

/* How long until there is a token. due_ns, 0 at first, is when the bucket is full again. */
static inline uint64_t rate_wait_ns(uint64_t due_ns, const struct rate *rate, uint64_t now_ns)
{
    uint64_t room_ns = (rate->burst - 1) * rate->every_ns;
    return due_ns > now_ns + room_ns ? due_ns - now_ns - room_ns : 0;
}

/* Takes a token; false: there is none. */
static inline bool rate_take(uint64_t *due_ns, const struct rate *rate, uint64_t now_ns)
{
    if (rate_wait_ns(*due_ns, rate, now_ns) > 0)
        return false;
    *due_ns = (*due_ns > now_ns ? *due_ns : now_ns) + rate->every_ns;
    return true;
}

#endif
