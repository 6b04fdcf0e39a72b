/* handshake.h: answers HELLO: which clients are let in, and with what. Control thread only. */
#ifndef HEARTH_DAEMON_CONTROL_HANDSHAKE_H
#define HEARTH_DAEMON_CONTROL_HANDSHAKE_H

#include "daemon/control/clients.h"

/* Makes room for one more connection of this user. When full, refuses the newest of those that are
 * not let in yet, silent or waiting for a slot, of the user with the most of them if the new user
 * has fewer, so that they cannot keep others out. False: no room. */
bool handshake_room(struct control *control, const struct control_user *user);

/* Handles a HELLO: lets the client in, refuses and frees it, or lets it wait. */
void handshake_hello(struct control *control, struct client *client, const void *message,
                     size_t bytes);

/* Call after a client has left: clients that wait for its slots or its name are looked at again. */
void handshake_retry(struct control *control);

/* Sends the client one line that says why it is refused, and frees it. */
void handshake_refuse(struct control *control, struct client *client, int code, const char *line);

#endif
