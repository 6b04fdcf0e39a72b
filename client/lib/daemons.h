/* daemons: the sockets of the daemons that a user may connect to, by the model that each serves.
 *
 * Daemons listen in $XDG_RUNTIME_DIR/hearth and in /run/hearth. A daemon for the model NAME has the
 * socket DAEMON.sock there, where DAEMON is NAME as daemons_instance writes it; the default daemon
 * has hearth.sock. Any thread. Never prints. */
#ifndef HEARTH_CLIENT_LIB_DAEMONS_H
#define HEARTH_CLIENT_LIB_DAEMONS_H

#include "ipc/hello.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DAEMONS_NAME_BYTES = 64 };

/* The name of a model as that of a socket, a unit, a file: letters, digits, '.', '_' and '-' stay,
 * what is between becomes '-'. One that is longer, has other letters than ASCII's, or none, ends
 * with a hash of all of it; one that is hearth's own, such as hearthd, has "-model" behind it. */
void daemons_instance(const char *model, char ret[DAEMONS_NAME_BYTES]);

/* The folder of this user's daemons. Returns 0, or -ENOENT where XDG_RUNTIME_DIR is not set. */
int daemons_folder(char ret[HELLO_PATH_BYTES]);

struct daemon_socket {
    char instance[DAEMONS_NAME_BYTES];
    char path[HELLO_PATH_BYTES];
    bool is_open;    /* by daemons_look: a program listens there, hearthd or the service manager */
    bool is_running; /* by daemons_look: hearthd does */
};

struct daemons {
    struct daemon_socket *sockets; /* [n], this user's first, by name; free it */
    size_t n;
};

/* Lists the sockets: whether a daemon listens there is not looked at. Returns 0 or -ENOMEM. */
int daemons_list(struct daemons *ret);

/* When one of the folders last changed [ns, CLOCK_REALTIME]: sockets come and go at no other time. 0
 * if no folder exists. */
uint64_t daemons_changed_ns(void);

/* Finds out at which of them a daemon listens, from /proc: to connect would start one where the
 * service manager listens in its place. A daemon of another user is known by its unit alone. */
void daemons_look(struct daemons *daemons);

/* Marks the machine's daemon whose unit a line of /proc/PID/cgroup names: hearthd.service, hearth@NAME.service. */
void daemons_mark_unit(struct daemons *daemons, const char *cgroup);

#endif
