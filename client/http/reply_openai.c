/* reply_openai: answers in the form of OpenAI's completions, and what chats have in common with
 * them. */
#include "client/http/json_put.h"
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"

#include <stdio.h>
#include <string.h>

static const char *finish_reason(const struct finish *e)
{
    return e->reason == HEARTH_LENGTH ? "length" : "stop";
}

static void put_usage(struct buffer *t, const struct exchange *x)
{
    int64_t prompt = 0, output = 0, cached = 0, stored = 0, same = 0;
    for (uint32_t i = 0; i < x->n_choices; i++) {
        const struct finish *e = &x->choices[i].finish;
        if (i % x->params.n == 0) { /* choices share their prompt */
            prompt += e->prompt;
            cached += e->cached;
            stored += e->stored;
            same += e->prefix_break;
        }
        output += e->output;
    }
    json_put_format(
        t,
        ",'usage':{'prompt_tokens':%d,'completion_tokens':%d,'total_tokens':%d,"
        "'prompt_tokens_details':{'cached_tokens':%d,'stored_tokens':%d,'prefix_break':%d}},"
        "'timings':",
        prompt, output, prompt + output, cached, stored, same);
    reply_put_timings(t, &x->choices[0].finish);
}

void reply_v1_ahead(struct exchange *x, const char *object)
{
    const struct pool_model *m = &x->served->pool.model;
    char fingerprint[80];
    snprintf(fingerprint, sizeof(fingerprint), "fp_%.12s_%.40s", m->fingerprint, m->numerics);
    json_put_format(&x->ahead,
                    "{'id':%s,'object':%s,'created':%d,'model':%s,'system_fingerprint':%s,"
                    "'choices':[",
                    x->id, object, (int64_t)x->created, exchange_model(x), fingerprint);
}

void reply_v1_begin(struct exchange *x)
{
    exchange_begin(x, NULL);
    exchange_put_ahead(x);
}

void reply_v1_end(struct exchange *x, const struct choice *ended)
{
    buffer_text(&x->out, "]");
    if (!x->params.stream)
        put_usage(&x->out, x);
    else if (x->params.include_usage)
        buffer_text(&x->out, ",\"usage\":null");
    if (ended)
        reply_put_hearth(&x->out, x, ended);
    buffer_text(&x->out, "}");
    exchange_end(x);
}

void reply_v1_close(struct exchange *x)
{
    if (x->params.include_usage) {
        reply_v1_begin(x);
        buffer_text(&x->out, "]");
        put_usage(&x->out, x);
        buffer_text(&x->out, "}");
        exchange_end(x);
    }
    buffer_text(&x->out, "data: [DONE]\n\n");
}

/* ---- /v1/completions ------------------------------------------------------------------------- */

/* One token, for the lists that text_logprobs makes: [text, log-probability, {text: ...},
 * offset]. */
static json_t *text_probs(struct choice *c, const struct hearth_token_logprobs *l)
{
    struct hearth *h = pool_any(&c->x->served->pool);
    char bytes[TOKEN_TEXT_BYTES];
    json_t *top = json_object();
    for (uint32_t i = 0; i < l->n_top; i++) {
        json_t *key = json_of_text(bytes, h ? token_text(h, l->top[i].token, bytes) : 0);
        json_object_setn_new(top, json_string_value(key), json_string_length(key),
                             json_real((double)l->top[i].logprob));
        json_decref(key);
    }
    size_t n = h ? token_text(h, l->picked.token, bytes) : 0;
    json_int_t offset = (json_int_t)c->emitted.n;
    json_t *picked = json_of_text(bytes, n);
    characters_add(&c->emitted, bytes, n);
    json_object_setn_new(
        top, json_string_value(picked), json_string_length(picked),
        json_real((double)l->picked.logprob)); /* also if it is not among the best */
    return json_pack("[o, f, o, I]", picked, (double)l->picked.logprob, top, offset);
}

static void put_logprobs(struct buffer *t, const struct exchange *x, const struct choice *c)
{
    static const char *const names[CHOICE_LISTS] = {"tokens", "token_logprobs", "top_logprobs",
                                                    "text_offset"};
    if (x->params.n_logprobs < 0) {
        buffer_text(t, "null");
        return;
    }
    for (size_t i = 0; i < CHOICE_LISTS; i++) {
        json_put_format(t, i ? ",%s:" : "{%s:", names[i]);
        exchange_put_list(t, &c->probs[i]);
    }
    buffer_text(t, "}");
}

static void put_choice(struct exchange *x, const struct choice *c, const char *finish)
{
    json_put_format(&x->out, "{'text':%t,'index':%d,'logprobs':", c->text.data, c->text.bytes,
                    (int64_t)c->index);
    put_logprobs(&x->out, x, c);
    json_put_format(&x->out, ",'finish_reason':%o}", finish ? json_string(finish) : json_null());
}

/* The prompt in front of its answer: once, with the first of the text. */
static void echo(const struct exchange *x, struct choice *c)
{
    const json_t *prompt = x->params.prompts[c->index / x->params.n].text;
    struct buffer all = {0};
    if (!x->params.echo || c->is_started || !json_is_string(prompt))
        return;
    c->is_started = true;
    buffer_add(&all, json_string_value(prompt), json_string_length(prompt));
    buffer_add(&all, c->text.data, c->text.bytes);
    all.failed |= c->text.failed;
    buffer_fini(&c->text);
    c->text = all;
}

static void put_stream(struct exchange *x, struct choice *c, const char *finish)
{
    echo(x, c);
    reply_v1_begin(x);
    put_choice(x, c, finish);
    reply_v1_end(x, finish ? c : NULL);
}

static void text_chunk(struct exchange *x, struct choice *c)
{
    put_stream(x, c, NULL);
}

static void text_end(struct exchange *x, struct choice *c)
{
    put_stream(x, c, finish_reason(&c->finish));
}

static void text_ahead(struct exchange *x)
{
    reply_v1_ahead(x, "text_completion");
}

static void text_whole(struct exchange *x)
{
    reply_v1_begin(x);
    for (uint32_t i = 0; i < x->n_choices; i++) {
        struct choice *c = &x->choices[i];
        echo(x, c);
        buffer_text(&x->out, i ? "," : "");
        put_choice(x, c, finish_reason(&c->finish));
    }
    reply_v1_end(x, &x->choices[0]);
}

const struct reply reply_text = {.id = "cmpl-",
                                 .ahead = text_ahead,
                                 .chunk = text_chunk,
                                 .end = text_end,
                                 .close = reply_v1_close,
                                 .whole = text_whole,
                                 .probs = text_probs};
