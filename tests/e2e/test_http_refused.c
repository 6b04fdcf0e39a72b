/* What hearth-http refuses, and in which words. */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOOLS(one) "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[" one "]}"

static const struct refusal {
    const char *path, *body;
    int status;
    const char *type, *says;
} refusals[] = {
    {"/nothing", NULL, 404, "not_found_error", "/nothing"},
    {"/completion", NULL, 405, "invalid_request_error", "POST"},
    {"/health", "{}", 405, "invalid_request_error", "GET"},
    {"/completion", "{\"prompt\":", 400, "invalid_request_error", "invalid JSON at line 1"},
    {"/completion", "[1]", 400, "invalid_request_error", "JSON object"},
    {"/completion", "{}", 400, "invalid_request_error", "'prompt' is required"},
    {"/completion", "{\"prompt\":3}", 400, "invalid_request_error", "'prompt'"},
    {"/completion", "{\"prompt\":[]}", 400, "invalid_request_error", "empty"},
    {"/completion", "{\"prompt\":[99999999]}", 400, "invalid_request_error", "not a token id"},
    {"/completion", "{\"prompt\":[1,-1]}", 400, "invalid_request_error", "not a token id"},
    {"/completion", "{\"prompt\":\"x\",\"temperature\":\"hot\"}", 400, "invalid_request_error",
     "'temperature' must be a number, not a string"},
    {"/completion", "{\"prompt\":\"x\",\"top_p\":2}", 400, "invalid_request_error", "top_p"},
    {"/completion", "{\"prompt\":\"x\",\"n_predict\":1.5}", 400, "invalid_request_error",
     "n_predict"},
    {"/completion", "{\"prompt\":\"x\",\"stream\":1}", 400, "invalid_request_error", "stream"},
    {"/completion", "{\"prompt\":\"x\",\"stop\":[1]}", 400, "invalid_request_error", "stop"},
    {"/completion", "{\"prompt\":\"x\",\"mirostat\":2}", 400, "not_supported_error", "mirostat"},
    {"/completion", "{\"prompt\":\"x\",\"logit_bias\":{\"a\":1}}", 400, "invalid_request_error",
     "not a token id"},
    {"/completion", "{\"prompt\":\"x\",\"logit_bias\":[[99999999,1]]}", 400,
     "invalid_request_error", "99999999"},
    {"/completion", "{\"prompt\":\"x\",\"n_probs\":21}", 400, "invalid_request_error", "n_probs"},
    {"/completion", "{\"prompt\":\"x\",\"grammar\":\"root ::= nothing\"}", 400,
     "invalid_request_error", "nothing"},
    {"/completion", "{\"prompt\":\"x\",\"grammar\":5}", 400, "invalid_request_error", "grammar"},
    {"/completion", "{\"prompt\":\"x\",\"stream\":true,\"grammar\":\"root ::= (\"}", 400,
     "invalid_request_error", "grammar"},
    {"/completion", "{\"prompt\":\"x\",\"json_schema\":{\"type\":\"thing\"}}", 400,
     "invalid_request_error", "json_schema"},
    {"/v1/completions", "{\"prompt\":\"x\",\"response_format\":{\"type\":\"xml\"}}", 400,
     "invalid_request_error", "xml"},
    {"/v1/completions", "{\"prompt\":\"x\",\"response_format\":\"json\"}", 400,
     "invalid_request_error", "response_format"},
    {"/v1/chat/completions", "{}", 400, "invalid_request_error", "'messages' is required"},
    {"/v1/chat/completions", "{\"messages\":\"x\"}", 400, "invalid_request_error", "messages"},
    {"/v1/chat/completions", "{\"messages\":[1]}", 400, "invalid_request_error", "messages"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
     "not_supported_error", "image_url"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":\"required\"}", 400,
     "invalid_request_error", "tool_choice"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"top_logprobs\":3}", 400,
     "invalid_request_error", "top_logprobs"},
    {"/v1/chat/completions", TOOLS("5"), 400, "invalid_request_error", "tools[0] must be"},
    {"/v1/chat/completions", TOOLS("\"x\""), 400, "invalid_request_error", "tools[0] must be"},
    {"/v1/chat/completions", TOOLS("{}"), 400, "invalid_request_error", "tools[0] must be"},
    {"/v1/chat/completions", TOOLS("{\"function\":{\"name\":5}}"), 400, "invalid_request_error",
     "tools[0] must be"},
    {"/apply-template", "{\"messages\":[]}", 400, "invalid_request_error", "messages"},
    {"/infill", "{\"input_prefix\":\"\"}", 400, "invalid_request_error", "input_suffix"},
    {"/infill", "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":[1]}", 400,
     "invalid_request_error", "input_extra"},
    {"/v1/completions", "{\"model\":4,\"prompt\":\"x\"}", 400, "invalid_request_error", "model"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"prediction\":{}}", 400,
     "invalid_request_error", "'prediction' must be"},
    {"/v1/completions", "{\"prompt\":\"x\",\"priority\":\"high\"}", 400, "invalid_request_error",
     "priority"},
    {"/v1/completions", "{\"prompt\":\"x\",\"n\":0}", 400, "invalid_request_error", "n"},
    {"/v1/completions", "{\"prompt\":\"x\",\"logprobs\":\"a\"}", 400, "invalid_request_error",
     "logprobs"},
    {"/tokenize", "{\"content\":1}", 400, "invalid_request_error", "content"},
    {"/detokenize", "{\"tokens\":[\"a\"]}", 400, "invalid_request_error", "tokens"},
};

START_TEST(errors_have_openai_s_form)
{
    const struct refusal *r = &refusals[_i];
    json_t *o = http_json(&rig_gate, r->path, r->body, r->status);
    ck_assert_str_eq(json_text(o, "error/type"), r->type);
    ck_assert_msg(strstr(json_text(o, "error/message"), r->says) != NULL, "%s: %s", r->says,
                  json_text(o, "error/message"));
    json_decref(o);
}
END_TEST

START_TEST(an_unknown_path_is_refused_in_its_dialect)
{
    json_t *o = http_json(&rig_gate, "/api/nothing", NULL, 404);
    ck_assert_str_eq(json_text(o, "error"), "no such path: /api/nothing");
    json_decref(o);
    o = http_json(&rig_gate, "/v1/messages/nothing", "{}", 404);
    ck_assert_str_eq(json_text(o, "type"), "error");
    ck_assert_str_eq(json_text(o, "error/type"), "not_found_error");
    json_decref(o);
}
END_TEST

START_TEST(a_prompt_beyond_the_context_is_refused_with_both_numbers)
{
    char *body = malloc(90000);
    int n = sprintf(body, "{\"prompt\":[5");
    for (int i = 0; i < 40000; i++)
        n += sprintf(body + n, ",5");
    strcpy(body + n, "]}");
    json_t *o = http_json(&rig_gate, "/completion", body, 400);
    ck_assert_str_eq(json_text(o, "error/type"), "exceed_context_size_error");
    ck_assert_int_eq(json_number(o, "error/n_prompt_tokens"), 40001);
    ck_assert_int_gt(json_number(o, "error/n_ctx"), 0);
    json_decref(o);
    free(body);
}
END_TEST

/* The refusal of a text of so many words, a token each. */
static json_t *refused_words(size_t n)
{
    char *body = calloc(1, n * 5 + 32);
    char *end = stpcpy(body, "{\"prompt\":\"");
    for (size_t i = 0; i < n; i++)
        end = stpcpy(end, "word ");
    strcpy(end, "\"}");
    json_t *o = http_json(&rig_gate, "/completion", body, 400);
    free(body);
    return o;
}

START_TEST(a_text_beyond_the_context_reports_its_exact_length_or_none)
{
    json_t *much = refused_words(19000); /* 95 kB: only its beginning is tokenized */
    int64_t context = json_number(much, "error/n_ctx");
    char more[64];
    ck_assert_int_lt(context * 16, 95000);
    snprintf(more, sizeof(more), "the prompt has more than %d tokens, ", (int)context);
    ck_assert_ptr_nonnull(strstr(json_text(much, "error/message"), more));
    ck_assert_ptr_null(json_at(much, "error/n_prompt_tokens"));
    json_t *some = refused_words((size_t)context * 2);
    ck_assert_int_ge(json_number(some, "error/n_prompt_tokens"), context * 2);
    ck_assert_int_le(json_number(some, "error/n_prompt_tokens"), context * 2 + 2);
    json_decref(much);
    json_decref(some);
}
END_TEST

START_TEST(a_body_too_large_is_refused_and_read)
{
    char *body = malloc(600000);
    memset(body, ' ', 599999);
    body[599999] = 0;
    json_t *o = http_json(&rig_gate, "/completion", body, 413);
    ck_assert_ptr_nonnull(strstr(json_text(o, "error/message"), "--max-body"));
    json_decref(o);
    free(body);
    int fd = gateway_connect(&rig_gate); /* and one that waits to be told so */
    http_send(fd, "POST", "/completion", "Expect: 100-continue\r\nContent-Length: 600000\r\n", "");
    struct http_answer a = http_receive(fd);
    ck_assert_int_eq(a.status, 413);
    http_answer_fini(&a);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_refused");
    TCase *tcase = tcase_create("http_refused");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, rig_setup_answers, rig_teardown);
    tcase_add_loop_test(tcase, errors_have_openai_s_form, 0,
                        (int)(sizeof(refusals) / sizeof(refusals[0])));
    tcase_add_test(tcase, an_unknown_path_is_refused_in_its_dialect);
    tcase_add_test(tcase, a_prompt_beyond_the_context_is_refused_with_both_numbers);
    tcase_add_test(tcase, a_text_beyond_the_context_reports_its_exact_length_or_none);
    tcase_add_test(tcase, a_body_too_large_is_refused_and_read);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
