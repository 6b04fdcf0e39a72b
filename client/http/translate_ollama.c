/* translate_ollama: requests of Ollama's /api/chat and /api/generate. See translate.h. */
#include "client/http/fields.h"
#include "client/http/say.h"
#include "client/http/talk.h"
#include "client/http/translate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

/* What an option is called here; where Ollama has another default, that one. */
static const struct {
    const char *name, *as;
    double otherwise; /* 0: the common default */
} options[] = {
    {"temperature", "temperature", 0.8},
    {"top_k", "top_k", 40},
    {"top_p", "top_p", 0.9},
    {"min_p", "min_p", 0},
    {"typical_p", "typical_p", 0},
    {"seed", "seed", 0},
    {"stop", "stop", 0},
    {"repeat_penalty", "repeat_penalty", 0},
    {"repeat_last_n", "repeat_last_n", 0},
    {"presence_penalty", "presence_penalty", 0},
    {"frequency_penalty", "frequency_penalty", 0},
    {"mirostat", "mirostat", 0},
};

static int read_length(struct translation *t, const json_t *given, uint32_t context)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    int64_t most = -1, wanted = 0;
    if (field_int(given, "num_predict", INT32_MIN, INT32_MAX, &most, t->f) < 0 ||
        field_int(given, "num_ctx", INT32_MIN, INT32_MAX, &wanted, t->f) < 0)
        return -1;
    translate_set(t, "max_tokens", json_integer(most < 0 ? -1 : most));
    if (wanted > context)
        say_once(&said,
                 "a request's num_ctx of %lld is more than the context of %u: start hearthd with a "
                 "larger --context",
                 (long long)wanted, context);
    return 0;
}

static int read_options(struct translation *t, const json_t *body, uint32_t context)
{
    json_t *given = NULL;
    bool stream = true;
    if (field_object(body, "options", &given, t->f) < 0 ||
        field_bool(body, "stream", &stream, t->f) < 0)
        return -1;
    translate_set(t, "stream", json_boolean(stream));
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        const json_t *v = json_object_get(given, options[i].name);
        if (v && !json_is_null(v))
            translate_copy(t, given, options[i].name, options[i].as);
        else if (options[i].otherwise > 0 && !json_object_get(t->to, options[i].as))
            translate_set(t, options[i].as, json_real(options[i].otherwise));
    }
    return read_length(t, given, context);
}

/* ---- keep_alive ------------------------------------------------------------------------------ */

/* Seconds of a duration: numbers, each with its unit; a single number needs none. Returns false where
 * it is none. */
static bool read_duration(const char *text, double *ret_s)
{
    static const struct {
        const char *name;
        double s;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"\xc2\xb5s", 1e-6}, {"ms", 1e-3},
                 {"s", 1},     {"m", 60},    {"h", 3600}};
    const double sign = *text == '-' ? -1 : 1;
    const char *at = text + (*text == '-' || *text == '+');
    double sum = 0;
    do {
        size_t u = 0, n = strspn(at, "0123456789."), letters = strcspn(at + n, "0123456789.");
        char *end;
        double number = n ? strtod(at, &end) : 0;
        if (!n || end != at + n)
            return false;
        while (u < sizeof(units) / sizeof(units[0]) &&
               (strlen(units[u].name) != letters || strncmp(at + n, units[u].name, letters) != 0))
            u++;
        if (u == sizeof(units) / sizeof(units[0]) && !(letters == 0 && sum == 0 && !at[n]))
            return false;
        sum += number * (letters ? units[u].s : 1);
        at += n + letters;
    } while (*at);
    *ret_s = sign * sum;
    return true;
}

/* Of a duration: the loop reads it. */
enum { KEEP_BYTES = 64 };

int translate_keep_alive(const json_t *body, bool *ret_given, uint64_t *ret_ns, struct fail *f)
{
    const json_t *keep = json_object_get(body, "keep_alive");
    double s = json_number_value(keep);
    if (!keep || json_is_null(keep))
        return 0;
    if (!json_is_number(keep) && (!json_is_string(keep) || json_string_length(keep) > KEEP_BYTES ||
                                  !read_duration(json_string_value(keep), &s)))
        return fail_set(f, 400, FAIL_INVALID,
                        "'keep_alive' must be a number of seconds, or a duration such as \"5m\"");
    *ret_given = true;
    *ret_ns = s < 0 || s > 1e9 ? UINT64_MAX : (uint64_t)(s * 1e9);
    return 0;
}

/* ---- form and thinking ----------------------------------------------------------------------- */

static int read_format(struct translation *t, const json_t *body)
{
    json_t *format = json_object_get(body, "format");
    const char *word = json_string_value(format);
    if (!format || json_is_null(format) || (word && !*word))
        return 0;
    if (word && strcmp(word, "json") == 0)
        translate_set(t, "response_format", json_pack("{s:s}", "type", "json_object"));
    else if (json_is_object(format))
        translate_set(t, "response_format",
                      json_pack("{s:s, s:O}", "type", "json_schema", "schema", format));
    else
        return fail_set(t->f, 400, FAIL_INVALID, "'format' must be \"json\" or a JSON schema");
    return 0;
}

static int read_think(struct translation *t, const json_t *body)
{
    const json_t *think = json_object_get(body, "think");
    if (!think || json_is_null(think))
        return 0;
    if (json_is_string(think))
        translate_set(t, "reasoning_effort", json_string(json_string_value(think)));
    else if (json_is_boolean(think))
        translate_set(t, "enable_thinking", json_boolean(json_is_true(think)));
    else
        return fail_set(t->f, 400, FAIL_INVALID,
                        "'think' must be true, false, \"low\", \"medium\" or \"high\"");
    return 0;
}

static int refuse_images(const struct translation *t, const json_t *o)
{
    if (!json_array_size(json_object_get(o, "images")))
        return 0;
    return fail_set(t->f, 400, FAIL_NOT_SUPPORTED,
                    "%s: 'images' are not supported: the model reads text only", t->where);
}

/* ---- messages -------------------------------------------------------------------------------- */

static int add_calls(struct translation *t, json_t *message, const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        const json_t *function = json_object_get(call, "function");
        json_t *name = json_object_get(function, "name");
        const json_t *arguments = json_object_get(function, "arguments");
        if (!json_is_string(name))
            return fail_set(t->f, 400, FAIL_INVALID, "%s: a call needs a function's 'name'",
                            t->where);
        translate_call(t, message, json_object_get(call, "id"), json_incref(name),
                       translate_arguments(arguments));
    }
    return 0;
}

static void add_result(struct translation *t, const json_t *m, const json_t *content)
{
    struct buffer all = {0};
    json_t *name = json_object_get(m, "tool_name");
    if (json_is_string(content))
        translate_add_text(&all, content);
    if (json_array_size(json_object_get(m, "images")))
        translate_add_made(&all, talk_left_out("images"));
    json_t *result = translate_result(t, json_object_get(m, "tool_call_id"), translate_text(&all));
    buffer_fini(&all);
    if (json_is_string(name))
        t->failed |= json_object_set(result, "name", name) != 0;
}

static int add_message(struct translation *t, const json_t *m)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *content = json_object_get(m, "content"), *thinking = json_object_get(m, "thinking");
    if (!role)
        return fail_set(t->f, 400, FAIL_INVALID, "%s: 'role' is required", t->where);
    if (content && !json_is_string(content) && !json_is_null(content))
        return fail_set(t->f, 400, FAIL_INVALID, "%s: 'content' must be a string", t->where);
    if (strcmp(role, "tool") == 0) {
        add_result(t, m, content);
        return 0;
    }
    if (refuse_images(t, m) < 0)
        return -1;
    content = json_is_string(content) ? json_incref(content) : json_string("");
    json_t *message = translate_message(t, role, content);
    if (json_string_length(thinking))
        t->failed |= json_object_set(message, "reasoning_content", thinking) != 0;
    return add_calls(t, message, json_object_get(m, "tool_calls"));
}

static int read_messages(struct translation *t, const json_t *body)
{
    json_t *messages = NULL, *tools = NULL;
    if (field_array(body, "messages", &messages, t->f) < 0 ||
        field_array(body, "tools", &tools, t->f) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        snprintf(t->where, sizeof(t->where), "messages[%zu]", i);
        if (add_message(t, json_array_get(messages, i)) < 0)
            return -1;
    }
    translate_copy(t, body, "tools", "tools");
    return 0;
}

json_t *translate_ollama_chat(const json_t *body, uint32_t context, struct fail *f)
{
    struct translation t;
    translate_begin(&t, body, f);
    int rc = read_options(&t, body, context) < 0 || read_messages(&t, body) < 0 ||
                     read_format(&t, body) < 0 || read_think(&t, body) < 0
                 ? -1
                 : 0;
    return translate_end(&t, rc);
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* A prompt that is not a conversation's: as it stands, or with what follows it. */
static int read_prompt(struct translation *t, const json_t *body)
{
    const char *prompt = NULL, *suffix = NULL, *system = NULL, *model_template = NULL;
    size_t system_bytes = 0, suffix_bytes = 0;
    bool raw = false;
    snprintf(t->where, sizeof(t->where), "the request");
    if (refuse_images(t, body) < 0 || field_text(body, "prompt", &prompt, NULL, t->f) < 0 ||
        field_text(body, "suffix", &suffix, &suffix_bytes, t->f) < 0 ||
        field_text(body, "system", &system, &system_bytes, t->f) < 0 ||
        field_text(body, "template", &model_template, NULL, t->f) < 0 ||
        field_bool(body, "raw", &raw, t->f) < 0)
        return -1;
    if (model_template && *model_template)
        return fail_set(t->f, 400, FAIL_NOT_SUPPORTED,
                        "'template' is not supported: start hearth-http with --chat-template");
    if (raw || suffix_bytes) {
        translate_copy(t, body, "prompt", "prompt");
        if (suffix_bytes)
            translate_copy(t, body, "suffix", "suffix");
        return 0;
    }
    if (system_bytes)
        translate_message(t, "system", json_incref(json_object_get(body, "system")));
    if (prompt && *prompt)
        translate_message(t, "user", json_incref(json_object_get(body, "prompt")));
    return 0;
}

json_t *translate_ollama_generate(const json_t *body, uint32_t context, struct fail *f)
{
    struct translation t;
    translate_begin(&t, body, f);
    int rc = read_options(&t, body, context) < 0 || read_prompt(&t, body) < 0 ||
                     read_format(&t, body) < 0 || read_think(&t, body) < 0
                 ? -1
                 : 0;
    return translate_end(&t, rc);
}
