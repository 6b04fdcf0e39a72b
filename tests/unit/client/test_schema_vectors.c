/* JSON schemas to grammars: the vectors of another engine (HEARTH_TESTDATA,
 * vectors/json_schema_to_grammar.llama.cpp.json), text by text. */
#include "tests/run_suite.h"
#include "tests/rig/schema_convert.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    snprintf(path, sizeof(path), "%s/vectors/json_schema_to_grammar.llama.cpp.json",
             getenv("HEARTH_TESTDATA"));
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error), *c;
    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    json_t *cases = json_object_get(root, "cases");
    ck_assert_uint_gt(json_array_size(cases), 60);
    size_t i;
    json_array_foreach(cases, i, c) {
        const char *name = json_string_value(json_object_get(c, "name"));
        const char *schema = json_string_value(json_object_get(c, "schema"));
        int64_t n = schema_convert(schema);
        if (!json_is_true(json_object_get(c, "ok"))) {
            ck_assert_msg(n == -EINVAL, "%s was taken", name);
            continue;
        }
        ck_assert_msg(n > 0, "%s: %s", name, schema_err);
        assert_same_lines(name, schema_grammar, json_string_value(json_object_get(c, "gbnf")));
    }
    json_decref(root);
}
END_TEST

/* Strings that must be taken or refused as a whole. */
START_TEST(llama_cpp_takes_and_refuses_the_same_texts)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/vectors/grammar_integration.llama.cpp.json",
             getenv("HEARTH_TESTDATA"));
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error), *c, *text;
    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    size_t i, k, n = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        if (strcmp(json_string_value(json_object_get(c, "kind")), "schema") != 0)
            continue;
        const char *source = json_string_value(json_object_get(c, "source"));
        ck_assert_msg(schema_convert(source) > 0, "%s: %s", source, schema_err);
        for (int good = 0; good < 2; good++)
            json_array_foreach(json_object_get(c, good ? "pass" : "fail"), k, text) {
                n++;
                ck_assert_msg(schema_takes(source, json_string_value(text)) == good, "%s: %s",
                              source, json_string_value(text));
            }
    }
    ck_assert_uint_gt(n, 200);
    json_decref(root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schema_vectors");
    TCase *tc = tcase_create("schema_vectors");
    tcase_set_timeout(tc, 60);
    if (getenv("HEARTH_TESTDATA")) {
        tcase_add_test(tc, llama_cpp_makes_the_same_grammars);
        tcase_add_test(tc, llama_cpp_takes_and_refuses_the_same_texts);
    } else
        puts("skip: the grammars of another engine: HEARTH_TESTDATA is not set");
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
