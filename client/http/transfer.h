/* transfer: requests that are passed on to upstreams (upstream.h), by libcurl, on the gateway's loop.
 *
 * The body goes as it came, to the same path; of the caller's headers none does, the key of the
 * upstream's entry alone. A stream of events comes back as it arrives, unread above what the client has
 * not taken yet; anything else whole. Redirects are not followed. What goes wrong is one line, without
 * the URL or the key.
 *
 * On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_TRANSFER_H
#define HEARTH_CLIENT_HTTP_TRANSFER_H

#include "client/http/curl_api.h"
#include "client/http/fail.h"
#include "client/http/reactor.h"
#include "client/http/upstream.h"

#include <stdbool.h>

struct exchange;
struct http_config;
struct server;

enum {
    TRANSFER_CONNECT_MS = 5000,
    TRANSFERS_MAX = 64,             /* to one upstream at once */
    TRANSFER_BYTES = 64 << 20,      /* of an answer that is not a stream */
    TRANSFERS_BYTES = 256 << 20,    /* of all of them at once */
    TRANSFER_HEAD_BYTES = 256 << 10 /* of an answer's headers and trailers */
};

struct transfer {
    struct exchange *x; /* NULL: its client left while the upstream's name was looked up */
    struct upstream *to;
    CURL *easy;
    struct curl_slist *headers;
    uint64_t n_turns; /* of libcurl when it was added: nothing of it has begun before the next */
    struct transfer *next, **link;
    const char *type;  /* of the answer, in our words; NULL: another one */
    const char *wrong; /* why it is not read on, or NULL */
    unsigned wrong_status;
    size_t head_bytes; /* of its headers and trailers */
    uint64_t heard_ns; /* when something of it came, before: when the request went out */
    bool has_begun, is_stream, is_paused;
};

struct transfers {
    struct curl_api curl;
    CURLM *multi; /* NULL without upstreams */
    struct reactor *loop;
    const struct http_config *config; /* limits of time, certificates */
    struct watch timer;               /* libcurl's */
    struct watch tick;                /* for limits of time, while there are transfers */
    struct transfer *all;             /* a list */
    uint64_t n_turns;                 /* how often libcurl was called to go on */
    size_t bytes;                     /* of answers that are not streams, until they are sent */
};

/* Returns 0, or -errno with one line. */
int transfers_open(struct transfers *t, struct reactor *loop, const struct http_config *config,
                   char *err, size_t err_bytes);
void transfers_close(struct transfers *t);

/* Sends x->body to the upstream's path; exchange_fail() and the like end it. x->transfer is set until
 * transfer_end(). Returns 0, or -1 with *f. */
int transfer_send(struct transfers *t, struct exchange *x, struct upstream *to, const char *path,
                  struct fail *f);

/* The client took bytes: reads on, where that was paused. */
void transfer_taken(struct transfers *t, struct transfer *one);

/* Its client left: ends it, at once or when the upstream's name is found, and frees it. */
void transfer_leave(struct transfers *t, struct transfer *one);

/* Ends it, finished or not, and frees it. */
void transfer_end(struct transfers *t, struct transfer *one);

#endif
