/* schema: hearth_schema: a JSON schema to a GBNF grammar (schema.h). */
#include "client/schema/schema.h"

#include "client/hearth.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static json_t *load(const char *json, size_t bytes, char *err, size_t err_bytes)
{
    json_error_t e;
    if (bytes > SCHEMA_TEXT_MAX) {
        if (err_bytes)
            snprintf(err, err_bytes, "schema: %zu bytes are too many: at most %d", bytes,
                     SCHEMA_TEXT_MAX);
        return NULL;
    }
    json_t *root = json_loadb(json, bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    if (!root && err_bytes) {
        snprintf(err, err_bytes, "schema: not JSON at line %d, column %d: %s", e.line, e.column,
                 e.text);
        schema_one_line(err);
    }
    return root;
}

static int open_tables(struct schema *c)
{
    json_t **tables[] = {&c->rules, &c->asked, &c->numbers, &c->refs, &c->levels};
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        *tables[i] = json_object();
    c->keep = json_array();
    if (!c->rules || !c->asked || !c->numbers || !c->refs || !c->levels || !c->keep)
        schema_no_memory(c);
    return c->rc;
}

static void close_tables(struct schema *c)
{
    json_decref(c->rules);
    json_decref(c->asked);
    json_decref(c->numbers);
    json_decref(c->refs);
    json_decref(c->levels);
    json_decref(c->keep);
    buffer_fini(&c->path);
}

int64_t hearth_schema(const char *json, size_t bytes, char *grammar, size_t max, char *err,
                      size_t err_bytes)
{
    struct schema c = {.err = err, .err_bytes = err ? err_bytes : 0, .text_bytes = bytes};
    struct buffer t = {0};
    if (c.err_bytes)
        err[0] = 0;
    c.root = load(json, bytes, err, c.err_bytes);
    if (!c.root)
        return -EINVAL;
    if (!open_tables(&c)) {
        schema_rule(&c, NULL, "space", "| \" \" | \"\\n\" [ \\t]{0,20}");
        const char *root = schema_visit(&c, c.root, "", NULL);
        if (c.refers_to_root && strcmp(root, "root") != 0)
            schema_fail(&c, "$ref '#' and a property without a name: give it one");
        if (json_is_true(c.root)) /* any value */
            schema_rule(&c, NULL, "root", "value");
        schema_write(&c, &t);
    }
    if (!c.rc && max) {
        size_t n = t.bytes < max ? t.bytes : max - 1;
        memcpy(grammar, schema_get(&t), n);
        grammar[n] = 0;
    }
    int64_t result = c.rc ? c.rc : (int64_t)t.bytes;
    buffer_fini(&t);
    close_tables(&c);
    json_decref(c.root);
    return result;
}
