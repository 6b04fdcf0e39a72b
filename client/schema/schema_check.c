/* schema_check: what a schema's keywords may be: kinds of their values, those that are refused,
 * and what a reference means. */
#include "client/schema/schema.h"

#include <stdlib.h>
#include <string.h>

enum takes { /* bits: kinds of values */
             TEXT = 1,
             NUMBER = 2,
             TRUTH = 4,
             OBJECT = 8,
             LIST = 16,
             SCHEMA = TRUTH | OBJECT,
             ANY = 31
};

struct keyword {
    const char *name;
    int takes;
};

/* Keywords that restrict and are understood. */
static const struct keyword understood[] = {
    {"$ref", TEXT},
    {"type", TEXT | LIST},
    {"enum", LIST},
    {"const", ANY},
    {"allOf", LIST},
    {"anyOf", LIST},
    {"oneOf", LIST},
    {"properties", OBJECT},
    {"required", LIST},
    {"additionalProperties", SCHEMA},
    {"items", SCHEMA | LIST},
    {"prefixItems", SCHEMA | LIST},
    {"additionalItems", SCHEMA},
    {"minItems", NUMBER},
    {"maxItems", NUMBER},
    {"minLength", NUMBER},
    {"maxLength", NUMBER},
    {"pattern", TEXT},
    {"format", TEXT},
    {"minimum", NUMBER},
    {"maximum", NUMBER},
    {"exclusiveMinimum", NUMBER | TRUTH},
    {"exclusiveMaximum", NUMBER | TRUTH},
    {"nullable", TRUTH},
};
enum { N_UNDERSTOOD = sizeof(understood) / sizeof(understood[0]) };

/* Keywords that restrict in a way no grammar of ours can follow. "uniqueItems" is not among them:
 * llama.cpp's vectors want it passed over. What is taken without "patternProperties" need not be
 * more than what is taken with it: it is the first, and no loosening passes it over. */
static const char *const refused[] = {
    "patternProperties",
    "not",
    "if",
    "then",
    "else",
    "multipleOf",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "contains",
    "minContains",
    "maxContains",
    "dependencies",
    "dependentRequired",
    "$dynamicRef",
    "dependentSchemas",
    "$recursiveRef",
};

static const char *const types[] = {"object",  "array",   "string", "number",
                                    "integer", "boolean", "null"};
enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

static int kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return TEXT;
    case JSON_INTEGER:
    case JSON_REAL:
        return NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return TRUTH;
    case JSON_OBJECT:
        return OBJECT;
    case JSON_ARRAY:
        return LIST;
    default:
        return 0;
    }
}

static const char *kind_name(int takes)
{
    switch (takes) {
    case TEXT:
        return "a text";
    case NUMBER:
        return "a number";
    case TRUTH:
        return "true or false";
    case OBJECT:
        return "an object";
    case LIST:
        return "an array";
    case SCHEMA:
        return "a schema";
    case TEXT | LIST:
        return "a text or an array of texts";
    case NUMBER | TRUTH:
        return "a number";
    default:
        return "a schema or an array of schemas";
    }
}

/* What reads a text ends there, and would read another one: a pattern that lets more through. */
static int has_zero(const json_t *text)
{
    return json_is_string(text) && strlen(json_string_value(text)) < json_string_length(text);
}

static void check_type(struct schema *c, const json_t *type)
{
    const char *name = json_string_value(type);
    for (size_t i = 0; name && !has_zero(type) && i < N_TYPES; i++)
        if (strcmp(name, types[i]) == 0)
            return;
    if (name)
        schema_fail(
            c, "unknown type '%.40s': give object, array, string, number, integer, boolean or null",
            name);
    else
        schema_fail(c, "a type must be a string: give object, array, string, number, integer, "
                       "boolean or null");
}

static void check_lists(struct schema *c, const json_t *schema)
{
    static const char *const full[] = {"enum", "allOf", "anyOf", "oneOf", "type"};
    for (size_t i = 0; i < sizeof(full) / sizeof(full[0]); i++) {
        const json_t *list = json_object_get(schema, full[i]);
        if (json_is_array(list) && json_array_size(list) == 0)
            schema_fail(c, "\"%s\" is empty, so nothing can match: give it at least one item",
                        full[i]);
    }
    const json_t *type = json_object_get(schema, "type");
    const json_t *required = json_object_get(schema, "required");
    size_t i;
    json_t *item;
    if (json_array_size(type) > N_TYPES)
        schema_fail(c, "\"type\" names a type twice: name each once");
    else if (json_is_array(type)) {
        json_array_foreach(type, i, item)
            check_type(c, item);
    } else if (type) {
        check_type(c, type);
    }
    schema_work(c, json_array_size(required));
    json_array_foreach(required, i, item) {
        if (!json_is_string(item) || has_zero(item))
            schema_fail(c,
                        "\"required\" has an item that is not a string: give names of properties");
    }
}

void schema_check(struct schema *c, const json_t *schema)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (json_object_get(schema, refused[i])) {
            schema_fail(c, "\"%s\" is not supported: leave it out, and check the answer for it",
                        refused[i]);
            if (i > 0)
                (void)schema_loosen(c);
        }
    static const char *const unevaluated[] = {"unevaluatedProperties", "unevaluatedItems"};
    for (int i = 0; i < 2; i++)
        if (json_is_object(json_object_get(schema, unevaluated[i])))
            schema_fail(c, "\"%s\" with a schema is not supported: leave it out", unevaluated[i]);
    for (int i = 0; i < N_UNDERSTOOD; i++) {
        const json_t *value = json_object_get(schema, understood[i].name);
        if (value && understood[i].takes != ANY && !(kind_of(value) & understood[i].takes))
            schema_fail(c, "\"%s\" must be %s", understood[i].name, kind_name(understood[i].takes));
        if (understood[i].takes & TEXT && understood[i].takes != ANY && has_zero(value))
            schema_fail(c, "\"%s\" has a zero byte: leave it out", understood[i].name);
    }
    if (!c->rc)
        check_lists(c, schema);
}

static int combines(const char *key)
{
    return strcmp(key, "$ref") == 0 || strcmp(key, "allOf") == 0 || strcmp(key, "anyOf") == 0 ||
           strcmp(key, "oneOf") == 0;
}

json_t *schema_plain(struct schema *c, const json_t *schema)
{
    json_t *plain = json_object();
    if (!plain || json_array_append_new(c->keep, plain)) {
        schema_no_memory(c);
        return NULL;
    }
    for (int i = 0; i < N_UNDERSTOOD && !c->rc; i++) {
        json_t *value = json_object_get(schema, understood[i].name);
        if (value && !combines(understood[i].name) &&
            json_object_set_nocheck(plain, understood[i].name, value))
            schema_no_memory(c);
    }
    return plain;
}

size_t schema_restrictions(const json_t *schema, const char *const *but)
{
    size_t n = 0;
    for (int i = 0; i < N_UNDERSTOOD; i++) {
        const char *const *b = but;
        while (*b && strcmp(*b, understood[i].name) != 0)
            b++;
        n += !*b && json_object_get(schema, understood[i].name);
    }
    return n;
}

/* ---- references ------------------------------------------------------------------------------ */

/* One part of a JSON pointer, up to "/", with ~0, ~1 and %XX undone. Returns its bytes, or max. */
static size_t unescape(const char **at, char *to, size_t max)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    size_t n = 0;
    const char *p = *at;
    for (; *p && *p != '/' && n + 1 < max; p++) {
        const char *high = *p == '%' && p[1] ? strchr(digits, p[1]) : NULL;
        const char *low = high && p[2] ? strchr(digits, p[2]) : NULL;
        to[n++] = *p;
        if (low) {
            to[n - 1] = (char)((high - digits) % 16 << 4 | (low - digits) % 16);
            p += 2;
        } else if (*p == '~' && (p[1] == '0' || p[1] == '1')) {
            to[n - 1] = *++p == '0' ? '~' : '/';
        }
    }
    to[n] = 0;
    *at = p;
    return *p && *p != '/' ? max : n;
}

json_t *schema_target(struct schema *c, const char *ref)
{
    if (*ref != '#') {
        schema_fail(c,
                    "$ref '%.100s' is not in this schema: put it under \"$defs\" and refer to "
                    "#/$defs/NAME",
                    ref);
        return NULL;
    }
    json_t *target = c->root;
    const char *at = ref + 1;
    schema_work(c, strlen(ref) / 4);
    while (target && *at == '/') {
        char part[256];
        at++;
        if (unescape(&at, part, sizeof(part)) == sizeof(part))
            target = NULL;
        else if (json_is_array(target))
            target = *part && strspn(part, "0123456789") == strlen(part) && strlen(part) < 8
                         ? json_array_get(target, (size_t)strtoul(part, NULL, 10))
                         : NULL;
        else
            target = json_object_get(target, part);
    }
    if (target && !*at)
        return target;
    schema_fail(c, "$ref '%.100s' leads nowhere: there is no such place in the schema", ref);
    return NULL;
}

/* ---- the kind of a value --------------------------------------------------------------------- */

int schema_has_one(const json_t *schema, const char *const *keys)
{
    for (; *keys; keys++)
        if (json_object_get(schema, *keys))
            return 1;
    return 0;
}

static const char *const object_keys[] = {"properties", "required", "additionalProperties", NULL};
const char *const schema_array_keys[] = {"items", "prefixItems", "minItems", "maxItems", NULL};
static const char *const string_keys[] = {"pattern", "format", "minLength", "maxLength", NULL};
const char *const schema_number_keys[] = {"minimum", "maximum", "exclusiveMinimum",
                                          "exclusiveMaximum", NULL};

const char *schema_kind(const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (type)
        return type;
    if (schema_has_one(schema, object_keys))
        return "object";
    if (schema_has_one(schema, schema_array_keys))
        return "array";
    if (schema_has_one(schema, string_keys))
        return "string";
    return schema_has_one(schema, schema_number_keys) ? "number" : NULL;
}

const char *schema_kind_alone(const json_t *schema)
{
    static const char *const unclear[] = {"type",  "$ref", "anyOf", "oneOf",
                                          "allOf", "enum", "const", NULL};
    return schema_has_one(schema, unclear) ? json_string_value(json_object_get(schema, "type"))
                                           : schema_kind(schema);
}
