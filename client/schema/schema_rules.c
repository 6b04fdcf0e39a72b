/* schema_rules: text that grows, names of rules, the table of rules, the rules that every grammar
 * may have. */
#include "client/base/json_shortest.h"
#include "client/base/utf8.h"
#include "client/schema/schema.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct builtin {
    const char *name, *text;
    const char *needs; /* names, a blank between two */
};

static const struct builtin builtins[] = {
    {"boolean", "(\"true\" | \"false\") space", ""},
    {"decimal-part", "[0-9]{1,16}", ""},
    {"integral-part", "[0] | [1-9] [0-9]{0,15}", ""},
    {"number", "(\"-\"? integral-part) (\".\" decimal-part)? ([eE] [-+]? integral-part)? space",
     "integral-part decimal-part"},
    {"integer", "(\"-\"? integral-part) space", "integral-part"},
    {"value", "object | array | string | number | boolean | null",
     "object array string number boolean null"},
    {"object",
     "\"{\" space ( string \":\" space value (\",\" space string \":\" space value)* )? \"}\" "
     "space",
     "string value"},
    {"array", "\"[\" space ( value (\",\" space value)* )? \"]\" space", "value"},
    {"uuid",
     "\"\\\"\" [0-9a-fA-F]{8} \"-\" [0-9a-fA-F]{4} \"-\" [0-9a-fA-F]{4} \"-\" [0-9a-fA-F]{4} \"-\" "
     "[0-9a-fA-F]{12} \"\\\"\" space",
     ""},
    {"char", "[^\"\\\\\\x7F\\x00-\\x1F] | [\\\\] ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4})", ""},
    {"string", "\"\\\"\" char* \"\\\"\" space", "char"},
    {"null", "\"null\" space", ""},
    {"date",
     "[0-9]{4} \"-\" ( \"0\" [1-9] | \"1\" [0-2] ) \"-\" ( \"0\" [1-9] | [1-2] [0-9] | \"3\" [0-1] "
     ")",
     ""},
    {"time",
     "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] ( \".\" [0-9]{3} )? ( \"Z\" | "
     "( \"+\" | \"-\" ) ( [01] [0-9] | \"2\" [0-3] ) \":\" [0-5] [0-9] )",
     ""},
    {"date-time", "date \"T\" time", "date time"},
    {"date-string", "\"\\\"\" date \"\\\"\" space", "date"},
    {"time-string", "\"\\\"\" time \"\\\"\" space", "time"},
    {"date-time-string", "\"\\\"\" date-time \"\\\"\" space", "date-time"},
};
enum { N_BUILTINS = sizeof(builtins) / sizeof(builtins[0]) };

void schema_fail(struct schema *c, const char *format, ...)
{
    if (c->rc)
        return;
    c->rc = -EINVAL;
    char line[400];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (c->err_bytes) {
        snprintf(c->err, c->err_bytes, "schema at #%.200s: %s", schema_get(&c->path), line);
        schema_one_line(c->err);
    }
}

int schema_loosen(struct schema *c)
{
    char line[500];
    if (c->rc != -EINVAL || !c->loosened)
        return 0;
    snprintf(line, sizeof(line), "%.100s: %s", c->part, c->err);
    schema_one_line(line);
    c->rc = 0;
    json_t *note = json_string(line);
    if (json_array_size(c->loosened) < SCHEMA_LOOSENED_MAX &&
        (!note || json_array_append(c->loosened, note)))
        schema_no_memory(c);
    json_decref(note);
    return !c->rc;
}

void schema_one_line(char *err)
{
    uint32_t point;
    size_t left = strlen(err);
    for (char *p = err; left;) {
        int n = utf8_step(p, left, &point);
        size_t bytes = n ? (size_t)(n < 0 ? -n : n) : left;
        if (n <= 0)
            memset(p, '?', bytes);
        else if ((unsigned char)*p < 32 || *p == 127)
            *p = ' ';
        p += bytes;
        left -= bytes;
    }
}

void schema_no_memory(struct schema *c)
{
    if (c->rc)
        return;
    c->rc = -ENOMEM;
    if (c->err_bytes)
        snprintf(c->err, c->err_bytes, "schema: out of memory: free some and try again");
}

void schema_work(struct schema *c, size_t n)
{
    c->work += n;
    if (c->work > SCHEMA_WORK_MAX)
        schema_fail(c, "too much to compare: make the schema smaller");
}

static int have_equal_members(struct schema *c, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)a, key, value) {
        const json_t *other = json_object_get(b, key);
        schema_work(c, strlen(key) / 16);
        if (!other || !schema_equal(c, value, other))
            return 0;
    }
    return json_object_size(a) == json_object_size(b);
}

int schema_equal(struct schema *c, const json_t *a, const json_t *b)
{
    schema_work(c, 1 + json_string_length(a) / 16);
    if (c->rc || json_typeof(a) != json_typeof(b))
        return 0;
    if (json_is_object(a))
        return have_equal_members(c, a, b);
    if (!json_is_array(a) || json_array_size(a) != json_array_size(b))
        return json_equal(a, b);
    for (size_t i = 0; i < json_array_size(a); i++)
        if (!schema_equal(c, json_array_get(a, i), json_array_get(b, i)))
            return 0;
    return 1;
}

/* ---- places ---------------------------------------------------------------------------------- */

size_t schema_enter(struct schema *c, const char *part)
{
    size_t mark = c->path.bytes;
    schema_add(c, &c->path, "/");
    for (const char *p = part; *p && !c->rc; p++)
        schema_add_bytes(c, &c->path,
                         *p == '/'   ? "~1"
                         : *p == '~' ? "~0"
                                     : p,
                         *p == '/' || *p == '~' ? 2 : 1);
    return mark;
}

size_t schema_enter_index(struct schema *c, const char *part, size_t index)
{
    char text[24];
    snprintf(text, sizeof(text), "%zu", index);
    size_t mark = schema_enter(c, part);
    schema_enter(c, text);
    return mark;
}

void schema_leave(struct schema *c, size_t mark)
{
    if (c->rc || !c->path.data || mark > c->path.bytes)
        return;
    c->path.bytes = mark;
    c->path.data[mark] = 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

void schema_add_bytes(struct schema *c, struct buffer *t, const char *text, size_t bytes)
{
    if (c->rc)
        return;
    if (bytes > SCHEMA_GRAMMAR_MAX || t->bytes + bytes > SCHEMA_GRAMMAR_MAX) {
        schema_fail(c, "the grammar would be larger than %d bytes: make the schema smaller",
                    SCHEMA_GRAMMAR_MAX);
        return;
    }
    buffer_add(t, text, bytes);
    if (t->failed)
        schema_no_memory(c);
}

void schema_add(struct schema *c, struct buffer *t, const char *text)
{
    schema_add_bytes(c, t, text, strlen(text));
}

void schema_format(struct schema *c, struct buffer *t, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(line))
        schema_fail(c, "a name is too long: shorten it");
    else
        schema_add_bytes(c, t, line, (size_t)n);
}

const char *schema_get(const struct buffer *t)
{
    return t->data ? t->data : "";
}

uint32_t schema_point(const char **at)
{
    const unsigned char *p = (const unsigned char *)*at;
    uint32_t more = *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : *p >= 0xc0 ? 1 : 0;
    uint32_t point = more ? *p & (0x3fu >> more) : *p;
    for (uint32_t i = 1; i <= more; i++)
        point = point << 6 | (p[i] & 0x3f);
    *at += more + 1;
    return point;
}

void schema_escape(struct schema *c, struct buffer *t, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && !c->rc; i++) {
        unsigned char b = (unsigned char)text[i];
        if (b == '"' || b == '\\')
            schema_format(c, t, "\\%c", b);
        else if (b == '\n')
            schema_add(c, t, "\\n");
        else if (b == '\r')
            schema_add(c, t, "\\r");
        else if (b < 32 || b == 127)
            schema_format(c, t, "\\x%02X", b);
        else
            schema_add_bytes(c, t, text + i, 1);
    }
}

void schema_literal(struct schema *c, struct buffer *t, const char *text, size_t bytes)
{
    schema_add(c, t, "\"");
    schema_escape(c, t, text, bytes);
    schema_add(c, t, "\"");
}

void schema_constant(struct schema *c, struct buffer *t, const json_t *value)
{
    char *text = json_shortest(value, JSON_COMPACT);
    if (text)
        schema_literal(c, t, text, strlen(text));
    else
        schema_no_memory(c);
    free(text);
}

static void repeat_count(struct schema *c, struct buffer *t, uint32_t least, uint32_t most)
{
    if (least == 0 && most == 1)
        schema_add(c, t, "?");
    else if (most == SCHEMA_NO_MAX && least <= 1)
        schema_add(c, t, least ? "+" : "*");
    else if (most == SCHEMA_NO_MAX)
        schema_format(c, t, "{%u,}", least);
    else
        schema_format(c, t, "{%u,%u}", least, most);
}

void schema_repeat(struct schema *c, struct buffer *t, const char *item, uint32_t least,
                   uint32_t most, const char *separator)
{
    if (most == 0)
        return;
    if (!*separator || (least == 0 && most == 1)) {
        schema_add(c, t, item);
        repeat_count(c, t, least, most);
        return;
    }
    schema_add(c, t, least ? "" : "(");
    schema_add(c, t, item);
    if (most > 1) {
        schema_format(c, t, " (%s ", separator);
        schema_add(c, t, item);
        schema_add(c, t, ")");
        repeat_count(c, t, least ? least - 1 : 0, most == SCHEMA_NO_MAX ? most : most - 1);
    }
    schema_add(c, t, least ? "" : ")?");
}

/* ---- names and rules ------------------------------------------------------------------------- */

void schema_name(struct schema *c, struct buffer *t, const char *name, const char *part)
{
    schema_add(c, t, name);
    if (*name)
        schema_add(c, t, "-");
    int in_run = 0; /* a run of characters that a name may not have becomes one dash */
    for (const char *p = part; *p && t->bytes < SCHEMA_NAME_MAX; p++) {
        int fits = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                   (*p >= '0' && *p <= '9') || *p == '-';
        if (fits || !in_run)
            schema_add_bytes(c, t, fits ? p : "-", 1);
        in_run = !fits;
    }
}

/* The key of a table as the table itself keeps it. */
static const char *kept_key(json_t *table, const char *key)
{
    const char *kept = json_object_iter_key(json_object_iter_at(table, key));
    return kept ? kept : "";
}

void schema_set(struct schema *c, json_t *table, const char *key, json_t *value)
{
    if (!c->rc && (!value || json_object_set_new_nocheck(table, key, value)))
        schema_no_memory(c);
    else if (c->rc)
        json_decref(value);
}

static const char *put(struct schema *c, const char *name, const char *text)
{
    const size_t bytes = c->bytes + strlen(name) + strlen(text) + sizeof(" ::= \n");
    if (bytes > c->bytes_max || c->n_rules + 1 > c->rules_max) {
        schema_fail(
            c, "the grammar would have more than %zu rules or %zu bytes: make the schema smaller",
            c->rules_max, c->bytes_max);
        return "";
    }
    c->bytes = bytes;
    c->n_rules++;
    schema_set(c, c->rules, name, json_string_nocheck(text));
    return c->rc ? "" : kept_key(c->rules, name);
}

/* The first name of NAME0, NAME1, ... that is free, into *t. */
static void number(struct schema *c, struct buffer *t, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(c->numbers, name));
    do {
        t->bytes = 0;
        schema_format(c, t, "%s%lld", name, (long long)n++);
    } while (!c->rc && json_object_get(c->rules, schema_get(t)));
    schema_set(c, c->numbers, name, json_integer(n));
}

const char *schema_rule(struct schema *c, const char *own, const char *name, const char *text)
{
    if (c->rc)
        return "";
    if (own)
        return put(c, own, text);
    struct buffer key = {0}, numbered = {0};
    schema_add(c, &key, name);
    schema_add(c, &key, " ::= ");
    schema_add(c, &key, text);
    schema_work(c, key.bytes / 4);
    const char *known = c->rc ? NULL : json_string_value(json_object_get(c->asked, key.data));
    const char *got = "";
    if (known) {
        got = kept_key(c->rules, known);
    } else if (!c->rc) {
        if (json_object_get(c->rules, name))
            number(c, &numbered, name);
        got = put(c, numbered.data ? numbered.data : name, text);
        schema_set(c, c->asked, schema_get(&key), json_string_nocheck(got));
    }
    buffer_fini(&key);
    buffer_fini(&numbered);
    return c->rc ? "" : got;
}

const char *schema_take(struct schema *c, const char *name)
{
    struct buffer t = {0};
    schema_add(c, &t, name);
    schema_add(c, &t, schema_is_reserved(name) ? "-" : "");
    if (!c->rc && json_object_get(c->rules, t.data)) {
        char *plain = t.data;
        t = (struct buffer){0};
        number(c, &t, plain);
        free(plain);
    }
    schema_set(c, c->rules, schema_get(&t), json_null());
    const char *taken = c->rc ? "" : kept_key(c->rules, t.data);
    buffer_fini(&t);
    return taken;
}

void schema_untake(struct schema *c, const char *name)
{
    if (!c->rc && json_is_null(json_object_get(c->rules, name)))
        json_object_del(c->rules, name);
}

static const struct builtin *find_builtin(const char *name, size_t bytes)
{
    for (int i = 0; i < N_BUILTINS; i++)
        if (strlen(builtins[i].name) == bytes && memcmp(builtins[i].name, name, bytes) == 0)
            return &builtins[i];
    return NULL;
}

int schema_is_reserved(const char *name)
{
    return strcmp(name, "root") == 0 || find_builtin(name, strlen(name));
}

static void add_needs(struct schema *c, const struct builtin *b)
{
    for (const char *p = b->needs; *p && !c->rc; p += strspn(p, " ")) {
        size_t bytes = strcspn(p, " ");
        const struct builtin *need = find_builtin(p, bytes);
        if (!json_object_get(c->rules, need->name)) {
            schema_rule(c, NULL, need->name, need->text);
            add_needs(c, need);
        }
        p += bytes;
    }
}

const char *schema_builtin(struct schema *c, const char *builtin, const char *name)
{
    const struct builtin *b = find_builtin(builtin, strlen(builtin));
    const char *got = schema_rule(c, NULL, name ? name : b->name, b->text);
    add_needs(c, b);
    return got;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void schema_write(struct schema *c, struct buffer *t)
{
    size_t n = json_object_size(c->rules), i = 0;
    const char **names = malloc((n + 1) * sizeof(*names));
    if (!names) {
        schema_no_memory(c);
        return;
    }
    const char *name;
    json_t *text;
    json_object_foreach(c->rules, name, text)
        names[i++] = name;
    qsort(names, n, sizeof(*names), by_name);
    for (i = 0; i < n && !c->rc; i++) {
        schema_add(c, t, names[i]);
        schema_add(c, t, " ::= ");
        schema_add(c, t, json_string_value(json_object_get(c->rules, names[i])));
        schema_add(c, t, "\n");
    }
    free(names);
}
