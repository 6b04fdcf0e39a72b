/* reply_openai: answers in the form of OpenAI's completions, and what chats have in common with
 * them. */
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"

#include <string.h>

static const char *finish_reason(const struct finish *e)
{
    return e->reason == HEARTH_LENGTH ? "length" : "stop";
}

static json_t *usage(const struct exchange *x)
{
    json_int_t prompt = 0, output = 0, cached = 0, same = 0;
    for (uint32_t i = 0; i < x->n_choices; i++) {
        const struct finish *e = &x->choices[i].finish;
        if (i % x->params.n == 0) { /* choices share their prompt */
            prompt += e->prompt;
            cached += e->cached;
            same += e->prefix_break;
        }
        output += e->output;
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I, s:I}}", "prompt_tokens", prompt, "completion_tokens",
                     output, "total_tokens", prompt + output, "prompt_tokens_details",
                     "cached_tokens", cached, "prefix_break", same);
}

/* What all objects of an answer begin with. Takes over `choices`. */
static json_t *head(const struct exchange *x, const char *object, json_t *choices)
{
    const struct pool_model *m = &x->served->pool.model;
    char fingerprint[80];
    snprintf(fingerprint, sizeof(fingerprint), "fp_%.12s_%.40s", m->fingerprint, m->numerics);
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", x->id, "object", object, "created",
                     (json_int_t)x->created, "model", exchange_model(x), "system_fingerprint",
                     fingerprint, "choices", choices);
}

void reply_v1_stream(struct exchange *x, const char *object, json_t *choice)
{
    json_t *o = head(x, object, json_pack("[o]", choice));
    if (x->params.include_usage)
        json_object_set_new(o, "usage", json_null());
    exchange_put(x, o);
}

void reply_v1_close(struct exchange *x, const char *object)
{
    if (x->params.include_usage) {
        json_t *o = head(x, object, json_array());
        json_object_set_new(o, "usage", usage(x));
        json_object_set_new(o, "timings", reply_timings(&x->choices[0].finish));
        exchange_put(x, o);
    }
    buffer_text(&x->out, "data: [DONE]\n\n");
}

void reply_v1_whole(struct exchange *x, const char *object, json_t *choices)
{
    json_t *o = head(x, object, choices);
    json_object_set_new(o, "usage", usage(x));
    json_object_set_new(o, "timings", reply_timings(&x->choices[0].finish));
    json_object_set_new(o, "hearth", reply_hearth(x, &x->choices[0]));
    exchange_put(x, o);
}

static json_t *string_of(const struct buffer *t)
{
    return json_stringn(t->data ? t->data : "", t->bytes);
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

static json_t *text_logprobs(const struct exchange *x, const struct choice *c)
{
    if (x->params.n_logprobs < 0)
        return json_null();
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array();
    json_t *offsets = json_array();
    for (size_t i = 0; i < json_array_size(c->probs); i++) {
        const json_t *p = json_array_get(c->probs, i);
        json_array_append(tokens, json_array_get(p, 0));
        json_array_append(values, json_array_get(p, 1));
        json_array_append(tops, json_array_get(p, 2));
        json_array_append(offsets, json_array_get(p, 3));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values,
                     "top_logprobs", tops, "text_offset", offsets);
}

static json_t *text_choice(const struct exchange *x, const struct choice *c, const char *finish)
{
    return json_pack("{s:o, s:I, s:o, s:o}", "text", string_of(&c->text), "index",
                     (json_int_t)c->index, "logprobs", text_logprobs(x, c), "finish_reason",
                     finish ? json_string(finish) : json_null());
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

static void text_chunk(struct exchange *x, struct choice *c)
{
    echo(x, c);
    reply_v1_stream(x, "text_completion", text_choice(x, c, NULL));
}

static void text_end(struct exchange *x, struct choice *c)
{
    echo(x, c);
    reply_v1_stream(x, "text_completion", text_choice(x, c, finish_reason(&c->finish)));
}

static void text_close(struct exchange *x)
{
    reply_v1_close(x, "text_completion");
}

static void text_whole(struct exchange *x)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < x->n_choices; i++) {
        struct choice *c = &x->choices[i];
        echo(x, c);
        json_array_append_new(choices, text_choice(x, c, finish_reason(&c->finish)));
    }
    reply_v1_whole(x, "text_completion", choices);
}

const struct reply reply_text = {.id = "cmpl-",
                                 .chunk = text_chunk,
                                 .end = text_end,
                                 .close = text_close,
                                 .whole = text_whole,
                                 .probs = text_probs};
