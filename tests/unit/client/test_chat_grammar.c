/* The grammar of an answer that calls tools: what it takes and what it does not, for the bodies of
 * calls; marks; schemas that cannot be bound; many tools. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/buffer.h"
#include "client/prompt/chat_calls.h"
#include "ipc/vocab_layout.h"
#include "tests/rig/client_fixture.h"
#include "tests/rig/schema_convert.h"
#include "tests/rig/watched_vocab.h"
#include "tests/run_suite.h"

#define TOOL(name, strict, schema)                                                                 \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"strict\":" strict                \
    ",\"parameters\":" schema "}}"
#define FILE_SCHEMA                                                                                \
    "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"lines\":{\"type\":"     \
    "\"integer\"},\"mode\":{\"enum\":[\"r\",\"w\"],\"type\":\"string\"}},\"required\":[\"path\"]," \
    "\"additionalProperties\":false}"
#define TWO(strict) "[" TOOL("open", strict, FILE_SCHEMA) "," TOOL("stop", "false", "{}") "]"

/* Templates that name the marks of a form, and write tools. */
#define SHOWS "{{ messages[0].content }}{{ tools }}"
#define HERMES SHOWS "<tool_call></tool_call>"
#define CODER SHOWS "<tool_call><function=x></function><parameter=y></parameter></tool_call>"
#define GLM SHOWS "<tool_call><arg_key></arg_key><arg_value></arg_value></tool_call>"
#define KIMI                                                                                       \
    SHOWS "<|tool_calls_section_begin|><|tool_call_begin|>functions.<|tool_call_argument_begin|>"  \
          "<|tool_call_end|><|tool_calls_section_end|>"
#define GEMMA SHOWS "<|tool_call>call:<tool_call|>"
#define LFM2 SHOWS "<|tool_list_start|>"
#define LLAMA SHOWS "<|python_tag|>"
#define HARMONY                                                                                    \
    "{{ tools }}{% for m in messages %}<|start|>{{ m.role }}{% for c in m.tool_calls or [] %} "    \
    "to=functions.{{ c.function.name }}<|channel|>commentary json<|message|>"                      \
    "{{ c.function.arguments | tojson }}<|call|>{% else %}<|channel|>final<|message|>"             \
    "{{ m.content }}<|end|>{% endfor %}{% endfor %}"                                               \
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
#define THINKS HERMES "</think>{% if add_generation_prompt %}<think>\n{% endif %}"

static struct hearth_chat_reader *reader;
static struct hearth_request request;
static int32_t thinking_tokens = -1; /* of the next chat */
static const char *extra;            /* its variables, or NULL */

static int open_chat(const char *template, const char *tools, uint32_t choice, uint32_t single)
{
    static const char messages[] = "[{\"role\":\"user\",\"content\":\"x\"}]";
    struct hearth_chat c;
    hearth_chat_init(&c, sizeof(c));
    hearth_request_init(&request, sizeof(request));
    c.messages = messages;
    c.messages_bytes = strlen(messages);
    c.tools = tools;
    c.tools_bytes = tools ? strlen(tools) : 0;
    c.chat_template = template;
    c.chat_template_bytes = strlen(template);
    c.tool_choice = choice;
    c.single_call = single;
    c.thinking_tokens = thinking_tokens;
    c.extra = extra;
    c.extra_bytes = extra ? strlen(extra) : 0;
    hearth_chat_close(reader);
    reader = NULL;
    return hearth_chat_open(h, &c, &reader);
}

static void opens(const char *template, const char *tools, uint32_t choice, uint32_t single)
{
    ck_assert_msg(open_chat(template, tools, choice, single) == 0, "%s", hearth_error(h));
    ck_assert_int_eq(hearth_chat_request(reader, &request), 0);
}

static bool takes(const char *text)
{
    return schema_grammar_takes(text, request.grammar, request.grammar_bytes, text);
}

static void setup(void)
{
    fixture_setup();
    connect_with(1, 0);
}

static void teardown(void)
{
    hearth_chat_close(reader);
    reader = NULL;
    fixture_teardown();
}

#define HERMES_OPEN                                                                                \
    "<tool_call>\n{\"name\": \"open\", \"arguments\": {\"path\": \"/x\"}}\n</tool_call>"
#define KIMI_OPEN                                                                                  \
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.open:0<|tool_call_argument_begin|>"  \
    "{\"path\": \"a\"}<|tool_call_end|>"
#define KIMI_END "<|tool_calls_section_end|>"

static const struct {
    const char *template, *text;
    bool required, strict, single, fits;
} answers[] = {
    {HERMES, HERMES_OPEN, true, false, false, true},
    {HERMES, HERMES_OPEN "\n" HERMES_OPEN, true, false, false, true},
    {HERMES, HERMES_OPEN "\n" HERMES_OPEN, true, false, true, false},
    {HERMES, HERMES_OPEN, true, false, true, true},
    {HERMES, "text", true, false, false, false},
    {HERMES, HERMES_OPEN "text", true, false, false, false},
    {HERMES, "<tool_call>{\"name\": \"none\", \"arguments\": {}}</tool_call>", true, false, false,
     false},
    {HERMES, "<tool_call>{\"name\": \"stop\", \"arguments\": {\"any\": [1, null]}}</tool_call>",
     true, false, false, true},
    {HERMES, "<tool_call>{\"name\": \"open\", \"arguments\": {}}</tool_call>", true, false, false,
     false},
    {HERMES, "<tool_call>{\"name\": \"open\", \"arguments\": {\"path\": 1}}</tool_call>", true,
     false, false, false},
    /* strict: from its mark on; a tool that is not takes any object */
    {HERMES, HERMES_OPEN + 11, false, true, false, true},
    {HERMES, "{\"name\": \"stop\", \"arguments\": {\"any\": [1, null]}}</tool_call>", false, true,
     false, true},
    {HERMES, "{\"name\": \"open\", \"arguments\": {\"lines\": 3}}</tool_call>", false, true, false,
     false},
    /* one call at most, without a schema that binds */
    {HERMES, "{\"name\": \"open\", \"arguments\": {\"lines\": \"?\"}}</tool_call>", false, false,
     true, true},
    {HERMES, "{\"name\": \"open\", \"arguments\": {}}</tool_call>" HERMES_OPEN, false, false, true,
     false},
    {CODER,
     "<tool_call>\n<function=open>\n<parameter=path>\na "
     "<b>\n</p>\n</parameter>\n<parameter=lines>\n12\n</parameter>\n</function>\n</tool_call>",
     true, false, false, true},
    {CODER,
     "<tool_call><function=open><parameter=path>a</parameter><parameter=mode>\nw\n</parameter></"
     "function></tool_call>",
     true, false, false, true},
    {CODER,
     "<tool_call><function=open><parameter=path>a</parameter><parameter=mode>\nrw\n</parameter></"
     "function></tool_call>",
     true, false, false, false},
    {CODER,
     "<tool_call><function=open><parameter=path>a</parameter><parameter=lines>x</parameter></"
     "function></tool_call>",
     true, false, false, false},
    {CODER, "<tool_call><function=open><parameter=lines>1</parameter></function></tool_call>", true,
     false, false, false},
    {CODER, "<tool_call><function=stop><parameter=any>{</parameter></function></tool_call>", true,
     false, false, true},
    {GLM, "<tool_call>open\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n</tool_call>", true,
     false, false, true},
    {GLM, "<tool_call>open<arg_key>other</arg_key><arg_value>a</arg_value></tool_call>", true,
     false, false, false},
    {GLM, "<tool_call>openopen<arg_key>path</arg_key><arg_value>a</arg_value></tool_call>", true,
     false, false, false},
    {KIMI, KIMI_OPEN KIMI_END, true, false, false, true},
    {KIMI,
     KIMI_OPEN
     "<|tool_call_begin|>functions.stop:1<|tool_call_argument_begin|>{}<|tool_call_end|>" KIMI_END,
     true, false, false, true},
    {KIMI,
     KIMI_OPEN
     "<|tool_call_begin|>functions.stop:1<|tool_call_argument_begin|>{}<|tool_call_end|>" KIMI_END,
     true, false, true, false},
    {KIMI, KIMI_OPEN, true, false, false, false},
    {GEMMA, "<|tool_call>call:open{path:<|\"|>a, {b}<|\"|>,lines:3,mode:<|\"|>w<|\"|>}<tool_call|>",
     true, false, false, true},
    {GEMMA, "<|tool_call>call:open{path:<|\"|>a<|\"|>,mode:<|\"|>x<|\"|>}<tool_call|>", true, false,
     false, false},
    {GEMMA, "<|tool_call>call:open{lines:3}<tool_call|>", true, false, false, false},
    {GEMMA, "<|tool_call>call:stop{a:[1,{b:null}],c:<|\"|><|\"|>}<tool_call|>", true, false, false,
     true},
    {GEMMA, "<|tool_call> call:stop{a:1e99}<tool_call|>", true, false, false, true},
    {GEMMA, "<|tool_call>call:stop{a:1e401}<tool_call|>", true, false, false, false},
    {LFM2, "<|tool_call_start|>[open(path=\"a\", lines=3, mode=\"w\")]<|tool_call_end|>", true,
     false, false, true},
    {LFM2, "<|tool_call_start|>[open(path='it\\'s', lines=3)]<|tool_call_end|>", true, false, false,
     true},
    {LFM2, "<|tool_call_start|>[open(path='it's')]<|tool_call_end|>", true, false, false, false},
    {LFM2, "<|tool_call_start|>[open(path=\"a\",mode=\"rw\")]<|tool_call_end|>", true, false, false,
     false},
    {LFM2, "<|tool_call_start|>[open(lines=3)]<|tool_call_end|>", true, false, false, false},
    {LFM2, "<|tool_call_start|>[open(path=\"a\", lines=True)]<|tool_call_end|>", true, false, false,
     false},
    {LFM2, "<|tool_call_start|>[open(path=\"a\", other=1)]<|tool_call_end|>", true, false, false,
     false},
    {LFM2, "<|tool_call_start|>[open(\"a\")]<|tool_call_end|>", true, false, false, false},
    {LFM2, "<|tool_call_start|>open(path=\"a\")<|tool_call_end|>", true, false, false, false},
    {LFM2, "<|tool_call_start|>[open(path=\"a\")]", true, false, false, false},
    {LFM2, "text", true, false, false, false},
    {LFM2,
     "<|tool_call_start|>[stop(a=[1, {\"b\": null}], c=None, d='', e=False), stop()]"
     "<|tool_call_end|>\n<|tool_call_start|>[stop()]<|tool_call_end|>",
     true, false, false, true},
    {LFM2, "<|tool_call_start|>[stop(), stop()]<|tool_call_end|>", true, false, true, false},
    {LFM2, "<|tool_call_start|>[stop()]<|tool_call_end|>", true, false, true, true},
    {LFM2, "[open(path=\"a\")]<|tool_call_end|>", false, true, false, true},
    {LFM2, "[stop(any=1)]<|tool_call_end|>", false, true, false, true},
    {LFM2, "[open(lines=1)]<|tool_call_end|>", false, true, false, false},
    {HARMONY, " to=functions.open json<|message|>{\"path\": \"a\"}", true, false, false, true},
    {HARMONY, " to=functions. open<|message|>{\"path\": \"a\"}", true, false, false, false},
    {HARMONY, " to=functions.openjson<|message|>{\"path\": \"a\"}", true, false, false, false},
    /* a call that begins an answer without a mark */
    {LLAMA, "[{\"name\": \"open\", \"parameters\": {\"path\": \"a\"}}]", true, false, false, false},
    {LLAMA, "{\"tool_name\": \"open\", \"parameters\": {\"path\": \"a\"}}", true, false, false,
     false},
    {LLAMA, "{\"name\": \"open\", \"parameters\": {\"path\": \"a\"}}", false, true, false, true},
    {LLAMA, "<|python_tag|>{\"name\": \"open\", \"parameters\": {\"path\": \"a\"}}", false, true,
     false, true},
    {LLAMA, "{\"name\": \"open\", \"parameters\": {}}", false, true, false, false},
    {LLAMA, "Hello {\"name\": \"open\"}", false, true, false, true},
    {LLAMA, "{\"nam\": 1}", false, true, false, true},
    {LLAMA, "{ \"other\": \"name\"}", false, true, false, true},
    {LLAMA, "Hello", true, false, false, false},
};

START_TEST(a_grammar_takes_calls_in_the_templates_form)
{
    uint32_t choice = answers[_i].required ? HEARTH_TOOLS_REQUIRED : HEARTH_TOOLS_AUTO;
    opens(answers[_i].template, answers[_i].strict ? TWO("true") : TWO("false"), choice,
          answers[_i].single);
    ck_assert_msg(takes(answers[_i].text) == answers[_i].fits, "%s\n%s", answers[_i].text,
                  request.grammar);
    ck_assert_ptr_null(hearth_chat_loosened(reader));
}
END_TEST

START_TEST(nothing_binds_where_nothing_asks_for_it)
{
    opens(HERMES, TWO("false"), HEARTH_TOOLS_AUTO, 0);
    ck_assert(!request.grammar && !request.n_marks && !request.n_closing);
    opens(THINKS, TWO("false"), HEARTH_TOOLS_AUTO, 0);
    ck_assert(!request.grammar && !request.n_marks);
    ck_assert_uint_eq(request.n_banned, 0);
    opens(HERMES, TWO("true"), HEARTH_TOOLS_NONE, 1);
    ck_assert(!request.grammar && !request.n_marks);
}
END_TEST

/* Llama 3 begins a call with no mark: the answer may not begin with one. */
START_TEST(no_answer_begins_with_a_bare_call_where_none_is_wanted)
{
    opens(LLAMA, TWO("true"), HEARTH_TOOLS_NONE, 0);
    ck_assert(takes("Hello {\"name\": \"open\"}") && takes("{\"nam\": 1}") && takes(""));
    ck_assert(!takes("{\"name\": \"open\", \"parameters\": {\"path\": \"a\"}}"));
    struct hearth_chat_event e = {.size = sizeof(e)};
    opens(HERMES, TWO("false"), HEARTH_TOOLS_NONE, 0);
    ck_assert_int_eq(hearth_chat_feed(reader, HERMES_OPEN, strlen(HERMES_OPEN), 1), 0);
    while (hearth_chat_next(reader, &e))
        ck_assert_uint_eq(e.kind, HEARTH_CHAT_CONTENT);
    ck_assert_ptr_nonnull(strstr(hearth_chat_unparsed(reader), "tool_choice is none"));
}
END_TEST

/* gpt-oss calls tools of its training, too: its messages have headers without any. */
START_TEST(a_message_to_a_tool_is_content_where_there_are_no_tools)
{
    static const char text[] =
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>"
        "commentary to=python code<|message|>print(1)";
    const char *message = strstr(text, "<|start|>");
    struct hearth_chat_event e = {.size = sizeof(e)};
    struct buffer content = {0};
    opens(HARMONY, NULL, HEARTH_TOOLS_AUTO, 0);
    ck_assert_int_eq(hearth_chat_feed(reader, text, strlen(text), 1), 0);
    ck_assert(hearth_chat_next(reader, &e) && e.kind == HEARTH_CHAT_REASONING);
    while (hearth_chat_next(reader, &e)) {
        ck_assert_uint_eq(e.kind, HEARTH_CHAT_CONTENT);
        buffer_add(&content, e.text, e.text_bytes);
    }
    ck_assert_uint_eq(content.bytes, strlen(message));
    ck_assert_mem_eq(content.data, message, content.bytes);
    buffer_fini(&content);
    ck_assert_ptr_nonnull(strstr(hearth_chat_unparsed(reader), "there are no tools"));
}
END_TEST

START_TEST(a_grammar_binds_after_its_mark_and_after_thoughts)
{
    opens(HERMES, TWO("true"), HEARTH_TOOLS_AUTO, 0);
    ck_assert_uint_eq(request.n_marks, 1);
    ck_assert_uint_eq(request.marks[0].kind, HEARTH_MARK_CALL);
    ck_assert_str_eq(request.marks[0].text, "<tool_call>");
    opens(HERMES, TWO("true"), HEARTH_TOOLS_REQUIRED, 0);
    ck_assert_uint_eq(request.n_marks, 0);
    opens(THINKS, TWO("true"), HEARTH_TOOLS_REQUIRED, 0);
    ck_assert_uint_eq(request.n_marks, 2);
    ck_assert(request.marks[0].kind == HEARTH_MARK_THOUGHT && request.marks[0].open == 1);
    ck_assert_str_eq(request.marks[1].text, "</think>");
    opens(SHOWS, TWO("true"), HEARTH_TOOLS_AUTO, 1); /* no form is known */
    ck_assert(!request.grammar && !request.n_marks);
}
END_TEST

/* ---- beside a grammar of the request's own --------------------------------------------------- */

/* Its names are those of rules of calls, and stand in texts, classes, comments and after counts. */
#define OWN                                                                                        \
    "# root ::= \"root\n"                                                                          \
    "root ::= \"{\\\"root\\\": \" block{1,2} space \"}\" | # block\n \"[\" root \"]\"\n"           \
    "block ::= [root\\]\"#] | call\n\n"                                                            \
    "call ::= \"\\x21\" \"\\\\\" # <\n"                                                            \
    "space ::= \"..\"?"
#define OWN_TEXT "[{\"root\": ]!\\..}]"

static void opens_own(const char *template, const char *tools, uint32_t choice, uint32_t single,
                      const char *own)
{
    ck_assert_msg(open_chat(template, tools, choice, single) == 0, "%s", hearth_error(h));
    request.grammar = own;
    request.grammar_bytes = strlen(own);
    ck_assert_int_eq(hearth_chat_request(reader, &request), 0);
}

#define CODER_STOP                                                                                 \
    "<tool_call>\n<function=stop>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
#define CODER_OPEN(argument)                                                                       \
    "<tool_call><function=open><parameter=" argument "</parameter></function></tool_call>"
#define MISTRAL SHOWS "[TOOL_CALLS][ARGS][CALL_ID]"
#define LLAMA_OPEN "{\"name\": \"open\", \"parameters\": {\"path\": \"a\"}}"
#define HARMONY_THOUGHT "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
#define HARMONY_OPEN " to=functions.open<|channel|>commentary json<|message|>{\"path\": \"a\"}"

/* As takes(), with the one mark that the vocabulary has as a control token as a text. */
static bool takes_channels(const char *text)
{
    struct buffer t = {0};
    const char *at = request.grammar, *token;
    for (; (token = strstr(at, "<[")) != NULL; at = strchr(token, '>') + 1) {
        buffer_add(&t, at, (size_t)(token - at));
        buffer_text(&t, " \"<|channel|>\"");
    }
    buffer_text(&t, at);
    bool fits = schema_grammar_takes(text, t.data, t.bytes, text);
    buffer_fini(&t);
    return fits;
}

/* One tool is strict. */
static const struct {
    const char *template, *text;
    bool single, fits;
} besides[] = {
    {HERMES, OWN_TEXT, false, true},
    {HERMES, HERMES_OPEN, false, true},
    {HERMES, HERMES_OPEN "\n" HERMES_OPEN, false, true},
    {HERMES, HERMES_OPEN "\n" HERMES_OPEN, true, false},
    {HERMES, OWN_TEXT HERMES_OPEN, false, false},
    {HERMES, HERMES_OPEN OWN_TEXT, false, false},
    {HERMES, "text", false, false},
    {HERMES, "\n" OWN_TEXT, false, false},
    {HERMES, "<tool_call>{\"name\": \"stop\", \"arguments\": {\"any\": 1}}</tool_call>", false,
     true},
    {HERMES, "<tool_call>{\"name\": \"open\", \"arguments\": {}}</tool_call>", false, false},
    {HERMES, "<tool_call>{\"name\": \"none\", \"arguments\": {}}</tool_call>", false, false},
    {THINKS, "\n\n" OWN_TEXT, false, true},
    {THINKS, "\n\n" HERMES_OPEN, false, true},
    {CODER, OWN_TEXT, false, true},
    {CODER, CODER_STOP "\n" CODER_OPEN("path>a"), false, true},
    {CODER, CODER_OPEN("lines>1"), false, false},
    {CODER, CODER_STOP OWN_TEXT, false, false},
    {GEMMA, OWN_TEXT, false, true},
    {GEMMA, "<|tool_call>call:open{path:<|\"|>a<|\"|>}<tool_call|>", false, true},
    {GEMMA, "<|tool_call>call:stop{}<tool_call|>" OWN_TEXT, false, false},
    {LFM2, OWN_TEXT, false, true},
    {LFM2, "<|tool_call_start|>[open(path=\"a\"), stop(a=1)]<|tool_call_end|>", false, true},
    {LFM2, "<|tool_call_start|>[open(lines=1)]<|tool_call_end|>", false, false},
    {LFM2, OWN_TEXT "<|tool_call_start|>[stop()]<|tool_call_end|>", false, false},
    {MISTRAL, OWN_TEXT, false, true},
    {MISTRAL, "[TOOL_CALLS]open[ARGS]{\"path\": \"a\"}[TOOL_CALLS]stop[ARGS]{}", false, true},
    {MISTRAL, "[TOOL_CALLS]stop[ARGS]{}" OWN_TEXT, false, false},
    {LLAMA, OWN_TEXT, false, true},
    {LLAMA, LLAMA_OPEN, false, true},
    {LLAMA, "<|python_tag|>" LLAMA_OPEN, false, true},
    {LLAMA, "{\"name\": \"open\", \"parameters\": {}}", false, false},
    {LLAMA, "Hello", false, false},
    {HARMONY, OWN_TEXT, false, true},
    {HARMONY, "<|channel|>final<|message|>" OWN_TEXT, false, true},
    {HARMONY, HARMONY_THOUGHT "<|channel|>final <|constrain|>json<|message|>" OWN_TEXT, false,
     true},
    {HARMONY, HARMONY_THOUGHT HARMONY_OPEN, false, true},
    {HARMONY, "<|channel|>final<|message|>text", false, false},
    {HARMONY, "<|channel|>final<|message|>" OWN_TEXT HARMONY_OPEN, false, false},
};

START_TEST(an_answer_follows_an_own_grammar_or_calls)
{
    opens_own(besides[_i].template, TWO("true"), HEARTH_TOOLS_AUTO, besides[_i].single, OWN);
    ck_assert_msg(takes_channels(besides[_i].text) == besides[_i].fits, "%s\n%s", besides[_i].text,
                  request.grammar);
    ck_assert(!request.n_marks || request.marks[0].kind == HEARTH_MARK_THOUGHT);
    ck_assert_ptr_null(hearth_chat_loosened(reader));
}
END_TEST

/* What the own grammar says is all of the content. */
START_TEST(what_follows_an_own_grammar_is_the_content)
{
    static const char *const texts[] = {HARMONY_THOUGHT "<|channel|>final<|message|>{}", "{}",
                                        "hm</think>\n\n{}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct hearth_chat_event e = {.size = sizeof(e)};
        const char *close = strstr(texts[i], "</think>");
        opens_own(close ? THINKS : HARMONY, TWO("false"), HEARTH_TOOLS_AUTO, 0, "root ::= \"{}\"");
        ck_assert(takes_channels(close ? close + strlen("</think>") : texts[i]));
        ck_assert_int_eq(hearth_chat_feed(reader, texts[i], strlen(texts[i]), 1), 0);
        while (hearth_chat_next(reader, &e))
            ck_assert(e.kind == HEARTH_CHAT_REASONING ||
                      (e.kind == HEARTH_CHAT_CONTENT && e.text_bytes == 2));
        ck_assert_ptr_null(hearth_chat_unparsed(reader));
    }
}
END_TEST

START_TEST(an_own_grammar_stays_alone_where_calls_cannot_stand_beside_it)
{
    static const struct {
        const char *template, *tools, *own;
        uint32_t choice;
    } alone[] = {
        {HERMES, TWO("true"), "root ::= \"a\"", HEARTH_TOOLS_NONE},
        {HERMES, NULL, "root ::= \"a\"", HEARTH_TOOLS_AUTO},
        {HERMES, "[]", "root ::= \"a\"", HEARTH_TOOLS_AUTO},
        {SHOWS, TWO("true"), "root ::= \"a\"", HEARTH_TOOLS_AUTO}, /* no form is known */
        {HERMES, TWO("true"), "root ::= \"<tool_call>\" [a-z]*", HEARTH_TOOLS_AUTO},
        {HERMES, TWO("true"), "root ::= \"a\" <[7]>", HEARTH_TOOLS_AUTO},
        {HERMES, TWO("true"), "root ::= \"a\\\"", HEARTH_TOOLS_AUTO},
        {HERMES, TWO("true"), "root ::= [a", HEARTH_TOOLS_AUTO},
        {HERMES, TWO("true"), "", HEARTH_TOOLS_AUTO},
        {HERMES, "[{\"type\":\"function\",\"function\":{}}]", "root ::= \"a\"", HEARTH_TOOLS_AUTO},
    };
    for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++) {
        opens_own(alone[i].template, alone[i].tools, alone[i].choice, 0, alone[i].own);
        ck_assert_str_eq(request.grammar, alone[i].own);
        ck_assert_uint_eq(request.n_marks, 0);
    }
}
END_TEST

/* Each request has a text of its own, until its reader is closed; a second time changes nothing. */
START_TEST(texts_of_requests_stay_until_their_reader_is_closed)
{
    struct hearth_chat_reader *other;
    opens_own(THINKS, TWO("true"), HEARTH_TOOLS_AUTO, 0, "root ::= \"a\"");
    ck_assert_uint_eq(request.n_marks, 2);
    struct hearth_request first = request;
    ck_assert_int_eq(hearth_chat_request(reader, &request), 0);
    ck_assert_ptr_eq(request.grammar, first.grammar);
    ck_assert_int_eq(hearth_chat_another(reader, &other), 0);
    hearth_chat_close(reader);
    reader = other;
    request.grammar = "root ::= \"b\"";
    request.grammar_bytes = strlen(request.grammar);
    ck_assert_int_eq(hearth_chat_request(reader, &request), 0);
    ck_assert(takes("b") && !takes("a") && takes(HERMES_OPEN));
    opens(THINKS, TWO("true"), HEARTH_TOOLS_AUTO, 0);
    ck_assert(!takes("b") && takes(HERMES_OPEN + 11));
}
END_TEST

/* A program of an older header has less memory for a request than this library's has fields. */
START_TEST(a_request_is_set_up_to_its_size)
{
    enum { BANNED = offsetof(struct hearth_request, n_banned) };
    uint8_t untouched[sizeof(request) - BANNED], *end = (uint8_t *)&request + BANNED;
    opens(HERMES, TWO("false"), HEARTH_TOOLS_NONE, 0);
    memset(untouched, 0xaa, sizeof(untouched));
    memset(end, 0xaa, sizeof(untouched));
    request.size = BANNED;
    ck_assert_int_eq(hearth_chat_request(reader, &request), 0);
    ck_assert_uint_eq(request.size, BANNED);
    ck_assert_mem_eq(end, untouched, sizeof(untouched));
    /* Without its marks a grammar would bind another part of the answer. */
    opens(THINKS, TWO("true"), HEARTH_TOOLS_AUTO, 0);
    ck_assert_uint_gt(request.n_marks, 0);
    request.size = offsetof(struct hearth_request, n_marks);
    ck_assert_int_eq(hearth_chat_request(reader, &request), -EINVAL);
    request.size = 0;
    ck_assert_int_eq(hearth_chat_request(reader, &request), -EINVAL);
}
END_TEST

/* ---- thoughts, what is refused --------------------------------------------------------------- */

/* What stands between a thought and what is said after it is what the template writes there. */
START_TEST(a_limit_of_thoughts_closes_them_as_the_template_does)
{
    static const struct {
        const char *template, *closing;
    } forms[] = {
        {"{% for m in messages %}<think>{{ m.reasoning_content }}\n\n</think>\n{{ m.content }}{% "
         "endfor %}",
         "\n\n</think>\n"},
        {"{{ messages[0].content }}<think></think>", "\n</think>\n\n"},
        {"{{ messages[0].content }}", ""},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        char text[64] = "";
        thinking_tokens = 7;
        opens(forms[i].template, "[]", HEARTH_TOOLS_AUTO, 0);
        thinking_tokens = -1;
        ck_assert_uint_eq(request.n_marks, *forms[i].closing ? 2 : 0);
        if (request.n_marks)
            ck_assert_int_eq(request.marks[0].tokens, 7);
        int64_t n =
            hearth_detokenize(h, request.closing, request.n_closing, HEARTH_SPECIAL, text, 63);
        ck_assert_msg(n >= 0 && !strcmp(text, forms[i].closing), "'%s'", text);
    }
}
END_TEST

/* Its tokens are put into the answer as they are: no text that a caller gave is among them. */
START_TEST(what_closes_a_thought_is_the_template_s_alone)
{
    static const char template[] =
        "{{ tools }}{{ mood }}{% for m in messages %}<think>{{ m.reasoning_content }}{{ mood }}"
        "\n</think>\n{{ m.content }}{% endfor %}";
    static const char tool[] = "[" TOOL("open", "false",
                                        "{\"title\":\"hearththought</think>EVIL"
                                        "hearthsaid\"}") "]";
    static const char *const extras[] = {"{}", "{\"mood\":\"EVIL\"}",
                                         "{\"mood\":\"hearththought</think>EVILhearthsaid\"}"};
    for (size_t i = 0; i < 3; i++) {
        char text[64] = "";
        thinking_tokens = 7;
        extra = extras[i];
        opens(template, tool, HEARTH_TOOLS_AUTO, 0);
        thinking_tokens = -1;
        extra = NULL;
        int64_t n =
            hearth_detokenize(h, request.closing, request.n_closing, HEARTH_SPECIAL, text, 63);
        ck_assert_msg(n > 0 && strstr(text, "</think>") && !strstr(text, "EVIL"), "%s: '%s'",
                      extras[i], text);
    }
}
END_TEST

START_TEST(what_cannot_be_is_refused_in_one_line)
{
    ck_assert_int_eq(open_chat(HERMES, "[]", HEARTH_TOOLS_REQUIRED, 0), -EINVAL);
    ck_assert_ptr_nonnull(strstr(hearth_error(h), "there are no tools"));
    ck_assert_int_eq(open_chat(SHOWS, TWO("false"), HEARTH_TOOLS_REQUIRED, 0), -ENOTSUP);
    ck_assert_ptr_nonnull(strstr(hearth_error(h), "calls in no known form"));
    ck_assert_int_eq(open_chat(HERMES, TWO("false"), 9, 0), -EINVAL);
    opens(HERMES, TWO("true"), HEARTH_TOOLS_REQUIRED, 0);
    request.grammar = "root ::= \"a\"";
    ck_assert_int_eq(hearth_chat_request(reader, &request), -EINVAL);
}
END_TEST

/* Each call of an answer is compared with the tools: by their names, not one by one. */
START_TEST(many_calls_find_their_tools_among_many)
{
    enum { MANY = 20000 };
    static const char call[] = "<tool_call>{\"name\": \"f19999\", \"arguments\": {}}</tool_call>";
    struct hearth_chat_event e = {.size = sizeof(e)};
    struct buffer tools = {0}, answer = {0};
    size_t n = 0;
    for (int i = 0; i < MANY; i++) {
        buffer_format(&tools, "%s{\"function\":{\"name\":\"f%d\"}}", i ? "," : "[", i);
        buffer_text(&answer, call);
    }
    buffer_text(&tools, "]");
    opens(HERMES, tools.data, HEARTH_TOOLS_AUTO, 0);
    ck_assert_int_eq(hearth_chat_feed(reader, answer.data, answer.bytes, 1), 0);
    while (hearth_chat_next(reader, &e))
        n += e.kind == HEARTH_CHAT_CALL_END;
    ck_assert_uint_eq(n, MANY);
    ck_assert_ptr_null(hearth_chat_unparsed(reader));
    buffer_fini(&tools);
    buffer_fini(&answer);
}
END_TEST

/* The handle's vocabulary becomes one of `n` control tokens, whose pages count from now on. */
static void watch_many_control_tokens(uint32_t n)
{
    char(*pool)[16] = calloc(n, sizeof(*pool));
    struct vocab_string *texts = calloc(n, sizeof(*texts));
    int32_t *types = calloc(n, sizeof(*types));
    struct vocab_desc d;
    void *block;
    size_t bytes;
    vocab_desc_init(&d);
    d.model = (struct vocab_string){"llama", 5};
    d.n_tokens = n;
    d.texts = texts;
    d.types = types;
    for (uint32_t i = 0; i < n; i++) {
        snprintf(pool[i], sizeof(pool[i]), i ? "<unused%u>" : "<parameter=", i);
        texts[i] = (struct vocab_string){pool[i], strlen(pool[i])};
        types[i] = VOCAB_TYPE_CONTROL;
    }
    ck_assert_int_eq(vocab_build(&d, &block, &bytes, err, sizeof(err)), 0);
    h->vocab = watched_vocab_open(block, bytes);
    free(block);
    free(types);
    free(texts);
    free(pool);
}

/* Each tool has marks, and each argument. */
START_TEST(a_mark_is_not_looked_for_among_all_control_tokens)
{
    struct chat chat = {.h = h};
    struct chat_calls b = {.chat = &chat};
    struct buffer t = {0};
    watch_many_control_tokens(60000);
    ck_assert_uint_gt(watched_vocab_pages(), 270);
    ck_assert_int_eq(schema_open(&b.c), 0);
    chat_calls_mark(&b, &t, "<parameter=");
    chat_calls_mark(&b, &t, "</parameter><unused59999>");
    ck_assert_uint_le(watched_vocab_read(), 130); /* in a few lengths, each in 16 looks */
    ck_assert_str_eq(t.data, " <[0]>\"</parameter>\" <[59999]>");
    buffer_fini(&t);
    schema_close(&b.c);
}
END_TEST

/* ---- what cannot be bound -------------------------------------------------------------------- */

static const char *unparsed_by(struct hearth_chat_reader *of, const char *answer)
{
    struct hearth_chat_event e = {.size = sizeof(e)};
    ck_assert_int_eq(hearth_chat_feed(of, answer, strlen(answer), 1), 0);
    while (hearth_chat_next(of, &e))
        ;
    return hearth_chat_unparsed(of);
}

/* The readers of all choices say the same. */
static const char *unparsed(const char *answer)
{
    struct hearth_chat_reader *another;
    ck_assert_int_eq(hearth_chat_another(reader, &another), 0);
    const char *why = unparsed_by(reader, answer), *same = unparsed_by(another, answer);
    ck_assert_msg(!why == !same && (!why || strcmp(why, same) == 0), "%s: %s", answer,
                  same ? same : "nothing");
    hearth_chat_close(another);
    return why;
}

static const struct {
    const char *schema, *loosened;  /* of the argument "a" */
    const char *fits, *unfit, *why; /* both are taken; the second is reported */
} loose[] = {
    {"{\"type\":\"integer\",\"multipleOf\":5}", "multipleOf", "15", "7", "#/a: \"multipleOf\""},
    {"{\"type\":\"string\",\"not\":{\"const\":\"x\"}}", "not", "\"y\"", "\"x\"", "#/a: \"not\""},
    {"{\"type\":\"object\",\"patternProperties\":{\"^s\":{}},\"minProperties\":1}",
     "patternProperties", "{\"s\": 1}", "{}", "#/a: \"minProperties\""},
    {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2}}", "propertyNames", "{\"ab\": 1}",
     "{\"abc\": 1}", "#/a: \"propertyNames\""},
    {"{\"type\":\"array\",\"contains\":{\"const\":1}}", "contains", "[2, 1]", "[2]",
     "#/a: \"contains\""},
    {"{\"$ref\":\"http://x/y\",\"type\":\"integer\",\"maximum\":3}", "$ref", "3", "4",
     "#/a: \"maximum\""},
    {"{\"type\":\"string\",\"maxLength\":4000}", "maxLength", "\"abc\"", NULL, NULL},
    {"{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", "pattern", "\"b\"", NULL, NULL},
    {"{\"type\":\"string\",\"pattern\":\"^a\\u0000b$\"}", "zero byte", "\"c\"", NULL, NULL},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\",\"not\":{\"const\":2.5}}]}", "not",
     "1.5", "2.5", "#/a: \"oneOf\""},
};

START_TEST(what_cannot_be_bound_is_loosened_at_its_place_and_checked)
{
    char tools[1024], answer[256];
    snprintf(tools, sizeof(tools),
             "[" TOOL("f", "true",
                      "{\"type\":\"object\",\"properties\":{\"a\":%s,\"b\":{\"type\":\"boolean\"}},"
                      "\"required\":[\"a\",\"b\"]}") "]",
             loose[_i].schema);
    for (int unfit = 0; unfit < 2; unfit++) {
        const char *value = unfit ? loose[_i].unfit : loose[_i].fits;
        if (!value)
            continue;
        opens(HERMES, tools, HEARTH_TOOLS_REQUIRED, 0);
        const char *lines = hearth_chat_loosened(reader);
        ck_assert_msg(lines && strstr(lines, loose[_i].loosened) && !strncmp(lines, "f: ", 3),
                      "%s: %s", loose[_i].schema, lines ? lines : "not loosened");
        snprintf(answer, sizeof(answer),
                 "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": %s, \"b\": 1}}</tool_call>",
                 value);
        ck_assert(!takes(answer)); /* the other argument is bound */
        snprintf(
            answer, sizeof(answer),
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": %s, \"b\": true}}</tool_call>",
            value);
        ck_assert_msg(takes(answer), "%s\n%s", answer, request.grammar);
        const char *why = unparsed(answer);
        ck_assert_msg(unfit ? why && strstr(why, loose[_i].why) : !why, "%s: %s", answer,
                      why ? why : "fits");
    }
}
END_TEST

START_TEST(the_length_of_a_value_goes_on_after_a_zero_byte)
{
    opens(HERMES,
          "[" TOOL("f", "true",
                   "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"a\\u0000bc\","
                   "\"x\"],\"maxLength\":2}},\"required\":[\"a\"]}") "]",
          HEARTH_TOOLS_REQUIRED, 0);
    ck_assert_ptr_null(hearth_chat_loosened(reader));
    ck_assert(takes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}</tool_call>"));
    ck_assert(
        !takes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"a\\u0000bc\"}}</tool_call>"));
}
END_TEST

/* Where a property's name has what JSON escapes, another key may not begin as it does and then have
 * an escape that is none. */
START_TEST(keys_beside_escaped_ones_are_json)
{
    static const struct {
        const char *key;
        bool fits;
    } keys[] = {{"a\\z", false}, {"a\\u1zz", false}, {"\\z", false},
                {"ac", true},    {"a\\\"c", true},   {"a\\u0001d", true},
                {"", true},      {"a\\\"b", false},  {"a\\u0001c", false}};
    char call[200];
    opens(HERMES,
          "[" TOOL("f", "true",
                   "{\"type\":\"object\",\"properties\":{\"a\\\"b\":{\"type\":\"null\"},"
                   "\"a\\u0001c\":{\"type\":\"null\"}},\"additionalProperties\":"
                   "{\"type\":\"integer\"}}") "]",
          HEARTH_TOOLS_REQUIRED, 0);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        snprintf(call, sizeof(call),
                 "<tool_call>{\"name\": \"f\", \"arguments\": {\"%s\": 1}}</tool_call>",
                 keys[i].key);
        ck_assert_msg(takes(call) == keys[i].fits, "%s", call);
    }
}
END_TEST

/* A tool whose arguments are "a", with lists of texts in its schema, and "b". The caller frees. */
static char *with_lists(const char *begin, const char *between, const char *end, int lists, int n,
                        int digits)
{
    struct buffer t = {0};
    buffer_format(&t,
                  "[{\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":"
                  "\"object\",\"properties\":{\"a\":%s",
                  begin);
    for (int k = 0; k < lists; k++) {
        buffer_text(&t, k ? between : "");
        for (int i = 0; i < n; i++)
            buffer_format(&t, "%s\"v%0*d\"", i ? "," : "", digits, k * n + i);
    }
    buffer_format(&t, "%s,\"b\":{\"enum\":[\"x\",\"y\"]}}}}}]", end);
    ck_assert(!t.failed);
    return t.data;
}

#define HERMES_LARGE                                                                               \
    "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"%s\", \"b\": \"%s\"}}</tool_call>"
#define CODER_LARGE                                                                                \
    "<tool_call><function=f><parameter=a>%s</parameter><parameter=b>%s</parameter></function>"     \
    "</tool_call>"
#define GEMMA_LARGE "<|tool_call>call:f{a:<|\"|>%s<|\"|>,b:<|\"|>%s<|\"|>}<tool_call|>"
#define ANY_OF "{\"anyOf\":[{\"enum\":["
#define OR "]},{\"enum\":["
static const struct {
    const char *chat_template, *call, *begin, *end;
    int lists, n, digits;
    bool loosened;
} large[] = {
    {HERMES, HERMES_LARGE, "{\"enum\":[", "]}", 1, 512, 4, false},
    {HERMES, HERMES_LARGE, "{\"enum\":[", "]}", 1, 513, 4, true},
    {HERMES, HERMES_LARGE, "{\"type\":\"string\",\"enum\":[", "]}", 1, 5000, 4, true},
    {HERMES, HERMES_LARGE, "{\"enum\":[", "]}", 1, 400, 400, true},
    {HERMES, HERMES_LARGE, ANY_OF, "]}]}", 3, 170, 4, false},
    {HERMES, HERMES_LARGE, ANY_OF, "]}]}", 3, 900, 4, true},
    {CODER, CODER_LARGE, "{\"type\":\"string\",\"enum\":[", "]}", 1, 512, 4, false},
    {CODER, CODER_LARGE, "{\"type\":\"string\",\"enum\":[", "]}", 1, 5000, 4, true},
    {CODER, CODER_LARGE, "{\"enum\":[", "]}", 1, 400, 400, true},
    {GEMMA, GEMMA_LARGE, "{\"enum\":[", "]}", 1, 512, 4, false},
    {GEMMA, GEMMA_LARGE, "{\"enum\":[", "]}", 1, 5000, 4, true},
};

/* A call with this "a" and "b"; the caller frees. */
static char *call_with(const char *form, const char *a, const char *b)
{
    struct buffer t = {0};
    const char *at = strstr(form, "%s"), *next = strstr(at + 2, "%s");
    buffer_format(&t, "%.*s%s%.*s%s%s", (int)(at - form), form, a, (int)(next - at - 2), at + 2, b,
                  next + 2);
    ck_assert(!t.failed);
    return t.data;
}

/* More values than the daemon can follow, or longer ones: the argument beside them stays bound. */
START_TEST(a_large_enum_is_loosened_to_its_type_and_checked)
{
    const char *form = large[_i].call;
    char last[512];
    char *tools = with_lists(large[_i].begin, OR, large[_i].end, large[_i].lists, large[_i].n,
                             large[_i].digits);
    snprintf(last, sizeof(last), "v%0*d", large[_i].digits, large[_i].lists * large[_i].n - 1);
    char *listed = call_with(form, last, "y"), *other = call_with(form, "w", "y");
    char *wrong = call_with(form, last, "z");
    opens(large[_i].chat_template, tools, HEARTH_TOOLS_REQUIRED, 0);
    const char *lines = hearth_chat_loosened(reader);
    ck_assert_msg(large[_i].loosened ? lines && strstr(lines, "not bound") : !lines, "%s", lines);
    ck_assert(takes(listed));
    ck_assert(takes(other) == large[_i].loosened);
    ck_assert(!takes(wrong));
    ck_assert_ptr_null(unparsed(listed));
    opens(large[_i].chat_template, tools, HEARTH_TOOLS_REQUIRED, 0);
    ck_assert_ptr_nonnull(strstr(unparsed(other), "#/a"));
    free(tools);
    free(listed);
    free(other);
    free(wrong);
}
END_TEST

#define KIND(name, required)                                                                       \
    "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"" name                             \
    "\"}},\"required\":[" required "]}"

/* Of a oneOf any alternative is taken: noted, unless no value can match two. */
static const struct {
    const char *schema;
    bool noted;
} choices[] = {
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"null\"},{\"type\":[\"array\",\"integer\"]}]}",
     false},
    {"{\"oneOf\":[{\"const\":\"a\"},{\"enum\":[\"b\",1]},{\"const\":null}]}", false},
    {"{\"oneOf\":[" KIND("a", "\"kind\"") "," KIND("b", "\"x\",\"kind\"") "]}", false},
    {"{\"description\":\"x\",\"minimum\":1,\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]"
     "}",
     false},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", true},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"string\",\"maxLength\":3}]}", true},
    {"{\"oneOf\":[{\"type\":\"string\"},{}]}", true},
    {"{\"oneOf\":[{\"const\":1},{\"enum\":[2,1.0]}]}", true},
    {"{\"oneOf\":[{\"type\":\"string\",\"nullable\":true},{\"type\":\"null\"}]}", true},
    {"{\"oneOf\":[" KIND("a", "\"kind\"") "," KIND("b", "") "]}", true},
    {"{\"oneOf\":[" KIND("a", "\"kind\"") "," KIND("a", "\"kind\"") "]}", true},
    {"{\"allOf\":[{\"oneOf\":[{\"minimum\":1},{\"maximum\":3}]}],\"type\":\"integer\"}", true},
};

START_TEST(alternatives_that_a_value_may_match_at_once_are_noted)
{
    char tools[1024];
    snprintf(tools, sizeof(tools),
             "[" TOOL("f", "true",
                      "{\"type\":\"object\",\"properties\":{\"a\":%s},\"required\":[\"a\"]}") "]",
             choices[_i].schema);
    opens(HERMES, tools, HEARTH_TOOLS_REQUIRED, 0);
    const char *lines = hearth_chat_loosened(reader);
    ck_assert_msg((lines && strstr(lines, "oneOf")) == choices[_i].noted, "%s: %s",
                  choices[_i].schema, lines ? lines : "not noted");
}
END_TEST

/* Places that a $ref names are found in the whole of the parameters. */
START_TEST(a_reference_binds_between_tags)
{
    static const char tools[] = "[" TOOL(
        "f", "true",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"},\"b\":{\"type\":"
        "\"array\",\"items\":{\"$ref\":\"#\"}}},\"$defs\":{\"n\":{\"type\":\"integer\"}}}") "]";
    static const struct {
        const char *arguments;
        bool fits;
    } calls[] = {
        {"<parameter=a>7</parameter>", true},
        {"<parameter=a>x</parameter>", false},
        {"<parameter=b>[{\"a\": 7}, {\"b\": [{}]}]</parameter>", true},
        {"<parameter=b>[{\"a\": \"x\"}]</parameter>", false},
    };
    opens(CODER, tools, HEARTH_TOOLS_REQUIRED, 0);
    ck_assert_ptr_null(hearth_chat_loosened(reader));
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        char answer[256];
        snprintf(answer, sizeof(answer), "<tool_call><function=f>%s</function></tool_call>",
                 calls[i].arguments);
        ck_assert_msg(takes(answer) == calls[i].fits, "%s\n%s", answer, request.grammar);
    }
}
END_TEST

/* Only enum and const bind a text between tags; where they allow none it is loosened, too. */
static const struct {
    const char *schema, *fits,
        *unfit; /* unfit: is taken, and reported; NULL: other texts are not taken */
    bool loosened;
} texts[] = {
    {"{\"type\":\"string\",\"enum\":[\"x\",\"y\"]}", "y", NULL, false},
    {"{\"type\":\"string\",\"enum\":[\"x\",\"y\"],\"const\":\"y\"}", "y", NULL, false},
    {"{\"type\":\"string\",\"enum\":[\"x\",\"yz\"],\"minLength\":2}", "yz", "x", true},
    {"{\"type\":\"string\",\"not\":{\"const\":\"x\"}}", "y", "x", true},
    {"{\"type\":\"string\",\"anyOf\":[{\"const\":\"x\"}]}", "x", "y", true},
    {"{\"type\":[\"string\",\"null\"],\"enum\":[1,\"x\"],\"const\":1}", NULL, "x", true},
    {"{\"type\":\"string\",\"enum\":[1]}", NULL, "x", true},
};

START_TEST(a_text_between_tags_is_loosened_where_more_is_asked_of_it)
{
    char tools[1024], answer[256];
    snprintf(tools, sizeof(tools),
             "[" TOOL("f", "true",
                      "{\"type\":\"object\",\"properties\":{\"a\":%s},\"required\":[\"a\"]}") "]",
             texts[_i].schema);
    for (int unfit = 0; unfit < 2; unfit++) {
        const char *value = unfit ? texts[_i].unfit : texts[_i].fits;
        if (!value && !unfit)
            continue;
        opens(CODER, tools, HEARTH_TOOLS_REQUIRED, 0);
        ck_assert_msg(!hearth_chat_loosened(reader) == !texts[_i].loosened, "%s", texts[_i].schema);
        snprintf(answer, sizeof(answer),
                 "<tool_call><function=f><parameter=a>%s</parameter></function></tool_call>",
                 value ? value : "other");
        ck_assert_msg(takes(answer) == (value != NULL), "%s\n%s", answer, request.grammar);
        ck_assert_msg(!value || !unparsed(answer) == !unfit, "%s: %s", texts[_i].schema, answer);
    }
}
END_TEST

/* What binds the arguments as a whole; of these schemas no call without arguments is. */
static const struct {
    const char *schema, *why;
} wholes[] = {
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"minProperties\":1}",
     "minProperties"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"b\"]}", "required"},
    {"{\"type\":\"object\",\"required\":[\"b\"]}", "required"},
    {"{\"type\":\"integer\"}", "type"},
    {"{\"type\":[\"string\",\"null\"]}", "type"},
    {"{\"enum\":[1.5]}", "enum"},
};

START_TEST(arguments_between_tags_are_bound_one_by_one)
{
    char tools[400];
    snprintf(tools, sizeof(tools), "[" TOOL("f", "true", "%s") "]", wholes[_i].schema);
    opens(CODER, tools, HEARTH_TOOLS_REQUIRED, 0);
    const char *lines = hearth_chat_loosened(reader);
    ck_assert_msg(lines && strstr(lines, "one by one"), "%s", wholes[_i].schema);
    const char *why = unparsed("<tool_call><function=f></function></tool_call>");
    ck_assert_msg(why && strstr(why, wholes[_i].why), "%s: %s", wholes[_i].schema, why);
}
END_TEST

START_TEST(what_each_argument_is_bound_by_is_not_loosened)
{
    opens(CODER,
          "[" TOOL(
              "f", "true",
              "{\"type\":[\"object\",\"null\"],\"properties\":{\"a\":{\"type\":\"integer\"}},"
              "\"required\":[\"a\"],\"additionalProperties\":false}") "," TOOL("g", "true",
                                                                               "{\"type\":"
                                                                               "\"object\"}") "]",
          HEARTH_TOOLS_REQUIRED, 0);
    ck_assert_ptr_null(hearth_chat_loosened(reader));
}
END_TEST

START_TEST(parameters_that_are_not_an_object_bind_none)
{
    opens(HERMES, "[" TOOL("f", "true", "{\"enum\":[1.5]}") "]", HEARTH_TOOLS_REQUIRED, 0);
    ck_assert(takes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"));
    ck_assert(!takes("<tool_call>{\"name\": \"f\", \"arguments\": 1.5}</tool_call>"));
    ck_assert_ptr_nonnull(strstr(hearth_chat_loosened(reader), "not of type object"));
    opens(GEMMA, "[" TOOL("f", "true", "{\"type\":\"array\"}") "]", HEARTH_TOOLS_REQUIRED, 0);
    ck_assert(takes("<|tool_call>call:f{a:[1]}<tool_call|>"));
    ck_assert(!takes("<|tool_call>call:f[1]<tool_call|>"));
    ck_assert_ptr_nonnull(strstr(hearth_chat_loosened(reader), "not of type object"));
    opens(GEMMA, "[" TOOL("f", "true", "{\"type\":\"object\",\"enum\":[\"a\"]}") "]",
          HEARTH_TOOLS_REQUIRED, 0);
    ck_assert(takes("<|tool_call>call:f{a:1}<tool_call|>"));
}
END_TEST

/* Keywords make it one of an object, without "type", and what is left of it, too. */
START_TEST(arguments_that_nothing_can_match_are_an_object)
{
    opens(HERMES,
          "[" TOOL("f", "true", "{\"required\":[\"a\"],\"additionalProperties\":false}") "]",
          HEARTH_TOOLS_REQUIRED, 0);
    ck_assert(takes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"));
    ck_assert(!takes("<tool_call>{\"name\": \"f\", \"arguments\": 1.5}</tool_call>"));
    ck_assert_ptr_nonnull(strstr(hearth_chat_loosened(reader), "nothing can match"));
}
END_TEST

START_TEST(a_key_that_is_not_a_word_is_quoted_for_gemma)
{
    static const char tools[] = "[" TOOL(
        "f", "true", "{\"type\":\"object\",\"properties\":{\"a b\":{\"type\":\"integer\"}}}") "]";
    opens(GEMMA, tools, HEARTH_TOOLS_REQUIRED, 0);
    ck_assert(takes("<|tool_call>call:f{<|\"|>a b<|\"|>:1}<tool_call|>"));
    ck_assert(!takes("<|tool_call>call:f{a b:1}<tool_call|>"));
}
END_TEST

/* An object with more properties than Gemma's form binds takes any, the last one as well, and is
 * checked; other tools stay bound. */
START_TEST(an_object_of_many_properties_is_loosened_for_gemma)
{
    struct buffer tools = {0};
    buffer_text(
        &tools,
        "[" TOOL("g", "true",
                 "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
                 "\"integer\"}},\"required\":[\"a\"]}") ",{\"type\":\"function\","
                                                        "\"function\":{\"name\":\"f\",\"strict\":"
                                                        "true,\"parameters\":{"
                                                        "\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 300; i++)
        buffer_format(&tools, "%s\"p%d\":{\"type\":\"integer\"}", i ? "," : "", i);
    buffer_text(&tools, "},\"required\":[\"p299\"]}}}]");
    opens(GEMMA, tools.data, HEARTH_TOOLS_REQUIRED, 0);
    ck_assert_ptr_nonnull(strstr(hearth_chat_loosened(reader), "an object of 300 properties"));
    ck_assert(takes("<|tool_call>call:f{p299:1,p0:2}<tool_call|>"));
    ck_assert(!takes("<|tool_call>call:g{}<tool_call|>"));
    ck_assert_ptr_null(unparsed("<|tool_call>call:f{p299:1}<tool_call|>"));
    opens(GEMMA, tools.data, HEARTH_TOOLS_REQUIRED, 0);
    ck_assert(takes("<|tool_call>call:f{p0:1}<tool_call|>"));
    const char *why = unparsed("<|tool_call>call:f{p0:1}<tool_call|>");
    ck_assert(why && strstr(why, "required"));
    buffer_fini(&tools);
}
END_TEST

/* Of a plain type Python's own values are taken, of others JSON's; keys that are no words are
 * unpacked; each argument is bound on its own. */
START_TEST(arguments_are_bound_as_python_has_them)
{
    static const char tools[] = "[" TOOL(
        "f", "true",
        "{\"type\":\"object\",\"properties\":{\"flag\":{\"type\":[\"boolean\",\"null\"]},\"a b\":"
        "{\"type\":\"integer\"},\"any\":{},\"date\":{\"type\":\"string\",\"format\":\"date\"},"
        "\"tree\":{\"$ref\":\"#\"}},\"required\":[\"a b\"]}") "]";
    static const struct {
        const char *arguments;
        bool fits;
    } calls[] = {
        {"flag=True, **{\"a b\":1}", true},
        {"flag=None, **{\"a b\":1}", true},
        {"flag=true, **{\"a b\":1}, any='x', date=\"2026-01-01\"", true},
        {"**{\"a b\":1}, tree={\"a b\": 2, \"flag\": false}", true},
        {"flag=True", false},
        {"flag='x', **{\"a b\":1}", false},
        {"**{\"a b\":1}, flag=True", false},
        {"**{\"a b\":1}, date='2026-01-01'", false},
        {"**{\"a b\":1}, tree={\"flag\": false}", false},
        {"a b=1", false},
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        char answer[256];
        opens(LFM2, tools, HEARTH_TOOLS_REQUIRED, 0);
        ck_assert_ptr_null(hearth_chat_loosened(reader));
        snprintf(answer, sizeof(answer), "<|tool_call_start|>[f(%s)]<|tool_call_end|>",
                 calls[i].arguments);
        ck_assert_msg(takes(answer) == calls[i].fits, "%s\n%s", answer, request.grammar);
        ck_assert_msg(!calls[i].fits || !unparsed(answer), "%s", answer);
    }
    opens(LFM2, "[" TOOL("f", "true", "{\"type\":\"object\",\"required\":[\"b\"]}") "]",
          HEARTH_TOOLS_REQUIRED, 0);
    ck_assert_ptr_nonnull(strstr(hearth_chat_loosened(reader), "one by one"));
    const char *why = unparsed("<|tool_call_start|>[f(a=1)]<|tool_call_end|>");
    ck_assert(why && strstr(why, "required"));
}
END_TEST

START_TEST(a_tool_may_have_no_parameters)
{
    static const struct {
        const char *template, *answer;
    } forms[] = {
        {HERMES, "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>"},
        {CODER, "<tool_call>\n<function=ping>\n</function>\n</tool_call>"},
        {GLM, "<tool_call>ping\n</tool_call>"},
        {KIMI, "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0"
               "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"},
        {GEMMA, "<|tool_call>call:ping{}<tool_call|>"},
        {LFM2, "<|tool_call_start|>[ping()]<|tool_call_end|>"},
        {LLAMA, "{\"name\": \"ping\", \"parameters\": {}}"},
    };
    static const char *const schemas[] = {
        "{\"type\":\"object\",\"properties\":{}}", "{\"type\":\"object\"}", "{}",
        "{\"type\":\"object\",\"properties\":{},\"required\":[],\"additionalProperties\":false}"};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        for (size_t k = 0; k < sizeof(schemas) / sizeof(schemas[0]); k++)
            for (int strict = 0; strict < 2; strict++) {
                char tools[400];
                snprintf(tools, sizeof(tools), "[" TOOL("ping", "%s", "%s") "]",
                         strict ? "true" : "false", schemas[k]);
                opens(forms[i].template, tools, HEARTH_TOOLS_REQUIRED, 0);
                ck_assert_msg(takes(forms[i].answer), "%s %s\n%s", schemas[k], forms[i].answer,
                              request.grammar);
                hearth_chat_close(reader);
                reader = NULL;
            }
}
END_TEST

START_TEST(an_answer_that_is_not_bound_is_not_checked)
{
    opens(HERMES, TWO("false"), HEARTH_TOOLS_AUTO, 0);
    ck_assert_ptr_null(
        unparsed("<tool_call>{\"name\": \"open\", \"arguments\": {\"path\": 1}}</tool_call>"));
}
END_TEST

/* ---- many tools ------------------------------------------------------------------------------ */

/* Tools of 4 KB of schema each: nested objects, choices, descriptions. */
static void add_tool(struct buffer *t, int i)
{
    buffer_format(t,
                  "%s{\"type\":\"function\",\"function\":{\"name\":\"tool_%d\",\"strict\":true,"
                  "\"parameters\":{\"type\":\"object\",\"properties\":{",
                  i ? "," : "", i);
    for (int k = 0; k < 16; k++)
        buffer_format(
            t, "%s\"argument_%d_%d\":{\"description\":\"%0160d\",%s}", k ? "," : "", i, k, k,
            k % 4 == 0   ? "\"type\":\"string\",\"maxLength\":1000"
            : k % 4 == 1 ? "\"enum\":[\"first\",\"second\",\"third\",4]"
            : k % 4 == 2 ? "\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
                           "\"x\":{\"type\":\"integer\",\"minimum\":-5},\"y\":{\"type\":\"number\","
                           "\"multipleOf\":2}},\"required\":[\"x\"]}"
                         : "\"anyOf\":[{\"type\":\"null\"},{\"type\":\"string\",\"pattern\":\"^[a-"
                           "z]{2,9}$\"}]");
    buffer_format(t, "},\"required\":[\"argument_%d_0\"]}}}", i);
}

START_TEST(sixty_four_tools_with_256_kilobytes_compile)
{
    static const char *const templates[] = {HERMES, CODER, KIMI, GEMMA, LFM2};
    struct buffer tools = {0};
    buffer_text(&tools, "[");
    for (int i = 0; i < 64; i++)
        add_tool(&tools, i);
    buffer_text(&tools, "]");
    ck_assert_uint_gt(tools.bytes, 256 << 10);
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++) {
        opens(templates[i], tools.data, HEARTH_TOOLS_REQUIRED, 0);
        ck_assert(!takes("x")); /* it compiles */
    }
    opens(HERMES, tools.data, HEARTH_TOOLS_REQUIRED, 0);
    ck_assert(takes("<tool_call>{\"name\": \"tool_63\", \"arguments\": {\"argument_63_0\": "
                    "\"x\"}}</tool_call>"));
    ck_assert(!takes("<tool_call>{\"name\": \"tool_63\", \"arguments\": {\"argument_62_0\": "
                     "\"x\"}}</tool_call>"));
    buffer_fini(&tools);
}
END_TEST

/* A tool whose references double at each of twenty levels takes all steps that there are; what is
 * left of the others is loosened, however many they are. */
START_TEST(tools_share_the_steps_of_a_schema)
{
    struct buffer tools = {0};
    buffer_text(&tools, "[" TOOL("open", "true", FILE_SCHEMA) ",");
    buffer_text(&tools,
                "{\"function\":{\"name\":\"deep\",\"strict\":true,\"parameters\":{\"type\":"
                "\"object\",\"properties\":{\"x\":{\"type\":\"string\",\"$ref\":\"#/$defs/20\"}},"
                "\"$defs\":{\"0\":{\"type\":\"string\"}");
    for (int k = 1; k <= 20; k++)
        buffer_format(&tools,
                      ",\"%d\":{\"allOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/%d\"}]}",
                      k, k - 1, k - 1);
    buffer_text(&tools, "}}}}," TOOL("later", "true", FILE_SCHEMA) "]");
    opens(HERMES, tools.data, HEARTH_TOOLS_REQUIRED, 0);
    ck_assert(!takes("<tool_call>{\"name\": \"open\", \"arguments\": {\"path\": 1}}</tool_call>"));
    ck_assert_ptr_nonnull(strstr(hearth_chat_loosened(reader), "deep: "));
    ck_assert_ptr_nonnull(strstr(hearth_chat_loosened(reader), "later: "));
    ck_assert(takes("<tool_call>{\"name\": \"later\", \"arguments\": {\"path\": 1}}</tool_call>"));
    buffer_fini(&tools);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_grammar");
    TCase *tcase = tcase_create("chat_grammar");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_grammar_takes_calls_in_the_templates_form, 0,
                        (int)(sizeof(answers) / sizeof(answers[0])));
    tcase_add_test(tcase, tools_share_the_steps_of_a_schema);
    tcase_add_test(tcase, nothing_binds_where_nothing_asks_for_it);
    tcase_add_test(tcase, no_answer_begins_with_a_bare_call_where_none_is_wanted);
    tcase_add_test(tcase, a_message_to_a_tool_is_content_where_there_are_no_tools);
    tcase_add_test(tcase, a_grammar_binds_after_its_mark_and_after_thoughts);
    tcase_add_loop_test(tcase, an_answer_follows_an_own_grammar_or_calls, 0,
                        (int)(sizeof(besides) / sizeof(besides[0])));
    tcase_add_test(tcase, what_follows_an_own_grammar_is_the_content);
    tcase_add_test(tcase, an_own_grammar_stays_alone_where_calls_cannot_stand_beside_it);
    tcase_add_test(tcase, texts_of_requests_stay_until_their_reader_is_closed);
    tcase_add_test(tcase, a_request_is_set_up_to_its_size);
    tcase_add_test(tcase, a_limit_of_thoughts_closes_them_as_the_template_does);
    tcase_add_test(tcase, many_calls_find_their_tools_among_many);
    tcase_add_test(tcase, a_mark_is_not_looked_for_among_all_control_tokens);
    tcase_add_test(tcase, what_closes_a_thought_is_the_template_s_alone);
    tcase_add_test(tcase, what_cannot_be_is_refused_in_one_line);
    tcase_add_loop_test(tcase, what_cannot_be_bound_is_loosened_at_its_place_and_checked, 0,
                        (int)(sizeof(loose) / sizeof(loose[0])));
    tcase_add_test(tcase, the_length_of_a_value_goes_on_after_a_zero_byte);
    tcase_add_test(tcase, keys_beside_escaped_ones_are_json);
    tcase_add_loop_test(tcase, a_large_enum_is_loosened_to_its_type_and_checked, 0,
                        (int)(sizeof(large) / sizeof(large[0])));
    tcase_add_loop_test(tcase, alternatives_that_a_value_may_match_at_once_are_noted, 0,
                        sizeof(choices) / sizeof(choices[0]));
    tcase_add_test(tcase, a_reference_binds_between_tags);
    tcase_add_loop_test(tcase, a_text_between_tags_is_loosened_where_more_is_asked_of_it, 0,
                        (int)(sizeof(texts) / sizeof(texts[0])));
    tcase_add_loop_test(tcase, arguments_between_tags_are_bound_one_by_one, 0,
                        sizeof(wholes) / sizeof(wholes[0]));
    tcase_add_test(tcase, what_each_argument_is_bound_by_is_not_loosened);
    tcase_add_test(tcase, parameters_that_are_not_an_object_bind_none);
    tcase_add_test(tcase, arguments_that_nothing_can_match_are_an_object);
    tcase_add_test(tcase, a_key_that_is_not_a_word_is_quoted_for_gemma);
    tcase_add_test(tcase, an_object_of_many_properties_is_loosened_for_gemma);
    tcase_add_test(tcase, arguments_are_bound_as_python_has_them);
    tcase_add_test(tcase, a_tool_may_have_no_parameters);
    tcase_add_test(tcase, an_answer_that_is_not_bound_is_not_checked);
    tcase_add_test(tcase, sixty_four_tools_with_256_kilobytes_compile);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
