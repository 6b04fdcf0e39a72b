/* `hearth chat --tools`: an answer in parts, also where memory runs out. */
#include "client/cli/chat_parts.c"
#include "client/cli/options.c"
#include "client/cli/util.c"
#include "tests/rig/client_fixture.h"
#include "tests/run_suite.h"

#include <check.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define CALL(name, arguments)                                                                      \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static const char tools[] = "[" TOOL("f") "," TOOL("g") "]";
static const char template[] = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}"
                               "{# <think></think><tool_call></tool_call> #}";
static const char answer[] =
    "<think>why</think>so" CALL("f", "{\"a\": 1}") "\n" CALL("g", "{\"b\": 2}");
static const char message[] =
    "{\"role\":\"assistant\",\"content\":\"so\",\"reasoning_content\":\"why\",\"tool_calls\":["
    "{\"id\":\"call00000\",\"type\":\"function\",\"function\":{\"name\":"
    "\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}},"
    "{\"id\":\"call00001\",\"type\":\"function\",\"function\":{\"name\":"
    "\"g\",\"arguments\":\"{\\\"b\\\": 2}\"}}]}";

static long n_left;

/* Not of powers of two: jansson goes on without what does not fit its reader's buffer. */
static void *scarce(size_t bytes)
{
    return (bytes & (bytes - 1)) != 0 && n_left-- == 0 ? NULL : malloc(bytes);
}

/* Each allocation of values fails in turn, alone: the calls are those of the answer, or there is no
 * message. */
START_TEST(a_message_has_the_calls_of_its_answer_or_is_none)
{
    long n_failed = 0;
    connect_with(1, 0);
    for (long n = 0; n == 0 || n_left < 0; n++) {
        struct hearth_request request;
        struct hearth_chat chat;
        struct chat_parts parts;
        hearth_request_init(&request, sizeof(request));
        hearth_chat_init(&chat, sizeof(chat));
        chat.messages = "[]";
        chat.messages_bytes = 2;
        chat.tools = tools;
        chat.tools_bytes = strlen(tools);
        chat.chat_template = template;
        chat.chat_template_bytes = strlen(template);
        ck_assert_int_eq(chat_parts_open(&parts, h, &chat, &request), 0);
        const struct hearth_event e = {
            .kind = HEARTH_DONE, .text = answer, .text_bytes = strlen(answer)};
        n_left = n;
        json_set_alloc_funcs(scarce, free);
        json_t *m = chat_parts_take(&parts, &e) ? NULL : chat_parts_message(&parts, 1);
        json_set_alloc_funcs(malloc, free);
        char *text = m ? json_dumps(m, JSON_COMPACT) : NULL;
        if (text)
            ck_assert_str_eq(text, message);
        n_failed += !text;
        ck_assert_msg(text || n_left < 0, "nothing failed");
        free(text);
        json_decref(m);
        chat_parts_close(&parts);
    }
    ck_assert_int_gt(n_failed, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_cli_parts");
    TCase *tcase = tcase_create("client_cli_parts");
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_test(tcase, a_message_has_the_calls_of_its_answer_or_is_none);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
