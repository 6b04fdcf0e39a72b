/* raw_client: a client without the library: the handshake, then the raw shared memory. */
#ifndef HEARTH_TESTS_E2E_RAW_CLIENT_H
#define HEARTH_TESTS_E2E_RAW_CLIENT_H

#include "ipc/hello.h"
#include "ipc/segment.h"

struct raw_client {
    int socket_fd;
    int fds[HELLO_FDS];
    uint32_t daemon_pid;
    struct segment segment;
};

/* Returns 0, or -1 when it was refused (nothing is kept then). raw_open_notify() asks for a pollable
 * descriptor, too. */
int raw_open(struct raw_client *raw, const char *socket_path, uint32_t slots);
int raw_open_notify(struct raw_client *raw, const char *socket_path, uint32_t slots);
void raw_close(struct raw_client *raw);

/* Rings the daemon's bell, whether it sleeps or not. */
void raw_ring(const struct raw_client *raw);

#endif
