/* debt.h: time that a user took from others, which is paid for as time passes. Under its caller's
 * lock; no clock of its own. */
#ifndef HEARTH_DAEMON_ENGINE_DEBT_H
#define HEARTH_DAEMON_ENGINE_DEBT_H

#include <stdbool.h>
#include <stdint.h>

struct debt {
    uint64_t paid_ns; /* when all of it is */
};

/* `share`: how much longer paying takes than what was done. A debt stays below twice the credit. */
static inline void debt_charge(struct debt *debt, uint64_t ns, uint64_t share, uint64_t credit_ns,
                               uint64_t now_ns)
{
    uint64_t owed_ns = (debt->paid_ns > now_ns ? debt->paid_ns - now_ns : 0) + ns * share;
    debt->paid_ns = now_ns + (owed_ns < 2 * credit_ns ? owed_ns : 2 * credit_ns);
}

static inline bool debt_owes(const struct debt *debt, uint64_t credit_ns, uint64_t now_ns)
{
    return debt->paid_ns > now_ns + credit_ns;
}

#endif
