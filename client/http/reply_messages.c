/* reply_messages: answers in the form of Anthropic's Messages. */
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"
#include "ipc/bell.h"

#include <stdio.h>
#include <string.h>

/* ---- what a message says of itself ----------------------------------------------------------- */

/* Tokens that were found computed are counted apart, as reads of a cache. */
static json_t *usage(const struct choice *c)
{
    const struct finish *e = &c->finish;
    json_int_t prompt = c->is_done ? e->prompt : c->job.request.n_tokens;
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens", prompt - (json_int_t)e->cached,
                     "cache_creation_input_tokens", (json_int_t)0, "cache_read_input_tokens",
                     (json_int_t)e->cached, "output_tokens", (json_int_t)e->output);
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
        return c->blocks.n_calls ? "tool_use" : "end_turn";
    }
}

static json_t *stop_sequence(const struct choice *c)
{
    return c->finish.reason == HEARTH_STOP
               ? json_of_text(c->finish.stopping_word, strlen(c->finish.stopping_word))
               : json_null();
}

static json_t *message(const struct choice *c, json_t *content, json_t *reason, json_t *sequence)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", c->x->id, "type", "message",
                     "role", "assistant", "model", exchange_model(c->x), "content", content,
                     "stop_reason", reason, "stop_sequence", sequence, "usage", usage(c));
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Says that a message began, once. */
static void put_start(struct choice *c)
{
    if (c->is_started)
        return;
    c->is_started = true;
    exchange_put_event(c->x, json_pack("{s:s, s:o}", "type", "message_start", "message",
                                       message(c, json_array(), json_null(), json_null())));
}

static void put_ping(struct choice *c)
{
    c->told_ns = bell_now_ns();
    exchange_put_event(c->x, json_pack("{s:s}", "type", "ping"));
}

static void put_delta(const struct choice *c, const struct block *b, json_t *delta)
{
    exchange_put_event(c->x, json_pack("{s:s, s:I, s:o}", "type", "content_block_delta", "index",
                                       (json_int_t)b->index, "delta", delta));
}

/* A block before its first delta. */
static json_t *empty_block(const struct choice *c, const struct block *b)
{
    if (b->kind == HEARTH_CHAT_CONTENT)
        return json_pack("{s:s, s:s}", "type", "text", "text", "");
    if (b->kind == HEARTH_CHAT_REASONING)
        return json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", "");
    return json_pack("{s:s, s:o, s:o, s:{}}", "type", "tool_use", "id", block_call_id(c, b), "name",
                     block_name(b), "input");
}

static void block_begin(struct choice *c, const struct block *b)
{
    exchange_put_event(c->x, json_pack("{s:s, s:I, s:o}", "type", "content_block_start", "index",
                                       (json_int_t)b->index, "content_block", empty_block(c, b)));
    if (!b->index)
        put_ping(c);
}

static void block_more(struct choice *c, const struct block *b, const char *text, size_t bytes)
{
    static const char *const names[][2] = {
        [HEARTH_CHAT_CONTENT] = {"text_delta", "text"},
        [HEARTH_CHAT_REASONING] = {"thinking_delta", "thinking"},
        [HEARTH_CHAT_CALL] = {"input_json_delta", "partial_json"}};
    put_delta(c, b,
              json_pack("{s:s, s:o}", "type", names[b->kind][0], names[b->kind][1],
                        json_of_text(text, bytes)));
}

/* Clients send back only thoughts that are signed: with the answer's id, which nothing checks. */
static void block_end(struct choice *c, const struct block *b)
{
    if (b->kind == HEARTH_CHAT_REASONING)
        put_delta(c, b, json_pack("{s:s, s:s}", "type", "signature_delta", "signature", c->x->id));
    exchange_put_event(
        c->x, json_pack("{s:s, s:I}", "type", "content_block_stop", "index", (json_int_t)b->index));
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
    exchange_put_event(x, json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta",
                                    "stop_reason", stop_reason(c), "stop_sequence",
                                    stop_sequence(c), "usage", usage(c)));
    exchange_put_event(x, json_pack("{s:s}", "type", "message_stop"));
}

/* ---- whole answers --------------------------------------------------------------------------- */

static json_t *whole_block(const struct choice *c, const struct block *b)
{
    if (b->kind == HEARTH_CHAT_CONTENT)
        return json_pack("{s:s, s:o}", "type", "text", "text", block_text(b));
    if (b->kind == HEARTH_CHAT_REASONING)
        return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking", block_text(b),
                         "signature", c->x->id);
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "tool_use", "id", block_call_id(c, b), "name",
                     block_name(b), "input", block_arguments(b));
}

static void messages_whole(struct exchange *x)
{
    struct choice *c = &x->choices[0];
    json_t *content = json_array();
    blocks_read(c, true, NULL);
    for (uint32_t i = 0; i < c->blocks.n; i++)
        json_array_append_new(content, whole_block(c, &c->blocks.items[i]));
    json_t *o = message(c, content, json_string(stop_reason(c)), stop_sequence(c));
    json_object_set_new(o, "hearth", reply_hearth(x, c));
    exchange_put(x, o);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The types that Anthropic's packages know, and where they matter the texts and the status: Claude
 * Code shortens its conversation after exactly this line about a prompt, and tries again after
 * 529. */
static json_t *messages_fail(struct exchange *x, struct fail *f)
{
    (void)x;
    const char *type = f->type ? f->type : FAIL_SERVER;
    if (f->status == 413)
        type = "request_too_large";
    else if (strcmp(type, FAIL_CONTEXT) == 0 || strcmp(type, FAIL_NOT_SUPPORTED) == 0)
        type = FAIL_INVALID;
    else if (strcmp(type, FAIL_SERVER) == 0)
        type = "api_error";
    else if (strcmp(type, FAIL_UNAVAILABLE) == 0)
        type = "overloaded_error";
    if (f->status == 503)
        f->status = 529;
    if (f->n_prompt && f->n_context)
        snprintf(f->message, sizeof(f->message), "prompt is too long: %lld tokens > %lld maximum",
                 (long long)f->n_prompt, (long long)f->n_context - 1);
    return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message",
                     json_of_text(f->message, strlen(f->message)));
}

const struct reply reply_messages = {.id = "msg_",
                                     .names_events = true,
                                     .chunk = messages_chunk,
                                     .progress = messages_progress,
                                     .end = messages_end,
                                     .whole = messages_whole,
                                     .fail = messages_fail};
