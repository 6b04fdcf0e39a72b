/* reply_responses: answers in the form of OpenAI's Responses. */
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"
#include "client/http/translate.h"
#include "ipc/bell.h"

#include <stdio.h>
#include <string.h>

/* ---- the response's object ------------------------------------------------------------------- */

/* How many tokens the thoughts of an answer are. */
static json_int_t thought_tokens(const struct choice *c)
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

static json_t *usage(const struct choice *c)
{
    const struct finish *e = &c->finish;
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)e->prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)e->cached,
                     "output_tokens", (json_int_t)e->output, "output_tokens_details",
                     "reasoning_tokens", thought_tokens(c), "total_tokens",
                     (json_int_t)e->prompt + e->output);
}

/* A member of the request as it was given, or `otherwise` (taken over). */
static json_t *as_asked(const struct exchange *x, const char *name, json_t *otherwise)
{
    json_t *v = json_object_get(x->asked, name);
    if (!v || json_is_null(v))
        return otherwise;
    json_decref(otherwise);
    return json_incref(v);
}

/* output, usage, error and details are taken over. */
static json_t *response(const struct exchange *x, const char *status, json_t *output, json_t *use,
                        json_t *error, json_t *details)
{
    json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:b, s:s, s:o, s:o, s:o, s:o, s:n, s:b}", "id",
                          x->id, "object", "response", "created_at", (json_int_t)x->created,
                          "status", status, "background", 0, "model", exchange_model(x), "output",
                          output, "usage", use, "error", error, "incomplete_details", details,
                          "previous_response_id", "store", 0);
    json_t *more =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:s, s:o}", "instructions",
                  as_asked(x, "instructions", json_null()), "max_output_tokens",
                  as_asked(x, "max_output_tokens", json_null()), "metadata",
                  as_asked(x, "metadata", json_object()), "parallel_tool_calls",
                  as_asked(x, "parallel_tool_calls", json_true()), "reasoning",
                  as_asked(x, "reasoning", json_pack("{s:n, s:n}", "effort", "summary")), "text",
                  as_asked(x, "text", json_pack("{s:{s:s}}", "format", "type", "text")),
                  "tool_choice", as_asked(x, "tool_choice", json_string("auto")), "temperature",
                  (double)x->params.base.temperature, "top_p", (double)x->params.base.top_p,
                  "truncation", "disabled", "tools", as_asked(x, "tools", json_array()));
    json_object_update_new(o, more);
    return o;
}

/* ---- items ----------------------------------------------------------------------------------- */

enum { ITEM_ID_BYTES = 64 };

/* The id of a block's item. */
static const char *item_id(const struct choice *c, const struct block *b, char *id)
{
    static const char *const kinds[] = {
        [HEARTH_CHAT_CONTENT] = "msg", [HEARTH_CHAT_REASONING] = "rs", [HEARTH_CHAT_CALL] = "fc"};
    snprintf(id, ITEM_ID_BYTES, "%s_%s_%u", kinds[b->kind], strchr(c->x->id, '_') + 1, b->index);
    return id;
}

/* Did the client ask for summaries of reasoning? They are all of it. */
static bool wants_summary(const struct exchange *x)
{
    const json_t *summary = json_object_get(json_object_get(x->asked, "reasoning"), "summary");
    return json_is_string(summary) && strcmp(json_string_value(summary), "none") != 0;
}

/* A list of one part with a text (taken over). */
static json_t *parts(const char *type, json_t *text)
{
    return json_pack("[{s:s, s:o}]", "type", type, "text", text);
}

static json_t *text_part(json_t *text)
{
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", text, "annotations",
                     "logprobs");
}

/* A call names a tool that the client gave, perhaps one in a namespace. */
static const json_t *tool_of(const struct choice *c, const struct block *b,
                             const json_t **ret_space)
{
    return translate_find_tool(c->x->asked, b->name.data ? b->name.data : "", ret_space);
}

static bool is_custom(const struct choice *c, const struct block *b)
{
    const json_t *space, *type = json_object_get(tool_of(c, b, &space), "type");
    return json_is_string(type) && strcmp(json_string_value(type), "custom") == 0;
}

/* What the model gave a tool that takes any text. */
static json_t *custom_input(const struct block *b)
{
    json_t *arguments = block_arguments(b);
    json_t *input = json_object_get(arguments, "input");
    input = json_is_string(input) ? json_incref(input) : block_text(b);
    json_decref(arguments);
    return input;
}

static json_t *call_item(const struct choice *c, const struct block *b, const char *id,
                         bool is_done)
{
    const json_t *space = NULL, *tool = tool_of(c, b, &space);
    const json_t *name = json_object_get(tool, "name");
    bool custom = is_custom(c, b);
    json_t *given = !is_done ? json_string("") : custom ? custom_input(b) : block_text(b);
    json_t *o = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "id", id, "type",
                          custom ? "custom_tool_call" : "function_call", "status",
                          is_done ? "completed" : "in_progress", "call_id", block_call_id(c, b),
                          "name", name ? json_incref((json_t *)(uintptr_t)name) : block_name(b),
                          custom ? "input" : "arguments", given);
    if (space)
        json_object_set(o, "namespace", (json_t *)(uintptr_t)space);
    return o;
}

/* A block as an item of the output; while it is not done, without its text. */
static json_t *item(const struct choice *c, const struct block *b, bool is_done)
{
    char id[ITEM_ID_BYTES];
    item_id(c, b, id);
    if (b->kind == HEARTH_CHAT_CALL)
        return call_item(c, b, id, is_done);
    if (b->kind == HEARTH_CHAT_CONTENT)
        return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status",
                         is_done ? "completed" : "in_progress", "role", "assistant", "content",
                         is_done ? json_pack("[o]", text_part(block_text(b))) : json_array());
    return json_pack("{s:s, s:s, s:o, s:o}", "id", id, "type", "reasoning", "summary",
                     is_done && wants_summary(c->x) ? parts("summary_text", block_text(b))
                                                    : json_array(),
                     "content", is_done ? parts("reasoning_text", block_text(b)) : json_array());
}

static json_t *items(const struct choice *c)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->blocks.n; i++)
        json_array_append_new(list, item(c, &c->blocks.items[i], true));
    return list;
}

/* The response as it ended. */
static json_t *ended(const struct choice *c)
{
    bool is_cut = c->finish.reason == HEARTH_LENGTH;
    return response(c->x, is_cut ? "incomplete" : "completed", items(c), usage(c), json_null(),
                    is_cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Takes over the event. */
static void put(struct exchange *x, json_t *event)
{
    json_object_set_new(event, "sequence_number", json_integer((json_int_t)x->n_events++));
    exchange_put_event(x, event);
}

static void put_response(struct exchange *x, const char *type, json_t *o)
{
    put(x, json_pack("{s:s, s:o}", "type", type, "response", o));
}

static void put_running(struct exchange *x, const char *type)
{
    put_response(x, type,
                 response(x, "in_progress", json_array(), json_null(), json_null(), json_null()));
}

static void put_start(struct choice *c)
{
    if (c->is_started)
        return;
    c->is_started = true;
    put_running(c->x, "response.created");
    put_running(c->x, "response.in_progress");
}

/* An event about a block's item; `more` (taken over) are its other members. */
static void put_about(struct choice *c, const struct block *b, const char *type, json_t *more)
{
    char id[ITEM_ID_BYTES];
    json_t *o = json_pack("{s:s, s:s, s:I}", "type", type, "item_id", item_id(c, b, id),
                          "output_index", (json_int_t)b->index);
    json_object_update_new(o, more);
    put(c->x, o);
}

static void put_item(struct choice *c, const struct block *b, const char *type, bool is_done)
{
    put(c->x, json_pack("{s:s, s:I, s:o}", "type", type, "output_index", (json_int_t)b->index,
                        "item", item(c, b, is_done)));
}

/* How a block's text comes: the names of its events, and the part of the item that it is in. */
struct form {
    const char *delta, *done, *part_added, *part_done, *part, *index;
};

static const struct form *form_of(const struct choice *c, const struct block *b)
{
    static const struct form content = {"response.output_text.delta",
                                        "response.output_text.done",
                                        "response.content_part.added",
                                        "response.content_part.done",
                                        "output_text",
                                        "content_index"};
    static const struct form summary = {"response.reasoning_summary_text.delta",
                                        "response.reasoning_summary_text.done",
                                        "response.reasoning_summary_part.added",
                                        "response.reasoning_summary_part.done",
                                        "summary_text",
                                        "summary_index"};
    static const struct form reasoning = {"response.reasoning_text.delta",
                                          "response.reasoning_text.done",
                                          "response.content_part.added",
                                          "response.content_part.done",
                                          "reasoning_text",
                                          "content_index"};
    static const struct form arguments = {.delta = "response.function_call_arguments.delta",
                                          .done = "response.function_call_arguments.done"};
    static const struct form input = {.delta = "response.custom_tool_call_input.delta",
                                      .done = "response.custom_tool_call_input.done"};
    if (b->kind == HEARTH_CHAT_CALL)
        return is_custom(c, b) ? &input : &arguments;
    if (b->kind == HEARTH_CHAT_CONTENT)
        return &content;
    return wants_summary(c->x) ? &summary : &reasoning;
}

static json_t *part_of(const struct block *b, const struct form *f, json_t *text)
{
    return b->kind == HEARTH_CHAT_CONTENT ? text_part(text)
                                          : json_pack("{s:s, s:o}", "type", f->part, "text", text);
}

static void put_part(struct choice *c, const struct block *b, const char *type, json_t *text)
{
    const struct form *f = form_of(c, b);
    put_about(c, b, type, json_pack("{s:i, s:o}", f->index, 0, "part", part_of(b, f, text)));
}

static void block_begin(struct choice *c, const struct block *b)
{
    put_item(c, b, "response.output_item.added", false);
    if (form_of(c, b)->part_added)
        put_part(c, b, form_of(c, b)->part_added, json_string(""));
}

static void put_text(struct choice *c, const struct block *b, const char *type, const char *name,
                     json_t *text)
{
    const struct form *f = form_of(c, b);
    json_t *more = json_pack("{s:o}", name, text);
    if (f->index)
        json_object_set_new(more, f->index, json_integer(0));
    if (b->kind == HEARTH_CHAT_CONTENT)
        json_object_set_new(more, "logprobs", json_array());
    put_about(c, b, type, more);
}

/* A custom tool's input is known when its arguments are complete. */
static void block_more(struct choice *c, const struct block *b, const char *text, size_t bytes)
{
    if (b->kind != HEARTH_CHAT_CALL || !is_custom(c, b))
        put_text(c, b, form_of(c, b)->delta, "delta", json_of_text(text, bytes));
}

static void block_end(struct choice *c, const struct block *b)
{
    const struct form *f = form_of(c, b);
    bool custom = b->kind == HEARTH_CHAT_CALL && is_custom(c, b);
    if (custom)
        put_text(c, b, f->delta, "delta", custom_input(b));
    put_text(c, b, f->done,
             custom                        ? "input"
             : b->kind == HEARTH_CHAT_CALL ? "arguments"
                                           : "text",
             custom ? custom_input(b) : block_text(b));
    if (f->part_done)
        put_part(c, b, f->part_done, block_text(b));
    put_item(c, b, "response.output_item.done", true);
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
    put_response(x,
                 c->finish.reason == HEARTH_LENGTH ? "response.incomplete" : "response.completed",
                 ended(c));
}

static void responses_whole(struct exchange *x)
{
    struct choice *c = &x->choices[0];
    blocks_read(c, true, NULL);
    json_t *o = ended(c);
    json_object_set_new(o, "hearth", reply_hearth(x, c));
    exchange_put(x, o);
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

static json_t *responses_fail(struct exchange *x, struct fail *f)
{
    const char *code = error_code(f), *type = f->type ? f->type : FAIL_SERVER;
    json_t *text = json_of_text(f->message, strlen(f->message));
    if (!x->is_streaming)
        return json_pack("{s:{s:o, s:s, s:n, s:s}}", "error", "message", text, "type",
                         f->n_context ? FAIL_INVALID : type, "param", "code", code);
    json_t *error = json_pack("{s:s, s:o}", "code", code, "message", text);
    return json_pack("{s:s, s:I, s:o}", "type", "response.failed", "sequence_number",
                     (json_int_t)x->n_events++, "response",
                     response(x, "failed", json_array(), json_null(), error, json_null()));
}

const struct reply reply_responses = {.id = "resp_",
                                      .names_events = true,
                                      .overflow_in_stream = true,
                                      .chunk = responses_chunk,
                                      .progress = responses_progress,
                                      .end = responses_end,
                                      .whole = responses_whole,
                                      .fail = responses_fail};
