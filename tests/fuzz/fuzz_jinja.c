/* Fuzzes the Jinja engine: a template that a stranger wrote, over a small conversation. With the
 * first byte below 128 the rest is the template; else each byte is a piece of Jinja out of a table,
 * so that whole statements are likely. A rendering ends within its limits, an error is one line,
 * and the parts from input appear in the output in order. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"You are <|im_end|>\"},"
    "{\"role\":\"user\",\"content\":\" h\\u00e9llo\\n\\\"x\\\" \"},{\"role\":\"assistant\","
    "\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,"
    "true]}}}]}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"n\":3}";

static const char *const pieces[] = {
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{{- ",
    " -}}",
    "{%- ",
    " -%}",
    "{# ",
    " #}",
    "\n",
    " ",
    "x",
    "y",
    "messages",
    "m",
    "tools",
    "n",
    "loop",
    "ns",
    "namespace(",
    "range(",
    "dict(",
    ")",
    "(",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ".",
    "|",
    "=",
    "==",
    "!=",
    "<",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "~",
    "'a'",
    "\"b\\n\"",
    "0",
    "1",
    "2",
    "7",
    "-1",
    "1.5",
    "99999",
    "true",
    "none",
    " if ",
    " else ",
    " elif ",
    "endif",
    "for ",
    " in ",
    "endfor",
    "set ",
    "endset",
    "macro ",
    "endmacro",
    "call ",
    "caller()",
    "endcall",
    "filter ",
    "endfilter",
    "with ",
    "endwith",
    "break",
    "continue",
    "generation",
    "endgeneration",
    "do ",
    " is ",
    " not ",
    " and ",
    " or ",
    "defined",
    "string",
    "trim",
    "upper",
    "title",
    "tojson",
    "indent",
    "join",
    "map(",
    "select(",
    "selectattr(",
    "sort",
    "list",
    "length",
    "first",
    "last",
    "default(",
    "replace(",
    "int",
    "float",
    "round",
    "items",
    "batch(",
    "unique",
    "groupby(",
    "format(",
    "truncate(",
    "center",
    "reverse",
    "string",
    "e",
    "content",
    "role",
    ".split(",
    ".strip()",
    ".items()",
    ".get(",
    ".format(",
    ".join(",
    "'%s'",
    "for m in messages %}",
    "{% endfor %}",
    "{% if n %}",
    "{% endif %}",
    " recursive ",
    "loop(",
    "strftime_now('%Y')",
    "raise_exception(",
    "*x",
    "**x",
    "[1:]",
    "[::-1]",
    "raw %}",
    "{% endraw %}",
};
enum { N_PIECES = sizeof(pieces) / sizeof(pieces[0]) };

static void must(int condition)
{
    if (!condition)
        abort();
}

/* The template of an input, exactly as long as it says, so that a read past its end is seen. */
static char *make_template(const uint8_t *data, size_t size, size_t *ret_bytes)
{
    size_t bytes = 0;
    if (data[0] < 128) {
        char *source = malloc(size);
        memcpy(source, data + 1, size - 1);
        *ret_bytes = size - 1;
        return realloc(source, size > 1 ? size - 1 : 1);
    }
    for (size_t i = 1; i < size; i++)
        bytes += strlen(pieces[data[i] % N_PIECES]);
    char *source = malloc(bytes ? bytes : 1);
    *ret_bytes = bytes;
    bytes = 0;
    for (size_t i = 1; i < size; i++)
        for (const char *piece = pieces[data[i] % N_PIECES]; *piece; piece++)
            source[bytes++] = *piece;
    return source;
}

static void check_output(const struct jinja_output *o)
{
    size_t at = 0;
    must(o->text[o->bytes] == 0);
    for (size_t i = 0; i < o->n_inputs; i++) {
        must(o->inputs[i].bytes > 0 && o->inputs[i].at >= at + (i > 0));
        at = o->inputs[i].at + o->inputs[i].bytes;
        must(at <= o->bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *all;
    struct jinja_variable variables[8];
    struct jinja_desc d = {.variables = variables, .now = 1752148800};
    struct jinja_output o;
    char err[200] = "";
    const char *name;
    json_t *value;
    if (size == 0)
        return 0;
    if (!all)
        all = json_loads(conversation, 0, NULL);
    must(all != NULL);
    json_object_foreach(all, name, value) {
        variables[d.n_variables++] = (struct jinja_variable){.name = name, .value = value};
    }
    variables[d.n_variables++] = (struct jinja_variable){.name = "x", .text = "<s>", .bytes = 3};
    char *source = make_template(data, size, &d.source_bytes);
    d.source = source;
    int rc = jinja_render(&d, &o, err, sizeof(err));
    must(rc == 0 || rc == -EINVAL || rc == -E2BIG || rc == -ENOMEM);
    must((rc == 0) == (err[0] == 0) || rc == -EINVAL); /* raise_exception('') is an empty line */
    must(strchr(err, '\n') == NULL);
    if (rc == 0)
        check_output(&o);
    jinja_output_fini(&o);
    free(source);
    return 0;
}
