/*
 * listen: the daemon's socket in the file system.
 *
 * Main thread, at start and stop. Access is the file system's: the socket is made for its owner
 * alone (0600); a unit file's SocketMode decides for a service that is socket-activated.
 */
#ifndef HEARTH_DAEMON_LISTEN_H
#define HEARTH_DAEMON_LISTEN_H

#include <stddef.h>

/* Listens at `path`, whose directory is made (0700) where only it is missing. A socket that nobody
 * listens on any more is replaced. Returns a non-blocking descriptor; or with one line -EADDRINUSE
 * when another daemon answers there, or another -errno. */
int listen_open(const char *path, char *err, size_t err_bytes);

/* Closes the listening descriptor and removes the socket at `path`, unless somebody answers there
 * still: then another daemon has taken the name since. */
void listen_close(const char *path, int listen_fd);

#endif
