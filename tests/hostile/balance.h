/* balance: what a daemon holds while no client is connected, read twice and compared: slots,
 * pages and connections by its counters, descriptors and memory by the kernel's account of its
 * process. */
#ifndef HEARTH_TESTS_HOSTILE_BALANCE_H
#define HEARTH_TESTS_HOSTILE_BALANCE_H

#include "tests/e2e/harness.h"

#include <stdint.h>

struct balance {
    int64_t pages_free;
    int fds;
    int64_t resident_kb;
};

/* A process's descriptors, and its resident memory in KiB. */
int balance_fds(pid_t pid);
int64_t balance_resident_kb(pid_t pid);

/* Waits until no client, slot or request is left, then reads. */
struct balance balance_take(const struct harness *d);

/* Fails the test unless the daemon holds what it held `before`. */
void balance_check(const struct harness *d, const struct balance *before);

#endif
