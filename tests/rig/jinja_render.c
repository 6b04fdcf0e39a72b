#include "tests/rig/jinja_render.h"

#include "tests/rig/text_diff.h"

#include <check.h>
#include <string.h>

char jinja_err[400];

static bool is_role(const char *key, const char *text, size_t bytes)
{
    return strcmp(key, "role") == 0 && bytes == 4 && memcmp(text, "user", 4) == 0;
}

int jinja_with(const char *source, size_t bytes, const char *data, struct jinja_output *o)
{
    struct jinja_variable variables[16];
    struct jinja_desc d = {.source = source,
                           .source_bytes = bytes,
                           .variables = variables,
                           .now = 1752148800, /* 2025-07-10T12:00:00Z */
                           .is_word = is_role};
    json_error_t why;
    json_t *all = data ? json_loads(data, JSON_ALLOW_NUL, &why) : json_object(), *value;
    const char *name;
    ck_assert_msg(all != NULL, "%s: %s", data, why.text);
    json_object_foreach(all, name, value) {
        variables[d.n_variables++] = (struct jinja_variable){.name = name, .value = value};
    }
    variables[d.n_variables++] =
        (struct jinja_variable){.name = "bos_token", .text = "<s>", .bytes = 3};
    jinja_err[0] = 0;
    int rc = jinja_render(&d, o, jinja_err, sizeof(jinja_err));
    json_decref(all);
    return rc;
}

void jinja_prints(const char *source, const char *data, const char *want)
{
    struct jinja_output o;
    ck_assert_msg(jinja_with(source, strlen(source), data, &o) == 0, "%s: %s", source, jinja_err);
    assert_same_text(source, o.text, want);
    ck_assert_uint_eq(o.bytes, strlen(want));
    jinja_output_fini(&o);
}

void jinja_fails(const char *source, int code, const char *part)
{
    struct jinja_output o;
    int rc = jinja_with(source, strlen(source), NULL, &o);
    ck_assert_msg(rc == code, "%s: %d %s", source, rc, jinja_err);
    ck_assert_msg(strstr(jinja_err, part) != NULL, "%s: '%s' does not say '%s'", source, jinja_err,
                  part);
    ck_assert_ptr_null(strchr(jinja_err, '\n'));
}
