/* Calls of the history, and results of tools, that a template does not write: they are in the prompt all
 * the same, in a form that does not depend on what follows. */
#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/buffer.h"
#include "tests/run_suite.h"
#include "tests/rig/client_fixture.h"
#include "tests/rig/text_diff.h"

#define USER "{\"role\":\"user\",\"content\":\"Go\"}"
#define CALL(id, name, arguments)                                                                  \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":"  \
    "\"" arguments "\"}}"
#define F CALL("1", "f", "{\\\"a\\\": 1}")
#define G CALL("2", "g", "{}")
#define CALLS(content, calls)                                                                      \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[" calls "]}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define ANSWER "{\"role\":\"assistant\",\"content\":\"Done\"}"
#define TOOLS "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]"

/* As Granite 3.3's and Phi 3.5's, DeepSeek's, and ones that write the first call, or calls with tools. */
#define EACH(body) "{% for m in messages %}" body "{% endfor %}"
#define PLAIN EACH("{{ m.role }}:{{ m.content }};")
#define SPOKEN                                                                                     \
    EACH("{% if m.role in ['user', 'assistant'] %}{{ m.role }}:{{ m.content }};{% endif %}")
#define WITHOUT_TEXT                                                                               \
    EACH("{{ m.role }}:{% if m.content is none %}{{ m.tool_calls | tojson }}{% else %}"            \
         "{{ m.content }}{% endif %};")
#define WRITES                                                                                     \
    EACH("{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} "    \
         "{{ c.function.arguments }}]{% endfor %};")
#define FIRST                                                                                      \
    EACH(                                                                                          \
        "{{ m.role }}:{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}" \
        "{% endif %};")
#define WITH_TOOLS                                                                                 \
    EACH("{{ m.role }}:{{ m.content }}{% if tools and m.tool_calls %}{{ m.tool_calls | tojson }}"  \
         "{% endif %};")
#define ONLY_ONE                                                                                   \
    EACH("{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one call') }}"    \
         "{% endif %}{{ m.role }}:{{ m.content }};")
/* As Llama 3.1's and Mistral Nemo's. */
#define ONE_CALL                                                                                   \
    EACH("{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one call') }}"    \
         "{% endif %}{{ m.role }}:{{ m.content }}{% if m.tool_calls %}"                            \
         "[{{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].function.arguments }}]"          \
         "{% endif %};")
#define NO_TEXT                                                                                    \
    EACH("{{ m.role }}:{% if m.tool_calls %}{% for c in m.tool_calls %}[{{ c.function.name }} "    \
         "{{ c.function.arguments }}]{% endfor %}{% else %}{{ m.content }}{% endif %};")
/* As Gemma 4's, whose calls are followed by their results and then by the text. */
#define TEXT_LAST(new_turn)                                                                        \
    "{% set ns = namespace(last='') %}" EACH(                                                      \
        "{% if m.role != 'tool' %}" new_turn "{% for c in m.tool_calls or [] %}"                   \
        "[{{ c.function.name }} {{ c.function.arguments }}]{% endfor %}{% if m.tool_calls %}"      \
        "{% for r in messages[loop.index:] %}{% if r.role != 'tool' %}{% break %}{% endif %}"      \
        "({{ r.content }}){% endfor %}{% endif %}{{ m.content or '' }}{% if m.content %};"         \
        "{% endif %}{% set ns.last = m.role %}{% endif %}")
#define EVERY_TURN TEXT_LAST("{{ m.role }}:")
#define ONE_TURN                                                                                   \
    TEXT_LAST("{% set role = 'model' if m.role == 'assistant' else m.role %}"                      \
              "{% if not (role == 'model' and ns.last == 'assistant') %}{{ role }}:{% endif %}")
#define ANSWERED                                                                                   \
    EACH("{% if m.role != 'tool' %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}"  \
         "[{{ c.function.name }} {{ c.function.arguments }}={% for r in messages %}"               \
         "{% if r.tool_call_id == c.id and r.role == 'tool' %}{{ r.content "                       \
         "}}{% endif %}{% endfor %}]"                                                              \
         "{% endfor %};{% endif %}")
#define IN_TURN                                                                                    \
    "{% set ns = namespace(last='') %}{% for m in messages %}{% if m.role != 'tool' and not "      \
    "m.tool_calls %}{% if m.role == ns.last %}{{ raise_exception('in turn') }}{% endif %}"         \
    "{% set ns.last = m.role %}{% endif %}{% endfor %}"

/* As Gemma 2's and 3's; one that refuses results alone, and one that refuses all calls. */
#define STRICT                                                                                     \
    EACH("{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('in turn') }}"   \
         "{% endif %}")                                                                            \
    PLAIN
#define NO_RESULTS EACH("{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}") WRITES
#define NO_CALLS EACH("{% if m.tool_calls %}{{ raise_exception('no') }}{% endif %}") WRITES

#define WRITTEN_F "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
#define WRITTEN_G "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"

static void render(const char *messages, const char *tools, const char *template, char *text,
                   size_t max)
{
    struct hearth_chat c;
    hearth_chat_init(&c, sizeof(c));
    c.messages = messages;
    c.messages_bytes = strlen(messages);
    c.tools = tools;
    c.tools_bytes = tools ? strlen(tools) : 0;
    c.chat_template = template;
    c.chat_template_bytes = strlen(template);
    c.add_generation_prompt = 0;
    int64_t n = hearth_chat_text(h, &c, text, max - 1);
    ck_assert_msg(n >= 0 && (size_t)n < max, "%s: %s", template, hearth_error(h));
    text[n] = 0;
}

static const struct {
    const char *template, *tools, *messages, *want;
} kept[] = {
    {PLAIN, TOOLS, "[" USER "," CALLS("null", F) "," RESULT("1", "r") "]",
     "user:Go;assistant:" WRITTEN_F ";tool:r;"},
    {PLAIN, NULL, "[" USER "," CALLS("\"So:\"", F "," G) "," RESULT("1", "r") "]",
     "user:Go;assistant:So:\n" WRITTEN_F "\n" WRITTEN_G ";tool:r;"},
    {PLAIN, NULL, "[" USER "," CALLS("[{\"type\":\"text\",\"text\":\"So: \"}]", F) "]",
     "user:Go;assistant:So: " WRITTEN_F ";"},
    /* results that are dropped, too, are the user's: those of one turn in one message */
    {SPOKEN, TOOLS,
     "[" USER "," CALLS("\"\"", F "," G) "," RESULT("1", "r") "," RESULT("2", "s") "," ANSWER
                                                                                   "," USER "]",
     "user:Go;assistant:" WRITTEN_F "\n" WRITTEN_G
     ";user:<tool_response>\nr\n</tool_response>\n<tool_response>\ns\n</tool_response>;"
     "assistant:Done;user:Go;"},
    /* written where there is no text, so an empty one becomes none; beside a text it is lost */
    {WITHOUT_TEXT, TOOLS, "[" USER "," CALLS("\"\"", G) "]",
     "user:Go;assistant:[{\"id\": \"2\", \"type\": \"function\", \"function\": {\"name\": \"g\", "
     "\"arguments\": \"{}\"}}];"},
    {WITHOUT_TEXT, TOOLS, "[" USER ",{\"role\":\"assistant\",\"tool_calls\":[" G "]}]",
     "user:Go;assistant:[{\"id\": \"2\", \"type\": \"function\", \"function\": {\"name\": \"g\", "
     "\"arguments\": \"{}\"}}];"},
    {WITHOUT_TEXT, TOOLS, "[" USER "," CALLS("\"So:\"", G) "]",
     "user:Go;assistant:So:\n" WRITTEN_G ";"},
    {FIRST, TOOLS, "[" USER "," CALLS("\"\"", G) "]",
     "user:Go;assistant:{\"name\": \"g\", \"arguments\": {}};"},
    {FIRST, TOOLS, "[" USER "," CALLS("\"\"", F "," G) "]",
     "user:Go;assistant:{\"name\": \"f\", \"arguments\": {\"a\": 1}};"
     "assistant:{\"name\": \"g\", \"arguments\": {}};"},
    /* one call a message: each is followed by its result, by id, else the next that has none */
    {ONE_CALL, TOOLS,
     "[" USER "," CALLS("\"So:\"", F "," G) "," RESULT("2", "s") "," RESULT("1", "r") "," ANSWER
                                                                                      "]",
     "user:Go;assistant:So:[f {\"a\": 1}];tool:r;assistant:[g {}];tool:s;assistant:Done;"},
    {ONE_CALL, TOOLS,
     "[" USER "," CALLS("\"\"", F "," G "," F) "," RESULT("x", "r") "," RESULT("2", "s") "," RESULT(
         "y", "t") "," RESULT("z", "u") "]",
     "user:Go;assistant:[f {\"a\": 1}];tool:r;assistant:[g {}];tool:s;assistant:[f {\"a\": "
     "1}];tool:t;tool:u;"},
    {ONE_CALL, TOOLS, "[" USER "," CALLS("\"\"", F) "," RESULT("1", "r") "]",
     "user:Go;assistant:[f {\"a\": 1}];tool:r;"},
    /* a text beside calls that is dropped is the message before them, where that is taken */
    {NO_TEXT, TOOLS, "[" USER "," CALLS("\"So:\"", F "," G) "," RESULT("1", "r") "]",
     "user:Go;assistant:So:;assistant:[f {\"a\": 1}][g {}];tool:r;"},
    {NO_TEXT, NULL, "[" USER "," CALLS("[{\"type\":\"text\",\"text\":\"So:\"}]", F) "]",
     "user:Go;assistant:So:;assistant:[f {\"a\": 1}];"},
    {NO_TEXT, TOOLS, "[" USER "," CALLS("\" \\n\"", F) "]", "user:Go;assistant:[f {\"a\": 1}];"},
    {IN_TURN NO_TEXT, TOOLS, "[" USER "," CALLS("\"So:\"", F) "," RESULT("1", "r") "," ANSWER "]",
     "user:Go;assistant:[f {\"a\": 1}];tool:r;assistant:Done;"},
    /* or written after the results */
    {EVERY_TURN, TOOLS, "[" USER "," CALLS("\"So:\"", F) "," RESULT("1", "r") "," ANSWER "]",
     "user:Go;assistant:So:;assistant:[f {\"a\": 1}](r)assistant:Done;"},
    {IN_TURN EVERY_TURN, TOOLS, "[" USER "," CALLS("\"So:\"", F) "," RESULT("1", "r") "]",
     "user:Go;assistant:[f {\"a\": 1}](r)So:;"},
    /* where calls after a message of the assistant begin no turn, it is one of `model` */
    {ONE_TURN, TOOLS,
     "[" USER "," CALLS("\"So:\"", F "," G) "," RESULT("1", "r") "," RESULT("2", "s") "]",
     "user:Go;model:So:;model:[f {\"a\": 1}][g {}](r)(s)"},
    {ONE_TURN, NULL,
     "[" USER "," CALLS("null", F) "," RESULT("1", "r") "," CALLS("\"So:\"", G) "," RESULT(
         "2", "s") "," ANSWER "]",
     "user:Go;model:[f {\"a\": 1}](r)So:;model:[g {}](s)Done;"},
    {WITH_TOOLS, NULL, "[" USER "," CALLS("\"\"", G) "]", "user:Go;assistant:" WRITTEN_G ";"},
    {WITH_TOOLS, TOOLS, "[" USER "," CALLS("\"\"", G) "]",
     "user:Go;assistant:[{\"id\": \"2\", \"type\": \"function\", \"function\": {\"name\": \"g\", "
     "\"arguments\": {}}}];"},
    {ONLY_ONE, TOOLS, "[" USER "," CALLS("\"\"", F) "]", "user:Go;assistant:" WRITTEN_F ";"},
    /* refused: the user's, and what the user says after them follows in the same message */
    {STRICT, TOOLS,
     "[" USER "," CALLS("null", F "," G) "," RESULT("1", "r") "," RESULT("2", "s") "," USER
                                                                                   "," ANSWER "]",
     "user:Go;assistant:" WRITTEN_F "\n" WRITTEN_G
     ";user:<tool_response>\nr\n</tool_response>\n<tool_response>\ns\n</tool_response>\n\nGo;"
     "assistant:Done;"},
    {STRICT, NULL, "[" USER "," CALLS("null", F) "," USER "]",
     "user:Go;assistant:" WRITTEN_F ";user:Go;"},
    {STRICT, NULL, "[" USER "," CALLS("\"So:\"", F) "]", "user:Go;assistant:So:\n" WRITTEN_F ";"},
    {NO_RESULTS, TOOLS, "[" USER "," CALLS("\"\"", F "," G) "," RESULT("1", "r") "," ANSWER "]",
     "user:Go;assistant:[f {\"a\": 1}][g {}];user:<tool_response>\nr\n</tool_response>;"
     "assistant:Done;"},
    {NO_CALLS, TOOLS, "[" USER "," CALLS("\"\"", F) "," RESULT("1", "r") "]",
     "user:Go;assistant:" WRITTEN_F ";user:<tool_response>\nr\n</tool_response>;"},
    /* in the form of the family that the template names */
    {PLAIN "{# <|tool_call|> #}", TOOLS, "[" USER "," CALLS("\"\"", F "," G) "]",
     "user:Go;assistant:<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": "
     "\"g\", "
     "\"arguments\": {}}];"},
    {PLAIN "{# <TOOLCALL></TOOLCALL> #}", TOOLS, "[" USER "," CALLS("\"\"", G) "]",
     "user:Go;assistant:<TOOLCALL>\n{\"name\": \"g\", \"arguments\": {}}\n</TOOLCALL>;"},
    {PLAIN "{# <|tool_list_start|> #}", TOOLS, "[" USER "," CALLS("\"So:\"", F "," G) "]",
     "user:Go;assistant:So:\n<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>;"},
    {PLAIN "{# List of tools: [ #}", NULL,
     "[" USER "," CALLS(
         "null",
         CALL("1", "f",
              "{\\\"a b\\\": \\\"it's\\\\n\\\", \\\"c\\\": [true, null, {\\\"d\\\": 0.1}]}")) "]",
     "user:Go;assistant:<|tool_call_start|>[f(**{\"a b\": \"it's\\n\"}, c=[True, None, {\"d\": "
     "0.1}])]"
     "<|tool_call_end|>;"},
    {PLAIN "{# List of tools: [ #}", NULL,
     "[" USER "," CALLS("null", CALL("1", "f", "{\\\"a\\\"")) "]",
     "user:Go;assistant:<|tool_call_start|>[f({\"a\")]<|tool_call_end|>;"},
    /* results of no call, as Gemma 4's and gpt-oss's templates lose or refuse them */
    {ANSWERED, TOOLS, "[" USER "," RESULT("1", "r") "," CALLS("\"\"", F) "," RESULT("1", "s") "]",
     "user:Go;user:<tool_response>\nr\n</tool_response>;assistant:[f {\"a\": 1}=s];"},
    {ANSWERED, TOOLS, "[" USER "," CALLS("\"\"", F) "," RESULT("x", "r") "]",
     "user:Go;assistant:[f {\"a\": 1}=];user:<tool_response>\nr\n</tool_response>;"},
    {WRITES, TOOLS, "[" USER "," RESULT("1", "r") "]", "user:Go;tool:r;"},
    /* what it writes stays as it is */
    {WRITES, TOOLS, "[" USER "," CALLS("\"So:\"", F "," G) "," RESULT("1", "r") "]",
     "user:Go;assistant:So:[f {\"a\": 1}][g {}];tool:r;"},
    {"chatml", NULL, "[" USER "," CALLS("null", F) "," RESULT("1", "r") "]",
     "<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n" WRITTEN_F
     "<|im_end|>\n<|im_start|>tool\nr<|im_end|>\n"},
};

START_TEST(no_call_of_the_history_is_lost)
{
    char text[4096];
    connect_with(1, 0);
    render(kept[_i].messages, kept[_i].tools, kept[_i].template, text, sizeof(text));
    assert_same_text(kept[_i].template, text, kept[_i].want);
}
END_TEST

/* A turn is written the same way whatever follows. */
START_TEST(a_later_turn_goes_on_with_the_text_before_it)
{
    static const char *const turns[] = {
        USER,
        CALLS("\"So:\"", F "," G) "," RESULT("1", "r") "," RESULT("2", "s"),
        CALLS("null", F),
        RESULT("1", "t"),
        ANSWER,
        USER,
        CALLS("\"\"", G),
        RESULT("2", "u")};
    static const char *const templates[] = {PLAIN,      WITHOUT_TEXT, FIRST,      WRITES,
                                            WITH_TOOLS, NO_TEXT,      ONE_CALL,   STRICT,
                                            NO_RESULTS, NO_CALLS,     EVERY_TURN, ONE_TURN};
    enum { N = sizeof(turns) / sizeof(turns[0]) };
    connect_with(1, 0);
    for (size_t k = 0; k < sizeof(templates) / sizeof(templates[0]); k++) {
        char before[8192] = "", text[8192], messages[4096] = "[";
        for (size_t i = 0; i < N; i++) {
            strcat(messages, turns[i]);
            strcat(messages, "]");
            render(messages, NULL, templates[k], text, sizeof(text));
            ck_assert_msg(strncmp(text, before, strlen(before)) == 0, "%s\nafter\n%s", text,
                          before);
            strcpy(before, text);
            messages[strlen(messages) - 1] = ',';
        }
    }
}
END_TEST

/* Results are looked for call by call: of 65 calls the template itself says that it takes one. */
START_TEST(a_message_of_many_calls_is_not_split)
{
    connect_with(1, 0);
    for (int n = 64; n <= 65; n++) {
        struct buffer t = {0};
        struct hearth_chat c;
        char text[65536];
        buffer_text(&t, "[" USER ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" F);
        for (int i = 1; i < n; i++)
            buffer_text(&t, "," F);
        buffer_text(&t, "]}]");
        hearth_chat_init(&c, sizeof(c));
        c.messages = t.data;
        c.messages_bytes = t.bytes;
        c.chat_template = ONE_CALL;
        c.chat_template_bytes = strlen(ONE_CALL);
        int64_t got = hearth_chat_text(h, &c, text, sizeof(text));
        ck_assert_msg(n == 64 ? got > 0 : got == -EINVAL && strstr(hearth_error(h), "one call"),
                      "%d: %s", n, hearth_error(h));
        buffer_fini(&t);
    }
}
END_TEST

/* Published templates (vectors/jinja_chat_templates.hf.json): each renders, or says why not. */
START_TEST(published_templates_lose_no_call)
{
    static const char messages[] =
        "[" USER
        "," CALLS("%s", CALL("abcdefghi", "look_up", "{\\\"place\\\": \\\"Lisbon\\\"}")) "," RESULT(
            "abcdefghi", "rainy") "," ANSWER "," USER "]";
    static const char *const contents[] = {"null", "\"\"", "\"So:\""};
    char path[512], text[65536], with[1024];
    snprintf(path, sizeof(path), "%s/vectors/jinja_chat_templates.hf.json",
             getenv("HEARTH_TESTDATA"));
    json_t *all = json_load_file(path, JSON_ALLOW_NUL, NULL), *test;
    size_t i, n = 0;
    ck_assert_msg(all != NULL, "%s", path);
    connect_with(1, 0);
    json_array_foreach(json_object_get(all, "cases"), i, test) {
        const char *source = json_string_value(json_object_get(test, "chat_template"));
        for (int k = 0; k < 6; k++) {
            struct hearth_chat c;
            hearth_chat_init(&c, sizeof(c));
            snprintf(with, sizeof(with), messages, contents[k / 2]);
            c.messages = with;
            c.messages_bytes = strlen(with);
            c.tools = k % 2 ? TOOLS : NULL;
            c.tools_bytes = k % 2 ? strlen(TOOLS) : 0;
            c.chat_template = source;
            c.chat_template_bytes = strlen(source);
            int64_t bytes = hearth_chat_text(h, &c, text, sizeof(text) - 1);
            if (bytes < 0)
                continue;
            n++;
            ck_assert_int_lt(bytes, (int64_t)sizeof(text));
            text[bytes] = 0;
            ck_assert_msg(
                strstr(text, "look_up") && strstr(text, "Lisbon") && strstr(text, "rainy"),
                "%s, content %s, %s tools", json_string_value(json_object_get(test, "name")),
                contents[k / 2], k % 2 ? "with" : "without");
        }
    }
    ck_assert_uint_gt(n, 100);
    json_decref(all);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_keep");
    TCase *tcase = tcase_create("chat_keep");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_loop_test(tcase, no_call_of_the_history_is_lost, 0, sizeof(kept) / sizeof(kept[0]));
    tcase_add_test(tcase, a_message_of_many_calls_is_not_split);
    tcase_add_test(tcase, a_later_turn_goes_on_with_the_text_before_it);
    if (getenv("HEARTH_TESTDATA"))
        tcase_add_test(tcase, published_templates_lose_no_call);
    else
        puts("skip: HEARTH_TESTDATA is not set: published templates are not tried");
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
