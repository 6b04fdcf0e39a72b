/* chat_calls_gemma: arguments as Gemma 4 writes them: {city:<|"|>Paris<|"|>,days:3}. */
#include "client/prompt/chat_calls.h"

#include <string.h>

#define QUOTE "<|\"|>"

enum { MOST_DEPTH = 16, MOST_MEMBERS = 256 };

/* A text in quotes: one of `choices`, or any. */
static void add_quoted(struct chat_calls *b, struct buffer *t, const json_t *choices)
{
    schema_add(&b->c, t, " (");
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *one = json_array_get(choices, i);
        schema_add(&b->c, t, i ? " |" : "");
        chat_calls_mark(b, t, QUOTE);
        schema_literal(&b->c, t, json_string_value(one), json_string_length(one));
        chat_calls_mark(b, t, QUOTE);
    }
    if (!json_array_size(choices)) {
        chat_calls_mark(b, t, QUOTE);
        chat_calls_until(b, t, QUOTE);
    }
    schema_add(&b->c, t, " )");
}

/* Any value: "string" one text, "object" and "array" any of these. */
static const char *any(struct chat_calls *b, const char *kind)
{
    struct buffer t = {0};
    struct schema *c = &b->c;
    bool known = json_object_get(c->rules, "gemma-value") != NULL;
    if (!known) {
        schema_take(c, "gemma-value");
        add_quoted(b, &t, NULL);
        schema_rule(c, NULL, "gemma-string", schema_get(&t));
        schema_rule(c, NULL, "gemma-key", "[a-zA-Z0-9_$.-]{1,100}");
        schema_rule(
            c, NULL, "gemma-object",
            "\"{\" ( gemma-key \":\" gemma-value ( \",\" gemma-key \":\" gemma-value )* )? \"}\"");
        schema_rule(c, NULL, "gemma-array", "\"[\" ( gemma-value ( \",\" gemma-value )* )? \"]\"");
        schema_rule(c, NULL, "gemma-number",
                    "\"-\"? ( \"0\" | [1-9] [0-9]{0,15} ) ( \".\" [0-9]{1,16} )? ( [eE] [-+]? "
                    "[0-9]{1,2} )?"); /* what a double holds */
        schema_rule(c, NULL, "gemma-integer", "\"-\"? ( \"0\" | [1-9] [0-9]{0,15} )");
        schema_rule(c, NULL, "gemma-boolean", "\"true\" | \"false\"");
        schema_rule(c, NULL, "gemma-null", "\"null\"");
        schema_rule(c, "gemma-value", "gemma-value",
                    "gemma-string | gemma-object | gemma-array | gemma-number | gemma-boolean | "
                    "gemma-null");
    }
    buffer_fini(&t);
    t = (struct buffer){0};
    schema_format(c, &t, "gemma-%s", kind);
    const char *got = json_object_iter_key(json_object_iter_at(c->rules, schema_get(&t)));
    buffer_fini(&t);
    return got ? got : "gemma-value";
}

/* A key: quoted where it is not a word. */
static void add_key(struct chat_calls *b, struct buffer *t, const char *key)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$.-";
    bool plain = *key && !key[strspn(key, word)];
    if (!plain)
        chat_calls_mark(b, t, QUOTE);
    schema_literal(&b->c, t, key, strlen(key));
    if (!plain)
        chat_calls_mark(b, t, QUOTE);
}

/* Members in the order of the schema. What may come first is chosen by the rule of a place: each
 * place has a rule for "a member stands before" and one for "none does". */
static const char *add_members(struct chat_calls *b, const char *tool, json_t *properties,
                               const json_t *schema, int depth)
{
    struct schema *c = &b->c;
    const char *after[2] = {NULL, NULL}; /* what may follow, without and with a member before it */
    void *at[MOST_MEMBERS];
    size_t i = 0;
    for (void *it = json_object_iter(properties); it; it = json_object_iter_next(properties, it))
        at[i++] = it;
    after[0] = after[1] = schema_rule(c, NULL, "gemma-end", "\"}\"");
    json_t *required = chat_calls_required(b, schema);
    while (i-- > 0 && !c->rc) {
        const char *key = json_object_iter_key(at[i]), *made[2];
        const char *value = chat_calls_gemma(b, tool, json_object_iter_value(at[i]), depth + 1);
        for (int before = 0; before < 2; before++) {
            struct buffer t = {0};
            schema_add(c, &t, before ? "\",\"" : "");
            add_key(b, &t, key);
            schema_format(c, &t, " \":\" %s %s", value, after[1]);
            if (!json_object_get(required, key))
                schema_format(c, &t, " | %s", after[before]);
            made[before] = schema_rule(c, NULL, "gemma-members", schema_get(&t));
            buffer_fini(&t);
        }
        after[0] = made[0];
        after[1] = made[1];
    }
    json_decref(required);
    return after[0];
}

static void add_array(struct chat_calls *b, struct buffer *t, const char *tool, json_t *schema,
                      int depth)
{
    json_t *items = json_object_get(schema, "items");
    const char *item =
        json_is_object(items) ? chat_calls_gemma(b, tool, items, depth + 1) : any(b, "value");
    schema_format(&b->c, t, "\"[\" ( %s ( \",\" %s )* )? \"]\"", item, item);
}

/* One of these texts. */
static const char *one_of(struct chat_calls *b, const char *tool, const json_t *choices)
{
    struct buffer t = {0};
    add_quoted(b, &t, choices);
    const char *got = chat_calls_are_large(b, tool, json_array_size(choices), t.bytes)
                          ? any(b, "string")
                          : schema_rule(&b->c, NULL, "gemma", schema_get(&t));
    buffer_fini(&t);
    return got;
}

/* Is the schema's object bound by its members? */
static bool has_members(const json_t *schema, int depth)
{
    const json_t *properties = json_object_get(schema, "properties");
    return depth < MOST_DEPTH && json_is_object(properties) &&
           json_object_size(properties) <= MOST_MEMBERS &&
           !json_object_get(schema, "patternProperties");
}

/* Notes what of a schema is not bound. */
static void tell_loose(struct chat_calls *b, const char *tool, const json_t *schema, int depth)
{
    static const char *const unbound[] = {"anyOf",
                                          "oneOf",
                                          "allOf",
                                          "$ref",
                                          "pattern",
                                          "format",
                                          "minLength",
                                          "maxLength",
                                          "minItems",
                                          "maxItems",
                                          "prefixItems",
                                          "minimum",
                                          "maximum",
                                          "exclusiveMinimum",
                                          "exclusiveMaximum",
                                          "const",
                                          "not",
                                          "multipleOf",
                                          "patternProperties",
                                          "propertyNames",
                                          "minProperties",
                                          "maxProperties",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          "uniqueItems",
                                          "contains",
                                          "if",
                                          NULL};
    const json_t *choices = json_object_get(schema, "enum");
    size_t members = json_object_size(json_object_get(schema, "properties"));
    if (schema_has_one(schema, unbound) || depth == MOST_DEPTH ||
        json_is_array(json_object_get(schema, "type")) || (choices && !reader_are_texts(choices)))
        chat_calls_loosen(b, tool, "a keyword that is not bound in this model's form of calls");
    if (members > MOST_MEMBERS)
        chat_calls_loosen(b, tool,
                          "an object of %zu properties: more than %d are not bound in this model's "
                          "form of calls",
                          members, MOST_MEMBERS);
}

const char *chat_calls_gemma(struct chat_calls *b, const char *tool, json_t *schema, int depth)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    const json_t *choices = json_object_get(schema, "enum");
    json_t *properties = json_object_get(schema, "properties");
    struct buffer t = {0};
    const char *got;
    any(b, "value");
    if (!schema)
        return any(b, "object");
    tell_loose(b, tool, schema, depth);
    if (depth > 0 && reader_are_texts(choices))
        return one_of(b, tool, choices);
    if (has_members(schema, depth)) {
        schema_format(&b->c, &t, "\"{\" %s", add_members(b, tool, properties, schema, depth));
    } else if (depth < MOST_DEPTH && type && strcmp(type, "array") == 0) {
        add_array(b, &t, tool, schema, depth);
    } else {
        return any(b, depth == 0 ? "object" : type && !choices ? type : "value");
    }
    got = schema_rule(&b->c, NULL, "gemma", schema_get(&t));
    buffer_fini(&t);
    return got;
}
