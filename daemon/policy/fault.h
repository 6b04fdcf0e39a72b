/*
 * fault: faults injected on purpose, in builds made with -DHEARTH_FAULTS (make determinism); in any
 * other build fault_hits() is a constant false and there is no option.
 *
 *   draft-mismatch=RATE   a drafted token becomes another one: windows roll back
 *   refuse-pages=RATE     the pool says that it is empty: another slot's pages are evicted
 *   delay-pass=RATE       a pass takes 2 ms longer: cancels and newer requests arrive in its middle
 *   store-fail=RATE       a read or write of the KV store fails
 *   store-tear=RATE       a write of the KV store ends in the middle, and is said to be whole
 *   store-slow=RATE       a read or write of the KV store takes 50 ms, and those after it wait
 *   accept-drafts=RATE    a draft is accepted unverified. This one breaks the promise, so that the
 *                         determinism suite can show that it would notice
 *
 * Engine thread, after fault_parse on the main thread. The only global state of the daemon, in
 * builds for tests alone. */
#ifndef HEARTH_DAEMON_POLICY_FAULT_H
#define HEARTH_DAEMON_POLICY_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault {
    FAULT_DRAFT_MISMATCH,
    FAULT_REFUSE_PAGES,
    FAULT_DELAY_PASS,
    FAULT_STORE_FAIL,
    FAULT_STORE_TEAR,
    FAULT_STORE_SLOW,
    FAULT_ACCEPT_DRAFTS,
    FAULT_COUNT
};

#ifdef HEARTH_FAULTS
/* Takes "NAME=RATE[,NAME=RATE...]", a rate from 0 to 1. Another `seed`, other faults. Returns 0, or
 * -EINVAL with one line. */
int fault_parse(const char *text, uint64_t seed, char *err, size_t err_bytes);

/* Does it happen this time? */
bool fault_hits(enum fault fault);
#else
static inline bool fault_hits(enum fault fault)
{
    (void)fault;
    return false;
}
#endif

#endif
