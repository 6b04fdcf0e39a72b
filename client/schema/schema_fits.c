/* schema_fits: see schema_fits.h. A row for each keyword, and what it asks of a value. */
#include "client/schema/schema_fits.h"

#include "client/base/utf8.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 64, PLACE_BYTES = 200 };

struct check {
    const json_t *root;
    size_t steps; /* that are left; 0: given up */
    uint32_t depth;
    bool too_deep;           /* given up, too */
    char place[PLACE_BYTES]; /* of the value, a JSON pointer, cut at the end */
    char *why;
    size_t why_bytes;
};

static bool fits(struct check *k, const json_t *schema, const json_t *value);

static bool gave_up(const struct check *k)
{
    return k->too_deep || k->steps == 0;
}

static void spend(struct check *k, size_t steps)
{
    k->steps -= steps < k->steps ? steps : k->steps;
}

/* A key that is looked for is hashed, however long it is. Returns whether it can be. */
static bool spend_key(struct check *k, const char *key)
{
    if (!gave_up(k))
        spend(k, strlen(key) / 16);
    return !gave_up(k);
}

/* The same without a line about what does not fit. */
static bool fits_quietly(struct check *k, const json_t *schema, const json_t *value)
{
    const size_t why_bytes = k->why_bytes;
    k->why_bytes = 0;
    bool ok = fits(k, schema, value);
    k->why_bytes = why_bytes;
    return ok;
}

/* At a place below. */
static bool fits_at(struct check *k, const char *key, const json_t *schema, const json_t *value)
{
    size_t n = strlen(k->place);
    snprintf(k->place + n, sizeof(k->place) - n, "/%s", key);
    bool ok = fits(k, schema, value);
    k->place[n] = 0;
    return ok;
}

static bool fits_item(struct check *k, size_t i, const json_t *schema, const json_t *value)
{
    char key[24];
    snprintf(key, sizeof(key), "%zu", i);
    return fits_at(k, key, schema, value);
}

static double characters(const json_t *text)
{
    return (double)utf8_count(json_string_value(text), json_string_length(text));
}

static bool is_whole(const json_t *value)
{
    double d = json_number_value(value);
    return json_is_integer(value) || (json_is_real(value) && d == floor(d));
}

static bool has_type(const json_t *value, const char *type)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "object",   [JSON_ARRAY] = "array", [JSON_STRING] = "string",
        [JSON_INTEGER] = "integer", [JSON_REAL] = "number", [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean",   [JSON_NULL] = "null"};
    return strcmp(type, names[json_typeof(value)]) == 0 ||
           (strcmp(type, "number") == 0 && json_is_number(value)) ||
           (strcmp(type, "integer") == 0 && json_is_number(value) && is_whole(value));
}

/* ---- keywords: what each asks of a value; `with` is the schema around it --------------------- */

#define KEYWORD(name)                                                                              \
    static bool name(struct check *k, const json_t *is, const json_t *with, const json_t *value)
#define UNUSED (void)k, (void)is, (void)with, (void)value

KEYWORD(type)
{
    UNUSED;
    bool ok = json_is_string(is) && has_type(value, json_string_value(is));
    for (size_t i = 0; i < json_array_size(is); i++) {
        const char *one = json_string_value(json_array_get(is, i));
        ok |= one && has_type(value, one);
    }
    return ok || (json_is_null(value) && json_is_true(json_object_get(with, "nullable")));
}

/* What is in a value itself, not in its members. */
static size_t length(const json_t *of)
{
    return json_array_size(of) + json_object_size(of) + json_string_length(of) / 16;
}

static bool is_same(struct check *k, const json_t *a, const json_t *b);

static bool has_same_members(struct check *k, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)a, key, member) {
        const json_t *other = spend_key(k, key) ? json_object_get(b, key) : NULL;
        if (!other || !is_same(k, member, other))
            return false;
    }
    return json_object_size(a) == json_object_size(b);
}

/* As json_equal(), but 1 is 1.0, and each part is a step. */
static bool is_same(struct check *k, const json_t *a, const json_t *b)
{
    spend(k, 1 + length(a));
    if (gave_up(k))
        return false;
    if (json_is_number(a) && json_is_number(b) && !(json_is_integer(a) && json_is_integer(b)))
        return json_number_value(a) == json_number_value(b);
    if (json_is_object(a) && json_is_object(b))
        return has_same_members(k, a, b);
    if (!json_is_array(a) || json_array_size(a) != json_array_size(b))
        return json_equal(a, b);
    for (size_t i = 0; i < json_array_size(a); i++)
        if (!is_same(k, json_array_get(a, i), json_array_get(b, i)))
            return false;
    return true;
}

KEYWORD(enumeration)
{
    UNUSED;
    for (size_t i = 0; i < json_array_size(is); i++)
        if (is_same(k, json_array_get(is, i), value))
            return true;
    return false;
}

KEYWORD(constant)
{
    UNUSED;
    return is_same(k, is, value);
}

KEYWORD(minimum)
{
    UNUSED;
    bool open = json_is_true(json_object_get(with, "exclusiveMinimum"));
    double a = json_number_value(value), b = json_number_value(is);
    return !json_is_number(value) || (open ? a > b : a >= b);
}

KEYWORD(maximum)
{
    UNUSED;
    bool open = json_is_true(json_object_get(with, "exclusiveMaximum"));
    double a = json_number_value(value), b = json_number_value(is);
    return !json_is_number(value) || (open ? a < b : a <= b);
}

KEYWORD(above)
{
    UNUSED;
    return !json_is_number(value) || !json_is_number(is) ||
           json_number_value(value) > json_number_value(is);
}

KEYWORD(below)
{
    UNUSED;
    return !json_is_number(value) || !json_is_number(is) ||
           json_number_value(value) < json_number_value(is);
}

KEYWORD(multiple)
{
    UNUSED;
    double of = json_number_value(is), n = json_number_value(value) / of;
    double off = n - floor(n + 0.5);
    return !json_is_number(value) || of <= 0 || (off < 1e-9 && off > -1e-9);
}

KEYWORD(shortest)
{
    UNUSED;
    return !json_is_string(value) || characters(value) >= json_number_value(is);
}

KEYWORD(longest)
{
    UNUSED;
    return !json_is_string(value) || characters(value) <= json_number_value(is);
}

KEYWORD(fewest_items)
{
    UNUSED;
    return !json_is_array(value) || (double)json_array_size(value) >= json_number_value(is);
}

KEYWORD(most_items)
{
    UNUSED;
    return !json_is_array(value) || (double)json_array_size(value) <= json_number_value(is);
}

KEYWORD(unique)
{
    UNUSED;
    size_t n = json_is_true(is) ? json_array_size(value) : 0;
    for (size_t i = 0; i < n && !gave_up(k); i++)
        for (size_t j = 0; j < i; j++)
            if (is_same(k, json_array_get(value, i), json_array_get(value, j)))
                return false;
    return true;
}

/* Items at their places, then the others. */
static bool places(struct check *k, const json_t *list, const json_t *others, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *schema = i < json_array_size(list) ? json_array_get(list, i) : others;
        if (schema && !fits_item(k, i, schema, json_array_get(value, i)))
            return false;
    }
    return true;
}

KEYWORD(items)
{
    const json_t *first = json_object_get(with, "prefixItems");
    if (json_is_array(is))
        return places(k, is, json_object_get(with, "additionalItems"), value);
    return places(k, json_is_array(first) ? first : NULL, is, value);
}

KEYWORD(first_items)
{
    return json_object_get(with, "items") || places(k, is, NULL, value);
}

KEYWORD(contains)
{
    const json_t *least = json_object_get(with, "minContains");
    const json_t *most = json_object_get(with, "maxContains");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(value); i++)
        n += fits_quietly(k, is, json_array_get(value, i));
    return !json_is_array(value) || ((double)n >= (least ? json_number_value(least) : 1) &&
                                     (!most || (double)n <= json_number_value(most)));
}

KEYWORD(fewest_members)
{
    UNUSED;
    return !json_is_object(value) || (double)json_object_size(value) >= json_number_value(is);
}

KEYWORD(most_members)
{
    UNUSED;
    return !json_is_object(value) || (double)json_object_size(value) <= json_number_value(is);
}

static bool has_all(struct check *k, const json_t *names, const json_t *value)
{
    spend(k, json_array_size(names));
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name && spend_key(k, name) && !json_object_get(value, name))
            return false;
    }
    return true;
}

KEYWORD(required)
{
    UNUSED;
    return !json_is_object(value) || has_all(k, is, value);
}

KEYWORD(dependent)
{
    const char *key;
    json_t *names;
    json_object_foreach((json_t *)is, key, names) {
        if (!spend_key(k, key) || !json_object_get(value, key))
            continue;
        if (json_is_array(names) ? !has_all(k, names, value) : !fits(k, names, value))
            return false;
    }
    (void)with;
    return true;
}

KEYWORD(properties)
{
    const char *key;
    json_t *schema;
    (void)with;
    json_object_foreach((json_t *)is, key, schema) {
        const json_t *member = spend_key(k, key) ? json_object_get(value, key) : NULL;
        if (member && !fits_at(k, key, schema, member))
            return false;
    }
    return true;
}

KEYWORD(other_properties)
{
    const char *key;
    json_t *member;
    const json_t *known = json_object_get(with, "properties");
    if (json_object_get(with, "patternProperties"))
        return true;
    json_object_foreach((json_t *)value, key, member) {
        if (spend_key(k, key) && !json_object_get(known, key) && !fits_at(k, key, is, member))
            return false;
    }
    return true;
}

KEYWORD(names)
{
    const char *key;
    json_t *member;
    (void)with;
    json_object_foreach((json_t *)value, key, member) {
        json_t *name = spend_key(k, key) ? json_string(key) : NULL;
        bool ok = !name || fits_quietly(k, is, name);
        json_decref(name);
        if (!ok)
            return false;
    }
    return true;
}

/* How many of the list fit. */
static size_t count(struct check *k, const json_t *list, const json_t *value)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        n += fits_quietly(k, json_array_get(list, i), value);
    return n;
}

KEYWORD(all)
{
    (void)with;
    for (size_t i = 0; i < json_array_size(is); i++)
        if (!fits(k, json_array_get(is, i), value))
            return false;
    return true;
}

KEYWORD(some)
{
    (void)with;
    return count(k, is, value) > 0;
}

KEYWORD(one)
{
    (void)with;
    return count(k, is, value) == 1;
}

KEYWORD(none)
{
    (void)with;
    return !fits_quietly(k, is, value);
}

KEYWORD(condition)
{
    const json_t *then = json_object_get(with, fits_quietly(k, is, value) ? "then" : "else");
    return !then || fits(k, then, value);
}

/* A place in the schema itself; another is not looked at. */
KEYWORD(reference)
{
    const char *at = json_string_value(is);
    const json_t *target = k->root;
    char part[128];
    (void)with;
    if (!at || *at++ != '#')
        return true;
    while (target && *at == '/') {
        size_t n = 0;
        for (at++; *at && *at != '/' && n + 1 < sizeof(part); at++) {
            bool escaped = *at == '~' && (at[1] == '0' || at[1] == '1');
            part[n++] = !escaped ? *at : *++at == '0' ? '~' : '/';
        }
        part[n] = 0;
        target = json_object_get(target, part);
    }
    return !target || *at || fits(k, target, value);
}

static const struct {
    const char *name;
    bool (*holds)(struct check *k, const json_t *is, const json_t *with, const json_t *value);
} keywords[] = {
    {"type", type},
    {"enum", enumeration},
    {"const", constant},
    {"minimum", minimum},
    {"maximum", maximum},
    {"exclusiveMinimum", above},
    {"exclusiveMaximum", below},
    {"multipleOf", multiple},
    {"minLength", shortest},
    {"maxLength", longest},
    {"minItems", fewest_items},
    {"maxItems", most_items},
    {"uniqueItems", unique},
    {"prefixItems", first_items},
    {"items", items},
    {"contains", contains},
    {"minProperties", fewest_members},
    {"maxProperties", most_members},
    {"required", required},
    {"dependentRequired", dependent},
    {"dependentSchemas", dependent},
    {"dependencies", dependent},
    {"properties", properties},
    {"additionalProperties", other_properties},
    {"propertyNames", names},
    {"allOf", all},
    {"anyOf", some},
    {"oneOf", one},
    {"not", none},
    {"if", condition},
    {"$ref", reference},
};

static bool fail(struct check *k, const char *keyword)
{
    if (k->why_bytes && !*k->why)
        snprintf(k->why, k->why_bytes, "#%s: \"%s\"", k->place, keyword);
    return false;
}

static bool fits(struct check *k, const json_t *schema, const json_t *value)
{
    bool ok = true;
    if (json_is_false(schema))
        return fail(k, "false");
    k->too_deep |= k->depth == DEPTH_MAX;
    spend(k, 1);
    if (!json_is_object(schema) || gave_up(k))
        return true;
    k->depth++;
    for (size_t i = 0; ok && i < sizeof(keywords) / sizeof(keywords[0]); i++) {
        const json_t *is = json_object_get(schema, keywords[i].name);
        spend(k, is ? length(is) + length(value) : 0);
        if (is && !keywords[i].holds(k, is, schema, value))
            ok = fail(k, keywords[i].name);
    }
    k->depth--;
    return ok;
}

bool schema_fits(const json_t *schema, const json_t *value, size_t *steps, char *why,
                 size_t why_bytes)
{
    struct check k = {.root = schema, .steps = *steps, .why = why, .why_bytes = why_bytes};
    if (why_bytes)
        *why = 0;
    bool ok = fits(&k, schema, value);
    *steps = k.steps;
    return ok || gave_up(&k);
}
