/* service: what a service manager hands over and wants to hear: sd_listen_fds(3), sd_notify(3). */
#ifndef HEARTH_CLIENT_HTTP_SERVICE_H
#define HEARTH_CLIENT_HTTP_SERVICE_H

/* Sends "READY=1" and the like; nothing without NOTIFY_SOCKET. Returns 0 or -errno. */
int service_notify(const char *state);

/* How many listening sockets were passed, from descriptor SERVICE_FIRST_FD on; 0: none. They are
 * made close-on-exec and non-blocking. */
int service_listen_fds(void);
enum { SERVICE_FIRST_FD = 3 };

#endif
