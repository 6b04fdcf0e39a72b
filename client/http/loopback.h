/* loopback: ports that only this machine reaches. */
#ifndef HEARTH_CLIENT_HTTP_LOOPBACK_H
#define HEARTH_CLIENT_HTTP_LOOPBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Listens on a port of "127.0.0.1" or "::1". Returns a descriptor, or -errno with one line. */
int loopback_open(const char *address, uint16_t port, char *err, size_t err_bytes);

/* Checks that only this machine reaches a socket that was passed: a path, or loopback. Returns 0,
 * or -EINVAL with one line. */
int loopback_check(int fd, char *err, size_t err_bytes);

/* Is it a socket of TCP? */
bool loopback_is_tcp(int fd);

#endif
