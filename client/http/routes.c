/* routes: see routes.h. What describes the gateway is in here, answers of the model in
 * routes_model.c. */
#include "client/http/routes.h"

#include "client/http/catalog.h"
#include "client/http/fields.h"
#include "client/http/json_put.h"
#include "client/http/metrics.h"
#include "client/http/ollama.h"
#include "client/http/page.h"
#include "client/http/reply.h"
#include "client/http/routes_model.h"
#include "client/http/state.h"
#include "client/http/status.h"
#include "client/http/token_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WORK_BYTES = 4096 }; /* of a body that a worker reads */

enum {
    ROUTE_OPEN = 1,    /* no key is needed */
    ROUTE_REST = 2,    /* the path continues after it */
    ROUTE_DAEMON = 4,  /* there must be a daemon */
    ROUTE_POST = 8,    /* with a JSON object, in x->root; else GET */
    ROUTE_STARTS = 16, /* its model may be an upstream's, or one whose daemon is to be started */
    ROUTE_IDLE = 32,   /* no daemon is needed where one can be started, or there are upstreams */
    ROUTE_LIST = 64,   /* no daemon is needed where models can be listed without one */
    ROUTE_MODEL = ROUTE_POST | ROUTE_DAEMON | ROUTE_STARTS
};

struct route {
    const char *path;
    unsigned flags;
    void (*answer)(struct exchange *x);
    /* For a POST: reads x->root with the vocabulary of h, and may put the answer. It may run in a
     * worker, so it must not touch the server's state. Returns 0, or -1 with *f. */
    int (*read)(struct exchange *x, struct hearth *h, struct fail *f);
    const struct reply *reply; /* writes the model's answer; NULL: the route gives none */
};

/* ---- the gateway ----------------------------------------------------------------------------- */

static void health(struct exchange *x)
{
    exchange_answer(x, json_pack("{s:s}", "status", "ok"));
}

static json_t *served_object(const struct pool_model *m, const char *name)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:{s:I, s:I, s:I, s:s, s:s}}", "id", name,
                     "object", "model", "type", "model", "display_name", name, "created",
                     (json_int_t)m->since, "owned_by", "hearth", "meta", "n_vocab",
                     (json_int_t)m->n_vocab, "n_ctx", (json_int_t)m->context, "n_ctx_train",
                     (json_int_t)m->context, "fingerprint", m->fingerprint, "numerics",
                     m->numerics);
}

/* Of one that is not loaded nothing is known but its name. */
static json_t *model_object(const struct catalog_entry *e)
{
    if (e->served)
        return served_object(&e->served->pool.model, e->name);
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:i, s:s}", "id", e->name, "object", "model",
                          "type", "model", "display_name", e->name, "created", 0, "owned_by",
                          e->is_upstream ? "upstream" : "hearth");
    if (!e->is_upstream)
        json_object_set_new(o, "status", json_pack("{s:s}", "value", "unloaded"));
    return o;
}

static void tell_models(struct exchange *x)
{
    exchange_answer(
        x, json_pack("{s:s, s:o}", "object", "list", "data", catalog_list(x, model_object)));
}

static void models(struct exchange *x)
{
    catalog_look(x, tell_models);
}

static void one_model(struct exchange *x)
{
    struct upstreams *upstreams = x->server->config->upstreams;
    struct served *d = served_find(x->server, x->path_rest);
    struct catalog_entry e = {.name = x->path_rest, .served = d && !served_is_asleep(d) ? d : NULL};
    struct fail f;
    e.is_upstream = upstreams && upstreams_find(upstreams, x->path_rest);
    if (d || e.is_upstream) {
        exchange_answer(x, model_object(&e));
        return;
    }
    fail_model(&f, x->path_rest, NULL);
    exchange_fail(x, &f);
}

static void props(struct exchange *x)
{
    const struct server *s = x->server;
    const struct pool_model *m = &x->served->pool.model;
    struct gen_params defaults;
    struct fail f;
    if (gen_params_read(&defaults, GEN_NATIVE, json_object(), &f) < 0) {
        gen_params_fini(&defaults);
        exchange_fail(x, &f);
        return;
    }
    const char *text = routes_chat_template(x); /* a file's may not be UTF-8 */
    const bool tools = routes_writes_tools(pool_any(&x->served->pool), s->config->chat_template);
    defaults.seed = UINT64_MAX; /* random, unless one is given */
    json_put_format(&x->out,
                    "{'default_generation_settings':{'n_ctx':%d,'params':", (int64_t)m->context);
    reply_put_settings(&x->out, x, &defaults);
    gen_params_fini(&defaults);
    json_put_format(&x->out,
                    "},'total_slots':%d,'model_alias':%s,'model_path':%s,'chat_template':%t,"
                    "'build_info':'hearth " HEARTH_VERSION
                    "','modalities':{'vision':false,'audio':false},'chat_template_caps':"
                    "{'supports_tools':%b,'supports_tool_calls':%b},'is_sleeping':false}",
                    (int64_t)s->config->slots, m->name, m->name, text, strlen(text), tools, tools);
    exchange_answer_whole(x);
}

static void slots(struct exchange *x)
{
    struct pool *p = &x->served->pool;
    const char *fail =
        MHD_lookup_connection_value(x->mhd, MHD_GET_ARGUMENT_KIND, "fail_on_no_slot");
    json_t *list = json_array();
    if (fail && strcmp(fail, "0") != 0 && pool_running(p) >= p->n_handles) {
        struct fail f;
        json_decref(list);
        fail_set(&f, 503, FAIL_UNAVAILABLE, "no slot available: all %u run", p->n_handles);
        exchange_fail(x, &f);
        return;
    }
    for (uint32_t i = 0; i < p->n_handles; i++) {
        const struct pool_handle *s = &p->handles[i];
        const struct choice *c = (const struct choice *)s->job;
        json_t *o = json_pack(
            "{s:I, s:I, s:I, s:b, s:b, s:b, s:I, s:I, s:{s:I}}", "id", (json_int_t)i, "id_task",
            (json_int_t)(c ? (json_int_t)s->job->id : -1), "n_ctx", (json_int_t)p->model.context,
            "speculative", 1, "is_processing", (int)(c != NULL), "is_open", (int)(s->h != NULL),
            "n_requests", (json_int_t)s->n_requests, "n_tokens", (json_int_t)s->tokens.n,
            "next_token", "n_decoded", (json_int_t)(c ? c->n_tokens : 0));
        json_array_append_new(list, o);
    }
    exchange_answer(x, list);
}

struct exchange *route_exchange(struct task *t)
{
    return (struct exchange *)((char *)t - offsetof(struct exchange, task));
}

bool route_is_back(struct exchange *x)
{
    x->worker = NULL;
    if (x->is_orphan)
        exchange_close(x);
    else if (!x->is_gone)
        return true;
    return false;
}

/* On a port that is open to all users: without what the daemon shows to a slot's own user alone. */
static void hide_users(const struct exchange *x)
{
    static const char *const hidden[] = {"name", "uid", "pid"};
    json_t *status = x->found, *slot;
    size_t i;
    if (!x->is_tcp || x->server->guard.n_keys)
        return;
    json_object_del(status, "socket");
    json_array_foreach(json_object_get(status, "slots"), i, slot)
        for (size_t k = 0; k < sizeof(hidden) / sizeof(hidden[0]); k++)
            json_object_del(slot, hidden[k]);
}

static void tell_metrics(struct exchange *x)
{
    struct buffer t = {0};
    hide_users(x);
    metrics_own(x->server, &t);
    metrics_daemon(x->found, &t);
    exchange_answer(x, json_object());
    buffer_fini(&x->out);
    x->out = t;
    x->content_type = "text/plain; version=0.0.4";
}

static void read_status(struct task *t, struct hearth *h, int rc, const char *err)
{
    struct exchange *x = route_exchange(t);
    (void)rc, (void)err; /* hearth_up says it */
    x->found = h ? status_ask(h) : NULL;
    t->drop = !x->found;
}

static void status_asked(struct task *t)
{
    if (route_is_back(route_exchange(t)))
        tell_metrics(route_exchange(t));
}

/* A worker asks, with a time limit: the daemon may hang. */
static void ask_status(struct exchange *x, void (*done)(struct task *t))
{
    x->task.work = read_status;
    x->task.done = done;
    x->task.epoch = pool_lost(&x->served->pool);
    x->task.connect_ms = STATUS_CONNECT_MS;
    x->worker = &x->served->workers[WORKER_STATUS];
    worker_give(x->worker, &x->task);
}

static void metrics(struct exchange *x)
{
    if (pool_is_up(&x->served->pool))
        ask_status(x, status_asked);
    else
        tell_metrics(x);
}

static void tell_status(struct task *t)
{
    struct exchange *x = route_exchange(t);
    struct fail f;
    if (!route_is_back(x))
        return;
    if (!x->found) {
        fail_set(&f, 503, FAIL_UNAVAILABLE, "the daemon does not say its status: try again");
        exchange_fail(x, &f);
        return;
    }
    hide_users(x);
    exchange_answer(x, json_incref(x->found));
}

/* As hearthd says it: what hearth status --json prints. */
static void status(struct exchange *x)
{
    ask_status(x, tell_status);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int read_tokenize(struct exchange *x, struct hearth *h, struct fail *f)
{
    const json_t *content = json_object_get(x->root, "content");
    bool add_special = false, parse_special = true, with_pieces = false;
    uint32_t *ids = NULL, n = 0;
    if (!json_is_string(content) && !json_is_array(content))
        return fail_set(f, 400, FAIL_INVALID,
                        "'content' must be a string, or an array of texts and ids");
    if (field_bool(x->root, "add_special", &add_special, f) < 0 ||
        field_bool(x->root, "parse_special", &parse_special, f) < 0 ||
        field_bool(x->root, "with_pieces", &with_pieces, f) < 0 ||
        gen_params_tokens(h, content, "content", add_special, parse_special, &ids, &n, f) < 0)
        return -1;
    json_t *list = with_pieces ? json_array() : json_of_ids(ids, n);
    for (uint32_t i = 0; with_pieces && i < n; i++) {
        char bytes[TOKEN_TEXT_BYTES];
        size_t n_bytes = token_text(h, ids[i], bytes);
        json_array_append_new(list, json_pack("{s:I, s:o}", "id", (json_int_t)ids[i], "piece",
                                              json_of_exact(bytes, n_bytes)));
    }
    free(ids);
    exchange_put_whole(x, json_pack("{s:o}", "tokens", list));
    return 0;
}

static int read_detokenize(struct exchange *x, struct hearth *h, struct fail *f)
{
    const json_t *list = json_object_get(x->root, "tokens");
    uint32_t *ids = NULL, n = 0;
    bool only_ids = json_is_array(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        only_ids = only_ids && json_is_integer(json_array_get(list, i));
    if (!only_ids)
        return fail_set(f, 400, FAIL_INVALID, "'tokens' must be an array of token ids");
    if (gen_params_tokens(h, list, "tokens", false, false, &ids, &n, f) < 0)
        return -1;
    int64_t bytes = hearth_detokenize(h, ids, n, HEARTH_SPECIAL, NULL, 0);
    char *text = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (text && bytes > 0)
        (void)hearth_detokenize(h, ids, n, HEARTH_SPECIAL, text, (size_t)bytes);
    exchange_put_whole(x,
                       json_pack("{s:o}", "content",
                                 text ? json_of_text(text, bytes > 0 ? (size_t)bytes : 0) : NULL));
    free(ids);
    free(text);
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct route routes[] = {
    {"/health", ROUTE_OPEN | ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, health, NULL, NULL},
    {"/v1/health", ROUTE_OPEN | ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, health, NULL, NULL},
    {"/completion", ROUTE_MODEL, routes_run, routes_read_completion, &reply_native},
    {"/completions", ROUTE_MODEL, routes_run, routes_read_completion, &reply_native},
    {"/infill", ROUTE_MODEL, routes_run, routes_read_infill, &reply_native},
    {"/v1/completions", ROUTE_MODEL, routes_run, routes_read_v1, &reply_text},
    {"/v1/chat/completions", ROUTE_MODEL, routes_run, routes_read_chat, &reply_chat},
    {"/chat/completions", ROUTE_MODEL, routes_run, routes_read_chat, &reply_chat},
    {"/v1/messages", ROUTE_MODEL, routes_run, routes_read_messages, &reply_messages},
    {"/v1/messages/count_tokens", ROUTE_MODEL, exchange_answer_whole, routes_read_messages_count,
     &reply_messages},
    {"/v1/responses", ROUTE_MODEL, routes_run, routes_read_responses, &reply_responses},
    {"/v1/responses/input_tokens", ROUTE_MODEL, exchange_answer_whole, routes_read_responses_count,
     &reply_responses},
    {"/apply-template", ROUTE_MODEL, exchange_answer_whole, routes_read_template, NULL},
    {"/tokenize", ROUTE_MODEL, exchange_answer_whole, read_tokenize, NULL},
    {"/detokenize", ROUTE_MODEL, exchange_answer_whole, read_detokenize, NULL},
    {"/api/chat", ROUTE_MODEL, ollama_run, ollama_read_chat, &reply_ollama_chat},
    {"/api/generate", ROUTE_MODEL, ollama_run, ollama_read_generate, &reply_ollama_generate},
    {"/api/show", ROUTE_POST | ROUTE_DAEMON, exchange_answer_whole, ollama_read_show,
     &reply_ollama_chat},
    {"/api/tags", ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, ollama_tags, NULL, &reply_ollama_chat},
    {"/api/ps", ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, ollama_ps, NULL, &reply_ollama_chat},
    {"/api/version", 0, ollama_version, NULL, &reply_ollama_chat},
    {"/", 0, ollama_root, NULL, NULL},
    {"/page.css", ROUTE_OPEN, page_style, NULL, NULL},
    {"/page.js", ROUTE_OPEN, page_script, NULL, NULL},
    {"/status", ROUTE_DAEMON, status, NULL, NULL},
    {"/v1/models", ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, models, NULL, NULL},
    {"/models", ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, models, NULL, NULL},
    {"/v1/models/", ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST | ROUTE_REST, one_model, NULL, NULL},
    {"/props", ROUTE_DAEMON, props, NULL, NULL},
    {"/slots", ROUTE_DAEMON, slots, NULL, NULL},
    {"/metrics", 0, metrics, NULL, NULL},
};

const struct route *route_find(const char *path, char *rest, size_t rest_bytes)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        const struct route *r = &routes[i];
        size_t n = strlen(r->path);
        if (strcmp(path, r->path) == 0 && !(r->flags & ROUTE_REST))
            return r;
        if (r->flags & ROUTE_REST && strncmp(path, r->path, n) == 0 && path[n]) {
            snprintf(rest, rest_bytes, "%s", path + n);
            return r;
        }
    }
    return NULL;
}

const struct reply *route_reply(const struct route *r)
{
    return r ? r->reply : NULL;
}

bool route_is_open(const struct route *r)
{
    return r && r->flags & ROUTE_OPEN;
}

const char *route_method(const struct route *r)
{
    return r->flags & ROUTE_POST ? "POST" : "GET";
}

bool route_takes(const struct route *r, const char *method)
{
    if (r->flags & ROUTE_POST)
        return strcmp(method, "POST") == 0;
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
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
}

/* The body's object becomes x->root, or x->fail says why not. */
static void parse_body(struct exchange *x)
{
    json_error_t e;
    size_t flags = JSON_ALLOW_NUL | (x->server->config->upstreams ? JSON_REJECT_DUPLICATES : 0);
    x->root = json_loadb(x->body.data ? x->body.data : "", x->body.bytes, flags, &e);
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
    if (!x->fail.status && x->route->answer != exchange_answer_whole)
        return;
    bool stream = x->params.stream; /* a failure may be one of the stream that was asked for */
    if (x->params.root)
        gen_params_fini(&x->params);
    x->params.stream = stream;
    json_decref(x->root);
    json_decref(x->asked);
    x->root = x->asked = NULL;
}

static void work(struct task *t, struct hearth *h, int rc, const char *err)
{
    struct exchange *x = route_exchange(t);
    if (h)
        (void)x->route->read(x, h, &x->fail);
    else
        fail_library(&x->fail, rc, err);
    forget_read(x);
}

static void work_done(struct task *t)
{
    struct exchange *x = route_exchange(t);
    if (!route_is_back(x))
        return;
    if (!x->fail.status && t->epoch != pool_lost(&x->served->pool))
        fail_set(&x->fail, 503, FAIL_UNAVAILABLE, "the daemon went away: try again in a moment");
    answer_read(x);
}

/* There is a daemon, where one is needed. */
static void answer(struct exchange *x)
{
    struct served *d = x->served;
    if (!(x->route->flags & ROUTE_POST)) {
        x->route->answer(x);
    } else if (x->body.bytes < WORK_BYTES) {
        (void)x->route->read(x, pool_any(&d->pool), &x->fail);
        answer_read(x);
    } else {
        x->task = (struct task){.work = work, .done = work_done, .epoch = pool_lost(&d->pool)};
        x->worker = &d->workers[x->route->read == routes_read_infill ? WORKER_INFILL : WORKER_TEXT];
        worker_give(x->worker, &x->task);
    }
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
    struct exchange *x = route_exchange(t);
    (void)h, (void)rc, (void)err;
    x->is_on_disk = disk_find(&x->server->launcher.disk, x->wanted);
}

/* A name that no model has is treated as it would be without a budget. */
static void found(struct task *t)
{
    struct exchange *x = route_exchange(t);
    struct fail f;
    if (!route_is_back(x))
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
    parse_body(route_exchange(t));
}

static void parse_done(struct task *t)
{
    if (route_is_back(route_exchange(t)))
        ask_parsed(route_exchange(t));
}

/* The model that a request names, or NULL. */
static const char *named_model(const struct exchange *x)
{
    return x->route->flags & ROUTE_POST
               ? model_of(x)
               : MHD_lookup_connection_value(x->mhd, MHD_GET_ARGUMENT_KIND, "model");
}

void route_answer(struct exchange *x)
{
    if (!(x->route->flags & ROUTE_POST)) {
        ask(x, named_model(x));
    } else if (x->body.bytes < WORK_BYTES) {
        parse_body(x);
        ask_parsed(x);
    } else {
        x->task = (struct task){.work = parse_work, .done = parse_done, .alone = true};
        x->worker = &x->server->served->workers[WORKER_TEXT];
        worker_give(x->worker, &x->task);
    }
}

void route_launched(struct exchange *x, const struct fail *why)
{
    if (x->is_gone)
        return;
    if (why)
        exchange_fail(x, why);
    else
        ask_daemon(x, x->wanted);
}

void route_tell_launching(struct exchange *x)
{
    char text[DISK_NAME_BYTES + 16];
    if (x->is_gone || x->route->answer != routes_run ||
        !json_is_true(json_object_get(x->root, "stream")))
        return;
    snprintf(text, sizeof(text), "loading %s", x->wanted);
    exchange_comment(x, text);
}

void route_connected(struct exchange *x, const struct fail *why)
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
