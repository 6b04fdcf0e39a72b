/* state: what the requests of one gateway share: configuration, the daemons that it serves, counters. On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_STATE_H
#define HEARTH_CLIENT_HTTP_STATE_H

#include "client/http/config.h"
#include "client/http/guard.h"
#include "client/http/launcher.h"
#include "client/http/reactor.h"
#include "client/http/served.h"
#include "client/http/transfer.h"

#include <stdatomic.h>

struct conn;
struct exchange;

enum {
    SERVER_LISTENERS_MAX = 16,
    SERVER_BODIES_MAX = 256 << 20,
    SERVER_BODIES_FREE = 1 << 20, /* of one request: always read */
    SERVER_VALUES_MAX = 256 << 20,
    SERVER_VALUES_FREE = 4 << 20, /* of one request: always taken */
    SERVER_CODES = 6
};

struct listener {
    struct watch watch;
    struct server *server;
};

struct counters {
    uint64_t requests, connections, responses[SERVER_CODES]; /* [status / 100] */
    uint64_t dropped;                                        /* clients that hung up on an answer */
    uint64_t prompt_tokens, cached_tokens, stored_tokens, output_tokens, prefill_ns, decode_ns;
    uint64_t seconds_ns; /* from a request's last byte to the end of its answer, summed */
    uint64_t n_seconds;
};

struct server {
    const struct http_config *config;
    struct guard guard;
    struct reactor loop;
    struct served *served; /* a list, the default daemon first */
    uint32_t n_served;
    uint64_t looked_ns;   /* CLOCK_REALTIME: when their folders were last listed; 0: never */
    struct worker parser; /* reads large bodies, whomever they are for */
    struct launcher launcher;
    struct transfers transfers;
    struct MHD_Daemon *mhd;
    struct watch mhd_watch;
    struct listener listeners[SERVER_LISTENERS_MAX];
    uint32_t n_listeners, n_connections;
    struct conn *conns; /* [n_connections] a list */
    struct exchange *exchanges;
    size_t body_bytes;         /* of all requests that are being read */
    atomic_size_t value_bytes; /* what their objects take until they end, but for small ones */
    struct counters count;
    uint64_t start_ns, last_id, id_base;
    bool wants_run, is_full, is_draining;
};

#endif
