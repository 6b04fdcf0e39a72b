/* chat_calls_python: arguments as Python has them: (city="Paris", days=3). A value is one of JSON,
 * which is read, too; of a plain type it may be Python's own. */
#include "client/prompt/chat_calls.h"

#include "client/events/reader.h"

#include <stdio.h>
#include <string.h>

enum { MOST_MEMBERS = 256 };

static void make_rules(struct chat_calls *b)
{
    struct schema *c = &b->c;
    if (json_object_get(c->rules, "python-value"))
        return;
    schema_rule(c, NULL, "python-string",
                "\"'\" ( [^'\\\\\\x7F\\x00-\\x1F] | [\\\\] [\\\\'\"bfnrt] )* \"'\"");
    schema_rule(c, NULL, "python-boolean", "\"True\" | \"False\"");
    schema_rule(c, NULL, "python-null", "\"None\"");
    schema_rule(c, NULL, "python-value", "value | python-string | python-boolean | python-null");
    schema_rule(c, NULL, "python-any", "[a-zA-Z_] [a-zA-Z0-9_]{0,99} \"=\" python-value");
    schema_rule(c, NULL, "python-arguments",
                "\"(\" ( python-any ( \",\" blank python-any )* )? \")\"");
}

/* Does nothing but the type say what the value is? */
static bool is_plain(json_t *schema)
{
    static const char *const plain[] = {"type", "title", "description", "default", "examples"};
    const char *key;
    json_t *value;
    size_t n = 0, i;
    json_object_foreach(schema, key, value)
        for (i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
            n += strcmp(key, plain[i]) == 0;
    return json_is_object(schema) && n == json_object_size(schema);
}

/* Adds Python's own values of a type, beside those of JSON. */
static void add_own(struct chat_calls *b, struct buffer *t, const json_t *type)
{
    static const char *const own[] = {"string", "boolean", "null"};
    size_t i;
    const json_t *one;
    for (i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (json_is_string(type) && strcmp(json_string_value(type), own[i]) == 0)
            schema_format(&b->c, t, " | python-%s", own[i]);
    json_array_foreach(type, i, one) {
        if (json_is_string(one))
            add_own(b, t, one);
    }
}

/* One argument. A $ref in its schema is a place in `root`. */
static const char *argument(struct chat_calls *b, const char *tool, json_t *root, const char *key,
                            json_t *schema)
{
    struct schema *c = &b->c;
    struct buffer t = {0}, title = {0};
    const json_t *type = json_object_get(schema, "type");
    const bool word = *key && reader_python_key(key, strlen(key)) == strlen(key);
    json_t *text = word ? NULL : json_string(key);
    if (word) {
        schema_literal(c, &t, key, strlen(key));
        schema_add(c, &t, " \"=\" (");
    } else {
        schema_add(c, &t, "\"**{\" ");
        schema_constant(c, &t, text);
        schema_add(c, &t, " \":\" blank (");
    }
    schema_format(c, &title, "%.60s-%.40s", tool, key);
    schema_format(c, &t, " %s", schema_part(c, root, schema, schema_get(&title)));
    if (is_plain(schema) && type)
        add_own(b, &t, type);
    else if (is_plain(schema))
        schema_add(c, &t, " | python-value");
    schema_add(c, &t, word ? " )" : " ) \"}\"");
    const char *got = schema_rule(c, NULL, "argument", schema_get(&t));
    json_decref(text);
    buffer_fini(&t);
    buffer_fini(&title);
    return got;
}

/* The schema's arguments in its order. What may follow a place has a rule for "none stands before"
 * and one for "one does". */
static const char *add_arguments(struct chat_calls *b, const char *tool, json_t *schema)
{
    struct schema *c = &b->c;
    json_t *properties = json_object_get(schema, "properties");
    void *at[MOST_MEMBERS];
    const char *after[2];
    size_t n = 0;
    for (void *it = json_object_iter(properties); it; it = json_object_iter_next(properties, it))
        at[n++] = it;
    after[0] = after[1] = schema_rule(c, NULL, "python-end", "\")\"");
    json_t *required = chat_calls_required(b, schema);
    while (n-- > 0 && !c->rc) {
        const char *key = json_object_iter_key(at[n]), *made[2];
        const char *one = argument(b, tool, schema, key, json_object_iter_value(at[n]));
        for (int before = 0; before < 2; before++) {
            struct buffer t = {0};
            schema_format(c, &t, "%s%s %s", before ? "\",\" blank " : "", one, after[1]);
            if (!json_object_get(required, key))
                schema_format(c, &t, " | %s", after[before]);
            made[before] = schema_rule(c, NULL, "python-members", schema_get(&t));
            buffer_fini(&t);
        }
        after[0] = made[0];
        after[1] = made[1];
    }
    json_decref(required);
    return after[0];
}

const char *chat_calls_python(struct chat_calls *b, const char *tool, json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties");
    const size_t n = json_object_size(properties);
    struct buffer t = {0};
    make_rules(b);
    if (n > MOST_MEMBERS)
        chat_calls_loosen(b, tool,
                          "an object of %zu properties: more than %d are not bound in this model's "
                          "form of calls",
                          n, MOST_MEMBERS);
    if (!json_is_object(properties) || n > MOST_MEMBERS)
        return "python-arguments";
    schema_format(&b->c, &t, "\"(\" %s", add_arguments(b, tool, schema));
    const char *got = schema_rule(&b->c, NULL, "python", schema_get(&t));
    buffer_fini(&t);
    return got;
}
