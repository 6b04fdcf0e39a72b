/* transfer: see transfer.h. */
#include "client/http/transfer.h"

#include "client/http/exchange.h"
#include "ipc/bell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* A socket of libcurl's. */
struct wire {
    struct watch watch; /* first */
    struct transfers *transfers;
};

/* What a client is told of an answer's type: an upstream's own words could be read as another type. */
static const char type_json[] = "application/json; charset=utf-8",
                  type_events[] = "text/event-stream", type_lines[] = "application/x-ndjson";

/* ---- how an answer ends ---------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void fail(struct transfer *one, unsigned status,
                                                       const char *format, ...)
{
    char why[300];
    struct fail f;
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    fail_set(&f, status, FAIL_SERVER, "the upstream of '%.100s' %s", one->to->name, why);
    exchange_pass_fail(one->x, &f);
}

static void fail_code(struct transfers *t, struct transfer *one, CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
        fail(one, 502, "has a host name that does not resolve: check the URL of --upstream");
        break;
    case CURLE_COULDNT_CONNECT:
        fail(one, 502, "refuses connections: start it, or check the URL of --upstream");
        break;
    case CURLE_OPERATION_TIMEDOUT:
        fail(one, 504, "did not take a connection within %d s: check the URL of --upstream",
             TRANSFER_CONNECT_MS / 1000);
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
        fail(one, 502,
             "has a TLS certificate that does not hold: check the URL of --upstream, or give "
             "--upstream-ca");
        break;
    case CURLE_SSL_CACERT_BADFILE:
        fail(one, 502,
             "cannot be verified without certificates: install ca-certificates, or give "
             "--upstream-ca");
        break;
    case CURLE_SSL_CONNECT_ERROR:
        fail(one, 502, "does not speak TLS: give its URL with http, or another port");
        break;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
        fail(one, 502, "broke off its answer: try again");
        break;
    case CURLE_WRITE_ERROR: /* ours */
        fail(one, 500, "sends more than fits into memory: try again in a moment");
        break;
    default:
        fail(one, 502, "does not answer in HTTP: %s", t->curl.easy_strerror(code));
    }
}

/* A whole answer arrived, in x->out. */
static void finish_whole(struct transfers *t, struct transfer *one)
{
    long status = 0;
    (void)t->curl.easy_getinfo(one->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 401 || status == 403)
        fail(one, 502, "refuses its key: check --upstream-key");
    else if (status / 100 == 3)
        fail(one, 502, "answered with a redirect, which is not followed: give its URL");
    else if (status < 200 || status > 599 || one->type != type_json || !one->x->out.bytes)
        fail(one, 502, "answered %ld without JSON: is it a server of OpenAI's API?", status);
    else
        exchange_pass_whole(one->x, (unsigned)status, one->type);
}

static void finish(struct transfers *t, struct transfer *one, CURLcode code)
{
    if (!one->x)
        return;
    if (one->wrong)
        fail(one, one->wrong_status, "%s", one->wrong);
    else if (one->is_stream && code == CURLE_OK)
        exchange_pass_end(one->x);
    else if (code == CURLE_OK)
        finish_whole(t, one);
    else
        fail_code(t, one, code);
}

/* ---- libcurl's callbacks --------------------------------------------------------------------- */

static const char *find_type(const char *given)
{
    static const char *const types[] = {type_json, type_events, type_lines};
    for (size_t i = 0; given && i < sizeof(types) / sizeof(types[0]); i++) {
        const size_t n = strcspn(types[i], ";");
        if (strncasecmp(given, types[i], n) == 0 && strchr("; \t", given[n]))
            return types[i];
    }
    return NULL;
}

static void begin(struct transfers *t, struct transfer *one)
{
    const char *type = NULL;
    long status = 0;
    (void)t->curl.easy_getinfo(one->easy, CURLINFO_CONTENT_TYPE, &type);
    (void)t->curl.easy_getinfo(one->easy, CURLINFO_RESPONSE_CODE, &status);
    one->type = find_type(type);
    one->has_begun = true;
    one->is_stream = status == 200 && one->x->reply && one->type && one->type != type_json;
    if (one->is_stream)
        exchange_pass_begin(one->x, one->type);
}

/* Reads no further; returns 0. */
static size_t refuse(struct transfer *one, unsigned status, const char *why)
{
    one->wrong = why;
    one->wrong_status = status;
    return 0;
}

/* Of headers, and of what follows the last chunk of a body. */
static size_t on_header(char *data, size_t size, size_t n, void *cls)
{
    struct transfer *one = cls;
    (void)data;
    one->head_bytes += size * n;
    return one->head_bytes <= TRANSFER_HEAD_BYTES
               ? size * n
               : refuse(one, 502, "sends headers without end: is it a server of OpenAI's API?");
}

/* An answer that is not a stream is kept until all of it has come, and its client took it. */
static size_t keep(struct transfers *t, struct transfer *one, size_t n)
{
    if (one->x->kept_bytes + n > TRANSFER_BYTES)
        return refuse(one, 502, "sent more than 64 MiB: ask for less");
    if (t->bytes + n > TRANSFERS_BYTES)
        return refuse(one, 503, "has to wait: other answers take all memory for them");
    one->x->kept_bytes += n;
    t->bytes += n;
    return n;
}

static size_t on_bytes(char *data, size_t size, size_t n, void *cls)
{
    struct transfer *one = cls;
    struct exchange *x = one->x;
    n *= size;
    if (!x)
        return 0;
    one->heard_ns = bell_now_ns();
    if (!one->has_begun)
        begin(&x->server->transfers, one);
    if (one->is_stream && exchange_left(x) > STREAM_HIGH_BYTES) {
        one->is_paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    if ((!one->is_stream && !keep(&x->server->transfers, one, n)) || x->out.failed)
        return 0;
    exchange_pass(x, data, n);
    return n;
}

/* None for a client that left. */
static curl_socket_t open_socket(void *cls, curlsocktype purpose, struct curl_sockaddr *to)
{
    const struct transfer *one = cls;
    (void)purpose;
    return one->x ? socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol) : CURL_SOCKET_BAD;
}

static void look_for_ends(struct transfers *t)
{
    CURLMsg *m;
    int left;
    while ((m = t->curl.multi_info_read(t->multi, &left))) {
        struct transfer *one = NULL;
        if (m->msg != CURLMSG_DONE)
            continue;
        CURLcode code = m->data.result;
        (void)t->curl.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &one);
        finish(t, one, code);
        transfer_end(t, one);
    }
}

static void act(struct transfers *t, curl_socket_t fd, int what)
{
    int running;
    t->n_turns++;
    (void)t->curl.multi_socket_action(t->multi, fd, what, &running);
    look_for_ends(t);
}

static void on_wire(struct watch *w, uint32_t events)
{
    struct wire *wire = (struct wire *)w; /* its first member */
    act(wire->transfers, w->fd,
        (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
            (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0));
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *cls, void *socket_cls)
{
    struct transfers *t = cls;
    struct wire *wire = socket_cls;
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (wire)
            reactor_unwatch(t->loop, &wire->watch);
        free(wire);
        return 0;
    }
    if (wire) {
        reactor_change(t->loop, &wire->watch, events);
        return 0;
    }
    wire = calloc(1, sizeof(*wire));
    if (!wire)
        return -1;
    *wire = (struct wire){.watch = {.fd = fd, .on = on_wire}, .transfers = t};
    if (reactor_watch(t->loop, &wire->watch, events) < 0) {
        free(wire);
        return -1;
    }
    (void)t->curl.multi_assign(t->multi, fd, wire);
    return 0;
}

static int set_timer(CURLM *multi, long ms, void *cls)
{
    struct transfers *t = cls;
    struct itimerspec at = {0};
    (void)multi;
    if (ms >= 0) {
        at.it_value.tv_sec = ms / 1000;
        at.it_value.tv_nsec = ms % 1000 * 1000000 + 1; /* 0 would mean never */
    }
    return timerfd_settime(t->timer.fd, 0, &at, NULL);
}

static void take_timer(const struct watch *w)
{
    uint64_t n;
    (void)!read(w->fd, &n, sizeof(n));
}

static void on_timer(struct watch *w, uint32_t events)
{
    struct transfers *t = (struct transfers *)((char *)w - offsetof(struct transfers, timer));
    (void)events;
    take_timer(w);
    act(t, CURL_SOCKET_TIMEOUT, 0);
}

/* ---- limits of time -------------------------------------------------------------------------- */

static void check_time(struct transfers *t, struct transfer *one)
{
    uint32_t most_s = one->has_begun ? t->config->upstream_idle : t->config->upstream_wait;
    if (!one->x || one->is_paused || bell_now_ns() - one->heard_ns < most_s * 1000000000ull)
        return;
    if (one->has_begun)
        fail(one, 504, "sent nothing more for %u s: try again, or give a longer --upstream-idle",
             most_s);
    else
        fail(one, 504, "sent no answer within %u s: try again, or give a longer --upstream-wait",
             most_s);
    transfer_end(t, one);
}

static void on_tick(struct watch *w, uint32_t events)
{
    struct transfers *t = (struct transfers *)((char *)w - offsetof(struct transfers, tick));
    (void)events;
    take_timer(w);
    for (struct transfer *one = t->all, *next; one; one = next) {
        next = one->next;
        check_time(t, one);
    }
}

/* Each second, or never. */
static void set_tick(const struct transfers *t, bool on)
{
    const struct itimerspec at = {.it_value.tv_sec = on, .it_interval.tv_sec = on};
    (void)timerfd_settime(t->tick.fd, 0, &at, NULL);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static bool add_header(struct transfers *t, struct transfer *one, const char *name,
                       const char *value)
{
    char line[UPSTREAM_KEY_BYTES + 64];
    snprintf(line, sizeof(line), "%s%s", name, value);
    struct curl_slist *more = t->curl.slist_append(one->headers, line);
    explicit_bzero(line, sizeof(line));
    one->headers = more ? more : one->headers;
    return more != NULL;
}

static bool set_headers(struct transfers *t, struct transfer *one)
{
    return add_header(t, one, "Content-Type: ", "application/json") &&
           add_header(t, one, "Accept: ", "application/json, text/event-stream") &&
           add_header(t, one, "Expect:", "") &&
           (!one->to->key[0] || add_header(t, one, "Authorization: Bearer ", one->to->key));
}

static void set_options(struct transfers *t, struct transfer *one, const char *path)
{
    char url[UPSTREAM_URL_BYTES + 128];
    __typeof__(t->curl.easy_setopt) set = t->curl.easy_setopt;
    snprintf(url, sizeof(url), "%s%s", one->to->url, path);
    set(one->easy, CURLOPT_URL, url);
    set(one->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    /* A connection for each: in HTTP/2 they would share one, and with it buffers and its end. */
    set(one->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    set(one->easy, CURLOPT_FOLLOWLOCATION, 0L);
    set(one->easy, CURLOPT_PROXY, ""); /* nor one of the environment: it would see the key */
    set(one->easy, CURLOPT_NOSIGNAL, 1L);
    if (t->config->upstream_ca)
        set(one->easy, CURLOPT_CAINFO, t->config->upstream_ca);
    set(one->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)TRANSFER_CONNECT_MS);
    set(one->easy, CURLOPT_USERAGENT, "hearth-http/" HEARTH_VERSION);
    set(one->easy, CURLOPT_HTTPHEADER, one->headers);
    set(one->easy, CURLOPT_POST, 1L);
    set(one->easy, CURLOPT_POSTFIELDS, one->x->body.data ? one->x->body.data : "");
    set(one->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)one->x->body.bytes);
    set(one->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    set(one->easy, CURLOPT_WRITEDATA, one);
    set(one->easy, CURLOPT_HEADERFUNCTION, on_header);
    set(one->easy, CURLOPT_HEADERDATA, one);
    set(one->easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    set(one->easy, CURLOPT_OPENSOCKETDATA, one);
    /* Else a transfer that ends while the name is looked up waits for that, and the loop with it
     * (libcurl before 7.87 always does). */
    set(one->easy, CURLOPT_QUICK_EXIT, 1L);
    set(one->easy, CURLOPT_PRIVATE, one);
}

int transfer_send(struct transfers *t, struct exchange *x, struct upstream *to, const char *path,
                  struct fail *f)
{
    struct transfer *one;
    if (to->n_running >= TRANSFERS_MAX)
        return fail_set(f, 503, FAIL_UNAVAILABLE,
                        "%d requests for '%.100s' run already: try again in a moment",
                        TRANSFERS_MAX, to->name);
    one = calloc(1, sizeof(*one));
    if (!one)
        return fail_set(f, 500, FAIL_SERVER, "out of memory: try again in a moment");
    *one = (struct transfer){
        .x = x, .to = to, .heard_ns = bell_now_ns(), .n_turns = t->n_turns, .link = &t->all};
    one->next = t->all;
    if (one->next)
        one->next->link = &one->next;
    t->all = x->transfer = one;
    to->n_running++;
    one->easy = t->curl.easy_init();
    bool ok = one->easy && set_headers(t, one);
    if (ok)
        set_options(t, one, path);
    if (!ok || t->curl.multi_add_handle(t->multi, one->easy) != CURLM_OK) {
        transfer_end(t, one);
        return fail_set(f, 500, FAIL_SERVER, "out of memory: try again in a moment");
    }
    set_tick(t, true);
    return 0;
}

void transfer_taken(struct transfers *t, struct transfer *one)
{
    if (!one->is_paused || exchange_left(one->x) > STREAM_LOW_BYTES)
        return;
    one->is_paused = false;
    one->heard_ns = bell_now_ns();
    (void)t->curl.easy_pause(one->easy, CURLPAUSE_CONT); /* libcurl's timer does the rest */
}

/* libcurl looks names up in threads. One that is left alone goes on, for half a minute where no
 * server answers: so it is one of TRANSFERS_MAX until it is done, or its time to connect is over.
 * One of which nothing has begun may still get a connection that is there, and ask. */
void transfer_leave(struct transfers *t, struct transfer *one)
{
    curl_off_t found_us = 0;
    (void)t->curl.easy_getinfo(one->easy, CURLINFO_NAMELOOKUP_TIME_T, &found_us);
    if (found_us > 0 || one->n_turns == t->n_turns) {
        transfer_end(t, one);
        return;
    }
    (void)t->curl.easy_setopt(one->easy, CURLOPT_POSTFIELDS, "");
    (void)t->curl.easy_setopt(one->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)0);
    one->x->transfer = NULL;
    one->x = NULL;
}

void transfer_end(struct transfers *t, struct transfer *one)
{
    if (one->x)
        one->x->transfer = NULL;
    one->to->n_running--;
    *one->link = one->next;
    if (one->next)
        one->next->link = one->link;
    if (!t->all)
        set_tick(t, false);
    if (one->easy) {
        (void)t->curl.multi_remove_handle(t->multi, one->easy);
        t->curl.easy_cleanup(one->easy);
    }
    t->curl.slist_free_all(one->headers);
    free(one);
}

static int open_timer(struct transfers *t, struct watch *w,
                      void (*on)(struct watch *w, uint32_t events))
{
    *w =
        (struct watch){.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), .on = on};
    return w->fd < 0 ? -errno : reactor_watch(t->loop, w, EPOLLIN);
}

int transfers_open(struct transfers *t, struct reactor *loop, const struct http_config *config,
                   char *err, size_t err_bytes)
{
    *t = (struct transfers){.loop = loop, .config = config};
    int rc = curl_api_load(&t->curl, err, err_bytes);
    if (!rc)
        rc = open_timer(t, &t->timer, on_timer);
    if (!rc)
        rc = open_timer(t, &t->tick, on_tick);
    if (rc)
        return rc;
    t->multi = t->curl.multi_init();
    if (!t->multi)
        return -ENOMEM;
    (void)t->curl.multi_setopt(t->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)t->curl.multi_setopt(t->multi, CURLMOPT_SOCKETDATA, t);
    (void)t->curl.multi_setopt(t->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    (void)t->curl.multi_setopt(t->multi, CURLMOPT_TIMERDATA, t);
    return 0;
}

void transfers_close(struct transfers *t)
{
    if (!t->multi)
        return;
    while (t->all)
        transfer_end(t, t->all);
    (void)t->curl.multi_cleanup(t->multi);
    reactor_unwatch(t->loop, &t->timer);
    reactor_unwatch(t->loop, &t->tick);
    close(t->timer.fd);
    close(t->tick.fd);
}
