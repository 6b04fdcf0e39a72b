/* gateway: spawns a private hearth-http in front of a daemon of harness.h, and talks HTTP to it
 * with full control of the bytes. A failure in here fails the test. */
#ifndef HEARTH_TESTS_E2E_GATEWAY_H
#define HEARTH_TESTS_E2E_GATEWAY_H

#include "tests/e2e/harness.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct gateway {
    pid_t pid; /* 0: not running */
    char socket[160];
    int port; /* 0: none */
};

/* A place without a daemon, where a gateway finds what is put there: a home of folder.h. */
void gateway_make_home(struct harness *place);

/* Starts hearth-http at D's directory with more arguments (NULL-ended, or NULL), and waits until it
 * answers. with_port: also on a free port of loopback. A socket "" of D is left for it to find. */
void gateway_start(struct gateway *g, const struct harness *d, bool with_port,
                   const char *const *arguments);

/* SIGTERM, and waits. Returns the exit code. */
int gateway_stop(struct gateway *g);

/* Runs hearth-http to its end, for starts that fail. Returns its exit code. */
int gateway_run(const char *const *arguments);

/* A connection: to the Unix socket, or to the port. */
int gateway_connect(const struct gateway *g);
int gateway_connect_port(const struct gateway *g);

struct http_answer {
    int status;    /* 0: the connection ended before a status */
    char *headers; /* with the status line, and a 0 */
    char *body;    /* [bytes] and a 0, chunks put together */
    size_t bytes;
    bool is_whole; /* the body ended properly, not with the connection */
};

/* Sends a request: body NULL for none, headers "" or lines that end in \r\n. */
void http_send(int fd, const char *method, const char *path, const char *headers, const char *body);
/* Reads one answer. */
struct http_answer http_receive(int fd);
/* Both, on a connection of its own to the Unix socket. body NULL: a GET. */
struct http_answer http_ask(const struct gateway *g, const char *path, const char *body);
void http_answer_fini(struct http_answer *a);

/* The same, which must be JSON with this status. The caller owns it. */
json_t *http_json(const struct gateway *g, const char *path, const char *body, int status);

/* The server-sent events of a body, as an array of their JSON; "[DONE]" as a string. An event with a
 * name has that as its type. */
json_t *http_events(const struct http_answer *a);

/* The events of a request's streamed response, which must be complete. */
json_t *http_stream(const struct gateway *g, const char *path, const char *body);
/* The last element of an array, or the one `back` before it. Borrowed. */
json_t *json_last(json_t *events, size_t back);
/* The texts of all events at this path, joined. The caller frees. */
char *json_joined(json_t *events, const char *path);

/* o.a.b[0] by the path "a/b/0"; NULL when missing. Borrowed. */
json_t *json_at(json_t *o, const char *path);
const char *json_text(json_t *o, const char *path); /* fails the test unless it is a string */
json_int_t json_number(json_t *o, const char *path);

/* Waits until a number of /metrics has this value. */
void gateway_wait_metric(const struct gateway *g, const char *name, long value);

#endif
