/* The Jinja engine on small templates: what each prints (the expected texts are those of Jinja 3.1
 * with the settings of `transformers`), what its errors say, and which parts of the output came from
 * input. Its bounds: test_jinja_limits.c. */
#include <check.h>
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/run_suite.h"
#include "tests/rig/jinja_render.h"
#include "tests/rig/text_diff.h"

static const struct {
    const char *source, *data, *want;
} cases[] = {
    {"{% if true %}\nx\n{% endif %}\ny", NULL, "x\ny"},
    {"a\n  {% if true %}\n  b\n  {% endif %}\nc\n", NULL, "a\n  b\nc"},
    {"a  {%- if true -%}  b  {%- endif -%}  c", NULL, "abc"},
    {"a\n    {%+ if true %}b{% endif %}", NULL, "a\n    b"},
    {"{% if true +%}\nx{% endif %}", NULL, "\nx"},
    {"x {# note #} y\n{# line #}\nz", NULL, "x  y\nz"},
    {"  {{ 1 }}\n  {{- 2 -}}  \n3", NULL, "  123"},
    {"one\n\n", NULL, "one\n"},
    {"{% raw %}{{ x }}{% if %}{% endraw %}!", NULL, "{{ x }}{% if %}!"},
    {"a {%- raw -%}  {{ y }}  {%- endraw -%}  b", NULL, "a{{ y }}b"},
    {"\r\n{% set x = 1 %}\r\n{{ x }}\r\n", NULL, "\n1"},
    {"{{ x }}{% if x %} {% endif %}|", "{\"x\": 1}", "1 |"},
    {"{% for i in [1,2] %}\n  {% if i == 1 %}\n{{ i }}\n  {% endif %}\n{% endfor %}", NULL, "1\n"},
    {"{{ 1 + 2 * 3 - 4 // 3 % 2 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7.5 // "
     "2 }} {{ -7.5 % 2 }}",
     NULL, "6 3.5 1024 -4 2 3.0 0.5"},
    {"{% set low = -9223372036854775807 - 1 %}{{ low % 3 }} {{ low % -3 }} {{ low // 3 }} {{ low % "
     "-1 "
     "}} {{ 7 % -3 }} {{ 'a b c'.split(' ', low) }} {{ 'a b c'.split(none, low) }}",
     NULL, "1 -2 -3074457345618258603 0 -2 ['a', 'b', 'c'] ['a', 'b', 'c']"},
    {"{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'b'] }}", NULL, "a1NoneTrue1.0[1, 'b']"},
    {"{{ 'a' 'b' \"c\" }}", NULL, "abc"},
    {"{{ '\\n\\t\\\\\\'\\x41\\u00e9' }}", NULL, "\n\t\\'A\303\251"},
    {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ 1 == 1.0 == true }}",
     NULL, "True False True True True"},
    {"{{ 'b' in 'abc' }} {{ 'x' not in ['y'] }} {{ 'k' in {'k': 1} }} {{ not 'a' in 'b' }}", NULL,
     "True True True True"},
    {"{{ 'yes' if x else 'no' }}{{ 'only' if false }}|{{ (1 if true else 2) + 3 }}", "{\"x\": []}",
     "no|4"},
    {"{{ a and b }} {{ a or b }} {{ not a }}", "{\"a\": \"\", \"b\": \"B\"}", " B True"},
    {"{{ x is defined }} {{ y is defined }} {{ y is undefined }} {{ x is none }} {{ x is not none "
     "}}",
     "{\"x\": null}", "True False True True False"},
    {"{{ 1 is number }} {{ true is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.5 is "
     "float }} {{ 's' is string }} {{ {} is mapping }} {{ [] is sequence }} {{ 's' is iterable }} "
     "{{ 1 is iterable }}",
     NULL, "True True True False True True True True True False"},
    {"{{ 4 is divisibleby 2 }} {{ 4 is divisibleby(3) }} {{ 3 is odd }} {{ 3 is even }} {{ 1 is eq "
     "1 }} {{ 1 is in [1] }} {{ 2 is gt 1 }}",
     NULL, "True False True False True True True"},
    {"{{ [1, 2, 3][1:] }} {{ [1,2,3][:-1] }} {{ [1,2,3][::-1] }} {{ 'hello'[1:3] }} {{ "
     "'h\303\251llo'[1] }} {{ 'hello'[-1] }} {{ 'hello'[::2] }} {{ [1,2,3,4,5][-3:-1] }}",
     NULL, "[2, 3] [1, 2] [3, 2, 1] el \303\251 o hlo [3, 4]"},
    {"{{ (1, 2) }} {{ (1,) }} {{ () }} {{ {'a': 1, \"b'\": [None, True, 1.5, 'x\"y']} }}", NULL,
     "(1, 2) (1,) () {'a': 1, \"b'\": [None, True, 1.5, 'x\"y']}"},
    {"{{ 'it\\'s' }} {{ ['it\\'s'] }} {{ ['a\"b\\'c'] }} {{ ['t\\tab\\n'] }}", NULL,
     "it's [\"it's\"] ['a\"b\\'c'] ['t\\tab\\n']"},
    {"{{ 1e16 }} {{ 1.0 }} {{ 0.0001 }} {{ 0.00001 }} {{ 123456789.125 }} {{ 1e100 }} {{ 0.1 + 0.2 "
     "}} {{ 5e-324 }}",
     NULL, "1e+16 1.0 0.0001 1e-05 123456789.125 1e+100 0.30000000000000004 5e-324"},
    {"{{ d.a.b }} {{ d['a']['b'] }} {{ d.get('a').b }} {{ d.get('z') }} {{ d.get('z', 7) }} {{ d.z "
     "}}|",
     "{\"d\": {\"a\": {\"b\": 5}}}", "5 5 5 None 7 |"},
    {"{{ x.items() | list }} {{ x.keys() | list }} {{ x.values() | list }} {{ x | length }}",
     "{\"x\": {\"b\": 1, \"a\": 2}}", "[('b', 1), ('a', 2)] ['b', 'a'] [1, 2] 2"},
    {"{{ 'a' * 3 }} {{ [0] * 2 }} {{ [1] + [2] }}", NULL, "aaa [0, 0] [1, 2]"},
    {"{{ '%s is %d and %.2f %5s|%-4s|%%' % ('x', 3, 1.5, 'r', 'l') }}", NULL,
     "x is 3 and 1.50     r|l   |%"},
    {"{{ '{} {} {name} {{}}'.format('a', 'b', name='c') }}", NULL, "a b c {}"},
    {"{{ x.y is defined }} {{ x['y'] is defined }} {{ x.z }}", "{\"x\": {\"y\": null}}",
     "True True "},
    {"{{ foo(1) if foo is defined else 'none' }}", NULL, "none"},
    {"{{ 10 - 3 - 2 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}", NULL, "5 64 4"},
    {"{{ 'x' | upper ~ 'y' }} {{ ('x' ~ 'y') | upper }} {{ -1 | abs }}", NULL, "Xy XY 1"},
    {"{{ {'a': 1}['a'] }}{{ {'a': {'b': 2}}.a.b }}", NULL, "12"},
    {"{% for x in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 "
     "}}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
     NULL, "1032TrueFalse3 2121FalseFalse3 3210FalseTrue3 "},
    {"{% for x in [] %}a{% else %}empty{% endfor %}", NULL, "empty"},
    {"{% for x in [1,2,3,4] if x % 2 == 0 %}{{ x }}:{{ loop.length }} {% endfor %}", NULL,
     "2:2 4:2 "},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{\"d\": {\"b\": 1, \"a\": 2}}",
     "b=1;a=2;"},
    {"{% for x in [1,2,3] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% "
     "endif %}{{ x }}{% endfor %}",
     NULL, "1"},
    {"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", NULL, "21"},
    {"{% set ns = namespace(x=1) %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ "
     "ns.x }}",
     NULL, "4"},
    {"{% if x is defined %}a{% elif y %}b{% else %}c{% if true %}d{% endif %}e{% endif %}",
     "{\"y\": 0}", "cde"},
    {"{% if a %}1{% elif b %}2{% elif c %}3{% endif %}4", "{\"b\": 1}", "24"},
    {"{% set a, b = [1, 2] %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}", NULL, "12(1, 2)"},
    {"{% set x %}a{{ 1 }}\nb{% endset %}[{{ x }}]", NULL, "[a1\nb]"},
    {"{% set x | upper %}abc{% endset %}{{ x }}", NULL, "ABC"},
    {"{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ "
     "m(1, c='y') }} {{ m() }}",
     NULL, "12x 13x 12y 2x"},
    {"{% macro rec(n) %}{{ n }}{% if n > 0 %}{{ rec(n - 1) }}{% endif %}{% endmacro %}{{ rec(3) }}",
     NULL, "3210"},
    {"{% macro b(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call b('p') %}in{% endcall "
     "%}",
     NULL, "<p>in</p>"},
    {"{% macro l(xs) %}{% for x in xs %}{{ caller(x) }},{% endfor %}{% endmacro %}{% call(v) "
     "l([1,2]) %}[{{ v }}]{% endcall %}",
     NULL, "[1],[2],"},
    {"{% filter upper %}ab{{ 'c' }}{% endfilter %}", NULL, "ABC"},
    {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", NULL, "3False"},
    {"{% for x in t recursive %}{{ x.n }}{% if x.c %}({{ loop(x.c) }}){% endif %}{% endfor %}",
     "{\"t\": [{\"n\": 1, \"c\": [{\"n\": 2, \"c\": []}, {\"n\": 3, \"c\": []}]}, {\"n\": 4, "
     "\"c\": []}]}",
     "1(23)4"},
    {"{% for x in 'ab' %}{{ loop.cycle('odd', 'even') }}{{ x }} {% endfor %}", NULL, "odda evenb "},
    {"{% for x in [1,1,2] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}", NULL, "12"},
    {"{% for x in [1,2,3] %}{{ loop.previtem is defined }}{{ loop.nextitem }} {% endfor %}", NULL,
     "False2 True3 True "},
    {"{% for a in [[1,[2,3]]] %}{% for b in a[1] %}{{ loop.index }}{{ b }}{% endfor %}{{ "
     "loop.index }}{% endfor %}",
     NULL, "12231"},
    {"{% generation %}a{% set q = 1 %}{% endgeneration %}b", NULL, "ab"},
    {"{% set x = 5 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 6 %}{{ m() }}", NULL, "6"},
    {"{% for i in range(3) %}{{ i }}{% endfor %} {{ range(1, 10, 3) | list }} {{ range(3, 0, -1) | "
     "list }}",
     NULL, "012 [1, 4, 7] [3, 2, 1]"},
    {"{{ dict(a=1, b='x') }} {{ dict({'q': 1}, r=2) }}", NULL,
     "{'a': 1, 'b': 'x'} {'q': 1, 'r': 2}"},
    {"{% macro f(a, b) %}{{ a }}-{{ b }}{% endmacro %}{{ f(*[1, 2]) }} {{ f(**{'a': 3, 'b': 4}) }} "
     "{{ f(5, *[6]) }}",
     NULL, "1-2 3-4 5-6"},
    {"{% if not x %}no x{% endif %}{% if x is not defined %}!{% endif %}", NULL, "no x!"},
    {"{{ '  a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ 'ab' | capitalize }}|{{ 'hello wORLD "
     "it\\'s' | title }}|{{ 'a-b' | replace('-', '+') }}",
     NULL, "a b|a|Ab|Hello World It's|a+b"},
    {"{{ [3,1,2] | sort }} {{ [3,1,2] | sort(reverse=true) }} {{ ['b','A','c'] | sort }} {{ "
     "['b','A'] | sort(case_sensitive=true) }} {{ [1,2,3] | reverse | list }} {{ 'abc' | reverse "
     "}}",
     NULL, "[1, 2, 3] [3, 2, 1] ['A', 'b', 'c'] ['A', 'b'] [3, 2, 1] cba"},
    {"{{ xs | sort(attribute='n') | map(attribute='n') | join(',') }}",
     "{\"xs\": [{\"n\": 3}, {\"n\": 1}]}", "1,3"},
    {"{{ [1,2,3] | first }} {{ [1,2,3] | last }} {{ [] | first is defined }} {{ 'abc' | length }} "
     "{{ 'h\303\251' | length }}",
     NULL, "1 3 False 3 2"},
    {"{{ ['a','b'] | join(', ') }} {{ [1, none, true] | join('-') }} {{ xs | join('|', "
     "attribute='v') }}",
     "{\"xs\": [{\"v\": 1}, {\"v\": 2}]}", "a, b 1-None-True 1|2"},
    {"{{ ['a','b'] | map('upper') | list }} {{ [' x '] | map('trim') | join }} {{ [{'a':1}] | "
     "map(attribute='b', default='d') | list }}",
     NULL, "['A', 'B'] x ['d']"},
    {"{{ ms | selectattr('role', 'equalto', 'user') | list | length }} {{ ms | rejectattr('role', "
     "'equalto', 'user') | map(attribute='role') | list }} {{ ms | selectattr('x') | list | length "
     "}} {{ ms | selectattr('x', 'defined') | list | length }}",
     "{\"ms\": [{\"role\": \"user\", \"x\": 1}, {\"role\": \"system\", \"x\": 0}, {\"role\": "
     "\"user\"}]}",
     "2 ['system'] 1 2"},
    {"{{ [1,2,3,4] | select('odd') | list }} {{ [1,2,'a'] | reject('string') | list }} {{ [0,1,''] "
     "| select | list }}",
     NULL, "[1, 3] [1, 2] [1]"},
    {"{{ x | default('d') }} {{ '' | default('d') }}| {{ '' | default('d', true) }} {{ none | "
     "default('d') }} {{ y.z | default('q') }}",
     "{\"y\": {}}", "d | d None q"},
    {"{{ '3.7' | int }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ 3.9 | int }} {{ '2.5' | float }} {{ "
     "2.5 | round }} {{ 3.14159 | round(2) }} {{ 2.1 | round(0, 'ceil') }}",
     NULL, "3 0 9 3 2.5 2.0 3.14 3.0"},
    {"{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\nb' | indent('> ') }}",
     NULL, "a\n    b\n\n    c|  a\n  b|a\n> b"},
    {"{{ [1,2,2,3] | unique | list }} {{ [3,1] | min }} {{ [3,1] | max }} {{ [1,2] | sum }} {{ xs "
     "| sum(attribute='v') }}",
     "{\"xs\": [{\"v\": 1}, {\"v\": 2}]}", "[1, 2, 3] 1 3 3 3"},
    {"{{ d | dictsort }} {{ d | items | list }}", "{\"d\": {\"b\": 1, \"A\": 2}}",
     "[('A', 2), ('b', 1)] [('b', 1), ('A', 2)]"},
    {"{{ [1,2,3,4,5] | batch(2) | list }} {{ [1,2,3] | batch(2, 'x') | list }}", NULL,
     "[[1, 2], [3, 4], [5]] [[1, 2], [3, 'x']]"},
    {"{{ x | tojson }}",
     "{\"x\": {\"b\": [1, 2.5, true, null, \"\303\251\\\"\\n<&>'\"], \"a\": {}}}",
     "{\"b\": [1, 2.5, true, null, \"\303\251\\\"\\n<&>'\"], \"a\": {}}"},
    {"{{ x | tojson(indent=2) }}", "{\"x\": {\"b\": [1, {\"c\": []}], \"a\": {}}}",
     "{\n  \"b\": [\n    1,\n    {\n      \"c\": []\n    }\n  ],\n  \"a\": {}\n}"},
    {"{{ x | tojson(sort_keys=true, separators=(',', ':')) }} {{ x | tojson(ensure_ascii=true) }}",
     "{\"x\": {\"b\": 1, \"a\": \"\303\251\360\237\230\200\"}}",
     "{\"a\":\"\303\251\360\237\230\200\",\"b\":1} {\"b\": 1, \"a\": \"\\u00e9\\ud83d\\ude00\"}"},
    {"{{ 'a b c' | wordcount }} {{ 'abc' | center(9) }}| {{ 'x<y' | string }} {{ 5 | string }} {{ "
     "'hello world foo' | truncate(9) }} {{ '%s-%s' | format(1, 2) }}",
     NULL, "3    abc   | x<y 5 hello... 1-2"},
    {"{{ ['x','y'] | list | string | length > 0 }} {{ 'abc' | list }}", NULL,
     "True ['a', 'b', 'c']"},
    {"{% for g, xs in ms | groupby('r') %}{{ g }}:{{ xs | length }} {% endfor %}",
     "{\"ms\": [{\"r\": \"b\"}, {\"r\": \"a\"}, {\"r\": \"b\"}]}", "a:1 b:2 "},
    {"{{ ' a '.strip() }}|{{ 'xxa'.lstrip('x') }}|{{ 'axx'.rstrip('x') }}|{{ 'a,b,c'.split(',') "
     "}}|{{ ' a  b '.split() }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ "
     "'a\\nb\\r\\nc'.splitlines() }}",
     NULL, "a|a|a|['a', 'b', 'c']|['a', 'b']|['a', 'b,c']|['a,b', 'c']|['a', 'b', 'c']"},
    {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'aXbX'.replace('X', '-', 1) "
     "}} {{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'aa'.count('a') }} {{ "
     "','.join(['a','b']) }}",
     NULL, "True True a-bX 2 5 2 a,b"},
    {"{{ 'AbC'.lower() }} {{ 'AbC'.upper() }} {{ 'ab cd'.title() }} {{ 'aB'.swapcase() }} {{ "
     "'abc'.capitalize() }} {{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ ''.isdigit() }} {{ "
     "'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }}",
     NULL, "abc ABC Ab Cd Ab Abc True True False True True True True"},
    {"{{ 'ab'.ljust(5, '.') }}|{{ 'ab'.rjust(5) }}|{{ 'ab'.center(5, '\303\251') }}|{{ "
     "'abc'.center(6) }}|{{ 'abc'.ljust(2) }}|{{ '-7'.zfill(4) }} {{ '+'.zfill(3) }} {{ "
     "'42'.zfill(5) }} {{ '\303\251'.zfill(3) }} {{ ''.zfill(-1) }}{{ "
     "'a'.center(-9223372036854775807) }}",
     NULL, "ab...|   ab|\303\251\303\251ab\303\251| abc  |abc|-007 +00 00042 00\303\251 a"},
    {"{{ 'a.b.c'.partition('.') }} {{ 'a.b.c'.rpartition('.') }} {{ "
     "'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ [1,2,1].index(2) "
     "}} {{ [1,2,1].count(1) }}",
     NULL, "('a', '.', 'b.c') ('a.b', '.', 'c') x x 1 2"},
    {"{{ '\303\204\303\226\320\226 \303\251'.lower() }} {{ '\303\244\320\266\317\203'.upper() }} "
     "{{ '\343\200\200x\302\240'.strip() }}|",
     NULL, "\303\244\303\266\320\266 \303\251 \303\204\320\226\316\243 x|"},
    {"{{ ' a b c '.rsplit(none, 1) }}{{ ' a b '.rsplit(none, 5) }}{{ ' a b '.rsplit(none, 0) }}"
     "{{ ' a b '.split(none, 1) }}{{ ' '.rsplit(none, 1) }}",
     NULL, "[' a b', 'c']['a', 'b'][' a b']['a', 'b '][]"},
    {"{{ 'a\\x0bb\\x85c\\u2028d\\r\\ne'.splitlines() }}{{ 'a\\x1c\\n'.splitlines(true) }}", NULL,
     "['a', 'b', 'c', 'd', 'e']['a\\x1c', '\\n']"},
    {"{{ 7 | round }} {{ true | round(1) }} {{ 1250 | round(-2) }} {{ 1350.0 | round(-2) }} "
     "{{ 1.115 | round(2) }} {{ 0.5 | round }} {{ -2.25 | round(1, 'floor') }} {{ 5 | round(0, "
     "'ceil') }}",
     NULL, "7 1 1200 1400.0 1.11 0.0 -2.3 5.0"},
    {"{{ '9007199254740993' | int }} {{ ' 12 ' | int }} {{ '0x10' | int(5) }} {{ '0x10' | int(5, "
     "16) }} "
     "{{ 'ff' | int(base=16) }} {{ 'inf' | float }} {{ '\\n' | int(7) }} {{ '1e2' | int }}",
     NULL, "9007199254740993 12 5 16 255 0.0 7 100"},
    {"{{ ('%600d' % 1) | length }} {{ ('%.600f' % 1.5) | length }} {{ '%05d %x' % (42, 255) }}",
     NULL, "600 602 00042 ff"},
    {"{{ '%.2s|%5.1s|%-3s|' % ('\\u00e9\\u00e9\\u00e9', 'ab', 'c') }}", NULL,
     "\xc3\xa9\xc3\xa9|    a|c  |"},
    {"{{ messages[0]['content'].split('</think>')[-1].lstrip('\\n') }}",
     "{\"messages\": [{\"content\": \"<think>\\nx\\n</think>\\n\\nanswer\"}]}", "answer"},
    {"{{ (messages | length) - 1 }} {{ messages[-1].role }} {{ messages[::-1][0].role }}",
     "{\"messages\": [{\"role\": \"a\"}, {\"role\": \"b\"}]}", "1 b b"},
    {"{%- set x = namespace(a='1') -%}{{ x.a ~ x.b }}|{{ x.c is defined }}", NULL, "1|False"},
    {"{{ 1_000 }} {{ 'a' == \"a\" }} {{ 1 != 2 }} {{ none == none }} {{ [] == [] }} {{ {'a': 1} == "
     "{'a': 1.0} }}",
     NULL, "1000 True True True True True"},
    {"{{ true }} {{ false }} {{ none }} {{ True }} {{ None }}", NULL, "True False None True None"},
};

START_TEST(a_template_prints_what_jinja_prints)
{
    jinja_prints(cases[_i].source, cases[_i].data, cases[_i].want);
}
END_TEST

static const struct {
    const char *source, *part;
} errors[] = {
    {"{{ x.y }}", "'x' is undefined"},
    {"{% for i in none %}{% endfor %}", "not iterable"},
    {"{{ 'a' + 1 }}", "can only concatenate str"},
    {"{{ 'a' + none }}", "NoneType"},
    {"{{ x + 'a' }}", "'x' is undefined"},
    {"\n\n{{ 1 / 0 }}", "line 3: division by zero"},
    {"{{ 1 | nope }}", "no filter is named 'nope'"},
    {"{{ 1 is nope }}", "no test is named 'nope'"},
    {"{{ 'a'.nope() }}", "no method 'nope'"},
    {"{% if true %}x", "{% endif %}"},
    {"{% for x in y %}", "{% endfor %}"},
    {"{{ 1", "not closed"},
    {"{{ 'abc }}", "not closed"},
    {"{# abc", "not closed"},
    {"{% raw %}abc", "endraw"},
    {"{% include 'x' %}", "found 'include' where"},
    {"{{ 1 2 }}", "found '2' where"},
    {"{{ (1 }}", "unexpected"},
    {"{{ ) }}", "unexpected"},
    {"{% endif %}", "found 'endif' where"},
    {"{{ raise_exception('No, ' ~ 1) }}", "No, 1"},
    {"{{ 1() }}", "not callable"},
    {"{{ foo() }}", "'foo' is undefined"},
    {"{% set x.y = 1 %}", "namespace()"},
    {"{% set d = {} %}{% set d.y = 1 %}", "namespace"},
    {"{{ 9223372036854775807 + 1 }}", "too large"},
    {"{{ [1] | map('nope') | list }}", "no filter"},
    {"{{ 1 < 'a' }}", "cannot be compared"},
    {"{{ 'a'.strip(1) }}", "strip"},
    {"{{ 'a'.center(9, '--') }}", "fill character"},
    {"{{ 'x' | tojson(nope=1) }}", "takes no argument 'nope'"},
    {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "other arguments"},
    {"{% break %}", "outside of a loop"},
};

START_TEST(an_error_is_one_line_that_says_where_and_what)
{
    jinja_fails(errors[_i].source, -EINVAL, errors[_i].part);
}
END_TEST

START_TEST(strftime_now_uses_the_given_time)
{
    setenv("TZ", "UTC", 1);
    jinja_prints("{{ strftime_now('%d %b %Y') }}", NULL, "10 Jul 2025");
    jinja_prints("{{ strftime_now('') }}|{{ strftime_now('%Y-%m-%d %H:%M') }}", NULL,
                 "|2025-07-10 12:00");
}
END_TEST

/* For the leak sanitizer: glibc's newlocale() does not free the list that it makes of LOCPATH. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:argz_add_sep\n";
}

static locale_t within; /* the thread's, while a template is rendered */

/* In place of the C library's. */
size_t strftime(char *to, size_t bytes, const char *format, const struct tm *tm)
{
    within = uselocale((locale_t)0);
    return strftime_l(to, bytes, format, tm, within);
}

/* 0,5 is no JSON, and another prompt has another answer. Where no locale that writes so can be made,
 * at least the thread has another one than its own meanwhile. */
START_TEST(a_programs_locale_changes_no_prompt)
{
    char folder[] = "/tmp/hearth-locale-XXXXXX", command[256];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(command, sizeof(command),
             "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1 </dev/null", folder, folder);
    ck_assert_int_ne(system(command), -1);
    setenv("LOCPATH", folder, 1);
    setenv("TZ", "UTC", 1);
    const locale_t german = newlocale(LC_ALL_MASK, "de_DE.UTF-8", (locale_t)0);
    const locale_t own = german ? german : newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    const locale_t before = uselocale(own);
    if (german)
        ck_assert_str_eq(localeconv()->decimal_point, ",");
    jinja_prints(
        "{{ 1.5 }} {{ 3 / 2 }} {{ '2.5' | float }} {{ 2.345 | round(2) }} {{ x | tojson }} "
        "{{ '%.2f' | format(1.25) }} {{ strftime_now('%d %b') }}",
        "{\"x\": 0.1}", "1.5 1.5 2.5 2.35 0.1 1.25 10 Jul");
    ck_assert_ptr_ne(within, own);
    ck_assert_ptr_eq(uselocale((locale_t)0), own);
    (void)uselocale(before);
    freelocale(own);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(lines_of_errors_are_counted)
{
    jinja_fails("a\n{# x\n #}\n{% set a =\n 1 %}\n{{ b.c }}", -EINVAL, "line 6: 'b' is undefined");
    jinja_fails("{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ m() }}", -EINVAL, "line 2: ");
    jinja_fails("{{ raise_exception('two\nlines') }}", -EINVAL, "two lines");
}
END_TEST

/* ---- where text came from -------------------------------------------------------------------- */

/* Renders and writes the output with [ ] around each part from input. */
static void assert_marked(const char *source, const char *data, const char *want)
{
    struct jinja_output o;
    char marked[1024];
    size_t at = 0, n = 0;
    ck_assert_msg(jinja_with(source, strlen(source), data, &o) == 0, "%s: %s", source, jinja_err);
    for (size_t i = 0; i < o.n_inputs; i++) {
        ck_assert_uint_ge(o.inputs[i].at, at);
        ck_assert_uint_le(o.inputs[i].at + o.inputs[i].bytes, o.bytes);
        n += (size_t)sprintf(marked + n, "%.*s[%.*s]", (int)(o.inputs[i].at - at), o.text + at,
                             (int)o.inputs[i].bytes, o.text + o.inputs[i].at);
        at = o.inputs[i].at + o.inputs[i].bytes;
    }
    sprintf(marked + n, "%s", o.text + at);
    assert_same_text(source, marked, want);
    jinja_output_fini(&o);
}

START_TEST(input_values_stay_marked_through_every_operation)
{
    static const char data[] = "{\"m\":{\"role\":\"user\",\"content\":\" a<b \"},"
                               "\"n\":{\"role\":\"<x>\",\"content\":\"c,d\"},\"k\":7}";
    static const char *const marked[][2] = {
        {"<{{ m.content }}>", "<[ a<b ]>"},
        {"<{{ m.content | trim }}>", "<[a<b]>"},
        {"<{{ m.content.strip() + '|' + n.content }}>", "<[a<b]|[c,d]>"},
        {"{{ m.content ~ bos_token ~ 1 }}", "[ a<b ]<s>1"},
        {"{{ '<' ~ m.content | upper ~ '>' }}", "<[ A<B ]>"},
        {"{{ n.content.split(',') | join('+') }}", "[c]+[d]"},
        {"{{ n.content | replace(',', bos_token) }}", "[c]<s>[d]"},
        {"{{ bos_token | replace('s', n.content) }}", "<[c,d]>"},
        {"{{ m | tojson }}", "{\"[role]\": \"user\", \"[content]\": \"[ a<b ]\"}"},
        {"{{ n }}", "{'[role]': '[<x>]', '[content]': '[c,d]'}"},
        {"{% set x %}({{ n.content }}){% endset %}{{ x }}", "([c,d])"},
        {"{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(n.content) }}", "<[c,d]>"},
        {"{{ n.content[0] }}{{ n.content[1:] }}{{ n.content[::-1] }}", "[c,dd,c]"},
        {"{{ '%s!' % n.content }}{{ '{}?'.format(n.content) }}", "[c,d]![c,d]?"},
        {"{{ n.content | indent(1, true) }}", " [c,d]"},
        {"{{ 'a' if m.content else n.content }}{{ k }}", "a7"},
        {"<|{{ m.role }}|><|{{ n.role }}|>", "<|user|><|[<x>]|>"},
        {"{% for c in n.content %}{{ c }}.{% endfor %}", "[c].[,].[d]."},
        {"{{ n.content * 2 }}{{ n.content | reverse }}", "[c,dc,dd,c]"},
        {"{{ n.content | list }}", "['[c]', '[,]', '[d]']"},
        {"{{ m.content | e }}", "[ a&lt;b ]"},
        {"{% for key in n %}{{ key }} {% endfor %}", "[role] [content] "},
        {"{{ dict(**n) }}", "{'[role]': '[<x>]', '[content]': '[c,d]'}"},
        {"{{ dict(n, a=k) | items | first | first }}", "[role]"},
        {"{% for key in dict(a=1, **{bos_token ~ n.content: k}) %}{{ key }} {% endfor %}",
         "a [<s>c,d] "},
    };
    for (size_t i = 0; i < sizeof(marked) / sizeof(marked[0]); i++)
        assert_marked(marked[i][0], data, marked[i][1]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("jinja");
    TCase *c = tcase_create("jinja");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, a_template_prints_what_jinja_prints, 0,
                        sizeof(cases) / sizeof(cases[0]));
    tcase_add_loop_test(c, an_error_is_one_line_that_says_where_and_what, 0,
                        sizeof(errors) / sizeof(errors[0]));
    tcase_add_test(c, strftime_now_uses_the_given_time);
    tcase_add_test(c, a_programs_locale_changes_no_prompt);
    tcase_add_test(c, lines_of_errors_are_counted);
    tcase_add_test(c, input_values_stay_marked_through_every_operation);
    suite_add_tcase(s, c);
    return run_suite(s);
}
