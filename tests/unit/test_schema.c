/* JSON schemas to grammars: rules of the converter, what it refuses and in which words, and the
 * vectors of another engine (HEARTH_TESTDATA, vectors/json_schema_to_grammar.llama.cpp.json), text by
 * text. */
#include "client/hearth.h"
#include "client/schema.h"
#include "kernels/grammar.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char grammar[SCHEMA_GRAMMAR_MAX + 1], err[600];

static int64_t convert(const char *json)
{
    return hearth_schema(json, strlen(json), grammar, sizeof grammar, err, sizeof err);
}

#define P(pattern) "{\"type\":\"string\",\"pattern\":\"" pattern "\"}"

/* ---- rules ----------------------------------------------------------------------------------- */

static void assert_line(const char *json, const char *line)
{
    ck_assert_msg(convert(json) > 0, "%s: %s", json, err);
    size_t bytes = strlen(line);
    const char *p = grammar;
    while ((p = strstr(p, line)) && (p[bytes] != '\n' || (p > grammar && p[-1] != '\n')))
        p++;
    ck_assert_msg(p != NULL, "%s: no line <%s> in\n%s", json, line, grammar);
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

START_TEST(what_a_place_takes_is_seen_from_its_keywords)
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

START_TEST(schemas_that_hold_together_become_one)
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

/* ---- what the daemon makes of them ----------------------------------------------------------- */

/* A vocabulary of single bytes, and an end. */
static struct grammar_vocab *open_bytes(void)
{
    static struct grammar_token tokens[257];
    static char bytes[256];
    for (uint32_t i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct grammar_token){.bytes = &bytes[i], .n_bytes = 1};
    }
    tokens[256].is_end = true;
    struct grammar_vocab *v;
    ck_assert_int_eq(grammar_vocab_open(tokens, 257, 257, &v), 0);
    return v;
}

/* Does the last grammar that was made take the whole text? */
static bool takes(const char *name, const char *text)
{
    struct grammar_vocab *v = open_bytes();
    struct grammar *g;
    struct grammar_run run;
    int rc = grammar_open(v, grammar, strlen(grammar), &g, err, sizeof err);
    ck_assert_msg(rc == 0, "%.200s: %s\n%.2000s", name, err, grammar);
    grammar_begin(g, false, &run);
    for (const char *p = text; !rc && *p; p++)
        rc = grammar_accept(&run, (uint8_t)*p);
    ck_assert(rc == 0 || rc == -EPERM);
    rc = rc ? rc : grammar_accept(&run, 256);
    grammar_end(&run);
    grammar_close(g);
    grammar_vocab_close(v);
    return rc == 0;
}

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
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ck_assert_msg(convert(all[i].json) > 0, "%s: %s", all[i].json, err);
        for (int k = 0; k < 4; k++) {
            const char *good = all[i].good[k], *bad = all[i].bad[k];
            ck_assert_msg(!good || takes(all[i].json, good), "%s refuses %s", all[i].json, good);
            ck_assert_msg(!bad || !takes(all[i].json, bad), "%s takes %s", all[i].json, bad);
        }
    }
}
END_TEST

/* Every integer around both bounds is taken exactly when it lies between them. */
START_TEST(integers_are_exactly_those_between_the_bounds)
{
    static const int bounds[][2] = {{0, 0},      {-1, 1},      {7, 130},   {-130, -7},
                                    {-99, 1000}, {100, 19999}, {105, 105}, {-1010, -101}};
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        for (int which = 1; which < 4; which++) {
            int from = bounds[i][0], to = bounds[i][1];
            char json[120], least[40] = "", most[40] = "", text[24];
            if (which & 1)
                snprintf(least, sizeof least, ",\"minimum\":%d", from);
            if (which & 2)
                snprintf(most, sizeof most, ",\"maximum\":%d", to);
            snprintf(json, sizeof json, "{\"type\":\"integer\"%s%s}", least, most);
            ck_assert_msg(convert(json) > 0, "%s", err);
            for (int edge = 0; edge < 4; edge++)
                for (int n = -12; n <= 12; n++) {
                    int value = (edge == 3 ? 100000 : edge == 2 ? 0 : bounds[i][edge]) + n;
                    bool want = (!(which & 1) || value >= from) && (!(which & 2) || value <= to);
                    snprintf(text, sizeof text, "%d", value);
                    ck_assert_msg(takes(json, text) == want, "%s: %s", json, text);
                }
        }
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static void assert_refused(const char *json, const char *words)
{
    int64_t rc = convert(json);
    ck_assert_msg(rc == -EINVAL, "%.200s was taken:\n%.2000s", json, grammar);
    ck_assert_msg(strstr(err, words) != NULL, "%.200s: <%s> is not in <%s>", json, words, err);
    ck_assert_msg(!strchr(err, '\n') && strncmp(err, "schema", 6) == 0, "<%s>", err);
}

START_TEST(what_is_refused_is_named_with_its_place)
{
    static const char *const all[][2] = {
        {"", "not JSON at line 1"},
        {"{\"type\":\"string\"", "not JSON at line 1, column 16"},
        {"\"a\"", "a schema is an object"},
        {"false", "nothing can match"},
        {"{\"a\":1,\"a\":2}", "duplicate"},
        {"{\"properties\":{\"a/b\":{\"type\":\"kaboom\"}}}",
         "#/properties/a~1b: unknown type 'kaboom'"},
        {"{\"type\":123}", "\"type\" must be a text or an array"},
        {"{\"type\":[\"string\",7]}", "a type is a text"},
        {"{\"type\":[]}", "\"type\" is empty"},
        {"{\"properties\":[]}", "\"properties\" must be an object"},
        {"{\"items\":{\"anyOf\":[{},3]}}", "#/items/anyOf/1: a schema is an object"},
        {"{\"required\":[1],\"properties\":{}}", "\"required\" holds something"},
        {"{\"required\":[\"x\"],\"additionalProperties\":false}", "'x', which is no property"},
        {"{\"type\":\"string\",\"minLength\":-1}", "\"minLength\" must be a whole number"},
        {"{\"type\":\"string\",\"maxLength\":1000000}", "from 0 to 10000"},
        {"{\"items\":{},\"minItems\":3,\"maxItems\":2}", "\"minItems\" is above \"maxItems\""},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no integer"},
        {"{\"not\":{\"type\":\"null\"}}", "\"not\" is not supported"},
        {"{\"items\":{\"patternProperties\":{}}}",
         "#/items: \"patternProperties\" is not supported"},
        {"{\"if\":{}}", "\"if\""},
        {"{\"type\":\"number\",\"multipleOf\":3}", "\"multipleOf\""},
        {"{\"$ref\":\"http://example.com/x.json\"}",
         "'http://example.com/x.json' is not in this schema"},
        {"{\"$ref\":\"#/$defs/x\"}", "'#/$defs/x' leads nowhere"},
        {"{\"$ref\":\"#\"}", "refers to itself"},
        {"{\"properties\":{\"\":{\"type\":\"null\"},\"a\":{\"items\":{\"$ref\":\"#\"}},\"b\":{\"$"
         "ref\":\"#\"}}}",
         "a property without a name"},
        {"{\"$ref\":\"#/a\",\"a\":{\"$ref\":\"#/b\"},\"b\":{\"$ref\":\"#/a\"}}",
         "refers to itself"},
        {"{\"$ref\":\"#/a\",\"a\":{\"anyOf\":[{\"$ref\":\"#/a\"},{}]}}", "refers to itself"},
        {"{\"$ref\":\"#/a\",\"type\":\"string\",\"a\":{\"$ref\":\"#/a\",\"minLength\":1}}",
         "refers to itself"},
        {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "contradict"},
        {"{\"type\":\"string\",\"const\":1}", "does not let it through"},
        {"{\"const\":\"abc\",\"maxLength\":2}", "does not let it through"},
        {"{\"const\":[1],\"minItems\":2}", "does not let it through"},
        {"{\"const\":1,\"enum\":[2]}", "does not let it through"},
        {"{\"enum\":[1,5],\"exclusiveMinimum\":5}", "lets no value of it"},
        {"{\"enum\":[\"a\"],\"pattern\":\"^b$\"}", "\"pattern\" beside \"const\" or \"enum\""},
        {"{\"const\":{\"a\":1},\"required\":[\"b\"]}", "\"required\" beside \"const\""},
        {"{\"items\":{\"minLength\":2},\"anyOf\":[{\"prefixItems\":[{\"type\":\"string\"}]}]}",
         "\"prefixItems\" in one of two"},
        {"{\"items\":false,\"minItems\":1}", "\"minItems\" is 1, and only 0 items are described"},
        {"{\"type\":[\"null\",\"null\",\"null\",\"null\",\"null\",\"null\",\"null\",\"null\"]}",
         "\"type\" names a type twice"},
        {"{\"additionalProperties\":true,\"properties\":{\"0123456789012345678901234567890123456789"
         "012345678901234567890123456789012345678901234567890123456\":{}}}",
         "too long beside additionalProperties"},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":3}",
         "put the length into the pattern"},
        {P("^(a$"), "#/pattern: the pattern '^(a$' at byte 3: ( without )"},
        {P("^a)$"), ") without ("},
        {P("^[a$"), "[ without ]"},
        {P("^(a*)*$"), "may be empty"},
        {P("^a{1000000}$"), "at byte 3: more than 10000 repetitions"},
        {P("^a{2,1}$"), "not a number of repetitions"},
        {P("^a{1$"), "not a number of repetitions"},
        {P("^(?=a)a$"), "look ahead"},
        {P("^(?<=a)a$"), "look ahead"},
        {P("^(a)\\\\1$"), "references back"},
        {P("^a\\\\b$"), "word boundaries"},
        {P("^+a$"), "nothing in front"},
        {P("^a^$"), "^ is supported in front"},
        {P("^[z-a]$"), "begins above its end"},
        {P("^\\\\uDE00$"), "surrogate"},
        {P("^a\\\\"), "a backslash at the end"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_refused(all[i][0], all[i][1]);
}
END_TEST

/* n times `open`, the middle, n times `close`. */
static char *nested(size_t n, const char *open, const char *middle, const char *close)
{
    char *text = malloc(n * (strlen(open) + strlen(close)) + strlen(middle) + 1), *p = text;
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, open);
    p = stpcpy(p, middle);
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, close);
    return text;
}

START_TEST(hostile_schemas_end_within_the_bounds)
{
    static const struct {
        size_t n;
        const char *open, *middle, *close, *words;
    } all[] = {
        {100000, "[", "", "]", "maximum parsing depth"},
        {100, "{\"items\":", "{}", "}", "too deep"},
        {100, "{\"allOf\":[", "{\"type\":\"null\",\"enum\":[null]}", ",{}]}", "too deep"},
        {1, "{\"allOf\":[",
         "{\"anyOf\":[{\"minItems\":1},{\"minItems\":2},{},{},{}]},"
         "{\"anyOf\":[{\"maxItems\":3},{\"maxItems\":4},{},{},{}]},"
         "{\"anyOf\":[{\"type\":\"array\"},{\"type\":\"null\"},{}]}",
         "]}", "more than 64 combinations"},
        {300000, "", "{\"pattern\":\"^((((((((((((((((((((((((((((((((((((((((((((((((((((((", "",
         "not JSON"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char *text = nested(all[i].n, all[i].open, all[i].middle, all[i].close);
        assert_refused(text, all[i].words);
        free(text);
    }
    char *groups = nested(200, "(", "a", ")"), pattern[600];
    snprintf(pattern, sizeof pattern, "{\"pattern\":\"^%s$\"}", groups);
    assert_refused(pattern, "too many groups");
    free(groups);
}
END_TEST

/* d1 = d0 and d0, d2 = d1 and d1, ...: twice the work each time. */
START_TEST(doubling_references_end_within_the_bounds)
{
    char text[8192];
    int at =
        snprintf(text, sizeof text, "{\"$ref\":\"#/$defs/d40\",\"$defs\":{\"d0\":{\"minItems\":1}");
    for (int i = 1; i <= 40; i++)
        at +=
            snprintf(text + at, sizeof text - (size_t)at,
                     ",\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]}",
                     i, i - 1, i - 1);
    snprintf(text + at, sizeof text - (size_t)at, "}}");
    assert_refused(text, "too ");
}
END_TEST

/* A place that is looked at as often as others refer to it: each of these took half a minute. */
START_TEST(long_lists_that_are_referred_to_often_end_within_the_bounds)
{
    static const char *const all[] = {
        "\"type\":\"string\",\"required\":[",
        "\"type\":\"string\",\"enum\":[\"a\",",
        "\"allOf\":[{\"type\":\"string\"},{\"maxLength\":2}],\"enum\":[\"a\",",
    };
    char *text = malloc(SCHEMA_TEXT_MAX);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char *p = stpcpy(text, "{\"anyOf\":[");
        for (int k = 0; k < 5000; k++)
            p = stpcpy(p, "{\"$ref\":\"#/$defs/long\",\"minLength\":1},");
        p = stpcpy(stpcpy(p, "true],\"$defs\":{\"long\":{"), all[i]);
        for (int k = 0; k < 100000; k++)
            p = stpcpy(p, "\"\",");
        stpcpy(p, "\"\"]}}}");
        assert_refused(text, "too much to compare");
    }
    free(text);
}
END_TEST

START_TEST(types_that_hold_together_are_each_there_once)
{
    char text[8192], *p = stpcpy(text, "{\"allOf\":[true");
    for (int i = 0; i < 20; i++)
        p = stpcpy(p, ",{\"type\":[\"number\",\"integer\"]},{\"type\":[\"integer\",\"number\"]}");
    stpcpy(p, "],\"minimum\":1}");
    assert_line(text, "root ::= alternative-0 | number");
}
END_TEST

START_TEST(a_schema_above_a_mebibyte_is_refused)
{
    char *text = malloc(SCHEMA_TEXT_MAX + 2);
    memset(text, ' ', SCHEMA_TEXT_MAX + 1);
    text[SCHEMA_TEXT_MAX + 1] = 0;
    assert_refused(text, "at most 1048576");
    free(text);
}
END_TEST

START_TEST(a_message_that_is_cut_stays_utf8)
{
    char text[700], *p = stpcpy(text, "{\"type\":\"x");
    for (int i = 0; i < 100; i++)
        p = stpcpy(p, "\xc3\xa9");
    stpcpy(p, "\"}");
    assert_refused(text, "unknown type");
    json_t *line = json_string(err); /* NULL for what is not UTF-8 */
    ck_assert_msg(line != NULL, "<%s>", err);
    json_decref(line);
}
END_TEST

START_TEST(the_length_is_that_of_the_whole)
{
    static const char json[] = "{\"type\":\"boolean\"}";
    char cut[8], *exact;
    int64_t n = hearth_schema(json, sizeof json - 1, NULL, 0, NULL, 0);
    ck_assert_int_eq(n, convert(json));
    ck_assert_uint_eq(strlen(grammar), (size_t)n);
    ck_assert_int_eq(hearth_schema(json, sizeof json - 1, cut, sizeof cut, NULL, 0), n);
    ck_assert_uint_eq(strlen(cut), sizeof cut - 1);
    ck_assert(memcmp(cut, grammar, sizeof cut - 1) == 0);
    exact = malloc((size_t)n + 1);
    ck_assert_int_eq(hearth_schema(json, sizeof json - 1, exact, (size_t)n + 1, NULL, 0), n);
    ck_assert_str_eq(exact, grammar);
    free(exact);
    ck_assert_int_eq(hearth_schema("{", 1, cut, sizeof cut, NULL, 0), -EINVAL);
}
END_TEST

/* ---- vectors --------------------------------------------------------------------------------- */

/* The next line of *at without blanks around it, in *ret_bytes; NULL at the end. */
static const char *next_line(const char **at, size_t *ret_bytes)
{
    *at += strspn(*at, " \t\n");
    const char *line = *at;
    size_t bytes = strcspn(line, "\n");
    *at += bytes;
    while (bytes && line[bytes - 1] == ' ')
        bytes--;
    *ret_bytes = bytes;
    return bytes ? line : NULL;
}

static void assert_same_lines(const char *name, const char *got, const char *want)
{
    size_t n_got, n_want;
    const char *g, *w, *all = got;
    do {
        g = next_line(&got, &n_got);
        w = next_line(&want, &n_want);
        ck_assert_msg(!g == !w && n_got == n_want && (!g || memcmp(g, w, n_got) == 0),
                      "%s: want <%.*s>, got <%.*s> in\n%s", name, (int)n_want, w ? w : "",
                      (int)n_got, g ? g : "", all);
    } while (g);
}

START_TEST(llama_cpp_makes_the_same_grammars)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/vectors/json_schema_to_grammar.llama.cpp.json",
             getenv("HEARTH_TESTDATA"));
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error), *c;
    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    json_t *cases = json_object_get(root, "cases");
    ck_assert_uint_gt(json_array_size(cases), 60);
    size_t i;
    json_array_foreach(cases, i, c)
    {
        const char *name = json_string_value(json_object_get(c, "name"));
        const char *schema = json_string_value(json_object_get(c, "schema"));
        int64_t n = convert(schema);
        if (!json_is_true(json_object_get(c, "ok"))) {
            ck_assert_msg(n == -EINVAL, "%s was taken", name);
            continue;
        }
        ck_assert_msg(n > 0, "%s: %s", name, err);
        assert_same_lines(name, grammar, json_string_value(json_object_get(c, "gbnf")));
    }
    json_decref(root);
}
END_TEST

/* Strings that must be taken or refused as a whole. */
START_TEST(llama_cpp_takes_and_refuses_the_same_texts)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/vectors/grammar_integration.llama.cpp.json",
             getenv("HEARTH_TESTDATA"));
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error), *c, *text;
    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    size_t i, k, n = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        if (strcmp(json_string_value(json_object_get(c, "kind")), "schema") != 0)
            continue;
        const char *source = json_string_value(json_object_get(c, "source"));
        ck_assert_msg(convert(source) > 0, "%s: %s", source, err);
        for (int good = 0; good < 2; good++)
            json_array_foreach(json_object_get(c, good ? "pass" : "fail"), k, text)
            {
                n++;
                ck_assert_msg(takes(source, json_string_value(text)) == good, "%s: %s", source,
                              json_string_value(text));
            }
    }
    ck_assert_uint_gt(n, 200);
    json_decref(root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schema");
    TCase *tc = tcase_create("schema");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, what_a_place_takes_is_seen_from_its_keywords);
    tcase_add_test(tc, bounds_of_integers_count_zeros_and_fractions);
    tcase_add_test(tc, a_pattern_stays_inside_its_string);
    tcase_add_test(tc, schemas_that_hold_together_become_one);
    tcase_add_test(tc, a_schema_may_refer_to_itself);
    tcase_add_test(tc, answers_follow_their_schema);
    tcase_add_test(tc, integers_are_exactly_those_between_the_bounds);
    tcase_add_test(tc, what_is_refused_is_named_with_its_place);
    tcase_add_test(tc, hostile_schemas_end_within_the_bounds);
    tcase_add_test(tc, doubling_references_end_within_the_bounds);
    tcase_add_test(tc, long_lists_that_are_referred_to_often_end_within_the_bounds);
    tcase_add_test(tc, types_that_hold_together_are_each_there_once);
    tcase_add_test(tc, a_schema_above_a_mebibyte_is_refused);
    tcase_add_test(tc, a_message_that_is_cut_stays_utf8);
    tcase_add_test(tc, the_length_is_that_of_the_whole);
    if (getenv("HEARTH_TESTDATA")) {
        tcase_add_test(tc, llama_cpp_makes_the_same_grammars);
        tcase_add_test(tc, llama_cpp_takes_and_refuses_the_same_texts);
    } else
        puts("skip: the grammars of another engine: HEARTH_TESTDATA is not set");
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
