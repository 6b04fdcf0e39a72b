/* gateway: see gateway.h. */
#include "tests/e2e/gateway.h"

#include "tests/rig/folder.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_TRIES = 12000, PORT_TRIES = 5, ANSWER_MS = 120000, ANSWER_MAX = 64 << 20 };

/* ---- the program ----------------------------------------------------------------------------- */

static pid_t spawn(const char *const *argv, const char *log)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid)
        return pid;
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(argv[0], (char **)(uintptr_t)argv);
    _exit(127);
}

/* Free at this moment: another process may still take it first. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    close(fd);
    return ntohs(at.sin_port);
}

static int try_connect(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof(to.sun_path), "%.107s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Waits until it listens. Returns false when it ended instead. */
static bool came_up(const struct gateway *g)
{
    for (int i = 0; i < START_TRIES; i++, usleep(5000)) {
        int fd = try_connect(g->socket);
        if (fd >= 0) {
            close(fd);
            return true;
        }
        if (waitpid(g->pid, NULL, WNOHANG) != 0)
            return false;
    }
    ck_abort_msg("hearth-http does not listen");
}

static bool start(struct gateway *g, const struct harness *d, const char *const *more)
{
    char program[512], port[16];
    snprintf(program, sizeof(program), "%s", harness_program("hearth-http"));
    const char *argv[64] = {program, "--listen", g->socket};
    size_t n = 3;
    if (d->socket[0]) {
        argv[n++] = "--socket";
        argv[n++] = d->socket;
    }
    snprintf(port, sizeof(port), "%d", g->port);
    if (g->port) {
        argv[n++] = "--port";
        argv[n++] = port;
    }
    while (more && *more && n < 63)
        argv[n++] = *more++;
    g->pid = spawn(argv, d->log);
    return came_up(g);
}

void gateway_make_home(struct harness *place)
{
    *place = (struct harness){0};
    folder_make_home(place->directory);
    snprintf(place->log, sizeof(place->log), "%s/log", place->directory);
}

void gateway_start(struct gateway *g, const struct harness *d, bool with_port,
                   const char *const *more)
{
    bool up = false;
    snprintf(g->socket, sizeof(g->socket), "%s/http.sock", d->directory);
    for (int i = 0; !up && i < (with_port ? PORT_TRIES : 1); i++) {
        g->port = with_port ? free_port() : 0;
        up = start(g, d, more);
    }
    ck_assert_msg(up, "hearth-http ended, see %s", d->log);
    /* Its socket listens before its port and before it reports so: a reply proves all of that. */
    struct http_answer a = http_ask(g, "/health", NULL);
    ck_assert_int_ne(a.status, 0);
    http_answer_fini(&a);
}

int gateway_stop(struct gateway *g)
{
    if (!g->pid)
        return 0;
    kill(g->pid, SIGTERM);
    int code = harness_wait(g->pid);
    g->pid = 0;
    return code;
}

int gateway_run(const char *const *arguments)
{
    char program[512];
    snprintf(program, sizeof(program), "%s", harness_program("hearth-http"));
    const char *argv[32] = {program};
    for (size_t n = 1; *arguments && n < 31; n++)
        argv[n] = *arguments++;
    return harness_wait(spawn(argv, "/dev/null"));
}

int gateway_connect(const struct gateway *g)
{
    int fd = try_connect(g->socket);
    ck_assert_msg(fd >= 0, "%s: %s", g->socket, strerror(errno));
    return fd;
}

int gateway_connect_port(const struct gateway *g)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)g->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

void http_send(int fd, const char *method, const char *path, const char *headers, const char *body)
{
    size_t bytes = body ? strlen(body) : 0, room = bytes + strlen(headers) + strlen(path) + 256;
    char *all = malloc(room);
    ck_assert_ptr_nonnull(all);
    int n = snprintf(all, room, "%s %s HTTP/1.1\r\n%s%s", method, path,
                     strcasestr(headers, "host:") ? "" : "Host: localhost\r\n", headers);
    if (body && !strcasestr(headers, "content-length:"))
        n += snprintf(all + n, room - (size_t)n, "Content-Length: %zu\r\n", bytes);
    n += snprintf(all + n, room - (size_t)n, "\r\n%s", body ? body : "");
    for (ssize_t at = 0, k; at < n; at += k) {
        k = send(fd, all + at, (size_t)(n - at), MSG_NOSIGNAL);
        if (k <= 0)
            break; /* the reply, or its absence, says why */
    }
    free(all);
}

struct received {
    int fd;
    char *bytes; /* [n] and a 0 */
    size_t n, room;
    bool ended;
};

static void fill(struct received *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    if (s->n + 65537 > s->room) {
        s->room = 2 * s->room + 131072;
        ck_assert_uint_lt(s->room, 2ul * ANSWER_MAX);
        s->bytes = realloc(s->bytes, s->room);
        ck_assert_ptr_nonnull(s->bytes);
    }
    ck_assert_msg(poll(&p, 1, ANSWER_MS) == 1, "no answer within two minutes");
    ssize_t n = recv(s->fd, s->bytes + s->n, 65536, 0);
    s->ended = n <= 0;
    s->n += n > 0 ? (size_t)n : 0;
    s->bytes[s->n] = 0;
}

static const char *header(const struct http_answer *a, const char *name)
{
    const char *at = strcasestr(a->headers, name);
    return at ? at + strlen(name) : NULL;
}

/* Joins the chunks of s from `at` on. */
static void dechunk(struct received *s, size_t at, struct http_answer *a)
{
    for (;;) {
        char *end = NULL;
        while (!(end = strstr(s->bytes + at, "\r\n")) && !s->ended)
            fill(s);
        if (!end)
            return;
        size_t bytes = strtoul(s->bytes + at, NULL, 16);
        at = (size_t)(end - s->bytes) + 2;
        while (s->n < at + bytes + 2 && !s->ended)
            fill(s);
        if (s->n < at + bytes + 2)
            return;
        memcpy(a->body + a->bytes, s->bytes + at, bytes); /* never longer than the input */
        a->bytes += bytes;
        a->body[a->bytes] = 0;
        at += bytes + 2;
        a->is_whole = !bytes;
        if (!bytes)
            return;
        a->body = realloc(a->body, s->room + 131072);
        ck_assert_ptr_nonnull(a->body);
    }
}

struct http_answer http_receive(int fd)
{
    struct received s = {.fd = fd};
    struct http_answer a = {0};
    char *end = NULL;
    do
        fill(&s);
    while (!(end = strstr(s.bytes, "\r\n\r\n")) && !s.ended);
    if (!end) {
        free(s.bytes);
        return a;
    }
    size_t at = (size_t)(end - s.bytes) + 4;
    a.headers = strndup(s.bytes, at);
    a.status = atoi(s.bytes + strcspn(s.bytes, " "));
    a.body = calloc(1, ANSWER_MAX / 8);
    ck_assert_ptr_nonnull(a.body);
    const char *length = header(&a, "content-length:");
    if (header(&a, "transfer-encoding: chunked")) {
        dechunk(&s, at, &a);
    } else if (length) {
        size_t bytes = strtoul(length, NULL, 10);
        while (s.n < at + bytes && !s.ended)
            fill(&s);
        a.bytes = s.n - at < bytes ? s.n - at : bytes;
        a.is_whole = a.bytes == bytes;
        a.body = realloc(a.body, bytes + 1);
        memcpy(a.body, s.bytes + at, a.bytes);
        a.body[a.bytes] = 0;
    }
    free(s.bytes);
    return a;
}

struct http_answer http_ask(const struct gateway *g, const char *path, const char *body)
{
    int fd = gateway_connect(g);
    http_send(fd, body ? "POST" : "GET", path, "", body);
    struct http_answer a = http_receive(fd);
    close(fd);
    return a;
}

void http_answer_fini(struct http_answer *a)
{
    free(a->headers);
    free(a->body);
    *a = (struct http_answer){0};
}

json_t *http_json(const struct gateway *g, const char *path, const char *body, int status)
{
    struct http_answer a = http_ask(g, path, body);
    ck_assert_msg(a.status == status, "%s %s: %d, not %d: %s", path, body ? body : "", a.status,
                  status, a.body ? a.body : "");
    json_t *o = json_loadb(a.body, a.bytes, JSON_ALLOW_NUL, NULL);
    ck_assert_msg(o != NULL, "%s: no JSON: %s", path, a.body);
    http_answer_fini(&a);
    return o;
}

json_t *http_events(const struct http_answer *a)
{
    json_t *list = json_array();
    const char *at = a->body;
    while (at && *at) {
        char name[64] = "";
        const char *end = strstr(at, "\n\n");
        if (sscanf(at, "event: %63s", name) == 1)
            at = strchr(at, '\n') + 1;
        ck_assert_msg(strncmp(at, "data: ", 6) == 0 && end, "no event: %.80s", at);
        size_t n = (size_t)(end - at) - 6;
        json_t *o = strncmp(at + 6, "[DONE]", 6) == 0 ? json_string("[DONE]")
                                                      : json_loadb(at + 6, n, JSON_ALLOW_NUL, NULL);
        ck_assert_msg(o != NULL, "no JSON: %.*s", (int)n, at);
        if (*name)
            ck_assert_str_eq(name, json_text(o, "type"));
        json_array_append_new(list, o);
        at = end + 2;
    }
    return list;
}

json_t *http_stream(const struct gateway *g, const char *path, const char *body)
{
    struct http_answer a = http_ask(g, path, body);
    ck_assert_msg(a.status == 200, "%s", a.body);
    ck_assert(a.is_whole);
    ck_assert_ptr_nonnull(strstr(a.headers, "text/event-stream"));
    json_t *events = http_events(&a);
    http_answer_fini(&a);
    return events;
}

json_t *json_last(json_t *events, size_t back)
{
    return json_array_get(events, json_array_size(events) - 1 - back);
}

char *json_joined(json_t *events, const char *path)
{
    enum { MOST = 1 << 20 };
    char *text = calloc(1, MOST);
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *v = json_at(json_array_get(events, i), path);
        size_t more = json_string_length(v);
        ck_assert_uint_lt(n + more, MOST);
        memcpy(text + n, more ? json_string_value(v) : "", more);
        n += more;
    }
    return text;
}

json_t *json_at(json_t *o, const char *path)
{
    while (o && path && *path) {
        size_t n = strcspn(path, "/");
        o = json_is_array(o) ? json_array_get(o, strtoul(path, NULL, 10))
                             : json_object_getn(o, path, n);
        path += n + (path[n] == '/');
    }
    return o;
}

const char *json_text(json_t *o, const char *path)
{
    json_t *v = json_at(o, path);
    ck_assert_msg(json_is_string(v), "%s: no string", path);
    return json_string_value(v);
}

json_int_t json_number(json_t *o, const char *path)
{
    json_t *v = json_at(o, path);
    ck_assert_msg(json_is_number(v), "%s: no number", path);
    return json_is_integer(v) ? json_integer_value(v) : (json_int_t)json_number_value(v);
}

static long metric(const struct gateway *g, const char *name)
{
    char key[80];
    struct http_answer a = http_ask(g, "/metrics", NULL);
    ck_assert_int_eq(a.status, 200);
    snprintf(key, sizeof(key), "\n%s ", name);
    const char *at = strstr(a.body, key);
    ck_assert_msg(at != NULL, "no %s", name);
    long value = strtol(at + strlen(key), NULL, 10);
    http_answer_fini(&a);
    return value;
}

void gateway_wait_metric(const struct gateway *g, const char *name, long value)
{
    long last = metric(g, name);
    for (int i = 0; i < START_TRIES && last != value; i++) {
        usleep(5000);
        last = metric(g, name);
    }
    ck_assert_int_eq(last, value);
}
