/* chat_turns: see chat_turns.h.
 *
 * Some templates refuse conversations in which users and assistants do not take turns, and agents
 * send such ones: a reminder after a result, a question after calls that the user interrupted. Each
 * of these places is tried on a made-up conversation, once a template and only when a conversation
 * has such a place. What it makes of a message does not depend on what comes later: a text that
 * follows a result goes behind it, never into the next message. */
#include "client/prompt/chat_turns.h"

#include "client/base/buffer.h"
#include "client/prompt/chat_adapt.h"
#include "client/prompt/chat_form.h"
#include "client/prompt/chat_tidy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- what the template refuses --------------------------------------------------------------- */

enum place {
    PLACE_USERS,   /* a user after a user */
    PLACE_ANSWERS, /* an answer after an answer */
    PLACE_CALLS,   /* calls after an answer */
    PLACE_RESULT,  /* a user after a tool's result */
    PLACE_NONE,    /* a user after calls */
    PLACE_TOO_FEW, /* a user after fewer results than calls */
};

#define MESSAGE(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define USER MESSAGE("user", "x")
#define ANSWER MESSAGE("assistant", "x")
#define WORD "hearthword"
#define CALL(k)                                                                                    \
    "{\"id\":\"call1234" k "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"  \
    "\"{\\\"x\\\": 1}\"}}"
#define CALLS(calls) "{\"role\":\"assistant\",\"content\":%s,\"tool_calls\":[" calls "]}"
#define RESULT(k, text)                                                                            \
    "{\"role\":\"tool\",\"tool_call_id\":\"call1234" k "\",\"name\":\"f\",\"content\":\"" text "\"}"

/* A conversation with the place, and what becomes of it: %s is the content beside calls. */
static const struct {
    const char *with, *instead;
} probes[] = {
    [PLACE_USERS] = {USER "," USER, MESSAGE("user", WORD)},
    [PLACE_ANSWERS] = {USER "," ANSWER "," ANSWER "," USER,
                       USER "," MESSAGE("assistant", WORD) "," USER},
    [PLACE_CALLS] = {USER "," ANSWER "," CALLS(CALL("1")) "," RESULT("1", "x") "," ANSWER "," USER,
                     USER "," CALLS(CALL("1")) "," RESULT("1", WORD) "," ANSWER "," USER},
    [PLACE_RESULT] = {USER "," CALLS(CALL("1")) "," RESULT("1", "x") "," USER,
                      USER "," CALLS(CALL("1")) "," RESULT("1", WORD)},
    [PLACE_NONE] = {USER "," CALLS(CALL("1")) "," USER,
                    USER "," CALLS(CALL("1")) "," RESULT("1", WORD)},
    [PLACE_TOO_FEW] = {USER "," CALLS(CALL("1") "," CALL("2")) "," RESULT("1", "x") "," USER, USER
                       "," CALLS(CALL("1") "," CALL("2")) "," RESULT("1", "x") "," RESULT("2",
                                                                                          WORD)},
};

/* Does the template render it, and write the word? */
static bool renders(const struct chat *c, const char *probe, const char *content, const char *word)
{
    struct jinja_output o;
    char list[1024], messages[sizeof(list) + 2];
    snprintf(list, sizeof(list), probe, content);
    snprintf(messages, sizeof(messages), "[%s]", list);
    struct chat made_up = chat_probe_begin(c, json_array_size(c->tools) > 0);
    const bool ok = chat_form_render(&made_up, messages, true, &o);
    chat_probe_end(&made_up);
    if (!ok)
        return false;
    const bool found = memmem(o.text, o.bytes, word, strlen(word)) != NULL;
    jinja_output_fini(&o);
    return found;
}

static bool refuses(const struct chat *c, enum place place)
{
    enum { UNKNOWN, TAKEN, REFUSED };
    uint8_t *is = &chat_traits(c)->places[json_array_size(c->tools) > 0][place];
    for (int k = 0; k < 2 && *is == UNKNOWN; k++) {
        const char *content = k ? "null" : "\"\"";
        if (renders(c, probes[place].instead, content, WORD))
            *is = renders(c, probes[place].with, content, "") ? TAKEN : REFUSED;
    }
    if (*is == UNKNOWN)
        *is = TAKEN;
    return *is == REFUSED;
}

static bool has_role(const json_t *m, const char *role)
{
    return m && strcmp(json_string_value(json_object_get(m, "role")), role) == 0;
}

/* ---- results --------------------------------------------------------------------------------- */

static json_t *no_result(const json_t *call)
{
    return json_pack(
        "{s:s,s:O*,s:O*,s:s}", "role", "tool", "tool_call_id", json_object_get(call, "id"), "name",
        json_object_get(json_object_get(call, "function"), "name"), "content", "(no result)");
}

/* Appends the n results after messages[at] to *all, in the order of their calls, and for calls that
 * have none one that says so. */
static int add_results(json_t *all, const json_t *calls, const json_t *messages, size_t at,
                       size_t n)
{
    const size_t n_calls = json_array_size(calls);
    size_t of[CHAT_MOST_CALLS], missing = n_calls - n;
    int rc = 0;
    chat_match_results(calls, messages, at + 1, n, of);
    for (size_t k = 0; k <= n_calls; k++) { /* the last are those that answer none */
        bool found = k == n_calls;
        for (size_t i = 0; i < n; i++)
            if (of[i] == k) {
                rc |= json_array_append(all, json_array_get(messages, at + 1 + i));
                found = true;
            }
        if (!found && missing) {
            rc |= json_array_append_new(all, no_result(json_array_get(calls, k)));
            missing--;
        }
    }
    return rc ? -ENOMEM : 0;
}

/* What follows the calls of messages[at] up to a user, whole; *ret_n: how many messages it was. */
static int complete_results(const struct chat *c, size_t at, json_t *all, size_t *ret_n)
{
    const json_t *calls = json_object_get(json_array_get(c->messages, at), "tool_calls");
    const size_t n_calls = json_array_size(calls);
    const json_t *m;
    size_t n = 0;
    *ret_n = 0;
    if (!n_calls || n_calls > CHAT_MOST_CALLS)
        return 0;
    while ((m = json_array_get(c->messages, at + 1 + n)) && n < n_calls && has_role(m, "tool"))
        n++;
    if (n == n_calls || !has_role(m, "user") ||
        !(refuses(c, PLACE_NONE) || (n && refuses(c, PLACE_TOO_FEW))))
        return 0;
    *ret_n = n;
    return add_results(all, calls, c->messages, at, n);
}

/* ---- messages that become one ---------------------------------------------------------------- */

static bool calls_nothing(const json_t *m)
{
    return json_array_size(json_object_get(m, "tool_calls")) == 0;
}

/* Does this message become part of the first, as the one before it may have? */
static bool joins(const struct chat *c, const json_t *first, const json_t *before, const json_t *m)
{
    if (has_role(m, "assistant"))
        return has_role(first, "assistant") && calls_nothing(before) &&
               refuses(c, calls_nothing(m) ? PLACE_ANSWERS : PLACE_CALLS);
    if (!has_role(m, "user"))
        return false;
    if (has_role(first, "tool")) /* templates write a result's parts as they are */
        return json_typeof(json_object_get(first, "content")) ==
                   json_typeof(json_object_get(m, "content")) &&
               refuses(c, PLACE_RESULT);
    return has_role(first, "user") && refuses(c, PLACE_USERS);
}

/* The contents of messages[at] to [at + n - 1]: one text, or parts where one of them has parts. */
static json_t *join_contents(const json_t *messages, size_t at, size_t n)
{
    json_t *parts = json_array(), *joined;
    struct buffer text = {0};
    bool failed = !parts, has_parts = false;
    for (size_t i = at; i < at + n && !failed; i++) {
        json_t *content = json_object_get(json_array_get(messages, i), "content");
        const size_t bytes = json_string_length(content);
        has_parts |= json_is_array(content);
        if (!bytes && !json_array_size(content))
            continue;
        if (json_array_size(parts))
            failed |= json_array_append_new(parts,
                                            json_pack("{s:s,s:s}", "type", "text", "text", "\n\n"));
        failed |= bytes ? json_array_append_new(
                              parts, json_pack("{s:s,s:O}", "type", "text", "text", content))
                        : json_array_extend(parts, content);
        buffer_text(&text, text.bytes ? "\n\n" : "");
        buffer_add(&text, json_string_value(content), bytes);
    }
    failed |= text.failed;
    joined = failed      ? NULL
             : has_parts ? json_incref(parts)
                         : json_stringn_nocheck(text.data ? text.data : "", text.bytes);
    buffer_fini(&text);
    json_decref(parts);
    return joined;
}

/* The thoughts of messages[at] to [at + n - 1] that stand in this member, one after the other. */
static int join_thoughts(json_t *one, const json_t *messages, size_t at, size_t n, const char *key)
{
    struct buffer text = {0};
    for (size_t i = at; i < at + n; i++) {
        const json_t *thought = json_object_get(json_array_get(messages, i), key);
        const size_t bytes = json_string_length(thought);
        buffer_text(&text, bytes && text.bytes ? "\n\n" : "");
        buffer_add(&text, json_string_value(thought), bytes);
    }
    const int rc = text.failed ? -1
                   : text.bytes
                       ? json_object_set_new(one, key, json_stringn_nocheck(text.data, text.bytes))
                       : 0;
    buffer_fini(&text);
    return rc;
}

/* Adds the members of *from that *one lacks. */
static int add_missing(json_t *one, json_t *from)
{
    const char *key;
    json_t *value;
    int rc = 0;
    json_object_foreach(from, key, value) {
        if (!json_object_get(one, key))
            rc |= json_object_set_nocheck(one, key, value);
    }
    return rc;
}

/* Appends one message in place of n: what else the later ones have, such as calls, is its own. */
static int append_joined(json_t *all, const json_t *messages, size_t at, size_t n)
{
    json_t *one = chat_copy(json_array_get(messages, at));
    int rc = one ? json_object_set_new(one, "content", join_contents(messages, at, n)) : -1;
    if (!rc && has_role(one, "assistant"))
        rc = join_thoughts(one, messages, at, n, "reasoning_content") ||
             join_thoughts(one, messages, at, n, "thinking");
    for (size_t i = at + 1; i < at + n && !rc && has_role(one, "assistant"); i++)
        rc = add_missing(one, json_array_get(messages, i));
    return json_array_append_new(all, one) || rc ? -ENOMEM : 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

static int replace(json_t *messages, json_t *all)
{
    return json_array_clear(messages) || json_array_extend(messages, all) ? -ENOMEM : 0;
}

static int complete_all(struct chat *c, json_t *all)
{
    size_t n;
    int rc = 0;
    for (size_t i = 0; !rc && i < json_array_size(c->messages); i += 1 + n) {
        n = 0;
        rc = json_array_append(all, json_array_get(c->messages, i)) ? -ENOMEM : 0;
        if (!rc)
            rc = complete_results(c, i, all, &n);
    }
    return rc ? rc : replace(c->messages, all);
}

static int join_all(struct chat *c, json_t *all)
{
    size_t n;
    int rc = 0;
    for (size_t i = 0; !rc && i < json_array_size(c->messages); i += n) {
        json_t *first = json_array_get(c->messages, i), *before = first, *m;
        for (n = 1; (m = json_array_get(c->messages, i + n)) && joins(c, first, before, m); n++)
            before = m;
        rc = n > 1 ? append_joined(all, c->messages, i, n) : json_array_append(all, first);
    }
    return rc ? -ENOMEM : replace(c->messages, all);
}

int chat_turns(struct chat *c)
{
    json_t *all = json_array();
    int rc = all ? complete_all(c, all) : -ENOMEM;
    if (!rc)
        rc = json_array_clear(all) ? -ENOMEM : join_all(c, all);
    json_decref(all);
    return rc;
}
