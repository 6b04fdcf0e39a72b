/* What agents send and some templates refuse: messages whose roles do not alternate, calls without
 * results. */
#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/client_fixture.h"
#include "tests/rig/text_diff.h"

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SYSTEM(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define ANSWER(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define CALL(id, name)                                                                             \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":"  \
    "\"{}\"}}"
#define F CALL("1", "f")
#define G CALL("2", "g")
#define CALLS(content, calls)                                                                      \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[" calls "]}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define PARTS "{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}"

#define EACH(body) "{% for m in messages %}" body "{% endfor %}"
#define WRITES                                                                                     \
    EACH(                                                                                          \
        "{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} "     \
        "{{ c.function.arguments }}]{% endfor %}{% if m.tool_call_id %}({{ m.tool_call_id[-1] }})" \
        "{% endif %};")
/* As Mistral Nemo's, Ministral's and Small's: calls and results are not of the turns. */
#define IN_TURN                                                                                    \
    "{% set ns = namespace(n=0) %}" EACH(                                                          \
        "{% if m.role != 'tool' and not m.tool_calls and not (loop.first and m.role == 'system')"  \
        " %}{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('in turn') }}"        \
        "{% endif %}{% set ns.n = ns.n + 1 %}{% endif %}") WRITES
/* Each refuses one thing. */
#define NEXT "messages[loop.index]"
#define REFUSES(what) EACH("{% if " what " %}{{ raise_exception('no') }}{% endif %}") WRITES
#define NO_USERS REFUSES("m.role == 'user' and not loop.last and " NEXT ".role == 'user'")
#define NO_AFTER REFUSES("m.role == 'tool' and not loop.last and " NEXT ".role == 'user'")
#define NO_ANSWERS                                                                                 \
    REFUSES("m.role == 'assistant' and not m.tool_calls and not loop.last and " NEXT               \
            ".role == 'assistant' and not " NEXT ".tool_calls")
#define NO_BREAK REFUSES("m.tool_calls and not loop.last and " NEXT ".role == 'user'")
#define ALL_RESULTS                                                                                \
    REFUSES(                                                                                       \
        "m.tool_calls and m.tool_calls | length == 2 and loop.index < messages | length and " NEXT \
        ".role == 'tool' and messages | selectattr('role', 'equalto', 'tool') | list | "           \
        "length < 2")

#define THINKS(key) EACH("{% if m." key " %}<{{ m." key " }}>{% endif %}") IN_TURN
#define THOUGHT(thought, text)                                                                     \
    "{\"role\":\"assistant\",\"reasoning_content\":\"" thought "\",\"content\":\"" text "\"}"

static const struct {
    const char *template, *messages, *want;
} told[] = {
    /* users in a row */
    {IN_TURN, "[" USER("a") "," USER("b") "," USER("") "," USER("c") "]", "user:a\n\nb\n\nc;"},
    {IN_TURN, "[" USER("a") "," USER("b") "," ANSWER("c") "," USER("d") "]",
     "user:a\n\nb;assistant:c;user:d;"},
    {IN_TURN, "[" USER("a") "," PARTS "]",
     "user:[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': '\\n\\n'}, {'type': "
     "'image'}];"},
    {NO_USERS, "[" USER("a") "," USER("b") "]", "user:a\n\nb;"},
    {NO_AFTER, "[" USER("a") "," USER("b") "]", "user:a;user:b;"},
    {WRITES, "[" USER("a") "," USER("b") "]", "user:a;user:b;"},
    /* after a result */
    {IN_TURN,
     "[" USER("a") "," CALLS("null", F) "," RESULT("1", "r") "," USER("b") "," USER("c") "]",
     "user:a;assistant:[f {}];tool:r\n\nb\n\nc(1);"},
    {IN_TURN,
     "[" USER("a") "," CALLS("null", F "," G) "," RESULT("1", "r") "," RESULT("2", "s") "," USER(
         "b") "," CALLS("null", F) "," RESULT("1", "t") "," ANSWER("c") "]",
     "user:a;assistant:[f {}][g {}];tool:r(1);tool:s\n\nb(2);assistant:[f {}];tool:t(1);"
     "assistant:c;"},
    {NO_AFTER, "[" USER("a") "," CALLS("\"\"", F) "," RESULT("1", "r") "," USER("b") "]",
     "user:a;assistant:[f {}];tool:r\n\nb(1);"},
    {NO_USERS,
     "[" USER("a") "," CALLS("\"\"", F) "," RESULT("1", "r") "," USER("b") "," USER("c") "]",
     "user:a;assistant:[f {}];tool:r(1);user:b\n\nc;"},
    {WRITES, "[" USER("a") "," CALLS("\"\"", F) "," RESULT("1", "r") "," USER("b") "]",
     "user:a;assistant:[f {}];tool:r(1);user:b;"},
    /* a message of the system that it does not write there */
    {IN_TURN, "[" SYSTEM("s") "," USER("a") "," SYSTEM("t") "," USER("b") "]",
     "system:s;user:a\nt\n\nb;"},
    {IN_TURN, "[" USER("a") "," CALLS("null", F) "," RESULT("1", "r") "," SYSTEM("t") "]",
     "user:a;assistant:[f {}];tool:r\n\nt(1);"},
    /* calls that were interrupted */
    {IN_TURN, "[" USER("a") "," CALLS("null", F) "," USER("b") "]",
     "user:a;assistant:[f {}];tool:(no result)\n\nb(1);"},
    {IN_TURN, "[" USER("a") "," CALLS("null", F "," G) "," RESULT("2", "r") "," USER("b") "]",
     "user:a;assistant:[f {}][g {}];tool:(no result)(1);tool:r\n\nb(2);"},
    {IN_TURN, "[" USER("a") "," CALLS("null", F "," G) "," RESULT("x", "r") "," USER("b") "]",
     "user:a;assistant:[f {}][g {}];tool:(no result)(1);tool:r\n\nb(x);"},
    {NO_BREAK, "[" USER("a") "," CALLS("\"\"", F) "," USER("b") "]",
     "user:a;assistant:[f {}];tool:(no result)(1);user:b;"},
    {NO_BREAK, "[" USER("a") "," CALLS("\"\"", F) "]", "user:a;assistant:[f {}];"},
    {NO_AFTER, "[" USER("a") "," CALLS("\"\"", F) "," USER("b") "]",
     "user:a;assistant:[f {}];user:b;"},
    {ALL_RESULTS, "[" USER("a") "," CALLS("\"\"", F "," G) "," RESULT("1", "r") "," USER("b") "]",
     "user:a;assistant:[f {}][g {}];tool:r(1);tool:(no result)(2);user:b;"},
    {ALL_RESULTS, "[" USER("a") "," CALLS("\"\"", F "," G) "," USER("b") "]",
     "user:a;assistant:[f {}][g {}];user:b;"},
    /* answers in a row */
    {IN_TURN, "[" USER("a") "," ANSWER("b") "," ANSWER("c") "," USER("d") "]",
     "user:a;assistant:b\n\nc;user:d;"},
    {IN_TURN, "[" USER("a") "," ANSWER("b") "," CALLS("null", F) "," RESULT("1", "r") "]",
     "user:a;assistant:b[f {}];tool:r(1);"},
    {IN_TURN, "[" USER("a") "," CALLS("\"b\"", "") "," CALLS("null", F) "," RESULT("1", "r") "]",
     "user:a;assistant:b[f {}];tool:r(1);"},
    {IN_TURN, "[" USER("a") "," CALLS("null", F) "," ANSWER("b") "," USER("c") "]",
     "user:a;assistant:[f {}];assistant:b;user:c;"},
    /* with a thought each, in the member that the template reads */
    {THINKS("reasoning_content"),
     "[" USER("a") "," THOUGHT("s", "b") "," THOUGHT("t", "") "," THOUGHT("", "c") "," THOUGHT(
         "u", "d") "," USER("e") "]",
     "<s\n\nt\n\nu>user:a;assistant:b\n\nc\n\nd;user:e;"},
    {THINKS("thinking"),
     "[" USER("a") "," THOUGHT("s", "b") ",{\"role\":\"assistant\",\"reasoning_content\":\"t\","
                                         "\"tool_calls\":[" F "]}," RESULT("1", "r") "]",
     "<s\n\nt>user:a;assistant:b[f {}];tool:r(1);"},
    {NO_ANSWERS, "[" USER("a") "," ANSWER("b") "," CALLS("\"\"", F) "," RESULT("1", "r") "]",
     "user:a;assistant:b;assistant:[f {}];tool:r(1);"},
    {WRITES, "[" USER("a") "," ANSWER("b") "," ANSWER("c") "]", "user:a;assistant:b;assistant:c;"},
};

static void render(const char *messages, const char *template, char *text, size_t max)
{
    struct hearth_chat c;
    hearth_chat_init(&c, sizeof(c));
    c.messages = messages;
    c.messages_bytes = strlen(messages);
    c.chat_template = template;
    c.chat_template_bytes = strlen(template);
    c.add_generation_prompt = 0;
    int64_t n = hearth_chat_text(h, &c, text, max - 1);
    ck_assert_msg(n >= 0 && (size_t)n < max, "%s: %s: %s", template, messages, hearth_error(h));
    text[n] = 0;
}

START_TEST(only_what_the_template_refuses_is_put_in_turn)
{
    char text[4096];
    connect_with(1, 0);
    render(told[_i].messages, told[_i].template, text, sizeof(text));
    assert_same_text(told[_i].messages, text, told[_i].want);
}
END_TEST

static long n_left; /* allocations of values before the one that fails */

/* Not of powers of two: jansson goes on without what does not fit its reader's buffer, or ends the
 * program. */
static void *scarce(size_t bytes)
{
    return (bytes & (bytes - 1)) != 0 && n_left-- == 0 ? NULL : malloc(bytes);
}

/* How many there are while the messages are read, where jansson calls the text broken. */
static long n_to_read(const char *messages)
{
    n_left = LONG_MAX;
    json_set_alloc_funcs(scarce, free);
    json_decref(json_loads(messages, 0, NULL));
    json_set_alloc_funcs(malloc, free);
    return LONG_MAX - n_left;
}

/* Each allocation of values fails in turn, alone: there is no prompt then, or the right one, and
 * nothing that was found about the template meanwhile is remembered. */
START_TEST(a_shortage_of_memory_is_not_remembered)
{
    const long first = n_to_read(told[_i].messages);
    char text[4096];
    struct hearth_chat c;
    connect_with(1, 0);
    hearth_chat_init(&c, sizeof(c));
    c.messages = told[_i].messages;
    c.messages_bytes = strlen(c.messages);
    c.chat_template = told[_i].template;
    c.chat_template_bytes = strlen(c.chat_template);
    c.add_generation_prompt = 0;
    n_left = -1;
    for (long n = first; n_left < 0; n += 1 + (n - first) / 64) {
        n_left = n;
        json_set_alloc_funcs(scarce, free);
        const int64_t rc = hearth_chat_text(h, &c, text, sizeof(text) - 1);
        json_set_alloc_funcs(malloc, free);
        text[rc < 0 ? 0 : rc] = 0;
        ck_assert_msg(rc >= 0 || rc == -ENOMEM, "%ld: %s", n, hearth_error(h));
        if (rc >= 0)
            assert_same_text(told[_i].messages, text, told[_i].want);
    }
}
END_TEST

/* An image cannot go behind a result: what it would be there is not an image. */
START_TEST(parts_stay_out_of_a_result)
{
    static const char messages[] =
        "[" USER("a") "," CALLS("null", F) "," RESULT("1", "r") "," PARTS "]";
    struct hearth_chat c;
    char text[1024];
    connect_with(1, 0);
    hearth_chat_init(&c, sizeof(c));
    c.messages = messages;
    c.messages_bytes = strlen(messages);
    c.chat_template = IN_TURN;
    c.chat_template_bytes = strlen(IN_TURN);
    ck_assert_int_lt(hearth_chat_text(h, &c, text, sizeof(text)), 0);
    ck_assert_ptr_nonnull(strstr(hearth_error(h), "in turn"));
}
END_TEST

/* Each prompt of an agent begins with the one before it. */
START_TEST(a_later_prompt_goes_on_with_the_one_before_it)
{
    static const char *const turns[] = {
        SYSTEM("s") "," USER("a") "," USER("b"),
        CALLS("\"So:\"", F "," G) "," RESULT("1", "r") "," RESULT("2", "s") "," USER("c"),
        CALLS("null", F) "," RESULT("1", "r") "," SYSTEM("d"),
        CALLS("null", F) "," USER("e") "," USER("f"),
        ANSWER("g") "," CALLS("\"\"", G) "," RESULT("2", "s"),
        ANSWER("h") "," USER("i"),
        ANSWER("j") "," ANSWER("k") "," USER("l"),
    };
    static const char *const templates[] = {IN_TURN,  NO_USERS,   NO_AFTER,
                                            NO_BREAK, NO_ANSWERS, WRITES};
    connect_with(1, 0);
    for (size_t k = 0; k < sizeof(templates) / sizeof(templates[0]); k++) {
        char before[8192] = "", text[8192], messages[4096] = "[";
        for (size_t i = 0; i < sizeof(turns) / sizeof(turns[0]); i++) {
            strcat(messages, turns[i]);
            strcat(messages, "]");
            render(messages, templates[k], text, sizeof(text));
            ck_assert_msg(strncmp(text, before, strlen(before)) == 0, "%s\nafter\n%s", text,
                          before);
            strcpy(before, text);
            messages[strlen(messages) - 1] = ',';
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_turns");
    TCase *tcase = tcase_create("chat_turns");
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_loop_test(tcase, only_what_the_template_refuses_is_put_in_turn, 0,
                        sizeof(told) / sizeof(told[0]));
    tcase_add_test(tcase, parts_stay_out_of_a_result);
    tcase_add_test(tcase, a_later_prompt_goes_on_with_the_one_before_it);
    tcase_add_loop_test(tcase, a_shortage_of_memory_is_not_remembered, 0,
                        (int)(sizeof(told) / sizeof(told[0])));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
