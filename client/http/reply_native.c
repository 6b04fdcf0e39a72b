/* reply_native: answers in llama-server's form. */
#include "client/http/json_put.h"
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"
#include "ipc/bell.h"

#include <stdlib.h>
#include <string.h>

void reply_put_timings(struct buffer *t, const struct finish *e)
{
    uint32_t n = e->prompt - e->cached;
    double prompt_ms = (double)e->prefill_ns / 1e6, predicted_ms = (double)e->decode_ns / 1e6;
    json_put_format(
        t,
        "{'cache_n':%d,'stored_n':%d,'prompt_n':%d,'prompt_ms':%f,'prompt_per_token_ms':%f,"
        "'prompt_per_second':%f",
        (int64_t)e->cached, (int64_t)e->stored, (int64_t)n, prompt_ms, n ? prompt_ms / n : 0.0,
        prompt_ms > 0 ? 1e3 * n / prompt_ms : 0.0);
    json_put_format(t,
                    ",'predicted_n':%d,'predicted_ms':%f,'predicted_per_token_ms':%f,"
                    "'predicted_per_second':%f",
                    (int64_t)e->output, predicted_ms, e->output ? predicted_ms / e->output : 0.0,
                    predicted_ms > 0 ? 1e3 * e->output / predicted_ms : 0.0);
    if (e->drafted)
        json_put_format(t, ",'draft_n':%d,'draft_n_accepted':%d", (int64_t)e->drafted,
                        (int64_t)e->accepted);
    buffer_text(t, "}");
}

/* Lines of a text as an array. */
static void put_lines(struct buffer *t, const char *text)
{
    const char *mark = "";
    buffer_text(t, "[");
    for (; *text; mark = ",") {
        size_t n = strcspn(text, "\n");
        buffer_text(t, mark);
        json_put_format(t, "%t", text, n);
        text += n + (text[n] == '\n');
    }
    buffer_text(t, "]");
}

void reply_put_hearth(struct buffer *t, const struct exchange *x, const struct choice *c)
{
    struct hearth_chat_reader *reader = x->params.readers ? x->params.readers[c->index] : NULL;
    const char *why = reader ? hearth_chat_unparsed(reader) : NULL;
    const char *loosened = reader ? hearth_chat_loosened(reader) : NULL;
    json_put_format(t, ",'hearth':{'seed':%d,'numerics':%s,'receipt':%s",
                    (int64_t)c->job.request.seed, x->served->pool.model.numerics,
                    c->finish.receipt);
    if (why)
        json_put_format(t, ",'unparsed':%s", why);
    if (loosened) {
        buffer_text(t, ",\"loosened\":");
        put_lines(t, loosened);
    }
    buffer_text(t, "}");
}

/* A list of texts. */
static void put_texts(struct buffer *t, const char *const *texts, uint32_t n)
{
    buffer_text(t, "[");
    for (uint32_t i = 0; i < n; i++) {
        buffer_text(t, i ? "," : "");
        json_put_format(t, "%s", texts[i]);
    }
    buffer_text(t, "]");
}

/* A long one is not said again: each answer of a request says all of it. */
static const char *shown_grammar(const struct hearth_request *r)
{
    enum { MOST_BYTES = 16384 };
    return r->grammar && r->grammar_bytes <= MOST_BYTES ? r->grammar : "";
}

void reply_put_settings(struct buffer *t, const struct exchange *x, const struct gen_params *a)
{
    static const char *const samplers[] = {"penalties", "top_k", "typ_p",
                                           "top_p",     "min_p", "temperature"};
    enum { SAMPLERS = sizeof(samplers) / sizeof(samplers[0]) };
    const struct hearth_request *r = &a->base;
    const struct pool_model *m = &x->served->pool.model;
    json_put_format(t,
                    "{'n_ctx':%d,'model':%s,'n_predict':%d,'seed':%d,'temperature':%f,'top_k':%d,"
                    "'top_p':%f,'min_p':%f,'typical_p':%f,'repeat_penalty':%f,"
                    "'frequency_penalty':%f,'presence_penalty':%f,'repeat_last_n':%d,'stop':",
                    (int64_t)m->context, m->name, (int64_t)a->max_tokens, (int64_t)a->seed,
                    (double)r->temperature, (int64_t)r->top_k, (double)r->top_p, (double)r->min_p,
                    (double)r->typical_p, (double)r->repeat_penalty, (double)r->frequency_penalty,
                    (double)r->presence_penalty, (int64_t)r->penalty_last_n);
    put_texts(t, r->stops, r->n_stops);
    buffer_text(t, ",\"samplers\":");
    if (a->has_samplers)
        put_texts(t, a->samplers, a->n_samplers);
    else
        put_texts(t, samplers, SAMPLERS);
    json_put_format(t,
                    ",'max_tokens':%d,'n_probs':%d,'n_indent':%d,'t_max_predict_ms':%d,'stream':%b,"
                    "'timings_per_token':%b,'ignore_eos':%b,'grammar':%s,'numerics':%s}",
                    (int64_t)a->max_tokens, (int64_t)(a->n_logprobs > 0 ? a->n_logprobs : 0),
                    (int64_t)a->n_indent, (int64_t)a->t_max_predict_ms, (int)a->stream,
                    (int)a->timings_per_token, (int)r->ignore_eos, shown_grammar(r), m->numerics);
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

json_t *reply_probs(struct choice *c, const struct hearth_token_logprobs *l)
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

/* "a/b" in the list moves b of a to the top, under the name "a/b". Takes over `all`. */
static json_t *select_fields(const struct gen_params *a, json_t *all)
{
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

/* What was said since the last time; the object is left open. */
static void put_body(struct exchange *x, const struct choice *c, bool is_end, bool with_tokens)
{
    struct buffer *t = &x->out;
    json_put_format(t, "{'index':%d,'content':%t,'tokens':%o,'stop':%b", (int64_t)c->index,
                    c->text.data, c->text.bytes,
                    json_of_ids(c->ids.ids, with_tokens ? c->ids.n : 0), (int)is_end);
    if (c->probs[0].bytes && (!is_end || is_wanted(&x->params, "completion_probabilities"))) {
        buffer_text(t, ",\"completion_probabilities\":");
        exchange_put_list(t, &c->probs[0]);
    }
}

static void native_ahead(struct exchange *x)
{
    if (!is_wanted(&x->params, "generation_settings"))
        return;
    buffer_text(&x->ahead, ",\"generation_settings\":");
    reply_put_settings(&x->ahead, x, &x->params);
}

static void put_whole(struct exchange *x, struct choice *c, bool with_tokens)
{
    struct buffer *t = &x->out;
    const struct finish *e = &c->finish;
    const struct gen_params *a = &x->params;
    const char *name = x->served->pool.model.name;
    uint32_t full = e->prompt + e->output >= x->served->pool.model.context;
    size_t begin = t->bytes;
    put_body(x, c, true, with_tokens);
    json_put_format(t,
                    ",'id_slot':%d,'model':%s,'tokens_predicted':%d,'tokens_evaluated':%d,"
                    "'has_new_line':%b,'truncated':%b,'stop_type':%s,'stopping_word':%t,"
                    "'tokens_cached':%d",
                    (int64_t)c->job.ran_at, name, (int64_t)e->output, (int64_t)e->prompt,
                    (int)c->has_newline,
                    (int)(full && e->reason == HEARTH_LENGTH && a->max_tokens != 0), stop_type(e),
                    e->stopping_word, strlen(e->stopping_word), (int64_t)e->prompt + e->output);
    exchange_put_ahead(x);
    if (is_wanted(a, "prompt"))
        json_put_format(t, ",'prompt':%o", prompt_text(x, c));
    buffer_text(t, ",\"timings\":");
    reply_put_timings(t, e);
    reply_put_hearth(t, x, c);
    buffer_text(t, "}");
    if (a->response_fields && !t->failed) {
        json_t *all = json_loadb(t->data + begin, t->bytes - begin, JSON_ALLOW_NUL, NULL);
        t->bytes = begin;
        json_put_format(t, "%o", select_fields(a, all));
    }
}

static void native_chunk(struct exchange *x, struct choice *c)
{
    exchange_begin(x, NULL);
    put_body(x, c, false, true);
    json_put_format(&x->out, ",'id_slot':%d,'tokens_predicted':%d,'tokens_evaluated':%d",
                    (int64_t)c->job.ran_at, (int64_t)c->n_tokens, (int64_t)c->job.request.n_tokens);
    if (x->params.timings_per_token) {
        uint64_t now = bell_now_ns();
        struct finish e = {.prompt = c->job.request.n_tokens,
                           .output = c->n_tokens,
                           .prefill_ns = c->first_ns - c->submit_ns,
                           .decode_ns = now - c->first_ns};
        buffer_text(&x->out, ",\"timings\":");
        reply_put_timings(&x->out, &e);
    }
    buffer_text(&x->out, "}");
    exchange_end(x);
}

static void native_progress(struct exchange *x, struct choice *c, const struct hearth_event *e)
{
    if (!x->params.return_progress)
        return;
    exchange_begin(x, NULL);
    put_body(x, c, false, true);
    json_put_format(
        &x->out, ",'prompt_progress':{'total':%d,'cache':0,'processed':%d,'time_ms':%f}}",
        (int64_t)e->total, (int64_t)e->done, (double)(bell_now_ns() - c->submit_ns) / 1e6);
    exchange_end(x);
}

static void native_end(struct exchange *x, struct choice *c)
{
    exchange_begin(x, NULL);
    put_whole(x, c, true);
    exchange_end(x);
}

static void native_whole(struct exchange *x)
{
    bool is_list = x->params.is_list;
    buffer_text(&x->out, is_list ? "[" : "");
    for (uint32_t i = 0; i < (is_list ? x->n_choices : 1); i++) {
        buffer_text(&x->out, i ? "," : "");
        put_whole(x, &x->choices[i], x->params.return_tokens);
    }
    buffer_text(&x->out, is_list ? "]" : "");
}

const struct reply reply_native = {.id = "cmpl-",
                                   .ahead = native_ahead,
                                   .chunk = native_chunk,
                                   .progress = native_progress,
                                   .end = native_end,
                                   .whole = native_whole,
                                   .probs = reply_probs};
