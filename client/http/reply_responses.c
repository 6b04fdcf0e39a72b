/* reply_responses: answers in the form of OpenAI's Responses. */
#include "client/base/json_mend.h"
#include "client/http/json_put.h"
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"
#include "client/http/translate.h"
#include "ipc/bell.h"

#include <stdio.h>
#include <string.h>

/* ---- items ----------------------------------------------------------------------------------- */

/* Did the client ask for summaries of reasoning? They are all of it. */
static bool wants_summary(const struct exchange *x)
{
    const json_t *summary = json_object_get(json_object_get(x->asked, "reasoning"), "summary");
    return json_is_string(summary) && strcmp(json_string_value(summary), "none") != 0;
}

/* A call names a tool that the client gave, perhaps one in a namespace. It is looked for once:
 * there may be many, and each piece of the arguments asks. */
static const struct block *with_tool(const struct choice *c, const struct block *b)
{
    struct block *own = &c->blocks.items[b->index];
    if (!own->knows_tool)
        own->tool = translate_find_tool(c->x->asked, own->name.data ? own->name.data : "",
                                        &own->space_bytes);
    own->knows_tool = true;
    return own;
}

static bool is_custom(const struct choice *c, const struct block *b)
{
    const json_t *type = json_object_get(with_tool(c, b)->tool, "type");
    return json_is_string(type) && strcmp(json_string_value(type), "custom") == 0;
}

/* What the model gave a tool that takes any text. */
static json_t *custom_input(const struct block *b)
{
    json_t *arguments =
        json_mend(b->text.data ? b->text.data : "", b->text.bytes, JSON_ALLOW_NUL, NULL);
    json_t *input = json_object_get(arguments, "input");
    input = json_is_string(input) ? json_incref(input) : block_text(b);
    json_decref(arguments);
    return input;
}

static void put_id(struct buffer *t, const struct choice *c, const struct block *b)
{
    static const char *const kinds[] = {
        [HEARTH_CHAT_CONTENT] = "msg", [HEARTH_CHAT_REASONING] = "rs", [HEARTH_CHAT_CALL] = "fc"};
    buffer_format(t, "\"%s_%s_%u\"", kinds[b->kind], strchr(c->x->id, '_') + 1, b->index);
}

/* A part with the whole text of a block of content, or of reasoning; without text, as it begins. */
static void put_part(struct buffer *t, const struct block *b, const char *type, bool is_done)
{
    json_put_format(t, "{'type':%s,'text':%t", type, b->text.data, is_done ? b->text.bytes : 0);
    buffer_text(t, b->kind == HEARTH_CHAT_CONTENT ? ",\"annotations\":[],\"logprobs\":[]}" : "}");
}

static void put_call(struct buffer *t, const struct choice *c, const struct block *b, bool is_done)
{
    const size_t space_bytes = with_tool(c, b)->space_bytes;
    const char *name = json_string_value(json_object_get(with_tool(c, b)->tool, "name"));
    bool custom = is_custom(c, b);
    json_put_format(t, ",'type':%s,'call_id':%o,'name':%o,%s:%o",
                    custom ? "custom_tool_call" : "function_call", block_call_id(c, b),
                    name ? json_string(name) : block_name(b), custom ? "input" : "arguments",
                    !is_done ? json_string("")
                    : custom ? custom_input(b)
                             : block_text(b));
    if (space_bytes)
        json_put_format(t, ",'namespace':%t", b->name.data, space_bytes);
}

/* A block as an item of the output; while it is not done, without its text. */
static void put_item(struct buffer *t, const struct choice *c, const struct block *b, bool is_done)
{
    const char *status = !is_done ? "in_progress" : b->is_cut ? "incomplete" : "completed";
    buffer_text(t, "{\"id\":");
    put_id(t, c, b);
    json_put_format(t, ",'status':%s", status);
    if (b->kind == HEARTH_CHAT_REASONING) {
        buffer_text(t, ",\"type\":\"reasoning\",\"summary\":[");
        if (is_done && wants_summary(c->x))
            put_part(t, b, "summary_text", true);
        buffer_text(t, "],\"content\":[");
        if (is_done)
            put_part(t, b, "reasoning_text", true);
        buffer_text(t, "]}");
    } else if (b->kind == HEARTH_CHAT_CONTENT) {
        buffer_text(t, ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
        if (is_done)
            put_part(t, b, "output_text", true);
        buffer_text(t, "]}");
    } else {
        put_call(t, c, b, is_done);
        buffer_text(t, "}");
    }
}

/* ---- the response's object ------------------------------------------------------------------- */

static bool is_cut(const struct choice *c)
{
    return c->finish.reason == HEARTH_LENGTH;
}

/* How many tokens the thoughts of an answer are. */
static int64_t thought_tokens(const struct choice *c)
{
    struct hearth *h = pool_any(&c->x->served->pool);
    int64_t n = 0;
    for (uint32_t i = 0; h && i < c->blocks.n; i++) {
        const struct block *b = &c->blocks.items[i];
        if (b->kind == HEARTH_CHAT_REASONING && b->text.bytes)
            n += hearth_tokenize(h, b->text.data, b->text.bytes, 0, NULL, 0);
    }
    return n < c->finish.output ? n : c->finish.output;
}

/* The request as it was given; what failed early was not translated. */
static const json_t *asked(const struct exchange *x)
{
    return x->asked ? x->asked : x->root;
}

static json_t *asked_number(const struct exchange *x, const char *name)
{
    json_t *given = json_object_get(asked(x), name);
    return json_is_number(given) ? json_incref(given) : json_real(1);
}

/* Members of the request as they were given, or what they are where it does not say. */
static void responses_ahead(struct exchange *x)
{
    static const char *const members[][2] = {
        {"instructions", "null"},
        {"max_output_tokens", "null"},
        {"metadata", "{}"},
        {"parallel_tool_calls", "true"},
        {"reasoning", "{\"effort\":null,\"summary\":null}"},
        {"text", "{\"format\":{\"type\":\"text\"}}"},
        {"tool_choice", "\"auto\""},
        {"tools", "[]"},
    };
    struct buffer *t = &x->ahead;
    json_put_format(t,
                    ",'temperature':%o,'top_p':%o,'truncation':'disabled','background':false,"
                    "'previous_response_id':null,'store':false",
                    asked_number(x, "temperature"), asked_number(x, "top_p"));
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const json_t *given = json_object_get(asked(x), members[i][0]);
        json_put_format(t, ",%s:", members[i][0]);
        if (given && !json_is_null(given))
            json_put(t, given);
        else
            buffer_text(t, members[i][1]);
    }
}

/* The response: c: as it ended, or NULL; error (taken over): why it failed, or NULL. Its object is
 * left open. */
static void put_response(struct exchange *x, const char *status, const struct choice *c,
                         json_t *error)
{
    struct buffer *t = &x->out;
    json_put_format(t, "{'id':%s,'object':'response','created_at':%d,'status':%s,'model':%s", x->id,
                    (int64_t)x->created, status, exchange_model(x));
    buffer_text(t, ",\"output\":[");
    for (uint32_t i = 0; c && i < c->blocks.n; i++) {
        buffer_text(t, i ? "," : "");
        put_item(t, c, &c->blocks.items[i], true);
    }
    if (c)
        json_put_format(t,
                        "],'usage':{'input_tokens':%d,'input_tokens_details':{'cached_tokens':%d,"
                        "'stored_tokens':%d,'prefix_break':%d},"
                        "'output_tokens':%d,'output_tokens_details':{'reasoning_tokens':%d},"
                        "'total_tokens':%d}",
                        (int64_t)c->finish.prompt, (int64_t)c->finish.cached,
                        (int64_t)c->finish.stored, (int64_t)c->finish.prefix_break,
                        (int64_t)c->finish.output, thought_tokens(c),
                        (int64_t)c->finish.prompt + c->finish.output);
    else
        buffer_text(t, "],\"usage\":null");
    json_put_format(t, ",'error':%o,'incomplete_details':", error ? error : json_null());
    buffer_text(t, c && is_cut(c) ? "{\"reason\":\"max_output_tokens\"}" : "null");
    exchange_put_ahead(x);
}

static void put_ended(struct exchange *x, const struct choice *c)
{
    put_response(x, is_cut(c) ? "incomplete" : "completed", c, NULL);
    reply_put_hearth(&x->out, x, c);
}

/* ---- streams --------------------------------------------------------------------------------- */

/* An event that goes on with its other members. */
static void begin(struct exchange *x, const char *type)
{
    exchange_begin(x, type);
    json_put_format(&x->out, "{'type':%s,'sequence_number':%d", type, (int64_t)x->n_events++);
}

static void end(struct exchange *x)
{
    buffer_text(&x->out, "}");
    exchange_end(x);
}

static void put_running(struct exchange *x, const char *type)
{
    begin(x, type);
    buffer_text(&x->out, ",\"response\":");
    put_response(x, "in_progress", NULL, NULL);
    buffer_text(&x->out, "}");
    end(x);
}

static void put_start(struct choice *c)
{
    if (c->is_started)
        return;
    c->is_started = true;
    put_running(c->x, "response.created");
    put_running(c->x, "response.in_progress");
}

/* How a block's text comes: the names of its events, and the part of the item that it is in. */
struct form {
    const char *delta, *done, *part_added, *part_done, *part, *index, *text;
};

static const struct form *form_of(const struct choice *c, const struct block *b)
{
    static const struct form content = {"response.output_text.delta",
                                        "response.output_text.done",
                                        "response.content_part.added",
                                        "response.content_part.done",
                                        "output_text",
                                        "content_index",
                                        "text"};
    static const struct form summary = {"response.reasoning_summary_text.delta",
                                        "response.reasoning_summary_text.done",
                                        "response.reasoning_summary_part.added",
                                        "response.reasoning_summary_part.done",
                                        "summary_text",
                                        "summary_index",
                                        "text"};
    static const struct form reasoning = {"response.reasoning_text.delta",
                                          "response.reasoning_text.done",
                                          "response.content_part.added",
                                          "response.content_part.done",
                                          "reasoning_text",
                                          "content_index",
                                          "text"};
    static const struct form arguments = {.delta = "response.function_call_arguments.delta",
                                          .done = "response.function_call_arguments.done",
                                          .text = "arguments"};
    static const struct form input = {.delta = "response.custom_tool_call_input.delta",
                                      .done = "response.custom_tool_call_input.done",
                                      .text = "input"};
    if (b->kind == HEARTH_CHAT_CALL)
        return is_custom(c, b) ? &input : &arguments;
    if (b->kind == HEARTH_CHAT_CONTENT)
        return &content;
    return wants_summary(c->x) ? &summary : &reasoning;
}

/* An event about a block's item, or a part of it, that goes on. */
static void begin_about(struct choice *c, const struct block *b, const char *type)
{
    const struct form *f = form_of(c, b);
    struct buffer *t = &c->x->out;
    begin(c->x, type);
    buffer_text(t, ",\"item_id\":");
    put_id(t, c, b);
    json_put_format(t, ",'output_index':%d", (int64_t)b->index);
    if (f->index)
        json_put_format(t, ",%s:0", f->index);
}

static void put_item_event(struct choice *c, const struct block *b, const char *type, bool is_done)
{
    begin(c->x, type);
    json_put_format(&c->x->out, ",'output_index':%d,'item':", (int64_t)b->index);
    put_item(&c->x->out, c, b, is_done);
    end(c->x);
}

static void put_part_event(struct choice *c, const struct block *b, const char *type, bool is_done)
{
    begin_about(c, b, type);
    buffer_text(&c->x->out, ",\"part\":");
    put_part(&c->x->out, b, form_of(c, b)->part, is_done);
    end(c->x);
}

static void block_begin(struct choice *c, const struct block *b)
{
    put_item_event(c, b, "response.output_item.added", false);
    if (form_of(c, b)->part_added)
        put_part_event(c, b, form_of(c, b)->part_added, false);
}

static void put_text(struct choice *c, const struct block *b, const char *type, const char *name,
                     const char *text, size_t bytes)
{
    begin_about(c, b, type);
    json_put_format(&c->x->out, ",%s:%t", name, text, bytes);
    if (b->kind == HEARTH_CHAT_CONTENT)
        buffer_text(&c->x->out, ",\"logprobs\":[]");
    end(c->x);
}

/* A custom tool's input is known when its arguments are complete. */
static void block_more(struct choice *c, const struct block *b, const char *text, size_t bytes)
{
    if (b->kind != HEARTH_CHAT_CALL || !is_custom(c, b))
        put_text(c, b, form_of(c, b)->delta, "delta", text, bytes);
}

static void put_custom_input(struct choice *c, const struct block *b, const struct form *f)
{
    json_t *input = custom_input(b);
    const char *text = input ? json_string_value(input) : "";
    c->text.failed |= !input;
    put_text(c, b, f->delta, "delta", text, json_string_length(input));
    put_text(c, b, f->done, f->text, text, json_string_length(input));
    json_decref(input);
}

static void block_end(struct choice *c, const struct block *b)
{
    const struct form *f = form_of(c, b);
    if (b->kind == HEARTH_CHAT_CALL && is_custom(c, b))
        put_custom_input(c, b, f);
    else
        put_text(c, b, f->done, f->text, b->text.data, b->text.bytes);
    if (f->part_done)
        put_part_event(c, b, f->part_done, true);
    put_item_event(c, b, "response.output_item.done", true);
}

static const struct block_writer writer = {block_begin, block_more, block_end};

static void responses_chunk(struct exchange *x, struct choice *c)
{
    (void)x;
    put_start(c);
    blocks_read(c, false, &writer);
}

/* A prompt that takes a while: Codex gives up on a stream that stays silent. */
static void responses_progress(struct exchange *x, struct choice *c, const struct hearth_event *e)
{
    (void)e;
    if (bell_now_ns() - (c->told_ns ? c->told_ns : c->submit_ns) < REPLY_SILENCE_NS)
        return;
    c->told_ns = bell_now_ns();
    if (c->is_started)
        put_running(x, "response.in_progress");
    put_start(c);
}

static void responses_end(struct exchange *x, struct choice *c)
{
    put_start(c);
    blocks_read(c, true, &writer);
    begin(x, is_cut(c) ? "response.incomplete" : "response.completed");
    buffer_text(&x->out, ",\"response\":");
    put_ended(x, c);
    buffer_text(&x->out, "}");
    end(x);
}

static void responses_whole(struct exchange *x)
{
    struct choice *c = &x->choices[0];
    blocks_read(c, true, NULL);
    put_ended(x, c);
    buffer_text(&x->out, "}");
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The error codes that Codex acts on: the prompt is too long; the server is busy, try again. */
static const char *error_code(const struct fail *f)
{
    if (f->n_context)
        return "context_length_exceeded";
    if (f->status == 503)
        return "server_is_overloaded";
    return f->code ? f->code : f->status < 500 ? "invalid_request_error" : "server_error";
}

static void responses_fail(struct exchange *x, struct fail *f)
{
    const char *code = error_code(f), *type = f->type ? f->type : FAIL_SERVER;
    json_t *text = json_of_text(f->message, strlen(f->message));
    if (!x->is_streaming) {
        exchange_put(x, json_pack("{s:{s:o, s:s, s:n, s:s}}", "error", "message", text, "type",
                                  f->n_context ? FAIL_INVALID : type, "param", "code", code));
        return;
    }
    begin(x, "response.failed");
    buffer_text(&x->out, ",\"response\":");
    put_response(x, "failed", NULL, json_pack("{s:s, s:o}", "code", code, "message", text));
    buffer_text(&x->out, "}");
    end(x);
}

const struct reply reply_responses = {.id = "resp_",
                                      .ahead = responses_ahead,
                                      .names_events = true,
                                      .overflow_in_stream = true,
                                      .chunk = responses_chunk,
                                      .progress = responses_progress,
                                      .end = responses_end,
                                      .whole = responses_whole,
                                      .fail = responses_fail};
