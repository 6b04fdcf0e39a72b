/* hearth-http as its clients see it: every endpoint against a real daemon and the bundled model.
 * Connections are in test_http_connections.c; what goes wrong on the way (drops, slow readers, daemons
 * that die) in test_http_rough.c and test_http_ends.c. */
#include "tests/e2e/gateway.h"
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct harness daemon_;
static struct gateway gate;

static void setup(void)
{
    harness_start(&daemon_, "daemon/models/hearth-code-5m-f16.gguf", NULL);
    gateway_start(&gate, &daemon_, true,
                  (const char *const[]){"--slots", "4", "--chat-template", "chatml", "--max-body",
                                        "100000", "--cors-origin", "http://localhost:3000", NULL});
}

static void teardown(void)
{
    ck_assert_int_eq(gateway_stop(&gate), 0);
    ck_assert_int_eq(access(gate.socket, F_OK), -1);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}

static json_t *ask(const char *path, const char *body)
{
    return http_json(&gate, path, body, 200);
}

/* The library's answer to the same. The caller frees. */
static char *library_text(const char *prompt, float temperature, uint64_t seed, uint32_t n)
{
    struct hearth *h = harness_connect(&daemon_, 1, NULL);
    const struct hearth_event *e;
    struct hearth_request r;
    char *text = calloc(1, 65536);
    hearth_request_init(&r, sizeof r);
    r.text = prompt;
    r.text_bytes = strlen(prompt);
    r.temperature = temperature;
    r.seed = seed;
    r.max_tokens = n;
    ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
    while (hearth_next(h, 0, &e, 60000) == 1 && e->kind != HEARTH_DONE)
        strcat(text, e->text);
    hearth_close(h);
    return text;
}

/* ---- llama-server's endpoints ---------------------------------------------------------------- */

START_TEST(a_completion_is_what_the_library_says)
{
    char *want = library_text("def read_lines(path):", 0.6f, 7, 40);
    json_t *o = ask("/completion",
                    "{\"prompt\":\"def read_lines(path):\",\"n_predict\":40,\"seed\":7,"
                    "\"temperature\":0.6,\"samplers\":[\"temperature\"],\"return_tokens\":true}");
    ck_assert_str_eq(json_text(o, "content"), want);
    ck_assert(json_is_true(json_at(o, "stop")));
    ck_assert_str_eq(json_text(o, "stop_type"), "limit");
    ck_assert_int_eq(json_number(o, "tokens_predicted"), 40);
    ck_assert_uint_eq(json_array_size(json_at(o, "tokens")), 40);
    ck_assert_int_eq(json_number(o, "generation_settings/seed"), 7);
    ck_assert_int_eq(json_number(o, "timings/predicted_n"), 40);
    ck_assert_int_gt(json_number(o, "tokens_evaluated"), 0);
    ck_assert_int_eq(strncmp(json_text(o, "hearth/receipt"), "hearth1:", 8), 0);
    json_decref(o);
    free(want);
}
END_TEST

/* Joins what the events say at `path`. The caller frees. */
static char *joined(json_t *events, const char *path)
{
    char *text = calloc(1, 1 << 20);
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *v = json_at(json_array_get(events, i), path);
        if (json_is_string(v))
            strcat(text, json_string_value(v));
    }
    return text;
}

static json_t *events_of(const char *path, const char *body)
{
    struct http_answer a = http_ask(&gate, path, body);
    ck_assert_msg(a.status == 200, "%s", a.body);
    ck_assert(a.is_whole);
    ck_assert_ptr_nonnull(strstr(a.headers, "text/event-stream"));
    json_t *events = http_events(&a);
    http_answer_fini(&a);
    return events;
}

static json_t *last_of(json_t *events, size_t back)
{
    return json_array_get(events, json_array_size(events) - 1 - back);
}

START_TEST(a_stream_is_the_whole_in_pieces)
{
    /* What is there already comes as one piece, of 256 tokens at most. */
    static const char options[] = "\"prompt\":\"import os\\n\\ndef "
                                  "\",\"n_predict\":600,\"seed\":3,\"logit_bias\":[[2,false]]";
    char whole[512], streamed[512];
    snprintf(whole, sizeof whole, "{%s}", options);
    snprintf(streamed, sizeof streamed, "{%s,\"stream\":true}", options);
    json_t *one = ask("/completion", whole), *events = events_of("/completion", streamed);
    char *text = joined(events, "content");
    ck_assert_str_eq(text, json_text(one, "content"));
    ck_assert_uint_gt(json_array_size(events), 2);
    ck_assert(json_is_false(json_at(json_array_get(events, 0), "stop")));
    ck_assert(json_is_true(json_at(last_of(events, 0), "stop")));
    ck_assert_int_eq(json_number(last_of(events, 0), "tokens_predicted"), 600);
    free(text);
    json_decref(one);
    json_decref(events);
}
END_TEST

START_TEST(a_prompt_may_be_tokens_texts_or_both)
{
    json_t *t = ask("/tokenize", "{\"content\":\"def main():\",\"add_special\":true}");
    char *ids = json_dumps(json_at(t, "tokens"), JSON_COMPACT), body[2048];
    json_t *as_text =
        ask("/completion", "{\"prompt\":\"def main():\",\"n_predict\":8,\"temperature\":0}");
    snprintf(body, sizeof body, "{\"prompt\":%s,\"n_predict\":8,\"temperature\":0}", ids);
    json_t *as_ids = ask("/completion", body);
    ck_assert_str_eq(json_text(as_text, "content"), json_text(as_ids, "content"));
    snprintf(body, sizeof body,
             "{\"prompt\":[%s,\"def main():\"],\"n_predict\":8,\"temperature\":0}", ids);
    json_t *both = ask("/completion", body);
    ck_assert_uint_eq(json_array_size(both), 2);
    ck_assert_str_eq(json_text(both, "0/content"), json_text(both, "1/content"));
    json_t *mixed = ask("/completion", "{\"prompt\":[\"def\",\" main\",58,\"x\"],\"n_predict\":1}");
    ck_assert_int_gt(json_number(mixed, "tokens_evaluated"), 2);
    free(ids);
    json_decref(t);
    json_decref(as_text);
    json_decref(as_ids);
    json_decref(both);
    json_decref(mixed);
}
END_TEST

START_TEST(stop_texts_end_an_answer_and_are_named)
{
    static const char options[] = "\"prompt\":\"def f(a, b):\",\"n_predict\":40,\"temperature\":0";
    char body[512], stop[8] = "";
    snprintf(body, sizeof body, "{%s}", options);
    json_t *all = ask("/completion", body);
    const char *text = json_text(all, "content"), *at = NULL;
    for (size_t i = 12; !at && i + 4 < strlen(text); i++) /* four letters in the middle of it */
        if (strspn(text + i, "abcdefghijklmnopqrstuvwxyz") >= 4)
            at = text + i;
    ck_assert_msg(at != NULL, "%s", text);
    memcpy(stop, at, 4);
    snprintf(body, sizeof body, "{%s,\"stop\":[\"never seen\",\"%s\"]}", options, stop);
    json_t *cut = ask("/completion", body);
    ck_assert_str_eq(json_text(cut, "stop_type"), "word");
    ck_assert_str_eq(json_text(cut, "stopping_word"), stop);
    ck_assert_uint_eq(strlen(json_text(cut, "content")), (size_t)(strstr(text, stop) - text));
    ck_assert_int_eq(strncmp(json_text(cut, "content"), text, strlen(json_text(cut, "content"))),
                     0);
    json_decref(all);
    json_decref(cut);
}
END_TEST

START_TEST(probabilities_come_with_tokens_and_bytes)
{
    json_t *o = ask("/completion",
                    "{\"prompt\":\"def f(\",\"n_predict\":3,\"temperature\":0,\"n_probs\":4}");
    json_t *list = json_at(o, "completion_probabilities");
    char text[256] = "";
    ck_assert_uint_eq(json_array_size(list), 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *p = json_array_get(list, i);
        ck_assert_uint_eq(json_array_size(json_at(p, "top_logprobs")), 4);
        ck_assert_int_eq(json_number(p, "id"), json_number(p, "top_logprobs/0/id"));
        ck_assert_uint_eq(json_array_size(json_at(p, "bytes")), strlen(json_text(p, "token")));
        strcat(text, json_text(p, "token"));
    }
    ck_assert_str_eq(text, json_text(o, "content"));
    json_decref(o);
}
END_TEST

START_TEST(an_infill_stands_between_prefix_and_suffix)
{
    /* As llama.vim asks: the list of fields names parts of objects. */
    json_t *o = ask(
        "/infill",
        "{\"id_slot\":0,\"input_prefix\":\"import os\\n\\ndef size(path):\\n    return \","
        "\"input_suffix\":\"\\n\\nprint(size('.'))\\n\",\"input_extra\":[{\"text\":\"x = 1\\n\","
        "\"filename\":\"a.py\"}],\"prompt\":\"os\",\"n_predict\":16,\"n_indent\":4,\"top_k\":40,"
        "\"top_p\":0.9,\"samplers\":[\"top_k\",\"top_p\",\"infill\"],\"stream\":false,"
        "\"cache_prompt\":true,\"t_max_prompt_ms\":500,\"t_max_predict_ms\":1000,"
        "\"response_fields\":[\"content\",\"timings/prompt_n\",\"tokens_cached\",\"none\"]}");
    ck_assert_uint_eq(json_object_size(o), 3);
    ck_assert_uint_gt(strlen(json_text(o, "content")), 0);
    ck_assert(json_is_integer(json_object_get(o, "timings/prompt_n")));
    json_t *again =
        ask("/infill",
            "{\"input_prefix\":\"import os\\n\\ndef size(path):\\n    return \","
            "\"input_suffix\":\"\\n\\nprint(size('.'))\\n\",\"input_extra\":[{\"text\":\"x = "
            "1\\n\",\"filename\":\"a.py\"}],\"prompt\":\"os\",\"n_predict\":16,"
            "\"samplers\":[\"infill\"]}");
    ck_assert_int_gt(json_number(again, "timings/cache_n"), 0);
    ck_assert_ptr_nonnull(strstr(json_text(again, "prompt"), "x = 1"));
    json_t *warm = ask("/infill", "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"prompt\":\"\","
                                  "\"n_predict\":0,\"samplers\":[],\"response_fields\":[\"\"]}");
    ck_assert_uint_eq(json_object_size(warm), 0);
    json_decref(o);
    json_decref(again);
    json_decref(warm);
}
END_TEST

START_TEST(several_choices_begin_with_the_likeliest)
{
    json_t *o = ask("/infill", "{\"input_prefix\":\"def f(x):\\n    \",\"input_suffix\":\"\\n\","
                               "\"n_predict\":12,\"n_cmpl\":3,\"seed\":5,"
                               "\"samplers\":[\"top_k\",\"top_p\",\"infill\"]}");
    json_t *greedy =
        ask("/infill", "{\"input_prefix\":\"def f(x):\\n    \",\"input_suffix\":\"\\n\","
                       "\"n_predict\":12,\"temperature\":0}");
    ck_assert_uint_eq(json_array_size(o), 3);
    ck_assert_str_eq(json_text(o, "0/content"), json_text(greedy, "content"));
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(json_number(json_array_get(o, (size_t)i), "index"), i);
    json_decref(o);
    json_decref(greedy);
}
END_TEST

START_TEST(tokens_go_there_and_back)
{
    json_t *o = ask("/tokenize", "{\"content\":\"def \\u00e9:\\n\",\"with_pieces\":true}");
    json_t *list = json_at(o, "tokens"), *ids = json_array();
    ck_assert_uint_gt(json_array_size(list), 2);
    for (size_t i = 0; i < json_array_size(list); i++)
        json_array_append(ids, json_at(json_array_get(list, i), "id"));
    json_t *request = json_pack("{s:o}", "tokens", ids);
    char *body = json_dumps(request, 0);
    json_t *back = ask("/detokenize", body);
    ck_assert_str_eq(json_text(back, "content"), "def \xc3\xa9:\n");
    free(body);
    json_decref(request);
    json_decref(o);
    json_decref(back);
}
END_TEST

START_TEST(it_tells_what_it_serves)
{
    json_t *health = ask("/health", NULL), *models = ask("/v1/models", NULL);
    json_t *props = ask("/props", NULL), *slots = ask("/slots", NULL);
    char path[64];
    ck_assert_str_eq(json_text(health, "status"), "ok");
    ck_assert_str_eq(json_text(models, "object"), "list");
    ck_assert_str_eq(json_text(models, "data/0/id"), "hearth code 5M");
    strcpy(path, "/v1/models/hearth%20code%205M");
    json_t *one = ask(path, NULL);
    ck_assert_str_eq(json_text(one, "object"), "model");
    ck_assert_int_eq(json_number(props, "total_slots"), 4);
    ck_assert_int_gt(json_number(props, "default_generation_settings/n_ctx"), 0);
    ck_assert_uint_eq(json_array_size(slots), 4);
    ck_assert(json_is_false(json_at(slots, "0/is_processing")));
    json_decref(http_json(&gate, "/v1/models/other", NULL, 404));
    json_decref(health);
    json_decref(models);
    json_decref(props);
    json_decref(slots);
    json_decref(one);
}
END_TEST

START_TEST(metrics_count)
{
    json_decref(ask("/completion", "{\"prompt\":\"x = \",\"n_predict\":5,\"logit_bias\":[]}"));
    struct http_answer a = http_ask(&gate, "/metrics", NULL);
    ck_assert_int_eq(a.status, 200);
    static const char *const names[] = {"\nhearth_up 1\n",
                                        "\nhearth_http_requests_total ",
                                        "\nllamacpp:tokens_predicted_total 5\n",
                                        "\nhearth_output_tokens_total 5\n",
                                        "\nhearth_slots_used ",
                                        "model=\"hearth code 5M\""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ck_assert_msg(strstr(a.body, names[i]) != NULL, "no %s", names[i]);
    /* Each line is a comment, or a name, perhaps labels, and a number. */
    for (char *line = strtok(a.body, "\n"); line; line = strtok(NULL, "\n")) {
        char *space = strrchr(line, ' '), *end;
        ck_assert_msg(*line == '#' || (space && (strtod(space, &end), !*end)), "%s", line);
    }
    http_answer_fini(&a);
}
END_TEST

/* ---- OpenAI's -------------------------------------------------------------------------------- */

START_TEST(a_v1_completion_has_openai_s_form)
{
    char *want = library_text("def g(", 1.0f, 11, 16);
    json_t *o = ask("/v1/completions", "{\"model\":\"hearth code 5M\",\"prompt\":\"def g(\","
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
    o = ask("/v1/completions", "{\"prompt\":\"def g(\",\"seed\":11,\"echo\":true,\"n\":2}");
    ck_assert_uint_eq(json_array_size(json_at(o, "choices")), 2);
    ck_assert_int_eq(strncmp(json_text(o, "choices/0/text"), "def g(", 6), 0);
    ck_assert_str_eq(json_text(o, "choices/0/text") + 6, want);
    json_decref(o);
    free(want);
}
END_TEST

START_TEST(a_v1_stream_ends_with_usage_and_done)
{
    json_t *events =
        events_of("/v1/completions",
                  "{\"prompt\":[\"x =\",\"y =\"],\"max_tokens\":9,\"seed\":2,\"stream\":true,"
                  "\"stream_options\":{\"include_usage\":true}}");
    ck_assert_str_eq(json_string_value(last_of(events, 0)), "[DONE]");
    ck_assert_int_eq(json_number(last_of(events, 1), "usage/completion_tokens"), 18);
    ck_assert_uint_eq(json_array_size(json_at(last_of(events, 1), "choices")), 0);
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

START_TEST(a_suffix_makes_a_v1_completion_an_infill)
{
    json_t *o = ask("/v1/completions", "{\"prompt\":\"def add(a, b):\\n    return \",\"suffix\":"
                                       "\"\\n\\nprint(add(1, 2))\\n\",\"temperature\":0}");
    json_t *infill =
        ask("/infill", "{\"input_prefix\":\"def add(a, b):\\n    return \",\"input_suffix\":"
                       "\"\\n\\nprint(add(1, 2))\\n\",\"temperature\":0,\"n_predict\":16}");
    ck_assert_str_eq(json_text(o, "choices/0/text"), json_text(infill, "content"));
    json_decref(o);
    json_decref(infill);
}
END_TEST

/* ---- chat: the bundled model has no template, so the gateway is told one --------------------- */

static const char talk[] =
    "\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"def f():\"}]}]";

static char *talk_with(const char *more)
{
    static char body[1024];
    snprintf(body, sizeof body, "{%s%s}", talk, more);
    return body;
}

START_TEST(a_template_makes_a_prompt)
{
    json_t *o = ask("/apply-template", talk_with(""));
    ck_assert_str_eq(json_text(o, "prompt"),
                     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\ndef "
                     "f():<|im_end|>\n<|im_start|>assistant\n");
    json_decref(o);
}
END_TEST

START_TEST(a_chat_is_its_template_s_completion)
{
    json_t *o = ask("/v1/chat/completions",
                    talk_with(",\"max_tokens\":20,\"seed\":5,\"logprobs\":true,\"top_logprobs\":3,"
                              "\"tools\":null,\"tool_choice\":\"auto\""));
    json_t *prompt = ask("/apply-template", talk_with(""));
    json_t *request = json_pack("{s:O, s:i, s:i, s:f}", "prompt", json_at(prompt, "prompt"),
                                "max_tokens", 20, "seed", 5, "temperature", 1.0);
    char *body = json_dumps(request, 0);
    json_t *same = ask("/v1/completions", body);
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

START_TEST(a_chat_streams_deltas)
{
    json_t *whole = ask("/v1/chat/completions", talk_with(",\"max_tokens\":30,\"seed\":5"));
    json_t *events = events_of("/v1/chat/completions",
                               talk_with(",\"max_tokens\":30,\"seed\":5,\"stream\":true,\"n\":1,"
                                         "\"stream_options\":{\"include_usage\":true}"));
    char *text = joined(events, "choices/0/delta/content");
    ck_assert_str_eq(text, json_text(whole, "choices/0/message/content"));
    ck_assert_str_eq(json_text(events, "0/choices/0/delta/role"), "assistant");
    ck_assert_str_eq(json_string_value(last_of(events, 0)), "[DONE]");
    ck_assert_int_eq(json_number(last_of(events, 1), "usage/completion_tokens"), 30);
    ck_assert_str_eq(json_text(last_of(events, 2), "choices/0/finish_reason"), "length");
    free(text);
    json_decref(whole);
    json_decref(events);
}
END_TEST

START_TEST(a_chat_answers_in_json)
{
    json_t *o =
        ask("/v1/chat/completions",
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

START_TEST(a_model_without_a_template_says_so)
{
    struct gateway plain = {0};
    struct harness elsewhere = daemon_;
    char directory[] = "/tmp/hearth-http-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(elsewhere.directory, sizeof elsewhere.directory, "%s", directory);
    gateway_start(&plain, &elsewhere, false, NULL);
    json_t *o = http_json(&plain, "/v1/chat/completions", talk_with(""), 501);
    ck_assert_msg(strstr(json_text(o, "error/message"), "hearth-http --chat-template") != NULL,
                  "%s", json_text(o, "error/message"));
    json_decref(o);
    ck_assert_int_eq(gateway_stop(&plain), 0);
    rmdir(directory);
}
END_TEST

/* ---- grammars -------------------------------------------------------------------------------- */

START_TEST(a_grammar_is_followed)
{
    json_t *o = ask("/completion", "{\"prompt\":\"x = \",\"n_predict\":20,\"seed\":3,"
                                   "\"grammar\":\"root ::= [0-9] [0-9] \\\".\\\" [a-f]\"}");
    const char *text = json_text(o, "content");
    ck_assert_uint_eq(strlen(text), 4);
    ck_assert_uint_eq(strspn(text, "0123456789"), 2);
    ck_assert_int_eq(text[2], '.');
    ck_assert_str_eq(json_text(o, "stop_type"), "eos");
    json_decref(o);
}
END_TEST

START_TEST(a_schema_is_followed)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"enum\":"
        "[\"x\",\"y\"]}},\"required\":[\"a\",\"b\"],\"additionalProperties\":false}";
    static const char *const forms[][2] = {
        {"/completion", "\"n_predict\":200,\"json_schema\":%s"},
        {"/v1/completions", "\"max_tokens\":200,\"response_format\":{\"type\":\"json_schema\","
                            "\"json_schema\":{\"name\":\"n\",\"schema\":%s}}"},
        {"/v1/completions", "\"max_tokens\":200,\"response_format\":{\"type\":\"json_object\","
                            "\"schema\":%s}"}};
    for (size_t i = 0; i < 3; i++) {
        char options[1024], body[1200];
        snprintf(options, sizeof options, forms[i][1], schema);
        snprintf(body, sizeof body, "{\"prompt\":\"data = \",\"temperature\":0,%s}", options);
        json_t *o = ask(forms[i][0], body);
        const char *text = json_text(o, i ? "choices/0/text" : "content");
        json_t *answer = json_loads(text, 0, NULL);
        ck_assert_msg(json_is_integer(json_at(answer, "a")), "%s", text);
        ck_assert_msg(strlen(json_text(answer, "b")) == 1, "%s", text);
        json_decref(answer);
        json_decref(o);
    }
}
END_TEST

/* ---- what is refused ------------------------------------------------------------------------- */

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
    {"/completion", "{\"prompt\":[99999999]}", 400, "invalid_request_error", "no token id"},
    {"/completion", "{\"prompt\":[1,-1]}", 400, "invalid_request_error", "no token id"},
    {"/completion", "{\"prompt\":\"x\",\"temperature\":\"hot\"}", 400, "invalid_request_error",
     "'temperature' must be a number, not a string"},
    {"/completion", "{\"prompt\":\"x\",\"top_p\":2}", 400, "invalid_request_error", "top_p"},
    {"/completion", "{\"prompt\":\"x\",\"n_predict\":1.5}", 400, "invalid_request_error",
     "n_predict"},
    {"/completion", "{\"prompt\":\"x\",\"stream\":1}", 400, "invalid_request_error", "stream"},
    {"/completion", "{\"prompt\":\"x\",\"stop\":[1]}", 400, "invalid_request_error", "stop"},
    {"/completion", "{\"prompt\":\"x\",\"mirostat\":2}", 400, "not_supported_error", "mirostat"},
    {"/completion", "{\"prompt\":\"x\",\"logit_bias\":{\"a\":1}}", 400, "invalid_request_error",
     "no token id"},
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
     "not_supported_error", "tool_choice"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"top_logprobs\":3}", 400,
     "invalid_request_error", "top_logprobs"},
    {"/apply-template", "{\"messages\":[]}", 400, "invalid_request_error", "messages"},
    {"/infill", "{\"input_prefix\":\"\"}", 400, "invalid_request_error", "input_suffix"},
    {"/infill", "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":[1]}", 400,
     "invalid_request_error", "input_extra"},
    {"/v1/completions", "{\"model\":\"gpt-4\",\"prompt\":\"x\"}", 404, "not_found_error", "gpt-4"},
    {"/v1/completions", "{\"prompt\":\"x\",\"n\":0}", 400, "invalid_request_error", "n"},
    {"/v1/completions", "{\"prompt\":\"x\",\"logprobs\":\"a\"}", 400, "invalid_request_error",
     "logprobs"},
    {"/tokenize", "{\"content\":1}", 400, "invalid_request_error", "content"},
    {"/detokenize", "{\"tokens\":[\"a\"]}", 400, "invalid_request_error", "tokens"},
};

START_TEST(what_is_wrong_is_said_in_openai_s_form)
{
    const struct refusal *r = &refusals[_i];
    json_t *o = http_json(&gate, r->path, r->body, r->status);
    ck_assert_str_eq(json_text(o, "error/type"), r->type);
    ck_assert_msg(strstr(json_text(o, "error/message"), r->says) != NULL, "%s: %s", r->says,
                  json_text(o, "error/message"));
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
    json_t *o = http_json(&gate, "/completion", body, 400);
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
    json_t *o = http_json(&gate, "/completion", body, 400);
    free(body);
    return o;
}

START_TEST(a_text_beyond_the_context_has_its_true_length_or_none)
{
    json_t *much = refused_words(19000); /* 95 kB: only its beginning is tokenized */
    int64_t context = json_number(much, "error/n_ctx");
    char more[64];
    ck_assert_int_lt(context * 16, 95000);
    snprintf(more, sizeof more, "the prompt has more than %d tokens, ", (int)context);
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
    json_t *o = http_json(&gate, "/completion", body, 413);
    ck_assert_ptr_nonnull(strstr(json_text(o, "error/message"), "--max-body"));
    json_decref(o);
    free(body);
    int fd = gateway_connect(&gate); /* and one that waits to be told so */
    http_send(fd, "POST", "/completion", "Expect: 100-continue\r\nContent-Length: 600000\r\n", "");
    struct http_answer a = http_receive(fd);
    ck_assert_int_eq(a.status, 413);
    http_answer_fini(&a);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http");
    TCase *tcase = tcase_create("http");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_completion_is_what_the_library_says);
    tcase_add_test(tcase, a_stream_is_the_whole_in_pieces);
    tcase_add_test(tcase, a_prompt_may_be_tokens_texts_or_both);
    tcase_add_test(tcase, stop_texts_end_an_answer_and_are_named);
    tcase_add_test(tcase, probabilities_come_with_tokens_and_bytes);
    tcase_add_test(tcase, an_infill_stands_between_prefix_and_suffix);
    tcase_add_test(tcase, several_choices_begin_with_the_likeliest);
    tcase_add_test(tcase, tokens_go_there_and_back);
    tcase_add_test(tcase, it_tells_what_it_serves);
    tcase_add_test(tcase, metrics_count);
    tcase_add_test(tcase, a_v1_completion_has_openai_s_form);
    tcase_add_test(tcase, a_v1_stream_ends_with_usage_and_done);
    tcase_add_test(tcase, a_suffix_makes_a_v1_completion_an_infill);
    tcase_add_test(tcase, a_template_makes_a_prompt);
    tcase_add_test(tcase, a_chat_is_its_template_s_completion);
    tcase_add_test(tcase, a_chat_streams_deltas);
    tcase_add_test(tcase, a_chat_answers_in_json);
    tcase_add_test(tcase, a_model_without_a_template_says_so);
    tcase_add_test(tcase, a_grammar_is_followed);
    tcase_add_test(tcase, a_schema_is_followed);
    tcase_add_loop_test(tcase, what_is_wrong_is_said_in_openai_s_form, 0,
                        (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_test(tcase, a_prompt_beyond_the_context_is_refused_with_both_numbers);
    tcase_add_test(tcase, a_text_beyond_the_context_has_its_true_length_or_none);
    tcase_add_test(tcase, a_body_too_large_is_refused_and_read);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
