/* reply_chat: answers in the form of OpenAI's chat completions. What the model wrote is read by the
 * library: reasoning and calls of tools stand apart from the content. */
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"

static const char chunk_object[] = "chat.completion.chunk";

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
    struct hearth *h = pool_any(&c->x->served->pool);
    json_t *o = chat_prob(h, &l->picked), *top = json_array();
    for (uint32_t i = 0; i < l->n_top; i++)
        json_array_append_new(top, chat_prob(h, &l->top[i]));
    json_object_set_new(o, "top_logprobs", top);
    return o;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static json_t *call_object(const struct choice *c, const struct block *b, json_t *arguments)
{
    return json_pack("{s:o, s:s, s:{s:o, s:o}}", "id", block_call_id(c, b), "type", "function",
                     "function", "name", block_name(b), "arguments", arguments);
}

/* Whether it called tools, the client has to answer: so they say why it ended. */
static const char *finish_reason(const struct choice *c)
{
    if (c->finish.reason == HEARTH_LENGTH)
        return "length";
    return c->blocks.n_calls ? "tool_calls" : "stop";
}

/* ---- streams --------------------------------------------------------------------------------- */

static void put_delta(const struct choice *c, json_t *delta, json_t *probs, const char *finish)
{
    reply_v1_stream(c->x, chunk_object,
                    json_pack("{s:I, s:o, s:o, s:o}", "index", (json_int_t)c->index, "delta", delta,
                              "logprobs", probs ? probs : json_null(), "finish_reason",
                              finish ? json_string(finish) : json_null()));
}

/* The probabilities are of the tokens that came, whatever they said: the first delta has them. */
static json_t *take_probs(struct choice *c)
{
    json_t *probs = c->probs;
    c->probs = NULL;
    if (c->x->params.n_logprobs < 0 || !probs)
        return NULL;
    return json_pack("{s:o, s:n}", "content", probs, "refusal");
}

/* Says whose turn it is: once. */
static void put_role(struct choice *c)
{
    if (c->is_started)
        return;
    c->is_started = true;
    put_delta(c, json_pack("{s:s, s:s}", "role", "assistant", "content", ""),
              c->x->params.n_logprobs < 0 ? NULL : json_pack("{s:[], s:n}", "content", "refusal"),
              NULL);
}

static void block_begin(struct choice *c, const struct block *b)
{
    if (b->kind != HEARTH_CHAT_CALL)
        return;
    json_t *call = call_object(c, b, json_string(""));
    json_object_set_new(call, "index", json_integer(b->call));
    put_delta(c, json_pack("{s:[o]}", "tool_calls", call), take_probs(c), NULL);
}

static void block_more(struct choice *c, const struct block *b, const char *text, size_t bytes)
{
    json_t *more = json_of_text(text, bytes), *delta;
    if (b->kind == HEARTH_CHAT_CALL)
        delta = json_pack("{s:[{s:I, s:{s:o}}]}", "tool_calls", "index", (json_int_t)b->call,
                          "function", "arguments", more);
    else
        delta = json_pack("{s:o}", b->kind == HEARTH_CHAT_CONTENT ? "content" : "reasoning_content",
                          more);
    put_delta(c, delta, take_probs(c), NULL);
}

static const struct block_writer writer = {.begin = block_begin, .more = block_more};

static void put_blocks(struct choice *c, bool is_end)
{
    put_role(c);
    blocks_read(c, is_end, &writer);
    json_t *probs = take_probs(c);
    if (probs)
        put_delta(c, json_pack("{s:s}", "content", ""), probs, NULL);
}

static void chat_chunk(struct exchange *x, struct choice *c)
{
    (void)x;
    put_blocks(c, false);
}

static void chat_end(struct exchange *x, struct choice *c)
{
    (void)x;
    put_blocks(c, true);
    put_delta(c, json_object(), NULL, finish_reason(c));
}

static void chat_close(struct exchange *x)
{
    reply_v1_close(x, chunk_object);
}

/* ---- whole answers --------------------------------------------------------------------------- */

static json_t *message_of(const struct choice *c)
{
    const struct blocks *l = &c->blocks;
    json_t *calls = json_array();
    for (uint32_t i = 0; i < l->n; i++)
        if (l->items[i].kind == HEARTH_CHAT_CALL)
            json_array_append_new(calls, call_object(c, &l->items[i], block_text(&l->items[i])));
    json_t *text = l->n_calls && !blocks_have(l, HEARTH_CHAT_CONTENT)
                       ? json_null()
                       : blocks_text(l, HEARTH_CHAT_CONTENT);
    json_t *m = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", text, "refusal");
    if (blocks_have(l, HEARTH_CHAT_REASONING))
        json_object_set_new(m, "reasoning_content", blocks_text(l, HEARTH_CHAT_REASONING));
    if (l->n_calls)
        json_object_set(m, "tool_calls", calls);
    json_decref(calls);
    return m;
}

static void chat_whole(struct exchange *x)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < x->n_choices; i++) {
        struct choice *c = &x->choices[i];
        blocks_read(c, true, NULL);
        json_t *probs = x->params.n_logprobs < 0
                            ? json_null()
                            : json_pack("{s:o, s:n}", "content",
                                        c->probs ? json_incref(c->probs) : json_array(), "refusal");
        json_array_append_new(choices, json_pack("{s:I, s:o, s:o, s:s}", "index", (json_int_t)i,
                                                 "message", message_of(c), "logprobs", probs,
                                                 "finish_reason", finish_reason(c)));
    }
    reply_v1_whole(x, "chat.completion", choices);
}

const struct reply reply_chat = {.id = "chatcmpl-",
                                 .chunk = chat_chunk,
                                 .end = chat_end,
                                 .close = chat_close,
                                 .whole = chat_whole,
                                 .probs = chat_probs};
