/* service.h: what a service manager gives a program and wants to hear: sd_listen_fds(3),
 * sd_notify(3), sd_watchdog_enabled(3), the journal of systemd.exec(5); and the limit of
 * descriptors.
 *
 * Any thread. Outside of systemd every call does nothing. Written here rather than linked: the
 * protocol is one sendto(2), and libsystemd would be the daemon's largest dependency. */
#ifndef HEARTH_IPC_SERVICE_H
#define HEARTH_IPC_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sends e.g. "READY=1\nSTATUS=serving". Returns 0, also without a service manager; -errno when
 * sending failed. Waits for a manager that reads nothing only with what begins with READY=1, which it
 * must hear; else -EAGAIN. */
int service_notify(const char *state);

/* How often WATCHDOG=1 is expected; 0: never. Half of $WATCHDOG_USEC, as the manual recommends. */
uint64_t service_watchdog_ns(void);

/* Returns how many descriptors the service manager passed, from SERVICE_FIRST_FD on; they are made
 * non-blocking and close-on-exec. 0: none. */
int service_listen_fds(void);
enum { SERVICE_FIRST_FD = 3 };

/* For a program with one SOCK_SEQPACKET socket. Returns the one that was passed; -ENOENT: none was.
 * -ENOTSOCK with one line: clients could not reach us at what was passed. */
int service_listen_fd(char *err, size_t err_bytes);

/* True if stderr goes to the journal, where lines begin with a priority such as "<6>". */
bool service_has_journal(void);

/* A client costs a handful of descriptors: raises the limit to what the system allows. */
void service_raise_file_limit(void);

#endif
