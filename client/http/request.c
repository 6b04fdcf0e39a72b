/* request: see request.h. */
#include "client/http/request.h"

#include "client/http/page.h"
#include "client/http/dispatch.h"
#include "client/http/routes.h"
#include "ipc/bell.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    BLOCK_BYTES = 16384, /* most bytes of a stream that libmicrohttpd asks for at once */
    DISCARD_TIMES =
        16 /* times max_body: read of an oversized body, so that its sender gets the answer */
};

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
    size_t n = exchange_take(x, to, max);
    if (n)
        return (ssize_t)n;
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
    char *bytes = x->out.data;
    size_t n = x->out.bytes;
    if (!bytes)
        return MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    x->out = (struct buffer){0};
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
    if (x->is_page) {
        MHD_add_response_header(r, "Content-Security-Policy", page_policy);
        MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
        MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
        MHD_add_response_header(r, "Cache-Control", "no-cache");
    }
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
    if (x->server->is_draining || x->closes)
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

/* The page is open: it asks for the key. */
static bool is_open(const struct exchange *x, const char *path)
{
    return route_is_open(x->route) || (strcmp(path, "/") == 0 && page_is_wanted(x));
}

/* Refuses senders without access before a body is read. A browser's preflight never has a key: it
 * asks whether one may be sent. */
static void check_sender(struct exchange *x, const struct conn *c, const char *path,
                         const char *method)
{
    const struct guard *g = &x->server->guard;
    const char *host = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Host");
    const char *origin = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Origin");
    const char *site = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Sec-Fetch-Site");
    const char *auth = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Authorization");
    const char *key = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "X-Api-Key");
    if (c->is_tcp && !guard_host(g, host))
        fail_set(&x->fail, 403, FAIL_PERMISSION,
                 "Host '%.100s' is not this machine: use localhost or 127.0.0.1 in the URL, or "
                 "start hearth-http with --allow-host NAME",
                 host);
    else if (c->is_tcp && origin && !guard_is_own(host, origin) && !guard_origin(g, origin))
        fail_set(&x->fail, 403, FAIL_PERMISSION,
                 "requests of pages of '%.100s' are refused: start hearth-http with --cors-origin "
                 "%.100s",
                 origin, origin);
    else if (c->is_tcp && !origin && guard_is_foreign(site) && !is_open(x, path))
        fail_set(&x->fail, 403, FAIL_PERMISSION,
                 "requests of pages of other sites are refused: open the URL by itself");
    else if (!is_open(x, path) && !is_preflight(x, method) && !guard_key(g, auth, key))
        fail_set(&x->fail, 401, FAIL_AUTHENTICATION,
                 "Invalid API Key: send 'Authorization: Bearer KEY' with a key of hearth-http");
    else if (!x->route)
        fail_set(&x->fail, 404, FAIL_NOT_FOUND, "no such path: %.200s", path);
}

static struct exchange *exchange_open(struct server *s, struct MHD_Connection *mhd)
{
    struct exchange *x = calloc(1, sizeof(*x));
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

struct framing {
    unsigned lengths, encodings, unknown, hosts, malformed;
};

static bool is_token(const char *name, size_t n)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !memchr(marks, name[i], sizeof(marks) - 1))
            return false;
    return n > 0;
}

static enum MHD_Result count_framing(void *cls, enum MHD_ValueKind kind, const char *name,
                                     size_t name_bytes, const char *value, size_t value_bytes)
{
    struct framing *f = cls;
    bool is_host = strcasecmp(name, "Host") == 0;
    bool is_encoding = strcasecmp(name, "Transfer-Encoding") == 0;
    (void)kind;
    f->lengths += strcasecmp(name, "Content-Length") == 0;
    f->encodings += is_encoding;
    f->unknown += is_encoding && (!value || strcasecmp(value, "chunked") != 0);
    f->hosts += is_host;
    f->malformed += !is_token(name, name_bytes) || (value && memchr(value, '\r', value_bytes)) ||
                    (is_host && value && strpbrk(value, " \t"));
    return MHD_YES;
}

/* With two headers for its length or its host, or a malformed one, a proxy in front may read a
 * request differently (request smuggling): then nothing more is read from the connection. Nor after
 * a chunked body, in which libmicrohttpd takes a bare line feed for the end of a chunk's line. */
static bool check_framing(struct exchange *x)
{
    struct framing f = {0};
    MHD_get_connection_values_n(x->mhd, MHD_HEADER_KIND, count_framing, &f);
    x->closes = f.encodings > 0;
    if (f.malformed)
        fail_set(
            &x->fail, 400, FAIL_INVALID,
            "the request has a malformed header: a name must be letters, digits and marks up to "
            "its colon, a value one line");
    else if (f.lengths + f.encodings > 1 || f.hosts > 1)
        fail_set(&x->fail, 400, FAIL_INVALID, "the request has %s: send one",
                 f.hosts > 1 ? "two Host headers" : "two headers that give its length");
    else if (f.unknown)
        fail_set(&x->fail, 400, FAIL_INVALID,
                 "Transfer-Encoding has another value than chunked: send chunked, or a "
                 "Content-Length");
    x->closes |= x->fail.status != 0;
    return !x->fail.status;
}

/* The headers have arrived. */
static enum MHD_Result begin(struct server *s, struct MHD_Connection *mhd, const char *path,
                             const char *method, void **ret_x)
{
    struct conn *c = conn_of(mhd);
    struct exchange *x = c ? exchange_open(s, mhd) : NULL;
    if (!x)
        return MHD_NO;
    *ret_x = c->x = x;
    x->is_tcp = c->is_tcp;
    x->route = route_find(path, x->path_rest, sizeof(x->path_rest));
    x->reply = route_reply(x->route, path);
    bool is_framed = check_framing(x);
    if (is_framed)
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
    /* `expect`: the sender waits for 100 Continue before it sends the body */
    if (!is_framed || (x->fail.status && expect)) {
        x->is_started = true;
        exchange_fail(x, &x->fail);
        return respond(x);
    }
    return MHD_YES;
}

/* More of the body. Of a refused request it is discarded, so that the sender gets to read why. */
static enum MHD_Result take_body(struct exchange *x, const char *data, size_t n)
{
    struct server *s = x->server;
    if (!x->fail.status && x->body.bytes + n > s->config->max_body)
        fail_set(&x->fail, 413, FAIL_INVALID,
                 "the request has more than %u bytes: start hearth-http with a larger --max-body",
                 s->config->max_body);
    else if (!x->fail.status && x->body.bytes + n > SERVER_BODIES_FREE &&
             s->body_bytes + n > SERVER_BODIES_MAX)
        fail_set(&x->fail, 503, FAIL_UNAVAILABLE,
                 "other requests take all memory for bodies: try again in a moment");
    if (x->fail.status) {
        x->discarded += n;
        return x->discarded / DISCARD_TIMES > s->config->max_body ? MHD_NO : MHD_YES;
    }
    buffer_add(&x->body, data, n);
    s->body_bytes += n;
    x->body_counted += n;
    return x->body.failed ? MHD_NO : MHD_YES;
}

/* The whole request has arrived. */
static void start(struct exchange *x)
{
    x->is_started = true;
    x->start_ns = bell_now_ns();
    if (x->fail.status)
        exchange_fail(x, &x->fail);
    else if (x->status == 204) {
        x->content_type = "text/plain";
        x->is_ready = true;
    } else
        dispatch(x);
}

enum MHD_Result request_on(void *cls, struct MHD_Connection *mhd, const char *url,
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

void request_on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                          enum MHD_RequestTerminationCode code)
{
    struct server *s = cls;
    struct exchange *x = *con_cls;
    if (!x)
        return;
    *con_cls = NULL;
    struct conn *c = conn_of(mhd);
    if (c) {
        c->x = NULL;
        c->since_ns = bell_now_ns();
        c->is_spared = false;
    }
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        exchange_hang_up(x);
    if (x->start_ns) {
        s->count.seconds_ns += bell_now_ns() - x->start_ns;
        s->count.n_seconds++;
    }
    s->body_bytes -= x->body_counted;
    x->body_counted = 0;
    *x->link = x->next;
    if (x->next)
        x->next->link = x->link;
    exchange_close(x);
}
