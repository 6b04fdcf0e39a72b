/* server: see server.h. */
#include "client/http/server.h"

#include "client/http/request.h"
#include "client/http/routes.h"
#include "ipc/bell.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    CONNECTION_BYTES = 32768, /* what libmicrohttpd reads at once, and keeps of headers */
    ACCEPTS_AT_ONCE = 16,
    ACCEPT_AGAIN_MS = 500, /* after the system had no descriptor or memory for a connection */
    GIVES_WAY_MS = 1000,   /* how long a request may take to arrive while others wait to connect */
    HUNG_UP_S = 1          /* how long to keep a half-received request after the peer hung up */
};

/* ---- connections ----------------------------------------------------------------------------- */

static void on_hang_up(struct watch *w, uint32_t events)
{
    struct conn *c = (struct conn *)w; /* its first member */
    (void)events;
    c->hung_up = true;
    reactor_unwatch(&c->server->loop, w);
    if (c->x && c->x->is_started)
        exchange_hang_up(c->x);
    else /* libmicrohttpd may miss the end after the last bytes of a long body, and wait */
        MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)HUNG_UP_S);
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
        c = calloc(1, sizeof(*c));
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
        c->mhd = mhd;
        c->watch = (struct watch){.fd = fd->connect_fd, .on = on_hang_up};
        c->is_tcp = from->client_addr->sa_family != AF_UNIX;
        c->since_ns = bell_now_ns();
        c->next = s->conns;
        c->link = &s->conns;
        if (c->next)
            c->next->link = &c->next;
        s->conns = c;
        (void)reactor_watch(&s->loop, &c->watch, EPOLLRDHUP);
        return;
    }
    s->n_connections--;
    if (c) {
        *c->link = c->next;
        if (c->next)
            c->next->link = c->link;
        if (!c->hung_up)
            reactor_unwatch(&s->loop, &c->watch);
    }
    free(c);
    *socket_context = NULL;
    if (s->is_full)
        listen_on(s, true);
}

static bool accept_one(struct server *s, int listen_fd)
{
    struct sockaddr_storage from = {0};
    socklen_t bytes = sizeof(from);
    int on = 1;
    int fd = accept4(listen_fd, (struct sockaddr *)&from, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            listen_on(s, false); /* until a connection ends, or for a while: server_turn */
        return false;
    }
    if (from.ss_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
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

/* Is something there that was not read? Then the request may be whole, and this thread be late. */
static bool is_unread(const struct conn *c)
{
    char byte;
    return recv(c->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* While connections wait to be accepted, ends the one that has gone longest without a whole
 * request, after a second: else half-open and idle ones would keep the others out for --timeout.
 * One with something unread gets another second, once. Returns the milliseconds until the next is due; -1: no connection waits, or all have requests. */
static int make_room(struct server *s)
{
    struct conn *oldest = NULL;
    if (!s->is_full || s->is_draining || s->n_connections < s->config->connections)
        return -1;
    for (struct conn *c = s->conns; c; c = c->next)
        if (!c->hung_up && !(c->x && c->x->is_started) &&
            (!oldest || c->since_ns < oldest->since_ns))
            oldest = c;
    if (!oldest)
        return -1;
    uint64_t ms = (bell_now_ns() - oldest->since_ns) / 1000000;
    if (ms < GIVES_WAY_MS)
        return (int)(GIVES_WAY_MS - ms);
    if (!oldest->is_spared && is_unread(oldest)) {
        oldest->is_spared = true;
        oldest->since_ns = bell_now_ns();
    } else {
        shutdown(oldest->watch.fd, SHUT_RDWR); /* on_hang_up */
    }
    return GIVES_WAY_MS;
}

/* ---- open, turn, close ----------------------------------------------------------------------- */

static void on_mhd(struct watch *w, uint32_t events)
{
    (void)events;
    struct server *s = (struct server *)((char *)w - offsetof(struct server, mhd_watch));
    s->wants_run = true;
}

static void be_quiet(void *cls, const char *format, va_list args)
{
    (void)cls, (void)format,
        (void)args; /* clients' mistakes go into their answers, not into the log */
}

static int start_mhd(struct server *s, char *err, size_t err_bytes)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET |
                     MHD_USE_TURBO | MHD_USE_ERROR_LOG;
    s->mhd = MHD_start_daemon(
        flags, 0, NULL, NULL, request_on, s, MHD_OPTION_EXTERNAL_LOGGER, be_quiet, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, request_on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, s, MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->config->connections,
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

int server_open(struct server *s, const struct http_config *config, const int *fds, uint32_t n,
                char *err, size_t err_bytes)
{
    s->config = config;
    s->start_ns = bell_now_ns();
    if (getrandom(&s->id_base, sizeof(s->id_base), 0) < 0)
        s->id_base = s->start_ns;
    for (size_t i = 0; i < config->api_keys.n; i++)
        s->guard.keys[s->guard.n_keys++] = config->api_keys.items[i];
    for (size_t i = 0; i < config->origins.n; i++)
        s->guard.origins[s->guard.n_origins++] = config->origins.items[i];
    for (size_t i = 0; i < config->hosts.n; i++)
        s->guard.hosts[s->guard.n_hosts++] = config->hosts.items[i];
    int rc = reactor_open(&s->loop);
    if (!rc)
        rc = start_mhd(s, err, err_bytes);
    if (!rc)
        rc = worker_open(&s->parser, &s->loop, NULL);
    if (!rc)
        rc = served_open(s);
    if (!rc && config->upstreams)
        rc = transfers_open(&s->transfers, &s->loop, config, err, err_bytes);
    if (!rc)
        rc = launcher_open(s, err, err_bytes);
    for (uint32_t i = 0; i < n && !rc; i++) {
        struct listener *l = &s->listeners[s->n_listeners++];
        *l = (struct listener){.watch = {.fd = fds[i], .on = on_connect}, .server = s};
        rc = reactor_watch(&s->loop, &l->watch, EPOLLIN);
    }
    if (rc && !*err)
        snprintf(err, err_bytes, "cannot start: %s", strerror(-rc));
    return rc;
}

/* Do connections wait because descriptors ran out, not because of --connections? */
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
    int room_ms = make_room(s);
    if (room_ms >= 0 && (timeout < 0 || timeout > room_ms))
        timeout = room_ms;
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
    worker_close(&s->parser);
    launcher_close(s);
    transfers_close(&s->transfers);
    served_close(s);
    reactor_close(&s->loop);
}
