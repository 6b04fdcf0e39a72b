/* server.c - see server.h. */
#include "client/http/server.h"

#include "client/http/routes.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTION_BYTES = 65536, /* what libmicrohttpd reads at once, and keeps of headers */
    BLOCK_BYTES = 16384,      /* and takes of a stream at once */
    ACCEPTS_AT_ONCE = 16,
    ACCEPT_AGAIN_MS = 500, /* after the system had no descriptor or memory for a connection */
    DISCARD_TIMES = 16     /* so much of a body that is too large is read, to tell its sender */
};

/* A connection. libmicrohttpd keeps the pointer. */
struct conn {
    struct watch watch; /* of its hang-up */
    struct server *server;
    struct exchange *x; /* what it is about now */
    bool is_tcp, hung_up;
};

void server_wake(struct exchange *x)
{
    if (!x->is_suspended)
        return;
    x->is_suspended = false;
    x->server->wants_run = true;
    MHD_resume_connection(x->mhd);
}

void server_drop_body(struct exchange *x)
{
    x->server->body_bytes -= x->body_counted;
    x->body_counted = 0;
    text_fini(&x->body);
}

static void suspend(struct exchange *x)
{
    x->is_suspended = true;
    MHD_suspend_connection(x->mhd);
}

/* ---- responses ------------------------------------------------------------------------------- */

static ssize_t read_stream(void *cls, uint64_t at, char *to, size_t max)
{
    struct exchange *x = cls;
    (void)at;
    if (x->is_gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = x->out.n < max ? x->out.n : max;
    if (n) {
        memcpy(to, x->out.bytes, n);
        text_drop(&x->out, n);
        exchange_taken(x);
        return (ssize_t)n;
    }
    if (x->is_finished)
        return MHD_CONTENT_READER_END_OF_STREAM;
    suspend(x);
    return 0;
}

static struct MHD_Response *make_response(struct exchange *x)
{
    if (x->is_streaming)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, x,
                                                 NULL);
    char *bytes = x->out.bytes;
    size_t n = x->out.n;
    if (!bytes)
        return MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    x->out = (struct text){0};
    struct MHD_Response *r = MHD_create_response_from_buffer(n, bytes, MHD_RESPMEM_MUST_FREE);
    if (!r)
        free(bytes);
    return r;
}

static void add_headers(struct exchange *x, struct MHD_Response *r)
{
    const char *origin = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Origin");
    MHD_add_response_header(r, "Content-Type", x->content_type);
    if (x->is_streaming)
        MHD_add_response_header(r, "Cache-Control", "no-cache");
    if (x->status == 503)
        MHD_add_response_header(r, "Retry-After", "1");
    if (x->status == 401)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (x->status == 405 && x->route)
        MHD_add_response_header(r, "Allow", route_method(x->route));
    if (origin && guard_origin(&x->server->guard, origin)) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
        MHD_add_response_header(r, "Vary", "Origin");
    }
    if (x->status == 204) {
        MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        MHD_add_response_header(r, "Access-Control-Allow-Headers",
                                "Content-Type, Authorization, X-Api-Key");
    }
    if (x->server->is_draining)
        MHD_add_response_header(r, "Connection", "close");
}

static enum MHD_Result respond(struct exchange *x)
{
    struct server *s = x->server;
    struct MHD_Response *r = make_response(x);
    if (!r)
        return MHD_NO;
    add_headers(x, r);
    if (x->status / 100 < SERVER_CODES)
        s->count.responses[x->status / 100]++;
    enum MHD_Result rc = MHD_queue_response(x->mhd, x->status, r);
    MHD_destroy_response(r);
    return rc;
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct conn *conn_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static bool is_preflight(const struct exchange *x, const char *method)
{
    return strcmp(method, "OPTIONS") == 0 &&
           MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Origin");
}

/* Who may not ask is told so before a body is read. A browser's preflight never has a key: it asks
 * whether one may be sent. */
static void check_sender(struct exchange *x, const struct conn *c, const char *path,
                         const char *method)
{
    const struct guard *g = &x->server->guard;
    const char *host = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Host");
    const char *origin = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Origin");
    const char *auth = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Authorization");
    const char *key = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "X-Api-Key");
    if (c->is_tcp && !guard_host(host))
        fail_set(&x->fail, 403, FAIL_PERMISSION,
                 "Host '%.100s' is not this machine: use localhost or 127.0.0.1 in the URL", host);
    else if (c->is_tcp && origin && !guard_origin(g, origin))
        fail_set(&x->fail, 403, FAIL_PERMISSION,
                 "pages of '%.100s' may not ask: start hearth-http with --cors-origin %.100s",
                 origin, origin);
    else if (!route_is_open(x->route) && !is_preflight(x, method) && !guard_key(g, auth, key))
        fail_set(&x->fail, 401, FAIL_AUTHENTICATION,
                 "Invalid API Key: send 'Authorization: Bearer KEY' with a key of hearth-http");
    else if (!x->route)
        fail_set(&x->fail, 404, FAIL_NOT_FOUND, "no such path: %.200s", path);
}

static struct exchange *exchange_open(struct server *s, struct MHD_Connection *mhd)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->server = s;
    x->mhd = mhd;
    x->next = s->exchanges;
    x->link = &s->exchanges;
    if (x->next)
        x->next->link = &x->next;
    s->exchanges = x;
    s->count.requests++;
    return x;
}

/* Headers are there. */
static enum MHD_Result begin(struct server *s, struct MHD_Connection *mhd, const char *path,
                             const char *method, void **ret_x)
{
    struct conn *c = conn_of(mhd);
    struct exchange *x = c ? exchange_open(s, mhd) : NULL;
    if (!x)
        return MHD_NO;
    *ret_x = c->x = x;
    x->route = route_find(path, x->path_rest, sizeof x->path_rest);
    check_sender(x, c, path, method);
    if (!x->fail.status && is_preflight(x, method))
        x->status = 204;
    else if (!x->fail.status && !route_takes(x->route, method))
        fail_set(&x->fail, 405, FAIL_INVALID, "%.100s wants %s, not %.20s", path,
                 route_method(x->route), method);
    const char *length = MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, "Content-Length");
    const char *expect = MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, "Expect");
    if (!x->fail.status && length && strtoull(length, NULL, 10) > s->config->max_body)
        fail_set(&x->fail, 413, FAIL_INVALID,
                 "the request has %.20s bytes, at most %u are taken: start hearth-http with a "
                 "larger --max-body",
                 length, s->config->max_body);
    if (x->fail.status && expect) { /* its sender waits for a word before it sends the body */
        x->is_started = true;
        exchange_fail(x, &x->fail);
        return respond(x);
    }
    return MHD_YES;
}

/* More of the body. What is refused anyway is read and forgotten, so that its sender reads why. */
static enum MHD_Result take_body(struct exchange *x, const char *data, size_t n)
{
    struct server *s = x->server;
    if (!x->fail.status && x->body.n + n > s->config->max_body)
        fail_set(&x->fail, 413, FAIL_INVALID,
                 "the request has more than %u bytes: start hearth-http with a larger --max-body",
                 s->config->max_body);
    else if (!x->fail.status && s->body_bytes + n > SERVER_BODIES_MAX)
        fail_set(&x->fail, 503, FAIL_UNAVAILABLE,
                 "other requests take all memory for bodies: try again in a moment");
    if (x->fail.status) {
        x->discarded += n;
        return x->discarded / DISCARD_TIMES > s->config->max_body ? MHD_NO : MHD_YES;
    }
    text_add(&x->body, data, n);
    s->body_bytes += n;
    x->body_counted += n;
    return x->body.failed ? MHD_NO : MHD_YES;
}

/* The whole request is there, for the first time. */
static void start(struct exchange *x)
{
    x->is_started = true;
    x->start_ns = reactor_now_ns();
    if (x->fail.status)
        exchange_fail(x, &x->fail);
    else if (x->status == 204) {
        x->content_type = "text/plain";
        x->is_ready = true;
    } else
        route_answer(x);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_bytes, void **con_cls)
{
    struct exchange *x = *con_cls;
    (void)version;
    if (!x)
        return begin(cls, mhd, url, method, con_cls);
    if (*data_bytes) {
        size_t n = *data_bytes;
        *data_bytes = 0;
        return take_body(x, data, n);
    }
    if (!x->is_started) {
        x->is_gone = conn_of(mhd)->hung_up;
        if (!x->is_gone)
            start(x);
    }
    if (x->is_gone)
        return MHD_NO;
    if (x->is_ready || x->is_streaming)
        return respond(x);
    suspend(x);
    return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                         enum MHD_RequestTerminationCode code)
{
    struct server *s = cls;
    struct exchange *x = *con_cls;
    if (!x)
        return;
    *con_cls = NULL;
    struct conn *c = conn_of(mhd);
    if (c)
        c->x = NULL;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        exchange_hang_up(x);
    if (x->start_ns) {
        s->count.seconds_ns += reactor_now_ns() - x->start_ns;
        s->count.n_seconds++;
    }
    s->body_bytes -= x->body_counted;
    x->body_counted = 0;
    *x->link = x->next;
    if (x->next)
        x->next->link = x->link;
    exchange_close(x);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void on_hang_up(struct watch *w, uint32_t events)
{
    struct conn *c = (struct conn *)w; /* its first member */
    (void)events;
    c->hung_up = true;
    reactor_unwatch(&c->server->loop, w);
    if (c->x && c->x->is_started)
        exchange_hang_up(c->x);
}

static void listen_on(struct server *s, bool on)
{
    s->is_full = !on;
    for (uint32_t i = 0; i < s->n_listeners; i++)
        reactor_change(&s->loop, &s->listeners[i].watch, on && !s->is_draining ? EPOLLIN : 0);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct server *s = cls;
    struct conn *c = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        c = calloc(1, sizeof *c);
        s->n_connections++;
        s->count.connections++;
        *socket_context = c;
        if (!c)
            return;
        const union MHD_ConnectionInfo *fd =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        const union MHD_ConnectionInfo *from =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        c->server = s;
        c->watch = (struct watch){.fd = fd->connect_fd, .on = on_hang_up};
        c->is_tcp = from->client_addr->sa_family != AF_UNIX;
        (void)reactor_watch(&s->loop, &c->watch, EPOLLRDHUP);
        return;
    }
    s->n_connections--;
    if (c && !c->hung_up)
        reactor_unwatch(&s->loop, &c->watch);
    free(c);
    *socket_context = NULL;
    if (s->is_full)
        listen_on(s, true);
}

static bool accept_one(struct server *s, int listen_fd)
{
    struct sockaddr_storage from = {0};
    socklen_t bytes = sizeof from;
    int on = 1;
    int fd = accept4(listen_fd, (struct sockaddr *)&from, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            listen_on(s, false); /* until a connection ends, or for a while: server_turn */
        return false;
    }
    if (from.ss_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    s->wants_run = true;
    return MHD_add_connection(s->mhd, fd, (const struct sockaddr *)&from, bytes) == MHD_YES;
}

static void on_connect(struct watch *w, uint32_t events)
{
    struct listener *l = (struct listener *)w; /* its first member */
    struct server *s = l->server;
    (void)events;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        if (s->n_connections >= s->config->connections) {
            listen_on(s, false);
            return;
        }
        if (!accept_one(s, w->fd))
            return;
    }
}

/* ---- open, turn, close ----------------------------------------------------------------------- */

static void on_mhd(struct watch *w, uint32_t events)
{
    (void)events;
    struct server *s = (struct server *)((char *)w - offsetof(struct server, mhd_watch));
    s->wants_run = true;
}

static void on_gate_connect(void *owner, const struct fail *why)
{
    struct server *s = owner;
    for (struct exchange *x = s->exchanges, *next; x; x = next) {
        next = x->next;
        if (x->waits_for_connect)
            route_connected(x, why);
    }
}

static void be_quiet(void *cls, const char *format, va_list args)
{
    (void)cls, (void)format, (void)args; /* what clients do wrong is told to them, not to the log */
}

static int start_mhd(struct server *s, char *err, size_t err_bytes)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET |
                     MHD_USE_TURBO | MHD_USE_ERROR_LOG;
    s->mhd = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, be_quiet, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        s, MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->config->connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->config->timeout,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_END);
    const union MHD_DaemonInfo *fd =
        s->mhd ? MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!fd) {
        snprintf(err, err_bytes, "libmicrohttpd does not start: raise the limit of open files");
        return -EMFILE;
    }
    s->mhd_watch = (struct watch){.fd = fd->epoll_fd, .on = on_mhd};
    return reactor_watch(&s->loop, &s->mhd_watch, EPOLLIN);
}

static void start_gate(struct server *s)
{
    s->gate.loop = &s->loop;
    s->gate.path = s->config->daemon;
    s->gate.n_slots = s->config->slots;
    s->gate.queue_max = s->config->queue;
    s->gate.resume_ms = (int)s->config->resume_ms;
    s->gate.on_connect = on_gate_connect;
    s->gate.owner = s;
    gate_open(&s->gate);
}

int server_open(struct server *s, const struct http_config *config, const int *fds, uint32_t n,
                char *err, size_t err_bytes)
{
    s->config = config;
    s->start_ns = reactor_now_ns();
    if (getrandom(&s->id_base, sizeof s->id_base, 0) < 0)
        s->id_base = s->start_ns;
    for (size_t i = 0; i < config->api_keys.n; i++)
        s->guard.keys[s->guard.n_keys++] = config->api_keys.items[i];
    for (size_t i = 0; i < config->origins.n; i++)
        s->guard.origins[s->guard.n_origins++] = config->origins.items[i];
    int rc = reactor_open(&s->loop);
    if (!rc)
        rc = start_mhd(s, err, err_bytes);
    for (int i = 0; i < SERVER_WORKERS && !rc; i++)
        rc = worker_open(&s->workers[i], &s->loop, config->daemon);
    if (!rc)
        start_gate(s);
    for (uint32_t i = 0; i < n && !rc; i++) {
        struct listener *l = &s->listeners[s->n_listeners++];
        *l = (struct listener){.watch = {.fd = fds[i], .on = on_connect}, .server = s};
        rc = reactor_watch(&s->loop, &l->watch, EPOLLIN);
    }
    if (rc && !*err)
        snprintf(err, err_bytes, "cannot start: %s", strerror(-rc));
    return rc;
}

/* Were connections left to wait for want of a descriptor, not because there are too many? */
static bool is_short(const struct server *s)
{
    return s->is_full && !s->is_draining && s->n_connections < s->config->connections;
}

void server_turn(struct server *s, int most_ms)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    bool was_short = is_short(s);
    int timeout =
        was_short && (most_ms < 0 || most_ms > ACCEPT_AGAIN_MS) ? ACCEPT_AGAIN_MS : most_ms;
    if (s->wants_run)
        timeout = 0;
    else if (MHD_get_timeout(s->mhd, &ms) == MHD_YES && (timeout < 0 || ms < (unsigned)timeout))
        timeout = ms > 60000 ? 60000 : (int)ms;
    reactor_turn(&s->loop, timeout);
    if (was_short)
        listen_on(s, true);
    if (s->wants_run || timeout >= 0) {
        s->wants_run = false;
        (void)MHD_run_wait(s->mhd, 0);
    }
}

void server_drain(struct server *s)
{
    s->is_draining = true;
    listen_on(s, true);
}

bool server_is_busy(const struct server *s)
{
    return s->exchanges != NULL;
}

void server_close(struct server *s)
{
    for (struct exchange *x = s->exchanges, *next; x; x = next) {
        next = x->next;
        exchange_hang_up(x);
    }
    if (s->mhd) {
        (void)MHD_run_wait(s->mhd, 0); /* it must not end with suspended connections */
        MHD_stop_daemon(s->mhd);
    }
    for (int i = 0; i < SERVER_WORKERS; i++)
        worker_close(&s->workers[i]);
    if (s->gate.n_slots)
        gate_close(&s->gate);
    reactor_close(&s->loop);
}
