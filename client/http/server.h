/* server: libmicrohttpd under the loop: connections. Their requests: request.h.
 *
 * libmicrohttpd runs on the loop's thread (its epoll descriptor lies in ours). Sockets are accepted
 * here and handed to it, so that connections are bounded without losing any: while there are too
 * many, new ones wait in the kernel. */
#ifndef HEARTH_CLIENT_HTTP_SERVER_H
#define HEARTH_CLIENT_HTTP_SERVER_H

#include "client/http/state.h"

/* The sockets in fds[n] become the listeners (and the caller keeps owning them). Returns 0, or
 * -errno with one line in err. */
int server_open(struct server *s, const struct http_config *config, const int *fds, uint32_t n,
                char *err, size_t err_bytes);

/* One turn of the loop, of at most most_ms (-1: without limit). */
void server_turn(struct server *s, int most_ms);

/* Takes no new connections; answers what runs, and closes each connection after that. */
void server_drain(struct server *s);

/* Is any request being answered? */
bool server_is_busy(const struct server *s);

void server_close(struct server *s);

#endif
