/* translate: what translations have in common. See translate.h. */
#include "client/http/translate.h"

#include "client/base/json_shortest.h"
#include "client/http/talk.h"
#include "client/http/token_json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What means the same in all dialects, or is hearth's own. */
static const char *const shared[] = {
    "model",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "seed",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "repeat_last_n",
    "grammar",
    "id_slot",
    "priority",
    "logit_bias",
    "prediction",
    "ignore_eos",
    "thinking_budget_tokens",
    "chat_template_kwargs",
};

void translate_set(struct translation *t, const char *name, json_t *value)
{
    t->failed |= json_object_set_new(t->to, name, value) != 0;
}

void translate_copy(struct translation *t, const json_t *body, const char *name, const char *as)
{
    json_t *value = json_object_get(body, name);
    if (value && !json_is_null(value))
        translate_set(t, as, json_incref(value));
}

/* A new member that stays borrowed; NULL without memory. */
static json_t *open_member(struct translation *t, const char *name, json_t *value)
{
    translate_set(t, name, value);
    return json_object_get(t->to, name);
}

static bool is_shared(const char *name)
{
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        if (strcmp(shared[i], name) == 0)
            return true;
    return false;
}

void translate_begin(struct translation *t, const json_t *body, struct fail *f)
{
    const char *name;
    json_t *value;
    *t = (struct translation){.from = body, .to = json_object(), .names = json_object(), .f = f};
    t->messages = open_member(t, "messages", json_array());
    t->tools = open_member(t, "tools", json_array());
    json_object_foreach((json_t *)(uintptr_t)body, name, value)
        if (is_shared(name))
            translate_copy(t, body, name, name);
}

json_t *translate_end(struct translation *t, int rc)
{
    json_decref(t->names);
    buffer_fini(&t->thoughts);
    if (!rc && !t->failed)
        return t->to;
    if (t->failed) /* whatever else is missing then */
        fail_set(t->f, 500, FAIL_SERVER, "out of memory: try again");
    json_decref(t->to);
    return NULL;
}

json_t *translate_message(struct translation *t, const char *role, json_t *content)
{
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (json_array_append_new(t->messages, m) == 0)
        return m;
    t->failed = true;
    return NULL;
}

void translate_call(struct translation *t, json_t *message, const json_t *id, json_t *name,
                    json_t *arguments)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (json_string_length(id))
        t->failed |= json_object_set(t->names, json_string_value(id), name) != 0;
    json_t *call =
        json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", json_is_string(id) ? json_string_value(id) : "",
                  "type", "function", "function", "name", name, "arguments", arguments);
    if (!calls) {
        t->failed |= json_object_set_new(message, "tool_calls", json_array()) != 0;
        calls = json_object_get(message, "tool_calls");
    }
    t->failed |= json_array_append_new(calls, call) != 0;
}

json_t *translate_arguments(const json_t *given)
{
    if (json_is_string(given)) /* a text of JSON, as other protocols have it */
        return json_incref((json_t *)(uintptr_t)given);
    return json_is_object(given) ? translate_dump(given) : json_string("{}");
}

json_t *translate_result(struct translation *t, const json_t *id, json_t *content)
{
    json_t *name = json_object_get(t->names, json_is_string(id) ? json_string_value(id) : "");
    json_t *m = translate_message(t, "tool", content);
    if (json_is_string(id))
        t->failed |= json_object_set(m, "tool_call_id", (json_t *)(uintptr_t)id) != 0;
    if (name)
        t->failed |= json_object_set(m, "name", name) != 0;
    return m;
}

void translate_tool(struct translation *t, json_t *name, json_t *description, json_t *parameters)
{
    json_t *none = parameters ? NULL : json_pack("{s:s, s:{}}", "type", "object", "properties");
    json_t *function =
        json_pack("{s:O, s:O, s:O}", "name", name, "description", description ? description : name,
                  "parameters", parameters ? parameters : none);
    if (!json_is_string(description))
        json_object_del(function, "description");
    json_decref(none);
    t->failed |= json_array_append_new(t->tools, json_pack("{s:s, s:o}", "type", "function",
                                                           "function", function)) != 0;
}

void translate_strict(struct translation *t)
{
    const json_t *last = json_array_get(t->tools, json_array_size(t->tools) - 1);
    t->failed |= json_object_set_new(json_object_get(last, "function"), "strict", json_true()) != 0;
}

/* Templates know low, medium and high. */
void translate_add_text(struct buffer *all, const json_t *text)
{
    if (all->bytes)
        buffer_text(all, "\n");
    buffer_add(all, json_string_value(text), json_string_length(text));
}

void translate_add_made(struct buffer *all, json_t *text)
{
    translate_add_text(all, text);
    all->failed |= !text;
    json_decref(text);
}

json_t *translate_text(const struct buffer *all)
{
    return all->failed ? NULL : json_of_text(all->data ? all->data : "", all->bytes);
}

json_t *translate_dump(const json_t *value)
{
    char *text = json_shortest(value, 0);
    json_t *s = text ? json_string(text) : NULL;
    free(text);
    return s;
}
