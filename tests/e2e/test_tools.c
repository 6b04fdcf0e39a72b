/* Schemas as agents send them: 64 tools of 4 KiB each, by the library and by hearth-http. The answer
 * follows them; a byte more than there is room for is refused in one line. Calls that are bound in
 * the form of a template, and limits of thoughts: the same with drafts and without. */
#include "client/hearth.h"
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOOLS = 64, OPTIONS = 40, SCHEMA_BYTES = 256 << 10, GRAMMAR_ROOM = 2 << 20 };

/* A call of one of the tools: two members that it must have, and many that it may. */
static json_t *make_tool(int tool)
{
    char name[64], description[64];
    json_t *options = json_object();
    for (int i = 0; i < OPTIONS; i++) {
        snprintf(name, sizeof(name), "option_%02d_of_tool_%02d", i, tool);
        snprintf(description, sizeof(description), "What tool %d does about option %d", tool, i);
        json_object_set_new(
            options, name,
            i % 2 ? json_pack("{s:s, s:s}", "type", "boolean", "description", description)
                  : json_pack("{s:[s, s, s], s:s}", "enum", "never", "always", "automatic",
                              "description", description));
    }
    snprintf(name, sizeof(name), "tool_%02d", tool);
    return json_pack("{s:s, s:{s:{s:s}, s:{s:s, s:o, s:b}}, s:[s, s], s:b}", "type", "object",
                     "properties", "name", "const", name, "arguments", "type", "object",
                     "properties", options, "additionalProperties", 0, "required", "name",
                     "arguments", "additionalProperties", 0);
}

/* The schema's text; the caller frees. */
static char *make_schema(void)
{
    json_t *tools = json_array();
    for (int i = 0; i < TOOLS; i++)
        json_array_append_new(tools, make_tool(i));
    json_t *schema = json_pack("{s:o}", "anyOf", tools);
    char *text = json_dumps(schema, JSON_COMPACT);
    json_decref(schema);
    ck_assert_uint_ge(strlen(text), SCHEMA_BYTES);
    return text;
}

static void check_call(const char *text)
{
    json_t *call = json_loads(text, 0, NULL);
    ck_assert_msg(json_is_object(json_at(call, "arguments")), "'%s'", text);
    ck_assert_msg(!strncmp(json_text(call, "name"), "tool_", 5), "'%s'", text);
    json_decref(call);
}

/* The text of an answer that ends well; the caller frees. */
static char *ask(struct hearth *h, struct hearth_request *r)
{
    const struct hearth_event *e;
    char *text = calloc(1, 1 << 16);
    size_t n = 0;
    int rc;
    ck_assert_msg(hearth_submit(h, 0, r) == 0, "%s", hearth_error(h));
    while ((rc = hearth_next(h, 0, &e, -1)) == 1 && n + e->text_bytes < 1 << 16) {
        memcpy(text + n, e->text, e->text_bytes);
        n += e->text_bytes;
        if (e->kind == HEARTH_DONE)
            return text;
        ck_assert_int_ne(e->kind, HEARTH_ERROR);
    }
    ck_abort_msg("%d", rc);
}

static void init_request(struct hearth_request *r, const char *grammar, size_t bytes)
{
    hearth_request_init(r, sizeof(*r));
    r->text = "call = ";
    r->text_bytes = strlen(r->text);
    r->max_tokens = 8000;
    r->grammar = grammar;
    r->grammar_bytes = bytes;
}

START_TEST(a_call_of_one_of_64_tools_is_answered)
{
    char *schema = make_schema(), *grammar = malloc(GRAMMAR_ROOM), err[300];
    int64_t bytes = hearth_schema(schema, strlen(schema), grammar, GRAMMAR_ROOM, err, sizeof(err));
    ck_assert_msg(bytes > SCHEMA_BYTES / 2, "%s", err);
    struct hearth *h = harness_connect(&rig_daemon, 1, NULL);
    struct hearth_request r;
    init_request(&r, grammar, (size_t)bytes);
    char *text = ask(h, &r);
    check_call(text);
    hearth_close(h);

    json_t *body = json_pack("{s:s, s:i, s:i, s:o}", "prompt", "call = ", "n_predict", 8000,
                             "temperature", 0, "json_schema", json_loads(schema, 0, NULL));
    char *request = json_dumps(body, 0);
    json_t *answer = rig_json("/completion", request);
    ck_assert_str_eq(json_text(answer, "content"), text);
    json_decref(answer);
    json_decref(body);
    free(request);
    free(text);
    free(grammar);
    free(schema);
}
END_TEST

/* Beside the grammar a request without lists has a head of 96 bytes. */
START_TEST(a_byte_above_the_room_is_refused_in_one_line)
{
    size_t most = GRAMMAR_ROOM - 96;
    char *grammar = malloc(most + 2);
    int n = sprintf(grammar, "root ::= \"tool_\" [0-9]\n#");
    memset(grammar + n, ' ', most + 1 - (size_t)n);
    grammar[most + 1] = 0;
    struct hearth *h = harness_connect(&rig_daemon, 1, NULL);
    struct hearth_request r;
    init_request(&r, grammar, most);
    char *text = ask(h, &r);
    ck_assert_uint_eq(strlen(text), 6);
    ck_assert(!strncmp(text, "tool_", 5));
    r.grammar_bytes++;
    ck_assert_int_eq(hearth_submit(h, 0, &r), -E2BIG);
    ck_assert_str_eq(hearth_error(h),
                     "grammar, stop texts, biases and the guess take 2097156 bytes, the daemon has "
                     "room for 2097152: give less");
    hearth_close(h);

    json_t *body = json_pack("{s:s, s:i, s:s}", "prompt", "x", "n_predict", 8, "grammar", grammar);
    char *request = json_dumps(body, 0);
    json_t *answer = http_json(&rig_gate, "/completion", request, 400);
    ck_assert_ptr_nonnull(strstr(json_text(answer, "error/message"), "room for 2097152"));
    ck_assert_ptr_null(strchr(json_text(answer, "error/message"), '\n'));
    json_decref(answer);
    json_decref(body);
    free(request);
    free(text);
    free(grammar);
}
END_TEST

/* ---- calls, bound in the form of a template -------------------------------------------------- */

#define FORM "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}<tool_call></tool_call>"
#define FUNCTION                                                                                   \
    "[{\"type\":\"function\",\"function\":{\"name\":\"open\",\"parameters\":{\"type\":\"object\"," \
    "\"properties\":{\"mode\":{\"enum\":[\"read\",\"write\"]},\"line\":{\"type\":\"integer\","     \
    "\"multipleOf\":1000003,\"minimum\":1,\"maximum\":9}},\"required\":[\"mode\",\"line\"]}}}]"

/* Asks twice, with drafts and without; the ids are the same. The answer's text; the caller frees. */
static char *ask_same(struct hearth *h, struct hearth_request *r)
{
    static const char *const proposers[] = {"lookup", "none", "auto"};
    char *texts[3];
    for (int i = 0; i < 3; i++) {
        r->proposer = proposers[i];
        texts[i] = ask(h, r);
        ck_assert_msg(!strcmp(texts[0], texts[i]), "'%s' '%s'", texts[0], texts[i]);
    }
    free(texts[1]);
    free(texts[2]);
    return texts[0];
}

START_TEST(a_call_that_is_asked_for_comes_in_the_templates_form)
{
    static const char messages[] = "[{\"role\":\"user\",\"content\":\"def f(x):\"}]";
    struct hearth *h = harness_connect(&rig_daemon, 1, NULL);
    struct hearth_chat_event e = {.size = sizeof(e)};
    struct hearth_chat_reader *reader;
    struct hearth_request r;
    struct hearth_chat c;
    uint32_t ids[2000], kinds = 0;
    char arguments[256] = "";
    hearth_chat_init(&c, sizeof(c));
    c.messages = messages;
    c.messages_bytes = strlen(messages);
    c.tools = FUNCTION;
    c.tools_bytes = strlen(c.tools);
    c.chat_template = FORM;
    c.chat_template_bytes = strlen(FORM);
    c.tool_choice = HEARTH_TOOLS_REQUIRED;
    c.single_call = 1;
    ck_assert_msg(!hearth_chat_open(h, &c, &reader), "%s", hearth_error(h));
    init_request(&r, NULL, 0);
    ck_assert_int_eq(hearth_chat_request(reader, &r), 0);
    r.n_tokens = (uint32_t)hearth_chat_tokens(h, &c, ids, 2000);
    r.tokens = ids;
    char *text = ask_same(h, &r);
    ck_assert_int_eq(hearth_chat_feed(reader, text, strlen(text), 1), 0);
    while (hearth_chat_next(reader, &e)) {
        kinds |= 1u << e.kind;
        if (e.kind == HEARTH_CHAT_ARGUMENTS)
            strncat(arguments, e.text, e.text_bytes);
    }
    ck_assert_msg(kinds == (1u << HEARTH_CHAT_CALL | 1u << HEARTH_CHAT_ARGUMENTS |
                            1u << HEARTH_CHAT_CALL_END),
                  "'%s'", text);
    json_t *call = json_loads(arguments, 0, NULL);
    ck_assert_msg(json_integer_value(json_object_get(call, "line")) > 0, "'%s'", arguments);
    ck_assert_ptr_nonnull(strstr(hearth_chat_loosened(reader), "multipleOf"));
    ck_assert_ptr_nonnull(strstr(hearth_chat_unparsed(reader), "#/line: \"multipleOf\""));
    json_decref(call);
    hearth_chat_close(reader);
    hearth_close(h);
    free(text);
}
END_TEST

/* Where the model wrote the mark by itself, its grammar binds what follows; before it nothing does. */
START_TEST(a_grammar_binds_after_its_mark)
{
    static const struct hearth_mark marks[] = {{.kind = HEARTH_MARK_CALL, .text = "("}};
    static const char grammar[] = "root ::= \"<\" [a-z]{3} \">\"";
    struct hearth *h = harness_connect(&rig_daemon, 1, NULL);
    struct hearth_request r;
    init_request(&r, NULL, 0);
    r.text = "def add";
    r.text_bytes = strlen(r.text);
    r.max_tokens = 60;
    char *free_text = ask_same(h, &r), *mark = strchr(free_text, '(');
    ck_assert_msg(mark, "'%s'", free_text);
    r.grammar = grammar;
    r.grammar_bytes = strlen(grammar);
    r.marks = marks;
    r.n_marks = 1;
    char *text = ask_same(h, &r);
    size_t before = (size_t)(mark - free_text) + 1;
    ck_assert_msg(!strncmp(text, free_text, before), "'%s'", text);
    ck_assert_uint_eq(strlen(text), before + 5);
    ck_assert(text[before] == '<' && text[before + 4] == '>');
    hearth_close(h);
    free(free_text);
    free(text);
}
END_TEST

START_TEST(a_thought_is_closed_at_its_limit_and_the_answer_goes_on)
{
    const struct hearth_mark marks[] = {
        {.kind = HEARTH_MARK_THOUGHT, .text = "<think>", .open = 1, .tokens = 5},
        {.kind = HEARTH_MARK_THOUGHT_END, .text = "</think>"}};
    struct hearth *h = harness_connect(&rig_daemon, 1, NULL);
    struct hearth_request r;
    uint32_t closing[32];
    int64_t n = hearth_tokenize(h, "\n</think>\n", 10, HEARTH_SPECIAL, closing, 32);
    ck_assert(n > 0 && n <= 32);
    init_request(&r, NULL, 0);
    r.max_tokens = 20 + (uint32_t)n;
    r.marks = marks;
    r.n_marks = 2;
    r.n_closing = (uint32_t)n;
    r.closing = closing;
    char *text = ask_same(h, &r);
    ck_assert_msg(strstr(text, "\n</think>\n"), "'%s'", text);
    free(text);
    ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
    const struct hearth_event *e;
    while (hearth_next(h, 0, &e, -1) == 1 && e->kind != HEARTH_DONE)
        ;
    ck_assert_uint_eq(e->result->n_ids, 20 + (uint32_t)n);
    ck_assert_mem_eq(e->result->ids + 5, closing, (size_t)n * sizeof(*closing));
    hearth_close(h);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tools");
    TCase *tests = tcase_create("tools");
    tcase_add_checked_fixture(tests, rig_setup, rig_teardown);
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, a_call_of_one_of_64_tools_is_answered);
    tcase_add_test(tests, a_byte_above_the_room_is_refused_in_one_line);
    tcase_add_test(tests, a_call_that_is_asked_for_comes_in_the_templates_form);
    tcase_add_test(tests, a_grammar_binds_after_its_mark);
    tcase_add_test(tests, a_thought_is_closed_at_its_limit_and_the_answer_goes_on);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
