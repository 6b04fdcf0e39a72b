/* hearth-http as programs that know OpenAI's Responses see it. */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char path[] = "/v1/responses";

/* A request as Codex makes it, with more members. */
static const char *asked(const char *more, const char *also)
{
    static char body[4096];
    snprintf(
        body, sizeof(body),
        "{\"model\":\"gpt-x\",\"store\":false,\"include\":[\"reasoning.encrypted_content\"],"
        "\"prompt_cache_key\":\"k\",\"client_metadata\":{\"a\":\"b\"},\"tool_choice\":\"auto\","
        "\"parallel_tool_calls\":true,\"input\":[{\"type\":\"message\",\"role\":\"developer\","
        "\"content\":[{\"type\":\"input_text\",\"text\":\"Be brief.\"}]},{\"type\":\"message\","
        "\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"def f():\"}]},"
        "{\"type\":\"unheard_of\"}],\"tools\":[{\"type\":\"web_search\"},{\"type\":\"function\","
        "\"name\":\"f\",\"strict\":false,\"parameters\":{\"type\":\"object\"}},{\"type\":"
        "\"namespace\",\"name\":\"s\",\"tools\":[{\"type\":\"function\",\"name\":\"g\","
        "\"parameters\":{}}]},{\"type\":\"custom\",\"name\":\"p\"}]%s%s}",
        more, also);
    return body;
}

/* A grammar: the model calls a tool with these arguments; to follow other members. */
static const char *calling(const char *name, const char *arguments)
{
    static char more[512];
    snprintf(more, sizeof(more),
             ",\"grammar\":\"root ::= \\\"<tool_call>{\\\\\\\"name\\\\\\\": \\\\\\\"%s\\\\\\\", "
             "\\\\\\\"arguments\\\\\\\": %s}</tool_call>\\\"\"",
             name, arguments);
    return more;
}

/* The stream in words; deltas of one kind that follow each other as one. Checks that the events are
 * numbered. The caller frees. */
static char *in_words(json_t *events)
{
    char *all = calloc(1, 65536), last[64] = "";
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *e = json_array_get(events, i), *delta = json_at(e, "delta");
        char now[64];
        ck_assert_int_eq(json_number(e, "sequence_number"), (json_int_t)i);
        snprintf(now, sizeof(now), "%s", json_text(e, "type") + strlen("response."));
        if (json_at(e, "output_index"))
            sprintf(now + strlen(now), " %d", (int)json_number(e, "output_index"));
        if (json_at(e, "item"))
            sprintf(now + strlen(now), " %.20s", json_text(e, "item/type"));
        if (!delta || strcmp(now, last) != 0) {
            strcat(all, *all ? "\n" : "");
            strcat(all, now);
            strcat(all, delta ? ": " : "");
        }
        strcat(all, delta ? json_string_value(delta) : "");
        strcpy(last, now);
    }
    return all;
}

static const char want_stream[] =
    "created\nin_progress\n"
    "output_item.added 0 reasoning\n%s"
    "output_item.done 0 reasoning\n"
    "output_item.added 1 message\ncontent_part.added 1\noutput_text.delta 1: Yes.\n"
    "output_text.done 1\ncontent_part.done 1\noutput_item.done 1 message\n"
    "output_item.added 2 function_call\nfunction_call_arguments.delta 2: {\"a\": %d}\n"
    "function_call_arguments.done 2\noutput_item.done 2 function_call\ncompleted";

START_TEST(a_stream_has_openai_s_events_in_order)
{
    static const char *const forms[][2] = {
        {"", "content_part.added 0\nreasoning_text.delta 0: so\nreasoning_text.done 0\n"
             "content_part.done 0\n"},
        {",\"reasoning\":{\"summary\":\"auto\"}",
         "reasoning_summary_part.added 0\nreasoning_summary_text.delta 0: so\n"
         "reasoning_summary_text.done 0\nreasoning_summary_part.done 0\n"}};
    char more[1024], want[2048];
    rig_start_with_tools(NULL);
    for (size_t i = 0; i < 2; i++) {
        snprintf(more, sizeof(more), "%s,\"stream\":true%s", rig_calls, forms[i][0]);
        json_t *events = http_stream(&rig_gate, path, asked(more, ""));
        json_t *whole = rig_json(path, asked(rig_calls, forms[i][0]));
        json_t *end = json_at(json_last(events, 0), "response");
        char *words = in_words(events);
        json_t *arguments = json_loads(json_text(whole, "output/2/arguments"), 0, NULL);
        snprintf(want, sizeof(want), want_stream, forms[i][1], (int)json_number(arguments, "a"));
        ck_assert_str_eq(words, want);
        ck_assert_str_eq(json_text(end, "model"), "gpt-x");
        ck_assert_str_eq(json_text(end, "status"), "completed");
        ck_assert_uint_eq(json_array_size(json_at(end, "output")), 3);
        ck_assert_str_eq(json_text(end, "output/0/content/0/text"), "so");
        ck_assert_uint_eq(json_array_size(json_at(end, "output/0/summary")), i);
        ck_assert_str_eq(json_text(end, "output/1/content/0/text"), "Yes.");
        ck_assert_str_eq(json_text(end, "output/2/name"), "f");
        ck_assert_str_eq(json_text(end, "output/2/arguments"),
                         json_text(whole, "output/2/arguments"));
        ck_assert_int_eq(json_number(end, "usage/output_tokens"),
                         json_number(whole, "usage/output_tokens"));
        ck_assert_int_gt(json_number(end, "usage/output_tokens_details/reasoning_tokens"), 0);
        ck_assert_int_eq(json_number(whole, "usage/input_tokens_details/prefix_break"),
                         json_number(whole, "usage/input_tokens")); /* the same once more */
        ck_assert(json_is_integer(json_at(end, "usage/input_tokens_details/prefix_break")));
        json_decref(arguments);
        json_decref(whole);
        json_decref(events);
        free(words);
    }
}
END_TEST

START_TEST(a_call_names_the_tool_as_the_client_does)
{
    rig_start_with_tools(NULL);
    json_t *o = rig_json(path, asked(calling("s__g", "{}"), ""));
    ck_assert_str_eq(json_text(o, "output/0/name"), "g");
    ck_assert_str_eq(json_text(o, "output/0/namespace"), "s");
    ck_assert_uint_eq(strlen(json_text(o, "output/0/call_id")), 9);
    json_decref(o);
    o = rig_json(path, asked(calling("p", "{\\\\\\\"input\\\\\\\": \\\\\\\"xy\\\\\\\"}"), ""));
    ck_assert_str_eq(json_text(o, "output/0/type"), "custom_tool_call");
    ck_assert_str_eq(json_text(o, "output/0/input"), "xy");
    json_decref(o);
    json_t *events = http_stream(
        &rig_gate, path,
        asked(calling("p", "{\\\\\\\"input\\\\\\\": \\\\\\\"xy\\\\\\\"}"), ",\"stream\":true"));
    char *words = in_words(events);
    ck_assert_str_eq(words, "created\nin_progress\noutput_item.added 0 custom_tool_call\n"
                            "custom_tool_call_input.delta 0: xy\ncustom_tool_call_input.done 0\n"
                            "output_item.done 0 custom_tool_call\ncompleted");
    free(words);
    json_decref(events);
}
END_TEST

START_TEST(an_answer_that_is_cut_is_incomplete)
{
    rig_start_with_tools(NULL);
    json_t *o = rig_json(path, asked(rig_calls, ",\"max_output_tokens\":9"));
    ck_assert_str_eq(json_text(o, "status"), "incomplete");
    ck_assert_str_eq(json_text(o, "incomplete_details/reason"), "max_output_tokens");
    ck_assert_str_eq(json_text(json_last(json_at(o, "output"), 0), "status"), "incomplete");
    json_decref(o);
    char more[1024];
    snprintf(more, sizeof(more), "%s,\"stream\":true", rig_calls);
    json_t *events = http_stream(&rig_gate, path, asked(more, ",\"max_output_tokens\":9"));
    json_t *end = json_last(events, 0), *done = json_last(events, 1);
    ck_assert_str_eq(json_text(end, "type"), "response.incomplete");
    ck_assert_str_eq(json_text(json_last(json_at(end, "response/output"), 0), "status"),
                     "incomplete");
    ck_assert_str_eq(json_text(done, "type"), "response.output_item.done");
    ck_assert_str_eq(json_text(done, "item/status"), "incomplete");
    json_decref(events);
}
END_TEST

START_TEST(a_format_binds_the_answer_and_tokens_are_counted)
{
    static const char format[] =
        "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":"
        "{\"enum\":[\"yes\"]}}}}";
    json_t *o = rig_json(path, format);
    ck_assert_int_eq(strncmp(json_text(o, "output/0/content/0/text"), "\"yes\"", 5), 0);
    json_t *n = rig_json("/v1/responses/input_tokens", format);
    ck_assert_int_eq(json_number(n, "input_tokens"), json_number(o, "usage/input_tokens"));
    json_decref(n);
    json_decref(o);
}
END_TEST

static void assert_error(json_t *o, const char *code, const char *message)
{
    ck_assert_str_eq(json_text(o, "error/code"), code);
    ck_assert_msg(strstr(json_text(o, "error/message"), message) != NULL, "%s",
                  json_text(o, "error/message"));
    json_decref(o);
}

static const char *const wrong[][3] = {
    {"{\"input\":\"x", "invalid_request_error", "invalid JSON"},
    {"{}", "invalid_request_error", "'input' is required"},
    {"{\"input\":\"x\",\"previous_response_id\":\"r\"}", "invalid_request_error",
     "nothing is stored"},
    {"{\"input\":\"x\",\"temperature\":\"hot\"}", "invalid_request_error", "'temperature'"},
};

/* Codex shortens its conversation after a stream that failed with this code. */
START_TEST(an_overflow_fails_the_stream)
{
    enum { BYTES = 20000 };
    char *body = malloc(BYTES + 200);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_error(http_json(&rig_gate, path, wrong[i][0], 400), wrong[i][1], wrong[i][2]);
    for (int stream = 0; stream < 3; stream++) {
        static const char *const begin[] = {"", "\"stream\":true,",
                                            "\"stream\":true,\"temperature\":0.5,\"top_p\":0.25,"
                                            "\"instructions\":\"I\","};
        char *at = body + sprintf(body, "{%s\"input\":\"", begin[stream]);
        for (int i = 0; i < BYTES / 2; i++)
            at = stpcpy(at, "x ");
        strcpy(at, "\"}");
        if (!stream) {
            assert_error(http_json(&rig_gate, path, body, 400), "context_length_exceeded",
                         "tokens");
            continue;
        }
        json_t *events = http_stream(&rig_gate, path, body), *e = json_array_get(events, 0);
        ck_assert_uint_eq(json_array_size(events), 1);
        ck_assert_str_eq(json_text(e, "type"), "response.failed");
        ck_assert_int_eq(json_number(e, "sequence_number"), 0);
        ck_assert_str_eq(json_text(e, "response/status"), "failed");
        const json_t *r = json_at(e, "response"); /* it says what was asked for */
        ck_assert(json_real_value(json_object_get(r, "temperature")) == (stream > 1 ? 0.5 : 1));
        ck_assert(json_real_value(json_object_get(r, "top_p")) == (stream > 1 ? 0.25 : 1));
        ck_assert_int_eq(json_is_string(json_object_get(r, "instructions")), stream > 1);
        assert_error(json_incref(json_at(e, "response")), "context_length_exceeded", "tokens");
        json_decref(events);
    }
    free(body);
}
END_TEST

/* The status of a request with these headers, over the port. */
static int status_with(const char *headers)
{
    int fd = gateway_connect_port(&rig_gate);
    http_send(fd, "POST", "/v1/responses/input_tokens", headers, "{\"input\":\"x\"}");
    struct http_answer a = http_receive(fd);
    close(fd);
    int status = a.status;
    http_answer_fini(&a);
    return status;
}

START_TEST(keys_hosts_and_origins_are_checked)
{
    rig_start_with_tools((const char *const[]){"--api-key", "K", NULL});
    ck_assert_int_eq(status_with(""), 401);
    ck_assert_int_eq(status_with("Authorization: Bearer K\r\n"), 200);
    ck_assert_int_eq(status_with("Authorization: Bearer K\r\nHost: evil.example\r\n"), 403);
    ck_assert_int_eq(status_with("Authorization: Bearer K\r\nOrigin: http://evil.example\r\n"),
                     403);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_responses");
    TCase *tcase = tcase_create("http_responses");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, rig_setup_answers, rig_teardown);
    tcase_add_test(tcase, a_stream_has_openai_s_events_in_order);
    tcase_add_test(tcase, a_call_names_the_tool_as_the_client_does);
    tcase_add_test(tcase, an_answer_that_is_cut_is_incomplete);
    tcase_add_test(tcase, a_format_binds_the_answer_and_tokens_are_counted);
    tcase_add_test(tcase, an_overflow_fails_the_stream);
    tcase_add_test(tcase, keys_hosts_and_origins_are_checked);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
