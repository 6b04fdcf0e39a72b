/* talk: see talk.h. */
#include "client/http/talk.h"

#include "client/http/fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void talk_fini(struct talk *t)
{
    json_decref(t->json.extra);
}

json_t *talk_left_out(const char *type)
{
    return json_sprintf("[content of type '%s' was left out: this model reads text only]", type);
}

/* A part of a tool's result that is not a text becomes one that says so. */
static int replace_part(json_t *parts, size_t i, const char *type, struct fail *f)
{
    json_t *part = json_pack("{s:s, s:o}", "type", "text", "text", talk_left_out(type));
    return json_array_set_new(parts, i, part) == 0
               ? 0
               : fail_set(f, 500, FAIL_SERVER, "out of memory: try again");
}

/* A model that reads text is sent text only. */
static int check_parts(const json_t *messages, struct fail *f)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        const bool is_result = role && strcmp(role, "tool") == 0;
        json_t *parts = json_object_get(message, "content");
        for (size_t k = 0; json_is_array(parts) && k < json_array_size(parts); k++) {
            const char *type = json_string_value(json_object_get(json_array_get(parts, k), "type"));
            if (!type || strcmp(type, "text") == 0)
                continue;
            if (!is_result)
                return fail_set(
                    f, 400, FAIL_NOT_SUPPORTED,
                    "messages[%zu]: content of type '%.40s' is not supported: send text", i, type);
            if (replace_part(parts, k, type, f) < 0)
                return -1;
        }
    }
    return 0;
}

/* {"type": "function", "function": {"name": ...}}: the tool that has to be called. */
static const char *chosen_name(const json_t *choice)
{
    return json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": ...}}: the mode counts, for the tools that
 * are not allowed stay in the prompt. */
static const json_t *chosen(const json_t *choice)
{
    const char *type = json_string_value(json_object_get(choice, "type"));
    if (!type || strcmp(type, "allowed_tools") != 0)
        return choice;
    return json_object_get(json_object_get(choice, "allowed_tools"), "mode");
}

static int read_choice(const json_t *o, struct talk *t, struct fail *f)
{
    static const char *const words[] = {[HEARTH_TOOLS_AUTO] = "auto",
                                        [HEARTH_TOOLS_NONE] = "none",
                                        [HEARTH_TOOLS_REQUIRED] = "required"};
    const json_t *choice = chosen(json_object_get(o, "tool_choice"));
    const char *word = json_string_value(choice);
    if (!choice || json_is_null(choice))
        return 0;
    for (uint32_t i = 0; word && i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i]) == 0) {
            t->chat.tool_choice = i;
            return 0;
        }
    t->chat.tool_choice = HEARTH_TOOLS_REQUIRED;
    t->chat.tool_name = chosen_name(choice);
    if (t->chat.tool_name)
        return 0;
    return fail_set(f, 400, FAIL_INVALID,
                    "'tool_choice' must be \"auto\", \"none\", \"required\", or name a function: "
                    "{\"type\": \"function\", \"function\": {\"name\": ...}}");
}

/* Each tool is a function with a name. */
static int check_tools(const json_t *tools, struct fail *f)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *own = json_object_get(tool, "function");
        if (!json_string_length(json_object_get(own ? own : tool, "name")))
            return fail_set(f, 400, FAIL_INVALID,
                            "tools[%zu] must be {\"type\": \"function\", \"function\": "
                            "{\"name\": ...}}",
                            i);
    }
    return 0;
}

static int read_tools(const json_t *o, struct talk *t, struct fail *f)
{
    json_t *tools = NULL;
    bool parallel = true;
    int64_t budget = -1;
    if (field_array(o, "tools", &tools, f) < 0 || check_tools(tools, f) < 0 ||
        read_choice(o, t, f) < 0 || field_bool(o, "parallel_tool_calls", &parallel, f) < 0 ||
        field_int(o, "thinking_budget_tokens", -1, INT32_MAX, &budget, f) < 0)
        return -1;
    t->chat.single_call = !parallel;
    t->chat.thinking_tokens = (int32_t)budget;
    if (json_array_size(json_object_get(o, "functions")))
        return fail_set(f, 400, FAIL_NOT_SUPPORTED, "'functions' is not supported: send 'tools'");
    if (json_array_size(tools))
        t->json.tools = tools;
    return 0;
}

/* What makes templates keep thoughts, which clients send back: the prefix stays as it was. */
static json_t *keeping_thoughts(void)
{
    return json_pack("{s:b,s:b,s:b,s:b,s:b,s:b}", "preserve_thinking", 1, "preserved_thinking", 1,
                     "keep_past_thinking", 1, "clear_thinking", 0, "truncate_history_thinking", 0,
                     "drop_thinking", 0);
}

static int put_thinking(json_t *variables, bool on)
{
    return json_object_set_new(variables, "enable_thinking", json_boolean(on)) ||
           json_object_set_new(variables, "thinking", json_boolean(on));
}

/* How much to think, in the words of any dialect: "none" is not at all. Templates know low, medium
 * and high. */
static int put_effort(json_t *variables, const char *effort)
{
    static const char *const other[][2] = {{"max", "high"}, {"xhigh", "high"}, {"minimal", "low"}};
    const bool on = strcmp(effort, "none") != 0;
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        if (strcmp(effort, other[i][0]) == 0)
            effort = other[i][1];
    return put_thinking(variables, on) ||
           (on && json_object_set_new(variables, "reasoning_effort", json_string(effort)));
}

/* More variables of the template; of its own names those in `chat_template_kwargs` have the last
 * word. */
static int read_extra(const json_t *o, struct talk *t, struct fail *f)
{
    json_t *extra = NULL;
    const char *effort = NULL;
    bool on = true, says = json_is_boolean(json_object_get(o, "enable_thinking"));
    if (field_object(o, "chat_template_kwargs", &extra, f) < 0 ||
        field_text(o, "reasoning_effort", &effort, NULL, f) < 0 ||
        field_bool(o, "enable_thinking", &on, f) < 0)
        return -1;
    t->json.extra = keeping_thoughts();
    if (!t->json.extra || (effort && put_effort(t->json.extra, effort)) ||
        (says && put_thinking(t->json.extra, on)) ||
        (extra && json_object_update(t->json.extra, extra)))
        return fail_set(f, 500, FAIL_SERVER, "out of memory: try again");
    return 0;
}

int talk_read(struct talk *t, const json_t *o, const char *chat_template, struct fail *f)
{
    bool add_prompt = true;
    *t = (struct talk){0};
    hearth_chat_init(&t->chat, sizeof(t->chat));
    if (field_array(o, "messages", &t->json.messages, f) < 0 ||
        field_bool(o, "add_generation_prompt", &add_prompt, f) < 0 || read_tools(o, t, f) < 0 ||
        read_extra(o, t, f) < 0)
        return -1;
    if (!json_array_size(t->json.messages))
        return fail_set(f, 400, FAIL_INVALID,
                        "'messages' is required: an array of {\"role\": ..., \"content\": ...}");
    if (check_parts(t->json.messages, f) < 0)
        return -1;
    t->chat.chat_template = chat_template;
    t->chat.chat_template_bytes = chat_template ? strlen(chat_template) : 0;
    t->chat.add_generation_prompt = add_prompt;
    return 0;
}

int64_t talk_count(const struct talk *t, struct hearth *h, struct fail *f)
{
    int64_t n = chat_json_tokens(h, &t->chat, &t->json, NULL, 0);
    return n < 0 ? fail_library(f, (int)n, hearth_error(h)) : n;
}

/* Makes the one prompt of a. Tokens beyond the context are only counted. */
static int make_prompt(struct gen_params *a, struct hearth *h, const struct talk *t, struct fail *f)
{
    struct hearth_info info = {.size = sizeof(info)};
    struct gen_prompt *p = gen_params_open_prompt(a, h, &info, f);
    if (!p)
        return -1;
    int64_t n = chat_json_tokens(h, &t->chat, &t->json, p->ids, info.context);
    if (n < 0)
        return fail_library(f, (int)n, hearth_error(h));
    p->n = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    /* Checked here: `ids` has room for this context only, and a later daemon may have another. */
    return p->n > info.context ? gen_params_check_prompts(a, info.context, f) : 0;
}

static int open_reader(const struct talk *t, struct hearth *h, struct hearth_chat_reader **ret,
                       struct fail *f)
{
    int rc = chat_json_open(h, &t->chat, &t->json, ret);
    if (rc == -ENOTSUP)
        return fail_set(f, 400, FAIL_NOT_SUPPORTED, "%s", hearth_error(h));
    return rc ? fail_library(f, rc, hearth_error(h)) : 0;
}

int talk_check_tools(const struct talk *t, struct hearth *h, struct fail *f)
{
    struct hearth_chat_reader *reader;
    int rc = open_reader(t, h, &reader, f);
    hearth_chat_close(reader);
    return rc;
}

/* A reader for each choice, and the tokens that it has to see. */
static int open_readers(struct gen_params *a, struct hearth *h, const struct talk *t,
                        struct fail *f)
{
    a->readers = calloc(a->n, sizeof(*a->readers));
    if (!a->readers)
        return fail_set(f, 500, FAIL_SERVER, "out of memory: try again");
    if (open_reader(t, h, &a->readers[0], f) < 0)
        return -1;
    int rc = hearth_chat_request(a->readers[0], &a->base);
    if (rc == -EINVAL)
        return fail_set(
            f, 400, FAIL_INVALID,
            "a grammar or 'response_format' does not go with a 'tool_choice' that requires "
            "a call: leave out one");
    for (uint32_t i = 1; i < a->n && !rc; i++)
        rc = hearth_chat_another(a->readers[0], &a->readers[i]);
    return rc ? fail_set(f, 500, FAIL_SERVER, "out of memory: try again") : 0;
}

int talk_prepare(const struct talk *t, struct gen_params *a, struct hearth *h, struct fail *f)
{
    a->has_tools = t->json.tools != NULL;
    return make_prompt(a, h, t, f) < 0 || open_readers(a, h, t, f) < 0 ? -1 : 0;
}
