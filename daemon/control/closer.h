/* closer.h: closes the sockets that a client can put descriptors into.
 *
 * hearth's clients pass no descriptors, but any process can (SCM_RIGHTS), and the thread that takes
 * or drops such a packet closes the file in it, which can take for ever: a TCP socket with SO_LINGER
 * and unsent data, a file of a FUSE server that does not answer. So
 *   - where the kernel can, our sockets take no descriptors (SO_PASSRIGHTS off, Linux 6.16);
 *   - elsewhere, and for a client that connected to a manager's socket before we ran, a packet with
 *     descriptors is never received (hello_recv), and a socket in which one waits is emptied and
 *     closed by a thread that may hang alone: at most CLOSER_THREADS, none while there is no such
 *     socket. Its user gets no further connection until it is closed.
 *
 * Control thread. The sockets and threads are the process's: they may outlive control_run(). */
#ifndef HEARTH_DAEMON_CONTROL_CLOSER_H
#define HEARTH_DAEMON_CONTROL_CLOSER_H

#include <stdbool.h>
#include <sys/types.h>

enum { CLOSER_THREADS = 4 };

/* Refuses descriptors on this socket where the kernel can; connections to a listening one inherit
 * that. Does nothing when HEARTH_TEST_PASSRIGHTS is set, so that tests reach the threads. */
void closer_refuse(int socket_fd);

/* Shuts down and closes a socket of this user's client, without waiting. */
void closer_close(int socket_fd, uid_t uid);

/* True while a socket of this user is not closed yet because of what is in it. */
bool closer_holds(uid_t uid);

#endif
