/* translate_responses: requests of OpenAI's Responses. See translate.h. */
#include "client/http/fields.h"
#include "client/http/say.h"
#include "client/http/talk.h"
#include "client/http/translate.h"

#include <stdio.h>
#include <string.h>

static const char *text_member(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));
    return text ? text : "";
}

static bool is_type(const json_t *item, const char *type)
{
    return strcmp(text_member(item, "type"), type) == 0;
}

/* ---- names of tools -------------------------------------------------------------------------- */

static const char between[] = "__"; /* a namespace's name and what is in it */

/* The name of a tool, or of a namespace, inside a namespace, as the model has it; without one the
 * name itself. */
static json_t *flat_name(const json_t *space, const json_t *name)
{
    if (!json_is_string(space) || !json_string_length(space))
        return json_incref((json_t *)(uintptr_t)name);
    return json_sprintf("%s%s%s", json_string_value(space), between, json_string_value(name));
}

/* Namespaces in namespaces, and bytes of their names together: each tool has those before its own,
 * and a call with a longer name is not read (client/events/reader.c). */
enum { MOST_DEPTH = 8, SPACE_BYTES = 256 };

/* Looks among the tools for the one that flat[at..] names. */
static const json_t *find_tool(const json_t *tools, const char *flat, size_t at, int depth,
                               size_t *ret_space_bytes)
{
    for (size_t i = 0; i < json_array_size(tools) && depth <= MOST_DEPTH; i++) {
        const json_t *tool = json_array_get(tools, i), *found = NULL;
        const json_t *name = json_object_get(tool, "name");
        const char *text = json_string_value(name);
        /* up to a 0 that may be in it, before which flat ends */
        size_t n = text ? strlen(text) : 0, skip = n ? n + strlen(between) : 0;
        if (is_type(tool, "namespace")) {
            if (!n || (strncmp(flat + at, text, n) == 0 &&
                       strncmp(flat + at + n, between, strlen(between)) == 0))
                found = find_tool(json_object_get(tool, "tools"), flat, at + skip, depth + 1,
                                  ret_space_bytes);
        } else if (text && strcmp(flat + at, text) == 0) {
            found = tool;
            *ret_space_bytes = at ? at - strlen(between) : 0;
        }
        if (found)
            return found;
    }
    return NULL;
}

const json_t *translate_find_tool(const json_t *body, const char *flat, size_t *ret_space_bytes)
{
    *ret_space_bytes = 0;
    return find_tool(json_object_get(body, "tools"), flat, 0, 0, ret_space_bytes);
}

/* ---- tools ----------------------------------------------------------------------------------- */

/* A tool that takes any text is one with a parameter `input`; a grammar of that text is shown. */
static void add_custom(struct translation *t, json_t *name, const json_t *tool)
{
    json_t *parameters = json_pack("{s:s, s:{s:{s:s}}, s:[s]}", "type", "object", "properties",
                                   "input", "type", "string", "required", "input");
    const char *grammar = text_member(json_object_get(tool, "format"), "definition");
    json_t *description =
        json_sprintf("%s%s%s", text_member(tool, "description"),
                     *grammar ? "\nThe input follows this grammar:\n" : "", grammar);
    t->failed |= !parameters || !description;
    translate_tool(t, name, description, parameters);
    json_decref(parameters);
    json_decref(description);
}

static int add_tool(struct translation *t, const json_t *space, const json_t *tool)
{
    static struct say_types said = SAY_TYPES_INITIALIZER;
    const json_t *own = json_object_get(tool, "name");
    if (!*text_member(tool, "type"))
        return fail_set(t->f, 400, FAIL_INVALID, "'tools': a tool is an object with a 'type'");
    if (!is_type(tool, "function") && !is_type(tool, "custom")) {
        say_type(&said, text_member(tool, "type"),
                 "a tool of type '%.40s' is left out: hearth does not have it",
                 text_member(tool, "type"));
        return 0;
    }
    if (!json_is_string(own))
        return fail_set(t->f, 400, FAIL_INVALID, "'tools': a %s needs a 'name'",
                        text_member(tool, "type"));
    json_t *name = flat_name(space, own);
    t->failed |= !name;
    if (is_type(tool, "custom"))
        add_custom(t, name, tool);
    else
        translate_tool(t, name, json_object_get(tool, "description"),
                       json_object_get(tool, "parameters"));
    if (json_is_true(json_object_get(tool, "strict")))
        translate_strict(t);
    json_decref(name);
    return 0;
}

/* The tools of a namespace, or of the request, and those of namespaces among them. */
static int add_tools(struct translation *t, const json_t *space, const json_t *tools, int depth)
{
    int rc = 0;
    if (depth > MOST_DEPTH)
        return fail_set(
            t->f, 400, FAIL_INVALID,
            "'tools': namespaces stand in each other more than %d deep: send flatter ones",
            MOST_DEPTH);
    for (size_t i = 0; i < json_array_size(tools) && !rc; i++) {
        const json_t *tool = json_array_get(tools, i), *name = json_object_get(tool, "name");
        if (!is_type(tool, "namespace")) {
            rc = add_tool(t, space, tool);
            continue;
        }
        json_t *inner = json_string_length(name) ? flat_name(space, name)
                                                 : json_incref((json_t *)(uintptr_t)space);
        if (json_string_length(inner) > SPACE_BYTES)
            rc = fail_set(t->f, 400, FAIL_INVALID,
                          "'tools': the name of a namespace must have at most %d bytes, with those "
                          "that it stands in",
                          SPACE_BYTES);
        else
            rc = add_tools(t, inner, json_object_get(tool, "tools"), depth + 1);
        json_decref(inner);
    }
    return rc;
}

static int read_tools(struct translation *t, const json_t *body)
{
    json_t *tools = NULL;
    return field_array(body, "tools", &tools, t->f) < 0 ? -1 : add_tools(t, NULL, tools, 0);
}

static void read_choice(struct translation *t, const json_t *body)
{
    const json_t *choice = json_object_get(body, "tool_choice");
    const json_t *name = json_object_get(choice, "name");
    if (is_type(choice, "allowed_tools"))
        choice = json_object_get(choice, "mode");
    if (json_is_string(choice))
        translate_set(t, "tool_choice", json_incref((json_t *)(uintptr_t)choice));
    else if (json_is_string(name))
        translate_set(t, "tool_choice",
                      json_pack("{s:s, s:{s:o}}", "type", "function", "function", "name",
                                flat_name(json_object_get(choice, "namespace"), name)));
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Adds a content that is a string or a list of parts, or an output that is. */
static int add_content(const struct translation *t, struct buffer *all, const json_t *content)
{
    if (json_is_string(content))
        translate_add_text(all, content);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *text = json_object_get(part, "text");
        if (is_type(part, "refusal"))
            text = json_object_get(part, "refusal");
        const bool is_unread = is_type(part, "input_image") || is_type(part, "input_file") ||
                               is_type(part, "input_audio");
        if (is_unread && !t->is_result)
            return fail_set(t->f, 400, FAIL_NOT_SUPPORTED,
                            "%s: content of type '%s' is not supported: the model reads text only",
                            t->where, text_member(part, "type"));
        if (is_unread)
            translate_add_made(all, talk_left_out(text_member(part, "type")));
        else if (json_is_string(text))
            translate_add_text(all, text);
        else
            translate_add_made(all, translate_dump(part));
    }
    return 0;
}

/* The assistant's message that items go on with: thoughts, then a text, then calls. `stage` is what
 * comes next; a message that is past it is complete, and another one begins. */
enum stage { STAGE_THOUGHTS, STAGE_TEXT, STAGE_CALLS };

/* Its thoughts are put together once: there may be as many items as bytes. */
static void end_turn(struct translation *t)
{
    if (t->thoughts.bytes || t->thoughts.failed)
        t->failed |=
            json_object_set_new(t->turn, "reasoning_content", translate_text(&t->thoughts)) != 0;
    buffer_fini(&t->thoughts);
    t->turn = NULL;
}

static json_t *turn(struct translation *t, enum stage stage)
{
    json_t *m = t->turn;
    bool is_past = stage < STAGE_CALLS && json_object_get(m, "tool_calls");
    is_past |= stage < STAGE_CALLS && json_string_length(json_object_get(m, "content")) > 0;
    if (!m || is_past) {
        end_turn(t);
        t->turn = translate_message(t, "assistant", json_string(""));
    }
    return t->turn;
}

static int add_message(struct translation *t, const json_t *item)
{
    struct buffer all = {0};
    const char *role = text_member(item, "role");
    bool is_system = strcmp(role, "system") == 0 || strcmp(role, "developer") == 0;
    bool is_answer = strcmp(role, "assistant") == 0;
    if (!is_system && !is_answer && strcmp(role, "user") != 0)
        return fail_set(t->f, 400, FAIL_INVALID,
                        "%s: 'role' must be \"user\", \"assistant\", \"system\" or \"developer\"",
                        t->where);
    int rc = add_content(t, &all, json_object_get(item, "content"));
    if (!rc && is_answer)
        t->failed |= json_object_set_new(turn(t, STAGE_TEXT), "content", translate_text(&all)) != 0;
    else if (!rc)
        translate_message(t, is_system ? "system" : "user", translate_text(&all));
    if (!is_answer)
        end_turn(t);
    buffer_fini(&all);
    return rc;
}

/* Thoughts as they were given, else what was said about them. */
static int add_reasoning(struct translation *t, const json_t *item)
{
    const json_t *content = json_object_get(item, "content");
    if (!json_array_size(content))
        content = json_object_get(item, "summary");
    (void)turn(t, STAGE_THOUGHTS);
    return add_content(t, &t->thoughts, content);
}

static int add_call(struct translation *t, const json_t *item)
{
    const json_t *name = json_object_get(item, "name");
    json_t *arguments;
    if (!json_is_string(name))
        return fail_set(t->f, 400, FAIL_INVALID, "%s: a call needs a 'name'", t->where);
    if (is_type(item, "custom_tool_call")) {
        json_t *input = json_pack("{s:s}", "input", text_member(item, "input"));
        arguments = translate_dump(input);
        json_decref(input);
    } else {
        arguments = json_string(text_member(item, "arguments"));
    }
    translate_call(t, turn(t, STAGE_CALLS), json_object_get(item, "call_id"),
                   flat_name(json_object_get(item, "namespace"), name), arguments);
    return 0;
}

static int add_output(struct translation *t, const json_t *item)
{
    struct buffer all = {0};
    t->is_result = true;
    int rc = add_content(t, &all, json_object_get(item, "output"));
    t->is_result = false;
    end_turn(t);
    if (!rc)
        translate_result(t, json_object_get(item, "call_id"), translate_text(&all));
    buffer_fini(&all);
    return rc;
}

/* Items of types that hearth does not know are left out: clients invent some. */
static int add_item(struct translation *t, const json_t *item)
{
    static struct say_types said = SAY_TYPES_INITIALIZER;
    if (is_type(item, "message") ||
        (!json_object_get(item, "type") && json_object_get(item, "role")))
        return add_message(t, item);
    if (is_type(item, "reasoning"))
        return add_reasoning(t, item);
    if (is_type(item, "function_call") || is_type(item, "custom_tool_call"))
        return add_call(t, item);
    if (is_type(item, "function_call_output") || is_type(item, "custom_tool_call_output"))
        return add_output(t, item);
    if (is_type(item, "item_reference"))
        return fail_set(t->f, 400, FAIL_NOT_SUPPORTED,
                        "%s: nothing is stored here to refer to: send the item itself", t->where);
    say_type(&said, text_member(item, "type"),
             "an item of type '%.40s' in a request's input is left out", text_member(item, "type"));
    return 0;
}

static int read_input(struct translation *t, const json_t *body)
{
    const json_t *input = json_object_get(body, "input");
    const json_t *instructions = json_object_get(body, "instructions");
    if (json_string_length(instructions))
        translate_message(t, "system", json_incref((json_t *)(uintptr_t)instructions));
    if (json_is_string(input)) {
        translate_message(t, "user", json_incref((json_t *)(uintptr_t)input));
        return 0;
    }
    for (size_t i = 0; i < json_array_size(input); i++) {
        snprintf(t->where, sizeof(t->where), "input[%zu]", i);
        if (add_item(t, json_array_get(input, i)) < 0)
            return -1;
    }
    end_turn(t);
    if (json_array_size(t->messages))
        return 0;
    return fail_set(t->f, 400, FAIL_INVALID,
                    "'input' is required: a string, or an array of items such as {\"role\": "
                    "\"user\", \"content\": ...}");
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* What would need a memory of earlier answers. */
static int refuse_stored(const json_t *body, struct fail *f)
{
    static const char *const names[] = {"previous_response_id", "conversation", "prompt"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *v = json_object_get(body, names[i]);
        if (v && !json_is_null(v))
            return fail_set(f, 400, FAIL_NOT_SUPPORTED,
                            "'%s' is not supported: nothing is stored here, send the whole "
                            "conversation as 'input'",
                            names[i]);
    }
    if (json_is_true(json_object_get(body, "background")))
        return fail_set(f, 400, FAIL_NOT_SUPPORTED, "'background' is not supported: leave it out");
    return 0;
}

static int read_reasoning(struct translation *t, const json_t *body)
{
    json_t *reasoning = NULL;
    const char *effort = NULL;
    if (field_object(body, "reasoning", &reasoning, t->f) < 0 ||
        (reasoning && field_text(reasoning, "effort", &effort, NULL, t->f) < 0))
        return -1;
    if (effort)
        translate_set(t, "reasoning_effort", json_string(effort));
    return 0;
}

static int read_format(struct translation *t, const json_t *body)
{
    json_t *text = NULL, *format = NULL;
    if (field_object(body, "text", &text, t->f) < 0 ||
        (text && field_object(text, "format", &format, t->f) < 0))
        return -1;
    if (format)
        translate_set(t, "response_format", json_incref(format));
    return 0;
}

json_t *translate_responses(const json_t *body, struct fail *f)
{
    struct translation t;
    if (refuse_stored(body, f) < 0)
        return NULL;
    translate_begin(&t, body, f);
    translate_copy(&t, body, "max_output_tokens", "max_tokens");
    translate_copy(&t, body, "parallel_tool_calls", "parallel_tool_calls");
    read_choice(&t, body);
    int rc = read_input(&t, body) < 0 || read_tools(&t, body) < 0 || read_reasoning(&t, body) < 0 ||
                     read_format(&t, body) < 0
                 ? -1
                 : 0;
    return translate_end(&t, rc);
}
