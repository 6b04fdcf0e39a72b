/*
 * listen: the daemon's socket in the file system.
 *
 * Main thread, at start and stop. Access is the file system's: the socket is made for its owner
 * alone (0600); a unit file's SocketMode decides for a service that is socket-activated.
 */
#ifndef HEARTH_DAEMON_CONTROL_LISTEN_H
#define HEARTH_DAEMON_CONTROL_LISTEN_H

#include <stddef.h>

/* The mode that a default path's folder is made with: 0700 for $XDG_RUNTIME_DIR/hearth, which is one
 * user's, 0755 for /run/hearth, where every user's clients and other services pass. 0: it is neither,
 * and not made. */
unsigned listen_folder_mode(const char *folder);

/* Listens at `path`, whose folder is made where it is a default path's and missing. A socket that
 * nobody listens on any more is replaced; of several daemons that do so at once one does, by a lock file
 * beside it that is there only meanwhile. Returns a non-blocking descriptor; or with one line
 * -EADDRINUSE when another daemon answers there, whose process the line names, -ENOTSOCK when something
 * else than a socket lies there, or another -errno. */
int listen_open(const char *path, char *err, size_t err_bytes);

/* Closes the listening descriptor and removes the socket at `path`, unless somebody answers there
 * still: then another daemon has taken the name since. */
void listen_close(const char *path, int listen_fd);

#endif
