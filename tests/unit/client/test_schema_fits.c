/* schema_fits: values that follow a schema, and that do not; a check that takes too long fails
 * nothing. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "client/base/buffer.h"
#include "client/schema/schema_fits.h"
#include "tests/run_suite.h"

static size_t left; /* of the steps of the last one */

static bool fits(const char *schema, const char *value, char why[160])
{
    left = SCHEMA_FITS_STEPS;
    json_t *s = json_loads(schema, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    json_t *v = json_loads(value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    ck_assert_msg(s && v, "%s %s", schema, value);
    bool got = schema_fits(s, v, &left, why, 160);
    json_decref(s);
    json_decref(v);
    return got;
}

static const struct {
    const char *schema, *fits, *unfit, *why;
} rows[] = {
    {"{\"type\":[\"integer\",\"null\"]}", "3.0", "\"a\"", "#: \"type\""},
    {"{\"type\":\"string\",\"nullable\":true}", "null", "3", "#: \"type\""},
    {"{\"enum\":[1,\"a\",null]}", "1.0", "2", "#: \"enum\""},
    {"{\"const\":{\"a\":[1]}}", "{\"a\":[1]}", "{\"a\":[2]}", "#: \"const\""},
    {"{\"minimum\":3,\"exclusiveMinimum\":true}", "4", "3", "#: \"minimum\""},
    {"{\"exclusiveMaximum\":3}", "2.5", "3", "#: \"exclusiveMaximum\""},
    {"{\"multipleOf\":0.1}", "0.3", "0.35", "#: \"multipleOf\""},
    {"{\"maxLength\":2}", "\"\xc3\xa9\xc3\xa9\"", "\"abc\"", "#: \"maxLength\""},
    {"{\"maxLength\":2}", "\"a\\u0000\"", "\"a\\u0000b\"", "#: \"maxLength\""},
    {"{\"minItems\":1,\"uniqueItems\":true}", "[1,2]", "[1,1.0]", "#: \"uniqueItems\""},
    {"{\"prefixItems\":[{\"type\":\"string\"}],\"items\":false}", "[\"a\"]", "[\"a\",1]",
     "#/1: \"false\""},
    {"{\"contains\":{\"type\":\"null\"},\"maxContains\":1}", "[null,1]", "[null,null]",
     "#: \"contains\""},
    {"{\"required\":[\"a\"],\"maxProperties\":1}", "{\"a\":1}", "{\"b\":1}", "#: \"required\""},
    {"{\"dependentRequired\":{\"a\":[\"b\"]}}", "{\"b\":1}", "{\"a\":1}",
     "#: \"dependentRequired\""},
    {"{\"properties\":{\"a\":{\"properties\":{\"b\":{\"type\":\"null\"}}}}}", "{\"a\":{}}",
     "{\"a\":{\"b\":1}}", "#/a/b: \"type\""},
    {"{\"properties\":{\"a\":{}},\"additionalProperties\":false}", "{\"a\":1}", "{\"b\":1}",
     "#/b: \"false\""},
    {"{\"propertyNames\":{\"maxLength\":1}}", "{\"a\":1}", "{\"ab\":1}", "#: \"propertyNames\""},
    {"{\"oneOf\":[{\"minimum\":1},{\"maximum\":3}]}", "4", "2", "#: \"oneOf\""},
    {"{\"not\":{\"type\":\"null\"}}", "1", "null", "#: \"not\""},
    {"{\"if\":{\"type\":\"string\"},\"then\":{\"const\":\"a\"},\"else\":{\"const\":1}}", "1", "2",
     "#: \"const\""},
    {"{\"$ref\":\"#/$defs/x~1y\",\"$defs\":{\"x/y\":{\"type\":\"null\"}}}", "null", "1",
     "#: \"type\""},
    {"{\"$ref\":\"http://x/y\"}", "1", NULL, NULL},
};

START_TEST(a_value_follows_a_schema_or_the_place_is_named)
{
    char why[160];
    ck_assert_msg(fits(rows[_i].schema, rows[_i].fits, why), "%s: %s", rows[_i].schema, why);
    ck_assert_str_eq(why, "");
    if (rows[_i].unfit) {
        ck_assert_msg(!fits(rows[_i].schema, rows[_i].unfit, why), "%s", rows[_i].schema);
        ck_assert_str_eq(why, rows[_i].why);
    }
}
END_TEST

/* Each of these takes too many steps: a reference to itself; one that doubles at each of 30 levels;
 * one that compares the value with many others, again and again. */
START_TEST(a_check_that_takes_too_long_fails_nothing)
{
    char why[160];
    struct buffer t = {0};
    ck_assert(fits("{\"$ref\":\"#\"}", "1", why));
    ck_assert_uint_gt(left, 0); /* what follows is still checked */
    ck_assert(fits("{\"not\":{\"$ref\":\"#\"}}", "1", why));
    ck_assert(fits("{\"oneOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}", "1", why));
    buffer_text(&t, "{\"not\":{\"$ref\":\"#/$defs/0\"},\"$defs\":{");
    for (int i = 0; i < 30; i++)
        buffer_format(&t,
                      "\"%d\":{\"allOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/%d\"}]},",
                      i, i + 1, i + 1);
    buffer_text(&t, "\"30\":{\"not\":{\"enum\":[0");
    for (int i = 1; i < 20000; i++)
        buffer_format(&t, ",%d", i);
    buffer_text(&t, "]}}}}");
    ck_assert(fits(t.data, "-1", why));
    buffer_fini(&t);
}
END_TEST

/* n times the same value. */
static json_t *repeat(json_t *value, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append(list, value);
    json_decref(value);
    return list;
}

/* The steps of n values, each of which is compared with n names, or with a constant of n parts. */
static size_t steps_of(json_t *each, json_t *value, size_t n)
{
    char why[160];
    size_t steps = SIZE_MAX;
    json_t *schema = json_pack("{s:o}", "items", each), *values = repeat(value, n);
    ck_assert(schema_fits(schema, values, &steps, why, sizeof(why)));
    json_decref(schema);
    json_decref(values);
    return SIZE_MAX - steps;
}

/* What is looked at n times takes n steps, wherever it lies. */
START_TEST(each_part_that_is_looked_at_is_a_step)
{
    const size_t n = 1000;
    json_t *names = repeat(json_string("a"), n), *deep = repeat(json_integer(1), n);
    json_t *has_a = json_pack("{s:i}", "a", 1);
    size_t steps[] = {
        steps_of(json_pack("{s:{s:O}}", "dependentRequired", "a", names), json_incref(has_a), n),
        steps_of(json_pack("{s:O}", "required", names), has_a, n),
        steps_of(json_pack("{s:O}", "const", deep), json_incref(deep), n),
        steps_of(json_pack("{s:[{s:O}]}", "enum", "in", deep), json_pack("{s:O}", "in", deep), n)};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        ck_assert_msg(steps[i] >= n * n && steps[i] < 10 * n * n, "%zu: %zu", i, steps[i]);
    json_decref(names);
    json_decref(deep);
}
END_TEST

/* A key that is looked for is hashed, and a schema can have one looked for as often as it likes. */
START_TEST(a_long_key_takes_steps)
{
    enum { KEY = 1 << 20, TIMES = 100000 };
    static char key[KEY + 1], why[160];
    memset(key, 'a', KEY);
    json_t *long_key = json_pack("{s:{}}", key), *none = json_object(), *refs = json_array();
    json_t *const schemas[][2] = {
        {json_pack("{s:O}", "properties", long_key), none},
        {json_pack("{s:[s]}", "required", key), none},
        {json_pack("{s:{s:[]}}", "dependentRequired", key), none},
        {json_pack("{s:O}", "const", long_key), none},
        {json_pack("{s:{}}", "additionalProperties"), long_key},
        {json_pack("{s:{}}", "propertyNames"), long_key},
    };
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++) {
        size_t steps = SIZE_MAX;
        (void)schema_fits(schemas[i][0], schemas[i][1], &steps, why, sizeof(why));
        ck_assert_msg(SIZE_MAX - steps >= KEY / 16, "%zu: %zu", i, SIZE_MAX - steps);
        json_decref(schemas[i][0]);
    }
    for (int i = 0; i < TIMES; i++)
        json_array_append_new(refs, json_pack("{s:s}", "$ref", "#/d"));
    json_t *schema = json_pack("{s:o,s:{s:O}}", "anyOf", refs, "d", "properties", long_key);
    size_t steps = SCHEMA_FITS_STEPS;
    ck_assert(schema_fits(schema, none, &steps, why, sizeof(why)));
    ck_assert_uint_eq(steps, 0);
    json_decref(schema);
    json_decref(long_key);
    json_decref(none);
}
END_TEST

START_TEST(no_more_steps_are_taken_than_there_are)
{
    char why[160];
    size_t steps = 80;
    json_t *schema = json_pack("{s:b}", "uniqueItems", 1), *list = json_array();
    for (int i = 0; i < 10; i++)
        json_array_append_new(list, json_integer(i < 9 ? i : 0));
    ck_assert(!schema_fits(schema, list, &steps, why, sizeof(why)));
    ck_assert(steps > 0 && steps < 48);
    ck_assert(schema_fits(schema, list, &steps, why, sizeof(why))); /* with what is left of them */
    ck_assert_uint_eq(steps, 0);
    json_decref(schema);
    json_decref(list);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schema_fits");
    TCase *tcase = tcase_create("schema_fits");
    tcase_add_loop_test(tcase, a_value_follows_a_schema_or_the_place_is_named, 0,
                        (int)(sizeof(rows) / sizeof(rows[0])));
    tcase_add_test(tcase, a_check_that_takes_too_long_fails_nothing);
    tcase_add_test(tcase, each_part_that_is_looked_at_is_a_step);
    tcase_add_test(tcase, a_long_key_takes_steps);
    tcase_add_test(tcase, no_more_steps_are_taken_than_there_are);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
