/* schema_merge: schemas that hold at the same time: allOf, and what stands beside a $ref, an anyOf
 * or a oneOf.
 *
 * The schema is taken apart into ways: plain schemas without any of these keywords, of which a
 * value has to match one. anyOf and oneOf add ways, allOf and siblings multiply them, two plain
 * schemas merge to one that accepts what both accept, or to none. */
#include "client/schema/schema.h"

#include <string.h>

static json_t *kept(struct schema *c, json_t *value)
{
    if (!value || json_array_append_new(c->keep, value)) {
        schema_no_memory(c);
        return NULL;
    }
    return value;
}

/* json_copy() leaves out what it has no memory for. */
static json_t *copy_of(struct schema *c, json_t *value)
{
    json_t *copy = kept(c, json_copy(value));
    if (json_object_size(copy) != json_object_size(value) ||
        json_array_size(copy) != json_array_size(value))
        schema_no_memory(c);
    return copy;
}

static void set(struct schema *c, json_t *object, const char *key, json_t *value)
{
    if (!c->rc && (!value || json_object_set_nocheck(object, key, value)))
        schema_no_memory(c);
}

static void append(struct schema *c, json_t *list, json_t *value)
{
    if (!c->rc && (!list || !value || json_array_append(list, value)))
        schema_no_memory(c);
}

/* ---- two plain schemas ----------------------------------------------------------------------- */

static json_t *as_list(struct schema *c, json_t *value)
{
    json_t *list = json_is_array(value) ? value : kept(c, json_array());
    if (list != value)
        append(c, list, value);
    return list;
}

static void append_once(struct schema *c, json_t *list, json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        if (json_equal(item, value))
            return;
    }
    append(c, list, value);
}

/* The types of both, each once; "integer" is a "number", too. */
static json_t *merge_types(struct schema *c, json_t *a, json_t *b)
{
    json_t *both = kept(c, json_array()), *x, *y;
    size_t i, k;
    a = as_list(c, a);
    b = as_list(c, b);
    json_array_foreach(a, i, x) {
        json_array_foreach(b, k, y) {
            const char *p = json_string_value(x), *q = json_string_value(y);
            if (strcmp(p, q) == 0 || (strcmp(p, "integer") == 0 && strcmp(q, "number") == 0))
                append_once(c, both, x);
            else if (strcmp(p, "number") == 0 && strcmp(q, "integer") == 0)
                append_once(c, both, y);
        }
    }
    return json_array_size(both) == 1 ? json_array_get(both, 0) : both;
}

static json_t *merge_lists(struct schema *c, json_t *a, json_t *b, int is_union)
{
    json_t *list = is_union ? copy_of(c, a) : kept(c, json_array()), *x, *y;
    size_t i, k;
    schema_work(c, json_array_size(a) * json_array_size(b));
    if (c->rc)
        return a;
    json_array_foreach(b, i, x) {
        int is_in = 0;
        json_array_foreach(a, k, y)
            is_in = is_in || schema_equal(c, x, y);
        if (is_in != is_union)
            append(c, list, x);
    }
    return list;
}

static int is_equal(struct schema *c, const json_t *a, const json_t *b)
{
    if (a != b && (json_is_object(a) || json_is_array(a)))
        schema_work(c, c->text_bytes / 8);
    return !c->rc && (a == b || schema_equal(c, a, b));
}

/* A schema that is both. */
static json_t *both_of(struct schema *c, json_t *a, json_t *b)
{
    if (json_is_false(a) || json_is_false(b))
        return json_false();
    if (json_is_true(b) || is_equal(c, a, b))
        return a;
    if (json_is_true(a))
        return b;
    return kept(c, json_pack("{s:[O,O]}", "allOf", a, b));
}

/* Puts the properties of `from` into *to; one that `other` lacks must also match the
 * additionalProperties of `other`. */
static void merge_properties(struct schema *c, json_t *to, json_t *from, json_t *other)
{
    json_t *properties = json_object_get(other, "properties"), *value;
    json_t *more = json_object_get(other, "additionalProperties");
    const char *key;
    json_object_foreach(json_object_get(from, "properties"), key, value) {
        json_t *twin = json_object_get(properties, key);
        if (!twin)
            twin = more ? more : json_true();
        schema_work(c, 1);
        if (!json_is_false(twin) && !json_object_get(to, key))
            set(c, to, key, both_of(c, value, twin));
    }
}

static json_t *merge_bounds(struct schema *c, const char *key, json_t *a, json_t *b)
{
    int is_lower = strncmp(key, "min", 3) == 0 || strcmp(key, "exclusiveMinimum") == 0;
    if (!json_is_number(a) || !json_is_number(b)) {
        schema_fail(c, "\"%s\" is given twice: give it once, as a number", key);
        return a;
    }
    return (json_number_value(a) > json_number_value(b)) == is_lower ? a : b;
}

/* The value of a keyword that both have, with different values; NULL: nothing can match. */
static json_t *merge_values(struct schema *c, const char *key, json_t *a, json_t *b)
{
    json_t *list;
    if (strcmp(key, "const") == 0)
        return NULL;
    if (strcmp(key, "type") == 0 || strcmp(key, "enum") == 0) {
        list = *key == 't' ? merge_types(c, a, b) : merge_lists(c, a, b, 0);
        return json_is_array(list) && !json_array_size(list) ? NULL : list;
    }
    if (strcmp(key, "required") == 0)
        return merge_lists(c, a, b, 1);
    if (strcmp(key, "nullable") == 0)
        return json_true();
    if (strcmp(key, "additionalProperties") == 0 ||
        (strcmp(key, "items") == 0 && !json_is_array(a) && !json_is_array(b)))
        return both_of(c, a, b);
    if (strncmp(key, "min", 3) == 0 || strncmp(key, "max", 3) == 0 || strncmp(key, "excl", 4) == 0)
        return merge_bounds(c, key, a, b);
    schema_fail(c, "\"%s\" is given twice, with different values: that is not supported", key);
    return a;
}

/* What "items" means depends on the "prefixItems" beside it, so the two are not merged one by
 * one. */
static void check_places(struct schema *c, const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"items", "prefixItems", "additionalItems"};
    int in_a = 0, in_b = 0, has_tuple = 0, is_same = 1;
    for (int i = 0; i < 3; i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        in_a |= x != NULL;
        in_b |= y != NULL;
        has_tuple |= i > 0 ? x || y : json_is_array(x) || json_is_array(y);
        is_same = is_same && (x == y || (x && y && is_equal(c, x, y)));
    }
    if (in_a && in_b && has_tuple && !is_same)
        schema_fail(c, "\"prefixItems\" in one of two schemas that both say what items are is not "
                       "supported: put it into one");
}

/* NULL: nothing matches both, or a failure. */
static json_t *merge(struct schema *c, json_t *a, json_t *b)
{
    json_t *both = copy_of(c, a), *value;
    const char *key;
    check_places(c, a, b);
    json_object_foreach(b, key, value) {
        json_t *there = json_object_get(a, key);
        if (c->rc || strcmp(key, "properties") == 0)
            continue;
        json_t *merged =
            there && !is_equal(c, there, value) ? merge_values(c, key, there, value) : value;
        if (!merged)
            return NULL;
        set(c, both, key, merged);
    }
    if (json_object_get(a, "properties") || json_object_get(b, "properties")) {
        json_t *properties = kept(c, json_object());
        merge_properties(c, properties, a, b);
        merge_properties(c, properties, b, a);
        set(c, both, "properties", properties);
    }
    return !c->rc && schema_is_possible(c, both) ? both : NULL;
}

/* ---- ways ------------------------------------------------------------------------------------ */

static json_t *multiply(struct schema *c, json_t *a, json_t *b)
{
    json_t *ways = kept(c, json_array()), *x, *y;
    size_t i, k;
    if (json_array_size(a) * json_array_size(b) > SCHEMA_WAYS_MAX)
        schema_fail(c, "more than %d combinations of alternatives: make them fewer",
                    SCHEMA_WAYS_MAX);
    json_array_foreach(a, i, x) {
        json_array_foreach(b, k, y) {
            if (c->rc || ++c->steps > SCHEMA_STEPS_MAX) {
                schema_fail(c, "too large: at most %d schemas", SCHEMA_STEPS_MAX);
                return ways;
            }
            json_t *both = merge(c, x, y);
            if (both)
                append(c, ways, both);
        }
    }
    return ways;
}

static json_t *find_ways(struct schema *c, json_t *schema);

static json_t *ways_of_any(struct schema *c, const char *key, const json_t *list)
{
    json_t *ways = kept(c, json_array()), *item;
    size_t i;
    json_array_foreach(list, i, item) {
        size_t mark = schema_enter_index(c, key, i);
        if (!c->rc && json_array_extend(ways, find_ways(c, item)))
            schema_no_memory(c);
        schema_leave(c, mark);
    }
    return ways;
}

static json_t *find_combined(struct schema *c, json_t *schema)
{
    json_t *ways = kept(c, json_array()), *item;
    size_t i;
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    schema_check(c, schema);
    append(c, ways, schema_plain(c, schema));
    json_t *target = ref && !c->rc ? schema_target(c, ref) : NULL;
    if (target)
        ways = multiply(c, ways, find_ways(c, target));
    json_array_foreach(json_object_get(schema, "allOf"), i, item) {
        size_t mark = schema_enter_index(c, "allOf", i);
        ways = multiply(c, ways, find_ways(c, item));
        schema_leave(c, mark);
    }
    static const char *const choices[] = {"anyOf", "oneOf"};
    for (int k = 0; k < 2; k++) {
        const json_t *list = json_object_get(schema, choices[k]);
        if (list && !c->rc)
            ways = multiply(c, ways, ways_of_any(c, choices[k], list));
        if (k == 1 && !c->rc)
            schema_note_choice(c, list);
    }
    return ways;
}

static json_t *find_ways(struct schema *c, json_t *schema)
{
    json_t *ways = NULL;
    if (c->rc)
        return NULL;
    if (c->depth == SCHEMA_DEPTH_MAX || ++c->steps > SCHEMA_STEPS_MAX) {
        schema_fail(c,
                    "too deep or too large, or it refers to itself with nothing in between: at "
                    "most %d nested schemas, %d in all",
                    SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX);
        return NULL;
    }
    c->depth++;
    if (json_is_object(schema)) {
        ways = find_combined(c, schema);
    } else {
        ways = kept(c, json_array());
        if (json_is_true(schema))
            append(c, ways, kept(c, json_object()));
        else if (!json_is_false(schema))
            schema_fail(c, "a schema is an object, true or false");
    }
    c->depth--;
    return ways;
}

/* ---- allOf where nothing is said to be required ---------------------------------------------- */

enum { LOOKED_AT = 8 }; /* work: every keyword of a schema is looked for */

/* The properties of a schema, references followed. NULL: it is more than an object with
 * properties. */
static json_t *mixin(struct schema *c, json_t *schema)
{
    static const char *const may[] = {"properties", "type", "additionalProperties", NULL};
    schema_work(c, LOOKED_AT);
    for (int i = 0; i < SCHEMA_DEPTH_MAX && json_object_get(schema, "$ref"); i++) {
        const char *ref = json_string_value(json_object_get(schema, "$ref"));
        static const char *const only[] = {"$ref", NULL};
        schema_work(c, LOOKED_AT);
        if (!ref || schema_restrictions(schema, only))
            return NULL;
        schema = schema_target(c, ref);
    }
    json_t *properties = json_object_get(schema, "properties");
    const char *kind = json_object_get(schema, "$ref") ? NULL : schema_kind(schema);
    return json_is_object(properties) && kind && strcmp(kind, "object") == 0 &&
                   !schema_restrictions(schema, may)
               ? properties
               : NULL;
}

/* Adds properties, and to `required`, unless that is NULL, their names. 0: one is there already. */
static int add_properties(struct schema *c, json_t *to, json_t *required, const json_t *from)
{
    const char *key;
    json_t *value;
    schema_work(c, json_object_size(from));
    json_object_foreach((json_t *)(uintptr_t)from, key, value) {
        if (c->rc || json_object_get(to, key))
            return 0;
        set(c, to, key, value);
        if (required)
            append(c, required, kept(c, json_string_nocheck(key)));
    }
    return 1;
}

/* llama.cpp's reading of an allOf of objects of which none says what is required: every property is
 * required, except those of alternatives. NULL if the allOf cannot be merged. */
static json_t *mixed_in(struct schema *c, const json_t *schema)
{
    static const char *const may[] = {"allOf", "type", NULL};
    static const char *const only_any[] = {"anyOf", NULL};
    json_t *properties = kept(c, json_object()), *required = kept(c, json_array()), *item, *sub;
    size_t i, k;
    if (schema_restrictions(schema, may) || !json_object_get(schema, "allOf"))
        return NULL;
    json_array_foreach(json_object_get(schema, "allOf"), i, item) {
        const json_t *any = json_object_get(item, "anyOf");
        json_t *own = any ? NULL : mixin(c, item);
        schema_work(c, LOOKED_AT);
        if (c->rc)
            return NULL;
        if (any && (!json_is_array(any) || schema_restrictions(item, only_any)))
            return NULL;
        if (!any && (!own || !add_properties(c, properties, required, own)))
            return NULL;
        json_array_foreach(any, k, sub) {
            own = mixin(c, sub);
            if (c->rc || !own || !add_properties(c, properties, NULL, own))
                return NULL;
        }
    }
    return kept(c, json_pack("{s:s,s:O,s:O}", "type", "object", "properties", properties,
                             "required", required));
}

json_t *schema_ways(struct schema *c, json_t *schema)
{
    json_t *one = mixed_in(c, schema), *ways;
    if (one) {
        ways = kept(c, json_array());
        append(c, ways, one);
    } else {
        ways = find_ways(c, schema);
    }
    if (!c->rc && !json_array_size(ways))
        schema_fail(c, "these contradict each other: nothing can match");
    return ways;
}
