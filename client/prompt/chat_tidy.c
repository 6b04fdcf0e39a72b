/* chat_tidy: see chat_tidy.h. */
#include "client/prompt/chat_tidy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { ID_BYTES = 32 };

static bool has_role(const json_t *m, const char *role)
{
    return strcmp(json_string_value(json_object_get(m, "role")), role) == 0;
}

static bool is_none(const json_t *value)
{
    return !value || json_is_null(value);
}

static int tidy_content(json_t *m)
{
    if (has_role(m, "assistant") || !is_none(json_object_get(m, "content")))
        return 0;
    return json_object_set_new(m, "content", json_string("")) ? -ENOMEM : 0;
}

static int tidy_arguments(json_t *m)
{
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) {
        json_t *function = json_object_get(call, "function");
        const json_t *arguments = json_object_get(function, "arguments");
        const char *text = json_string_value(arguments);
        const bool empty = text && strlen(text) == json_string_length(arguments) &&
                           (text[strspn(text, " \t\r\n")] == 0 || strcmp(text, "null") == 0);
        if (json_is_object(function) && (empty || is_none(arguments)) &&
            json_object_set_new(function, "arguments", json_string("{}")))
            return -ENOMEM;
    }
    return 0;
}

/* The call of before there were `tool_calls`, which had no id: messages[at] gives it one, for the
 * result after it. Templates of Mistral want nine letters and digits. */
static int tidy_call(json_t *m, size_t at, char id[ID_BYTES])
{
    json_t *call = json_object_get(m, "function_call");
    if (!has_role(m, "assistant") || !json_is_object(call) ||
        json_array_size(json_object_get(m, "tool_calls")))
        return 0;
    snprintf(id, ID_BYTES, "call%05zu", at);
    json_t *calls = json_pack("[{s:s,s:s,s:O}]", "id", id, "type", "function", "function", call);
    return json_object_set_new(m, "tool_calls", calls) || json_object_del(m, "function_call")
               ? -ENOMEM
               : 0;
}

static int tidy_result(json_t *m, const char *id)
{
    if (!*id || !has_role(m, "function"))
        return 0;
    return json_object_set_new(m, "role", json_string("tool")) ||
                   json_object_set_new(m, "tool_call_id", json_string(id))
               ? -ENOMEM
               : 0;
}

int chat_tidy(json_t *messages)
{
    char id[ID_BYTES] = "";
    size_t i;
    json_t *m;
    json_array_foreach(messages, i, m) {
        int rc = tidy_content(m);
        if (!rc)
            rc = tidy_call(m, i, id);
        if (!rc)
            rc = tidy_result(m, id);
        if (!rc)
            rc = tidy_arguments(m);
        if (rc)
            return rc;
    }
    return 0;
}
