/* Chat templates of published models against what `transformers` and llama.cpp make of them:
 * vectors/jinja_chat_templates.hf.json of the folder in HEARTH_TESTDATA (tests of hearth's own are
 * in test_jinja.c). */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/jinja/jinja.h"
#include "tests/run_suite.h"
#include "tests/rig/text_diff.h"

enum { MOST_VARIABLES = 16 };
static const int64_t NOON = 1752148800; /* 2025-07-10T12:00:00Z, when the vectors were made */

static json_t *cases;

static struct jinja_desc describe(const json_t *c, struct jinja_variable *variables)
{
    struct jinja_desc d = {.now = NOON, .variables = variables};
    const char *name;
    json_t *value;
    d.source = json_string_value(json_object_get(c, "chat_template"));
    d.source_bytes = json_string_length(json_object_get(c, "chat_template"));
    json_object_foreach(json_object_get(c, "data"), name, value) {
        ck_assert_uint_lt(d.n_variables, MOST_VARIABLES);
        variables[d.n_variables++] = (struct jinja_variable){.name = name, .value = value};
    }
    return d;
}

START_TEST(a_published_template_renders_as_published)
{
    const json_t *c = json_array_get(cases, (size_t)_i);
    const char *name = json_string_value(json_object_get(c, "name"));
    struct jinja_variable variables[MOST_VARIABLES];
    const struct jinja_desc d = describe(c, variables);
    struct jinja_output o;
    char err[300] = "";
    int rc = jinja_render(&d, &o, err, sizeof(err));
    ck_assert_msg(rc == 0, "%s: %s", name, err);
    assert_same_text(name, o.text, json_string_value(json_object_get(c, "target")));
    jinja_output_fini(&o);
}
END_TEST

int main(void)
{
    const char *folder = getenv("HEARTH_TESTDATA");
    char path[1024];
    json_error_t why;
    if (!folder) {
        printf("skip: HEARTH_TESTDATA is not set\n");
        return 0;
    }
    setenv("TZ", "UTC", 1);
    snprintf(path, sizeof(path), "%s/vectors/jinja_chat_templates.hf.json", folder);
    json_t *all = json_load_file(path, 0, &why);
    if (!all) {
        printf("skip: %s: %s\n", path, why.text);
        return 0;
    }
    cases = json_object_get(all, "cases");
    Suite *s = suite_create("jinja_vectors");
    TCase *c = tcase_create("published");
    tcase_add_loop_test(c, a_published_template_renders_as_published, 0,
                        (int)json_array_size(cases));
    suite_add_tcase(s, c);
    int rc = run_suite(s);
    json_decref(all);
    return rc;
}
