/* hearth-http as programs that know OpenAI's API see it: completions and chats. */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

START_TEST(a_v1_completion_has_openai_s_form)
{
    char *want = rig_library_text("def g(", 1.0f, 11, 16);
    json_t *o = rig_json("/v1/completions", "{\"model\":\"hearth code 5M\",\"prompt\":\"def g(\","
                                            "\"seed\":11,\"logprobs\":2}");
    ck_assert_str_eq(json_text(o, "choices/0/text"), want);
    ck_assert_str_eq(json_text(o, "object"), "text_completion");
    ck_assert_str_eq(json_text(o, "choices/0/finish_reason"), "length");
    ck_assert_int_eq(json_number(o, "usage/completion_tokens"), 16);
    ck_assert_int_eq(json_number(o, "usage/total_tokens"),
                     16 + json_number(o, "usage/prompt_tokens"));
    ck_assert_uint_eq(json_array_size(json_at(o, "choices/0/logprobs/tokens")), 16);
    ck_assert_uint_ge(json_object_size(json_at(o, "choices/0/logprobs/top_logprobs/0")), 2);
    json_decref(o);
    o = rig_json("/v1/completions", "{\"prompt\":\"def g(\",\"seed\":11,\"echo\":true,\"n\":2}");
    ck_assert_uint_eq(json_array_size(json_at(o, "choices")), 2);
    ck_assert_int_eq(strncmp(json_text(o, "choices/0/text"), "def g(", 6), 0);
    ck_assert_str_eq(json_text(o, "choices/0/text") + 6, want);
    json_decref(o);
    free(want);
    o = rig_json("/v1/completions", "{\"prompt\":\"a\\u0000b\",\"max_tokens\":1,\"echo\":true}");
    const json_t *text = json_at(o, "choices/0/text");
    ck_assert_uint_ge(json_string_length(text), 3);
    ck_assert_int_eq(memcmp(json_string_value(text), "a\0b", 3), 0);
    json_decref(o);
}
END_TEST

START_TEST(a_v1_stream_ends_with_usage_and_done)
{
    json_t *events =
        http_stream(&rig_gate, "/v1/completions",
                    "{\"prompt\":[\"x =\",\"y =\"],\"max_tokens\":9,\"seed\":2,\"stream\":true,"
                    "\"stream_options\":{\"include_usage\":true}}");
    ck_assert_str_eq(json_string_value(json_last(events, 0)), "[DONE]");
    ck_assert_int_eq(json_number(json_last(events, 1), "usage/completion_tokens"), 18);
    ck_assert_uint_eq(json_array_size(json_at(json_last(events, 1), "choices")), 0);
    int ends[2] = {0};
    for (size_t i = 0; i + 2 < json_array_size(events); i++) {
        json_t *e = json_array_get(events, i);
        ck_assert(json_is_null(json_at(e, "usage")));
        if (json_is_string(json_at(e, "choices/0/finish_reason")))
            ends[json_number(e, "choices/0/index")]++;
    }
    ck_assert_int_eq(ends[0], 1);
    ck_assert_int_eq(ends[1], 1);
    json_decref(events);
}
END_TEST

/* Does the text go on with the token at this character? A part of a character is not looked for. */
static bool stands_at(const char *text, json_int_t offset, const char *token)
{
    for (; offset && *text; offset--)
        do
            text++;
        while ((*text & 0xc0) == 0x80);
    return strstr(token, "\xef\xbf\xbd") || strncmp(text, token, strlen(token)) == 0;
}

START_TEST(a_token_s_offset_counts_characters)
{
    static const char options[] = "\"prompt\":\"# \xc3\xa9 \xc3\xbc \xe6\x97\xa5 \","
                                  "\"temperature\":0,\"max_tokens\":40,\"logprobs\":0,"
                                  "\"stop\":[\"utf8, but\"]";
    char body[512];
    snprintf(body, sizeof(body), "{%s}", options);
    json_t *whole = rig_json("/v1/completions", body);
    const char *text = json_text(whole, "choices/0/text");
    json_t *tokens = json_at(whole, "choices/0/logprobs/tokens");
    json_t *offsets = json_at(whole, "choices/0/logprobs/text_offset");
    ck_assert_msg(strstr(text, "\xe2\x80\x93") != NULL, "%s", text); /* of three tokens */
    ck_assert_uint_eq(json_array_size(offsets), json_array_size(tokens));
    for (size_t i = 0; i < json_array_size(tokens); i++)
        ck_assert_msg(stands_at(text, json_integer_value(json_array_get(offsets, i)),
                                json_string_value(json_array_get(tokens, i))),
                      "token %zu of %s", i, text);
    snprintf(body, sizeof(body), "{%s,\"stream\":true}", options);
    json_t *events = http_stream(&rig_gate, "/v1/completions", body);
    size_t n = 0;
    for (size_t i = 0; i + 1 < json_array_size(events); i++) {
        json_t *of = json_at(json_array_get(events, i), "choices/0/logprobs/text_offset");
        for (size_t k = 0; k < json_array_size(of); k++, n++)
            ck_assert_int_eq(json_integer_value(json_array_get(of, k)),
                             json_integer_value(json_array_get(offsets, n)));
    }
    ck_assert_uint_eq(n, json_array_size(offsets));
    json_decref(events);
    json_decref(whole);
}
END_TEST

START_TEST(a_suffix_makes_a_v1_completion_an_infill)
{
    json_t *o =
        rig_json("/v1/completions", "{\"prompt\":\"def add(a, b):\\n    return \",\"suffix\":"
                                    "\"\\n\\nprint(add(1, 2))\\n\",\"temperature\":0}");
    json_t *infill =
        rig_json("/infill", "{\"input_prefix\":\"def add(a, b):\\n    return \",\"input_suffix\":"
                            "\"\\n\\nprint(add(1, 2))\\n\",\"temperature\":0,\"n_predict\":16}");
    ck_assert_str_eq(json_text(o, "choices/0/text"), json_text(infill, "content"));
    json_decref(o);
    json_decref(infill);
}
END_TEST

/* Of a prompt with a suffix the context takes a part, and each answer would repeat all of it. */
START_TEST(answers_repeat_no_more_than_a_body_holds)
{
    enum { MOST = 100000, ANSWERS = 8 }; /* the rig's --max-body */
    static char body[MOST];
    for (int more = 0; more < 2; more++) {
        snprintf(body, sizeof(body),
                 "{\"prompt\":\"%0*d\",\"suffix\":\"x\",\"max_tokens\":1,\"echo\":true,\"n\":%d}",
                 MOST / ANSWERS + more, 0, ANSWERS);
        struct http_answer a = http_ask(&rig_gate, "/v1/completions", body);
        ck_assert_int_eq(a.status, more ? 400 : 200);
        if (more)
            ck_assert_ptr_nonnull(strstr(a.body, "'echo' would repeat 100008 bytes"));
        http_answer_fini(&a);
    }
}
END_TEST

/* ---- chat: the bundled model has no template, so the gateway is told one --------------------- */

static const char talk[] =
    "\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"def f():\"}]}]";

static char *talk_with(const char *more)
{
    static char body[4096];
    snprintf(body, sizeof(body), "{%s%s}", talk, more);
    return body;
}

START_TEST(a_template_makes_a_prompt)
{
    json_t *o = rig_json("/apply-template", talk_with(""));
    ck_assert_str_eq(json_text(o, "prompt"),
                     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\ndef "
                     "f():<|im_end|>\n<|im_start|>assistant\n");
    json_decref(o);
}
END_TEST

START_TEST(a_chat_is_its_template_s_completion)
{
    json_t *o =
        rig_json("/v1/chat/completions",
                 talk_with(",\"max_tokens\":20,\"seed\":5,\"logprobs\":true,\"top_logprobs\":3,"
                           "\"tools\":null,\"tool_choice\":\"auto\""));
    json_t *prompt = rig_json("/apply-template", talk_with(""));
    json_t *request = json_pack("{s:O, s:i, s:i, s:f}", "prompt", json_at(prompt, "prompt"),
                                "max_tokens", 20, "seed", 5, "temperature", 1.0);
    char *body = json_dumps(request, 0);
    json_t *same = rig_json("/v1/completions", body);
    ck_assert_str_eq(json_text(o, "choices/0/message/content"), json_text(same, "choices/0/text"));
    ck_assert_str_eq(json_text(o, "choices/0/message/role"), "assistant");
    ck_assert_str_eq(json_text(o, "object"), "chat.completion");
    ck_assert_uint_eq(json_array_size(json_at(o, "choices/0/logprobs/content")), 20);
    ck_assert_uint_eq(json_array_size(json_at(o, "choices/0/logprobs/content/0/top_logprobs")), 3);
    ck_assert_int_eq(json_number(o, "usage/completion_tokens"), 20);
    free(body);
    json_decref(o);
    json_decref(prompt);
    json_decref(request);
    json_decref(same);
}
END_TEST

START_TEST(a_prediction_changes_no_answer_and_a_prefix_break_is_reported)
{
    static const char options[] = ",\"max_tokens\":60,\"temperature\":0%s";
    char more[256], body[2048];
    snprintf(more, sizeof(more), options, "");
    json_t *plain = rig_json("/v1/chat/completions", talk_with(more));
    json_t *prediction = json_pack("{s:s, s:[{s:s, s:O}]}", "type", "content", "content", "type",
                                   "text", "text", json_at(plain, "choices/0/message/content"));
    char *text = json_dumps(prediction, JSON_COMPACT);
    snprintf(body, sizeof(body), ",\"max_tokens\":60,\"temperature\":0,\"prediction\":%s", text);
    json_t *drafted = rig_json("/v1/chat/completions", talk_with(body));
    ck_assert_str_eq(json_text(drafted, "choices/0/message/content"),
                     json_text(plain, "choices/0/message/content"));
    json_int_t prompt = json_number(drafted, "usage/prompt_tokens");
    ck_assert_int_eq(json_number(drafted, "usage/prompt_tokens_details/prefix_break"), prompt);
    snprintf(more, sizeof(more), options, ",\"prediction\":{\"content\":[7]}");
    json_decref(http_json(&rig_gate, "/v1/chat/completions", talk_with(more), 400));
    free(text);
    json_decref(prediction);
    json_decref(plain);
    json_decref(drafted);
}
END_TEST

START_TEST(a_chat_streams_deltas)
{
    json_t *whole = rig_json("/v1/chat/completions", talk_with(",\"max_tokens\":30,\"seed\":5"));
    json_t *events = http_stream(&rig_gate, "/v1/chat/completions",
                                 talk_with(",\"max_tokens\":30,\"seed\":5,\"stream\":true,\"n\":1,"
                                           "\"stream_options\":{\"include_usage\":true}"));
    char *text = json_joined(events, "choices/0/delta/content");
    ck_assert_str_eq(text, json_text(whole, "choices/0/message/content"));
    ck_assert_str_eq(json_text(events, "0/choices/0/delta/role"), "assistant");
    ck_assert_str_eq(json_string_value(json_last(events, 0)), "[DONE]");
    ck_assert_int_eq(json_number(json_last(events, 1), "usage/completion_tokens"), 30);
    ck_assert_str_eq(json_text(json_last(events, 2), "choices/0/finish_reason"), "length");
    free(text);
    json_decref(whole);
    json_decref(events);
}
END_TEST

START_TEST(a_chat_answers_in_json)
{
    json_t *o =
        rig_json("/v1/chat/completions",
                 talk_with(",\"max_tokens\":200,\"temperature\":0,\"response_format\":{\"type\":"
                           "\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"enum\":"
                           "[\"yes\",\"no\"]}}}"));
    const char *text = json_text(o, "choices/0/message/content");
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    const char *word = json_is_string(value) ? json_string_value(value) : "";
    ck_assert_msg(strcmp(word, "yes") == 0 || strcmp(word, "no") == 0, "%s", text);
    json_decref(value);
    ck_assert_str_eq(json_text(o, "choices/0/finish_reason"), "stop");
    json_decref(o);
}
END_TEST

/* ---- tools: a grammar makes the bundled model call one ---------------------------------------- */

static const char called[] =
    ",\"max_tokens\":200,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
    "\"parameters\":{}}}]%s%s";

START_TEST(calls_and_reasoning_stand_apart)
{
    char more[1024];
    rig_start_with_tools(NULL);
    snprintf(more, sizeof(more), called, rig_calls, "");
    json_t *o = rig_json("/v1/chat/completions", talk_with(more));
    const char *call = "choices/0/message/tool_calls/0/function";
    ck_assert_str_eq(json_text(o, "choices/0/message/content"), "Yes.");
    ck_assert_str_eq(json_text(o, "choices/0/message/reasoning_content"), "so");
    ck_assert_str_eq(json_text(json_at(o, call), "name"), "f");
    ck_assert_int_eq(strncmp(json_text(json_at(o, call), "arguments"), "{\"a\": ", 6), 0);
    ck_assert_uint_eq(strlen(json_text(o, "choices/0/message/tool_calls/0/id")), 9);
    ck_assert_str_eq(json_text(o, "choices/0/finish_reason"), "tool_calls");
    ck_assert_ptr_null(json_at(o, "hearth/unparsed"));

    snprintf(more, sizeof(more), called, rig_calls, ",\"stream\":true");
    json_t *events = http_stream(&rig_gate, "/v1/chat/completions", talk_with(more));
    char *content = json_joined(events, "choices/0/delta/content");
    char *reasoning = json_joined(events, "choices/0/delta/reasoning_content");
    char *name = json_joined(events, "choices/0/delta/tool_calls/0/function/name");
    char *arguments = json_joined(events, "choices/0/delta/tool_calls/0/function/arguments");
    ck_assert_str_eq(content, "Yes.");
    ck_assert_str_eq(reasoning, "so");
    ck_assert_str_eq(name, "f");
    ck_assert_str_eq(arguments, json_text(json_at(o, call), "arguments"));
    ck_assert_str_eq(json_text(json_last(events, 1), "choices/0/finish_reason"), "tool_calls");
    free(content);
    free(reasoning);
    free(name);
    free(arguments);
    json_decref(events);
    json_decref(o);
}
END_TEST

START_TEST(each_choice_has_calls_of_its_own)
{
    char more[1024], path[64], first[16] = "";
    rig_start_with_tools(NULL);
    snprintf(more, sizeof(more), called, rig_calls, ",\"n\":3,\"model\":\"gpt-x\"");
    json_t *o = rig_json("/v1/chat/completions", talk_with(more));
    ck_assert_str_eq(json_text(o, "model"), "gpt-x");
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "choices/%d/message", i);
        json_t *message = json_at(o, path);
        ck_assert_str_eq(json_text(message, "content"), "Yes.");
        ck_assert_str_eq(json_text(message, "reasoning_content"), "so");
        ck_assert_str_eq(json_text(message, "tool_calls/0/function/name"), "f");
        ck_assert_str_ne(json_text(message, "tool_calls/0/id"), first);
        snprintf(first, sizeof(first), "%s", json_text(message, "tool_calls/0/id"));
    }
    json_decref(o);
}
END_TEST

START_TEST(choices_compute_their_prompt_once)
{
    enum { PROMPT = 410, SHARED = 384, CHOICES = 3 };
    char body[8 * PROMPT], *at = stpcpy(body, "{\"prompt\":[5");
    for (int i = 1; i < PROMPT; i++)
        at += sprintf(at, ",%d", 5 + i * 7 % 200);
    sprintf(at, "],\"max_tokens\":4,\"n\":%d}", CHOICES);
    json_t *o = rig_json("/v1/completions", body);
    ck_assert_uint_eq(json_array_size(json_at(o, "choices")), CHOICES);
    ck_assert_int_eq(json_number(o, "usage/prompt_tokens"), PROMPT);
    ck_assert_int_eq(harness_counter(&rig_daemon, "cached_tokens"), (CHOICES - 1) * SHARED);
    json_decref(o);
}
END_TEST

/* Chat completions say it as llama-server does; Ollama has one text for all errors. */
START_TEST(a_chat_beyond_the_context_is_refused_with_both_numbers)
{
    enum { WORDS = 19000 };
    char *body = calloc(1, WORDS * 5 + 128), want[64];
    char *end = stpcpy(body, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (size_t i = 0; i < WORDS; i++)
        end = stpcpy(end, "word ");
    strcpy(end, "\"}]}");
    json_t *o = http_json(&rig_gate, "/v1/chat/completions", body, 400);
    ck_assert_str_eq(json_text(o, "error/type"), "exceed_context_size_error");
    const json_int_t context = json_number(o, "error/n_ctx");
    ck_assert_int_ge(json_number(o, "error/n_prompt_tokens"), WORDS);
    json_decref(o);
    o = http_json(&rig_gate, "/api/chat", body, 400);
    snprintf(want, sizeof(want), "the context holds %d", (int)context);
    ck_assert_msg(strstr(json_text(o, "error"), want) != NULL, "%s", json_text(o, "error"));
    json_decref(o);
    free(body);
}
END_TEST

START_TEST(what_is_not_a_call_is_content_with_a_reason)
{
    char more[1024];
    rig_start_with_tools(NULL);
    snprintf(more, sizeof(more), called, rig_calls, ",\"max_tokens\":32");
    json_t *o = rig_json("/v1/chat/completions", talk_with(more));
    ck_assert_ptr_nonnull(strstr(json_text(o, "choices/0/message/content"), "<tool_call>"));
    ck_assert_ptr_null(json_at(o, "choices/0/message/tool_calls"));
    ck_assert_str_eq(json_text(o, "choices/0/finish_reason"), "length");
    ck_assert_str_eq(json_text(o, "hearth/unparsed"),
                     "the answer ends inside a call: raise max_tokens if it was cut off");
    json_decref(o);
    snprintf(more, sizeof(more), called, rig_calls, ",\"tool_choice\":\"none\"");
    o = rig_json("/v1/chat/completions", talk_with(more));
    ck_assert_ptr_nonnull(strstr(json_text(o, "choices/0/message/content"), "<tool_call>"));
    ck_assert_ptr_null(json_at(o, "choices/0/message/tool_calls"));
    ck_assert_ptr_nonnull(strstr(json_text(o, "hearth/unparsed"), "tool_choice is none"));
    json_decref(o);
}
END_TEST

/* With nothing but the tools: the answer is bound by the form of the template and the schemas. */
START_TEST(a_call_that_is_required_is_made)
{
    static const char more[] =
        ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
        "\"object\",\"properties\":{\"a\":{\"enum\":[\"x\",\"y\"]},\"b\":{\"type\":\"integer\","
        "\"minimum\":1,\"maximum\":9,\"multipleOf\":1000003}},\"required\":[\"a\",\"b\"]}}}],"
        "\"max_tokens\":600,\"temperature\":0,\"parallel_tool_calls\":false,\"thinking_budget_"
        "tokens\":4,"
        "\"tool_choice\":%s";
    static const char *const choices[] = {"\"required\"",
                                          "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
                                          "{\"type\":\"allowed_tools\",\"allowed_tools\":"
                                          "{\"mode\":\"required\",\"tools\":[]}}"};
    rig_start_with_tools(NULL);
    for (int i = 0; i < 3; i++) {
        char members[1024];
        snprintf(members, sizeof(members), more, choices[i]);
        json_t *o = rig_json("/v1/chat/completions", talk_with(members));
        ck_assert_str_eq(json_text(o, "choices/0/finish_reason"), "tool_calls");
        ck_assert_str_eq(json_text(o, "choices/0/message/tool_calls/0/function/name"), "f");
        json_t *a =
            json_loads(json_text(o, "choices/0/message/tool_calls/0/function/arguments"), 0, NULL);
        ck_assert_int_ge(json_integer_value(json_object_get(a, "b")), 1);
        ck_assert_ptr_nonnull(strstr(json_text(o, "hearth/loosened/0"), "multipleOf"));
        ck_assert_ptr_nonnull(strstr(json_text(o, "hearth/unparsed"), "#/b: \"multipleOf\""));
        json_decref(a);
        json_decref(o);
    }
}
END_TEST

START_TEST(a_template_that_passes_tools_over_is_not_given_any)
{
    char more[1024];
    snprintf(more, sizeof(more), called, rig_calls, "");
    json_t *o = http_json(&rig_gate, "/v1/chat/completions", talk_with(more), 400);
    ck_assert_msg(strstr(json_text(o, "error/message"), "does not write tools") != NULL, "%s",
                  json_text(o, "error/message"));
    json_decref(o);
    json_decref(http_json(&rig_gate, "/apply-template", talk_with(more), 400));
    snprintf(more, sizeof(more), called, rig_calls, ",\"tool_choice\":\"none\"");
    json_decref(rig_json("/v1/chat/completions", talk_with(more)));
    json_decref(rig_json("/apply-template", talk_with(more)));
}
END_TEST

START_TEST(a_model_without_a_template_says_so)
{
    struct gateway plain = {0};
    struct harness elsewhere = rig_daemon;
    char directory[] = "/tmp/hearth-http-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(elsewhere.directory, sizeof(elsewhere.directory), "%s", directory);
    gateway_start(&plain, &elsewhere, false, NULL);
    json_t *o = http_json(&plain, "/v1/chat/completions", talk_with(""), 501);
    ck_assert_msg(strstr(json_text(o, "error/message"), "hearth-http --chat-template") != NULL,
                  "%s", json_text(o, "error/message"));
    json_decref(o);
    ck_assert_int_eq(gateway_stop(&plain), 0);
    rmdir(directory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_openai");
    TCase *tcase = tcase_create("http_openai");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, rig_setup_answers, rig_teardown);
    tcase_add_test(tcase, a_v1_completion_has_openai_s_form);
    tcase_add_test(tcase, a_v1_stream_ends_with_usage_and_done);
    tcase_add_test(tcase, a_token_s_offset_counts_characters);
    tcase_add_test(tcase, a_suffix_makes_a_v1_completion_an_infill);
    tcase_add_test(tcase, answers_repeat_no_more_than_a_body_holds);
    tcase_add_test(tcase, a_template_makes_a_prompt);
    tcase_add_test(tcase, a_chat_is_its_template_s_completion);
    tcase_add_test(tcase, a_prediction_changes_no_answer_and_a_prefix_break_is_reported);
    tcase_add_test(tcase, a_chat_streams_deltas);
    tcase_add_test(tcase, a_chat_answers_in_json);
    tcase_add_test(tcase, calls_and_reasoning_stand_apart);
    tcase_add_test(tcase, each_choice_has_calls_of_its_own);
    tcase_add_test(tcase, choices_compute_their_prompt_once);
    tcase_add_test(tcase, a_chat_beyond_the_context_is_refused_with_both_numbers);
    tcase_add_test(tcase, what_is_not_a_call_is_content_with_a_reason);
    tcase_add_test(tcase, a_template_that_passes_tools_over_is_not_given_any);
    tcase_add_test(tcase, a_call_that_is_required_is_made);
    tcase_add_test(tcase, a_model_without_a_template_says_so);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
