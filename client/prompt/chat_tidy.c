/* chat_tidy: see chat_tidy.h. */
#include "client/prompt/chat_tidy.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct calls {
    unsigned n;         /* that had no id */
    const json_t *list; /* of the last message that had some */
    json_t *open;       /* of these, the first without results, not too many */
    size_t n_opened;    /* of the list, in turn */
};

static bool has_role(const json_t *m, const char *role)
{
    return strcmp(json_string_value(json_object_get(m, "role")), role) == 0;
}

json_t *chat_copy(json_t *value)
{
    json_t *copy = json_copy(value);
    if (json_object_size(copy) == json_object_size(value) &&
        json_array_size(copy) == json_array_size(value))
        return copy;
    json_decref(copy);
    return NULL;
}

static bool is_none(const json_t *value)
{
    return !value || json_is_null(value);
}

static int tidy_content(json_t *m)
{
    const json_t *content = json_object_get(m, "content");
    const bool calls =
        json_array_size(json_object_get(m, "tool_calls")) || json_object_get(m, "function_call");
    if (content && (!json_is_null(content) || calls))
        return 0;
    return json_object_set_new(m, "content", json_string("")) ? -ENOMEM : 0;
}

/* vLLM, Ollama and OpenRouter call a thought `reasoning`, and so do clients that are used to
 * them. */
static int tidy_thought(json_t *m)
{
    json_t *thought = json_object_get(m, "reasoning");
    if (!has_role(m, "assistant") || !json_string_length(thought) ||
        json_string_length(json_object_get(m, "reasoning_content")))
        return 0;
    return json_object_set(m, "reasoning_content", thought) ? -ENOMEM : 0;
}

static int tidy_arguments(json_t *function)
{
    const json_t *arguments = json_object_get(function, "arguments");
    const char *text = json_string_value(arguments);
    const bool empty = text && strlen(text) == json_string_length(arguments) &&
                       (text[strspn(text, " \t\r\n")] == 0 || strcmp(text, "null") == 0);
    if (!json_is_object(function) || !(empty || is_none(arguments)))
        return 0;
    return json_object_set_new(function, "arguments", json_string("{}")) ? -ENOMEM : 0;
}

/* The call of before there were `tool_calls`. */
static int tidy_call(json_t *m)
{
    json_t *call = json_object_get(m, "function_call");
    if (!json_is_object(call) || json_array_size(json_object_get(m, "tool_calls")))
        return 0;
    json_t *calls = json_pack("[{s:s,s:O}]", "type", "function", "function", call);
    return json_object_set_new(m, "tool_calls", calls) || json_object_del(m, "function_call")
               ? -ENOMEM
               : 0;
}

/* Some clients count calls. */
static int tidy_number(json_t *object, const char *key)
{
    const json_t *id = json_object_get(object, key);
    if (!json_is_integer(id))
        return 0;
    json_t *text = json_sprintf("%" JSON_INTEGER_FORMAT, json_integer_value(id));
    return json_object_set_new(object, key, text) ? -ENOMEM : 0;
}

/* An id for the n-th call without one: templates of Mistral want nine letters and digits. */
static int tidy_id(json_t *call, struct calls *calls)
{
    if (tidy_number(call, "id"))
        return -ENOMEM;
    if (json_string_length(json_object_get(call, "id")))
        return 0;
    json_t *id = json_sprintf("call%05u", calls->n++ % 100000);
    return json_object_set_new(call, "id", id) ? -ENOMEM : 0;
}

/* The next ones, in the places of those that have results. */
static int open_calls(struct calls *calls)
{
    int rc = 0;
    while (!rc && calls->n_opened < json_array_size(calls->list) &&
           json_array_size(calls->open) < CHAT_MOST_CALLS)
        rc = json_array_append(calls->open, json_array_get(calls->list, calls->n_opened++));
    return rc ? -ENOMEM : 0;
}

static int tidy_calls(json_t *m, struct calls *calls)
{
    if (!has_role(m, "assistant"))
        return 0;
    int rc = tidy_call(m);
    json_t *list = json_object_get(m, "tool_calls"), *call;
    size_t i;
    if (!json_array_size(list)) { /* some templates ask only whether there is a list */
        json_object_del(m, "tool_calls");
        return rc;
    }
    json_array_foreach(list, i, call) {
        rc = rc ? rc : tidy_arguments(json_object_get(call, "function"));
        rc = rc ? rc : tidy_id(call, calls);
    }
    json_array_clear(calls->open);
    calls->list = list;
    calls->n_opened = 0;
    return rc ? rc : open_calls(calls);
}

/* Which of the calls that are not answered yet this one answers: by its id, else the first of its
 * name, else the first. Their number: none. */
static size_t find_call(const json_t *m, const json_t *calls, const bool *answered)
{
    const json_t *id = json_object_get(m, "tool_call_id"), *name = json_object_get(m, "name");
    const size_t n = json_array_size(calls);
    size_t i, first = n;
    const json_t *call;
    json_array_foreach(calls, i, call) {
        const json_t *other = json_object_get(json_object_get(call, "function"), "name");
        if (answered[i])
            continue;
        first = first < n ? first : i;
        if (json_string_length(id) ? json_equal(id, json_object_get(call, "id"))
                                   : json_is_string(name) && json_equal(name, other))
            return i;
    }
    return json_string_length(id) ? n : first;
}

void chat_match_results(const json_t *calls, const json_t *messages, size_t at, size_t n,
                        size_t *ret)
{
    bool answered[CHAT_MOST_CALLS] = {false};
    for (size_t i = 0; i < n; i++) {
        ret[i] = find_call(json_array_get(messages, at + i), calls, answered);
        if (ret[i] < json_array_size(calls))
            answered[ret[i]] = true;
    }
}

/* call: that it answers, or NULL. */
static int tidy_result(json_t *m, const json_t *call)
{
    json_t *name = json_object_get(json_object_get(call, "function"), "name");
    int rc = 0;
    if (!call)
        return 0;
    if (!json_string_length(json_object_get(m, "tool_call_id"))) {
        rc = json_object_set(m, "tool_call_id", json_object_get(call, "id"));
        if (json_is_string(name) && is_none(json_object_get(m, "name")))
            rc |= json_object_set(m, "name", name);
    }
    if (has_role(m, "function"))
        rc |= json_object_set_new(m, "role", json_string("tool"));
    return rc ? -ENOMEM : 0;
}

static bool is_result(const json_t *m)
{
    return m && (has_role(m, "tool") || has_role(m, "function"));
}

static size_t place_of(const json_t *call, const json_t *list, size_t n)
{
    size_t i = 0;
    while (i < n && json_array_get(list, i) != call)
        i++;
    return i;
}

/* The n results from messages[at] on, each of the call of that number, in the order of the calls:
 * some templates write no ids. Those of no call are the last. */
static int order_results(json_t *messages, size_t at, size_t n, const size_t *number)
{
    json_t *sorted = json_array();
    int rc = sorted ? 0 : -1;
    for (size_t k = 0; k <= CHAT_MOST_CALLS; k++)
        for (size_t i = 0; i < n && !rc; i++)
            if (number[i] == k)
                rc = json_array_append(sorted, json_array_get(messages, at + i));
    for (size_t i = 0; i < n && !rc; i++)
        rc = json_array_set(messages, at + i, json_array_get(sorted, i));
    json_decref(sorted);
    return rc ? -ENOMEM : 0;
}

/* Those from messages[at] on, as many as are looked through at once: *ret_n. */
static int tidy_some_results(json_t *messages, size_t at, struct calls *calls, size_t *ret_n)
{
    size_t answers[CHAT_MOST_CALLS], n = 0;
    const json_t *of[CHAT_MOST_CALLS];
    int rc = 0;
    while (!rc && n < CHAT_MOST_CALLS && is_result(json_array_get(messages, at + n)))
        rc = tidy_number(json_array_get(messages, at + n++), "tool_call_id");
    *ret_n = n;
    chat_match_results(calls->open, messages, at, n, answers);
    for (size_t i = 0; i < n && !rc; i++) {
        of[i] = json_array_get(calls->open, answers[i]);
        rc = tidy_result(json_array_get(messages, at + i), of[i]);
    }
    for (size_t i = 0; i < n && !rc; i++)
        if (of[i] && json_array_remove(calls->open, place_of(of[i], calls->open, CHAT_MOST_CALLS)))
            rc = -ENOMEM;
    rc = rc ? rc : open_calls(calls);
    return rc || n < 2 ? rc : order_results(messages, at, n, answers);
}

static int tidy_results(json_t *messages, size_t at, struct calls *calls)
{
    size_t n = CHAT_MOST_CALLS;
    int rc = 0;
    if (is_result(json_array_get(messages, at))) /* it was among those after another */
        return 0;
    for (at++; !rc && n == CHAT_MOST_CALLS; at += n)
        rc = tidy_some_results(messages, at, calls, &n);
    return rc;
}

int chat_tidy(json_t *messages)
{
    struct calls calls = {.open = json_array()};
    size_t i;
    json_t *m;
    int rc = calls.open ? 0 : -ENOMEM;
    json_array_foreach(messages, i, m) {
        rc = rc ? rc : tidy_content(m);
        rc = rc ? rc : tidy_thought(m);
        rc = rc ? rc : tidy_calls(m, &calls);
        rc = rc ? rc : tidy_results(messages, i, &calls);
    }
    json_decref(calls.open);
    return rc;
}
