/* hearth-http as programs that know llama-server see it: every endpoint against a real daemon and the bundled
 * model, and answers that follow a grammar. OpenAI's endpoints are in test_http_openai.c, what is refused in
 * test_http_refused.c, which requests wait in test_http_queue.c, connections in test_http_connections.c; what goes
 * wrong on the way (drops, slow readers, daemons that die) in test_http_rough.c and test_http_ends.c. */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(a_completion_is_what_the_library_says)
{
    char *want = rig_library_text("def read_lines(path):", 0.6f, 7, 40);
    json_t *o =
        rig_json("/completion",
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

START_TEST(a_stream_is_the_whole_in_pieces)
{
    /* What is there already comes as one piece, of 256 tokens at most. */
    static const char options[] = "\"prompt\":\"import os\\n\\ndef "
                                  "\",\"n_predict\":600,\"seed\":3,\"logit_bias\":[[2,false]]";
    char whole[512], streamed[512];
    snprintf(whole, sizeof(whole), "{%s}", options);
    snprintf(streamed, sizeof(streamed), "{%s,\"stream\":true}", options);
    json_t *one = rig_json("/completion", whole),
           *events = http_stream(&rig_gate, "/completion", streamed);
    char *text = json_joined(events, "content");
    ck_assert_str_eq(text, json_text(one, "content"));
    ck_assert_uint_gt(json_array_size(events), 2);
    ck_assert(json_is_false(json_at(json_array_get(events, 0), "stop")));
    ck_assert(json_is_true(json_at(json_last(events, 0), "stop")));
    ck_assert_int_eq(json_number(json_last(events, 0), "tokens_predicted"), 600);
    free(text);
    json_decref(one);
    json_decref(events);
}
END_TEST

START_TEST(a_prompt_may_be_tokens_texts_or_both)
{
    json_t *t = rig_json("/tokenize", "{\"content\":\"def main():\",\"add_special\":true}");
    char *ids = json_dumps(json_at(t, "tokens"), JSON_COMPACT), body[2048];
    json_t *as_text =
        rig_json("/completion", "{\"prompt\":\"def main():\",\"n_predict\":8,\"temperature\":0}");
    snprintf(body, sizeof(body), "{\"prompt\":%s,\"n_predict\":8,\"temperature\":0}", ids);
    json_t *as_ids = rig_json("/completion", body);
    ck_assert_str_eq(json_text(as_text, "content"), json_text(as_ids, "content"));
    snprintf(body, sizeof(body),
             "{\"prompt\":[%s,\"def main():\"],\"n_predict\":8,\"temperature\":0}", ids);
    json_t *both = rig_json("/completion", body);
    ck_assert_uint_eq(json_array_size(both), 2);
    ck_assert_str_eq(json_text(both, "0/content"), json_text(both, "1/content"));
    json_t *mixed =
        rig_json("/completion", "{\"prompt\":[\"def\",\" main\",58,\"x\"],\"n_predict\":1}");
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
    snprintf(body, sizeof(body), "{%s}", options);
    json_t *all = rig_json("/completion", body);
    const char *text = json_text(all, "content"), *at = NULL;
    for (size_t i = 12; !at && i + 4 < strlen(text); i++) /* four letters in the middle of it */
        if (strspn(text + i, "abcdefghijklmnopqrstuvwxyz") >= 4)
            at = text + i;
    ck_assert_msg(at != NULL, "%s", text);
    memcpy(stop, at, 4);
    snprintf(body, sizeof(body), "{%s,\"stop\":[\"never seen\",\"%s\"]}", options, stop);
    json_t *cut = rig_json("/completion", body);
    ck_assert_str_eq(json_text(cut, "stop_type"), "word");
    ck_assert_str_eq(json_text(cut, "stopping_word"), stop);
    ck_assert_uint_eq(strlen(json_text(cut, "content")), (size_t)(strstr(text, stop) - text));
    ck_assert_int_eq(strncmp(json_text(cut, "content"), text, strlen(json_text(cut, "content"))),
                     0);
    json_decref(all);
    json_decref(cut);
}
END_TEST

/* Bytes that are not text are longer in the answer than they were as tokens. */
START_TEST(a_stop_text_after_invalid_bytes_is_named)
{
    static const char options[] = "\"prompt\":\"def f(x):\",\"n_predict\":60,\"top_k\":0,"
                                  "\"top_p\":1,\"min_p\":0,\"temperature\":1.9,\"seed\":";
    char body[512], stop[8] = "";
    const char *at = NULL;
    json_t *all = NULL, *cut;
    for (int seed = 1; !at && seed < 100; seed++) {
        json_decref(all);
        snprintf(body, sizeof(body), "{%s%d}", options, seed);
        all = rig_json("/completion", body);
        const char *text = json_text(all, "content"), *broken = strstr(text, "\xef\xbf\xbd");
        for (at = broken; at && *at && strspn(at, "abcdefghijklmnopqrstuvwxyz") < 4;)
            at++;
        at = at && *at ? at : NULL;
        if (at)
            memcpy(stop, at, 4);
        if (at && strstr(text, stop) < broken)
            at = NULL;
        body[strlen(body) - 1] = 0;
    }
    ck_assert_ptr_nonnull(at);
    size_t n = strlen(body);
    snprintf(body + n, sizeof(body) - n, ",\"stop\":[\"never seen\",\"%s\"]}", stop);
    cut = rig_json("/completion", body);
    ck_assert_str_eq(json_text(cut, "stop_type"), "word");
    ck_assert_str_eq(json_text(cut, "stopping_word"), stop);
    json_decref(all);
    json_decref(cut);
}
END_TEST

START_TEST(probabilities_come_with_tokens_and_bytes)
{
    json_t *o = rig_json("/completion",
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
    json_t *o = rig_json(
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
        rig_json("/infill",
                 "{\"input_prefix\":\"import os\\n\\ndef size(path):\\n    return \","
                 "\"input_suffix\":\"\\n\\nprint(size('.'))\\n\",\"input_extra\":[{\"text\":\"x = "
                 "1\\n\",\"filename\":\"a.py\"}],\"prompt\":\"os\",\"n_predict\":16,"
                 "\"samplers\":[\"infill\"]}");
    ck_assert_int_gt(json_number(again, "timings/cache_n"), 0);
    ck_assert_ptr_nonnull(strstr(json_text(again, "prompt"), "x = 1"));
    json_t *warm =
        rig_json("/infill", "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"prompt\":\"\","
                            "\"n_predict\":0,\"samplers\":[],\"response_fields\":[\"\"]}");
    ck_assert_uint_eq(json_object_size(warm), 0);
    json_decref(o);
    json_decref(again);
    json_decref(warm);
}
END_TEST

START_TEST(a_foreign_model_name_is_taken)
{
    /* As llama.vscode 0.0.63 asks: its ai_model is the name of another company's model. */
    json_t *o = rig_json(
        "/infill",
        "{\"id_slot\":0,\"input_prefix\":\"def add(a, b):\\n\",\"input_suffix\":\"\\n\","
        "\"input_extra\":[],\"prompt\":\"    return \",\"n_predict\":8,\"n_cmpl\":1,\"top_k\":40,"
        "\"top_p\":0.99,\"stream\":false,\"samplers\":[\"top_k\",\"top_p\",\"infill\"],"
        "\"cache_prompt\":true,\"n_indent\":4,\"t_max_prompt_ms\":500,\"t_max_predict_ms\":2500,"
        "\"model\":\"google/gemini-2.5-flash\"}");
    ck_assert_uint_gt(strlen(json_text(o, "content")), 0);
    ck_assert_str_eq(json_text(o, "model"), "hearth code 5M");
    json_decref(o);
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false,
                  (const char *const[]){"--strict-model", "--alias", "coder", NULL});
    json_decref(http_json(&rig_gate, "/completion", "{\"prompt\":\"x\",\"model\":\"other\"}", 404));
    json_decref(rig_json("/completion", "{\"prompt\":\"x\",\"n_predict\":1,\"model\":\"coder\"}"));
    json_t *models = rig_json("/v1/models", NULL), *one = rig_json("/v1/models/coder", NULL);
    ck_assert_uint_eq(json_array_size(json_at(models, "data")), 2);
    ck_assert_str_eq(json_text(models, "data/1/id"), "coder");
    ck_assert_str_eq(json_text(one, "id"), "coder");
    json_decref(models);
    json_decref(one);
}
END_TEST

START_TEST(an_answer_need_not_end)
{
    static const char prompt[] = "\"prompt\":\"x = 1\\n\",\"temperature\":0,\"n_predict\":900";
    char body[256];
    snprintf(body, sizeof(body), "{%s,\"logit_bias\":[[2,false]]}", prompt);
    json_t *biased = rig_json("/completion", body);
    snprintf(body, sizeof(body), "{%s,\"ignore_eos\":true,\"logit_bias\":[[2,50]]}", prompt);
    json_t *ignored = rig_json("/completion", body);
    ck_assert_str_eq(json_text(ignored, "content"), json_text(biased, "content"));
    ck_assert_int_eq(json_number(ignored, "tokens_predicted"), 900);
    ck_assert(json_is_true(json_at(ignored, "generation_settings/ignore_eos")));
    json_decref(biased);
    json_decref(ignored);
}
END_TEST

START_TEST(the_first_of_several_choices_is_greedy)
{
    json_t *o =
        rig_json("/infill", "{\"input_prefix\":\"def f(x):\\n    \",\"input_suffix\":\"\\n\","
                            "\"n_predict\":12,\"n_cmpl\":3,\"seed\":5,"
                            "\"samplers\":[\"top_k\",\"top_p\",\"infill\"]}");
    json_t *greedy =
        rig_json("/infill", "{\"input_prefix\":\"def f(x):\\n    \",\"input_suffix\":\"\\n\","
                            "\"n_predict\":12,\"temperature\":0}");
    ck_assert_uint_eq(json_array_size(o), 3);
    ck_assert_str_eq(json_text(o, "0/content"), json_text(greedy, "content"));
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(json_number(json_array_get(o, (size_t)i), "index"), i);
    json_decref(o);
    json_decref(greedy);
}
END_TEST

START_TEST(tokenize_and_detokenize_are_inverse)
{
    json_t *o = rig_json("/tokenize", "{\"content\":\"def \\u00e9:\\n\",\"with_pieces\":true}");
    json_t *list = json_at(o, "tokens"), *ids = json_array();
    ck_assert_uint_gt(json_array_size(list), 2);
    for (size_t i = 0; i < json_array_size(list); i++)
        json_array_append(ids, json_at(json_array_get(list, i), "id"));
    json_t *request = json_pack("{s:o}", "tokens", ids);
    char *body = json_dumps(request, 0);
    json_t *back = rig_json("/detokenize", body);
    ck_assert_str_eq(json_text(back, "content"), "def \xc3\xa9:\n");
    free(body);
    json_decref(request);
    json_decref(o);
    json_decref(back);
}
END_TEST

START_TEST(props_and_models_describe_the_model)
{
    json_t *health = rig_json("/health", NULL), *models = rig_json("/v1/models", NULL);
    json_t *props = rig_json("/props", NULL), *slots = rig_json("/slots", NULL);
    char path[64];
    ck_assert_str_eq(json_text(health, "status"), "ok");
    ck_assert_str_eq(json_text(models, "object"), "list");
    ck_assert_str_eq(json_text(models, "data/0/id"), "hearth code 5M");
    strcpy(path, "/v1/models/hearth%20code%205M");
    json_t *one = rig_json(path, NULL);
    ck_assert_str_eq(json_text(one, "object"), "model");
    ck_assert_int_eq(json_number(props, "total_slots"), 4);
    ck_assert_int_gt(json_number(props, "default_generation_settings/n_ctx"), 0);
    ck_assert_uint_eq(json_array_size(slots), 4);
    ck_assert(json_is_false(json_at(slots, "0/is_processing")));
    json_decref(http_json(&rig_gate, "/v1/models/other", NULL, 404));
    json_decref(health);
    json_decref(models);
    json_decref(props);
    json_decref(slots);
    json_decref(one);
}
END_TEST

START_TEST(metrics_count_requests_and_tokens)
{
    json_decref(rig_json("/completion", "{\"prompt\":\"x = \",\"n_predict\":5,\"logit_bias\":[]}"));
    struct http_answer a = http_ask(&rig_gate, "/metrics", NULL);
    ck_assert_int_eq(a.status, 200);
    static const char *const names[] = {"\nhearth_up 1\n",
                                        "\nhearth_http_requests_total ",
                                        "\nllamacpp:tokens_predicted_total 5\n",
                                        "\nhearth_output_tokens_total 5\n",
                                        "\nhearth_slots_used ",
                                        "model=\"hearth code 5M\""};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        ck_assert_msg(strstr(a.body, names[i]) != NULL, "no %s", names[i]);
    /* Each line is a comment, or a name, perhaps labels, and a number. */
    for (char *line = strtok(a.body, "\n"); line; line = strtok(NULL, "\n")) {
        char *space = strrchr(line, ' '), *end;
        ck_assert_msg(*line == '#' || (space && (strtod(space, &end), !*end)), "%s", line);
    }
    http_answer_fini(&a);
}
END_TEST

/* ---- grammars -------------------------------------------------------------------------------- */

START_TEST(a_grammar_is_followed)
{
    json_t *o = rig_json("/completion", "{\"prompt\":\"x = \",\"n_predict\":20,\"seed\":3,"
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
        snprintf(options, sizeof(options), forms[i][1], schema);
        snprintf(body, sizeof(body), "{\"prompt\":\"data = \",\"temperature\":0,%s}", options);
        json_t *o = rig_json(forms[i][0], body);
        const char *text = json_text(o, i ? "choices/0/text" : "content");
        json_t *answer = json_loads(text, 0, NULL);
        ck_assert_msg(json_is_integer(json_at(answer, "a")), "%s", text);
        ck_assert_msg(strlen(json_text(answer, "b")) == 1, "%s", text);
        json_decref(answer);
        json_decref(o);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http");
    TCase *tcase = tcase_create("http");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, rig_setup_answers, rig_teardown);
    tcase_add_test(tcase, a_completion_is_what_the_library_says);
    tcase_add_test(tcase, a_stream_is_the_whole_in_pieces);
    tcase_add_test(tcase, a_prompt_may_be_tokens_texts_or_both);
    tcase_add_test(tcase, stop_texts_end_an_answer_and_are_named);
    tcase_add_test(tcase, a_stop_text_after_invalid_bytes_is_named);
    tcase_add_test(tcase, probabilities_come_with_tokens_and_bytes);
    tcase_add_test(tcase, an_infill_stands_between_prefix_and_suffix);
    tcase_add_test(tcase, a_foreign_model_name_is_taken);
    tcase_add_test(tcase, an_answer_need_not_end);
    tcase_add_test(tcase, the_first_of_several_choices_is_greedy);
    tcase_add_test(tcase, tokenize_and_detokenize_are_inverse);
    tcase_add_test(tcase, props_and_models_describe_the_model);
    tcase_add_test(tcase, metrics_count_requests_and_tokens);
    tcase_add_test(tcase, a_grammar_is_followed);
    tcase_add_test(tcase, a_schema_is_followed);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
