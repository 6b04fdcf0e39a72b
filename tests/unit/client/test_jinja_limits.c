/* The Jinja engine's bounds: no template gets more than its share of memory, steps and nesting, and
 * whatever bytes it or its input hold, it ends. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/jinja_render.h"

static char *repeated(const char *text, size_t n)
{
    char *all = malloc(strlen(text) * n + 1);
    for (size_t i = 0; i < n; i++)
        strcpy(all + i * strlen(text), text);
    return all;
}

/* Whatever a template does with long texts is work: a loop uses most of its patience up, and then a
 * few turns of each are too much, where as many turns of nothing are not. */
START_TEST(endless_templates_end)
{
    static const char spent[] =
        "{%% set s = 'x' * 4999999 %%}{%% set part = s[:2500000] %%}"
        "{%% set key = s ~ 'z' %%}{%% set d = {s ~ 'y': 1} %%}"
        "{%% for a in range(175) %%}{%% if 'y' in s %%}{%% endif %%}{%% endfor %%}"
        "{%% for a in range(99) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}";
    static const char *const slow[] = {
        "'%9999999d' % a", "'%.999999f' % a",    "s | wordcount", "s | truncate(9999999)",
        "s | center(1)",   "s.startswith(part)", "key in d",      "s.rfind(part)"};
    char text[400];
    snprintf(text, sizeof(text), spent, "a");
    jinja_prints(text, NULL, "");
    for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++) {
        snprintf(text, sizeof(text), spent, slow[i]);
        jinja_fails(text, -E2BIG, "takes too many steps");
    }
    jinja_fails("{% set s = 'x' * 999999 %}{% for a in range(99999) %}{% if 'y' in s %}{% endif %}"
                "{% endfor %}",
                -E2BIG, "takes too many steps");
    jinja_fails("{% for a in range(999999) %}{% for b in range(999999) %}{% endfor %}{% endfor %}",
                -E2BIG, "more than 256 MiB");
    jinja_fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", -EINVAL, "nested too deeply");
    jinja_fails("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", -EINVAL, "nested");
    jinja_fails("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", -EINVAL, "nested");
    jinja_fails("{{ range(9999999) }}", -E2BIG, "range is too long");
}
END_TEST

/* What takes long for other reasons than long texts is work, too: each of these takes too many
 * steps, and a tenth of its turns does not. */
START_TEST(dear_operations_are_work)
{
    static const struct {
        const char *before, *slow; /* %s: 2,000 named arguments */
        int turns;
    } dear[] = {
        {"", "strftime_now('%%c' * 100)", 60000},
        {"", "1.5 ** 1024", 700000},
        {"", "1.7e308 | round(15)", 60000},
        {"", "'%%f' %% 1.7e308", 30000},
        {"{%% set l = [0.1234567890123456] * 100 %%}", "l | tojson", 1500},
        {"{%% set s = 'x' * 100000 %%}", "'y'.strip(s)", 2500},
        {"{%% set s = 'x' * 8000000 %%}", "'yxxx' in s", 30},
        {"{%% set s = 'x' * 100000 %%}", "dict(**{s: 1})", 9000},
        {"{%% set s = 'x' * 100000 %%}", "[1] | map(attribute=s) | list", 20000},
        {"{%% set ns = namespace() %%}{%% set ns.s = ns %%}{%% set s = 's.' * 5000 ~ 's' %%}",
         "([ns] * 100) | map(attribute=s) | list", 60},
        {"", "('{a1999}' * 100).format(%s)", 1000},
        {"", "([''] * 100) | map('map', 'upper', %s) | list", 1000},
    };
    char named[2000 * 8 + 1] = "", text[sizeof(named) + 400], format[400];
    for (int i = 0; i < 2000; i++)
        sprintf(named + strlen(named), "%sa%d=1", i ? "," : "", i);
    for (size_t i = 0; i < sizeof(dear) / sizeof(dear[0]); i++) {
        struct jinja_output o;
        snprintf(format, sizeof(format),
                 "%s{%%%% for i in range(%d) %%%%}{%%%% if %s %%%%}{%%%% endif %%%%}"
                 "{%%%% endfor %%%%}",
                 dear[i].before, dear[i].turns, dear[i].slow);
        snprintf(text, sizeof(text), format, named);
        jinja_fails(text, -E2BIG, "takes too many steps");
        snprintf(strstr(format, "range("), sizeof(format) - 200,
                 "range(%d) %%%%}{%%%% if %s %%%%}"
                 "{%%%% endif %%%%}{%%%% endfor %%%%}",
                 dear[i].turns / 10, dear[i].slow);
        snprintf(text, sizeof(text), format, named);
        ck_assert_msg(jinja_with(text, strlen(text), NULL, &o) == 0, "%s: %s", text, jinja_err);
        jinja_output_fini(&o);
    }
}
END_TEST

/* A filter that map calls may be map again, as often as there are arguments. */
START_TEST(filters_in_each_other_are_refused)
{
    jinja_prints("{{ [['a', 'b']] | map('map', 'upper') | first | list }}", NULL, "['A', 'B']");
    jinja_fails("{{ 'a' | map(*(['map'] * 200000)) }}", -EINVAL, "nested too deeply");
}
END_TEST

START_TEST(growing_templates_are_stopped)
{
    jinja_fails("{{ ('x' * 99999) * 99999 }}", -E2BIG, "");
    jinja_fails("{{ 'x' * 9223372036854775807 }}", -E2BIG, "");
    jinja_fails("{{ 'x'.center(9223372036854775807) }}", -E2BIG, "");
    jinja_fails("{{ '-'.zfill(-9223372036854775807 - 1) * 9223372036854775807 }}", -E2BIG, "");
    jinja_fails("{{ [[0]] * 999999999 }}", -E2BIG, "");
    jinja_fails("{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}"
                "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
                -E2BIG, "");
    jinja_fails("{% set ns = namespace(s=[1]) %}{% for i in range(99) %}"
                "{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
                -E2BIG, "");
    jinja_fails("{% set ns = namespace(s=[1]) %}{% for i in range(150) %}"
                "{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s == ns.s + [] }}",
                -E2BIG, "");
    jinja_fails("{% set ns = namespace() %}{% set ns.x = ns %}{% set ns.y = [ns] %}"
                "{{ ns.y | tojson }}",
                -EINVAL, "no JSON");
    jinja_fails("{{ {'a': 1} | tojson(indent=9223372036854775807) }}{{ 1 / 0 }}", -EINVAL, "zero");
    jinja_fails("{{ 'x' | center(9223372036854775807) }}", -E2BIG, "");
    jinja_fails("{{ 'x' | indent(9223372036854775807, true) }}", -E2BIG, "");
    jinja_fails("{{ [1] | batch(9223372036854775807, 'x') }}", -E2BIG, "");
    jinja_fails("{{ '%9999999d' % 1 }}{{ 1 / 0 }}", -EINVAL, "zero");
}
END_TEST

START_TEST(deep_texts_are_refused)
{
    static const char *const parts[] = {
        "{{ (",     "{{ [",       "{{ {1:",           "{{ not ",
        "{{ -",     "{% if 1 %}", "{% for x in y %}", "{{ a(",
        "{{ 1 if ", "{{ a[",      "{% macro m() %}",  "{% filter upper %}"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct jinja_output o;
        const char *part = parts[i];
        char *source = repeated(part[1] == '{' ? part + 3 : part, 20000), *whole;
        ck_assert_int_gt(asprintf(&whole, "%s%s", part[1] == '{' ? "{{ " : "", source), 0);
        int rc = jinja_with(whole, strlen(whole), NULL, &o);
        ck_assert_msg(rc == -E2BIG || rc == -EINVAL, "%s: %d %s", part, rc, jinja_err);
        free(source);
        free(whole);
    }
    char *sum = repeated("1+", 30000), *whole;
    ck_assert_int_gt(asprintf(&whole, "{{ %s1 }}", sum), 0);
    struct jinja_output o;
    ck_assert_int_eq(jinja_with(whole, strlen(whole), NULL, &o), -EINVAL);
    free(sum);
    free(whole);
}
END_TEST

START_TEST(deep_input_is_refused)
{
    char *open = repeated("[", 1000), *close = repeated("]", 1000), *data;
    struct jinja_output o;
    ck_assert_int_gt(asprintf(&data, "{\"x\":%s%s}", open, close), 0);
    ck_assert_int_eq(jinja_with("{{ x }}", 7, data, &o), -EINVAL);
    free(open);
    free(close);
    free(data);
}
END_TEST

START_TEST(every_truncated_template_renders_or_fails)
{
    static const char whole[] =
        "{%- set ns = namespace(a='\\x41', b=[1, (2, 3.5e1)]) -%}{# c #}{% raw %}{{{% endraw %}"
        "{% macro m(a, b={'k': 1}) %}{{ a | default('x', true) ~ b['k'] }}{% endmacro %}"
        "{% for k, v in {'a': 1}.items() if k is not none %}{{ loop.index }}{% else %}e{% endfor %}"
        "{% call(x) m(1) %}{{ x }}{% endcall %}{% filter upper %}q{% endfilter %}"
        "{% set y | trim %} z {% endset %}{{ y[::-1] if y in 'z' and not false else -1 }}";
    struct jinja_output o;
    for (size_t n = 0; n <= sizeof(whole) - 1; n++) {
        char *exact = malloc(n ? n : 1); /* so that a read beyond its end is seen */
        memcpy(exact, whole, n);
        int rc = jinja_with(exact, n, NULL, &o);
        ck_assert(rc == 0 || rc == -EINVAL);
        ck_assert_int_eq(rc == 0, jinja_err[0] == 0);
        jinja_output_fini(&o);
        free(exact);
    }
}
END_TEST

START_TEST(invalid_utf8_and_zeros_pass_through)
{
    static const char source[] =
        "a\0\xff\xc3{{ '\xe2\x82' | upper | trim }}{{ x }}{{ x | length }}";
    struct jinja_output o;
    ck_assert_int_eq(jinja_with(source, sizeof(source) - 1, "{\"x\":\"q\\u0000r\"}", &o), 0);
    ck_assert_uint_eq(o.bytes, 10);
    ck_assert_mem_eq(o.text, "a\0\xff\xc3\xe2\x82q\0r3", 10);
    jinja_output_fini(&o);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("jinja_limits");
    TCase *c = tcase_create("jinja_limits");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, endless_templates_end);
    tcase_add_test(c, dear_operations_are_work);
    tcase_add_test(c, filters_in_each_other_are_refused);
    tcase_add_test(c, growing_templates_are_stopped);
    tcase_add_test(c, deep_texts_are_refused);
    tcase_add_test(c, deep_input_is_refused);
    tcase_add_test(c, every_truncated_template_renders_or_fails);
    tcase_add_test(c, invalid_utf8_and_zeros_pass_through);
    suite_add_tcase(s, c);
    return run_suite(s);
}
