/* client/http/gen_params: the JSON of a request becomes the parameters of a generation. */
#include "client/http/gen_params.h"
#include "tests/run_suite.h"

#include <check.h>
#include <math.h>
#include <string.h>

static struct gen_params params;
static struct fail fail;

static int read_as(enum gen_dialect dialect, const char *json)
{
    json_t *root = json_loads(json, JSON_ALLOW_NUL, NULL);
    ck_assert_msg(root != NULL, "%s", json);
    fail = (struct fail){0};
    return gen_params_read(&params, dialect, root, &fail);
}

static void setup(void)
{
    params = (struct gen_params){0};
}

static void teardown(void)
{
    gen_params_fini(&params);
}

/* The request of the only choice, for a prompt of one token. */
static struct hearth_request request(void)
{
    static uint32_t token = 5;
    static struct gen_prompt prompt;
    struct hearth_request r;
    prompt = (struct gen_prompt){.ids = &token, .n = 1};
    params.prompts = &prompt;
    gen_params_request(&params, 0, &r);
    params.prompts = NULL;
    return r;
}

START_TEST(each_dialect_has_its_defaults)
{
    ck_assert_int_eq(read_as(GEN_NATIVE, "{}"), 0);
    struct hearth_request r = request();
    ck_assert_float_eq(r.temperature, 0.8f);
    ck_assert_uint_eq(r.top_k, 40);
    ck_assert_float_eq(r.top_p, 0.95f);
    ck_assert_float_eq(r.min_p, 0.05f);
    ck_assert_float_eq(r.repeat_penalty, 1);
    ck_assert_int_eq(r.logprobs, -1);
    ck_assert_uint_eq(r.max_tokens, INT32_MAX);
    gen_params_fini(&params);
    ck_assert_int_eq(read_as(GEN_TEXT, "{}"), 0);
    r = request();
    ck_assert_float_eq(r.temperature, 1);
    ck_assert_uint_eq(r.top_k, 0);
    ck_assert_float_eq(r.top_p, 1);
    ck_assert_float_eq(r.min_p, 0);
    ck_assert_uint_eq(r.max_tokens, 16);
    gen_params_fini(&params);
    ck_assert_int_eq(read_as(GEN_CHAT, "{}"), 0);
    ck_assert_uint_eq(request().max_tokens, INT32_MAX);
}
END_TEST

START_TEST(every_field_arrives)
{
    ck_assert_int_eq(
        read_as(
            GEN_NATIVE,
            "{\"temperature\":0.5,\"top_k\":3,\"top_p\":0.25,\"min_p\":0.125,\"typical_p\":0.75,"
            "\"repeat_penalty\":1.5,\"frequency_penalty\":0.5,\"presence_penalty\":-1,"
            "\"repeat_last_n\":-1,\"seed\":12345678901,\"n_predict\":7,\"n_probs\":3,\"id_slot\":2,"
            "\"t_max_predict_ms\":250,\"n_indent\":4,\"stop\":[\"a\",\"\",\"b\"],\"stream\":true,"
            "\"return_tokens\":true,\"logit_bias\":[[7,1.5],[8,false]],\"unknown\":{\"x\":1}}"),
        0);
    struct hearth_request r = request();
    ck_assert_float_eq(r.temperature, 0.5f);
    ck_assert_uint_eq(r.top_k, 3);
    ck_assert_float_eq(r.top_p, 0.25f);
    ck_assert_float_eq(r.min_p, 0.125f);
    ck_assert_float_eq(r.typical_p, 0.75f);
    ck_assert_float_eq(r.repeat_penalty, 1.5f);
    ck_assert_float_eq(r.frequency_penalty, 0.5f);
    ck_assert_float_eq(r.presence_penalty, -1);
    ck_assert_int_eq(r.penalty_last_n, -1);
    ck_assert_uint_eq(r.seed, 12345678901);
    ck_assert_uint_eq(r.max_tokens, 7);
    ck_assert_int_eq(r.logprobs, 3);
    ck_assert_uint_eq(r.n_stops, 2);
    ck_assert_str_eq(r.stops[1], "b");
    ck_assert_uint_eq(r.n_bias, 2);
    ck_assert_float_eq(r.bias[0].value, 1.5f);
    ck_assert(isinf(r.bias[1].value) && r.bias[1].value < 0);
    ck_assert_int_eq(params.id_slot, 2);
    ck_assert_int_eq(params.t_max_predict_ms, 250);
    ck_assert_int_eq(params.n_indent, 4);
    ck_assert(params.stream && params.return_tokens);
}
END_TEST

START_TEST(null_is_absent_and_whole_numbers_may_have_a_point)
{
    ck_assert_int_eq(read_as(GEN_CHAT,
                             "{\"temperature\":null,\"stop\":null,\"seed\":3.0,\"logprobs\":"
                             "null,\"max_completion_tokens\":5,\"logit_bias\":null}"),
                     0);
    ck_assert_float_eq(request().temperature, 1);
    ck_assert_uint_eq(request().seed, 3);
    ck_assert_uint_eq(request().max_tokens, 5);
}
END_TEST

START_TEST(without_a_seed_a_random_one_is_used)
{
    ck_assert_int_eq(read_as(GEN_NATIVE, "{}"), 0);
    uint64_t first = params.seed;
    gen_params_fini(&params);
    ck_assert_int_eq(read_as(GEN_NATIVE, "{\"seed\":-1}"), 0);
    ck_assert(params.seed != first || params.seed == 0); /* one in 2^32 */
    gen_params_fini(&params);
    ck_assert_int_eq(read_as(GEN_NATIVE, "{\"seed\":0}"), 0);
    ck_assert_uint_eq(params.seed, 0);
}
END_TEST

START_TEST(samplers_that_are_not_named_are_off)
{
    ck_assert_int_eq(read_as(GEN_INFILL, "{\"top_k\":40,\"top_p\":0.9,\"repeat_penalty\":1.1,"
                                         "\"samplers\":[\"top_k\",\"top_p\",\"infill\"]}"),
                     0);
    struct hearth_request r = request();
    ck_assert_uint_eq(r.top_k, 40);
    ck_assert_float_eq(r.top_p, 0.9f);
    ck_assert_float_eq(r.min_p, 0);
    ck_assert_float_eq(r.repeat_penalty, 1);
    ck_assert_float_eq(r.temperature, 0); /* infill: the likeliest */
    gen_params_fini(&params);
    ck_assert_int_eq(read_as(GEN_CHAT, "{\"min_p\":0.1,\"temperature\":0.1,"
                                       "\"samplers\":[\"min_p\",\"temperature\"]}"),
                     0);
    ck_assert_float_eq(request().min_p, 0.1f);
    ck_assert_float_eq(request().temperature, 0.1f);
}
END_TEST

START_TEST(choices_differ_by_their_seed)
{
    static uint32_t tokens[2] = {5, 6};
    struct gen_prompt prompts[2] = {{.ids = tokens, .n = 1}, {.ids = tokens + 1, .n = 1}};
    struct hearth_request r;
    ck_assert_int_eq(read_as(GEN_TEXT, "{\"n\":3,\"seed\":10}"), 0);
    params.prompts = prompts;
    gen_params_request(&params, 4, &r);
    params.prompts = NULL;
    ck_assert_uint_eq(r.seed, 11);
    ck_assert_uint_eq(r.tokens[0], 6);
}
END_TEST

static const struct {
    enum gen_dialect dialect;
    const char *json, *says;
} refused[] = {
    {GEN_NATIVE, "{\"temperature\":\"1\"}", "'temperature' must be a number, not a string"},
    {GEN_NATIVE, "{\"temperature\":[]}", "not an array"},
    {GEN_NATIVE, "{\"top_k\":1.5}", "whole number"},
    {GEN_NATIVE, "{\"min_p\":-0.1}", "min_p"},
    {GEN_NATIVE, "{\"repeat_penalty\":0}", "repeat_penalty"},
    {GEN_NATIVE, "{\"n_cmpl\":65}", "'n_cmpl' must be 1 to 64, not 65"},
    {GEN_NATIVE, "{\"stop\":{}}", "'stop'"},
    {GEN_NATIVE, "{\"stop\":\"a\\u0000b\"}", "'stop'"},
    {GEN_NATIVE, "{\"samplers\":[1]}", "'samplers'"},
    {GEN_NATIVE, "{\"mirostat\":1}", "mirostat"},
    {GEN_NATIVE, "{\"lora\":[{\"id\":0,\"scale\":1}]}", "lora"},
    {GEN_NATIVE, "{\"logit_bias\":5}", "logit_bias"},
    {GEN_NATIVE, "{\"logit_bias\":[[1]]}", "pairs"},
    {GEN_NATIVE, "{\"logit_bias\":[[1,1e9]]}", "10000"},
    {GEN_NATIVE, "{\"logit_bias\":{\"5\":\"x\"}}", "logit_bias"},
    {GEN_NATIVE, "{\"response_fields\":\"content\"}", "response_fields"},
    {GEN_NATIVE,
     "{\"samplers\":[\"top_k\","
     "\"0123456789012345678901234567890123456789012345678901234567890123x\"]}",
     "names of at most 64 bytes"},
    {GEN_TEXT, "{\"best_of\":4,\"n\":2}", "best_of"},
    {GEN_TEXT, "{\"echo\":true,\"logprobs\":1}", "echo"},
    {GEN_TEXT, "{\"logprobs\":true}", "logprobs"},
    {GEN_CHAT, "{\"logprobs\":1}", "'logprobs' must be true or false"},
    {GEN_CHAT, "{\"top_logprobs\":2}", "top_logprobs"},
    {GEN_CHAT, "{\"stream_options\":1}", "stream_options"},
    {GEN_CHAT, "{\"stream_options\":{\"include_usage\":1}}", "include_usage"},
    {GEN_CHAT, "{\"seed\":\"x\"}", "seed"},
};

/* A stream says it in each chunk. */
START_TEST(a_model_of_a_name_that_none_has_is_refused)
{
    static const struct http_config any;
    char name[1026];
    memset(name, 'a', sizeof(name));
    for (size_t bytes = 1024; bytes <= 1025; bytes++) {
        json_t *o = json_pack("{s:s%}", "model", name, bytes);
        fail = (struct fail){0};
        ck_assert_int_eq(gen_params_check_model(o, &any, "b", &fail), bytes > 1024 ? -1 : 0);
        json_decref(o);
    }
    ck_assert_uint_eq(fail.status, 400);
    ck_assert_ptr_nonnull(strstr(fail.message, "'model' must have at most 1024 bytes"));
}
END_TEST

/* Each answer of a request is searched for all of them, on the loop's thread. */
START_TEST(fields_without_end_are_refused)
{
    for (int n = 256; n <= 257; n++) {
        json_t *fields = json_array(), *root = json_pack("{s:o}", "response_fields", fields);
        for (int i = 0; i < n; i++)
            json_array_append_new(fields, json_string("content"));
        fail = (struct fail){0};
        ck_assert_int_eq(gen_params_read(&params, GEN_NATIVE, root, &fail), n > 256 ? -1 : 0);
        gen_params_fini(&params);
    }
    ck_assert_uint_eq(fail.status, 400);
    ck_assert_ptr_nonnull(strstr(fail.message, "'response_fields' must have at most 256"));
}
END_TEST

START_TEST(a_field_of_the_wrong_type_is_refused_by_name)
{
    ck_assert_int_eq(read_as(refused[_i].dialect, refused[_i].json), -1);
    ck_assert_uint_eq(fail.status, 400);
    ck_assert_msg(strstr(fail.message, refused[_i].says) != NULL, "%s", fail.message);
}
END_TEST

START_TEST(a_priority_is_a_class_or_a_number)
{
    static const struct {
        const char *json;
        uint32_t class;
    } good[] = {{"{}", HEARTH_INTERACTIVE},
                {"{\"priority\":null}", HEARTH_INTERACTIVE},
                {"{\"priority\":\"interactive\"}", HEARTH_INTERACTIVE},
                {"{\"priority\":\"batch\"}", HEARTH_BATCH},
                {"{\"priority\":0}", HEARTH_INTERACTIVE},
                {"{\"priority\":-3}", HEARTH_INTERACTIVE},
                {"{\"priority\":1}", HEARTH_BATCH}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_int_eq(read_as(GEN_CHAT, good[i].json), 0);
        ck_assert_msg(params.base.priority == good[i].class, "%s", good[i].json);
        gen_params_fini(&params);
    }
    ck_assert_int_eq(read_as(GEN_CHAT, "{\"priority\":\"high\"}"), -1);
    ck_assert_msg(strstr(fail.message, "batch") != NULL, "%s", fail.message);
    gen_params_fini(&params);
    ck_assert_int_eq(read_as(GEN_CHAT, "{\"priority\":true}"), -1);
}
END_TEST

START_TEST(any_model_may_be_named_unless_names_are_strict)
{
    json_t *o = json_pack("{s:s}", "model", "a"), *empty = json_pack("{s:s}", "model", "");
    json_t *number = json_pack("{s:i}", "model", 7);
    struct http_config any = {0};
    struct http_config strict = {.strict_model = 1, .aliases = {.items = {"b", "c"}, .n = 2}};
    ck_assert_int_eq(gen_params_check_model(o, &any, "b", &fail), 0);
    ck_assert_int_eq(gen_params_check_model(number, &any, "b", &fail), -1);
    ck_assert_uint_eq(fail.status, 400);
    ck_assert_int_eq(gen_params_check_model(o, &strict, "a", &fail), 0);
    ck_assert_int_eq(gen_params_check_model(empty, &strict, "d", &fail), 0);
    json_object_set_new(o, "model", json_string("c"));
    ck_assert_int_eq(gen_params_check_model(o, &strict, "d", &fail), 0);
    json_object_set_new(o, "model", json_string("a"));
    ck_assert_int_eq(gen_params_check_model(o, &strict, "d", &fail), -1);
    ck_assert_uint_eq(fail.status, 404);
    ck_assert_str_eq(fail.code, "model_not_found");
    json_decref(number);
    json_t *e = fail_json(&fail);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(e, "error"), "code")),
                     "model_not_found");
    json_decref(e);
    json_decref(o);
    json_decref(empty);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_ask");
    TCase *tcase = tcase_create("params");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, each_dialect_has_its_defaults);
    tcase_add_test(tcase, every_field_arrives);
    tcase_add_test(tcase, null_is_absent_and_whole_numbers_may_have_a_point);
    tcase_add_test(tcase, without_a_seed_a_random_one_is_used);
    tcase_add_test(tcase, samplers_that_are_not_named_are_off);
    tcase_add_test(tcase, choices_differ_by_their_seed);
    tcase_add_test(tcase, a_model_of_a_name_that_none_has_is_refused);
    tcase_add_test(tcase, fields_without_end_are_refused);
    tcase_add_loop_test(tcase, a_field_of_the_wrong_type_is_refused_by_name, 0,
                        (int)(sizeof(refused) / sizeof(refused[0])));
    tcase_add_test(tcase, a_priority_is_a_class_or_a_number);
    tcase_add_test(tcase, any_model_may_be_named_unless_names_are_strict);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
