/* schema_fits: values that follow a schema, and that do not; a check that takes too long fails
 * nothing. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "client/base/buffer.h"
#include "client/schema/schema_fits.h"
#include "tests/run_suite.h"

static bool fits(const char *schema, const char *value, char why[160])
{
    json_t *s = json_loads(schema, JSON_DECODE_ANY, NULL);
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
    ck_assert_msg(s && v, "%s %s", schema, value);
    bool got = schema_fits(s, v, why, 160);
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

int main(void)
{
    Suite *suite = suite_create("schema_fits");
    TCase *tcase = tcase_create("schema_fits");
    tcase_add_loop_test(tcase, a_value_follows_a_schema_or_the_place_is_named, 0,
                        (int)(sizeof(rows) / sizeof(rows[0])));
    tcase_add_test(tcase, a_check_that_takes_too_long_fails_nothing);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
