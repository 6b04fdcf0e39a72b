/* translate_messages: requests of Anthropic's Messages. See translate.h. */
#include "client/http/fields.h"
#include "client/http/say.h"
#include "client/http/talk.h"
#include "client/http/translate.h"

#include <stdio.h>
#include <string.h>

static const char *type_of(const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    return type ? type : "";
}

static bool is_type(const json_t *block, const char *type)
{
    return strcmp(type_of(block), type) == 0;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* The text of a block that has one, borrowed; NULL: it has none. A document may be a text. */
static const json_t *text_of(const json_t *block)
{
    const json_t *source = json_object_get(block, "source"), *text = json_object_get(block, "text");
    if (is_type(block, "document") && is_type(source, "text"))
        text = json_object_get(source, "data");
    return json_is_string(text) ? text : NULL;
}

/* Adds a block of a list of texts. What else there may be, such as results of searches, is shown to
 * the model as it came. */
static int add_block(const struct translation *t, struct buffer *all, const json_t *block)
{
    const json_t *text = text_of(block);
    if (!json_is_object(block))
        return fail_set(t->f, 400, FAIL_INVALID, "%s: a block of a content must be an object",
                        t->where);
    const bool is_unread = !text && (is_type(block, "image") || is_type(block, "document"));
    if (is_unread && !t->is_result)
        return fail_set(t->f, 400, FAIL_INVALID,
                        "%s: content of type '%s' is not supported: the model reads text only",
                        t->where, type_of(block));
    if (text)
        translate_add_text(all, text);
    else
        translate_add_made(all, is_unread ? talk_left_out(type_of(block)) : translate_dump(block));
    return 0;
}

/* A content that is a string, a list of blocks, or nothing. */
static int add_content(const struct translation *t, struct buffer *all, const json_t *content)
{
    if (json_is_string(content))
        translate_add_text(all, content);
    else if (content && !json_is_array(content) && !json_is_null(content))
        return fail_set(t->f, 400, FAIL_INVALID, "%s: 'content' must be a string or an array",
                        t->where);
    for (size_t i = 0; i < json_array_size(content); i++)
        if (add_block(t, all, json_array_get(content, i)) < 0)
            return -1;
    return 0;
}

/* Claude Code begins with a line for bills that differs in each session: nothing after it would be
 * found computed. How many bytes of a text that line is; 0: it is not there. */
static size_t billing_bytes(const json_t *text)
{
    static const char header[] = "x-anthropic-billing-header:";
    const char *at = json_string_value(text);
    if (!at || strncmp(at, header, sizeof(header) - 1) != 0)
        return 0;
    const char *end = memchr(at, '\n', json_string_length(text));
    return end ? (size_t)(end - at) + 1 : json_string_length(text);
}

static int read_system(struct translation *t, const json_t *body, bool keep_billing)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const json_t *system = json_object_get(body, "system");
    const json_t *first = json_is_array(system) ? text_of(json_array_get(system, 0)) : system;
    struct buffer all = {0};
    snprintf(t->where, sizeof(t->where), "system");
    const size_t dropped = keep_billing ? 0 : billing_bytes(first);
    int rc = 0;
    if (dropped) {
        say_once(&said, "a billing header in front of a system prompt, which differs in each "
                        "session, is left out: --keep-billing-header keeps it");
        buffer_add(&all, json_string_value(first) + dropped, json_string_length(first) - dropped);
    } else if (!json_is_array(system)) {
        rc = add_content(t, &all, system);
    }
    for (size_t i = dropped > 0; i < json_array_size(system) && !rc; i++)
        rc = add_block(t, &all, json_array_get(system, i));
    if (!rc && all.bytes)
        translate_message(t, "system", translate_text(&all));
    buffer_fini(&all);
    return rc;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Appends what was gathered as a message; `always`: also when it is empty. */
static void flush(struct translation *t, const char *role, struct buffer *all, bool always)
{
    if (all->bytes || all->failed || always)
        translate_message(t, role, translate_text(all));
    buffer_fini(all);
}

static int add_result(struct translation *t, const json_t *block)
{
    struct buffer all = {0};
    t->is_result = true;
    int rc = add_content(t, &all, json_object_get(block, "content"));
    t->is_result = false;
    if (!rc && json_is_true(json_object_get(block, "is_error"))) {
        struct buffer error = {0};
        buffer_text(&error, "Error: ");
        buffer_add(&error, all.data, all.bytes);
        error.failed |= all.failed;
        buffer_fini(&all);
        all = error;
    }
    if (!rc)
        translate_result(t, json_object_get(block, "tool_use_id"), translate_text(&all));
    buffer_fini(&all);
    return rc;
}

/* A message of the user, or a later one of the system: its texts, and results of tools where they
 * stand among them. */
static int read_user(struct translation *t, const char *role, const json_t *content)
{
    struct buffer text = {0};
    bool has_result = false;
    int rc = json_is_array(content) ? 0 : add_content(t, &text, content);
    for (size_t i = 0; i < json_array_size(content) && !rc; i++) {
        const json_t *block = json_array_get(content, i);
        if (is_type(block, "tool_result")) {
            has_result = true;
            flush(t, role, &text, false);
            rc = add_result(t, block);
        } else {
            rc = add_block(t, &text, block);
        }
    }
    flush(t, role, &text, !rc && !has_result);
    return rc;
}

static int add_call(struct translation *t, json_t *message, const json_t *block)
{
    json_t *name = json_object_get(block, "name"), *input = json_object_get(block, "input");
    if (!json_is_string(name))
        return fail_set(t->f, 400, FAIL_INVALID, "%s: a tool_use needs a 'name'", t->where);
    translate_call(t, message, json_object_get(block, "id"), json_incref(name),
                   translate_arguments(input));
    return 0;
}

/* Text, thoughts and calls become one message. Thoughts that are encrypted are of no use. */
static int read_assistant(struct translation *t, const json_t *content)
{
    struct buffer text = {0}, thoughts = {0};
    json_t *message = translate_message(t, "assistant", json_string(""));
    int rc = json_is_array(content) ? 0 : add_content(t, &text, content);
    for (size_t i = 0; i < json_array_size(content) && !rc; i++) {
        const json_t *block = json_array_get(content, i);
        if (is_type(block, "thinking"))
            translate_add_text(&thoughts, json_object_get(block, "thinking"));
        else if (is_type(block, "tool_use"))
            rc = add_call(t, message, block);
        else if (!is_type(block, "redacted_thinking"))
            rc = add_block(t, &text, block);
    }
    t->failed |= json_object_set_new(message, "content", translate_text(&text)) != 0;
    if (thoughts.bytes)
        t->failed |=
            json_object_set_new(message, "reasoning_content", translate_text(&thoughts)) != 0;
    buffer_fini(&text);
    buffer_fini(&thoughts);
    return rc;
}

static int read_messages(struct translation *t, const json_t *body)
{
    json_t *messages = NULL;
    if (field_array(body, "messages", &messages, t->f) < 0)
        return -1;
    if (!json_array_size(messages))
        return fail_set(t->f, 400, FAIL_INVALID, "messages: at least one message is required");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *content = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        int rc;
        snprintf(t->where, sizeof(t->where), "messages.%zu", i);
        if (role && strcmp(role, "assistant") == 0)
            rc = read_assistant(t, content);
        else if (role && (strcmp(role, "user") == 0 || strcmp(role, "system") == 0))
            rc = read_user(t, role, content);
        else
            rc = fail_set(t->f, 400, FAIL_INVALID,
                          "%s: 'role' must be \"user\", \"assistant\" or \"system\"", t->where);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* ---- tools and the rest ---------------------------------------------------------------------- */

/* Tools that Anthropic runs, or whose schema it knows alone, cannot be described to the model. */
static int read_tools(struct translation *t, const json_t *body)
{
    static struct say_types said = SAY_TYPES_INITIALIZER;
    json_t *tools = NULL;
    if (field_array(body, "tools", &tools, t->f) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        json_t *name = json_object_get(tool, "name");
        json_t *schema = json_object_get(tool, "input_schema");
        if (!json_is_object(schema) && *type_of(tool) && !is_type(tool, "custom"))
            say_type(&said, type_of(tool),
                     "a tool of type '%.40s' is left out: hearth does not have it", type_of(tool));
        else if (!json_is_string(name) || !json_is_object(schema))
            return fail_set(t->f, 400, FAIL_INVALID,
                            "tools.%zu: a tool needs a 'name' and an object 'input_schema'", i);
        else
            translate_tool(t, name, json_object_get(tool, "description"), schema);
        if (json_is_object(schema) && json_is_true(json_object_get(tool, "strict")))
            translate_strict(t);
    }
    return 0;
}

static int read_choice(struct translation *t, const json_t *body)
{
    json_t *choice = NULL;
    if (field_object(body, "tool_choice", &choice, t->f) < 0)
        return -1;
    if (!choice)
        return 0;
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        translate_set(t, "parallel_tool_calls", json_false());
    if (is_type(choice, "any"))
        translate_set(t, "tool_choice", json_string("required"));
    else if (is_type(choice, "tool") && json_is_string(json_object_get(choice, "name")))
        translate_set(t, "tool_choice",
                      json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name",
                                json_object_get(choice, "name")));
    else if (is_type(choice, "auto") || is_type(choice, "none"))
        translate_set(t, "tool_choice", json_string(type_of(choice)));
    else
        return fail_set(t->f, 400, FAIL_INVALID,
                        "'tool_choice' must be of type auto, any, none, or tool with a 'name'");
    return 0;
}

/* Without `thinking` there is none, as Anthropic has it. */
static int read_thinking(struct translation *t, const json_t *body)
{
    json_t *thinking = NULL, *output = NULL;
    const char *effort = NULL;
    if (field_object(body, "thinking", &thinking, t->f) < 0 ||
        field_object(body, "output_config", &output, t->f) < 0 ||
        (output && field_text(output, "effort", &effort, NULL, t->f) < 0))
        return -1;
    bool on = is_type(thinking, "enabled") || is_type(thinking, "adaptive");
    if (thinking && !on && !is_type(thinking, "disabled"))
        return fail_set(t->f, 400, FAIL_INVALID,
                        "'thinking' must be of type enabled, adaptive or disabled");
    if (on && effort)
        translate_set(t, "reasoning_effort", json_string(effort));
    else
        translate_set(t, "enable_thinking", json_boolean(on));
    if (on)
        translate_copy(t, thinking, "budget_tokens", "thinking_budget_tokens");
    return 0;
}

/* A schema for the answer: output_config.format, or output_format as it was called before. */
static int read_format(struct translation *t, const json_t *body)
{
    const json_t *format = json_object_get(json_object_get(body, "output_config"), "format");
    if (!json_is_object(format))
        format = json_object_get(body, "output_format");
    if (!json_is_object(format))
        return 0;
    if (!is_type(format, "json_schema") || !json_object_get(format, "schema"))
        return fail_set(t->f, 400, FAIL_INVALID,
                        "output_config.format must be of type json_schema, with a 'schema'");
    translate_set(t, "response_format",
                  json_pack("{s:s, s:O}", "type", "json_schema", "schema",
                            json_object_get(format, "schema")));
    return 0;
}

json_t *translate_messages(const json_t *body, bool keep_billing, struct fail *f)
{
    struct translation t;
    translate_begin(&t, body, f);
    translate_copy(&t, body, "max_tokens", "max_tokens");
    translate_copy(&t, body, "stop_sequences", "stop");
    int rc = read_system(&t, body, keep_billing) < 0 || read_messages(&t, body) < 0 ||
                     read_tools(&t, body) < 0 || read_choice(&t, body) < 0 ||
                     read_thinking(&t, body) < 0 || read_format(&t, body) < 0
                 ? -1
                 : 0;
    return translate_end(&t, rc);
}
