/* overflow_uid.h: the uid that stands for all users that have no number in our user namespace: one
 * that many may share, so nothing is kept for it by name or shared within it. Any thread. */
#ifndef HEARTH_DAEMON_OVERFLOW_UID_H
#define HEARTH_DAEMON_OVERFLOW_UID_H

#include <stdbool.h>
#include <sys/types.h>

enum { OVERFLOW_UID_USUAL = 65534 };

/* What /proc/sys/kernel/overflowuid said when it was first asked for; else the usual one. */
uid_t overflow_uid(void);

/* The same from another file, each time. */
uid_t overflow_uid_read(const char *path);

/* May things of this user be kept for, and shared between, its requests at all? */
bool overflow_uid_shares(uid_t uid);

#endif
