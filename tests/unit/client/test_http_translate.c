/* client/http/translate: requests of other dialects become one form. */
#include "client/http/say.h"
#include "client/http/translate.h"
#include "tests/run_suite.h"

#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fail fail;

typedef json_t *translation_fn(const json_t *body, struct fail *f);

static json_t *of_messages(const json_t *body, struct fail *f)
{
    return translate_messages(body, false, f);
}

static json_t *parse(const char *json)
{
    json_error_t e;
    json_t *o = json_loads(json, JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    ck_assert_msg(o != NULL, "%s: %s", json, e.text);
    return o;
}

static json_t *translated(translation_fn *translate, const char *json)
{
    json_t *body = parse(json);
    fail = (struct fail){0};
    json_t *o = translate(body, &fail);
    json_decref(body);
    return o;
}

/* The member `name` of the translation is `want`. */
static void assert_member(translation_fn *translate, const char *json, const char *name,
                          const char *want)
{
    json_t *o = translated(translate, json), *wanted = parse(want);
    ck_assert_msg(o != NULL, "%s", fail.message);
    const json_t *got = json_object_get(o, name);
    char *text = got ? json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    ck_assert_msg(json_equal(got, wanted) || (!got && json_is_null(wanted)), "%s: %s, not %s", name,
                  text ? text : "none", want);
    free(text);
    json_decref(o);
    json_decref(wanted);
}

static void assert_refused(translation_fn *translate, const char *json, const char *what)
{
    json_t *o = translated(translate, json);
    ck_assert_msg(o == NULL, "%s", json);
    ck_assert_uint_eq(fail.status, 400);
    ck_assert_msg(strstr(fail.message, what) != NULL, "%s", fail.message);
}

/* ---- Anthropic's Messages -------------------------------------------------------------------- */

#define ASK "\"messages\":[{\"role\":\"user\",\"content\":\"U\"}]"

START_TEST(a_message_s_string_and_its_block_are_the_same)
{
    static const char want[] = "[{\"role\":\"system\",\"content\":\"S\\nT\"},"
                               "{\"role\":\"user\",\"content\":\"U\"}]";
    assert_member(of_messages, "{\"system\":\"S\\nT\"," ASK "}", "messages", want);
    assert_member(of_messages,
                  "{\"system\":[{\"type\":\"text\",\"text\":\"S\"},{\"type\":\"text\",\"text\":"
                  "\"T\",\"cache_control\":{\"type\":\"ephemeral\"}}],\"messages\":[{\"role\":"
                  "\"user\",\"content\":[{\"type\":\"text\",\"text\":\"U\",\"cache_control\":"
                  "{\"type\":\"ephemeral\"}}]}]}",
                  "messages", want);
    assert_member(of_messages, "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages",
                  "[{\"role\":\"user\",\"content\":\"\"}]");
}
END_TEST

START_TEST(a_billing_header_is_dropped_unless_it_is_kept)
{
    static const char json[] =
        "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cc_version=1;\"},"
        "{\"type\":\"text\",\"text\":\"S\"}]," ASK "}";
    assert_member(
        of_messages, json, "messages",
        "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"}]");
    json_t *body = parse(json), *o = translate_messages(body, true, &fail);
    const json_t *system = json_array_get(json_object_get(o, "messages"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(system, "content")),
                     "x-anthropic-billing-header: cc_version=1;\nS");
    json_decref(o);
    json_decref(body);
}
END_TEST

#define BILLING "\"x-anthropic-billing-header: v; cch=1;"

/* Its line alone: what follows it in the same text stays. */
START_TEST(of_a_text_that_begins_with_a_billing_header_the_rest_stays)
{
    static const char *const systems[][2] = {
        {BILLING "\\nYou are\\nS\"", "You are\nS"},
        {"[{\"type\":\"text\",\"text\":" BILLING
         "\\nYou are\"},{\"type\":\"text\",\"text\":\"S\"}]",
         "You are\nS"},
        {"\"S\\nx-anthropic-billing-header: v;\"", "S\nx-anthropic-billing-header: v;"},
        {BILLING "\"", NULL},
        {"[{\"type\":\"text\",\"text\":" BILLING "\\n\"}]", NULL},
    };
    for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++) {
        char json[300];
        snprintf(json, sizeof(json), "{\"system\":%s," ASK "}", systems[i][0]);
        json_t *o = translated(of_messages, json);
        ck_assert_msg(o != NULL, "%s", fail.message);
        const json_t *m = json_array_get(json_object_get(o, "messages"), 0);
        ck_assert_str_eq(json_string_value(json_object_get(m, "role")),
                         systems[i][1] ? "system" : "user");
        ck_assert_str_eq(json_string_value(json_object_get(m, "content")),
                         systems[i][1] ? systems[i][1] : "U");
        json_decref(o);
    }
}
END_TEST

START_TEST(calls_and_their_results_become_messages)
{
    assert_member(
        of_messages,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"U\"},"
        "{\"role\":\"system\",\"content\":\"E\"},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\","
        "\"signature\":\"s\"},{\"type\":\"redacted_thinking\",\"data\":\"x\"},"
        "{\"type\":\"text\",\"text\":\"So.\"},{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\","
        "\"input\":{\"a\":0.1,\"b\":\"\xc3\xa9\"}},{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":"
        "\"g\",\"input\":{}}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
        "\"content\":[{\"type\":\"text\",\"text\":\"r\"},{\"type\":\"text\",\"text\":\"s\"}]},"
        "{\"type\":\"tool_result\",\"tool_use_id\":\"t2\",\"is_error\":true,\"content\":\"bad\"},"
        "{\"type\":\"text\",\"text\":\"Go on\"}]}]}",
        "messages",
        "[{\"role\":\"user\",\"content\":\"U\"},{\"role\":\"system\",\"content\":\"E\"},"
        "{\"role\":\"assistant\",\"content\":\"So.\",\"reasoning_content\":\"hm\",\"tool_calls\":["
        "{\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
        "\"{\\\"a\\\": 0.1, \\\"b\\\": \\\"\xc3\xa9\\\"}\"}},{\"id\":\"t2\",\"type\":\"function\","
        "\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"name\":\"f\",\"content\":\"r\\ns\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"name\":\"g\",\"content\":\"Error: bad\"},"
        "{\"role\":\"user\",\"content\":\"Go on\"}]");
}
END_TEST

START_TEST(blocks_that_are_not_known_are_shown_to_the_model)
{
    assert_member(
        of_messages,
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"new\",\"x\":1.5}]}]}",
        "messages",
        "[{\"role\":\"user\",\"content\":\"{\\\"type\\\": \\\"new\\\", \\\"x\\\": 1.5}\"}]");
}
END_TEST

START_TEST(tools_lose_what_the_model_need_not_see)
{
    static const char tools[] =
        "{" ASK ",\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":"
        "\"object\"},\"cache_control\":{\"type\":\"ephemeral\"},\"defer_loading\":true},"
        "{\"type\":\"web_search_20250305\",\"name\":\"web_search\"},"
        "{\"type\":\"custom\",\"name\":\"g\",\"input_schema\":{}}],\"tool_choice\":"
        "{\"type\":\"tool\",\"name\":\"f\",\"disable_parallel_tool_use\":true}}";
    assert_member(of_messages, tools, "tools",
                  "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
                  "\"parameters\":{\"type\":\"object\"}}},"
                  "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{}}}]");
    assert_member(of_messages, tools, "tool_choice",
                  "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}");
    assert_member(of_messages, tools, "parallel_tool_calls", "false");
    assert_member(of_messages, "{" ASK ",\"tool_choice\":{\"type\":\"any\"}}", "tool_choice",
                  "\"required\"");
}
END_TEST

START_TEST(thinking_is_off_unless_it_is_asked_for)
{
    static const char *const on[] = {"{\"type\":\"adaptive\",\"display\":\"omitted\"}",
                                     "{\"type\":\"enabled\",\"budget_tokens\":2048}"};
    char json[300];
    assert_member(of_messages, "{" ASK "}", "enable_thinking", "false");
    assert_member(of_messages, "{" ASK ",\"thinking\":{\"type\":\"disabled\"}}", "enable_thinking",
                  "false");
    for (size_t i = 0; i < 2; i++) {
        snprintf(json, sizeof(json), "{" ASK ",\"thinking\":%s}", on[i]);
        assert_member(of_messages, json, "enable_thinking", "true");
        snprintf(json, sizeof(json),
                 "{" ASK ",\"thinking\":%s,\"output_config\":{\"effort\":\"max\"}}", on[i]);
        assert_member(of_messages, json, "reasoning_effort", "\"max\"");
    }
    assert_member(of_messages, json, "thinking_budget_tokens", "2048");
    assert_member(of_messages,
                  "{" ASK ",\"chat_template_kwargs\":{\"enable_thinking\":true,\"x\":1}}",
                  "chat_template_kwargs", "{\"enable_thinking\":true,\"x\":1}");
}
END_TEST

START_TEST(fields_are_renamed_or_left_out)
{
    static const char json[] =
        "{" ASK ",\"model\":\"m\",\"max_tokens\":32000,\"stop_sequences\":[\"a\"],\"stream\":true,"
        "\"temperature\":0.5,\"seed\":7,\"metadata\":{\"user_id\":\"x\"},\"context_management\":{},"
        "\"mirostat\":2,\"n\":3,\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":"
        "{\"type\":\"string\"}}}}";
    assert_member(of_messages, json, "max_tokens", "32000");
    assert_member(of_messages, json, "stop", "[\"a\"]");
    assert_member(of_messages, json, "seed", "7");
    assert_member(of_messages, json, "mirostat", "null");
    assert_member(of_messages, json, "n", "null");
    assert_member(of_messages, json, "response_format",
                  "{\"type\":\"json_schema\",\"schema\":{\"type\":\"string\"}}");
}
END_TEST

static const char *const wrong_messages[][2] = {
    {"{}", "messages: at least one"},
    {"{\"messages\":[]}", "messages: at least one"},
    {"{\"messages\":7}", "'messages' must be an array"},
    {"{\"messages\":[7]}", "messages.0: 'role'"},
    {"{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "messages.0: 'role'"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":7}]}", "messages.0: 'content'"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[7]}]}", "messages.0: a block"},
    {"{" ASK ",\"system\":7}", "system: 'content'"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{}}]}]}",
     "messages.0: content of type 'image' is not supported"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":"
     "\"x\",\"content\":[{\"type\":\"text\",\"text\":\"r\"}]},{\"type\":\"image\"}]}]}",
     "messages.0: content of type 'image' is not supported"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"x\"}]}]}",
     "messages.0: a tool_use needs a 'name'"},
    {"{" ASK ",\"tools\":[{\"name\":\"f\"}]}", "tools.0"},
    {"{" ASK ",\"tools\":{}}", "'tools' must be an array"},
    {"{" ASK ",\"tools\":[5]}", "tools.0"},
    {"{" ASK ",\"tools\":[{\"name\":5,\"input_schema\":{}}]}", "tools.0"},
    {"{" ASK ",\"tool_choice\":{\"type\":\"tool\"}}", "'tool_choice'"},
    {"{" ASK ",\"thinking\":{\"type\":\"much\"}}", "'thinking'"},
    {"{" ASK ",\"thinking\":true}", "'thinking' must be an object"},
    {"{" ASK ",\"output_config\":{\"format\":{\"type\":\"xml\"}}}", "output_config.format"},
};

START_TEST(an_invalid_message_is_refused)
{
    assert_refused(of_messages, wrong_messages[_i][0], wrong_messages[_i][1]);
}
END_TEST

/* ---- OpenAI's Responses ---------------------------------------------------------------------- */

START_TEST(items_become_messages)
{
    assert_member(
        translate_responses, "{\"input\":\"U\",\"instructions\":\"S\"}", "messages",
        "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"}]");
    assert_member(
        translate_responses,
        "{\"input\":[{\"type\":\"message\",\"role\":\"developer\",\"content\":[{\"type\":"
        "\"input_text\",\"text\":\"S\"},{\"type\":\"input_text\",\"text\":\"T\"}]},"
        "{\"role\":\"user\",\"content\":\"U\"},"
        "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"short\"}],"
        "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"hm\"}],\"encrypted_content\":\"x\"},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
        "\"text\":\"So.\",\"annotations\":[]}]},"
        "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"namespace\":\"ns\","
        "\"arguments\":\"{\\\"a\\\": 1}\"},"
        "{\"type\":\"custom_tool_call\",\"call_id\":\"c2\",\"name\":\"p\",\"input\":\"\\\"\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"r\"},"
        "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":"
        "\"input_text\",\"text\":\"s\"}]},"
        "{\"type\":\"web_search_call\",\"status\":\"completed\"},"
        "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"short\"}]},"
        "{\"type\":\"function_call\",\"call_id\":\"c3\",\"name\":\"f\",\"arguments\":\"{}\"}]}",
        "messages",
        "[{\"role\":\"system\",\"content\":\"S\\nT\"},{\"role\":\"user\",\"content\":\"U\"},"
        "{\"role\":\"assistant\",\"content\":\"So.\",\"reasoning_content\":\"hm\",\"tool_calls\":["
        "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"ns__f\",\"arguments\":"
        "\"{\\\"a\\\": 1}\"}},{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"p\","
        "\"arguments\":\"{\\\"input\\\": \\\"\\\\\\\"\\\"}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"name\":\"ns__f\",\"content\":\"r\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"name\":\"p\",\"content\":\"s\"},"
        "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"short\",\"tool_calls\":["
        "{\"id\":\"c3\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
        "\"{}\"}}]}]");
}
END_TEST

/* What is said on stderr while these are read. */
static void hear(translation_fn *translate, const char *const *requests, size_t n, char *ret,
                 size_t max)
{
    FILE *heard = tmpfile();
    int own = dup(STDERR_FILENO);
    ck_assert(heard && own >= 0 && dup2(fileno(heard), STDERR_FILENO) >= 0);
    for (size_t i = 0; i < n; i++) {
        struct fail f = {0};
        json_t *body = parse(requests[i]);
        json_decref(translate(body, &f));
        json_decref(body);
    }
    ck_assert(dup2(own, STDERR_FILENO) >= 0 && close(own) == 0);
    rewind(heard);
    ret[fread(ret, 1, max - 1, heard)] = 0;
    ck_assert_int_eq(fclose(heard), 0);
}

START_TEST(each_type_that_is_left_out_is_said_once)
{
    static const char *const responses[] = {
        "{\"input\":\"U\",\"tools\":[{\"type\":\"computer\"},{\"type\":\"web_search\"}]}",
        "{\"input\":[{\"type\":\"odd\"},{\"type\":\"compaction\"},{\"type\":\"odd\"}],\"tools\":[{"
        "\"type\":\"web_search\"}]}"};
    static const char *const messages[] = {
        "{" ASK ",\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"b\"},{\"type\":\"web_search\","
        "\"name\":\"w\"},{\"type\":\"web_search\",\"name\":\"w\"}]}"};
    char said[4096];
    hear(translate_responses, responses, 2, said, sizeof(said));
    ck_assert_str_eq(
        said, "hearth-http: a tool of type 'computer' is left out: hearth does not have it\n"
              "hearth-http: a tool of type 'web_search' is left out: hearth does not have it\n"
              "hearth-http: an item of type 'odd' in a request's input is left out\n"
              "hearth-http: an item of type 'compaction' in a request's input is left out\n");
    hear(of_messages, messages, 1, said, sizeof(said));
    ck_assert_ptr_nonnull(strstr(said, "'bash_20250124' is left out"));
    const char *second = strstr(said, "'web_search' is left out");
    ck_assert(second && !strstr(second + 2, "web_search"));
}
END_TEST

START_TEST(types_without_end_are_not_remembered)
{
    enum { MANY = 2 * SAY_MOST_TYPES };
    static char texts[MANY][80], said[16384];
    const char *requests[MANY];
    int lines = 0;
    for (int i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof(texts[i]), "{\"input\":[{\"type\":\"odd_%d\"}]}", i);
        requests[i] = texts[i];
    }
    hear(translate_responses, requests, MANY, said, sizeof(said));
    for (const char *at = said; *at; at++)
        lines += *at == '\n';
    ck_assert_int_eq(lines, SAY_MOST_TYPES + 1);
    ck_assert_ptr_nonnull(strstr(said, "are not named from here on"));
}
END_TEST

/* They are put together once: what each item adds costs no more than the item. */
START_TEST(thoughts_in_many_items_are_one_text)
{
    enum { MANY = 80000 };
    static const char text[] = "a thought in an item of its own";
    json_t *input = json_array(), *body = json_pack("{s:o}", "input", input);
    for (int i = 0; i < MANY; i++)
        json_array_append_new(
            input, json_pack("{s:s,s:[{s:s}]}", "type", "reasoning", "summary", "text", text));
    json_t *o = translate_responses(body, &fail);
    const json_t *m = json_array_get(json_object_get(o, "messages"), 0);
    ck_assert_uint_eq(json_string_length(json_object_get(m, "reasoning_content")),
                      MANY * sizeof(text) - 1);
    json_decref(o);
    json_decref(body);
}
END_TEST

static const char some_tools[] =
    "{\"input\":\"U\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"description\":\"d\","
    "\"strict\":true,\"parameters\":{\"type\":\"object\"}},{\"type\":\"namespace\",\"name\":\"ns\","
    "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}]},"
    "{\"type\":\"web_search\"},{\"type\":\"custom\",\"name\":\"p\",\"description\":\"e\","
    "\"format\":{\"type\":\"grammar\",\"definition\":\"start: X\"}}],"
    "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\",\"namespace\":\"ns\"}}";

START_TEST(tools_of_a_namespace_are_flat_and_found_again)
{
    assert_member(
        translate_responses, some_tools, "tools",
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
        "\"parameters\":{\"type\":\"object\"},\"strict\":true}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"ns__f\",\"parameters\":{}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"p\",\"description\":\"e\\nThe input "
        "follows this grammar:\\nstart: X\",\"parameters\":{\"type\":\"object\",\"properties\":"
        "{\"input\":{\"type\":\"string\"}},\"required\":[\"input\"]}}}]");
    assert_member(translate_responses, some_tools, "tool_choice",
                  "{\"type\":\"function\",\"function\":{\"name\":\"ns__f\"}}");
    json_t *body = parse(some_tools);
    size_t space_bytes;
    const json_t *tool = translate_find_tool(body, "ns__f", &space_bytes);
    ck_assert_uint_eq(space_bytes, 2);
    ck_assert_str_eq(json_string_value(json_object_get(tool, "name")), "f");
    tool = translate_find_tool(body, "f", &space_bytes);
    ck_assert_uint_eq(space_bytes, 0);
    ck_assert_str_eq(json_string_value(json_object_get(tool, "description")), "d");
    ck_assert_ptr_null(translate_find_tool(body, "ns__g", &space_bytes));
    json_decref(body);
}
END_TEST

/* What a model calls ends where its name ends, wherever that of a namespace does. */
START_TEST(a_namespace_with_a_zero_in_its_name_is_compared_up_to_that)
{
    json_t *body = parse("{\"tools\":[{\"type\":\"namespace\",\"name\":\"f\",\"tools\":["
                         "{\"type\":\"function\",\"name\":\"g\"}]},"
                         "{\"type\":\"function\",\"name\":\"f\"}]}");
    json_t *space = json_array_get(json_object_get(body, "tools"), 0);
    char *flat = strdup("f"), name[4096] = "f";
    size_t space_bytes;
    json_object_set_new(space, "name", json_stringn(name, sizeof(name)));
    const json_t *tool = translate_find_tool(body, flat, &space_bytes);
    ck_assert_str_eq(json_string_value(json_object_get(tool, "type")), "function");
    ck_assert_uint_eq(space_bytes, 0);
    ck_assert_ptr_nonnull(translate_find_tool(body, "f__g", &space_bytes));
    ck_assert_uint_eq(space_bytes, 1);
    free(flat);
    json_decref(body);
}
END_TEST

#define SPACE(name, tools) "{\"type\":\"namespace\",\"name\":\"" name "\",\"tools\":[" tools "]}"
#define PLAIN(name) "{\"type\":\"function\",\"name\":\"" name "\",\"parameters\":{}}"
#define FLAT(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{}}}"

/* What a call of it says of its namespace comes back as the same name. */
START_TEST(a_namespace_in_a_namespace_is_flat_too)
{
    static const char nested[] =
        "{\"input\":[{\"role\":\"user\",\"content\":\"U\"},{\"type\":\"function_call\",\"call_id\":"
        "\"c\",\"name\":\"f\",\"namespace\":\"a__b\",\"arguments\":\"{}\"}],\"tools\":[" SPACE(
            "a", PLAIN("f") "," SPACE("b", PLAIN("f")) "," SPACE("", PLAIN("g"))) "]}";
    assert_member(translate_responses, nested, "tools",
                  "[" FLAT("a__f") "," FLAT("a__b__f") "," FLAT("a__g") "]");
    json_t *body = parse(nested), *asked = translated(translate_responses, nested);
    const json_t *call = json_array_get(
        json_object_get(json_array_get(json_object_get(asked, "messages"), 1), "tool_calls"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(call, "function"), "name")),
                     "a__b__f");
    static const struct {
        const char *flat;
        size_t space_bytes;
    } found[] = {{"a__f", 1}, {"a__b__f", 4}, {"a__g", 1}};
    for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++) {
        size_t bytes;
        ck_assert_ptr_nonnull(translate_find_tool(body, found[i].flat, &bytes));
        ck_assert_uint_eq(bytes, found[i].space_bytes);
    }
    json_decref(asked);
    json_decref(body);
}
END_TEST

/* Each of its tools has it in its name. */
START_TEST(a_namespace_s_name_has_a_limit)
{
    enum { MOST = 256, TOOLS = 1000 };
    static char body[TOOLS * 64];
    for (int more = 0; more < 2; more++) {
        size_t n = (size_t)snprintf(body, sizeof(body),
                                    "{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":"
                                    "\"s\",\"tools\":[{\"type\":\"namespace\",\"name\":\"%0*d\","
                                    "\"tools\":[" PLAIN("f"),
                                    MOST - 3 + more, 0);
        for (int i = 1; i < TOOLS; i++)
            n += (size_t)snprintf(body + n, sizeof(body) - n, "," PLAIN("f"));
        snprintf(body + n, sizeof(body) - n, "]}]}]}");
        json_t *o = translated(translate_responses, body);
        ck_assert_uint_eq(json_array_size(json_object_get(o, "tools")), more ? 0 : TOOLS);
        json_decref(o);
    }
    ck_assert_uint_eq(fail.status, 400);
    ck_assert_ptr_nonnull(strstr(fail.message, "the name of a namespace must have at most"));
}
END_TEST

START_TEST(a_response_s_fields_are_renamed)
{
    static const char json[] =
        "{\"input\":\"U\",\"model\":\"m\",\"max_output_tokens\":7,\"stream\":true,\"store\":true,"
        "\"include\":[\"reasoning.encrypted_content\"],\"client_metadata\":{},\"prompt_cache_key\":"
        "\"k\",\"previous_response_id\":null,\"parallel_tool_calls\":false,\"reasoning\":"
        "{\"effort\":\"minimal\",\"summary\":\"auto\"},\"tool_choice\":\"auto\",\"text\":{"
        "\"format\":"
        "{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{}},\"verbosity\":\"low\"}}";
    assert_member(translate_responses, json, "max_tokens", "7");
    assert_member(translate_responses, json, "parallel_tool_calls", "false");
    assert_member(translate_responses, json, "reasoning_effort", "\"minimal\"");
    assert_member(translate_responses, json, "tool_choice", "\"auto\"");
    assert_member(translate_responses, json, "response_format",
                  "{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{}}");
    assert_member(translate_responses, json, "store", "null");
    assert_member(
        translate_responses,
        "{\"input\":\"U\",\"thinking_budget_tokens\":9,\"reasoning\":{\"effort\":\"none\"}}",
        "reasoning_effort", "\"none\"");
    assert_member(translate_responses, "{\"input\":\"U\",\"thinking_budget_tokens\":9}",
                  "thinking_budget_tokens", "9");
}
END_TEST

#define THREE(tools) SPACE("s", SPACE("s", SPACE("s", tools)))

static const char *const wrong_responses[][2] = {
    {"{}", "'input' is required"},
    {"{\"input\":[{\"type\":\"unheard_of\"}]}", "'input' is required"},
    {"{\"input\":\"x\",\"previous_response_id\":\"r\"}", "'previous_response_id'"},
    {"{\"input\":\"x\",\"conversation\":{\"id\":\"r\"}}", "'conversation'"},
    {"{\"input\":\"x\",\"background\":true}", "'background'"},
    {"{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", "input[0]: nothing is stored"},
    {"{\"input\":[{\"role\":\"x\",\"content\":\"x\"}]}", "input[0]: 'role'"},
    {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}",
     "input[0]: content of type 'input_image' is not supported"},
    {"{\"input\":[{\"type\":\"function_call\"}]}", "input[0]: a call needs a 'name'"},
    {"{\"input\":\"x\",\"tools\":[" THREE(THREE(THREE(PLAIN("f")))) "]}", "more than 8 deep"},
    {"{\"input\":\"x\",\"tools\":{}}", "'tools' must be an array"},
    {"{\"input\":\"x\",\"tools\":[5]}", "'tools': a tool is an object with a 'type'"},
    {"{\"input\":\"x\",\"tools\":[{}]}", "'tools': a tool is an object with a 'type'"},
    {"{\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":5}]}", "needs a 'name'"},
    {"{\"input\":\"x\",\"tools\":[{\"type\":\"function\"}]}", "'tools': a function needs"},
    {"{\"input\":\"x\",\"reasoning\":7}", "'reasoning' must be an object"},
    {"{\"input\":\"x\",\"text\":7}", "'text' must be an object"},
};

START_TEST(an_invalid_response_is_refused)
{
    assert_refused(translate_responses, wrong_responses[_i][0], wrong_responses[_i][1]);
}
END_TEST

/* ---- Ollama ---------------------------------------------------------------------------------- */

static json_t *of_chat(const json_t *body, struct fail *f)
{
    return translate_ollama_chat(body, 4096, f);
}

static json_t *of_generate(const json_t *body, struct fail *f)
{
    return translate_ollama_generate(body, 4096, f);
}

#define OLLAMA_ASK "\"messages\":[{\"role\":\"user\",\"content\":\"U\"}]"

/* Of {"keep_alive": value} [ns]; 0: there is none. */
static uint64_t kept(const char *value)
{
    struct fail f;
    bool given = false;
    uint64_t ns = 0;
    json_t *body = json_pack("{s:o}", "keep_alive", json_loads(value, JSON_DECODE_ANY, NULL));
    int rc = translate_keep_alive(body, &given, &ns, &f);
    ck_assert_int_eq(given, rc == 0 && strcmp(value, "null") != 0);
    json_decref(body);
    return rc < 0 ? 7 : ns;
}

START_TEST(keep_alive_is_seconds_or_a_duration)
{
    const uint64_t second = 1000000000;
    static const char *const wrong[] = {"\"\"",       "\"soon\"", "\"5x\"", "\"m\"", "\"5m7\"",
                                        "\"1.2.3s\"", "true",     "[5]",    "\"-\""};
    ck_assert_uint_eq(kept("null"), 0);
    ck_assert_uint_eq(kept("0"), 0);
    ck_assert_uint_eq(kept("\"0s\""), 0);
    ck_assert_uint_eq(kept("\"0\""), 0);
    ck_assert_uint_eq(kept("90"), 90 * second);
    ck_assert_uint_eq(kept("0.5"), second / 2);
    ck_assert_uint_eq(kept("\"5m\""), 300 * second);
    ck_assert_uint_eq(kept("\"1h30m0.5s\""), 5400 * second + second / 2);
    ck_assert_uint_eq(kept("\"250ms\""), second / 4);
    ck_assert_uint_eq(kept("-1"), UINT64_MAX);
    ck_assert_uint_eq(kept("\"-1m\""), UINT64_MAX);
    ck_assert_uint_eq(kept("1e300"), UINT64_MAX);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        ck_assert_msg(kept(wrong[i]) == 7, "%s is taken", wrong[i]);
    for (int bytes = 64; bytes <= 65; bytes++) { /* the loop reads it */
        char text[80];
        snprintf(text, sizeof(text), "\"%0*ds\"", bytes - 1, 5);
        ck_assert_uint_eq(kept(text), bytes == 64 ? 5 * second : 7);
    }
}
END_TEST

START_TEST(ollama_s_options_have_its_defaults)
{
    static const char given[] =
        "{" OLLAMA_ASK ",\"stream\":false,\"keep_alive\":\"5m\",\"options\":{\"temperature\":0,"
        "\"num_predict\":-2,\"num_ctx\":8192,\"stop\":[\"a\"],\"seed\":7,\"num_gpu\":1}}";
    assert_member(of_chat, "{" OLLAMA_ASK "}", "stream", "true");
    assert_member(of_chat, "{" OLLAMA_ASK "}", "temperature", "0.8");
    assert_member(of_chat, "{" OLLAMA_ASK "}", "top_p", "0.9");
    assert_member(of_chat, "{" OLLAMA_ASK "}", "max_tokens", "-1");
    assert_member(of_chat, "{" OLLAMA_ASK "}", "min_p", "null");
    assert_member(of_chat, given, "stream", "false");
    assert_member(of_chat, given, "temperature", "0");
    assert_member(of_chat, given, "max_tokens", "-1");
    assert_member(of_chat, given, "stop", "[\"a\"]");
    assert_member(of_chat, given, "seed", "7");
    assert_member(of_chat, given, "num_gpu", "null");
    assert_member(of_chat, "{" OLLAMA_ASK ",\"format\":\"json\"}", "response_format",
                  "{\"type\":\"json_object\"}");
    assert_member(of_chat, "{" OLLAMA_ASK ",\"format\":{\"type\":\"string\"}}", "response_format",
                  "{\"type\":\"json_schema\",\"schema\":{\"type\":\"string\"}}");
    assert_member(of_chat, "{" OLLAMA_ASK ",\"think\":\"low\"}", "reasoning_effort", "\"low\"");
    assert_member(of_chat, "{" OLLAMA_ASK ",\"think\":false}", "enable_thinking", "false");
}
END_TEST

START_TEST(ollama_s_calls_may_have_ids)
{
    assert_member(
        of_chat,
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\",\"tool_"
        "calls\":["
        "{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}},"
        "{\"id\":\"own\",\"function\":{\"name\":\"g\",\"arguments\":\"{ \\\"b\\\":1}\"}}]},"
        "{\"role\":\"tool\",\"content\":\"r\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"own\",\"content\":\"s\"},"
        "{\"role\":\"tool\",\"tool_name\":\"h\",\"content\":\"t\"}]}",
        "messages",
        "[{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"hm\",\"tool_calls\":["
        "{\"id\":\"\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
        "\"{\\\"a\\\": 1}\"}},{\"id\":\"own\",\"type\":\"function\",\"function\":{\"name\":\"g\","
        "\"arguments\":\"{ \\\"b\\\":1}\"}}]},"
        "{\"role\":\"tool\",\"content\":\"r\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"own\",\"name\":\"g\",\"content\":\"s\"},"
        "{\"role\":\"tool\",\"content\":\"t\",\"name\":\"h\"}]");
}
END_TEST

START_TEST(a_prompt_is_a_conversation_unless_it_is_raw)
{
    static const char plain[] = "{\"prompt\":\"U\",\"system\":\"S\",\"suffix\":\"\"}";
    static const char raw[] = "{\"prompt\":\"U\",\"system\":\"S\",\"raw\":true}";
    static const char middle[] = "{\"prompt\":\"U\",\"suffix\":\"V\"}";
    assert_member(
        of_generate, plain, "messages",
        "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"}]");
    assert_member(of_generate, plain, "prompt", "null");
    assert_member(of_generate, raw, "messages", "[]");
    assert_member(of_generate, raw, "prompt", "\"U\"");
    assert_member(of_generate, middle, "suffix", "\"V\"");
}
END_TEST

static const struct {
    translation_fn *translate;
    const char *json, *what;
} wrong_ollama[] = {
    {of_chat, "{\"messages\":7}", "'messages' must be an array"},
    {of_chat, "{\"messages\":[7]}", "messages[0]: 'role'"},
    {of_chat, "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages[0]: 'content'"},
    {of_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"images\":[\"aa\"]}]}",
     "messages[0]: 'images' are not supported"},
    {of_chat, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}",
     "messages[0]: a call"},
    {of_chat, "{" OLLAMA_ASK ",\"options\":7}", "'options' must be an object"},
    {of_chat, "{" OLLAMA_ASK ",\"options\":{\"num_predict\":\"x\"}}", "'num_predict'"},
    {of_chat, "{" OLLAMA_ASK ",\"format\":\"xml\"}", "'format'"},
    {of_chat, "{" OLLAMA_ASK ",\"think\":7}", "'think'"},
    {of_chat, "{" OLLAMA_ASK ",\"stream\":7}", "'stream'"},
    {of_generate, "{\"prompt\":7}", "'prompt' must be a string"},
    {of_generate, "{\"prompt\":\"x\",\"images\":[\"aa\"]}", "'images' are not supported"},
    {of_generate, "{\"prompt\":\"x\",\"template\":\"{{ .Prompt }}\"}",
     "'template' is not supported"},
};

START_TEST(an_invalid_request_of_ollama_is_refused)
{
    assert_refused(wrong_ollama[_i].translate, wrong_ollama[_i].json, wrong_ollama[_i].what);
}
END_TEST

/* ---- what a result has beside texts ---- */

#define LEFT_OUT(type) "[content of type '" type "' was left out: this model reads text only]"
static const struct {
    translation_fn *translate;
    const char *json, *type;
} pictures[] = {
    {of_messages,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":"
     "\"c\",\"content\":[{\"type\":\"text\",\"text\":\"r\"},{\"type\":\"image\"}]}]}]}",
     "image"},
    {translate_responses,
     "{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":"
     "\"input_text\",\"text\":\"r\"},{\"type\":\"input_image\",\"image_url\":\"x\"}]}]}",
     "input_image"},
    {of_chat,
     "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"r\",\"images\":"
     "[\"aa\"]}]}",
     "images"},
};

START_TEST(of_a_result_s_image_the_model_is_told_that_it_was_left_out)
{
    char want[256];
    snprintf(want, sizeof(want),
             "[{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"r\\n" LEFT_OUT("%s") "\"}]",
             pictures[_i].type);
    assert_member(pictures[_i].translate, pictures[_i].json, "messages", want);
}
END_TEST

/* ---- without memory -------------------------------------------------------------------------- */

static size_t n_left; /* allocations that succeed */

static void *scarce(size_t bytes)
{
    return n_left ? n_left--, malloc(bytes) : NULL;
}

/* What is given back is of no more use. */
static void spoil(void *p)
{
    if (p)
        memset(p, 0xdd, malloc_usable_size(p));
    free(p);
}

static json_t *of_ollama(const json_t *body, struct fail *f)
{
    return translate_ollama_chat(body, 4096, f);
}

/* Each allocation fails in turn: the answer is an error, and nothing is used that was given
 * back. */
START_TEST(memory_that_runs_out_is_an_error)
{
    static const struct {
        translation_fn *translate;
        const char *body;
    } all[] = {
        {of_messages,
         "{\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":[{\"role\":\"user\","
         "\"content\":\"u\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
         "\"thinking\":\"t\"},{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"tool_use\",\"id\":"
         "\"1\",\"name\":\"f\",\"input\":{\"x\":1.5}}]},{\"role\":\"user\",\"content\":[{\"type\":"
         "\"tool_result\",\"tool_use_id\":\"1\",\"content\":[{\"type\":\"other\"}],\"is_error\":"
         "true}]}],\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"strict\":true}],"
         "\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"},\"thinking\":{\"type\":\"enabled\","
         "\"budget_tokens\":3},\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":"
         "{}}}}"},
        {translate_responses,
         "{\"instructions\":\"i\",\"input\":[{\"type\":\"reasoning\",\"content\":[{\"type\":"
         "\"reasoning_text\",\"text\":\"t\"}]},{\"type\":\"message\",\"role\":\"assistant\","
         "\"content\":\"a\"},{\"type\":\"function_call\",\"call_id\":\"1\",\"namespace\":\"n\","
         "\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"custom_tool_call\",\"call_id\":\"2\","
         "\"name\":\"g\",\"input\":\"x\"},{\"type\":\"function_call_output\",\"call_id\":\"1\","
         "\"output\":\"o\"}],\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{"
         "\"type\":"
         "\"function\",\"name\":\"f\",\"strict\":true}]},{\"type\":\"custom\",\"name\":\"g\"}],"
         "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\",\"namespace\":\"n\"},\"reasoning\":"
         "{\"effort\":\"low\"},\"text\":{\"format\":{\"type\":\"text\"}}}"},
        {of_ollama,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":"
         "\"assistant\",\"thinking\":\"t\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
         "\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"r\"}],"
         "\"options\":{\"temperature\":0.5},\"format\":{\"type\":\"object\"},\"think\":true}"}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        json_t *o = NULL, *body = parse(all[i].body);
        for (size_t n = 0; !o; n++) {
            ck_assert_uint_lt(n, 2000);
            fail = (struct fail){0};
            n_left = n;
            json_set_alloc_funcs(scarce, spoil);
            o = all[i].translate(body, &fail);
            json_set_alloc_funcs(malloc, free);
            ck_assert_msg(o || fail.status == 500, "%zu: %s", n, fail.message);
        }
        json_t *want = translated(all[i].translate, all[i].body);
        ck_assert(json_equal(o, want));
        json_decref(want);
        json_decref(o);
        json_decref(body);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_translate");
    TCase *tcase = tcase_create("messages");
    tcase_add_test(tcase, a_message_s_string_and_its_block_are_the_same);
    tcase_add_test(tcase, a_billing_header_is_dropped_unless_it_is_kept);
    tcase_add_test(tcase, of_a_text_that_begins_with_a_billing_header_the_rest_stays);
    tcase_add_test(tcase, calls_and_their_results_become_messages);
    tcase_add_test(tcase, blocks_that_are_not_known_are_shown_to_the_model);
    tcase_add_test(tcase, tools_lose_what_the_model_need_not_see);
    tcase_add_test(tcase, thinking_is_off_unless_it_is_asked_for);
    tcase_add_test(tcase, fields_are_renamed_or_left_out);
    tcase_add_loop_test(tcase, an_invalid_message_is_refused, 0,
                        sizeof(wrong_messages) / sizeof(wrong_messages[0]));
    tcase_add_test(tcase, memory_that_runs_out_is_an_error);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("responses");
    tcase_add_test(tcase, items_become_messages);
    tcase_add_test(tcase, thoughts_in_many_items_are_one_text);
    tcase_add_test(tcase, tools_of_a_namespace_are_flat_and_found_again);
    tcase_add_test(tcase, a_namespace_with_a_zero_in_its_name_is_compared_up_to_that);
    tcase_add_test(tcase, a_namespace_in_a_namespace_is_flat_too);
    tcase_add_test(tcase, a_namespace_s_name_has_a_limit);
    tcase_add_test(tcase, a_response_s_fields_are_renamed);
    tcase_add_test(tcase, each_type_that_is_left_out_is_said_once);
    tcase_add_test(tcase, types_without_end_are_not_remembered);
    tcase_add_loop_test(tcase, an_invalid_response_is_refused, 0,
                        sizeof(wrong_responses) / sizeof(wrong_responses[0]));
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("ollama");
    tcase_add_test(tcase, keep_alive_is_seconds_or_a_duration);
    tcase_add_test(tcase, ollama_s_options_have_its_defaults);
    tcase_add_test(tcase, ollama_s_calls_may_have_ids);
    tcase_add_test(tcase, a_prompt_is_a_conversation_unless_it_is_raw);
    tcase_add_loop_test(tcase, an_invalid_request_of_ollama_is_refused, 0,
                        sizeof(wrong_ollama) / sizeof(wrong_ollama[0]));
    tcase_add_loop_test(tcase, of_a_result_s_image_the_model_is_told_that_it_was_left_out, 0,
                        (int)(sizeof(pictures) / sizeof(pictures[0])));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
