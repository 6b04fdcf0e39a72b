/* schema_visit: the walk down a schema: which kind of value a place takes, and its rule. */
#include "client/schema/schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- keywords -------------------------------------------------------------------------------- */

/* The number of a keyword such as minItems. */
static uint32_t read_count(struct schema *c, const json_t *schema, const char *key,
                           uint32_t otherwise)
{
    const json_t *value = json_object_get(schema, key);
    if (!value)
        return otherwise;
    double number = json_number_value(value);
    if (number >= 0 && number <= SCHEMA_REPEAT_MAX && number == floor(number))
        return (uint32_t)number;
    schema_fail(c, "\"%s\" must be a whole number from 0 to %d", key, SCHEMA_REPEAT_MAX);
    return 0;
}

static void read_counts(struct schema *c, const json_t *schema, const char *least_key,
                        const char *most_key, uint32_t *ret_least, uint32_t *ret_most)
{
    *ret_least = read_count(c, schema, least_key, 0);
    *ret_most = read_count(c, schema, most_key, SCHEMA_NO_MAX);
    if (*ret_least > *ret_most)
        schema_fail(c, "\"%s\" is above \"%s\": nothing can match", least_key, most_key);
    if (!c->loosened || c->rc)
        return;
    if (*ret_least > SCHEMA_PARTS_REPEAT ||
        (*ret_most > SCHEMA_PARTS_REPEAT && *ret_most != SCHEMA_NO_MAX)) {
        schema_fail(c, "\"%s\" or \"%s\" above %d is not bound", least_key, most_key,
                    SCHEMA_PARTS_REPEAT);
        (void)schema_loosen(c);
        *ret_most = SCHEMA_NO_MAX;
        *ret_least = *ret_least > SCHEMA_PARTS_REPEAT ? SCHEMA_PARTS_REPEAT : *ret_least;
    }
}

/* ---- alternatives ---------------------------------------------------------------------------- */

/* What its alternatives take may stand at one place. */
static void begin_choice(struct schema *c)
{
    if (!c->choices++)
        c->values = 0;
}

static void add_alternative(struct schema *c, struct buffer *t, json_t *schema, const char *name,
                            size_t i)
{
    struct buffer sub = {0};
    char part[40];
    snprintf(part, sizeof(part), *name ? "%zu" : "alternative-%zu", i);
    schema_name(c, &sub, name, part);
    schema_add(c, t, i ? " | " : "");
    schema_add(c, t, schema_visit(c, schema, schema_get(&sub), NULL));
    buffer_fini(&sub);
}

/* `key`: the keyword that the list stands under, or NULL. */
static void add_alternatives(struct schema *c, struct buffer *t, const json_t *list,
                             const char *key, const char *name)
{
    begin_choice(c);
    for (size_t i = 0; i < json_array_size(list) && !c->rc; i++) {
        size_t mark = key ? schema_enter_index(c, key, i) : c->path.bytes;
        add_alternative(c, t, json_array_get(list, i), name, i);
        schema_leave(c, mark);
    }
    c->choices--;
}

/* The schema with this type only, or unchanged if `type` is NULL; never nullable. */
static json_t *with_type(struct schema *c, json_t *schema, json_t *type)
{
    json_t *copy = schema_plain(c, schema);
    json_object_del(copy, "nullable");
    if (type && !c->rc && json_object_set(copy, "type", type))
        schema_no_memory(c);
    return copy;
}

static void add_types(struct schema *c, struct buffer *t, json_t *schema, const char *name)
{
    const json_t *types = json_object_get(schema, "type");
    for (size_t i = 0; i < json_array_size(types) && !c->rc; i++)
        add_alternative(c, t, with_type(c, schema, json_array_get(types, i)), name, i);
}

static int is_nullable(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    size_t i;
    json_t *item;
    json_array_foreach(type, i, item) {
        if (strcmp(json_string_value(item), "null") == 0)
            return 0;
    }
    return json_is_true(json_object_get(schema, "nullable")) && schema_kind(schema) != NULL &&
           strcmp(schema_kind(schema), "null") != 0;
}

static void add_nullable(struct schema *c, struct buffer *t, json_t *schema, const char *name)
{
    json_t *null = json_pack("{s:s}", "type", "null");
    if (!null || json_array_append_new(c->keep, null))
        schema_no_memory(c);
    add_alternative(c, t, with_type(c, schema, NULL), name, 0);
    add_alternative(c, t, null, name, 1);
}

/* ---- strings --------------------------------------------------------------------------------- */

static const struct format {
    const char *name, *builtin;
    uint32_t least, most; /* characters */
} formats[] = {
    {"date", "date-string", 10, 10},
    {"time", "time-string", 9, 18},
    {"date-time", "date-time-string", 20, 29},
    {"uuid", "uuid", 36, 36},
    {"uuid1", "uuid", 36, 36},
    {"uuid2", "uuid", 36, 36},
    {"uuid3", "uuid", 36, 36},
    {"uuid4", "uuid", 36, 36},
    {"uuid5", "uuid", 36, 36},
};

static const struct format *find_format(const json_t *schema)
{
    const char *name = json_string_value(json_object_get(schema, "format"));
    for (size_t i = 0; name && i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(name, formats[i].name) == 0)
            return &formats[i];
    return NULL;
}

static const char *visit_string(struct schema *c, json_t *schema, const char *rule, const char *own)
{
    uint32_t least, most;
    read_counts(c, schema, "minLength", "maxLength", &least, &most);
    const char *pattern = json_string_value(json_object_get(schema, "pattern"));
    const struct format *format = find_format(schema);
    struct buffer t = {0};
    const char *got;
    if (pattern) {
        schema_add(c, &t, "\"\\\"\" (");
        size_t mark = schema_enter(c, "pattern");
        schema_pattern(c, &t, pattern, own ? own : rule, least, most);
        schema_leave(c, mark);
        schema_add(c, &t, ") \"\\\"\" space");
        got = schema_rule(c, own, rule, schema_get(&t));
    } else if (format) {
        if (least > format->least || most < format->most)
            schema_fail(c, "\"format\" %s and a length beside it are not supported: leave one out",
                        format->name);
        if (strcmp(format->builtin, "uuid") == 0)
            return schema_builtin(c, "uuid", strcmp(rule, "root") ? NULL : rule);
        got = schema_rule(c, own, rule, schema_builtin(c, format->builtin, NULL));
    } else if (least || most != SCHEMA_NO_MAX) {
        schema_add(c, &t, "\"\\\"\" ");
        schema_repeat(c, &t, schema_builtin(c, "char", NULL), least, most, "");
        schema_add(c, &t, " \"\\\"\" space");
        got = schema_rule(c, own, rule, schema_get(&t));
    } else {
        got = schema_builtin(c, "string", strcmp(rule, "root") ? NULL : rule);
    }
    buffer_fini(&t);
    return got;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* The items that stand at fixed places. rest: the rule of those after, "" for none. */
static void add_tuple(struct schema *c, struct buffer *t, const json_t *schema, const json_t *tuple,
                      const char *key, const char *name, const char *rest)
{
    uint32_t least, most, n = (uint32_t)json_array_size(tuple);
    read_counts(c, schema, "minItems", "maxItems", &least, &most);
    if (most < n)
        n = most;
    for (uint32_t i = 0; i < n && !c->rc; i++) {
        struct buffer sub = {0};
        char part[24];
        snprintf(part, sizeof(part), "tuple-%u", i);
        schema_name(c, &sub, name, part);
        schema_add(c, t, i ? " \",\" space " : "");
        size_t mark = schema_enter_index(c, key, i);
        schema_add(c, t, schema_visit(c, json_array_get(tuple, i), schema_get(&sub), NULL));
        schema_leave(c, mark);
        buffer_fini(&sub);
    }
    if (!*rest && least > n)
        schema_fail(c,
                    "\"minItems\" is %u, and only %u items are described: describe the others "
                    "with \"items\"",
                    least, n);
    least = least > n ? least - n : 0;
    most = most == SCHEMA_NO_MAX ? most : most - n;
    if (!*rest || !most)
        return;
    struct buffer item = {0};
    schema_format(c, &item, "(\",\" space %s)", rest);
    schema_add(c, t, " ");
    if (n)
        schema_repeat(c, t, schema_get(&item), least, most, "");
    else
        schema_repeat(c, t, rest, least, most, "\",\" space");
    buffer_fini(&item);
}

static const char *visit_item(struct schema *c, json_t *schema, const char *key, const char *name)
{
    struct buffer sub = {0};
    size_t mark = schema_enter(c, key);
    schema_name(c, &sub, name, "item");
    const char *got = schema_visit(c, schema, schema_get(&sub), NULL);
    schema_leave(c, mark);
    buffer_fini(&sub);
    return got;
}

static const char *visit_array(struct schema *c, json_t *schema, const char *rule, const char *name,
                               const char *own)
{
    json_t *items = json_object_get(schema, "items"),
           *first = json_object_get(schema, "prefixItems");
    const char *key = "items", *first_key = "prefixItems";
    struct buffer t = {0};
    if (!schema_has_one(schema, schema_array_keys))
        return schema_builtin(c, "array", strcmp(rule, "root") ? NULL : rule);
    if (json_is_array(items)) { /* as older drafts have it */
        first = items;
        first_key = "items";
        items = json_object_get(schema, key = "additionalItems");
    } else if (first && !json_is_array(first)) { /* in llama.cpp's vectors it means every item */
        items = items ? items : first;
        key = items == first ? "prefixItems" : key;
        first = NULL;
    }
    schema_add(c, &t, "\"[\" space ");
    c->level++;
    if (json_is_array(first) || json_is_false(items)) {
        const char *rest = items && !json_is_false(items) ? visit_item(c, items, key, name) : "";
        add_tuple(c, &t, schema, first, first_key, name, rest);
    } else {
        uint32_t least, most;
        read_counts(c, schema, "minItems", "maxItems", &least, &most);
        const char *item =
            items ? visit_item(c, items, key, name) : schema_builtin(c, "value", NULL);
        schema_repeat(c, &t, item, least, most, "\",\" space");
    }
    c->level--;
    schema_add(c, &t, " \"]\" space");
    const char *got = schema_rule(c, own, rule, schema_get(&t));
    buffer_fini(&t);
    return got;
}

/* ---- references ------------------------------------------------------------------------------ */

/* The rule of a $ref. */
static const char *visit_ref(struct schema *c, const char *ref)
{
    if (strcmp(ref, "#") == 0 && c->root_rule) { /* the root's rule */
        if (!c->level)
            schema_fail(c, "$ref '#' refers to itself with nothing in between");
        c->refers_to_root = 1;
        return c->root_rule;
    }
    const char *known = json_string_value(json_object_get(c->refs, ref));
    const json_t *began = json_object_get(c->levels, ref);
    if (began && json_integer_value(began) == (json_int_t)c->level)
        schema_fail(c, "$ref '%.100s' refers to itself with nothing in between", ref);
    json_t *target = c->rc ? NULL : schema_target(c, ref);
    if (known || !target)
        return known && !c->rc ? known : "";
    struct buffer name = {0}, back = c->path;
    const char *last = strrchr(ref, '/');
    schema_name(c, &name, "", last ? last + 1 : "");
    if (!name.bytes)
        schema_add(c, &name, "ref");
    const char *own = schema_take(c, schema_get(&name));
    c->path = (struct buffer){0};
    schema_add(c, &c->path, ref + 1);
    schema_set(c, c->refs, ref, json_string_nocheck(own));
    schema_set(c, c->levels, ref, json_integer((json_int_t)c->level));
    const char *got = schema_visit(c, target, schema_get(&name), own);
    json_object_del(c->levels, ref);
    buffer_fini(&name);
    if (c->rc) { /* the message has the path */
        buffer_fini(&back);
        return "";
    }
    if (strcmp(got, own) != 0) {
        schema_untake(c, own);
        schema_set(c, c->refs, ref, json_string_nocheck(got));
    }
    buffer_fini(&c->path);
    c->path = back;
    return got;
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* A schema of one kind of value, without references and alternatives. */
static const char *visit_plain(struct schema *c, json_t *schema, const char *rule, const char *name,
                               const char *own)
{
    const char *kind = schema_kind(schema), *root = strcmp(rule, "root") ? NULL : rule;
    const json_t *more = json_object_get(schema, "additionalProperties");
    struct buffer t = {0};
    const char *got;
    if (!kind)
        return root ? schema_rule(c, own, rule, schema_builtin(c, "object", NULL))
                    : schema_builtin(c, "value", NULL);
    if (strcmp(kind, "string") == 0)
        return visit_string(c, schema, rule, own);
    if (strcmp(kind, "array") == 0)
        return visit_array(c, schema, rule, name, own);
    if (strcmp(kind, "object") == 0) {
        if (json_object_get(schema, "properties") || json_object_get(schema, "required") ||
            (more && !json_is_true(more)))
            schema_object(c, &t, schema, name);
        else
            schema_add(c, &t, schema_builtin(c, "object", NULL));
        got = schema_rule(c, own, rule, schema_get(&t));
    } else if (strcmp(kind, "integer") == 0 && schema_has_one(schema, schema_number_keys)) {
        schema_add(c, &t, "(");
        schema_integer(c, &t, schema);
        schema_add(c, &t, ") space");
        got = schema_rule(c, own, rule, schema_get(&t));
    } else {
        got = schema_builtin(c, kind, root);
    }
    buffer_fini(&t);
    return got;
}

static const char *const only_ref[] = {"$ref", NULL};
static const char *const only_any_of[] = {"anyOf", "type", NULL};
static const char *const only_one_of[] = {"oneOf", "type", NULL};
static const char *const only_all_of[] = {"allOf", NULL};

/* Is every alternative of the type that is given beside them? Then that type adds nothing. */
static int agrees(struct schema *c, const json_t *type, const json_t *list)
{
    size_t i;
    json_t *item;
    if (!type)
        return 1;
    json_array_foreach(list, i, item) {
        const char *ref = json_string_value(json_object_get(item, "$ref"));
        const char *kind = schema_kind(ref ? schema_target(c, ref) : item);
        if (!kind || !json_is_string(type) || strcmp(kind, json_string_value(type)) != 0)
            return 0;
    }
    return 1;
}

static const char *visit_checked(struct schema *c, json_t *schema, const char *rule,
                                 const char *name, const char *own)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const json_t *any = json_object_get(schema, "anyOf"), *one = json_object_get(schema, "oneOf");
    const json_t *all = json_object_get(schema, "allOf"), *type = json_object_get(schema, "type");
    struct buffer t = {0};
    if (ref && !schema_restrictions(schema, only_ref)) {
        schema_add(c, &t, visit_ref(c, ref));
    } else if (json_array_size(all) == 1 && !schema_restrictions(schema, only_all_of) &&
               json_object_get(json_array_get(all, 0), "$ref")) {
        size_t mark = schema_enter_index(c, "allOf", 0);
        const char *got = schema_visit(c, json_array_get(all, 0), name, own);
        schema_leave(c, mark);
        return got;
    } else if (any && !schema_restrictions(schema, only_any_of) && agrees(c, type, any)) {
        add_alternatives(c, &t, any, "anyOf", name);
    } else if (one && !schema_restrictions(schema, only_one_of) && agrees(c, type, one)) {
        add_alternatives(c, &t, one, "oneOf", name);
        schema_note_choice(c, one);
    } else if (ref || all || any || one) {
        json_t *ways = schema_ways(c, schema);
        if (json_array_size(ways) == 1)
            return visit_checked(c, json_array_get(ways, 0), rule, name, own);
        add_alternatives(c, &t, ways, NULL, name);
    } else if (json_object_get(schema, "const") || json_object_get(schema, "enum")) {
        schema_constants(c, &t, schema);
    } else if (is_nullable(schema)) {
        add_nullable(c, &t, schema, name);
    } else if (json_is_array(type)) {
        add_types(c, &t, schema, name);
    } else {
        return visit_plain(c, schema, rule, name, own);
    }
    const char *got = schema_rule(c, own, rule, schema_get(&t));
    buffer_fini(&t);
    return got;
}

static const char *visit(struct schema *c, json_t *schema, const char *name, const char *own)
{
    struct buffer rule = {0};
    const char *got = "";
    if (c->depth == SCHEMA_DEPTH_MAX || ++c->steps > SCHEMA_STEPS_MAX) {
        schema_fail(c, "too deep or too large: at most %d nested schemas, %d in all",
                    SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX);
        return "";
    }
    if (json_is_true(schema))
        return schema_builtin(c, "value", NULL);
    if (json_is_false(schema))
        schema_fail(c, "the schema is false: nothing can match");
    else if (!json_is_object(schema))
        schema_fail(c, "a schema is an object, true or false");
    else
        schema_check(c, schema);
    schema_add(c, &rule, *name ? name : "root");
    schema_add(c, &rule, *name && schema_is_reserved(name) ? "-" : "");
    c->depth++;
    if (!c->rc)
        got = visit_checked(c, schema, schema_get(&rule), name, own);
    c->depth--;
    buffer_fini(&rule);
    return c->rc ? "" : got;
}

/* The type of all values that an enum lists; NULL: they have several. */
static const char *type_of_values(const json_t *list)
{
    const json_t *first = json_array_get(list, 0), *item;
    size_t i;
    json_array_foreach(list, i, item) {
        if (json_typeof(item) != json_typeof(first))
            return NULL;
    }
    return json_is_string(first) ? "string" : json_is_integer(first) ? "integer" : NULL;
}

/* Any value of the schema's type: what is left where it cannot be bound. */
static const char *visit_loosened(struct schema *c, const json_t *schema, const char *own)
{
    static const char *const types[] = {"object", "array",   "string",
                                        "number", "integer", "boolean"};
    const char *type = schema_kind_alone(schema), *got = "value";
    if (!type)
        type = type_of_values(json_object_get(schema, "enum"));
    for (size_t i = 0; type && i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(type, types[i]) == 0)
            got = types[i];
    if (!own || json_is_string(json_object_get(c->rules, own)))
        return got;
    schema_set(c, c->rules, own, json_string_nocheck(got));
    return own;
}

const char *schema_visit(struct schema *c, json_t *schema, const char *name, const char *own)
{
    uint32_t depth = c->depth, level = c->level;
    size_t place = c->path.bytes;
    if (c->rc)
        return "";
    const char *got = visit(c, schema, name, own);
    if (!c->rc || !schema_loosen(c))
        return got;
    c->depth = depth;
    c->level = level;
    if (place <= c->path.bytes)
        schema_leave(c, place);
    return visit_loosened(c, schema, own);
}
