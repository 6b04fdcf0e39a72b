/* listen.h: a program's Unix socket in the file system.
 *
 * Main thread, at start and stop. Access is controlled by the file system: the socket is made for
 * its owner alone (0600); if a service is socket-activated, SocketMode in its unit file decides. */
#ifndef HEARTH_IPC_LISTEN_H
#define HEARTH_IPC_LISTEN_H

#include <stddef.h>

/* The mode with which the folder of a default path is made: 0700 for $XDG_RUNTIME_DIR/hearth, which
 * belongs to one user, 0755 for /run/hearth, which clients of every user and other services use. 0:
 * neither, and not made. */
unsigned listen_folder_mode(const char *folder);

/* Listens at `path` for connections of this type (SOCK_SEQPACKET, SOCK_STREAM); makes its folder if
 * it belongs to a default path and is missing. Replaces a socket that no process listens on any
 * more. Of several programs that try at the same time one succeeds: they take a lock file beside
 * the socket, which exists only meanwhile. Returns a non-blocking descriptor; or with one line,
 * which advises to give another `option`, -EADDRINUSE when another program answers there (the line
 * names its process), -ENOTSOCK when the path is not a socket, or another -errno. */
int listen_open(const char *path, int type, const char *option, char *err, size_t err_bytes);

/* Ends listening and removes the socket at `path`, unless a process still answers there: then
 * another program has taken the name since. The descriptor stays open. */
void listen_close(const char *path, int type, int listen_fd);

#endif
