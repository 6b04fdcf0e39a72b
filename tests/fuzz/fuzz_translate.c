/* Fuzzes the requests of agents: Anthropic's Messages, OpenAI's Responses and Ollama's interface. The
 * first byte chooses the dialect, and whether the rest is JSON as it stands or the choices of a
 * generator that nests known members and values. A refusal is an error of HTTP with one printable
 * line; a translation is an object whose messages have roles and texts, and which the readers of
 * parameters and conversations take or refuse in the same way. */
#include <stdlib.h>
#include <string.h>

#include "client/http/gen_params.h"
#include "client/http/talk.h"
#include "client/http/translate.h"

enum { CONTEXT = 256, MOST_DEPTH = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

/* ---- inputs out of known members ------------------------------------------------------------- */

static const char *const keys[] = {"messages",
                                   "input",
                                   "prompt",
                                   "system",
                                   "instructions",
                                   "role",
                                   "content",
                                   "type",
                                   "text",
                                   "tools",
                                   "name",
                                   "description",
                                   "input_schema",
                                   "parameters",
                                   "function",
                                   "tool_choice",
                                   "tool_use_id",
                                   "id",
                                   "call_id",
                                   "arguments",
                                   "output",
                                   "thinking",
                                   "budget_tokens",
                                   "reasoning",
                                   "effort",
                                   "summary",
                                   "output_config",
                                   "format",
                                   "schema",
                                   "stop_sequences",
                                   "options",
                                   "num_predict",
                                   "num_ctx",
                                   "temperature",
                                   "stop",
                                   "stream",
                                   "think",
                                   "suffix",
                                   "raw",
                                   "images",
                                   "template",
                                   "tool_calls",
                                   "tool_name",
                                   "namespace",
                                   "previous_response_id",
                                   "model",
                                   "max_tokens",
                                   "max_output_tokens",
                                   "is_error",
                                   "source",
                                   "data",
                                   "signature",
                                   "strict",
                                   "definition",
                                   "mode",
                                   "refusal",
                                   "parallel_tool_calls",
                                   "output_format",
                                   "disable_parallel_tool_use"};

static const char *const words[] = {"user",
                                    "assistant",
                                    "system",
                                    "developer",
                                    "tool",
                                    "text",
                                    "thinking",
                                    "redacted_thinking",
                                    "tool_use",
                                    "tool_result",
                                    "image",
                                    "document",
                                    "message",
                                    "reasoning",
                                    "function_call",
                                    "function_call_output",
                                    "custom",
                                    "custom_tool_call",
                                    "namespace",
                                    "function",
                                    "input_text",
                                    "output_text",
                                    "summary_text",
                                    "reasoning_text",
                                    "input_image",
                                    "refusal",
                                    "item_reference",
                                    "json_schema",
                                    "json",
                                    "auto",
                                    "any",
                                    "none",
                                    "required",
                                    "allowed_tools",
                                    "enabled",
                                    "adaptive",
                                    "disabled",
                                    "max",
                                    "x-anthropic-billing-header: a",
                                    "",
                                    "f",
                                    "{\"a\": 1}"};
enum { N_KEYS = sizeof(keys) / sizeof(keys[0]), N_WORDS = sizeof(words) / sizeof(words[0]) };

struct choices {
    const uint8_t *at, *end;
};

static uint8_t choose(struct choices *c)
{
    return c->at < c->end ? *c->at++ : 0;
}

static json_t *make_value(struct choices *c, int depth)
{
    uint8_t kind = choose(c) % 8, n = (uint8_t)(choose(c) % 6);
    json_t *o;
    if (depth == MOST_DEPTH || kind < 3)
        return json_string(words[choose(c) % N_WORDS]);
    switch (kind) {
    case 3:
        return json_integer((json_int_t)choose(c) * (choose(c) % 2 ? 1 : -1000000007));
    case 4:
        return n % 2 ? json_real(choose(c) / 7.0) : json_boolean(n % 4);
    case 5:
        o = json_array();
        while (n--)
            json_array_append_new(o, make_value(c, depth + 1));
        return o;
    case 6:
        return n ? json_object() : json_null();
    default:
        o = json_object();
        while (n--) {
            const char *key = keys[choose(c) % N_KEYS];
            json_object_set_new(o, key, make_value(c, depth + 1));
        }
        return o;
    }
}

/* An object with lists where the dialects want them. */
static json_t *make_body(const uint8_t *data, size_t size)
{
    struct choices c = {data, data + size};
    json_t *root = json_object();
    while (c.at < c.end) {
        const char *key = keys[choose(&c) % N_KEYS];
        json_t *value = make_value(&c, 0), *list = json_object_get(root, key);
        if (!list)
            json_object_set_new(root, key, list = json_array());
        if (choose(&c) % 4)
            json_array_append_new(list, value);
        else
            json_object_set_new(root, key, value);
    }
    return root;
}

/* ---- what is promised ------------------------------------------------------------------------ */

static void check_fail(const struct fail *f)
{
    must(f->status >= 400 && f->status < 500 && f->message[0] && f->type);
    json_decref(fail_json(f));
}

static void check_messages(const json_t *messages)
{
    must(json_is_array(messages));
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *calls = json_object_get(m, "tool_calls");
        must(json_is_string(json_object_get(m, "role")));
        must(json_is_string(json_object_get(m, "content")));
        for (size_t k = 0; k < json_array_size(calls); k++) {
            const json_t *call = json_array_get(calls, k);
            const json_t *function = json_object_get(call, "function");
            must(json_is_string(json_object_get(call, "id")));
            must(json_is_string(json_object_get(function, "name")));
            must(json_is_string(json_object_get(function, "arguments")));
        }
    }
}

/* Takes over `made`. */
static void check_translation(json_t *made)
{
    struct gen_params params;
    struct talk talk;
    struct fail f = {0};
    check_messages(json_object_get(made, "messages"));
    if (talk_read(&talk, made, NULL, &f) < 0)
        check_fail(&f);
    talk_fini(&talk);
    f = (struct fail){0};
    if (gen_params_read(&params, GEN_CHAT, made, &f) < 0)
        check_fail(&f);
    else
        must(params.base.n_stops <= GEN_STOPS_MAX && params.n == 1);
    gen_params_fini(&params);
}

static json_t *of_messages(const json_t *body, uint32_t context, struct fail *f)
{
    return translate_messages(body, context % 2, f);
}

static json_t *of_responses(const json_t *body, uint32_t context, struct fail *f)
{
    size_t space_bytes;
    (void)context;
    (void)translate_find_tool(body, "f__f", &space_bytes);
    return translate_responses(body, f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *(*const translate[])(const json_t *, uint32_t, struct fail *) = {
        of_messages, of_responses, translate_ollama_chat, translate_ollama_generate};
    struct fail f = {0};
    if (size == 0)
        return 0;
    json_t *body = data[0] < 128 ? json_loadb((const char *)data + 1, size - 1, JSON_ALLOW_NUL,
                                              &(json_error_t){0})
                                 : make_body(data + 1, size - 1);
    if (json_is_object(body)) {
        json_t *before = json_deep_copy(body);
        json_t *made = translate[data[0] % 4](body, CONTEXT + data[0] % 8 / 4, &f);
        must(json_equal(before, body)); /* a request is only read */
        json_decref(before);
        if (made)
            check_translation(made);
        else
            check_fail(&f);
    }
    json_decref(body);
    return 0;
}
