/* JSON schemas to grammars: what is refused and in which words, and that every schema, however hostile,
 * ends within the bounds. */
#include "client/hearth.h"
#include "tests/run_suite.h"
#include "tests/rig/schema_convert.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define P(pattern) "{\"type\":\"string\",\"pattern\":\"" pattern "\"}"

static void assert_refused(const char *json, const char *words)
{
    int64_t rc = schema_convert(json);
    ck_assert_msg(rc == -EINVAL, "%.200s was taken:\n%.2000s", json, schema_grammar);
    ck_assert_msg(strstr(schema_err, words) != NULL, "%.200s: <%s> is not in <%s>", json, words,
                  schema_err);
    ck_assert_msg(!strchr(schema_err, '\n') && strncmp(schema_err, "schema", 6) == 0, "<%s>",
                  schema_err);
}

START_TEST(refusals_name_the_place)
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
        {"{\"type\":[\"string\",7]}", "a type must be a string"},
        {"{\"type\":[]}", "\"type\" is empty"},
        {"{\"properties\":[]}", "\"properties\" must be an object"},
        {"{\"items\":{\"anyOf\":[{},3]}}", "#/items/anyOf/1: a schema is an object"},
        {"{\"required\":[1],\"properties\":{}}", "\"required\" has an item that is not a string"},
        {"{\"required\":[\"x\"],\"additionalProperties\":false}", "'x', which is not a property"},
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
        {"{\"type\":\"string\",\"const\":1}", "exclude its value"},
        {"{\"const\":\"abc\",\"maxLength\":2}", "exclude its value"},
        {"{\"const\":[1],\"minItems\":2}", "exclude its value"},
        {"{\"const\":1,\"enum\":[2]}", "exclude its value"},
        {"{\"enum\":[1,5],\"exclusiveMinimum\":5}", "exclude all of its values"},
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
        {P("^(a*)*$"), "may match nothing"},
        {P("^a{1000000}$"), "at byte 3: more than 10000 repetitions"},
        {P("^a{2,1}$"), "not a number of repetitions"},
        {P("^a{1$"), "not a number of repetitions"},
        {P("^(?=a)a$"), "look ahead"},
        {P("^(?<=a)a$"), "look ahead"},
        {P("^(a)\\\\1$"), "back-references"},
        {P("^a\\\\b$"), "word boundaries"},
        {P("^+a$"), "nothing before it"},
        {P("^a^$"), "is supported only at"},
        {P("^[z-a]$"), "begins above its end"},
        {P("^\\\\uDE00$"), "surrogate"},
        {P("^a\\\\"), "a backslash at the end"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
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
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char *text = nested(all[i].n, all[i].open, all[i].middle, all[i].close);
        assert_refused(text, all[i].words);
        free(text);
    }
    char *groups = nested(200, "(", "a", ")"), pattern[600];
    snprintf(pattern, sizeof(pattern), "{\"pattern\":\"^%s$\"}", groups);
    assert_refused(pattern, "too many nested groups");
    free(groups);
}
END_TEST

/* d1 = d0 and d0, d2 = d1 and d1, ...: twice the work each time. */
START_TEST(doubling_references_end_within_the_bounds)
{
    char text[8192];
    int at = snprintf(text, sizeof(text),
                      "{\"$ref\":\"#/$defs/d40\",\"$defs\":{\"d0\":{\"minItems\":1}");
    for (int i = 1; i <= 40; i++)
        at +=
            snprintf(text + at, sizeof(text) - (size_t)at,
                     ",\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]}",
                     i, i - 1, i - 1);
    snprintf(text + at, sizeof(text) - (size_t)at, "}}");
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
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
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

/* References to one place that are spelled differently: each of them looks through its list anew. */
START_TEST(what_is_mixed_in_is_work)
{
    enum { LETTERS = 6, MIXED = 20000 };
    struct buffer t = {0};
    buffer_text(&t, "{\"$defs\":{\"aaaaaa\":{\"allOf\":[");
    for (int i = 0; i < MIXED; i++)
        buffer_text(&t, i ? ",{\"properties\":{}}" : "{\"properties\":{}}");
    buffer_text(&t, "]}},\"prefixItems\":[");
    for (int i = 0; i < 1 << LETTERS; i++) {
        buffer_text(&t, i ? ",{\"$ref\":\"#/$defs/" : "{\"$ref\":\"#/$defs/");
        for (int k = 0; k < LETTERS; k++)
            buffer_text(&t, i >> k & 1 ? "%61" : "a");
        buffer_text(&t, "\"}");
    }
    buffer_text(&t, "]}");
    ck_assert(!t.failed);
    assert_refused(t.data, "too much to compare");
    buffer_fini(&t);
}
END_TEST

/* Two enums of a hundred lists of six hundred numbers that differ in the last one: six million
 * pairs of numbers. */
START_TEST(what_is_in_compared_values_is_work)
{
    enum { LISTS = 100, NUMBERS = 600 };
    struct buffer t = {0};
    buffer_text(&t, "{\"allOf\":[");
    for (int half = 0; half < 2; half++) {
        buffer_text(&t, half ? ",{\"enum\":[" : "{\"enum\":[");
        for (int i = 0; i < LISTS; i++) {
            buffer_text(&t, i ? ",[" : "[");
            for (int k = 0; k < NUMBERS; k++)
                buffer_text(&t, "1,");
            buffer_format(&t, "%d]", half ? -i : i);
        }
        buffer_text(&t, "]}");
    }
    buffer_text(&t, "]}");
    ck_assert(!t.failed);
    assert_refused(t.data, "too much to compare");
    buffer_fini(&t);
}
END_TEST

static long n_left; /* allocations before the one that fails */

/* Not of powers of two: jansson goes on without what does not fit its reader's buffer, or ends the
 * program. */
static void *scarce(size_t bytes)
{
    return (bytes & (bytes - 1)) != 0 && n_left-- == 0 ? NULL : malloc(bytes);
}

/* Each allocation of values fails in turn, alone: there is no grammar then, or the right one. */
START_TEST(a_grammar_is_whole_or_none_without_memory)
{
    static const char *const all[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3},\"b\":{"
        "\"enum\":[1,\"x\",null]},\"c\":{\"items\":{\"$ref\":\"#/$defs/d\"},\"minItems\":1}},"
        "\"required\":[\"a\",\"e\"],\"additionalProperties\":{\"type\":\"null\"},\"$defs\":{\"d\":"
        "{\"type\":\"string\",\"pattern\":\"^[a-c]{2}(x|y)*$\"}}}",
        "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2,3]},\"b\":{\"type\":"
        "\"string\"}},\"required\":[\"a\"]},{}]}",
        "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2,3]},\"b\":{\"type\":"
        "[\"string\",\"null\"],\"maxLength\":3}},\"required\":[\"a\"],\"additionalProperties\":"
        "false},{\"properties\":{\"a\":{\"enum\":[3,2]},\"b\":{\"minLength\":1}},\"required\":["
        "\"b\"]}],\"anyOf\":[{\"required\":[\"a\",\"b\"]},{\"properties\":{\"a\":{\"const\":2}}}]}",
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        ck_assert_int_gt(schema_convert(all[i]), 0);
        char *want = strdup(schema_grammar);
        n_left = -1;
        for (long n = 0; n_left < 0; n++) {
            n_left = n;
            json_set_alloc_funcs(scarce, free);
            int64_t rc = schema_convert(all[i]);
            json_set_alloc_funcs(malloc, free);
            ck_assert_msg(rc < 0 || strcmp(schema_grammar, want) == 0, "%ld: %s, not %s", n,
                          schema_grammar, want);
        }
        free(want);
    }
}
END_TEST

/* The same of a part, where what cannot be bound is any value. */
START_TEST(a_part_is_whole_or_none_without_memory)
{
    static const char text[] =
        "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/d\"},\"b\":{\"$ref\":\"#/$defs/d\"},\"c\":{"
        "\"$ref\":\"#/$defs/e\"},\"d\":{\"$ref\":\"#/$defs/e\"}},\"$defs\":{\"d\":{\"pattern\":"
        "\"(?=a)\"},\"e\":{\"type\":\"string\"}}}";
    struct buffer want = {0};
    json_t *root = json_loads(text, 0, NULL);
    n_left = -1;
    for (long n = -1; n_left < 0; n++) {
        struct buffer t = {0};
        struct schema c = {.text_bytes = strlen(text), .loosened = json_array()};
        n_left = n; /* none fails at first */
        json_set_alloc_funcs(scarce, free);
        if (!schema_open(&c))
            (void)schema_part(&c, root, root, "f");
        schema_write(&c, &t);
        json_set_alloc_funcs(malloc, free);
        if (n < 0) {
            want = t;
            t = (struct buffer){0};
        }
        ck_assert_msg(c.rc || n < 0 || strcmp(t.data, want.data) == 0, "%ld: %s, not %s", n, t.data,
                      want.data);
        buffer_fini(&t);
        schema_close(&c);
    }
    buffer_fini(&want);
    json_decref(root);
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
    json_t *line = json_string(schema_err); /* NULL for what is not UTF-8 */
    ck_assert_msg(line != NULL, "<%s>", schema_err);
    json_decref(line);
}
END_TEST

START_TEST(the_returned_length_is_that_of_the_whole_text)
{
    static const char json[] = "{\"type\":\"boolean\"}";
    char cut[8], *exact;
    int64_t n = hearth_schema(json, sizeof(json) - 1, NULL, 0, NULL, 0);
    ck_assert_int_eq(n, schema_convert(json));
    ck_assert_uint_eq(strlen(schema_grammar), (size_t)n);
    ck_assert_int_eq(hearth_schema(json, sizeof(json) - 1, cut, sizeof(cut), NULL, 0), n);
    ck_assert_uint_eq(strlen(cut), sizeof(cut) - 1);
    ck_assert(memcmp(cut, schema_grammar, sizeof(cut) - 1) == 0);
    exact = malloc((size_t)n + 1);
    ck_assert_int_eq(hearth_schema(json, sizeof(json) - 1, exact, (size_t)n + 1, NULL, 0), n);
    ck_assert_str_eq(exact, schema_grammar);
    free(exact);
    ck_assert_int_eq(hearth_schema("{", 1, cut, sizeof(cut), NULL, 0), -EINVAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schema_refused");
    TCase *tc = tcase_create("schema_refused");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, refusals_name_the_place);
    tcase_add_test(tc, hostile_schemas_end_within_the_bounds);
    tcase_add_test(tc, doubling_references_end_within_the_bounds);
    tcase_add_test(tc, long_lists_that_are_referred_to_often_end_within_the_bounds);
    tcase_add_test(tc, what_is_in_compared_values_is_work);
    tcase_add_test(tc, what_is_mixed_in_is_work);
    tcase_add_test(tc, a_grammar_is_whole_or_none_without_memory);
    tcase_add_test(tc, a_part_is_whole_or_none_without_memory);
    tcase_add_test(tc, a_schema_above_a_mebibyte_is_refused);
    tcase_add_test(tc, a_message_that_is_cut_stays_utf8);
    tcase_add_test(tc, the_returned_length_is_that_of_the_whole_text);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
