/* rate.h: a token bucket in one word. Any thread, under its caller's lock; no clock of its own. */
#ifndef HEARTH_DAEMON_RATE_H
#define HEARTH_DAEMON_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct rate {
    uint64_t every_ns; /* one more token each */
    uint32_t burst;    /* tokens of a full bucket, at least 1 */
};

/* Takes a token. *due_ns, 0 at first, is when the bucket is full again; false: it is empty. */
static inline bool rate_take(uint64_t *due_ns, const struct rate *rate, uint64_t now_ns)
{
    uint64_t due = *due_ns > now_ns ? *due_ns : now_ns;
    if (due - now_ns > (rate->burst - 1) * rate->every_ns)
        return false;
    *due_ns = due + rate->every_ns;
    return true;
}

#endif
