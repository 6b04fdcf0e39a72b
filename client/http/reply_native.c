/* reply_native: answers in llama-server's form. */
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"
#include "ipc/bell.h"

#include <stdlib.h>
#include <string.h>

/* json_pack() gives NULL if one of its parts is NULL; put_json() reports that. */

json_t *reply_timings(const struct finish *e)
{
    uint32_t n = e->prompt - e->cached;
    double prompt_ms = (double)e->prefill_ns / 1e6, predicted_ms = (double)e->decode_ns / 1e6;
    json_t *t = json_pack(
        "{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n", (json_int_t)e->cached,
        "prompt_n", (json_int_t)n, "prompt_ms", prompt_ms, "prompt_per_token_ms",
        n ? prompt_ms / n : 0.0, "prompt_per_second", prompt_ms > 0 ? 1e3 * n / prompt_ms : 0.0,
        "predicted_n", (json_int_t)e->output, "predicted_ms", predicted_ms,
        "predicted_per_token_ms", e->output ? predicted_ms / e->output : 0.0,
        "predicted_per_second", predicted_ms > 0 ? 1e3 * e->output / predicted_ms : 0.0);
    if (e->drafted) {
        json_object_set_new(t, "draft_n", json_integer(e->drafted));
        json_object_set_new(t, "draft_n_accepted", json_integer(e->accepted));
    }
    return t;
}

/* Lines of a text as an array. */
static json_t *lines_of(const char *text)
{
    json_t *lines = json_array();
    while (*text) {
        size_t n = strcspn(text, "\n");
        json_array_append_new(lines, json_stringn(text, n));
        text += n + (text[n] == '\n');
    }
    return lines;
}

json_t *reply_hearth(const struct exchange *x, const struct choice *c)
{
    const struct pool_model *m = &x->served->pool.model;
    json_t *o = json_pack("{s:I, s:s, s:s}", "seed", (json_int_t)c->job.request.seed, "numerics",
                          m->numerics, "receipt", c->finish.receipt);
    const char *why = x->params.readers ? hearth_chat_unparsed(x->params.readers[c->index]) : NULL;
    if (why)
        json_object_set_new(o, "unparsed", json_string(why));
    const char *loosened =
        x->params.readers ? hearth_chat_loosened(x->params.readers[c->index]) : NULL;
    if (loosened)
        json_object_set_new(o, "loosened", lines_of(loosened));
    return o;
}

static json_t *samplers(const struct gen_params *a)
{
    static const char *const all[] = {"penalties", "top_k", "typ_p",
                                      "top_p",     "min_p", "temperature"};
    json_t *list = json_array();
    uint32_t n = a->has_samplers ? a->n_samplers : sizeof(all) / sizeof(all[0]);
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(a->has_samplers ? a->samplers[i] : all[i]));
    return list;
}

json_t *reply_settings(const struct exchange *x, const struct gen_params *a)
{
    const struct hearth_request *r = &a->base;
    const struct pool_model *m = &x->served->pool.model;
    json_t *stops = json_array();
    for (uint32_t i = 0; i < r->n_stops; i++)
        json_array_append_new(stops, json_string(r->stops[i]));
    json_t *o =
        json_pack("{s:I, s:s, s:I, s:I, s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "n_ctx",
                  (json_int_t)m->context, "model", m->name, "n_predict", (json_int_t)a->max_tokens,
                  "seed", (json_int_t)a->seed, "temperature", (double)r->temperature, "top_k",
                  (json_int_t)r->top_k, "top_p", (double)r->top_p, "min_p", (double)r->min_p,
                  "typical_p", (double)r->typical_p, "repeat_penalty", (double)r->repeat_penalty,
                  "frequency_penalty", (double)r->frequency_penalty, "presence_penalty",
                  (double)r->presence_penalty, "repeat_last_n", (json_int_t)r->penalty_last_n);
    json_t *more = json_pack(
        "{s:o, s:o, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:s, s:s}", "stop", stops, "samplers",
        samplers(a), "max_tokens", (json_int_t)a->max_tokens, "n_probs",
        (json_int_t)(a->n_logprobs > 0 ? a->n_logprobs : 0), "n_indent", (json_int_t)a->n_indent,
        "t_max_predict_ms", (json_int_t)a->t_max_predict_ms, "stream", (int)a->stream,
        "timings_per_token", (int)a->timings_per_token, "ignore_eos", (int)r->ignore_eos, "grammar",
        r->grammar ? r->grammar : "", "numerics", m->numerics);
    json_object_update_new(o, more);
    return o;
}

/* ---- tokens and their probabilities ---------------------------------------------------------- */

static json_t *prob(struct hearth *h, const struct hearth_logprob *l)
{
    char bytes[TOKEN_TEXT_BYTES];
    size_t n = h ? token_text(h, l->token, bytes) : 0;
    return json_pack("{s:I, s:o, s:o, s:f}", "id", (json_int_t)l->token, "token",
                     json_of_text(bytes, n), "bytes", json_of_bytes(bytes, n), "logprob",
                     (double)l->logprob);
}

static json_t *native_probs(struct choice *c, const struct hearth_token_logprobs *l)
{
    struct hearth *h = pool_any(&c->x->served->pool);
    json_t *o = prob(h, &l->picked), *top = json_array();
    for (uint32_t i = 0; i < l->n_top; i++)
        json_array_append_new(top, prob(h, &l->top[i]));
    json_object_set_new(o, "top_logprobs", top);
    return o;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static const char *stop_type(const struct finish *e)
{
    switch (e->reason) {
    case HEARTH_EOS:
        return "eos";
    case HEARTH_STOP:
        return "word";
    case HEARTH_LENGTH:
        return "limit";
    default:
        return "none";
    }
}

/* Does the client's list name this field, or a path that begins with it ("timings/prompt_n")?
 * Without a list every field is wanted. */
static bool is_wanted(const struct gen_params *a, const char *name)
{
    size_t n = strlen(name);
    if (!a->response_fields)
        return true;
    for (size_t i = 0; i < json_array_size(a->response_fields); i++) {
        const char *path = json_string_value(json_array_get(a->response_fields, i));
        if (path && strncmp(path, name, n) == 0 && (!path[n] || path[n] == '/'))
            return true;
    }
    return false;
}

static json_t *prompt_text(struct exchange *x, const struct choice *c)
{
    const struct hearth_request *r = &c->job.request;
    struct hearth *h = pool_any(&x->served->pool);
    int64_t n = h ? hearth_detokenize(h, r->tokens, r->n_tokens, HEARTH_SPECIAL, NULL, 0) : 0;
    char *bytes = n > 0 ? malloc((size_t)n) : NULL;
    if (!bytes)
        return json_string("");
    (void)hearth_detokenize(h, r->tokens, r->n_tokens, HEARTH_SPECIAL, bytes, (size_t)n);
    json_t *s = json_of_text(bytes, (size_t)n);
    free(bytes);
    return s;
}

/* "a/b" in the list moves b of a to the top, under the name "a/b". */
static json_t *select_fields(const struct gen_params *a, json_t *all)
{
    if (!a->response_fields)
        return all;
    json_t *o = json_object();
    for (size_t i = 0; i < json_array_size(a->response_fields); i++) {
        const char *path = json_string_value(json_array_get(a->response_fields, i));
        json_t *at = all;
        for (const char *step = path; step && at;) {
            size_t n = strcspn(step, "/");
            at = json_object_getn(at, step, n);
            step = step[n] ? step + n + 1 : NULL;
        }
        if (path && at)
            json_object_set(o, path, at);
    }
    json_decref(all);
    return o;
}

static void add_end(struct exchange *x, struct choice *c, json_t *o)
{
    const struct finish *e = &c->finish;
    const struct gen_params *a = &x->params;
    uint32_t full = e->prompt + e->output >= x->served->pool.model.context;
    json_t *more = json_pack(
        "{s:I, s:s, s:I, s:I, s:b, s:b, s:s, s:s, s:I}", "id_slot", (json_int_t)c->job.ran_at,
        "model", x->served->pool.model.name, "tokens_predicted", (json_int_t)e->output,
        "tokens_evaluated", (json_int_t)e->prompt, "has_new_line", (int)c->has_newline, "truncated",
        (int)(full && e->reason == HEARTH_LENGTH && a->max_tokens != 0), "stop_type", stop_type(e),
        "stopping_word", e->stopping_word, "tokens_cached", (json_int_t)e->prompt + e->output);
    json_object_update_new(o, more);
    if (is_wanted(a, "generation_settings"))
        json_object_set_new(o, "generation_settings", reply_settings(x, a));
    if (is_wanted(a, "prompt"))
        json_object_set_new(o, "prompt", prompt_text(x, c));
    json_object_set_new(o, "timings", reply_timings(e));
    json_object_set_new(o, "hearth", reply_hearth(x, c));
}

static json_t *body(struct exchange *x, struct choice *c, bool is_end, bool with_tokens)
{
    json_t *o = json_pack("{s:I, s:o, s:o, s:b}", "index", (json_int_t)c->index, "content",
                          json_stringn(c->text.data ? c->text.data : "", c->text.bytes), "tokens",
                          json_of_ids(c->ids.ids, with_tokens ? c->ids.n : 0), "stop", (int)is_end);
    if (c->probs)
        json_object_set(o, "completion_probabilities", c->probs);
    if (is_end)
        add_end(x, c, o);
    return o;
}

static void native_chunk(struct exchange *x, struct choice *c)
{
    json_t *o = body(x, c, false, true);
    json_object_set_new(o, "id_slot", json_integer(c->job.ran_at));
    json_object_set_new(o, "tokens_predicted", json_integer(c->n_tokens));
    json_object_set_new(o, "tokens_evaluated", json_integer(c->job.request.n_tokens));
    if (x->params.timings_per_token) {
        uint64_t now = bell_now_ns();
        struct finish e = {.prompt = c->job.request.n_tokens,
                           .output = c->n_tokens,
                           .prefill_ns = c->first_ns - c->submit_ns,
                           .decode_ns = now - c->first_ns};
        json_object_set_new(o, "timings", reply_timings(&e));
    }
    exchange_put(x, o);
}

static void native_progress(struct exchange *x, struct choice *c, const struct hearth_event *e)
{
    if (!x->params.return_progress)
        return;
    double ms = (double)(bell_now_ns() - c->submit_ns) / 1e6;
    json_t *o = body(x, c, false, true);
    json_object_set_new(o, "prompt_progress",
                        json_pack("{s:I, s:I, s:I, s:f}", "total", (json_int_t)e->total, "cache",
                                  (json_int_t)0, "processed", (json_int_t)e->done, "time_ms", ms));
    exchange_put(x, o);
}

static void native_end(struct exchange *x, struct choice *c)
{
    exchange_put(x, select_fields(&x->params, body(x, c, true, true)));
}

static void native_whole(struct exchange *x)
{
    json_t *list = x->params.is_list ? json_array() : NULL;
    for (uint32_t i = 0; i < x->n_choices; i++) {
        json_t *o = body(x, &x->choices[i], true, x->params.return_tokens);
        o = select_fields(&x->params, o);
        if (!list) {
            exchange_put(x, o);
            return;
        }
        json_array_append_new(list, o);
    }
    exchange_put(x, list);
}

const struct reply reply_native = {.id = "cmpl-",
                                   .chunk = native_chunk,
                                   .progress = native_progress,
                                   .end = native_end,
                                   .whole = native_whole,
                                   .probs = native_probs};
