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

int schema_open(struct schema *c)
{
    json_t **tables[] = {&c->rules, &c->asked, &c->numbers, &c->refs, &c->levels};
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        *tables[i] = json_object();
    c->keep = json_array();
    c->root_rule = "root";
    c->bytes_max = SCHEMA_GRAMMAR_MAX;
    c->rules_max = SCHEMA_RULES_MAX;
    if (!c->rules || !c->asked || !c->numbers || !c->refs || !c->levels || !c->keep)
        schema_no_memory(c);
    else
        schema_rule(c, NULL, "space", "| \" \" | \"\\n\" [ \\t]{0,20}");
    return c->rc;
}

void schema_close(struct schema *c)
{
    json_decref(c->rules);
    json_decref(c->asked);
    json_decref(c->numbers);
    json_decref(c->refs);
    json_decref(c->levels);
    json_decref(c->keep);
    json_decref(c->loosened);
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
    if (!schema_open(&c)) {
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
    schema_close(&c);
    json_decref(c.root);
    return result;
}

const char *schema_part(struct schema *c, json_t *root, json_t *schema, const char *title)
{
    struct buffer name = {0};
    schema_name(c, &name, "", title);
    const char *own = schema_take(c, *schema_get(&name) ? schema_get(&name) : "part");
    c->root = root;
    c->root_rule = schema == root ? own : NULL;
    c->part = title;
    c->work = c->parts_work;
    c->path.bytes = 0;
    json_object_clear(c->refs);
    json_object_clear(c->levels);
    c->bytes_max = SCHEMA_PARTS_BYTES;
    c->rules_max = SCHEMA_PARTS_RULES;
    const char *got = schema_visit(c, schema, own, own);
    c->bytes_max = SCHEMA_GRAMMAR_MAX;
    c->rules_max = SCHEMA_RULES_MAX;
    if (strcmp(got, own) != 0)
        schema_rule(c, own, own, got);
    buffer_fini(&name);
    c->parts_work = c->work;
    c->work = 0;
    return own;
}
