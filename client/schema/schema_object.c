/* schema_object: objects: properties in the order of the schema, those that are required, those
 * that may be left out, and additional ones.
 *
 * With a required, b and c not, and others allowed (*):
 *
 *   root   ::= "{" space a-kv ( "," space ( b-kv b-rest | c-kv c-rest | others ) )? "}" space
 *   b-rest ::= ( "," space c-kv )? c-rest        c-rest ::= ( "," space additional-kv )*
 */
#include "client/base/json_shortest.h"
#include "client/schema/schema.h"

#include <stdlib.h>
#include <string.h>

struct property {
    const char *key;
    const char *rule; /* of key and value */
    const char *rest; /* rule of what may follow, "" for nothing */
};

struct object {
    struct property *needed, *free; /* [n_needed], [n_free]: in the order of the schema */
    size_t n_needed, n_free;
    const char **keys; /* [n_keys] all of them */
    size_t n_keys;
    const char *others; /* rule of any other key and its value, or NULL */
};

/* The rule that a key and a value of the rule `value` follow. */
static const char *pair_rule(struct schema *c, const char *key, const char *value, const char *name)
{
    struct buffer t = {0}, sub = {0};
    json_t *text = json_string_nocheck(key);
    if (text)
        schema_constant(c, &t, text);
    else
        schema_no_memory(c);
    json_decref(text);
    schema_format(c, &t, " space \":\" space %s", value);
    schema_name(c, &sub, name, key);
    schema_add(c, &sub, "-kv");
    const char *got = schema_rule(c, NULL, schema_get(&sub), schema_get(&t));
    buffer_fini(&sub);
    buffer_fini(&t);
    return got;
}

static const char *visit_property(struct schema *c, const char *key, json_t *schema,
                                  const char *name)
{
    struct buffer sub = {0};
    schema_name(c, &sub, name, key);
    size_t mark = schema_enter(c, "properties");
    schema_enter(c, key);
    const char *value = schema_visit(c, schema, schema_get(&sub), NULL);
    schema_leave(c, mark);
    buffer_fini(&sub);
    return pair_rule(c, key, value, name);
}

/* ---- keys that are none of the properties ---------------------------------------------------- */

/* Bytes of a character; what JSON escapes is one. */
static size_t point_bytes(const char *at)
{
    const char *end = at;
    if (*at == '\\')
        return at[1] == 'u' ? 6 : 2;
    schema_point(&end);
    return (size_t)(end - at);
}

/* A character inside [ ]. */
static void add_class_point(struct schema *c, struct buffer *t, const char *at)
{
    if (*at == ']' || *at == '[')
        schema_add(c, t, "\\");
    if (*at == '-' || *at == '^')
        schema_format(c, t, "\\x%02X", (unsigned)*at);
    else
        schema_escape(c, t, at, point_bytes(at));
}

/* A character of a key. An escape is taken whole: what is none may not begin there. */
static void add_point(struct schema *c, struct buffer *t, const char *at)
{
    if (*at == '\\') {
        schema_literal(c, t, at, point_bytes(at));
        return;
    }
    schema_add(c, t, "[");
    add_class_point(c, t, at);
    schema_add(c, t, "]");
}

/* keys[0, n): sorted, JSON texts without their quotes, alike up to `at`. Adds what may follow there
 * without becoming one of them: at each place a key's own character and then something that differs
 * later, or another character. */
static void add_other_keys(struct schema *c, struct buffer *t, const char **keys, size_t n,
                           size_t at)
{
    struct buffer rejects = {0};
    for (size_t i = 0, next; i < n && !c->rc; i = next) {
        if (!keys[i][at]) { /* a whole key: the shortest of those alike, so the first */
            next = i + 1;
            continue;
        }
        size_t bytes = point_bytes(keys[i] + at);
        for (next = i + 1; next < n && strncmp(keys[next] + at, keys[i] + at, bytes) == 0; next++)
            ;
        if (keys[i][at] == '\\')
            schema_add(c, &rejects, "\\\\");
        else
            add_class_point(c, &rejects, keys[i] + at);
        add_point(c, t, keys[i] + at);
        if (next == i + 1 && !keys[i][at + bytes]) {
            schema_add(c, t, " char+");
        } else {
            schema_add(c, t, " (");
            add_other_keys(c, t, keys + i, next - i, at + bytes);
            schema_add(c, t, ")");
        }
        schema_add(c, t, " | ");
    }
    /* A schema alone has llama.cpp's class, which takes more than JSON does. */
    schema_add(c, t, c->loosened ? "[^\"\\\\\\x7F\\x00-\\x1F" : "[^\"");
    schema_add(c, t, schema_get(&rejects));
    schema_add(c, t, "] char*");
    buffer_fini(&rejects);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The key as JSON writes it, without quotes; to be freed. */
static char *json_key(struct schema *c, const char *key)
{
    json_t *text = json_string_nocheck(key);
    char *dump = text ? json_shortest(text, 0) : NULL;
    json_decref(text);
    if (!dump) {
        schema_no_memory(c);
        return NULL;
    }
    size_t bytes = strlen(dump);
    memmove(dump, dump + 1, bytes - 2);
    dump[bytes - 2] = 0;
    if (bytes > SCHEMA_KEY_MAX)
        schema_fail(c,
                    "the property '%.40s...' is too long beside additionalProperties: at most %d "
                    "bytes",
                    key, SCHEMA_KEY_MAX);
    return dump;
}

/* A rule for every key that is none of the object's. */
static const char *other_key_rule(struct schema *c, const struct object *o, const char *name)
{
    if (!o->n_keys)
        return schema_builtin(c, "string", NULL);
    const char **keys = calloc(o->n_keys, sizeof(*keys));
    if (!keys) {
        schema_no_memory(c);
        return "";
    }
    size_t n = 0;
    for (size_t i = 0; i < o->n_keys && !c->rc; i++)
        keys[n++] = json_key(c, o->keys[i]);
    struct buffer t = {0};
    schema_builtin(c, "char", NULL);
    schema_add(c, &t, "[\"] ( ");
    if (!c->rc) {
        qsort(keys, n, sizeof(*keys), by_text);
        add_other_keys(c, &t, keys, n, 0);
        schema_add(c, &t, *keys[0] ? " )? [\"] space" : " ) [\"] space");
    }
    for (size_t i = 0; i < n; i++)
        free((char *)(uintptr_t)keys[i]);
    free(keys);
    const char *got = schema_rule(c, NULL, name, schema_get(&t));
    buffer_fini(&t);
    return got;
}

/* ---- the parts of an object ------------------------------------------------------------------ */

static const char *others_rule(struct schema *c, const struct object *o, json_t *more,
                               const char *name)
{
    struct buffer sub = {0}, part = {0}, t = {0};
    schema_name(c, &sub, name, "additional");
    schema_name(c, &part, schema_get(&sub), "value");
    size_t mark = schema_enter(c, "additionalProperties");
    const char *value = schema_visit(c, more, schema_get(&part), NULL);
    schema_leave(c, mark);
    part.bytes = 0;
    schema_name(c, &part, schema_get(&sub), "k");
    schema_add(c, &t, other_key_rule(c, o, schema_get(&part)));
    schema_format(c, &t, " \":\" space %s", value);
    part.bytes = 0;
    schema_name(c, &part, schema_get(&sub), "kv");
    const char *got = schema_rule(c, NULL, schema_get(&part), schema_get(&t));
    buffer_fini(&sub);
    buffer_fini(&part);
    buffer_fini(&t);
    return got;
}

static int is_needed(const json_t *required, const char *key)
{
    size_t i;
    json_t *item;
    json_array_foreach(required, i, item) {
        if (strcmp(json_string_value(item), key) == 0)
            return 1;
    }
    return 0;
}

/* Required keys that have no schema: any value, or what additionalProperties says. */
static void add_undescribed(struct schema *c, struct object *o, const json_t *schema,
                            const char *name)
{
    json_t *more = json_object_get(schema, "additionalProperties");
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(schema, "required"), i, item) {
        const char *key = json_string_value(item);
        int is_there = 0;
        schema_work(c, o->n_keys);
        for (size_t k = 0; k < o->n_keys && !c->rc; k++)
            is_there |= strcmp(o->keys[k], key) == 0;
        if (is_there || c->rc)
            continue;
        if (json_is_false(more))
            schema_fail(c, "\"required\" names '%.40s', which is not a property: nothing can match",
                        key);
        o->keys[o->n_keys++] = key;
        o->needed[o->n_needed++] =
            (struct property){key, visit_property(c, key, more ? more : json_true(), name), ""};
    }
}

static void read_object(struct schema *c, struct object *o, const json_t *schema, const char *name)
{
    json_t *properties = json_object_get(schema, "properties"), *value;
    json_t *required = json_object_get(schema, "required");
    json_t *more = json_object_get(schema, "additionalProperties");
    size_t room = json_object_size(properties) + json_array_size(required) + 1;
    const char *key;
    o->needed = calloc(room, sizeof(*o->needed));
    o->free = calloc(room, sizeof(*o->free));
    o->keys = calloc(room, sizeof(*o->keys));
    if (!o->needed || !o->free || !o->keys) {
        schema_no_memory(c);
        return;
    }
    json_object_foreach(properties, key, value) {
        struct property p = {key, visit_property(c, key, value, name), ""};
        schema_work(c, json_array_size(required));
        if (c->rc)
            return;
        o->keys[o->n_keys++] = key;
        if (is_needed(required, key))
            o->needed[o->n_needed++] = p;
        else
            o->free[o->n_free++] = p;
    }
    add_undescribed(c, o, schema, name);
    if (more && !json_is_false(more))
        o->others = others_rule(c, o, more, name);
}

/* Adds the properties that may be left out, each with what may follow it. */
static void add_free(struct schema *c, struct buffer *t, const struct object *o)
{
    for (size_t i = 0; i < o->n_free; i++) {
        schema_add(c, t, i ? " | " : "");
        schema_add(c, t, o->free[i].rule);
        schema_add(c, t, *o->free[i].rest ? " " : "");
        schema_add(c, t, o->free[i].rest);
    }
    if (o->others)
        schema_format(c, t, "%s%s ( \",\" space %s )*", o->n_free ? " | " : "", o->others,
                      o->others);
}

/* Makes the rules KEY-rest, from the last one on. */
static void make_rests(struct schema *c, struct object *o, const char *name)
{
    const struct property *next = NULL;
    for (size_t i = o->n_free; i-- > 0 && !c->rc; next = &o->free[i]) {
        struct buffer t = {0}, sub = {0};
        if (!next && !o->others)
            continue;
        schema_format(c, &t, "( \",\" space %s )%s", next ? next->rule : o->others,
                      next ? "?" : "*");
        if (next && *next->rest)
            schema_format(c, &t, " %s", next->rest);
        schema_name(c, &sub, name, o->free[i].key);
        schema_add(c, &sub, "-rest");
        o->free[i].rest = schema_rule(c, NULL, schema_get(&sub), schema_get(&t));
        buffer_fini(&sub);
        buffer_fini(&t);
    }
}

void schema_object(struct schema *c, struct buffer *t, const json_t *schema, const char *name)
{
    struct object o = {0};
    c->level++;
    read_object(c, &o, schema, name);
    c->level--;
    make_rests(c, &o, name);
    schema_add(c, t, "\"{\" space ");
    for (size_t i = 0; i < o.n_needed && !c->rc; i++) {
        schema_add(c, t, i ? " \",\" space " : "");
        schema_add(c, t, o.needed[i].rule);
    }
    if (!c->rc && (o.n_free || o.others)) {
        schema_add(c, t, o.n_needed ? " ( \",\" space ( " : " (");
        add_free(c, t, &o);
        schema_add(c, t, o.n_needed ? " ) )?" : " )?");
    }
    schema_add(c, t, " \"}\" space");
    free(o.needed);
    free(o.free);
    free(o.keys);
}
