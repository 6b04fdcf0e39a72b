/* chat_adapt: messages in the form that a template can take.
 *
 * Templates differ in what they know: some refuse a system message or pass it over, some want a
 * content in parts and most in one text, some want a call's arguments as an object though the
 * protocol has them as text, some have another place for an answer's thought, some fail where a
 * tool has no description. What a template does is tried on a made-up message that holds a word to
 * look for, once a template and only when a conversation needs to know. */
#include "client/prompt/chat_adapt.h"

#include "client/base/buffer.h"
#include "client/base/json_mend.h"
#include "client/base/json_shortest.h"
#include "client/prompt/chat_form.h"
#include "client/prompt/chat_tidy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum chat_trait {
    TRAIT_SYSTEM = 1,    /* it writes a system message */
    TRAIT_PARTS = 2,     /* it wants contents as a list of parts */
    TRAIT_ARGUMENTS = 4, /* it wants arguments of calls as objects */
    TRAIT_LATER = 8,     /* it writes a system message where it stands, also after others */
    /* Where it looks for the thought of an answer with calls, if not in `reasoning_content`. */
    TRAIT_THINKING = 16,      /* in `thinking` */
    TRAIT_THOUGHT_PART = 32,  /* in a part of the content */
    TRAIT_THOUGHT_ALONE = 64, /* and then it refuses a content beside it */
    TRAIT_OBJECTS = 128,      /* it fails, or drops them, where arguments are not a JSON object */
    /* It fails where a tool has none of these. */
    TRAIT_DESCRIPTION = 256,
    TRAIT_PARAMETERS = 512,
    TRAIT_PROPERTIES = 1024,
    TRAIT_PROPERTY = 2048,  /* or a property no description */
    TRAIT_IDS = 4096,       /* it takes ids of nine letters and digits alone */
    TRAIT_DEVELOPER = 8192, /* it writes a developer's message, and names that role */
    TRAIT_TEXTS = 16384,    /* it fails where arguments of calls are objects */
    /* Those of calls: they are tried with a tool, without which some templates write none. */
    TRAITS_OF_CALLS = TRAIT_ARGUMENTS | TRAIT_OBJECTS | TRAIT_TEXTS | TRAIT_IDS | TRAIT_THINKING |
                      TRAIT_THOUGHT_PART | TRAIT_THOUGHT_ALONE,
};

#define NEEDLE "hearthneedle"

/* Does the template render these messages, and is `word` in what it writes, after `before`? */
static bool writes_after(const struct chat *c, const char *messages, const char *before,
                         const char *word)
{
    struct jinja_output o;
    char err[8];
    json_t *j = chat_made_up(c, messages);
    bool found = j && chat_render(c, j, &o, err, sizeof(err)) == 0;
    if (found) {
        const char *from = memmem(o.text, o.bytes, before, strlen(before));
        found = from && memmem(from, o.bytes - (size_t)(from - o.text), word, strlen(word));
        jinja_output_fini(&o);
    }
    json_decref(j);
    return found;
}

static bool writes(const struct chat *c, const char *messages, const char *word)
{
    return writes_after(c, messages, "", word);
}

#define USER(content) "{\"role\":\"user\",\"content\":" content "}"
#define TEXT "\"" NEEDLE "\""
#define PART "[{\"type\":\"text\",\"text\":" TEXT "}]"
#define OBJECT "{\"" NEEDLE "\":1}"
#define CALL(arguments)                                                                            \
    "[" USER(                                                                                      \
        "\"x\"") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":"              \
                 "\"call12345\","                                                                  \
                 "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" arguments     \
                 "}}]}]"

static bool has_trait(const struct chat *c, enum chat_trait trait);

/* Is the thought of an answer with calls written that has these members? */
static bool writes_thought(const struct chat *c, const char *members)
{
    static const char call[] =
        "[" USER("\"x\"") ",{\"role\":\"assistant\",%s,\"tool_calls\":[{\"id\":\"call12345\","
                          "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
                          "%s}}]},{\"role\":\"tool\",\"tool_call_id\":\"call12345\","
                          "\"content\":\"y\"}]";
    char messages[1024];
    snprintf(messages, sizeof(messages), call, members,
             has_trait(c, TRAIT_ARGUMENTS) ? "{\"x\":1}" : "\"{\\\"x\\\": 1}\"");
    return writes(c, messages, NEEDLE) && !writes(c, messages, "hearthkey");
}

static bool try_thought(const struct chat *c, enum chat_trait trait)
{
    static const char in_part[] =
        "\"content\":[{\"type\":\"thinking\",\"thinking\":" TEXT ",\"hearthkey\":1}]";
    if (trait == TRAIT_THOUGHT_ALONE)
        return !writes_thought(c, "\"content\":\"x\",\"thinking\":" TEXT);
    if (writes_thought(c, "\"content\":\"\",\"reasoning_content\":" TEXT))
        return false;
    if (trait == TRAIT_THINKING)
        return writes_thought(c, "\"content\":\"\",\"thinking\":" TEXT);
    return writes_thought(c, in_part);
}

#define DESCRIPTION "\"description\":\"\""
#define PARAMETERS(members)                                                                        \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\"" members "}}}"

/* Does it render a question with a tool that has these members? */
static bool takes_tool(const struct chat *c, const char *members)
{
    struct chat probe = *c;
    struct jinja_output o;
    char tools[256];
    snprintf(tools, sizeof(tools), "[{\"type\":\"function\",\"function\":{\"name\":\"f\",%s}}]",
             members);
    probe.tools = probe.shown = chat_made_up(c, tools);
    const bool takes = probe.tools && chat_form_render(&probe, CHAT_FORM_ASKED, true, &o);
    if (takes)
        jinja_output_fini(&o);
    json_decref(probe.tools);
    return takes;
}

/* Does it render a call with this id, and its result? */
static bool takes_id(const struct chat *c, const char *id)
{
    static const char turn[] =
        "[" USER("\"x\"") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":"
                          "\"%s\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                          "\"arguments\":%s}}]},{\"role\":\"tool\",\"tool_call_id\":\"%s\","
                          "\"name\":\"f\",\"content\":\"y\"}]";
    char messages[512];
    snprintf(messages, sizeof(messages), turn, id,
             has_trait(c, TRAIT_ARGUMENTS) ? "{\"x\":1}" : "\"{\\\"x\\\": 1}\"", id);
    return writes(c, messages, "");
}

static bool try_trait(const struct chat *c, enum chat_trait trait)
{
    static const char all[] = DESCRIPTION "," PARAMETERS("," DESCRIPTION);
    switch (trait) {
    case TRAIT_DESCRIPTION:
        return !takes_tool(c, PARAMETERS("," DESCRIPTION)) && takes_tool(c, all);
    case TRAIT_PARAMETERS:
        return !takes_tool(c, DESCRIPTION) && takes_tool(c, all);
    case TRAIT_PROPERTIES:
        return !takes_tool(c, DESCRIPTION ",\"parameters\":{\"type\":\"object\"}") &&
               takes_tool(c, all);
    case TRAIT_PROPERTY:
        return !takes_tool(c, DESCRIPTION "," PARAMETERS("")) && takes_tool(c, all);
    case TRAIT_THINKING:
    case TRAIT_THOUGHT_PART:
    case TRAIT_THOUGHT_ALONE:
        return try_thought(c, trait);
    case TRAIT_SYSTEM: /* if nothing works, rendering the real messages says why */
        return writes(c, "[{\"role\":\"system\",\"content\":" TEXT "}," USER("\"x\"") "]",
                      NEEDLE) ||
               !writes(c, "[" USER(TEXT) "]", NEEDLE);
    case TRAIT_LATER:
        return writes_after(
            c,
            "[" USER("\"hearthbefore\"") ",{\"role\":\"system\",\"content\":" TEXT
                                         "},{\"role\":\"assistant\",\"content\":\"x\"}," USER(
                                             "\"x\"") "]",
            "hearthbefore", NEEDLE);
    case TRAIT_PARTS:
        return !writes(c, "[" USER(TEXT) "]", NEEDLE) && writes(c, "[" USER(PART) "]", NEEDLE);
    case TRAIT_OBJECTS:
        return writes(c, CALL(OBJECT), NEEDLE) && !writes(c, CALL(TEXT), NEEDLE);
    case TRAIT_DEVELOPER:
        return memmem(c->source, c->source_bytes, "developer", strlen("developer")) &&
               writes(c, "[{\"role\":\"developer\",\"content\":" TEXT "}," USER("\"x\"") "]",
                      NEEDLE);
    case TRAIT_TEXTS:
        return !writes(c, CALL(OBJECT), "") &&
               writes(c, CALL("\"{\\\"" NEEDLE "\\\":1}\""), NEEDLE);
    case TRAIT_IDS:
        return !takes_id(c, "call_1234567890") && takes_id(c, "call12345");
    default: /* a text that it takes as it is stays: another spacing would break the prefix */
        return writes(c, CALL(OBJECT), NEEDLE) &&
               !(writes(c, CALL("\"{\\\"" NEEDLE "\\\":1}\""), OBJECT) &&
                 (writes(c, CALL(OBJECT), "\"" NEEDLE "\": 1") ||
                  writes(c, CALL(OBJECT), "'" NEEDLE "': 1")));
    }
}

struct chat_traits *chat_traits(const struct chat *c)
{
    struct chat_traits *t = &c->h->traits;
    if (t->hash != c->hash)
        *t = (struct chat_traits){.hash = c->hash};
    return t;
}

static bool has_trait(const struct chat *c, enum chat_trait trait)
{
    struct chat_traits *t = chat_traits(c);
    if (!(t->known & trait)) {
        struct chat probe = chat_probe_begin(c, trait & TRAITS_OF_CALLS);
        const bool holds = try_trait(&probe, trait); /* which may find others */
        chat_probe_end(&probe);
        t->known |= trait;
        t->holds |= holds ? trait : 0u;
    }
    return (t->holds & trait) != 0;
}

/* ---- contents -------------------------------------------------------------------------------- */

json_t *chat_join_parts(const struct chat *c, const json_t *parts)
{
    size_t i, bytes = 0;
    const json_t *part;
    json_array_foreach(parts, i, part) {
        const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
        if (!json_is_string(text) || (type && strcmp(json_string_value(type), "text") != 0))
            return NULL;
        bytes += json_string_length(text);
    }
    char *all = malloc(bytes + 1);
    if (!all) {
        chat_ran_out(c);
        return NULL;
    }
    bytes = 0;
    json_array_foreach(parts, i, part) {
        const json_t *text = json_object_get(part, "text");
        memcpy(all + bytes, json_string_value(text), json_string_length(text));
        bytes += json_string_length(text);
    }
    json_t *joined = json_stringn_nocheck(all, bytes);
    free(all);
    if (!joined)
        chat_ran_out(c);
    return joined;
}

static int adapt_content(const struct chat *c, json_t *m)
{
    json_t *content = json_object_get(m, "content"), *other = NULL;
    bool none = !content || json_is_null(content);
    if (none && c->is_family)
        other = json_string("");
    else if (json_is_array(content) && !has_trait(c, TRAIT_PARTS))
        other = chat_join_parts(c, content);
    else if (json_is_string(content) && has_trait(c, TRAIT_PARTS))
        other = json_pack("[{s:s,s:O}]", "type", "text", "text", content);
    else
        return 0;
    /* Parts that are not text stay: the template may know them. */
    if (!other)
        return json_is_array(content) ? 0 : -ENOMEM;
    return json_object_set_new(m, "content", other) ? -ENOMEM : 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int write_arguments(json_t *function)
{
    char *text = json_shortest(json_object_get(function, "arguments"), 0);
    const int rc = json_object_set_new(function, "arguments", json_string(text ? text : ""));
    free(text);
    return text ? rc : -1;
}

static int adapt_calls(const struct chat *c, json_t *m)
{
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) {
        json_t *function = json_object_get(call, "function");
        const json_t *arguments = json_object_get(function, "arguments");
        if (json_is_object(arguments) && has_trait(c, TRAIT_TEXTS)) {
            if (write_arguments(function))
                return -ENOMEM;
            continue;
        }
        if (!json_is_string(arguments) ||
            !(has_trait(c, TRAIT_ARGUMENTS) || has_trait(c, TRAIT_OBJECTS)))
            continue;
        json_t *object = json_mend(json_string_value(arguments), json_string_length(arguments),
                                   JSON_ALLOW_NUL, NULL);
        const bool is_object = json_is_object(object);
        if (!is_object) { /* the model wrote none, or was cut off */
            json_decref(object);
            object = json_pack("{s:O}", "arguments", arguments);
        }
        if (!has_trait(c, is_object ? TRAIT_ARGUMENTS : TRAIT_OBJECTS)) /* it stays a text */
            json_decref(object);
        else if (json_object_set_new(function, "arguments", object))
            return -ENOMEM;
    }
    return 0;
}

/* Ids of other servers' calls, for a template that takes nine letters and digits alone: the same
 * one in every turn. */
static int adapt_id(const struct chat *c, json_t *object, const char *key)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    enum { BYTES = 9 };
    const char *id = json_string_value(json_object_get(object, key));
    char own[BYTES];
    uint64_t z = 0xcbf29ce484222325u; /* FNV-1a */
    if (!id || (strlen(id) == BYTES && strspn(id, digits) == BYTES) || !has_trait(c, TRAIT_IDS))
        return 0;
    for (; *id; id++)
        z = (z ^ (unsigned char)*id) * 0x100000001b3u;
    for (size_t i = 0; i < BYTES; i++, z /= sizeof(digits) - 1)
        own[i] = digits[z % (sizeof(digits) - 1)];
    return json_object_set_new(object, key, json_stringn(own, BYTES)) ? -ENOMEM : 0;
}

static int adapt_ids(const struct chat *c, json_t *m)
{
    int rc = adapt_id(c, m, "tool_call_id");
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) {
        if (!rc)
            rc = adapt_id(c, call, "id");
    }
    return rc;
}

/* ---- tools ----------------------------------------------------------------------------------- */

static bool lacks(const struct chat *c, const json_t *object, const char *key,
                  enum chat_trait trait)
{
    const json_t *is = json_object_get(object, key);
    return json_is_object(object) && (!is || json_is_null(is)) && has_trait(c, trait);
}

static bool tool_lacks(const struct chat *c, const json_t *tool)
{
    json_t *f = json_object_get(tool, "function"), *parameters = json_object_get(f, "parameters");
    json_t *property;
    const char *name;
    bool lacking = lacks(c, f, "description", TRAIT_DESCRIPTION) ||
                   lacks(c, f, "parameters", TRAIT_PARAMETERS) ||
                   lacks(c, parameters, "properties", TRAIT_PROPERTIES);
    json_object_foreach(json_object_get(parameters, "properties"), name, property)
        lacking |= lacks(c, property, "description", TRAIT_PROPERTY);
    return lacking;
}

static int fill_tool(const struct chat *c, json_t *tool)
{
    json_t *f = json_object_get(tool, "function"), *parameters, *property;
    const char *name;
    int rc = 0;
    if (lacks(c, f, "description", TRAIT_DESCRIPTION))
        rc |= json_object_set_new(f, "description", json_string(""));
    if (lacks(c, f, "parameters", TRAIT_PARAMETERS))
        rc |= json_object_set_new(f, "parameters",
                                  json_pack("{s:s,s:{}}", "type", "object", "properties"));
    parameters = json_object_get(f, "parameters");
    if (lacks(c, parameters, "properties", TRAIT_PROPERTIES))
        rc |= json_object_set_new(parameters, "properties", json_object());
    json_object_foreach(json_object_get(parameters, "properties"), name, property)
        if (lacks(c, property, "description", TRAIT_PROPERTY))
            rc |= json_object_set_new(property, "description", json_string(""));
    return rc;
}

json_t *chat_adapt_tools(const struct chat *c)
{
    size_t i;
    json_t *tool;
    bool lacking = false;
    json_array_foreach(c->tools, i, tool)
        lacking |= tool_lacks(c, tool);
    if (!lacking)
        return json_incref(c->tools);
    json_t *all = json_deep_copy(c->tools);
    json_array_foreach(all, i, tool) {
        if (fill_tool(c, tool)) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

/* ---- system messages ------------------------------------------------------------------------- */

static bool has_role(const json_t *m, const char *role)
{
    return strcmp(json_string_value(json_object_get(m, "role")), role) == 0;
}

/* The contents of messages one after the other, all texts or all parts; NULL: they are not, or no
 * memory, which it notes. */
static json_t *join_contents(const struct chat *c, const json_t *messages)
{
    struct buffer text = {0};
    json_t *parts = json_array(), *joined = NULL;
    size_t i, n_texts = 0, n_parts = 0;
    const json_t *m;
    bool failed = !parts;
    json_array_foreach(messages, i, m) {
        json_t *content = json_object_get(m, "content");
        n_texts += json_is_string(content);
        buffer_text(&text, i ? "\n" : "");
        buffer_add(&text, json_string_value(content), json_string_length(content));
        n_parts += json_is_array(content);
        failed |= json_is_array(content) && json_array_extend(parts, content) != 0;
    }
    if (n_texts == i)
        joined = failed || text.failed ? NULL : json_stringn_nocheck(text.data, text.bytes);
    else if (n_parts == i)
        joined = failed ? NULL : json_incref(parts);
    if (!joined && (n_texts == i || n_parts == i))
        chat_ran_out(c);
    buffer_fini(&text);
    json_decref(parts);
    return joined;
}

/* Is it a message of the system that the template does not write at its place? */
static bool is_misplaced(const struct chat *c, size_t i)
{
    return has_role(json_array_get(c->messages, i), "system") &&
           (!has_trait(c, TRAIT_SYSTEM) || (i && !has_trait(c, TRAIT_LATER)));
}

/* Messages of the system become text of the user: of the message before them, which does not depend
 * on what follows and so keeps a prefix stable; else of the one after them; else a message of their
 * own. *all: the messages before. */
static int place_systems(const struct chat *c, json_t *all, json_t *run, json_t *next)
{
    json_t *before = json_array_get(all, json_array_size(all) - 1), *to = NULL, *joined, *m;
    size_t i;
    int rc = 0;
    if (before && has_role(before, "user"))
        rc = json_array_insert(run, 0, to = before);
    else if (next && has_role(next, "user"))
        rc = json_array_append(run, to = next);
    joined = to && !rc ? join_contents(c, run) : NULL;
    if (joined)
        return json_object_set_new(to, "content", joined) ? -ENOMEM : 0;
    json_array_foreach(run, i, m) {
        if (rc || m == to)
            continue;
        rc = json_object_set_new(m, "role", json_string("user")) || json_array_append(all, m);
    }
    return rc ? -ENOMEM : 0;
}

static int adapt_systems(struct chat *c)
{
    json_t *all = json_array(), *run = json_array();
    const size_t n = json_array_size(c->messages);
    int rc = all && run ? 0 : -ENOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        json_t *m = json_array_get(c->messages, i), *next = json_array_get(c->messages, i + 1);
        const bool misplaced = is_misplaced(c, i);
        if (json_array_append(misplaced ? run : all, m))
            rc = -ENOMEM;
        else if (misplaced && !(next && is_misplaced(c, i + 1)))
            rc = place_systems(c, all, run, next) || json_array_clear(run) ? -ENOMEM : 0;
    }
    if (!rc && (json_array_clear(c->messages) || json_array_extend(c->messages, all)))
        rc = -ENOMEM;
    json_decref(all);
    json_decref(run);
    return rc;
}

/* ---- thoughts -------------------------------------------------------------------------------- */

/* The template refuses a content beside a thought: it follows the thought. */
static json_t *with_content(const struct chat *c, json_t *m, json_t *thought)
{
    if (!json_string_length(json_object_get(m, "content")))
        return json_incref(thought);
    json_t *both = json_pack("[{s:O},O]", "content", thought, m);
    json_t *all = both ? join_contents(c, both) : NULL;
    json_decref(both);
    return all;
}

static int set_thinking(const struct chat *c, json_t *m, json_t *thought)
{
    const bool alone =
        json_array_size(json_object_get(m, "tool_calls")) && has_trait(c, TRAIT_THOUGHT_ALONE);
    json_t *all = alone ? with_content(c, m, thought) : json_incref(thought);
    if (alone && json_object_set_new(m, "content", json_string(""))) {
        json_decref(all);
        return -ENOMEM;
    }
    return json_object_set_new(m, "thinking", all) ? -ENOMEM : 0;
}

/* A part before the others. */
static int add_thought_part(json_t *m, json_t *thought)
{
    json_t *content = json_object_get(m, "content");
    json_t *parts = json_is_array(content) ? chat_copy(content)
                    : json_string_length(content)
                        ? json_pack("[{s:s,s:O}]", "type", "text", "text", content)
                        : json_array();
    json_t *part = json_pack("{s:s,s:O}", "type", "thinking", "thinking", thought);
    if (!parts || json_array_insert_new(parts, 0, part)) {
        json_decref(parts);
        return -ENOMEM;
    }
    return json_object_set_new(m, "content", parts) ? -ENOMEM : 0;
}

static int adapt_thought(const struct chat *c, json_t *m)
{
    json_t *thought = json_object_get(m, "reasoning_content");
    if (!json_string_length(thought) || json_object_get(m, "thinking"))
        return 0;
    if (has_trait(c, TRAIT_THINKING))
        return set_thinking(c, m, thought);
    return has_trait(c, TRAIT_THOUGHT_PART) ? add_thought_part(m, thought) : 0;
}

/* ---- roles ----------------------------------------------------------------------------------- */

/* The role `developer` is OpenAI's later name of `system`, which most templates pass over or refuse. */
static int adapt_role(const struct chat *c, size_t i)
{
    json_t *m = json_array_get(c->messages, i);
    if (!has_role(m, "developer") || (i == 0 && has_trait(c, TRAIT_DEVELOPER)))
        return 0;
    return json_object_set_new(m, "role", json_string("system")) ? -ENOMEM : 0;
}

int chat_adapt(struct chat *c)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < json_array_size(c->messages); i++) {
        json_t *m = json_array_get(c->messages, i);
        rc = adapt_role(c, i);
        if (!rc)
            rc = adapt_content(c, m);
        if (!rc)
            rc = adapt_calls(c, m);
        if (!rc)
            rc = adapt_ids(c, m);
        if (!rc)
            rc = adapt_thought(c, m);
    }
    return rc ? rc : adapt_systems(c);
}
