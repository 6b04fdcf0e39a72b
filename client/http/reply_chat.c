/* reply_chat: answers in the form of OpenAI's chat completions. What the model wrote is read by the
 * library: reasoning and calls of tools stand apart from the content. */
#include "client/http/json_put.h"
#include "client/http/reply.h"
#include "client/http/state.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A call with all of its arguments, or as it begins. Its object is left open. */
static void put_call(struct buffer *t, const struct choice *c, const struct block *b, bool is_done)
{
    json_put_format(t, "{'id':%o,'type':'function','function':{'name':%o,'arguments':%t}",
                    block_call_id(c, b), block_name(b), b->text.data, is_done ? b->text.bytes : 0);
}

/* Whether it called tools, the client has to answer: so they say why it ended. */
static const char *finish_reason(const struct choice *c)
{
    if (c->finish.reason == HEARTH_LENGTH)
        return "length";
    return c->blocks.n_calls ? "tool_calls" : "stop";
}

/* ---- streams --------------------------------------------------------------------------------- */

/* A chunk before its delta, and after it. */
static void begin_delta(const struct choice *c)
{
    reply_v1_begin(c->x);
    json_put_format(&c->x->out, "{'index':%d,'delta':{", (int64_t)c->index);
}

/* The log-probabilities of tokens, or null. */
static void put_probs(struct buffer *t, const struct choice *c, const struct buffer *probs)
{
    if (c->x->params.n_logprobs < 0 || !probs) {
        buffer_text(t, "null");
        return;
    }
    buffer_text(t, "{\"content\":");
    exchange_put_list(t, probs);
    buffer_text(t, ",\"refusal\":null}");
}

static void end_delta(const struct choice *c, const struct buffer *probs, const char *finish)
{
    struct buffer *t = &c->x->out;
    buffer_text(t, "},\"logprobs\":");
    put_probs(t, c, probs);
    json_put_format(t, ",'finish_reason':%o}", finish ? json_string(finish) : json_null());
    reply_v1_end(c->x, finish ? c : NULL);
}

/* The probabilities are of the tokens that came, whatever they said: the first delta has them. */
static void end_first_delta(struct choice *c)
{
    end_delta(c, c->probs[0].bytes ? &c->probs[0] : NULL, NULL);
    c->probs[0].bytes = 0;
}

/* Says whose turn it is: once. */
static void put_role(struct choice *c)
{
    if (c->is_started)
        return;
    c->is_started = true;
    begin_delta(c);
    buffer_text(&c->x->out, "\"role\":\"assistant\",\"content\":\"\"");
    end_delta(c, &(struct buffer){0}, NULL);
}

static void block_begin(struct choice *c, const struct block *b)
{
    if (b->kind != HEARTH_CHAT_CALL)
        return;
    begin_delta(c);
    buffer_text(&c->x->out, "\"tool_calls\":[");
    put_call(&c->x->out, c, b, false);
    json_put_format(&c->x->out, ",'index':%d}]", (int64_t)b->call);
    end_first_delta(c);
}

static void block_more(struct choice *c, const struct block *b, const char *text, size_t bytes)
{
    struct buffer *t = &c->x->out;
    begin_delta(c);
    if (b->kind == HEARTH_CHAT_CALL)
        json_put_format(t, "'tool_calls':[{'index':%d,'function':{'arguments':%t}}]",
                        (int64_t)b->call, text, bytes);
    else
        json_put_format(t, "%s:%t",
                        b->kind == HEARTH_CHAT_CONTENT ? "content" : "reasoning_content", text,
                        bytes);
    end_first_delta(c);
}

static const struct block_writer writer = {.begin = block_begin, .more = block_more};

static void put_blocks(struct choice *c, bool is_end)
{
    put_role(c);
    blocks_read(c, is_end, &writer);
    if (!c->probs[0].bytes)
        return;
    begin_delta(c);
    buffer_text(&c->x->out, "\"content\":\"\"");
    end_first_delta(c);
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
    begin_delta(c);
    end_delta(c, NULL, finish_reason(c));
}

static void chat_ahead(struct exchange *x)
{
    reply_v1_ahead(x, x->params.stream ? "chat.completion.chunk" : "chat.completion");
}

/* ---- whole answers --------------------------------------------------------------------------- */

static void put_message(struct buffer *t, const struct choice *c)
{
    const struct blocks *l = &c->blocks;
    const char *mark = ",\"tool_calls\":[";
    json_put_format(t, "{'role':'assistant','content':%o,'refusal':null",
                    l->n_calls && !blocks_have(l, HEARTH_CHAT_CONTENT)
                        ? json_null()
                        : blocks_text(l, HEARTH_CHAT_CONTENT));
    if (blocks_have(l, HEARTH_CHAT_REASONING))
        json_put_format(t, ",'reasoning_content':%o", blocks_text(l, HEARTH_CHAT_REASONING));
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->items[i].kind != HEARTH_CHAT_CALL)
            continue;
        buffer_text(t, mark);
        put_call(t, c, &l->items[i], true);
        buffer_text(t, "}");
        mark = ",";
    }
    buffer_text(t, l->n_calls ? "]}" : "}");
}

static void chat_whole(struct exchange *x)
{
    struct buffer *t = &x->out;
    for (uint32_t i = 0; i < x->n_choices; i++)
        blocks_read(&x->choices[i], true, NULL);
    reply_v1_begin(x);
    for (uint32_t i = 0; i < x->n_choices; i++) {
        const struct choice *c = &x->choices[i];
        json_put_format(t, i ? ",{'index':%d,'message':" : "{'index':%d,'message':", (int64_t)i);
        put_message(t, c);
        buffer_text(t, ",\"logprobs\":");
        put_probs(t, c, &c->probs[0]);
        json_put_format(t, ",'finish_reason':%s}", finish_reason(c));
    }
    reply_v1_end(x, &x->choices[0]);
}

const struct reply reply_chat = {.id = "chatcmpl-",
                                 .ahead = chat_ahead,
                                 .chunk = chat_chunk,
                                 .end = chat_end,
                                 .close = reply_v1_close,
                                 .whole = chat_whole,
                                 .probs = reply_probs};
