/* reply_messages: answers in the form of Anthropic's Messages. */
#include "client/http/json_put.h"
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"
#include "ipc/bell.h"

#include <stdio.h>
#include <string.h>

/* ---- what a message says of itself ----------------------------------------------------------- */

/* Tokens that were found computed are counted apart, as reads of a cache. */
static void put_usage(struct buffer *t, const struct choice *c)
{
    const struct finish *e = &c->finish;
    int64_t prompt = c->is_done ? e->prompt : c->job.request.n_tokens;
    json_put_format(t,
                    "{'input_tokens':%d,'cache_creation_input_tokens':0,"
                    "'cache_read_input_tokens':%d,'stored_tokens':%d,'prefix_break':%d,"
                    "'output_tokens':%d}",
                    prompt - (int64_t)e->cached, (int64_t)e->cached, (int64_t)e->stored,
                    (int64_t)e->prefix_break, (int64_t)e->output);
}

/* max_tokens above the room that the prompt leaves are cut to it: then the context ended the
 * answer. */
static const char *stop_reason(const struct choice *c)
{
    const struct finish *e = &c->finish;
    switch (e->reason) {
    case HEARTH_LENGTH:
        return e->prompt + e->output < c->x->served->pool.model.context
                   ? "max_tokens"
                   : "model_context_window_exceeded";
    case HEARTH_STOP:
        return "stop_sequence";
    default:
        return c->blocks.n_whole_calls ? "tool_use" : "end_turn";
    }
}

static json_t *stop_sequence(const struct choice *c)
{
    return c->finish.reason == HEARTH_STOP
               ? json_of_text(c->finish.stopping_word, strlen(c->finish.stopping_word))
               : json_null();
}

static void messages_ahead(struct exchange *x)
{
    json_put_format(&x->ahead,
                    "{'id':%s,'type':'message','role':'assistant','model':%s,'content':[", x->id,
                    exchange_model(x));
}

/* A message; `content`: a function that writes its blocks, or NULL before there are any. Its object
 * is left open. */
static void put_message(struct choice *c, void (*content)(struct choice *c))
{
    struct buffer *t = &c->x->out;
    exchange_put_ahead(c->x);
    if (content)
        content(c);
    json_put_format(t, "],'stop_reason':%o,'stop_sequence':%o,'usage':",
                    content ? json_string(stop_reason(c)) : json_null(), stop_sequence(c));
    put_usage(t, c);
}

/* ---- streams --------------------------------------------------------------------------------- */

/* An event that goes on with its other members. */
static void begin(struct exchange *x, const char *type)
{
    exchange_begin(x, type);
    json_put_format(&x->out, "{'type':%s", type);
}

static void end(struct exchange *x)
{
    buffer_text(&x->out, "}");
    exchange_end(x);
}

/* Says that a message began, once. */
static void put_start(struct choice *c)
{
    if (c->is_started)
        return;
    c->is_started = true;
    begin(c->x, "message_start");
    buffer_text(&c->x->out, ",\"message\":");
    put_message(c, NULL);
    buffer_text(&c->x->out, "}");
    end(c->x);
}

static void put_ping(struct choice *c)
{
    c->told_ns = bell_now_ns();
    begin(c->x, "ping");
    end(c->x);
}

/* A delta with one text. */
static void put_delta(const struct choice *c, const struct block *b, const char *type,
                      const char *name, const char *text, size_t bytes)
{
    begin(c->x, "content_block_delta");
    json_put_format(&c->x->out, ",'index':%d,'delta':{'type':%s,%s:%t}", (int64_t)b->index, type,
                    name, text, bytes);
    end(c->x);
}

/* A block before its first delta, or with all that it says: of a call that is cut as a text, which
 * no client runs. */
static void put_block(struct buffer *t, const struct choice *c, const struct block *b, bool is_done)
{
    size_t bytes = is_done ? b->text.bytes : 0;
    struct buffer cut = {0};
    if (is_done && b->kind == HEARTH_CHAT_CALL && b->is_cut) {
        block_put_cut(&cut, b);
        json_put_format(t, "{'type':'text','text':%t}", cut.data, cut.bytes);
        t->failed |= cut.failed;
    } else if (b->kind == HEARTH_CHAT_CONTENT)
        json_put_format(t, "{'type':'text','text':%t}", b->text.data, bytes);
    else if (b->kind == HEARTH_CHAT_REASONING)
        json_put_format(t, "{'type':'thinking','thinking':%t,'signature':%s}", b->text.data, bytes,
                        is_done ? c->x->id : "");
    else {
        json_put_format(t, "{'type':'tool_use','id':%o,'name':%o,'input':", block_call_id(c, b),
                        block_name(b));
        if (is_done)
            block_put_arguments(t, b);
        buffer_text(t, is_done ? "}" : "{}}");
    }
    buffer_fini(&cut);
}

static void block_begin(struct choice *c, const struct block *b)
{
    begin(c->x, "content_block_start");
    json_put_format(&c->x->out, ",'index':%d,'content_block':", (int64_t)b->index);
    put_block(&c->x->out, c, b, false);
    end(c->x);
    if (!b->index)
        put_ping(c);
}

static void block_more(struct choice *c, const struct block *b, const char *text, size_t bytes)
{
    static const char *const names[][2] = {
        [HEARTH_CHAT_CONTENT] = {"text_delta", "text"},
        [HEARTH_CHAT_REASONING] = {"thinking_delta", "thinking"},
        [HEARTH_CHAT_CALL] = {"input_json_delta", "partial_json"}};
    put_delta(c, b, names[b->kind][0], names[b->kind][1], text, bytes);
}

/* Clients send back only thoughts that are signed: with the answer's id, which nothing checks. */
static void block_end(struct choice *c, const struct block *b)
{
    if (b->kind == HEARTH_CHAT_REASONING)
        put_delta(c, b, "signature_delta", "signature", c->x->id, strlen(c->x->id));
    begin(c->x, "content_block_stop");
    json_put_format(&c->x->out, ",'index':%d", (int64_t)b->index);
    end(c->x);
}

static const struct block_writer writer = {block_begin, block_more, block_end};

static void messages_chunk(struct exchange *x, struct choice *c)
{
    (void)x;
    put_start(c);
    blocks_read(c, false, &writer);
}

/* A prompt that takes a while: clients give up on a connection that stays silent. */
static void messages_progress(struct exchange *x, struct choice *c, const struct hearth_event *e)
{
    (void)x, (void)e;
    if (bell_now_ns() - (c->told_ns ? c->told_ns : c->submit_ns) < REPLY_SILENCE_NS)
        return;
    put_start(c);
    put_ping(c);
}

static void messages_end(struct exchange *x, struct choice *c)
{
    put_start(c);
    blocks_read(c, true, &writer);
    begin(x, "message_delta");
    json_put_format(&x->out,
                    ",'delta':{'stop_reason':%s,'stop_sequence':%o},'usage':", stop_reason(c),
                    stop_sequence(c));
    put_usage(&x->out, c);
    reply_put_hearth(&x->out, x, c);
    end(x);
    begin(x, "message_stop");
    end(x);
}

/* ---- whole answers --------------------------------------------------------------------------- */

static void put_blocks(struct choice *c)
{
    for (uint32_t i = 0; i < c->blocks.n; i++) {
        buffer_text(&c->x->out, i ? "," : "");
        put_block(&c->x->out, c, &c->blocks.items[i], true);
    }
}

static void messages_whole(struct exchange *x)
{
    struct choice *c = &x->choices[0];
    blocks_read(c, true, NULL);
    put_message(c, put_blocks);
    reply_put_hearth(&x->out, x, c);
    buffer_text(&x->out, "}");
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The types that Anthropic's packages know, and where it matters the text: Claude Code shortens its
 * conversation after exactly this line about a prompt. */
static void messages_fail(struct exchange *x, struct fail *f)
{
    const char *type = f->type ? f->type : FAIL_SERVER;
    if (f->status == 413)
        type = "request_too_large";
    else if (strcmp(type, FAIL_CONTEXT) == 0 || strcmp(type, FAIL_NOT_SUPPORTED) == 0)
        type = FAIL_INVALID;
    else if (strcmp(type, FAIL_SERVER) == 0)
        type = "api_error";
    else if (strcmp(type, FAIL_UNAVAILABLE) == 0)
        type = "overloaded_error";
    if (f->n_prompt && f->n_context)
        snprintf(f->message, sizeof(f->message), "prompt is too long: %lld tokens > %lld maximum",
                 (long long)f->n_prompt, (long long)f->n_context - 1);
    exchange_put(x, json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type,
                              "message", json_of_text(f->message, strlen(f->message))));
}

const struct reply reply_messages = {.id = "msg_",
                                     .ahead = messages_ahead,
                                     .names_events = true,
                                     .chunk = messages_chunk,
                                     .progress = messages_progress,
                                     .end = messages_end,
                                     .whole = messages_whole,
                                     .fail = messages_fail};
