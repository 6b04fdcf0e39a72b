/* Published chat templates, from the folder in HEARTH_TEMPLATES (models/templates of llama.cpp's
 * sources): a call that a template writes is read back from what it wrote. */
#include <check.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/buffer.h"
#include "tests/rig/client_fixture.h"
#include "tests/rig/schema_convert.h"
#include "tests/run_suite.h"

enum { MOST_TEXT = 65536 };

/* These write no calls, or in a form that is not known, or pass the tools over. */
static const char *const others[] = {
    "Apertus-8B-Instruct.jinja",
    "CohereForAI-c4ai-command-r-plus-tool_use.jinja",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja",
    "deepseek-ai-DeepSeek-V3.1.jinja",
    "fireworks-ai-llama-3-firefunction-v2.jinja",
    "GigaChat3-10B-A1.8B.jinja",
    "google-gemma-2-2b-it.jinja",
    "HuggingFaceTB-SmolLM3-3B.jinja",
    "ibm-granite-granite-3.3-2B-Instruct.jinja",
    "Kimi-K2-Instruct.jinja",
    "Kimi-K2-Thinking.jinja",
    "Kimi-K3.jinja",
    "llama-cpp-rwkv-world.jinja",
    "meetkai-functionary-medium-v3.2.jinja",
    "microsoft-Phi-3.5-mini-instruct.jinja",
    "MiniMax-M3.jinja",
    "muse-glimmer.jinja",
    "tencent-Hy3.jinja",
    "upstage-Solar-Open-100B.jinja",
};

static bool is_other(const char *name)
{
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(others[i], name) == 0)
            return true;
    return false;
}

#define USER "{\"role\":\"user\",\"content\":\"Weather?\"}"
#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Tells\","    \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","           \
    "\"description\":\"Where\"},\"days\":{\"type\":\"integer\",\"description\":\"How many\"}},"    \
    "\"required\":[\"city\"]}}}]"
#define CALLED(content)                                                                            \
    "[" USER ",{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[{\"id\":"           \
    "\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":"    \
    "\"{\\\"city\\\":\\\"Paris, \\\\\\\"F\\\\\\\"\\\",\\\"days\\\":3}\"}}]}]"

static struct hearth_chat chat_of(const char *messages, bool open, const struct buffer *source)
{
    struct hearth_chat c;
    hearth_chat_init(&c, sizeof(c));
    c.messages = messages;
    c.messages_bytes = strlen(messages);
    c.tools = TOOLS;
    c.tools_bytes = strlen(TOOLS);
    c.chat_template = source->data;
    c.chat_template_bytes = source->bytes;
    c.add_generation_prompt = open;
    return c;
}

static int64_t render(const char *messages, bool open, const struct buffer *source, char *text)
{
    struct hearth_chat c = chat_of(messages, open, source);
    return hearth_chat_text(h, &c, text, MOST_TEXT);
}

static void read_file(const char *folder, const char *name, struct buffer *ret)
{
    char path[1024], block[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    ck_assert_msg(f != NULL, "%s", path);
    for (size_t n; (n = fread(block, 1, sizeof(block), f)) > 0;)
        buffer_add(ret, block, n);
    fclose(f);
}

/* The first call that the text says: name and arguments, or why there is none. */
static void read_call(const struct buffer *source, const char *text, size_t bytes, char *ret)
{
    struct hearth_chat c = chat_of("[" USER "]", false, source);
    struct hearth_chat_reader *reader;
    struct hearth_chat_event e = {.size = sizeof(e)};
    struct buffer arguments = {0};
    if (hearth_chat_open(h, &c, &reader) < 0) {
        snprintf(ret, 512, "%s", hearth_error(h));
        return;
    }
    ck_assert_int_eq(hearth_chat_feed(reader, text, bytes, 1), 0);
    *ret = 0;
    while (hearth_chat_next(reader, &e) && e.kind != HEARTH_CHAT_CALL_END) {
        if (e.kind == HEARTH_CHAT_CALL)
            snprintf(ret, 256, "%.*s", (int)e.text_bytes, e.text);
        else if (e.kind == HEARTH_CHAT_ARGUMENTS)
            buffer_add(&arguments, e.text, e.text_bytes);
    }
    json_t *json = arguments.data ? json_loadb(arguments.data, arguments.bytes, 0, NULL) : NULL;
    char *sorted = json ? json_dumps(json, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    snprintf(ret + strlen(ret), 256, " %s", sorted ? sorted : hearth_chat_unparsed(reader));
    free(sorted);
    json_decref(json);
    buffer_fini(&arguments);
    hearth_chat_close(reader);
}

static const char want[] = "get_weather {\"city\":\"Paris, \\\"F\\\"\",\"days\":3}";

/* Where the mark of a call ends in the text; the first one that does. */
static const char *after_mark(const struct hearth_request *r, const char *text)
{
    const char *found = NULL;
    for (uint32_t i = 0; i < r->n_marks; i++) {
        const char *at =
            r->marks[i].kind == HEARTH_MARK_CALL ? strstr(text, r->marks[i].text) : NULL;
        if (at && (!found || at < found))
            found = at + strlen(r->marks[i].text);
    }
    return found;
}

/* Does the grammar of calls take the call that the template wrote, from the start where a call is
 * asked for, and from its mark on where the tool is strict? The turn's end is not part of it. */
static void bind_call(const struct buffer *source, const char *name, const char *text, size_t bytes)
{
    struct hearth_chat c = chat_of("[" USER "]", false, source);
    for (int strict = 0; strict < 2; strict++) {
        struct hearth_chat_reader *reader;
        struct hearth_request r;
        char *copy = strndup(text, bytes), *tools = strdup(TOOLS);
        bool taken = false;
        hearth_request_init(&r, sizeof(r));
        c.tool_choice = strict ? HEARTH_TOOLS_AUTO : HEARTH_TOOLS_REQUIRED;
        if (strict)
            memcpy(strstr(tools, "\"description\":\"Tells\""), "\"strict\":true        ", 21);
        c.tools = tools;
        ck_assert_msg(hearth_chat_open(h, &c, &reader) == 0, "%s: %s", name, hearth_error(h));
        ck_assert_int_eq(hearth_chat_request(reader, &r), 0);
        const char *said = strstr(copy, "</think>"), *from = said ? said + 8 : copy;
        from = after_mark(&r, from) ? after_mark(&r, from) : from;
        taken = strstr(r.grammar, "<[") != NULL; /* this vocabulary's control tokens: not bytes */
        for (size_t end = strlen(from); end && !taken; end--) {
            copy[(size_t)(from - copy) + end] = 0;
            taken = schema_grammar_takes(name, r.grammar, r.grammar_bytes, from);
        }
        ck_assert_msg(taken, "%s: %.*s is not of\n%s", name, (int)bytes, text, r.grammar);
        hearth_chat_close(reader);
        free(copy);
        free(tools);
    }
}

/* What is said of the call that the template writes, or why nothing is. */
static void try_call(const struct buffer *source, const char *name, const char *messages, char *got,
                     bool binds)
{
    static char asked[MOST_TEXT], called[MOST_TEXT];
    int64_t a = render("[" USER "]", true, source, asked), n = 0;
    int64_t b = render(messages, false, source, called);
    if (a < 0 || b < 0 || a > MOST_TEXT || b > MOST_TEXT) {
        snprintf(got, 512, "%s", hearth_error(h));
        return;
    }
    while (n < a && n < b && asked[n] == called[n])
        n++;
    while (n < a && n && asked[n - 1] != '\n' && !strchr("<[", called[n]))
        n--;
    read_call(source, called + n, (size_t)(b - n), got);
    if (binds && strcmp(got, want) == 0)
        bind_call(source, name, called + n, (size_t)(b - n));
}

static void try_template(const char *folder, const char *name)
{
    struct buffer source = {0};
    char got[1024], other[1024];
    read_file(folder, name, &source);
    try_call(&source, name, CALLED("\"\""), got, true);
    try_call(&source, name, CALLED("null"), other, strcmp(got, want) != 0);
    ck_assert_msg(strcmp(got, want) == 0 || strcmp(other, want) == 0, "%s: %s | %s", name, got,
                  other);
    buffer_fini(&source);
}

START_TEST(a_call_is_read_back_from_what_a_template_writes)
{
    const char *folder = getenv("HEARTH_TEMPLATES");
    DIR *d = opendir(folder);
    int n = 0;
    ck_assert_msg(d != NULL, "%s", folder);
    connect_with(1, 0);
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (strstr(e->d_name, ".jinja") && !is_other(e->d_name)) {
            try_template(folder, e->d_name);
            n++;
        }
    ck_assert_int_gt(n, 0);
    closedir(d);
}
END_TEST

int main(void)
{
    if (!getenv("HEARTH_TEMPLATES")) {
        puts("skip: HEARTH_TEMPLATES does not name a folder of published chat templates");
        return 0;
    }
    Suite *suite = suite_create("chat_templates");
    TCase *tcase = tcase_create("chat_templates");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_test(tcase, a_call_is_read_back_from_what_a_template_writes);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
