/* The reader of answers: for each family's form well-formed, broken and odd answers, whole, byte by
 * byte, and cut off at every byte; and nothing of an answer is lost. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/events/reader.h"
#include "tests/run_suite.h"

enum { LONG_BYTES = 1 << 17 };

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"write\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"path\":{\"type\":\"string\"},\"text\":{\"type\":[\"string\",\"null\"]},"
    "\"lines\":{\"type\":\"integer\"},\"tags\":{\"type\":\"array\"},\"flag\":{\"type\":\"boolean\"}"
    ","
    "\"any\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},\"word\":{\"enum\":[\"True\","
    "\"1\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"put\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"mode\":{\"type\":\"string\"},\"path\":{\"type\":\"string\"}},"
    "\"required\":[\"path\"]}}}]";

static const struct call_form *form_named(const char *name)
{
    for (size_t i = 0; i < n_call_forms; i++)
        if (strcmp(call_forms[i].name, name) == 0)
            return &call_forms[i];
    return NULL;
}

/* Everything that the reader says, one kind after the other: "T(..)" thoughts, "C(..)" content,
 * "name(arguments)" a call, "name(arguments" one that did not end. */
static void read_all(struct reader *r, struct buffer *out, int *kind)
{
    struct reader_event e;
    while (reader_next(r, &e)) {
        bool goes_on = (int)e.kind == *kind || e.kind == READER_ARGUMENTS;
        if (!goes_on && (*kind == READER_CONTENT || *kind == READER_THOUGHT))
            buffer_text(out, ")");
        if (e.kind == READER_CONTENT && !goes_on)
            buffer_text(out, "C(");
        if (e.kind == READER_THOUGHT && !goes_on)
            buffer_text(out, "T(");
        buffer_add(out, e.text, e.bytes);
        if (e.kind == READER_CALL)
            buffer_text(out, "(");
        if (e.kind == READER_CALL_END)
            buffer_text(out, ")");
        *kind = (int)e.kind;
    }
}

static char *read_bytes(const struct reader_desc *desc, const char *text, size_t n, size_t step,
                        const char **ret_reason)
{
    struct reader *r = reader_open(desc);
    struct buffer out = {0};
    int kind = -1;
    ck_assert_ptr_nonnull(r);
    for (size_t at = 0; at < n; at += step) {
        ck_assert_int_eq(reader_feed(r, text + at, n - at < step ? n - at : step), 0);
        read_all(r, &out, &kind);
    }
    ck_assert_int_eq(reader_finish(r), 0);
    read_all(r, &out, &kind);
    if (kind == READER_CONTENT || kind == READER_THOUGHT)
        buffer_text(&out, ")");
    buffer_text(&out, "");
    *ret_reason = reader_reason(r);
    reader_close(r);
    for (size_t i = 0; i < out.bytes; i++) /* what is said is compared as a text */
        out.data[i] = out.data[i] ? out.data[i] : '0';
    return out.data ? out.data : calloc(1, 1);
}

static char *read_in_steps(const struct reader_desc *desc, const char *text, size_t step,
                           const char **ret_reason)
{
    return read_bytes(desc, text, strlen(text), step, ret_reason);
}

/* Names and headers that are too long. */
#define X10 "xxxxxxxxxx"
#define X50 X10 X10 X10 X10 X10
#define X300 X50 X50 X50 X50 X50 X50

static const struct {
    const char *form, *text, *want;
    const char *reason; /* part of it; NULL: none */
    bool thinks;
} answers[] = {
#include "tests/unit/client/chat_answers.h"
};

static struct reader_desc desc_of(int i, json_t *list)
{
    const struct call_form *form = form_named(answers[i].form);
    const struct thought_form *thoughts = &thought_forms[0];
    if (strncmp(answers[i].form, "mistral", 7) == 0)
        thoughts = &thought_forms[1];
    if (strcmp(answers[i].form, "seed-oss") == 0)
        thoughts = &thought_forms[2];
    if (strcmp(answers[i].form, "gemma") == 0)
        thoughts = &thought_forms[3];
    ck_assert_msg(form || !*answers[i].form, "no form %s", answers[i].form);
    return (struct reader_desc){.form = form,
                                .thoughts = thoughts,
                                .tools = list,
                                .thinks = answers[i].thinks,
                                .calls_in_thoughts = true};
}

START_TEST(an_answer_says_the_same_however_it_is_cut)
{
    json_t *list = json_loads(tools, 0, NULL);
    const struct reader_desc desc = desc_of(_i, list);
    size_t bytes = strlen(answers[_i].text);
    for (size_t step = bytes ? bytes : 1; step; step = step > 7 ? 7 : step - 1) {
        const char *reason;
        char *got = read_in_steps(&desc, answers[_i].text, step, &reason);
        ck_assert_msg(strcmp(got, answers[_i].want) == 0,
                      "%s in steps of %zu:\n%s\nsays\n%s\nnot\n%s", answers[_i].form, step,
                      answers[_i].text, got, answers[_i].want);
        ck_assert_msg(!reason == !answers[_i].reason, "%s: %s", answers[_i].text,
                      reason ? reason : "no reason");
        ck_assert_msg(!reason || strstr(reason, answers[_i].reason), "%s: %s", answers[_i].text,
                      reason);
        free(got);
    }
    json_decref(list);
}
END_TEST

/* What is said of the beginning of an answer is the beginning of what is said of all of it, up to
 * white space and marks that are content when nothing follows them. */
START_TEST(an_answer_may_end_at_any_byte)
{
    json_t *list = json_loads(tools, 0, NULL);
    const struct reader_desc desc = desc_of(_i, list);
    char *text = strdup(answers[_i].text);
    for (size_t n = strlen(text); n; n--) {
        const char *whole_reason, *reason;
        text[n] = 0;
        char *whole = read_in_steps(&desc, text, n, &whole_reason);
        char *pieces = read_in_steps(&desc, text, 1, &reason);
        ck_assert_msg(strcmp(whole, pieces) == 0, "%zu bytes of %s:\n%s\n%s", n, answers[_i].text,
                      whole, pieces);
        ck_assert_ptr_eq(whole_reason, reason);
        free(whole);
        free(pieces);
    }
    free(text);
    json_decref(list);
}
END_TEST

START_TEST(without_a_form_all_is_content)
{
    struct reader_desc desc = {0};
    const char *reason;
    char want[4096], *got = read_in_steps(&desc, answers[_i].text, 3, &reason);
    snprintf(want, sizeof(want), *answers[_i].text ? "C(%s)" : "%s", answers[_i].text);
    ck_assert_str_eq(got, want);
    ck_assert_ptr_null(reason);
    free(got);
}
END_TEST

/* Answers that are all of one thing: whatever has to be read again with each piece, or from each mark
 * on, is read thousands of times. */
static const struct {
    const char *form, *begin, *unit;
    bool thinks;
} long_answers[] = {
    {"", "", " ", false},
    {"", "", " ", true},
    {"", "x", "\n", false},
    {"hermes", "", "<", false},
    {"hermes", "<tool_call>{\"a\":\"", "<tool_call>x", false},
    {"hermes", "<tool_call>{\"a\":\"", "<tool_call>[{", false},
    {"hermes", "<tool_call>", "[ ,", false},
    {"llama3", "", " ", false},
    {"llama3", "{", " ", false},
    {"llama3", "{\"name\":\"", "<|python_tag|>", false},
    {"glm", "<tool_call>write<arg_key>tags</arg_key><arg_value>", "x", false},
    {"glm", "", "<tool_call>a", false},
    {"qwen3-coder", "<tool_call><function=write><parameter=text>", "</parameter", false},
    {"mistral", "", "[TOOL_CALLS]", false},
    {"hermes", "", "<tool_call>{\"name\":\"write", true},
    {"hermes", "<tool_call>{\"a\":\"", "<tool_call>[{", true},
    {"hermes", "<tool_call>{\"name\":\"write\"}", "</think", true},
    {"hermes", "", "<tool_call>{\"name\":\"write\"}</tool_call>", true},
    {"qwen3-coder", "", "<function=write", true},
    {"qwen3-coder", "", "<function=write ", false},
    {"qwen3-coder", "", "<function=other>", false},
    {"minicpm", "<function name=\"write\"><param name=\"text\"><![CDATA[", "]]></param", false},
    {"gemma", "", "<|tool_call>call:write{", true},
    {"gemma", "", "<channel|>", false},
    {"gemma", "", " <|channel>", false},
    {"gemma", "<|tool_call>call:x{a:<|\"|>", "<tool_call|", false},
    {"llama3", "{\"name\":\"write\"}", ";}", false},
    {"gemma", "", "<|tool_call>call:1,{b:1,", false},
    {"gemma", "<|tool_call>call:x{", "a:[[{b:1}]],", false},
    {"lfm2", "", "<|tool_call_start|>", false},
    {"lfm2", "", "<|tool_call_start|>write(", true},
    {"lfm2", "", "<|tool_call_start|>[write(lines=1), ", false},
    {"lfm2", "<|tool_call_start|>[write(path='", "' x", false},
    {"lfm2", "<|tool_call_start|>[write(path='", "'                                ", false},
    {"lfm2", "<|tool_call_start|>[write(path='", "\\", false},
    {"lfm2", "<|tool_call_start|>[write(tags=[", "{},", false},
    {"lfm2", "<|tool_call_start|>[write(lines=1", "), f(", false},
    {"lfm2", "<|tool_call_start|>", "[ ,", false},
    {"lfm2", "<|tool_call_start|>[write(", "'a', ", false},
    {"lfm2", "<|tool_call_start|>[write(", "**{}, ", false},
    {"harmony", "", "<|channel|>", false},
    {"harmony", "", "x<|end|>", false},
    {"harmony", "<|channel|>a to=b<|message|>", " ", false},
};

START_TEST(an_answer_is_read_once_however_long_it_is)
{
    static const size_t steps[] = {5, LONG_BYTES};
    json_t *list = json_loads(tools, 0, NULL);
    const struct call_form *form = form_named(long_answers[_i].form);
    const char *end = form && form->call_close ? form->call_close : form ? form->close : NULL;
    struct reader_desc desc = {.form = form,
                               .thoughts = &thought_forms[0],
                               .tools = list,
                               .thinks = long_answers[_i].thinks,
                               .calls_in_thoughts = true};
    struct buffer text = {0};
    ck_assert_ptr_nonnull(list);
    buffer_text(&text, long_answers[_i].begin);
    while (text.bytes < LONG_BYTES)
        buffer_text(&text, long_answers[_i].unit);
    for (int closed = 0; closed < 2; closed++) {
        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
            const char *reason;
            free(read_in_steps(&desc, text.data, steps[i], &reason));
        }
        buffer_text(&text, end ? end : "x");
    }
    buffer_fini(&text);
    json_decref(list);
}
END_TEST

/* A model may write a zero byte, if it has a token for one. */
START_TEST(a_zero_byte_is_no_blank)
{
#define ANSWER(form, text, want, reason) form, text, sizeof(text) - 1, want, reason
    static const struct {
        const char *form, *text;
        size_t bytes;
        const char *want, *reason;
    } zeros[] = {
        {ANSWER("harmony", " to=functions.write\0x<|message|>{}<|call|>",
                "C( to=functions.write0x<|message|>{})", "no name")},
        {ANSWER("harmony", " to=functions.write<|message|>\0{}<|call|>", "write(0{})",
                "not a JSON object")},
        {ANSWER("harmony", " to=functions.write<|message|>{}\0<|call|>", "write({}0)",
                "not a JSON object")},
        {ANSWER(
            "qwen3-coder",
            "<tool_call><function=write><parameter=lines>5\0</parameter></function></tool_call>",
            "write({\"lines\": \"5\\u0000\"})", NULL)},
    };
    for (size_t i = 0; i < sizeof(zeros) / sizeof(zeros[0]); i++) {
        const struct reader_desc desc = {.form = form_named(zeros[i].form),
                                         .thoughts = &thought_forms[0]};
        const char *reason;
        char *got = read_bytes(&desc, zeros[i].text, zeros[i].bytes, zeros[i].bytes, &reason);
        ck_assert_str_eq(got, zeros[i].want);
        ck_assert_msg(!reason == !zeros[i].reason, "%zu", i);
        ck_assert_msg(!reason || strstr(reason, zeros[i].reason), "%s", reason);
        free(got);
    }
}
END_TEST

/* Where a grammar binds no call in a thought, none is read there. */
START_TEST(a_call_in_a_thought_may_be_part_of_it)
{
    static const char text[] = "so <tool_call>{\"name\":\"write\",\"arguments\":{}}</tool_call>";
    json_t *list = json_loads(tools, 0, NULL);
    const struct reader_desc desc = {
        .form = form_named("hermes"), .thoughts = &thought_forms[0], .tools = list, .thinks = true};
    const char *reason;
    char want[256], *got = read_in_steps(&desc, text, 3, &reason);
    snprintf(want, sizeof(want), "T(%s)", text);
    ck_assert_str_eq(got, want);
    free(got);
    json_decref(list);
}
END_TEST

/* Nothing that is written is lost: a call is content, and a reason says so. */
START_TEST(where_no_call_is_wanted_none_is_read)
{
    json_t *list = json_loads(tools, 0, NULL);
    struct reader_desc desc = desc_of(_i, list);
    const char *reason, *why, *called = strchr(answers[_i].want, '{');
    desc.calls_in_thoughts = false;
    char *with = read_in_steps(&desc, answers[_i].text, 3, &why);
    desc.no_calls = true;
    char *whole = read_in_steps(&desc, answers[_i].text, 3, &reason);
    char *bytes = read_in_steps(&desc, answers[_i].text, 1, &reason);
    ck_assert_str_eq(whole, bytes);
    ck_assert_msg(!strcmp(with, whole) ||
                      (reason && (why || strstr(reason, "tool_choice is none"))),
                  "%s: %s", whole, reason ? reason : "no reason");
    if (called && !why && strcmp(with, whole) != 0) /* the name and the arguments */
        ck_assert_msg(strstr(whole, "C(") != NULL, "%s", whole);
    struct reader *r = reader_open(&desc);
    ck_assert_int_eq(reader_feed(r, answers[_i].text, strlen(answers[_i].text)), 0);
    ck_assert_int_eq(reader_finish(r), 0);
    ck_assert_uint_eq(reader_calls(r), 0);
    reader_close(r);
    free(with);
    free(whole);
    free(bytes);
    json_decref(list);
}
END_TEST

/* Each is looked for in the schema: of one with thousands of properties that takes long. */
START_TEST(arguments_have_places_where_there_are_few_properties)
{
    static const char text[] = "<|tool_call_start|>[f(7)]<|tool_call_end|>";
    for (int n = 32; n <= 33; n++)
        for (int n_required = 32; n_required <= 33; n_required++) {
            json_t *properties = json_object(), *required = json_array();
            for (int i = 0; i < n; i++) {
                char name[16];
                snprintf(name, sizeof(name), "p%d", i);
                json_object_set_new(properties, name, json_object());
            }
            for (int i = 0; i < n_required; i++)
                json_array_append_new(required, json_string("p0"));
            json_t *list =
                json_pack("[{s:s, s:{s:s, s:{s:o, s:o}}}]", "type", "function", "function", "name",
                          "f", "parameters", "properties", properties, "required", required);
            const struct reader_desc desc = {.form = form_named("lfm2"), .tools = list};
            const char *reason;
            char *got = read_in_steps(&desc, text, 3, &reason);
            ck_assert_msg((strstr(got, "f({\"p0\": 7})") != NULL) == (n == 32 && n_required == 32),
                          "%d of %d: %s", n_required, n, got);
            free(got);
            json_decref(list);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_events");
    TCase *tcase = tcase_create("chat_events");
    tcase_set_timeout(tcase, 120);
    int n = (int)(sizeof(answers) / sizeof(answers[0]));
    tcase_add_loop_test(tcase, an_answer_says_the_same_however_it_is_cut, 0, n);
    tcase_add_loop_test(tcase, an_answer_may_end_at_any_byte, 0, n);
    tcase_add_loop_test(tcase, without_a_form_all_is_content, 0, n);
    tcase_add_loop_test(tcase, an_answer_is_read_once_however_long_it_is, 0,
                        (int)(sizeof(long_answers) / sizeof(long_answers[0])));
    tcase_add_test(tcase, a_call_in_a_thought_may_be_part_of_it);
    tcase_add_test(tcase, a_zero_byte_is_no_blank);
    tcase_add_test(tcase, arguments_have_places_where_there_are_few_properties);
    tcase_add_loop_test(tcase, where_no_call_is_wanted_none_is_read, 0, n);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
