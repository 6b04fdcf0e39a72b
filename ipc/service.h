/* service.h: reports our state to the service manager (sd_notify(3)'s protocol: a datagram to
 * $NOTIFY_SOCKET), and takes over a listening socket that it opened ($LISTEN_FDS,
 * sd_listen_fds(3)).
 *
 * Any thread. Outside of systemd every call does nothing. Written here rather than linked: the
 * protocol is one sendto(2), and libsystemd would be the daemon's largest dependency.
 */
#ifndef HEARTH_IPC_SERVICE_H
#define HEARTH_IPC_SERVICE_H

#include <stddef.h>
#include <stdint.h>

/* Sends e.g. "READY=1\nSTATUS=serving". Returns 0, also without a service manager; -errno when
 * sending failed. */
int notify_send(const char *state);

/* How often WATCHDOG=1 is expected; 0: never. Half of $WATCHDOG_USEC, as the manual recommends. */
uint64_t notify_watchdog_ns(void);

/* Returns the socket passed by the service manager, with CLOEXEC set; -ENOENT: it passed none.
 * -ENOTSOCK with one line: clients could not reach us at what it passed. */
int notify_listen_fd(char *err, size_t err_bytes);

#endif
