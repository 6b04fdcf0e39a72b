/* Fuzzes conversations on their way to a template: the first byte chooses a template, the second whether
 * the request has tools, the others make messages with calls and results, right ones and broken ones.
 * What is rendered is the same the second time, and after a conversation whose tools and variables are
 * hostile; and of a template that renders it holds the name of every call. */
#include "client/prompt/chat_json.h"
#include "client/prompt/chat_render.h"
#include "tests/fuzz/make_schema.h"
#include "tests/rig/tiny_vocab.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

#define EACH(body) "{% for m in messages %}" body "{% endfor %}"
#define CONTENT                                                                                    \
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}"          \
    "{{ p.text }}{% endfor %}{% endif %}"
#define ROLE "<{{ m.role }}>"
#define CALLS                                                                                      \
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments }}]{% "       \
    "endfor %}"
#define RAISE(text) "{{ raise_exception('" text "') }}"

/* What templates do with a history, one thing each. */
static const char *const templates[] = {
    EACH(ROLE CONTENT CALLS),
    EACH(ROLE CONTENT),
    EACH("{% if m.role in ['user', 'assistant'] %}" ROLE CONTENT "{% endif %}"),
    EACH(ROLE "{% if m.content is none %}{{ m.tool_calls | tojson }}{% else %}" CONTENT
              "{% endif %}"),
    EACH(ROLE CONTENT "{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}{% endif %}"),
    EACH(ROLE CONTENT "{% if tools and m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}"),
    EACH("{% if m.tool_calls and m.tool_calls | length > 1 %}" RAISE(
        "one call") "{% endif %}" ROLE CONTENT CALLS),
    EACH(ROLE "{% if m.tool_calls %}" CALLS "{% else %}" CONTENT "{% endif %}"),
    EACH(ROLE CONTENT "{% for c in m.tool_calls or [] %}[{{ c.function.name }}{% for k, v in "
                      "c.function.arguments.items() %}{{ k }}{{ v }}{% endfor %}]{% endfor %}"),
    EACH(ROLE CONTENT
         "{% for c in m.tool_calls or [] %}{{ '[' + c.function.name + c.function.arguments + ']' }}"
         "{% endfor %}"),
    EACH("{% if m.role == 'system' %}" RAISE("system") "{% endif %}" ROLE CONTENT CALLS),
    EACH("{% if m.tool_calls %}{% for c in m.tool_calls %}{% if c.id | length != 9 %}" RAISE(
        "id") "{% endif %}{% endfor %}{% endif %}" ROLE CONTENT CALLS),
    "{% set n = namespace(last='') %}" EACH("{% if m.role == n.last %}" RAISE(
        "alternate") "{% endif %}{% set n.last = m.role %}" ROLE CONTENT CALLS),
    EACH("{% if m.role not in ['user', 'assistant'] %}" RAISE("role") "{% endif %}" ROLE CONTENT),
    EACH("{% if m.role == 'user' and not loop.first and messages[loop.index0 - 1].role == 'tool' "
         "%}" RAISE("after") "{% endif %}" ROLE CONTENT CALLS),
    "{# List of tools: [ #}" EACH(ROLE CONTENT),
    "chatml",
    "llama",
    "mistral",
};
enum { N_TEMPLATES = sizeof(templates) / sizeof(templates[0]) };

/* ---- messages -------------------------------------------------------------------------------- */

static const char *const names[] = {"alpha", "beta", "gamma"};
static const char *const contents[] = {
    "",
    ",\"content\":null",
    ",\"content\":\"\"",
    ",\"content\":\"text\"",
    ",\"content\":[{\"type\":\"text\",\"text\":\"part\"}]",
    ",\"content\":[]",
    ",\"content\":[{\"type\":\"image_url\"}]",
    ",\"content\":\" \\n\"",
};
static const char *const ids[] = {"",          "\"id\":\"a\",", "\"id\":\"bbbbbbbbb\",",
                                  "\"id\":7,", "\"id\":null,",  "\"id\":\"\","};
static const char *const arguments[] = {
    ",\"arguments\":\"{\\\"k\\\": 1}\"",
    ",\"arguments\":{\"k\":\"v\"}",
    "",
    ",\"arguments\":null",
    ",\"arguments\":\"{\\\"k\\\": 12345678901234567890}\"",
    ",\"arguments\":\"cut {\"",
    ",\"arguments\":[1]",
    ",\"arguments\":\"\\u0000\"",
};
static const char *const results[] = {
    "",
    ",\"tool_call_id\":\"a\"",
    ",\"tool_call_id\":\"bbbbbbbbb\"",
    ",\"tool_call_id\":7",
    ",\"tool_call_id\":null",
    ",\"name\":\"beta\"",
    ",\"tool_call_id\":[]",
};
static const char *const roles[] = {"user",      "assistant", "tool", "system",
                                    "developer", "function",  "other"};

#define PICK(list) list[made_take(m) % (sizeof(list) / sizeof(list[0]))]

static void put_call(struct made *m)
{
    made_put(m, "{");
    made_put(m, PICK(ids));
    made_put(m, "\"type\":\"function\",\"function\":{\"name\":\"");
    made_put(m, PICK(names));
    made_put(m, "\"");
    made_put(m, PICK(arguments));
    made_put(m, "}}");
}

static void put_message(struct made *m)
{
    const unsigned role = made_take(m);
    made_put(m, "{\"role\":\"");
    made_put(m, roles[role % (sizeof(roles) / sizeof(roles[0]))]);
    made_put(m, "\"");
    made_put(m, PICK(contents));
    if (role >= 128) {
        made_put(m, ",\"tool_calls\":[");
        for (unsigned n = made_take(m) % 4; n; n--) {
            put_call(m);
            made_put(m, n > 1 ? "," : "");
        }
        made_put(m, "]");
    } else {
        made_put(m, PICK(results));
    }
    if (made_take(m) == 255)
        made_put(m, ",\"function_call\":{\"name\":\"alpha\",\"arguments\":\"{}\"}");
    made_put(m, "}");
}

static json_t *make_messages(struct made *m)
{
    made_put(m, "[");
    do {
        put_message(m);
        made_put(m, m->at < m->end ? "," : "]");
    } while (m->at < m->end);
    return json_loadb(m->text, m->bytes, JSON_ALLOW_NUL, NULL);
}

/* ---- what becomes of them ---------------------------------------------------------------------- */

/* A handle that knows nothing of any template yet. */
static void open_handle(struct hearth *ret)
{
    static uint32_t alive = 1;
    static struct tiny tiny;
    static struct vocab vocab;
    static bool is_open;
    char err[200];
    void *block;
    size_t bytes;
    if (!is_open) {
        tiny_init_bpe(&tiny, "gpt-2");
        (void)tiny_merge(&tiny, "a", "b");
        must(vocab_build(&tiny.desc, &block, &bytes, err, sizeof(err)) == 0);
        must(vocab_open(block, bytes, &vocab, err, sizeof(err)) == 0);
        is_open = true;
    }
    memset(ret, 0, sizeof(*ret));
    ret->vocab = vocab;
    ret->not_forked = &alive;
}

static int render(struct hearth *h, const char *template, json_t *messages, json_t *tools,
                  json_t *extra, struct jinja_output *ret)
{
    struct hearth_chat chat;
    struct chat_json json = {.messages = json_deep_copy(messages), .tools = tools, .extra = extra};
    hearth_chat_init(&chat, sizeof(chat));
    chat.chat_template = template;
    chat.chat_template_bytes = strlen(template);
    int rc = chat_json_render(h, &chat, &json, ret);
    json_decref(json.messages);
    return rc;
}

static bool holds_calls(const json_t *messages, const struct jinja_output *o)
{
    size_t i, k;
    const json_t *m, *call;
    json_array_foreach(messages, i, m)
        json_array_foreach(json_object_get(m, "tool_calls"), k, call) {
            const char *name =
                json_string_value(json_object_get(json_object_get(call, "function"), "name"));
            if (strcmp(json_string_value(json_object_get(m, "role")), "assistant") == 0 &&
                !memmem(o->text, o->bytes, name, strlen(name)))
                return false;
        }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *tools, *extra, *hostile;
    if (size < 3)
        return 0;
    if (!tools) {
        tools = json_loads(
            "[{\"type\":\"function\",\"function\":{\"name\":\"alpha\",\"parameters\":{}}}]", 0,
            NULL);
        hostile = json_loads("[5,{\"function\":{\"name\":\"hearthneedle\"}}]", 0, NULL);
        extra = json_loads("{\"tools\":5,\"messages\":5}", 0, NULL);
    }
    struct made m = {.at = data + 2, .end = data + size};
    const char *template = templates[data[0] % N_TEMPLATES];
    json_t *messages = make_messages(&m), *own = data[1] & 1 ? tools : NULL;
    struct jinja_output first = {0}, second = {0}, third = {0}, ignored = {0};
    struct hearth h, other;
    if (!messages) /* too long */
        return 0;
    open_handle(&h);
    open_handle(&other);
    const int rc = render(&h, template, messages, own, NULL, &first);
    must(render(&h, template, messages, own, NULL, &second) == rc);
    if (render(&other, template, messages, hostile, extra, &ignored) == 0)
        jinja_output_fini(&ignored);
    must(render(&other, template, messages, own, NULL, &third) == rc);
    if (rc == 0) {
        must(first.bytes == second.bytes && !memcmp(first.text, second.text, first.bytes));
        must(first.bytes == third.bytes && !memcmp(first.text, third.text, first.bytes));
        must(holds_calls(messages, &first));
        jinja_output_fini(&first);
        jinja_output_fini(&second);
        jinja_output_fini(&third);
    }
    json_decref(messages);
    return 0;
}
