/* routes_about: see routes_about.h. */
#include "client/http/routes_about.h"

#include "client/http/catalog.h"
#include "client/http/dispatch.h"
#include "client/http/json_put.h"
#include "client/http/metrics.h"
#include "client/http/reply.h"
#include "client/http/routes_model.h"
#include "client/http/state.h"
#include "client/http/status.h"
#include "client/http/token_json.h"

#include <string.h>

void routes_health(struct exchange *x)
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

void routes_models(struct exchange *x)
{
    catalog_look(x, tell_models);
}

/* Is it one of the disk, which a request starts? */
static bool is_startable(const struct exchange *x, const char *model)
{
    json_t *file;
    size_t i;
    json_array_foreach(x->found, i, file)
        if (served_is_same(json_string_value(json_object_get(file, "name")), model))
            return true;
    return false;
}

static void tell_one_model(struct exchange *x)
{
    struct upstreams *upstreams = x->server->config->upstreams;
    struct served *d = served_find(x->server, x->path_rest);
    struct catalog_entry e = {.name = x->path_rest, .served = d && !served_is_asleep(d) ? d : NULL};
    struct fail f;
    e.is_upstream = upstreams && upstreams_find(upstreams, x->path_rest);
    if (d || e.is_upstream || is_startable(x, x->path_rest)) {
        exchange_answer(x, model_object(&e));
        return;
    }
    fail_model(&f, x->path_rest, NULL);
    exchange_fail(x, &f);
}

void routes_one_model(struct exchange *x)
{
    catalog_look(x, tell_one_model);
}

static void tell_props(struct exchange *x)
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
    const bool tools = json_is_true(x->found);
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

static void look_at_template(struct task *t, struct hearth *h, int rc, const char *err)
{
    struct exchange *x = dispatch_exchange(t);
    (void)rc, (void)err; /* without a daemon it writes none */
    x->found = json_boolean(h && routes_writes_tools(h, x->server->config->chat_template));
}

static void template_looked_at(struct task *t)
{
    if (dispatch_is_back(dispatch_exchange(t)))
        tell_props(dispatch_exchange(t));
}

void routes_props(struct exchange *x)
{
    x->task = (struct task){
        .work = look_at_template, .done = template_looked_at, .epoch = pool_lost(&x->served->pool)};
    x->worker = &x->served->workers[WORKER_CHAT];
    worker_give(x->worker, &x->task);
}

void routes_slots(struct exchange *x)
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
    hide_users(x);
    metrics_own(x->server, &x->out);
    metrics_daemon(x->found, &x->out);
    exchange_pass_whole(x, 200, "text/plain; version=0.0.4");
}

static void read_status(struct task *t, struct hearth *h, int rc, const char *err)
{
    struct exchange *x = dispatch_exchange(t);
    (void)rc, (void)err; /* hearth_up says it */
    x->found = h ? status_ask(h) : NULL;
    t->drop = !x->found;
}

static void status_asked(struct task *t)
{
    if (dispatch_is_back(dispatch_exchange(t)))
        tell_metrics(dispatch_exchange(t));
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

void routes_metrics(struct exchange *x)
{
    if (pool_is_up(&x->served->pool))
        ask_status(x, status_asked);
    else
        tell_metrics(x);
}

static void tell_status(struct task *t)
{
    struct exchange *x = dispatch_exchange(t);
    struct fail f;
    if (!dispatch_is_back(x))
        return;
    if (!x->found) {
        fail_set(&f, 503, FAIL_UNAVAILABLE, "the daemon does not say its status: try again");
        exchange_fail(x, &f);
        return;
    }
    hide_users(x);
    exchange_answer(x, json_incref(x->found));
}

void routes_status(struct exchange *x)
{
    ask_status(x, tell_status);
}
