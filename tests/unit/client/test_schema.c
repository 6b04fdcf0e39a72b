/* JSON schemas to grammars: the rules that the converter makes, and what the daemon makes of them.
 * What is refused: test_schema_refused.c; another engine's vectors: test_schema_vectors.c. */
#include "tests/run_suite.h"
#include "tests/rig/schema_convert.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define P(pattern) "{\"type\":\"string\",\"pattern\":\"" pattern "\"}"

/* ---- rules ----------------------------------------------------------------------------------- */

static void assert_line(const char *json, const char *line)
{
    ck_assert_msg(schema_convert(json) > 0, "%s: %s", json, schema_err);
    size_t bytes = strlen(line);
    const char *p = schema_grammar;
    while ((p = strstr(p, line)) && (p[bytes] != '\n' || (p > schema_grammar && p[-1] != '\n')))
        p++;
    ck_assert_msg(p != NULL, "%s: no line <%s> in\n%s", json, line, schema_grammar);
}

struct line {
    const char *json, *line;
};

static void assert_lines(const struct line *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_line(all[i].json, all[i].line);
}
#define ASSERT_LINES(all) assert_lines(all, sizeof(all) / sizeof(all)[0])

START_TEST(the_type_of_a_schema_follows_from_its_keywords)
{
    static const struct line all[] = {
        {"{\"type\":\"null\"}", "root ::= \"null\" space"},
        {"true", "root ::= value"},
        {"{\"title\":\"anything\"}", "root ::= object"},
        {"{\"properties\":{\"a\":{\"description\":\"any\"}},\"required\":[\"a\"]}",
         "a-kv ::= \"\\\"a\\\"\" space \":\" space value"},
        {"{\"required\":[\"a\"]}", "root ::= \"{\" space a-kv \"}\" space"},
        {"{\"minItems\":1}", "root ::= \"[\" space value (\",\" space value)* \"]\" space"},
        {"{\"type\":\"string\",\"nullable\":true}", "root ::= string | null"},
        {"{\"type\":[\"string\",\"null\"],\"enum\":[\"a\",null,1]}",
         "root ::= (\"\\\"a\\\"\" | \"null\") space"},
        {"{\"enum\":[1,3,7,\"abc\",\"\xc3\xa9\",[],null],\"minimum\":3,\"exclusiveMaximum\":7,"
         "\"maxLength\":1,\"minItems\":1}",
         "root ::= (\"3\" | \"\\\"\xc3\xa9\\\"\" | \"null\") space"},
        {"{\"minimum\":10,\"anyOf\":[{\"enum\":[1]},{\"enum\":[20]}]}", "root ::= (\"20\") space"},
        {"{\"items\":false}", "root ::= \"[\" space  \"]\" space"},
        {"{\"const\":[0.1,\"q\\\"\\\\\"]}", "root ::= \"[0.1,\\\"q\\\\\\\"\\\\\\\\\\\"]\" space"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"items\":{\"type\":"
         "\"boolean\"},"
         "\"minItems\":2,\"maxItems\":3}",
         "root ::= \"[\" space null (\",\" space boolean){1,2} \"]\" space"},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"maxItems\":0}",
         "root ::= \"[\" space  \"]\" space"},
        {"{\"format\":\"uuid4\"}",
         "root ::= \"\\\"\" [0-9a-fA-F]{8} \"-\" [0-9a-fA-F]{4} \"-\" [0-9a-fA-F]{4} \"-\" "
         "[0-9a-fA-F]{4} \"-\" [0-9a-fA-F]{12} \"\\\"\" space"},
    };
    ASSERT_LINES(all);
}
END_TEST

START_TEST(bounds_of_integers_count_zeros_and_fractions)
{
    static const struct line all[] = {
        {"{\"type\":\"integer\",\"minimum\":100}",
         "root ::= ([1] ([0-9]{2,15}) | [2-9] [0-9]{2,15}) space"},
        {"{\"type\":\"integer\",\"minimum\":105}",
         "root ::= ([1] ([0] ([0-4] [0-9]{1,13} | [5-9] [0-9]{0,13}) | [1-9] [0-9]{1,14}) | [2-9] "
         "[0-9]{2,15}) space"},
        {"{\"type\":\"integer\",\"maximum\":-12}",
         "root ::= (\"-\" ([1] ([0-1] [0-9]{1,14} | [2-9] [0-9]{0,14}) | [2-9] [0-9]{1,15})) "
         "space"},
        {"{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":2.5}", "root ::= ([1-2]) space"},
        {"{\"type\":\"integer\",\"minimum\":1,\"exclusiveMinimum\":true,\"exclusiveMaximum\":9}",
         "root ::= ([2-8]) space"},
        {"{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
         "root ::= (\"-\"? integral-part) space"},
        {"{\"type\":\"integer\",\"minimum\":9999999999999998}",
         "root ::= ([9] ([9] ([9] ([9] ([9] ([9] ([9] ([9] ([9] ([9] ([9] ([9] ([9] ([9] ([9] "
         "([8-9])))))))))))))))) space"},
    };
    ASSERT_LINES(all);
}
END_TEST

/* Whatever engine looks at the answer. */
START_TEST(the_non_blank_class_excludes_unicode_blanks)
{
    static const char *const blanks[] = {" ",
                                         "\\t",
                                         "\\u001c",
                                         "\xc2\x85",
                                         "\xc2\xa0",
                                         "\xe1\x9a\x80",
                                         "\xe2\x80\x80",
                                         "\xe2\x80\x8a",
                                         "\xe2\x80\xa8",
                                         "\xe2\x80\xa9",
                                         "\xe2\x80\xaf",
                                         "\xe2\x81\x9f",
                                         "\xe3\x80\x80",
                                         "\xef\xbb\xbf"};
    static const char *const others[] = {
        "x", "!", "\xc2\x84", "\xc3\xa9", "\xe2\x80\x8b", "\xe6\x97\xa5", "\xf0\x9f\x98\x80"};
    static const char *const schemas[] = {P("^\\\\S$"), P("^[\\\\S]$")};
    char text[16];
    for (size_t i = 0; i < 2; i++) {
        ck_assert_msg(schema_convert(schemas[i]) > 0, "%s", schema_err);
        for (size_t k = 0; k < sizeof(blanks) / sizeof(blanks[0]); k++) {
            snprintf(text, sizeof(text), "\"%s\"", blanks[k]);
            ck_assert_msg(!schema_takes(schemas[i], text), "%s takes blank %zu", schemas[i], k);
        }
        for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++) {
            snprintf(text, sizeof(text), "\"%s\"", others[k]);
            ck_assert_msg(schema_takes(schemas[i], text), "%s: no %s", schemas[i], text);
        }
    }
}
END_TEST

START_TEST(a_pattern_stays_inside_its_string)
{
    static const struct line all[] = {
        {P("^[ -~]$"), "root ::= \"\\\"\" (([ -!#-\\[\\]-~] | [\\\\] [\\\"\\\\])) \"\\\"\" space"},
        {P("^[^,-]$"), "root ::= \"\\\"\" (([^,\"\\\\\\x7F\\x00-\\x1F-] | [\\\\] [\\\"\\\\bfnrt])) "
                       "\"\\\"\" space"},
        {P("^.*$"), "root ::= \"\\\"\" (char*) \"\\\"\" space"},
        {P("^a\\\\nb\\\\\\\\$"), "root ::= \"\\\"\" (\"a\\\\nb\\\\\\\\\") \"\\\"\" space"},
        {P("^\\\\d\\\\w$"), "root ::= \"\\\"\" ([0-9] [a-zA-Z0-9_]) \"\\\"\" space"},
        {P("^\\\\x01[\\\\t\\\\x01]$"),
         "root ::= \"\\\"\" (\"\\\\u0001\" ([\\\\] [t] | \"\\\\u0001\")) \"\\\"\" space"},
        {P("^[-^\\\\]]$"), "root ::= \"\\\"\" ([\\x5E\\]-]) \"\\\"\" space"},
        {P("^(?:a|)(?<n>b)$"), "root ::= \"\\\"\" ((\"a\" | \"\") (\"b\")) \"\\\"\" space"},
        {P("^(ab){2}$"), "root-1 ::= (\"ab\")"},
        {P("^\\\\uD83D\\\\uDE00$"), "root ::= \"\\\"\" (\"\xf0\x9f\x98\x80\") \"\\\"\" space"},
        {P("b"), "root ::= \"\\\"\" (char* (\"b\") char*) \"\\\"\" space"},
        {P("^a\\\\$"), "root ::= \"\\\"\" ((\"a$\") char*) \"\\\"\" space"},
        {"{\"pattern\":\"^[a-z]{2,5}$\",\"minLength\":1,\"maxLength\":5}", "root-1 ::= [a-z]"},
    };
    ASSERT_LINES(all);
}
END_TEST

START_TEST(schemas_of_an_allof_are_merged)
{
    static const struct line all[] = {
        {"{\"allOf\":[{\"type\":\"number\"},{\"type\":\"integer\",\"minimum\":3}],\"maximum\":5}",
         "root ::= ([3-5]) space"},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]},"
         "{\"properties\":{\"b\":{\"type\":\"null\"}}}]}",
         "root ::= \"{\" space a-kv ( \",\" space ( b-kv ) )? \"}\" space"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}}"
         ","
         "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
         "alternative-1 ::= \"{\" space alternative-1-b-kv ( \",\" space ( alternative-1-a-kv ) )? "
         "\"}\" space"},
        {"{\"$ref\":\"#/$defs/"
         "s\",\"maxLength\":2,\"$defs\":{\"s\":{\"type\":\"string\",\"minLength\":1}}}",
         "root ::= \"\\\"\" char{1,2} \"\\\"\" space"},
        {"{\"allOf\":[{\"$ref\":\"#/$defs/"
         "c\"}],\"default\":\"r\",\"$defs\":{\"c\":{\"enum\":[\"r\"]}}}",
         "c ::= (\"\\\"r\\\"\") space"},
        /* A closed object has none of the other's properties. */
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"],"
         "\"additionalProperties\":false},{\"properties\":{\"b\":{\"type\":\"null\"}}}]}",
         "root ::= \"{\" space a-kv \"}\" space"},
        {"{\"oneOf\":[{\"enum\":[1,2,3]},{\"const\":9}],\"enum\":[2,3,4]}",
         "root ::= (\"2\" | \"3\") space"},
    };
    ASSERT_LINES(all);
}
END_TEST

START_TEST(a_schema_may_refer_to_itself)
{
    static const struct line all[] = {
        {"{\"properties\":{\"sub\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}}}",
         "sub-item ::= root"},
        {"{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":"
         "\"#/$defs/n\"},{\"type\":\"null\"}]}}}}}",
         "n-next-0 ::= n"},
        {"{\"$ref\":\"#/$defs/string\",\"$defs\":{\"string\":{\"items\":{\"$ref\":\"#/$defs/"
         "string\"}}}}",
         "string- ::= \"[\" space (string-item (\",\" space string-item)*)? \"]\" space"},
        {"{\"prefixItems\":[{\"$ref\":\"#/a/x\"},{\"$ref\":\"#/b/"
         "x\"}],\"a\":{\"x\":{\"enum\":[1]}},"
         "\"b\":{\"x\":{\"enum\":[2]}}}",
         "x0 ::= (\"2\") space"},
        {"{\"$ref\":\"#/$defs/a~1b%20c\",\"$defs\":{\"a/b c\":{\"enum\":[1]}}}",
         "a-1b-20c ::= (\"1\") space"},
    };
    ASSERT_LINES(all);
}
END_TEST

START_TEST(merged_types_are_listed_once)
{
    char text[8192], *p = stpcpy(text, "{\"allOf\":[true");
    for (int i = 0; i < 20; i++)
        p = stpcpy(p, ",{\"type\":[\"number\",\"integer\"]},{\"type\":[\"integer\",\"number\"]}");
    stpcpy(p, "],\"minimum\":1}");
    assert_line(text, "root ::= alternative-0 | number");
}
END_TEST

/* ---- what the daemon makes of them ----------------------------------------------------------- */

START_TEST(answers_follow_their_schema)
{
    static const struct {
        const char *json;
        const char *good[4], *bad[4];
    } all[] = {
        {P("^[ -~]*$"), {"\"ab\"", "\"a\\\"b\"", "\"\\\\\""}, {"\"a\"b\"", "\"\\\"", "\"\n\""}},
        {P("^[^,]+$"), {"\"ab\"", "\"\\n\"", "\"\xc3\xa9\""}, {"\"a,\"", "\"\"", "\"a\"b\""}},
        {P("^(ab|c){2,3}-?$"), {"\"abc\"", "\"ccc-\""}, {"\"c\"", "\"abababab\""}},
        {"{\"$ref\":\"#/$defs/"
         "n\",\"$defs\":{\"n\":{\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":"
         "{\"anyOf\":[{\"$ref\":\"#/$defs/"
         "n\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}}}",
         {"{\"v\":1,\"next\":{\"v\":-2,\"next\":null}}"},
         {"{\"v\":1}", "{\"v\":1,\"next\":{}}"}},
        {"{\"properties\":{\"a]\":{\"type\":\"null\"},\"\xc3\xa9\":{\"type\":\"null\"}},"
         "\"additionalProperties\":{\"type\":\"boolean\"}}",
         {"{}", "{\"a]\":null,\"\xc3\xa9\":null,\"x\":true}", "{\"\xc3\xa8\":true}",
          "{\"a]b\":false}"},
         {"{\"\xc3\xa9\":true}", "{\"x\":null}", "{\"a]\":true}"}},
        {"{\"allOf\":[{\"type\":\"number\"},{\"type\":\"integer\",\"minimum\":3}],\"maximum\":15}",
         {"3", "9", "10", "15"},
         {"2", "16", "3.0", "-3"}},
        {"true", {"1.5e3", "[null, {\"a\": \"b\"}]"}, {"nul", "[1,]"}},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        ck_assert_msg(schema_convert(all[i].json) > 0, "%s: %s", all[i].json, schema_err);
        for (int k = 0; k < 4; k++) {
            const char *good = all[i].good[k], *bad = all[i].bad[k];
            ck_assert_msg(!good || schema_takes(all[i].json, good), "%s refuses %s", all[i].json,
                          good);
            ck_assert_msg(!bad || !schema_takes(all[i].json, bad), "%s takes %s", all[i].json, bad);
        }
    }
}
END_TEST

/* Every integer around both bounds is taken exactly when it lies between them. */
START_TEST(integers_are_exactly_those_between_the_bounds)
{
    static const int bounds[][2] = {{0, 0},      {-1, 1},      {7, 130},   {-130, -7},
                                    {-99, 1000}, {100, 19999}, {105, 105}, {-1010, -101}};
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        for (int which = 1; which < 4; which++) {
            int from = bounds[i][0], to = bounds[i][1];
            char json[120], least[40] = "", most[40] = "", text[24];
            if (which & 1)
                snprintf(least, sizeof(least), ",\"minimum\":%d", from);
            if (which & 2)
                snprintf(most, sizeof(most), ",\"maximum\":%d", to);
            snprintf(json, sizeof(json), "{\"type\":\"integer\"%s%s}", least, most);
            ck_assert_msg(schema_convert(json) > 0, "%s", schema_err);
            for (int edge = 0; edge < 4; edge++)
                for (int n = -12; n <= 12; n++) {
                    int value = (edge == 3 ? 100000 : edge == 2 ? 0 : bounds[i][edge]) + n;
                    bool want = (!(which & 1) || value >= from) && (!(which & 2) || value <= to);
                    snprintf(text, sizeof(text), "%d", value);
                    ck_assert_msg(schema_takes(json, text) == want, "%s: %s", json, text);
                }
        }
}
END_TEST

/* Memory that free() does not take. */
static void *of_program(size_t bytes)
{
    char *p = malloc(bytes + 64);
    return p ? p + 64 : NULL;
}

static void to_program(void *p)
{
    if (p)
        free((char *)p - 64);
}

START_TEST(a_program_may_give_jansson_its_own_memory)
{
    json_set_alloc_funcs(of_program, to_program);
    assert_line("{\"const\":0.5}", "root ::= \"0.5\" space");
    ck_assert_int_gt(schema_convert("{\"type\":\"object\",\"properties\":{\"a\\\"\":{}},"
                                    "\"additionalProperties\":true}"),
                     0);
    json_set_alloc_funcs(malloc, free);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schema");
    TCase *tc = tcase_create("schema");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, the_type_of_a_schema_follows_from_its_keywords);
    tcase_add_test(tc, bounds_of_integers_count_zeros_and_fractions);
    tcase_add_test(tc, the_non_blank_class_excludes_unicode_blanks);
    tcase_add_test(tc, a_pattern_stays_inside_its_string);
    tcase_add_test(tc, schemas_of_an_allof_are_merged);
    tcase_add_test(tc, a_schema_may_refer_to_itself);
    tcase_add_test(tc, merged_types_are_listed_once);
    tcase_add_test(tc, answers_follow_their_schema);
    tcase_add_test(tc, integers_are_exactly_those_between_the_bounds);
    tcase_add_test(tc, a_program_may_give_jansson_its_own_memory);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
