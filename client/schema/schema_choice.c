/* schema_choice: the alternatives of a oneOf, of which a value has to match exactly one. A grammar takes
 * what matches any of them, so it is noted where a value may match two: unless their types differ,
 * their constants, or those of a property that both require. References are not followed. */
#include "client/schema/schema.h"

#include <string.h>

enum {
    WHOLE = 1,
    REAL = 2,
    STRING = 4,
    BOOLEAN = 8,
    NONE = 16,
    ARRAY = 32,
    OBJECT = 64,
    ALL = 127
};

static int kind_named(const char *name)
{
    static const struct {
        const char *name;
        int kinds;
    } types[] = {{"integer", WHOLE},   {"number", WHOLE | REAL}, {"string", STRING},
                 {"boolean", BOOLEAN}, {"null", NONE},           {"array", ARRAY},
                 {"object", OBJECT}};
    for (size_t i = 0; name && i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(name, types[i].name) == 0)
            return types[i].kinds;
    return ALL;
}

/* The kinds of values that a schema may take, by its "type". */
static int kinds_of(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *item;
    int kinds = 0;
    size_t i;
    if (json_is_false(schema))
        return 0;
    if (!json_is_array(type))
        kinds = kind_named(json_string_value(type));
    json_array_foreach((json_t *)(uintptr_t)type, i, item)
        kinds |= kind_named(json_string_value(item));
    return json_is_true(json_object_get(schema, "nullable")) ? kinds | NONE : kinds;
}

static int is_equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) >= json_number_value(b) &&
               json_number_value(a) <= json_number_value(b);
    return json_is_array(a) || json_is_object(a) || json_equal(a, b); /* these may have numbers */
}

/* The n-th value of its "const" or "enum"; NULL: it has none, or no more. */
static const json_t *constant_at(const json_t *schema, size_t n)
{
    const json_t *one = json_object_get(schema, "const");
    if (one)
        return n == 0 ? one : NULL;
    return json_array_get(json_object_get(schema, "enum"), n);
}

static int constants_differ(struct schema *c, const json_t *a, const json_t *b)
{
    const json_t *x, *y;
    for (size_t i = 0; (x = constant_at(a, i)) && !c->rc; i++)
        for (size_t k = 0; (y = constant_at(b, k)) && !c->rc; k++) {
            schema_work(c, 1);
            if (is_equal(x, y))
                return 0;
        }
    return constant_at(a, 0) && constant_at(b, 0);
}

static int requires(struct schema *c, const json_t *schema, const char *name)
{
    const json_t *required = json_object_get(schema, "required"), *item;
    size_t i;
    schema_work(c, json_array_size(required));
    json_array_foreach((json_t *)(uintptr_t)required, i, item)
        if (json_is_string(item) && strcmp(json_string_value(item), name) == 0)
            return 1;
    return 0;
}

static int members_differ(struct schema *c, const json_t *a, const json_t *b)
{
    const json_t *more = json_object_get(b, "properties"), *value;
    const char *name;
    if (kinds_of(a) != OBJECT || kinds_of(b) != OBJECT)
        return 0;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(a, "properties"), name, value) {
        schema_work(c, 1);
        if (!c->rc && constants_differ(c, value, json_object_get(more, name)) &&
            requires(c, a, name) && requires(c, b, name))
            return 1;
    }
    return 0;
}

void schema_note_choice(struct schema *c, const json_t *list)
{
    for (size_t i = 0; c->loosened && i < json_array_size(list); i++)
        for (size_t k = 0; k < i && !c->rc; k++) {
            const json_t *a = json_array_get(list, i), *b = json_array_get(list, k);
            schema_work(c, 1);
            if ((kinds_of(a) & kinds_of(b)) == 0 || constants_differ(c, a, b) ||
                members_differ(c, a, b))
                continue;
            if (!c->rc)
                schema_fail(c, "a value may match two of \"oneOf\": any of them is taken");
            (void)schema_loosen(c);
            return;
        }
}
