/* schema_constant: "const" and "enum": which of the values the keywords beside them let through. */
#include "client/base/utf8.h"
#include "client/schema/schema.h"

#include <string.h>

/* Does the value have the type that "type" names? NULL: any type. */
static int has_type(const json_t *value, const json_t *type)
{
    size_t i;
    json_t *item;
    if (json_is_array(type)) {
        json_array_foreach(type, i, item) {
            if (has_type(value, item))
                return 1;
        }
        return 0;
    }
    static const char *const names[] = {
        [JSON_OBJECT] = "object",   [JSON_ARRAY] = "array", [JSON_STRING] = "string",
        [JSON_INTEGER] = "integer", [JSON_REAL] = "number", [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean",   [JSON_NULL] = "null"};
    const char *want = json_string_value(type);
    if (!want || strcmp(want, names[json_typeof(value)]) == 0)
        return 1;
    double number = json_number_value(value);
    return (json_is_integer(value) && strcmp(want, "number") == 0) ||
           (json_is_real(value) && strcmp(want, "integer") == 0 && number > -1e15 &&
            number < 1e15 && number == (double)(int64_t)number);
}

static int is_between(const json_t *schema, const char *least_key, const char *most_key, double n)
{
    const json_t *least = json_object_get(schema, least_key);
    const json_t *most = json_object_get(schema, most_key);
    return (!least || n >= json_number_value(least)) && (!most || n <= json_number_value(most));
}

static int is_in_bounds(const json_t *schema, double n)
{
    const json_t *above = json_object_get(schema, "exclusiveMinimum");
    const json_t *below = json_object_get(schema, "exclusiveMaximum");
    const json_t *least = json_is_true(above) ? json_object_get(schema, "minimum") : above;
    const json_t *most = json_is_true(below) ? json_object_get(schema, "maximum") : below;
    return is_between(schema, "minimum", "maximum", n) &&
           (!json_is_number(least) || n > json_number_value(least)) &&
           (!json_is_number(most) || n < json_number_value(most));
}

/* Fails for a keyword that says something about this kind of value which is not computed here. */
static void refuse_others(struct schema *c, const json_t *schema, const json_t *value)
{
    static const char *const of_strings[] = {"pattern", NULL};
    static const char *const of_arrays[] = {"items", "prefixItems", "additionalItems", NULL};
    static const char *const of_objects[] = {"properties", "required", "additionalProperties",
                                             NULL};
    static const char *const of_none[] = {NULL};
    const char *const *key = json_is_string(value)   ? of_strings
                             : json_is_array(value)  ? of_arrays
                             : json_is_object(value) ? of_objects
                                                     : of_none;
    for (; *key; key++)
        if (json_object_get(schema, *key))
            schema_fail(c, "\"%s\" beside \"const\" or \"enum\" is not supported: leave it out",
                        *key);
}

static int is_let_through(struct schema *c, const json_t *schema, const json_t *value)
{
    const json_t *one = json_object_get(schema, "const");
    int fits = has_type(value, json_object_get(schema, "type"));
    if (fits && one && one != value) {
        schema_work(c, c->text_bytes / 8);
        fits = schema_equal(c, one, value);
    }
    if (fits && json_is_string(value)) {
        schema_work(c, json_string_length(value) / 8);
        fits = is_between(schema, "minLength", "maxLength",
                          (double)utf8_count(json_string_value(value), json_string_length(value)));
    }
    if (fits && json_is_array(value))
        fits = is_between(schema, "minItems", "maxItems", (double)json_array_size(value));
    if (fits && json_is_number(value))
        fits = is_in_bounds(schema, json_number_value(value));
    if (fits)
        refuse_others(c, schema, value);
    return fits;
}

/* Adds the constants that are let through, where t is not NULL, and counts them. */
static size_t add_all(struct schema *c, struct buffer *t, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum");
    size_t n = 0, i;
    json_t *item;
    schema_work(c, json_array_size(list));
    json_array_foreach(list, i, item) {
        if (c->rc || !is_let_through(c, schema, item))
            continue;
        if (t) {
            schema_add(c, t, n ? " | " : "");
            schema_constant(c, t, item);
        }
        n++;
    }
    return n;
}

int schema_is_possible(struct schema *c, const json_t *schema)
{
    const json_t *one = json_object_get(schema, "const");
    if (json_object_get(schema, "enum"))
        return add_all(c, NULL, schema) > 0;
    return !one || is_let_through(c, schema, one);
}

void schema_count_values(struct schema *c, size_t n, size_t bytes)
{
    if (!c->choices)
        c->values = 0;
    if (c->loosened &&
        (c->values + n > SCHEMA_PARTS_VALUES || c->value_bytes + bytes > SCHEMA_PARTS_TEXTS)) {
        schema_fail(c,
                    "\"enum\": more than %d values at one place, or %d bytes in all, are not bound",
                    SCHEMA_PARTS_VALUES, SCHEMA_PARTS_TEXTS);
        return;
    }
    c->values += n;
    c->value_bytes += bytes;
}

void schema_constants(struct schema *c, struct buffer *t, const json_t *schema)
{
    const json_t *one = json_object_get(schema, "const");
    if (one && !schema_is_possible(c, schema))
        schema_fail(c, "the keywords beside \"const\" exclude its value: nothing can match");
    if (one) {
        schema_constant(c, t, one);
        schema_add(c, t, " space");
        return;
    }
    schema_add(c, t, "(");
    size_t n = add_all(c, t, schema);
    if (!n)
        schema_fail(c, "the keywords beside \"enum\" exclude all of its values: nothing can match");
    schema_count_values(c, n, t->bytes);
    schema_add(c, t, ") space");
}
