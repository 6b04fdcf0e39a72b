/* listen: the sockets that clients connect to: a Unix socket, a port of loopback, or what a
 * service manager passed. */
#ifndef HEARTH_CLIENT_HTTP_LISTEN_H
#define HEARTH_CLIENT_HTTP_LISTEN_H

#include <stddef.h>
#include <stdint.h>

/* Where clients look: $XDG_RUNTIME_DIR/hearth/http.sock, else /run/hearth/http.sock. */
void listen_default_path(char *path, size_t path_bytes);

/* Listens at `path`, mode 0600; makes the default path's directory, no other, and replaces a socket
 * without a listener. Returns a descriptor, or -errno (-ENOTSOCK: something else lies there) with
 * one line in err. */
int listen_unix(const char *path, char *err, size_t err_bytes);

/* Closes it, and removes the path where it is still ours. */
void listen_unix_close(const char *path, int fd);

/* Listens on a port of "127.0.0.1" or "::1". As listen_unix. */
int listen_loopback(const char *address, uint16_t port, char *err, size_t err_bytes);

/* Is the socket (of a service manager) one that only this machine reaches? Returns 0 or -EINVAL
 * with one line in err. */
int listen_check(int fd, char *err, size_t err_bytes);

#endif
