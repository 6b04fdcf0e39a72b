/* server.h - libmicrohttpd under the loop: connections. What they ask: request.h.
 *
 * libmicrohttpd runs on the loop's thread (its epoll descriptor lies in ours). Sockets are accepted
 * here and handed to it, so that connections are bounded without losing any: while there are too
 * many, new ones wait in the kernel.
 */
#ifndef HEARTH_CLIENT_HTTP_SERVER_H
#define HEARTH_CLIENT_HTTP_SERVER_H

#include "client/http/config.h"
#include "client/http/exchange.h"
#include "client/http/guard.h"
#include "client/http/pool.h"
#include "client/http/reactor.h"

enum { SERVER_LISTENERS_MAX = 16, SERVER_BODIES_MAX = 256 << 20, SERVER_CODES = 6 };

/* Who waits, so that the loop does not. */
enum {
    WORKER_INFILL, /* its handle remembers tokens */
    WORKER_TEXT,   /* the other texts */
    WORKER_STATUS, /* what the daemon counts */
    SERVER_WORKERS
};

struct listener {
    struct watch watch;
    struct server *server;
};

struct counters {
    uint64_t requests, connections, responses[SERVER_CODES]; /* [status / 100] */
    uint64_t dropped;                                        /* clients that hung up on an answer */
    uint64_t prompt_tokens, cached_tokens, output_tokens, prefill_ns, decode_ns;
    uint64_t seconds_ns; /* from a request's last byte to the end of its answer, summed */
    uint64_t n_seconds;
};

struct server {
    const struct http_config *config;
    struct guard guard;
    struct reactor loop;
    struct gate gate;
    struct worker workers[SERVER_WORKERS];
    struct MHD_Daemon *mhd;
    struct watch mhd_watch;
    struct listener listeners[SERVER_LISTENERS_MAX];
    uint32_t n_listeners, n_connections;
    struct exchange *exchanges;
    size_t body_bytes; /* of all requests that are being read */
    struct counters count;
    uint64_t start_ns, last_id, id_base;
    bool wants_run, is_full, is_draining;
};

/* The sockets in fds[n] become the listeners (and the caller keeps owning them). Returns 0, or
 * -errno with one line in err. */
int server_open(struct server *s, const struct http_config *config, const int *fds, uint32_t n,
                char *err, size_t err_bytes);

/* One turn of the loop, at most so long (-1: without limit). */
void server_turn(struct server *s, int most_ms);

/* Takes no new connections; answers what runs, and closes each connection after that. */
void server_drain(struct server *s);

/* Is any request being answered? */
bool server_is_busy(const struct server *s);

void server_close(struct server *s);

/* The body of a request is not needed any more. */
void server_drop_body(struct exchange *x);

/* The exchange has something new to tell: its connection goes on. */
void server_wake(struct exchange *x);

#endif
