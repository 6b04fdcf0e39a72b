/* dispatch: see dispatch.h. */
#include "client/http/dispatch.h"

#include "client/base/json_mend.h"
#include "client/http/fields.h"
#include "client/http/ollama.h"
#include "client/http/routes.h"
#include "client/http/routes_model.h"
#include "client/http/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WORK_BYTES = 4096 }; /* of a body that a worker reads */

struct exchange *dispatch_exchange(struct task *t)
{
    return (struct exchange *)((char *)t - offsetof(struct exchange, task));
}

bool dispatch_is_back(struct exchange *x)
{
    x->worker = NULL;
    if (x->is_orphan)
        exchange_close(x);
    else if (!x->is_gone)
        return true;
    return false;
}

/* Its values were freed. */
static void drop_values(struct exchange *x)
{
    atomic_fetch_sub(&x->server->value_bytes, x->value_bytes);
    x->value_bytes = 0;
}

/* The upstream that serves the model, or NULL. */
static struct upstream *upstream_of(const struct exchange *x, const char *model)
{
    struct upstreams *all = x->server->config->upstreams;
    return all && x->route->flags & ROUTE_STARTS ? upstreams_find(all, model) : NULL;
}

/* Ollama's clients say `name`, too. */
static const char *model_of(const struct exchange *x)
{
    const json_t *model = json_object_get(x->root, "model");
    return json_string_value(model ? model : json_object_get(x->root, "name"));
}

/* An upstream reads the body again, and must find the model there that was found here. Of what was read
 * here nothing else is needed: a worker frees it. */
static void check_passed(struct exchange *x)
{
    const char *key, *name = model_of(x);
    json_t *value, *model = json_object_get(x->root, "model");
    json_object_foreach(x->root, key, value)
        if (strcasecmp(key, "model") == 0 && value != model)
            fail_set(&x->fail, 400, FAIL_INVALID, "'%s' is another 'model': leave it out", key);
    if (json_string_length(model) != strlen(name))
        fail_set(&x->fail, 400, FAIL_INVALID, "'model' is required: the name '%.100s' alone", name);
    value = json_pack("{s:O?}", "model", model);
    json_decref(x->root);
    x->root = value;
    drop_values(x);
}

/* About what jansson takes for a text's values: a hundred times its bytes where they are `{}`. */
static size_t count_values(const char *text, size_t bytes)
{
    enum { OBJECT = 256, ARRAY = 128, STRING = 80, MEMBER = 96, ITEM = 48 };
    size_t sum = bytes;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];
        if (c == '"')
            sum += (in_string = !in_string) ? STRING : 0;
        else if (in_string)
            i += c == '\\';
        else
            sum += c == '{' ? OBJECT : c == '[' ? ARRAY : c == ':' ? MEMBER : c == ',' ? ITEM : 0;
    }
    return sum;
}

/* A request keeps its values until it ends, and many may wait or stream. One alone is taken. */
static bool has_room(struct exchange *x, const char *text)
{
    struct server *s = x->server;
    const size_t bytes = count_values(text, x->body.bytes);
    if (bytes <= SERVER_VALUES_FREE)
        return true;
    const size_t before = atomic_fetch_add(&s->value_bytes, bytes);
    if (!before || before + bytes <= SERVER_VALUES_MAX) {
        x->value_bytes = bytes;
        return true;
    }
    atomic_fetch_sub(&s->value_bytes, bytes);
    fail_set(&x->fail, 503, FAIL_UNAVAILABLE,
             "other requests take all memory for their values: try again in a moment");
    return false;
}

/* The body's object becomes x->root, or x->fail says why not. */
static void parse_body(struct exchange *x)
{
    json_error_t e;
    const char *text = x->body.data ? x->body.data : "";
    if (!has_room(x, text))
        return;
    if (x->server->config->upstreams) /* which read the same bytes, perhaps otherwise */
        x->root = json_loadb(text, x->body.bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
    else
        x->root = json_mend(text, x->body.bytes, JSON_ALLOW_NUL, &e);
    if (!x->root)
        fail_set(&x->fail, 400, FAIL_INVALID, "invalid JSON at line %d, column %d: %s", e.line,
                 e.column, e.text);
    else if (!json_is_object(x->root))
        fail_set(&x->fail, 400, FAIL_INVALID, "the request must be a JSON object, not %s",
                 field_type(x->root));
    else if (upstream_of(x, model_of(x)))
        check_passed(x);
}

static void answer_read(struct exchange *x)
{
    exchange_drop_body(x);
    if (x->fail.status)
        exchange_fail(x, &x->fail);
    else
        x->route->answer(x);
}

/* Frees what was read, where nothing needs it any more: of a large body that, too, takes long. */
static void forget_read(struct exchange *x)
{
    if (x->fail.status ? exchange_fails_in_stream(x, &x->fail)
                       : x->route->answer != exchange_answer_whole)
        return;
    bool stream = x->params.stream; /* a failure may be one of the stream that was asked for */
    if (x->params.root)
        gen_params_fini(&x->params);
    x->params.stream = stream;
    json_decref(x->root);
    json_decref(x->asked);
    x->root = x->asked = NULL;
    drop_values(x);
}

static void work(struct task *t, struct hearth *h, int rc, const char *err)
{
    struct exchange *x = dispatch_exchange(t);
    if (h)
        (void)x->route->read(x, h, &x->fail);
    else
        fail_library(&x->fail, rc, err);
    forget_read(x);
}

static void work_done(struct task *t)
{
    struct exchange *x = dispatch_exchange(t);
    if (!dispatch_is_back(x))
        return;
    if (!x->fail.status && t->epoch != pool_lost(&x->served->pool))
        fail_set(&x->fail, 503, FAIL_UNAVAILABLE, "the daemon went away: try again in a moment");
    answer_read(x);
}

/* The thread that reads the request, or NULL where the loop does so itself. */
static struct worker *reader_of(const struct exchange *x)
{
    struct worker *workers = x->served->workers;
    if (x->body.bytes < WORK_BYTES)
        return x->route->flags & ROUTE_RENDERS ? &workers[WORKER_CHAT] : NULL;
    return &workers[x->route->read == routes_read_infill ? WORKER_INFILL : WORKER_TEXT];
}

/* There is a daemon, where one is needed. */
static void answer(struct exchange *x)
{
    struct pool *pool = &x->served->pool;
    if (!(x->route->flags & ROUTE_POST)) {
        x->route->answer(x);
        return;
    }
    struct worker *reader = reader_of(x);
    if (!reader) {
        (void)x->route->read(x, pool_any(pool), &x->fail);
        answer_read(x);
        return;
    }
    x->task = (struct task){.work = work, .done = work_done, .epoch = pool_lost(pool)};
    x->worker = reader;
    worker_give(reader, &x->task);
}

static bool needs_daemon(const struct exchange *x)
{
    const unsigned flags = x->route->flags;
    return flags & ROUTE_DAEMON &&
           !(flags & ROUTE_IDLE && (x->server->launcher.server || x->server->config->upstreams)) &&
           !(flags & ROUTE_LIST && served_has_any(x->server));
}

/* The request is for the daemon of that model. */
static void ask_daemon(struct exchange *x, const char *model)
{
    x->served = served_choose(x->server, model, &x->is_named);
    x->served->n_exchanges++;
    if (needs_daemon(x) && !pool_is_up(&x->served->pool)) {
        x->waits_for_connect = true;
        pool_connect(&x->served->pool);
    } else {
        answer(x);
    }
}

static void find_work(struct task *t, struct hearth *h, int rc, const char *err)
{
    struct exchange *x = dispatch_exchange(t);
    (void)h, (void)rc, (void)err;
    x->is_on_disk = disk_find(&x->server->launcher.disk, x->wanted);
}

/* A name that no model has is treated as it would be without a budget. */
static void found(struct task *t)
{
    struct exchange *x = dispatch_exchange(t);
    struct fail f;
    if (!dispatch_is_back(x))
        return;
    if (!x->is_on_disk || !launcher_wants(x->server, x->wanted))
        ask_daemon(x, x->wanted);
    else if (launcher_join(x, &f) < 0)
        exchange_fail(x, &f);
}

static void pass_on(struct exchange *x, struct upstream *to)
{
    struct fail f;
    if (transfer_send(&x->server->transfers, x, to, x->route->path, &f) < 0)
        exchange_fail(x, &f);
}

static bool only_forgets(const struct exchange *x)
{
    return x->route->answer == ollama_run && ollama_only_forgets(x->root);
}

/* The request is for that model, at an upstream or at a daemon that may have to be started. */
static void ask(struct exchange *x, const char *model)
{
    struct upstream *to = upstream_of(x, model);
    if (to) {
        pass_on(x, to);
        return;
    }
    if (!(x->route->flags & ROUTE_STARTS) || only_forgets(x) || !launcher_wants(x->server, model)) {
        ask_daemon(x, model);
        return;
    }
    x->wanted = calloc(1, DISK_NAME_BYTES);
    if (!x->wanted) {
        struct fail f;
        fail_set(&f, 500, FAIL_SERVER, "out of memory: try again in a moment");
        exchange_fail(x, &f);
        return;
    }
    snprintf(x->wanted, DISK_NAME_BYTES, "%s", model);
    x->task = (struct task){.work = find_work, .done = found, .alone = true};
    x->worker = &x->server->launcher.disk.worker;
    worker_give(x->worker, &x->task);
}

/* The body was parsed. */
static void ask_parsed(struct exchange *x)
{
    if (x->fail.status)
        answer_read(x);
    else
        ask(x, model_of(x));
}

static void parse_work(struct task *t, struct hearth *h, int rc, const char *err)
{
    (void)h, (void)rc, (void)err;
    parse_body(dispatch_exchange(t));
}

static void parse_done(struct task *t)
{
    if (dispatch_is_back(dispatch_exchange(t)))
        ask_parsed(dispatch_exchange(t));
}

/* The model that a request names, or NULL. */
static const char *named_model(const struct exchange *x)
{
    return x->route->flags & ROUTE_POST
               ? model_of(x)
               : MHD_lookup_connection_value(x->mhd, MHD_GET_ARGUMENT_KIND, "model");
}

void dispatch(struct exchange *x)
{
    if (!(x->route->flags & ROUTE_POST)) {
        ask(x, named_model(x));
    } else if (x->body.bytes < WORK_BYTES) {
        parse_body(x);
        ask_parsed(x);
    } else {
        x->task = (struct task){.work = parse_work, .done = parse_done, .alone = true};
        x->worker = &x->server->parser;
        worker_give(x->worker, &x->task);
    }
}

void dispatch_launched(struct exchange *x, const struct fail *why)
{
    if (x->is_gone)
        return;
    if (why)
        exchange_fail(x, why);
    else
        ask_daemon(x, x->wanted);
}

void dispatch_tell_launching(struct exchange *x)
{
    char text[DISK_NAME_BYTES + 16];
    if (x->is_gone || x->route->answer != routes_run ||
        !json_is_true(json_object_get(x->root, "stream")))
        return;
    snprintf(text, sizeof(text), "loading %s", x->wanted);
    exchange_comment(x, text);
}

void dispatch_connected(struct exchange *x, const struct fail *why)
{
    x->waits_for_connect = false;
    if (x->is_gone)
        return;
    if (pool_is_up(&x->served->pool)) {
        answer(x);
        return;
    }
    const char *name = named_model(x);
    struct fail f;
    if (name && *name && !x->is_named && x->server->config->upstreams)
        fail_model(&f, name, NULL);
    else if (!why)
        fail_set(&f, 503, FAIL_UNAVAILABLE, "the daemon went away: try again in a moment");
    else
        f = *why;
    exchange_fail(x, &f);
}
