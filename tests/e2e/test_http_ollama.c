/* hearth-http as programs that know Ollama's interface see it. */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *asked(const char *more, const char *also)
{
    static char body[4096];
    snprintf(body, sizeof(body),
             "{\"model\":\"qwen:latest\",\"keep_alive\":\"5m\",\"messages\":[{\"role\":\"user\","
             "\"content\":\"def f():\"}],\"think\":true,\"tools\":[{\"type\":\"function\","
             "\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}]%s%s}",
             more, also);
    return body;
}

/* The objects of a stream, one a line. */
static json_t *lines_of(const char *path, const char *body)
{
    struct http_answer a = http_ask(&rig_gate, path, body);
    json_t *list = json_array();
    ck_assert_msg(a.status == 200, "%s", a.body);
    ck_assert(a.is_whole);
    ck_assert_ptr_nonnull(strstr(a.headers, "application/x-ndjson"));
    for (char *save = NULL, *line = strtok_r(a.body, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *o = json_loads(line, 0, NULL);
        ck_assert_msg(o != NULL, "no JSON: %s", line);
        json_array_append_new(list, o);
    }
    http_answer_fini(&a);
    return list;
}

START_TEST(a_chat_streams_lines)
{
    rig_start_with_tools(NULL);
    json_t *lines = lines_of("/api/chat", asked(rig_calls, ""));
    json_t *whole = rig_json("/api/chat", asked(rig_calls, ",\"stream\":false"));
    json_t *end = json_last(lines, 0), *call = json_at(json_last(lines, 1), "message/tool_calls/0");
    char *content = json_joined(lines, "message/content");
    char *thinking = json_joined(lines, "message/thinking");
    ck_assert_str_eq(thinking, "so");
    ck_assert_str_eq(content, "Yes.");
    for (size_t i = 0; i + 1 < json_array_size(lines); i++) {
        ck_assert(json_is_false(json_at(json_array_get(lines, i), "done")));
        ck_assert_str_eq(json_text(json_array_get(lines, i), "model"), "qwen:latest");
        ck_assert_str_eq(json_text(json_array_get(lines, i), "message/role"), "assistant");
    }
    ck_assert_str_eq(json_text(call, "function/name"), "f");
    ck_assert(json_is_number(json_at(call, "function/arguments/a")));
    ck_assert(json_is_true(json_at(end, "done")));
    ck_assert_str_eq(json_text(end, "done_reason"), "stop");
    ck_assert_int_eq(json_number(end, "eval_count"), json_number(whole, "eval_count"));
    ck_assert_int_gt(json_number(end, "prompt_eval_count"), 0);
    ck_assert_int_ge(json_number(end, "total_duration"), json_number(end, "eval_duration"));

    ck_assert_str_eq(json_text(whole, "message/content"), content);
    ck_assert_str_eq(json_text(whole, "message/thinking"), thinking);
    ck_assert(
        json_equal(json_at(whole, "message/tool_calls/0/function"), json_at(call, "function")));
    ck_assert(json_is_true(json_at(whole, "done")));
    free(content);
    free(thinking);
    json_decref(whole);
    json_decref(lines);
}
END_TEST

START_TEST(a_prompt_is_completed)
{
    static const char prompt[] =
        "\"model\":\"m\",\"options\":{\"temperature\":0,\"num_predict\":16}";
    char body[512];
    char *want = rig_library_text("def g(", 0, 0, 16);
    snprintf(body, sizeof(body), "{%s,\"prompt\":\"def g(\",\"raw\":true}", prompt);
    json_t *lines = lines_of("/api/generate", body);
    char *got = json_joined(lines, "response");
    ck_assert_str_eq(got, want);
    ck_assert_str_eq(json_text(json_last(lines, 0), "done_reason"), "length");
    free(got);
    free(want);
    json_decref(lines);

    json_t *infill = rig_json("/infill", "{\"input_prefix\":\"def add(a, b):\\n    return \","
                                         "\"input_suffix\":\"\\n\\nprint(add(1, 2))\\n\","
                                         "\"temperature\":0,\"n_predict\":16}");
    snprintf(body, sizeof(body),
             "{%s,\"prompt\":\"def add(a, b):\\n    return \",\"suffix\":\"\\n\\nprint(add(1, "
             "2))\\n\",\"stream\":false}",
             prompt);
    json_t *o = rig_json("/api/generate", body);
    ck_assert_str_eq(json_text(o, "response"), json_text(infill, "content"));
    json_decref(o);
    json_decref(infill);

    snprintf(body, sizeof(body), "{%s,\"prompt\":\"def g(\",\"system\":\"S\",\"stream\":false}",
             prompt);
    o = rig_json("/api/generate", body);
    json_t *chat =
        rig_json("/v1/chat/completions",
                 "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":"
                 "\"user\",\"content\":\"def g(\"}],\"temperature\":0,\"max_tokens\":16}");
    ck_assert_str_eq(json_text(o, "response"), json_text(chat, "choices/0/message/content"));
    json_decref(chat);
    json_decref(o);
}
END_TEST

START_TEST(a_prompt_needs_no_template)
{
    static const char prompt[] = "\"model\":\"m\",\"stream\":false,\"prompt\":\"def g(\","
                                 "\"options\":{\"temperature\":0,\"num_predict\":16}";
    char body[512], *want = rig_library_text("def g(", 0, 0, 16);
    snprintf(body, sizeof(body), "{%s}", prompt);
    json_t *o = rig_json("/api/generate", body);
    ck_assert_str_eq(json_text(o, "response"), want);
    json_decref(o);
    free(want);
    snprintf(body, sizeof(body), "{%s,\"system\":\"S\"}", prompt);
    o = http_json(&rig_gate, "/api/generate", body, 501);
    ck_assert_ptr_nonnull(strstr(json_text(o, "error"), "no chat template"));
    json_decref(o);
}
END_TEST

START_TEST(a_format_binds_the_answer)
{
    json_t *o = rig_json("/api/generate", "{\"model\":\"m\",\"prompt\":\"x\",\"stream\":false,"
                                          "\"format\":{\"enum\":[\"yes\"]}}");
    ck_assert_int_eq(strncmp(json_text(o, "response"), "\"yes\"", 5), 0);
    json_decref(o);
}
END_TEST

START_TEST(the_model_is_described)
{
    rig_start_with_tools((const char *const[]){"--alias", "other", "--strict-model", NULL});
    json_t *tags = http_json(&rig_gate, "/api/tags", NULL, 200);
    ck_assert_str_eq(json_text(tags, "models/0/name"), "hearth code 5M");
    ck_assert_str_eq(json_text(tags, "models/1/model"), "other");
    json_decref(tags);
    json_t *ps = http_json(&rig_gate, "/api/ps", NULL, 200);
    ck_assert_str_eq(json_text(ps, "models/0/name"), "hearth code 5M");
    json_decref(ps);
    json_t *version = http_json(&rig_gate, "/api/version", NULL, 200);
    ck_assert(json_is_string(json_at(version, "version")));
    json_decref(version);
    json_t *show = rig_json("/api/show", "{\"model\":\"other:latest\"}");
    json_t *want = json_pack("[s, s, s, s]", "completion", "tools", "thinking", "insert");
    ck_assert(json_equal(json_at(show, "capabilities"), want));
    ck_assert_str_eq(json_text(show, "model_info/general.architecture"), "hearth");
    json_t *props = http_json(&rig_gate, "/props", NULL, 200);
    ck_assert_int_eq(json_number(show, "model_info/hearth.context_length"),
                     json_number(props, "default_generation_settings/n_ctx"));
    ck_assert_ptr_nonnull(strstr(json_text(show, "template"), "<tool_call>"));
    ck_assert(json_is_true(json_at(props, "chat_template_caps/supports_tool_calls")));
    json_decref(props);
    json_decref(want);
    json_decref(show);
    show = http_json(&rig_gate, "/api/show", "{\"model\":\"third\"}", 404);
    ck_assert(json_is_string(json_at(show, "error")));
    json_decref(show);
}
END_TEST

START_TEST(a_tool_without_a_name_is_refused)
{
    json_t *o = http_json(&rig_gate, "/api/chat",
                          "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                          "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":5}}]}",
                          400);
    ck_assert_ptr_nonnull(strstr(json_text(o, "error"), "tools[0] must be"));
    json_decref(o);
}
END_TEST

START_TEST(a_request_without_a_prompt_loads_the_model)
{
    json_t *o = rig_json("/api/generate", "{\"model\":\"m\"}");
    ck_assert_str_eq(json_text(o, "done_reason"), "load");
    ck_assert_str_eq(json_text(o, "response"), "");
    json_decref(o);
    o = rig_json("/api/chat", "{\"model\":\"m\",\"messages\":[],\"keep_alive\":0}");
    ck_assert_str_eq(json_text(o, "done_reason"), "unload");
    ck_assert_str_eq(json_text(o, "message/content"), "");
    json_decref(o);
}
END_TEST

START_TEST(the_root_says_that_it_runs)
{
    int fd = gateway_connect(&rig_gate);
    http_send(fd, "GET", "/", "Accept: */*\r\n", NULL);
    struct http_answer a = http_receive(fd);
    ck_assert_int_eq(a.status, 200);
    ck_assert_str_eq(a.body, "Ollama is running");
    http_answer_fini(&a);
    http_send(fd, "GET", "/", "Accept: text/html,*/*\r\n", NULL);
    a = http_receive(fd);
    ck_assert_int_eq(a.status, 200);
    ck_assert_ptr_nonnull(strstr(a.headers, "text/html"));
    http_answer_fini(&a);
    close(fd);
}
END_TEST

static const char *const wrong[][2] = {
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\"", "invalid JSON"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "'model' is required"},
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"images\":[\"aa\"]}]}",
     "'images' are not supported"},
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"options\":{\"top_k\":"
     "\"x\"}}",
     "'top_k' must be a whole number"},
};

/* The status of a request with these headers, over the port. */
static int status_with(const char *method, const char *path, const char *headers)
{
    int fd = gateway_connect_port(&rig_gate);
    http_send(fd, method, path, headers,
              strcmp(method, "GET") == 0 ? NULL : "{\"model\":\"m\",\"messages\":[]}");
    struct http_answer a = http_receive(fd);
    close(fd);
    int status = a.status;
    http_answer_fini(&a);
    return status;
}

START_TEST(errors_have_ollama_s_form_and_access_is_checked)
{
    static const char *const paths[] = {"/api/tags", "/api/ps", "/api/version", "/"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        json_t *o = http_json(&rig_gate, "/api/chat", wrong[i][0], 400);
        ck_assert_msg(strstr(json_text(o, "error"), wrong[i][1]) != NULL, "%s",
                      json_text(o, "error"));
        json_decref(o);
    }
    rig_start_with_tools((const char *const[]){"--api-key", "K", NULL});
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        ck_assert_int_eq(status_with("GET", paths[i], ""), 401);
        ck_assert_int_eq(status_with("GET", paths[i], "Authorization: Bearer K\r\n"), 200);
        ck_assert_int_eq(
            status_with("GET", paths[i], "Authorization: Bearer K\r\nHost: evil.example\r\n"), 403);
    }
    ck_assert_int_eq(status_with("POST", "/api/chat", ""), 401);
    ck_assert_int_eq(status_with("POST", "/api/chat", "Authorization: Bearer K\r\n"), 200);
    ck_assert_int_eq(status_with("POST", "/api/chat",
                                 "Authorization: Bearer K\r\nOrigin: http://evil.example\r\n"),
                     403);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_ollama");
    TCase *tcase = tcase_create("http_ollama");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, rig_setup_answers, rig_teardown);
    tcase_add_test(tcase, a_chat_streams_lines);
    tcase_add_test(tcase, a_prompt_is_completed);
    tcase_add_test(tcase, a_format_binds_the_answer);
    tcase_add_test(tcase, the_model_is_described);
    tcase_add_test(tcase, a_tool_without_a_name_is_refused);
    tcase_add_test(tcase, a_request_without_a_prompt_loads_the_model);
    tcase_add_test(tcase, the_root_says_that_it_runs);
    tcase_add_test(tcase, errors_have_ollama_s_form_and_access_is_checked);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("http_ollama_base");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, rig_setup, rig_teardown);
    tcase_add_test(tcase, a_prompt_needs_no_template);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
