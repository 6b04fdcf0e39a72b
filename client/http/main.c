/* main: hearth-http: starts, turns the loop, ends. */
#include "client/http/config.h"
#include "client/http/loopback.h"
#include "client/http/say.h"
#include "client/http/server.h"
#include "ipc/bell.h"
#include "ipc/listen.h"
#include "ipc/service.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

struct gateway {
    struct http_config config;
    struct server server;
    struct watch signals;
    int fds[SERVER_LISTENERS_MAX]; /* [n_fds] listening */
    uint32_t n_fds;
    char urls[80];   /* of the loopback ports among them; "": none */
    char path[128];  /* of our own Unix socket, fds[0]; "": none */
    uint64_t end_ns; /* when running requests are given up; 0: not asked to end */
};

static void say_where(const struct gateway *g)
{
    char text[256];
    if (g->path[0]) {
        snprintf(text, sizeof(text), "listening at %s", g->path);
        say(6, text);
    }
    if (g->urls[0]) {
        snprintf(text, sizeof(text), "listening at %s", g->urls);
        say(6, text);
    }
}

static int open_loopback(struct gateway *g, char *err, size_t err_bytes)
{
    static const char *const all[] = {"127.0.0.1", "::1"};
    const char *host = g->config.host;
    for (int i = 0; i < 2; i++) {
        if (host && strcmp(host, "localhost") != 0 && strcmp(host, all[i]) != 0)
            continue;
        int fd = loopback_open(all[i], (uint16_t)g->config.port, err, err_bytes);
        bool no_v6 = i == 1 && (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL) && !host;
        if (fd < 0 && !no_v6)
            return fd;
        if (fd < 0)
            continue;
        g->fds[g->n_fds++] = fd;
        size_t n = strlen(g->urls);
        snprintf(g->urls + n, sizeof(g->urls) - n, "%shttp://%s:%u", n ? " and " : "",
                 i ? "[::1]" : all[i], g->config.port);
    }
    return 0;
}

/* Where clients look. */
static void default_path(char *path, size_t path_bytes)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    snprintf(path, path_bytes, "%s/hearth/http.sock",
             runtime && *runtime == '/' ? runtime : "/run");
}

static int open_listeners(struct gateway *g, char *err, size_t err_bytes)
{
    int passed = service_listen_fds();
    if (passed > SERVER_LISTENERS_MAX) {
        snprintf(err, err_bytes, "the service manager passed %d sockets: pass at most %d", passed,
                 SERVER_LISTENERS_MAX);
        return -EPERM;
    }
    for (int i = 0; i < passed; i++) {
        int rc = loopback_check(SERVICE_FIRST_FD + i, err, err_bytes);
        if (!rc && loopback_is_tcp(SERVICE_FIRST_FD + i) && http_config_needs_key(&g->config)) {
            snprintf(err, err_bytes,
                     "a port with --budget or --upstream: every user of this machine could start "
                     "models, or spend its key: give an --api-key-file");
            rc = -EPERM;
        }
        if (rc)
            return rc;
        g->fds[g->n_fds++] = SERVICE_FIRST_FD + i;
    }
    if (passed)
        return 0;
    if (g->config.listen)
        snprintf(g->path, sizeof(g->path), "%s", g->config.listen);
    else if (!g->config.port)
        default_path(g->path, sizeof(g->path));
    if (g->path[0]) {
        const char *path = g->config.listen ? g->config.listen : g->path;
        int fd = listen_open(path, SOCK_STREAM, "--listen", err, err_bytes);
        if (fd < 0) {
            g->path[0] = 0;
            return fd;
        }
        g->fds[g->n_fds++] = fd;
    }
    return g->config.port ? open_loopback(g, err, err_bytes) : 0;
}

static void on_signal(struct watch *w, uint32_t events)
{
    struct gateway *g = (struct gateway *)((char *)w - offsetof(struct gateway, signals));
    struct signalfd_siginfo info;
    (void)events;
    if (read(w->fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (g->end_ns) { /* the second time: at once */
        g->end_ns = 1;
        return;
    }
    g->end_ns = bell_now_ns() + g->config.grace * 1000000000ull;
    (void)service_notify("STOPPING=1");
    server_drain(&g->server);
}

/* SIGTERM and SIGINT come through the loop. */
static int open_signals(struct gateway *g)
{
    sigset_t set;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    g->signals.on = on_signal;
    g->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return g->signals.fd < 0 ? -errno : 0;
}

static int serve(struct gateway *g, char *err, size_t err_bytes)
{
    service_raise_file_limit();
    int rc = open_signals(g);
    if (!rc)
        rc = open_listeners(g, err, err_bytes);
    if (!rc)
        rc = server_open(&g->server, &g->config, g->fds, g->n_fds, err, err_bytes);
    if (!rc)
        rc = reactor_watch(&g->server.loop, &g->signals, EPOLLIN);
    if (rc)
        return rc;
    say_where(g);
    (void)service_notify("READY=1");
    while (!g->end_ns || (server_is_busy(&g->server) && bell_now_ns() < g->end_ns))
        server_turn(&g->server, g->end_ns ? 100 : -1);
    return 0;
}

static void finish(struct gateway *g)
{
    if (g->server.loop.fd > 0)
        server_close(&g->server);
    for (uint32_t i = 0; i < g->n_fds; i++) {
        if (i == 0 && g->path[0])
            listen_close(g->path, SOCK_STREAM, g->fds[i]);
        close(g->fds[i]);
    }
    http_config_fini(&g->config);
}

/* The exit code for a failure to start: sysexits(3). */
static int exit_code(int error)
{
    switch (error) {
    case -EADDRINUSE:
        return EX_TEMPFAIL;
    case -EINVAL:
    case -ENAMETOOLONG:
    case -EPERM:
        return EX_USAGE;
    case -ENOPKG:
        return EX_UNAVAILABLE;
    case -ENOTSOCK:
    case -ENOENT:
    case -ENOTDIR:
    case -EACCES:
    case -EROFS:
        return EX_CANTCREAT;
    default:
        return EX_OSERR;
    }
}

int main(int argc, char **argv)
{
    static struct gateway g; /* large: slots and listeners lie in it */
    char err[512] = "";
    int rc = http_config_read(&g.config, argc, argv, err, sizeof(err)), code = 0;
    if (rc) {
        say(3, err);
        code = rc == -EINVAL ? EX_USAGE : EX_NOINPUT;
    } else if (g.config.help) {
        http_config_help(stdout);
    } else if (g.config.version) {
        puts("hearth-http " HEARTH_VERSION);
    } else if ((rc = serve(&g, err, sizeof(err))) < 0) {
        say(3, *err ? err : strerror(-rc));
        code = exit_code(rc);
    }
    finish(&g);
    return code;
}
