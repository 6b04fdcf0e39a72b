/* chat_calls: see chat_calls.h. */
#include "client/prompt/chat_calls.h"

#include "client/events/reader.h"
#include "client/prompt/chat_grammar.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ANY "[\\x00-\\U0010FFFF]*"

static const char space_text[] = "[ \\t\\r\\n]{0,8}";

static const char *add_space(struct chat_calls *b)
{
    return schema_rule(&b->c, NULL, "blank", space_text);
}

void chat_calls_loosen(struct chat_calls *b, const char *tool, const char *format, ...)
{
    va_list args;
    char why[200];
    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    b->c.part = tool;
    schema_fail(&b->c, "%s", why);
    (void)schema_loosen(&b->c);
}

bool chat_calls_are_large(struct chat_calls *b, const char *tool, size_t n, size_t bytes)
{
    b->c.part = tool;
    schema_count_values(&b->c, n, bytes);
    return schema_loosen(&b->c) != 0;
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* The longest control token whose text is at the beginning of this one. Looked for in each mark of
 * each tool: not among all special tokens, of which there may be many. */
static bool find_control(const struct vocab *v, const char *text, uint32_t *ret_id,
                         struct vocab_token *ret)
{
    size_t bytes = strlen(text), n;
    for (; (*ret_id = vocab_match_special(v, text, bytes, true, &n)) != VOCAB_NONE; bytes = n - 1)
        if (vocab_find_token(v, *ret_id, ret) && ret->type == VOCAB_TYPE_CONTROL)
            return true;
    return false;
}

static bool has_control(const struct vocab *v, const char *text)
{
    struct vocab_token t;
    uint32_t id;
    for (; *text; text++)
        if (find_control(v, text, &id, &t))
            return true;
    return false;
}

void chat_calls_mark(struct chat_calls *b, struct buffer *t, const char *mark)
{
    struct vocab_token token;
    uint32_t id;
    const char *from = mark;
    for (const char *at = mark;; at++) {
        bool control = *at && find_control(&b->chat->h->vocab, at, &id, &token);
        if (*at && !control)
            continue;
        if (at > from)
            schema_literal(&b->c, t, from, (size_t)(at - from));
        if (!control || token.end)
            return;
        schema_format(&b->c, t, " <[%u]>", id);
        from = at + token.text_bytes;
        at = from - 1;
    }
}

/* ---- texts up to a mark ---------------------------------------------------------------------- */

enum { MARK_POINTS = 64 };

/* After `state` characters of the mark, and then this one: how many are there. */
static size_t advance(const uint32_t *mark, size_t n, size_t state, uint32_t point)
{
    for (size_t length = state + 1 < n ? state + 1 : n; length; length--)
        if (mark[length - 1] == point &&
            memcmp(mark, mark + state + 1 - length, (length - 1) * sizeof(*mark)) == 0)
            return length;
    return 0;
}

static void add_point(struct schema *c, struct buffer *t, uint32_t point)
{
    schema_format(c, t, point < 0x100 ? "\\x%02X" : "\\U%08X", point);
}

/* The rule of a state: each character of the mark, and all others. */
static void add_state(struct schema *c, const char *const *names, const uint32_t *mark, size_t n,
                      size_t state)
{
    struct buffer t = {0}, others = {0};
    for (size_t i = 0; i < n; i++) {
        bool seen = false;
        for (size_t k = 0; k < i; k++)
            seen |= mark[k] == mark[i];
        if (seen)
            continue;
        size_t next = advance(mark, n, state, mark[i]);
        schema_add(c, &t, "[");
        add_point(c, &t, mark[i]);
        schema_format(c, &t, "] %s | ", next < n ? names[next] : "");
        add_point(c, &others, mark[i]);
    }
    schema_format(c, &t, "[^%s] %s", schema_get(&others), names[0]);
    schema_rule(c, names[state], "", schema_get(&t));
    buffer_fini(&t);
    buffer_fini(&others);
}

void chat_calls_until(struct chat_calls *b, struct buffer *t, const char *mark)
{
    uint32_t points[MARK_POINTS];
    const char *names[MARK_POINTS] = {""}, *at = mark;
    struct schema *c = &b->c;
    size_t n = 0;
    if (has_control(&b->chat->h->vocab, mark)) { /* which no text holds */
        schema_add(c, t, " " ANY);
        chat_calls_mark(b, t, mark);
        return;
    }
    if (b->until_mark && strcmp(b->until_mark, mark) == 0) {
        schema_format(c, t, " %s", b->until_rule);
        return;
    }
    while (*at && n < MARK_POINTS)
        points[n++] = schema_point(&at);
    for (size_t i = 0; i < n; i++)
        names[i] = schema_take(c, "until");
    for (size_t i = 0; i < n && !c->rc; i++)
        add_state(c, names, points, n, i);
    b->until_mark = mark;
    b->until_rule = names[0];
    schema_format(c, t, " %s", names[0]);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static json_t *schema_of(const json_t *tool)
{
    return json_object_get(tool, "parameters");
}

static const char *name_of(const json_t *tool)
{
    const char *name = json_string_value(json_object_get(tool, "name"));
    return name ? name : "";
}

/* What binds the object that a tool's arguments are; NULL: nothing. */
static json_t *object_schema(struct chat_calls *b, const json_t *tool)
{
    json_t *schema = schema_of(tool);
    if (!json_object_size(schema) || !chat_grammar_binds(b->chat, tool))
        return NULL;
    const char *kind = schema_kind_alone(schema);
    if (kind && strcmp(kind, "object") == 0)
        return schema;
    chat_calls_loosen(b, name_of(tool), "the parameters are not of type object");
    return NULL;
}

/* One JSON object. */
static const char *json_arguments(struct chat_calls *b, const json_t *tool)
{
    json_t *schema = object_schema(b, tool);
    return schema ? schema_part(&b->c, schema, schema, name_of(tool))
                  : schema_builtin(&b->c, "object", NULL);
}

/* The texts that "enum" and "const" allow, one of them. Returns how many there are. */
static size_t add_choices(struct chat_calls *b, struct buffer *t, const json_t *schema)
{
    json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    size_t n = list ? json_array_size(list) : one != NULL, found = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = list ? json_array_get(list, i) : one;
        if (!json_is_string(value) || (one && !json_equal(value, one)))
            continue;
        schema_add(&b->c, t, found++ ? " | " : " ( ");
        schema_literal(&b->c, t, json_string_value(value), json_string_length(value));
    }
    schema_add(&b->c, t, found ? " )" : "");
    return found;
}

/* A text up to the end of its argument. One with marks in it stands raw. */
static void add_free_text(struct chat_calls *b, struct buffer *t)
{
    const struct call_form *f = b->form;
    if (!f->raw_open) {
        chat_calls_until(b, t, f->param_close);
        return;
    }
    schema_add(&b->c, t, " (");
    chat_calls_mark(b, t, f->param_close);
    schema_add(&b->c, t, " | [^<]");
    chat_calls_until(b, t, f->param_close);
    schema_add(&b->c, t, " |");
    chat_calls_mark(b, t, f->raw_open);
    chat_calls_until(b, t, f->raw_close);
    schema_add(&b->c, t, " )");
}

/* A value between tags that is a text as it is. */
static void add_text(struct chat_calls *b, struct buffer *t, const char *tool, const char *key,
                     const json_t *schema)
{
    static const char *const unbound[] = {"pattern", "minLength", "maxLength", "format",
                                          "$ref",    "anyOf",     "oneOf",     "allOf",
                                          "not",     "if",        NULL};
    static const char *const choice[] = {"enum", "const", NULL};
    const struct call_form *f = b->form;
    struct buffer choices = {0};
    const size_t n = add_choices(b, &choices, schema), mark = schema_enter(&b->c, key);
    const bool is_choice = n && !chat_calls_are_large(b, tool, n, choices.bytes);
    schema_leave(&b->c, mark);
    if (schema_has_one(schema, unbound) || (!n && schema_has_one(schema, choice)))
        chat_calls_loosen(
            b, tool,
            "\"%.60s\": a text that stands between tags is bound by the texts of enum "
            "and const alone",
            key);
    if (is_choice) {
        schema_add(&b->c, t, f->lines ? " \"\\n\"?" : "");
        schema_add(&b->c, t, schema_get(&choices));
        schema_add(&b->c, t, f->lines ? " \"\\n\"?" : "");
        chat_calls_mark(b, t, f->param_close);
    } else {
        add_free_text(b, t);
    }
    buffer_fini(&choices);
}

/* One argument between its tags; key NULL: any. A $ref in its schema is a place in `root`. */
static const char *tagged(struct chat_calls *b, const char *tool, json_t *root, const char *key,
                          json_t *schema)
{
    const struct call_form *f = b->form;
    struct schema *c = &b->c;
    struct buffer t = {0}, title = {0};
    const char *space = add_space(b);
    chat_calls_mark(b, &t, f->param_open);
    if (key)
        schema_literal(c, &t, key, strlen(key));
    else
        schema_add(c, &t, " [^<>\"=\\n]{1,200}");
    chat_calls_mark(b, &t, f->param_name_close);
    if (f->value_open) {
        schema_format(c, &t, " %s", space);
        chat_calls_mark(b, &t, f->value_open);
    }
    bool text = !key || reader_takes_text(schema);
    if (f->typed)
        schema_add(c, &t,
                   !key   ? " (\"true\" | \"false\") \"\\\">\""
                   : text ? " \"true\\\">\""
                          : " \"false\\\">\"");
    if (!key) {
        add_free_text(b, &t);
    } else if (text) {
        add_text(b, &t, tool, key, schema);
    } else {
        schema_format(c, &title, "%.60s-%.40s", tool, key);
        schema_format(c, &t, " %s %s", space, schema_part(c, root, schema, schema_get(&title)));
        schema_format(c, &t, " %s", space);
        chat_calls_mark(b, &t, f->param_close);
    }
    const char *got = schema_rule(c, NULL, "argument", schema_get(&t));
    buffer_fini(&t);
    buffer_fini(&title);
    return got;
}

json_t *chat_calls_required(struct chat_calls *b, const json_t *schema)
{
    json_t *names = json_object(), *item;
    size_t i;
    int rc = names ? 0 : -1;
    json_array_foreach(json_object_get(schema, "required"), i, item)
        if (json_is_string(item))
            rc |= json_object_set_new(names, json_string_value(item), json_true());
    if (rc)
        b->c.rc = -ENOMEM;
    return names;
}

static bool is_object_type(const json_t *type)
{
    size_t i;
    json_t *one;
    bool found = !type || (json_is_string(type) && strcmp(json_string_value(type), "object") == 0);
    json_array_foreach(type, i, one)
        found |= is_object_type(one);
    return found;
}

/* Do arguments between tags follow the schema where each follows its own? */
static bool is_bound_one_by_one(const json_t *schema)
{
    static const char *const unbound[] = {"$ref",
                                          "anyOf",
                                          "oneOf",
                                          "allOf",
                                          "not",
                                          "if",
                                          "enum",
                                          "const",
                                          "minProperties",
                                          "maxProperties",
                                          "patternProperties",
                                          "propertyNames",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          NULL};
    const json_t *properties = json_object_get(schema, "properties"), *item;
    const json_t *others = json_object_get(schema, "additionalProperties");
    size_t i;
    if (schema_has_one(schema, unbound) || !is_object_type(json_object_get(schema, "type")) ||
        (!json_is_object(properties) && others && !json_is_true(others)))
        return false;
    json_array_foreach(json_object_get(schema, "required"), i, item) {
        if (json_is_string(item) && !json_object_get(properties, json_string_value(item)))
            return false;
    }
    return true;
}

/* Arguments between tags of their own, in the order of the schema. */
static const char *tagged_arguments(struct chat_calls *b, const json_t *tool)
{
    json_t *schema = schema_of(tool), *properties = json_object_get(schema, "properties"), *value;
    struct buffer t = {0};
    const char *key, *space = add_space(b);
    bool binds = chat_grammar_binds(b->chat, tool);
    if (binds && !is_bound_one_by_one(schema))
        chat_calls_loosen(b, name_of(tool),
                          "arguments between tags are bound one by one, not as a whole");
    if (!binds || !json_is_object(properties)) {
        schema_format(&b->c, &t, "(%s %s)*", tagged(b, name_of(tool), NULL, NULL, NULL), space);
    } else {
        json_t *required = chat_calls_required(b, schema);
        json_object_foreach(properties, key, value) {
            if (b->c.rc)
                break;
            const char *one = tagged(b, name_of(tool), schema, key, value);
            schema_format(&b->c, &t, json_object_get(required, key) ? " %s %s" : " (%s %s)?", one,
                          space);
        }
        json_decref(required);
    }
    if (!t.bytes) /* it has none */
        schema_add(&b->c, &t, "\"\"");
    const char *got = schema_rule(&b->c, NULL, "arguments", schema_get(&t));
    buffer_fini(&t);
    return got;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void add_json_call(struct chat_calls *b, struct buffer *t, const json_t *tool)
{
    bool ids = b->form->ids;
    const char *arguments = json_arguments(b, tool);
    schema_add(&b->c, t, "\"{\" space ");
    if (ids)
        schema_add(&b->c, t,
                   "( \"\\\"tool_call_id\\\"\" space \":\" space \"\\\"\" [a-zA-Z0-9]{1,9} "
                   "\"\\\"\" space \",\" space )? ");
    schema_format(&b->c, t, "( \"\\\"name\\\"\"%s ) space \":\" space ",
                  ids ? " | \"\\\"tool_name\\\"\"" : "");
    schema_constant(&b->c, t, json_object_get(tool, "name"));
    schema_format(
        &b->c, t,
        " space \",\" space ( \"\\\"arguments\\\"\" | \"\\\"parameters\\\"\" ) space \":\" "
        "space %s ",
        arguments);
    if (ids)
        schema_add(
            &b->c, t,
            "( \",\" space \"\\\"id\\\"\" space \":\" space \"\\\"\" [a-zA-Z0-9]{9} \"\\\"\" "
            "space )? ");
    schema_add(&b->c, t, "\"}\"");
}

static void add_name(struct chat_calls *b, struct buffer *t, const json_t *tool)
{
    schema_literal(&b->c, t, name_of(tool), strlen(name_of(tool)));
}

static void add_named_call(struct chat_calls *b, struct buffer *t, const json_t *tool)
{
    const struct call_form *f = b->form;
    const char *space = add_space(b);
    add_name(b, t, tool);
    if (f->cut && strcmp(f->cut, ":") == 0) {
        schema_add(&b->c, t, " ( \":\" [0-9]{1,4} )?");
    } else if (f->cut) {
        schema_add(&b->c, t, " (");
        chat_calls_mark(b, t, f->cut);
        schema_add(&b->c, t, " [a-zA-Z0-9_-]{1,64} )?");
    }
    if (f->name_close)
        chat_calls_mark(b, t, f->name_close);
    schema_format(&b->c, t, " %s %s", space,
                  f->body == CALL_TAGS ? tagged_arguments(b, tool) : json_arguments(b, tool));
    if (f->call_close)
        chat_calls_mark(b, t, f->call_close);
}

static void add_gemma_call(struct chat_calls *b, struct buffer *t, const json_t *tool)
{
    json_t *schema = object_schema(b, tool);
    add_name(b, t, tool);
    schema_format(&b->c, t, " %s", chat_calls_gemma(b, name_of(tool), schema, 0));
    chat_calls_mark(b, t, b->form->call_close);
}

static void add_python_call(struct chat_calls *b, struct buffer *t, const json_t *tool)
{
    json_t *schema = object_schema(b, tool);
    if (schema && !is_bound_one_by_one(schema))
        chat_calls_loosen(b, name_of(tool),
                          "arguments of this model's form are bound one by one, not as a whole");
    add_name(b, t, tool);
    schema_format(&b->c, t, " %s", chat_calls_python(b, name_of(tool), schema));
}

/* The header's rest, and the message. */
static void add_harmony_call(struct chat_calls *b, struct buffer *t, const json_t *tool)
{
    add_name(b, t, tool);
    schema_add(&b->c, t, " ( \" \"?");
    chat_calls_mark(b, t, "<|channel|>commentary");
    schema_add(&b->c, t, " )? ( \" json\" | \" \"?");
    chat_calls_mark(b, t, "<|constrain|>");
    schema_add(&b->c, t, " \"json\" )?");
    chat_calls_mark(b, t, "<|message|>");
    schema_format(&b->c, t, " %s", json_arguments(b, tool));
}

const char *chat_calls_named(struct chat_calls *b)
{
    static void (*const add[])(struct chat_calls *, struct buffer *, const json_t *) = {
        [CALL_JSON] = add_json_call,     [CALL_NAMED] = add_named_call,
        [CALL_TAGS] = add_named_call,    [CALL_GEMMA] = add_gemma_call,
        [CALL_PYTHON] = add_python_call, [CALL_HARMONY] = add_harmony_call,
    };
    struct buffer all = {0};
    size_t i;
    const json_t *description;
    json_array_foreach(b->chat->tools, i, description) {
        const json_t *tool = chat_tool(description);
        struct buffer t = {0};
        if (b->chat->tool_name && strcmp(b->chat->tool_name, name_of(tool)) != 0)
            continue;
        add[b->form->body](b, &t, tool);
        schema_add(&b->c, &all, all.bytes ? " | " : "");
        schema_add(&b->c, &all, schema_rule(&b->c, NULL, "call", schema_get(&t)));
        buffer_fini(&t);
    }
    const char *got = schema_rule(&b->c, NULL, "calls", schema_get(&all));
    buffer_fini(&all);
    return got;
}
