/* hearth-http as programs that know Anthropic's Messages see it. */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char path[] = "/v1/messages?beta=true";
static const char one_tool[] =
    ",\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}]";

/* A request as Claude Code makes it, with more members. */
static const char *asked(const char *more, const char *also)
{
    static char body[4096];
    snprintf(
        body, sizeof(body),
        "{\"model\":\"claude-x\",\"max_tokens\":32000,\"thinking\":{\"type\":\"adaptive\","
        "\"display\":\"omitted\"},\"context_management\":{\"edits\":[]},\"output_config\":"
        "{\"effort\":\"high\"},\"metadata\":{\"user_id\":\"u\"},\"system\":[{\"type\":\"text\","
        "\"text\":\"x-anthropic-billing-header: v;\"},{\"type\":\"text\",\"text\":\"Be "
        "brief.\",\"cache_control\":{\"type\":\"ephemeral\"}}],\"messages\":[{\"role\":\"user\","
        "\"content\":[{\"type\":\"text\",\"text\":\"def f():\"}]},{\"role\":\"system\","
        "\"content\":\"cwd: /\"}]%s%s}",
        more, also);
    return body;
}

/* The stream in words, without what differs each time; deltas of one kind that follow each other as
 * one. The caller frees. */
static char *in_words(json_t *events)
{
    char *all = calloc(1, 65536), last[64] = "";
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *e = json_array_get(events, i);
        const char *type = json_text(e, "type");
        json_t *text = NULL;
        char now[64] = "";
        if (strcmp(type, "content_block_start") == 0)
            snprintf(now, sizeof(now), "start %d %s", (int)json_number(e, "index"),
                     json_text(e, "content_block/type"));
        else if (strcmp(type, "content_block_stop") == 0)
            snprintf(now, sizeof(now), "stop %d", (int)json_number(e, "index"));
        else if (strcmp(type, "message_delta") == 0)
            snprintf(now, sizeof(now), "message_delta %s", json_text(e, "delta/stop_reason"));
        else if (strcmp(type, "content_block_delta") == 0) {
            const char *kind = json_text(e, "delta/type");
            snprintf(now, sizeof(now), "%s %d", kind, (int)json_number(e, "index"));
            text = json_at(e, strcmp(kind, "text_delta") == 0        ? "delta/text"
                              : strcmp(kind, "thinking_delta") == 0  ? "delta/thinking"
                              : strcmp(kind, "signature_delta") == 0 ? "delta/none"
                                                                     : "delta/partial_json");
        } else
            snprintf(now, sizeof(now), "%s", type);
        if (!text || strcmp(now, last) != 0) {
            strcat(all, *all ? "\n" : "");
            strcat(all, now);
            strcat(all, text ? ": " : "");
        }
        strcat(all, text ? json_string_value(text) : "");
        strcpy(last, now);
    }
    return all;
}

START_TEST(a_stream_has_anthropic_s_events_in_order)
{
    rig_start_with_tools(NULL);
    char more[1024];
    snprintf(more, sizeof(more), "%s,\"stream\":true", rig_calls);
    json_t *events = http_stream(&rig_gate, path, asked(one_tool, more));
    char *words = in_words(events), want[1024];
    json_t *o = rig_json(path, asked(one_tool, rig_calls));
    snprintf(want, sizeof(want),
             "message_start\nstart 0 thinking\nping\nthinking_delta 0: so\nsignature_delta 0\n"
             "stop 0\nstart 1 text\ntext_delta 1: Yes.\nstop 1\nstart 2 tool_use\n"
             "input_json_delta 2: {\"a\": %d}\nstop 2\nmessage_delta tool_use\nmessage_stop",
             (int)json_number(o, "content/2/input/a"));
    ck_assert_str_eq(words, want);
    json_t *start = json_array_get(events, 0), *end = json_last(events, 1);
    ck_assert_str_eq(json_text(start, "message/model"), "claude-x");
    ck_assert_str_eq(json_text(start, "message/role"), "assistant");
    ck_assert(json_is_null(json_at(start, "message/stop_reason")));
    ck_assert_uint_eq(json_array_size(json_at(start, "message/content")), 0);
    ck_assert_int_eq(json_number(start, "message/usage/input_tokens"),
                     json_number(end, "usage/input_tokens") +
                         json_number(end, "usage/cache_read_input_tokens"));
    ck_assert_int_eq(json_number(end, "usage/output_tokens"),
                     json_number(o, "usage/output_tokens"));
    free(words);
    json_decref(events);
    json_decref(o);
}
END_TEST

START_TEST(a_whole_message_has_the_same_blocks)
{
    rig_start_with_tools(NULL);
    json_t *o = rig_json(path, asked(one_tool, rig_calls));
    ck_assert_str_eq(json_text(o, "type"), "message");
    ck_assert_str_eq(json_text(o, "model"), "claude-x");
    ck_assert_int_eq(strncmp(json_text(o, "id"), "msg_", 4), 0);
    ck_assert_str_eq(json_text(o, "content/0/thinking"), "so");
    ck_assert_int_gt((int)strlen(json_text(o, "content/0/signature")), 0);
    ck_assert_str_eq(json_text(o, "content/1/text"), "Yes.");
    ck_assert_str_eq(json_text(o, "content/2/name"), "f");
    ck_assert(json_is_number(json_at(o, "content/2/input/a")));
    ck_assert_str_eq(json_text(o, "stop_reason"), "tool_use");
    ck_assert(json_is_null(json_at(o, "stop_sequence")));
    ck_assert(json_is_string(json_at(o, "hearth/receipt")));
    json_decref(o);
}
END_TEST

/* What an answer called and what the call gave makes the next prompt longer, and nothing else. */
START_TEST(a_turn_goes_on_from_the_last_one)
{
    static const char turn[] =
        "{\"model\":\"m\",\"max_tokens\":8,\"messages\":[{\"role\":\"user\",\"content\":%s},"
        "{\"role\":\"system\",\"content\":\"cwd\"}%s]%s}";
    static const char next[] =
        ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"Yes.\"},{\"type\":"
        "\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{\"a\":1}}]},{\"role\":\"user\","
        "\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":\"r\"}]}";
    static const char text[] = "def f(): return 1 # and so on, for a page of tokens at the least: "
                               "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22";
    char content[512], body[2048];
    rig_start_with_tools(NULL);
    snprintf(content, sizeof(content),
             "[{\"type\":\"text\",\"text\":\"%s\",\"cache_control\":{\"type\":\"ephemeral\"}}]",
             text);
    snprintf(body, sizeof(body), turn, content, "", one_tool);
    json_t *first = rig_json(path, body);
    json_int_t prompt = json_number(first, "usage/input_tokens");
    snprintf(content, sizeof(content), "\"%s\"", text);
    snprintf(body, sizeof(body), turn, content, next, one_tool);
    json_t *second = rig_json(path, body);
    json_int_t cached = json_number(second, "usage/cache_read_input_tokens");
    ck_assert_int_ge(cached, prompt - 32 - 5); /* but for a page, and where the answer began */
    /* Where it left the prompt before, which went on with the answer; a stream says so at its end. */
    json_int_t broke = json_number(second, "usage/prefix_break");
    ck_assert_msg(broke >= cached && broke <= prompt, "%lld of %lld", broke, prompt);
    body[strlen(body) - 1] = 0;
    strcat(body, ",\"stream\":true}");
    json_t *events = http_stream(&rig_gate, path, body);
    json_t *usage = json_at(json_last(events, 1), "usage");
    ck_assert_int_eq(json_number(usage, "prefix_break"),
                     json_number(usage, "input_tokens") +
                         json_number(usage, "cache_read_input_tokens"));
    json_decref(events);
    json_decref(first);
    json_decref(second);
}
END_TEST

START_TEST(tokens_are_counted)
{
    rig_start_with_tools(NULL);
    json_t *o = rig_json(path, asked(one_tool, rig_calls));
    json_t *n = rig_json("/v1/messages/count_tokens?beta=true", asked(one_tool, ""));
    ck_assert_int_eq(json_number(n, "input_tokens"),
                     json_number(o, "usage/input_tokens") +
                         json_number(o, "usage/cache_read_input_tokens"));
    json_decref(n);
    json_decref(o);
}
END_TEST

START_TEST(a_stop_sequence_is_named)
{
    json_t *o = rig_json(path, asked(",\"stop_sequences\":[\"x\",\"two\"]",
                                     ",\"grammar\":\"root ::= \\\"one two three\\\"\""));
    ck_assert_str_eq(json_text(o, "content/0/text"), "one ");
    ck_assert_str_eq(json_text(o, "stop_reason"), "stop_sequence");
    ck_assert_str_eq(json_text(o, "stop_sequence"), "two");
    json_decref(o);
}
END_TEST

static void assert_error(json_t *o, const char *type, const char *message)
{
    ck_assert_str_eq(json_text(o, "type"), "error");
    ck_assert_str_eq(json_text(o, "error/type"), type);
    ck_assert_msg(strstr(json_text(o, "error/message"), message) != NULL, "%s",
                  json_text(o, "error/message"));
    json_decref(o);
}

static const char *const wrong[][3] = {
    {"{\"messages\":[{\"role\":\"user\"", "invalid_request_error", "invalid JSON"},
    {"[]", "invalid_request_error", "must be a JSON object"},
    {"{}", "invalid_request_error", "messages: at least one"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{}}]}]}",
     "invalid_request_error", "'image' is not supported"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":\"many\"}",
     "invalid_request_error", "'max_tokens' must be a whole number"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"name\":\"f\","
     "\"input_schema\":{}}]}",
     "invalid_request_error", "does not write tools"},
};

START_TEST(errors_have_anthropic_s_form)
{
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_error(http_json(&rig_gate, path, wrong[i][0], 400), wrong[i][1], wrong[i][2]);
    assert_error(http_json(&rig_gate, path, NULL, 405), "invalid_request_error", "POST");
}
END_TEST

/* Claude Code knows an overflow by this line, and shortens its conversation. The prompt has 50 KB of
 * text and 32 KB of tools. */
START_TEST(an_overflow_is_said_in_anthropic_s_words)
{
    enum { SYSTEM_BYTES = 50000, TOOLS = 64, DESCRIPTION_BYTES = 400 };
    rig_start_with_tools(NULL);
    json_t *o = json_loads(asked("", ""), 0, NULL), *tools = json_array();
    char text[SYSTEM_BYTES + 1], description[DESCRIPTION_BYTES + 1], name[16], want[128];
    for (size_t i = 0; i < SYSTEM_BYTES; i++)
        text[i] = i % 7 ? (char)('a' + i % 23) : ' ';
    text[SYSTEM_BYTES] = 0;
    memcpy(description, text, DESCRIPTION_BYTES);
    description[DESCRIPTION_BYTES] = 0;
    for (int i = 0; i < TOOLS; i++) {
        snprintf(name, sizeof(name), "tool%d", i);
        json_array_append_new(tools, json_pack("{s:s, s:s, s:{s:s, s:{}}}", "name", name,
                                               "description", description, "input_schema", "type",
                                               "object", "properties"));
    }
    json_object_set_new(o, "system", json_string(text));
    json_object_set_new(o, "tools", tools);
    char *body = json_dumps(o, 0);
    json_t *n = rig_json("/v1/messages/count_tokens", body);
    json_t *props = http_json(&rig_gate, "/props", NULL, 200);
    snprintf(want, sizeof(want), "prompt is too long: %d tokens > %d maximum",
             (int)json_number(n, "input_tokens"),
             (int)json_number(props, "default_generation_settings/n_ctx") - 1);
    json_t *e = http_json(&rig_gate, path, body, 400);
    ck_assert_str_eq(json_text(e, "error/message"), want);
    assert_error(e, "invalid_request_error", want);
    free(body);
    json_decref(props);
    json_decref(n);
    json_decref(o);
}
END_TEST

/* More tokens than the context has room for are not refused: the answer ends where it is full. */
START_TEST(max_tokens_are_cut_to_the_context_s_rest)
{
    json_t *props = http_json(&rig_gate, "/props", NULL, 200), *o = NULL;
    json_int_t context = json_number(props, "default_generation_settings/n_ctx"), n = 0;
    char *body = malloc((size_t)context * 2 + 512);
    for (json_int_t words = 1, i = 0; i < 2; i++, words += context - 20 - n) { /* a token each */
        char *at =
            body + sprintf(body, "{\"max_tokens\":32000,\"temperature\":0,\"ignore_eos\":true,"
                                 "\"messages\":[{\"role\":\"user\",\"content\":\"");
        for (json_int_t k = 0; k < words; k++)
            at = stpcpy(at, " x");
        strcpy(at, "\"}]}");
        o = rig_json("/v1/messages/count_tokens", body);
        n = json_number(o, "input_tokens");
        json_decref(o);
    }
    ck_assert_int_gt(n, context - 40);
    o = rig_json(path, body);
    ck_assert_str_eq(json_text(o, "stop_reason"), "model_context_window_exceeded");
    ck_assert_int_eq(json_number(o, "usage/output_tokens"), context - n);
    json_decref(o);
    free(body);
    json_decref(props);
}
END_TEST

/* The status of a request with these headers, over the port. */
static int status_with(const char *headers, const char *want)
{
    int fd = gateway_connect_port(&rig_gate);
    http_send(fd, "POST", "/v1/messages/count_tokens", headers, asked("", ""));
    struct http_answer a = http_receive(fd);
    close(fd);
    if (want)
        assert_error(json_loads(a.body, 0, NULL), want, "");
    int status = a.status;
    http_answer_fini(&a);
    return status;
}

START_TEST(keys_hosts_and_origins_are_checked)
{
    rig_start_with_tools((const char *const[]){"--api-key", "K", NULL});
    ck_assert_int_eq(status_with("", "authentication_error"), 401);
    ck_assert_int_eq(status_with("x-api-key: L\r\n", "authentication_error"), 401);
    ck_assert_int_eq(status_with("x-api-key: K\r\nanthropic-version: 2023-06-01\r\n", NULL), 200);
    ck_assert_int_eq(status_with("Authorization: Bearer K\r\n", NULL), 200);
    ck_assert_int_eq(status_with("x-api-key: K\r\nHost: evil.example\r\n", "permission_error"),
                     403);
    ck_assert_int_eq(
        status_with("x-api-key: K\r\nOrigin: http://evil.example\r\n", "permission_error"), 403);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_messages");
    TCase *tcase = tcase_create("http_messages");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, rig_setup_answers, rig_teardown);
    tcase_add_test(tcase, a_stream_has_anthropic_s_events_in_order);
    tcase_add_test(tcase, a_whole_message_has_the_same_blocks);
    tcase_add_test(tcase, a_turn_goes_on_from_the_last_one);
    tcase_add_test(tcase, tokens_are_counted);
    tcase_add_test(tcase, a_stop_sequence_is_named);
    tcase_add_test(tcase, errors_have_anthropic_s_form);
    tcase_add_test(tcase, an_overflow_is_said_in_anthropic_s_words);
    tcase_add_test(tcase, max_tokens_are_cut_to_the_context_s_rest);
    tcase_add_test(tcase, keys_hosts_and_origins_are_checked);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
