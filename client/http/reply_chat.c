/* reply_chat: answers in the form of OpenAI's chat completions. What the model wrote is read by the
 * library: reasoning and calls of tools stand apart from the content. */
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"

#include <string.h>

static const char chunk_object[] = "chat.completion.chunk";

static struct hearth_chat_reader *reader_of(const struct choice *c)
{
    return c->x->params.readers[c->index];
}

/* Gives the reader what came; `end`: nothing more will. */
static void feed(struct choice *c, int end)
{
    c->text.failed |=
        hearth_chat_feed(reader_of(c), c->text.data ? c->text.data : "", c->text.bytes, end) != 0;
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static json_t *chat_prob(struct hearth *h, const struct hearth_logprob *l)
{
    char bytes[TOKEN_TEXT_BYTES];
    size_t n = h ? token_text(h, l->token, bytes) : 0;
    return json_pack("{s:o, s:f, s:o}", "token", json_of_text(bytes, n), "logprob",
                     (double)l->logprob, "bytes", json_of_bytes(bytes, n));
}

static json_t *chat_probs(struct choice *c, const struct hearth_token_logprobs *l)
{
    struct hearth *h = pool_any(&c->x->server->pool);
    json_t *o = chat_prob(h, &l->picked), *top = json_array();
    for (uint32_t i = 0; i < l->n_top; i++)
        json_array_append_new(top, chat_prob(h, &l->top[i]));
    json_object_set_new(o, "top_logprobs", top);
    return o;
}

static json_t *chat_logprobs(const struct exchange *x, const struct choice *c)
{
    if (x->params.n_logprobs < 0)
        return json_null();
    return json_pack("{s:o, s:n}", "content", c->probs ? json_incref(c->probs) : json_array(),
                     "refusal");
}

/* ---- calls ----------------------------------------------------------------------------------- */

enum { CALL_ID_BYTES = 9 };

/* Nine letters and digits, which every template takes; no two answers of a gateway have the same. */
static json_t *call_id(const struct choice *c, uint32_t call)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t z = 0x9e3779b97f4a7c15u * (call + 1 + 64u * c->index);
    char id[CALL_ID_BYTES];
    for (const char *at = c->x->id; *at; at++)
        z = (z ^ (unsigned char)*at) * 0x100000001b3u;
    for (size_t i = 0; i < CALL_ID_BYTES; i++, z /= 62)
        id[i] = digits[z % 62];
    return json_stringn(id, CALL_ID_BYTES);
}

static json_t *call_object(const struct choice *c, const struct hearth_chat_event *e)
{
    return json_pack("{s:o, s:s, s:{s:s%, s:s}}", "id", call_id(c, e->call), "type", "function",
                     "function", "name", e->text, e->text_bytes, "arguments", "");
}

/* Whether it called tools, the client has to answer: so they say why it ended. */
static const char *finish_reason(const struct choice *c)
{
    if (c->finish.reason == HEARTH_LENGTH)
        return "length";
    return c->n_calls ? "tool_calls" : "stop";
}

/* ---- streams --------------------------------------------------------------------------------- */

static void put_delta(struct exchange *x, const struct choice *c, json_t *delta, json_t *probs,
                      const char *finish)
{
    reply_v1_stream(x, chunk_object,
                    json_pack("{s:I, s:o, s:o, s:o}", "index", (json_int_t)c->index, "delta", delta,
                              "logprobs", probs ? probs : json_null(), "finish_reason",
                              finish ? json_string(finish) : json_null()));
}

/* Says whose turn it is: once. */
static void put_role(struct exchange *x, struct choice *c)
{
    if (c->is_started)
        return;
    c->is_started = true;
    put_delta(x, c, json_pack("{s:s, s:s}", "role", "assistant", "content", ""),
              x->params.n_logprobs < 0 ? NULL : json_pack("{s:[], s:n}", "content", "refusal"),
              NULL);
}

static json_t *delta_of(struct choice *c, const struct hearth_chat_event *e)
{
    switch (e->kind) {
    case HEARTH_CHAT_CONTENT:
        return json_pack("{s:o}", "content", json_of_text(e->text, e->text_bytes));
    case HEARTH_CHAT_REASONING:
        return json_pack("{s:o}", "reasoning_content", json_of_text(e->text, e->text_bytes));
    case HEARTH_CHAT_CALL: {
        json_t *call = call_object(c, e);
        json_object_set_new(call, "index", json_integer(e->call));
        c->n_calls++;
        return json_pack("{s:[o]}", "tool_calls", call);
    }
    case HEARTH_CHAT_ARGUMENTS:
        return json_pack("{s:[{s:I, s:{s:o}}]}", "tool_calls", "index", (json_int_t)e->call,
                         "function", "arguments", json_of_text(e->text, e->text_bytes));
    default:
        return NULL;
    }
}

/* The probabilities are of the tokens that came, whatever they said. */
static void put_events(struct exchange *x, struct choice *c)
{
    struct hearth_chat_event e = {.size = sizeof(e)};
    json_t *probs = chat_logprobs(x, c);
    put_role(x, c);
    while (hearth_chat_next(reader_of(c), &e)) {
        json_t *delta = delta_of(c, &e);
        if (!delta)
            continue;
        put_delta(x, c, delta, probs, NULL);
        probs = NULL;
    }
    if (probs && c->probs)
        put_delta(x, c, json_pack("{s:s}", "content", ""), json_incref(probs), NULL);
    json_decref(probs);
}

static void chat_chunk(struct exchange *x, struct choice *c)
{
    feed(c, 0);
    put_events(x, c);
}

static void chat_end(struct exchange *x, struct choice *c)
{
    feed(c, 1);
    put_events(x, c);
    put_delta(x, c, json_object(), NULL, finish_reason(c));
}

static void chat_close(struct exchange *x)
{
    reply_v1_close(x, chunk_object);
}

/* ---- whole answers --------------------------------------------------------------------------- */

/* What the reader says, as one message. */
static json_t *message_of(struct choice *c)
{
    struct hearth_chat_event e = {.size = sizeof(e)};
    struct buffer content = {0}, reasoning = {0}, arguments = {0};
    json_t *calls = json_array(), *call = NULL;
    feed(c, 1);
    while (hearth_chat_next(reader_of(c), &e)) {
        if (e.kind == HEARTH_CHAT_CONTENT) {
            buffer_add(&content, e.text, e.text_bytes);
        } else if (e.kind == HEARTH_CHAT_REASONING) {
            buffer_add(&reasoning, e.text, e.text_bytes);
        } else if (e.kind == HEARTH_CHAT_CALL) {
            call = call_object(c, &e);
            json_array_append_new(calls, call);
            c->n_calls++;
        } else if (e.kind == HEARTH_CHAT_ARGUMENTS) {
            buffer_add(&arguments, e.text, e.text_bytes);
        } else {
            json_object_set_new(
                json_object_get(call, "function"), "arguments",
                json_of_text(arguments.data ? arguments.data : "", arguments.bytes));
            buffer_drop(&arguments, arguments.bytes);
        }
    }
    c->text.failed |= content.failed || reasoning.failed || arguments.failed;
    json_t *text = c->n_calls && !content.bytes
                       ? json_null()
                       : json_of_text(content.data ? content.data : "", content.bytes);
    json_t *m = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", text, "refusal");
    if (reasoning.bytes)
        json_object_set_new(m, "reasoning_content", json_of_text(reasoning.data, reasoning.bytes));
    if (c->n_calls)
        json_object_set(m, "tool_calls", calls);
    json_decref(calls);
    buffer_fini(&content);
    buffer_fini(&reasoning);
    buffer_fini(&arguments);
    return m;
}

static void chat_whole(struct exchange *x)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < x->n_choices; i++) {
        struct choice *c = &x->choices[i];
        json_t *message = message_of(c);
        json_array_append_new(
            choices, json_pack("{s:I, s:o, s:o, s:s}", "index", (json_int_t)i, "message", message,
                               "logprobs", chat_logprobs(x, c), "finish_reason", finish_reason(c)));
    }
    reply_v1_whole(x, "chat.completion", choices);
}

const struct reply reply_chat = {.id = "chatcmpl",
                                 .chunk = chat_chunk,
                                 .end = chat_end,
                                 .close = chat_close,
                                 .whole = chat_whole,
                                 .probs = chat_probs};
